//! Reading the first packet of a server.

use std::io;
use std::time::Duration;

use mysql_wire::{Capabilities, ErrPacket, Greeting, PacketHeader, WireError};
use net::Stream;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::error::Seconds;
use crate::server_profile::ServerProfile;

/// The longest greeting accepted, in bytes of payload. Real ones have about 100.
pub const GREETING_MAX_LEN: usize = 4096;

/// Why there is no greeting.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    /// The server sent an error packet instead: too many connections, host blocked or not allowed.
    #[error("server refuses the connection: {} (error {})", String::from_utf8_lossy(&.0.message), .0.code)]
    Refused(ErrPacket),
    /// Closed by the server, after this many bytes.
    #[error("server closed the connection {}", when(*.0))]
    Closed(usize),
    /// Nothing, or not all of it, within the time given.
    #[error("no greeting within {}", Seconds(*.0))]
    TimedOut(Duration),
    /// The packet says it is longer than [`GREETING_MAX_LEN`].
    #[error("not a MySQL server: its first packet claims {0} bytes")]
    TooLarge(usize),
    /// The bytes are no greeting.
    #[error("not a MySQL greeting: {0}")]
    Malformed(#[from] WireError),
    /// More bytes after the greeting, where the server must wait for the client.
    #[error("not a MySQL server: {0} bytes after its greeting")]
    Trailing(usize),
    /// The connection failed.
    #[error("connection failed before the greeting: {0}")]
    Io(#[from] io::Error),
}

impl GreetingError {
    /// Whether a server of this profile does this when it is full. TiDB sends nothing to those who come over
    /// its `max-server-connections`, and closes. (From another server it is a sign that something is wrong.)
    #[must_use]
    pub fn is_for_want_of_room(&self, profile: Option<&ServerProfile>) -> bool {
        let closed = match self {
            Self::Closed(received) => *received == 0,
            // What it was sent and has not read, a PROXY header, turns the end into a reset.
            Self::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
            _ => false,
        };
        closed && profile.is_some_and(ServerProfile::is_tidb)
    }
}

/// Reads the greeting of a server, with its payload as sent, within `limit`. Usually a single read.
///
/// # Errors
/// See [`GreetingError`].
pub async fn read_greeting(
    stream: &mut Stream,
    limit: Duration,
) -> Result<(Greeting, Vec<u8>), GreetingError> {
    match timeout(limit, read(stream)).await {
        Ok(result) => result,
        Err(_) => Err(GreetingError::TimedOut(limit)),
    }
}

async fn read(stream: &mut Stream) -> Result<(Greeting, Vec<u8>), GreetingError> {
    let mut bytes = Vec::with_capacity(256);
    let payload_len = loop {
        if let Some(header) = PacketHeader::parse(&bytes) {
            if header.payload_len > GREETING_MAX_LEN {
                return Err(GreetingError::TooLarge(header.payload_len));
            }
            if bytes.len() >= PacketHeader::LEN + header.payload_len {
                break header.payload_len;
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(GreetingError::Closed(bytes.len()));
        }
    };
    let trailing = bytes.len() - PacketHeader::LEN - payload_len;
    let payload = bytes.split_off(PacketHeader::LEN);
    if payload.first() == Some(&ErrPacket::HEADER) {
        // Whatever comes behind a refusal (the FIN, usually) does not matter.
        let error = ErrPacket::decode(&payload[..payload_len], Capabilities(0))?;
        return Err(GreetingError::Refused(error));
    }
    if trailing > 0 {
        return Err(GreetingError::Trailing(trailing));
    }
    Ok((Greeting::decode(&payload)?, payload))
}

fn when(received: usize) -> String {
    match received {
        0 => "without a greeting".to_owned(),
        n => format!("{n} bytes into its greeting"),
    }
}
