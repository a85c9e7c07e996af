//! Commands and their answers on a connection that nobody else uses at the moment. Not for the path of
//! queries.

use mysql_wire::{
    Capabilities, Command, EofPacket, ErrPacket, OkPacket, StatusFlags, WireError, write_packet,
};
use net::Stream;

use crate::packets::{PacketError, Packets};

/// The longest answer that is read, in bytes of rows.
const ANSWER_MAX_LEN: usize = 1 << 20;

/// Packets of an answer: what `pool.init` may bring, and far more than all variables of a server.
const ANSWER_MAX_PACKETS: usize = 16_384;

/// A row of text.
pub(super) type Row = Vec<Option<Vec<u8>>>;

/// Why an exchange failed. But for [`Refused`](Self::Refused) the connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("{} (error {})", String::from_utf8_lossy(&.0.message), .0.code)]
    Refused(ErrPacket),
    #[error(transparent)]
    Packet(#[from] PacketError),
    #[error("server broke the protocol: {0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Answer(&'static str),
}

/// One side of a connection between commands.
pub(super) struct Exchange<'a> {
    /// Compression renumbers packets by the command under way: the next may be sent only after its answer.
    one_by_one: bool,
    packets: Packets<'a>,
    capabilities: Capabilities,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(stream: &'a mut Stream, capabilities: Capabilities) -> Self {
        Self {
            one_by_one: stream.is_compressed(),
            packets: Packets::new(stream, 0),
            capabilities,
        }
    }

    /// Sends all commands at once, where that can be, and reads all answers.
    ///
    /// # Errors
    /// The first refusal, once all answers have been read; or whatever ends the connection.
    pub(super) async fn all(&mut self, commands: &[Vec<u8>]) -> Result<(), ExchangeError> {
        for answer in self.each(commands).await? {
            answer.map_err(ExchangeError::Refused)?;
        }
        Ok(())
    }

    /// Like [`all`](Self::all), with the rows of each command, or its refusal.
    pub(super) async fn each(
        &mut self,
        commands: &[Vec<u8>],
    ) -> Result<Vec<Result<Vec<Row>, ErrPacket>>, ExchangeError> {
        let batch = if self.one_by_one { 1 } else { commands.len().max(1) };
        let mut answers = Vec::with_capacity(commands.len());
        for batch in commands.chunks(batch) {
            let mut bytes = Vec::new();
            for command in batch {
                write_packet(&mut bytes, &mut 0, command);
            }
            self.packets.send_commands(&bytes).await?;
            for _ in batch {
                answers.push(match self.answer().await {
                    Ok(rows) => Ok(rows),
                    Err(ExchangeError::Refused(error)) => Err(error),
                    Err(error) => return Err(error),
                });
            }
        }
        if !self.packets.is_empty() {
            return Err(ExchangeError::Answer("it says more than it was asked for"));
        }
        Ok(answers)
    }

    /// The rows of an answer's first result; the others are read, too.
    async fn answer(&mut self) -> Result<Vec<Row>, ExchangeError> {
        let mut first = None;
        let mut room = ANSWER_MAX_LEN;
        loop {
            let (rows, status) = self.result(&mut room).await?;
            let rows = first.get_or_insert(rows);
            if !status.contains(StatusFlags::MORE_RESULTS) {
                return Ok(std::mem::take(rows));
            }
        }
    }

    async fn result(&mut self, room: &mut usize) -> Result<(Vec<Row>, StatusFlags), ExchangeError> {
        let head = self.packets.receive().await?;
        let definitions = match head.first() {
            Some(&OkPacket::HEADER) => {
                let ok = OkPacket::decode(&head, self.capabilities)?;
                return Ok((Vec::new(), ok.status));
            }
            Some(&ErrPacket::HEADER) => return Err(self.refused(&head)?),
            Some(0xfb) => return Err(ExchangeError::Answer("it asks for a file")),
            _ => column_count(&head)?,
        };
        // The flag behind the count says whether definitions follow.
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
        let definitions = match self.capabilities.intersects(optional) && head.last() == Some(&0) {
            true => 0,
            false => definitions,
        };
        for _ in 0..definitions {
            self.packets.receive().await?;
        }
        if !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.packets.receive().await?;
        }
        let mut rows = Vec::new();
        for _ in 0..ANSWER_MAX_PACKETS {
            let packet = self.packets.receive().await?;
            match packet.first() {
                Some(&ErrPacket::HEADER) => return Err(self.refused(&packet)?),
                Some(&OkPacket::HEADER_AS_EOF) if self.capabilities.contains(Capabilities::DEPRECATE_EOF) => {
                    return Ok((rows, OkPacket::decode(&packet, self.capabilities)?.status));
                }
                Some(&EofPacket::HEADER) if packet.len() == EofPacket::LEN => {
                    return Ok((rows, EofPacket::decode(&packet)?.status));
                }
                _ => {}
            }
            *room = room
                .checked_sub(packet.len())
                .ok_or(ExchangeError::Answer("its result is too long"))?;
            rows.push(row(&packet)?);
        }
        Err(ExchangeError::Answer("its result is too long"))
    }

    fn refused(&self, packet: &[u8]) -> Result<ExchangeError, WireError> {
        ErrPacket::decode(packet, self.capabilities).map(ExchangeError::Refused)
    }
}

