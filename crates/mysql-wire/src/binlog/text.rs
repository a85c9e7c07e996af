//! Values as the server's SELECT prints them in the text protocol, on a connection with `SET NAMES utf8mb4`;
//! and back.

use super::temporal::{Date, DateTime, Time, Zone};
use super::{BinlogError, ColumnKind, ColumnType, Value, address, decimal, float};
use crate::codec::big_endian;

/// Appends what a SELECT of the column prints. Nothing for NULL, which the protocols mark in other ways.
pub fn text(
    value: &Value<'_>,
    column: &ColumnType,
    zone: Zone,
    out: &mut Vec<u8>,
) -> Result<(), BinlogError> {
    let start = out.len();
    let invalid = || BinlogError::Value { kind: column.name() };
    match value {
        Value::Null => return Ok(()),
        Value::Int(number) => put_integer(*number < 0, number.unsigned_abs(), out),
        Value::UInt(number) => put_integer(false, *number, out),
        Value::Float(number) if column.decimals < ColumnType::NOT_FIXED => {
            float::put_fixed(f64::from(*number), column.decimals, out);
        }
        Value::Double(number) if column.decimals < ColumnType::NOT_FIXED => {
            float::put_fixed(*number, column.decimals, out);
        }
        Value::Float(number) => float::put_float(*number, out),
        Value::Double(number) => float::put_double(*number, out),
        Value::Decimal(packed) => {
            let precision = u8::try_from(column.length).map_err(|_| invalid())?;
            decimal::put(packed, precision, column.decimals, out)?;
        }
        Value::Bytes(bytes) => match column.kind {
            ColumnKind::Uuid | ColumnKind::Inet4 | ColumnKind::Inet6 => {
                address::put(column.kind, bytes, out).ok_or_else(invalid)?;
            }
            _ => out.extend_from_slice(bytes),
        },
        Value::Json(text) => out.extend_from_slice(text),
        Value::Date(date) => date.put(out),
        Value::Time(time) => time.put(column.decimals, out),
        Value::DateTime(time) => time.put(column.decimals, out),
        Value::Timestamp(timestamp) => timestamp.in_zone(zone).put(column.decimals, out),
        Value::Year(year) => super::temporal::put_number(out, u32::from(*year), 4),
        Value::Bit(bits) => {
            let bytes = (column.length as usize).div_ceil(8).min(8);
            out.extend(bits.to_be_bytes().into_iter().skip(8 - bytes));
        }
        Value::Enum(0) => {}
        Value::Enum(index) => {
            let member = column.members.get(usize::from(*index) - 1).ok_or_else(invalid)?;
            out.extend_from_slice(member);
        }
        Value::Set(bits) => put_set(*bits, column, out),
    }
    fill_with_zeros(start, column.zerofill, out);
    Ok(())
}

fn put_integer(negative: bool, mut left: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        start -= 1;
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if negative {
        out.push(b'-');
    }
    let (_, shown) = digits.split_at(start);
    out.extend_from_slice(shown);
}

fn put_set(bits: u64, column: &ColumnType, out: &mut Vec<u8>) {
    let chosen = column.members.iter().take(64).enumerate();
    let chosen = chosen.filter(|(bit, _)| bits >> bit & 1 == 1);
    for (position, (_, member)) in chosen.enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.extend_from_slice(member);
    }
}

fn fill_with_zeros(start: usize, width: u8, out: &mut Vec<u8>) {
    let missing = usize::from(width).saturating_sub(out.len() - start);
    if missing > 0 {
        out.splice(start..start, std::iter::repeat_n(b'0', missing));
    }
}

/// Reads what [`text`] prints, and what the text protocol carries. TIMESTAMP is of `zone`.
pub fn from_text<'a>(text: &'a [u8], column: &ColumnType, zone: Zone) -> Result<Value<'a>, BinlogError> {
    let invalid = || BinlogError::Value { kind: column.name() };
    let value = match column.kind {
        ColumnKind::TinyInt
        | ColumnKind::SmallInt
        | ColumnKind::MediumInt
        | ColumnKind::Int
        | ColumnKind::BigInt => integer(text, column),
        ColumnKind::Float => number::<f32>(text).map(Value::Float),
        ColumnKind::Double => number::<f64>(text).map(Value::Double),
        ColumnKind::Decimal => {
            let precision = u8::try_from(column.length).map_err(|_| invalid())?;
            Some(Value::Decimal(
                decimal::pack(text, precision, column.decimals)?.into(),
            ))
        }
        ColumnKind::Bit => (text.len() <= 8)
            .then(|| big_endian(text))
            .filter(|bits| column.length >= 64 || bits >> column.length == 0)
            .map(Value::Bit),
        ColumnKind::Year => match number::<u16>(text) {
            Some(year @ (0 | 1901..=2155)) => Some(Value::Year(year)),
            _ => None,
        },
        ColumnKind::Date => Date::read(text).map(Value::Date),
        ColumnKind::Time => Time::read(text).map(Value::Time),
        ColumnKind::DateTime => DateTime::read(text).map(Value::DateTime),
        ColumnKind::Timestamp => DateTime::read(text)
            .and_then(|time| time.timestamp(zone))
            .map(Value::Timestamp),
        ColumnKind::Enum => enum_index(text, column).map(Value::Enum),
        ColumnKind::Set => set_bits(text, column).map(Value::Set),
        ColumnKind::Json => Some(Value::Json(text.into())),
        ColumnKind::Uuid | ColumnKind::Inet4 | ColumnKind::Inet6 => {
            address::read(column.kind, text).map(|bytes| Value::Bytes(bytes.into()))
        }
        _ => Some(Value::Bytes(text.into())),
    };
    value.ok_or_else(invalid)
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    let starts_well = text
        .first()
        .is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.'));
    starts_well
        .then(|| str::from_utf8(text).ok()?.parse().ok())
        .flatten()
}

