//! A server's answer to a lookup, taken apart: what of it is the same for every row, and what its columns
//! are.
//!
//! ```text
//! column count, definitions, EOF without DEPRECATE_EOF   → head
//! at most one row
//! EOF, or OK in its place                                → end
//! ```

use mysql_wire::{Capabilities, PacketHeader, StatusFlags, take_lenenc_bytes};

/// An answer as the client got it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientAnswer<'a> {
    /// All packets before the row, with their headers.
    pub(super) head: &'a [u8],
    /// The number of the packet after those.
    pub(super) next: u8,
    pub(super) columns: Vec<Definition<'a>>,
    pub(super) row: Option<&'a [u8]>,
    /// The payload of the last packet.
    pub(super) end: &'a [u8],
}

/// A column's definition, as far as it is looked at.
/// <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response_text_resultset_column_definition.html>
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Definition<'a> {
    pub(super) schema: &'a [u8],
    /// The table's own name.
    pub(super) table: &'a [u8],
    /// The column's own name; empty for what is none.
    pub(super) column: &'a [u8],
    pub(super) kind: u8,
    pub(super) flags: u16,
}

/// What a status says of more than the session: it is not so for the next answer.
const PASSING: StatusFlags = StatusFlags(
    StatusFlags::IN_TRANS.0
        | StatusFlags::MORE_RESULTS.0
        | StatusFlags::NO_GOOD_INDEX_USED.0
        | StatusFlags::NO_INDEX_USED.0
        | StatusFlags::DB_DROPPED.0
        | StatusFlags::METADATA_CHANGED.0
        | StatusFlags::QUERY_WAS_SLOW.0
        | StatusFlags::CURSOR_EXISTS.0
        | StatusFlags::SESSION_STATE_CHANGED.0
        | StatusFlags::IN_TRANS_READONLY.0,
);

struct Packets<'a> {
    bytes: &'a [u8],
    at: usize,
    sequence: u8,
}

impl<'a> Packets<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let header = PacketHeader::parse(rest)?;
        self.sequence = self.sequence.wrapping_add(1);
        if header.sequence != self.sequence || header.is_continued() {
            return None;
        }
        let payload = rest.get(PacketHeader::LEN..PacketHeader::LEN + header.payload_len)?;
        self.at += PacketHeader::LEN + header.payload_len;
        Some(payload)
    }

    /// So many definitions, and the packet that ends them where there is one.
    fn definitions(&mut self, count: usize, capabilities: Capabilities) -> Option<Vec<Definition<'a>>> {
        let mut definitions = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            definitions.push(Definition::read(self.next()?, capabilities)?);
        }
        let ends = !capabilities.contains(Capabilities::DEPRECATE_EOF);
        (!ends || is_quiet_end(self.next()?, capabilities)).then_some(definitions)
    }
}

impl<'a> ClientAnswer<'a> {
    /// `None` for anything but a result set of at most one row, with columns, that says nothing of warnings
    /// or of a change of the session.
    pub(super) fn read(bytes: &'a [u8], capabilities: Capabilities) -> Option<Self> {
        let mut packets = Packets {
            bytes,
            at: 0,
            sequence: 0,
        };
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA;
        let head = packets.next()?;
        let columns = match *head {
            [count @ 1..=250] if !capabilities.intersects(optional) => {
                packets.definitions(count.into(), capabilities)?
            }
            [count @ 1..=250, 1] if capabilities.intersects(optional) => {
                packets.definitions(count.into(), capabilities)?
            }
            _ => return None,
        };
        let (head, next) = (packets.at, packets.sequence.wrapping_add(1));
        let mut end = packets.next()?;
        let mut row = None;
        if !is_end(end, capabilities) {
            row = Some(end);
            end = packets.next()?;
        }
        (is_quiet_end(end, capabilities) && packets.at == bytes.len()).then_some(Self {
            head: &bytes[..head],
            next,
            columns,
            row,
            end,
        })
    }
}

/// An EOF packet is shorter than any row that begins with the same byte, and an OK packet in its place is,
/// too: such a row has a value of 16 MiB.
fn is_end(payload: &[u8], capabilities: Capabilities) -> bool {
    let longest = if capabilities.contains(Capabilities::DEPRECATE_EOF) {
        0xff_ffff
    } else {
        8
    };
    payload.first() == Some(&0xfe) && payload.len() <= longest
}

/// The end of definitions or of rows, without warnings.
fn is_quiet_end(payload: &[u8], capabilities: Capabilities) -> bool {
    let (status, warnings) = match *payload {
        [0xfe, 0, 0, s0, s1, w0, w1] if capabilities.contains(Capabilities::DEPRECATE_EOF) => {
            ([s0, s1], [w0, w1])
        }
        [0xfe, w0, w1, s0, s1] => ([s0, s1], [w0, w1]),
        _ => return false,
    };
    let status = StatusFlags(u16::from_le_bytes(status));
    warnings == [0, 0] && !status.intersects(PASSING)
}

impl<'a> Definition<'a> {
    /// Its names are the same in all character sets that are like ASCII.
    pub(super) fn is_ascii(&self) -> bool {
        [self.schema, self.table, self.column]
            .iter()
            .all(|name| name.is_ascii())
    }

