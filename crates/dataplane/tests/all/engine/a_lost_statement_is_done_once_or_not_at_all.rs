//! What becomes of a statement whose server is lost: how often servers have had it, and what its client is
//! told.

use dataplane::finished::End;
use mysql_wire::{Capabilities, Command};
use testkit::lossy_link::Fault;

use super::stage::{CAPABILITIES, CUT_ONCE, NO_WRITES, Setup, Stage};

#[tokio::test]
async fn a_read_goes_to_another_server_once() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let read = "SELECT 'ONCE CUT' FROM one";
    assert_eq!(session.query(read).await, Ok(1));
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.resent), (End::Relayed, 1));
    let servers: Vec<_> = stage.sent(read).iter().map(|(place, _)| place.server).collect();
    assert_eq!(servers, [0, 1]);
    assert_eq!(ended.server, stage.name(0), "it is told who has answered");

    // No third time, though there is another server.
    let read = "SELECT 'CUT' FROM two";
    assert_eq!(session.query(read).await, Err(1158));
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.resent, ended.error), (End::Lost, 1, Some(1158)));
    assert_eq!(stage.sent(read).len(), 2);
    // The session goes on.
    assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
}

#[tokio::test]
async fn a_read_that_is_prepared_goes_to_another_server() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let read = "SELECT 'LOST ONCE'";
    session.prepare(read).await;
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.resent), (End::Relayed, 1));
    assert_eq!(stage.sent(read).len(), 2);
    // What a session holds goes with its connection.
    let mut stage = Stage::set(Setup::default()).await;
    let mut holds = stage.connect().await;
    holds.query("BEGIN").await.unwrap();
    stage.next_end().await;
    holds.send(Command::STMT_PREPARE, read.as_bytes()).await;
    assert!(holds.answer().await.is_err());
    assert_eq!(stage.sent(read).len(), 1);
}

/// A server has no room for one more, and is lost while the gateway closes others over a compressed link.
#[tokio::test]
async fn and_a_transaction_ends_with_a_server_on_which_room_is_made() {
    let stage = Stage::set(Setup {
        servers: 1,
        cluster: "compression = \"zlib\"",
        capabilities: CAPABILITIES | Capabilities::COMPRESS,
        ..Setup::default()
    })
    .await;
    let mut session = stage.connect().await;
    assert_eq!(session.query("BEGIN").await, Ok(0));
    for at in 0..8 {
        session.prepare(&format!("DO {at}")).await;
    }
    let last = "DO 'NO ROOM'";
    session.send(Command::STMT_PREPARE, last.as_bytes()).await;
    assert_eq!(session.answer().await, Err(1158));
    let negotiated = stage.negotiated(stage.place(last));
    assert!(negotiated.contains(Capabilities::COMPRESS));
    assert_eq!(session.query("DO 1").await, Err(0), "the session has ended");
}

#[tokio::test]
async fn a_read_that_leaves_something_does_not() {
    let mut stage = Stage::set(Setup::default()).await;
    for read in [
        "SELECT 'CUT' FROM t FOR UPDATE",
        "SELECT 'CUT', GET_LOCK('a', 1)",
        "SELECT 'CUT', nobody_knows(1)",
    ] {
        let mut session = stage.connect().await;
        assert!(session.query(read).await.is_err(), "{read}");
        let ended = stage.next_end().await;
        assert_eq!((ended.end, ended.resent), (End::Lost, 0), "{read}");
        assert_eq!(stage.sent(read).len(), 1, "{read}");
    }
}

