use std::collections::HashMap;

use e2e::{Gateway, client};
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;

use crate::cluster::{self, WHERE_AM_I};

const SESSIONS: usize = 16;
const READS: usize = 50;

/// How often each server was read from.
async fn spread(gateway: &Gateway, prepared: bool) -> HashMap<u16, usize> {
    let mut sessions = JoinSet::new();
    for _ in 0..SESSIONS {
        let mut session = cluster::connect(gateway).await;
        sessions.spawn(async move {
            let mut ports = Vec::with_capacity(READS);
            for _ in 0..READS {
                let port: Option<u16> = if prepared {
                    session.exec_first(WHERE_AM_I, ()).await.unwrap()
                } else {
                    session.query_first(WHERE_AM_I).await.unwrap()
                };
                ports.push(port.unwrap());
            }
            ports
        });
    }
    let mut counts = HashMap::new();
    for port in sessions.join_all().await.concat() {
        *counts.entry(port).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn evenly_in_both_protocols() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    for prepared in [false, true] {
        let counts = spread(&gateway, prepared).await;
        assert_eq!(counts.values().sum::<usize>(), SESSIONS * READS);
        for port in cluster::replica_ports(sandbox) {
            let reads = counts.get(&port).copied().unwrap_or_default();
            assert!(
                reads >= SESSIONS * READS / 4,
                "prepared {prepared}: {port} has {counts:?}"
            );
        }
        assert_eq!(counts.len(), 2, "the primary takes no reads: {counts:?}");
    }
}

/// One session alone does not stick to one replica, either.
#[tokio::test]
async fn of_a_single_session_too() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let mut session = cluster::connect(&gateway).await;
    let mut counts = HashMap::<u16, usize>::new();
    for _ in 0..200 {
        *counts.entry(cluster::where_am_i(&mut session).await).or_default() += 1;
    }
    for port in cluster::replica_ports(sandbox) {
        assert!(counts.get(&port).is_some_and(|reads| *reads > 20), "{counts:?}");
    }
}

/// A replica that is written to says so with an error; what arrives everywhere was done on the primary.
#[tokio::test]
async fn and_writes_go_to_the_primary() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    cluster::schema(sandbox, "writes", "CREATE TABLE t (id INT PRIMARY KEY, v INT)");
    let mut session = cluster::connect_to(&gateway, "writes").await;
    for id in 0..50 {
        session
            .query_drop(format!("INSERT INTO t VALUES ({id}, 0)"))
            .await
            .unwrap();
        session
            .exec_drop("UPDATE t SET v = v + 1 WHERE id = ?", (id,))
            .await
            .unwrap();
        cluster::where_am_i(&mut session).await;
    }
    session.query_drop("DELETE FROM t WHERE id >= 40").await.unwrap();
    session
        .query_drop("REPLACE INTO t SELECT id, v + 1 FROM t WHERE id < 10")
        .await
        .unwrap();
    sandbox.sync().unwrap();
    for node in sandbox.nodes() {
        let sums = node.sql("SELECT COUNT(*), SUM(v) FROM writes.t").unwrap();
        assert_eq!(sums.trim(), "40\t50", "on {}", node.address());
    }
}

#[tokio::test]
async fn unless_a_hint_says_where_to_go() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let mut session = cluster::connect(&gateway).await;
    let replicas = cluster::replica_ports(sandbox);
    for _ in 0..10 {
        let asked: Option<u16> = session
            .query_first(format!("/* forebay: primary */ {WHERE_AM_I}"))
            .await
            .unwrap();
        assert_eq!(asked, Some(sandbox.primary().port()));
        let asked: Option<u16> = session
            .query_first("/* forebay: replica */ SELECT @@port")
            .await
            .unwrap();
        assert!(replicas.contains(&asked.unwrap()));
        let named = format!("/* forebay: server=127.0.0.1:{} */ {WHERE_AM_I}", replicas[1]);
        let asked: Option<u16> = session.query_first(named).await.unwrap();
        assert_eq!(asked, Some(replicas[1]));
    }
    let nowhere = session.query_drop("/* forebay: server=nowhere */ SELECT 1").await;
    assert_eq!(client::code(&nowhere.unwrap_err()), 1429);
}

#[tokio::test]
async fn and_not_where_they_need_the_primary() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let primary = sandbox.primary().port();
    let mut session = cluster::connect(&gateway).await;
    for _ in 0..5 {
        for reads in [
            "SELECT port FROM where_am_i FOR UPDATE",
            "SELECT port FROM where_am_i LOCK IN SHARE MODE",
            "SELECT port FROM where_am_i WHERE GET_LOCK('reads', 0) >= 0",
            "SELECT port FROM where_am_i WHERE LAST_INSERT_ID() >= 0",
            "SELECT @@port",
        ] {
            let text: Option<u16> = session.query_first(reads).await.unwrap();
            assert_eq!(text, Some(primary), "{reads}");
            let prepared: Option<u16> = session.exec_first(reads, ()).await.unwrap();
            assert_eq!(prepared, Some(primary), "prepared: {reads}");
        }
        session.query_drop("DO RELEASE_ALL_LOCKS()").await.unwrap();
    }
}
