//! `KILL` and COM_PROCESS_KILL of the numbers that the gateway gives out.

use std::time::{Duration, Instant};

use dataplane::finished::End;
use mysql_wire::Command;

use super::stage::{Session, Setup, Stage};

const OTHER: &str = "[[user]]\nname = \"other\"\npassword = \"secret\"";

/// With an account that may kill, and another user.
fn setup() -> Setup<'static> {
    Setup {
        check: ", user = \"app\", password = \"secret\"",
        tables: OTHER,
        ..Setup::default()
    }
}

/// Nobody has the number any more, some time after its session was told to go.
pub(crate) async fn is_gone(killer: &mut Session, id: u32) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        match killer.query(&format!("KILL QUERY {id}")).await {
            Err(1094) => return,
            told => assert_eq!(told, Ok(0)),
        }
    }
    panic!("session {id} is still there");
}

#[tokio::test]
async fn between_two_statements() {
    for over in [Command::QUERY, Command::PROCESS_KILL] {
        let stage = Stage::set(setup()).await;
        let (mut victim, mut killer) = (stage.connect().await, stage.connect().await);
        assert_eq!(victim.query("SELECT 'ROWS 1'").await, Ok(1));
        let id = victim.id();
        match over {
            Command::QUERY => killer.send(over, format!("KILL {id}").as_bytes()).await,
            _ => killer.send(over, &id.to_le_bytes()).await,
        }
        assert_eq!(killer.answer().await, Ok(0));
        // It is told, or sees the end, without having asked.
        let _ = victim.0.receive_unasked().await;
        assert!(victim.query("SELECT 'ROWS 1' FROM victim").await.is_err());
        drop(victim);
        is_gone(&mut killer, id).await;
        assert!(stage.sent("FROM victim").is_empty());
        assert!(stage.sent("KILL").is_empty(), "no server has that number");
        assert_eq!(killer.query("SELECT 'ROWS 1'").await, Ok(1));
    }
}

#[tokio::test]
async fn while_a_statement_is_under_way() {
    for (kill, sent) in [("KILL", "KILL "), ("KILL QUERY", "KILL QUERY ")] {
        let stage = Stage::set(setup()).await;
        let (mut victim, mut killer) = (stage.connect().await, stage.connect().await);
        let write = "INSERT INTO t VALUES ('STALL')";
        victim.send(Command::QUERY, write.as_bytes()).await;
        stage.has_come(0, write, 1).await;
        assert_eq!(killer.query(&format!("{kill} {}", victim.id())).await, Ok(0));
        // The server is told the number that it gave the connection, over another one.
        stage.has_come(0, sent, 1).await;
        let place = stage.place(write);
        let kills = stage.sent("KILL");
        assert_eq!(kills.len(), 1, "{kills:?}");
        assert_eq!(kills[0].1, format!("{sent}{}", place.connection + 1));
        assert_ne!(kills[0].0, place);
        if kill == "KILL" {
            assert_eq!(victim.answer().await, Err(1158), "it may have been executed");
        }
    }
}

#[tokio::test]
async fn a_query_that_is_not_there_is_not_aimed_at() {
    let stage = Stage::set(setup()).await;
    let (mut victim, mut killer) = (stage.connect().await, stage.connect().await);
    for at in 0..3 {
        assert_eq!(victim.query("SELECT 'ROWS 1'").await, Ok(1));
        assert_eq!(killer.query(&format!("KILL QUERY {}", victim.id())).await, Ok(0));
        let write = format!("INSERT INTO t VALUES ('OK', {at})");
        assert_eq!(victim.query(&write).await, Ok(0));
    }
    assert!(stage.sent("KILL").is_empty());
}

#[tokio::test]
async fn those_of_others_are_not() {
    let mut stage = Stage::set(setup()).await;
    let (mut victim, mut killer) = (stage.connect().await, stage.connect_as("other").await);
    for kill in ["KILL", "KILL QUERY", "KILL CONNECTION"] {
        let kill = format!("{kill} {}", victim.id());
        assert_eq!(killer.query(&kill).await, Err(1095), "{kill}");
        let ended = stage.next_end().await;
        assert_eq!((ended.end, ended.error), (End::Refused, Some(1095)), "{kill}");
        assert_eq!(victim.query("SELECT 'ROWS 1'").await, Ok(1), "{kill}");
        stage.next_end().await;
    }
    assert!(stage.sent("KILL").is_empty());
    // Its server was asked each time whether it may.
    assert_eq!(stage.sent("SHOW GRANTS").len(), 3);
}

