//! What a session says of the way in which it logs: rows in memory are those of SELECT all the same.

use sandbox::Kind;

use crate::fed::{Fed, Wishes, on_both, string};

on_both! {
    images_that_are_not_whole
    checksums_come_and_go
    rows_of_several_packets
    transactions_are_undone_in_part
    rows_that_are_logged_as_statements
    a_table_is_exchanged_for_a_partition
}

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL UNIQUE, c VARCHAR(60), b TEXT); \
     INSERT INTO t VALUES (1, 11, 'one', 'b'), (2, 12, 'two', 'b'), (3, 13, 'three', 'b'), (4, 14, 'four', 'b')";
const SELECT: &str = "SELECT id, c FROM t";
const BY_K: &str = "SELECT k, b FROM t";

fn start_with(wishes: Wishes) -> Fed {
    let mappings = vec![
        string("t", "test.t", &["id"], "c"),
        string("by_k", "test.t", &["k"], "b"),
    ];
    let fed = Fed::start(wishes, TABLE, mappings);
    compare(&fed);
    fed
}

fn compare(fed: &Fed) {
    fed.until_applied();
    // What cannot be served now is tried again without a pause.
    fed.feed.status().flush();
    fed.assert_same("t", SELECT);
    fed.assert_same("by_k", BY_K);
}

fn images_that_are_not_whole(kind: Kind) {
    let fed = start_with(Wishes::of(kind));
    // Newer ones of MariaDB only: what an UPDATE leaves as it is comes once.
    let once = fed
        .sandbox
        .primary()
        .sql("SET SESSION binlog_row_image = FULL_NODUP");
    let images = ["MINIMAL", "NOBLOB", "FULL_NODUP"];
    for (round, image) in images[..images.len() - usize::from(once.is_err())]
        .iter()
        .enumerate()
    {
        for change in [
            "UPDATE t SET c = 'changed' WHERE id = 1",
            "UPDATE t SET k = k + 100 WHERE id = 2",
            "UPDATE t SET b = CONCAT(b, '!')",
            "UPDATE t SET id = id + 100 ORDER BY id LIMIT 1",
            "DELETE FROM t ORDER BY k LIMIT 1",
            "INSERT INTO t (id, k) VALUES (500 + %, 600 + %)",
            "REPLACE INTO t (id, k, c) VALUES (500 + %, 700 + %, 'replaced')",
            "INSERT INTO t (id, k) VALUES (500 + %, 1) ON DUPLICATE KEY UPDATE c = 'again'",
        ] {
            let change = change.replace('%', &round.to_string());
            fed.sql(&format!("SET SESSION binlog_row_image = {image}; {change}"));
            compare(&fed);
        }
    }
}

/// MariaDB: the statement names no table but the new one. MySQL refuses it.
#[test]
fn mariadb_makes_tables_of_what_a_function_does() {
    let fed = start_with(Wishes::of(Kind::Mariadb));
    fed.sql(
        "DELIMITER //\n\
         CREATE FUNCTION fu(a INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA \
         BEGIN UPDATE t SET c = CONCAT('by a function ', a) WHERE id = 2; RETURN a; END//\nDELIMITER ;",
    );
    let made = [
        "TABLE x AS SELECT",
        "TEMPORARY TABLE x SELECT",
        "TABLE `x` (a INT) SELECT",
    ];
    for (round, made) in made.iter().enumerate() {
        for (at, format) in ["ROW", "STATEMENT"].iter().enumerate() {
            fed.sql(&format!(
                "SET SESSION binlog_format = {format}; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
                 CREATE {made} fu({round}{at}) AS a; DROP TABLE x"
            ));
            compare(&fed);
        }
    }
}

