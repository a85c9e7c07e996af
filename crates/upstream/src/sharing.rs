//! Whether sessions can share connections to a cluster's servers, by which mode `split` lives: not with TiDB,
//! which does not say what a statement does to its session.

use std::sync::atomic::Ordering;

use mysql_wire::Capabilities;

use crate::cluster::Cluster;
use crate::server::Server;
use crate::server_profile::ServerProfile;

/// What every connection has that sessions share.
pub(crate) const NEEDED: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::SESSION_TRACK)
    .with(Capabilities::DEPRECATE_EOF);

/// What is missing there, in words for a person.
pub(crate) fn missing(capabilities: Capabilities) -> Option<String> {
    let missing = NEEDED.without(capabilities);
    (missing != Capabilities::default())
        .then(|| format!("it lacks {missing:?}, without which sessions cannot share its connections"))
}

/// A server may lack what packets are like for sessions with these capabilities: what it lacks, likewise. The
/// sessions were offered what all servers seen by then can, and this one may have come later.
pub(crate) fn missing_for(sessions: Capabilities, capabilities: Capabilities) -> Option<String> {
    let missing = (sessions & Capabilities::LAYOUT).without(capabilities);
    (missing != Capabilities::default())
        .then(|| format!("it lacks {missing:?}, which other servers of the cluster have"))
}

impl Cluster {
    /// Sessions are about to share connections to its servers: from here on the log says which of them that
    /// is impossible with.
    pub fn is_to_be_shared(&self) {
        if self.shared.swap(true, Ordering::Relaxed) {
            return;
        }
        let _ = self.profile();
        for server in self.servers().iter() {
            if let Some(profile) = server.profile() {
                self.warn_unless_shared(server, &profile);
            }
        }
    }

    /// Says so of a server that has just introduced itself.
    pub(crate) fn warn_unless_shared(&self, server: &Server, profile: &ServerProfile) {
        if self.shared.load(Ordering::Relaxed)
            && let Some(reason) = missing(profile.capabilities)
        {
            tracing::warn!(
                cluster = self.name(),
                server = server.name(),
                reason,
                "server is of no use to listeners in mode split"
            );
        }
    }

    /// Why sessions cannot share connections to any of its servers, as far as those are known: of the first
    /// of them. `None` also while none is known.
    #[must_use]
    pub fn cannot_be_shared(&self) -> Option<String> {
        let _ = self.profile();
        let servers = self.servers();
        let known = || {
            servers
                .iter()
                .filter_map(|server| Some((server, server.profile()?)))
        };
        let first = known().next()?;
        let (server, reason) = (first.0.name().to_owned(), missing(first.1.capabilities)?);
        let none_can = known().all(|(_, profile)| missing(profile.capabilities).is_some());
        none_can.then(|| format!("server {server}: {reason}"))
    }
}
