//! The server of a session of mode `session` does not know of lookups that memory has answered. It executes
//! something that leaves behind what they would have, before a statement that could tell.

use dataplane::finished::End;
use mysql_wire::Command;

use super::stage::{Session, Setup, Stage};

const LOOKUP: &str = "SELECT c FROM remembered WHERE id = 1";
const NO_ROW: &str = "SELECT c FROM remembered WHERE id = 0";
/// What the server executes instead of lookups.
const CATCHES_UP: &str = "SELECT 1 FROM (SELECT 1 AS one) AS t";

/// A session whose server has been asked all that is asked behind a login.
async fn arrive(stage: &mut Stage) -> Session {
    let mut session = stage.connect().await;
    asks(stage, &mut session, "SELECT 'ROWS 1' FROM beginning").await;
    session
}

async fn looks_up(stage: &mut Stage, session: &mut Session, text: &str) {
    assert_eq!(session.query(text).await, Ok(usize::from(text == LOOKUP)));
    assert_eq!(stage.next_end().await.end, End::Memory);
}

async fn asks(stage: &mut Stage, session: &mut Session, text: &str) {
    assert!(session.query(text).await.is_ok(), "{text}");
    assert_eq!(stage.next_end().await.end, End::Relayed, "{text}");
}

/// The statements that servers have had since they had as many requests, in order.
fn since(stage: &Stage, before: usize) -> Vec<String> {
    let sent = stage.sent("");
    sent[before..].iter().map(|(_, text)| text.clone()).collect()
}

fn one_server() -> Setup<'static> {
    Setup {
        servers: 1,
        ..Setup::with_lookups("session")
    }
}

#[tokio::test]
async fn before_a_statement_that_could_tell() {
    let mut stage = Stage::set(one_server()).await;
    let mut session = arrive(&mut stage).await;
    for tells in [
        "SELECT FOUND_ROWS()",
        "SELECT ROW_COUNT()",
        "SHOW WARNINGS",
        "SHOW COUNT(*) ERRORS",
        "INSERT INTO t VALUES ('OK')",
        "SELECT nobody_knows(1)",
        "SET @x = FOUND_ROWS()",
        "BEGIN",
        "COMMIT",
        "CREATE TABLE t (a INT)",
    ] {
        let before = stage.sent("").len();
        looks_up(&mut stage, &mut session, LOOKUP).await;
        looks_up(&mut stage, &mut session, LOOKUP).await;
        assert_eq!(since(&stage, before), [""; 0], "{tells}");
        asks(&mut stage, &mut session, tells).await;
        assert_eq!(since(&stage, before), [CATCHES_UP, tells]);
        // Once is enough.
        asks(&mut stage, &mut session, tells).await;
        assert_eq!(since(&stage, before), [CATCHES_UP, tells, tells]);
        // Of which none is left to be noticed by the next round.
        session.reset().await;
        stage.next_end().await;
    }
    stage.no_more().await;
}

#[tokio::test]
async fn with_as_many_rows() {
    let mut stage = Stage::set(one_server()).await;
    let mut session = arrive(&mut stage).await;
    let none = format!("{CATCHES_UP} WHERE FALSE");
    for (lookups, caught_up) in [
        (&[NO_ROW][..], none.as_str()),
        (&[LOOKUP, NO_ROW], &none),
        (&[NO_ROW, LOOKUP], CATCHES_UP),
    ] {
        let before = stage.sent("").len();
        for lookup in lookups {
            looks_up(&mut stage, &mut session, lookup).await;
        }
        asks(&mut stage, &mut session, "SELECT FOUND_ROWS()").await;
        assert_eq!(since(&stage, before), [caught_up, "SELECT FOUND_ROWS()"]);
    }
}

/// It leaves the same behind as it would without the lookup.
#[tokio::test]
async fn but_not_before_a_plain_select() {
    let mut stage = Stage::set(one_server()).await;
    let mut session = arrive(&mut stage).await;
    let before = stage.sent("").len();
    looks_up(&mut stage, &mut session, LOOKUP).await;
    asks(&mut stage, &mut session, "SELECT 'ROWS 2'").await;
    // Of the plain one, which the server knows.
    asks(&mut stage, &mut session, "SELECT FOUND_ROWS()").await;
    let expected = ["SELECT 'ROWS 2'", "SELECT FOUND_ROWS()"];
    assert_eq!(since(&stage, before), expected);

    // Unless the server still has warnings of before the lookup, which that SELECT would not take away.
    asks(&mut stage, &mut session, "INSERT INTO t VALUES ('OK', 'WARNS')").await;
    let before = stage.sent("").len();
    looks_up(&mut stage, &mut session, LOOKUP).await;
    asks(&mut stage, &mut session, "SELECT 'ROWS 2'").await;
    assert_eq!(since(&stage, before), [CATCHES_UP, "SELECT 'ROWS 2'"]);
}

