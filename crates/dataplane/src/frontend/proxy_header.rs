//! The PROXY header that a load balancer in front of us puts before the first byte of a client.

use std::time::Duration;

use net::proxy_header::{self, Parsed};
use net::{Peer, Stream};
use tokio::io::AsyncReadExt;

use crate::error::SessionError;
use crate::frontend::listener_state::ListenerState;

/// The address of the client, and the bytes that were read beyond the header.
///
/// A header is expected from the networks that `accept_proxy_from` names and from nobody else: a client that
/// could send one on its own could claim any address.
pub(crate) async fn read_header(
    client: &mut Stream,
    listener: &ListenerState,
) -> Result<(Peer, Vec<u8>), SessionError> {
    let limit = listener.config.login_timeout;
    tokio::time::timeout(limit, read(client, listener))
        .await
        .unwrap_or(Err(SessionError::ProxyHeaderMissing(limit)))
}

/// The error for a client whose time for a login is over. A client that has sent no PROXY header waits for
/// our greeting and cannot know that a header is asked of it, so the error says it.
pub(crate) fn too_late(had_header: bool, limit: Duration) -> SessionError {
    match had_header {
        true => SessionError::LoginTimeout(limit),
        false => SessionError::ProxyHeaderMissing(limit),
    }
}

async fn read(client: &mut Stream, listener: &ListenerState) -> Result<(Peer, Vec<u8>), SessionError> {
    let peer = client.peer().map_err(SessionError::ClientFailed)?;
    let trusted = match &peer {
        Peer::Tcp(address) => {
            let ip = address.ip().to_canonical();
            listener
                .config
                .accept_proxy_from
                .iter()
                .any(|network| network.contains(&ip))
        }
        Peer::Unix => false,
    };
    if !trusted {
        return Ok((peer, Vec::new()));
    }
    let mut bytes = Vec::with_capacity(256);
    loop {
        match proxy_header::parse(&bytes).map_err(|error| SessionError::ProxyHeader(error.to_string()))? {
            Parsed::Header { source, len, .. } => {
                let unread = bytes.split_off(len);
                return Ok((source.unwrap_or(peer), unread));
            }
            Parsed::NeedMore => {
                let n = client
                    .read_buf(&mut bytes)
                    .await
                    .map_err(SessionError::ClientFailed)?;
                if n == 0 {
                    return Err(SessionError::ClientGone);
                }
            }
        }
    }
}
