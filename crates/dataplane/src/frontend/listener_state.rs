//! A listener and its cluster, as sessions see them.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use net::TlsAcceptor;
use upstream::{Cluster, Server};

use crate::clock::ticks;
use crate::control::{IdleLimits, ServerKey};
use crate::frontend::rsa_key::PrivateKey;

/// A cluster, and the number by which its servers are told from those of others.
pub(crate) type NumberedCluster = (u32, Arc<Cluster>);

/// A listener as its sessions see it. A changed listener is a new value; sessions keep the one they came in
/// by.
pub(crate) struct ListenerState {
    pub(crate) config: config::Listener,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) cluster_serial: u32,
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    pub(crate) rsa_key: Arc<PrivateKey>,
    /// Sessions that came in by this listener, carried over when it changes.
    pub(crate) active: Arc<AtomicU32>,
}

impl ListenerState {
    /// A server of this listener's cluster among those of all clusters.
    pub(crate) fn key(&self, server: &Server) -> ServerKey {
        ServerKey {
            cluster: self.cluster_serial,
            server: server.id(),
        }
    }

    /// The limits on how long this listener's sessions may wait for either side. A session that has its
    /// server connection for itself is under that server's own limits.
    pub(crate) fn idle_limits(&self) -> IdleLimits {
        let stall = self.config.stall_timeout.map_or(0, ticks);
        IdleLimits {
            client_ticks: ticks(self.config.client_idle_timeout),
            silence_ticks: 0,
            server_ticks: ticks(self.cluster.config().server_idle_timeout),
            request_ticks: stall,
            reader_ticks: stall,
        }
    }
}
