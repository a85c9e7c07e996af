//! The little that a statement's text says and its facts do not.
//!
//! `SET NAMES x COLLATE y` is reported as three charsets, on both servers: the collation is not. So it is
//! read from the text where the text is as plain as can be, and where it is not the session is pinned.

use serde::{Deserialize, Serialize};
use sql_class::{Class, Effects, Syntax, TableName};

use super::HandlerStep;
use crate::rebuild::ask_values;

/// What `collation_connection` is after a statement that set the charset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Collation {
    /// The charset's own.
    OfCharset,
    /// This one.
    Named(Box<[u8]>),
    /// Not to be told from the text.
    Unclear,
}

/// A longer text is not looked into.
const LOOK_MAX: usize = 4096;

impl Collation {
    pub(super) fn of(text: &[u8]) -> Self {
        if text.is_empty() || text.len() > LOOK_MAX {
            return Self::Unclear;
        }
        let text = text.to_ascii_lowercase();
        // `SET CHARACTER SET` takes the schema's collation, and `SET NAMES DEFAULT` the global one.
        let others: [&[u8]; 3] = [b"collat", b"charset", b"default"];
        let character_set = find_all(&text, b"character").any(|at| text.get(at + 9) != Some(&b'_'));
        // By its number MySQL sets a collation.
        let may_be_number =
            find_all(&text, b"character_set_connection").any(|at| !is_set_to_name(&text[at..]));
        if !character_set && !may_be_number && !others.iter().any(|word| contains(&text, word)) {
            return Self::OfCharset;
        }
        named(&text).map_or(Self::Unclear, |name| Self::Named(name.into()))
    }
}

/// Whether the text may set one of the variables that arm trackers.
pub(super) fn may_set_trackers(text: &[u8]) -> bool {
    text.len() > LOOK_MAX || contains(&text.to_ascii_lowercase(), b"session_track")
}

/// Whether a statement that names LAST_INSERT_ID() says by `LAST_INSERT_ID(expr)` what it is to be, and
/// nothing else: then it does not read what it was.
pub(super) fn only_sets_insert_id(text: &[u8], syntax: Syntax) -> bool {
    if text.is_empty() || text.len() > LOOK_MAX {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    let others: [&[u8]; 2] = [b"@@", b"variables"];
    find_all(&lower, b"last_insert_id").count() == 1
        && !others.iter().any(|other| contains(&lower, other))
        && sql_class::calls(text, syntax, "LAST_INSERT_ID").is_empty()
}

/// Whether a statement that changes something may count rows that FOUND_ROWS() knows: those of a query within
/// it, of a change of several tables, and of an UPDATE on MySQL (tested on both servers).
pub(super) fn may_count_rows(text: &[u8], is_mariadb: bool) -> bool {
    let find = |word: &[u8]| {
        let mut windows = text.windows(word.len());
        windows
            .position(|window| window[0].eq_ignore_ascii_case(&word[0]) && window.eq_ignore_ascii_case(word))
    };
    let has = |word| find(word).is_some();
    if text.is_empty() || text.len() > LOOK_MAX {
        return true;
    }
    let mut words = text
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let is_one_of = |word: Option<&[u8]>, known: &[&str]| {
        word.is_some_and(|word| {
            known
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
        })
    };
    let (first, second) = (words.next(), words.next());
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
        let head = find(b"set").map_or(text, |at| &text[..at]);
        joins() || head.contains(&b',')
    };
    queries || has(b"update") && (!is_mariadb || several())
}

/// What a single statement does to what FOUND_ROWS() says, where that is not what its answer tells (tested on
/// both servers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Count {
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

