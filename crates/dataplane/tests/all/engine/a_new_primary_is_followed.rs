//! Another server takes the writes: who waits for it, how many are let through at a time, and what a session
//! finds there of what it has written before.

use mysql_wire::Command;

use super::replication::Replication;
use super::stage::{Session, Setup, Stage, USUAL};

const WRITE: &str = "INSERT INTO t VALUES ('OK')";
const READ: &str = "SELECT 'SEEN' FROM t";
const WAIT: &str = "WAIT_FOR_EXECUTED_GTID_SET";

/// A primary and two replicas. `cluster`: its lines.
async fn start(replication: &Replication, cluster: &str) -> Stage {
    Stage::set(Setup {
        servers: 3,
        listener: "read_consistency = \"session\"",
        cluster,
        replication: Some(replication),
        ..USUAL
    })
    .await
}

async fn writes(session: &mut Session) {
    assert_eq!(session.query(WRITE).await, Ok(0));
}

/// How many writes each server has had.
fn written(stage: &Stage) -> Vec<usize> {
    stage.had(WRITE, false)
}

#[tokio::test]
async fn by_writes_that_wait_for_it() {
    let replication = Replication::new(3);
    let mut stage = start(&replication, "failover_wait = \"1m\"").await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    let mut gone = stage.connect().await;
    writes(&mut session).await;
    stage.loses_its_primary().await;
    for waiting in [&mut session, &mut gone] {
        waiting.send(Command::QUERY, WRITE.as_bytes()).await;
    }
    stage.waits(2, "primary").await;
    // Nobody writes for a client that has gone: it may have sent the statement anew.
    drop(gone);
    stage.waits(1, "primary").await;
    // Reads go on meanwhile.
    assert_eq!(other.query(READ).await, Ok(1));
    assert_eq!(written(&stage), [0; 3]);
    replication.promote(2);
    assert_eq!(session.answer().await, Ok(0));
    assert_eq!(written(&stage), [0, 0, 1]);
    stage.knows(2, 1).await;
    assert_eq!(session.query(READ).await, Ok(2), "it sees what it has written");
    writes(&mut other).await;
    assert_eq!(written(&stage), [0, 0, 2]);
}

#[tokio::test]
async fn or_are_told_that_none_has_come() {
    let replication = Replication::new(3);
    let mut stage = start(&replication, "failover_wait = \"100ms\"").await;
    let mut session = stage.connect().await;
    stage.loses_its_primary().await;
    for _ in 0..2 {
        let (code, words) = session.refused(WRITE).await;
        assert_eq!(code, 1290, "{words}");
        assert!(words.contains("no primary within failover_wait"), "{words}");
        assert_eq!(session.query(READ).await, Ok(0), "it goes on");
    }
    assert_eq!(written(&stage), [0; 3]);
    replication.promote(1);
    stage.knows(1, 1).await;
    writes(&mut session).await;
}

/// A server that is known as the primary refuses a write: so its session waits for another one, and the write
/// is done there.
#[tokio::test]
async fn by_a_write_that_the_old_one_has_refused() {
    let replication = Replication::new(3);
    let mut stage = start(&replication, "failover_wait = \"1m\"").await;
    let mut session = stage.connect().await;
    replication.takes_writes(0, false);
    session.send(Command::QUERY, WRITE.as_bytes()).await;
    stage.waits(1, "primary").await;
    replication.switch_over(0, 1);
    assert_eq!(session.answer().await, Ok(0));
    assert_eq!(replication.transactions(1), 1, "once");
    let ended = stage.next_end().await;
    assert!(ended.resent <= 1, "{ended:?}");
    assert_eq!((ended.server, ended.error), (stage.name(1), None));
}

/// All who have waited are let through a few at a time.
#[tokio::test]
async fn by_a_few_at_a_time() {
    const SESSIONS: usize = 10;
    let replication = Replication::new(3);
    let cluster = "failover_wait = \"1m\"\nfailover_release = 2";
    let mut stage = start(&replication, cluster).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(stage.connect().await);
    }
    stage.loses_its_primary().await;
    for (at, session) in sessions.iter_mut().enumerate() {
        let write = format!("INSERT INTO t VALUES ('PACED', {at})");
        session.send(Command::QUERY, write.as_bytes()).await;
    }
    stage.waits(SESSIONS, "primary").await;
    replication.promote(1);
    stage
        .until("some wait for others", |stage| {
            stage.metric("forebay_release_waiting", &[]) > 0.0
        })
        .await;
    for session in &mut sessions {
        assert_eq!(session.answer().await, Ok(0));
    }
    assert_eq!(replication.most_at_once(1), 2);
    assert_eq!(stage.metric("forebay_released_total", &[]), SESSIONS as f64);
    assert_eq!(stage.metric("forebay_release_waiting", &[]), 0.0);
    // Nobody waits any more, and so nobody is held up.
    writes(&mut sessions[0]).await;
    assert_eq!(stage.metric("forebay_released_total", &[]), SESSIONS as f64);
}

