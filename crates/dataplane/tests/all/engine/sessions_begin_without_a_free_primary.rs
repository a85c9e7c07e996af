//! What drivers say at the beginning of a session is executed by whoever can: while the primary is gone or
//! full, a replica answers, and at once.

use std::time::{Duration, Instant};

use mysql_wire::Command;

use super::replication::Replication;
use super::stage::{Session, Setup, Stage, USUAL};

/// Far below `failover_wait` and `queue_timeout`.
const AT_ONCE: Duration = Duration::from_secs(20);

const OPENINGS: [&str; 7] = [
    "SET NAMES utf8mb4",
    "SET autocommit = 0",
    "SET autocommit = 1",
    "SET time_zone = '+03:00'",
    "SET wait_timeout = 2147",
    "SET group_concat_max_len = 77, net_write_timeout = 99",
    "USE elsewhere",
];

/// The primary has room for one session. `cluster`: its lines.
async fn start(replication: &Replication, cluster: &str) -> Stage {
    Stage::set(Setup {
        servers: 2,
        each: &[", max_connections = 1", ""],
        cluster,
        remembers: true,
        replication: Some(replication),
        ..USUAL
    })
    .await
}

/// A session says all this, one after the other, and has it.
async fn begins(stage: &Stage) -> Session {
    let began = Instant::now();
    let mut session = stage.connect_to("home").await;
    for statement in OPENINGS {
        assert_eq!(session.query(statement).await, Ok(0), "{statement}");
    }
    has(&mut session).await;
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    session
}

async fn has(session: &mut Session) {
    let asked = "SELECT @@time_zone, @@wait_timeout, @@group_concat_max_len, DATABASE()";
    let rows = session.rows(asked).await;
    assert_eq!(rows, [["+03:00", "2147", "77", "elsewhere"]]);
}

/// No statement of these has come to the server.
fn has_had_none(stage: &Stage, server: usize) {
    let is_there = |statement: &&str| stage.had(statement, false)[server] > 0;
    assert!(!OPENINGS.iter().any(is_there), "{:?}", stage.sent("SET"));
}

#[tokio::test]
async fn while_it_is_gone() {
    let replication = Replication::new(2);
    let mut stage = start(&replication, "failover_wait = \"1m\"").await;
    stage.loses_its_primary().await;
    let mut session = begins(&stage).await;
    session.send(Command::INIT_DB, b"elsewhere").await;
    assert_eq!(session.answer().await, Ok(0));
    // What a server alone can say waits for the primary.
    let of_server = "SET wait_timeout = @@global.wait_timeout";
    session.send(Command::QUERY, of_server.as_bytes()).await;
    stage.waits(1, "primary").await;
    replication.promote(1);
    assert_eq!(session.answer().await, Ok(0));
}

/// That there is none holds up what comes next no more than what came before.
#[tokio::test]
async fn but_not_with_what_only_a_server_knows() {
    let replication = Replication::new(2);
    let mut stage = start(&replication, "failover_wait = \"100ms\"").await;
    stage.loses_its_primary().await;
    let mut session = begins(&stage).await;
    for set in [
        "SET SESSION wait_timeout = @@global.wait_timeout",
        "SET time_zone = '+02:00', wait_timeout = IF(@@hostname = '', 1, 2)",
        "SET GLOBAL max_connections = 7",
        "SET @a = 1",
    ] {
        assert_eq!(session.query(set).await, Err(1290), "{set}");
        assert_eq!(session.query("SET time_zone = '+03:00'").await, Ok(0), "{set}");
    }
    has(&mut session).await;
}

/// Whoever waits for the primary has said something that only that one can do.
#[tokio::test]
async fn while_it_is_full() {
    let replication = Replication::new(2);
    let stage = start(&replication, "queue_timeout = \"1m\"").await;
    let mut holder = stage.connect_to("home").await;
    assert_eq!(holder.query("BEGIN").await, Ok(0));
    let mut session = begins(&stage).await;
    has_had_none(&stage, 0);
    let write = "INSERT INTO t VALUES ('OK', 'waits')";
    session.send(Command::QUERY, write.as_bytes()).await;
    stage.waits(1, "seat").await;
    assert!(stage.sent(write).is_empty());
    begins(&stage).await;
    assert_eq!(holder.query("COMMIT").await, Ok(0));
    assert_eq!(session.answer().await, Ok(0));
    assert_eq!(stage.place(write).server, 0);
}

/// Where it has room it is the primary that is asked.
#[tokio::test]
async fn and_at_the_primary_where_it_can() {
    let replication = Replication::new(2);
    let stage = start(&replication, "").await;
    begins(&stage).await;
    has_had_none(&stage, 1);
}
