//! Statements that change tables without row events.

use std::sync::Arc;

use cache::feed::Phase;
use sandbox::Kind;

use crate::fed::{Fed, Wishes, hash, on_both, string};

on_both! {
    truncate_empties_it
    drop_and_create_are_followed
    rename_swaps_tables
    alter_gives_it_another_shape
    partitions_are_exchanged
    indexes_come_and_go_without_a_copy
    what_is_no_table_costs_no_copy
    a_schema_is_dropped
    a_table_changes_its_shape_while_it_is_copied
    other_tables_change_nothing
    a_table_that_cannot_be_mapped_says_why
}

const TABLE: &str =
    "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two')";
const SELECT: &str = "SELECT id, c FROM t";

fn start(kind: Kind, sql: &str) -> Fed {
    let fed = Fed::start(Wishes::of(kind), sql, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    fed
}

fn until_waiting(fed: &Fed, reason: &str) {
    let told = || matches!(fed.phase("t"), Phase::Waiting { reason: found } if found.contains(reason));
    fed.until(reason, told);
}

fn truncate_empties_it(kind: Kind) {
    let fed = start(kind, TABLE);
    fed.sql("TRUNCATE t");
    fed.until_applied();
    fed.assert_same("t", SELECT);
    assert_eq!(fed.rows("t").len(), 0);
    fed.sql("INSERT INTO t VALUES (5, 'five')");
    fed.assert_same("t", SELECT);
}

fn drop_and_create_are_followed(kind: Kind) {
    let fed = start(kind, TABLE);
    fed.sql("DROP TABLE t");
    until_waiting(&fed, "no such table");
    fed.sql("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, c INT); INSERT INTO t VALUES (18446744073709551615, -3)");
    fed.assert_same("t", SELECT);
    fed.sql("CREATE OR REPLACE VIEW v AS SELECT 1; DROP TABLE t; CREATE TABLE t (id INT PRIMARY KEY, c INT) SELECT 4 AS id, 5 AS c");
    fed.until_applied();
    fed.assert_same("t", SELECT);
}

fn rename_swaps_tables(kind: Kind) {
    let sql = format!("{TABLE}; CREATE TABLE u LIKE t; INSERT INTO u VALUES (9, 'nine')");
    let fed = start(kind, &sql);
    fed.sql("RENAME TABLE t TO w, u TO t");
    fed.sql("INSERT INTO t VALUES (10, 'ten'); INSERT INTO w VALUES (11, 'not ours')");
    fed.until_applied();
    fed.assert_same("t", SELECT);
    fed.sql("ALTER TABLE t RENAME TO x");
    until_waiting(&fed, "no such table");
    fed.sql("ALTER TABLE w RENAME TO t");
    fed.until_applied();
    fed.assert_same("t", SELECT);
}

fn alter_gives_it_another_shape(kind: Kind) {
    let fed = start(kind, TABLE);
    for alter in [
        "ADD COLUMN d INT FIRST",
        "MODIFY c INT, ADD e INT DEFAULT 7 AFTER d",
        "DROP COLUMN d, MODIFY id BIGINT",
        "CHANGE c c VARCHAR(20) CHARACTER SET latin1",
    ] {
        fed.sql(&format!(
            "UPDATE t SET c = 5; ALTER TABLE t {alter}; UPDATE t SET c = 6 WHERE id = 1"
        ));
        fed.until_applied();
        fed.assert_same("t", SELECT);
    }
    fed.sql("ALTER TABLE t CHANGE c other INT");
    until_waiting(&fed, "no such column");
    fed.sql("ALTER TABLE t CHANGE other c INT");
    fed.assert_same("t", SELECT);
    fed.sql("ALTER TABLE t DROP PRIMARY KEY");
    until_waiting(&fed, "no unique index");
}

/// A statement is in the binary log before the server goes by the definition that it makes: here a while
/// before.
#[test]
fn mysql_logs_a_definition_before_it_shows_it() {
    let mut wishes = Wishes::of(Kind::Mysql);
    wishes.spec = wishes.spec.option("--binlog-group-commit-sync-delay=200000");
    let sql = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60), d VARCHAR(60)); INSERT INTO t VALUES (1, 'c', 'd')";
    let fed = Fed::start(wishes, sql, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    fed.sql("ALTER TABLE t MODIFY c VARCHAR(60) AFTER d");
    fed.until_applied();
    fed.until_served("t");
    fed.sql("UPDATE t SET d = 'other'");
    fed.assert_same("t", SELECT);
}

