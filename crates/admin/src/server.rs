//! Connections: accepted, bounded, served.
//!
//! Every connection carries one request and has ten seconds for all of it. Without keep-alive that one
//! deadline bounds a slow request, a slow reader and an idle connection alike; a scrape every few seconds
//! does not miss the rest.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use telemetry::Telemetry;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::{Gateway, routes};

/// Connections served at a time; further ones wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 64;
/// Time for the request line and headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of request line and headers. Bodies are never read.
const MAX_HEADER_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Pause after a failed accept; the usual cause is that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the admin server could not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address could not be bound.
    #[error("cannot listen on {address} for [admin] bind: {source}{}", advice(source))]
    Bind {
        /// The address of the configuration.
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
    let router = routes::router(telemetry, gateway);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(answer(stream, router.clone()))),
            Err(error) => {
                tracing::warn!(%error, "admin: accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection. How it ended is of no interest: whoever asked knows.
async fn answer(stream: TcpStream, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}
