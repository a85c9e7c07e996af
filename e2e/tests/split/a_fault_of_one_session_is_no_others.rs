//! A panic ends the session in which it happens, and leaves nothing behind for others: no place taken, no
//! connection half used, no count that stays.

use e2e::eventually;
use mysql_async::prelude::Queryable;

use crate::cluster::{self, ask, narrow};

#[tokio::test]
async fn wherever_it_was() {
    let gateway = narrow(cluster::single(), 1)
        .cluster("queue_timeout = \"50s\"")
        .start();
    let mut other = cluster::connect(&gateway).await;
    other.query_drop("SET time_zone = '+03:00'").await.unwrap();
    for begin in ["DO 1", "BEGIN", "SELECT GET_LOCK('panic', 50)", "SET @held = 1"] {
        let mut session = cluster::connect(&gateway).await;
        session.query_drop(begin).await.unwrap();
        session.query_drop("FOREBAY PANIC").await.unwrap_err();
        // The only connection there may be, with the state of whoever asks.
        assert_eq!(
            ask(&mut other, "SELECT @@time_zone").await,
            Ok(Some("+03:00".to_owned())),
            "{begin}"
        );
    }
    let shows = |metric, labels: &[&str]| gateway.metric(metric, labels);
    // A session is active no more a moment before it is counted as ended.
    eventually("nothing of them is left", async || {
        let ended = shows("forebay_sessions_ended_total", &["reason=\"panic\""]);
        shows("forebay_sessions_active", &[]) == 1.0 && ended == 4.0
    })
    .await;
    // The connection comes back a moment after the answer, between the two looks maybe.
    eventually("one connection is left", async || {
        shows("forebay_pool_idle", &[]) + shows("forebay_pool_busy", &[]) == 1.0
    })
    .await;
}
