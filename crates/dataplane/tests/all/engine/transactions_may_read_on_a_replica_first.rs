//! `transaction_reads = "replica"`: up to its first statement that is no plain read a transaction is on a
//! replica, from there on on the primary, where it has begun before the statement comes.

use mysql_wire::Command;

use super::stage::{Session, Setup, Stage};

const READ: &str = "SELECT 'ROWS 1', 'TRX' FROM t";
const WRITE: &str = "INSERT INTO t VALUES ('OK', 'TRX')";

async fn start() -> Stage {
    Stage::set(Setup {
        servers: 3,
        listener: "read_consistency = \"eventual\"\ntransaction_reads = \"replica\"",
        ..Setup::default()
    })
    .await
}

fn count(stage: &Stage, what: &str) -> f64 {
    let label = format!("what={what:?}");
    stage.metric("forebay_split_transactions_on_replicas_total", &[&label])
}

/// Begins a transaction, and reads on the replica where it is.
async fn begin(stage: &Stage, session: &mut Session, begin: &str) -> usize {
    let counts = stage.spread(session, begin, false, 1).await;
    let replica = counts.iter().position(|count| *count == 1).unwrap();
    assert_ne!(replica, 0, "{begin}");
    assert_eq!(stage.spread(session, READ, false, 3).await[replica], 3, "{begin}");
    replica
}

#[tokio::test]
async fn and_move_to_the_primary_to_write() {
    let stage = start().await;
    let mut moved = 0.0;
    for first in ["BEGIN", "begin work;", "START TRANSACTION"] {
        let mut session = stage.connect().await;
        let replica = begin(&stage, &mut session, first).await;
        session.send(Command::PING, b"").await;
        assert_eq!(session.answer().await, Ok(0));
        assert_eq!(count(&stage, "moved"), moved);
        let write = format!("{WRITE} /* after {first} */");
        assert_eq!(session.query(&write).await, Ok(0));
        moved += 1.0;
        assert_eq!(count(&stage, "moved"), moved);
        // It has begun there, and is over where it was.
        let place = stage.place(&write);
        assert_eq!(place.server, 0);
        let requests = stage.requests(place);
        let before = &requests[requests.len() - 2];
        assert!(before.ends_with(b"START TRANSACTION"), "{first}: {before:?}");
        stage.has_come(replica, "ROLLBACK", 1).await;
        assert_eq!(stage.spread(&mut session, READ, false, 2).await, [2, 0, 0]);
        assert_eq!(stage.spread(&mut session, "COMMIT", false, 1).await, [1, 0, 0]);
        let read = "SELECT 'ROWS 1'";
        assert_eq!(stage.spread(&mut session, read, false, 5).await[0], 0);
    }
    assert_eq!(count(&stage, "begun"), 3.0);
}

#[tokio::test]
async fn whatever_is_not_certainly_a_plain_read_moves_them() {
    let stage = start().await;
    for (at, statement) in [
        "SELECT id FROM t FOR UPDATE",
        "SELECT id FROM t LOCK IN SHARE MODE",
        "UPDATE t SET id = 1 WHERE id = 2",
        "SAVEPOINT a",
        "SET @x = 1",
        "SET SESSION sort_buffer_size = 65536",
        "USE movers",
        "SELECT LAST_INSERT_ID()",
        "SELECT CONNECTION_ID()",
        "SELECT @@port",
        "SELECT give_one()",
        "SELECT 1 INTO @y",
        "CREATE TABLE made (id INT)",
        "/* forebay: primary */ SELECT 1",
        "COMMIT AND CHAIN",
        "ROLLBACK AND CHAIN",
        "BEGIN",
    ]
    .into_iter()
    .enumerate()
    {
        let mut session = stage.connect().await;
        let replica = begin(&stage, &mut session, "BEGIN").await;
        let statement = format!("{statement} /* 'TRX' moves {at}. */");
        assert!(session.query(&statement).await.is_ok(), "{statement}");
        let place = stage.place(&format!("moves {at}. "));
        assert_eq!(place.server, 0, "{statement}");
        assert_eq!(count(&stage, "moved"), at as f64 + 1.0, "{statement}");
        let requests = stage.requests(place);
        let has_begun = |request: &Vec<u8>| request.ends_with(b"START TRANSACTION");
        assert!(requests.iter().any(has_begun), "{statement}");
        stage.has_come(replica, "ROLLBACK", 1).await;
        // It is in a transaction there.
        assert_eq!(stage.spread(&mut session, READ, false, 2).await, [2, 0, 0]);
    }
}

