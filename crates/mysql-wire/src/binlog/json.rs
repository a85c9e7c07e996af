//! MySQL's binary JSON as the text that the server prints.
//!
//! Sources: MySQL `sql-common/json_binary.h` (the format), `Json_wrapper::to_string` (the text).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::table_map::code;
use super::temporal::{DateTime, Time, micros};
use super::{BinlogError, decimal, float};
use crate::WireError;
use crate::codec::{Reader, put_hex};

/// What servers nest at most.
const DEPTH_MAX: u32 = 100;
/// Text is never this many times longer than what it is made of, unless values are used several times, which
/// servers never do.
const EXPANSION_MAX: usize = 16;
const FIELD: &str = "JSON document";
const INVALID: WireError = WireError::Invalid { field: FIELD };

const SMALL_OBJECT: u8 = 0;
const LARGE_ARRAY: u8 = 3;
const LITERAL: u8 = 4;
const INT16: u8 = 5;
const UINT16: u8 = 6;
const INT32: u8 = 7;
const UINT32: u8 = 8;
const INT64: u8 = 9;
const UINT64: u8 = 10;
const DOUBLE: u8 = 11;
const STRING: u8 = 12;
const OPAQUE: u8 = 15;

/// Appends the document's text.
pub(super) fn put(document: &[u8], out: &mut Vec<u8>) -> Result<(), BinlogError> {
    let Some((&kind, value)) = document.split_first() else {
        // A column that was filled by ALTER TABLE on a server that is not strict.
        out.extend_from_slice(b"null");
        return Ok(());
    };
    let room = document.len().saturating_mul(EXPANSION_MAX) + 64;
    let len_max = out.len().saturating_add(room);
    let mut printer = Printer { out, len_max };
    printer.value(kind, value, DEPTH_MAX)
}

struct Printer<'o> {
    out: &'o mut Vec<u8>,
    len_max: usize,
}