#[tokio::test]
async fn before_executions_and_commands_that_could_tell() {
    let mut stage = Stage::set(one_server()).await;
    let mut session = arrive(&mut stage).await;
    let write = session.prepare("INSERT INTO t VALUES ('OK')").await;
    let lookup = session.prepare("SELECT c FROM remembered WHERE id = 1").await;
    stage.next_end().await;
    stage.next_end().await;

    let caught_up = |stage: &Stage, before: usize| {
        let since = since(stage, before);
        since.iter().filter(|text| *text == CATCHES_UP).count()
    };
    let before = stage.sent("").len();
    assert_eq!(session.execute(lookup).await, Ok(1));
    assert_eq!(stage.next_end().await.end, End::Memory);
    assert_eq!(session.execute(write).await, Ok(0));
    assert_eq!(stage.next_end().await.end, End::Relayed);
    assert_eq!(since(&stage, before)[0], CATCHES_UP);
    assert_eq!(caught_up(&stage, before), 1);

    for (command, rest, tells) in [
        (Command::INIT_DB, &b"test"[..], true),
        (Command::PING, b"", false),
        (Command::STATISTICS, b"", false),
        (Command::STMT_PREPARE, b"INSERT INTO t VALUES ('OK', 2)", true),
        (Command::RESET_CONNECTION, b"", false),
    ] {
        looks_up(&mut stage, &mut session, LOOKUP).await;
        let before = stage.sent("").len();
        session.send(command, rest).await;
        match command {
            Command::STATISTICS => drop(session.0.receive().await.unwrap()),
            _ => assert_eq!(session.answer().await, Ok(0), "{command:?}"),
        }
        assert_eq!(stage.next_end().await.end, End::Relayed, "{command:?}");
        assert_eq!(caught_up(&stage, before), usize::from(tells), "{command:?}");
        // What was not told yet is.
        asks(&mut stage, &mut session, "SELECT FOUND_ROWS()").await;
        assert_eq!(caught_up(&stage, before), 1, "{command:?}");
    }
}

/// Where that cannot be done the session ends: what it asked for would be wrong.
#[tokio::test]
async fn or_the_session_ends() {
    let mut stage = Stage::set(one_server()).await;
    let mut session = arrive(&mut stage).await;
    looks_up(&mut stage, &mut session, LOOKUP).await;
    stage.remove(0);
    assert!(session.query("SELECT FOUND_ROWS()").await.is_err());
    assert_eq!(session.query(LOOKUP).await, Err(0));
}

#[tokio::test]
async fn unless_it_is_asked_the_lookups_themselves() {
    let mut stage = Stage::set(one_server()).await;
    let mut session = arrive(&mut stage).await;
    let in_transaction = "SELECT c FROM remembered WHERE id = 1 AND c = 'TRX'";
    let is_left = async |stage: &mut Stage, session: &mut Session| {
        let before = stage.sent("").len();
        assert!(session.query(in_transaction).await.is_ok());
        assert_eq!(stage.next_end().await.end, End::Relayed);
        assert_eq!(since(stage, before), [in_transaction]);
    };
    // In a transaction.
    asks(&mut stage, &mut session, "BEGIN").await;
    is_left(&mut stage, &mut session).await;
    is_left(&mut stage, &mut session).await;
    asks(&mut stage, &mut session, "ROLLBACK").await;
    looks_up(&mut stage, &mut session, LOOKUP).await;
    asks(&mut stage, &mut session, "INSERT INTO t VALUES ('OK', 'TRX')").await;
    is_left(&mut stage, &mut session).await;
    asks(&mut stage, &mut session, "COMMIT").await;
    looks_up(&mut stage, &mut session, LOOKUP).await;

    // As long as it has something there that a row in memory knows nothing of.
    let lookup_is_left = async |stage: &mut Stage, session: &mut Session, why: &str| {
        let before = stage.sent("").len();
        assert!(session.query(LOOKUP).await.is_ok(), "{why}");
        assert_eq!(stage.next_end().await.end, End::Relayed, "{why}");
        assert_eq!(since(stage, before), [LOOKUP], "{why}");
    };
    asks(&mut stage, &mut session, "LOCK TABLES remembered READ").await;
    lookup_is_left(&mut stage, &mut session, "LOCK TABLES").await;
    asks(&mut stage, &mut session, "UNLOCK TABLES").await;
    looks_up(&mut stage, &mut session, LOOKUP).await;
    // Another one of that name, or what a procedure has done, the current role among that, until a reset.
    for holds in [
        "CREATE TEMPORARY TABLE remembered (id INT)",
        "CALL some_procedure()",
        "SELECT 'ROWS 1', GET_LOCK('a', 1)",
    ] {
        asks(&mut stage, &mut session, holds).await;
        lookup_is_left(&mut stage, &mut session, holds).await;
        session.reset().await;
        stage.next_end().await;
        looks_up(&mut stage, &mut session, LOOKUP).await;
    }
    // Who changes its user has none any more.
    session.0.change_user(b"other", b"secret").await.unwrap();
    stage.next_end().await;
    lookup_is_left(&mut stage, &mut session, "COM_CHANGE_USER").await;
    stage.no_more().await;

    // What may have another role for good has none either.
    let mut session = arrive(&mut stage).await;
    asks(&mut stage, &mut session, "SET ROLE NONE").await;
    session.reset().await;
    stage.next_end().await;
    lookup_is_left(&mut stage, &mut session, "SET ROLE").await;
}
