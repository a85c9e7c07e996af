//! Canned result sets: one column `c`, rows of 120 payload bytes, in the text or the binary protocol.
//!
//! The row is what sysbench's `oltp_point_select` returns: a CHAR(120) column holding 119 characters. The
//! bytes of a result set depend on nothing but its [`Shape`], so the one who asks can know them beforehand
//! and compare.

use mysql_wire::{Capabilities, write_packet};

/// The value of the only column in every row: 119 characters, so that a text row has a payload of 120 bytes.
pub const ROW_VALUE: &[u8; 119] = b"68487932199-96439406143-93774651418-41631865787-96406072701-20604855487-\
25459966574-28203206787-41238978918-19503783441";

const STATUS_AUTOCOMMIT: u16 = 0x0002;
const CHARSET_UTF8MB4: u16 = 45;
const TYPE_STRING: u8 = 0xfe;

/// What decides the bytes of a canned result set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    pub rows: u32,
    /// Rows as COM_STMT_EXECUTE returns them, not as COM_QUERY does.
    pub binary: bool,
    /// CLIENT_DEPRECATE_EOF was negotiated: an OK packet ends the rows and no EOF packet follows the columns.
    pub deprecate_eof: bool,
}

impl Shape {
    /// The shape a session with these negotiated capabilities gets.
    pub fn new(rows: u32, binary: bool, negotiated: Capabilities) -> Self {
        Self {
            rows,
            binary,
            deprecate_eof: negotiated.contains(Capabilities::DEPRECATE_EOF),
        }
    }

    /// The whole response, headers included; the first packet has sequence number 1.
    pub fn encode(self) -> Vec<u8> {
        let row = if self.binary { binary_row() } else { text_row() };
        let rows = std::iter::repeat_n(&row, self.rows as usize);
        encode(&["c"], rows, self.deprecate_eof)
    }
}

/// A text result set with these columns and rows; values of up to 250 bytes.
pub fn encode_text<const N: usize>(columns: &[&str; N], rows: &[[&str; N]], deprecate_eof: bool) -> Vec<u8> {
    let encoded = |row: &[&str; N]| {
        let mut encoded = Vec::new();
        row.iter()
            .for_each(|value| push_short(&mut encoded, value.as_bytes()));
        encoded
    };
    encode(columns, rows.iter().map(encoded), deprecate_eof)
}

fn encode(columns: &[&str], rows: impl Iterator<Item: AsRef<[u8]>>, deprecate_eof: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sequence = 1;
    write_packet(&mut out, &mut sequence, &[columns.len() as u8]);
    for name in columns {
        write_packet(&mut out, &mut sequence, &definition(name));
    }
    if !deprecate_eof {
        write_packet(&mut out, &mut sequence, &eof());
    }
    for row in rows {
        write_packet(&mut out, &mut sequence, row.as_ref());
    }
    write_packet(&mut out, &mut sequence, &end(deprecate_eof));
    out
}

/// The whole answer to COM_STMT_PREPARE: statement id, one column, `parameters` parameters.
pub fn encode_prepare_ok(statement_id: u32, parameters: u16, deprecate_eof: bool) -> Vec<u8> {
    let mut head = vec![0];
    head.extend(statement_id.to_le_bytes());
    head.extend(1u16.to_le_bytes());
    head.extend(parameters.to_le_bytes());
    head.extend([0, 0, 0]);

    let mut out = Vec::new();
    let mut sequence = 1;
    write_packet(&mut out, &mut sequence, &head);
    for count in [parameters, 1] {
        for _ in 0..count {
            write_packet(&mut out, &mut sequence, &definition("c"));
        }
        if count > 0 && !deprecate_eof {
            write_packet(&mut out, &mut sequence, &eof());
        }
    }
    out
}

/// An OK packet as a response of its own, with the given sequence number.
pub fn encode_ok(mut sequence: u8) -> Vec<u8> {
    let mut out = Vec::new();
    write_packet(&mut out, &mut sequence, &ok(0));
    out
}

fn ok(header: u8) -> Vec<u8> {
    let [low, high] = STATUS_AUTOCOMMIT.to_le_bytes();
    vec![header, 0, 0, low, high, 0, 0]
}

fn eof() -> Vec<u8> {
    let [low, high] = STATUS_AUTOCOMMIT.to_le_bytes();
    vec![0xfe, 0, 0, low, high]
}

fn end(deprecate_eof: bool) -> Vec<u8> {
    if deprecate_eof { ok(0xfe) } else { eof() }
}

fn text_row() -> Vec<u8> {
    let mut row = Vec::new();
    push_short(&mut row, ROW_VALUE);
    row
}

/// A string of which the length is one byte.
fn push_short(out: &mut Vec<u8>, text: &[u8]) {
    debug_assert!(text.len() <= 250);
    out.push(text.len() as u8);
    out.extend(text);
}

/// Header 0x00 and one byte of NULL bitmap, then the same value.
fn binary_row() -> Vec<u8> {
    let mut row = vec![0, 0];
    row.extend(text_row());
    row
}

fn definition(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for text in ["def", "lab", "t", "t", name, name] {
        push_short(&mut out, text.as_bytes());
    }
    out.push(0x0c);
    out.extend(CHARSET_UTF8MB4.to_le_bytes());
    out.extend(480u32.to_le_bytes());
    out.push(TYPE_STRING);
    out.extend([1, 0, 0, 0, 0]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let length = usize::from(bytes[0]) | usize::from(bytes[1]) << 8 | usize::from(bytes[2]) << 16;
            out.push((bytes[3], bytes[4..4 + length].to_vec()));
            bytes = &bytes[4 + length..];
        }
        out
    }

    #[test]
    fn a_text_row_has_120_bytes_of_payload() {
        let shape = Shape {
            rows: 100,
            binary: false,
            deprecate_eof: true,
        };
        let packets = packets(&shape.encode());
        assert_eq!(packets.len(), 1 + 1 + 100 + 1);
        assert!(packets[2..102].iter().all(|(_, row)| row.len() == 120));
        assert_eq!(packets[102].1, [0xfe, 0, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn sequence_numbers_start_at_one_and_wrap() {
        let shape = Shape {
            rows: 1000,
            binary: true,
            deprecate_eof: false,
        };
        let packets = packets(&shape.encode());
        assert_eq!(packets.len(), 1 + 1 + 1 + 1000 + 1);
        assert!(
            packets
                .iter()
                .enumerate()
                .all(|(at, (sequence, _))| *sequence == (at + 1) as u8)
        );
        assert_eq!(packets[2].1, [0xfe, 0, 0, 2, 0]);
    }

    #[test]
    fn a_prepare_answer_describes_parameters_and_columns() {
        let with_eof = packets(&encode_prepare_ok(7, 2, false));
        assert_eq!(with_eof.len(), 1 + 2 + 1 + 1 + 1);
        assert_eq!(with_eof[0].1, [0, 7, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0]);
        assert_eq!(packets(&encode_prepare_ok(7, 0, true)).len(), 2);
    }
}
