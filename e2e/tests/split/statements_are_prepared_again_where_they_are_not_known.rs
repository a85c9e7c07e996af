//! Prepared statements on connections that do not have them: they are prepared there on the way, and nothing
//! else happens. Every session here is on the one connection of its gateway, which keeps one statement.

use std::sync::Once;

use e2e::packets::Client;
use e2e::{Gateway, client, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Statement, Value};
use mysql_wire::{Capabilities, Command};
use sandbox::{DATABASE, Kind};

use crate::cluster::{self, ask};

const SCHEMA: &str = "prepared_again";
const OTHER: &str = "prepared_again_elsewhere";

fn gateway() -> Gateway {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tables =
            "CREATE TABLE t (n INT PRIMARY KEY); CREATE TABLE texts (id INT PRIMARY KEY, text LONGTEXT);
                      CREATE TABLE open (n INT); CREATE TABLE refused (n INT); CREATE TABLE lost (n INT);";
        let server = cluster::single();
        cluster::schema(server, SCHEMA, &format!("{tables} INSERT INTO t VALUES (1)"));
        cluster::schema(server, OTHER, &format!("{tables} INSERT INTO t VALUES (1), (2)"));
    });
    cluster::narrow(cluster::single(), 1)
        .cluster("pool = { prepared_max = 1 }")
        .start()
}

fn sql(statements: &str) -> String {
    cluster::single().primary().sql(statements).unwrap()
}

/// A session with the server itself.
async fn direct() -> Conn {
    let options = client::options_at(cluster::single().primary().port());
    Conn::new(options.db_name(Some(SCHEMA))).await.unwrap()
}

async fn all(session: &mut Conn, statements: &[&str]) {
    for statement in statements {
        session.query_drop(*statement).await.unwrap();
    }
}

async fn executed(session: &mut Conn, statement: &Statement) -> Result<(), u16> {
    let done = session.exec_drop(statement, ()).await;
    done.map_err(|error| client::code(&error))
}

#[tokio::test]
async fn and_the_transaction_goes_on() {
    let gateway = gateway();
    for (row, before, after) in [
        (10, "SET autocommit = 1", "SET autocommit = 0"),
        (20, "SET autocommit = 0", "SET autocommit = 1; BEGIN"),
        (
            30,
            "SET tx_read_only = 0",
            "SET tx_read_only = 1; START TRANSACTION READ WRITE",
        ),
    ] {
        if kind() == Kind::Mysql && row == 30 {
            continue;
        }
        let mut session = cluster::connect_to(&gateway, SCHEMA).await;
        session.query_drop(before).await.unwrap();
        let first = session
            .prep(format!("INSERT INTO open VALUES ({row})"))
            .await
            .unwrap();
        let second = session
            .prep(format!("INSERT INTO open VALUES ({row} + 1)"))
            .await
            .unwrap();
        session.query_drop("COMMIT").await.unwrap();
        all(&mut session, &after.split("; ").collect::<Vec<_>>()).await;
        for statement in [&first, &second] {
            executed(&mut session, statement).await.unwrap();
            assert_eq!(sql("SELECT COUNT(*) FROM prepared_again.open"), "0\n", "{after}");
        }
        session.query_drop("ROLLBACK").await.unwrap();
        assert_eq!(sql("SELECT COUNT(*) FROM prepared_again.open"), "0\n", "{after}");
        session.disconnect().await.unwrap();
    }
}

fn send(client: &mut Client, command: Command, body: &[u8]) -> Vec<u8> {
    client.send_payload(0, &[&[command.0], body].concat()).unwrap();
    match command.has_response() {
        true => client.packet().unwrap().payload,
        false => Vec::new(),
    }
}

