//! Which server a statement goes to: as an observer is told, as `FOREBAY EXPLAIN` says before it and
//! `FOREBAY SHOW LAST` after it.

use std::sync::Arc;
use std::time::Instant;

use mysql_wire::Capabilities;
use sql_class::Class;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::stage::{CAPABILITIES, PATIENCE, Session, Setup, Stage};

/// Runs a statement, and returns the server that it ran on, on which all agree.
async fn runs_on(stage: &mut Stage, session: &mut Session, text: &str) -> Option<String> {
    let lines = session.rows(&format!("FOREBAY EXPLAIN {text}")).await;
    stage.next_end().await;
    let explained = lines.into_iter().find(|line| line[0] == "server");
    assert!(session.query(text).await.is_ok(), "{text}");
    let server = stage.next_end().await.server;
    let last = session.rows("FOREBAY SHOW LAST").await;
    stage.next_end().await;
    assert_eq!(
        last.first().map(|row| &row[1]),
        server.as_ref(),
        "{text}: {last:?}"
    );
    assert_eq!(explained.as_ref().map(|line| &line[1]), server.as_ref(), "{text}");
    server
}

#[tokio::test]
async fn reads_to_a_replica_and_all_else_to_the_primary() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    for (text, server) in [
        ("SELECT 'ROWS 1'", 1),
        ("SELECT 'ROWS 1' FROM t", 1),
        ("SHOW TABLES LIKE 'ROWS 1'", 1),
        ("INSERT INTO t VALUES ('OK')", 0),
        ("SELECT 'ROWS 1' FROM t FOR UPDATE", 0),
        ("CREATE TABLE t (id INT)", 0),
        ("SELECT 'ROWS 1' FROM t LOCK IN SHARE MODE", 0),
        ("SELECT 'ROWS 1', LAST_INSERT_ID()", 0),
        ("SELECT 'ROWS 1', @@port", 0),
        ("SELECT 'ROWS 1' FROM once_more", 1),
        ("SELECT 'ROWS 1', nobody_knows(1)", 0),
        // Nobody knows what that has left there.
        ("SELECT 'ROWS 1' FROM and_again", 0),
    ] {
        let name = stage.name(server);
        assert_eq!(runs_on(&mut stage, &mut session, text).await, name, "{text}");
    }
}

