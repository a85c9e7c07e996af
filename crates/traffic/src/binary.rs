//! Values of the binary protocol: those of rows, and of parameters of prepared statements.

use std::fmt::Write as _;

/// Types of columns and parameters. The others are integers and what comes as a text.
pub(crate) const FLOAT: u8 = 4;
pub(crate) const DOUBLE: u8 = 5;
pub(crate) const DATE: u8 = 10;
pub(crate) const TIME: u8 = 11;

/// Whether a value is NULL. `bit`: its place in the bitmap.
pub(crate) fn is_null(bitmap: &[u8], bit: usize) -> bool {
    bitmap.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

/// Takes the next value, without the length in front of it.
pub(crate) fn take<'a>(kind: u8, values: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = match kind {
        1 => 1,
        2 | 13 => 2,
        3 | 9 | FLOAT => 4,
        8 | DOUBLE => 8,
        6 => 0,
        _ => usize::try_from(length(values)?).ok()?,
    };
    take_bytes(values, len)
}

/// Takes a length-encoded number.
pub(crate) fn length(bytes: &mut &[u8]) -> Option<u64> {
    let wide = match take_bytes(bytes, 1)?[0] {
        short @ 0..=0xfa => return Some(u64::from(short)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    take_bytes(bytes, wide).map(little)
}

fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// The number whose lowest byte comes first.
pub(crate) fn little(bytes: &[u8]) -> u64 {
    let more = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, more)
}

/// The number with a sign whose lowest byte comes first, of 1 to 8 bytes.
pub(crate) fn signed(bytes: &[u8]) -> i64 {
    let shift = 64 - 8 * bytes.len() as u32;
    (little(bytes) << shift).cast_signed() >> shift
}

/// An integer as text.
pub(crate) fn integer(bytes: &[u8], is_unsigned: bool) -> String {
    match is_unsigned {
        true => little(bytes).to_string(),
        false => signed(bytes).to_string(),
    }
}

/// A value of one of the types of dates as text, with a time unless it `is_date`.
pub(crate) fn date(is_date: bool, bytes: &[u8]) -> String {
    let part = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let year = u16::from_le_bytes([part(0), part(1)]);
    let mut text = format!("{year:04}-{:02}-{:02}", part(2), part(3));
    // Writing to a String cannot fail, here and below.
    if !is_date {
        let _ = write!(text, " {:02}:{:02}:{:02}", part(4), part(5), part(6));
    }
    if let Some(micros) = bytes.get(7..11) {
        let _ = write!(text, ".{:06}", little(micros));
    }
    text
}

/// A value of type TIME as text.
pub(crate) fn time(bytes: &[u8]) -> String {
    let part = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let sign = if part(0) == 0 { "" } else { "-" };
    let hours = bytes.get(1..5).map_or(0, little) * 24 + u64::from(part(5));
    let mut text = format!("{sign}{hours:02}:{:02}:{:02}", part(6), part(7));
    if let Some(micros) = bytes.get(8..12) {
        let _ = write!(text, ".{:06}", little(micros));
    }
    text
}
