//! Sessions that only write, in every way, over connections that others write on, too; clients that vanish in
//! between.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use tokio::task::JoinSet;

use crate::cluster;

const SESSIONS: usize = 16;
const TURNS: u64 = 80;

async fn write(session: &mut Conn, id: usize, v: u64) -> mysql_async::Result<()> {
    let update = "UPDATE cells SET v = ? WHERE id = ?";
    let text = format!("UPDATE cells SET v = {v} WHERE id = {id}");
    session.query_drop(&text).await?;
    session.exec_drop(update, (v, id)).await?;
    let mut transaction = session.start_transaction(TxOpts::new()).await?;
    transaction.exec_drop(update, (v, id)).await?;
    transaction.query_drop(&text).await?;
    transaction.commit().await?;
    session.query_drop(format!("{text}; SELECT {v}")).await?;
    let mut results = session
        .query_iter(format!("{text}; SELECT {v}; {text}; SELECT {id}"))
        .await?;
    for expected in [vec![], vec![v], vec![], vec![id as u64]] {
        let rows: Vec<u64> = results.collect().await?;
        assert_eq!(rows, expected);
    }
    Ok(())
}

#[tokio::test]
async fn whatever_is_written() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    cluster::schema(
        sandbox,
        "steps",
        "CREATE TABLE cells (id INT PRIMARY KEY, v BIGINT)",
    );
    let mut sessions = JoinSet::new();
    for id in 0..SESSIONS {
        let mut session = cluster::connect_to(&gateway, "steps").await;
        sessions.spawn(async move {
            session
                .query_drop(format!("INSERT INTO cells VALUES ({id}, 0)"))
                .await
                .unwrap();
            for v in 0..TURNS {
                let written = write(&mut session, id, v).await;
                written.unwrap_or_else(|error| panic!("session {id}, turn {v}: {error}"));
            }
        });
    }
    sessions.join_all().await;
    let sum = sandbox.primary().sql("SELECT SUM(v) FROM steps.cells").unwrap();
    assert_eq!(sum.trim(), (SESSIONS as u64 * (TURNS - 1)).to_string());
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

#[tokio::test]
async fn also_when_clients_vanish() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    cluster::schema(
        sandbox,
        "vanishing",
        "CREATE TABLE cells (id INT PRIMARY KEY, v BIGINT); INSERT INTO cells VALUES (1, 0), (2, 0)",
    );
    for turn in 0..60 {
        let mut session = cluster::connect_to(&gateway, "vanishing").await;
        let writing = tokio::spawn(async move {
            for v in 0.. {
                write(&mut session, 1, v).await.unwrap();
            }
        });
        // Anywhere in the middle.
        tokio::time::sleep(Duration::from_micros(2000 + 217 * turn)).await;
        assert!(!writing.is_finished());
        writing.abort();
    }
    let mut session = cluster::connect_to(&gateway, "vanishing").await;
    for v in 0..20 {
        write(&mut session, 2, v).await.unwrap();
    }
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}
