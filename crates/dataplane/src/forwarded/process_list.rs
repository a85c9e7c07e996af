//! Lists of processes with the connection ids that clients know. The gateway has told each client an id of
//! its own, but a server lists the ids of the connections that it sees.
//!
//! Rows of `SHOW PROCESSLIST` and COM_PROCESS_INFO are changed in their first column on the way to the
//! client, and nothing else is: column definitions, order and sequence numbers are the server's.

use std::collections::HashMap;

use mysql_wire::write_packet;
use mysql_wire::{Capabilities, ErrPacket, Event, OkPacket, PacketHeader, WireError, text_values};

use crate::relay::Answer;
use crate::relay::flow::Flow;

/// The connection ids that clients know, by the ids that a server has given.
pub(crate) type Numbers = HashMap<u32, u32>;

/// An answer on its way in which connections get the numbers of their clients.
pub(crate) struct Translated<'a, A> {
    answer: &'a mut A,
    /// The rows on their way to the client.
    rows: Rows,
}

impl<'a, A: Answer> Translated<'a, A> {
    /// `client`: the capabilities that the client and the gateway have agreed on.
    pub(crate) fn new(answer: &'a mut A, numbers: Numbers, client: Capabilities) -> Self {
        let rows = Rows {
            numbers,
            client,
            next: Next::Count,
            kept: Vec::new(),
        };
        Self { answer, rows }
    }
}

impl<A: Answer> Answer for Translated<'_, A> {
    fn advance(&mut self, down: &mut Flow) -> Result<(usize, Event), WireError> {
        let advanced = self.answer.advance(down)?;
        let said = down.take_outgoing();
        let translated = self.rows.translate(&said);
        down.say(&translated);
        Ok(advanced)
    }

    fn in_progress(&self) -> bool {
        self.answer.in_progress()
    }

    fn error_sequence(&self) -> Option<u8> {
        self.answer.error_sequence()
    }

    fn sequence(&self) -> u8 {
        self.answer.sequence()
    }

    fn renumbers(&self) -> bool {
        self.answer.renumbers()
    }

    fn resume_after_local_infile(&mut self) {
        self.answer.resume_after_local_infile();
    }
}

/// With these capabilities, column definitions that the client has may be left out; a byte behind the count
/// of columns says so.
const MAY_LEAVE_OUT: Capabilities =
    Capabilities::OPTIONAL_RESULTSET_METADATA.with(Capabilities::MARIADB_CACHE_METADATA);

/// Most bytes of a row that are kept until its end is there. A longer row (`SHOW FULL PROCESSLIST`) passes as
/// it is, and so does all behind it.
const KEPT_MAX: usize = 256 * 1024;

/// The kind of the next packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Count,
    /// The first of so many column definitions.
    Definitions(u8),
    Eof,
    Row,
    /// A packet that is not changed.
    Other,
}

/// A text result as it passes, in any pieces.
struct Rows {
    numbers: Numbers,
    /// The capabilities that the client and the gateway have agreed on.
    client: Capabilities,
    next: Next,
    /// The beginning of a packet whose end is yet to come.
    kept: Vec<u8>,
}

