//! DECIMAL as it is stored: digits before the point in groups of nine from the point to the left, digits
//! after it in groups of nine from the point to the right, each group a big-endian integer; the first bit is
//! set for numbers that are not negative, and all other bits are inverted for those that are.
//!
//! Source: MySQL `strings/decimal.cc`, `decimal2bin`.

use super::BinlogError;

/// A column has at most 65 digits. A calculated number inside a JSON document may have all that the server
/// calculates with: nine groups of nine.
pub(super) const PRECISION_MAX: u8 = 81;
pub(super) const SCALE_MAX: u8 = 38;
const INVALID: BinlogError = BinlogError::Value { kind: "decimal" };

/// Bytes of 0 to 9 digits.
fn group_bytes(digits: usize) -> usize {
    digits.div_ceil(2).min(4)
}

/// Bytes of a `DECIMAL(precision, scale)`; None where there is no such type.
pub(super) fn packed_len(precision: u8, scale: u8) -> Option<usize> {
    if precision == 0 || precision > PRECISION_MAX || scale > precision || scale > SCALE_MAX {
        return None;
    }
    let len = |digits: u8| usize::from(digits) / 9 * 4 + group_bytes(usize::from(digits) % 9);
    Some(len(precision - scale) + len(scale))
}

/// Digits of each group, from the left.
fn groups(precision: u8, scale: u8) -> impl Iterator<Item = usize> {
    let (whole, fraction) = (usize::from(precision - scale), usize::from(scale));
    let left = [whole % 9].into_iter().chain((0..whole / 9).map(|_| 9));
    let right = (0..fraction / 9).map(|_| 9).chain([fraction % 9]);
    left.chain(right).filter(|&digits| digits > 0)
}

/// Prints as many digits after the point as the type has.
pub(super) fn put(packed: &[u8], precision: u8, scale: u8, out: &mut Vec<u8>) -> Result<(), BinlogError> {
    if packed_len(precision, scale) != Some(packed.len()) {
        return Err(INVALID);
    }
    let negative = packed.first().is_some_and(|first| first & 0x80 == 0);
    let invert = if negative { 0xff } else { 0 };
    let (mut rest, mut first) = (packed, 0x80);
    let mut digits = Vec::with_capacity(usize::from(PRECISION_MAX));
    for count in groups(precision, scale) {
        let (group, behind) = rest.split_at_checked(group_bytes(count)).ok_or(INVALID)?;
        rest = behind;
        let value = group.iter().fold(0_u32, |value, &byte| {
            let byte = byte ^ invert ^ std::mem::take(&mut first);
            value << 8 | u32::from(byte)
        });
        if value >= 10_u32.pow(count as u32) {
            return Err(INVALID);
        }
        super::temporal::put_number(&mut digits, value, count);
    }
    let (whole, fraction) = digits.split_at(usize::from(precision - scale));
    if negative && digits.iter().any(|&digit| digit != b'0') {
        out.push(b'-');
    }
    match without_leading_zeros(whole) {
        [] => out.push(b'0'),
        whole => out.extend_from_slice(whole),
    }
    if scale > 0 {
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
    Ok(())
}

/// Reads `[-]digits[.digits]`; more digits than the type has must be zeros.
pub(super) fn pack(text: &[u8], precision: u8, scale: u8) -> Result<Vec<u8>, BinlogError> {
    let len = packed_len(precision, scale).ok_or(INVALID)?;
    let (negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        [b'+', text @ ..] => (false, text),
        _ => (false, text),
    };
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let (whole, fraction) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if whole.is_empty() && fraction.is_empty() {
        return Err(INVALID);
    }
    let whole = without_leading_zeros(whole);
    let (fraction, excess) = fraction.split_at(fraction.len().min(usize::from(scale)));
    let room = usize::from(precision - scale);
    if whole.len() > room || excess.iter().any(|&digit| digit != b'0') {
        return Err(INVALID);
    }
    let mut digits = Vec::with_capacity(usize::from(precision));
    digits.resize(room - whole.len(), b'0');
    digits.extend_from_slice(whole);
    digits.extend_from_slice(fraction);
    digits.resize(usize::from(precision), b'0');
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(INVALID);
    }
    let negative = negative && digits.iter().any(|&digit| digit != b'0');
    let (mut packed, mut rest) = (Vec::with_capacity(len), digits.as_slice());
    for count in groups(precision, scale) {
        let (group, behind) = rest.split_at(count);
        rest = behind;
        let value = group
            .iter()
            .fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
        packed.extend(value.to_be_bytes().into_iter().skip(4 - group_bytes(count)));
    }
    if negative {
        packed.iter_mut().for_each(|byte| *byte = !*byte);
    }
    if let Some(first) = packed.first_mut() {
        *first ^= 0x80;
    }
    Ok(packed)
}

fn without_leading_zeros(mut digits: &[u8]) -> &[u8] {
    while let [b'0', behind @ ..] = digits {
        digits = behind;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_manuals_example() {
        let packed = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        let mut out = Vec::new();
        put(&packed, 14, 4, &mut out).unwrap();
        assert_eq!(out, b"1234567890.1234");
        assert_eq!(pack(b"1234567890.1234", 14, 4).unwrap(), packed);
        let negative: Vec<u8> = packed.iter().map(|byte| !byte).collect();
        assert_eq!(pack(b"-1234567890.1234", 14, 4).unwrap(), negative);
    }

    /// `JSON_ARRAY(CAST('-…' AS DECIMAL(60,21)))`, as MySQL 9.7 logs it: 45 digits before the point, of which
    /// six are zeros.
    #[test]
    fn a_document_has_more_digits_than_a_column() {
        let packed = [
            0x7f, 0xff, 0xfd, 0x0c, 0xd3, 0x40, 0x0c, 0xfc, 0xf5, 0xc0, 0xb6, 0xa1, 0xfc, 0xb7, 0x02, 0x48,
            0xc6, 0x20, 0x06, 0x2a, 0xf8, 0xe0, 0x4d, 0x28, 0xf6, 0xa3, 0x49, 0x94, 0xfc, 0xfc,
        ];
        let mut out = Vec::new();
        put(&packed, 66, 21, &mut out).unwrap();
        assert_eq!(
            out,
            b"-755750777091171919710055115191970979797.119517911157070955771"
        );
    }

    proptest! {
        #[test]
        fn digits_round_trip(precision in 1..=PRECISION_MAX, scale in 0..=30_u8, negative: bool, digits in "[0-9]{81}") {
            let scale = scale.min(precision);
            let whole = &digits[..usize::from(precision - scale)];
            let fraction = &digits[81 - usize::from(scale)..];
            let trimmed = whole.trim_start_matches('0');
            let number = format!("{}{}{fraction}", if trimmed.is_empty() { "0" } else { trimmed }, if scale > 0 { "." } else { "" });
            let zero = number.bytes().all(|byte| byte == b'0' || byte == b'.');
            let number = format!("{}{number}", if negative && !zero { "-" } else { "" });
            let packed = pack(number.as_bytes(), precision, scale).unwrap();
            prop_assert_eq!(Some(packed.len()), packed_len(precision, scale));
            let mut out = Vec::new();
            put(&packed, precision, scale, &mut out).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), number);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, precision: u8, scale: u8) {
            let _ = put(&bytes, precision, scale, &mut Vec::new());
            let _ = pack(&bytes, precision, scale);
        }
    }
}
