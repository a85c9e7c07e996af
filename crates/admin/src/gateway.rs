//! What the admin server asks of the gateway it belongs to.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The running gateway, as operators see it. Called on the control thread; must not block for long. Errors
/// are reasons in words.
pub trait Gateway: Send + Sync + 'static {
    /// Whether this is the token of acts. `None` where there is no token: acts are taken on the socket alone.
    fn is_token(&self, given: &[u8]) -> Option<bool>;

    /// Names by which the address may be asked, besides those that are known anyway.
    fn hosts(&self) -> Vec<String>;

    /// Whether new sessions are served; if they are, what is wrong all the same, in words: writes are
    /// refused, or wait.
    ///
    /// # Errors
    /// The reasons why not, in words: a shutdown has begun, a listener whose cluster has no server up.
    fn ready(&self) -> Result<Vec<String>, Vec<String>>;

    /// With a reason `/readyz` says no, so that no balancer in front sends clients any more, until the limit,
    /// if there is one; without a reason that ends. Nothing else changes.
    fn set_unready(&self, reason: Option<String>, limit: Option<Duration>) -> Result<(), String>;

    /// Everything there is, now.
    fn status(&self) -> Status;

    /// What sessions are doing, at most `limit` of each worker.
    fn sessions(&self, limit: usize) -> Pin<Box<dyn Future<Output = Vec<SessionStatus>> + Send + '_>>;

    /// What is logged now, as [`telemetry::log::LogHandle::level`].
    fn log_level(&self) -> String;

    /// Changes what is logged, as [`telemetry::log::LogHandle::change_level`], or with the word `configured`
    /// makes it what the configuration says. Returns what is logged then.
    fn change_log_level(&self, change: &str) -> Result<String, String>;

    /// Reads the configuration again and applies what can be applied; returns what was changed and what was
    /// not, in words.
    ///
    /// # Errors
    /// What is wrong with the configuration, in words. The one in force stays.
    fn reload(&self) -> Result<String, String>;

    /// Has all leave a server, of this cluster or of the only one that has it. Sessions that are still there
    /// after `end_after` end; without it they stay.
    fn drain(&self, cluster: Option<&str>, server: &str, end_after: Option<Duration>) -> Result<(), String>;

    /// Has a server take sessions again.
    fn undrain(&self, cluster: Option<&str>, server: &str) -> Result<(), String>;

    /// The name of this cluster, of the only one, or of the only one that has this server.
    fn cluster_name(&self, cluster: Option<&str>, server: Option<&str>) -> Result<String, String>;

    /// Has the statements of a cluster wait, of this one or of the only one, but for those of transactions.
    /// Whether they did not before.
    fn pause(&self, cluster: Option<&str>) -> Result<bool, String>;

    /// Has them go on.
    fn resume(&self, cluster: Option<&str>) -> Result<(), String>;

    /// Begins to make a server the primary in the place of the present one.
    fn switch_over(&self, cluster: Option<&str>, order: SwitchoverOrder) -> Result<(), String>;

    /// Has a new process take over the listeners, with the program as it is on the disk now. What has come of
    /// it is in the status: another process, or why not.
    fn upgrade(&self);

    /// The last switchover of each cluster, the one that is under way included.
    fn switchovers(&self) -> Vec<SwitchoverStatus>;

    fn drains(&self) -> Pin<Box<dyn Future<Output = Vec<DrainStatus>> + Send + '_>>;

    /// Ends a session, or the statement that it has under way.
    fn kill(
        &self,
        id: u32,
        query_only: bool,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;

    /// How the sessions of each cluster are spread over its servers.
    fn balance(&self) -> Vec<BalanceStatus>;

    /// Begins to capture traffic.
    fn start_capture(
        &self,
        order: CaptureOrder,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;

    fn stop_capture(&self) -> Result<(), String>;

    /// The capture of traffic, or the last one. `None` where there was none since the start.
    fn capture(&self) -> Option<CaptureStatus>;

    /// What answers to copies of statements were compared with the clients' own, by cluster.
    fn mirrors(&self) -> Vec<MirrorStatus>;

    /// The rows in memory. `None` where no `[cache]` is configured.
    fn cache(&self) -> Option<CacheStatus>;

    /// The gateways that this one has its configuration in common with. `None` where no `[store]` is
    /// configured.
    fn fleet(&self) -> Option<Arc<fleet::Fleet>>;

    /// Has mapping tables read again, and mappings that cannot be served tried again. False where no
    /// `[cache]` is configured.
    fn flush_cache(&self) -> bool;
}

/// An order for a capture. Fields are named as the arguments of the request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureOrder {
    /// A folder on the gateway's machine that is made for it, by an absolute path, or the URL of a prefix in
    /// an object store.
    pub to: String,
    /// With a URL, such a folder, in which files wait until the store has them.
    pub spool: Option<String>,
    /// Seconds after which it ends.
    pub duration: Option<f64>,
    /// It ends once its files have so many bytes.
    pub max_size: Option<u64>,
    /// It ends once less than this share of the disk is free, in percent.
    #[serde(default = "free_disk")]
    pub free_disk: u8,
    /// The share of sessions, from 0 to 1.
    pub sample: Option<f64>,
    /// Only of this account.
    pub user: Option<String>,
    /// Only commands in this schema, and what sessions set for themselves.
    pub schema: Option<String>,
    /// Only of sessions that came by this listener.
    pub listener: Option<String>,
    /// Only statements with this digest, in 16 hexadecimal digits.
    pub digest: Option<String>,
    /// Also the files that clients send for `LOAD DATA LOCAL`, up to so many bytes for a statement.
    pub load_data: Option<usize>,
    /// Where its thread does not keep up it ends, instead of leaving sessions out.
    #[serde(default)]
    pub end_when_full: bool,
    /// A file on the gateway's machine with the key with which it is encrypted.
    pub key_file: Option<String>,
}