/// Whatever leads to them.
fn rows_that_are_logged_as_statements(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.spec = wishes.spec.option("--secure-file-priv=");
    let fed = start_with(wishes);
    fed.sql(
        "CREATE TABLE other (id INT); INSERT INTO other VALUES (1); CREATE TABLE tr (id INT);\nDELIMITER //\n\
         CREATE FUNCTION fu(a INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA \
         BEGIN UPDATE t SET c = CONCAT('by a function ', a) WHERE id = 2; RETURN a; END//\n\
         CREATE TRIGGER tr AFTER INSERT ON tr FOR EACH ROW UPDATE t SET c = CONCAT('by a trigger ', NEW.id)//\n\
         CREATE PROCEDURE pr() BEGIN UPDATE t SET c = 'by a procedure'; END//\nDELIMITER ;",
    );
    let file = fed.sandbox.folder().join("values").display().to_string();
    fed.sql(&format!("SELECT 1, 1, 'by a file', 'b' INTO OUTFILE '{file}'"));
    for change in [
        &format!("LOAD DATA INFILE '{file}' REPLACE INTO TABLE t"),
        "SET @a = fu(1)",
        "DO fu(2)",
        "SELECT fu(3)",
        "INSERT INTO other VALUES (fu(4))",
        "DELETE FROM other WHERE id > fu(5)",
        "INSERT INTO tr VALUES (6)",
        "CALL pr()",
        "PREPARE s FROM 'UPDATE t SET c = CONCAT(c, ?)'; SET @c = '!'; EXECUTE s USING @c",
        "BEGIN; UPDATE t SET c = 'and more' WHERE id = 1; SET @a = fu(7); COMMIT",
    ] {
        fed.sql(&format!(
            "SET SESSION binlog_format = STATEMENT; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; {change}"
        ));
        compare(&fed);
    }
}

fn checksums_come_and_go(kind: Kind) {
    let fed = start_with(Wishes::of(kind));
    for (round, checksum) in ["NONE", "CRC32", "NONE"].iter().enumerate() {
        fed.sql(&format!(
            "SET GLOBAL binlog_checksum = {checksum}; UPDATE t SET c = 'round {round}'"
        ));
        compare(&fed);
    }
    assert_eq!(fed.copies(), 2);
}

fn rows_of_several_packets(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.spec = wishes.spec.option("--max-allowed-packet=64M");
    let fed = start_with(wishes);
    fed.sql("ALTER TABLE t MODIFY b LONGTEXT");
    compare(&fed);
    let copies = fed.copies();
    for len in [(1 << 24) - 60, (1 << 24) + 5, 20_000_000] {
        fed.sql(&format!(
            "UPDATE t SET b = REPEAT('x', {len}) WHERE id = 1; UPDATE t SET c = {len}"
        ));
        fed.until_applied();
        fed.assert_same("t", SELECT);
        let expected = format!("11\t{}", "x".repeat(len));
        assert!(fed.rows("by_k").contains(&expected), "{len} bytes");
    }
    assert_eq!(fed.copies(), copies);
}

/// The mapped table is the other one of the two.
fn a_table_is_exchanged_for_a_partition(kind: Kind) {
    let fed = start_with(Wishes::of(kind));
    fed.sql(
        "CREATE TABLE p (id INT PRIMARY KEY, k INT NOT NULL, c VARCHAR(60), b TEXT) PARTITION BY RANGE (id) \
         (PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN MAXVALUE); \
         INSERT INTO p VALUES (7, 70, 'seven', 'of p'), (700, 7000, 'not ours', ''); \
         ALTER TABLE t DROP INDEX k; ALTER TABLE t ADD INDEX (k)",
    );
    fed.until_applied();
    fed.sql("ALTER TABLE t DROP INDEX k; ALTER TABLE p EXCHANGE PARTITION low WITH TABLE t");
    fed.until_applied();
    fed.feed.status().flush();
    fed.assert_same("t", SELECT);
    assert_eq!(fed.rows("t"), ["7\tseven"]);
}

/// MariaDB: events that replicas may leave out.
#[test]
fn mariadb_marks_events_that_replicas_may_skip() {
    let fed = start_with(Wishes::of(Kind::Mariadb));
    fed.sql(
        "SET SESSION skip_replication = 1; UPDATE t SET c = 'skipped'; INSERT INTO t (id, k) VALUES (9, 9)",
    );
    compare(&fed);
    fed.sql("SET SESSION skip_replication = 1; TRUNCATE t");
    compare(&fed);
    fed.sql("SET SESSION server_id = 99; INSERT INTO t (id, k) VALUES (9, 9)");
    compare(&fed);
    assert_eq!(fed.rows("t").len(), 1);
}

