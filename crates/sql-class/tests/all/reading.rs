//! Texts are cut into statements and words as a server would, whatever its dialect, version, mode and
//! character set.

use sql_class::{Charset, Class, Dialect, Effects, Hint, Syntax, facts};

const MYSQL: Syntax = Syntax {
    ansi_quotes: false,
    no_backslash_escapes: false,
    charset: Charset::Utf8,
    dialect: Dialect::MySql { version: 90_704 },
};
const MYSQL_8: Syntax = Syntax {
    dialect: Dialect::MySql { version: 80_046 },
    ..MYSQL
};
const MARIADB: Syntax = Syntax {
    dialect: Dialect::MariaDb { version: 101_119 },
    ..MYSQL
};

fn class(sql: impl AsRef<[u8]>, syntax: Syntax) -> Class {
    facts(sql.as_ref(), syntax).class
}

fn is_incomplete(sql: impl AsRef<[u8]>, syntax: Syntax) -> bool {
    let facts = facts(sql.as_ref(), syntax);
    let incomplete = facts.effects.contains(Effects::INCOMPLETE);
    assert!(!incomplete || facts.class >= Class::Write);
    incomplete
}

#[test]
fn version_comments() {
    let sql = "SELECT 1 FROM t /*!90000 FOR UPDATE */";
    assert_eq!(class(sql, MYSQL), Class::LockingRead);
    assert_eq!(class(sql, MYSQL_8), Class::Read);
    assert_eq!(
        class(sql, MARIADB),
        Class::Read,
        "what MySQL 5.7 and later alone know"
    );
    let sql = "SELECT 1 FROM t /*!50600 FOR UPDATE */";
    assert_eq!(class(sql, MARIADB), Class::LockingRead);
    let sql = "SELECT 1 FROM t /*M!100500 FOR UPDATE */";
    assert_eq!(class(sql, MARIADB), Class::LockingRead);
    assert_eq!(class(sql, MYSQL), Class::Read);
    let sql = "SELECT 1 FROM t /*M!110500 FOR UPDATE */";
    assert_eq!(class(sql, MARIADB), Class::Read);
    let sql = "SELECT 1 FROM t /*! FOR UPDATE */";
    assert_eq!(
        (class(sql, MYSQL), class(sql, MARIADB)),
        (Class::LockingRead, Class::LockingRead)
    );
    let sql = "/*!40101 SET NAMES utf8 */";
    assert_eq!(
        (class(sql, MYSQL), class(sql, MARIADB)),
        (Class::Session, Class::Session)
    );
    assert_eq!(
        class("SELECT 1 /*!99999 /* inner */ FOR UPDATE */", MYSQL),
        Class::Read,
        "nested, and skipped"
    );
    assert!(
        is_incomplete("SELECT 1 /*!500001 + 1 */", MYSQL),
        "five digits or six?"
    );
    assert!(is_incomplete("SELECT 1 /*! + 1", MYSQL));
}

#[test]
fn comments() {
    assert_eq!(
        class("SELECT 1 FROM t --FOR UPDATE", MYSQL),
        Class::Unknown.min(Class::LockingRead)
    );
    assert_eq!(class("SELECT 1 FROM t -- FOR UPDATE", MYSQL), Class::Read);
    assert_eq!(class("SELECT 1 --\tFOR UPDATE\n+ 1", MYSQL), Class::Read);
    assert_eq!(class("SELECT 1 --", MYSQL), Class::Read);
    assert_eq!(
        class("SELECT 1 # x\nFROM t FOR UPDATE", MYSQL),
        Class::LockingRead
    );
    assert_eq!(class("SELECT/*x*/1/**/FOR/***/UPDATE", MYSQL), Class::LockingRead);
    assert!(is_incomplete("SELECT 1 /* FOR UPDATE", MYSQL));
    assert!(
        is_incomplete("SELECT /*+ QB_NAME(`*/`) */ 1", MYSQL),
        "a hint's end is outside of quotes"
    );
    assert!(!is_incomplete("SELECT /*+ QB_NAME(`x`) */ 1", MYSQL));
}

