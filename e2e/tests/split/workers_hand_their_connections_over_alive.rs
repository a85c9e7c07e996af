use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;

use crate::cluster::{self, narrow_over};

/// Fewer connections than workers: they go round, whatever carries them, with what is set on them and
/// prepared there.
#[tokio::test]
async fn with_what_is_on_them() {
    const CONNECTIONS: u32 = 2;
    const WORKERS: u32 = 4;
    for carrier in [
        "tls = { mode = \"off\" }",
        "tls = { mode = \"required\", verify = \"off\" }",
    ] {
        let setup = narrow_over(cluster::single(), CONNECTIONS, WORKERS);
        let gateway = setup.cluster("queue_timeout = \"50s\"").cluster(carrier).start();
        let mut sessions = JoinSet::new();
        for number in 0..3 * WORKERS {
            sessions.spawn(takes_turns(cluster::connect(&gateway).await, number % 5));
        }
        sessions.join_all().await;
        let counted = |name: &str| gateway.metric(name, &[]);
        assert!(counted("forebay_pool_moved_total") > 0.0, "{carrier}");
        assert_eq!(
            counted("forebay_pool_opened_total"),
            f64::from(CONNECTIONS),
            "{carrier}"
        );
    }
}

/// A session with a state of its own.
async fn takes_turns(mut session: Conn, zone: u32) {
    let zone = format!("+0{zone}:00");
    session
        .query_drop(format!("SET time_zone = '{zone}'"))
        .await
        .unwrap();
    let prepared = session.prep("SELECT @@time_zone, ?").await.unwrap();
    for turn in 0..40_u32 {
        let (seen, echo): (String, u32) = session.exec_first(&prepared, (turn,)).await.unwrap().unwrap();
        assert_eq!((seen.as_str(), echo), (zone.as_str(), turn));
        let seen: Option<String> = session.query_first("SELECT @@time_zone").await.unwrap();
        assert_eq!(seen.as_deref(), Some(zone.as_str()));
    }
}
