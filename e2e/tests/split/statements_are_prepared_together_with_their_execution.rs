//! What a connection lacks of a prepared statement, and of its session's state, goes ahead of the execution
//! in the same write. Every session here is on the one connection of its gateway, which keeps one statement.

use std::sync::atomic::{AtomicU32, Ordering};

use e2e::link::Link;
use e2e::packets::Client;
use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Statement};
use mysql_wire::{Capabilities, Command};
use sandbox::{Kind, PASSWORD, Sandbox, Spec, USER};
use testkit::lossy_link::Fault;

use crate::cluster::{self, ask};
use crate::turns::Turns;

/// A gateway over one connection through this address.
fn gateway(address: &str, schema: &str) -> Gateway {
    let tables = "CREATE TABLE t (n INT); CREATE TABLE one (n INT); INSERT INTO one VALUES (1)";
    cluster::schema(cluster::single(), schema, tables);
    let server = format!("{{ address = {address:?}, max_connections = 1, role = \"primary\" }}");
    Setup::of_addresses(vec![address.to_owned()])
        .servers([server])
        .mode("split")
        .top("workers = 1")
        .cluster("pool = { prepared_max = 1 }")
        .tables(&cluster::user(USER, PASSWORD))
        .start()
}

fn apart(gateway: &Gateway, why: &str) -> f64 {
    gateway.metric(
        "forebay_statements_prepared_apart_total",
        &[&format!("why=\"{why}\"")],
    )
}

/// Prepares a statement, which is then not on the connection any more.
async fn elsewhere(session: &mut Conn, text: &str) -> Statement {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let statement = session.prep(text).await.unwrap();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    session.prep(format!("DO {number}")).await.unwrap();
    statement
}

async fn count(session: &mut Conn) -> Option<String> {
    ask(session, "SELECT COUNT(*) FROM t").await.unwrap()
}

/// Executes it, and says how many round trips that took.
async fn turns(turns: &Turns, session: &mut Conn, statement: &Statement, value: u32) -> (Option<u32>, u64) {
    let before = turns.count();
    let answer = session.exec_first(statement, (value,)).await.unwrap();
    (answer, turns.count() - before)
}

#[tokio::test]
async fn in_one_round_trip() {
    let link = Turns::to(cluster::single());
    let gateway = gateway(&link.address(), "together");
    let mut own = cluster::connect_to(&gateway, "together").await;
    for (before, after) in [
        ("DO 0", "DO 0"),
        ("BEGIN", "COMMIT"),
        ("SET autocommit = 0", "COMMIT"),
    ] {
        let write = elsewhere(&mut own, "INSERT INTO t VALUES (?)").await;
        own.query_drop(before).await.unwrap();
        assert_eq!(turns(&link, &mut own, &write, 1).await, (None, 1), "{before}");
        let read = elsewhere(&mut own, "SELECT n + ? FROM one").await;
        assert_eq!(turns(&link, &mut own, &read, 5).await, (Some(6), 1), "{before}");
        own.query_drop(after).await.unwrap();
    }
    own.query_drop("SET autocommit = 1").await.unwrap();
    assert_eq!(count(&mut own).await.as_deref(), Some("3"));
    assert_eq!(apart(&gateway, "refused"), 0.0);
}

#[tokio::test]
async fn and_so_does_what_the_session_has_set() {
    let link = Turns::to(cluster::single());
    let gateway = gateway(&link.address(), "together_state");
    let mut own = cluster::connect_to(&gateway, "together_state").await;
    let mut other = cluster::connect_to(&gateway, "mysql").await;
    own.query_drop("SET NAMES utf8mb4 COLLATE utf8mb4_bin")
        .await
        .unwrap();
    let read = own.prep("SELECT n + ? FROM one WHERE 'a' <> 'A'").await.unwrap();
    let write = own.prep("INSERT INTO t VALUES (?)").await.unwrap();
    let database = "SELECT DATABASE()";
    // MySQL warns of what is set, which is cleared.
    let of_state = if kind() == Kind::Mysql { 2 } else { 1 };
    for round in 0..2 {
        // The statement is not there, nor is the state.
        assert_eq!(ask(&mut other, database).await, Ok(Some("mysql".to_owned())));
        assert_eq!(turns(&link, &mut own, &read, 1).await, (Some(2), 1));
        // The statement is there.
        assert_eq!(ask(&mut other, database).await, Ok(Some("mysql".to_owned())));
        assert_eq!(turns(&link, &mut own, &read, 2).await, (Some(3), 1));
        // A write waits until it is known that the state is there.
        assert_eq!(ask(&mut other, database).await, Ok(Some("mysql".to_owned())));
        assert_eq!(turns(&link, &mut own, &write, 2).await, (None, 1 + of_state));
        assert_eq!(ask(&mut other, database).await, Ok(Some("mysql".to_owned())));
        let before = link.count();
        own.query_drop("BEGIN").await.unwrap();
        assert_eq!(link.count() - before, 1, "BEGIN");
        own.query_drop("COMMIT").await.unwrap();
        assert_eq!(ask(&mut other, database).await, Ok(Some("mysql".to_owned())));
        let before = link.count();
        let another = own
            .prep(format!("SELECT DATABASE(), 'a' = 'A', {round}"))
            .await
            .unwrap();
        assert_eq!(link.count() - before, 1, "COM_STMT_PREPARE");
        let seen: Option<(String, bool, u32)> = own.exec_first(&another, ()).await.unwrap();
        assert_eq!(seen, Some(("together_state".to_owned(), false, round)));
    }
    assert_eq!(count(&mut own).await.as_deref(), Some("2"));
}

