//! One server connection, two sessions that never stop: each gets its turn, whatever the other does and
//! whichever worker it is on.

use std::time::{Duration, Instant};

use e2e::Gateway;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};

use crate::cluster;

const SESSIONS: u64 = 2;
/// Of each session.
const TURNS: u64 = 400;

/// One of the ways in which sessions use a connection, most of which leave something on it.
async fn turn(session: &mut Conn, own: u64, number: u64) -> mysql_async::Result<()> {
    match number % 10 {
        0 => session.query_drop("SELECT 1").await,
        1 => {
            let update = format!("UPDATE cells SET v = v + 1 WHERE id = {own}");
            session.query_drop(update).await
        }
        2 => {
            session
                .exec_drop("SELECT v FROM cells WHERE id = ?", (own,))
                .await
        }
        3 => {
            let mut transaction = session.start_transaction(TxOpts::new()).await?;
            let update = "UPDATE cells SET v = v + ? WHERE id = ?";
            transaction.exec_drop(update, (number, own)).await?;
            transaction.query_drop("SELECT COUNT(*) FROM cells").await?;
            transaction.commit().await
        }
        4 => {
            let zone = format!("+0{}:00", number % 10);
            session.query_drop(format!("SET time_zone = '{zone}'")).await?;
            let seen: Option<String> = session.query_first("SELECT @@time_zone").await?;
            assert_eq!(seen, Some(zone));
            Ok(())
        }
        // Its warning is asked for, then it is not.
        5 => {
            session.query_drop("SELECT 1/0, CAST('x' AS SIGNED)").await?;
            session.query_drop("SHOW WARNINGS").await
        }
        6 => session.query_drop("SELECT CAST('x' AS SIGNED)").await,
        7 => {
            session
                .query_drop("SELECT nothing FROM nowhere")
                .await
                .unwrap_err();
            Ok(())
        }
        8 => session.query_drop("SELECT 1; SELECT 2; DO 3").await,
        _ => {
            session
                .query_drop(format!("INSERT INTO log (v) VALUES ({number})"))
                .await?;
            session.query_drop("SELECT LAST_INSERT_ID()").await
        }
    }
}

async fn take_turns(gateway: &Gateway, schema: &str) {
    let longest = (0..SESSIONS).map(async |own| {
        let mut session = cluster::connect_to(gateway, schema).await;
        let mut longest = (Duration::ZERO, 0);
        for number in 0..TURNS {
            let begin = Instant::now();
            let done = turn(&mut session, own, number + own * 5).await;
            longest = longest.max((begin.elapsed(), number % 10));
            if let Err(error) = done {
                let pins: Vec<mysql_async::Row> = cluster::connect_to(gateway, schema)
                    .await
                    .query("FOREBAY SHOW PINS")
                    .await
                    .unwrap();
                panic!("session {own}, turn {number}: {error}; pins: {pins:?}");
            }
        }
        longest
    });
    let mut running = Vec::new();
    for session in longest {
        running.push(session);
    }
    let mut running = running.into_iter();
    let (first, second) = tokio::join!(running.next().unwrap(), running.next().unwrap());
    println!("{schema}: the longest turns took {first:?} and {second:?}");
}

async fn with_workers(workers: u32) {
    let server = cluster::single();
    let schema = format!("turns_{workers}");
    cluster::schema(
        server,
        &schema,
        "CREATE TABLE cells (id INT PRIMARY KEY, v BIGINT); INSERT INTO cells VALUES (0, 0), (1, 0);
         CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, v BIGINT);",
    );
    let gateway = cluster::narrow_over(server, 1, workers).start();
    take_turns(&gateway, &schema).await;
    assert!(gateway.metric("forebay_pool_waits_total", &[]) > 0.0, "they met");
    assert_eq!(gateway.metric("forebay_pool_wait_timeouts_total", &[]), 0.0);
}

#[tokio::test]
async fn of_one_worker() {
    with_workers(1).await;
}

#[tokio::test]
async fn of_two_workers() {
    with_workers(2).await;
}
