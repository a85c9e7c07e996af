//! The first rows of a result as text, for a replay that keeps results.
//!
//! A line for each row, with tabs between its cells. NULL is `\N`; backslashes, control characters and bytes
//! that are not UTF-8 are escaped. Where there is more than is kept the last line ends with `…`.

use std::fmt::Write as _;

use mysql_wire::text_values;

use crate::binary::{self, DATE, DOUBLE, FLOAT, TIME};

const ROWS_MAX: usize = 20;
/// Bytes of the text, without the `…`.
const TEXT_MAX: usize = 4096;

/// The flag of a column, in the low byte.
const UNSIGNED: u8 = 32;

/// Text of the first rows of one command's results.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    text: String,
    rows: usize,
    /// Types of the columns of the result that is read, and whether they are unsigned.
    columns: Vec<(u8, bool)>,
    has_result: bool,
    is_full: bool,
}

impl Kept {
    /// A result begins, maybe behind another one.
    pub(crate) fn begin(&mut self) {
        self.columns.clear();
        self.has_result = true;
    }

    /// A column of it. `flags`: the low byte of them.
    pub(crate) fn column(&mut self, kind: u8, flags: u8) {
        self.columns.push((kind, flags & UNSIGNED != 0));
    }

    pub(crate) fn row(&mut self, row: &[u8], is_binary: bool) {
        if self.is_full {
            return;
        }
        if self.rows == ROWS_MAX {
            self.cut();
            return;
        }
        self.rows += 1;
        // A row that makes no sense is kept up to there.
        let _ = match is_binary {
            true => self.binary_row(row),
            false => self.text_row(row),
        };
        match self.text.len() >= TEXT_MAX {
            true => {
                self.text.truncate(self.text.floor_char_boundary(TEXT_MAX));
                self.cut();
            }
            false => self.text.push('\n'),
        }
    }

    /// The text; `None` where there was no result with rows. `is_whole`: nothing was left unread.
    pub(crate) fn text(mut self, is_whole: bool) -> Option<String> {
        if !is_whole && !self.is_full {
            self.cut();
        }
        self.has_result.then_some(self.text)
    }

    fn cut(&mut self) {
        self.is_full = true;
        self.text.push_str("…\n");
    }

    fn text_row(&mut self, row: &[u8]) -> Option<()> {
        for (index, value) in text_values(row).enumerate() {
            self.cell(index, value.ok()?);
        }
        Some(())
    }

    fn binary_row(&mut self, row: &[u8]) -> Option<()> {
        let nulls = (self.columns.len() + 2).div_ceil(8);
        let bits = row.get(1..1 + nulls)?;
        let mut rest = &row[1 + nulls..];
        for index in 0..self.columns.len() {
            let (kind, is_unsigned) = self.columns[index];
            if binary::is_null(bits, index + 2) {
                self.cell(index, None);
            } else {
                let value = binary::take(kind, &mut rest)?;
                self.cell(index, Some(&in_text(kind, is_unsigned, value)));
            }
        }
        Some(())
    }

    fn cell(&mut self, index: usize, value: Option<&[u8]>) {
        if self.text.len() >= TEXT_MAX {
            return;
        }
        if index > 0 {
            self.text.push('\t');
        }
        let Some(value) = value else {
            self.text.push_str("\\N");
            return;
        };
        for part in value[..value.len().min(TEXT_MAX)].utf8_chunks() {
            for letter in part.valid().chars() {
                match letter == '\\' || letter.is_control() {
                    true => self.text.extend(letter.escape_default()),
                    false => self.text.push(letter),
                }
            }
            for byte in part.invalid() {
                // Writing to a String cannot fail.
                let _ = write!(self.text, "\\x{byte:02x}");
            }
        }
    }
}

/// A value of a binary row as text.
fn in_text(kind: u8, is_unsigned: bool, value: &[u8]) -> Vec<u8> {
    let text = match kind {
        1 | 2 | 3 | 8 | 9 | 13 => binary::integer(value, is_unsigned),
        FLOAT => format!("{:?}", f32::from_bits(binary::little(value) as u32)),
        DOUBLE => format!("{:?}", f64::from_bits(binary::little(value))),
        7 | DATE | 12 => binary::date(kind == DATE, value),
        TIME => binary::time(value),
        _ => return value.to_vec(),
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(columns: &[(u8, u8)], rows: &[&[u8]], is_binary: bool) -> String {
        let mut kept = Kept::default();
        kept.begin();
        for (kind, flags) in columns {
            kept.column(*kind, *flags);
        }
        for row in rows {
            kept.row(row, is_binary);
        }
        kept.text(true).unwrap()
    }

    #[test]
    fn a_row_is_a_line_whatever_is_in_it() {
        let rows: [&[u8]; 2] = [b"\xfb\x05a\tb\\\n\x02\x1b\xff", b"\x00\x02\xc3\xa9\x01x"];
        let text = kept(&[(253, 0); 3], &rows, false);
        assert_eq!(text, "\\N\ta\\tb\\\\\\n\t\\u{1b}\\xff\n\té\tx\n");
    }

    #[test]
    fn binary_values_are_written_as_text() {
        let mut row = vec![0, 0b0000_1000, 0];
        row.extend_from_slice(&(-7_i32).to_le_bytes());
        row.extend_from_slice(&[0xff, 2, b'a', b'b']);
        row.extend_from_slice(&1.5_f64.to_le_bytes());
        row.extend_from_slice(&0.1_f32.to_le_bytes());
        row.extend_from_slice(&[4, 0xea, 7, 11, 27, 7, 0xea, 7, 11, 27, 8, 40, 4, 0]);
        row.extend_from_slice(&[8, 1, 1, 0, 0, 0, 2, 3, 4]);
        let columns = [
            (3, 0),
            (253, 0),
            (1, UNSIGNED),
            (253, 0),
            (DOUBLE, 0),
            (FLOAT, 0),
            (DATE, 0),
            (12, 0),
            (12, 0),
            (TIME, 0),
        ];
        let text = kept(&columns, &[&row[..]], true);
        let expected =
            "-7\t\\N\t255\tab\t1.5\t0.1\t2026-11-27\t2026-11-27 08:40:04\t0000-00-00 00:00:00\t-26:03:04\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let many = kept(&[(253, 0)], &[&b"\x01x"[..]; ROWS_MAX + 5], false);
        assert_eq!(many, "x\n".repeat(ROWS_MAX) + "…\n");
        let all = kept(&[(253, 0)], &[&b"\x01x"[..]; ROWS_MAX], false);
        assert_eq!(all, "x\n".repeat(ROWS_MAX));
        let long = [&[0xfd, 0, 0, 1][..], "é".repeat(1 << 15).as_bytes()].concat();
        let long = kept(&[(253, 0)], &[&b"\x01x"[..], &long[..]], false);
        assert_eq!(long, format!("x\n{}…\n", "é".repeat((TEXT_MAX - 2) / 2)));
    }

    #[test]
    fn who_has_no_rows_has_no_text_and_what_is_cut_says_so() {
        assert_eq!(Kept::default().text(true), None);
        assert_eq!(kept(&[(253, 0)], &[], false), "");
        let mut cut = Kept::default();
        cut.begin();
        assert_eq!(cut.text(false).as_deref(), Some("…\n"));
    }
}