/// An error of the state is the statement's, and nothing of what was executed under another state is left.
#[tokio::test]
async fn or_not_at_all_where_the_server_refuses_that() {
    const ER_BAD_DB_ERROR: u16 = 1049;
    let link = Turns::to(cluster::single());
    let gateway = gateway(&link.address(), "together_refused");
    let mut own = cluster::connect_to(&gateway, "together_refused").await;
    let mut other = cluster::connect_to(&gateway, "mysql").await;
    let server = cluster::single().primary();
    let read = own.prep("SELECT n FROM one").await.unwrap();
    for statement in ["SELECT 1", "BEGIN", "prepare", "execute"] {
        assert_eq!(
            ask(&mut other, "SELECT DATABASE()").await,
            Ok(Some("mysql".to_owned()))
        );
        server.sql("DROP DATABASE together_refused").unwrap();
        let answer = match statement {
            "prepare" => own.prep("SELECT 5").await.map(drop),
            "execute" => own.exec_drop(&read, ()).await,
            text => own.query_drop(text).await,
        };
        let code = answer.map_err(|error| client::code(&error));
        assert_eq!(code, Err(ER_BAD_DB_ERROR), "{statement}");
        let again = "CREATE DATABASE together_refused; CREATE TABLE together_refused.one SELECT 1 AS n";
        server.sql(again).unwrap();
        let seen: Option<u32> = own.exec_first(&read, ()).await.unwrap();
        assert_eq!(seen, Some(1), "{statement}");
    }
}

/// The server gives another id than was guessed, as it does after PREPARE as text: executed once, with
/// nothing to be seen of it.
#[tokio::test]
async fn or_one_after_the_other_where_the_id_was_another() {
    let link = Turns::to(cluster::single());
    let gateway = gateway(&link.address(), "together_guess");
    let mut own = cluster::connect_to(&gateway, "together_guess").await;
    own.query_drop("PREPARE p FROM 'SELECT 1'").await.unwrap();
    for round in 1..=5 {
        let write = elsewhere(&mut own, "INSERT INTO t VALUES (?)").await;
        own.query_drop("PREPARE p FROM 'SELECT 1'").await.unwrap();
        let wrong = apart(&gateway, "refused");
        own.exec_drop(&write, (round,)).await.unwrap();
        assert_eq!(apart(&gateway, "refused") - wrong, 1.0, "a wrong guess");
        assert_eq!(count(&mut own).await, Some(round.to_string()));
        // The next guess is right, and what uses no tables shows nothing of the wrong one.
        let read = elsewhere(&mut own, "SELECT ? + 1").await;
        own.query_drop("PREPARE p FROM 'SELECT 1'").await.unwrap();
        let answer: Option<u32> = own.exec_first(&read, (round,)).await.unwrap();
        assert_eq!(answer, Some(round + 1));
        let warnings: Vec<(String, u16, String)> = own.query("SHOW WARNINGS").await.unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let right = elsewhere(&mut own, "SELECT n + ? FROM one").await;
        assert_eq!(turns(&link, &mut own, &right, 5).await, (Some(6), 1));
    }
    own.disconnect().await.unwrap();
}

