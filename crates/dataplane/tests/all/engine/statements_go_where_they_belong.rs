//! Which server a statement goes to: as an observer is told, as `FOREBAY EXPLAIN` says before it and
//! `FOREBAY SHOW LAST` after it.

use sql_class::Class;

use super::stage::{Session, Setup, Stage};

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
        ("SELECT 'ROWS 1', LAST_INSERT_ID()", 0),
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
