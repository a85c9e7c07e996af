//! Values as the binary protocol of prepared statements carries them; and back.
//!
//! Source: MySQL "Binary Protocol Resultset Row"; `Protocol_binary` of both servers for the lengths of times.

use super::temporal::{Date, DateTime, Time, Zone};
use super::text::{from_text, text};
use super::{BinlogError, ColumnKind, ColumnType, Value};
use crate::WireError;
use crate::codec::{Reader, is_bit_set, put_lenenc, put_lenenc_bytes, put_low_bytes, zero_padded};

/// Appends what the binary protocol carries of a column's value. Nothing for NULL, which is a bit of the row.
pub fn binary(
    value: &Value<'_>,
    column: &ColumnType,
    zone: Zone,
    out: &mut Vec<u8>,
) -> Result<(), BinlogError> {
    match value {
        Value::Null => {}
        Value::Int(number) => put_low_bytes(out, *number as u64, integer_len(column.kind)),
        Value::UInt(number) => put_low_bytes(out, *number, integer_len(column.kind)),
        Value::Year(year) => out.extend_from_slice(&year.to_le_bytes()),
        Value::Float(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Double(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Date(date) => {
            let midnight = DateTime {
                date: *date,
                ..DateTime::default()
            };
            put_date_time(midnight, out);
        }
        Value::DateTime(time) => put_date_time(*time, out),
        Value::Timestamp(timestamp) => put_date_time(timestamp.in_zone(zone), out),
        Value::Time(time) => put_time(*time, out),
        Value::Bytes(bytes) | Value::Json(bytes) if !is_shown_otherwise(column.kind) => {
            put_lenenc_bytes(out, bytes)
        }
        _ => {
            let mut shown = Vec::new();
            text(value, column, zone, &mut shown)?;
            put_lenenc_bytes(out, &shown);
        }
    }
    Ok(())
}

fn is_shown_otherwise(kind: ColumnKind) -> bool {
    matches!(kind, ColumnKind::Uuid | ColumnKind::Inet4 | ColumnKind::Inet6)
}

fn integer_len(kind: ColumnKind) -> usize {
    match kind {
        ColumnKind::TinyInt => 1,
        ColumnKind::SmallInt | ColumnKind::Year => 2,
        ColumnKind::MediumInt | ColumnKind::Int => 4,
        _ => 8,
    }
}

/// Zeros at the end are left out.
fn put_date_time(time: DateTime, out: &mut Vec<u8>) {
    let DateTime {
        date,
        hour,
        minute,
        second,
        micros,
    } = time;
    let len = match () {
        () if micros > 0 => 11,
        () if hour > 0 || minute > 0 || second > 0 => 7,
        () if date != Date::default() => 4,
        () => 0,
    };
    put_lenenc(out, len);
    let start = out.len();
    out.extend_from_slice(&date.year.to_le_bytes());
    out.extend_from_slice(&[date.month, date.day, hour, minute, second]);
    out.extend_from_slice(&micros.to_le_bytes());
    out.truncate(start + len as usize);
}

fn put_time(time: Time, out: &mut Vec<u8>) {
    let len = match () {
        () if time.micros > 0 => 12,
        () if time.hours > 0 || time.minutes > 0 || time.seconds > 0 => 8,
        () => 0,
    };
    put_lenenc(out, len);
    let start = out.len();
    out.push(u8::from(time.negative));
    out.extend_from_slice(&u32::from(time.hours / 24).to_le_bytes());
    out.extend_from_slice(&[(time.hours % 24) as u8, time.minutes, time.seconds]);
    out.extend_from_slice(&time.micros.to_le_bytes());
    out.truncate(start + len as usize);
}

/// A row of a prepared SELECT, value by value.
#[derive(Clone)]
pub struct BinaryRow<'a> {
    nulls: &'a [u8],
    reader: Reader<'a>,
    columns: usize,
    column: usize,
}

const FIELD: &str = "binary row";

impl<'a> BinaryRow<'a> {
    /// `payload` is the packet's, with its first byte.
    pub fn new(payload: &'a [u8], columns: usize) -> Result<BinaryRow<'a>, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(0, "a row")?;
        // The first two bits are not used.
        let nulls = reader.bytes((columns + 2).div_ceil(8), FIELD)?;
        Ok(BinaryRow {
            nulls,
            reader,
            columns,
            column: 0,
        })
    }

    /// The value of the next column, which was selected as it is, with `time_zone = '+00:00'`.
    ///
    /// # Errors
    /// The row has no more columns, or the column cannot have this value.
    pub fn next_value(&mut self, column: &ColumnType) -> Result<Value<'a>, BinlogError> {
        if self.column == self.columns {
            return Err(WireError::Truncated { field: FIELD }.into());
        }
        let bit = self.column + 2;
        self.column += 1;
        if is_bit_set(self.nulls, bit) {
            return Ok(Value::Null);
        }
        read(&mut self.reader, column)
    }
}

impl std::fmt::Debug for BinaryRow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BinaryRow")
            .field("column", &self.column)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

