//! What the admin server asks of the gateway it belongs to.

use serde::Serialize;

/// The running gateway, as operators see it. Called on the control thread; must not block for long.
pub trait Gateway: Send + Sync + 'static {
    /// Whether new sessions are served.
    ///
    /// # Errors
    /// The reasons why not, in words: a shutdown has begun, a listener whose cluster has no server up.
    fn ready(&self) -> Result<(), Vec<String>>;

    /// Everything there is, now.
    fn status(&self) -> Status;

    /// Changes what is logged, as [`telemetry::log::LogHandle::set_level`].
    ///
    /// # Errors
    /// Why the level is none, in words.
    fn set_log_level(&self, level: &str) -> Result<(), String>;

    /// Reads the configuration again and applies what can be applied; returns what was changed and what was not, in
    /// words.
    ///
    /// # Errors
    /// What is wrong with the configuration, in words. The one in force stays.
    fn reload(&self) -> Result<String, String>;
}

/// A snapshot of the gateway. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Version of Forebay.
    pub version: String,
    /// Seconds since the process started.
    pub uptime_seconds: u64,
    /// A shutdown has begun.
    pub shutting_down: bool,
    /// Sessions open now, in all.
    pub sessions: u64,
    /// Listeners, in the order of the configuration.
    pub listeners: Vec<ListenerStatus>,
    /// Clusters, by name.
    pub clusters: Vec<ClusterStatus>,
    /// Workers, by index.
    pub workers: Vec<WorkerStatus>,
}

/// One listener.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// Address or path it listens on, as bound.
    pub bind: String,
    /// `tcp` or `session`.
    pub mode: String,
    /// The cluster its sessions go to.
    pub cluster: String,
    /// Sessions open now.
    pub sessions: u64,
}

/// One cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// Sessions waiting for a place on a server.
    pub waiting: u64,
    /// Its servers, in the order of the configuration; removed ones that still have sessions come last.
    pub servers: Vec<ServerStatus>,
}

/// One server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// `host:port` or path.
    pub address: String,
    /// `starting`, `up`, `down` or `removed`.
    pub state: String,
    /// Seconds in that state.
    pub state_seconds: u64,
    /// Why it is in that state, in words; empty where there is nothing to say.
    pub reason: String,
    /// Sessions that hold a connection to it.
    pub sessions: u64,
}

/// One worker thread.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// Its index, from 0; the label `worker` of metrics.
    pub index: usize,
    /// Sessions on it.
    pub sessions: u64,
}