/// The new one has yet to apply what it has got of the old one: a session waits there once, before its first
/// statement.
#[tokio::test]
async fn once_it_has_what_its_session_has_written() {
    let replication = Replication::new(3);
    let stage = start(&replication, "read_wait = \"1m\"").await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    writes(&mut session).await;
    replication.hold_back(1);
    writes(&mut session).await;
    replication.switch_over(0, 1);
    stage.knows(1, 2).await;
    session.send(Command::QUERY, WRITE.as_bytes()).await;
    stage.waits(1, "position").await;
    assert_eq!(written(&stage), [2, 0, 0]);
    writes(&mut other).await;
    assert_eq!(
        written(&stage),
        [2, 1, 0],
        "who has written nothing waits for nothing"
    );
    // A server that has all before it is asked is not waited on.
    stage.has_come(1, WAIT, 1).await;
    let waited = stage.sent(WAIT);
    assert!(waited.iter().all(|(place, _)| place.server == 1), "{waited:?}");
    replication.catch_up(1, 0);
    assert_eq!(session.answer().await, Ok(0));
    writes(&mut session).await;
    assert_eq!(written(&stage), [2, 3, 0]);
    let again = stage
        .sent(WAIT)
        .into_iter()
        .filter(|(place, _)| place.server == 1);
    assert_eq!(again.count(), 1);
}

/// A primary is gone with a transaction that no replica has got. Nobody will ever have it: its session waits
/// for it once, and goes on.
#[tokio::test]
async fn without_what_is_lost() {
    let replication = Replication::new(3);
    // The session hears of a wait that is not answered in twice the time.
    let cluster = "failover_wait = \"1m\"\nread_wait = \"2s\"";
    let mut stage = start(&replication, cluster).await;
    let mut session = stage.connect().await;
    writes(&mut session).await;
    [1, 2].into_iter().for_each(|at| replication.hold_back(at));
    writes(&mut session).await;
    stage.loses_its_primary().await;
    replication.promote(1);
    stage.knows(1, 1).await;
    replication.let_through(2);
    let lost = |stage: &Stage| stage.metric("forebay_split_writes_lost_total", &[]);
    assert_eq!(session.query(READ).await, Ok(1), "the second is lost");
    assert_eq!(lost(&stage), 1.0);
    let waited = stage.sent(WAIT).len();
    for _ in 0..4 {
        assert_eq!(session.query(READ).await, Ok(1));
    }
    assert_eq!(stage.sent(WAIT).len(), waited, "nobody waits for it any more");
    // From here on it sees what it writes, as ever.
    for seen in 2..6 {
        writes(&mut session).await;
        assert_eq!(session.query(READ).await, Ok(seen));
    }
    assert_eq!(lost(&stage), 1.0);
}

/// A replica was promoted, another follows it, and the old primary was left as it was: nobody writes until
/// there is one of them.
#[tokio::test]
async fn only_where_there_is_one() {
    let replication = Replication::new(3);
    let stage = start(&replication, "failover_wait = \"1m\"").await;
    let mut session = stage.connect().await;
    writes(&mut session).await;
    replication.promote(1);
    let is_refused = |stage: &Stage| stage.metric("forebay_writes_refused", &[]) == 1.0;
    stage.until("writes are refused", is_refused).await;
    for statement in [WRITE, "BEGIN"] {
        let (code, words) = session.refused(statement).await;
        assert_eq!(code, 1290, "{words}");
        for part in [
            "writes are refused",
            &stage.name(0).unwrap(),
            &stage.name(1).unwrap(),
        ] {
            assert!(words.contains(part), "{words}");
        }
    }
    assert_eq!(session.query(READ).await, Ok(1), "reads go on");
    let mut new = stage.connect().await;
    assert_eq!(new.query(READ).await, Ok(1), "and new sessions");
    assert_eq!(new.query(WRITE).await, Err(1290));
    replication.switch_over(0, 1);
    stage.until("there is one", |stage| !is_refused(stage)).await;
    writes(&mut session).await;
    assert_eq!(written(&stage), [1, 1, 0]);
}
