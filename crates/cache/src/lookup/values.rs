//! The values of a lookup's conditions → the key of a row.

use dataplane::extension::Parameters;
use mysql_wire::binlog::Value;
use smallvec::SmallVec;
use sql_class::{PointLookup, Value as Literal};

use crate::mapping::{Decision, Mapping};

// Types of parameters. <https://dev.mysql.com/doc/dev/mysql-server/latest/field__types_8h.html>
const TINY: u8 = 1;
const SHORT: u8 = 2;
const LONG: u8 = 3;
const LONGLONG: u8 = 8;
const VARCHAR: u8 = 15;
const VAR_STRING: u8 = 253;
const STRING: u8 = 254;

/// The flag beside a parameter's type.
const UNSIGNED: u8 = 0x80;

/// Writes the key. `order`: which condition is about which column of the key; `is_ascii_only`: other texts
/// are in a character set that is not read here. False where only the server can say which row, if any, is
/// meant.
pub(super) fn key(
    mapping: &Mapping,
    order: &[usize],
    lookup: &PointLookup<'_>,
    parameters: Option<&Parameters<'_>>,
    is_ascii_only: bool,
    key: &mut Vec<u8>,
) -> bool {
    let mut sent = parameters.map(Sent::new);
    let values = lookup
        .conditions()
        .iter()
        .map(|condition| match (condition.value, &mut sent) {
            (Literal::Parameter, Some(sent)) => sent.next(),
            (literal, _) => literal_value(literal),
        });
    // Whoever sends more than the statement has means something that is not understood here.
    write(mapping, order, values, is_ascii_only, key) && sent.is_none_or(|mut sent| sent.is_over())
}

/// The same for a statement that has only parameters.
pub(super) fn key_of_parameters(
    mapping: &Mapping,
    order: &[usize],
    parameters: &Parameters<'_>,
    is_ascii_only: bool,
    key: &mut Vec<u8>,
) -> bool {
    let mut sent = Sent::new(parameters);
    let values = order.iter().map(|_| sent.next());
    write(mapping, order, values, is_ascii_only, key) && sent.is_over()
}

/// Writes the key with these values in the order of the conditions.
fn write<'v>(
    mapping: &Mapping,
    order: &[usize],
    values: impl Iterator<Item = Option<Value<'v>>>,
    is_ascii_only: bool,
    key: &mut Vec<u8>,
) -> bool {
    let mut given: SmallVec<[Value<'v>; 2]> = SmallVec::new();
    for value in values {
        match value {
            Some(Value::Bytes(text)) if is_ascii_only && !text.is_ascii() => return false,
            Some(value) => given.push(value),
            None => return false,
        }
    }
    let is_in_order = order.iter().enumerate().all(|(at, place)| at == *place);
    if !is_in_order {
        given = order.iter().map(|&place| given[place].clone()).collect();
    }
    mapping.key_from_values(&given, key) == Decision::Memory
}

fn literal_value(literal: Literal<'_>) -> Option<Value<'_>> {
    match literal {
        Literal::Integer {
            negative: false,
            magnitude,
        } => Some(unsigned(magnitude)),
        Literal::Integer {
            negative: true,
            magnitude,
        } => 0_i64.checked_sub_unsigned(magnitude).map(Value::Int),
        // MySQL warns of a text that is none.
        Literal::Text(text) => std::str::from_utf8(text)
            .is_ok()
            .then(|| Value::Bytes(text.into())),
        Literal::Parameter => None,
    }
}

fn unsigned(number: u64) -> Value<'static> {
    i64::try_from(number).map_or(Value::UInt(number), Value::Int)
}

/// The parameters of an execution, one after the other.
struct Sent<'a> {
    types: std::slice::Chunks<'a, u8>,
    nulls: &'a [u8],
    values: &'a [u8],
    at: usize,
}

impl<'a> Sent<'a> {
    fn new(parameters: &Parameters<'a>) -> Self {
        Self {
            types: parameters.types.chunks(2),
            nulls: parameters.nulls,
            values: parameters.values,
            at: 0,
        }
    }

