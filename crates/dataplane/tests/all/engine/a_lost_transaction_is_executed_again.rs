//! A transaction whose server is lost in the middle, with `transaction_replay`: what the server that takes
//! its place is sent, and what the client is told. Here that is the same one, which has come back.

use mysql_wire::Command;

use super::stage::{Session, Setup, Stage, Told, USUAL};

const REPLAYS: Setup<'_> = Setup {
    servers: 1,
    check: ", interval = \"50ms\"",
    listener: "",
    cluster: "failover_wait = \"1m\"\ntransaction_replay = true",
    ..USUAL
};

const INSERT: &str = "INSERT INTO t VALUES ('OK', 'TRX')";
const READ: &str = "SELECT 'ROWS 2', 'TRX' FROM t";

/// A session in a transaction that has written and read.
async fn begun(setup: Setup<'_>, statements: &[&str]) -> (Stage, Session) {
    let stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    for statement in [&["BEGIN"][..], statements].concat() {
        assert!(session.query(statement).await.is_ok(), "{statement}");
    }
    (stage, session)
}

/// Sends a statement, and has its server go and come back before it has answered.
async fn loses(stage: &mut Stage, session: &mut Session, statement: &str) -> Told {
    session.send(Command::QUERY, statement.as_bytes()).await;
    stage.has_come(0, statement, 1).await;
    stage.remove(0);
    stage.bring_back(0).await;
    session.answer().await
}

/// The statements of the client's that the server has had, in their order.
fn texts(stage: &Stage) -> Vec<String> {
    let all = stage.sent("");
    let texts = all.into_iter().map(|(_, text)| text);
    let of_client = |text: &String| {
        [
            "BEGIN", "INSERT", "SELECT '", "UPDATE", "COMMIT", "SAVE", "CREATE",
        ]
        .iter()
        .any(|word| text.starts_with(word))
    };
    texts.filter(of_client).collect()
}

#[tokio::test]
async fn with_the_statement_that_was_under_way() {
    let (mut stage, mut session) = begun(REPLAYS, &[INSERT, "SAVEPOINT a /* 'OK', 'TRX' */", READ]).await;
    let update = "UPDATE t SET a = 'ONCE STALL', b = 'TRX'";
    assert_eq!(loses(&mut stage, &mut session, update).await, Ok(1));
    let all = ["BEGIN", INSERT, "SAVEPOINT a /* 'OK', 'TRX' */", READ, update];
    assert_eq!(texts(&stage), all);
    // It goes on there.
    assert_eq!(session.query("COMMIT").await, Ok(0));
    assert_eq!(texts(&stage).len(), 6);
    // And the next one is another transaction.
    assert_eq!(session.query("BEGIN").await, Ok(0));
    let read = "SELECT 'ONCE STALL', 'TRX' FROM t";
    assert_eq!(loses(&mut stage, &mut session, read).await, Ok(1));
    assert_eq!(texts(&stage), ["BEGIN", read]);
}

#[tokio::test]
async fn between_two_statements() {
    let (mut stage, mut session) = begun(REPLAYS, &[INSERT]).await;
    stage.remove(0);
    stage.bring_back(0).await;
    stage.has_come(0, INSERT, 1).await;
    assert_eq!(session.query("COMMIT").await, Ok(0));
    assert_eq!(texts(&stage), ["BEGIN", INSERT, "COMMIT"]);
}

