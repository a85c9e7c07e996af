//! Packets over a stream, for the few of a login and of a good-bye. Not for the path of queries.

use std::io;

use mysql_wire::{PacketHeader, WireError, write_packet};
use net::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The longest packet accepted here, in bytes of payload: RSA keys and error messages are the longest that
/// come.
const MAX_LEN: usize = 64 * 1024;

/// One side of an exchange of packets.
pub(crate) struct Packets<'a> {
    stream: &'a mut Stream,
    /// Number of the next packet, sent or received.
    sequence: u8,
    received: Vec<u8>,
}

/// Why a packet could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PacketError {
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    #[error("server closed the connection")]
    Closed,
    #[error("server sent a packet of {0} bytes where a short one was expected")]
    TooLarge(usize),
    #[error("server broke the protocol: {0}")]
    Wire(#[from] WireError),
}

impl<'a> Packets<'a> {
    /// `sequence` is the number of the next packet: 1 after the greeting.
    pub(crate) fn new(stream: &'a mut Stream, sequence: u8) -> Self {
        Self {
            stream,
            sequence,
            received: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, payload: &[u8]) -> Result<(), PacketError> {
        let mut bytes = Vec::with_capacity(PacketHeader::LEN + payload.len());
        write_packet(&mut bytes, &mut self.sequence, payload);
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// Sends the first packet of a command.
    pub(crate) async fn send_command(&mut self, payload: &[u8]) -> Result<(), PacketError> {
        self.sequence = 0;
        self.send(payload).await
    }

    /// Receives the payload of one packet.
    pub(crate) async fn receive(&mut self) -> Result<Vec<u8>, PacketError> {
        loop {
            if let Some(header) = PacketHeader::parse(&self.received) {
                if header.payload_len > MAX_LEN {
                    return Err(PacketError::TooLarge(header.payload_len));
                }
                let end = PacketHeader::LEN + header.payload_len;
                if self.received.len() >= end {
                    self.sequence = header.sequence.wrapping_add(1);
                    let rest = self.received.split_off(end);
                    let packet = std::mem::replace(&mut self.received, rest);
                    return Ok(packet[PacketHeader::LEN..].to_vec());
                }
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(PacketError::Closed);
            }
        }
    }
}
