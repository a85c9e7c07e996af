//! Statements that ask the primary for rows of a mapping, and their answers as rows of the store.

use std::fmt::Write as _;

use mysql_wire::binlog::{BinlogError, ColumnKind, ColumnType, Value, Zone, from_text, text};
use upstream::conversation::TextRow;

use crate::mapping::{Column, Mapping, name, quoted, stored_values};

/// Keys that one statement asks for.
pub(super) const KEYS_MAX: usize = 200;

/// A row as the store has it, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) row: Vec<u8>,
}

/// `SELECT … WHERE …` for the rows of these keys.
pub(super) fn select<'k>(
    mapping: &Mapping,
    keys: impl IntoIterator<Item = &'k [u8]>,
) -> Result<String, BinlogError> {
    let columns: Vec<String> = mapping.columns.iter().map(expression).collect();
    let table = format!("{}.{}", name(&mapping.schema), name(&mapping.table));
    let mut sql = format!("SELECT {} FROM {table} WHERE ", columns.join(", "));
    for (at, key) in keys.into_iter().enumerate() {
        sql.push_str(if at == 0 { "(" } else { " OR (" });
        for (at, (column, value)) in mapping.key_columns().zip(stored_values(key)).enumerate() {
            sql.push_str(if at == 0 { "" } else { " AND " });
            put_condition(column, &value?, &mut sql)?;
        }
        sql.push(')');
    }
    Ok(sql)
}

/// The text of a FLOAT has fewer digits than it, that of a DOUBLE has all. A product keeps the sign of a
/// zero.
fn expression(column: &Column) -> String {
    let name = name(&column.name);
    match column.column_type.kind {
        ColumnKind::Float => format!("{name} * 1e0"),
        _ => name,
    }
}

/// `column = value`, with the literal in the column's own character set, so that its index can be used.
fn put_condition(column: &Column, value: &Value<'_>, sql: &mut String) -> Result<(), BinlogError> {
    let name = name(&column.name);
    let column_type = &column.column_type;
    // Writing into a String does not fail.
    let _ = match (value, &column.charset) {
        (Value::Int(number), _) => write!(sql, "{name} = {number}"),
        (Value::UInt(number), _) => write!(sql, "{name} = {number}"),
        (Value::Year(year), _) => write!(sql, "{name} = {year}"),
        (Value::Bit(bits), _) => write!(sql, "{name} = {bits}"),
        (Value::Bytes(bytes), None) => write!(sql, "{name} = {}", hex("", bytes)),
        (Value::Bytes(bytes), Some(charset)) if charset.eq_ignore_ascii_case("utf8mb4") => {
            write!(sql, "{name} = {}", hex("_utf8mb4 ", bytes))
        }
        (Value::Bytes(bytes), Some(charset)) => {
            let literal = hex("_utf8mb4 ", bytes);
            let converted = format!("CONVERT({literal} USING {charset})");
            // A text that the character set has not is in no row. It must not become another one.
            write!(
                sql,
                "{name} = {converted} AND CONVERT({converted} USING utf8mb4) COLLATE utf8mb4_bin = {literal}"
            )
        }
        _ => {
            let mut printed = Vec::new();
            text(value, column_type, Zone::UTC, &mut printed)?;
            let printed = String::from_utf8_lossy(&printed).into_owned();
            match column_type.kind {
                ColumnKind::Decimal => write!(sql, "{name} = {printed}"),
                _ => write!(sql, "{name} = {}", quoted(&printed)),
            }
        }
    };
    Ok(())
}

fn hex(introducer: &str, bytes: &[u8]) -> String {
    let mut literal = format!("{introducer}x'");
    for byte in bytes {
        let _ = write!(literal, "{byte:02x}");
    }
    literal.push('\'');
    literal
}

/// An answer's row.
pub(super) fn row(mapping: &Mapping, values: &TextRow) -> Result<Row, BinlogError> {
    let value = |at: usize| -> Result<Value<'_>, BinlogError> {
        let column = mapping
            .columns
            .get(at)
            .ok_or(BinlogError::Absent { column: at })?;
        let found = values.get(at).ok_or(BinlogError::Absent { column: at })?;
        match found {
            None => Ok(Value::Null),
            Some(text) if column.column_type.kind == ColumnKind::Float => float(text),
            Some(text) if !has_its_decimals(text, &column.column_type) => Err(BinlogError::Value {
                kind: "time of these decimals",
            }),
            Some(text) => from_text(text, &column.column_type, Zone::UTC),
        }
    };
    let (mut key, mut row) = (Vec::new(), Vec::new());
    mapping.key_of(value, &mut key)?;
    mapping.row_of(value, &mut row)?;
    Ok(Row { key, row })
}

/// A time that has others is of a column that was changed since, which memory has not heard of yet: part of
/// it would not be shown. What else does not belong to a type is no value of it.
fn has_its_decimals(text: &[u8], column_type: &ColumnType) -> bool {
    let is_time = matches!(
        column_type.kind,
        ColumnKind::Time | ColumnKind::DateTime | ColumnKind::Timestamp
    );
    let fraction = || text.iter().rev().position(|&byte| byte == b'.').unwrap_or(0);
    !is_time || fraction() == usize::from(column_type.decimals)
}