fn partitions_are_exchanged(kind: Kind) {
    let sql = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)) PARTITION BY RANGE (id) \
         (PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN MAXVALUE); \
         INSERT INTO t VALUES (1, 'one'), (200, 'two hundred'); \
         CREATE TABLE u (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO u VALUES (7, 'seven')";
    let fed = start(kind, sql);
    for alter in [
        "EXCHANGE PARTITION low WITH TABLE u",
        "TRUNCATE PARTITION high",
        "DROP PARTITION low",
    ] {
        fed.sql(&format!("ALTER TABLE t {alter}"));
        fed.until_applied();
        fed.assert_same("t", SELECT);
    }
}

fn indexes_come_and_go_without_a_copy(kind: Kind) {
    let sql = "CREATE TABLE t (pk INT AUTO_INCREMENT PRIMARY KEY, id INT NOT NULL, c VARCHAR(60), UNIQUE KEY k (id)); \
         INSERT INTO t (id, c) VALUES (1, 'one'), (2, 'two')";
    let fed = start(kind, sql);
    let before = fed.until_served("t");
    for (round, change) in [
        "CREATE INDEX by_c ON t (c)",
        "ALTER TABLE t ADD UNIQUE KEY both_ (id, c), COMMENT = 'with indexes', ALGORITHM = COPY",
        "ALTER TABLE test.t ADD INDEX (c(10) DESC), DROP INDEX by_c",
        "DROP INDEX `both_` ON t",
        "CREATE UNIQUE INDEX second ON t (id)",
    ]
    .iter()
    .enumerate()
    {
        fed.sql(&format!(
            "UPDATE t SET c = 'before {round}'; {change}; INSERT INTO t (id, c) VALUES (10 + {round}, 'behind'); \
             UPDATE t SET c = 'behind {round}' WHERE id = 1"
        ));
        fed.assert_same("t", SELECT);
        assert!(Arc::ptr_eq(&before, &fed.until_served("t")), "{change}");
    }
    assert_eq!(fed.copies(), 1);
    fed.sql("DROP INDEX k ON t");
    fed.until_applied();
    fed.assert_same("t", SELECT);
    assert_eq!(&*fed.until_served("t").index.name, "second");
    fed.sql("ALTER TABLE t DROP INDEX second");
    until_waiting(&fed, "no unique index");
    fed.sql("CREATE UNIQUE INDEX third ON t (id)");
    fed.assert_same("t", SELECT);
}

/// Temporary tables are in the log where a session does not log rows.
fn what_is_no_table_costs_no_copy(kind: Kind) {
    let fed = start(kind, TABLE);
    let before = fed.until_served("t");
    let statements = "SET SESSION binlog_format = STATEMENT";
    for (round, change) in [
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE OR REPLACE SQL SECURITY INVOKER VIEW v AS SELECT id FROM t",
        "ALTER VIEW v AS SELECT c FROM t",
        "CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW SET NEW.c = CONCAT(NEW.c, ' by a trigger')",
        "CREATE PROCEDURE p() TRUNCATE TABLE t",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC READS SQL DATA RETURN (SELECT COUNT(*) FROM t)",
        "CREATE EVENT e ON SCHEDULE AT NOW() + INTERVAL 1 DAY DO DELETE FROM t",
        "ALTER EVENT e DISABLE COMMENT 't'",
        "DROP EVENT e; DROP FUNCTION IF EXISTS f; DROP PROCEDURE p; DROP TRIGGER tr; DROP VIEW v",
        &format!("{statements}; CREATE TEMPORARY TABLE t (id INT); DROP TABLE t"),
        &format!("{statements}; CREATE TEMPORARY TABLE t (id INT); DROP TEMPORARY TABLE test.t"),
        &format!("{statements}; CREATE TEMPORARY TABLE t (id INT); CREATE TEMPORARY TABLE u (id INT); DROP TEMPORARY TABLE IF EXISTS u, t"),
        &format!("{statements}; CREATE TEMPORARY TABLE t (id INT)"),
    ]
    .iter()
    .enumerate()
    {
        fed.sql(change);
        fed.sql(&format!("UPDATE t SET c = 'behind {round}' WHERE id = 1"));
        fed.assert_same("t", SELECT);
        assert!(Arc::ptr_eq(&before, &fed.until_served("t")), "{change}");
    }
    fed.until("temporary tables are in the log", || {
        let files = fed.sql("SHOW BINARY LOGS");
        let file = files.lines().last().unwrap().split('\t').next().unwrap();
        let events = fed.sql(&format!("SHOW BINLOG EVENTS IN '{file}'"));
        events.contains("DROP TEMPORARY TABLE") && events.contains("DROP /*!40005 TEMPORARY */ TABLE")
    });
    fed.assert_same("t", SELECT);
    assert_eq!(fed.copies(), 1);
    fed.sql("CREATE VIEW v AS SELECT * FROM t; DROP TABLE IF EXISTS nothing, t");
    until_waiting(&fed, "no such table");
}

