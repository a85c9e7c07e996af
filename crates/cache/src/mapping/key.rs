//! Keys: one form for all values that a unique index takes for the same.
//!
//! A key is the encoded values of its columns, one behind the other. Texts are in the form of
//! [`Comparison::fold`].

use std::borrow::Cow;

use mysql_wire::binlog::{BinlogError, ColumnKind, ColumnType, Value, Zone, from_text, text};

use super::collation::{Comparison, Texts, without_blanks};
use super::error::{KeyError, Reason};

/// Where the answer for a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// In memory, under this key, as far as the table is there.
    Memory,
    /// Nowhere: no row can have it.
    Nowhere,
    /// Only the server can compare it. The key holds its values nevertheless.
    Server,
}

/// How values of a column are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Integers of this range.
    Integer { min: i64, max: u64 },
    /// `trimmed`: the column itself has no blanks at the end of its values (CHAR).
    Text { comparison: Comparison, trimmed: bool },
    /// Of this many bytes exactly (BINARY).
    Fixed(usize),
    /// VARBINARY.
    Bytes,
    /// All other types: by the text that the server prints.
    Printed,
}

impl Rule {
    /// The rule of a column. `collation` is for those that have one.
    pub(super) fn of(column: &ColumnType, collation: Option<&str>) -> Result<Rule, Reason> {
        let integer = |bits: u32| match column.unsigned {
            true => Rule::Integer {
                min: 0,
                max: u64::MAX >> (64 - bits),
            },
            false => Rule::Integer {
                min: i64::MIN >> (64 - bits),
                max: u64::MAX >> (65 - bits),
            },
        };
        Ok(match column.kind {
            ColumnKind::TinyInt => integer(8),
            ColumnKind::SmallInt => integer(16),
            ColumnKind::MediumInt => integer(24),
            ColumnKind::Int => integer(32),
            ColumnKind::BigInt => integer(64),
            ColumnKind::Char | ColumnKind::VarChar | ColumnKind::Text => {
                let name = collation.unwrap_or("binary");
                let comparison = super::comparison(name).ok_or_else(|| Reason::Collation(name.to_owned()))?;
                Rule::Text {
                    comparison,
                    trimmed: column.kind == ColumnKind::Char,
                }
            }
            ColumnKind::Binary => Rule::Fixed(column.length as usize),
            ColumnKind::VarBinary | ColumnKind::Blob => Rule::Bytes,
            ColumnKind::Float => return Err(Reason::KeyType("FLOAT".to_owned())),
            ColumnKind::Double => return Err(Reason::KeyType("DOUBLE".to_owned())),
            ColumnKind::Json => return Err(Reason::KeyType("JSON".to_owned())),
            ColumnKind::Geometry => return Err(Reason::KeyType("GEOMETRY".to_owned())),
            ColumnKind::Vector => return Err(Reason::KeyType("VECTOR".to_owned())),
            ColumnKind::Decimal
            | ColumnKind::Bit
            | ColumnKind::Year
            | ColumnKind::Date
            | ColumnKind::Time
            | ColumnKind::DateTime
            | ColumnKind::Timestamp
            | ColumnKind::Enum
            | ColumnKind::Set
            | ColumnKind::Uuid
            | ColumnKind::Inet4
            | ColumnKind::Inet6 => Rule::Printed,
        })
    }

    /// All texts that are the same have the same bytes.
    pub(super) fn is_exact(&self) -> bool {
        match self {
            Rule::Text { comparison, .. } => comparison.texts == Texts::Exact,
            Rule::Integer { .. } | Rule::Fixed(_) | Rule::Bytes | Rule::Printed => true,
        }
    }

    /// Every value is named by one text.
    pub(super) fn has_one_text(&self, column: &ColumnType) -> bool {
        match self {
            Rule::Integer { .. } => column.zerofill == 0,
            Rule::Text { comparison, .. } => self.is_exact() && !comparison.pad,
            Rule::Fixed(_) | Rule::Bytes | Rule::Printed => true,
        }
    }

    /// Appends a value of a row. False where only the server knows which other texts are the same.
    pub(super) fn stored(&self, value: &Value<'_>, key: &mut Vec<u8>) -> bool {
        match (self, value) {
            (Rule::Text { comparison, .. }, Value::Bytes(text)) => put_text(*comparison, text, key),
            _ => {
                value.encode(key);
                true
            }
        }
    }

    /// Appends what a Redis key says. Only the text that the server itself prints names a row.
    pub(super) fn named(&self, named: &[u8], column: &ColumnType, zone: Zone, key: &mut Vec<u8>) -> Decision {
        match self {
            Rule::Integer { min, max } => match integer(named, column.zerofill) {
                Some(value) if in_range(&value, *min, *max) => {
                    value.encode(key);
                    Decision::Memory
                }
                _ => Decision::Nowhere,
            },
            Rule::Text { comparison, trimmed } => {
                if std::str::from_utf8(named).is_err() || ends_in_vain(*comparison, *trimmed, named) {
                    return Decision::Nowhere;
                }
                decided(put_text(*comparison, named, key))
            }
            Rule::Fixed(len) if named.len() != *len => Decision::Nowhere,
            Rule::Fixed(_) | Rule::Bytes => {
                Value::Bytes(named.into()).encode(key);
                Decision::Memory
            }
            Rule::Printed => match printed(named, column, zone) {
                Some(value) => {
                    value.encode(key);
                    Decision::Memory
                }
                None => Decision::Nowhere,
            },
        }
    }

