//! What a feature adds to the data plane: who serves the connections of listeners whose protocol is not
//! MySQL's, and who answers point lookups (see `lookups`).
//!
//! The data plane knows no feature. It is given an [`Extension`] when it starts, asks it once a worker for
//! what lives there ([`WorkerExtension`]), and gives that each connection of such a listener as a
//! [`ProtocolConnection`]: accepted and counted, with the PROXY header read and TLS done. What belongs to
//! every session, whatever it speaks, is in its [`ProtocolSession`]: accounts, signals (drain, kill,
//! idleness), counters, and its place in the registry.

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
    /// What of it lives on a worker. Called once on each worker's thread, in its runtime, before the first
    /// connection comes: it may use `spawn_local`.
    fn on_worker(&self, worker: &WorkerHandle) -> Rc<dyn WorkerExtension>;

    /// Takes over what a new configuration changes for it and what needs no restart. It cannot be refused any
    /// more.
    fn reload(&self, _config: &config::Config) {}
}

/// How the data plane makes its extension once the clusters are there: all of them are given.
pub type BuildExtension<'a> = Box<dyn FnOnce(&[Arc<Cluster>]) -> Result<Arc<dyn Extension>, String> + 'a>;

/// The part of an extension that lives on one worker.
pub trait WorkerExtension {
    /// Serves a connection until it ends. Runs on the task of the connection and must stay there: a signal
    /// wakes that task.
    fn serve(&self, connection: ProtocolConnection) -> Pin<Box<dyn Future<Output = ProtocolEnd> + '_>>;

    /// Who hears of each command that has ended, in modes `session` and `split`. Asked once.
    fn observers(&self) -> Vec<Rc<dyn Observer>> {
        Vec::new()
    }

    /// Who compares answers with those to copies of statements (`mirror_compare` of rules), where anybody
    /// does.
    fn comparer(&self) -> Option<Arc<dyn Comparer>> {
        None
    }

    /// What answers point lookups of this listener's sessions, where anything does.
    fn lookups(&self, _listener: &config::Listener) -> Option<Rc<dyn Lookups>> {
        None
    }
}

/// A worker, as extensions see it.
pub struct WorkerHandle {
    /// From 0 on.
    pub index: usize,
    pub metrics: Arc<telemetry::Worker>,
}

/// A connection that is to be served.
pub struct ProtocolConnection {
    /// Plain, or TLS where the listener has that.
    pub stream: Stream,
    /// What was read of it already.
    pub unread: Vec<u8>,
    /// Who it is to the data plane.
    pub control: ProtocolSession,
}

/// How a connection of such a client ended. Whatever the client was to be told it was told.
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

/// What a session is told to do: to end, for some reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSignal(pub(crate) Signal);

impl StopSignal {
    /// Why, for the client.
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

    /// Not even a last word may delay the end.
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

    /// Whether the session has to end now. `is_free`: nothing is lost when it ends here; at other moments
    /// only urgent orders count. Costs a comparison.
    #[inline]
    #[must_use]
    pub fn due(&self, is_free: bool) -> Option<StopSignal> {
        self.control.due(is_free).map(StopSignal)
    }

    /// Waits until the session has to end. Use it in a `select!` beside every wait, on the task that
    /// [`serve`](WorkerExtension::serve) was called on: no other is woken.
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