#[tokio::test]
async fn a_write_goes_nowhere_else() {
    let setup = Setup {
        servers: 3,
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    for write in [
        "INSERT INTO t VALUES ('CUT')",
        "UPDATE t SET a = 'CUT'",
        "DELETE FROM t WHERE a = 'CUT'",
        "CREATE TABLE t (a INT COMMENT 'CUT')",
    ] {
        assert_eq!(session.query(write).await, Err(1158), "{write}");
        let ended = stage.next_end().await;
        assert_eq!((ended.end, ended.resent, ended.error), (End::Lost, 0, Some(1158)));
        assert_eq!(stage.sent(write).len(), 1, "{write}");
        assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
        stage.next_end().await;
    }
}

/// A server takes a part of a long write, and is lost. The rest of the write is still in the gateway then.
#[tokio::test]
async fn nor_does_the_rest_of_one() {
    let mut stage = Stage::set(Setup {
        is_linked: true,
        ..Setup::default()
    })
    .await;
    let mut session = stage.connect().await;
    assert_eq!(session.query("INSERT INTO t VALUES ('OK')").await, Ok(0));
    stage.link(0).set_to_server(Fault::Stall);
    let write = format!("INSERT INTO t VALUES ('OK', '{}')", "x".repeat(12 << 20));
    session.send(Command::QUERY, write.as_bytes()).await;
    stage.waits(1, "server").await;
    stage.remove(0);
    assert_eq!(session.answer().await, Err(1158));
    let read = "SELECT 'ROWS 1'";
    assert_eq!(session.query(read).await, Ok(1));
    assert_eq!(stage.place(read).server, 1);
}

/// Some of its rows may have been done when its server begins to refuse writes.
#[tokio::test]
async fn nor_does_a_bulk_execution_that_is_refused() {
    let capabilities = CAPABILITIES.without(Capabilities::LONG_PASSWORD) | Capabilities::MARIADB_STMT_BULK;
    let setup = Setup {
        cluster: "failover_wait = \"100ms\"",
        capabilities,
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect_with(capabilities).await;
    let id = session.prepare("UPDATE t SET a = ?").await;
    stage.next_end().await;
    // With the type of one parameter, and no rows.
    let execution = [&id.to_le_bytes()[..], &[0x80, 0, 3, 0]].concat();
    session.send(Command::STMT_BULK_EXECUTE, &execution).await;
    assert_eq!(session.error().await, (1290, NO_WRITES.to_owned()));
    let ended = stage.next_end().await;
    assert_eq!((ended.resent, ended.error), (0, Some(1290)));
}

#[tokio::test]
async fn nothing_of_a_transaction_does() {
    let mut stage = Stage::set(Setup::default()).await;
    for inside in [
        "SELECT 'CUT' FROM inside",
        "UPDATE inside SET a = 'CUT'",
        "COMMIT /* 'CUT' */",
    ] {
        let mut session = stage.connect().await;
        assert_eq!(session.query("BEGIN").await, Ok(0));
        stage.next_end().await;
        assert_eq!(session.query(inside).await, Err(1158), "{inside}");
        let ended = stage.next_end().await;
        assert_eq!((ended.end, ended.resent), (End::Lost, 0), "{inside}");
        assert_eq!(stage.sent(inside).len(), 1, "{inside}");
        // It must not go on as if the transaction were there.
        assert_eq!(session.query("SELECT 'ROWS 1'").await, Err(0), "{inside}");
    }
}

/// A transaction that only reads is ended on its replica by the gateway's own COMMIT, before a statement that
/// is for another server.
#[tokio::test]
async fn what_becomes_of_the_gateways_own_commit_is_told() {
    const BEGIN: &str = "START TRANSACTION READ ONLY";
    const AGAIN: &str = "START TRANSACTION READ ONLY /* again */";
    const READ: &str = "SELECT 'ROWS 1'";
    let unknown = "it is not known whether it was executed";
    for (answer, code, words, next) in [
        ("ERROR", 1064, "You have an error in your SQL syntax", Ok(1)),
        ("CUT", 1158, unknown, Err(0)),
        ("ROWS 1", 1158, unknown, Err(0)),
    ] {
        let stage = Stage::set(Setup::default()).await;
        let mut session = stage.connect().await;
        stage.answer_commits(answer);
        assert_eq!(session.query(BEGIN).await, Ok(0));
        let begun = stage.place(BEGIN);
        assert_eq!(begun.server, 1);
        let (told, said) = session.refused(AGAIN).await;
        assert_eq!(told, code, "{answer}: {said}");
        assert!(said.contains(words), "{answer}: {said}");
        assert_eq!(stage.sent("COMMIT AND NO CHAIN").len(), 1, "{answer}");
        // It is prepared, and not executed.
        let mut requests = (0..2).flat_map(|server| stage.all_requests(server));
        let is_again = |request: &[u8]| request[0] == Command::QUERY.0 && request[1..] == *AGAIN.as_bytes();
        assert!(!requests.any(|request| is_again(&request)), "{answer}");
        // Nobody has the connection on which it was.
        assert_eq!(session.query(READ).await, next, "{answer}");
        assert!(stage.sent(READ).iter().all(|(place, _)| *place != begun));
    }
}

#[tokio::test]
async fn a_session_waits_for_its_server_while_the_gateway_commits() {
    let stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    stage.answer_commits("UNTIL KILLED");
    assert_eq!(session.query("START TRANSACTION READ ONLY").await, Ok(0));
    let again = "START TRANSACTION READ ONLY /* again */";
    session.send(Command::QUERY, again.as_bytes()).await;
    stage.has_come(1, "COMMIT AND NO CHAIN", 1).await;
    stage.waits(1, "server").await;
}

/// The session holds something on a connection that is lost while the gateway prepares a statement there.
#[tokio::test]
async fn a_connection_that_is_lost_before_the_statement_is_no_failed_login() {
    // Nobody knows what is in such a comment, so that it is not executed in the same write.
    let text = "SELECT 1 /*! , 2 */, 'LOST THEN'";
    for (holds, words) in [
        ("BEGIN", "in a transaction, which is rolled back"),
        (
            "CREATE TEMPORARY TABLE t (id INT)",
            "before the command, which was not executed",
        ),
    ] {
        let stage = Stage::set(Setup::default()).await;
        let (mut session, mut other) = (stage.connect().await, stage.connect().await);
        let id = session.prepare(text).await;
        // The connection that knows it is another session's.
        assert_eq!(other.query("BEGIN").await, Ok(0));
        assert_eq!(session.query(holds).await, Ok(0));
        let execution = [&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat();
        session.send(Command::STMT_EXECUTE, &execution).await;
        let (told, said) = session.error().await;
        assert_eq!(told, 1158, "{holds}: {said}");
        assert!(said.contains(words), "{holds}: {said}");
        assert_eq!(stage.sent(text).len(), 2, "{holds}");
    }
}

/// What the client has of the answer cannot be taken back.
#[tokio::test]
async fn a_read_that_has_begun_to_answer_does_not() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    // In the middle of the columns, of a row, and between two rows.
    for bytes in [20, 150, 5000, 8 * 124] {
        let read = format!("SELECT 'HALF {bytes}'");
        assert!(session.query(&read).await.is_err(), "{read}");
        let ended = stage.next_end().await;
        assert_eq!((ended.end, ended.resent), (End::Lost, 0), "{read}");
        assert_eq!(stage.sent(&read).len(), 1, "{read}");
        session = stage.connect().await;
    }
}

/// One that is cut exactly between two rows is told, and its session goes on.
#[tokio::test]
async fn a_read_that_ends_between_two_rows_is_told_of() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let mut told = Vec::new();
    // A row takes 125 bytes: one of so many places is between two.
    for bytes in 1000..1125 {
        let read = format!("SELECT 'HALF {bytes}'");
        told.push(session.query(&read).await);
        assert_eq!(stage.next_end().await.end, End::Lost);
        assert_eq!(stage.sent(&read).len(), 1);
        if told.last() == Some(&Err(0)) {
            session = stage.connect().await;
            continue;
        }
        assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
        stage.next_end().await;
    }
    let between = told.iter().filter(|told| **told == Err(1158)).count();
    assert!(between >= 1, "{told:?}");
}

#[tokio::test]
async fn a_session_that_is_pinned_to_what_is_lost_ends() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    assert_eq!(session.query("SET @x = 1").await, Ok(0));
    stage.next_end().await;
    let read = "SELECT 'CUT' FROM pinned";
    assert_eq!(session.query(read).await, Err(1158));
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.resent), (End::Lost, 0));
    assert_eq!(stage.sent(read).len(), 1);
    assert_eq!(session.query("SELECT 'ROWS 1'").await, Err(0));
}