fn a_schema_is_dropped(kind: Kind) {
    let sql = "CREATE DATABASE shop; CREATE TABLE shop.items (id INT PRIMARY KEY, c INT); INSERT INTO shop.items VALUES (1, 2)";
    let fed = Fed::start(
        Wishes::of(kind),
        sql,
        vec![string("t", "shop.items", &["id"], "c")],
    );
    fed.assert_same("t", "SELECT id, c FROM shop.items");
    fed.sql("DROP DATABASE shop");
    until_waiting(&fed, "no such table");
    fed.sql(sql);
    fed.assert_same("t", "SELECT id, c FROM shop.items");
    if kind == Kind::Mariadb {
        for drop in [
            "CREATE OR REPLACE DATABASE shop",
            "SET STATEMENT lock_wait_timeout = 5 FOR DROP DATABASE shop",
        ] {
            fed.sql(drop);
            until_waiting(&fed, "no such table");
            fed.sql(&sql.replace("CREATE DATABASE", "CREATE DATABASE IF NOT EXISTS"));
            fed.assert_same("t", "SELECT id, c FROM shop.items");
        }
    }
}

fn a_table_changes_its_shape_while_it_is_copied(kind: Kind) {
    let rows = "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < 20000) \
         SELECT id, CONCAT('row ', id), id FROM n";
    let limit = match kind {
        Kind::Mysql => "SET SESSION cte_max_recursion_depth = 100000",
        _ => "SET SESSION max_recursive_iterations = 100000",
    };
    let table = "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(60), b VARCHAR(60))";
    let mut wishes = Wishes::of(kind);
    // Small ones, so that no copy comes to its end before it is seen.
    wishes.chunk = 5;
    let fed = Fed::start(
        wishes,
        &format!("{limit}; {table}; {rows}"),
        vec![hash("t", "test.t", &["id"])],
    );
    let copying = || matches!(fed.phase("t"), Phase::Copying { rows, .. } if rows > 0);
    for round in 0..4 {
        fed.until("it is being copied", copying);
        // The same types in another order: only the statement tells.
        fed.sql(&format!(
            "UPDATE t SET a = 'first {round}' WHERE id < 30; ALTER TABLE t MODIFY b VARCHAR(60) FIRST; \
             UPDATE t SET b = 'second {round}' WHERE id > 19900; ALTER TABLE t MODIFY b VARCHAR(60) AFTER a"
        ));
        // The copy that was under way is given up by then.
        fed.until_applied();
    }
    fed.assert_same("t", "SELECT id, id, a, b FROM t");
    assert!(fed.copies() >= 4, "{}", fed.copies());
}

fn other_tables_change_nothing(kind: Kind) {
    let fed = start(kind, TABLE);
    fed.sql("CREATE TABLE t2 (id INT PRIMARY KEY); ALTER TABLE t2 ADD c INT; DROP TABLE t2; CREATE DATABASE other; \
             CREATE TABLE other.t (id INT PRIMARY KEY); INSERT INTO other.t VALUES (7); TRUNCATE other.t; DROP DATABASE other; \
             CREATE USER someone; DROP USER someone; ANALYZE TABLE t; INSERT INTO t VALUES (3, 'three')");
    fed.assert_same("t", SELECT);
    assert_eq!(fed.copies(), 1);
}

fn a_table_that_cannot_be_mapped_says_why(kind: Kind) {
    let sql = "CREATE TABLE t (id INT PRIMARY KEY, c INT) ENGINE = MyISAM";
    let fed = Fed::start(Wishes::of(kind), sql, vec![string("t", "test.t", &["id"], "c")]);
    until_waiting(&fed, "its engine is MyISAM");
    fed.sql("ALTER TABLE t ENGINE = InnoDB; INSERT INTO t VALUES (1, 1)");
    fed.assert_same("t", SELECT);
}
