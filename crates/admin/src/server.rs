//! Connections: accepted, bounded, served.
//!
//! Every connection carries one request and has ten seconds for all of it. Without keep-alive that one
//! deadline bounds a slow request, a slow reader and an idle connection alike; a scrape every few seconds
//! does not miss the rest. Where all places are taken, connections that have not asked yet make room.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use telemetry::{Refusal, Telemetry};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinSet};

use crate::access::{Caller, Refusals, Sight};
use crate::{Gateway, routes};

/// Connections served at a time. Further ones wait in the kernel's backlog where all of these have asked.
const MAX_CONNECTIONS: usize = 64;
/// Time for the request line and headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of request line and headers.
const MAX_HEADER_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Pause after a failed accept; the usual cause is that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the admin server could not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The socket could not be made.
    #[error("cannot listen on {} for [admin] socket: {source}", path.display())]
    Socket {
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The address could not be bound.
    #[error("cannot listen on {address} for [admin] bind: {source}{}", advice(source))]
    Bind {
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
}

/// The next step, for the causes that have an obvious one.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another process uses this address (`ss -ltnp` shows which)",
        io::ErrorKind::AddrNotAvailable => {
            "; no interface of this machine has this address (`ip address` lists them)"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

/// Binds the address of `[admin] bind`. Apart from [`serve`], so that a wrong address fails the start.
///
/// # Errors
/// If the address is taken or not this machine's.
pub fn bind(address: SocketAddr) -> Result<TcpListener, AdminError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map_err(|source| AdminError::Bind { address, source })
}

/// Makes the Unix socket of `[admin] socket`, for root and the system user that this runs as alone. A socket
/// that nobody listens on any more is replaced.
///
/// # Errors
/// If something else is there, or somebody listens on it.
pub fn bind_socket(path: &Path) -> Result<UnixListener, AdminError> {
    let listen = || {
        let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        if is_socket {
            match UnixStream::connect(path) {
                Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
                Err(_) => fs::remove_file(path)?,
            }
        }
        let listener = UnixListener::bind(path)?;
        // Who connects before this is asked who it is as well.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map_err(|source| AdminError::Socket {
        path: path.to_owned(),
        source,
    })
}

/// Serves until dropped; connections end with it. Runs in a tokio runtime with I/O and time.
///
/// # Errors
/// Only at start, if the runtime does not take the listener.
pub async fn serve(
    listener: TcpListener,
    telemetry: Arc<Telemetry>,
    gateway: Arc<dyn Gateway>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = routes::router(sight(telemetry, gateway));
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone().layer(Extension(Caller::Tcp(peer)));
                connections.make_room().await;
                connections.add(|heard| answer(stream, router, heard));
            }
            Err(error) => wait_after(&error).await,
        }
    }
}

/// The same for the socket, by which acts are taken.
///
/// # Errors
/// Only at start, if the runtime does not take the listener.
pub async fn serve_socket(
    listener: UnixListener,
    telemetry: Arc<Telemetry>,
    gateway: Arc<dyn Gateway>,
) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let own_user = fs::metadata("/proc/self")?.uid();
    let sight = sight(telemetry, gateway);
    let refusals = Arc::clone(&sight.refusals);
    let router = routes::router(sight);
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred().map(|peer| peer.uid()) {
                Ok(uid) if uid == 0 || uid == own_user => {
                    let router = router.clone().layer(Extension(Caller::Socket { uid }));
                    connections.make_room().await;
                    connections.add(|heard| answer(stream, router, heard));
                }
                Ok(uid) => refusals.note(Refusal::User, &Caller::Socket { uid }, "to connect to the socket"),
                Err(error) => {
                    tracing::warn!(%error, "admin: refused on the socket, since nobody says who it is")
                }
            },
            Err(error) => wait_after(&error).await,
        }
    }
}

fn sight(telemetry: Arc<Telemetry>, gateway: Arc<dyn Gateway>) -> Sight {
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Sight {
        machine: machine.trim().into(),
        refusals: Arc::new(Refusals::new(Arc::clone(&telemetry))),
        telemetry,
        gateway,
    }
}

/// The connections of one listener.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    /// Connections whose request had not come when they were last looked at, the oldest first.
    silent: VecDeque<Silent>,
}

struct Silent {
    heard: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Connections {
    /// Waits until there is a place. Where there is none, the connection goes that has been silent for
    /// longest: a client that means to ask does so at once, and silent ones must not keep it out.
    async fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.silent
            .retain(|connection| !connection.heard.load(Ordering::Relaxed) && !connection.task.is_finished());
        if self.tasks.len() >= MAX_CONNECTIONS {
            if let Some(oldest) = self.silent.pop_front() {
                oldest.task.abort();
            }
            self.tasks.join_next().await;
        }
    }

    /// Serves a connection, which tells by the flag that its request has come.
    fn add<F>(&mut self, serve: impl FnOnce(Arc<AtomicBool>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let heard = Arc::new(AtomicBool::new(false));
        let task = self.tasks.spawn(serve(Arc::clone(&heard)));
        self.silent.push_back(Silent { heard, task });
    }
}

async fn wait_after(error: &io::Error) {
    tracing::warn!(%error, "admin: accept failed");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// One connection. How it ended is of no interest: whoever asked knows.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, heard: Arc<AtomicBool>) {
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        heard.store(true, Ordering::Relaxed);
        service.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// The clock of the runtime is paused, so it jumps to the limit where nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn connections_that_have_asked_stay_and_silent_ones_make_room() {
        let mut connections = Connections::default();
        let mut flags = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            connections.add(|heard| {
                flags.push(heard);
                pending()
            });
        }
        flags[0].store(true, Ordering::Relaxed);
        for _ in 1..MAX_CONNECTIONS {
            let room = tokio::time::timeout(Duration::from_secs(1), connections.make_room()).await;
            assert!(room.is_ok(), "a silent connection goes");
            assert_eq!(connections.tasks.len(), MAX_CONNECTIONS - 1);
            // The newcomer asks at once.
            connections.add(|heard| {
                heard.store(true, Ordering::Relaxed);
                pending()
            });
        }
        let room = tokio::time::timeout(Duration::from_secs(1), connections.make_room()).await;
        assert!(room.is_err(), "none goes that has asked");
    }
}
