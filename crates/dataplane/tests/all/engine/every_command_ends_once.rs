//! Whatever becomes of a command, observers hear of it once.

use dataplane::finished::End;
use mysql_wire::{Capabilities, Command};
use sql_class::Class;

use super::stage::{CAPABILITIES, Ended, Session, Setup, Stage, Told};

const RULES: &str = r#"
[[rule]]
name = "no"
text = "FORBIDDEN"
refuse = "not here"
[[rule]]
name = "yes"
text = "PLEASED"
answer_ok = "done"
"#;

/// One statement, and the one command that has ended by it.
async fn run(stage: &mut Stage, session: &mut Session, text: &str) -> (Told, Ended) {
    let told = session.query(text).await;
    let ended = stage.next_end().await;
    assert_eq!((ended.command, ended.user.as_str()), (Command::QUERY, "app"));
    assert!(ended.times_add_up, "{ended:?}");
    // It is read once more where it is sent once more.
    let bytes = (text.len() as u64 + 5) * u64::from(1 + ended.resent);
    assert_eq!(ended.bytes.0, bytes, "{ended:?}");
    (told, ended)
}

#[tokio::test]
async fn in_mode_split() {
    let mut stage = Stage::start("split", 2, "", RULES).await;
    let mut session = stage.connect().await;

    let (told, ended) = run(&mut stage, &mut session, "SELECT 'ROWS 2'").await;
    assert_eq!((told, ended.end, ended.rows), (Ok(2), End::Relayed, 2));
    assert_eq!((ended.class, ended.error), (Some(Class::Read), None));
    assert!(
        ended.server.is_some() && ended.digest != 0 && ended.bytes.1 > 250,
        "{ended:?}"
    );
    let digest = ended.digest;

    let (told, ended) = run(&mut stage, &mut session, "INSERT INTO t VALUES ('OK')").await;
    assert_eq!((told, ended.end, ended.affected_rows), (Ok(0), End::Relayed, 3));
    assert_eq!(ended.class, Some(Class::Write));

    let (told, ended) = run(&mut stage, &mut session, "SELECT 'ERROR'").await;
    assert_eq!(
        (told, ended.end, ended.error),
        (Err(1064), End::Relayed, Some(1064))
    );
    assert_eq!(ended.digest, digest, "values make no other statement");

    let (told, ended) = run(&mut stage, &mut session, "FOREBAY SHOW PINS").await;
    assert_eq!((told, ended.end, ended.server), (Ok(0), End::Gateway, None));

    let (told, ended) = run(&mut stage, &mut session, "SELECT FORBIDDEN FROM t").await;
    assert_eq!(
        (told.is_err(), ended.end, ended.server),
        (true, End::Refused, None)
    );
    assert_eq!(ended.error, told.err());

    let (told, ended) = run(&mut stage, &mut session, "SELECT PLEASED FROM t").await;
    assert_eq!((told, ended.end, ended.server), (Ok(0), End::Gateway, None));

    // A write whose answer does not come is never sent again, and the session goes on.
    let (told, ended) = run(&mut stage, &mut session, "INSERT INTO t VALUES ('ONCE CUT')").await;
    assert_eq!((told, ended.end, ended.resent), (Err(1158), End::Lost, 0));
    assert_eq!(ended.error, Some(1158));

    // A read is, of a session whose writes the other server need not have.
    let mut session = stage.connect().await;
    let (told, ended) = run(&mut stage, &mut session, "SELECT 'ONCE CUT'").await;
    assert_eq!((told, ended.end, ended.resent), (Ok(1), End::Relayed, 1));

    let (told, ended) = run(&mut stage, &mut session, "SELECT 'HALF 40'").await;
    assert_eq!((told.is_err(), ended.end), (true, End::Lost));
    stage.no_more().await;
}

