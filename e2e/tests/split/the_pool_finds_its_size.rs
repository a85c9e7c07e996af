//! Without `max_connections` many clients share as few connections as are of use; what holds a connection
//! never waits for that.

use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;

use crate::cluster;

const SESSIONS: usize = 100;
const QUERIES: usize = 100;

/// Far below `queue_timeout`, and far above what it takes where all connections are held.
const SOON: Duration = Duration::from_secs(4);

#[tokio::test]
async fn by_what_its_statements_need() {
    let sandbox = cluster::single();
    let setup = cluster::narrow(sandbox, 0).top("max_connections = 1000");
    let gateway = cluster::start(setup, 0).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(cluster::connect(&gateway).await);
    }
    let mut running = JoinSet::new();
    for mut session in sessions {
        running.spawn(async move {
            for number in 0..QUERIES {
                let answer: Option<usize> = session.exec_first("SELECT ? + 1", (number,)).await.unwrap();
                assert_eq!(answer, Some(number + 1));
            }
            session
        });
    }
    let mut sessions = running.join_all().await;
    let opened = gateway.metric("forebay_pool_opened_total", &[]) as usize;
    assert!(opened <= SESSIONS / 2, "{opened}");

    // Transactions that stay open: one after the other has a connection of its own.
    let took = begin_all(&mut sessions).await;
    assert_eq!(gateway.metric("forebay_pool_busy", &[]) as usize, SESSIONS);
    drop((sessions, gateway));

    // A pool without a size of its own opens a connection for each at once: the search takes little longer.
    let setup = cluster::narrow(sandbox, 0).cluster("pool.adaptive = false");
    let gateway = cluster::start(setup, 0).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(cluster::connect(&gateway).await);
    }
    let least = begin_all(&mut sessions).await;
    assert!(took < 3 * least + Duration::from_secs(2), "{took:?}, {least:?}");
}

/// How long it takes until all sessions are in a transaction.
async fn begin_all(sessions: &mut [Conn]) -> Duration {
    let begun = Instant::now();
    for session in sessions {
        session.query_drop("BEGIN").await.unwrap();
    }
    begun.elapsed()
}

/// All at once, and of several workers.
#[tokio::test]
async fn and_grows_at_once_where_all_are_held() {
    let sandbox = cluster::single();
    let gateway = cluster::start(cluster::narrow_over(sandbox, 0, 2), 0).await;
    let mut sessions = Vec::new();
    for _ in 0..60 {
        sessions.push(cluster::connect(&gateway).await);
    }
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for mut session in sessions {
        running.spawn(async move { session.query_drop("DO SLEEP(5)").await.unwrap() });
    }
    running.join_all().await;
    assert!(
        begun.elapsed() < SOON + Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}
