//! The first rows of a result as text, for a replay that keeps results.
//!
//! A line for each row, with tabs between its cells. NULL is `\N`; backslashes, control characters and bytes
//! that are not UTF-8 are escaped. Where there is more than is kept the last line ends with `…`.

use std::fmt::Write as _;

use mysql_wire::text_values;

const ROWS_MAX: usize = 20;
/// Bytes of the text, without the `…`.
const TEXT_MAX: usize = 4096;

const FLOAT: u8 = 4;
const DOUBLE: u8 = 5;
const TIME: u8 = 11;
const DATES: [u8; 3] = [7, 10, 12];
/// The type of a date without a time.
const DATE: u8 = 10;
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

    /// A row of it.
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
            let bit = index + 2;
            if bits[bit / 8] >> (bit % 8) & 1 == 1 {
                self.cell(index, None);
            } else {
                let value = binary_value(kind, is_unsigned, &mut rest)?;
                self.cell(index, Some(&value));
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

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (value, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(value)
}

fn little(bytes: &[u8]) -> u64 {
    let more = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, more)
}

/// The next value of a binary row, as text.
fn binary_value(kind: u8, is_unsigned: bool, rest: &mut &[u8]) -> Option<Vec<u8>> {
    let text = match kind {
        1 => integer(take(rest, 1)?, is_unsigned),
        2 | 13 => integer(take(rest, 2)?, is_unsigned),
        3 | 9 => integer(take(rest, 4)?, is_unsigned),
        8 => integer(take(rest, 8)?, is_unsigned),
        FLOAT => format!("{:?}", f32::from_bits(little(take(rest, 4)?) as u32)),
        DOUBLE => format!("{:?}", f64::from_bits(little(take(rest, 8)?))),
        6 => String::new(),
        TIME => {
            let len = usize::from(take(rest, 1)?[0]);
            time(take(rest, len)?)
        }
        kind if DATES.contains(&kind) => {
            let len = usize::from(take(rest, 1)?[0]);
            date(kind == DATE, take(rest, len)?)
        }
        _ => {
            let len = match take(rest, 1)?[0] {
                short @ 0..=250 => u64::from(short),
                252 => little(take(rest, 2)?),
                253 => little(take(rest, 3)?),
                254 => little(take(rest, 8)?),
                _ => return None,
            };
            return take(rest, usize::try_from(len).ok()?).map(<[u8]>::to_vec);
        }
    };
    Some(text.into_bytes())
}

fn integer(bytes: &[u8], is_unsigned: bool) -> String {
    let number = little(bytes);
    let shift = 64 - 8 * bytes.len() as u32;
    match is_unsigned {
        true => number.to_string(),
        false => ((number << shift).cast_signed() >> shift).to_string(),
    }
}

fn date(is_date: bool, bytes: &[u8]) -> String {
    let part = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let year = u16::from_le_bytes([part(0), part(1)]);
    let mut text = format!("{year:04}-{:02}-{:02}", part(2), part(3));
    if !is_date {
        let _ = write!(text, " {:02}:{:02}:{:02}", part(4), part(5), part(6));
    }
    if let Some(micros) = bytes.get(7..11) {
        let _ = write!(text, ".{:06}", little(micros));
    }
    text
}

fn time(bytes: &[u8]) -> String {
    let part = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let sign = if part(0) == 0 { "" } else { "-" };
    let hours = bytes.get(1..5).map_or(0, little) * 24 + u64::from(part(5));
    let mut text = format!("{sign}{hours:02}:{:02}:{:02}", part(6), part(7));
    if let Some(micros) = bytes.get(8..12) {
        let _ = write!(text, ".{:06}", little(micros));
    }
    text
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
