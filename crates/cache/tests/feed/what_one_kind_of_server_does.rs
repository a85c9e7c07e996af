//! Ways to write a binary log that only some servers have.

use cache::coherence::Place;
use cache::feed::Phase;
use sandbox::{Kind, mariadb_11};

use crate::fed::{Fed, Wishes, hash, string};

const TABLE: &str =
    "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two')";
const SELECT: &str = "SELECT id, c FROM t";

/// MariaDB 11: ALTER in two parts, in the middle of which others write; and transactions that become a file
/// of their own.
#[test]
fn mariadb_11_alters_online_and_logs_large_transactions_as_files() {
    let mut wishes = Wishes::of(Kind::Mariadb);
    wishes.spec = wishes
        .spec
        .program(mariadb_11().unwrap())
        .option("--binlog-alter-two-phase=ON")
        .option("--binlog-large-commit-threshold=10M")
        .option("--binlog-cache-size=32K");
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    let writer = {
        let sandbox = std::sync::Arc::clone(&fed.sandbox);
        std::thread::spawn(move || {
            for id in 10..200 {
                let change =
                    format!("INSERT INTO t (id, c) VALUES ({id}, 'x'); UPDATE t SET c = {id} WHERE id < 5");
                sandbox.primary().sql(&change).unwrap();
            }
        })
    };
    for (round, how) in ["COPY", "COPY", "INPLACE", "COPY"].iter().enumerate() {
        fed.sql(&format!(
            "ALTER TABLE t ADD COLUMN d{round} INT DEFAULT {round} FIRST, ALGORITHM = {how}, LOCK = NONE"
        ));
    }
    writer.join().unwrap();
    fed.assert_same("t", SELECT);
    fed.sql("UPDATE t SET d0 = 7, c = CONCAT('behind ', id)");
    fed.assert_same("t", SELECT);
    fed.sql("CREATE TABLE large (id INT PRIMARY KEY, v LONGBLOB)");
    let files = fed.sql("SHOW BINARY LOGS").lines().count();
    fed.sql(
        "BEGIN; UPDATE t SET c = 'before'; INSERT INTO large SELECT seq, REPEAT(CHAR(65 + seq), 1000000) FROM seq_1_to_20; \
         UPDATE t SET c = CONCAT('after ', id); COMMIT",
    );
    assert!(
        fed.sql("SHOW BINARY LOGS").lines().count() > files,
        "a file of its own"
    );
    fed.assert_same("t", SELECT);
    fed.sql("UPDATE t SET c = 'last'");
    fed.assert_same("t", SELECT);
}

/// Positions are GTIDs, but for a moment, in which a copy comes to its end.
#[test]
fn mariadb_is_not_strict_for_a_moment() {
    let mut wishes = Wishes::of(Kind::Mariadb);
    wishes.spec = wishes.spec.option("--gtid-strict-mode=ON");
    let sql = format!("{TABLE}; CREATE TABLE u LIKE t; INSERT INTO u SELECT * FROM t");
    let first = string("t", "test.t", &["id"], "c");
    let fed = Fed::start(wishes, &sql, vec![first.clone()]);
    fed.assert_same("t", SELECT);
    fed.sql("SET GLOBAL gtid_strict_mode = 0");
    fed.reload(vec![first, string("u", "test.u", &["id"], "c")]);
    fed.until("it has been copied", || {
        fed.copies() >= 2 && !matches!(fed.phase("u"), Phase::Reading | Phase::Copying { .. })
    });
    fed.sql("SET GLOBAL gtid_strict_mode = 1; UPDATE u SET c = 'later'");
    fed.assert_same("u", "SELECT id, c FROM u");
}

/// Positions are GTIDs, and places in files from then on: the stream goes on in the middle of the log.
#[test]
fn mariadb_is_not_strict_any_more() {
    let mut wishes = Wishes::of(Kind::Mariadb);
    wishes.spec = wishes.spec.option("--gtid-strict-mode=ON");
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.sql("UPDATE t SET c = 'strict'");
    fed.assert_same("t", SELECT);
    fed.sql("SET GLOBAL gtid_strict_mode = 0");
    fed.until("it is followed by places in files", || {
        let place = fed.applied().position.clone().map(|position| position.place);
        matches!(place, Some(Place::File { .. }))
    });
    fed.sql("UPDATE t SET c = 'not strict' WHERE id = 1");
    fed.assert_same("t", SELECT);
    assert_eq!(fed.copies(), 1, "nothing was copied again");
}

/// MySQL: a table and its rows in one transaction, columns that nobody sees, a column that is added in no
/// time.
#[test]
fn mysql_makes_columns_and_tables_in_special_ways() {
    let sql = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60), INDEX ((LENGTH(c) + 1)), INDEX ((UPPER(c)))); \
               INSERT INTO t VALUES (1, 'one'), (2, 'two')";
    let fed = Fed::start(
        Wishes::of(Kind::Mysql),
        sql,
        vec![string("t", "test.t", &["id"], "c"), hash("u", "test.u", &["id"])],
    );
    fed.assert_same("t", SELECT);
    fed.sql("UPDATE t SET c = CONCAT(c, '!')");
    fed.assert_same("t", SELECT);
    assert_eq!(fed.copies(), 2, "functional indexes");
    fed.sql("CREATE TABLE u (id INT PRIMARY KEY) AS SELECT id, c FROM t");
    fed.sql("INSERT INTO u VALUES (9, 'nine')");
    fed.assert_same("u", "SELECT id, id, c FROM u");
    fed.sql("ALTER TABLE u ADD COLUMN d VARCHAR(9) DEFAULT 'd' AFTER id, ALGORITHM = INSTANT; UPDATE u SET c = 'new' WHERE id = 1");
    fed.assert_same("u", "SELECT id, id, d, c FROM u");
    fed.sql("ALTER TABLE u DROP COLUMN c, ALGORITHM = INSTANT; INSERT INTO u VALUES (10, 'ten')");
    fed.assert_same("u", "SELECT id, id, d FROM u");
}