#[tokio::test]
async fn a_session_may_be_its_own_victim() {
    let stage = Stage::set(setup()).await;
    let mut session = stage.connect().await;
    let id = session.id();
    assert_eq!(session.query(&format!("KILL QUERY {id}")).await, Err(1317));
    assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
    assert_eq!(session.query(&format!("KILL {id}")).await, Err(1317));
    assert_eq!(session.query("SELECT 'ROWS 1'").await, Err(0));
    is_gone(&mut stage.connect().await, id).await;
}

#[tokio::test]
async fn numbers_of_nobody_are_not_known_and_those_of_servers_are_passed_on() {
    let stage = Stage::set(setup()).await;
    let mut session = stage.connect().await;
    let nobodys = session.id() + 1000;
    assert_eq!(session.query(&format!("KILL {nobodys}")).await, Err(1094));
    assert!(stage.sent("KILL").is_empty());
    assert_eq!(session.query("KILL 4711").await, Ok(0));
    assert_eq!(stage.place("KILL 4711").server, 0);
}

/// The server that a statement is to be killed on does not answer: whoever wants it killed can be told to go
/// all the same.
#[tokio::test]
async fn while_they_wait_for_a_kill_of_their_own() {
    let stage = Stage::set(Setup {
        check: ", user = \"app\", password = \"secret\", timeout = \"30s\"",
        ..setup()
    })
    .await;
    let (mut victim, mut killer) = (stage.connect().await, stage.connect().await);
    let mut third = stage.connect().await;
    assert_eq!(third.query("INSERT INTO t VALUES ('NO KILLS')").await, Ok(0));
    let write = "INSERT INTO t VALUES ('STALL')";
    victim.send(Command::QUERY, write.as_bytes()).await;
    stage.has_come(0, write, 1).await;
    let begun = Instant::now();
    let kill = format!("KILL QUERY {}", victim.id());
    killer.send(Command::QUERY, kill.as_bytes()).await;
    stage.has_come(0, "KILL QUERY ", 1).await;
    assert_eq!(third.query(&format!("KILL {}", killer.id())).await, Ok(0));
    assert!(killer.answer().await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// A server that has room for two sessions.
async fn with_two_connections() -> Stage {
    Stage::set(Setup {
        servers: 1,
        options: ", max_connections = 2",
        cluster: "queue_timeout = \"1m\"",
        ..setup()
    })
    .await
}

/// Those who want sessions to end may have no room in the pool that these hold.
#[tokio::test]
async fn while_they_hold_all_connections() {
    let stage = with_two_connections().await;
    let mut killer = stage.connect().await;
    for over in [Command::QUERY, Command::PROCESS_KILL] {
        let mut runaways = [stage.connect().await, stage.connect().await];
        for runaway in &mut runaways {
            assert_eq!(runaway.query("BEGIN").await, Ok(0));
        }
        for runaway in &mut runaways {
            let id = runaway.id();
            match over {
                Command::QUERY => killer.send(over, format!("KILL {id}").as_bytes()).await,
                _ => killer.send(over, &id.to_le_bytes()).await,
            }
            assert_eq!(killer.answer().await, Ok(0));
            assert!(runaway.query("SELECT 'ROWS 1'").await.is_err());
        }
        assert_eq!(killer.query("SELECT 'ROWS 1'").await, Ok(1));
    }
}

/// The server is asked for the rights of whoever wants a session of another's to end, over a connection of
/// its own: those of the pool may all be held by whom that is meant for.
#[tokio::test]
async fn those_of_others_by_who_may_while_they_hold_all_connections() {
    let stage = with_two_connections().await;
    let mut chief = stage.connect_as("other").await;
    let mut runaways = [stage.connect().await, stage.connect().await];
    assert_eq!(chief.query("INSERT INTO t VALUES ('RIGHTS')").await, Ok(0));
    for runaway in &mut runaways {
        assert_eq!(runaway.query("BEGIN").await, Ok(0));
    }
    let begun = Instant::now();
    for runaway in &mut runaways {
        assert_eq!(chief.query(&format!("KILL {}", runaway.id())).await, Ok(0));
        assert!(runaway.query("SELECT 'ROWS 1'").await.is_err());
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(stage.sent("SHOW GRANTS").len(), 2);
    assert_eq!(chief.query("SELECT 'ROWS 1'").await, Ok(1));
}
