//! The sockets of `[admin]`: bound, or taken over from the process before this one, and served.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use net::handover;
use telemetry::Telemetry;
use tokio::task::{JoinHandle, spawn_local};
use tracing::{error, info};

/// Bound, and not served yet.
pub(crate) struct AdminSockets {
    tcp: (String, TcpListener),
    unix: Option<(String, UnixListener)>,
}

/// Served until it is ended.
pub(crate) struct ServedAdmin {
    sockets: Vec<(String, OwnedFd)>,
    tasks: Vec<JoinHandle<()>>,
}

impl AdminSockets {
    pub(crate) fn open(admin: &config::Admin) -> anyhow::Result<Self> {
        let name = format!("admin {}", admin.bind);
        let tcp = match handover::take(&name) {
            Some(socket) => TcpListener::from(socket),
            None => admin::bind(admin.bind)?,
        };
        let unix = |path: &std::path::PathBuf| {
            let name = format!("admin {}", path.display());
            let socket = match handover::take(&name) {
                Some(socket) => UnixListener::from(socket),
                None => admin::bind_socket(path)?,
            };
            anyhow::Ok((name, socket))
        };
        Ok(Self {
            tcp: (name, tcp),
            unix: admin.socket.as_ref().map(unix).transpose()?,
        })
    }

    pub(crate) fn serve(
        self,
        telemetry: &Arc<Telemetry>,
        gateway: &Arc<impl admin::Gateway>,
    ) -> anyhow::Result<ServedAdmin> {
        let (name, listener) = self.tcp;
        info!(address = %listener.local_addr()?, "admin listening");
        let mut sockets = vec![(name, listener.try_clone()?.into())];
        let served = admin::serve(listener, Arc::clone(telemetry), Arc::clone(gateway) as _);
        let mut tasks = vec![spawn_local(until_ended(served))];
        if let Some((name, listener)) = self.unix {
            sockets.push((name, listener.try_clone()?.into()));
            let served = admin::serve_socket(listener, Arc::clone(telemetry), Arc::clone(gateway) as _);
            tasks.push(spawn_local(until_ended(served)));
        }
        Ok(ServedAdmin { sockets, tasks })
    }
}

impl ServedAdmin {
    /// The sockets, with their names, for a process that takes over.
    pub(crate) fn share(&self) -> std::io::Result<Vec<(String, OwnedFd)>> {
        let share = |(name, socket): &(String, OwnedFd)| Ok((name.clone(), socket.try_clone()?));
        self.sockets.iter().map(share).collect()
    }

    /// Answers nobody any more.
    pub(crate) fn end(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn until_ended(served: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = served.await {
        error!(%error, "the admin server has ended");
    }
}
