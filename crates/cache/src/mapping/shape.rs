//! What a table is like, from `information_schema`. It asks nothing itself: it says what to ask, and reads
//! the answers.

use std::str::from_utf8;

use upstream::conversation::TextRow;

/// The session in which the answers mean what is read here, whatever the server's defaults are. Each SELECT
/// shows what is committed when it begins: not what was when a transaction began that never ends
/// (`autocommit`, `completion_type`), or when somebody asked the same (the query cache of MariaDB).
pub const SESSION: &str = "SET NAMES utf8mb4, autocommit = 1, completion_type = 0, sql_mode = '', time_zone = '+00:00', \
     sql_quote_show_create = 1 /*!80030 , SESSION show_gipk_in_create_table_and_information_schema = ON */ \
     /*M! , query_cache_type = 0 */";

/// Of MySQL 9.6 and later, which does what foreign keys demand in SQL, and so in the binary log, unless this
/// is on. Others do not know it.
pub(crate) const NATIVE_FOREIGN_KEYS: &str = "innodb_native_foreign_keys";

/// What foreign keys change is in the binary log where [`NATIVE_FOREIGN_KEYS`] has this value.
pub(crate) fn logs_cascades(native_foreign_keys: &str) -> bool {
    native_foreign_keys == "OFF"
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// As the server writes them, in the binary log, too.
    pub schema: Box<str>,
    pub table: Box<str>,
    /// `BASE TABLE`, or something else.
    pub kind: Box<str>,
    pub engine: Box<str>,
    /// In the order of the table, which is that of the binary log.
    pub columns: Vec<ColumnShape>,
    /// Unique indexes over whole columns.
    pub unique: Vec<UniqueIndex>,
    /// A foreign key of this table that changes its rows with those of another one.
    pub cascade: Option<Cascade>,
}

/// See [`TableShape::cascade`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cascade {
    pub constraint: Box<str>,
    /// The server that was asked has such changes in its binary log. After a restart it may not, nor may
    /// another server.
    pub is_logged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnShape {
    pub name: Box<str>,
    /// From 1.
    pub ordinal: usize,
    pub nullable: bool,
    /// `COLUMN_TYPE`: `int(10) unsigned`.
    pub column_type: Box<str>,
    pub charset: Option<Box<str>>,
    pub collation: Option<Box<str>>,
    /// Computed from others, and not in the binary log.
    pub unlogged: bool,
    /// Not part of `SELECT *`.
    pub invisible: bool,
    /// The server shows that a zero is negative, as some MariaDB do.
    pub signs_zeros: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueIndex {
    pub name: Box<str>,
    /// In the order of the index.
    pub columns: Vec<Box<str>>,
}

/// The questions about a table, in order. Run [`SESSION`] before.
#[must_use]
pub fn questions(schema: &str, table: &str) -> [String; 5] {
    let (schema, table) = (quoted(schema), quoted(table));
    let of_table = format!("TABLE_SCHEMA = {schema} AND TABLE_NAME = {table}");
    [
        format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE {of_table}"
        ),
        format!(
            "SELECT COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, EXTRA, -0e0 \
             FROM information_schema.COLUMNS WHERE {of_table} ORDER BY ORDINAL_POSITION"
        ),
        format!(
            "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART, INDEX_TYPE FROM information_schema.STATISTICS \
             WHERE {of_table} AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX"
        ),
        format!(
            "SELECT DISTINCT CONSTRAINT_NAME FROM information_schema.KEY_COLUMN_USAGE \
             WHERE {of_table} AND REFERENCED_TABLE_NAME IS NOT NULL"
        ),
        format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('{NATIVE_FOREIGN_KEYS}', 'version')"),
    ]
}

/// The question after those, where the table has foreign keys. MariaDB shows their rules in
/// `REFERENTIAL_CONSTRAINTS` only to accounts with more rights than SELECT.
#[must_use]
pub fn last_question(answers: &[Vec<TextRow>; 5]) -> Option<String> {
    let [tables, _, _, foreign_keys, ..] = answers;
    let table = tables.first().filter(|_| !foreign_keys.is_empty())?;
    Some(format!(
        "SHOW CREATE TABLE {}.{}",
        name(text_at(table, 0)),
        name(text_at(table, 1))
    ))
}

