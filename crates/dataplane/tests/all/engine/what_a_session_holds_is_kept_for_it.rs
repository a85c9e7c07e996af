//! What cannot be carried to another connection keeps a session on its own: who looks at it is told, and all
//! of its statements are seen there.

use mysql_wire::Command;

use super::stage::{Place, Session, Setup, Stage};

/// Where a read of this session goes that any session may read anywhere. `at`: different for each.
async fn reads_at(stage: &Stage, session: &mut Session, at: usize) -> Place {
    let read = format!("SELECT 'ROWS 1' FROM reader_{at}_");
    assert_eq!(session.query(&read).await, Ok(1));
    stage.place(&read)
}

#[tokio::test]
async fn whatever_it_is() {
    let stage = Stage::set(Setup::default()).await;
    let mut other = stage.connect().await;
    let holds = [
        ("SET @x = 1", "user-variables"),
        ("SELECT 'ROWS 1', GET_LOCK('a', 1)", "user-lock"),
        ("CREATE TEMPORARY TABLE held (id INT)", "temporary-table"),
        ("LOCK TABLES t WRITE", "table-locks"),
        ("FLUSH TABLES WITH READ LOCK", "global-lock"),
        ("PREPARE p FROM 'SELECT 1'", "text-prepare"),
        ("CALL some_procedure()", "procedure"),
        ("SELECT 'ROWS 1', nobody_knows(1)", "unknown-function"),
    ];
    for (at, (statement, reason)) in holds.into_iter().enumerate() {
        let at = at * 10;
        let mut session = stage.connect().await;
        let free = reads_at(&stage, &mut session, at).await;
        assert_eq!(free.server, 1, "{statement}");
        assert_eq!(session.pins().await, [""; 0], "{statement}");
        assert!(session.query(statement).await.is_ok(), "{statement}");
        let pins = session.pins().await;
        assert!(pins.iter().any(|pin| pin == reason), "{statement}: {pins:?}");
        let held = stage.place(statement);
        assert_eq!(held.server, 0, "{statement}");
        for at in at + 1..at + 4 {
            assert_eq!(reads_at(&stage, &mut session, at).await, held, "{statement}");
            // Nobody else is let in there.
            let write = format!("INSERT INTO t VALUES ('OK', 'other_{at}_')");
            assert_eq!(other.query(&write).await, Ok(0));
            assert_ne!(stage.place(&format!("'other_{at}_'")), held, "{statement}");
        }
        session.reset().await;
        assert_eq!(session.pins().await, [""; 0], "{statement}");
        let free = reads_at(&stage, &mut session, at + 4).await;
        assert_eq!(free.server, 1, "{statement}");
    }
}

