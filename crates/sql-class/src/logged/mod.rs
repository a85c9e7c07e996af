//! What a statement in the binary log means for a table whose rows somebody keeps.
//!
//! Wrong in one direction only: a statement that does not concern a table may be taken for one that does,
//! which costs a copy. No statement that replaces a mapped table is missed, however it is written: it must
//! have the table's name in it, or drop the schema. One that changes rows may do so through a view or a
//! trigger, and may concern any table.

mod non_table_ddl;

use crate::words::is_one_of as is;
use non_table_ddl::{Object, object};

/// A statement by its first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind<'a> {
    Begin,
    Commit,
    Rollback,
    /// Back to a savepoint: what the transaction did since then is undone.
    RollbackTo,
    /// With the name of the transaction as the server writes it; so have those that follow.
    XaStart(&'a [u8]),
    XaEnd(&'a [u8]),
    XaCommit(&'a [u8]),
    XaRollback(&'a [u8]),
    Savepoint,
    /// Changes no rows and no shape of any table: accounts, statistics.
    Harmless,
    /// Creates, drops or changes tables, or schemas and all in them, or may do so.
    Definition,
    /// Changes rows without showing them: the log is not in row format for it.
    Unseen,
}

/// Reads the first words.
#[must_use]
pub fn statement_kind(sql: &[u8]) -> StatementKind<'_> {
    let (first, second, rest) = first_words(sql);
    match () {
        () if is(first, &["BEGIN"]) => StatementKind::Begin,
        () if is(first, &["COMMIT"]) => StatementKind::Commit,
        () if is(first, &["ROLLBACK"]) && is(second, &["TO"]) => StatementKind::RollbackTo,
        () if is(first, &["ROLLBACK"]) => StatementKind::Rollback,
        () if is(first, &["START"]) && is(second, &["TRANSACTION"]) => StatementKind::Begin,
        () if is(first, &["XA"]) => xa(second, rest.trim_ascii()),
        () if is(first, &["SAVEPOINT", "RELEASE"]) => StatementKind::Savepoint,
        () if is(first, &["GRANT", "REVOKE", "FLUSH"]) => StatementKind::Harmless,
        () if is(first, &["ANALYZE"]) && is(second, &["TABLE", "LOCAL", "NO_WRITE_TO_BINLOG"]) => {
            StatementKind::Harmless
        }
        () if is(first, &["SET"]) && is(second, &["STATEMENT"]) => with_settings(rest),
        () if is(first, &["SET"]) => StatementKind::Harmless,
        () if is(first, &["CREATE", "DROP", "ALTER", "RENAME"])
            && is(second, &["USER", "ROLE", "SERVER"]) =>
        {
            StatementKind::Harmless
        }
        () if is(
            first,
            &[
                "CREATE", "DROP", "ALTER", "RENAME", "TRUNCATE", "OPTIMIZE", "REPAIR", "IMPORT",
            ],
        ) =>
        {
            StatementKind::Definition
        }
        () if is(first, &["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH"]) => StatementKind::Unseen,
        () if first.is_empty() && rest.is_empty() => StatementKind::Harmless,
        // SELECT of a function that writes, CALL, DO, or what is not known here.
        () => StatementKind::Unseen,
    }
}

/// The first two words, without `OR REPLACE` between them, and what is behind them.
fn first_words(sql: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let mut rest = sql;
    let first = word(&mut rest);
    let mut second = word(&mut rest);
    if is(second, &["OR"]) && is(word(&mut rest), &["REPLACE"]) {
        second = word(&mut rest);
    }
    (first, second, rest)
}

/// `SET STATEMENT … FOR …` of MariaDB, from behind the second word.
fn with_settings(sql: &[u8]) -> StatementKind<'_> {
    let mut parts = behind(sql, b"FOR");
    match (parts.next(), parts.next()) {
        (Some(statement), None) => statement_kind(statement),
        // A value may have the word in it.
        _ => StatementKind::Unseen,
    }
}

/// Whether the statement changes accounts, or what they may do.
#[must_use]
pub fn concerns_accounts(sql: &[u8]) -> bool {
    let (first, second, rest) = first_words(sql);
    match () {
        () if is(first, &["GRANT", "REVOKE"]) => true,
        () if is(first, &["FLUSH"]) => behind(sql, b"PRIVILEGES").next().is_some(),
        () if is(first, &["SET"]) && is(second, &["STATEMENT"]) => {
            behind(rest, b"FOR").any(concerns_accounts)
        }
        () if is(first, &["SET"]) => is(second, &["PASSWORD", "DEFAULT"]),
        () => is(first, &["CREATE", "DROP", "ALTER", "RENAME"]) && is(second, &["USER", "ROLE"]),
    }
}

fn xa<'a>(second: &[u8], xid: &'a [u8]) -> StatementKind<'a> {
    let is = |word: &str| second.eq_ignore_ascii_case(word.as_bytes());
    if is("START") || is("BEGIN") {
        StatementKind::XaStart(xid)
    } else if is("COMMIT") {
        StatementKind::XaCommit(xid)
    } else if is("ROLLBACK") {
        StatementKind::XaRollback(xid)
    } else {
        StatementKind::XaEnd(xid)
    }
}

