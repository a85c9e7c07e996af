//! Sessions of mode `session` whose listener has `point_lookups` are understood as those of mode `split` are,
//! and stay all the same on the one connection on which their client has logged in.

use std::time::{Duration, Instant};

use dataplane::finished::End;
use mysql_wire::{Capabilities, Command, EofPacket, StatusFlags};
use testkit::scripted::{Reply, Script};

use super::sessions_are_killed_by_their_number::is_gone;
use super::stage::{CACHE, CAPABILITIES, Place, Session, Setup, Stage, as_here};

const TRACKERS: &str = "SET SESSION session_track_";

fn setup() -> Setup<'static> {
    Setup::with_lookups("session")
}

/// Where the session is: where it has this statement. `at`: different for each.
async fn is_at(stage: &Stage, session: &mut Session, at: usize) -> Place {
    let read = format!("SELECT 'ROWS 1' FROM reader_{at}_");
    assert_eq!(session.query(&read).await, Ok(1));
    stage.place(&read)
}

/// Sessions on both servers. One whose first check is not over gets none yet.
async fn on_both_servers(stage: &Stage) -> Vec<Session> {
    let mut sessions = Vec::new();
    while stage.logins(0) == 0 || stage.logins(1) == 0 {
        sessions.push(stage.connect().await);
        assert!(sessions.len() < 1000, "one server gets none");
    }
    sessions
}

/// Which of the requests of a connection have this text.
fn positions(stage: &Stage, place: Place, text: &str) -> Vec<usize> {
    let has = |request: &[u8]| String::from_utf8_lossy(request).contains(text);
    let requests = stage.requests(place);
    (0..requests.len()).filter(|at| has(&requests[*at])).collect()
}

/// Which of the requests of a connection are this command.
fn commands(stage: &Stage, place: Place, command: Command) -> Vec<usize> {
    let requests = stage.requests(place);
    (0..requests.len())
        .filter(|at| requests[*at][0] == command.0)
        .collect()
}

#[tokio::test]
async fn whatever_its_client_does() {
    let stage = Stage::set(setup()).await;
    let mut sessions = on_both_servers(&stage).await;
    let mut servers = Vec::new();
    for (number, session) in sessions.iter_mut().enumerate() {
        let number = 1000 * (number + 1);
        let home = is_at(&stage, session, number).await;
        if servers.contains(&home.server) {
            continue;
        }
        servers.push(home.server);
        let texts = [
            "INSERT INTO t VALUES ('OK')",
            "BEGIN",
            "SELECT 'ROWS 2', 'TRX'",
            "UPDATE t SET a = 'OK', b = 'TRX'",
            "ROLLBACK",
            "START TRANSACTION READ ONLY",
            "COMMIT",
            "SET NAMES utf8mb4",
            "SET @x = 1",
            "USE test",
            "CREATE TEMPORARY TABLE held (id INT)",
            "DROP TEMPORARY TABLE held",
            "SELECT 'ROWS 1', GET_LOCK('a', 1)",
            "SELECT 'ROWS 1', RELEASE_LOCK('a')",
            "INSERT INTO t VALUES ('OK', 'WARNS')",
            "SHOW WARNINGS",
            "SELECT 'ROWS 1', LAST_INSERT_ID()",
            "SELECT /* replica */ 'ROWS 1'",
            "CREATE TABLE t (a INT)",
            "SELECT 'ERROR'",
        ];
        for (at, text) in texts.into_iter().enumerate() {
            let text = format!("{text} -- {number} {at}.");
            let told = session.query(&text).await;
            assert_eq!(told.err(), text.contains("ERROR").then_some(1064), "{text}");
            assert_eq!(stage.place(&text), home, "{text}");
            assert_eq!(is_at(&stage, session, number + at + 1).await, home, "{text}");
        }
        let prepared = format!("INSERT INTO t VALUES ('OK', {number})");
        let id = session.prepare(&prepared).await;
        assert_eq!(session.execute(id).await, Ok(0));
        assert_eq!(stage.place(&prepared), home);
        assert_eq!(commands(&stage, home, Command::STMT_EXECUTE).len(), 1);

        session.send(Command::INIT_DB, b"test").await;
        assert_eq!(session.answer().await, Ok(0));
        assert_eq!(commands(&stage, home, Command::INIT_DB).len(), 1);
        session.reset().await;
        assert_eq!(commands(&stage, home, Command::RESET_CONNECTION).len(), 1);
        assert_eq!(is_at(&stage, session, number + 500).await, home);
        // A second one is the server's, too: it is no session without a connection.
        session.reset().await;
        assert_eq!(commands(&stage, home, Command::RESET_CONNECTION).len(), 2);
        assert_eq!(is_at(&stage, session, number + 501).await, home);

        session.0.change_user(b"other", b"secret").await.unwrap();
        assert_eq!(commands(&stage, home, Command::CHANGE_USER).len(), 1);
        assert_eq!(is_at(&stage, session, number + 502).await, home);
        assert_eq!(session.query("BEGIN").await, Ok(0));
        assert_eq!(session.query("ROLLBACK").await, Ok(0));
        assert_eq!(is_at(&stage, session, number + 503).await, home);
    }
    assert_eq!(servers.len(), 2);
    let logins = stage.logins(0) + stage.logins(1);
    assert_eq!(logins, sessions.len(), "no pool has opened any");
}