/// The fate of a write that was lost with its preparation is not known: it is not done again.
#[tokio::test]
async fn and_is_lost_as_one() {
    let link = Link::to(cluster::single());
    let gateway = gateway(&link.address().to_string(), "together_lost");
    let mut own = cluster::connect_to(&gateway, "together_lost").await;
    let mut direct = Conn::new(client::options_at(cluster::single().primary().port()))
        .await
        .unwrap();
    let write = elsewhere(&mut own, "INSERT INTO t VALUES (?)").await;
    link.set_to_client(Fault::Stall);
    let writing = tokio::spawn(async move {
        let done = own.exec_drop(&write, (1,)).await;
        (own, done.map_err(|error| client::code(&error)))
    });
    let rows = "SELECT COUNT(*) FROM together_lost.t";
    eventually("it was executed before anything was answered", async || {
        direct.query_first(rows).await.unwrap() == Some(1)
    })
    .await;
    link.set_to_client(Fault::CutAfter(0));
    let (mut own, done) = writing.await.unwrap();
    assert_eq!(done, Err(1158), "nobody knows");
    link.set_to_client(Fault::None);
    assert_eq!(direct.query_first(rows).await.unwrap(), Some(1), "once");
    let read = elsewhere(&mut own, "SELECT n + ? FROM one").await;
    let answer: Option<u32> = own.exec_first(&read, (2,)).await.unwrap();
    assert_eq!(answer, Some(3), "the session goes on");
}

/// Of an execution without a cursor: flags, and how often.
const PLAIN: [u8; 5] = [0, 1, 0, 0, 0];

fn send(client: &mut Client, command: Command, body: &[u8]) {
    client.send_payload(0, &[&[command.0], body].concat()).unwrap();
}

/// A transaction may end with the preparation: its client is told that, and nothing is executed outside it.
#[tokio::test]
async fn and_an_error_that_ends_the_transaction_is_told() {
    const ER_LOCK_DEADLOCK: u16 = 1213;
    let gateway = gateway(&cluster::single().primary().address(), "together_locks");
    let sql = |statements: &str| cluster::single().primary().sql(statements).unwrap();
    sql("CREATE TABLE together_locks.before_one (n INT)");
    let mut own = cluster::connect_to(&gateway, "together_locks").await;
    let write = elsewhere(&mut own, "INSERT INTO before_one VALUES (?)").await;
    own.query_drop("BEGIN").await.unwrap();
    own.query_drop("INSERT INTO one VALUES (2)").await.unwrap();
    // Has the first table and waits for the second.
    let other = tokio::task::spawn_blocking(|| {
        let rename = "USE together_locks; RENAME TABLE before_one TO x, one TO y; RENAME TABLE x TO before_one, y TO one";
        cluster::single().primary().sql(rename).unwrap();
    });
    let mut direct = Conn::new(client::options_at(cluster::single().primary().port()))
        .await
        .unwrap();
    eventually("it waits", async || {
        let list = "SELECT COUNT(*) FROM information_schema.processlist
                    WHERE info LIKE 'RENAME TABLE before_one%' AND state LIKE '%metadata lock%'";
        direct.query_first(list).await.unwrap() == Some(1)
    })
    .await;
    let done = own.exec_drop(&write, (1,)).await;
    assert_eq!(done.map_err(|error| client::code(&error)), Err(ER_LOCK_DEADLOCK));
    other.await.unwrap();
    let shown: Vec<(String, u16, String)> = own.query("SHOW ERRORS").await.unwrap();
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!((&*shown[0].0, shown[0].1), ("Error", ER_LOCK_DEADLOCK));
    assert!(shown[0].2.starts_with("Deadlock found"), "{shown:?}");
    assert_eq!(
        ask(&mut own, "SELECT @@error_count").await,
        Ok(Some("1".to_owned()))
    );
    let rows =
        "SELECT (SELECT COUNT(*) FROM together_locks.before_one), (SELECT COUNT(*) FROM together_locks.one)";
    assert_eq!(sql(rows), "0\t1\n", "neither before nor after");
    own.query_drop("ROLLBACK").await.unwrap();
}

fn send_together(client: &mut Client, payloads: &[&[u8]]) {
    let mut packets = Vec::new();
    for payload in payloads {
        mysql_wire::write_packet(&mut packets, &mut 0, payload);
    }
    client.send(&packets).unwrap();
}

/// Of an error.
fn code(packet: &[u8]) -> u16 {
    assert_eq!(packet[0], 0xff, "{packet:?}");
    u16::from_le_bytes([packet[1], packet[2]])
}

fn first(client: &mut Client) -> Vec<u8> {
    client.packet().unwrap().payload
}

