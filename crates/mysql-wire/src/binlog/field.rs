//! One column of a row image: where it ends, whether it is what the table's definition says, and its value.
//!
//! Source: MySQL "Table_map_event", `sql-common` and `sql/log_event.cc` (`calc_field_size`); `sql/field.cc`
//! of both servers.

use std::borrow::Cow;

use super::table_map::{WireColumn, code};
use super::temporal::{Date, DateTime, Time, Timestamp, micros};
use super::{BinlogError, Charset, ColumnKind, ColumnType, Value, decimal, json, text, unpack};
use crate::WireError;
use crate::codec::{Reader, big_endian, little_endian};

const FIELD: &str = "column of a row";

/// Takes the column's bytes, without the length before them.
pub(super) fn split<'a>(wire: WireColumn, reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let meta = usize::from(wire.meta);
    let len = match wire.code {
        code::TINY | code::YEAR => 1,
        code::SHORT => 2,
        code::INT24 | code::DATE | code::NEWDATE | code::TIME => 3,
        code::LONG | code::FLOAT | code::TIMESTAMP => 4,
        code::LONGLONG | code::DOUBLE | code::DATETIME => 8,
        code::TIME2 => 3 + meta.div_ceil(2),
        code::TIMESTAMP2 => 4 + meta.div_ceil(2),
        code::DATETIME2 => 5 + meta.div_ceil(2),
        code::NEWDECIMAL => {
            let [precision, scale] = wire.meta.to_be_bytes();
            decimal::packed_len(precision, scale).ok_or(WireError::Invalid { field: FIELD })?
        }
        code::ENUM | code::SET => meta,
        code::BIT => meta / 256 + usize::from(meta % 256 > 0),
        code::VARCHAR | code::VARCHAR_COMPRESSED | code::VAR_STRING | code::STRING => {
            read_length(reader, if meta < 256 { 1 } else { 2 })?
        }
        _ => read_length(reader, meta)?,
    };
    reader.bytes(len, FIELD)
}

fn read_length(reader: &mut Reader<'_>, bytes: usize) -> Result<usize, WireError> {
    Ok(little_endian(reader.bytes(bytes, FIELD)?) as usize)
}

/// Whether columns of this type are stored so. The error is the reason why not.
pub(super) fn check(wire: WireColumn, column: &ColumnType) -> Result<(), String> {
    let meta = u32::from(wire.meta);
    let fits = match column.kind {
        ColumnKind::TinyInt => wire.code == code::TINY,
        ColumnKind::SmallInt => wire.code == code::SHORT,
        ColumnKind::MediumInt => wire.code == code::INT24,
        ColumnKind::Int => wire.code == code::LONG,
        ColumnKind::BigInt => wire.code == code::LONGLONG,
        ColumnKind::Float => wire.code == code::FLOAT && meta == 4,
        ColumnKind::Double => wire.code == code::DOUBLE && meta == 8,
        ColumnKind::Decimal => {
            wire.code == code::NEWDECIMAL && meta == column.length << 8 | u32::from(column.decimals)
        }
        ColumnKind::Bit => {
            wire.code == code::BIT && meta >> 8 == column.length / 8 && meta & 255 == column.length % 8
        }
        ColumnKind::Year => wire.code == code::YEAR,
        ColumnKind::Date => matches!(wire.code, code::DATE | code::NEWDATE),
        ColumnKind::Time => is_temporal(wire, column, code::TIME2, code::TIME),
        ColumnKind::DateTime => is_temporal(wire, column, code::DATETIME2, code::DATETIME),
        ColumnKind::Timestamp => is_temporal(wire, column, code::TIMESTAMP2, code::TIMESTAMP),
        ColumnKind::Char | ColumnKind::Uuid | ColumnKind::Inet4 | ColumnKind::Inet6 => {
            wire.code == code::STRING
        }
        ColumnKind::Binary => wire.code == code::STRING && meta == column.length,
        ColumnKind::VarChar | ColumnKind::VarBinary => {
            matches!(
                wire.code,
                code::VARCHAR | code::VAR_STRING | code::VARCHAR_COMPRESSED
            )
        }
        ColumnKind::Text | ColumnKind::Blob => {
            matches!(wire.code, code::TINY_BLOB..=code::BLOB | code::BLOB_COMPRESSED)
        }
        ColumnKind::Enum => wire.code == code::ENUM && matches!(meta, 1 | 2),
        ColumnKind::Set => wire.code == code::SET && matches!(meta, 1..=8),
        ColumnKind::Json => wire.code == code::JSON,
        ColumnKind::Geometry => wire.code == code::GEOMETRY,
        ColumnKind::Vector => matches!(wire.code, code::VECTOR | code::VARCHAR),
    };
    let reason = || format!("{} stored as type {} ({meta})", column.name(), wire.code);
    fits.then_some(()).ok_or_else(reason)
}