/// Whether the statement is about something else than tables, and leaves alone all that it names.
#[must_use]
pub fn leaves_tables_alone(sql: &[u8]) -> bool {
    object(sql).is_some()
}

/// Whether a definition makes a table out of rows: a function among what they are made of may have changed
/// any other table. In row format it is logged without them.
#[must_use]
pub fn makes_rows(sql: &[u8]) -> bool {
    if object(sql) == Some(Object::Other) || behind(sql, b"CREATE").next().is_none() {
        return false;
    }
    let bare = without_quoted(sql);
    // Partitions have values, too: `VALUES LESS THAN (5)`, `VALUES IN (5)`.
    let is_constructor = |mut rest: &[u8]| !is(word(&mut rest), &["LESS", "IN"]);
    behind(&bare, b"SELECT").next().is_some() || behind(&bare, b"VALUES").any(is_constructor)
}

/// What is not in quotes. Where there may be quotes that are none it is all of it.
fn without_quoted(sql: &[u8]) -> Vec<u8> {
    if hides_words(sql) || sql.contains(&b'\\') {
        return sql.to_vec();
    }
    let mut quote = None;
    let bare = sql.iter().map(|&byte| match quote {
        Some(open) => {
            quote = quote.filter(|_| byte != open);
            b' '
        }
        None => {
            quote = b"`'\"".contains(&byte).then_some(byte);
            byte
        }
    });
    bare.collect()
}

/// Whether a statement that was run with `default` as its schema may concern this table.
#[must_use]
pub fn concerns(sql: &[u8], default: &[u8], schema: &str, table: &str) -> bool {
    let (schema, table) = (schema.as_bytes(), table.as_bytes());
    let is_default = default.eq_ignore_ascii_case(schema);
    if !is_default && !mentions(sql, schema, |_| true) {
        return false;
    }
    // A schema goes with all its tables.
    ["DATABASE", "SCHEMA"]
        .iter()
        .any(|word| mentions(sql, word.as_bytes(), |_| true))
        || mentions(sql, table, |before| match qualifier(before) {
            // Not a plain name: it may be ours in another form.
            Some(found) if found.is_empty() || !schema.iter().copied().all(is_plain) => true,
            Some(found) => found.eq_ignore_ascii_case(schema),
            // There may be a qualifier in front of what is no blank to us.
            None => is_default || hides_words(before),
        })
}

/// The name in front of the dot that `before` ends with, if it ends so. What cannot be read as a name is an
/// empty one, which counts as any.
fn qualifier(before: &[u8]) -> Option<&[u8]> {
    let unquoted = |text: &[u8]| {
        text.strip_suffix(b"`")
            .or(text.strip_suffix(b"\""))
            .unwrap_or(text)
            .len()
    };
    let before = without_blanks(without_blanks(&before[..unquoted(before)]).strip_suffix(b".")?);
    let name = &before[..unquoted(before)];
    let len = name.iter().rev().take_while(|&&byte| is_plain(byte)).count();
    Some(&name[name.len() - len..])
}

