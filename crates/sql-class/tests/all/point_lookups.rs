//! What is a point lookup, and what only looks like one.

use proptest::prelude::*;
use sql_class::{Charset, Class, Effects, Syntax, Value, facts, point_lookup};

fn described(sql: &str, syntax: Syntax) -> Option<String> {
    let lookup = point_lookup(sql.as_bytes(), syntax)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut out = lookup.schema.map_or(String::new(), |schema| text(schema) + ".");
    out += &text(lookup.table);
    for condition in lookup.conditions() {
        let value = match condition.value {
            Value::Integer { negative, magnitude } => {
                format!("{}{magnitude}", if negative { "-" } else { "" })
            }
            Value::Text(content) => format!("'{}'", text(content)),
            Value::Parameter => "?".to_owned(),
        };
        out += &format!(" {}={value}", text(condition.column));
        let written = &sql[condition.start..condition.end];
        assert!(
            value == written || written.ends_with('"') || written.starts_with('0'),
            "{written}"
        );
    }
    Some(out)
}

#[test]
fn lookups() {
    for (sql, expected) in [
        ("SELECT c FROM sbtest1 WHERE id=12345", "sbtest1 id=12345"),
        ("select c from sbtest1 where id = ?;", "sbtest1 id=?"),
        (
            "SELECT `a`,b AS x , t.c FROM `shop`.`t` WHERE t.`a`=1 AND b='x y'",
            "shop.t a=1 b='x y'",
        ),
        ("SELECT * FROM t AS x WHERE x.id = -5 LIMIT 1", "t id=-5"),
        ("SELECT t.* FROM d.t x WHERE d.t.id=007 ; ", "d.t id=7"),
        ("/* app */ SELECT /* q */ c\nFROM t\tWHERE id=\"k\"", "t id='k'"),
        ("SELECT*FROM`t`WHERE`id`=1", "t id=1"),
        ("SELECT c FROM t WHERE a=1 AND b=2 AND a=3", "t a=1 b=2 a=3"),
        (
            "SELECT c FROM t WHERE id=18446744073709551615",
            "t id=18446744073709551615",
        ),
        ("SELECT c FROM t WHERE `current_user`='x'", "t current_user='x'"),
        ("SELECT c FROM t WHERE t.current_user='x'", "t current_user='x'"),
        ("SELECT c FROM t WHERE name='é'", "t name='é'"),
    ] {
        assert_eq!(
            described(sql, Syntax::default()).as_deref(),
            Some(expected),
            "{sql}"
        );
    }
}

const NOT_CERTAIN: &[&str] = &[
    "",
    "SELECT",
    "SELECT 1",
    "SELECT c FROM t",
    "SELECT c FROM t WHERE",
    "SELECT c FROM t WHERE id",
    "SELECT c FROM t WHERE id=",
    "SELECT c FROM t WHERE id=1 OR id=2",
    "SELECT c FROM t WHERE id=1 AND",
    "SELECT c FROM t WHERE id=1.0",
    "SELECT c FROM t WHERE id=1e3",
    "SELECT c FROM t WHERE id=0x1F",
    "SELECT c FROM t WHERE id=1a",
    "SELECT c FROM t WHERE id=18446744073709551616",
    "SELECT c FROM t WHERE id=NULL",
    "SELECT c FROM t WHERE id IS NULL",
    "SELECT c FROM t WHERE id<=>1",
    "SELECT c FROM t WHERE id>=1",
    "SELECT c FROM t WHERE id=1+1",
    "SELECT c FROM t WHERE id=+1",
    "SELECT c FROM t WHERE id=--1",
    "SELECT c FROM t WHERE id=- 1",
    "SELECT c FROM t WHERE id=(1)",
    "SELECT c FROM t WHERE (id=1)",
    "SELECT c FROM t WHERE 1=id",
    "SELECT c FROM t WHERE NOT id=1",
    "SELECT c FROM t WHERE id IN (1)",
    "SELECT c FROM t WHERE id=@a",
    "SELECT c FROM t WHERE id=b",
    "SELECT c FROM t WHERE CURRENT_USER='x'",
    "SELECT c FROM t WHERE id='a\\'b'",
    "SELECT c FROM t WHERE id='a''b'",
    "SELECT c FROM t WHERE id='a' 'b'",
    "SELECT c FROM t WHERE id=N'a'",
    "SELECT c FROM t WHERE id=x'41'",
    "SELECT c FROM t WHERE id=_utf8'a'",
    "SELECT c FROM t WHERE id='a' COLLATE utf8mb4_bin",
    "SELECT c FROM t WHERE id=DATE'2020-01-01'",
    "SELECT c FROM t WHERE id='a",
    "SELECT c FROM t WHERE BINARY id='a'",
    "SELECT c FROM t WHERE id=1 LIMIT 0",
    "SELECT c FROM t WHERE id=1 LIMIT 1,1",
    "SELECT c FROM t WHERE id=1 LIMIT 1 OFFSET 1",
    "SELECT c FROM t WHERE id=1 LIMIT ?",
    "SELECT c FROM t WHERE id=1 FOR UPDATE",
    "SELECT c FROM t WHERE id=1 LOCK IN SHARE MODE",
    "SELECT c FROM t WHERE id=1 ORDER BY c",
    "SELECT c FROM t WHERE id=1 GROUP BY c",
    "SELECT c FROM t WHERE id=1 UNION SELECT 1",
    "SELECT c FROM t WHERE id=1 INTO @a",
    "SELECT c INTO @a FROM t WHERE id=1",
    "SELECT c FROM t WHERE id=1; SELECT 2",
    "SELECT c FROM t WHERE id=1;;",
    "SELECT DISTINCT c FROM t WHERE id=1",
    "SELECT SQL_NO_CACHE c FROM t WHERE id=1",
    "SELECT c d FROM t WHERE id=1",
    "SELECT f(c) FROM t WHERE id=1",
    "SELECT f (c) FROM t WHERE id=1",
    "SELECT c+1 FROM t WHERE id=1",
    "SELECT 1 FROM t WHERE id=1",
    "SELECT 'c' FROM t WHERE id=1",
    "SELECT @c FROM t WHERE id=1",
    "SELECT c, FROM t WHERE id=1",
    "SELECT c FROM t, u WHERE id=1",
    "SELECT c FROM t JOIN u WHERE id=1",
    "SELECT c FROM t PARTITION (p) WHERE id=1",
    "SELECT c FROM t USE INDEX (a) WHERE id=1",
    "SELECT c FROM (SELECT 1) t WHERE id=1",
    "SELECT c FROM t FOR SYSTEM_TIME ALL WHERE id=1",
    "SELECT /*+ MAX_EXECUTION_TIME(1) */ c FROM t WHERE id=1",
    "SELECT /*! SQL_CALC_FOUND_ROWS */ c FROM t WHERE id=1",
    "SELECT /*M! 1 */ c FROM t WHERE id=1",
    "/* forebay: primary */ SELECT c FROM t WHERE id=1",
    "SELECT c FROM t WHERE id=1 -- x",
    "SELECT c FROM t WHERE id=1 # x",
    "SELECT c FROM t WHERE id=1 /* x",
    "(SELECT c FROM t WHERE id=1)",
    "SELECT c FROM d.e.t WHERE id=1",
    "SELECT c FROM t$ WHERE id=1",
    "SELECT c FROM tä WHERE id=1",
    "SELECT c FROM `a``b` WHERE id=1",
    "SELECT c.d.e.f FROM t WHERE id=1",
    "SELECT c->'$.a' FROM t WHERE id=1",
    "SELECT c:=1 FROM t WHERE id=1",
    "SELECT c FROM t WHERE id=1 AND (b=2)",
    "SELECT c FROM t WHERE id=1AND b=2",
    "SELECTc FROM t WHERE id=1",
    "SELECT c FROM t WHERE id='a'AND\u{a0}b=1",
    "SELECT c FROM t WHERE id=1 PROCEDURE ANALYSE()",
    "SELECT c FROM t WHERE a=1 AND b=1 AND c=1 AND d=1 AND e=1 AND f=1 AND g=1 AND h=1 AND i=1",
    "EXPLAIN SELECT c FROM t WHERE id=1",
    "WITH t AS (SELECT 1) SELECT c FROM t WHERE id=1",
    "SET STATEMENT max_statement_time=1 FOR SELECT c FROM t WHERE id=1",
];