#[tokio::test]
async fn and_shares_it_with_nobody() {
    let stage = Stage::set(setup()).await;
    let mut sessions = Vec::new();
    let mut places = Vec::new();
    for at in 0..6 {
        sessions.push(stage.connect().await);
        places.push(is_at(&stage, &mut sessions[at], at).await);
    }
    for round in 1..4 {
        for (at, session) in sessions.iter_mut().enumerate() {
            assert_eq!(is_at(&stage, session, 100 * round + at).await, places[at]);
        }
    }
    for at in 0..places.len() {
        assert!(!places[..at].contains(&places[at]), "{places:?}");
    }
    // One that is left is nobody's any more.
    let left = places[2];
    sessions[2].send(Command::QUIT, b"").await;
    stage.has_ended(left).await;
    let mut next = stage.connect().await;
    assert!(!places.contains(&is_at(&stage, &mut next, 1000).await));
    for at in [0, 1, 3, 4, 5] {
        assert_eq!(is_at(&stage, &mut sessions[at], 2000 + at).await, places[at]);
    }
    assert_eq!(stage.logins(0) + stage.logins(1), 7);
}

#[tokio::test]
async fn whose_server_is_told_of_its_end() {
    let mut stage = Stage::set(setup()).await;
    let mut session = stage.connect().await;
    let place = is_at(&stage, &mut session, 0).await;
    assert_eq!(
        session.query("SELECT c FROM remembered WHERE id = 1").await,
        Ok(1)
    );
    session.send(Command::QUIT, b"").await;
    assert_eq!(session.answer().await, Err(0));
    let (last, end) = stage.has_ended(place).await;
    assert_eq!((last, end.as_str()), (vec![Command::QUIT.0], ""));
    let ends = [
        (Command::QUERY, End::Relayed),
        (Command::QUERY, End::Memory),
        (Command::QUIT, End::Closed),
    ];
    for expected in ends {
        let ended = stage.next_end().await;
        assert_eq!((ended.command, ended.end), expected);
    }
    stage.no_more().await;

    // A client that is gone says nothing to its server either, but its connection ends.
    let mut session = stage.connect().await;
    assert_eq!(session.query("BEGIN").await, Ok(0));
    let place = is_at(&stage, &mut session, 1).await;
    drop(session);
    stage.has_ended(place).await;
}

/// And is asked what the session begins with, each time.
#[tokio::test]
async fn whose_server_reports_what_happens_there() {
    let stage = Stage::set(setup()).await;
    let mut session = stage.connect().await;
    let place = is_at(&stage, &mut session, 0).await;
    let before = positions(&stage, place, "reader_0_")[0];
    let trackers = positions(&stage, place, TRACKERS);
    assert_eq!(trackers.len(), 1);
    assert!(trackers[0] < before, "from the login on");
    assert_eq!(positions(&stage, place, "session_variables s").len(), 1);

    session.reset().await;
    is_at(&stage, &mut session, 1).await;
    let reset = commands(&stage, place, Command::RESET_CONNECTION)[0];
    let trackers = positions(&stage, place, TRACKERS);
    assert_eq!(trackers.len(), 2);
    assert!(reset < trackers[1] && trackers[1] < positions(&stage, place, "reader_1_")[0]);
    assert_eq!(positions(&stage, place, "session_variables s").len(), 2);

    session.0.change_user(b"other", b"secret").await.unwrap();
    is_at(&stage, &mut session, 2).await;
    let changed = commands(&stage, place, Command::CHANGE_USER)[0];
    let trackers = positions(&stage, place, TRACKERS);
    assert_eq!(trackers.len(), 3);
    assert!(changed < trackers[2] && trackers[2] < positions(&stage, place, "reader_2_")[0]);
}