/// Whether this text may end with what servers take for nothing: a comment, or a blank of another character
/// set.
fn hides_words(text: &[u8]) -> bool {
    let holds = |sign: &[u8]| text.windows(sign.len()).any(|part| part == sign);
    !text.is_ascii() || [&b"/*"[..], b"*/", b"--", b"#"].into_iter().any(holds)
}

/// Whether `name` stands in `sql` as a word behind what `follows` accepts, whatever its case. Names that may
/// be written in more than one way, and in more than one character set, are taken to stand everywhere.
fn mentions(sql: &[u8], name: &[u8], follows: impl Fn(&[u8]) -> bool) -> bool {
    if name.is_empty() || !name.iter().copied().all(is_plain) {
        return true;
    }
    behind(sql, name).any(|rest| follows(&sql[..sql.len() - rest.len() - name.len()]))
}

/// What is behind each place where `name` stands as a word.
fn behind<'a>(sql: &'a [u8], name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    let starts = sql.windows(name.len()).enumerate();
    starts
        .filter(|(_, part)| part.eq_ignore_ascii_case(name))
        .filter_map(|(at, _)| {
            let before = at.checked_sub(1).and_then(|at| sql.get(at));
            let rest = &sql[at + name.len()..];
            let is_word = ![before, rest.first()]
                .into_iter()
                .flatten()
                .copied()
                .any(is_plain);
            is_word.then_some(rest)
        })
}

/// A byte that a name without quotes is made of.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

/// A byte between words.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

/// Text without the blanks at its end.
fn without_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|&&byte| is_blank(byte)).count();
    &text[..text.len() - blanks]
}

/// Whether a comment of two dashes begins here.
fn is_dashes(text: &[u8]) -> bool {
    let behind = text.strip_prefix(b"--");
    behind.is_some_and(|behind| {
        behind
            .first()
            .is_none_or(|&byte| is_blank(byte) || byte.is_ascii_control())
    })
}