    fn read(payload: &'a [u8], capabilities: Capabilities) -> Option<Self> {
        let mut rest = payload;
        let _catalog = take_lenenc_bytes(&mut rest)?;
        let schema = take_lenenc_bytes(&mut rest)?;
        let _alias = take_lenenc_bytes(&mut rest)?;
        let table = take_lenenc_bytes(&mut rest)?;
        let _name = take_lenenc_bytes(&mut rest)?;
        let column = take_lenenc_bytes(&mut rest)?;
        if capabilities.contains(Capabilities::MARIADB_EXTENDED_METADATA) {
            take_lenenc_bytes(&mut rest)?;
        }
        match *rest {
            [12, _, _, _, _, _, _, kind, f0, f1, _decimals, _, _] => Some(Self {
                schema,
                table,
                column,
                kind,
                flags: u16::from_le_bytes([f0, f1]),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use mysql_wire::write_packet;

    use super::*;

    pub(in crate::lookup) fn definition(table: &str, column: &str, kind: u8, flags: u16) -> Vec<u8> {
        let mut payload = Vec::new();
        for text in ["def", "shop", "alias", table, "name", column] {
            payload.push(text.len() as u8);
            payload.extend_from_slice(text.as_bytes());
        }
        payload.extend([12, 255, 0, 0, 1, 0, 0, kind]);
        payload.extend(flags.to_le_bytes());
        payload.extend([0, 0, 0]);
        payload
    }

    pub(in crate::lookup) fn packets(payloads: &[&[u8]]) -> Vec<u8> {
        let (mut out, mut sequence) = (Vec::new(), 1);
        payloads
            .iter()
            .for_each(|payload| write_packet(&mut out, &mut sequence, payload));
        out
    }

    pub(in crate::lookup) const EOF: Capabilities = Capabilities::PROTOCOL_41;
    pub(in crate::lookup) const NO_EOF: Capabilities =
        Capabilities::PROTOCOL_41.with(Capabilities::DEPRECATE_EOF);
    pub(in crate::lookup) const END: &[u8] = &[0xfe, 0, 0, 2, 0];
    pub(in crate::lookup) const OK: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];

    #[test]
    fn both_forms_are_taken_apart() {
        let id = definition("t", "id", 3, 0x4003);
        let older = packets(&[&[1], &id, END, b"\x011", END]);
        let answer = ClientAnswer::read(&older, EOF).unwrap();
        assert_eq!((answer.head.len(), answer.next), (5 + 4 + id.len() + 9, 4));
        assert_eq!((answer.row, answer.end), (Some(&b"\x011"[..]), END));
        let Definition {
            schema,
            table,
            column,
            kind,
            flags,
        } = answer.columns[0];
        assert_eq!((schema, table, column), (&b"shop"[..], &b"t"[..], &b"id"[..]));
        assert_eq!((kind, flags), (3, 0x4003));

        let newer = packets(&[&[1], &id, OK]);
        let answer = ClientAnswer::read(&newer, NO_EOF).unwrap();
        assert_eq!((answer.next, answer.row, answer.end), (3, None, OK));
    }

    #[test]
    fn anything_unusual_is_not_learned() {
        let id = definition("t", "id", 3, 0);
        let row: &[u8] = b"\x011";
        for (what, payloads) in [
            ("two rows", vec![&[1][..], &id, row, row, OK]),
            ("warnings", vec![&[1], &id, row, &[0xfe, 0, 0, 2, 0, 1, 0]]),
            (
                "in a transaction",
                vec![&[1], &id, row, &[0xfe, 0, 0, 3, 0, 0, 0]],
            ),
            (
                "session state",
                vec![&[1], &id, row, &[0xfe, 0, 0, 2, 0x40, 0, 0, 0, 0]],
            ),
            ("slow", vec![&[1], &id, row, &[0xfe, 0, 0, 2, 0x08, 0, 0]]),
            (
                "other columns than prepared",
                vec![&[1], &id, row, &[0xfe, 0, 0, 2, 0x04, 0, 0]],
            ),
            ("no index", vec![&[1], &id, row, &[0xfe, 0, 0, 0x22, 0, 0, 0]]),
            (
                "no good index",
                vec![&[1], &id, row, &[0xfe, 0, 0, 0x12, 0, 0, 0]],
            ),
            (
                "a schema is dropped",
                vec![&[1], &id, row, &[0xfe, 0, 0, 2, 0x01, 0, 0]],
            ),
            ("an error", vec![b"\xff\x28\x04#42000no"]),
            (
                "an error behind rows",
                vec![&[1], &id, row, b"\xff\x28\x04#42000no"],
            ),
            ("no columns", vec![&[0], OK]),
            ("cut off", vec![&[1], &id, row]),
            ("more than one answer", vec![&[1], &id, row, OK, OK]),
            ("a broken definition", vec![&[1], &id[..9], row, OK]),
        ] {
            assert_eq!(ClientAnswer::read(&packets(&payloads), NO_EOF), None, "{what}");
        }
        let whole = packets(&[&[1], &id, row, OK]);
        for cut in 0..whole.len() {
            assert_eq!(ClientAnswer::read(&whole[..cut], NO_EOF), None, "{cut}");
        }
    }
}
