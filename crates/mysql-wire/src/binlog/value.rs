//! One column's value, and its compact bytes.

use std::borrow::Cow;

use super::temporal::{Date, DateTime, Time, Timestamp};
use crate::WireError;
use crate::codec::{Reader, little_endian, put_low_bytes};

/// A value as the table's definition means it. Text is UTF-8 whatever the column's character set is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    /// Numbers up to `i64::MAX` have the same bytes as [`Value::Int`] and come back as such.
    UInt(u64),
    Float(f32),
    Double(f64),
    /// As it is stored; what it means depends on the column's precision and scale.
    Decimal(Cow<'a, [u8]>),
    /// Text in UTF-8, or bytes of a binary column; with all bytes of a BINARY(n).
    Bytes(Cow<'a, [u8]>),
    Date(Date),
    Time(Time),
    DateTime(DateTime),
    Timestamp(Timestamp),
    /// 0, or 1901 to 2155.
    Year(u16),
    Bit(u64),
    /// From 1; 0 is the empty string of an invalid value.
    Enum(u16),
    /// Bit 0 is the first member.
    Set(u64),
    /// Text as the server prints it.
    Json(Cow<'a, [u8]>),
}

// What the first byte of an encoded value says. Integers have as many bytes as they need, after one of
// INT..=INT_8.
const NULL: u8 = 0;
const INT: u8 = 1;
const INT_8: u8 = 9;
const UINT: u8 = 10;
const FLOAT: u8 = 11;
const DOUBLE: u8 = 12;
const DATE: u8 = 13;
const TIME: u8 = 14;
const TIME_MICROS: u8 = 15;
const DATE_TIME: u8 = 16;
const DATE_TIME_MICROS: u8 = 17;
const TIMESTAMP: u8 = 18;
const TIMESTAMP_MICROS: u8 = 19;
const YEAR: u8 = 20;
const ENUM_SHORT: u8 = 21;
const ENUM: u8 = 22;
const SET: u8 = 0x20;
const SET_8: u8 = 0x28;
const BIT: u8 = 0x30;
const BIT_8: u8 = 0x38;
/// And the length: 0 to 63 bytes.
const DECIMAL: u8 = 0x40;
const DECIMAL_MAX: u8 = 0x7f;
/// And the length: 0 to 95 bytes.
const SHORT: u8 = 0x80;
const SHORT_MAX: u8 = 0xdf;
/// And the number of bytes of the length.
const LONG: u8 = 0xe0;
const LONG_8: u8 = 0xe8;
const JSON: u8 = 0xf0;
const JSON_8: u8 = 0xf8;

const FIELD: &str = "encoded value";
const INVALID: WireError = WireError::Invalid { field: FIELD };

impl<'a> Value<'a> {
    /// Appends the value's bytes. They tell where they end, and equal values of one column have equal bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.push(NULL),
            Value::Int(number) => put_int(*number, out),
            Value::UInt(number) => match i64::try_from(*number) {
                Ok(number) => put_int(number, out),
                Err(_) => put(UINT, &number.to_le_bytes(), out),
            },
            Value::Float(number) => put(FLOAT, &number.to_le_bytes(), out),
            Value::Double(number) => put(DOUBLE, &number.to_le_bytes(), out),
            Value::Decimal(packed) => {
                debug_assert!(packed.len() <= usize::from(DECIMAL_MAX - DECIMAL));
                put(DECIMAL | packed.len() as u8 & 0x3f, packed, out);
            }
            Value::Bytes(bytes) if bytes.len() <= usize::from(SHORT_MAX - SHORT) => {
                put(SHORT + bytes.len() as u8, bytes, out);
            }
            Value::Bytes(bytes) => put_long(LONG, bytes, out),
            Value::Json(text) => put_long(JSON, text, out),
            Value::Date(date) => put(DATE, &date.packed().to_le_bytes()[..3], out),
            Value::Time(time) => put_time(*time, out),
            Value::DateTime(time) => put_date_time(*time, out),
            Value::Timestamp(Timestamp { seconds, micros }) => {
                let tag = if *micros == 0 { TIMESTAMP } else { TIMESTAMP_MICROS };
                put(tag, &seconds.to_le_bytes(), out);
                put_micros(*micros, out);
            }
            Value::Year(year) => put(YEAR, &[year.saturating_sub(1900) as u8], out),
            Value::Enum(index @ 0..=0xff) => put(ENUM_SHORT, &[*index as u8], out),
            Value::Enum(index) => put(ENUM, &index.to_le_bytes(), out),
            Value::Set(bits) => put_minimal(SET, *bits, out),
            Value::Bit(bits) => put_minimal(BIT, *bits, out),
        }
    }

    /// Reads the value at the beginning of `bytes` and moves them on to what is behind it.
    ///
    /// # Errors
    /// There is no value. `bytes` are anywhere.
    pub fn decode(bytes: &mut &'a [u8]) -> Result<Value<'a>, WireError> {
        let mut reader = Reader::new(bytes);
        let value = decode(&mut reader);
        *bytes = reader.remaining();
        value
    }

    /// Passes the value at the beginning of `bytes` without looking at it.
    ///
    /// # Errors
    /// As those of [`decode`](Self::decode), but what is inside a value is not checked.
    pub fn skip(bytes: &mut &'a [u8]) -> Result<(), WireError> {
        let mut reader = Reader::new(bytes);
        let tag = reader.u8(FIELD)?;
        let len = match tag {
            NULL => 0,
            INT..=INT_8 => usize::from(tag - INT),
            SET..=SET_8 => usize::from(tag - SET),
            BIT..=BIT_8 => usize::from(tag - BIT),
            YEAR | ENUM_SHORT => 1,
            ENUM => 2,
            DATE | TIME => 3,
            FLOAT | TIMESTAMP => 4,
            DATE_TIME => 5,
            TIME_MICROS => 6,
            TIMESTAMP_MICROS => 7,
            UINT | DOUBLE | DATE_TIME_MICROS => 8,
            DECIMAL..=DECIMAL_MAX => usize::from(tag - DECIMAL),
            SHORT..=SHORT_MAX => usize::from(tag - SHORT),
            LONG..=LONG_8 => length(&mut reader, tag - LONG)?,
            JSON..=JSON_8 => length(&mut reader, tag - JSON)?,
            _ => return Err(INVALID),
        };
        reader.bytes(len, FIELD)?;
        *bytes = reader.remaining();
        Ok(())
    }

    /// From up to eight bytes, the lowest first.
    pub(super) fn integer(bytes: &[u8], unsigned: bool) -> Value<'static> {
        let bits = little_endian(bytes);
        if unsigned {
            return i64::try_from(bits).map_or(Value::UInt(bits), Value::Int);
        }
        let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
        Value::Int((bits << unused) as i64 >> unused)
    }

    /// The same value, of no other bytes.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Decimal(packed) => Value::Decimal(Cow::Owned(packed.into_owned())),
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::Json(text) => Value::Json(Cow::Owned(text.into_owned())),
            Value::Null => Value::Null,
            Value::Int(number) => Value::Int(number),
            Value::UInt(number) => Value::UInt(number),
            Value::Float(number) => Value::Float(number),
            Value::Double(number) => Value::Double(number),
            Value::Date(date) => Value::Date(date),
            Value::Time(time) => Value::Time(time),
            Value::DateTime(time) => Value::DateTime(time),
            Value::Timestamp(timestamp) => Value::Timestamp(timestamp),
            Value::Year(year) => Value::Year(year),
            Value::Bit(bits) => Value::Bit(bits),
            Value::Enum(index) => Value::Enum(index),
            Value::Set(bits) => Value::Set(bits),
        }
    }

    pub fn is_null(&self) -> bool {
        *self == Value::Null
    }
}