/// It waits for a new one, and is told when there is none in time.
#[tokio::test]
async fn a_write_without_a_primary_is_not_lost() {
    let setup = Setup {
        cluster: "failover_wait = \"100ms\"",
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    assert_eq!(session.query("INSERT INTO t VALUES ('OK')").await, Ok(0));
    stage.next_end().await;
    stage.remove(0);
    let told = session.query("INSERT INTO t VALUES ('OK')").await;
    assert!(told.is_err(), "{told:?}");
    let ended = stage.next_end().await;
    assert_eq!((ended.resent, ended.error), (0, told.err()));
    assert!(stage.sent("INSERT").is_empty(), "the replica gets no writes");
    assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
    assert_eq!(stage.next_end().await.server, stage.name(1));
}

/// An execution is a read or a write like its text.
#[tokio::test]
async fn and_a_prepared_statement_is_as_its_text() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let id = session.prepare("SELECT a FROM t").await;
    stage.next_end().await;
    assert_eq!(session.execute(id).await, Ok(0));
    let first = stage.next_end().await.server;
    assert_eq!(first, stage.name(1));
    stage.remove(1);
    assert_eq!(session.execute(id).await, Ok(0));
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.server), (End::Relayed, stage.name(0)));
    let prepared = stage.sent("SELECT a FROM t");
    assert!(
        prepared.iter().any(|(place, _)| place.server == 0),
        "{prepared:?}"
    );
    session.send(Command::STMT_CLOSE, &id.to_le_bytes()).await;
    stage.next_end().await;
}

/// The session lets the connection go that it has held for an error.
#[tokio::test]
async fn behind_an_error_too() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let id = session.prepare("SELECT a FROM t WHERE a = ?").await;
    stage.next_end().await;
    assert_eq!(session.query("INSERT INTO t VALUES ('ERROR')").await, Err(1064));
    stage.next_end().await;
    assert_eq!(session.execute_with(id, CUT_ONCE).await, Ok(0));
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.resent), (End::Relayed, 1));
}

#[tokio::test]
async fn nor_does_a_read_of_a_client_that_has_gone() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let read = "SELECT 'STALL' FROM gone";
    session.send(Command::QUERY, read.as_bytes()).await;
    stage.has_come(1, read, 1).await;
    // The server is told, and ends without an answer.
    drop(session);
    let ended = stage.next_end().await;
    assert_eq!((ended.end, ended.resent), (End::Lost, 0), "{ended:?}");
    assert_eq!(stage.sent(read).len(), 1);
}