fn is_temporal(wire: WireColumn, column: &ColumnType, new: u8, old: u8) -> bool {
    if wire.code == old {
        // MariaDB's own format with fractions has the same code, and its length is nowhere.
        return column.decimals == 0;
    }
    wire.code == new && column.decimals <= 6 && wire.meta == u16::from(column.decimals)
}

/// The value that `bytes` of a column mean. [`check`] was passed.
pub(super) fn value<'a>(
    wire: WireColumn,
    column: &ColumnType,
    bytes: &'a [u8],
) -> Result<Value<'a>, BinlogError> {
    let invalid = || BinlogError::Value { kind: column.name() };
    Ok(match column.kind {
        ColumnKind::TinyInt
        | ColumnKind::SmallInt
        | ColumnKind::MediumInt
        | ColumnKind::Int
        | ColumnKind::BigInt => Value::integer(bytes, column.unsigned),
        ColumnKind::Float => Value::Float(f32::from_le_bytes(bytes.try_into().map_err(|_| invalid())?)),
        ColumnKind::Double => Value::Double(f64::from_le_bytes(bytes.try_into().map_err(|_| invalid())?)),
        ColumnKind::Decimal => Value::Decimal(bytes.into()),
        ColumnKind::Bit => Value::Bit(big_endian(bytes)),
        ColumnKind::Year => match little_endian(bytes) as u16 {
            0 => Value::Year(0),
            year => Value::Year(1900 + year),
        },
        ColumnKind::Date => Value::Date(Date::from_packed(little_endian(bytes) as u32)),
        ColumnKind::Time => Value::Time(time(wire, bytes)?),
        ColumnKind::DateTime => Value::DateTime(date_time(wire, bytes)?),
        ColumnKind::Timestamp if wire.code == code::TIMESTAMP => Value::Timestamp(Timestamp {
            seconds: little_endian(bytes) as u32,
            micros: 0,
        }),
        ColumnKind::Timestamp => {
            let (seconds, fraction) = bytes.split_at_checked(4).ok_or_else(invalid)?;
            Value::Timestamp(Timestamp {
                seconds: big_endian(seconds) as u32,
                micros: fraction_micros(fraction)?,
            })
        }
        ColumnKind::Char | ColumnKind::VarChar | ColumnKind::Text => {
            Value::Bytes(stored_text(wire, column.charset, bytes)?)
        }
        ColumnKind::VarBinary | ColumnKind::Blob => Value::Bytes(stored_text(wire, Charset::Binary, bytes)?),
        ColumnKind::Geometry | ColumnKind::Vector => Value::Bytes(bytes.into()),
        ColumnKind::Binary | ColumnKind::Uuid | ColumnKind::Inet4 | ColumnKind::Inet6 => {
            Value::Bytes(padded(bytes, column.length as usize).ok_or_else(invalid)?)
        }
        ColumnKind::Enum => {
            Value::Enum(text::canonical_enum(little_endian(bytes), column).ok_or_else(invalid)?)
        }
        ColumnKind::Set => {
            let bits = little_endian(bytes);
            let members = column.members.len() as u32;
            let valid = members >= 64 || bits >> members == 0;
            Value::Set(valid.then_some(bits).ok_or_else(invalid)?)
        }
        ColumnKind::Json => {
            let mut shown = Vec::with_capacity(2 * bytes.len());
            json::put(bytes, &mut shown)?;
            Value::Json(shown.into())
        }
    })
}

/// Up to three bytes for six digits, of which the last ones that the column does not have are left out.
fn fraction_micros(bytes: &[u8]) -> Result<u32, BinlogError> {
    let unit = match bytes.len() {
        1 => 10_000,
        2 => 100,
        _ => 1,
    };
    micros(big_endian(bytes) as u32 * unit)
}

fn time(wire: WireColumn, bytes: &[u8]) -> Result<Time, BinlogError> {
    if wire.code == code::TIME {
        // HHMMSS as a decimal number of three bytes.
        let bits = little_endian(bytes) as u32;
        let number = (bits << 8) as i32 >> 8;
        let digits = number.unsigned_abs();
        return Ok(Time {
            negative: number < 0,
            hours: (digits / 10_000) as u16,
            minutes: (digits / 100 % 100) as u8,
            seconds: (digits % 100) as u8,
            micros: 0,
        });
    }
    let fraction_len = bytes.len().saturating_sub(3);
    let zero = 1_i64 << (8 * bytes.len().clamp(1, 7) - 1);
    let number = big_endian(bytes) as i64 - zero;
    let bits = number.unsigned_abs();
    let whole = (bits >> (8 * fraction_len)) as u32;
    let bits = bits.to_be_bytes();
    let (_, fraction) = bits.split_at(8 - fraction_len.min(8));
    Ok(Time::from_packed(number < 0, whole, fraction_micros(fraction)?))
}

