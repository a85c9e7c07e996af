//! The statements that read a table in chunks: along an index, each from where the one before ended.

use mysql_wire::binlog::{BinlogError, ColumnKind, ColumnType, Value, Zone, text};
use mysql_wire::{Command, put_lenenc_bytes};

use super::copy::CopyError;
use super::link::Link;
use crate::mapping::{Mapping, TableShape, name};

// Types of parameters in COM_STMT_EXECUTE.
const LONGLONG: u8 = 8;
const VAR_STRING: u8 = 253;
const BLOB: u8 = 252;
const UNSIGNED: u8 = 0x80;

/// The chunks of one table.
pub(super) struct Pages {
    first: String,
    next: String,
    statement: Option<u32>,
    /// Columns of the index: their places among those that are read.
    key: Vec<(usize, ColumnType)>,
    /// Values of the last row, in the order of the index.
    after: Vec<Value<'static>>,
}

impl Pages {
    /// `locking`: with a lock on the rows while they are read.
    pub(super) fn new(mapping: &Mapping, shape: &TableShape, rows: u32, locking: bool) -> Self {
        let places = mapping.index.columns.iter().filter_map(|column| {
            let at = mapping.columns.iter().position(|read| read.name == *column)?;
            Some((at, mapping.columns[at].column_type.clone()))
        });
        let key: Vec<_> = places.collect();
        let columns: Vec<String> = mapping.columns.iter().map(|column| name(&column.name)).collect();
        let index: Vec<String> = mapping.index.columns.iter().map(|column| name(column)).collect();
        let head = format!(
            "SELECT {} FROM {}.{} FORCE INDEX ({})",
            columns.join(", "),
            name(&mapping.schema),
            name(&mapping.table),
            name(&mapping.index.name)
        );
        let lock = if locking { " FOR SHARE" } else { "" };
        let tail = format!("ORDER BY {} LIMIT {rows}{lock}", index.join(", "));
        let parameters: Vec<String> = mapping
            .index
            .columns
            .iter()
            .map(|column| parameter(shape, column))
            .collect();
        Self {
            first: format!("{head} {tail}"),
            next: format!("{head} WHERE {} {tail}", behind(&index, &parameters)),
            statement: None,
            key,
            after: Vec::new(),
        }
    }

    /// The command for the next chunk.
    pub(super) async fn command(&mut self, link: &mut Link) -> Result<Vec<u8>, CopyError> {
        if self.after.is_empty() {
            let id = link.prepare(&self.first).await?.statement_id;
            return Ok(execute(id, &[], &[])?);
        }
        let id = match self.statement {
            Some(id) => id,
            None => link.prepare(&self.next).await?.statement_id,
        };
        self.statement = Some(id);
        // As `behind` has them.
        let mut order = vec![0];
        (0..self.key.len()).for_each(|last| order.extend(0..=last));
        let types: Vec<&ColumnType> = order.iter().map(|&at| &self.key[at].1).collect();
        let values: Vec<&Value<'_>> = order.iter().map(|&at| &self.after[at]).collect();
        Ok(execute(id, &types, &values)?)
    }