    /// `None` for NULL, and for what is not exactly a number or a text.
    fn next(&mut self) -> Option<Value<'a>> {
        let &[kind, flags] = self.types.next()? else {
            return None;
        };
        let is_null = self.nulls.get(self.at / 8)? >> (self.at % 8) & 1 == 1;
        self.at += 1;
        if is_null {
            return None;
        }
        let is_unsigned = flags & UNSIGNED != 0;
        Some(match kind {
            TINY if is_unsigned => Value::Int(self.array::<1>()?[0].into()),
            TINY => Value::Int(i8::from_le_bytes(self.array()?).into()),
            SHORT if is_unsigned => Value::Int(u16::from_le_bytes(self.array()?).into()),
            SHORT => Value::Int(i16::from_le_bytes(self.array()?).into()),
            LONG if is_unsigned => Value::Int(u32::from_le_bytes(self.array()?).into()),
            LONG => Value::Int(i32::from_le_bytes(self.array()?).into()),
            LONGLONG if is_unsigned => unsigned(u64::from_le_bytes(self.array()?)),
            LONGLONG => Value::Int(i64::from_le_bytes(self.array()?)),
            VARCHAR | VAR_STRING | STRING => Value::Bytes(self.text()?.into()),
            _ => return None,
        })
    }

    fn is_over(&mut self) -> bool {
        self.values.is_empty() && self.types.next().is_none()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.values.split_first_chunk()?;
        self.values = rest;
        Some(*array)
    }

    /// Texts of up to 65535 bytes: no key is longer.
    fn text(&mut self) -> Option<&'a [u8]> {
        let len = match self.array::<1>()?[0] {
            len @ 0..=250 => usize::from(len),
            252 => usize::from(u16::from_le_bytes(self.array()?)),
            _ => return None,
        };
        let (text, rest) = self.values.split_at_checked(len)?;
        self.values = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(types: &[u8], nulls: &[u8], values: &[u8]) -> (Vec<Option<Value<'static>>>, bool) {
        let mut sent = Sent::new(&Parameters { types, nulls, values });
        let found = (0..types.len() / 2)
            .map(|_| sent.next().map(Value::into_owned))
            .collect();
        (found, sent.is_over())
    }

    #[test]
    fn parameters_are_read_by_their_types() {
        let types = [
            TINY, 0, TINY, UNSIGNED, SHORT, 0, LONG, UNSIGNED, LONGLONG, 0, LONGLONG, UNSIGNED, VAR_STRING, 0,
        ];
        let values = [
            &[0xff, 0xff][..],
            &(-2_i16).to_le_bytes(),
            &u32::MAX.to_le_bytes(),
            &i64::MIN.to_le_bytes(),
            &u64::MAX.to_le_bytes(),
            b"\x02ab",
        ]
        .concat();
        let expected = [
            Value::Int(-1),
            Value::Int(255),
            Value::Int(-2),
            Value::Int(u32::MAX.into()),
            Value::Int(i64::MIN),
            Value::UInt(u64::MAX),
            Value::Bytes(b"ab".as_slice().into()),
        ];
        assert_eq!(all(&types, &[0], &values), (expected.map(Some).to_vec(), true));
    }

    #[test]
    fn what_is_not_a_number_or_a_text_is_the_servers() {
        assert_eq!(all(&[LONGLONG, 0], &[1], b"").0, [None], "NULL");
        assert_eq!(all(&[5, 0], &[0], &1.0_f64.to_le_bytes()).0, [None], "DOUBLE");
        assert_eq!(all(&[252, 0], &[0], b"\x01a").0, [None], "BLOB");
        assert_eq!(all(&[LONG, 0], &[0], b"\x01").0, [None], "cut off");
        assert!(!all(&[TINY, 0], &[0], b"\x01\x02").1, "more than there should be");
        assert_eq!(all(&[STRING, 0], &[0], b"\xfb").0, [None]);
    }
}
