//! A permit: the right to have one connection to one server, be it a session's own or one that sessions
//! share.

use std::fmt;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::server::Server;

/// One of a server's `max_connections`. Dropping it frees the permit and lets the next session in line have
/// it: first those who wait for this server, then those who wait for any.
///
/// Keep it as long as the connection to the server is open.
pub struct Permit {
    /// Whose queue to serve when the permit becomes free; `None` when somebody else does that.
    cluster: Option<Arc<Cluster>>,
    server: Arc<Server>,
}

impl Permit {
    /// A permit on `server`, unless it is full.
    pub(crate) fn take(cluster: &Arc<Cluster>, server: &Arc<Server>) -> Option<Self> {
        server.take_permit().then(|| Self {
            cluster: Some(Arc::clone(cluster)),
            server: Arc::clone(server),
        })
    }

    /// Frees the permit without serving the queues, for those who are about to do that.
    pub(crate) fn give_back(mut self) {
        self.cluster = None;
    }

    #[must_use]
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.server.free_permit();
        if let Some(cluster) = &self.cluster {
            cluster.serve_wait_queue(&self.server);
            if !cluster.queue().is_empty() {
                cluster.serve_queue();
            }
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.server.name()).finish()
    }
}