/// Takes the next word; comments are passed, but for those that servers execute, whose opening is passed.
fn word<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    loop {
        let blanks = rest.iter().take_while(|&&byte| is_blank(byte)).count();
        *rest = &rest[blanks..];
        if rest.starts_with(b"/*!") || rest.starts_with(b"/*M!") {
            let opening = rest.iter().position(|&byte| byte == b'!').unwrap_or(0) + 1;
            let digits = rest[opening..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            *rest = &rest[opening + digits..];
        } else if rest.starts_with(b"/*") {
            let end = rest.windows(2).skip(2).position(|pair| pair == b"*/");
            *rest = end.map_or(&[], |end| &rest[end + 4..]);
        } else if rest.starts_with(b"#") || is_dashes(rest) {
            let end = rest.iter().position(|&byte| byte == b'\n');
            *rest = end.map_or(&[], |end| &rest[end + 1..]);
        } else if rest.starts_with(b"*/") || rest.starts_with(b"(") {
            *rest = &rest[if rest[0] == b'(' { 1 } else { 2 }..];
        } else {
            break;
        }
    }
    let len = rest.iter().take_while(|&&byte| is_plain(byte)).count();
    let (word, behind) = rest.split_at(len);
    *rest = behind;
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_about_accounts() {
        for (sql, concerns) in [
            ("GRANT SELECT ON *.* TO a", true),
            ("/* a */ revoke all on *.* from a", true),
            ("SET STATEMENT max_statement_time=1 FOR REVOKE a FROM b", true),
            ("DROP USER a", true),
            ("CREATE OR REPLACE USER a IDENTIFIED BY 'FOR'", true),
            ("ALTER USER a ACCOUNT LOCK", true),
            ("RENAME USER a TO b", true),
            ("DROP ROLE a", true),
            ("SET PASSWORD FOR a = 'x'", true),
            ("SET DEFAULT ROLE a FOR b", true),
            ("FLUSH NO_WRITE_TO_BINLOG PRIVILEGES", true),
            ("FLUSH TABLES", false),
            ("CREATE TABLE user (a INT)", false),
            ("DROP VIEW role", false),
            ("INSERT INTO grants VALUES (1)", false),
        ] {
            assert_eq!(concerns_accounts(sql.as_bytes()), concerns, "{sql}");
        }
    }

    #[test]
    fn first_words() {
        let cases: [(&str, StatementKind); 33] = [
            ("BEGIN", StatementKind::Begin),
            ("COMMIT", StatementKind::Commit),
            ("commit /* x */", StatementKind::Commit),
            ("ROLLBACK", StatementKind::Rollback),
            ("ROLLBACK TO `a`", StatementKind::RollbackTo),
            ("SAVEPOINT `a`", StatementKind::Savepoint),
            ("XA START X'61',X'',1", StatementKind::XaStart(b"X'61',X'',1")),
            ("XA END X'61',X'',1", StatementKind::XaEnd(b"X'61',X'',1")),
            ("XA COMMIT X'61',X'',1", StatementKind::XaCommit(b"X'61',X'',1")),
            (
                "XA ROLLBACK X'61',X'',1",
                StatementKind::XaRollback(b"X'61',X'',1"),
            ),
            ("/* a */ -- b\n # c\n drop TABLE t", StatementKind::Definition),
            ("/*!50001 CREATE TABLE t (a int) */", StatementKind::Definition),
            ("/*M!100100 ALTER TABLE t FORCE */", StatementKind::Definition),
            ("TRUNCATE t", StatementKind::Definition),
            ("DROP DATABASE `s`", StatementKind::Definition),
            ("--\tc\n\x0bDROP DATABASE s", StatementKind::Definition),
            ("--\nBEGIN", StatementKind::Begin),
            ("-- c\n--", StatementKind::Harmless),
            ("--1", StatementKind::Unseen),
            ("CREATE USER a", StatementKind::Harmless),
            ("SET PASSWORD FOR a = 'b'", StatementKind::Harmless),
            ("SET STATEMENT a=1 FOR DROP TABLE t", StatementKind::Definition),
            ("ANALYZE LOCAL TABLE t", StatementKind::Harmless),
            ("SET STATEMENT a=1 FOR REVOKE b FROM c", StatementKind::Harmless),
            ("SET STATEMENT a=1 FOR UPDATE t SET b = 1", StatementKind::Unseen),
            (
                "SET STATEMENT a='x for y' FOR DROP TABLE t",
                StatementKind::Unseen,
            ),
            ("CREATE OR REPLACE USER a", StatementKind::Harmless),
            ("create or replace role a", StatementKind::Harmless),
            ("CREATE OR REPLACE TABLE user (a INT)", StatementKind::Definition),
            ("INSERT INTO t VALUES (1)", StatementKind::Unseen),
            ("SELECT f()", StatementKind::Unseen),
            ("", StatementKind::Harmless),
            ("/* never closed", StatementKind::Harmless),
        ];
        for (sql, expected) in cases {
            assert_eq!(statement_kind(sql.as_bytes()), expected, "{sql}");
        }
    }

    #[test]
    fn tables_are_made_of_rows() {
        for sql in [
            "create table x as select f()",
            "CREATE OR REPLACE TABLE x (a INT COMMENT 'a') IGNORE SELECT f() AS a",
            "CREATE TEMPORARY TABLE x WITH c AS (SELECT f()) SELECT * FROM c",
            "CREATE TABLE x (a INT) VALUES ROW(f())",
            "CREATE TABLE x (a INT) AS VALUES (f())",
            "SET STATEMENT a = 1 FOR CREATE TABLE x SELECT f()",
            "CREATE TABLE x (a INT COMMENT '\\'') SELECT f()",
            "CREATE TABLE x /* it's */ SELECT f() AS 'it'",
            "CREATE TABLE x (a INT) COMMENT'c'SELECT f()",
        ] {
            assert!(makes_rows(sql.as_bytes()), "{sql}");
        }
        for sql in [
            "CREATE TABLE `select` (`values` INT COMMENT 'SELECT f()', selected INT)",
            "CREATE TABLE x (a INT) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (5))",
            "CREATE TABLE x (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (5))",
            "CREATE DEFINER=`r`@`h` FUNCTION f() RETURNS INT RETURN (SELECT 1)",
            "CREATE ALGORITHM=UNDEFINED DEFINER=`r`@`h` SQL SECURITY DEFINER VIEW v AS SELECT f()",
            "ALTER TABLE x ADD COLUMN `select` INT",
        ] {
            assert!(!makes_rows(sql.as_bytes()), "{sql}");
        }
    }

    #[test]
    fn a_table_is_found_however_it_is_written() {
        let concerned =
            |sql: &str, default: &str| concerns(sql.as_bytes(), default.as_bytes(), "shop", "items");
        for sql in [
            "TRUNCATE items",
            "ALTER TABLE `Items` FORCE",
            "rename table a to b,items to c",
            "DROP TABLE IF EXISTS x,/**/items",
            "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE items",
            "DROP DATABASE shop",
            "ALTER DATABASE CHARACTER SET latin1",
        ] {
            assert!(concerned(sql, "shop"), "{sql}");
        }
        for sql in [
            "CREATE OR REPLACE DATABASE shop",
            "SET STATEMENT lock_wait_timeout=1 FOR DROP DATABASE shop",
            "--\tc\nDROP DATABASE shop",
            "--\nDROP SCHEMA `Shop`",
            "/*!DROP*/ /**/ database/**/shop",
        ] {
            assert!(concerned(sql, "other"), "{sql}");
            assert_eq!(statement_kind(sql.as_bytes()), StatementKind::Definition, "{sql}");
        }
        assert!(concerned("TRUNCATE shop.items", "other"));
        assert!(concerned("TRUNCATE \"SHOP\".`items`", ""));
        assert!(concerned("TRUNCATE shop . items", "other"));
        for sql in [
            "TRUNCATE shop./* c */items",
            "TRUNCATE shop. -- c\n items",
            "TRUNCATE shop. # c\n `items`",
            "TRUNCATE shop.\x0bitems",
            "TRUNCATE /*!shop.*/items",
            "TRUNCATE shop/*!.items*/",
        ] {
            assert!(concerned(sql, "other"), "{sql}");
        }
        // A no-break space of latin1.
        assert!(concerns(b"TRUNCATE shop.\xa0items", b"other", "shop", "items"));
        assert!(!concerned(
            "DROP TABLE `other`.`items` /* generated by server, shop */",
            "other"
        ));
        assert!(!concerned("TRUNCATE `a-b`.items", "shop"));
        assert!(concerned(
            "RENAME TABLE other.items TO x, shop.a TO items",
            "shop"
        ));
        assert!(!concerned("TRUNCATE other.items", "shop"));
        assert!(!concerned("RENAME TABLE `other`.`items` TO shop.x", "other"));
        assert!(!concerned("TRUNCATE items", "other"));
        assert!(!concerned("DROP DATABASE shops", "other"));
        assert!(!concerned("TRUNCATE items2", "shop"));
        assert!(!concerned("TRUNCATE my_items", "shop"));
    }

    #[test]
    fn names_that_are_not_plain_are_found_everywhere() {
        assert!(concerns(b"TRUNCATE x", b"shop", "shop", "gr\u{fc}n"));
        assert!(concerns(b"TRUNCATE x", b"shop", "shop", "a`b"));
        assert!(!concerns(b"TRUNCATE x", b"other", "shop", "a`b"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(sql: Vec<u8>) {
            let _ = statement_kind(&sql);
            let _ = concerns(&sql, b"a", "a", "b");
            let _ = makes_rows(&[b"CREATE VALUES", &sql[..]].concat());
        }
    }
}