/// The share of the disk that is to stay free where nobody says how much, in percent.
fn free_disk() -> u8 {
    10
}

/// A capture of traffic. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureStatus {
    /// `running` or `ended`.
    pub state: String,
    pub folder: String,
    /// Seconds since it began.
    pub seconds: f64,
    pub commands: u64,
    pub sessions: u64,
    /// Sessions of which only the beginning was written, since its queue was full.
    pub thinned_sessions: u64,
    /// Commands that were written as a digest alone, since they may have a secret.
    pub withheld: u64,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Why it has ended, and more about it; empty while it runs.
    pub reason: String,
    /// Its way to an object store; null where it goes to none.
    pub upload: Option<UploadStatus>,
}

/// How far the files of a capture have got to an object store. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct UploadStatus {
    /// Where to, as a URL.
    pub to: String,
    /// `running`, `complete`, or `given-up`: what waits stays in the folder.
    pub state: String,
    /// Files that the store has.
    pub files: u64,
    pub bytes: u64,
    /// Files that wait in the folder, with the one that is written.
    pub waiting_files: u64,
    pub waiting_bytes: u64,
    /// Attempts that have failed.
    pub failures: u64,
    /// Why the last attempt has failed; empty where it has not.
    pub error: String,
}

/// What was found of the copies of statements to one cluster (`mirror_compare` of rules). Field names are a
/// contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct MirrorStatus {
    /// The cluster that gets the copies.
    pub cluster: String,
    /// How many answers were compared, by the first thing that differs; `equal` where nothing does.
    pub compared: BTreeMap<String, u64>,
    /// Answers whose values were not compared, and that do not differ otherwise, by the reason.
    pub unchecked: BTreeMap<String, u64>,
    /// How long the clients' own statements took, where both have succeeded.
    pub original: MirrorTimes,
    /// How long the copies took.
    pub copy: MirrorTimes,
    /// Kinds of statements that differ, the most frequent first.
    pub statements: Vec<MirroredStatement>,
    /// Differences of further kinds, for which there was no place.
    pub of_others: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct MirrorTimes {
    /// The median, in milliseconds.
    pub p50_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
}

/// A kind of statement that is answered differently.
#[derive(Clone, Debug, Serialize)]
pub struct MirroredStatement {
    /// In hexadecimal.
    pub digest: String,
    /// Its text without values; empty where it may have a secret.
    pub text: String,
    /// How many answers differ, by the first thing that does.
    pub compared: BTreeMap<String, u64>,
    /// What has differed the last time.
    pub example: String,
    pub seconds_ago: f64,
}

