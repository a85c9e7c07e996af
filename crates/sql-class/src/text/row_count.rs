//! What a statement does to what `FOUND_ROWS()` says.

use serde::{Deserialize, Serialize};

use super::{LOOK_MAX, begins_with, has, uses_tables};
use crate::words::{is_one_of, plain_words, words};
use crate::{Class, Syntax};

/// Whether a statement that changes something may count rows that FOUND_ROWS() knows: those of a query within
/// it, of a change of several tables, and of an UPDATE on MySQL (tested on both servers).
#[must_use]
pub fn may_count_rows(text: &[u8], is_mariadb: bool) -> bool {
    let has = |word: &[u8]| has(text, word);
    if text.is_empty() || text.len() > LOOK_MAX {
        return true;
    }
    let mut words = plain_words(text);
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_view = || has(b"view") && !has(b"table");
    let queries = has(b"select") && !is_view();
    if is_one_of(first, &["SET"]) {
        return is_mariadb && queries;
    }
    if is_one_of(first, &["INSERT", "REPLACE"]) {
        return queries;
    }
    let joins = || has(b"join") || has(b"using");
    if is_one_of(first, &["DELETE"]) {
        let is_of_one = is_one_of(second, &["FROM", "LOW_PRIORITY", "QUICK", "IGNORE"]) && !joins();
        return queries || !is_of_one;
    }
    let several = || {
        let head = before(text, b"set");
        joins() || head.contains(&b',')
    };
    queries || has(b"update") && (!is_mariadb || several())
}

/// What is in front of this part, in whatever case; the whole text where it has none.
fn before<'a>(text: &'a [u8], part: &[u8]) -> &'a [u8] {
    let mut windows = text.windows(part.len());
    let at = windows.position(|window| window.eq_ignore_ascii_case(part));
    &text[..at.unwrap_or(text.len())]
}

/// What a single statement does to what FOUND_ROWS() says, where that is not what its answer tells (tested on
/// both servers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowCount {
    Usual,
    /// It stays, although there may be rows: to the server it is no query.
    Kept,
    /// It is 0, although there may be rows.
    None,
    /// It is the rows of the answer, although that is no query's.
    Shown,
    /// Only the server knows.
    Unclear,
}

impl RowCount {
    #[must_use]
    pub fn of(text: &[u8], class: Class, syntax: Syntax) -> Self {
        let text = text.trim_ascii_start();
        if begins_with(text, "SELECT") || !text.first().is_some_and(u8::is_ascii_alphabetic) {
            return match class {
                Class::Administration => Self::Kept,
                _ => Self::Usual,
            };
        }
        let mut words = words(text);
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is = |known: &[&str]| is_one_of(first, known);
        let is_mariadb = syntax.dialect.is_mariadb();
        let is_kept = match class {
            Class::Read | Class::Administration if is(&["SHOW"]) => return Self::of_show(second, class),
            Class::Read if is(EXPLAINS) && is_mariadb => return Self::of_plan(text, second, syntax),
            Class::Read if is(&["DO", "VALUES"]) && is_mariadb => return Self::of_expressions(text, syntax),
            Class::Read | Class::Write if is(EXPLAINS) => is_one_of(second, EXPLAINED),
            Class::Read => is(&["HELP", "CHECKSUM"]),
            Class::LockingRead => is(&["HANDLER"]),
            Class::Session => is(&["GET"]),
            Class::Ddl if is_mariadb => return Self::of_new_table(text),
            Class::Ddl => true,
            Class::Administration => true,
            _ => false,
        };
        match is_kept {
            true => Self::Kept,
            false => Self::Usual,
        }
    }

    fn of_show(what: &[u8], class: Class) -> Self {
        const KEPT: &[&str] = &["WARNINGS", "ERRORS", "GRANTS", "CREATE", "PRIVILEGES", "PROFILES"];
        let is_of_statistics = || what.to_ascii_uppercase().ends_with(b"_STATISTICS");
        match class {
            Class::Read if !is_one_of(what, KEPT) => Self::Usual,
            _ if is_one_of(what, &["PROFILE", "OPEN"]) || is_of_statistics() => Self::Shown,
            _ => Self::Kept,
        }
    }

    /// MariaDB's plan of a query counts none where no table is looked into. What its optimizer finds out
    /// beforehand is not known here.
    fn of_plan(text: &[u8], explained: &[u8], syntax: Syntax) -> Self {
        if !is_one_of(explained, EXPLAINED) {
            return Self::Usual;
        }
        let is_of_none = !uses_tables(text, syntax) || words_like(text, b"UNION") > 0;
        match words_like(text, b"SELECT") > 0 && is_of_none {
            true => Self::None,
            false => Self::Kept,
        }
    }

    /// MariaDB's `CREATE TABLE … SELECT` counts the rows of its query.
    fn of_new_table(text: &[u8]) -> Self {
        let mut words =
            words(text).skip_while(|word| is_one_of(word, &["CREATE", "OR", "REPLACE", "TEMPORARY"]));
        let is_of_table = words.next().is_some_and(|word| is_one_of(word, &["TABLE"]));
        match is_of_table && words_like(text, b"SELECT") > 0 {
            true => Self::Unclear,
            false => Self::Usual,
        }
    }

    /// MariaDB's `DO` and `VALUES` are no queries; those within them are.
    fn of_expressions(text: &[u8], syntax: Syntax) -> Self {
        let queries = words_like(text, b"SELECT");
        match queries > 1 || queries > 0 && uses_tables(text, syntax) {
            true => Self::Unclear,
            false => Self::Kept,
        }
    }
}

