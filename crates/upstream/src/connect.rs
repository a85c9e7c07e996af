//! A connection to a server: resolve, connect, say for whom.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use config::ServerAddress;
use net::{Peer, Stream};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

use crate::error::Seconds;
use crate::server::Server;

/// Whom a connection is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For<'a> {
    /// A client at one end, the address it connected to at the other.
    Client { client: &'a Peer, local: &'a Peer },
    /// Ourselves.
    Gateway,
}

/// A connection that was not made.
#[derive(Debug)]
pub(crate) struct ConnectError {
    /// E.g. `connection refused by 10.0.0.1:3306`.
    pub(crate) reason: String,
    /// Whether this speaks against the server, and not against this machine (no ports or descriptors left).
    pub(crate) servers_fault: bool,
    /// Nobody listens at any of its addresses: more than silence, which may end.
    pub(crate) refused: bool,
}

/// Connects to `server` within `limit`, all its addresses together. Each address gets an equal part of what
/// is left, so that one that swallows packets does not use up the time of the others.
pub(crate) async fn connect(
    server: &Server,
    config: &config::Cluster,
    whom: For<'_>,
    limit: Duration,
) -> Result<Stream, ConnectError> {
    let deadline = Instant::now() + limit;
    let mut stream = match server.address() {
        ServerAddress::Unix(path) => {
            let address = path.display().to_string();
            within(deadline, limit, &address, Stream::connect_unix(path)).await?
        }
        ServerAddress::Host { .. } => {
            let addresses = match timeout_at(deadline, server.addresses.get()).await {
                Ok(found) => found.map_err(|error| ConnectError::from_lookup(&error))?,
                Err(_) => return Err(ConnectError::lookup_timed_out(limit)),
            };
            connect_any(server, &addresses, config, deadline).await?
        }
    };
    if config.send_proxy {
        let header = proxy_header(whom);
        let address = server.name();
        within(deadline, limit, address, stream.write_all(&header)).await?;
    }
    Ok(stream)
}

async fn connect_any(
    server: &Server,
    addresses: &[SocketAddr],
    config: &config::Cluster,
    deadline: Instant,
) -> Result<Stream, ConnectError> {
    let mut failed: Option<ConnectError> = None;
    for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        let limit = deadline.saturating_duration_since(Instant::now()) / left;
        let attempt = Stream::connect_server(*address, config);
        match within(Instant::now() + limit, limit, &address.to_string(), attempt).await {
            Ok(stream) => {
                server.addresses.prefer(*address);
                return Ok(stream);
            }
            Err(error) => failed = Some(ConnectError::both(failed, error)),
        }
    }
    Err(failed.unwrap_or_else(|| ConnectError {
        reason: "no address".to_owned(),
        servers_fault: true,
        refused: false,
    }))
}

/// `attempt`, until `deadline`, with the address in the error.
async fn within<T>(
    deadline: Instant,
    limit: Duration,
    address: &str,
    attempt: impl Future<Output = io::Result<T>>,
) -> Result<T, ConnectError> {
    match timeout_at(deadline, attempt).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(ConnectError::from_io(&error, address)),
        Err(_) => Err(ConnectError {
            reason: format!(
                "no answer from {address} within {} (connect timeout)",
                Seconds(limit)
            ),
            servers_fault: true,
            refused: false,
        }),
    }
}

fn proxy_header(whom: For<'_>) -> Vec<u8> {
    let mut header = Vec::with_capacity(64);
    match whom {
        For::Client { client, local } => net::proxy_header::encode_v2(client, local, &mut header),
        // "LOCAL": a connection of our own, for which the server uses the addresses of the connection itself.
        For::Gateway => header.extend_from_slice(b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"),
    }
    header
}

impl ConnectError {
    fn from_io(error: &io::Error, address: &str) -> Self {
        use io::ErrorKind as Kind;
        let reason = match error.kind() {
            Kind::ConnectionRefused => format!("connection refused by {address}"),
            Kind::ConnectionReset => format!("connection reset by {address}"),
            Kind::TimedOut => format!("no answer from {address}"),
            Kind::HostUnreachable | Kind::NetworkUnreachable => format!("no route to {address}"),
            Kind::NotFound => format!("socket {address} does not exist"),
            _ => format!("cannot connect to {address}: {error}"),
        };
        let servers_fault = matches!(
            error.kind(),
            Kind::ConnectionRefused
                | Kind::ConnectionReset
                | Kind::ConnectionAborted
                | Kind::BrokenPipe
                | Kind::TimedOut
                | Kind::HostUnreachable
                | Kind::NetworkUnreachable
                | Kind::NotFound
        );
        Self {
            reason,
            servers_fault,
            refused: matches!(error.kind(), Kind::ConnectionRefused | Kind::NotFound),
        }
    }

    fn from_lookup(error: &io::Error) -> Self {
        Self {
            reason: error.to_string(),
            servers_fault: true,
            refused: false,
        }
    }

    fn lookup_timed_out(limit: Duration) -> Self {
        let reason = format!("its name could not be resolved within {}", Seconds(limit));
        Self {
            reason,
            servers_fault: true,
            refused: false,
        }
    }

    /// Two addresses of one server failed. A fault of this machine hides what the server would have said.
    fn both(earlier: Option<Self>, later: Self) -> Self {
        match earlier {
            None => later,
            Some(earlier) => Self {
                reason: format!("{}, {}", earlier.reason, later.reason),
                servers_fault: earlier.servers_fault && later.servers_fault,
                refused: earlier.refused && later.refused,
            },
        }
    }
}
