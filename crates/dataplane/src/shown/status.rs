//! What operators are told of listeners and sessions.

use net::Peer;

/// What is known of a listener, for status pages.
#[derive(Debug, Clone)]
pub struct ListenerStatus {
    pub name: String,
    pub address: Peer,
    pub protocol: config::Protocol,
    pub mode: config::Mode,
    /// Its sessions share server connections.
    pub shares: bool,
    pub cluster: String,
    pub sessions: u32,
}

/// One session, as its worker sees it.
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
#[derive(Debug, Clone)]
pub struct PinStatus {
    pub reason: &'static str,
    /// Of the statement that caused it, in hexadecimal; 0 where it was a plain read.
    pub digest: String,
    pub since_seconds: f64,
}