impl Rows {
    fn translate(&mut self, said: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.kept);
        bytes.extend_from_slice(said);
        let mut out = Vec::with_capacity(bytes.len() + 16);
        let mut rest = bytes.as_slice();
        while let Some(header) = PacketHeader::parse(rest) {
            let len = PacketHeader::LEN + header.payload_len;
            let Some(packet) = rest.get(..len) else { break };
            self.pass(header, packet, &mut out);
            rest = &rest[len..];
        }
        match self.next {
            Next::Other => out.extend_from_slice(rest),
            _ if rest.len() > KEPT_MAX => {
                self.next = Next::Other;
                out.extend_from_slice(rest);
            }
            _ => self.kept = rest.to_vec(),
        }
        out
    }

    fn pass(&mut self, header: PacketHeader, packet: &[u8], out: &mut Vec<u8>) {
        let payload = &packet[PacketHeader::LEN..];
        let is_end = matches!(payload.first(), Some(&ErrPacket::HEADER))
            || payload.first() == Some(&OkPacket::HEADER_AS_EOF) && !header.is_continued();
        match self.next {
            Next::Count => {
                self.next = match self.definitions(payload) {
                    Some(count) => Next::Definitions(count),
                    None => Next::Other,
                }
            }
            Next::Definitions(left @ 2..) => self.next = Next::Definitions(left - 1),
            Next::Definitions(_) if self.client.contains(Capabilities::DEPRECATE_EOF) => {
                self.next = Next::Row;
            }
            Next::Definitions(_) => self.next = Next::Eof,
            Next::Eof => self.next = Next::Row,
            Next::Row if is_end || header.is_continued() => self.next = Next::Other,
            Next::Row => {
                if let Some(row) = self.row(payload) {
                    write_packet(out, &mut header.sequence.clone(), &row);
                    return;
                }
            }
            Next::Other => {}
        }
        out.extend_from_slice(packet);
    }

    /// The number of column definitions that follow. A list of processes has so few columns that one byte
    /// counts them.
    fn definitions(&self, payload: &[u8]) -> Option<u8> {
        let count = match payload {
            // Definitions may be left out where the client has them; then all passes as it is.
            [count, 1] if (self.client & MAY_LEAVE_OUT) != Capabilities(0) => *count,
            [count] => *count,
            _ => return None,
        };
        matches!(count, 1..0xfb).then_some(count)
    }

    /// The row with the number that the client knows, where its connection has one.
    fn row(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let id = text_values(payload).next()?.ok()??;
        let number = self.numbers.get(&std::str::from_utf8(id).ok()?.parse().ok()?)?;
        let number = number.to_string();
        // The length before either number takes one byte.
        let rest = payload.get(1 + id.len()..)?;
        Some([&[number.len() as u8], number.as_bytes(), rest].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut bytes, mut sequence) = (Vec::new(), 1);
        payloads
            .iter()
            .for_each(|payload| write_packet(&mut bytes, &mut sequence, payload));
        bytes
    }

    /// The answer as it is translated in pieces of this length.
    fn translated(answer: &[u8], client: Capabilities, piece: usize) -> Vec<u8> {
        let mut rows = Rows {
            numbers: [(5, 1_073_741_829), (70, 1_073_741_830)].into(),
            client,
            next: Next::Count,
            kept: Vec::new(),
        };
        let out: Vec<_> = answer.chunks(piece).map(|piece| rows.translate(piece)).collect();
        out.concat()
    }

    #[test]
    fn rows_of_known_connections_have_other_numbers_in_whatever_pieces_they_come() {
        const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
        const OK: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
        let list = |first: &'static [u8], second: &'static [u8], count: &'static [u8], has_eof: bool| {
            let definitions: [&[u8]; 3] = [count, b"\x03def1", b"\x03def2"];
            let rows: [&[u8]; 3] = [first, second, b"\x019\x03root"];
            let (middle, end): (&[&[u8]], &[u8]) = if has_eof { (&[EOF], EOF) } else { (&[], OK) };
            packets(&[&definitions[..], middle, &rows[..], &[end]].concat())
        };
        let (new, old) = (Capabilities::DEPRECATE_EOF, Capabilities(0));
        for (count, has_eof, client) in [
            (&[2][..], true, old),
            (&[2], false, new),
            (
                &[2, 1],
                false,
                new.with(Capabilities::OPTIONAL_RESULTSET_METADATA),
            ),
            (&[2, 1], true, old.with(Capabilities::MARIADB_CACHE_METADATA)),
        ] {
            let answer = list(b"\x015\x03app", b"\x0270\xfb", count, has_eof);
            let expected = list(b"\x0a1073741829\x03app", b"\x0a1073741830\xfb", count, has_eof);
            for piece in [1, 3, 7, 1000] {
                assert_eq!(translated(&answer, client, piece), expected, "{piece}");
            }
        }
    }

    #[test]
    fn what_is_no_list_passes_as_it_is() {
        for answer in [
            packets(&[&[0, 0, 0, 2, 0, 0, 0]]),
            packets(&[&[0xff, 0x26, 4, b'#', b'4', b'2', b'0', b'0', b'0', b'n', b'o']]),
            packets(&[&[1], b"\x03def", b"\xff\x26\x04no", b"\x015"]),
        ] {
            assert_eq!(translated(&answer, Capabilities::DEPRECATE_EOF, 2), answer);
        }
    }
}