/// A session in a transaction whose server goes and comes back while the gateway prepares the session's
/// statement there: the connection is another one, which does not know it.
async fn lost_while_it_prepares(text: &str) -> (Stage, Session) {
    let mut stage = Stage::set(REPLAYS).await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    let id = session.prepare(text).await;
    assert_eq!(other.query("BEGIN").await, Ok(0));
    assert_eq!(session.query("BEGIN").await, Ok(0));
    assert_eq!(other.query("COMMIT").await, Ok(0));
    assert!(session.query(INSERT).await.is_ok());
    let execution = [&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat();
    session.send(Command::STMT_EXECUTE, &execution).await;
    stage.has_come(0, text, 2).await;
    stage.remove(0);
    stage.bring_back(0).await;
    (stage, session)
}

#[tokio::test]
async fn before_a_statement_was_sent() {
    let text = "SELECT 1, 'SILENT TWICE'";
    let (stage, mut session) = lost_while_it_prepares(text).await;
    assert!(session.answer().await.is_ok());
    assert_eq!(texts(&stage), ["BEGIN", INSERT]);
    assert_eq!(stage.sent(text).len(), 1);
}

/// What is asked on the way to a statement may be what servers are lost by.
#[tokio::test]
async fn before_a_statement_was_sent_but_once() {
    let text = "SELECT 1, 'SILENT THEN'";
    let (mut stage, mut session) = lost_while_it_prepares(text).await;
    stage.has_come(0, text, 1).await;
    assert_eq!(texts(&stage), ["BEGIN", INSERT]);
    stage.remove(0);
    stage.bring_back(0).await;
    assert_eq!(session.answer().await, Err(1158), "and it hears of it");
    assert_eq!(texts(&stage), [""; 0]);
}

#[tokio::test]
async fn without_the_option_it_is_not() {
    let setup = Setup {
        cluster: "failover_wait = \"1m\"",
        ..REPLAYS
    };
    let (mut stage, mut session) = begun(setup, &[INSERT]).await;
    let update = "UPDATE t SET a = 'ONCE STALL', b = 'TRX'";
    assert_eq!(loses(&mut stage, &mut session, update).await, Err(1158));
    assert_eq!(texts(&stage), [""; 0]);
}

#[tokio::test]
async fn another_answer_ends_it() {
    let differs = "SELECT 'ONCE ROWS 2', 'TRX' FROM t";
    let (mut stage, mut session) = begun(REPLAYS, &[differs, INSERT]).await;
    let update = "UPDATE t SET a = 'ONCE STALL', b = 'TRX'";
    assert_eq!(loses(&mut stage, &mut session, update).await, Err(1158));
    // Nothing is sent behind that, and the session does not go on as if it had a transaction.
    assert_eq!(texts(&stage), ["BEGIN", differs]);
    assert_eq!(session.query(READ).await, Err(0));
}

#[tokio::test]
async fn nothing_that_commits_is_ever_sent_again() {
    for end in [
        "COMMIT /* 'STALL' */",
        "ROLLBACK /* 'STALL' */",
        "CREATE TABLE u (a INT COMMENT 'STALL')",
        "BEGIN /* 'STALL' */",
        "INSERT INTO t VALUES ('STALL'); COMMIT",
        "SET autocommit = 1 /* 'STALL' */",
        "CALL p('STALL')",
    ] {
        let (mut stage, mut session) = begun(REPLAYS, &[INSERT]).await;
        assert_eq!(loses(&mut stage, &mut session, end).await, Err(1158), "{end}");
        assert_eq!(texts(&stage), [""; 0], "{end}");
        assert!(stage.sent("STALL").is_empty(), "{end}");
    }
}

/// Nor is what came before something that has committed.
#[tokio::test]
async fn nor_is_what_was_committed() {
    for (commits, is_in_transaction) in [
        ("CREATE TABLE u (a INT COMMENT 'OK')", false),
        ("BEGIN", true),
        ("COMMIT AND CHAIN /* 'OK', 'TRX' */", true),
    ] {
        let (mut stage, mut session) = begun(REPLAYS, &[INSERT, commits]).await;
        let update = "UPDATE t SET a = 'STALL', b = 'TRX'";
        assert_eq!(
            loses(&mut stage, &mut session, update).await,
            Err(1158),
            "{commits}"
        );
        assert_eq!(texts(&stage), [""; 0], "{commits}");
        let goes_on = session.query("SELECT 'ROWS 1'").await;
        assert_eq!(goes_on.is_err(), is_in_transaction, "{commits}");
    }
}

#[tokio::test]
async fn one_that_is_too_long_is_not() {
    let setup = Setup {
        cluster: "failover_wait = \"1m\"\ntransaction_replay = true\ntransaction_replay_max = \"1KiB\"",
        ..REPLAYS
    };
    let long = format!("INSERT INTO t VALUES ('OK', 'TRX', '{}')", "a".repeat(1024));
    let (mut stage, mut session) = begun(setup, &[&long]).await;
    let mut other = stage.connect().await;
    let update = "UPDATE t SET a = 'ONCE STALL', b = 'TRX'";
    assert_eq!(loses(&mut stage, &mut session, update).await, Err(1158));
    assert_eq!(texts(&stage), [""; 0]);
    // One that is not is.
    assert_eq!(other.query("BEGIN").await, Ok(0));
    let read = "SELECT 'ONCE STALL', 'TRX' FROM t";
    assert_eq!(loses(&mut stage, &mut other, read).await, Ok(1));
}

#[tokio::test]
async fn one_of_whose_answer_the_client_has_seen_a_part_is_not() {
    let (mut stage, mut session) = begun(REPLAYS, &[INSERT]).await;
    let read = "SELECT 'PART 500', 'TRX' FROM t";
    session.send(Command::QUERY, read.as_bytes()).await;
    let first = session.0.receive().await.unwrap();
    assert_eq!(first.payload, [1], "the count of columns has come");
    stage.remove(0);
    stage.bring_back(0).await;
    assert!(session.answer().await.is_err());
    assert_eq!(texts(&stage), [""; 0]);
}

/// Its transaction was not committed, so that it can be executed on a third.
#[tokio::test]
async fn one_that_is_lost_again_meanwhile_is_executed_again() {
    let slow = "SELECT 'TWICE STALL', 'TRX' FROM t";
    let (mut stage, mut session) = begun(REPLAYS, &[INSERT, slow]).await;
    let update = "UPDATE t SET a = 'ONCE STALL', b = 'TRX'";
    session.send(Command::QUERY, update.as_bytes()).await;
    stage.has_come(0, update, 1).await;
    stage.remove(0);
    stage.bring_back(0).await;
    stage.has_come(0, slow, 1).await;
    assert_eq!(texts(&stage), ["BEGIN", INSERT, slow]);
    stage.remove(0);
    stage.bring_back(0).await;
    assert_eq!(session.answer().await, Ok(1));
    assert_eq!(texts(&stage), ["BEGIN", INSERT, slow, update]);
}

/// It may be what brings them down.
#[tokio::test]
async fn one_whose_statement_has_lost_two_servers_is_not() {
    let (mut stage, mut session) = begun(REPLAYS, &[INSERT]).await;
    let update = "UPDATE t SET a = 'STALL', b = 'TRX'";
    session.send(Command::QUERY, update.as_bytes()).await;
    for _ in 0..2 {
        stage.has_come(0, update, 1).await;
        stage.remove(0);
        stage.bring_back(0).await;
    }
    assert_eq!(session.answer().await, Err(1158));
    assert_eq!(texts(&stage), [""; 0], "the third is left alone");
}

/// Somebody has ended the connection, and so the transaction.
#[tokio::test]
async fn nor_one_whose_server_is_there() {
    let (stage, mut session) = begun(REPLAYS, &[INSERT]).await;
    let update = "UPDATE t SET a = 'CUT', b = 'TRX'";
    assert_eq!(session.query(update).await, Err(1158));
    assert_eq!(texts(&stage), ["BEGIN", INSERT, update]);
}

/// A statement without a transaction is as without the option.
#[tokio::test]
async fn a_write_by_itself_is_not_sent_again() {
    let mut stage = Stage::set(REPLAYS).await;
    let mut session = stage.connect().await;
    let write = "INSERT INTO t VALUES ('ONCE STALL')";
    assert_eq!(loses(&mut stage, &mut session, write).await, Err(1158));
    assert_eq!(texts(&stage), [""; 0]);
    assert_eq!(
        session.query("SELECT 'ROWS 1'").await,
        Ok(1),
        "the session goes on"
    );
}