/// Prepares a statement, and gives its id.
fn prepare(client: &mut Client, text: &str) -> Vec<u8> {
    send(client, Command::STMT_PREPARE, text.as_bytes());
    let head = first(client);
    assert_eq!(head[0], 0, "{}", String::from_utf8_lossy(&head));
    let parameters = u16::from_le_bytes([head[7], head[8]]);
    let columns = u16::from_le_bytes([head[5], head[6]]);
    for count in [parameters, columns].into_iter().filter(|count| *count > 0) {
        let ends = !client.capabilities.contains(Capabilities::DEPRECATE_EOF);
        (0..count + u16::from(ends)).for_each(|_| drop(first(client)));
    }
    head[1..5].to_vec()
}

/// Types that the client has sent with an earlier execution are there, and a cursor stays where it was
/// opened.
#[test]
fn with_the_types_from_before() {
    const LONG: u8 = 3;
    let link = Turns::to(cluster::single());
    let gateway = gateway(&link.address(), "together_types");
    let mut own = cluster::connect_raw(&gateway.address(), "together_types", Capabilities::default());
    let id = prepare(&mut own, "INSERT INTO t VALUES (?)");
    let typed = [&id, &[0, 1, 0, 0, 0, 0, 1, LONG, 0, 41, 0, 0, 0][..]].concat();
    send(&mut own, Command::STMT_EXECUTE, &typed);
    assert_eq!(first(&mut own)[0], 0);
    prepare(&mut own, "DO 7");
    let before = link.count();
    let untyped = [&id, &[0, 1, 0, 0, 0, 0, 0, 42, 0, 0, 0][..]].concat();
    send(&mut own, Command::STMT_EXECUTE, &untyped);
    let answer = first(&mut own);
    assert_eq!(answer[0], 0, "{}", String::from_utf8_lossy(&answer));
    assert_eq!(link.count() - before, 1);
    assert_eq!(own.ask("SELECT n FROM t ORDER BY n"), [b"\x0241", b"\x0242"]);
}

/// Cursors are opened so, and rows are written in bulk.
#[test]
fn whatever_is_executed() {
    const LONG: u8 = 3;
    const CURSOR: [u8; 5] = [1, 1, 0, 0, 0];
    let link = Turns::to(cluster::single());
    let gateway = gateway(&link.address(), "together_kinds");
    let further = Capabilities::MARIADB_STMT_BULK | Capabilities::DEPRECATE_EOF;
    let mut own = cluster::connect_raw(&gateway.address(), "together_kinds", further);
    let write = prepare(&mut own, "INSERT INTO t VALUES (?)");
    let read = prepare(&mut own, "SELECT n + ? FROM one");
    let mut turns = |command, body: &[u8]| {
        let before = link.count();
        send(&mut own, command, body);
        let answer = first(&mut own);
        assert_ne!(answer[0], 0xff, "{}", String::from_utf8_lossy(&answer));
        if command == Command::STMT_EXECUTE {
            // A column, and the end of the columns.
            (0..2).for_each(|_| drop(first(&mut own)));
        }
        link.count() - before
    };
    if kind() != Kind::Mysql {
        let rows = [&write, &[128, 0, LONG, 0, 0, 5, 0, 0, 0, 0, 6, 0, 0, 0][..]].concat();
        assert_eq!(turns(Command::STMT_BULK_EXECUTE, &rows), 1);
    }
    let opens = [&read[..], &CURSOR, &[0, 1, LONG, 0, 7, 0, 0, 0][..]].concat();
    assert_eq!(turns(Command::STMT_EXECUTE, &opens), 1);
    send(
        &mut own,
        Command::STMT_FETCH,
        &[&read, &[9, 0, 0, 0][..]].concat(),
    );
    let row = first(&mut own);
    assert_eq!(row[row.len() - 8..][..1], [8], "{row:?}");
    first(&mut own);
    send(&mut own, Command::QUIT, b"");
    if kind() != Kind::Mysql {
        let sum = cluster::single()
            .primary()
            .sql("SELECT SUM(n) FROM together_kinds.t")
            .unwrap();
        assert_eq!(sum, "11\n");
    }
}