/// MySQL: GTIDs with a tag, of the session's own choice, and of nothing.
#[test]
fn mysql_gives_transactions_other_names() {
    let fed = start_with(Wishes::of(Kind::Mysql));
    let uuid = fed.sql("SELECT @@server_uuid");
    let uuid = uuid.trim();
    let mut names = vec![
        format!("{uuid}:1000"),
        "f07eba70-0000-4000-8000-000000000001:7".to_owned(),
    ];
    if fed.sandbox.release() >= [8, 3, 0] {
        names.extend(["AUTOMATIC:blue".to_owned(), format!("{uuid}:green:5")]);
    }
    for name in &names {
        fed.sql(&format!("SET gtid_next = '{name}'; UPDATE t SET c = '{name}'"));
        compare(&fed);
    }
    fed.sql(&format!(
        "SET gtid_next = '{uuid}:1001'; BEGIN; COMMIT; SET gtid_next = AUTOMATIC; UPDATE t SET c = 'last'"
    ));
    compare(&fed);
    let dump = fed.sql("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'");
    fed.sql(&format!("KILL {dump}"));
    fed.sql("UPDATE t SET c = 'behind'");
    compare(&fed);
    assert_eq!(fed.copies(), 2);
}

/// MySQL: a part of a JSON value, and what is written down beside the rows.
#[test]
fn mysql_logs_parts_of_values_and_more_than_rows() {
    let fed = start_with(Wishes::of(Kind::Mysql));
    fed.sql("SET GLOBAL binlog_row_metadata = FULL; SET GLOBAL binlog_rows_query_log_events = ON; UPDATE t SET c = 'with its words'");
    compare(&fed);
    assert_eq!(fed.copies(), 2);
    fed.sql("ALTER TABLE t ADD COLUMN j JSON; UPDATE t SET b = NULL, j = JSON_OBJECT('a', 1, 'b', REPEAT('x', 200))");
    compare(&fed);
    fed.sql("SET SESSION binlog_row_value_options = PARTIAL_JSON; UPDATE t SET j = JSON_SET(j, '$.a', 2), c = 'in parts', k = k + 50");
    compare(&fed);
    fed.sql("SET SESSION binlog_row_value_options = PARTIAL_JSON; BEGIN; UPDATE t SET c = 'before'; UPDATE t SET j = JSON_REMOVE(j, '$.a'), c = 'then'; \
             UPDATE t SET c = 'last' WHERE id = 1; COMMIT");
    compare(&fed);
}

/// Transactions with tables that know none: MySQL allows that without GTIDs only.
fn transactions_are_undone_in_part(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    if kind == Kind::Mysql {
        wishes.spec = wishes
            .spec
            .option("--gtid-mode=OFF")
            .option("--enforce-gtid-consistency=OFF");
    }
    let fed = start_with(wishes);
    fed.sql("CREATE TABLE m (id INT) ENGINE = MyISAM");
    for (round, change) in [
        "BEGIN; UPDATE t SET c = 'no'; INSERT INTO m VALUES (1); ROLLBACK",
        "BEGIN; UPDATE t SET c = 'yes' WHERE id = 2; SAVEPOINT a; INSERT INTO m VALUES (2); UPDATE t SET c = 'no'; ROLLBACK TO a; COMMIT",
        "BEGIN; SAVEPOINT a; UPDATE t SET c = 'no'; INSERT INTO m SELECT id FROM t; ROLLBACK WORK TO SAVEPOINT a; UPDATE t SET c = 'well' WHERE id = 3; COMMIT",
        "BEGIN; UPDATE t SET c = 'first'; SAVEPOINT `TO a`; INSERT INTO m VALUES (4); UPDATE t SET c = 'no'; rollback /* TO */ to savepoint `TO a`; COMMIT",
        "SET SESSION binlog_direct_non_transactional_updates = ON, autocommit = 0; UPDATE t SET c = 'no'; UPDATE m SET id = 9; ROLLBACK; SET autocommit = 1",
        "UPDATE t, m SET t.c = 'both', m.id = 7 WHERE t.id = 1",
        "BEGIN; UPDATE t SET c = 'no'; CREATE TEMPORARY TABLE te (id INT); DROP TEMPORARY TABLE te; ROLLBACK",
    ]
    .iter()
    .enumerate()
    {
        let id = 1000 + round;
        fed.sql(&format!("{change}; INSERT INTO t VALUES ({id}, {id}, 'mark', '')"));
        fed.until("all of it has come", || fed.rows("t").contains(&format!("{id}\tmark")));
        compare(&fed);
    }
}
