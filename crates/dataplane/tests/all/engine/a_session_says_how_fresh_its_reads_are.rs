//! `FOREBAY SET read_consistency`: a session's own word goes before that of its account and its listener.
//! The servers have no positions, so that only the primary is known to have what a session has written, and
//! what all have written is on none.

use super::stage::{Session, Setup, Stage};

const READ: &str = "SELECT 'ROWS 1'";

/// A strong read, for which no server will do here, waits no longer than this.
async fn stage() -> Stage {
    Stage::set(Setup {
        cluster: "failover_wait = \"100ms\"",
        ..Setup::default()
    })
    .await
}

async fn says(session: &mut Session, value: &str) {
    let set = format!("FOREBAY SET read_consistency = {value}");
    assert_eq!(session.query(&set).await, Ok(0));
}

#[tokio::test]
async fn until_it_is_reset() {
    let stage = stage().await;
    let (mut session, mut other) = (stage.connect().await, stage.connect().await);
    let write = "INSERT INTO t VALUES ('OK')";
    assert_eq!(stage.spread(&mut session, write, false, 1).await, [1, 0]);
    for (said, own, of_another) in [
        ("session", Some(0), Some(1)),
        ("'strong'", None, None),
        ("eventual", Some(1), Some(1)),
        ("strong", None, None),
        ("DEFAULT", Some(1), Some(1)),
    ] {
        for (session, server) in [(&mut session, own), (&mut other, of_another)] {
            says(session, said).await;
            let Some(server) = server else {
                assert_eq!(session.query(READ).await, Err(1290), "{said}");
                continue;
            };
            for is_prepared in [false, true] {
                let counts = stage.spread(session, READ, is_prepared, 3).await;
                assert_eq!(counts[server], 3, "{said}, prepared: {is_prepared}");
                // An execution is said to warn, which would be asked for on its connection.
                assert_eq!(session.query("SELECT 'ROWS 1' FROM clears_warnings").await, Ok(1));
            }
        }
    }
    says(&mut session, "strong").await;
    assert_eq!(session.query(READ).await, Err(1290));
    session.reset().await;
    assert_eq!(stage.spread(&mut session, READ, false, 1).await, [0, 1]);
}

#[tokio::test]
async fn which_is_explained_and_has_to_be_a_word() {
    let stage = stage().await;
    let mut session = stage.connect().await;
    for (said, shown) in [
        ("session", "session"),
        ("'strong'", "strong"),
        ("DEFAULT", "eventual"),
    ] {
        says(&mut session, said).await;
        let explained = session.explain(READ, "read_consistency").await;
        assert_eq!(explained.as_deref(), Some(shown), "{said}");
    }
    let wrong = "FOREBAY SET read_consistency = fresh";
    assert_eq!(session.query(wrong).await, Err(1064));
    assert_eq!(session.query(READ).await, Ok(1));
}

/// The account's word is between that of its session and that of the listener.
#[tokio::test]
async fn before_that_of_its_account() {
    let accounts = r#"
        [[user]]
        name = "fresh"
        password = "secret"
        read_consistency = "session"
    "#;
    let stage = Stage::with_rules(accounts).await;
    let (mut session, mut other) = (stage.connect_as("fresh").await, stage.connect().await);
    for session in [&mut session, &mut other] {
        let write = "INSERT INTO t VALUES ('OK')";
        assert_eq!(stage.spread(session, write, false, 1).await, [1, 0]);
    }
    assert_eq!(stage.spread(&mut session, READ, false, 3).await, [3, 0]);
    says(&mut session, "eventual").await;
    assert_eq!(stage.spread(&mut session, READ, false, 3).await, [0, 3]);
    says(&mut session, "DEFAULT").await;
    assert_eq!(stage.spread(&mut session, READ, false, 3).await, [3, 0]);
    assert_eq!(stage.spread(&mut other, READ, false, 3).await, [0, 3]);
}
