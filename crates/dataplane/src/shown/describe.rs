//! The gateway and its sessions as operators see them. Every worker is asked for its sessions, since nobody
//! else knows them.

use telemetry::{Samples, Source};

use crate::frontend::gateway::Gateway;
use crate::frontend::message::Message;
use crate::shown::status::SessionStatus;

impl Gateway {
    /// The sessions and what they are doing, at most `limit` of each worker.
    pub async fn describe_sessions(&self, limit: usize) -> Vec<SessionStatus> {
        let (names, shared) = (self.servers_by_key(), self.shared());
        let described = shared.ask_all(|reply| Message::Describe { limit, reply }).await;
        let named = described.into_iter().map(|(mut session, server)| {
            session.server = server.and_then(|server| names.get(&server).cloned());
            session
        });
        let mut sessions: Vec<_> = named.collect();
        sessions.sort_by_key(|session| session.id);
        sessions
    }
}
impl Source for Gateway {
    /// Collects what is read from its owner at a scrape: the servers, checks and queues of every present
    /// cluster.
    fn collect(&self, out: &mut Samples) {
        self.clusters().iter().for_each(|cluster| cluster.collect(out));
        self.shared().accounts.guesses.collect(out);
        self.shared().taken.collect(out);
        self.shared()
            .split_series
            .iter()
            .for_each(|metrics| metrics.collect(out));
        self.shared()
            .lookup_metrics
            .iter()
            .for_each(|metrics| metrics.collect(out));
    }
}
