use std::time::Duration;

use e2e::eventually;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;

use crate::cluster::{self, narrow};

/// Sessions that log in at the same time.
const AT_ONCE: usize = 50;
/// Descriptors of this process and of the gateway that are for something else.
const SPARE: usize = 200;

/// How many clients this machine allows, up to `wanted`: each is a descriptor here and one in the gateway,
/// which has the same limit.
fn clients(wanted: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let soft: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    // The gateway wants two descriptors for each session that it admits.
    wanted.min(soft.saturating_sub(SPARE) / 2)
}

#[tokio::test]
async fn and_each_finds_its_own_state() {
    const CONNECTIONS: u32 = 20;
    let count = clients(3000);
    let setup = narrow(cluster::single(), CONNECTIONS).top(&format!("max_connections = {}", count + 100));
    let gateway = setup
        .cluster("queue_timeout = \"50s\"\nqueue_max = 10000")
        .start();
    let mut sessions: Vec<Conn> = Vec::with_capacity(count);
    while sessions.len() < count {
        let mut logins = JoinSet::new();
        for number in sessions.len()..count.min(sessions.len() + AT_ONCE) {
            let options = cluster::options(&gateway);
            logins.spawn(async move {
                let mut session = Conn::new(options).await.unwrap();
                // A few kinds of state, so that connections are changed all the time.
                let zone = number % 10;
                session
                    .query_drop(format!("SET time_zone = '+0{zone}:00'"))
                    .await
                    .unwrap();
                session
            });
        }
        sessions.extend(logins.join_all().await);
    }
    assert_eq!(gateway.metric("forebay_sessions_active", &[]), count as f64);
    let mut asking = JoinSet::new();
    for mut session in sessions {
        asking.spawn(async move {
            let zone: Option<String> = session.query_first("SELECT @@time_zone").await.unwrap();
            let again: Option<String> = session.exec_first("SELECT @@time_zone", ()).await.unwrap();
            assert_eq!(zone, again);
            session
        });
    }
    let sessions = asking.join_all().await;
    let connected = cluster::single()
        .primary()
        .sql("SHOW GLOBAL STATUS LIKE 'Max_used_connections'")
        .unwrap();
    println!(
        "{} clients over {CONNECTIONS} connections; {}",
        sessions.len(),
        connected.trim()
    );
    let held = gateway.metric("forebay_pool_idle", &[]) + gateway.metric("forebay_pool_busy", &[]);
    assert!(held <= f64::from(CONNECTIONS), "{held} connections");
}

/// A connection that the server has closed while nobody used it is nobody's trouble.
#[tokio::test]
async fn and_do_not_notice_when_one_is_lost_that_nobody_uses() {
    let gateway = narrow(cluster::single(), 3).start();
    let mut session = cluster::connect(&gateway).await;
    session.query_drop("SET time_zone = '+03:00'").await.unwrap();
    let statement = session.prep("SELECT ? + 1").await.unwrap();
    for turn in 0..10 {
        let id: Option<u64> = session
            .query_first("SELECT id FROM information_schema.processlist WHERE info LIKE '%idle itself%'")
            .await
            .unwrap();
        let kill = format!("KILL {}", id.unwrap());
        cluster::single().primary().sql(&kill).unwrap();
        let gone = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {}",
            id.unwrap()
        );
        eventually("the connection is gone", async || {
            cluster::single().primary().sql(&gone).unwrap().trim() == "0"
        })
        .await;
        if turn % 2 == 0 {
            let zone: Option<String> = session.query_first("SELECT @@time_zone").await.unwrap();
            assert_eq!(zone.as_deref(), Some("+03:00"));
        } else {
            let sum: Option<u64> = session.exec_first(&statement, (turn,)).await.unwrap();
            assert_eq!(sum, Some(turn + 1));
        }
    }
}

/// Where a session does use it, it is told what has become of its statement or its transaction.
#[tokio::test]
async fn but_do_notice_what_they_have_lost() {
    let gateway = narrow(cluster::single(), 3).start();
    let mut session = cluster::connect(&gateway).await;
    session.query_drop("BEGIN").await.unwrap();
    let id: Option<u64> = session
        .query_first("SELECT id FROM information_schema.processlist WHERE info LIKE '%held itself%'")
        .await
        .unwrap();
    cluster::single()
        .primary()
        .sql(&format!("KILL {}", id.unwrap()))
        .unwrap();
    session.query_drop("SELECT 1").await.unwrap_err();

    let mut session = cluster::connect(&gateway).await;
    let mut other = cluster::connect(&gateway).await;
    let sleeping = tokio::spawn(async move {
        let slept = session.query_drop("SELECT SLEEP(1000) AS lost").await;
        (session, slept)
    });
    let find = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(1000) AS lost%'";
    let mut id = String::new();
    eventually("it sleeps", async || {
        id = cluster::single().primary().sql(find).unwrap();
        !id.is_empty()
    })
    .await;
    cluster::single()
        .primary()
        .sql(&format!("KILL {}", id.trim()))
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), sleeping)
        .await
        .unwrap()
        .unwrap();
    ended.1.unwrap_err();
    let mut session = ended.0;
    for session in [&mut session, &mut other] {
        session.query_drop("SELECT 1").await.unwrap();
    }
}