fn read<'a>(reader: &mut Reader<'a>, column: &ColumnType) -> Result<Value<'a>, BinlogError> {
    let invalid = || BinlogError::Value { kind: column.name() };
    Ok(match column.kind {
        ColumnKind::TinyInt
        | ColumnKind::SmallInt
        | ColumnKind::MediumInt
        | ColumnKind::Int
        | ColumnKind::BigInt => {
            Value::integer(reader.bytes(integer_len(column.kind), FIELD)?, column.unsigned)
        }
        ColumnKind::Year => Value::Year(reader.u16(FIELD)?),
        ColumnKind::Float => Value::Float(reader.array(FIELD).map(f32::from_le_bytes)?),
        ColumnKind::Double => Value::Double(reader.array(FIELD).map(f64::from_le_bytes)?),
        ColumnKind::Date => Value::Date(read_date_time(reader)?.date),
        ColumnKind::DateTime => Value::DateTime(read_date_time(reader)?),
        ColumnKind::Timestamp => {
            let timestamp = read_date_time(reader)?.timestamp(Zone::UTC);
            Value::Timestamp(timestamp.ok_or_else(invalid)?)
        }
        ColumnKind::Time => Value::Time(read_time(reader)?),
        _ => from_text(reader.lenenc_bytes(FIELD)?, column, Zone::UTC)?,
    })
}

fn read_date_time(reader: &mut Reader<'_>) -> Result<DateTime, BinlogError> {
    const INVALID: BinlogError = BinlogError::Value { kind: "DATETIME" };
    let bytes = reader.lenenc_bytes(FIELD)?;
    if !matches!(bytes.len(), 0 | 4 | 7 | 11) {
        return Err(INVALID);
    }
    let [year, year_high, month, day, hour, minute, second, a, b, c, d] = zero_padded(bytes);
    let year = u16::from_le_bytes([year, year_high]);
    if year > 9999 || month > 12 || day > 31 || hour > 23 || minute > 59 || second > 59 {
        return Err(INVALID);
    }
    Ok(DateTime {
        date: Date { year, month, day },
        hour,
        minute,
        second,
        micros: super::temporal::micros(u32::from_le_bytes([a, b, c, d]))?,
    })
}

fn read_time(reader: &mut Reader<'_>) -> Result<Time, BinlogError> {
    const INVALID: BinlogError = BinlogError::Value { kind: "TIME" };
    let bytes = reader.lenenc_bytes(FIELD)?;
    if !matches!(bytes.len(), 0 | 8 | 12) {
        return Err(INVALID);
    }
    let [negative, a, b, c, d, hours, minutes, seconds, e, f, g, h] = zero_padded(bytes);
    let days = u32::from_le_bytes([a, b, c, d]);
    if days > 34 || hours > 23 || minutes > 59 || seconds > 59 {
        return Err(INVALID);
    }
    Ok(Time {
        negative: negative != 0,
        hours: days as u16 * 24 + u16::from(hours),
        minutes,
        seconds,
        micros: super::temporal::micros(u32::from_le_bytes([e, f, g, h]))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(column_type: &str, shown: &[u8], expected: &[u8]) {
        let column = ColumnType::parse(column_type, Some("utf8mb4")).unwrap();
        let value = from_text(shown, &column, Zone::UTC).unwrap();
        let mut row = vec![0, 0];
        binary(&value, &column, Zone::UTC, &mut row).unwrap();
        assert_eq!(&row[2..], expected, "{column_type}");
        let mut row = BinaryRow::new(&row, 1).unwrap();
        assert_eq!(row.next_value(&column).unwrap(), value);
        assert!(row.next_value(&column).is_err());
    }

    #[test]
    fn values_round_trip() {
        round_trip("tinyint", b"-1", b"\xff");
        round_trip("mediumint", b"-2", b"\xfe\xff\xff\xff");
        round_trip("bigint unsigned", b"18446744073709551615", &[0xff; 8]);
        round_trip("year", b"2026", b"\xea\x07");
        round_trip("date", b"0000-00-00", b"\0");
        round_trip("date", b"2026-11-22", b"\x04\xea\x07\x0b\x16");
        round_trip(
            "datetime(6)",
            b"2026-11-22 00:00:00.000000",
            b"\x04\xea\x07\x0b\x16",
        );
        round_trip(
            "datetime(6)",
            b"2026-11-22 00:00:00.000001",
            b"\x0b\xea\x07\x0b\x16\0\0\0\x01\0\0\0",
        );
        round_trip(
            "timestamp",
            b"2026-11-22 01:02:03",
            b"\x07\xea\x07\x0b\x16\x01\x02\x03",
        );
        round_trip("time", b"-838:59:59", b"\x08\x01\x22\0\0\0\x16\x3b\x3b");
        round_trip("time", b"00:00:00", b"\0");
        round_trip("decimal(5,2)", b"-1.50", b"\x05-1.50");
        round_trip("enum('a','b')", b"b", b"\x01b");
        round_trip("bit(9)", b"\x01\x02", b"\x02\x01\x02");
        round_trip("varchar(9)", b"abc", b"\x03abc");
    }

    #[test]
    fn nulls_are_bits() {
        let column = ColumnType::new(ColumnKind::TinyInt);
        let mut row = BinaryRow::new(&[0, 0b100, 7], 2).unwrap();
        assert_eq!(row.next_value(&column).unwrap(), Value::Null);
        assert_eq!(row.next_value(&column).unwrap(), Value::Int(7));
    }
}