#[test]
fn what_is_not_certain_is_none() {
    for sql in NOT_CERTAIN {
        assert_eq!(described(sql, Syntax::default()), None, "{sql}");
    }
}

#[test]
fn quotes_and_bytes_mean_what_the_session_says() {
    let ansi = Syntax {
        ansi_quotes: true,
        ..Syntax::default()
    };
    let double = "SELECT \"c\" FROM t WHERE \"id\"=1";
    assert_eq!(described(double, ansi).as_deref(), Some("t id=1"));
    assert_eq!(described(double, Syntax::default()), None);
    assert_eq!(described("SELECT c FROM t WHERE id=\"a\"", ansi), None);
    let plain = Syntax {
        no_backslash_escapes: true,
        ..Syntax::default()
    };
    let backslash = "SELECT c FROM t WHERE id='a\\'";
    assert_eq!(described(backslash, plain).as_deref(), Some("t id='a\\'"));
    assert_eq!(described(backslash, Syntax::default()), None);
    let gbk = Syntax {
        charset: Charset::Gbk,
        ..Syntax::default()
    };
    assert_eq!(described("SELECT c FROM t WHERE id='é'", gbk), None);
    assert_eq!(
        described("SELECT c FROM t WHERE id='e'", gbk).as_deref(),
        Some("t id='e'")
    );
}

proptest! {
    /// Made of the pieces of lookups, in any order: whatever is taken for a lookup is a plain read to the
    /// other classifier.
    #[test]
    fn a_lookup_is_a_plain_read(pieces in prop::collection::vec(prop::sample::select(vec![
        "SELECT ", "c", ",", " FROM ", "t", "d.t", " WHERE ", "id", "=", "1", "'a'", "?", " AND ", " AS ", "x", ";", " LIMIT 1",
        "*", "`k`", "/* c */", " ", "f(", ")", "@v", "--", "\"", "'", " INTO ", " FOR UPDATE",
    ]), 0..16)) {
        let sql = pieces.concat();
        if point_lookup(sql.as_bytes(), Syntax::default()).is_some() {
            let facts = facts(sql.as_bytes(), Syntax::default());
            prop_assert_eq!((facts.class, facts.effects, facts.statements), (Class::Read, Effects::NONE, 1), "{}", sql);
        }
    }

    #[test]
    fn any_bytes_are_safe(sql in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut text = b"SELECT c FROM t WHERE id=".to_vec();
        text.extend(&sql);
        let _ = point_lookup(&text, Syntax::default());
        let _ = point_lookup(&sql, Syntax::default());
    }
}
