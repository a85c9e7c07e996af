//! Servers with fewer connections than there are clients.

use std::time::{Duration, Instant};

use mysql_wire::Command;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::stage::{PATIENCE, Session, Setup, Stage, Told};

/// Has sessions say a statement at the same time. They answer with their places among them.
fn ask(sessions: Vec<Session>, text: &str) -> JoinSet<(usize, Session, Told)> {
    let mut asking = JoinSet::new();
    for (at, mut session) in sessions.into_iter().enumerate() {
        let text = format!("{text} /* session {at} */");
        asking.spawn(async move {
            let told = session.query(&text).await;
            (at, session, told)
        });
    }
    asking
}

async fn connect(stage: &Stage, count: usize) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(stage.connect().await);
    }
    sessions
}

#[tokio::test]
async fn and_all_are_served() {
    const CLIENTS: usize = 40;
    let setup = Setup {
        servers: 1,
        options: ", max_connections = 2",
        cluster: "queue_timeout = \"1m\"",
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    let mut sessions = connect(&stage, CLIENTS).await;
    for text in [
        "SELECT 'ROWS 3'",
        "INSERT INTO t VALUES ('OK')",
        "SELECT 'ROWS 3' FROM t FOR UPDATE",
    ] {
        let answers = ask(sessions, text).join_all().await;
        let rows = if text.starts_with("SELECT") { 3 } else { 0 };
        assert!(answers.iter().all(|(_, _, told)| *told == Ok(rows)), "{text}");
        assert_eq!(stage.sent(&format!("{text} /*")).len(), CLIENTS, "{text}");
        sessions = answers.into_iter().map(|(_, session, _)| session).collect();
    }
    assert!(stage.logins(0) <= 2, "{}", stage.logins(0));
}

/// Behind a ping a server says that no rows were changed.
#[tokio::test]
async fn and_a_ping_does_not_change_what_the_last_statement_has_changed() {
    let stage = Stage::set(Setup {
        servers: 1,
        options: ", max_connections = 1",
        cluster: "pool = { ping_after = \"1ms\" }",
        ..Setup::default()
    })
    .await;
    let mut session = stage.connect().await;
    let began = Instant::now();
    loop {
        assert_eq!(session.query("INSERT INTO t VALUES ('OK')").await, Ok(0));
        sleep(Duration::from_millis(2)).await;
        assert_eq!(session.query("SELECT ROW_COUNT()").await, Ok(0));
        let requests = stage.all_requests(0);
        let [.., before, asked] = &requests[..] else {
            panic!("{requests:?}")
        };
        if before[0] == Command::PING.0 {
            let expected = "SELECT IF(TRUE,3,ROW_COUNT()) AS `ROW_COUNT()`";
            assert_eq!(String::from_utf8_lossy(&asked[1..]), expected);
            break;
        }
        assert!(began.elapsed() < PATIENCE, "no ping has come");
    }
}

#[tokio::test]
async fn and_wait_for_one_another_in_a_line_that_has_an_end() {
    let setup = Setup {
        servers: 1,
        options: ", max_connections = 2",
        cluster: "queue_timeout = \"1m\"\nqueue_max = 2",
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    let mut holders = connect(&stage, 2).await;
    let others = connect(&stage, 3).await;
    for holder in &mut holders {
        assert_eq!(holder.query("BEGIN").await, Ok(0));
    }
    // Whoever comes last is one too many, and is told at once.
    let mut asking = ask(others, "SELECT 'ROWS 1' FROM waiting");
    let (at, mut late, told) = asking.join_next().await.unwrap().unwrap();
    assert_eq!(told, Err(1040));
    assert!(stage.sent("FROM waiting").is_empty());
    assert_eq!(holders[0].query("COMMIT").await, Ok(0));
    for (_, _, told) in asking.join_all().await {
        assert_eq!(told, Ok(1));
    }
    assert_eq!(stage.sent("FROM waiting").len(), 2);
    assert!(stage.sent(&format!("session {at} ")).is_empty());
    // It goes on.
    assert_eq!(late.query("SELECT 'ROWS 1'").await, Ok(1));
}

#[tokio::test]
async fn and_wait_no_longer_than_they_should() {
    let setup = Setup {
        servers: 1,
        options: ", max_connections = 1",
        cluster: "queue_timeout = \"100ms\"",
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let (mut holder, mut other) = (stage.connect().await, stage.connect().await);
    assert_eq!(holder.query("BEGIN").await, Ok(0));
    stage.next_end().await;
    let (code, words) = other.refused("SELECT 'ROWS 1'").await;
    assert!(code == 1040 && words.contains("queue_timeout"), "{words}");
    let ended = stage.next_end().await;
    assert_eq!((ended.server, ended.error), (None, Some(1040)));
    assert_eq!(stage.metric("forebay_pool_wait_timeouts_total", &[]), 1.0);
    assert_eq!(holder.query("COMMIT").await, Ok(0));
    // On a busy machine the connection may be back later than the answer by more than anybody waits.
    let began = Instant::now();
    while let Err(code) = other.query("SELECT 'ROWS 1'").await {
        assert!(code == 1040 && began.elapsed() < PATIENCE, "{code}");
    }
}

/// Whoever goes while it waits leaves its place to others.
#[tokio::test]
async fn and_nobody_waits_for_one_that_has_gone() {
    let setup = Setup {
        servers: 1,
        options: ", max_connections = 1",
        cluster: "queue_timeout = \"1m\"",
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    let mut sessions = connect(&stage, 4).await;
    let mut holder = sessions.pop().unwrap();
    let mut patient = sessions.pop().unwrap();
    assert_eq!(holder.query("BEGIN").await, Ok(0));
    for session in &mut sessions {
        session
            .send(Command::QUERY, b"INSERT INTO t VALUES ('OK', 'gone')")
            .await;
    }
    patient
        .send(Command::QUERY, b"SELECT 'ROWS 1' FROM patient")
        .await;
    stage.waits(3, "seat").await;
    drop(sessions);
    stage.waits(1, "seat").await;
    let ended = |stage: &Stage| stage.metric("forebay_sessions_ended_total", &["reason=\"client_gone\""]);
    stage
        .until("their sessions have ended", |stage| ended(stage) == 2.0)
        .await;
    drop(holder);
    assert_eq!(patient.answer().await, Ok(1));
    assert!(stage.sent("'gone'").is_empty());
}

/// Sessions of other modes wait in the line of their cluster.
#[tokio::test]
async fn and_one_that_goes_before_it_has_a_server_leaves_the_line() {
    for mode in ["session", "tcp"] {
        let stage = Stage::set(Setup {
            mode,
            servers: 1,
            options: ", max_connections = 1",
            listener: "",
            cluster: "queue_timeout = \"1m\"",
            ..Setup::default()
        })
        .await;
        let _holder = stage.connect().await;
        let in_line = |stage: &Stage| stage.gateway().clusters()[0].waiting();
        tokio::select! {
            _ = stage.connect() => panic!("{mode}: there is no room"),
            () = stage.until("it waits", |stage| in_line(stage) == 1) => {}
        }
        stage.until("it has left", |stage| in_line(stage) == 0).await;
    }
}

/// Reads have the room of all servers, and what only the primary can do waits for that.
#[tokio::test]
async fn and_read_where_there_is_room() {
    let setup = Setup {
        options: ", max_connections = 1",
        cluster: "queue_timeout = \"1m\"",
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let (mut holder, mut reader) = (stage.connect().await, stage.connect().await);
    assert_eq!(holder.query("BEGIN").await, Ok(0));
    stage.next_end().await;
    for _ in 0..3 {
        assert_eq!(reader.query("SELECT 'ROWS 1'").await, Ok(1));
        assert_eq!(stage.next_end().await.server, stage.name(1));
    }
    let write = "INSERT INTO t VALUES ('OK')";
    reader.send(Command::QUERY, write.as_bytes()).await;
    stage.no_more().await;
    assert!(stage.sent(write).is_empty());
    assert_eq!(holder.query("COMMIT").await, Ok(0));
    assert_eq!(reader.answer().await, Ok(0));
}

/// Whoever has no user variables pays nothing for those who have some: not a statement more is sent.
#[tokio::test]
async fn and_only_those_with_user_variables_are_asked_for_them() {
    let stage = Stage::set(Setup {
        servers: 1,
        options: ", max_connections = 1",
        cluster: "queue_timeout = \"2s\"",
        ..Setup::default()
    })
    .await;
    let (mut one, mut other) = (stage.connect().await, stage.connect().await);
    assert_eq!(one.query("SELECT 'ROWS 1' FROM first").await, Ok(1));
    let place = stage.place("first");
    let before = stage.requests(place).len();
    let mut sent = Vec::new();
    for turn in 0..4 {
        for (session, name) in [(&mut one, "one"), (&mut other, "other")] {
            let texts = [
                format!("SELECT 'ROWS 1' FROM {name}_{turn}"),
                format!("INSERT INTO t VALUES ('OK', '{name}_{turn}')"),
            ];
            for text in texts {
                assert!(session.query(&text).await.is_ok());
                sent.push([&[Command::QUERY.0], text.as_bytes()].concat());
            }
        }
    }
    assert_eq!(stage.requests(place)[before..], sent);
    // One that has some is asked as soon as somebody waits. This server does not know them.
    assert_eq!(one.query("SET @x = 1").await, Ok(0));
    assert_eq!(other.query("SELECT 'ROWS 1' FROM waits").await, Err(1040));
    assert_eq!(stage.sent("user_variables").len(), 1);
    assert_eq!(one.query("SELECT 'ROWS 1', @x").await, Ok(1));
    assert_eq!(stage.place("'ROWS 1', @x"), place);
}

/// A session whose connection the server has closed is told what has become of its transaction.
#[tokio::test]
async fn but_do_notice_what_they_have_lost() {
    let stage = Stage::set(Setup::default()).await;
    for statement in ["INSERT INTO t VALUES ('OK')", "SELECT 'ROWS 1'"] {
        let mut session = stage.connect().await;
        let begin = format!("BEGIN /* 'GONE' before {statement} */");
        assert_eq!(session.query(&begin).await, Ok(0));
        stage.has_ended(stage.place(&begin)).await;
        assert!(session.query(statement).await.is_err(), "{statement}");
    }
    let sent = stage.sent("");
    let is_begin = |text: &String| !text.starts_with("INSERT") && !text.starts_with("SELECT 'ROWS");
    assert!(sent.iter().all(|(_, text)| is_begin(text)), "{sent:?}");
}

/// A user may have no more sessions than that at the same time.
#[tokio::test]
async fn and_are_no_more_of_one_user_than_they_may() {
    let stage = Stage::set(Setup {
        tables: "[[user]]\nname = \"few\"\npassword = \"secret\"\nmax_connections = 2",
        ..Setup::default()
    })
    .await;
    let first = stage.connect_as("few").await;
    let mut second = stage.connect_as("few").await;
    assert_eq!(stage.login_error("few").await, Some(1226));
    assert_eq!(stage.login_error("app").await, None, "others are not meant");
    assert_eq!(second.query("SELECT 'ROWS 1'").await, Ok(1));
    drop(first);
    let began = Instant::now();
    while let Some(code) = stage.login_error("few").await {
        assert_eq!(code, 1226);
        assert!(began.elapsed() < PATIENCE);
    }
}
