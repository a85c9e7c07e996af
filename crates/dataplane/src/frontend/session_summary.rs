//! The summary of a session that has ended.

use std::sync::Arc;

use net::Peer;
use upstream::Server;

use crate::relay::Traffic;

/// The parts of the log line at the end of a session, but for why the session ended.
pub(crate) struct SessionSummary {
    pub(crate) client: Peer,
    pub(crate) user: Box<str>,
    /// The session's server; in mode `split` the last one.
    pub(crate) server: Option<Arc<Server>>,
    pub(crate) commands: u64,
    pub(crate) from_client: u64,
    pub(crate) to_client: u64,
}

impl SessionSummary {
    pub(crate) fn new(client: Peer) -> Self {
        Self {
            client,
            user: "".into(),
            server: None,
            commands: 0,
            from_client: 0,
            to_client: 0,
        }
    }

    /// Counts what the session has carried.
    pub(crate) fn count(&mut self, traffic: &Traffic) {
        (self.commands, self.from_client, self.to_client) =
            (traffic.commands, traffic.from_client, traffic.to_client);
    }

    pub(crate) fn server_name(&self) -> &str {
        self.server.as_ref().map_or("", |server| server.name())
    }
}