    /// The last row of the chunk, by the places of the columns that are read. Empty where there was none.
    pub(super) fn go_on_after(&mut self, row: &[Value<'static>]) {
        self.after = self
            .key
            .iter()
            .filter_map(|(at, _)| row.get(*at).cloned())
            .collect();
    }
}

/// A parameter that is compared as the column is ordered: by its collation.
fn parameter(shape: &TableShape, column: &str) -> String {
    let column = shape.columns.iter().find(|found| &*found.name == column);
    match column.and_then(|column| column.charset.as_deref().zip(column.collation.as_deref())) {
        // Compared by their numbers.
        _ if column.is_some_and(|column| is_listed(&column.column_type)) => "?".to_owned(),
        Some((charset, collation)) => format!("CONVERT(? USING {charset}) COLLATE {collation}"),
        None => "?".to_owned(),
    }
}

fn is_listed(column_type: &str) -> bool {
    let is = |word: &str| {
        column_type
            .get(..word.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(word))
    };
    is("enum(") || is("set(")
}

/// What comes behind a row in the order of an index, in a form that servers read as a range of it:
/// `a >= ? AND (a > ? OR a = ? AND b > ?)`.
fn behind(columns: &[String], parameters: &[String]) -> String {
    let pairs: Vec<_> = columns.iter().zip(parameters).collect();
    let alternatives = (0..pairs.len()).map(|last| {
        let mut terms: Vec<String> = pairs[..last]
            .iter()
            .map(|(column, value)| format!("{column} = {value}"))
            .collect();
        let (column, value) = pairs[last];
        terms.push(format!("{column} > {value}"));
        terms.join(" AND ")
    });
    let alternatives: Vec<String> = alternatives.collect();
    let (column, value) = pairs[0];
    format!("{column} >= {value} AND ({})", alternatives.join(" OR "))
}

/// COM_STMT_EXECUTE.
fn execute(id: u32, types: &[&ColumnType], values: &[&Value<'_>]) -> Result<Vec<u8>, BinlogError> {
    let mut out = vec![Command::STMT_EXECUTE.0];
    out.extend_from_slice(&id.to_le_bytes());
    out.push(0);
    out.extend_from_slice(&1_u32.to_le_bytes());
    if values.is_empty() {
        return Ok(out);
    }
    // None of them is NULL.
    out.resize(out.len() + values.len().div_ceil(8), 0);
    out.push(1);
    let (mut codes, mut bytes) = (Vec::new(), Vec::new());
    for (column, value) in types.iter().zip(values) {
        codes.extend_from_slice(&put(column, value, &mut bytes)?);
    }
    out.extend_from_slice(&codes);
    out.extend_from_slice(&bytes);
    Ok(out)
}

/// Appends a value, and returns the type and the flag for it.
fn put(column: &ColumnType, value: &Value<'_>, out: &mut Vec<u8>) -> Result<[u8; 2], BinlogError> {
    let number = match *value {
        Value::Int(number) => {
            out.extend_from_slice(&number.to_le_bytes());
            return Ok([LONGLONG, 0]);
        }
        Value::UInt(number) | Value::Bit(number) | Value::Set(number) => Some(number),
        Value::Enum(index) => Some(u64::from(index)),
        Value::Year(year) => Some(u64::from(year)),
        _ => None,
    };
    if let Some(number) = number {
        out.extend_from_slice(&number.to_le_bytes());
        return Ok([LONGLONG, UNSIGNED]);
    }
    let mut printed = Vec::new();
    let is_binary = matches!(
        column.kind,
        ColumnKind::Binary | ColumnKind::VarBinary | ColumnKind::Blob
    );
    match (column.kind, value) {
        (ColumnKind::Uuid | ColumnKind::Inet4 | ColumnKind::Inet6, _) => {
            text(value, column, Zone::UTC, &mut printed)?;
        }
        (_, Value::Bytes(bytes)) => printed.extend_from_slice(bytes),
        _ => text(value, column, Zone::UTC, &mut printed)?,
    }
    put_lenenc_bytes(out, &printed);
    Ok([if is_binary { BLOB } else { VAR_STRING }, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_begins_behind_the_last_row() {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(behind(&owned(&["a"]), &owned(&["?"])), "a >= ? AND (a > ?)");
        assert_eq!(
            behind(&owned(&["a", "b", "c"]), &owned(&["1", "2", "3"])),
            "a >= 1 AND (a > 1 OR a = 1 AND b > 2 OR a = 1 AND b = 2 AND c > 3)"
        );
    }

    #[test]
    fn parameters_follow_their_types() {
        let int = ColumnType::new(ColumnKind::Int);
        let blob = ColumnType::new(ColumnKind::Binary);
        let packet = execute(
            7,
            &[&int, &blob],
            &[&Value::Int(-1), &Value::Bytes(b"ab"[..].into())],
        )
        .unwrap();
        let expected = b"\x17\x07\0\0\0\0\x01\0\0\0\0\x01\x08\0\xfc\0\xff\xff\xff\xff\xff\xff\xff\xff\x02ab";
        assert_eq!(packet, expected);
    }
}