impl TableShape {
    /// Reads the answers to [`questions`] and to the [`last_question`]. `None` where there is no such table.
    #[must_use]
    pub fn read(answers: &[Vec<TextRow>; 5], definition: &[TextRow]) -> Option<TableShape> {
        let [tables, columns, indexes, foreign_keys, variables] = answers;
        let table = tables.first()?;
        let generated_are_logged = logs_generated(variable(variables, "version"));
        let definition = definition.first().map_or("", |row| text_at(row, 1));
        let cascade = foreign_keys
            .iter()
            .map(|row| text_at(row, 0))
            .find(|foreign_key| may_change_rows(foreign_key, definition));
        Some(TableShape {
            schema: text_at(table, 0).into(),
            table: text_at(table, 1).into(),
            kind: text_at(table, 2).into(),
            engine: text_at(table, 3).into(),
            columns: columns
                .iter()
                .map(|row| column(row, generated_are_logged))
                .collect(),
            unique: unique(indexes),
            cascade: cascade.map(|constraint| Cascade {
                constraint: constraint.into(),
                is_logged: logs_cascades(variable(variables, NATIVE_FOREIGN_KEYS)),
            }),
        })
    }
}

/// Whether the engine changes rows for this foreign key by itself; also where the table's definition does not
/// show it.
fn may_change_rows(foreign_key: &str, definition: &str) -> bool {
    let begin = format!("  CONSTRAINT {} FOREIGN KEY ", name(foreign_key));
    let mut found = definition.lines().filter_map(|line| line.strip_prefix(&*begin));
    found.next().is_none_or(|rules| {
        ["CASCADE", "SET NULL", "SET DEFAULT"]
            .iter()
            .any(|rule| rules.contains(rule))
    })
}

/// The value of a status or system variable; empty where there is none of that name.
pub(crate) fn variable<'r>(rows: &'r [TextRow], name: &str) -> &'r str {
    rows.iter()
        .find(|row| text_at(row, 0) == name)
        .map_or("", |row| text_at(row, 1))
}

/// Whether stored generated columns are in row events: MariaDB 10.11.19 has them there, 11.8.9 leaves them
/// out of those of UPDATE, whatever `binlog_row_image` is.
fn logs_generated(version: &str) -> bool {
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0);
    !version.contains("MariaDB") || major < 11
}

fn column(row: &TextRow, generated_are_logged: bool) -> ColumnShape {
    let optional = |at: usize| {
        Some(text_at(row, at))
            .filter(|name| !name.is_empty())
            .map(Box::from)
    };
    let extra = text_at(row, 6).to_ascii_uppercase();
    ColumnShape {
        name: text_at(row, 0).into(),
        ordinal: text_at(row, 1).parse().unwrap_or(0),
        nullable: text_at(row, 2) != "NO",
        column_type: text_at(row, 3).into(),
        charset: optional(4),
        collation: optional(5),
        unlogged: extra.contains("VIRTUAL") || !generated_are_logged && extra.contains("STORED GENERATED"),
        invisible: extra.contains("INVISIBLE"),
        signs_zeros: text_at(row, 7).starts_with('-'),
    }
}

/// Indexes with a part of a column, with an expression, or that are no trees, are of no use here.
fn unique(rows: &[TextRow]) -> Vec<UniqueIndex> {
    let mut indexes: Vec<(UniqueIndex, bool)> = Vec::new();
    for row in rows {
        let usable = row.get(2).is_some_and(Option::is_none)
            && text_at(row, 3) == "BTREE"
            && row.get(1).is_some_and(Option::is_some);
        let (name, column) = (text_at(row, 0), Box::from(text_at(row, 1)));
        match indexes.last_mut().filter(|(last, _)| &*last.name == name) {
            Some((last, all_usable)) => {
                last.columns.push(column);
                *all_usable &= usable;
            }
            None => {
                let index = UniqueIndex {
                    name: name.into(),
                    columns: vec![column],
                };
                indexes.push((index, usable));
            }
        }
    }
    indexes
        .into_iter()
        .filter_map(|(index, usable)| usable.then_some(index))
        .collect()
}

/// A value of a row, if it is a text; empty where it is none.
pub(crate) fn text_at(row: &TextRow, at: usize) -> &str {
    let bytes = row.get(at).and_then(Option::as_deref).unwrap_or_default();
    from_utf8(bytes).unwrap_or_default()
}

/// A text as an SQL literal, with `sql_mode` empty.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A name as in SQL.
pub(crate) fn name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_foreign_keys_are_read_from_the_definition() {
        let definition = "CREATE TABLE `child` (\n  `id` int(11) NOT NULL COMMENT 'ON DELETE CASCADE',\n  \
            CONSTRAINT `gone` FOREIGN KEY (`p`) REFERENCES `parent` (`id`) ON DELETE CASCADE,\n  \
            CONSTRAINT `null` FOREIGN KEY (`q`) REFERENCES `parent` (`id`) ON DELETE NO ACTION ON UPDATE SET NULL,\n  \
            CONSTRAINT `a``b` FOREIGN KEY (`r`) REFERENCES `parent` (`id`)\n) ENGINE=InnoDB";
        for (foreign_key, expected) in [
            ("gone", true),
            ("null", true),
            ("a`b", false),
            ("not shown", true),
        ] {
            assert_eq!(
                may_change_rows(foreign_key, definition),
                expected,
                "{foreign_key}"
            );
        }
    }
}
