//! `SET TRANSACTION` is of the transaction that comes next, and of no other: nobody else gets its connection
//! before that, and the session gives it back behind it.

use super::stage::{Session, Setup, Stage, USUAL};

const SAID: [&str; 3] = [
    "SET TRANSACTION READ ONLY",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
];

/// One server with two connections.
async fn start() -> Stage {
    Stage::set(Setup {
        servers: 1,
        options: ", max_connections = 2",
        remembers: true,
        ..USUAL
    })
    .await
}

/// A statement of another session goes to another connection.
async fn works(stage: &Stage, other: &mut Session, own: &str, at: &str) {
    let write = format!("INSERT INTO t VALUES ('OK', 'other {at}')");
    assert_eq!(other.query(&write).await, Ok(0));
    assert_ne!(stage.place(&write), stage.place(own), "{at}");
}

#[tokio::test]
async fn for_that_one() {
    for said in SAID {
        let stage = start().await;
        let (mut own, mut other) = (stage.connect().await, stage.connect().await);
        assert_eq!(own.query(said).await, Ok(0));
        assert_eq!(own.pins().await, ["next-transaction"], "{said}");
        works(&stage, &mut other, said, "before it").await;
        assert_eq!(own.query("BEGIN").await, Ok(0));
        assert_eq!(stage.place("BEGIN"), stage.place(said));
        assert!(own.pins().await.contains(&"transaction".to_owned()), "{said}");
        works(&stage, &mut other, said, "within it").await;
        assert_eq!(own.query("COMMIT").await, Ok(0));
        assert_eq!(own.pins().await, [""; 0], "{said}");
    }
}

/// What was said twice is said of one transaction.
#[tokio::test]
async fn with_all_that_was_said() {
    let stage = start().await;
    let mut own = stage.connect().await;
    for said in SAID {
        assert_eq!(own.query(said).await, Ok(0));
    }
    let places = SAID.map(|said| stage.place(said));
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    assert_eq!(own.pins().await, ["next-transaction"]);
    for (statement, pins) in [("BEGIN", true), ("COMMIT", false)] {
        assert_eq!(own.query(statement).await, Ok(0));
        assert_eq!(!own.pins().await.is_empty(), pins, "{statement}");
    }
}

/// Whoever says it and goes leaves nothing of it to others.
#[tokio::test]
async fn and_for_nobody_else() {
    let stage = Stage::set(Setup::one_connection()).await;
    for at in 0..2 {
        let mut own = stage.connect().await;
        let said = format!("SET TRANSACTION READ ONLY /* {at} */");
        assert_eq!(own.query(&said).await, Ok(0));
        let held = stage.place(&said);
        match at {
            0 => drop(own),
            _ => own.reset().await,
        }
        let mut other = stage.connect().await;
        let write = format!("INSERT INTO t VALUES ('OK', 'other {at}')");
        assert_eq!(other.query(&write).await, Ok(0));
        if stage.place(&write) == held {
            let requests = stage.requests(held);
            let of = |text: &str| {
                let is_it = |request: &Vec<u8>| request[1..] == *text.as_bytes();
                requests.iter().position(is_it).unwrap()
            };
            let between = &requests[of(&said) + 1..of(&write)];
            let is_reset = |request: &Vec<u8>| [0x1f, 0x11].contains(&request[0]);
            assert!(between.iter().any(is_reset), "{between:?}");
        }
    }
}

/// Of the session's, and not of the next: no reason to keep a connection.
#[tokio::test]
async fn while_that_of_the_session_goes_with_it() {
    let stage = Stage::set(Setup::one_connection()).await;
    let (mut own, mut other) = (stage.connect().await, stage.connect().await);
    let said = "SET SESSION transaction_isolation = 'READ-COMMITTED'";
    assert_eq!(own.query(said).await, Ok(0));
    assert_eq!(own.pins().await, [""; 0]);
    let ask = "SELECT @@transaction_isolation";
    for _ in 0..3 {
        assert_eq!(other.value(ask).await, "REPEATABLE-READ");
        assert_eq!(own.value(ask).await, "READ-COMMITTED");
    }
}

/// A read that stands for itself would use up what was said: it goes to the primary as well.
#[tokio::test]
async fn and_the_primary_hears_it() {
    let stage = Stage::set(Setup {
        servers: 3,
        remembers: true,
        ..USUAL
    })
    .await;
    let mut own = stage.connect().await;
    let read = "SELECT 'ROWS 1' FROM t";
    assert!(stage.spread(&mut own, read, false, 1).await[0] == 0);
    assert_eq!(own.query(SAID[1]).await, Ok(0));
    assert_eq!(stage.place(SAID[1]).server, 0);
    assert_eq!(
        own.explain(read, "pinned").await.as_deref(),
        Some("next-transaction")
    );
    let server = own.explain(read, "server").await;
    assert_eq!(server, stage.name(0));
    assert_eq!(stage.spread(&mut own, read, false, 1).await, [1, 0, 0]);
}
