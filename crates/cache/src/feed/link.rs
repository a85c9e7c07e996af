//! Packets of one connection to the primary, read without a copy where they are not split.

use std::net::SocketAddr;

use config::CacheAccount;
use mysql_wire::gtid::Flavor;
use mysql_wire::statement::PrepareOk;
use mysql_wire::{Capabilities, Command, EofPacket, ErrPacket, OkPacket, PacketHeader, write_packet};
use net::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use upstream::conversation::{Broken, QueryError, TextRow, text_row};
use upstream::login::Account;
use upstream::{Cluster, Direct, DirectError, Server};

/// Room that a read finds at least, in bytes.
const READ_SIZE: usize = 256 * 1024;

/// Room that is kept from one packet to the next, in bytes.
const KEPT_MAX: usize = 16 << 20;

/// The longest packet accepted, in bytes: the longest that a server sends.
const PACKET_MAX: usize = (1 << 30) + 1024;

/// The longest result of [`Link::query`] that is kept, in bytes of memory.
const RESULT_MAX: usize = 16 << 20;

/// A connection between commands, or in the middle of an answer.
pub(crate) struct Link {
    stream: Stream,
    capabilities: Capabilities,
    peer: Option<SocketAddr>,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have been handed out.
    taken: usize,
    /// A packet that came in parts.
    joined: Vec<u8>,
}

impl Link {
    /// Connects to a server, and logs in.
    pub(crate) async fn open(
        cluster: &Cluster,
        server: &Server,
        account: &CacheAccount,
    ) -> Result<(Self, Flavor), DirectError> {
        let account = Account::of(&account.user, account.password.as_ref());
        let direct = Direct::open(cluster, server, account).await?;
        let link = Self {
            stream: direct.stream,
            capabilities: direct.capabilities,
            peer: direct.peer,
            buffer: Vec::with_capacity(READ_SIZE),
            taken: 0,
            joined: Vec::new(),
        };
        Ok((link, direct.flavor))
    }

    /// Whether the server's name has left the address at the other end.
    pub(crate) fn is_elsewhere(&self, server: &Server) -> bool {
        server.has_left(self.peer)
    }

    /// Sends a command. The answer to the one before must have been read.
    pub(crate) async fn send(&mut self, payload: &[u8]) -> Result<(), QueryError> {
        let mut bytes = Vec::with_capacity(PacketHeader::LEN + payload.len());
        write_packet(&mut bytes, &mut 0, payload);
        Ok(self.write(&bytes).await?)
    }

    pub(crate) async fn write(&mut self, packets: &[u8]) -> Result<(), Broken> {
        self.stream.write_all(packets).await?;
        Ok(self.stream.flush().await?)
    }

    /// The payload of the next packet, if all of it has been read.
    pub(crate) fn buffered(&mut self) -> Result<Option<&[u8]>, Broken> {
        if !self.has_packet() {
            return Ok(None);
        }
        self.joined.clear();
        let mut at = self.taken;
        loop {
            let rest = &self.buffer[at..];
            let Some(header) = PacketHeader::parse(rest) else {
                return Ok(None);
            };
            let end = PacketHeader::LEN + header.payload_len;
            let Some(payload) = rest.get(PacketHeader::LEN..end) else {
                return Ok(None);
            };
            let continued = header.is_continued();
            if !continued && at == self.taken {
                let begin = at + PacketHeader::LEN;
                self.taken = at + end;
                return Ok(Some(&self.buffer[begin..self.taken]));
            }
            if self.joined.len() + payload.len() > PACKET_MAX {
                return Err(Broken::Unexpected("a packet that is too long"));
            }
            self.joined.extend_from_slice(payload);
            at += end;
            if !continued {
                self.taken = at;
                return Ok(Some(&self.joined));
            }
        }
    }

