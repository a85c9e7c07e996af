//! The interface of features that extend the data plane. A feature serves the connections of listeners whose
//! protocol is not MySQL's, and answers point lookups (see `lookups`).
//!
//! The data plane knows no feature. An [`Extension`] is given to it when it starts, and makes one
//! [`WorkerExtension`] for each worker. Each connection of such a listener goes to the worker's part as a
//! [`ProtocolConnection`]: accepted and counted, with the PROXY header read and TLS done. The
//! [`ProtocolSession`] in it has the parts that every session has, whatever its protocol: accounts, signals
//! (drain, kill, idleness), counters, and the session's place in the registry.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use net::{Peer, Stream};
use telemetry::ListenerMetrics;
use upstream::Cluster;

use crate::control::{Control, Signal, Waiting};
use crate::finished::Observer;
use crate::frontend::data_plane::Home;
use crate::frontend::listener_state::ListenerState;
use crate::mirrored::Comparer;

pub use crate::lookups::{
    Answered, Asked, Environment, Finding, Gate, Left, Lesson, Lookups, Parameters, Plan, Rights,
    Surroundings, Variable,
};
pub use crate::read_gate::{Gated, Gating, is_plain};

/// A feature that serves connections.
pub trait Extension: Send + Sync {
    /// Makes the part that lives on a worker. Called once on each worker's thread, in its runtime, before the
    /// first connection comes, so `spawn_local` may be used.
    fn on_worker(&self, worker: &WorkerHandle) -> Rc<dyn WorkerExtension>;

    /// Takes over the changes of a new configuration that concern the extension and need no restart. The
    /// configuration cannot be refused any more.
    fn reload(&self, _config: &config::Config) {}
}

/// The function that makes the extension once the clusters are there. The argument is all clusters.
pub type BuildExtension<'a> = Box<dyn FnOnce(&[Arc<Cluster>]) -> Result<Arc<dyn Extension>, String> + 'a>;

/// The part of an extension that lives on one worker.
pub trait WorkerExtension {
    /// Serves a connection until it ends. The future runs on the task of the connection and must stay there:
    /// a signal wakes that task.
    fn serve(&self, connection: ProtocolConnection) -> Pin<Box<dyn Future<Output = ProtocolEnd> + '_>>;

    /// The observers that hear of each command that has ended, in modes `session` and `split`. Asked for
    /// once.
    fn observers(&self) -> Vec<Rc<dyn Observer>> {
        Vec::new()
    }

    /// The comparer of answers with those to copies of statements (`mirror_compare` of rules), if there is
    /// one.
    fn comparer(&self) -> Option<Arc<dyn Comparer>> {
        None
    }

    /// The lookups that answer for sessions of this listener, if there are any.
    fn lookups(&self, _listener: &config::Listener) -> Option<Rc<dyn Lookups>> {
        None
    }
}

/// A worker, as extensions see it.
pub struct WorkerHandle {
    /// The worker's number, from 0 on.
    pub index: usize,
    pub metrics: Arc<telemetry::Worker>,
}

/// A connection that is to be served.
pub struct ProtocolConnection {
    /// Plain, or TLS where the listener has that.
    pub stream: Stream,
    /// The bytes that were read of the stream already.
    pub unread: Vec<u8>,
    /// The session, as the data plane knows it.
    pub control: ProtocolSession,
}

/// The reason why the connection of such a client ended. The client has been told all it was to be told.
#[derive(Debug)]
pub enum ProtocolEnd {
    /// The client said goodbye.
    Quit,
    /// The client closed the connection.
    Gone,
    Failed(io::Error),
    /// The client broke the protocol; in words for the log.
    Protocol(String),
    /// The client did not log in within `login_timeout`.
    LoginTimeout,
    /// The session was told to end.
    Signalled(StopSignal),
}

/// An order to a session to end, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSignal(pub(crate) Signal);

impl StopSignal {
    /// The reason, in words for the client.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self.0 {
            Signal::ClientIdle | Signal::WaitTimeout | Signal::RequestStalled | Signal::ReaderStalled => {
                "disconnected because of inactivity"
            }
            Signal::Kill => "connection was killed",
            Signal::Shutdown | Signal::ShutdownNow => "the gateway is shutting down",
            Signal::Drain
            | Signal::DrainNow
            | Signal::ServerTimeout
            | Signal::StatementTimeout
            | Signal::ServerSilent
            | Signal::ServerDown => "taken out of service; connect again",
        }
    }

    /// Whether not even a last word may delay the end.
    #[must_use]
    pub fn is_immediate(self) -> bool {
        matches!(self.0, Signal::DrainNow | Signal::ShutdownNow)
    }
}

/// A session that is no MySQL session, as the data plane knows it.
pub struct ProtocolSession {
    pub(crate) home: Rc<Home>,
    pub(crate) control: Rc<Control>,
    pub(crate) listener: Arc<ListenerState>,
    pub(crate) metrics: Arc<ListenerMetrics>,
    pub(crate) peer: Peer,
    pub(crate) local: Peer,
}

impl ProtocolSession {
    /// The connection id, which no other session of this gateway has.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.control.id
    }

    /// The client, behind the load balancer that speaks for it.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The address that the client connected to.
    #[must_use]
    pub fn local(&self) -> Peer {
        self.local
    }

    /// The listener's options, as they were when the client came.
    #[must_use]
    pub fn listener(&self) -> &config::Listener {
        &self.listener.config
    }

    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.listener.cluster
    }

    /// Whether so many logins have failed that the connection has to end.
    #[must_use]
    pub fn has_failed_too_often(&self) -> bool {
        self.control.failed_logins() >= self.listener().login_failures_max
    }

    /// The order by which the session has to end now, if there is one. `is_free`: nothing is lost when the
    /// session ends here; at other moments only urgent orders count. Costs a comparison.
    #[inline]
    #[must_use]
    pub fn due(&self, is_free: bool) -> Option<StopSignal> {
        self.control.due(is_free).map(StopSignal)
    }

    /// Waits until the session has to end. Use it in a `select!` beside every wait, on the task that
    /// [`serve`](WorkerExtension::serve) was called on: no other task is woken.
    pub async fn ordered(&self, is_free: bool) -> StopSignal {
        StopSignal(self.control.signalled(is_free).await)
    }

    /// From here on the session waits for its client: the time of `client_idle_timeout` begins anew.
    #[inline]
    pub fn waits_for_client(&self) {
        self.control.mark(Waiting::Client);
    }

    /// From here on the client waits for the session.
    #[inline]
    pub fn works(&self) {
        self.control.mark(Waiting::Server);
    }

    /// Counts bytes that came from the client.
    #[inline]
    pub fn add_from_client(&self, bytes: usize) {
        self.metrics.bytes_from_clients.add(bytes as u64);
    }

    /// Counts bytes that went to the client.
    #[inline]
    pub fn add_to_client(&self, bytes: usize) {
        self.metrics.bytes_to_clients.add(bytes as u64);
    }

    /// Ends another session of this gateway, or this one, as an operator would. False where there is no such
    /// session.
    #[must_use]
    pub fn kill(&self, id: u32) -> bool {
        let place = self.home.shared.registry.find(id);
        let found = place.is_some();
        if let Some(place) = place {
            self.home.shared.kill(place.worker, id);
        }
        found
    }
}
