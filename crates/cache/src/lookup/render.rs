//! Rows in memory → rows of an answer, as the text and the binary protocol have them.

use mysql_wire::binlog::{BinlogError, ColumnKind, ColumnType, Value, Zone, binary, text};

use super::answer::Definition;
use crate::mapping::{Mapping, stored_values};

/// Where a column of the answer comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// A place in the row.
    Kept(usize),
    /// A place in the key, of an integer.
    Key(usize),
}

/// How rows of one lookup are shown.
#[derive(Debug)]
pub(super) struct Rendering {
    columns: Vec<(Source, ColumnType)>,
    zone: Zone,
    is_binary: bool,
    /// Other texts would be shown in another character set than they are here.
    pub(super) is_ascii_only: bool,
}

/// In the text protocol.
const NULL: u8 = 0xfb;

/// The flag of a definition.
const UNSIGNED: u16 = 0x20;

impl Rendering {
    /// `None` where the mapping does not have a column, or what it has is not what the server says. `zone`:
    /// in which TIMESTAMP values are shown, where that is known. `is_ascii_only`: there are no rows with
    /// other texts.
    pub(super) fn new(
        mapping: &Mapping,
        definitions: &[Definition<'_>],
        zone: Option<Zone>,
        is_binary: bool,
        is_ascii_only: bool,
    ) -> Option<Self> {
        let columns: Option<Vec<_>> = definitions
            .iter()
            .map(|definition| {
                let is_mapped = definition.schema == mapping.schema.as_bytes()
                    && definition.table == mapping.table.as_bytes()
                    && (!is_ascii_only || definition.is_ascii());
                let (source, column_type) = find(mapping, definition.column).filter(|_| is_mapped)?;
                let is_same = kind_on_the_wire(column_type.kind) == Some(definition.kind)
                    && (!is_integer(column_type.kind)
                        || column_type.unsigned == (definition.flags & UNSIGNED != 0));
                let is_shown = column_type.kind != ColumnKind::Timestamp || zone.is_some();
                (is_same && is_shown).then(|| (source, column_type.clone()))
            })
            .collect();
        Some(Self {
            columns: columns?,
            zone: zone.unwrap_or(Zone::UTC),
            is_binary,
            is_ascii_only,
        })
    }

    /// Appends the payload of the packet for a row.
    ///
    /// # Errors
    /// The row is not one of the mapping, or has a text that is not ASCII where all must be.
    pub(super) fn put(&self, key: &[u8], row: &[u8], out: &mut Vec<u8>) -> Result<(), BinlogError> {
        if let [(Source::Kept(0), column)] = self.columns.as_slice() {
            let value = Value::decode(&mut { row })?;
            return self.put_all(std::iter::once((value, column)), out);
        }
        let kept = stored_values(row).collect::<Result<Vec<_>, _>>()?;
        let keys = stored_values(key).collect::<Result<Vec<_>, _>>()?;
        let missing = || BinlogError::Value { kind: "row" };
        let mut shown = Vec::with_capacity(self.columns.len());
        for (source, column) in &self.columns {
            let value = match source {
                Source::Kept(place) => kept.get(*place),
                Source::Key(place) => keys.get(*place),
            };
            shown.push((value.ok_or_else(missing)?.clone(), column));
        }
        self.put_all(shown.into_iter(), out)
    }

    fn put_all<'v>(
        &self,
        values: impl ExactSizeIterator<Item = (Value<'v>, &'v ColumnType)>,
        out: &mut Vec<u8>,
    ) -> Result<(), BinlogError> {
        if !self.is_binary {
            for (value, column) in values {
                self.put_text(&value, column, out)?;
            }
            return Ok(());
        }
        out.push(0);
        let nulls = out.len();
        // The first two bits mean nothing.
        out.resize(nulls + (values.len() + 2).div_ceil(8), 0);
        for (place, (value, column)) in values.enumerate() {
            if value.is_null() {
                out[nulls + (place + 2) / 8] |= 1 << ((place + 2) % 8);
            } else {
                let at = out.len();
                binary(&value, column, self.zone, out)?;
                if is_text(column.kind) {
                    let prefix = match out.get(at) {
                        Some(252) => 3,
                        Some(253) => 4,
                        Some(254) => 9,
                        _ => 1,
                    };
                    self.check(&out[(at + prefix).min(out.len())..])?;
                }
            }
        }
        Ok(())
    }

