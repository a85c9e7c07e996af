//! Transactions of all kinds.

use cache::store::Found;
use sandbox::Kind;

use crate::fed::{Fed, Wishes, hash, on_both, string};

on_both! {
    a_large_one_is_visible_as_a_whole
    what_is_rolled_back_is_never_seen
    prepared_ones_are_seen_when_they_are_committed
    what_is_not_committed_is_not_copied
    compressed_ones_are_read
    statements_that_are_logged_as_such_stop_a_mapping
    several_mappings_of_one_table
    keys_of_all_kinds_are_paged
}

const TABLE: &str =
    "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two')";
const SELECT: &str = "SELECT id, c FROM t";

fn start(kind: Kind) -> Fed {
    start_with(Wishes::of(kind))
}

fn start_with(wishes: Wishes) -> Fed {
    let fed = Fed::start(wishes, TABLE, vec![string("t", "test.t", &["id"], "c")]);
    fed.assert_same("t", SELECT);
    fed
}

/// Rows 1 to `rows`.
fn sequence(kind: Kind, rows: u32) -> String {
    let limit = match kind {
        Kind::Mysql => "SET SESSION cte_max_recursion_depth = 1000000",
        _ => "SET SESSION max_recursive_iterations = 1000000",
    };
    format!(
        "{limit}; CREATE TABLE numbers (id INT PRIMARY KEY) AS WITH RECURSIVE n AS \
         (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < {rows}) SELECT id FROM n"
    )
}

fn a_large_one_is_visible_as_a_whole(kind: Kind) {
    let fed = start(kind);
    let mapping = fed.until_served("t");
    fed.sql(&format!(
        "{}; BEGIN; REPLACE INTO t SELECT id, 'first' FROM numbers; UPDATE t SET c = 'second'; COMMIT",
        sequence(kind, 100_000)
    ));
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let (mut first_key, mut last_key) = (Vec::new(), Vec::new());
    mapping.parse_key(b"1", &mut first_key).unwrap();
    mapping.parse_key(b"100000", &mut last_key).unwrap();
    fed.until("the transaction is seen", || {
        let mut looked = (Found::Busy, Found::Busy);
        let seen = fed.store.snapshot(|view| {
            looked = (
                view.get(mapping.id, &first_key, &mut Vec::new()),
                view.get(mapping.id, &last_key, &mut Vec::new()),
            );
        });
        if seen.is_err() || looked.0 == Found::Busy || looked.1 == Found::Busy {
            return false;
        }
        assert_eq!(looked.0, Found::Row);
        looked.1 == Found::Row
    });
    for (key, row) in [(&first_key, &mut first), (&last_key, &mut last)] {
        assert_eq!(fed.store.get(mapping.id, key, row), Found::Row);
    }
    assert_eq!(first, last, "the state in between was never there");
    fed.assert_same("t", SELECT);
}

fn what_is_rolled_back_is_never_seen(kind: Kind) {
    let fed = start(kind);
    fed.sql(
        "BEGIN; UPDATE t SET c = 'no'; ROLLBACK; \
         BEGIN; UPDATE t SET c = 'yes' WHERE id = 1; SAVEPOINT a; UPDATE t SET c = 'no'; ROLLBACK TO a; COMMIT",
    );
    // With GTIDs MySQL does not mix tables with and without transactions.
    if kind == Kind::Mariadb {
        fed.sql(
            "CREATE TABLE m (id INT) ENGINE = MyISAM; \
             BEGIN; UPDATE t SET c = 'no'; INSERT INTO m VALUES (1); ROLLBACK; \
             BEGIN; UPDATE t SET c = 'yes' WHERE id = 2; SAVEPOINT a; INSERT INTO m VALUES (2); UPDATE t SET c = 'no'; \
             ROLLBACK TO a; COMMIT",
        );
    }
    fed.assert_same("t", SELECT);
}