#[tokio::test]
async fn and_so_do_prepared_statements_and_what_is_no_statement() {
    let mut stage = Stage::start("split", 1, "", "").await;
    let mut session = stage.connect().await;
    let mut next = async |command: Command, end: End| {
        let ended = stage.next_end().await;
        assert_eq!((ended.command, ended.end), (command, end), "{ended:?}");
        ended
    };

    session.send(Command::PING, b"").await;
    assert_eq!(session.answer().await, Ok(0));
    next(Command::PING, End::Gateway).await;
    let id = session.prepare("SELECT 'ROWS 1'").await;
    next(Command::STMT_PREPARE, End::Relayed).await;
    session
        .send(
            Command::STMT_EXECUTE,
            &[&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat(),
        )
        .await;
    assert!(session.answer().await.is_ok());
    let ended = next(Command::STMT_EXECUTE, End::Relayed).await;
    assert_eq!(ended.class, Some(Class::Read));
    assert!(ended.digest != 0);
    session.send(Command::STMT_CLOSE, &id.to_le_bytes()).await;
    next(Command::STMT_CLOSE, End::Gateway).await;
    session
        .send(
            Command::STMT_EXECUTE,
            &[&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat(),
        )
        .await;
    assert_eq!(session.answer().await, Err(1243));
    next(Command::STMT_EXECUTE, End::Refused).await;

    session.send(Command::INIT_DB, b"test").await;
    assert_eq!(session.answer().await, Ok(0));
    next(Command::INIT_DB, End::Relayed).await;
    // On the connection that the session holds.
    assert_eq!(session.query("SELECT GET_LOCK('OK', 1)").await, Ok(0));
    next(Command::QUERY, End::Relayed).await;
    session.send(Command::RESET_CONNECTION, b"").await;
    assert_eq!(session.answer().await, Ok(0));
    next(Command::RESET_CONNECTION, End::Relayed).await;
    // It holds none any more.
    session.send(Command::RESET_CONNECTION, b"").await;
    assert_eq!(session.answer().await, Ok(0));
    next(Command::RESET_CONNECTION, End::Gateway).await;
    session.send(Command::QUIT, b"").await;
    next(Command::QUIT, End::Closed).await;
    stage.no_more().await;
}

/// Has clients read again and again, over the one connection there is, until some of their reads have gone
/// down it together. Each ends once.
async fn read_together(stage: &mut Stage) {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 200;
    let mut sessions = Vec::new();
    for _ in 0..CLIENTS {
        sessions.push(stage.connect().await);
    }
    let mut pipelined = 0;
    for _ in 0..ROUNDS {
        for session in &mut sessions {
            session.send(Command::QUERY, b"SELECT 'ROWS 1'").await;
        }
        for session in &mut sessions {
            assert_eq!(session.answer().await, Ok(1));
        }
        for _ in 0..CLIENTS {
            let ended = stage.next_end().await;
            assert!(matches!(ended.end, End::Relayed | End::Pipelined), "{ended:?}");
            assert!(ended.server.is_some() && ended.rows == 1, "{ended:?}");
            pipelined += usize::from(ended.end == End::Pipelined);
        }
        if pipelined > 0 {
            break;
        }
    }
    assert!(pipelined > 0);
}

/// The end behind this one in the list of all. One that is new is missing here, and the compiler says so.
fn behind(end: End) -> Option<End> {
    match end {
        End::Relayed => Some(End::Pipelined),
        End::Pipelined => Some(End::Memory),
        End::Memory => Some(End::Gateway),
        End::Gateway => Some(End::Refused),
        End::Refused => Some(End::Lost),
        End::Lost => Some(End::Closed),
        End::Closed => None,
    }
}

/// Brings a command to this end, and sees that it is told once.
async fn bring_about(end: End) {
    let one_connection = ", max_connections = 1";
    let mut stage = match end {
        End::Pipelined => Stage::start("split", 1, one_connection, "").await,
        End::Memory => Stage::set(Setup::with_lookups("split")).await,
        _ => Stage::with_rules(RULES).await,
    };
    let text = match end {
        End::Relayed => "SELECT 'ROWS 2'",
        End::Memory => "SELECT c FROM remembered WHERE id = 1",
        End::Gateway => "FOREBAY SHOW PINS",
        End::Refused => "SELECT FORBIDDEN FROM t",
        End::Lost => "INSERT INTO t VALUES ('ONCE CUT')",
        End::Pipelined => {
            read_together(&mut stage).await;
            return stage.no_more().await;
        }
        End::Closed => {
            stage.connect().await.send(Command::QUIT, b"").await;
            assert_eq!(stage.next_end().await.end, end);
            return stage.no_more().await;
        }
    };
    let mut session = stage.connect().await;
    let (_, ended) = run(&mut stage, &mut session, text).await;
    assert_eq!(ended.end, end, "{text}: {ended:?}");
    stage.no_more().await;
}

#[tokio::test]
async fn to_whichever_of_all_ends_it_comes() {
    let all = std::iter::successors(Some(End::Relayed), |end| behind(*end));
    for end in all {
        bring_about(end).await;
    }
}

#[tokio::test]
async fn in_mode_session() {
    let mut stage = Stage::start("session", 2, "", "").await;
    let mut session = stage.connect().await;

    let (told, ended) = run(&mut stage, &mut session, "SELECT 'ROWS 2'").await;
    assert_eq!((told, ended.end, ended.rows), (Ok(2), End::Relayed, 2));
    assert_eq!((ended.class, ended.digest), (None, 0), "no text is read");
    let (told, ended) = run(&mut stage, &mut session, "INSERT INTO t VALUES ('ERROR')").await;
    assert_eq!(
        (told, ended.end, ended.error),
        (Err(1064), End::Relayed, Some(1064))
    );
    // On the other server. One whose first check is not over gets no session yet.
    let home = stage.place("SELECT 'ROWS 2'").server;
    let mut others = Vec::new();
    let other = loop {
        let mut other = stage.connect_as("other").await;
        let text = format!("SELECT 'ROWS 1' FROM other_{}_", others.len());
        assert_eq!(other.query(&text).await, Ok(1));
        stage.next_end().await;
        if stage.place(&text).server != home {
            break other;
        }
        others.push(other);
        assert!(others.len() < 1000, "the other server gets none");
    };
    let kill = format!("KILL {}", other.0.greeting().connection_id);
    let (told, ended) = run(&mut stage, &mut session, &kill).await;
    assert_eq!((told, ended.end, ended.server), (Err(1095), End::Refused, None));
    let (told, ended) = run(&mut stage, &mut session, "SELECT 'CUT'").await;
    assert!(told.is_err());
    assert_eq!(
        (ended.end, ended.error),
        (End::Lost, told.err().filter(|code| *code != 0))
    );

    let mut session = stage.connect().await;
    session.send(Command::QUIT, b"").await;
    assert_eq!(stage.next_end().await.end, End::Closed);
    stage.no_more().await;
}

#[tokio::test]
async fn and_so_does_what_memory_answers() {
    for mode in ["split", "session"] {
        let mut stage = Stage::set(Setup::with_lookups(mode)).await;
        let mut session = stage.connect().await;
        for (table, key, rows) in [("remembered", 1, 1), ("remembered", 0, 0), ("awaited", 1, 1)] {
            let text = format!("SELECT c FROM {table} WHERE id = {key}");
            let (told, ended) = run(&mut stage, &mut session, &text).await;
            assert_eq!(
                (told, ended.end, &ended.server),
                (Ok(rows), End::Memory, &None),
                "{mode}: {text}"
            );
            assert_eq!(
                (ended.class, ended.digest),
                (Some(Class::Read), 0),
                "{mode}: {text}"
            );
            assert_eq!((ended.error, ended.resent), (None, 0), "{mode}: {text}");
            assert!(ended.bytes.1 > 50, "{mode}: {text}: {ended:?}");
        }
        assert!(stage.sent("WHERE id").is_empty(), "{mode}");

        for table in ["remembered", "awaited"] {
            let text = format!("SELECT c FROM {table} WHERE id = ?");
            let id = session.prepare(&text).await;
            assert_eq!(stage.next_end().await.end, End::Relayed, "{mode}: {text}");
            for (key, rows) in [(1, 1), (0, 0), (2, 1)] {
                assert_eq!(session.execute_with(id, key).await, Ok(rows), "{mode}: {text}");
                let ended = stage.next_end().await;
                assert_eq!(
                    (ended.command, ended.end),
                    (Command::STMT_EXECUTE, End::Memory),
                    "{mode}: {text}"
                );
                assert_eq!((ended.class, &ended.server), (Some(Class::Read), &None));
                assert!(ended.digest != 0 && ended.times_add_up, "{mode}: {ended:?}");
                // Header, command, id, flags, iterations; of the parameter whether it is NULL, that its type
                // comes, its type and its value.
                assert_eq!(
                    ended.bytes.0,
                    4 + 1 + 4 + 1 + 4 + 1 + 1 + 2 + 8,
                    "{mode}: {ended:?}"
                );
            }
            let requests = stage.requests(stage.place(&text));
            let has_executed = requests
                .iter()
                .any(|request| request[0] == Command::STMT_EXECUTE.0);
            assert!(!has_executed, "{mode}: {text}");
        }

        // What a server has to be asked is that server's.
        let (told, ended) = run(&mut stage, &mut session, "SELECT c FROM other WHERE id = 1").await;
        assert_eq!((told, ended.end), (Ok(0), End::Relayed), "{mode}");
        assert!(ended.server.is_some() && ended.digest != 0, "{mode}: {ended:?}");
        stage.no_more().await;
    }
}

/// A client that knows of query attributes says with each execution how many parameters that has.
#[tokio::test]
async fn and_so_does_what_memory_answers_to_clients_with_attributes() {
    let capabilities = CAPABILITIES | Capabilities::QUERY_ATTRIBUTES;
    let setup = Setup {
        capabilities,
        ..Setup::with_lookups("split")
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect_with(capabilities).await;
    let id = session.prepare("SELECT c FROM remembered WHERE id = ?").await;
    assert_eq!(stage.next_end().await.end, End::Relayed);
    // No flags, one iteration; one parameter, not NULL, its type with an empty name.
    let head = [0_u8, 1, 0, 0, 0, 1, 0, 1, 8, 0, 0];
    let rest = [&id.to_le_bytes()[..], &head, &7_u64.to_le_bytes()].concat();
    session.send(Command::STMT_EXECUTE, &rest).await;
    assert_eq!(session.answer().await, Ok(1));
    assert_eq!(stage.next_end().await.end, End::Memory);
}
