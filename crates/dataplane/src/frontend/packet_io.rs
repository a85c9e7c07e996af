//! Whole packets on one side of a login.
//!
//! A login is a handful of small packets that are read, changed and written again, unlike commands, which are
//! only forwarded. Sequence numbers of the two sides differ (TLS on one side only, an exchange that only one
//! side sees), so each side counts its own.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};

use mysql_wire::{PacketHeader, WireError, write_packet};
use net::{Peer, Stream, buffer, proxy_header};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

use crate::frontend::auth_relay::Link;

/// The largest packet of a login. Connection attributes may have 64 KiB (MySQL cuts them there), and a
/// certificate or token of an authentication plugin has to fit.
pub(crate) const LOGIN_PACKET_MAX: usize = 128 * 1024;

/// The largest answer within an exchange. A part of an answer that is there when the exchange ends has to fit
/// into a buffer.
const ANSWER_MAX: usize = buffer::CAPACITY - PacketHeader::LEN;

/// The client or the server in a login.
pub(crate) struct LoginPeer<'s> {
    stream: &'s mut Stream,
    /// Sequence number of the next packet. The owner sees it also where the exchange is given up in the
    /// middle.
    sequence: &'s mut u8,
    unread: Vec<u8>,
}

/// Why a packet of a login could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    Closed,
    Io(io::Error),
    TooLong(usize),
    /// A PROXY header, where none is expected.
    ProxyHeader,
}

impl ReadError {
    /// The error as an I/O error, for messages.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Self::Closed => io::ErrorKind::UnexpectedEof.into(),
            Self::Io(error) => error,
            Self::TooLong(len) => io::Error::other(format!("login packet of {len} bytes")),
            Self::ProxyHeader => io::Error::other("a PROXY header"),
        }
    }
}

impl<'s> LoginPeer<'s> {
    /// `unread` is what was read from the stream already.
    pub(crate) fn new(stream: &'s mut Stream, sequence: &'s mut u8, unread: Vec<u8>) -> Self {
        Self {
            stream,
            sequence,
            unread,
        }
    }

    /// The bytes that were read and not used, once the login is over.
    pub(crate) fn into_unread(self) -> Vec<u8> {
        self.unread
    }

    /// The kind of link on this side.
    pub(crate) fn link(&self) -> Link {
        match &*self.stream {
            stream if stream.is_encrypted() => Link::Tls,
            stream if matches!(stream.peer(), Ok(Peer::Unix)) => Link::Unix,
            _ => Link::Plain,
        }
    }

    /// Reads one packet's payload. Safe to cancel: a part that was read is kept.
    pub(crate) async fn read(&mut self) -> Result<Vec<u8>, ReadError> {
        self.read_at_most(LOGIN_PACKET_MAX).await
    }

    async fn read_at_most(&mut self, limit: usize) -> Result<Vec<u8>, ReadError> {
        loop {
            if let Some(header) = PacketHeader::parse(&self.unread) {
                if header.payload_len > limit {
                    // PROXY headers of either version, taken for packets, are longer than any packet of a
                    // login. The client behind the balancer has sent a packet of its own.
                    if proxy_header::is_begun(&self.unread) {
                        *self.sequence = self.sequence.wrapping_add(1);
                        return Err(ReadError::ProxyHeader);
                    }
                    *self.sequence = header.sequence.wrapping_add(1);
                    return Err(ReadError::TooLong(header.payload_len));
                }
                let end = PacketHeader::LEN + header.payload_len;
                if self.unread.len() >= end {
                    *self.sequence = header.sequence.wrapping_add(1);
                    let payload = self.unread[PacketHeader::LEN..end].to_vec();
                    self.unread.drain(..end);
                    return Ok(payload);
                }
            }
            self.read_some().await?;
        }
    }

    /// Reads the next packet of the exchange that is under way, and waits for ever where the other side has
    /// begun a new one: a client that sends its first command before it has seen our OK is not answering the
    /// server's question.
    pub(crate) async fn read_next(&mut self) -> Result<Vec<u8>, ReadError> {
        while self.unread.len() < PacketHeader::LEN {
            self.read_some().await?;
        }
        match PacketHeader::parse(&self.unread) {
            // Under compression clients number packets loosely; and there is no pipelining in a login.
            Some(header) if header.sequence == *self.sequence || self.stream.is_compressed() => {
                self.read_at_most(ANSWER_MAX).await
            }
            _ => std::future::pending().await,
        }
    }

    async fn read_some(&mut self) -> Result<(), ReadError> {
        let mut chunk = [0_u8; 1024];
        let n = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut *self.stream).poll_read(cx, &mut buffer))?;
            Poll::Ready(Ok(buffer.filled().len()))
        })
        .await
        .map_err(ReadError::Io)?;
        if n == 0 {
            return Err(ReadError::Closed);
        }
        self.unread.extend_from_slice(&chunk[..n]);
        Ok(())
    }

    pub(crate) async fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut packet = Vec::with_capacity(payload.len() + PacketHeader::LEN);
        write_packet(&mut packet, self.sequence, payload);
        self.stream.write_all(&packet).await?;
        self.stream.flush().await
    }
}

/// A packet that could not be decoded, as the client's fault.
pub(crate) fn malformed(error: WireError) -> crate::error::SessionError {
    crate::error::SessionError::ClientProtocol(error)
}