fn date_time(wire: WireColumn, bytes: &[u8]) -> Result<DateTime, BinlogError> {
    const INVALID: BinlogError = BinlogError::Value { kind: "DATETIME" };
    if wire.code == code::DATETIME {
        // YYYYMMDDHHMMSS as a decimal number.
        let digits = little_endian(bytes);
        let (date, clock) = (digits / 1_000_000, digits % 1_000_000);
        return Ok(DateTime {
            date: Date {
                year: u16::try_from(date / 10_000)
                    .ok()
                    .filter(|&year| year < 10_000)
                    .ok_or(INVALID)?,
                month: (date / 100 % 100) as u8,
                day: (date % 100) as u8,
            },
            hour: (clock / 10_000) as u8,
            minute: (clock / 100 % 100) as u8,
            second: (clock % 100) as u8,
            micros: 0,
        });
    }
    let (whole, fraction) = bytes.split_at_checked(5).ok_or(INVALID)?;
    // The highest bit is the sign, which is always that of a number that is not negative.
    let packed = big_endian(whole) & 0x7f_ffff_ffff;
    Ok(DateTime::from_packed(packed, fraction_micros(fraction)?))
}

fn stored_text<'a>(
    wire: WireColumn,
    charset: Charset,
    bytes: &'a [u8],
) -> Result<Cow<'a, [u8]>, BinlogError> {
    if let code::VARCHAR_COMPRESSED | code::BLOB_COMPRESSED = wire.code {
        return Ok(match unpack::mariadb_column(bytes)? {
            Cow::Borrowed(stored) => charset.to_utf8(stored)?,
            Cow::Owned(stored) => Cow::Owned(charset.to_utf8(&stored)?.into_owned()),
        });
    }
    charset.to_utf8(bytes)
}

/// Zeros at the end of a BINARY(n) are not stored.
fn padded(bytes: &[u8], len: usize) -> Option<Cow<'_, [u8]>> {
    if bytes.len() == len {
        return Some(bytes.into());
    }
    let missing = len.checked_sub(bytes.len())?;
    let mut whole = bytes.to_vec();
    whole.resize(bytes.len() + missing, 0);
    Some(whole.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(code: u8, meta: u16) -> WireColumn {
        WireColumn { code, meta }
    }

    fn of(kind: ColumnKind, code: u8, meta: u16, bytes: &[u8]) -> Value<'_> {
        let mut column = ColumnType::new(kind);
        column.decimals = meta as u8;
        value(wire(code, meta), &column, bytes).unwrap()
    }

    #[test]
    fn negative_times_count_down_from_zero() {
        // -00:00:00.01 with two decimals, -01:00:00, -00:00:01.999999.
        let time = |hours, seconds, micros| {
            Value::Time(Time {
                negative: true,
                hours,
                minutes: 0,
                seconds,
                micros,
            })
        };
        assert_eq!(
            of(ColumnKind::Time, code::TIME2, 2, b"\x7f\xff\xff\xff"),
            time(0, 0, 10_000)
        );
        assert_eq!(
            of(ColumnKind::Time, code::TIME2, 0, b"\x7f\xf0\x00"),
            time(1, 0, 0)
        );
        let micros = b"\x7f\xff\xfe\xf0\xbd\xc1";
        assert_eq!(of(ColumnKind::Time, code::TIME2, 6, micros), time(0, 1, 999_999));
    }

    #[test]
    fn times_have_six_decimals_at_most() {
        let mut column = ColumnType::new(ColumnKind::Time);
        for (decimals, fits) in [(6, true), (7, false), (255, false)] {
            column.decimals = decimals;
            assert_eq!(check(wire(code::TIME2, decimals.into()), &column).is_ok(), fits);
        }
    }

    #[test]
    fn signs_are_of_the_definition() {
        let mut column = ColumnType::new(ColumnKind::MediumInt);
        let stored = wire(code::INT24, 0);
        assert_eq!(value(stored, &column, &[0xff; 3]).unwrap(), Value::Int(-1));
        column.unsigned = true;
        assert_eq!(value(stored, &column, &[0xff; 3]).unwrap(), Value::Int(0xff_ffff));
    }

    #[test]
    fn zeros_at_the_end_of_binary_come_back() {
        let mut column = ColumnType::new(ColumnKind::Binary);
        column.length = 4;
        let stored = wire(code::STRING, 4);
        assert_eq!(
            value(stored, &column, b"ab").unwrap(),
            Value::Bytes(b"ab\0\0"[..].into())
        );
        assert!(value(stored, &column, b"abcde").is_err());
    }

    #[test]
    fn another_table_is_seen() {
        let column = ColumnType::parse("decimal(10,2)", None).unwrap();
        assert_eq!(check(wire(code::NEWDECIMAL, 10 << 8 | 2), &column), Ok(()));
        assert!(check(wire(code::NEWDECIMAL, 10 << 8 | 3), &column).is_err());
        assert!(
            check(wire(code::LONG, 0), &column)
                .unwrap_err()
                .contains("DECIMAL")
        );
    }
}
