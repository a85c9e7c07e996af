//! Sessions that are bound to a connection of a primary that is replaced, in order: it takes no more writes,
//! and runs on. What their account may do on it even so is not done.

use mysql_wire::Command;

use super::replication::Replication;
use super::stage::{Session, Setup, Stage, Told, USUAL};

const WRITE: &str = "INSERT INTO t VALUES ('OK')";

/// An account whose sessions keep their connections.
const KEEPS: &str = "[[user]]\nname = \"keeps\"\npassword = \"secret\"\npooling = \"session\"\n";

async fn start(replication: &Replication, listener: &str) -> Stage {
    Stage::set(Setup {
        servers: 3,
        listener,
        cluster: "failover_wait = \"1m\"",
        tables: KEEPS,
        replication: Some(replication),
        ..USUAL
    })
    .await
}

async fn session(stage: &Stage, statements: &[&str]) -> Session {
    let mut session = stage.connect().await;
    for statement in statements {
        assert!(session.query(statement).await.is_ok(), "{statement}");
    }
    session
}

/// The second server becomes the primary.
async fn switch_over(stage: &Stage, replication: &Replication) {
    replication.switch_over(0, 1);
    stage.knows(1, 2).await;
}

/// The statement ends its session, with an error that says why.
async fn is_told(stage: &Stage, session: &mut Session, statement: &str, reason: &str) {
    let (code, words) = session.refused(statement).await;
    assert_eq!(code, 1158, "{statement}: {words}");
    let old = stage.name(0).unwrap();
    for part in [&*old, reason, "no longer the primary", "not executed"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert_eq!(session.query("DO 1").await, Err(0), "{statement}: it has ended");
}

#[tokio::test]
async fn by_those_who_cannot_move() {
    let replication = Replication::new(3);
    let stage = start(&replication, "").await;
    let mut writes = session(&stage, &["SET @x = 1"]).await;
    let mut reads = session(&stage, &["CREATE TEMPORARY TABLE own (n INT)"]).await;
    let mut begins = session(&stage, &["SET @x = 1"]).await;
    let mut executes = session(&stage, &["SET @x = 1"]).await;
    let id = executes.prepare("UPDATE t SET v = 9").await;
    let mut pings = session(&stage, &["SELECT 'ROWS 1', GET_LOCK('held', 0)"]).await;
    let mut keeps = stage.connect_as("keeps").await;
    assert_eq!(keeps.query("SELECT 'ROWS 1' FROM kept").await, Ok(1));
    let mut resets = session(&stage, &["SET @x = 1"]).await;
    switch_over(&stage, &replication).await;

    is_told(&stage, &mut writes, WRITE, "user-variables").await;
    let read = "SELECT 'ROWS 1' FROM own";
    is_told(&stage, &mut reads, read, "temporary-table").await;
    is_told(&stage, &mut begins, "BEGIN", "user-variables").await;
    is_told(&stage, &mut keeps, "SELECT 'ROWS 1' FROM kept", "session-pooling").await;
    assert_eq!(executes.execute(id).await, Err(1158));
    pings.send(Command::PING, b"").await;
    assert_eq!(pings.answer().await, Err(1158));
    // What bound it is gone.
    resets.reset().await;
    assert_eq!(resets.query(WRITE).await, Ok(0));
    assert_eq!(stage.had(WRITE, false), [0, 1, 0]);
    // The old one has had nothing of all that.
    assert!(stage.sent("FROM own").is_empty() && stage.sent("UPDATE").len() == 1);
}

/// It is its server that says what may be done in it, until it ends.
#[tokio::test]
async fn after_the_transaction_that_is_open() {
    let replication = Replication::new(3);
    let stage = start(&replication, "").await;
    let inside = "SELECT 'ROWS 1', 'TRX' FROM inside";
    let mut free = session(&stage, &["BEGIN", inside]).await;
    let mut bound = session(&stage, &["SET @x = 1", "BEGIN", inside]).await;
    switch_over(&stage, &replication).await;
    for session in [&mut free, &mut bound] {
        assert_eq!(session.query(inside).await, Ok(1));
        assert_eq!(session.query("ROLLBACK").await, Ok(0));
    }
    assert_eq!(stage.had(inside, false), [4, 0, 0]);
    is_told(&stage, &mut bound, "SELECT 'ROWS 1' FROM after", "user-variables").await;
    assert_eq!(free.query(WRITE).await, Ok(0));
    assert_eq!(stage.had(WRITE, false), [0, 1, 0]);
}

/// The other way round: whoever is bound to a replica may write there once it is the primary.
#[tokio::test]
async fn for_one_that_some_are_bound_to() {
    let replication = Replication::new(3);
    let stage = start(&replication, "").await;
    let server = stage.name(1).unwrap();
    let lock = format!("/* forebay: server={server} */ SELECT 'ROWS 1', GET_LOCK('there', 0)");
    let mut bound = session(&stage, &[&lock]).await;
    let (code, words) = bound.refused(WRITE).await;
    assert!(code == 1290 && words.contains("is not the primary's"), "{words}");
    assert!(words.contains("user-lock") && words.contains(&server), "{words}");
    switch_over(&stage, &replication).await;
    assert_eq!(bound.query(WRITE).await, Ok(0));
    assert_eq!(stage.place(WRITE), stage.place(&lock));
    assert_eq!(bound.query("DO RELEASE_ALL_LOCKS()").await, Ok(0));
    assert_eq!(bound.pins().await, [""; 0]);
}

/// Two that take writes: sessions that are bound to one of them write no more than others.
#[tokio::test]
async fn by_nobody_for_one_of_two() {
    let replication = Replication::new(3);
    let stage = start(&replication, "").await;
    let mut bound = session(&stage, &["SET @x = 1"]).await;
    replication.promote(1);
    stage
        .until("writes are refused", |stage| {
            stage.metric("forebay_writes_refused", &[]) == 1.0
        })
        .await;
    let (code, words) = bound.refused(WRITE).await;
    assert!(code == 1290 && words.contains("writes are refused"), "{words}");
    assert_eq!(
        bound.query("SELECT 'ROWS 1' FROM bound").await,
        Ok(1),
        "it may read"
    );
    replication.switch_over(1, 0);
    stage.knows(0, 2).await;
    assert_eq!(bound.query(WRITE).await, Ok(0));
    assert_eq!(stage.place(WRITE), stage.place("SET @x"));
    assert_eq!(bound.pins().await, ["user-variables"]);
}

/// The connection that a session waits for becomes free once nothing is to be written there any more.
#[tokio::test]
async fn by_those_who_wait_in_line_for_it() {
    let replication = Replication::new(3);
    let stage = Stage::set(Setup {
        servers: 3,
        each: &[", max_connections = 1", "", ""],
        cluster: "queue_timeout = \"1m\"",
        remembers: true,
        replication: Some(&replication),
        ..USUAL
    })
    .await;
    let mut holder = session(&stage, &["BEGIN"]).await;
    let mut waits = stage.connect().await;
    waits.send(Command::QUERY, WRITE.as_bytes()).await;
    stage.waits(1, "seat").await;
    replication.promote(1);
    stage
        .until("writes are refused", |stage| {
            stage.metric("forebay_writes_refused", &[]) == 1.0
        })
        .await;
    assert_eq!(holder.query("COMMIT").await, Ok(0));
    let (code, words) = waits.error().await;
    assert!(code == 1290 && words.contains("writes are refused"), "{words}");
    assert_eq!(stage.had(WRITE, false), [0; 3]);
}

/// `sharing = "never"`: the connection of a session leads to the old primary, and nobody would see what it
/// writes there.
#[tokio::test]
async fn by_those_with_a_connection_of_their_own() {
    let replication = Replication::new(3);
    let stage = start(&replication, "sharing = \"never\"").await;
    let (mut old, mut open) = (stage.connect().await, stage.connect().await);
    assert_eq!(old.query(WRITE).await, Ok(0));
    let inside = "SELECT 'ROWS 1', 'TRX' FROM inside";
    for (statement, told) in [("BEGIN", Ok(0)), (inside, Ok(1))] {
        assert_eq!(open.query(statement).await, told);
    }
    switch_over(&stage, &replication).await;
    is_told(&stage, &mut old, WRITE, "sharing = never").await;
    for (statement, told) in [(inside, Ok(1)), ("COMMIT", Ok(0))] {
        assert_eq!(open.query(statement).await, told, "its transaction goes on");
    }
    let told: Told = open.query("SELECT 'ROWS 1' FROM after").await;
    assert_eq!(told, Err(1158));
    let mut new = stage.connect().await;
    assert_eq!(new.query(WRITE).await, Ok(0));
    assert_eq!(stage.had(WRITE, false), [1, 1, 0]);
}
