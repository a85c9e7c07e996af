//! User variables hold their session's connection only as long as nobody else wants it. The session leaves it
//! with them, and has them on the next one: its own, and nobody else's.

use std::sync::Arc;

use mysql_wire::Command;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::stage::{Session, Setup, Stage};

const LEFT: &str = "forebay_split_user_variables_left_total";
const STAY: &str = "forebay_split_user_variables_stay_total";

/// Another session gets the only connection for a moment.
async fn is_taken(other: &mut Session) -> bool {
    match other.query("SELECT 'ROWS 1'").await {
        Ok(_) => true,
        Err(code) => {
            assert_eq!(code, 1040);
            false
        }
    }
}

#[tokio::test]
async fn but_many_sessions_share_few() {
    const SESSIONS: usize = 40;
    const TURNS: usize = 12;
    let setup = Setup {
        options: ", max_connections = 4",
        // Of a pool that looks for its size some are closed, and opened again.
        cluster: "queue_timeout = \"1m\"\npool = { adaptive = false }",
        ..Setup::one_connection()
    };
    let stage = Stage::set(setup).await;
    let mut all = JoinSet::new();
    let all_have_set = Arc::new(Barrier::new(SESSIONS));
    for own in 0..SESSIONS {
        let mut session = stage.connect().await;
        let all_have_set = Arc::clone(&all_have_set);
        all.spawn(async move {
            let set = format!("SET @number = 0, @text = 'text {own}', @own_{own} = 'mine', @nothing = NULL");
            assert_eq!(session.query(&set).await, Ok(0));
            // All but a few have left their connection then.
            all_have_set.wait().await;
            let before = (own + SESSIONS - 1) % SESSIONS;
            for turn in 0..TURNS {
                let read = format!("SELECT @number, @text, @own_{own}, @own_{before}, @nothing");
                let values = session.rows(&read).await;
                let expected = [&turn.to_string(), &format!("text {own}"), "mine", "NULL", "NULL"];
                assert_eq!(values, [expected.map(str::to_owned)], "session {own}");
                let next = format!("SET @number = {}", turn + 1);
                match turn % 2 {
                    0 => assert_eq!(session.query(&next).await, Ok(0)),
                    _ => {
                        let id = session.prepare(&next).await;
                        assert_eq!(session.execute(id).await, Ok(0));
                        session.send(Command::STMT_CLOSE, &id.to_le_bytes()).await;
                    }
                }
            }
        });
    }
    all.join_all().await;
    let left = stage.metric(LEFT, &[]);
    assert!(left >= (SESSIONS - 4) as f64, "{left}");
    assert!(stage.logins(0) <= 4, "{}", stage.logins(0));
}

#[tokio::test]
async fn but_are_what_they_were() {
    let stage = Stage::set(Setup::one_connection()).await;
    let (mut own, mut other) = (stage.connect().await, stage.connect().await);
    let mut left = 0.0;
    for (set, expected) in [
        ("SET @x = 1", ["1", "NULL"]),
        ("SET @x = ''", ["", "NULL"]),
        ("SET @y = 'it is'", ["", "it is"]),
        ("SET @x = NULL", ["NULL", "it is"]),
        ("SET @`x` = 7, @y = @x", ["7", "7"]),
    ] {
        assert_eq!(own.query(set).await, Ok(0));
        for _ in 0..2 {
            assert_eq!(own.pins().await, ["user-variables"], "{set}");
            assert!(is_taken(&mut other).await, "{set}");
            left += 1.0;
            assert_eq!(stage.metric(LEFT, &[]), left, "{set}");
            assert_eq!(
                own.rows("SELECT @x, @y").await,
                [expected.map(str::to_owned)],
                "{set}"
            );
        }
    }
    assert_eq!(
        other.rows("SELECT @x, @y").await,
        [["NULL", "NULL"].map(str::to_owned)]
    );
}

#[tokio::test]
async fn and_end_with_a_reset() {
    let stage = Stage::set(Setup::one_connection()).await;
    let (mut own, mut other) = (stage.connect().await, stage.connect().await);
    for (is_brought_back, changes_user) in [(false, false), (true, false), (false, true), (true, true)] {
        assert_eq!(own.query("SET @x = 1").await, Ok(0));
        assert!(is_taken(&mut other).await);
        if is_brought_back {
            assert_eq!(own.value("SELECT @x").await, "1");
        }
        match changes_user {
            false => own.reset().await,
            true => own.0.change_user(b"app", b"secret").await.unwrap(),
        }
        for _ in 0..2 {
            assert_eq!(own.value("SELECT @x").await, "NULL");
            assert!(is_taken(&mut other).await);
        }
    }
}

/// Nobody carries what is too long, or has a name that does not mean the same everywhere.
#[tokio::test]
async fn unless_they_cannot_be_carried() {
    let long = format!("SET @x = '{}'", "x".repeat(17_000));
    for (set, why) in [(long.as_str(), "long"), ("SET @x = 1, @`no word` = 2", "names")] {
        let nobody_waits_for_long = Setup {
            cluster: "queue_timeout = \"500ms\"",
            ..Setup::one_connection()
        };
        let stage = Stage::set(nobody_waits_for_long).await;
        let (mut own, mut other) = (stage.connect().await, stage.connect().await);
        assert_eq!(own.query(set).await, Ok(0));
        assert!(!is_taken(&mut other).await, "{why}");
        assert!(stage.metric(STAY, &[&format!("why=\"{why}\"")]) >= 1.0, "{why}");
        assert_ne!(own.value("SELECT @x").await, "NULL", "{why}");
        own.reset().await;
        let mut times = 0;
        while !is_taken(&mut other).await {
            times += 1;
            assert!(times < 20, "{why}");
        }
    }
}