/// What was on a connection that is lost no other one has: not even a read is sent again.
#[tokio::test]
async fn and_ends_with_it() {
    let mut stage = Stage::set(setup()).await;
    for (statement, told) in [
        ("SELECT 'CUT' FROM one", Err(1158)),
        ("INSERT INTO t VALUES ('CUT', 'two')", Err(1158)),
        ("SELECT 'HALF 5000' FROM three", Err(0)),
        ("COMMIT /* 'CUT' four */", Err(1158)),
    ] {
        let mut session = stage.connect().await;
        assert_eq!(
            session.query("SELECT c FROM remembered WHERE id = 1").await,
            Ok(1)
        );
        assert_eq!(stage.next_end().await.end, End::Memory);
        assert_eq!(session.query("INSERT INTO t VALUES ('OK')").await, Ok(0));
        assert_eq!(stage.next_end().await.end, End::Relayed);
        assert_eq!(session.query(statement).await, told, "{statement}");
        let ended = stage.next_end().await;
        assert_eq!((ended.end, ended.resent), (End::Lost, 0), "{statement}");
        assert_eq!(stage.sent(statement).len(), 1, "{statement}");
        assert_eq!(session.query("SELECT 'ROWS 1'").await, Err(0), "{statement}");
        stage.no_more().await;
    }
}

#[tokio::test]
async fn as_does_one_that_waits_for_its_client() {
    let mut stage = Stage::set(setup()).await;
    let mut session = stage.connect().await;
    let place = is_at(&stage, &mut session, 0).await;
    stage.remove(place.server);
    // Memory answers until the session sees the end of its connection.
    let began = Instant::now();
    let end = loop {
        match session.query("SELECT c FROM remembered WHERE id = 1").await {
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(10)),
            end => break end,
        }
    };
    assert_eq!(end, Err(0), "without a word, as its server");
    assert!(stage.sent("").is_empty());
}

#[tokio::test]
async fn where_no_rule_concerns_it() {
    let tables = format!(
        r#"
        {CACHE}
        [[rule]]
        name = "no"
        text = "FORBIDDEN"
        refuse = "not here"
        [[rule]]
        name = "yes"
        text = "PLEASED"
        answer_ok = "done"
        [[rule]]
        name = "else"
        text = "REWRITTEN"
        rewrite = "SELECT 'ROWS 7'"
        "#
    );
    let setup = Setup {
        tables: &tables,
        ..setup()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    for word in ["FORBIDDEN", "PLEASED", "REWRITTEN"] {
        let text = format!("SELECT 'ROWS 2' FROM {word}");
        assert_eq!(session.query(&text).await, Ok(2));
        assert_eq!(stage.next_end().await.end, End::Relayed);
        stage.place(&text);
        let text = format!("SELECT {word} FROM remembered WHERE id = 1");
        assert_eq!(session.query(&text).await, Ok(1));
        assert_eq!(stage.next_end().await.end, End::Memory);
    }
}

/// In a transaction, too.
#[tokio::test]
async fn whose_server_is_pinged() {
    let stage = Stage::set(setup()).await;
    let mut sessions = [stage.connect().await, stage.connect().await];
    for (at, session) in sessions.iter_mut().enumerate() {
        let place = is_at(&stage, session, at).await;
        for count in 1..4 {
            session.send(Command::PING, b"").await;
            assert_eq!(session.answer().await, Ok(0));
            assert_eq!(commands(&stage, place, Command::PING).len(), count);
            assert_eq!(session.query("BEGIN").await, Ok(0));
        }
    }
}

/// Its number is the gateway's, and its server's is that of its connection.
#[tokio::test]
async fn on_which_it_can_be_killed() {
    let setup = Setup {
        check: ", user = \"app\", password = \"secret\"",
        ..setup()
    };
    for (kill, sent) in [
        ("KILL QUERY", "KILL QUERY "),
        ("KILL CONNECTION", "KILL "),
        ("KILL", "KILL "),
    ] {
        let stage = Stage::set(setup).await;
        let (mut victim, mut killer) = (stage.connect().await, stage.connect().await);
        let home = is_at(&stage, &mut victim, 0).await;
        let of_killer = is_at(&stage, &mut killer, 1).await;
        let write = "INSERT INTO t VALUES ('STALL')";
        victim.send(Command::QUERY, write.as_bytes()).await;
        stage.has_come(home.server, write, 1).await;
        assert_eq!(
            killer.query(&format!("{kill} {}", victim.id())).await,
            Ok(0),
            "{kill}"
        );
        stage.has_come(home.server, sent, 1).await;
        assert_eq!(stage.place(write), home);
        let kills = stage.sent("KILL");
        assert_eq!(kills.len(), 1, "{kill}: {kills:?}");
        assert_eq!(kills[0].1, format!("{sent}{}", home.connection + 1), "{kill}");
        assert!(kills[0].0 != home && kills[0].0 != of_killer, "{kill}");
        if kill != "KILL QUERY" {
            assert!(victim.answer().await.is_err(), "{kill}");
            stage.has_ended(home).await;
        }
        assert_eq!(is_at(&stage, &mut killer, 2).await, of_killer, "{kill}");
    }
}

#[tokio::test]
async fn while_it_waits_for_its_client_or_for_memory() {
    let setup = Setup {
        check: ", user = \"app\", password = \"secret\"",
        ..setup()
    };
    for waits_for_memory in [false, true] {
        let stage = Stage::set(setup).await;
        let (mut victim, mut killer) = (stage.connect().await, stage.connect().await);
        let home = is_at(&stage, &mut victim, 0).await;
        if waits_for_memory {
            victim
                .send(Command::QUERY, b"SELECT c FROM never WHERE id = 1")
                .await;
            // What comes behind it is not read before that is answered.
            victim.send(Command::QUERY, b"SELECT 'ROWS 1' FROM behind").await;
        }
        let id = victim.id();
        killer.send(Command::PROCESS_KILL, &id.to_le_bytes()).await;
        assert_eq!(killer.answer().await, Ok(0));
        stage.has_ended(home).await;
        let told = match waits_for_memory {
            true => victim.answer().await.map(|_| ()),
            false => victim.0.receive_unasked().await.map(drop).map_err(|_| 0),
        };
        assert!(!waits_for_memory || told.is_err());
        assert!(stage.sent("FROM behind").is_empty());
        drop(victim);
        is_gone(&mut killer, id).await;
    }
}

/// Its own server says what it may do, over its own connection.
#[tokio::test]
async fn by_those_who_may() {
    let stage = Stage::set(setup()).await;
    let (mut victim, mut killer) = (stage.connect().await, stage.connect_as("other").await);
    let home = is_at(&stage, &mut victim, 0).await;
    let of_killer = is_at(&stage, &mut killer, 1).await;
    for kill in ["KILL QUERY", "KILL"] {
        let kill = format!("{kill} {}", victim.id());
        assert_eq!(killer.query(&kill).await, Err(1095), "{kill}");
    }
    let asked = stage.sent("SHOW GRANTS");
    let places: Vec<_> = asked.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [of_killer, of_killer]);
    assert_eq!(is_at(&stage, &mut victim, 2).await, home);
    assert!(stage.sent("KILL").is_empty());
}