fn prepared_ones_are_seen_when_they_are_committed(kind: Kind) {
    let fed = start(kind);
    fed.sql("XA START 'a'; UPDATE t SET c = 'later' WHERE id = 1; INSERT INTO t VALUES (7, 'later'); XA END 'a'; XA PREPARE 'a'");
    fed.sql("INSERT INTO t VALUES (8, 'now')");
    fed.assert_same("t", SELECT);
    assert_eq!(fed.rows("t").len(), 3);
    fed.sql("XA COMMIT 'a'");
    fed.assert_same("t", SELECT);
    assert_eq!(fed.rows("t").len(), 4);
    fed.sql("XA START 'b'; DELETE FROM t; XA END 'b'; XA PREPARE 'b'");
    fed.sql("XA ROLLBACK 'b'; XA START 'c'; DELETE FROM t WHERE id = 8; XA END 'c'; XA COMMIT 'c' ONE PHASE");
    fed.assert_same("t", SELECT);
    assert_eq!(fed.copies(), 1);
    // Undone in part; with a table without transactions the server writes that down.
    if kind == Kind::Mariadb {
        fed.sql(
            "CREATE TABLE m (id INT) ENGINE = MyISAM; XA START 'e'; UPDATE t SET c = 'yes' WHERE id = 1; SAVEPOINT a; \
             INSERT INTO m VALUES (2); UPDATE t SET c = 'no'; ROLLBACK TO a; XA END 'e'; XA PREPARE 'e'; XA COMMIT 'e'",
        );
        fed.assert_same("t", SELECT);
    }
    // One that is prepared before the stream begins.
    fed.sql("XA START 'd'; UPDATE t SET c = 'at last'; XA END 'd'; XA PREPARE 'd'");
    fed.sql("FLUSH BINARY LOGS");
    let other = Fed::beside(&fed, vec![string("t", "test.t", &["id"], "c")]);
    other.assert_same("t", SELECT);
    fed.sql("XA COMMIT 'd'");
    other.assert_same("t", SELECT);
    fed.assert_same("t", SELECT);
}

/// Also where sessions of the server see it.
fn what_is_not_committed_is_not_copied(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.spec = wishes.spec.option("--transaction-isolation=READ-UNCOMMITTED");
    let sql = "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(60)); INSERT INTO t VALUES (1, 'one'), (2, 'two'); \
               XA START 'x'; UPDATE t SET c = 'not committed' WHERE id = 1; INSERT INTO t VALUES (3, 'not there'); XA END 'x'; XA PREPARE 'x'";
    let fed = Fed::start(wishes, sql, vec![string("t", "test.t", &["id"], "c")]);
    fed.until_served("t");
    fed.sql("XA ROLLBACK 'x'");
    fed.assert_same("t", SELECT);
    assert_eq!(fed.rows("t"), ["1\tone", "2\ttwo"]);
}

fn compressed_ones_are_read(kind: Kind) {
    let mut wishes = Wishes::of(kind);
    wishes.spec = match kind {
        Kind::Mysql => wishes.spec.option("--binlog-transaction-compression=ON"),
        _ => wishes
            .spec
            .option("--log-bin-compress=ON")
            .option("--log-bin-compress-min-len=10"),
    };
    let fed = start_with(wishes);
    fed.sql(&format!(
        "{}; REPLACE INTO t SELECT id, REPEAT('x', 50) FROM numbers; DELETE FROM t WHERE id % 3 = 0",
        sequence(kind, 20_000)
    ));
    fed.assert_same("t", SELECT);
    fed.sql("ALTER TABLE t ADD d INT FIRST; INSERT INTO t VALUES (1, 0, 'zero')");
    fed.assert_same("t", SELECT);
}

fn statements_that_are_logged_as_such_stop_a_mapping(kind: Kind) {
    let fed = start(kind);
    fed.sql("SET SESSION binlog_format = STATEMENT; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; UPDATE t SET c = 'unseen'");
    fed.until("that is said", || {
        fed.phase("t").to_string().contains("binlog_format must be ROW")
    });
    fed.until_applied();
    fed.assert_same("t", SELECT);
    // A view has another name than its table.
    fed.sql("CREATE VIEW v AS SELECT * FROM t");
    // A table that is not copied yet loses nothing, and says nothing.
    fed.assert_same("t", SELECT);
    fed.sql("SET SESSION binlog_format = STATEMENT; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; UPDATE v SET c = 'hidden'");
    fed.until("that is said", || {
        fed.phase("t").to_string().contains("binlog_format must be ROW")
    });
    fed.assert_same("t", SELECT);
}