    /// Appends what a statement compares the column with, where the column's own rule decides:
    /// `column = value`. `charset`: that of the column, if it has one.
    pub(super) fn compared(&self, value: &Value<'_>, charset: Option<&str>, key: &mut Vec<u8>) -> Decision {
        match (self, value) {
            (_, Value::Null) => Decision::Nowhere,
            (Rule::Integer { min, max }, Value::Int(_) | Value::UInt(_)) => {
                if !in_range(value, *min, *max) {
                    return Decision::Nowhere;
                }
                value.encode(key);
                Decision::Memory
            }
            (Rule::Text { comparison, trimmed }, Value::Bytes(text)) => {
                if !is_within(charset, text) || ends_in_vain(*comparison, *trimmed, text) {
                    return Decision::Server;
                }
                decided(put_text(*comparison, text, key))
            }
            (Rule::Fixed(len), Value::Bytes(bytes)) if bytes.len() == *len => {
                value.encode(key);
                Decision::Memory
            }
            (Rule::Bytes, Value::Bytes(_)) => {
                value.encode(key);
                Decision::Memory
            }
            // Conversions of types are the server's.
            _ => Decision::Server,
        }
    }
}

/// Whether a text is compared as it is: one that the column's character set may lack is an error for some
/// servers, and the column is converted for others.
fn is_within(charset: Option<&str>, text: &[u8]) -> bool {
    let is_utf8 = std::str::from_utf8(text).is_ok();
    match charset {
        Some("utf8mb4") => is_utf8,
        // Of up to three bytes.
        Some("utf8mb3" | "utf8") => is_utf8 && text.iter().all(|&byte| byte < 0xf0),
        _ => text.is_ascii(),
    }
}

fn decided(known: bool) -> Decision {
    if known { Decision::Memory } else { Decision::Server }
}

fn put_text(comparison: Comparison, text: &[u8], key: &mut Vec<u8>) -> bool {
    let text = comparison.counting(text);
    Value::Bytes(text.into()).encode(key);
    let begin = key.len() - text.len();
    comparison.fold(&mut key[begin..])
}

/// Blanks at the end count for the collation, and values of the column have none.
fn ends_in_vain(comparison: Comparison, trimmed: bool, text: &[u8]) -> bool {
    trimmed && !comparison.pad && without_blanks(text).len() < text.len()
}

fn in_range(value: &Value<'_>, min: i64, max: u64) -> bool {
    match value {
        Value::Int(number) => *number >= min && u64::try_from(*number).map_or(true, |number| number <= max),
        Value::UInt(number) => *number <= max,
        _ => false,
    }
}

/// An integer as servers print it: no sign but `-`, no zeros in front but those of ZEROFILL, which may be
/// left out.
fn integer(text: &[u8], zerofill: u8) -> Option<Value<'static>> {
    let (negative, digits) = match text.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, text),
    };
    let filled = digits.len() == usize::from(zerofill);
    let zero_in_front = digits.first() == Some(&b'0') && digits.len() > 1;
    if digits.is_empty() || zero_in_front && !filled || text == b"-0" {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    match negative {
        true => 0_i64.checked_sub_unsigned(value).map(Value::Int),
        false => Some(i64::try_from(value).map_or(Value::UInt(value), Value::Int)),
    }
}

/// The value that is printed like this, if there is one.
fn printed(named: &[u8], column: &ColumnType, zone: Zone) -> Option<Value<'static>> {
    let value = from_text(named, column, zone).ok()?.into_owned();
    let mut again = Vec::with_capacity(named.len());
    text(&value, column, zone, &mut again).ok()?;
    (again == named).then_some(value)
}

/// The values of a row in memory, in the order of the columns that are kept, or those of a key, in the order
/// of the key columns. Texts in keys are in the form in which they are compared.
pub(crate) fn stored_values(bytes: &[u8]) -> impl Iterator<Item = Result<Value<'_>, BinlogError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || (!rest.is_empty()).then(|| Ok(Value::decode(&mut rest)?)))
}

/// The parts of a composite key's text: separated by `:`, with a `\` before `:` and `\` inside.
pub(super) fn parts(text: &[u8], expected: usize) -> Result<impl Iterator<Item = Cow<'_, [u8]>>, KeyError> {
    let (mut found, mut bytes) = (1, text.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b':' => found += 1,
            b'\\' if !matches!(bytes.next(), Some(b':' | b'\\')) => return Err(KeyError::Escape),
            _ => {}
        }
    }
    if found != expected {
        return Err(KeyError::Parts { expected, found });
    }
    let mut rest = Some(text);
    Ok(std::iter::from_fn(move || {
        let text = rest?;
        let mut escaped = false;
        let end = text.iter().position(|&byte| {
            let ends = byte == b':' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let part = &text[..end.unwrap_or(text.len())];
        rest = end.map(|end| &text[end + 1..]);
        Some(unescaped(part))
    }))
}

fn unescaped(part: &[u8]) -> Cow<'_, [u8]> {
    if !part.contains(&b'\\') {
        return part.into();
    }
    let mut bytes = part.iter();
    let mut out = Vec::with_capacity(part.len());
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next()),
            _ => out.push(byte),
        }
    }
    out.into()
}

/// Appends one part of a composite key's text.
pub(super) fn put_part(part: &[u8], out: &mut Vec<u8>) {
    for &byte in part {
        if matches!(byte, b':' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
}
