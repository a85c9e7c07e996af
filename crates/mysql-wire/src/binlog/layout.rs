//! A table's columns as they are stored and as they are meant, and rows made of them.

use super::field;
use super::table_map::{TableMap, WireColumn};
use super::{BinlogError, ColumnType, Value};
use crate::WireError;
use crate::codec::{Reader, is_bit_set};

/// How to read the row events of a table. Made when the table's definition is known, and again for another
/// table map (compare [`TableMap::columns`]).
#[derive(Debug, Clone)]
pub struct Layout {
    columns: Vec<(WireColumn, ColumnType)>,
    is_mariadb: bool,
}

/// One row: bytes of its columns, which become values on demand.
#[derive(Debug, Clone)]
pub struct Image<'a> {
    fields: Vec<Field<'a>>,
}

#[derive(Debug, Clone, Copy)]
enum Field<'a> {
    Absent,
    Null,
    Stored(&'a [u8]),
}

impl Layout {
    /// # Errors
    /// [`BinlogError::Shape`]: the binary log has another table than the definition.
    pub fn new(map: &TableMap, columns: &[ColumnType]) -> Result<Layout, BinlogError> {
        if map.columns.len() != columns.len() {
            let (column, known) = (map.columns.len().min(columns.len()), columns.len());
            // MariaDB hides a column behind each unique index over values that are too long for a tree.
            let reason = format!(
                "the log has {} columns, the definition {known}",
                map.columns.len()
            );
            return Err(BinlogError::Shape { column, reason });
        }
        let pairs = map.columns.iter().zip(columns).enumerate();
        let columns = pairs.map(|(column, (&wire, column_type))| {
            field::check(wire, column_type).map_err(|reason| BinlogError::Shape { column, reason })?;
            Ok((wire, column_type.clone()))
        });
        let columns: Result<_, BinlogError> = columns.collect();
        Ok(Layout {
            columns: columns?,
            is_mariadb: map.is_mariadb,
        })
    }

    /// Finds the columns of the next row. `present` has a bit for each column of the table.
    pub(super) fn split<'a>(
        &self,
        reader: &mut Reader<'a>,
        columns: usize,
        present: &[u8],
    ) -> Result<Image<'a>, BinlogError> {
        const FIELD: &str = "row image";
        if columns != self.columns.len() {
            return Err(WireError::Invalid { field: FIELD }.into());
        }
        let stored = (0..columns).filter(|&column| is_bit_set(present, column)).count();
        let nulls = reader.bytes(stored.div_ceil(8), FIELD)?;
        let mut fields = Vec::with_capacity(columns);
        let mut at = 0;
        for (column, (wire, _)) in self.columns.iter().enumerate() {
            if !is_bit_set(present, column) {
                fields.push(Field::Absent);
                continue;
            }
            let is_null = is_bit_set(nulls, at);
            at += 1;
            fields.push(if is_null {
                Field::Null
            } else {
                Field::Stored(field::split(*wire, reader)?)
            });
        }
        Ok(Image { fields })
    }
}

impl<'a> Image<'a> {
    /// The value of a column, counted from 0. `layout` is the one that the image was made with.
    ///
    /// # Errors
    /// [`BinlogError::Absent`]: the event does not have the column; or the column cannot have this value.
    pub fn value(&self, layout: &Layout, column: usize) -> Result<Value<'a>, BinlogError> {
        let (Some(&field), Some((wire, column_type))) = (self.fields.get(column), layout.columns.get(column))
        else {
            return Err(BinlogError::Absent { column });
        };
        let hides_sign = layout.is_mariadb && !column_type.signs_zeros;
        match field {
            Field::Absent => Err(BinlogError::Absent { column }),
            Field::Null => Ok(Value::Null),
            Field::Stored(bytes) => match field::value(*wire, column_type, bytes)? {
                Value::Float(0.0) if hides_sign => Ok(Value::Float(0.0)),
                Value::Double(0.0) if hides_sign => Ok(Value::Double(0.0)),
                value => Ok(value),
            },
        }
    }

    /// Columns of the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// The table has no columns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}