fn put(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

fn put_int(number: i64, out: &mut Vec<u8>) {
    // Bits that are not the sign, and one for it.
    let bits = 65 - (number ^ number >> 63).leading_zeros();
    let len = if number == 0 { 0 } else { bits.div_ceil(8) as usize };
    out.push(INT + len as u8);
    put_low_bytes(out, number as u64, len);
}

fn put_minimal(tag: u8, bits: u64, out: &mut Vec<u8>) {
    let len = (64 - bits.leading_zeros()).div_ceil(8) as usize;
    out.push(tag + len as u8);
    put_low_bytes(out, bits, len);
}

fn put_long(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    put_minimal(tag, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_micros(micros: u32, out: &mut Vec<u8>) {
    if micros > 0 {
        out.extend_from_slice(&micros.to_le_bytes()[..3]);
    }
}

fn put_time(time: Time, out: &mut Vec<u8>) {
    let tag = if time.micros == 0 { TIME } else { TIME_MICROS };
    let packed = u32::from(time.negative) << 23
        | u32::from(time.hours & 0x3ff) << 12
        | u32::from(time.minutes & 63) << 6
        | u32::from(time.seconds & 63);
    put(tag, &packed.to_le_bytes()[..3], out);
    put_micros(time.micros, out);
}

fn put_date_time(time: DateTime, out: &mut Vec<u8>) {
    let tag = if time.micros == 0 {
        DATE_TIME
    } else {
        DATE_TIME_MICROS
    };
    let packed = u64::from(time.date.packed()) << 17
        | u64::from(time.hour & 31) << 12
        | u64::from(time.minute & 63) << 6
        | u64::from(time.second & 63);
    // 24 bits of date would be one too many: years end at 9999.
    put(tag, &packed.to_le_bytes()[..5], out);
    put_micros(time.micros, out);
}

fn decode<'a>(reader: &mut Reader<'a>) -> Result<Value<'a>, WireError> {
    let tag = reader.u8(FIELD)?;
    Ok(match tag {
        NULL => Value::Null,
        INT..=INT_8 => Value::integer(reader.bytes(usize::from(tag - INT), FIELD)?, false),
        UINT => Value::UInt(reader.array(FIELD).map(u64::from_le_bytes)?),
        FLOAT => Value::Float(reader.array(FIELD).map(f32::from_le_bytes)?),
        DOUBLE => Value::Double(reader.array(FIELD).map(f64::from_le_bytes)?),
        DATE => Value::Date(Date::from_packed(minimal(reader, 3)? as u32)),
        TIME | TIME_MICROS => {
            let packed = minimal(reader, 3)? as u32;
            let micros = micros(reader, tag == TIME_MICROS)?;
            Value::Time(Time::from_packed(packed >> 23 == 1, packed, micros))
        }
        DATE_TIME | DATE_TIME_MICROS => {
            let packed = minimal(reader, 5)?;
            Value::DateTime(DateTime {
                date: Date::from_packed((packed >> 17) as u32),
                hour: (packed >> 12) as u8 & 31,
                minute: (packed >> 6) as u8 & 63,
                second: packed as u8 & 63,
                micros: micros(reader, tag == DATE_TIME_MICROS)?,
            })
        }
        TIMESTAMP | TIMESTAMP_MICROS => Value::Timestamp(Timestamp {
            seconds: reader.u32(FIELD)?,
            micros: micros(reader, tag == TIMESTAMP_MICROS)?,
        }),
        YEAR => Value::Year(match reader.u8(FIELD)? {
            0 => 0,
            year => 1900 + u16::from(year),
        }),
        ENUM_SHORT => Value::Enum(u16::from(reader.u8(FIELD)?)),
        ENUM => Value::Enum(reader.u16(FIELD)?),
        SET..=SET_8 => Value::Set(minimal(reader, tag - SET)?),
        BIT..=BIT_8 => Value::Bit(minimal(reader, tag - BIT)?),
        DECIMAL..=DECIMAL_MAX => Value::Decimal(reader.bytes(usize::from(tag - DECIMAL), FIELD)?.into()),
        SHORT..=SHORT_MAX => Value::Bytes(reader.bytes(usize::from(tag - SHORT), FIELD)?.into()),
        LONG..=LONG_8 => {
            let len = length(reader, tag - LONG)?;
            Value::Bytes(reader.bytes(len, FIELD)?.into())
        }
        JSON..=JSON_8 => {
            let len = length(reader, tag - JSON)?;
            Value::Json(reader.bytes(len, FIELD)?.into())
        }
        _ => return Err(INVALID),
    })
}

fn minimal(reader: &mut Reader<'_>, len: u8) -> Result<u64, WireError> {
    reader.bytes(usize::from(len), FIELD).map(little_endian)
}

fn length(reader: &mut Reader<'_>, len: u8) -> Result<usize, WireError> {
    usize::try_from(minimal(reader, len)?).map_err(|_| INVALID)
}

fn micros(reader: &mut Reader<'_>, present: bool) -> Result<u32, WireError> {
    if !present {
        return Ok(0);
    }
    let micros = minimal(reader, 3)? as u32;
    (micros < 1_000_000).then_some(micros).ok_or(INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value<'static>> {
        let date =
            || (0..10_000_u16, 0..13_u8, 0..32_u8).prop_map(|(year, month, day)| Date { year, month, day });
        let micros = || prop_oneof![Just(0), 0..1_000_000_u32];
        let clock = || (0..24_u8, 0..60_u8, 0..60_u8);
        prop_oneof![
            Just(Value::Null),
            (any::<i64>(), 0..64_u32).prop_map(|(number, shift)| Value::Int(number >> shift)),
            (i64::MAX as u64 + 1..).prop_map(Value::UInt),
            (-1e30..1e30_f32).prop_map(Value::Float),
            (-1e300..1e300_f64).prop_map(Value::Double),
            prop::collection::vec(any::<u8>(), 0..=30).prop_map(|packed| Value::Decimal(packed.into())),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Bytes(bytes.into())),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(|text| Value::Json(text.into())),
            date().prop_map(Value::Date),
            (any::<bool>(), 0..839_u16, clock(), micros()).prop_map(
                |(negative, hours, (_, minutes, seconds), micros)| {
                    Value::Time(Time {
                        negative,
                        hours,
                        minutes,
                        seconds,
                        micros,
                    })
                }
            ),
            (date(), clock(), micros()).prop_map(|(date, (hour, minute, second), micros)| {
                Value::DateTime(DateTime {
                    date,
                    hour,
                    minute,
                    second,
                    micros,
                })
            }),
            (any::<u32>(), micros())
                .prop_map(|(seconds, micros)| Value::Timestamp(Timestamp { seconds, micros })),
            prop_oneof![Just(0), 1901..=2155_u16].prop_map(Value::Year),
            (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| Value::Bit(bits >> shift)),
            (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| Value::Set(bits >> shift)),
            any::<u16>().prop_map(Value::Enum),
        ]
    }

    proptest! {
        #[test]
        fn values_round_trip_and_tell_where_they_end(values in prop::collection::vec(any_value(), 0..8)) {
            let mut out = Vec::new();
            values.iter().for_each(|value| value.encode(&mut out));
            let (mut decoded, mut skipped) = (&out[..], &out[..]);
            for value in &values {
                prop_assert_eq!(&Value::decode(&mut decoded).unwrap(), value);
                Value::skip(&mut skipped).unwrap();
                prop_assert_eq!(decoded.len(), skipped.len());
            }
            prop_assert!(decoded.is_empty());
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>) {
            let (mut decoded, mut skipped) = (&bytes[..], &bytes[..]);
            if Value::decode(&mut decoded).is_ok() {
                Value::skip(&mut skipped).unwrap();
                prop_assert_eq!(decoded.len(), skipped.len());
            }
        }
    }

    #[test]
    fn small_values_are_small() {
        let len = |value: Value<'_>| {
            let mut out = Vec::new();
            value.encode(&mut out);
            out.len()
        };
        for (number, expected) in [
            (0, 1),
            (1, 2),
            (-1, 2),
            (127, 2),
            (-128, 2),
            (128, 3),
            (-129, 3),
            (i64::MIN, 9),
        ] {
            assert_eq!(len(Value::Int(number)), expected, "{number}");
        }
        assert_eq!(len(Value::Bytes(b"abc"[..].into())), 4);
        assert_eq!(len(Value::DateTime(DateTime::default())), 6);
    }

    #[test]
    fn a_number_has_one_encoding() {
        let (mut signed, mut unsigned) = (Vec::new(), Vec::new());
        Value::Int(300).encode(&mut signed);
        Value::UInt(300).encode(&mut unsigned);
        assert_eq!(signed, unsigned);
    }
}