/// What the guess relies on, on the server itself.
#[test]
fn since_ids_grow_and_none_is_given_to_what_was_refused() {
    let server = cluster::single().primary();
    let mut own = cluster::connect_raw(&server.address(), "test", Capabilities::default());
    let number = |id: Vec<u8>| u32::from_le_bytes(id.try_into().unwrap());
    // MariaDB's threads go on where they were with the client before.
    let first_id = number(prepare(&mut own, "DO 1"));
    send(&mut own, Command::STMT_PREPARE, b"NO SUCH");
    assert_eq!(first(&mut own)[0], 0xff);
    let after = number(prepare(&mut own, "DO 2"));
    assert_eq!(after - first_id, 2, "what was refused has had one");
    for text in ["PREPARE p FROM 'DO 3'", "DO 4", "SET @a = 1", "SET NAMES utf8mb4"] {
        own.ask(text);
    }
    let last = number(prepare(&mut own, "DO 5"));
    assert_eq!(last - first_id, 4, "a text has had one, too");
    // Nothing is executed by the id of one that was refused, of a text, of one that was closed, or of none.
    send(&mut own, Command::STMT_CLOSE, &last.to_le_bytes());
    for id in [first_id + 1, last - 1, last, last + 1, last + 2] {
        send(
            &mut own,
            Command::STMT_EXECUTE,
            &[&id.to_le_bytes()[..], &PLAIN].concat(),
        );
        assert_eq!(code(&first(&mut own)), 1243, "{id}");
    }
    let executed = [&[Command::STMT_EXECUTE.0], &(last + 1).to_le_bytes()[..], &PLAIN].concat();
    send_together(&mut own, &[b"\x16NO SUCH", &executed]);
    assert_eq!(
        [first(&mut own), first(&mut own)].map(|answer| code(&answer)),
        [1064, 1243]
    );
    send(&mut own, Command::RESET_CONNECTION, b"");
    assert_eq!(first(&mut own)[0], 0);
    assert_eq!(number(prepare(&mut own, "DO 1")), last + 2, "after a reset, too");
}

/// A server of its own: what it takes is of the whole server.
fn small(statements: u32) -> Sandbox {
    let server = Sandbox::start(Spec::new(kind())).unwrap();
    let limit = format!("SET GLOBAL max_prepared_stmt_count = {statements}");
    server.primary().sql(&limit).unwrap();
    server.primary().sql("CREATE TABLE test.kept (n INT)").unwrap();
    server
}

#[tokio::test]
async fn although_the_server_takes_no_more_statements() {
    const LIMIT: u32 = 6;
    let server = small(LIMIT);
    let gateway = cluster::narrow(&server, 2).start();
    let evicted = || gateway.metric("forebay_statements_evicted_total", &[]);
    let mut other = cluster::connect(&gateway).await;
    other.query_drop("BEGIN").await.unwrap();
    let mut own = cluster::connect(&gateway).await;
    let mut statements = Vec::new();
    // More than it takes, each the first time, and again.
    for number in 0..3 * LIMIT {
        let text = format!("INSERT INTO kept VALUES (? + {number} - {number})");
        statements.push(own.prep(text).await.unwrap());
    }
    assert!(evicted() >= 1.0);
    for statement in &statements {
        own.exec_drop(statement, (1,)).await.unwrap();
    }
    assert_eq!(
        ask(&mut own, "SELECT COUNT(*) FROM kept").await,
        Ok(Some((3 * LIMIT).to_string()))
    );
    // All of them are on the connection that is idle; the other one has none.
    for number in 0..3 {
        let statement = other
            .prep(format!("INSERT INTO kept VALUES ({number})"))
            .await
            .unwrap();
        other.exec_drop(statement, ()).await.unwrap();
    }
    other.query_drop("COMMIT").await.unwrap();
    assert_eq!(
        ask(&mut own, "SELECT COUNT(*) FROM kept").await,
        Ok(Some((3 * LIMIT + 3).to_string()))
    );
    // Where there is no room to be made the client is told.
    server
        .primary()
        .sql("SET GLOBAL max_prepared_stmt_count = 0")
        .unwrap();
    let refused = own
        .prep("DO 1000")
        .await
        .map(drop)
        .map_err(|error| client::code(&error));
    assert_eq!(refused, Err(1461));
    server
        .primary()
        .sql("SET GLOBAL max_prepared_stmt_count = 100")
        .unwrap();
    own.exec_drop(&statements[0], (1,)).await.unwrap();
}

/// Why MariaDB's word for the statement prepared last is not used: where there is no room for another it is
/// still the one before.
#[test]
fn and_the_one_prepared_last_may_be_another() {
    if kind() == Kind::Mysql {
        return;
    }
    let server = small(1);
    let mut own = cluster::connect_raw(&server.primary().address(), "test", Capabilities::default());
    prepare(&mut own, "INSERT INTO kept VALUES (1)");
    let last = [&[Command::STMT_EXECUTE.0][..], &[0xff; 4], &PLAIN].concat();
    send_together(&mut own, &[b"\x16DO 1", &last]);
    assert_eq!(code(&first(&mut own)), 1461);
    assert_eq!(first(&mut own)[0], 0, "executed");
    assert_eq!(own.ask("SELECT n FROM kept"), [b"\x011"]);
}
