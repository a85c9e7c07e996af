//! `LAST_INSERT_ID()`, `ROW_COUNT()`, `FOUND_ROWS()`, warnings: of the session's own last statement, whatever
//! others have done on the same connection since.

use std::sync::Once;

use e2e::{Gateway, Setup, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, PASSWORD, USER};

use crate::cluster::{self, ask};

const SCHEMA: &str = "leavings";

async fn sessions(connections: u32) -> (Gateway, Conn, Conn) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        cluster::schema(
            cluster::single(),
            SCHEMA,
            "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT);
             CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 1000;
             CREATE TABLE rows_of (n INT); INSERT INTO rows_of VALUES (1), (2), (3), (4), (5);",
        );
    });
    let gateway = cluster::narrow(cluster::single(), connections).start();
    let own = cluster::connect_to(&gateway, SCHEMA).await;
    let other = cluster::connect_to(&gateway, SCHEMA).await;
    (gateway, own, other)
}

/// A session on the server itself.
async fn direct() -> Conn {
    let port = cluster::single().primary().port();
    let options = e2e::client::options_at(port).db_name(Some(SCHEMA));
    Conn::new(options).await.unwrap()
}

async fn number(session: &mut Conn, question: &str) -> i64 {
    session.query_first(question).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_last_insert_id() {
    let (_gateway, mut own, mut other) = sessions(1).await;
    for _ in 0..3 {
        own.query_drop("INSERT INTO t (v) VALUES (1)").await.unwrap();
        let id = i64::try_from(own.last_insert_id().unwrap()).unwrap();
        other
            .query_drop("INSERT INTO other (v) VALUES (1)")
            .await
            .unwrap();
        let other_id = i64::try_from(other.last_insert_id().unwrap()).unwrap();
        assert_ne!(id, other_id);
        for _ in 0..2 {
            assert_eq!(number(&mut own, "SELECT LAST_INSERT_ID()").await, id);
            assert_eq!(number(&mut other, "SELECT LAST_INSERT_ID()").await, other_id);
        }
        own.query_drop("UPDATE t SET v = LAST_INSERT_ID() WHERE id = LAST_INSERT_ID()")
            .await
            .unwrap();
        other.query_drop("SELECT 1").await.unwrap();
        assert_eq!(
            number(&mut own, &format!("SELECT v FROM t WHERE id = {id}")).await,
            id
        );
        // With parameters as well.
        let prepared: Option<i64> = own.exec_first("SELECT LAST_INSERT_ID() + ?", (0,)).await.unwrap();
        assert_eq!(prepared, Some(id));
    }
}

/// The server keeps the id of the first row, which was taken back with the second one, and tells it to
/// nobody.
#[tokio::test]
async fn an_id_of_a_statement_that_failed_is_not_told_to_others() {
    let (_gateway, mut own, mut other) = sessions(1).await;
    let twice = "INSERT INTO t (id, v) SELECT IF(n = 1, NULL, -7), n FROM rows_of WHERE n <= 3 ORDER BY n";
    own.query_drop(twice).await.unwrap_err(); // 1062
    own.query_drop("SELECT 1").await.unwrap();
    assert_eq!(number(&mut other, "SELECT LAST_INSERT_ID()").await, 0);
}

/// Ids that a statement makes up may bind the session to its connection, so there are two.
#[tokio::test]
async fn the_id_that_it_sets_itself() {
    let (_gateway, mut own, mut other) = sessions(2).await;
    own.query_drop("INSERT INTO t (v) VALUES (1)").await.unwrap();
    own.query_drop("UPDATE t SET v = LAST_INSERT_ID(77) LIMIT 1")
        .await
        .unwrap();
    other.query_drop("SELECT 1").await.unwrap();
    assert_eq!(number(&mut own, "SELECT LAST_INSERT_ID()").await, 77);
    own.query_drop("SELECT LAST_INSERT_ID(78)").await.unwrap();
    other
        .query_drop("INSERT INTO other (v) VALUES (1)")
        .await
        .unwrap();
    assert_eq!(number(&mut own, "SELECT LAST_INSERT_ID()").await, 78);
}

#[tokio::test]
async fn the_count_of_rows() {
    let (_gateway, mut own, mut other) = sessions(2).await; // MySQL warns of FOUND_ROWS(), and warnings bind
    own.query_drop("INSERT INTO t (v) VALUES (1), (2), (3)")
        .await
        .unwrap();
    other
        .query_drop("INSERT INTO other (v) VALUES (1)")
        .await
        .unwrap();
    assert_eq!(number(&mut own, "SELECT ROW_COUNT()").await, 3);
    assert_eq!(number(&mut other, "SELECT ROW_COUNT()").await, 1);
    // As on a server: the last statement was a SELECT now.
    assert_eq!(number(&mut own, "SELECT ROW_COUNT()").await, -1);

    own.query_drop("SELECT n FROM rows_of LIMIT 4").await.unwrap();
    other.query_drop("SELECT n FROM rows_of LIMIT 2").await.unwrap();
    assert_eq!(number(&mut own, "SELECT FOUND_ROWS()").await, 4);
    assert_eq!(number(&mut other, "SELECT FOUND_ROWS()").await, 2);
}

/// Of a statement that is no query, and holds none, a server counts no rows. (MySQL those of an UPDATE.)
#[tokio::test]
async fn the_count_of_rows_of_a_statement_before_the_last() {
    let (_gateway, mut own, mut other) = sessions(2).await;
    let mut direct = direct().await;
    let mut wrong = Vec::new();
    for between in [
        "CREATE TABLE counted (n INT)",
        "ALTER TABLE counted ADD COLUMN m INT",
        "INSERT INTO counted VALUES (1, 1), (2, 2)",
        "DELETE FROM counted WHERE n = 2",
        "TRUNCATE TABLE counted",
        "RENAME TABLE counted TO recounted",
        "DROP TABLE recounted",
        "CREATE OR REPLACE VIEW seen AS SELECT 1 AS n",
        "SET sort_buffer_size = DEFAULT",
        "COMMIT",
        "DO 1",
    ] {
        let mut told = Vec::new();
        for session in [&mut direct, &mut own] {
            session.query_drop("DROP TABLE IF EXISTS unknown").await.unwrap();
            session.query_drop("SELECT n FROM rows_of LIMIT 3").await.unwrap();
            session.query_drop(between).await.unwrap();
            for _ in 0..2 {
                other.query_drop("SELECT n FROM rows_of").await.unwrap();
            }
            told.push(number(session, "SELECT FOUND_ROWS()").await);
            if told.len() == 1 {
                let undo = match between {
                    "CREATE TABLE counted (n INT)" => "DROP TABLE counted",
                    "ALTER TABLE counted ADD COLUMN m INT" => "ALTER TABLE counted DROP COLUMN m",
                    "RENAME TABLE counted TO recounted" => "RENAME TABLE recounted TO counted",
                    "DROP TABLE recounted" => "CREATE TABLE recounted (n INT)",
                    _ => "DO 1",
                };
                session.query_drop(undo).await.unwrap();
            }
        }
        if told[0] != told[1] {
            wrong.push(format!("{between}: {} there, {} here", told[0], told[1]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The session's last statement ran on a replica; the one before it, on the connection to the primary.
#[tokio::test]
async fn the_count_of_rows_that_another_server_has_sent() {
    let sandbox = cluster::single();
    let port = sandbox.primary().port();
    let server =
        |host, role| format!("{{ address = \"{host}:{port}\", max_connections = 2, role = \"{role}\" }}");
    let gateway = Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .servers([server("127.0.0.1", "primary"), server("localhost", "replica")])
        .listener("read_consistency = \"eventual\"")
        .tables(&cluster::user(USER, PASSWORD))
        .start();
    let _ = sessions(1).await; // makes the tables
    let mut own = cluster::connect_to(&gateway, SCHEMA).await;
    for rows in [2, 4, 3] {
        own.query_drop("INSERT INTO t (v) VALUES (1), (2)").await.unwrap();
        own.query_drop(format!("SELECT n FROM rows_of LIMIT {rows}"))
            .await
            .unwrap();
        assert_eq!(number(&mut own, "SELECT FOUND_ROWS()").await, rows);
        own.query_drop("INSERT INTO t (v) VALUES (1), (2)").await.unwrap();
        own.query_drop("SELECT n FROM rows_of LIMIT 1").await.unwrap();
        assert_eq!(number(&mut own, "SELECT ROW_COUNT()").await, -1);
    }
}

#[tokio::test]
async fn the_count_that_a_limit_has_cut() {
    let (gateway, mut own, mut other) = sessions(2).await;
    own.query_drop("SELECT SQL_CALC_FOUND_ROWS n FROM rows_of LIMIT 2")
        .await
        .unwrap();
    for _ in 0..3 {
        other.query_drop("SELECT n FROM rows_of LIMIT 1").await.unwrap();
    }
    assert_eq!(number(&mut own, "SELECT FOUND_ROWS()").await, 5);
    assert_eq!(number(&mut other, "SELECT FOUND_ROWS()").await, 1);

    // A plan of one row, and the rows of the query.
    if kind() == Kind::Mariadb {
        own.query_drop("ANALYZE SELECT n FROM rows_of").await.unwrap();
        // One that has had none takes the connection that was used last.
        let mut third = cluster::connect(&gateway).await;
        third.query_drop("SELECT 1").await.unwrap();
        assert_eq!(number(&mut own, "SELECT FOUND_ROWS()").await, 5);
    }
}

/// The server is asked only where it may know another id than it has said.
#[tokio::test]
async fn an_id_that_the_server_has_made_is_not_asked_for() {
    let (_gateway, mut session, _other) = sessions(1).await;
    let create = "CREATE TABLE IF NOT EXISTS large_ids (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 777000";
    session.query_drop(create).await.unwrap();
    let insert = session
        .prep("INSERT INTO large_ids (v) VALUES (?)")
        .await
        .unwrap();
    let mut before = 0;
    for v in 0..6 {
        if v == 1 {
            // By now it is known what such statements do.
            before = settings(&mut session).await;
        }
        session.query_drop("BEGIN").await.unwrap();
        session
            .query_drop("INSERT INTO large_ids (v) VALUES (1), (2)")
            .await
            .unwrap();
        session.exec_drop(&insert, (v,)).await.unwrap();
        session.query_drop("COMMIT").await.unwrap();
        session.exec_drop(&insert, (v,)).await.unwrap();
    }
    assert_eq!(settings(&mut session).await, before);
    let given = "BEGIN; INSERT INTO large_ids (id) VALUES (1); COMMIT";
    for statement in given.split("; ") {
        session.query_drop(statement).await.unwrap();
    }
    assert_eq!(settings(&mut session).await, before + 1);
}

/// `SET` and `SELECT` statements on the only connection: it is asked by one or the other.
async fn settings(session: &mut Conn) -> u64 {
    let question = "SHOW SESSION STATUS WHERE Variable_name IN ('Com_set_option', 'Com_select')";
    let rows: Vec<(String, u64)> = session.query(question).await.unwrap();
    rows.iter().map(|(_, count)| count).sum()
}

/// Prepared where the session cannot stay: afterwards it is another one's count.
#[tokio::test]
async fn no_count_of_another_session_by_a_statement_of_a_replica() {
    let gateway = cluster::start(cluster::split(cluster::shared()), 2).await;
    let mut session = cluster::connect(&gateway).await;
    session.query_drop("START TRANSACTION READ ONLY").await.unwrap();
    let count = session.prep("SELECT FOUND_ROWS()").await.unwrap();
    session.query_drop("SELECT 1 UNION SELECT 2").await.unwrap();
    let rows: Option<i64> = session.exec_first(&count, ()).await.unwrap();
    assert_eq!(rows, Some(2));
    session.query_drop("COMMIT").await.unwrap();
    let error = session.exec_drop(&count, ()).await.unwrap_err();
    assert_eq!(e2e::client::code(&error), 1615, "{error}");
}

#[tokio::test]
async fn warnings_and_errors() {
    let (_gateway, mut own, mut other) = sessions(2).await;
    for wrong in ["DROP TABLE IF EXISTS nothing", "SELECT CAST('x' AS SIGNED)"] {
        own.query_drop(wrong).await.unwrap();
        let count = own.get_warnings();
        assert_eq!(count, 1, "{wrong}");
        for _ in 0..2 {
            other.query_drop("SELECT 1").await.unwrap();
            assert!(
                other
                    .query::<mysql_async::Row, _>("SHOW WARNINGS")
                    .await
                    .unwrap()
                    .is_empty()
            );
        }
        let warnings: Vec<(String, u16, String)> = own.query("SHOW WARNINGS").await.unwrap();
        assert_eq!(warnings.len(), 1, "{wrong}: {warnings:?}");
        assert_eq!(number(&mut own, "SELECT @@warning_count").await, 1, "{wrong}");
    }
    assert_eq!(ask(&mut own, "SELECT * FROM nothing").await, Err(1146));
    other.query_drop("SELECT 1").await.unwrap();
    let errors: Vec<(String, u16, String)> = own.query("SHOW ERRORS").await.unwrap();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].1, 1146);
    // The next statement leaves nothing of it, and lets the connection go; on MariaDB the next that uses a
    // table.
    own.query_drop("SELECT COUNT(*) FROM information_schema.schemata")
        .await
        .unwrap();
    let pins = cluster::pins(&mut own).await;
    assert!(pins.is_empty(), "{pins:?}");
}

/// MariaDB keeps them over statements without a table: for the session, as long as nobody else is in need of
/// the connection.
#[tokio::test]
async fn warnings_that_nobody_asks_for() {
    if kind() == Kind::Mysql {
        return;
    }
    let gateway = cluster::narrow(cluster::single(), 1).start();
    let mut own = cluster::connect(&gateway).await;
    for _ in 0..2 {
        own.query_drop("SELECT CAST('x' AS SIGNED)").await.unwrap();
        own.query_drop("SELECT 1").await.unwrap();
        let kept: Vec<(String, u16, String)> = own.query("SHOW WARNINGS").await.unwrap();
        assert_eq!(kept.len(), 1);
        own.query_drop("SELECT 2").await.unwrap();
        let mut other = cluster::connect(&gateway).await;
        let warnings: Vec<(String, u16, String)> = other.query("SHOW WARNINGS").await.unwrap();
        assert_eq!(warnings, []);
        let lost: Vec<(String, u16, String)> = own.query("SHOW WARNINGS").await.unwrap();
        assert_eq!(lost, []);
    }
}

#[tokio::test]
async fn the_connection_id() {
    let (_gateway, mut own, mut other) = sessions(1).await;
    let (mine, others) = (i64::from(own.id()), i64::from(other.id()));
    assert_ne!(mine, others);
    for _ in 0..3 {
        assert_eq!(number(&mut own, "SELECT CONNECTION_ID()").await, mine);
        assert_eq!(number(&mut other, "SELECT CONNECTION_ID()").await, others);
        let named: Option<mysql_async::Row> = own.query_first("SELECT CONNECTION_ID()").await.unwrap();
        assert_eq!(named.unwrap().columns_ref()[0].name_str(), "CONNECTION_ID()");
        // Also of a statement that is prepared, and of a text that both prepare.
        for (session, id) in [(&mut own, mine), (&mut other, others)] {
            let told: Option<i64> = session.exec_first("SELECT CONNECTION_ID()", ()).await.unwrap();
            assert_eq!(told, Some(id));
            let told: Option<i64> = session
                .exec_first("SELECT ? + CONNECTION_ID()", (1,))
                .await
                .unwrap();
            assert_eq!(told, Some(id + 1));
        }
    }
}

/// Statements with ids that they give, and ids that the server makes.
const GIVEN: &[&str] = &[
    "INSERT INTO ids (id) VALUES (500)",
    "INSERT INTO ids (v) VALUES (1); INSERT INTO ids (id) VALUES (600)",
    "INSERT INTO ids (v) VALUES (1); REPLACE INTO ids (id) VALUES (600)",
    "BEGIN; INSERT INTO ids (v) VALUES (1); INSERT INTO ids (id) VALUES (700)",
    "BEGIN; INSERT INTO ids (v) VALUES (1); INSERT INTO ids (id) VALUES (700); COMMIT",
    "INSERT INTO ids (v) VALUES (1); INSERT INTO ids (v) SELECT 2; INSERT INTO ids (id) SELECT 800",
    "INSERT INTO ids (v) VALUES (1); INSERT INTO ids (id, v) VALUES (1, 2) ON DUPLICATE KEY UPDATE v = 3",
    "INSERT INTO ids (v) VALUES (1); INSERT INTO ids (v) VALUES (1) ON DUPLICATE KEY UPDATE v = 3",
    "INSERT INTO ids (v) VALUES (1), (2); UPDATE ids SET v = 9",
    "INSERT INTO ids (v) VALUES (1); INSERT IGNORE INTO ids (id, v) VALUES (500, 'x'); SELECT 1",
    "INSERT INTO ids (v) VALUES (1); INSERT INTO ids (id) VALUES (400 + 400)",
    "INSERT INTO ids (v) VALUES (1); INSERT INTO ids (id, v) VALUES (NULL, 1), (900, 1)",
];

const GIVEN_ON_MARIADB: &[&str] = &[
    "INSERT INTO ids (v) VALUES (1) RETURNING id",
    "INSERT INTO ids (v) VALUES (1); INSERT INTO ids (v) VALUES (1) RETURNING v",
    "INSERT INTO ids (v) VALUES (1); DELETE FROM ids RETURNING v",
    "INSERT INTO ids (id) VALUES (950) RETURNING id",
];

/// Plays the script on a new table, and says what the last id is after another session has made one, too.
async fn last_id_after(session: &mut Conn, other: &mut Conn, script: &str, prepared: bool) -> i64 {
    session.query_drop("DROP TABLE IF EXISTS ids").await.unwrap();
    let create = "CREATE TABLE ids (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 50";
    session.query_drop(create).await.unwrap();
    for statement in script.split("; ") {
        match prepared && statement.contains("INTO") {
            true => session.exec_drop(statement, ()).await.unwrap(),
            false => session.query_drop(statement).await.unwrap(),
        }
    }
    if script.ends_with("COMMIT") || !script.starts_with("BEGIN") {
        let insert = "INSERT INTO other (v) VALUES (1)";
        other.query_drop(insert).await.unwrap();
    }
    let id = number(session, "SELECT LAST_INSERT_ID()").await;
    session.query_drop("COMMIT").await.unwrap();
    id
}

/// Ids that a statement gives are none that the server makes.
#[tokio::test]
async fn the_last_insert_id_is_one_that_the_server_made() {
    let (_gateway, mut own, mut other) = sessions(1).await;
    let mut direct = direct().await;
    let on_mariadb = GIVEN_ON_MARIADB.iter().filter(|_| kind() == Kind::Mariadb);
    for script in GIVEN.iter().chain(on_mariadb) {
        for prepared in [false, true] {
            let expected = last_id_after(&mut direct, &mut other, script, prepared).await;
            let told = last_id_after(&mut own, &mut other, script, prepared).await;
            assert_eq!(told, expected, "{script}");
        }
    }
    own.query_drop("INSERT INTO ids (v) VALUES (1)").await.unwrap();
    let id = number(&mut own, "SELECT LAST_INSERT_ID()").await;
    own.exec_drop("INSERT INTO ids (id) VALUES (?)", (123_456,))
        .await
        .unwrap();
    other
        .query_drop("INSERT INTO other (v) VALUES (1)")
        .await
        .unwrap();
    assert_eq!(number(&mut own, "SELECT LAST_INSERT_ID()").await, id);
}

/// On a replica nothing binds a session that has only read, so that the next write finds its way.
#[tokio::test]
async fn warnings_of_a_replica_do_not_keep_a_session_there() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    cluster::schema(sandbox, "warned", "CREATE TABLE t (id INT)");
    let mut session = cluster::connect_to(&gateway, "warned").await;
    session.query_drop("SELECT CAST('x' AS SIGNED)").await.unwrap();
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    session.exec_drop("SELECT CAST('x' AS SIGNED)", ()).await.unwrap();
    session.exec_drop("INSERT INTO t VALUES (?)", (2,)).await.unwrap();
    session.query_drop("SELECT * FROM nothing").await.unwrap_err();
    session.query_drop("INSERT INTO t VALUES (3)").await.unwrap();
    session.query_drop("SELECT CAST('x' AS SIGNED)").await.unwrap();
    let warnings: Vec<(String, u16, String)> = session.query("SHOW WARNINGS").await.unwrap();
    assert_eq!(warnings.len(), 1);
    session.query_drop("BEGIN").await.unwrap();
    session.query_drop("INSERT INTO t VALUES (4)").await.unwrap();
    session.query_drop("COMMIT").await.unwrap();
    // Nor one that prepares what is right on the connection of the statement before alone.
    session.query_drop("SELECT CAST('x' AS SIGNED)").await.unwrap();
    let prepared = session.prep("SELECT FOUND_ROWS()").await.unwrap();
    session.query_drop("INSERT INTO t VALUES (5)").await.unwrap();
    session.query_drop("SELECT * FROM t LIMIT 3").await.unwrap();
    let found: Option<u64> = session.exec_first(&prepared, ()).await.unwrap();
    assert_eq!(found, Some(3));
    let rows: Option<u8> = session.query_first("SELECT COUNT(*) FROM t").await.unwrap();
    assert_eq!(rows, Some(5));
}