/// A snapshot of the gateway. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub version: String,
    /// Seconds since the process started.
    pub uptime_seconds: u64,
    /// A shutdown has begun.
    pub shutting_down: bool,
    /// An operator has said that no client is to come, and why, which may be empty; null where nobody has.
    pub unready: Option<String>,
    /// When that ends by itself; null where it does not.
    pub unready_ends_in_seconds: Option<u64>,
    pub process_id: u32,
    /// Why the last `upgrade` came to nothing; null where none did.
    pub failed_upgrade: Option<String>,
    /// The last reload, where it was refused: the next start would fail.
    pub refused_reload: Option<RefusedReload>,
    /// The store and the other gateways; null where no `[store]` is configured.
    pub store: Option<fleet::Status>,
    /// The capture of traffic, or the last one; null where there was none.
    pub capture: Option<CaptureStatus>,
    /// Sessions open now, in all.
    pub sessions: u64,
    /// Listeners, in the order of the configuration.
    pub listeners: Vec<ListenerStatus>,
    pub clusters: Vec<ClusterStatus>,
    pub workers: Vec<WorkerStatus>,
}

/// A reload that was refused. What was in force before is in force.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedReload {
    pub seconds_ago: u64,
    /// Who or what asked for it: `SIGHUP`, `asked by admin`, `the file has changed`.
    pub why: String,
    /// The first mistake in the configuration, with its place.
    pub first_mistake: String,
    pub more_mistakes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ListenerStatus {
    pub name: String,
    /// Address or path it listens on, as bound.
    pub bind: String,
    /// `mysql` or `redis`.
    pub protocol: String,
    /// `tcp`, `session` or `split`; of no meaning where the protocol is `redis`.
    pub mode: String,
    /// The cluster its sessions go to.
    pub cluster: String,
    /// Sessions open now.
    pub sessions: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ClusterStatus {
    pub name: String,
    /// Sessions waiting for a place on a server.
    pub waiting: u64,
    /// Statements wait: `forebay ctl pause`, or a switchover.
    pub paused: bool,
    /// Its servers, in the order of the configuration; removed ones that still have sessions come last.
    pub servers: Vec<ServerStatus>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ServerStatus {
    pub name: String,
    /// `host:port` or path.
    pub address: String,
    /// `starting`, `up`, `down` or `removed`.
    pub state: String,
    pub state_seconds: u64,
    /// Why it is in that state, in words; empty where there is nothing to say.
    pub reason: String,
    /// `primary`, `replica` or `unusable`.
    pub role: String,
    /// Why it has that role, in words.
    pub role_reason: String,
    /// How far its data are behind the primary's, where that is known.
    pub lag_seconds: Option<f64>,
    /// It is a replica that is further behind than reads may see.
    pub too_far_behind: bool,
    /// Sessions that hold a connection to it.
    pub sessions: u64,
    /// The server is to be left by all; it is empty once `sessions` is 0.
    pub draining: bool,
    /// What has it drain: `option`, `operator`, or why the server says so itself: `offline_mode = ON`.
    pub drained_by: Option<String>,
}

/// A server that drains. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct DrainStatus {
    pub cluster: String,
    pub server: String,
    /// `option`, `operator`, or why the server says so itself.
    pub drained_by: String,
    /// Connections to it that sessions hold, or may come to hold: 0 once it is empty.
    pub sessions: u64,
    /// How many sessions each reason holds there. `moving`: none does.
    pub held_by: BTreeMap<String, u64>,
    /// Seconds until sessions end that are still there; `None`: they stay.
    pub ends_in_seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchoverOrder {
    /// The server that is to be the primary.
    pub to: String,
    /// Only look whether it could be done.
    pub check_only: bool,
}

/// A switchover. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchoverStatus {
    pub cluster: String,
    pub from: String,
    pub to: String,
    /// `running`, `done`, `refused` (nothing was changed), `undone` (what was changed has been put back) or
    /// `failed` (the rest is to be done by hand).
    pub state: String,
    /// What was done, one sentence each, in this order.
    pub steps: Vec<SwitchoverStep>,
    /// What somebody should know, or do.
    pub warnings: Vec<String>,
    /// Why it is not `done`; empty where it is, or is under way.
    pub reason: String,
    /// For how long statements have waited; `None` where it did not come to that.
    pub paused_seconds: Option<f64>,
}

/// One thing that a switchover does. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchoverStep {
    pub what: String,
    /// Since its beginning.
    pub at_seconds: f64,
}