impl Count {
    pub(super) fn of(text: &[u8], class: Class, syntax: Syntax) -> Self {
        const USUAL: &[u8] = b"SELECT";
        let text = text.trim_ascii_start();
        let is_usual = text
            .get(..USUAL.len())
            .is_some_and(|word| word.eq_ignore_ascii_case(USUAL));
        if is_usual || !text.first().is_some_and(u8::is_ascii_alphabetic) {
            return match class {
                Class::Administration => Self::Kept,
                _ => Self::Usual,
            };
        }
        let mut words = text
            .split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
            .filter(|word| !word.is_empty());
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
        let words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        let words = words.filter(|word| !word.is_empty());
        let mut words = words.skip_while(|word| is_one_of(word, &["CREATE", "OR", "REPLACE", "TEMPORARY"]));
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

fn is_one_of(word: &[u8], known: &[&str]) -> bool {
    known
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

fn words_like(text: &[u8], word: &[u8]) -> usize {
    let words = text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    words.filter(|known| known.eq_ignore_ascii_case(word)).count()
}

/// Whether reads that have no table have no other source of rows either, as SHOW has.
pub(super) fn is_computed(text: &[u8]) -> bool {
    let has = |known: &[&[u8]]| {
        let mut words = text.split(|byte| !byte.is_ascii_alphanumeric());
        words.any(|word| known.iter().any(|known| word.eq_ignore_ascii_case(known)))
    };
    let first = text.trim_ascii_start().first().map(u8::to_ascii_lowercase);
    let computes = matches!(first, Some(b's' | b'd' | b'v')) && has(&[b"select", b"do", b"values"]);
    computes && !has(&[b"show", b"desc", b"describe", b"explain"])
}

/// Whether there may be a query within, wherever the word is.
pub(super) fn has_select(text: &[u8]) -> bool {
    text.windows(6).any(|word| word.eq_ignore_ascii_case(b"select"))
}

/// Whether a statement certainly uses a table, as MariaDB means it: it ends the warnings of those before.
pub(super) fn uses_tables(text: &[u8], syntax: Syntax) -> bool {
    let is_dual = |table: &TableName| table.schema.is_none() && table.name.eq_ignore_ascii_case("dual");
    !sql_class::tables(text, syntax).iter().all(is_dual)
}

/// What a statement about transactions does to savepoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Savepoint {
    Other,
    Sets,
    /// There are none after it.
    Ends,
}

impl Savepoint {
    pub(super) fn of(text: &[u8]) -> Self {
        let text = text.to_ascii_lowercase();
        let begins_with = |word: &[u8]| text.trim_ascii_start().starts_with(word);
        let ends = begins_with(b"commit") || begins_with(b"rollback");
        match contains(&text, b"savepoint") {
            true if !ends && !begins_with(b"release") => Self::Sets,
            false if ends && !contains(&text, b"to") => Self::Ends,
            _ => Self::Other,
        }
    }
}

/// What asks for the variables of a text that nothing reports. `None` where they are not to be told, or
/// belong together with others.
pub(super) fn unseen(text: &[u8], syntax: Syntax) -> Option<Vec<u8>> {
    const MOST: usize = 16;
    let found = sql_class::set_targets_unseen(text, syntax)?;
    let is_plain = |name: &str| {
        let is_of_charset = name.starts_with("character_set") || name.starts_with("collation");
        let is_word = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_word && !is_of_charset && !name.is_empty()
    };
    let names: Vec<&str> = found
        .iter()
        .filter_map(|name| str::from_utf8(name).ok())
        .collect();
    let are_known = !names.is_empty() && names.len() == found.len() && names.len() <= MOST;
    (are_known && names.iter().all(|name| is_plain(name))).then(|| ask_values(names.into_iter()))
}

/// `HANDLER name OPEN …`, `HANDLER name CLOSE`, `HANDLER name READ …`, in plain words.
pub(super) fn handler_step(effects: Effects, statements: u32, text: &[u8]) -> HandlerStep {
    if !effects.contains(Effects::HANDLER) {
        return HandlerStep::Other;
    }
    let mut words = text
        .split(|byte| byte.is_ascii_whitespace() || *byte == b';')
        .filter(|word| !word.is_empty());
    let is = |word: Option<&[u8]>, wanted: &[u8]| word.is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    let is_plain = statements == 1 && is(words.next(), b"HANDLER");
    let (_, verb) = (words.next(), words.next());
    match is_plain {
        true if is(verb, b"OPEN") => HandlerStep::Opens,
        true if is(verb, b"CLOSE") => HandlerStep::Closes,
        true if is(verb, b"READ") => HandlerStep::Other,
        _ => HandlerStep::Unclear,
    }
}

/// `ROLLBACK` without a comment in front of it, which is enough: it only saves reads on the primary.
pub(super) fn begins_with_rollback(text: &[u8]) -> bool {
    const WORD: &[u8] = b"ROLLBACK";
    let text = text.trim_ascii_start();
    text.len() >= WORD.len() && text[..WORD.len()].eq_ignore_ascii_case(WORD)
}

/// `SAVEPOINT`, `RELEASE SAVEPOINT`, `ROLLBACK`: whatever else a statement about transactions is, it may
/// commit.
pub(super) fn is_of_savepoint(text: &[u8]) -> bool {
    let first = text.trim_ascii_start().first();
    first.is_some_and(|byte| matches!(byte, b's' | b'S' | b'r' | b'R'))
}

/// Whether the text is one SELECT that calls nothing, however the rest of it is to be read: a server may see
/// neither a second statement nor a call where these two bytes are not, which are no part of a longer
/// character in any charset of clients.
pub(super) fn is_one_select(text: &[u8]) -> bool {
    text.len() <= LOOK_MAX
        && keyword(&text.to_ascii_lowercase(), b"select").is_some()
        && !text.iter().any(|byte| matches!(byte, b';' | b'('))
}

/// Whether there is one `SET` in the text and no more.
pub(super) fn sets_once(text: &[u8]) -> bool {
    text.len() <= LOOK_MAX && find_all(&text.to_ascii_lowercase(), b"set").count() == 1
}

/// Whether what follows is `variable = name`.
fn is_set_to_name(text: &[u8]) -> bool {
    let mut words = text.splitn(2, |byte| *byte == b'=');
    let value = words.nth(1).unwrap_or_default().trim_ascii_start();
    let value = value.strip_prefix(b"'").unwrap_or(value);
    value.first().is_some_and(u8::is_ascii_alphabetic)
}

/// The collation of `set names X collate Y`, with nothing else but a list of assignments that are not about
/// charsets.
fn named(text: &[u8]) -> Option<&[u8]> {
    let rest = keyword(text, b"set")?;
    let rest = keyword(rest, b"names")?;
    let (_, rest) = name(rest)?;
    let rest = keyword(rest, b"collate")?;
    let (collation, rest) = name(rest)?;
    let rest = rest.trim_ascii_start();
    let ends = matches!(rest, b"" | b";");
    let about_others: [&[u8]; 6] = [b"names", b"collat", b"char", b"/*", b"--", b"#"];
    let goes_on = rest.starts_with(b",") && !about_others.iter().any(|word| contains(rest, word));
    (ends || goes_on).then_some(collation)
}

/// What follows `word` and at least one space or quote.
fn keyword<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let rest = text.trim_ascii_start().strip_prefix(word)?;
    matches!(rest.first(), Some(b' ' | b'\t' | b'\r' | b'\n' | b'\'' | b'"')).then_some(rest)
}

/// A name, quoted or not, and what follows it.
fn name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let quote = text.first().copied().filter(|byte| matches!(byte, b'\'' | b'"'));
    let text = &text[quote.iter().len()..];
    let len = text
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
        .count();
    let (name, rest) = text.split_at(len);
    let rest = match quote {
        Some(quote) => rest.strip_prefix(&[quote])?,
        None => rest,
    };
    (!name.is_empty()).then_some((name, rest))
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    find_all(text, word).next().is_some()
}

