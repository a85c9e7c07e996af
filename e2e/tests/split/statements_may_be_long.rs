//! Statements, and parameters, of more than the gateway's buffers of 64 KiB hold.

use std::sync::Once;

use e2e::packets::Client;
use e2e::{Gateway, eventually, servers_with};
use mysql_async::prelude::Queryable;
use mysql_async::{Compression, Conn, Value};
use mysql_wire::{Capabilities, Command};

use crate::cluster::{self, ask, pins};

const SCHEMA: &str = "long_statements";

/// In front of one server, with so many connections, each with one statement.
fn gateway(connections: u32, options: &str) -> Gateway {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tables = "CREATE TABLE bulk (id INT PRIMARY KEY, text VARCHAR(20));
                      CREATE TABLE texts (id INT PRIMARY KEY, text LONGTEXT)";
        cluster::schema(cluster::single(), SCHEMA, tables);
    });
    let setup = cluster::narrow(cluster::single(), connections).top(options);
    setup.cluster("pool = { prepared_max = 1 }").start()
}

async fn connect(gateway: &Gateway) -> Conn {
    cluster::connect_to(gateway, SCHEMA).await
}

/// Five million bytes.
fn long() -> String {
    "it''s long".repeat(500_000)
}

/// No memory is left behind.
async fn gives_its_memory_back(gateway: &Gateway) {
    eventually("all buffers are free", async || {
        gateway.metric("forebay_buffers_in_use", &[]) == 0.0
    })
    .await;
}

#[tokio::test]
async fn and_prepared_with_thousands_of_placeholders() {
    const ROWS: usize = 10_000;
    let gateway = gateway(2, "");
    let mut session = connect(&gateway).await;
    let text = format!("INSERT INTO bulk VALUES {}", vec!["(?, ?)"; ROWS].join(", "));
    assert!(text.len() > 64 * 1024);
    let statement = session.prep(text).await.unwrap();
    let values = |first: usize| {
        let rows = first..first + ROWS;
        let values = rows.flat_map(|id| [Value::from(id), Value::from(format!("text {id}"))]);
        values.collect::<Vec<_>>()
    };
    session.exec_drop(&statement, values(0)).await.unwrap();
    assert_eq!(session.affected_rows(), ROWS as u64);
    assert_eq!(pins(&mut session).await, [""; 0]);
    // Whichever of the two connections is left, the last statement of one of them was another.
    let mut others = connect(&gateway).await;
    others.query_drop("BEGIN").await.unwrap();
    others.exec_drop("SELECT ? FROM bulk", (1,)).await.unwrap();
    for round in 1..3 {
        session.exec_drop(&statement, values(round * ROWS)).await.unwrap();
        others.query_drop("COMMIT").await.unwrap();
        session.query_drop("BEGIN").await.unwrap();
        others.query_drop("BEGIN").await.unwrap();
        others.exec_drop("SELECT ? FROM bulk", (1,)).await.unwrap();
        session.query_drop("COMMIT").await.unwrap();
    }
    let found = ask(
        &mut session,
        "SELECT CONCAT(COUNT(*), ' ', MAX(id), ' ', MAX(text)) FROM bulk",
    )
    .await;
    assert_eq!(found, Ok(Some("30000 29999 text 9999".to_owned())));
    assert_eq!(pins(&mut session).await, [""; 0]);
    assert!(gateway.metric("forebay_statements_prepared_again_total", &[]) >= 1.0);
    session.close(statement).await.unwrap();
    gives_its_memory_back(&gateway).await;
}

#[tokio::test]
async fn and_prepared_of_megabytes() {
    let gateway = gateway(1, "");
    let mut session = connect(&gateway).await;
    let text = format!("SELECT LENGTH('{}') + ?", long());
    let statement = session.prep(text).await.unwrap();
    let other = session.prep("SELECT ?").await.unwrap();
    for n in 1..3 {
        let found: Option<u32> = session.exec_first(&statement, (n,)).await.unwrap();
        assert_eq!(found, Some(4_500_000 + n));
        let _: Option<u32> = session.exec_first(&other, (n,)).await.unwrap();
    }
    assert_eq!(pins(&mut session).await, [""; 0]);
    gives_its_memory_back(&gateway).await;
}

#[tokio::test]
async fn and_bind_nobody() {
    let gateway = gateway(1, "");
    let mut session = connect(&gateway).await;
    let long = long();
    let insert = format!("INSERT INTO texts VALUES (1, '{long}')");
    session.query_drop(insert).await.unwrap();
    assert_eq!(pins(&mut session).await, [""; 0]);
    // Another session has the only connection, and compresses.
    let options = cluster::options(&gateway).compression(Some(Compression::fast()));
    let mut other = Conn::new(options).await.unwrap();
    let length = ask(&mut other, &format!("SELECT LENGTH('{long}')")).await;
    assert_eq!(length, Ok(Some("4500000".to_owned())));
    assert_eq!(pins(&mut other).await, [""; 0]);
    let length = ask(&mut session, "SELECT LENGTH(text) FROM texts WHERE id = 1").await;
    assert_eq!(length, Ok(Some("4500000".to_owned())));
    gives_its_memory_back(&gateway).await;
}