#[tokio::test]
async fn and_may_end_where_they_have_read() {
    let stage = start().await;
    let mut session = stage.connect().await;
    for end in ["COMMIT", "ROLLBACK", "commit work ;"] {
        let replica = begin(&stage, &mut session, "BEGIN").await;
        assert_eq!(
            stage.spread(&mut session, end, false, 1).await[replica],
            1,
            "{end}"
        );
        // It is over: this is a statement of its own.
        let write = "INSERT INTO t VALUES ('OK')";
        assert_eq!(stage.spread(&mut session, write, false, 1).await, [1, 0, 0]);
        assert_eq!(session.pins().await, [""; 0], "{end}");
    }
    assert_eq!((count(&stage, "begun"), count(&stage, "moved")), (3.0, 0.0));
    assert!(stage.sent("START TRANSACTION").is_empty());
    // A statement that fails does not end it.
    let replica = begin(&stage, &mut session, "BEGIN").await;
    for _ in 0..2 {
        assert_eq!(session.query("SELECT 'ERROR' FROM t").await, Err(1064));
    }
    let failed = stage.sent("'ERROR'");
    assert!(
        failed.iter().all(|(place, _)| place.server == replica),
        "{failed:?}"
    );
    assert_eq!(stage.spread(&mut session, READ, false, 1).await[replica], 1);
    assert_eq!(stage.spread(&mut session, WRITE, false, 1).await, [1, 0, 0]);
    assert_eq!(count(&stage, "moved"), 1.0);
}

/// As with any transaction whose server is lost.
#[tokio::test]
async fn and_one_whose_replica_is_lost_is_over() {
    let stage = start().await;
    let mut session = stage.connect().await;
    begin(&stage, &mut session, "BEGIN").await;
    let read = "SELECT 'CUT', 'TRX' FROM lost";
    assert_eq!(session.query(read).await, Err(1158));
    assert_eq!(stage.sent(read).len(), 1);
    assert_eq!(session.query(WRITE).await, Err(0));
    assert!(stage.sent("INSERT").is_empty());
}

/// Where the primary is gone the statement is refused, and the transaction is what it was.
#[tokio::test]
async fn a_move_that_fails_leaves_them_as_they_were() {
    let mut stage = Stage::set(Setup {
        listener: "read_consistency = \"eventual\"\ntransaction_reads = \"replica\"",
        cluster: "failover_wait = \"100ms\"",
        ..Setup::default()
    })
    .await;
    let mut session = stage.connect().await;
    assert_eq!(begin(&stage, &mut session, "BEGIN").await, 1);
    stage.remove(0);
    for _ in 0..2 {
        let told = session.query(WRITE).await;
        assert!(matches!(told, Err(1290 | 1429)), "{told:?}");
        assert_eq!(session.query(READ).await, Ok(1));
    }
    assert!(stage.sent("ROLLBACK").is_empty() && stage.sent("INSERT").is_empty());
    let reads = stage.sent(READ);
    assert!(reads.iter().all(|(place, _)| *place == reads[0].0), "{reads:?}");
    assert_eq!(session.query("COMMIT").await, Ok(0));
    assert_eq!(stage.place("COMMIT"), reads[0].0);
}
