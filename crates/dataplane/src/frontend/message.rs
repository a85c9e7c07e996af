//! Messages to a worker.

use std::sync::Arc;

use net::Accepted;
use tokio::sync::oneshot;
use upstream::Cluster;

use crate::control::{ServerKey, Signal};
use crate::engine::rules::rule_set::ConfiguredRules;
use crate::frontend::extension::Extension;
use crate::frontend::listener_state::ListenerState;
use crate::hand_over::Stays;
use crate::hand_over::arriving::Arriving;
use crate::hand_over::way::Giving;
use crate::shown::status::SessionStatus;

/// A message to a worker. The queue has no bound of its own: it holds at most one message a client
/// connection, whose number is bounded where they are accepted, and a few for each change of the cluster.
pub(crate) enum Message {
    /// A client connection that was accepted for this worker.
    Arrived {
        accepted: Accepted,
        listener: Arc<ListenerState>,
    },
    /// A session of the process before this one, which offers it.
    TakeOver(Box<Arriving>),
    /// Sessions are to go to the process that has taken over.
    GiveAway(Arc<Giving>),
    /// Asks why the worker's sessions have not gone there.
    Staying {
        reply: oneshot::Sender<Vec<Stays>>,
    },
    /// A client connection that is refused, to be told so.
    Refused {
        accepted: Accepted,
        listener: Arc<ListenerState>,
        short_of_memory: bool,
    },
    Raise {
        id: u32,
        signal: Signal,
    },
    /// Kills a session of mode `split`, or the statement that it has under way.
    KillInPool {
        id: u32,
        query_only: bool,
        cluster: Arc<Cluster>,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Asks what the worker's sessions are doing, at most so many of them.
    Describe {
        limit: usize,
        reply: oneshot::Sender<Vec<(SessionStatus, Option<ServerKey>)>>,
    },
    RaiseOnServer {
        server: ServerKey,
        signal: Signal,
    },
    /// A server drains: the sessions on it are to look whether they can leave it.
    WakeOnServer(ServerKey),
    /// Some sessions may leave a server: `count` of this worker are to look, others each time.
    WakeSome {
        server: ServerKey,
        count: u32,
    },
    RaiseAll(Signal),
    /// The extension, which comes before the first connection, if at all.
    Extend(Arc<dyn Extension>),
    /// New rules, from here on.
    Rules(Arc<ConfiguredRules>),
    /// A cluster is no longer in the configuration, and its sessions have had their time.
    Forget {
        cluster_serial: u32,
    },
    /// Stops the worker, whatever is still running.
    Stop,
}