/// COM_STMT_SEND_LONG_DATA takes the same way.
#[test]
fn and_so_it_does_with_parameters_in_pieces() {
    const LONG_BLOB: u8 = 251;
    let gateway = gateway();
    let mut session = cluster::connect_raw(&gateway.address(), SCHEMA, Capabilities::default());
    let prepared = send(
        &mut session,
        Command::STMT_PREPARE,
        b"INSERT INTO texts VALUES (1, ?)",
    );
    let id = &prepared[1..5];
    // The parameter, and what comes behind it.
    session.packet().unwrap();
    session.packet().unwrap();
    send(&mut session, Command::STMT_PREPARE, b"DO 1");
    session.ask("SET autocommit = 0");
    session.ask("INSERT INTO texts VALUES (2, 'two')");
    send(
        &mut session,
        Command::STMT_SEND_LONG_DATA,
        &[id, b"\0\0one"].concat(),
    );
    let execution = [id, &[0, 1, 0, 0, 0, 0, 1, LONG_BLOB, 0]].concat();
    let answer = send(&mut session, Command::STMT_EXECUTE, &execution);
    assert_eq!(answer[0], 0, "{}", String::from_utf8_lossy(&answer));
    assert_eq!(
        session.ask("SELECT text FROM texts ORDER BY id"),
        [b"\x03one", b"\x03two"]
    );
    assert_eq!(sql("SELECT COUNT(*) FROM prepared_again.texts"), "0\n");
    session.ask("ROLLBACK");
    assert_eq!(sql("SELECT COUNT(*) FROM prepared_again.texts"), "0\n");
}

/// What was set when it was prepared, the statement, and what was set when it is executed.
const MEANINGS: &[(&str, &str, &str)] = &[
    (
        "USE prepared_again_elsewhere",
        "SELECT COUNT(*) FROM t",
        "USE prepared_again",
    ),
    (
        "SET sql_mode = 'ANSI_QUOTES'",
        "SELECT \"n\" FROM t",
        "SET sql_mode = ''",
    ),
    (
        "SET sql_mode = 'PIPES_AS_CONCAT'",
        "SELECT 'a' || 'b'",
        "SET sql_mode = ''",
    ),
    (
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        "SELECT 'a' = 'A'",
        "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci",
    ),
    (
        "SET collation_connection = latin1_bin",
        "SELECT COLLATION('a')",
        "SET NAMES utf8mb4",
    ),
    (
        "SET character_set_client = latin1",
        "SELECT HEX(CONVERT('é' USING utf8mb4))",
        "SET NAMES utf8mb4",
    ),
    (
        "SET character_set_results = latin1",
        "SELECT CONVERT(_utf8mb4 0xc3a9 USING utf8mb4)",
        "SET NAMES utf8mb4",
    ),
    (
        "SET default_week_format = 0",
        "SELECT WEEK('2008-02-20')",
        "SET default_week_format = 1",
    ),
    (
        "SET div_precision_increment = 4",
        "SELECT 1 / 7",
        "SET div_precision_increment = 12",
    ),
    (
        "SET group_concat_max_len = 4",
        "SELECT GROUP_CONCAT('a long text')",
        "SET group_concat_max_len = 1000",
    ),
    (
        "SET lc_time_names = 'de_DE'",
        "SELECT DATE_FORMAT('2020-01-01', '%W')",
        "SET lc_time_names = 'fr_FR'",
    ),
    (
        "SET lc_time_names = 'de_DE'",
        "SELECT MONTHNAME('2020-01-01')",
        "SET lc_time_names = 'fr_FR'",
    ),
    (
        "SET sql_select_limit = 1",
        "SELECT n FROM t UNION SELECT 7",
        "SET sql_select_limit = 2",
    ),
    ("SET autocommit = 0", "SELECT @@autocommit", "SET autocommit = 1"),
    ("SET autocommit = 1", "SELECT @@autocommit", "SET autocommit = 0"),
];

const OF_MARIADB: &[(&str, &str, &str)] = &[(
    "SET old_mode = ''",
    "SELECT COLLATION(CAST('a' AS CHAR CHARACTER SET utf8))",
    "SET old_mode = 'UTF8_IS_UTF8MB3'",
)];

const OF_MYSQL: &[(&str, &str, &str)] = &[(
    "SET time_zone = '+00:00'",
    "SELECT TIMESTAMP'2020-01-01 00:00:00+05:00'",
    "SET time_zone = '+03:00'",
)];

type Answer = Result<Vec<Vec<Value>>, u16>;

