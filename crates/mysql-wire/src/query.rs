//! COM_QUERY: where the statement's text is, and the query attributes in front of it.
//!
//! With QUERY_ATTRIBUTES the text comes behind a count of attributes, their types, names and values; without,
//! behind the command byte. Payloads here begin with the command byte.
//!
//! Source: MySQL "COM_QUERY", "Binary Protocol Resultset", section on values.

use crate::codec::{Reader, is_bit_set};
use crate::{Capabilities, Command, WireError};

/// A COM_QUERY packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'a> {
    pub text: &'a [u8],
    pub attributes: Vec<Attribute<'a>>,
}

/// Something that a client says about its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    pub name: &'a [u8],
    /// A type of the binary protocol, and 0x8000 for unsigned.
    pub kind: u16,
    /// As the binary protocol encodes it, less the length of texts; `None` for NULL.
    pub value: Option<&'a [u8]>,
}

/// More attributes than any client sends; each needs three bytes at least.
const ATTRIBUTES_MAX: u64 = 0xffff;

impl<'a> Query<'a> {
    /// `payload`: the whole packet. `capabilities`: those of the client.
    pub fn decode(payload: &'a [u8], capabilities: Capabilities) -> Result<Query<'a>, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Command::QUERY.0, "COM_QUERY")?;
        let mut attributes = Vec::new();
        if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
            attributes = read_attributes(&mut reader)?;
        }
        Ok(Query {
            text: reader.remaining(),
            attributes,
        })
    }
}

/// The text of a COM_QUERY, unless attributes come with it.
#[inline]
pub fn plain_text(payload: &[u8], capabilities: Capabilities) -> Option<&[u8]> {
    let rest = payload.get(1..)?;
    match capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        // How many there are, and how many sets of them follow.
        true => rest.strip_prefix(&[0, 1]),
        false => Some(rest),
    }
}

fn read_attributes<'a>(reader: &mut Reader<'a>) -> Result<Vec<Attribute<'a>>, WireError> {
    let count = reader.lenenc("attribute count")?;
    if count > ATTRIBUTES_MAX {
        return Err(WireError::Invalid {
            field: "attribute count",
        });
    }
    if reader.lenenc("count of attribute sets")? != 1 {
        return Err(WireError::Invalid {
            field: "count of attribute sets",
        });
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let nulls = reader.bytes((count as usize).div_ceil(8), "NULL bitmap")?;
    reader.tag(1, "types of attributes")?;
    let mut attributes = Vec::new();
    for _ in 0..count {
        attributes.push(Attribute {
            kind: reader.u16("attribute's type")?,
            name: reader.lenenc_bytes("attribute's name")?,
            value: None,
        });
    }
    for (index, attribute) in attributes.iter_mut().enumerate() {
        if !is_bit_set(nulls, index) {
            attribute.value = Some(read_value(reader, attribute.kind as u8)?);
        }
    }
    Ok(attributes)
}

fn read_value<'a>(reader: &mut Reader<'a>, kind: u8) -> Result<&'a [u8], WireError> {
    const VALUE: &str = "attribute's value";
    let len = match kind {
        // NULL
        6 => 0,
        // TINY, BOOL
        1 | 244 => 1,
        // SHORT, YEAR
        2 | 13 => 2,
        // LONG, INT24, FLOAT
        3 | 9 | 4 => 4,
        // LONGLONG, DOUBLE
        8 | 5 => 8,
        // TIMESTAMP, DATE, TIME, DATETIME: a length of one byte
        7 | 10 | 11 | 12 => usize::from(reader.u8(VALUE)?),
        // DECIMAL, VARCHAR, BIT, JSON, NEWDECIMAL, ENUM, SET, the BLOBs, VAR_STRING, STRING, GEOMETRY
        0 | 15 | 16 | 245..=255 => return reader.lenenc_bytes(VALUE),
        _ => {
            return Err(WireError::Invalid {
                field: "attribute's type",
            });
        }
    };
    reader.bytes(len, VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRIBUTES: Capabilities = Capabilities::QUERY_ATTRIBUTES;

    #[test]
    fn without_attributes_the_text_follows_the_command() {
        let query = Query::decode(b"\x03SELECT 1", Capabilities::PROTOCOL_41).unwrap();
        assert_eq!(
            query,
            Query {
                text: b"SELECT 1",
                attributes: Vec::new()
            }
        );
        let query = Query::decode(b"\x03\x00\x01SELECT 1", ATTRIBUTES).unwrap();
        assert_eq!((query.text, query.attributes.len()), (&b"SELECT 1"[..], 0));
    }

    #[test]
    fn attributes_of_all_types_come_before_the_text() {
        type Sent = (u16, &'static [u8], Option<&'static [u8]>);
        let kinds: [Sent; 8] = [
            (0x8001, b"\x07", Some(b"\x07")),
            (2, b"\x01\x02", Some(b"\x01\x02")),
            (3, b"abcd", Some(b"abcd")),
            (8, b"abcdefgh", Some(b"abcdefgh")),
            (12, b"\x04\xe8\x07\x01\x02", Some(b"\xe8\x07\x01\x02")),
            (11, b"\x00", Some(b"")),
            (254, b"\x05value", Some(b"value")),
            (253, b"", None),
        ];
        let mut payload = vec![3, kinds.len() as u8, 1, 0x80, 1];
        for (index, (kind, ..)) in kinds.iter().enumerate() {
            payload.extend(kind.to_le_bytes());
            payload.extend([2, b'n', b'0' + index as u8]);
        }
        kinds.iter().for_each(|(_, sent, _)| payload.extend(*sent));
        let head = payload.len();
        payload.extend(b"SELECT 1");

        let query = Query::decode(&payload, ATTRIBUTES).unwrap();
        assert_eq!(query.text, b"SELECT 1");
        for (attribute, (kind, _, value)) in query.attributes.iter().zip(kinds) {
            assert_eq!((attribute.kind, attribute.value), (kind, value));
        }
        assert_eq!(query.attributes[6].name, b"n6");
        for cut in 1..head {
            assert!(Query::decode(&payload[..cut], ATTRIBUTES).is_err(), "{cut}");
        }
    }

    #[test]
    fn what_servers_refuse_is_refused() {
        for payload in [
            &b"\x03\x00\x02SELECT 1"[..],
            b"\x03\x01\x01\x00\x00\xfe\x00\x00\x01aSELECT 1",
            b"\x03\x01\x01\x00\x01\x14\x00\x00\x01aSELECT 1",
            b"\x03\xfd\xff\xff\xff\x01",
            b"\x16SELECT 1",
        ] {
            assert!(Query::decode(payload, ATTRIBUTES).is_err(), "{payload:?}");
        }
    }
}