/// A client that knows less than the gateway and the server do between them.
#[tokio::test]
async fn and_whose_client_gets_answers_in_its_own_form() {
    let lacks = Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK;
    let capabilities = CAPABILITIES.without(lacks);
    for mode in ["session", "split"] {
        let stage = Stage::set(Setup::with_lookups(mode)).await;
        let mut session = stage.connect_with(capabilities).await;
        for text in ["ROWS 2", "ROWS 0", "ERROR", "OK"] {
            session
                .send(Command::QUERY, format!("SELECT '{text}'").as_bytes())
                .await;
            let expected = in_form_of(capabilities, text);
            session.0.expect(&expected).await.unwrap();
        }
        let place = stage.place("SELECT 'ROWS 2'");
        assert!(stage.negotiated(place).contains(lacks), "{mode}");
        for text in ["remembered", "awaited", "taught", "taught"] {
            let text = format!("SELECT c, 'ROWS 1' FROM {text} WHERE id = 1");
            assert_eq!(session.query(&text).await, Ok(1), "{mode}: {text}");
        }
        assert_eq!(session.query("SELECT 'ROWS 3'").await, Ok(3), "{mode}");
    }
}

/// What the scripted server says in this form, without warnings and ids.
fn in_form_of(capabilities: Capabilities, text: &str) -> Vec<u8> {
    let mut reply = Script::new(capabilities).reply(&[&[Command::QUERY.0], text.as_bytes()].concat());
    if let Reply::Payloads(payloads) = &mut reply {
        for payload in payloads {
            match payload[0] {
                0 => as_here(payload, false, capabilities),
                0xfe => {
                    payload.clear();
                    let end = EofPacket {
                        warnings: 0,
                        status: StatusFlags::AUTOCOMMIT,
                    };
                    end.encode(payload);
                }
                _ => {}
            }
        }
    }
    Script::bytes(&reply).unwrap()
}