#[tokio::test]
async fn up_to_what_the_gateway_has_memory_for() {
    let gateway = gateway(1, "statement_memory_max = \"1MiB\"");
    let mut session = connect(&gateway).await;
    let long = long();
    let statement = session
        .prep(format!("SELECT LENGTH('{}')", &long[..200_000]))
        .await
        .unwrap();
    let found: Option<u32> = session.exec_first(&statement, ()).await.unwrap();
    assert_eq!(found, Some(180_000));
    let insert = format!("INSERT INTO texts VALUES (2, '{long}')");
    session.query_drop(insert).await.unwrap();
    assert_eq!(pins(&mut session).await, ["incomplete"]);
    session.reset().await.unwrap();
    assert_eq!(pins(&mut session).await, [""; 0]);
    is_bound_by(&mut session, &format!("SELECT LENGTH('{long}') + ?"), 4_500_000).await;
    gives_its_memory_back(&gateway).await;
}

/// The session executes a statement that nobody else can prepare, and has its connection to itself until it
/// is reset.
async fn is_bound_by(session: &mut Conn, text: &str, length: u32) {
    let statement = session.prep(text).await.unwrap();
    assert_eq!(pins(session).await, ["incomplete"]);
    // As many statements as a connection may have beside it do not drive it out.
    for n in 1..4 {
        let other: Option<u32> = session.exec_first(format!("SELECT {n} + ?"), (1,)).await.unwrap();
        let found: Option<u32> = session.exec_first(&statement, (n,)).await.unwrap();
        assert_eq!((found, other), (Some(length + n), Some(n + 1)));
    }
    session.close(statement).await.unwrap();
    session.reset().await.unwrap();
    assert_eq!(pins(session).await, [""; 0]);
}

#[tokio::test]
async fn and_prepared_of_more_than_a_packet() {
    let sandbox = &servers_with(1, &["--max-allowed-packet=64M"])[0];
    let gateway = cluster::narrow(sandbox, 1)
        .cluster("pool = { prepared_max = 1 }")
        .start();
    let options = cluster::options(&gateway).max_allowed_packet(Some(64 << 20));
    let mut session = Conn::new(options).await.unwrap();
    let long = "x".repeat(17_000_000);
    is_bound_by(&mut session, &format!("SELECT LENGTH('{long}') + ?"), 17_000_000).await;
    // Another session has the connection now.
    let mut other = cluster::connect(&gateway).await;
    assert_eq!(ask(&mut other, "SELECT 1").await, Ok(Some("1".to_owned())));
    gives_its_memory_back(&gateway).await;
}

/// Texts that sessions have prepared are kept as long as these are open, and the memory for them is all
/// sessions'.
#[tokio::test]
async fn of_all_sessions_together() {
    let gateway = gateway(4, "statement_memory_max = \"1MiB\"");
    let text = format!("SELECT LENGTH('{}')", "x".repeat(200_000));
    let mut sessions = Vec::new();
    let mut is_kept = Vec::new();
    let is_shared = async |session: &mut Conn| {
        session.prep(text.as_str()).await.unwrap();
        pins(session).await == [""; 0]
    };
    for _ in 0..7 {
        let mut session = connect(&gateway).await;
        is_kept.push(is_shared(&mut session).await);
        sessions.push(session);
    }
    assert_eq!(is_kept, [true, true, true, true, false, false, false]);
    let left = sessions.remove(0);
    left.disconnect().await.unwrap();
    let session = sessions.last_mut().unwrap();
    eventually("there is room for another", async || {
        session.reset().await.unwrap();
        is_shared(session).await
    })
    .await;
    gives_its_memory_back(&gateway).await;
}

fn send(client: &mut Client, command: Command, body: &[u8]) -> Vec<u8> {
    client.send_payload(0, &[&[command.0], body].concat()).unwrap();
    client.packet().unwrap().payload
}

/// The client has said once of which types they are, and the connection has forgotten the statement.
#[test]
fn and_so_may_their_parameters() {
    const LONG_BLOB: u8 = 251;
    let gateway = gateway(1, "");
    let mut session = cluster::connect_raw(&gateway.address(), SCHEMA, Capabilities::default());
    let text = b"REPLACE INTO texts VALUES (3, ?)";
    let prepared = send(&mut session, Command::STMT_PREPARE, text);
    // The parameter, and what comes behind it.
    session.packet().unwrap();
    session.packet().unwrap();
    let head = [&prepared[1..5], &[0, 1, 0, 0, 0, 0]].concat();
    let with_types = [&head[..], &[1, LONG_BLOB, 0], b"\x05short"].concat();
    assert_eq!(send(&mut session, Command::STMT_EXECUTE, &with_types)[0], 0);
    for long in [long().into_bytes(), vec![b'x'; 70_000]] {
        assert_eq!(send(&mut session, Command::STMT_PREPARE, b"DO 1")[0], 0);
        let len = [&b"\xfd"[..], &(long.len() as u32).to_le_bytes()[..3]].concat();
        let answer = send(
            &mut session,
            Command::STMT_EXECUTE,
            &[&head[..], &[0], &len, &long].concat(),
        );
        assert_eq!(answer[0], 0, "{}", String::from_utf8_lossy(&answer));
        let length = session.ask("SELECT LENGTH(text) FROM texts WHERE id = 3");
        assert_eq!(String::from_utf8_lossy(&length[0][1..]), long.len().to_string());
    }
    assert_eq!(session.ask("FOREBAY SHOW PINS"), [b""; 0]);
}
