//! The end of a session: the error that ends it, and the last words to its client.

use std::future::poll_fn;
use std::time::Duration;

use mysql_wire::{Capabilities, ErrPacket, PacketHeader};
use tokio::io::AsyncWriteExt;

use crate::control::Signal;
use crate::error::{During, SessionError};
use crate::frontend::listener_state::ListenerState;
use crate::relay::{RelayError, Streams};

/// Time that a client whose session ends with an error has to take it.
pub(crate) const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Writes what may still be forwarded to the client, then `last`, and ends the connection.
pub(crate) async fn say_goodbye(streams: &mut Streams, last: &[u8]) {
    if last.is_empty() && !streams.down.is_pending() {
        return;
    }
    let write = async {
        poll_fn(|cx| streams.down.poll_write(cx, &mut streams.client)).await?;
        streams.client.write_all(last).await?;
        streams.client.shutdown().await
    };
    // A client that does not take the bytes in time, or is gone, does without.
    let _: Result<std::io::Result<()>, _> = tokio::time::timeout(FAREWELL_LIMIT, write).await;
}

/// How long a session that ends between two commands waits for the next one, to answer it with the error.
const LAST_COMMAND_WAIT: Duration = Duration::from_secs(1);

/// An error between two commands has sequence number 0, and a client that has just sent the next command
/// takes that for a broken protocol. Busy clients are always just sending the next command, so one is awaited
/// for a moment, and refused. Returns the sequence number that the error has then; `None` where the client
/// has gone.
pub(crate) async fn await_last_command(streams: &mut Streams) -> Option<u8> {
    let next = async {
        loop {
            if let Some(header) = PacketHeader::parse(streams.up.unseen()) {
                streams.client.begin_command().ok()?;
                return Some(header.sequence.wrapping_add(1));
            }
            match poll_fn(|cx| streams.up.poll_read(cx, &mut streams.client)).await {
                Ok(n) if n > 0 => {}
                Ok(_) | Err(_) => return None,
            }
        }
    };
    tokio::time::timeout(LAST_COMMAND_WAIT, next)
        .await
        .unwrap_or(Some(0))
}

/// An error packet with its header.
pub(crate) fn error_bytes(packet: &ErrPacket, mut sequence: u8, capabilities: Capabilities) -> Vec<u8> {
    let mut payload = Vec::with_capacity(128);
    packet.encode(&mut payload, capabilities);
    let mut bytes = Vec::with_capacity(payload.len() + PacketHeader::LEN);
    mysql_wire::write_packet(&mut bytes, &mut sequence, &payload);
    bytes
}

/// The error for an exchange with the server of that name that did not come to its end.
pub(crate) fn as_error(
    broken: RelayError,
    server: &str,
    listener: &ListenerState,
    during: During,
) -> SessionError {
    match broken {
        RelayError::Client(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            SessionError::ClientGone
        }
        RelayError::Client(error) => SessionError::ClientFailed(error),
        RelayError::Server => SessionError::ServerGone {
            server: server.to_owned(),
            during,
        },
        RelayError::ServerProtocol(cause) => SessionError::ServerProtocol {
            server: server.to_owned(),
            cause,
        },
        RelayError::Signal(signal) => signal_as_error(signal, server, listener),
    }
}

/// The error for a signal that ends a session on the server of that name.
pub(crate) fn signal_as_error(signal: Signal, server: &str, listener: &ListenerState) -> SessionError {
    let name = || server.to_owned();
    match signal {
        Signal::Drain | Signal::DrainNow => SessionError::Drained,
        Signal::Shutdown | Signal::ShutdownNow => SessionError::Shutdown,
        Signal::ClientIdle => SessionError::ClientIdle,
        Signal::WaitTimeout => SessionError::WaitTimeout { is_told: false },
        Signal::RequestStalled => SessionError::RequestStalled,
        Signal::ReaderStalled => SessionError::ReaderStalled,
        Signal::ServerTimeout => SessionError::ServerTimeout {
            server: name(),
            timeout: listener.cluster.config().server_idle_timeout,
        },
        Signal::StatementTimeout => SessionError::StatementTimeout { mariadb: false },
        Signal::ServerDown | Signal::ServerSilent => SessionError::ServerDown { server: name() },
        Signal::Kill => SessionError::Killed,
    }
}
