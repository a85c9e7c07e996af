//! The rhythm of many drivers: prepare, execute, close, of the same text again and again, while what it names
//! changes.
//!
//! What was prepared before such a change does not do what it does when it is prepared behind it.

use mysql_wire::Command;

use super::Maker;
use super::prepared::{CURSOR, execute, of, prepare_text};

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

/// What the gateway says itself on MariaDB may be another count there: it asks for the one of the statement
/// before.
const OF_MYSQL: &[Case] = &[(
    &[],
    "GET DIAGNOSTICS @n = ROW_COUNT",
    [&["SELECT @n", "DELETE FROM r2"], &["SELECT @n"]],
)];

/// Statements with so many parameters, of any type, executed twice before they are closed.
const WITH_PARAMETERS: &[(Case, usize)] = &[
    (
        (
            &["DELETE FROM r2", "INSERT INTO r2 VALUES (2), (NULL)"],
            "SELECT a, ?, a IN (SELECT b FROM r2 WHERE b <> ?) FROM r1 WHERE a = ? OR a <> ? ORDER BY a",
            [&["DELETE FROM r2"], &["INSERT INTO r2 VALUES (NULL), (1)"]],
        ),
        4,
    ),
    (
        (
            &[],
            "INSERT IGNORE INTO r2 VALUES (?), (?)",
            [
                &["ALTER TABLE r2 MODIFY b VARCHAR(40)"],
                &["DELETE FROM r2", "ALTER TABLE r2 MODIFY b INT"],
            ],
        ),
        2,
    ),
    (
        (
            &["SELECT * FROM r2"],
            "UPDATE r2 SET b = ? WHERE b IN (?, ?)",
            [&["SELECT * FROM r2"], &["DELETE FROM r2"]],
        ),
        3,
    ),
    (
        (
            &["CREATE PROCEDURE r_reads(x VARCHAR(40)) BEGIN SELECT a, x FROM r1 ORDER BY a; SELECT x; END"],
            "CALL r_reads(?)",
            [
                &["INSERT INTO r1 (a) VALUES (9)"],
                &[
                    "DROP PROCEDURE r_reads",
                    "CREATE PROCEDURE r_reads(x VARCHAR(40)) BEGIN DELETE FROM r2; SELECT COUNT(*), x FROM r2; END",
                ],
            ],
        ),
        1,
    ),
    (
        (
            &["CREATE PROCEDURE r_tells(OUT x INT) SET x = (SELECT COUNT(*) FROM r1)"],
            "CALL r_tells(?)",
            [&["INSERT INTO r1 (a) VALUES (10)"], &["DROP PROCEDURE r_tells"]],
        ),
        1,
    ),
];

/// Statements whose cursor is read in part, over what changes, and closed with its rows.
const WITH_CURSOR: &[Case] = &[
    (
        &["INSERT INTO r1 (a) VALUES (11), (12), (13)"],
        "SELECT a, a IN (SELECT b FROM r2) FROM r1 ORDER BY a",
        [&["INSERT INTO r2 VALUES (NULL)"], &["DELETE FROM r2"]],
    ),
    (
        &[],
        "SELECT * FROM r1 ORDER BY 1",
        [
            &["ALTER TABLE r1 ADD COLUMN d INT"],
            &["ALTER TABLE r1 DROP COLUMN d"],
        ],
    ),
];

/// All cases, one after the other.
pub fn add(make: &mut Maker) {
    let further = if make.is_mariadb() { &[] } else { OF_MYSQL };
    for case in CASES.iter().chain(further) {
        add_case(make, case, 0, |make, slot| execute(make, slot, 0, 0));
    }
    for (case, parameters) in WITH_PARAMETERS {
        add_case(make, case, *parameters, |make, slot| {
            for _ in 0..2 {
                execute(make, slot, *parameters, 0);
            }
        });
    }
    for case in WITH_CURSOR {
        add_case(make, case, 0, |make, slot| {
            execute(make, slot, 0, CURSOR);
            for rows in [1, 2] {
                let fetch = of(Command::STMT_FETCH, slot, &[rows, 0, 0, 0]);
                make.add(fetch);
            }
        });
    }
}

/// Prepares, executes and closes a statement, before each change and behind the last.
fn add_case(
    make: &mut Maker,
    (before, text, changes): &Case,
    parameters: usize,
    execute: impl Fn(&mut Maker, usize),
) {
    before.iter().for_each(|statement| make.add_query(statement));
    for round in 0..=changes.len() {
        let slot = prepare_text(make, text, parameters);
        execute(make, slot);
        make.add_query("SHOW WARNINGS");
        let close = of(Command::STMT_CLOSE, slot, &[]);
        make.add(close);
        let change = changes.get(round).copied().unwrap_or_default();
        change.iter().for_each(|statement| make.add_query(statement));
    }
}