fn float(text: &[u8]) -> Result<Value<'static>, BinlogError> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    number
        .map(|number| Value::Float(number as f32))
        .ok_or(BinlogError::Value { kind: "FLOAT" })
}

#[cfg(test)]
mod tests {
    use config::{CacheMapping, MappingKind};
    use expect_test::{Expect, expect};

    use super::*;
    use crate::mapping::{ColumnShape, TableShape, UniqueIndex};
    use crate::store::MappingId;

    fn mapping(key: &[(&str, &str, Option<&str>)]) -> Mapping {
        let value = ("v", "float", None);
        let columns = key.iter().chain([&value]).enumerate();
        let columns = columns.map(|(place, &(name, column_type, collation))| ColumnShape {
            name: name.into(),
            ordinal: place + 1,
            nullable: false,
            column_type: column_type.into(),
            charset: collation.map(|name| name.split('_').next().unwrap_or_default().into()),
            collation: collation.map(Box::from),
            unlogged: false,
            invisible: false,
            signs_zeros: false,
        });
        let names: Vec<&str> = key.iter().map(|(name, ..)| *name).collect();
        let shape = TableShape {
            schema: "s".into(),
            table: "t`t".into(),
            kind: "BASE TABLE".into(),
            engine: "InnoDB".into(),
            columns: columns.collect(),
            unique: vec![UniqueIndex {
                name: "PRIMARY".into(),
                columns: names.iter().map(|&name| name.into()).collect(),
            }],
            cascade: None,
        };
        let config = CacheMapping::new("m", MappingKind::Hash, "s.t", &names, &["v"]);
        Mapping::new(MappingId(1), &config, Some(&shape), Zone::UTC).unwrap()
    }

    fn asked(mapping: &Mapping, keys: &[&str], expected: &Expect) {
        let keys: Vec<Vec<u8>> = keys
            .iter()
            .map(|text| {
                let mut key = Vec::new();
                mapping.parse_key(text.as_bytes(), &mut key).unwrap();
                key
            })
            .collect();
        let sql = select(mapping, keys.iter().map(Vec::as_slice)).unwrap();
        expected.assert_eq(&sql);
    }

    #[test]
    fn rows_are_asked_for_by_their_keys() {
        let id = mapping(&[("id", "int", None)]);
        asked(
            &id,
            &["7", "-1"],
            &expect!["SELECT `id`, `v` * 1e0 FROM `s`.`t``t` WHERE (`id` = 7) OR (`id` = -1)"],
        );
        let composite = mapping(&[
            ("a", "varchar(9)", Some("utf8mb4_general_ci")),
            ("b", "date", None),
        ]);
        asked(
            &composite,
            &["é:2026-01-31"],
            &expect![
                "SELECT `a`, `b`, `v` * 1e0 FROM `s`.`t``t` WHERE (`a` = _utf8mb4 x'c3a9' AND `b` = '2026-01-31')"
            ],
        );
        let latin1 = mapping(&[("a", "varchar(9)", Some("latin1_swedish_ci"))]);
        asked(
            &latin1,
            &["é"],
            &expect![
                "SELECT `a`, `v` * 1e0 FROM `s`.`t``t` WHERE (`a` = CONVERT(_utf8mb4 x'c3a9' USING latin1) AND CONVERT(CONVERT(_utf8mb4 x'c3a9' USING latin1) USING utf8mb4) COLLATE utf8mb4_bin = _utf8mb4 x'c3a9')"
            ],
        );
        let binary = mapping(&[("a", "varbinary(9)", None), ("b", "decimal(5,2)", None)]);
        asked(
            &binary,
            &[":1.50"],
            &expect!["SELECT `a`, `b`, `v` * 1e0 FROM `s`.`t``t` WHERE (`a` = x'' AND `b` = 1.50)"],
        );
    }

    #[test]
    fn times_of_other_decimals_are_of_another_table() {
        let answered = |column_type: &str, time: &str| {
            let mapping = mapping(&[("t", column_type, None)]);
            let values = [time, "1"].map(|text| Some(text.as_bytes().to_vec()));
            row(&mapping, &values.to_vec()).is_ok()
        };
        let (day, none) = ("2026-11-23 19:50:00", "0000-00-00 00:00:00");
        for (kind, times) in [
            ("datetime", [day, none]),
            ("timestamp", [day, none]),
            ("time", ["-838:59:59", "00:00:00"]),
        ] {
            for time in times {
                let long = format!("{time}.000");
                let three = format!("{kind}(3)");
                assert!(answered(kind, time) && answered(&three, &long), "{kind} {time}");
                assert!(!answered(kind, &long) && !answered(&three, time), "{kind} {time}");
            }
        }
    }

    #[test]
    fn answers_become_rows_of_the_store() {
        let id = mapping(&[("id", "int", None)]);
        let answer = row(
            &id,
            &vec![Some(b"7".to_vec()), Some(b"0.10000000149011612".to_vec())],
        )
        .unwrap();
        let mut key = Vec::new();
        id.parse_key(b"7", &mut key).unwrap();
        assert_eq!(answer.key, key);
        assert_eq!(Value::decode(&mut &answer.row[..]).unwrap(), Value::Float(0.1));
        assert!(row(&id, &vec![Some(b"7".to_vec())]).is_err());
    }
}
