//! What the gateway and its sessions are doing, for operators. Sessions are asked of every worker, since
//! nobody else knows.

use net::Peer;
use telemetry::{Samples, Source};
use tokio::sync::oneshot;

use crate::gateway::Gateway;
use crate::worker::Message;

/// What is known of a listener, for status pages.
#[derive(Debug, Clone)]
pub struct ListenerStatus {
    pub name: String,
    pub address: Peer,
    pub protocol: config::Protocol,
    pub mode: config::Mode,
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

impl Gateway {
    /// What sessions are doing, at most `limit` of each worker.
    pub async fn describe_sessions(&self, limit: usize) -> Vec<SessionStatus> {
        let (names, shared) = (self.servers_by_key(), self.shared());
        let mut answers = Vec::new();
        for worker in 0..shared.workers() {
            let (reply, answer) = oneshot::channel();
            shared.tell(worker, Message::Describe { limit, reply });
            answers.push(answer);
        }
        let mut sessions = Vec::new();
        for answer in answers {
            // A worker that has stopped has none.
            for (mut session, server) in answer.await.unwrap_or_default() {
                session.server = server.and_then(|server| names.get(&server).cloned());
                sessions.push(session);
            }
        }
        sessions.sort_by_key(|session| session.id);
        sessions
    }
}
impl Source for Gateway {
    /// What is read from its owner at a scrape: the servers, checks and queues of every cluster there is now.
    fn collect(&self, out: &mut Samples) {
        self.clusters().iter().for_each(|cluster| cluster.collect(out));
        self.shared().accounts.guesses.collect(out);
        self.shared()
            .split_series
            .iter()
            .for_each(|series| series.collect(out));
        self.shared()
            .lookup_series
            .iter()
            .for_each(|series| series.collect(out));
    }
}