/// Executes a statement in a transaction, after a change of what it may depend on, and shows what was
/// changed.
async fn meaning(session: &mut Conn, (before, text, after): (&str, &str, &str)) -> (Answer, Answer) {
    session.query_drop(before).await.unwrap();
    let statement = session.prep(text).await.unwrap();
    session.prep("SELECT 0").await.unwrap();
    all(session, &[after, "BEGIN"]).await;
    let rows = |rows: Vec<mysql_async::Row>| rows.into_iter().map(mysql_async::Row::unwrap).collect();
    let answer = session.exec(&statement, ()).await.map(rows);
    let shown = "SELECT DATABASE(), @@sql_mode, @@character_set_client, @@character_set_results, @@collation_connection, \
                 @@time_zone, @@default_week_format, @@div_precision_increment";
    let state = session.query(shown).await.map(rows);
    session.query_drop("ROLLBACK").await.unwrap();
    let code = |error| client::code(&error);
    (answer.map_err(code), state.map_err(code))
}

#[tokio::test]
async fn and_they_mean_what_they_meant() {
    let gateway = gateway();
    let mut wrong = Vec::new();
    let of_its_own = match kind() {
        Kind::Mysql => OF_MYSQL,
        _ => OF_MARIADB,
    };
    for case in MEANINGS.iter().chain(of_its_own) {
        let expected = meaning(&mut direct().await, *case).await;
        let mut session = cluster::connect_to(&gateway, SCHEMA).await;
        let seen = meaning(&mut session, *case).await;
        session.disconnect().await.unwrap();
        if seen != expected {
            wrong.push(format!("{case:?}\n  {seen:?}\n  {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A statement that the server will not prepare is a statement that failed: the transaction goes on.
#[tokio::test]
async fn and_a_refusal_ends_no_transaction() {
    let gateway = gateway();
    sql(
        "CREATE DATABASE prepared_again_later; CREATE TABLE prepared_again_later.t (n INT);
         CREATE TABLE prepared_again.changing (n INT); CREATE TABLE prepared_again.going (n INT)",
    );
    let mut session = cluster::connect_to(&gateway, SCHEMA).await;
    let other_parameters = session.prep("SELECT n FROM changing LIMIT 1").await.unwrap();
    let no_table = session.prep("SELECT n FROM going").await.unwrap();
    session.query_drop("USE prepared_again_later").await.unwrap();
    let no_schema = session.prep("SELECT n FROM t").await.unwrap();
    session.query_drop("USE prepared_again").await.unwrap();
    let insert = session.prep("INSERT INTO refused VALUES (?)").await.unwrap();
    sql("DROP TABLE prepared_again.going; DROP DATABASE prepared_again_later");
    session.query_drop("BEGIN").await.unwrap();
    for (row, refused, code) in [(40, no_table, 1146), (50, no_schema, 1049)] {
        session.exec_drop(&insert, (row,)).await.unwrap();
        assert_eq!(executed(&mut session, &refused).await, Err(code));
        assert_eq!(sql("SELECT COUNT(*) FROM prepared_again.refused"), "0\n");
    }
    executed(&mut session, &other_parameters).await.unwrap();
    session.exec_drop(&insert, (60,)).await.unwrap();
    session.query_drop("COMMIT").await.unwrap();
    assert_eq!(
        ask(&mut session, "SELECT COUNT(*) FROM refused").await,
        Ok(Some("3".to_owned()))
    );
    session.disconnect().await.unwrap();
}

/// A connection that cannot be made again what it was is lost, and with it what the session has there.
#[tokio::test]
async fn and_a_session_that_loses_its_transaction_ends() {
    let gateway = gateway();
    sql("CREATE DATABASE prepared_again_gone");
    let mut session = cluster::connect_to(&gateway, SCHEMA).await;
    let statement = session.prep("SELECT n FROM t").await.unwrap();
    session.prep("SELECT 0").await.unwrap();
    all(
        &mut session,
        &[
            "USE prepared_again_gone",
            "BEGIN",
            "INSERT INTO prepared_again.lost VALUES (1)",
        ],
    )
    .await;
    sql("DROP DATABASE prepared_again_gone");
    assert_eq!(executed(&mut session, &statement).await, Err(1049));
    session
        .query_drop("DO 1")
        .await
        .expect_err("the session has ended");
    assert_eq!(sql("SELECT COUNT(*) FROM prepared_again.lost"), "0\n");
    let mut later = cluster::connect_to(&gateway, DATABASE).await;
    assert_eq!(ask(&mut later, "SELECT 1").await, Ok(Some("1".to_owned())));
}

/// Whatever was prepared without a schema names its tables in full.
#[tokio::test]
async fn and_so_are_those_from_before_the_first_schema() {
    let gateway = gateway();
    let without_schema = cluster::options(&gateway).db_name(None::<String>);
    let mut session = Conn::new(without_schema).await.unwrap();
    let statement = session
        .prep("SELECT COUNT(*) FROM prepared_again.t")
        .await
        .unwrap();
    for use_first in [true, false] {
        if use_first {
            session.query_drop("USE prepared_again_elsewhere").await.unwrap();
        }
        session.prep("SELECT 0").await.unwrap();
        session.query_drop("BEGIN").await.unwrap();
        let count: Result<Option<u32>, _> = session.exec_first(&statement, ()).await;
        assert_eq!(count.map_err(|error| client::code(&error)), Ok(Some(1)));
        assert_eq!(
            ask(&mut session, "SELECT COUNT(*) FROM t").await,
            Ok(Some("2".to_owned()))
        );
        session.query_drop("COMMIT").await.unwrap();
    }
    session.disconnect().await.unwrap();
}

/// A server that refuses to prepare a statement again costs nobody a connection.
#[tokio::test]
async fn and_the_connection_stays_where_that_is_refused() {
    let gateway = gateway();
    let mut own = cluster::connect_to(&gateway, SCHEMA).await;
    own.query_drop("CREATE TABLE leaves (n INT)").await.unwrap();
    let statement = own.prep("SELECT n FROM leaves").await.unwrap();
    own.prep("DO 1").await.unwrap();
    own.query_drop("DROP TABLE leaves").await.unwrap();
    // The server's own, which it is beside what says who has a lock.
    const ID: &str = "SELECT IFNULL(IS_USED_LOCK('prepared_again'), CONNECTION_ID())";
    let id: Option<u32> = own.query_first(ID).await.unwrap();
    for _ in 0..3 {
        assert_eq!(executed(&mut own, &statement).await, Err(1146));
        let errors: Vec<(String, u16, String)> = own.query("SHOW ERRORS").await.unwrap();
        assert_eq!(errors[0].1, 1146);
        assert_eq!(executed(&mut own, &statement).await, Err(1146));
        // What it holds now is the error alone.
        own.query_drop("SELECT COUNT(*) FROM t").await.unwrap();
        let mut other = cluster::connect_to(&gateway, SCHEMA).await;
        let others: Vec<(String, u16, String)> = other.query("SHOW WARNINGS").await.unwrap();
        assert!(others.is_empty(), "{others:?}");
        let same: Option<u32> = other.query_first(ID).await.unwrap();
        assert_eq!(same, id);
    }
}

/// What was prepared without a schema has none, wherever it is executed.
#[tokio::test]
async fn without_the_schema_that_they_had_not() {
    let gateway = gateway();
    let mut answers = Vec::new();
    for gateway in [None, Some(&gateway)] {
        let mut session = match gateway {
            None => Conn::new(client::options_at(cluster::single().primary().port()).db_name(None::<String>))
                .await
                .unwrap(),
            Some(gateway) => Conn::new(cluster::options(gateway).db_name(None::<String>))
                .await
                .unwrap(),
        };
        let statement = session.prep("SELECT DATABASE(), SCHEMA() IS NULL").await.unwrap();
        let before: Option<(Option<String>, bool)> = session.exec_first(&statement, ()).await.unwrap();
        session.query_drop("USE prepared_again").await.unwrap();
        session.prep("DO 2").await.unwrap();
        let after: Option<(Option<String>, bool)> = session.exec_first(&statement, ()).await.unwrap();
        answers.push((before, after));
    }
    assert_eq!(answers[0], answers[1]);
}

/// What fails may have set something before: that is known when the next statement is prepared.
#[tokio::test]
async fn under_what_a_failed_statement_has_set() {
    let gateway = gateway();
    let mut session = cluster::connect_to(&gateway, SCHEMA).await;
    session
        .query_drop(
            "CREATE PROCEDURE sets_and_fails() BEGIN SET time_zone = '+05:00'; SIGNAL SQLSTATE '45000'; END",
        )
        .await
        .unwrap();
    session.query_drop("CALL sets_and_fails()").await.unwrap_err();
    // Of 0 there is none since MariaDB 11.7.
    let statement = session.prep("SELECT HOUR(FROM_UNIXTIME(86400))").await.unwrap();
    session.prep("DO 3").await.unwrap();
    let hour: Option<i64> = session.exec_first(&statement, ()).await.unwrap();
    assert_eq!(hour, Some(5));
}