fn integer(text: &[u8], column: &ColumnType) -> Option<Value<'static>> {
    let bits = match column.kind {
        ColumnKind::TinyInt => 8,
        ColumnKind::SmallInt => 16,
        ColumnKind::MediumInt => 24,
        ColumnKind::Int => 32,
        _ => 64,
    };
    if column.unsigned {
        let number = number::<u64>(text).filter(|number| bits == 64 || number >> bits == 0)?;
        return Some(match i64::try_from(number) {
            Ok(number) => Value::Int(number),
            Err(_) => Value::UInt(number),
        });
    }
    let number = number::<i64>(text)?;
    let unused = 64 - bits;
    ((number << unused) >> unused == number).then_some(Value::Int(number))
}

/// The index of a value that is stored; of an empty member that of the invalid value, since their texts are
/// the same.
pub(super) fn canonical_enum(index: u64, column: &ColumnType) -> Option<u16> {
    if index == 0 {
        return Some(0);
    }
    let member = column.members.get(usize::try_from(index - 1).ok()?)?;
    if member.is_empty() {
        Some(0)
    } else {
        u16::try_from(index).ok()
    }
}

fn enum_index(text: &[u8], column: &ColumnType) -> Option<u16> {
    if text.is_empty() {
        return Some(0);
    }
    let index = column.members.iter().position(|member| **member == *text)?;
    u16::try_from(index + 1).ok()
}

fn set_bits(text: &[u8], column: &ColumnType) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    text.split(|&byte| byte == b',').try_fold(0, |bits, name| {
        let bit = column.members.iter().position(|member| **member == *name)?;
        (bit < 64).then(|| bits | 1 << bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(text: &str) -> ColumnType {
        ColumnType::parse(text, Some("utf8mb4")).unwrap()
    }

    #[test]
    fn text_round_trips() {
        for (column_type, texts) in [
            ("tinyint", &["-128", "127", "0"][..]),
            ("bigint unsigned", &["18446744073709551615", "0"]),
            ("int(5) unsigned zerofill", &["00042", "123456"]),
            ("decimal(10,2) unsigned zerofill", &["00000012.50"]),
            ("year", &["0000", "1901", "2155"]),
            ("date", &["0000-00-00", "9999-12-31"]),
            ("time(3)", &["-838:59:59.000", "00:00:00.001"]),
            ("datetime", &["0000-00-00 00:00:00", "2026-11-22 00:02:57"]),
            (
                "timestamp(6)",
                &["0000-00-00 00:00:00.000000", "2026-11-22 01:02:57.123456"],
            ),
            ("enum('a','b','')", &["a", "b", ""]),
            ("set('x','y','z')", &["", "x", "x,z", "x,y,z"]),
            ("varchar(10)", &["", "a😀"]),
            ("double", &["0", "1e300", "-0.1"]),
        ] {
            let column = column(column_type);
            let zone = Zone::parse("+01:00").unwrap();
            for shown in texts {
                let value = from_text(shown.as_bytes(), &column, zone).unwrap();
                let mut out = Vec::new();
                text(&value, &column, zone, &mut out).unwrap();
                assert_eq!(String::from_utf8(out).unwrap(), *shown, "{column_type}");
            }
        }
    }

    #[test]
    fn what_a_column_cannot_have_is_refused() {
        for (column_type, texts) in [
            ("tinyint", &["128", "", "+1", "1.0", " 1", "a"][..]),
            ("tinyint unsigned", &["256", "-1"]),
            ("decimal(4,2)", &["100", "1.001", "", ".", "1e1", "--1"]),
            ("year", &["1900", "2156"]),
            ("date", &["2026-13-01", "2026-1-1", "2026-01-01 00:00:00"]),
            (
                "timestamp",
                &[
                    "1969-12-31 23:59:59",
                    "2026-00-01 00:00:00",
                    "2107-01-01 00:00:00",
                ],
            ),
            ("enum('a')", &["b"]),
            ("set('a')", &["b", "a,", "a,b"]),
        ] {
            let column = column(column_type);
            for text in texts {
                assert!(
                    from_text(text.as_bytes(), &column, Zone::UTC).is_err(),
                    "{column_type}: {text}"
                );
            }
        }
    }
}