#[tokio::test]
async fn for_as_long_as_it_is_there() {
    let stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    for (at, (begin, end)) in [
        ("BEGIN", "COMMIT"),
        ("LOCK TABLES t READ", "UNLOCK TABLES"),
        ("HANDLER t OPEN", "HANDLER t CLOSE"),
        ("DO GET_LOCK('a', 1)", "DO RELEASE_ALL_LOCKS()"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(session.query(begin).await, Ok(0));
        assert_eq!(session.pins().await.len(), 1, "{begin}");
        assert_eq!(session.query(end).await, Ok(0));
        assert_eq!(session.pins().await, [""; 0], "{begin}");
        assert_eq!(reads_at(&stage, &mut session, at).await.server, 1, "{begin}");
    }
}

/// What several statements leave is told of each.
#[tokio::test]
async fn with_every_reason_for_it() {
    let stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    for statement in ["SET @x = 1", "CREATE TEMPORARY TABLE held (id INT)", "SET @y = 2"] {
        assert_eq!(session.query(statement).await, Ok(0));
    }
    let mut pins = session.pins().await;
    pins.sort();
    assert_eq!(pins, ["temporary-table", "user-variables"]);
    let held = stage.place("@x");
    assert_eq!(stage.place("TEMPORARY"), held);
    assert_eq!(stage.place("@y"), held);
}

/// A connection whose trackers are to be as they were is reset: it tells before what it alone knows.
#[tokio::test]
async fn and_the_id_that_it_has_made_outlives_a_reset() {
    let stage = Stage::set(Setup {
        servers: 1,
        ..Setup::default()
    })
    .await;
    let mut session = stage.connect().await;
    let both = "INSERT INTO t VALUES ('MAKES 7'); SET session_track_schema = OFF";
    assert_eq!(session.query(both).await, Ok(0));
    assert_eq!(session.query("SELECT LAST_INSERT_ID()").await, Ok(0));
    let requests = stage.requests(stage.place(both));
    let reset = requests
        .iter()
        .position(|request| request[0] == Command::RESET_CONNECTION.0)
        .unwrap();
    let asks = |request: &Vec<u8>| request.ends_with(b"SET last_insert_id=LAST_INSERT_ID()");
    assert!(requests[..reset].iter().any(asks), "{requests:?}");
    assert!(!requests[reset..].iter().any(asks), "{requests:?}");
    assert_eq!(stage.sent("SET last_insert_id=7").len(), 1);
}

/// A connection that was held is closed when its session ends, or is cleaned before it is lent again.
#[tokio::test]
async fn and_for_nobody_else() {
    let setup = Setup {
        servers: 1,
        options: ", max_connections = 1",
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    assert_eq!(session.query("SET @x = 'OK'").await, Ok(0));
    let held = stage.place("@x");
    drop(session);
    let mut other = stage.connect().await;
    assert_eq!(other.query("SELECT 'ROWS 1' FROM later").await, Ok(1));
    if stage.place("FROM later") == held {
        assert!(is_cleaned(&stage, held, "@x", "FROM later"));
    }
}

/// Whether a connection was given another state between two statements.
fn is_cleaned(stage: &Stage, place: Place, first: &str, second: &str) -> bool {
    let requests = stage.requests(place);
    let at = |text: &str| {
        let has = |request: &Vec<u8>| String::from_utf8_lossy(request).contains(text);
        requests.iter().position(has).unwrap()
    };
    let between = &requests[at(first) + 1..at(second)];
    let cleans = |request: &Vec<u8>| {
        request[0] == Command::RESET_CONNECTION.0
            || request[0] == Command::CHANGE_USER.0
            || request[1..].starts_with(b"SET ")
    };
    between.iter().any(cleans)
}

/// What a server forgets at a reset it is told to forget, before anybody else has the connection.
#[tokio::test]
async fn until_it_is_reset() {
    let setup = Setup {
        servers: 1,
        options: ", max_connections = 1",
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    for (at, hold) in [
        "CREATE TEMPORARY TABLE held (id INT)",
        "LOCK TABLES held WRITE",
        "SET @held = 'OK'",
    ]
    .into_iter()
    .enumerate()
    {
        let (mut session, mut other) = (stage.connect().await, stage.connect().await);
        assert_eq!(session.query(hold).await, Ok(0));
        let held = stage.place(hold);
        session.reset().await;
        assert_eq!(session.pins().await, [""; 0], "{hold}");
        for (reader, at) in [(&mut other, at * 2), (&mut session, at * 2 + 1)] {
            reads_at(&stage, reader, at).await;
        }
        let requests = stage.requests(held);
        let of_hold = requests
            .iter()
            .position(|request| request.ends_with(hold.as_bytes()));
        let next = &requests[of_hold.unwrap() + 1];
        assert_eq!(*next, [Command::RESET_CONNECTION.0], "{hold}: {requests:?}");
    }
}

/// A prepared statement that asks for what the last one has left may be executed at any time: who looks at
/// the session is told which one it is.
#[tokio::test]
async fn and_a_prepared_question_for_the_last_figures_is_shown() {
    let stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    for question in ["SELECT ROW_COUNT()", "SELECT FOUND_ROWS(), n FROM counted"] {
        let digest = session.explain(question, "digest").await.unwrap();
        session.prepare(question).await;
        for statement in ["BEGIN", "COMMIT"] {
            assert_eq!(session.query(statement).await, Ok(0));
        }
        let pins = session.rows("FOREBAY SHOW PINS").await;
        assert_eq!(pins.len(), 1, "{question}: {pins:?}");
        assert_eq!(
            pins[0][..2],
            ["prepared-figures".to_owned(), digest.clone()],
            "{question}"
        );
        let shown = shown_pins(&stage).await;
        assert_eq!(shown, [("prepared-figures", digest)], "{question}");
        session.reset().await;
        assert_eq!(session.pins().await, [""; 0], "{question}");
        assert_eq!(shown_pins(&stage).await, [], "{question}");
    }
}

/// What `/sessions` shows of why sessions hold their connections.
async fn shown_pins(stage: &Stage) -> Vec<(&'static str, String)> {
    let sessions = stage.gateway().describe_sessions(usize::MAX).await;
    let pins = sessions.into_iter().flat_map(|session| session.pins);
    pins.map(|pin| (pin.reason, pin.digest)).collect()
}