const EXPLAINS: &[&str] = &["EXPLAIN", "DESCRIBE", "DESC"];

/// What follows where a statement is explained, and not a table described.
const EXPLAINED: &[&str] = &[
    "SELECT",
    "INSERT",
    "REPLACE",
    "UPDATE",
    "DELETE",
    "WITH",
    "TABLE",
    "VALUES",
    "FORMAT",
    "EXTENDED",
    "PARTITIONS",
];

fn words_like(text: &[u8], word: &[u8]) -> usize {
    words(text)
        .filter(|known| known.eq_ignore_ascii_case(word))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    #[test]
    fn rows_are_counted_by_queries_and_by_updates() {
        let counts = |text: &str| [true, false].map(|is_mariadb| may_count_rows(text.as_bytes(), is_mariadb));
        for text in [
            "INSERT INTO t VALUES (1)",
            "delete from t",
            "CREATE VIEW v AS SELECT 1",
        ] {
            assert_eq!(counts(text), [false; 2], "{text}");
        }
        for one in ["Update t SET a = 1", "update t\nset a = 1, b = 2"] {
            assert_eq!(counts(one), [false, true], "{one}");
        }
        for several in [
            "UPDATE t JOIN u USING (id) SET a = 1",
            "UPDATE t, u SET a = 1",
            "DELETE t FROM t, u",
            "DELETE FROM t USING t, u",
            "DELETE FROM t WHERE id IN (SELECT 1)",
        ] {
            assert_eq!(counts(several), [true; 2], "{several}");
        }
        assert_eq!(counts("SET @a = (SELECT 1)"), [true, false]);
        assert_eq!(
            counts("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1"),
            [false; 2]
        );
        assert_eq!(counts("INSERT INTO t Select 1"), [true; 2]);
        assert_eq!(counts(""), [true; 2]);
    }

    fn counts(text: &str, class: Class) -> [RowCount; 2] {
        let mariadb = Dialect::MariaDb { version: 101_119 };
        [mariadb, Dialect::default()].map(|dialect| {
            let syntax = Syntax {
                dialect,
                ..Syntax::default()
            };
            RowCount::of(text.as_bytes(), class, syntax)
        })
    }

    #[test]
    fn what_is_no_query_leaves_the_count() {
        for (text, class) in [
            ("SHOW GRANTS", Class::Read),
            ("show\ncreate table t", Class::Read),
            ("SHOW WARNINGS", Class::Read),
            ("EXPLAIN SELECT a FROM t", Class::Read),
            ("desc update t set a = 1", Class::Write),
            ("CHECKSUM TABLE t", Class::Read),
            ("HANDLER t READ FIRST", Class::LockingRead),
            ("ANALYZE TABLE t", Class::Administration),
            ("SHOW PROCESSLIST", Class::Administration),
            ("GET DIAGNOSTICS @n = NUMBER", Class::Session),
        ] {
            assert_eq!(counts(text, class), [RowCount::Kept; 2], "{text}");
        }
        for (text, class) in [
            ("SELECT 1", Class::Read),
            ("/* show grants */ SELECT 1", Class::Read),
            ("(SELECT 1)", Class::Read),
            ("SHOW COUNT(*) WARNINGS", Class::Read),
            ("SHOW TABLES", Class::Read),
            ("DESCRIBE t", Class::Read),
            ("TABLE t", Class::Read),
            ("SELECT 1 FOR UPDATE", Class::LockingRead),
            ("UPDATE t SET a = 1", Class::Write),
            ("SET @a = 1", Class::Session),
            ("CALL p()", Class::Unknown),
            ("", Class::Read),
        ] {
            assert_eq!(counts(text, class), [RowCount::Usual; 2], "{text}");
        }
    }

    #[test]
    fn what_is_one_on_one_server_only_does_there() {
        for (text, class, expected) in [
            ("DO 1", Class::Read, [RowCount::Kept, RowCount::Usual]),
            ("VALUES (1)", Class::Read, [RowCount::Kept, RowCount::Usual]),
            ("DO (SELECT 1)", Class::Read, [RowCount::Kept, RowCount::Usual]),
            (
                "DO (SELECT MAX(a) FROM t)",
                Class::Read,
                [RowCount::Unclear, RowCount::Usual],
            ),
            (
                "DO (SELECT a FROM (SELECT 1 AS a) d)",
                Class::Read,
                [RowCount::Unclear, RowCount::Usual],
            ),
            ("EXPLAIN SELECT 1", Class::Read, [RowCount::None, RowCount::Kept]),
            (
                "EXPLAIN FORMAT=JSON SELECT 1 FROM DUAL",
                Class::Read,
                [RowCount::None, RowCount::Kept],
            ),
            (
                "EXPLAIN SELECT a FROM t UNION SELECT 1",
                Class::Read,
                [RowCount::None, RowCount::Kept],
            ),
            ("EXPLAIN VALUES (1)", Class::Read, [RowCount::Kept; 2]),
            (
                "CREATE TABLE t AS SELECT 1",
                Class::Ddl,
                [RowCount::Unclear, RowCount::Kept],
            ),
            (
                "create or replace temporary table t as select 1",
                Class::Ddl,
                [RowCount::Unclear, RowCount::Kept],
            ),
            (
                "CREATE OR REPLACE VIEW v AS SELECT a FROM table_of_a",
                Class::Ddl,
                [RowCount::Usual, RowCount::Kept],
            ),
            ("SHOW PROFILE", Class::Administration, [RowCount::Shown; 2]),
            ("SHOW OPEN TABLES", Class::Administration, [RowCount::Shown; 2]),
        ] {
            assert_eq!(counts(text, class), expected, "{text}");
        }
    }
}