fn several_mappings_of_one_table(kind: Kind) {
    let sql = "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, c INT, \
               UNIQUE (b, a)); INSERT INTO t VALUES (1, 2, 'x', 3), (2, 3, 'y', NULL)";
    let mappings = vec![
        string("by_id", "test.t", &["id"], "c"),
        string("by_both", "test.t", &["a", "b"], "id"),
        hash("all", "test.t", &["id"]),
    ];
    let fed = Fed::start(Wishes::of(kind), sql, mappings);
    for change in [
        "DO 0",
        "UPDATE t SET a = a + 1",
        "UPDATE t SET id = id + 10, b = CONCAT(b, ':')",
        "DELETE FROM t LIMIT 1",
    ] {
        fed.sql(change);
        fed.assert_same("by_id", "SELECT id, c FROM t");
        fed.assert_same(
            "by_both",
            "SELECT CONCAT(a, ':', REPLACE(b, ':', '\\\\:')), id FROM t",
        );
        fed.assert_same("all", "SELECT id, id, a, b, c FROM t");
    }
}

/// Chunks of three rows, so that each begins where another one ended.
fn keys_of_all_kinds_are_paged(kind: Kind) {
    let types = [
        ("bigint unsigned", "id * 900000000000000000"),
        ("smallint", "id * 900 - 10000"),
        ("decimal(12,3)", "id / 7 - 1"),
        // As DOUBLE they are all the same.
        ("decimal(30,1)", "10000000000000000000000000.5 + id"),
        ("decimal(30,0) unsigned", "90071992547409930 + id"),
        (
            "varchar(20) character set utf8mb4 collate utf8mb4_general_ci",
            "concat(char(97 + id * 7 % 20), id, ' x')",
        ),
        (
            "varchar(20) character set latin1 collate latin1_swedish_ci",
            "concat(char(97 + id * 7 % 20), id)",
        ),
        (
            "char(20) character set utf8mb4 collate utf8mb4_bin",
            "concat(char(65 + id * 7 % 50), id)",
        ),
        ("varbinary(20)", "concat(char(97 + id * 7 % 20), id)"),
        ("date", "'2020-01-01' + interval id * 11 day"),
        ("datetime(3)", "'2020-01-01' + interval id * 11111111 microsecond"),
        (
            "timestamp(6)",
            "'2020-01-01' + interval id * 11111111 microsecond",
        ),
        ("time", "sec_to_time(id * 1001 - 5000)"),
        ("year", "1990 + id"),
        ("enum('z','y','x','w','v','u','t','s','r','q','p')", "1 + id % 11"),
    ];
    let of_mariadb = [
        (
            "uuid",
            "concat('0000000', id % 10, '-0000-1000-8000-00000000000', id % 3)",
        ),
        ("inet6", "concat('2001:db8::', id * 7)"),
    ];
    let types = types
        .into_iter()
        .chain(of_mariadb.into_iter().filter(|_| kind == Kind::Mariadb));
    let types: Vec<_> = types.collect();
    let mut sql = String::from("SET time_zone = '+00:00'; ");
    let mut mappings = Vec::new();
    for (at, (column, value)) in types.iter().enumerate() {
        sql.push_str(&format!(
            "CREATE TABLE k{at} (k {column} NOT NULL PRIMARY KEY, c INT); "
        ));
        let rows = (0..11)
            .map(|id| format!("INSERT INTO k{at} SELECT {value}, {id} FROM (SELECT {id} AS id) AS n; "));
        sql.extend(rows);
        mappings.push(string(&format!("k{at}"), &format!("test.k{at}"), &["k"], "c"));
    }
    let mut wishes = Wishes::of(kind);
    wishes.chunk = 3;
    let fed = Fed::start(wishes, &sql, mappings);
    for (at, (column, _)) in types.iter().enumerate() {
        let name = format!("k{at}");
        fed.assert_same(
            &name,
            &format!("SELECT LOWER(k), c FROM k{at}").replace(
                "LOWER(k)",
                match *column {
                    column if column.contains("_ci") => "LOWER(k)",
                    _ => "k",
                },
            ),
        );
        assert_eq!(fed.rows(&name).len(), 11, "{column}");
    }
}