#[tokio::test]
async fn a_prepared_statement_goes_where_its_text_would() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    for (text, class, server) in [
        ("SELECT 1 FROM t", Class::Read, 1),
        ("UPDATE t SET a = 1", Class::Write, 0),
        ("SELECT 1 FROM t FOR UPDATE", Class::LockingRead, 0),
    ] {
        let id = session.prepare(text).await;
        stage.next_end().await;
        for _ in 0..2 {
            assert_eq!(session.execute(id).await, Ok(0));
            let ended = stage.next_end().await;
            assert_eq!(
                (ended.class, ended.server),
                (Some(class), stage.name(server)),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_transaction_stays_on_the_primary() {
    let mut stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let primary = stage.name(0);
    for text in [
        "BEGIN",
        "SELECT 'ROWS 1', 'TRX'",
        "INSERT INTO t VALUES ('OK', 'TRX')",
    ] {
        assert_eq!(runs_on(&mut stage, &mut session, text).await, primary, "{text}");
    }
    let hinted = "/* forebay: replica */ SELECT 'ROWS 1', 'TRX' FROM hinted";
    assert_eq!(runs_on(&mut stage, &mut session, hinted).await, primary);
    let last = session.rows("FOREBAY SHOW LAST").await;
    assert_eq!(last[0][2..], ["primary", "held"]);
    stage.next_end().await;
    assert_eq!(runs_on(&mut stage, &mut session, "COMMIT").await, primary);
    // All of it on one connection.
    let begun = stage.place("BEGIN");
    let inside = stage.sent("'TRX'");
    assert_eq!(inside.len(), 3);
    assert!(inside.iter().all(|(place, _)| *place == begun), "{inside:?}");
    let replica = stage.name(1);
    assert_eq!(
        runs_on(&mut stage, &mut session, "SELECT 'ROWS 1'").await,
        replica
    );
}

#[tokio::test]
async fn a_transaction_that_only_reads_stays_on_one_replica() {
    let setup = Setup {
        servers: 3,
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    for at in 0..4 {
        let begin = format!("START TRANSACTION READ ONLY /* {at} */");
        assert_eq!(session.query(&begin).await, Ok(0));
        let replica = stage.next_end().await.server;
        assert_ne!(replica, stage.name(0));
        for _ in 0..3 {
            let inside = format!("SELECT 'ROWS 1', 'TRX' FROM inside_{at}");
            assert_eq!(session.query(&inside).await, Ok(1));
            assert_eq!(stage.next_end().await.server, replica);
        }
        assert_eq!(session.query("COMMIT").await, Ok(0));
        assert_eq!(stage.next_end().await.server, replica);
        let begun = stage.place(&begin);
        let inside = stage.sent(&format!("inside_{at}"));
        assert!(inside.iter().all(|(place, _)| *place == begun), "{inside:?}");
    }
}

/// A text of several statements may end such a transaction and go on with something else.
#[tokio::test]
async fn and_nothing_comes_to_that_replica_behind_its_end() {
    const BEGIN: &str = "START TRANSACTION READ ONLY";
    let capabilities = CAPABILITIES | Capabilities::MULTI_STATEMENTS;
    let stage = Stage::set(Setup {
        capabilities,
        ..Setup::default()
    })
    .await;
    let mut session = stage.connect_with(capabilities).await;
    for (at, end) in ["COMMIT", "rollback work"].into_iter().enumerate() {
        assert_eq!(session.query(BEGIN).await, Ok(0));
        let write = format!("{end}; INSERT INTO t VALUES ('OK')");
        assert_eq!(session.query(&write).await, Ok(0));
        assert_eq!(stage.place(&write).server, 0);
        stage.has_come(1, "COMMIT AND NO CHAIN", at + 1).await;
    }
    assert_eq!(session.query(BEGIN).await, Ok(0));
    for text in [
        "SET autocommit = 1; INSERT INTO t VALUES (1)",
        "SELECT 'ROWS 1'; COMMIT; INSERT INTO t VALUES (2)",
        "COMMIT AND CHAIN; INSERT INTO t VALUES (3)",
        "INSERT INTO t VALUES (4); COMMIT",
    ] {
        let (code, words) = session.refused(text).await;
        assert!(code == 1290 && words.contains("by itself"), "{text}: {words}");
        assert!(stage.sent(text).is_empty(), "{text}");
    }
    // The transaction is still open.
    let last = "SELECT 'OK'; COMMIT";
    assert_eq!(session.query(last).await, Ok(0));
    assert_eq!(stage.place(last).server, 1);
    assert_eq!(session.pins().await, [""; 0]);
    assert_eq!(session.query(BEGIN).await, Ok(0));
    let reads = "SELECT 'ROWS 1', 'TRX'; SELECT 2";
    assert_eq!(session.query(reads).await, Ok(1));
    assert_eq!(stage.place(reads).server, 1);
}

#[tokio::test]
async fn and_one_that_writes_begins_on_the_primary() {
    let stage = Stage::set(Setup::default()).await;
    let mut session = stage.connect().await;
    let (reads, writes) = ("START TRANSACTION READ ONLY", "START TRANSACTION READ WRITE");
    for text in [reads, writes] {
        assert_eq!(session.query(text).await, Ok(0));
    }
    assert_eq!(stage.place(reads).server, 1);
    // The replica was asked whether it can read the text.
    let writes: Vec<_> = stage.sent(writes).iter().map(|(place, _)| place.server).collect();
    assert_eq!(writes, [0, 1]);
}

#[tokio::test]
async fn a_hint_says_otherwise() {
    let setup = Setup {
        servers: 3,
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    let primary = stage.name(0);
    for _ in 0..3 {
        let hinted = "/* forebay: primary */ SELECT 'ROWS 1'";
        assert_eq!(runs_on(&mut stage, &mut session, hinted).await, primary);
        for server in 0..3 {
            let name = stage.name(server);
            let hinted = format!("/* forebay: server={} */ SELECT 'ROWS 1'", name.clone().unwrap());
            assert_eq!(runs_on(&mut stage, &mut session, &hinted).await, name);
        }
        let hinted = "/* forebay: replica */ INSERT INTO t VALUES ('OK')";
        assert_eq!(
            runs_on(&mut stage, &mut session, hinted).await,
            primary,
            "it moves no write"
        );
        let hinted = "/* forebay: replica */ SELECT 'ROWS 1', nobody_knows(1)";
        assert_eq!(session.query(hinted).await, Ok(1));
        assert_ne!(stage.next_end().await.server, primary, "it is trusted");
        // It would bind the session to the replica.
        let hinted = "/* forebay: replica */ SELECT 'ROWS 1', @x";
        let mut other = stage.connect().await;
        assert_eq!(runs_on(&mut stage, &mut other, hinted).await, primary);
    }
}

#[tokio::test]
async fn reads_take_turns_on_the_replicas_and_on_the_primary_where_it_has_its_share() {
    for (cluster, servers) in [("", 1..3), ("primary_reads = true", 0..3)] {
        let setup = Setup {
            servers: 3,
            cluster,
            ..Setup::default()
        };
        let mut stage = Stage::set(setup).await;
        let mut session = stage.connect().await;
        let mut counts = [0; 3];
        for _ in 0..90 {
            assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
            let server = stage.next_end().await.server;
            let at = (0..3).find(|at| stage.name(*at) == server);
            counts[at.unwrap()] += 1;
        }
        for (at, count) in counts.into_iter().enumerate() {
            assert_eq!(count > 0, servers.contains(&at), "{cluster}: {counts:?}");
        }
    }
}

#[tokio::test]
async fn where_a_replica_is_gone_others_take_its_reads() {
    let setup = Setup {
        servers: 3,
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    for gone in [1, 2] {
        stage.remove(gone);
        for _ in 0..10 {
            assert_eq!(session.query("SELECT 'ROWS 1'").await, Ok(1));
            let server = stage.next_end().await.server;
            let left = if gone == 1 { 2 } else { 0 };
            assert_eq!(server, stage.name(left));
        }
    }
    let last = session.rows("FOREBAY SHOW LAST").await;
    assert_eq!(last[0][1..], [&stage.name(0).unwrap(), "primary", "no_replica"]);
}

/// The servers have no positions, so that only the primary is known to have it.
#[tokio::test]
async fn a_read_behind_its_own_write_goes_to_the_primary() {
    let setup = Setup {
        listener: "read_consistency = \"session\"",
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    let (primary, replica) = (stage.name(0), stage.name(1));
    let read = "SELECT 'ROWS 1'";
    assert_eq!(runs_on(&mut stage, &mut session, read).await, replica);
    let write = "INSERT INTO t VALUES ('OK')";
    assert_eq!(runs_on(&mut stage, &mut session, write).await, primary);
    assert_eq!(runs_on(&mut stage, &mut session, read).await, primary);
    assert_eq!(
        runs_on(&mut stage, &mut other, read).await,
        replica,
        "it has written nothing"
    );
    assert_eq!(
        session.query("FOREBAY SET read_consistency = eventual").await,
        Ok(0)
    );
    stage.next_end().await;
    assert_eq!(runs_on(&mut stage, &mut session, read).await, replica);
}

/// Server, address, role and why, of the statement before.
#[tokio::test]
async fn and_who_has_answered_is_told() {
    let rule = "[[rule]]\nname = \"mine\"\ntext = \"^DO 42\"\nanswer_ok = \"\"\n";
    let stage = Stage::with_rules(rule).await;
    let mut session = stage.connect().await;
    let last = "FOREBAY SHOW LAST";
    assert!(session.rows(last).await.is_empty(), "nothing came before");
    let of = |server: usize, role: &str, why: &str| {
        let name = stage.name(server).unwrap();
        vec![vec![name.clone(), name, role.to_owned(), why.to_owned()]]
    };
    let (of_replica, of_primary) = (of(1, "replica", ""), of(0, "primary", ""));
    let of_transaction = of(0, "primary", "held");
    assert_eq!(
        stage.spread(&mut session, "SELECT 'ROWS 1'", false, 1).await,
        [0, 1]
    );
    for _ in 0..2 {
        assert_eq!(session.rows(last).await, of_replica, "it does not count itself");
    }
    stage.spread(&mut session, "SELECT a FROM t", true, 1).await;
    assert_eq!(session.rows(last).await, of_replica);
    stage
        .spread(&mut session, "UPDATE t SET a = 'OK'", false, 1)
        .await;
    assert_eq!(session.rows(last).await, of_primary);
    for statement in ["BEGIN", "SELECT 'ROWS 1', 'TRX'"] {
        assert!(session.query(statement).await.is_ok());
    }
    assert_eq!(session.rows(last).await, of_transaction);
    assert_eq!(session.query("ROLLBACK").await, Ok(0));
    let of_gateway = [["", "", "gateway", ""]];
    for (statement, told) in [
        ("DO 42", Ok(0)),
        ("/* forebay: server=nobody */ SELECT 'ROWS 1'", Err(1429)),
    ] {
        assert_eq!(session.query(statement).await, told);
        assert_eq!(session.rows(last).await, of_gateway, "{statement}");
    }
    assert_eq!(session.query("FOREBAY SHOW FIRST").await, Err(1064));
}

/// A reason to read on the primary is that of one statement, also where that is only prepared, or has no
/// connection.
#[tokio::test]
async fn and_why_is_told_of_no_later_statement() {
    let stage = Stage::set(Setup {
        servers: 1,
        options: ", max_connections = 1",
        cluster: "queue_timeout = \"100ms\"",
        ..Setup::default()
    })
    .await;
    let (mut session, mut holder) = (stage.connect().await, stage.connect().await);
    let usual = ["primary", ""];
    session.prepare("SELECT a FROM t").await;
    assert_eq!(writes(&mut session).await[2..], usual);
    assert_eq!(holder.query("BEGIN").await, Ok(0));
    assert_eq!(session.query("SELECT 'ROWS 1' FROM t").await, Err(1040));
    assert_eq!(holder.query("COMMIT").await, Ok(0));
    assert_eq!(writes(&mut session).await[2..], usual);
}

/// The reason that is told of a write. Another session's connection may be back later than its answer.
async fn writes(session: &mut Session) -> Vec<String> {
    let began = Instant::now();
    while let Err(code) = session.query("INSERT INTO t VALUES ('OK')").await {
        assert!(code == 1040 && began.elapsed() < PATIENCE, "{code}");
    }
    session.rows("FOREBAY SHOW LAST").await.swap_remove(0)
}

/// Statements of text and prepared ones, of many sessions at the same time.
#[tokio::test]
async fn and_reads_spread_evenly_in_both_protocols() {
    const SESSIONS: usize = 16;
    const READS: usize = 50;
    let setup = Setup {
        servers: 3,
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    for is_prepared in [false, true] {
        let text = match is_prepared {
            true => "SELECT a FROM t",
            false => "SELECT 'ROWS 1'",
        };
        let before = stage.had(text, is_prepared);
        let all_are_there = Arc::new(Barrier::new(SESSIONS));
        let mut sessions = JoinSet::new();
        for _ in 0..SESSIONS {
            let mut session = stage.connect().await;
            let all_are_there = Arc::clone(&all_are_there);
            sessions.spawn(async move {
                let id = match is_prepared {
                    true => Some(session.prepare(text).await),
                    false => None,
                };
                all_are_there.wait().await;
                for _ in 0..READS {
                    match id {
                        Some(id) => assert_eq!(session.execute(id).await, Ok(0)),
                        None => assert_eq!(session.query(text).await, Ok(1)),
                    }
                }
            });
        }
        sessions.join_all().await;
        let now = stage.had(text, is_prepared).into_iter();
        let counts: Vec<usize> = now.zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(counts.iter().sum::<usize>(), SESSIONS * READS);
        assert_eq!(counts[0], 0, "the primary takes no reads");
        let enough = SESSIONS * READS / 4;
        assert!(
            counts[1] >= enough && counts[2] >= enough,
            "{is_prepared}: {counts:?}"
        );
    }
}

/// Without autocommit whatever is said may begin a transaction.
#[tokio::test]
async fn and_all_goes_to_the_primary_without_autocommit() {
    let setup = Setup {
        remembers: true,
        ..Setup::default()
    };
    let mut stage = Stage::set(setup).await;
    let mut session = stage.connect().await;
    let (primary, replica) = (stage.name(0), stage.name(1));
    let read = "SELECT 'ROWS 1'";
    let of_table = "SELECT 'ROWS 1' FROM t";
    for _ in 0..2 {
        assert_eq!(runs_on(&mut stage, &mut session, read).await, replica);
        for statement in [
            "SET autocommit = 0",
            of_table,
            of_table,
            "COMMIT",
            of_table,
            "ROLLBACK",
        ] {
            assert_eq!(
                runs_on(&mut stage, &mut session, statement).await,
                primary,
                "{statement}"
            );
        }
        assert_eq!(session.query("SET autocommit = 1").await, Ok(0));
        stage.next_end().await;
    }
}

/// A transaction that nobody has begun holds its connection, too, and is rolled back there.
#[tokio::test]
async fn and_what_is_written_without_autocommit_is_rolled_back() {
    let setup = Setup {
        remembers: true,
        ..Setup::default()
    };
    let stage = Stage::set(setup).await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    assert_eq!(session.query("SET autocommit = 0").await, Ok(0));
    let write = "INSERT INTO t VALUES ('OK', 'TRX')";
    assert_eq!(session.query(write).await, Ok(0));
    assert_eq!(session.pins().await, ["transaction"]);
    let held = stage.place(write);
    let of_other = "INSERT INTO t VALUES ('OK', 'other')";
    assert_eq!(other.query(of_other).await, Ok(0));
    assert_ne!(stage.place(of_other), held);
    assert_eq!(session.query("ROLLBACK").await, Ok(0));
    assert_eq!(stage.place("ROLLBACK"), held);
    assert_eq!(session.pins().await, [""; 0]);
    // Nothing that might have committed has come between.
    let requests = stage.requests(held);
    let at = requests
        .iter()
        .position(|request| request.ends_with(write.as_bytes()));
    assert!(requests[at.unwrap() + 1].ends_with(b"ROLLBACK"), "{requests:?}");
}