impl Printer<'_> {
    /// `data` begins with the value and may be longer.
    fn value(&mut self, kind: u8, data: &[u8], depth: u32) -> Result<(), BinlogError> {
        let mut reader = Reader::new(data);
        match kind {
            SMALL_OBJECT..=LARGE_ARRAY => self.container(kind, data, depth.checked_sub(1).ok_or(INVALID)?)?,
            LITERAL => self.out.extend_from_slice(match reader.u8(FIELD)? {
                0 => b"null",
                1 => b"true",
                2 => b"false",
                _ => return Err(INVALID.into()),
            }),
            INT16 => self.integer(reader.array(FIELD).map(i16::from_le_bytes)?),
            UINT16 => self.integer(reader.u16(FIELD)?),
            INT32 => self.integer(reader.array(FIELD).map(i32::from_le_bytes)?),
            UINT32 => self.integer(reader.u32(FIELD)?),
            INT64 => self.integer(reader.array(FIELD).map(i64::from_le_bytes)?),
            UINT64 => self.integer(reader.array(FIELD).map(u64::from_le_bytes)?),
            DOUBLE => self.double(reader.array(FIELD).map(f64::from_le_bytes)?),
            STRING => {
                let len = variable_len(&mut reader)?;
                self.string(reader.bytes(len, FIELD)?);
            }
            OPAQUE => {
                let field_type = reader.u8(FIELD)?;
                let len = variable_len(&mut reader)?;
                self.opaque(field_type, reader.bytes(len, FIELD)?)?;
            }
            _ => return Err(INVALID.into()),
        }
        (self.out.len() <= self.len_max)
            .then_some(())
            .ok_or(INVALID.into())
    }

    /// Counts and offsets have two bytes or, in large containers, four. Small scalars are where others have
    /// their offset.
    fn container(&mut self, kind: u8, data: &[u8], depth: u32) -> Result<(), BinlogError> {
        let (is_object, is_large) = (kind < 2, kind % 2 == 1);
        let number = |reader: &mut Reader<'_>| {
            let read = if is_large {
                reader.u32(FIELD)?
            } else {
                u32::from(reader.u16(FIELD)?)
            };
            Ok::<_, WireError>(read as usize)
        };
        let mut reader = Reader::new(data);
        let (count, _size) = (number(&mut reader)?, number(&mut reader)?);
        let offset_len = if is_large { 4 } else { 2 };
        let key_entries = if is_object {
            count.saturating_mul(offset_len + 2)
        } else {
            0
        };
        let mut keys = Reader::new(reader.bytes(key_entries, FIELD)?);
        let mut values = Reader::new(reader.bytes(count.saturating_mul(offset_len + 1), FIELD)?);
        let (open, close) = if is_object { (b'{', b'}') } else { (b'[', b']') };
        self.out.push(open);
        for index in 0..count {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            if is_object {
                let (offset, len) = (number(&mut keys)?, usize::from(keys.u16(FIELD)?));
                let mut key = Reader::new(data.get(offset..).ok_or(INVALID)?);
                self.string(key.bytes(len, FIELD)?);
                self.out.extend_from_slice(b": ");
            }
            let kind = values.u8(FIELD)?;
            let place = values.bytes(offset_len, FIELD)?;
            let is_inline =
                matches!(kind, LITERAL | INT16 | UINT16) || is_large && matches!(kind, INT32 | UINT32);
            let offset = number(&mut Reader::new(place))?;
            let value = if is_inline {
                Some(place)
            } else {
                data.get(offset..)
            };
            self.value(kind, value.ok_or(INVALID)?, depth)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn integer(&mut self, number: impl std::fmt::Display) {
        self.out.extend_from_slice(number.to_string().as_bytes());
    }

    /// A double looks like one.
    fn double(&mut self, number: f64) {
        let start = self.out.len();
        float::put_double(number, self.out);
        let mut shown = self.out.iter().skip(start);
        if !shown.any(|byte| matches!(byte, b'.' | b'e')) {
            self.out.extend_from_slice(b".0");
        }
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for &byte in text {
            let escaped = match byte {
                b'"' | b'\\' => byte,
                0x08 => b'b',
                0x09 => b't',
                0x0a => b'n',
                0x0c => b'f',
                0x0d => b'r',
                0x00..=0x1f => {
                    self.out.extend_from_slice(b"\\u00");
                    put_hex(self.out, byte);
                    continue;
                }
                _ => {
                    self.out.push(byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', escaped]);
        }
        self.out.push(b'"');
    }

    /// Values of SQL types that JSON does not have.
    fn opaque(&mut self, field_type: u8, data: &[u8]) -> Result<(), BinlogError> {
        match field_type {
            code::NEWDECIMAL => {
                let [precision, scale, packed @ ..] = data else {
                    return Err(INVALID.into());
                };
                decimal::put(packed, *precision, *scale, self.out)?;
            }
            code::DATE | code::DATETIME | code::TIMESTAMP | code::TIME => {
                let packed = i64::from_le_bytes(data.try_into().map_err(|_| INVALID)?);
                self.out.push(b'"');
                self.temporal(field_type, packed)?;
                self.out.push(b'"');
            }
            _ => {
                let mut shown = format!("base64:type{field_type}:").into_bytes();
                put_base64(data, &mut shown);
                self.string(&shown);
            }
        }
        Ok(())
    }

    /// Times have their microseconds in the lowest 24 bits.
    fn temporal(&mut self, field_type: u8, packed: i64) -> Result<(), BinlogError> {
        let bits = packed.unsigned_abs();
        let (whole, micros) = (bits >> 24, micros(bits as u32 & 0xff_ffff)?);
        match field_type {
            code::TIME => Time::from_packed(packed < 0, whole as u32, micros).put(6, self.out),
            code::DATE => DateTime::from_packed(whole, 0).date.put(self.out),
            _ => DateTime::from_packed(whole, micros).put(6, self.out),
        }
        Ok(())
    }
}

/// Seven bits of a length in each byte, from the lowest, as long as the eighth is set.
fn variable_len(reader: &mut Reader<'_>) -> Result<usize, WireError> {
    let mut len = 0_u64;
    for shift in [0, 7, 14, 21, 28] {
        let byte = reader.u8(FIELD)?;
        len |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return usize::try_from(len).map_err(|_| INVALID);
        }
    }
    Err(INVALID)
}

/// With line breaks, as the server writes it.
fn put_base64(data: &[u8], out: &mut Vec<u8>) {
    const LINE: usize = 76;
    let encoded = BASE64_STANDARD.encode(data);
    for (index, line) in encoded.as_bytes().chunks(LINE).enumerate() {
        if index > 0 {
            out.push(b'\n');
        }
        out.extend_from_slice(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(document: &[u8]) -> String {
        let mut out = Vec::new();
        put(document, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn documents_are_printed() {
        assert_eq!(shown(b""), "null");
        assert_eq!(shown(&[LITERAL, 1]), "true");
        assert_eq!(shown(&[DOUBLE, 0, 0, 0, 0, 0, 0, 0, 0]), "0.0");
        assert_eq!(shown(b"\x0c\x04a\"\n\x01"), r#""a\"\n\u0001""#);
        // {"a": [1, "b"]}
        let inner = [&[2, 0, 12, 0, INT16, 1, 0, STRING, 10, 0, 1, b'b'][..]].concat();
        let object = [&[0, 1, 0, 24, 0, 11, 0, 1, 0, 2, 12, 0, b'a'][..], &inner].concat();
        assert_eq!(shown(&object), r#"{"a": [1, "b"]}"#);
    }

    #[test]
    fn values_that_are_used_again_and_again_do_not_grow_for_ever() {
        // An array whose four elements are the array itself.
        let mut document = vec![2, 4, 0, 16, 0];
        for _ in 0..4 {
            document.extend([2, 0, 0]);
        }
        assert!(put(&document, &mut Vec::new()).is_err());
    }

    #[test]
    fn base64_is_padded_and_broken_into_lines() {
        let encoded = |data: &[u8]| {
            let mut out = Vec::new();
            put_base64(data, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(encoded(b"a"), "YQ==");
        assert_eq!(encoded(b"ab"), "YWI=");
        assert_eq!(encoded(b"abc"), "YWJj");
        assert_eq!(encoded(&[0; 60]).find('\n'), Some(76));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, kind in 0..16_u8) {
            let document = [&[kind][..], &bytes].concat();
            let mut out = Vec::new();
            let _ = put(&document, &mut out);
            prop_assert!(out.len() <= document.len() * EXPANSION_MAX + 200);
        }
    }
}