    /// Reads once. Can be dropped and begun again.
    pub(crate) async fn fill(&mut self) -> Result<(), Broken> {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        if self.buffer.len() < READ_SIZE && self.buffer.capacity() > KEPT_MAX {
            self.buffer.shrink_to(READ_SIZE);
            self.joined = Vec::new();
        }
        if self.buffer.capacity() - self.buffer.len() < READ_SIZE / 2 {
            self.buffer.reserve(READ_SIZE);
        }
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(Broken::Closed),
            _ => Ok(()),
        }
    }

    /// The payload of the next packet.
    pub(crate) async fn packet(&mut self) -> Result<&[u8], Broken> {
        while !self.has_packet() {
            self.fill().await?;
        }
        self.buffered()?.ok_or(Broken::Unexpected("half a packet"))
    }

    /// Runs a statement of text; rows of its only result.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Vec<TextRow>, QueryError> {
        self.send_queries(&[sql]).await?;
        self.result().await
    }

    /// Sends statements of text behind one another. Each has a [`result`](Self::result).
    pub(crate) async fn send_queries(&mut self, statements: &[&str]) -> Result<(), QueryError> {
        let mut bytes = Vec::new();
        for sql in statements {
            let payload = [&[Command::QUERY.0], sql.as_bytes()].concat();
            write_packet(&mut bytes, &mut 0, &payload);
        }
        Ok(self.write(&bytes).await?)
    }

    /// The rows of the next answer.
    pub(crate) async fn result(&mut self) -> Result<Vec<TextRow>, QueryError> {
        self.result_within(&mut { RESULT_MAX }).await
    }

    /// The rows of the next answer, as far as there is `room`, in bytes of memory, which they take.
    pub(crate) async fn result_within(&mut self, room: &mut usize) -> Result<Vec<TextRow>, QueryError> {
        let (max, mut rows) = (*room, Vec::new());
        if self.result_head().await? {
            while let Some(packet) = self.row().await? {
                *room = room.checked_sub(packet.len()).ok_or(Broken::TooLong(max))?;
                let row = text_row(packet)?;
                let values = row.len() * size_of::<Option<Vec<u8>>>();
                *room = room.checked_sub(values).ok_or(Broken::TooLong(max))?;
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// The first value of the first row; `None` for NULL and where there is no row.
    pub(crate) async fn value(&mut self, sql: &str) -> Result<Option<String>, QueryError> {
        let rows = self.query(sql).await?;
        let value = rows.into_iter().next().and_then(|row| row.into_iter().next()?);
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    pub(crate) async fn prepare(&mut self, sql: &str) -> Result<PrepareOk, QueryError> {
        let mut payload = vec![Command::STMT_PREPARE.0];
        payload.extend_from_slice(sql.as_bytes());
        self.send(&payload).await?;
        let ok = self.answered().await?;
        let ok = PrepareOk::decode(ok).map_err(Broken::from)?;
        for count in [ok.parameters, ok.columns] {
            for _ in 0..count {
                self.packet().await?;
            }
            if count > 0 && !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
                self.packet().await?;
            }
        }
        Ok(ok)
    }

    /// Reads the beginning of an answer up to its rows; false where it has none.
    pub(crate) async fn result_head(&mut self) -> Result<bool, QueryError> {
        let head = self.answered().await?;
        let columns = match head {
            [OkPacket::HEADER, ..] => return Ok(false),
            [count @ 1..=250] => usize::from(*count),
            [0xfc, low, high] => usize::from(u16::from_le_bytes([*low, *high])),
            _ => return Err(Broken::Unexpected("no count of columns").into()),
        };
        for _ in 0..columns {
            self.packet().await?;
        }
        if !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.packet().await?;
        }
        Ok(true)
    }

    /// The next row of a result, as it came; `None` after the last.
    pub(crate) async fn row(&mut self) -> Result<Option<&[u8]>, QueryError> {
        let deprecated = self.capabilities.contains(Capabilities::DEPRECATE_EOF);
        let capabilities = self.capabilities;
        let packet = self.packet().await?;
        match packet.first() {
            Some(&ErrPacket::HEADER) => Err(QueryError::refusal(packet, capabilities)),
            // A row cannot begin like that while it is shorter than 16 MiB.
            Some(&EofPacket::HEADER) if packet.len() < PacketHeader::MAX_PAYLOAD && deprecated => Ok(None),
            Some(&EofPacket::HEADER) if packet.len() == EofPacket::LEN => Ok(None),
            _ => Ok(Some(packet)),
        }
    }

    /// The next packet, unless it is an error.
    pub(crate) async fn answered(&mut self) -> Result<&[u8], QueryError> {
        let capabilities = self.capabilities;
        let packet = self.packet().await?;
        match packet.first() {
            Some(&ErrPacket::HEADER) => Err(QueryError::refusal(packet, capabilities)),
            _ => Ok(packet),
        }
    }

    fn has_packet(&self) -> bool {
        let mut rest = &self.buffer[self.taken..];
        loop {
            let Some(header) = PacketHeader::parse(rest) else {
                return false;
            };
            let end = PacketHeader::LEN + header.payload_len;
            match rest.get(end..) {
                Some(behind) if header.is_continued() => rest = behind,
                Some(_) => return true,
                None => return false,
            }
        }
    }
}
