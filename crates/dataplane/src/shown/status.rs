//! Listeners and sessions as operators see them.

use net::Peer;

/// A listener, for status pages.
#[derive(Debug, Clone)]
pub struct ListenerStatus {
    pub name: String,
    pub address: Peer,
    pub protocol: config::Protocol,
    pub mode: config::Mode,
    /// The listener's sessions share server connections.
    pub shares: bool,
    pub cluster: String,
    pub sessions: u32,
}

/// A session, as its worker sees it.
#[derive(Debug, Clone)]
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
    pub waits_for: &'static str,
    /// Time waited so far, to the quarter of a second.
    pub waiting_seconds: f64,
    /// The server that the session is on; none between two statements in mode `split`.
    pub server: Option<String>,
    /// The id that this server gave the connection; none in mode `tcp`.
    pub server_connection_id: Option<u32>,
    /// The current schema, in mode `split`; in the others nobody reads what changes it.
    pub schema: Option<String>,
    /// Digest of the statement under way, in hexadecimal, in mode `split`; none where its text is longer than
    /// 4 KiB.
    pub digest: Option<String>,
    /// Reasons why the session holds its server connection between two statements, in mode `split`.
    pub pins: Vec<PinStatus>,
}

/// A reason why a session holds its server connection.
#[derive(Debug, Clone)]
pub struct PinStatus {
    pub reason: &'static str,
    /// Digest of the statement that caused the pin, in hexadecimal; 0 where the statement was a plain read.
    pub digest: String,
    pub since_seconds: f64,
}
