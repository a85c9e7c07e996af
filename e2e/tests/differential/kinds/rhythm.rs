//! The rhythm of many drivers: prepare, execute, close, of the same text again and again, while what it names changes.
//!
//! What was prepared before such a change does not do what it does when it is prepared behind it.

use mysql_wire::Command;

use super::Maker;
use super::prepared::{execute, of, prepare_text};

/// What is there before, the statement, and what changes before it is prepared the second time and the third.
type Case = (
    &'static [&'static str],
    &'static str,
    [&'static [&'static str]; 2],
);

const CASES: &[Case] = &[
    (
        &[
            "CREATE TABLE r1 (a INT) ENGINE=MyISAM",
            "INSERT INTO r1 VALUES (1), (2), (NULL)",
            "CREATE TABLE r2 (b INT) ENGINE=MyISAM",
            "INSERT INTO r2 VALUES (NULL)",
        ],
        "SELECT a, a IN (SELECT b FROM r2) FROM r1",
        [&["DELETE FROM r2"], &["INSERT INTO r2 VALUES (1), (NULL)"]],
    ),
    (
        &["DELETE FROM r2"],
        "SELECT a, a NOT IN (SELECT b FROM r2), (SELECT MAX(b) FROM r2) FROM r1",
        [&["INSERT INTO r2 VALUES (NULL)"], &["DELETE FROM r2"]],
    ),
    (
        &["CREATE TABLE keyed (id INT PRIMARY KEY) ENGINE=MyISAM"],
        "EXPLAIN SELECT id FROM keyed WHERE id = 5",
        [&["INSERT INTO keyed VALUES (5)"], &["DELETE FROM keyed"]],
    ),
    (
        &[],
        "EXPLAIN SELECT a FROM r1 WHERE a > (SELECT MAX(id) FROM keyed)",
        [&["INSERT INTO keyed VALUES (1)"], &["DELETE FROM keyed"]],
    ),
    (
        &["INSERT INTO keyed VALUES (1), (2)"],
        "EXPLAIN SELECT id FROM keyed WHERE id IN (SELECT b FROM r2)",
        [&["INSERT INTO r2 VALUES (1), (2)"], &["DELETE FROM r2"]],
    ),
    (
        &["DELETE FROM keyed"],
        "SELECT a, a IN (SELECT id FROM keyed) FROM r1",
        [&["INSERT INTO keyed VALUES (1), (5)"], &["DELETE FROM keyed"]],
    ),
    (
        &["CREATE VIEW replaced AS SELECT 1 AS one"],
        "SHOW CREATE VIEW replaced",
        [
            &["CREATE OR REPLACE VIEW replaced AS SELECT 2 AS two, a FROM r1"],
            &["ALTER VIEW replaced AS SELECT 3 AS three"],
        ],
    ),
    (
        &[],
        "SELECT * FROM replaced",
        [
            &["CREATE OR REPLACE VIEW replaced AS SELECT 2 AS two, a FROM r1"],
            &["CREATE OR REPLACE VIEW replaced AS SELECT a + 1 FROM r1"],
        ],
    ),
    (
        &[],
        "SHOW FIELDS FROM r1 WHERE Field = 'a'",
        [
            &["ALTER TABLE r1 ADD COLUMN c INT"],
            &["ALTER TABLE r1 DROP COLUMN c"],
        ],
    ),
    (
        &[
            "CREATE TABLE either (a INT) ENGINE=MyISAM",
            "INSERT INTO either VALUES (1)",
        ],
        "SELECT * FROM either",
        [
            &["DROP TABLE either", "CREATE VIEW either AS SELECT 2 AS b, 3 AS c"],
            &["DROP VIEW either", "CREATE TABLE either (d VARCHAR(9))"],
        ],
    ),
    (
        &[],
        "SHOW CREATE TABLE either",
        [
            &["DROP TABLE either", "CREATE VIEW either AS SELECT 2 AS b, 3 AS c"],
            &["DROP VIEW either", "CREATE TABLE either (d VARCHAR(9))"],
        ],
    ),
    (
        &[],
        "INSERT INTO either VALUES ('x')",
        [
            &["DROP TABLE either", "CREATE TABLE either (n INT, m INT)"],
            &["DROP TABLE either", "CREATE TABLE either (t TEXT)"],
        ],
    ),
    (
        &[],
        "SELECT COUNT(*) FROM (SELECT * FROM going) AS derived",
        [
            &["CREATE TABLE going (a INT)", "INSERT INTO going VALUES (1)"],
            &["DROP TABLE going"],
        ],
    ),
    (&[], "DROP TABLE IF EXISTS nothing", [&[], &[]]),
    (&[], "CREATE TABLE IF NOT EXISTS r1 (a INT)", [&[], &[]]),
    (
        &[],
        "EXPLAIN SELECT a FROM r1 WHERE a IN (1, 2)",
        [&[], &["DELETE FROM r1"]],
    ),
    (
        &[],
        "SELECT 1 + 'a', CAST('b' AS SIGNED), (SELECT r1.a FROM r2 LIMIT 1) FROM r1",
        [&["INSERT INTO r2 VALUES (1)"], &[]],
    ),
    (&[], "SELECT @n", [&["SET @n = 'text'"], &["SET @n = NULL"]]),
    (
        &["INSERT INTO r1 VALUES (7)"],
        "SELECT * FROM r1",
        [
            &["CREATE TEMPORARY TABLE r1 (z VARCHAR(5), y INT)"],
            &["DROP TEMPORARY TABLE r1"],
        ],
    ),
    (
        &[],
        "SELECT a, a IN (SELECT b FROM r2) FROM r1",
        [
            &["CREATE TEMPORARY TABLE r2 (b INT)"],
            &["DROP TEMPORARY TABLE r2"],
        ],
    ),
];

/// What the gateway says itself on MariaDB may be another count there: it asks for the one of the statement before.
const OF_MYSQL: &[Case] = &[(
    &[],
    "GET DIAGNOSTICS @n = ROW_COUNT",
    [&["SELECT @n", "DELETE FROM r2"], &["SELECT @n"]],
)];

/// All cases, one after the other.
pub fn add(make: &mut Maker) {
    let further = if make.is_mariadb() { &[] } else { OF_MYSQL };
    for (before, text, changes) in CASES.iter().chain(further) {
        before.iter().for_each(|statement| make.add_query(statement));
        for round in 0..=changes.len() {
            let slot = prepare_text(make, text, 0);
            execute(make, slot, 0, 0);
            make.add_query("SHOW WARNINGS");
            let close = of(Command::STMT_CLOSE, slot, &[]);
            make.add(close);
            let change = changes.get(round).copied().unwrap_or_default();
            change.iter().for_each(|statement| make.add_query(statement));
        }
    }
}