    fn check(&self, shown: &[u8]) -> Result<(), BinlogError> {
        if self.is_ascii_only && !shown.is_ascii() {
            return Err(BinlogError::Value { kind: "ASCII text" });
        }
        Ok(())
    }

    fn put_text(&self, value: &Value<'_>, column: &ColumnType, out: &mut Vec<u8>) -> Result<(), BinlogError> {
        if value.is_null() {
            out.push(NULL);
            return Ok(());
        }
        // The length goes in front once it is known. Most texts are short.
        let at = out.len();
        out.push(0);
        text(value, column, self.zone, out)?;
        self.check(&out[at + 1..])?;
        let len = out.len() - at - 1;
        match len {
            0..=250 => out[at] = len as u8,
            251..=0xffff => {
                out[at] = 252;
                out.splice(at + 1..at + 1, (len as u16).to_le_bytes());
            }
            _ => {
                out[at] = 253;
                let bytes = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
                out.splice(at + 1..at + 1, bytes[..3].iter().copied());
            }
        }
        Ok(())
    }
}

fn find<'m>(mapping: &'m Mapping, name: &[u8]) -> Option<(Source, &'m ColumnType)> {
    if let Some(place) = mapping.value_place(name) {
        let column = mapping.values().nth(place)?;
        return Some((Source::Kept(place), &column.column_type));
    }
    let mut keys = mapping.key_columns().enumerate();
    let (place, column) = keys.find(|(_, column)| column.name.as_bytes().eq_ignore_ascii_case(name))?;
    // Texts in keys are in the form in which they are compared.
    is_integer(column.column_type.kind).then_some((Source::Key(place), &column.column_type))
}

fn is_integer(kind: ColumnKind) -> bool {
    matches!(
        kind,
        ColumnKind::TinyInt
            | ColumnKind::SmallInt
            | ColumnKind::MediumInt
            | ColumnKind::Int
            | ColumnKind::BigInt
    )
}

/// Whether the binary protocol shows it as a text, with its length in front.
fn is_text(kind: ColumnKind) -> bool {
    !is_integer(kind)
        && !matches!(
            kind,
            ColumnKind::Float
                | ColumnKind::Double
                | ColumnKind::Year
                | ColumnKind::Date
                | ColumnKind::Time
                | ColumnKind::DateTime
                | ColumnKind::Timestamp
        )
}

/// The type in a column's definition.
/// <https://dev.mysql.com/doc/dev/mysql-server/latest/field__types_8h.html>
fn kind_on_the_wire(kind: ColumnKind) -> Option<u8> {
    Some(match kind {
        ColumnKind::TinyInt => 1,
        ColumnKind::SmallInt => 2,
        ColumnKind::Int => 3,
        ColumnKind::Float => 4,
        ColumnKind::Double => 5,
        ColumnKind::Timestamp => 7,
        ColumnKind::BigInt => 8,
        ColumnKind::MediumInt => 9,
        ColumnKind::Date => 10,
        ColumnKind::Time => 11,
        ColumnKind::DateTime => 12,
        ColumnKind::Year => 13,
        ColumnKind::Bit => 16,
        ColumnKind::Json => 245,
        ColumnKind::Decimal => 246,
        ColumnKind::Text | ColumnKind::Blob => 252,
        ColumnKind::VarChar | ColumnKind::VarBinary => 253,
        ColumnKind::Char
        | ColumnKind::Binary
        | ColumnKind::Enum
        | ColumnKind::Set
        | ColumnKind::Uuid
        | ColumnKind::Inet4
        | ColumnKind::Inet6 => 254,
        ColumnKind::Geometry | ColumnKind::Vector => return None,
    })
}