/// COM_QUERY on a connection with these capabilities.
pub(super) fn query(capabilities: Capabilities, sql: &str) -> Vec<u8> {
    let mut payload = vec![Command::QUERY.0];
    if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        // No attributes, in one set of them.
        payload.extend_from_slice(&[0, 1]);
    }
    payload.extend_from_slice(sql.as_bytes());
    payload
}

fn column_count(head: &[u8]) -> Result<usize, ExchangeError> {
    let mut rest = head;
    match length(&mut rest) {
        Some(Some(count)) if count > 0 => Ok(count),
        _ => Err(ExchangeError::Answer("it has no readable column count")),
    }
}

fn row(packet: &[u8]) -> Result<Row, ExchangeError> {
    let unreadable = || ExchangeError::Answer("a row of it is not readable");
    let mut rest = packet;
    let mut row = Row::new();
    while !rest.is_empty() {
        let value = match length(&mut rest).ok_or_else(unreadable)? {
            None => None,
            Some(len) => {
                let (value, behind) = rest.split_at_checked(len).ok_or_else(unreadable)?;
                rest = behind;
                Some(value.to_vec())
            }
        };
        row.push(value);
    }
    Ok(row)
}

/// A length-encoded integer of up to three bytes, all that fits the packets accepted here; `Some(None)` is
/// NULL.
fn length(bytes: &mut &[u8]) -> Option<Option<usize>> {
    let (&first, mut rest) = bytes.split_first()?;
    let more = match first {
        0xfb => {
            *bytes = rest;
            return Some(None);
        }
        0xfc => 2,
        0xfd => 3,
        0xfe | 0xff => return None,
        _ => 0,
    };
    let mut len = usize::from(first);
    if more > 0 {
        let (digits, behind) = rest.split_at_checked(more)?;
        len = digits
            .iter()
            .rev()
            .fold(0, |len, &digit| len << 8 | usize::from(digit));
        rest = behind;
    }
    *bytes = rest;
    Some(Some(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let mut packet = b"\x03abc\xfb\x00\xfc\x2c\x01".to_vec();
        packet.extend([b'x'; 300]);
        let expected = vec![
            Some(b"abc".to_vec()),
            None,
            Some(Vec::new()),
            Some(vec![b'x'; 300]),
        ];
        assert_eq!(row(&packet).unwrap(), expected);
        for broken in [b"\x04abc".as_slice(), b"\xfc\x01", b"\xff", b"\xfe12345678"] {
            assert!(row(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn a_query_has_a_place_for_attributes_where_they_are_agreed_on() {
        assert_eq!(query(Capabilities(0), "DO 1"), b"\x03DO 1");
        assert_eq!(query(Capabilities::QUERY_ATTRIBUTES, "DO 1"), b"\x03\x00\x01DO 1");
    }
}
