//! Prepared statements over server connections that are compressed: packets of such a connection are numbered
//! command by command.

use e2e::Gateway;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;

use crate::cluster::{self, narrow};

#[tokio::test]
async fn with_prepared_statements() {
    for compression in ["zlib", "zstd"] {
        let gateway = narrow(cluster::single(), 2)
            .cluster("queue_timeout = \"50s\"")
            .cluster(&format!("compression = {compression:?}"))
            .start();
        let mut sessions = JoinSet::new();
        for number in 0..6_u32 {
            sessions.spawn(prepares_and_closes(session(&gateway, number).await, number));
        }
        sessions.join_all().await;
    }
}

/// A session whose state is not the others'.
async fn session(gateway: &Gateway, number: u32) -> Conn {
    let mut session = cluster::connect(gateway).await;
    let zone = format!("SET time_zone = '+0{number}:00'");
    session.query_drop(zone).await.unwrap();
    session
}

async fn prepares_and_closes(mut session: Conn, number: u32) {
    let kept = session.prep("SELECT @@time_zone, ?").await.unwrap();
    let expected = format!("+0{number}:00");
    for turn in 0..20_u32 {
        let (zone, echo): (String, u32) = session.exec_first(&kept, (turn,)).await.unwrap().unwrap();
        assert_eq!((zone.as_str(), echo), (expected.as_str(), turn));
        let other = session.prep(format!("SELECT ?, {turn}")).await.unwrap();
        let (echo, seen): (u32, u32) = session.exec_first(&other, (number,)).await.unwrap().unwrap();
        assert_eq!((echo, seen), (number, turn));
        session.close(other).await.unwrap();
    }
}