fn find_all<'a>(text: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    text.windows(word.len())
        .enumerate()
        .filter(move |(_, window)| *window == word)
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use sql_class::Dialect;

    use super::*;

    #[test]
    fn the_collation_is_read_from_plain_texts_only() {
        let of = |text: &str| Collation::of(text.as_bytes());
        let utf8mb4_bin = || Collation::Named(Box::from(&b"utf8mb4_bin"[..]));
        assert_eq!(of("SET NAMES utf8mb4"), Collation::OfCharset);
        assert_eq!(of("set names 'utf8mb4', sql_mode=''"), Collation::OfCharset);
        assert_eq!(of("SET character_set_connection=latin1"), Collation::OfCharset);
        assert_eq!(
            of("SET @@character_set_connection := 'latin1'"),
            Collation::OfCharset
        );
        assert_eq!(of("SET NAMES utf8mb4 COLLATE utf8mb4_bin"), utf8mb4_bin());
        assert_eq!(of("set names 'utf8mb4' collate 'utf8mb4_bin';"), utf8mb4_bin());
        assert_eq!(
            of("SET NAMES utf8mb4 COLLATE utf8mb4_bin, time_zone='+00:00'"),
            utf8mb4_bin()
        );
        for unclear in [
            "",
            "SET NAMES DEFAULT",
            "SET CHARACTER SET utf8mb4",
            "SET character/**/set utf8mb4",
            "SET CHARSET utf8mb4",
            "SET NAMES utf8mb4 /* */ COLLATE utf8mb4_bin",
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin; SET NAMES latin1 COLLATE latin1_bin",
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin, NAMES latin1",
            "SET NAMES utf8mb4, time_zone='+00:00' COLLATE utf8mb4_bin",
            "SET NAMES 'utf8mb4 COLLATE utf8mb4_bin",
            "SET character_set_connection=46",
            "SET @@session.character_set_connection := @charset",
        ] {
            assert_eq!(of(unclear), Collation::Unclear, "{unclear}");
        }
    }

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

    fn counts(text: &str, class: Class) -> [Count; 2] {
        let mariadb = Dialect::MariaDb { version: 101_119 };
        [mariadb, Dialect::default()].map(|dialect| {
            let syntax = Syntax {
                dialect,
                ..Syntax::default()
            };
            Count::of(text.as_bytes(), class, syntax)
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
            assert_eq!(counts(text, class), [Count::Kept; 2], "{text}");
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
            assert_eq!(counts(text, class), [Count::Usual; 2], "{text}");
        }
    }

    #[test]
    fn what_is_one_on_one_server_only_does_there() {
        for (text, class, expected) in [
            ("DO 1", Class::Read, [Count::Kept, Count::Usual]),
            ("VALUES (1)", Class::Read, [Count::Kept, Count::Usual]),
            ("DO (SELECT 1)", Class::Read, [Count::Kept, Count::Usual]),
            (
                "DO (SELECT MAX(a) FROM t)",
                Class::Read,
                [Count::Unclear, Count::Usual],
            ),
            (
                "DO (SELECT a FROM (SELECT 1 AS a) d)",
                Class::Read,
                [Count::Unclear, Count::Usual],
            ),
            ("EXPLAIN SELECT 1", Class::Read, [Count::None, Count::Kept]),
            (
                "EXPLAIN FORMAT=JSON SELECT 1 FROM DUAL",
                Class::Read,
                [Count::None, Count::Kept],
            ),
            (
                "EXPLAIN SELECT a FROM t UNION SELECT 1",
                Class::Read,
                [Count::None, Count::Kept],
            ),
            ("EXPLAIN VALUES (1)", Class::Read, [Count::Kept; 2]),
            (
                "CREATE TABLE t AS SELECT 1",
                Class::Ddl,
                [Count::Unclear, Count::Kept],
            ),
            (
                "create or replace temporary table t as select 1",
                Class::Ddl,
                [Count::Unclear, Count::Kept],
            ),
            (
                "CREATE OR REPLACE VIEW v AS SELECT a FROM table_of_a",
                Class::Ddl,
                [Count::Usual, Count::Kept],
            ),
            ("SHOW PROFILE", Class::Administration, [Count::Shown; 2]),
            ("SHOW OPEN TABLES", Class::Administration, [Count::Shown; 2]),
        ] {
            assert_eq!(counts(text, class), expected, "{text}");
        }
    }

    #[test]
    fn tables_that_are_certainly_used() {
        let uses = |text: &str| uses_tables(text.as_bytes(), Syntax::default());
        for text in [
            "SELECT 1 FROM t",
            "DO (SELECT MAX(a) FROM b.t)",
            "SELECT 1 FROM a.dual",
            "CHECKSUM TABLE t",
        ] {
            assert!(uses(text), "{text}");
        }
        for text in [
            "SELECT 1",
            "SELECT 1 FROM DUAL",
            "SELECT EXTRACT(YEAR FROM '2020-01-01'), TRIM('a' FROM UPPER('ab'))",
            "SELECT (SELECT 1) -- FROM t",
            "DO 1",
            "",
        ] {
            assert!(!uses(text), "{text}");
        }
    }

    #[test]
    fn savepoints_are_set_and_end() {
        for (text, savepoint) in [
            ("SAVEPOINT a", Savepoint::Sets),
            (" savepoint `to`", Savepoint::Sets),
            ("INSERT INTO t VALUES (1); SAVEPOINT a", Savepoint::Sets),
            ("RELEASE SAVEPOINT a", Savepoint::Other),
            ("ROLLBACK TO SAVEPOINT a", Savepoint::Other),
            ("ROLLBACK TO a", Savepoint::Other),
            ("rollback work", Savepoint::Ends),
            ("COMMIT AND CHAIN", Savepoint::Ends),
        ] {
            assert_eq!(Savepoint::of(text.as_bytes()), savepoint, "{text}");
        }
    }

    #[test]
    fn trackers_are_seen_in_any_case() {
        assert!(may_set_trackers(b"SET @@Session_Track_Schema=0"));
        assert!(!may_set_trackers(b"SET sql_mode=''"));
    }
}