#[test]
fn quotes() {
    assert_eq!(
        class(r"SELECT '\' FOR UPDATE ; DELETE FROM t'", MYSQL),
        Class::Read
    );
    let raw = Syntax {
        no_backslash_escapes: true,
        ..MYSQL
    };
    assert_eq!(class(r"SELECT '\' FROM t FOR UPDATE", raw), Class::LockingRead);
    assert!(is_incomplete(r"SELECT '\' FROM t FOR UPDATE", MYSQL));
    assert_eq!(
        class("SELECT 'it''s' FROM t FOR UPDATE", MYSQL),
        Class::LockingRead
    );
    assert_eq!(
        class("SELECT `a``b` FROM t FOR UPDATE", MYSQL),
        Class::LockingRead
    );
    assert_eq!(class(r"SELECT `\` FROM t FOR UPDATE", MYSQL), Class::LockingRead);

    let sql = r#"SELECT "\" FROM t FOR UPDATE"#;
    let ansi = Syntax {
        ansi_quotes: true,
        ..MYSQL
    };
    assert_eq!(class(sql, ansi), Class::LockingRead, "a name has no escapes");
    assert!(is_incomplete(sql, MYSQL));
    assert!(
        facts(br#"SELECT "f"(1)"#, ansi)
            .effects
            .contains(Effects::UNKNOWN_FUNCTION)
    );

    for literal in [
        "x'41'",
        "b'1'",
        "N'n'",
        "_utf8'u'",
        "_utf8 \"u\"",
        "0xAF",
        "0b01",
        "1.5e-3",
        ".5",
        "1.",
    ] {
        assert_eq!(
            class(format!("SELECT {literal} FOR UPDATE"), MYSQL),
            Class::LockingRead,
            "{literal}"
        );
    }
    assert!(is_incomplete("SELECT 'x", MYSQL));
    assert!(
        is_incomplete("SELECT $$ FOR UPDATE $$", MYSQL),
        "MySQL 9 quotes with dollars"
    );
    assert!(!is_incomplete("SELECT $$ FROM t", MARIADB));
}

#[test]
fn the_second_byte_of_a_character_is_no_quote() {
    let with = |charset| Syntax { charset, ..MYSQL };
    // In GBK the backslash belongs to the character, and the quote closes; in UTF-8 it escapes the quote.
    let sql = b"SELECT '\xBF\\' FROM t FOR UPDATE -- '";
    assert_eq!(class(sql, with(Charset::Gbk)), Class::LockingRead);
    assert_eq!(class(sql, with(Charset::Utf8)), Class::Read);
    assert_eq!(class(sql, with(Charset::SingleByte)), Class::Read);
    let sql = b"SELECT '\x83\\' FROM t FOR UPDATE";
    assert_eq!(class(sql, with(Charset::Sjis)), Class::LockingRead);
    let sql = b"SELECT '\xA5\\' FROM t FOR UPDATE";
    assert_eq!(class(sql, with(Charset::Big5)), Class::LockingRead);
    // A backquote as the second byte, in a quoted name and outside.
    let sql = b"SELECT `\x81\x60` FROM t FOR UPDATE";
    assert_eq!(class(sql, with(Charset::Gbk)), Class::LockingRead);
    let sql = b"SELECT \x81\x60 FROM t FOR UPDATE";
    assert_eq!(class(sql, with(Charset::Gbk)), Class::LockingRead);
    assert!(is_incomplete(sql, with(Charset::Utf8)));
}

#[test]
fn a_space_of_latin1_is_not_trusted() {
    let latin1 = Syntax {
        charset: Charset::SingleByte,
        ..MYSQL
    };
    assert!(is_incomplete(b"SELECT 1 FROM t FOR\xA0UPDATE", latin1));
    assert!(is_incomplete(b"SELECT 1 --\xA0x", latin1));
    assert!(!is_incomplete(
        b"SELECT \xE9t\xE9 FROM t WHERE a = '\xA0'",
        latin1
    ));
}

#[test]
fn names_next_to_a_dot_are_no_keywords() {
    assert_eq!(class("SELECT t.for, update.x FROM t", MYSQL), Class::Read);
    assert_eq!(class("SELECT for.update FROM t", MYSQL), Class::Read);
    assert_eq!(class("select.x", MYSQL), Class::Unknown);
    assert_eq!(
        class("SELECT 1.FOR UPDATE", MYSQL),
        Class::LockingRead,
        "a number ends with its dot"
    );
    assert_eq!(
        class("SELECT 1eFOR FROM t", MYSQL),
        Class::Read,
        "a name may begin with a digit"
    );
    assert_eq!(class("SELECT 1e5FOR UPDATE", MYSQL), Class::LockingRead);
}

#[test]
fn hints() {
    let hint = |sql: &str| facts(sql.as_bytes(), MYSQL).hint;
    assert_eq!(hint("/* forebay: primary */ SELECT 1"), Some(Hint::Primary));
    assert_eq!(hint("SELECT /*Forebay:replica*/ 1"), Some(Hint::Replica));
    assert_eq!(
        hint("-- forebay: server=db-1:3306\nSELECT 1"),
        Some(Hint::Server("db-1:3306".into()))
    );
    assert_eq!(
        hint("/* app */ /* forebay: tag=report */ SELECT 1"),
        Some(Hint::Tag("report".into()))
    );
    assert_eq!(
        hint("/* forebay: tag=report */ SELECT /* forebay: replica */ 1"),
        Some(Hint::Replica)
    );
    assert_eq!(
        hint("/* forebay: tag=report, primary */ SELECT 1"),
        Some(Hint::Primary)
    );
    assert_eq!(hint("( /* forebay: primary */ SELECT 1)"), Some(Hint::Primary));
    assert_eq!(hint("SELECT 1 /* forebay: primary */"), None);
    assert_eq!(hint("SELECT '/* forebay: primary */'"), None);
    assert_eq!(hint("/* forebay: nonsense */ SELECT 1"), None);
    assert_eq!(hint("/* forebay: server= */ SELECT 1"), None);
    assert_eq!(hint("/* forebayer: primary */ SELECT 1"), None);
    assert_eq!(hint("SELECT 1; /* forebay: primary */ SELECT 2"), None);
}

#[test]
fn a_long_nest_is_no_danger() {
    let sql = "EXPLAIN ".repeat(100_000);
    assert_eq!(class(sql, MYSQL), Class::Unknown);
    let sql = "SET STATEMENT a=1 FOR ".repeat(100_000);
    assert_eq!(class(sql, MARIADB), Class::Unknown);
    assert_eq!(class("(".repeat(100_000), MYSQL), Class::Unknown);
    assert_eq!(class("/*".repeat(100_000), MYSQL), Class::Unknown);
    assert_eq!(class("/*!50000 ".repeat(100_000), MYSQL), Class::Unknown);
}