/// How the sessions of a cluster are spread over its servers. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct BalanceStatus {
    pub cluster: String,
    /// What sessions move for: `off`, `connections`, `location` or `resource`.
    pub policy: String,
    /// `even`, `uneven` (it is seen whether that lasts), `moving`, or `stuck`: sessions should have moved,
    /// and none could.
    pub state: String,
    /// Its servers, in the order of the configuration.
    pub servers: Vec<ServerBalanceStatus>,
}

/// How one server stands among the others.
#[derive(Clone, Debug, Serialize)]
pub struct ServerBalanceStatus {
    pub server: String,
    /// Connections to it: sessions of modes `tcp` and `session`, and those that the pools of mode `split`
    /// have.
    pub sessions: u64,
    /// As many would be its share of all, by the weights.
    pub share: f64,
    /// `sessions` in relation to `share`: 1 is even. `None` where it is to have none.
    pub score: Option<f64>,
    /// How much of its CPU is in use, in percent; `None` where nobody says so.
    pub cpu_percent: Option<f64>,
    pub memory_percent: Option<f64>,
    /// Why it is to have none, or less than its weight says.
    pub note: Option<String>,
    /// Who has left it last so that the load evens out.
    pub last_moved: Option<LastMovedStatus>,
}

/// Sessions that have left a server so that the load evens out.
#[derive(Clone, Debug, Serialize)]
pub struct LastMovedStatus {
    /// What has decided that: `health`, `memory`, `cpu`, `location` or `connections`.
    pub factor: String,
    /// How many, without a longer pause between them.
    pub sessions: u64,
    /// Where the last one went.
    pub to: String,
    pub seconds_ago: f64,
}

/// The rows in memory. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct CacheStatus {
    /// The binary log that is followed, or why none is.
    pub stream: String,
    /// How far the rows are behind the primary's.
    pub lag_seconds: f64,
    /// For rows and their index.
    pub memory_bytes: u64,
    pub memory_max_bytes: u64,
    /// Mappings, in the order of the configuration, then those of mapping tables; then rows of these that are
    /// no mappings.
    pub mappings: Vec<MappingStatus>,
}

/// One mapping, or what should have been one.
#[derive(Clone, Debug, Serialize)]
pub struct MappingStatus {
    /// Its name; of a row that is no mapping, with its table and a slash before it.
    pub name: String,
    /// `schema.table`.
    pub table: String,
    /// The mapping table that it is a row of. `None`: the configuration has it.
    pub row_of: Option<String>,
    /// The word of the metric.
    pub state: String,
    /// The state in words, with what is in the way.
    pub reason: String,
    /// Rows that readers have, where it is served.
    pub rows: Option<u64>,
}

/// One session. Field names are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct SessionStatus {
    /// The connection id that the client knows.
    pub id: u32,
    pub worker: usize,
    pub listener: String,
    /// Empty in mode `tcp`, and before the login.
    pub user: String,
    pub client: String,
    /// `login`, `client` (the session waits for its next command), `server` (for an answer), `stream`, and in
    /// mode `split` `seat` (for a connection to a server), `primary` (for a server that takes writes) or
    /// `position` (until a server has what a read must see).
    pub waits_for: String,
    /// To the quarter of a second.
    pub waiting_seconds: f64,
    /// The server it is on; none between two statements in mode `split`.
    pub server: Option<String>,
    /// The id that this server gave the connection; none in mode `tcp`.
    pub server_connection_id: Option<u32>,
    /// The current schema, in mode `split`; in the others nobody reads what changes it.
    pub schema: Option<String>,
    /// Of the statement under way, in hexadecimal, in mode `split`; none where its text is longer than 4 KiB.
    pub digest: Option<String>,
    /// Why it holds its server connection between two statements, in mode `split`.
    pub pins: Vec<PinStatus>,
}

/// One reason why a session holds its server connection.
#[derive(Clone, Debug, Serialize)]
pub struct PinStatus {
    /// The word of metrics and of `FOREBAY SHOW PINS`.
    pub reason: String,
    /// Of the statement that caused it, in hexadecimal.
    pub digest: String,
    /// How long ago that was.
    pub since_seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// Its index, from 0; the label `worker` of metrics.
    pub index: usize,
    pub sessions: u64,
}
