//! A server that is to be taken out of service is left by all, and no client notices.

use e2e::{Gateway, Setup, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Node, Sandbox};

use crate::cluster::{self, where_am_i};

/// A gateway's setup in which these servers drain.
fn setup(sandbox: &Sandbox, drained: &[&Node]) -> Setup {
    let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
    cluster::split(sandbox).cluster(&format!("drain = {names:?}"))
}

/// Connections of the pools to this server, in use or not.
fn connections(gateway: &Gateway, server: &Node) -> f64 {
    let label = format!("server={:?}", server.address());
    let pools = ["forebay_pool_idle", "forebay_pool_busy"];
    pools.iter().map(|pool| gateway.metric(pool, &[&label])).sum()
}

/// The ports of the servers that the reads come to: `reads` of each session.
async fn servers_of(sessions: &mut [Conn], reads: usize) -> Vec<u16> {
    let mut ports = Vec::new();
    for _ in 0..reads {
        for session in sessions.iter_mut() {
            ports.push(where_am_i(session).await);
        }
    }
    ports
}

#[tokio::test]
async fn by_its_reads_and_its_connections() {
    let sandbox = cluster::shared();
    let (leaves, stays) = (sandbox.node(1), sandbox.node(2));
    let mut gateway = cluster::start(setup(sandbox, &[]), 2).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(cluster::connect(&gateway).await);
    }
    eventually("both replicas are read from", async || {
        let ports = servers_of(&mut sessions, 4).await;
        ports.contains(&leaves.port()) && ports.contains(&stays.port())
    })
    .await;
    // A session is in a transaction on the server that is to drain. The transaction goes on.
    let mut holder = cluster::connect(&gateway).await;
    loop {
        holder.query_drop("START TRANSACTION READ ONLY").await.unwrap();
        if where_am_i(&mut holder).await == leaves.port() {
            break;
        }
        holder.query_drop("COMMIT").await.unwrap();
    }

    assert!(gateway.reload(setup(sandbox, &[leaves])).await);
    let label = format!("server={:?}", leaves.address());
    assert_eq!(gateway.metric("forebay_server_draining", &[&label]), 1.0);
    let ports = servers_of(&mut sessions, 20).await;
    assert!(ports.iter().all(|port| *port == stays.port()), "{ports:?}");
    eventually("the transaction alone is left", async || {
        connections(&gateway, leaves) == 1.0
    })
    .await;
    assert!(gateway.log().contains("server drains"), "{}", gateway.log());
    assert_eq!(where_am_i(&mut holder).await, leaves.port());
    holder.query_drop("COMMIT").await.unwrap();
    assert_eq!(where_am_i(&mut holder).await, stays.port());
    eventually("it is empty", async || connections(&gateway, leaves) == 0.0).await;

    assert!(gateway.reload(setup(sandbox, &[])).await);
    eventually("it is read from again", async || {
        servers_of(&mut sessions, 4).await.contains(&leaves.port())
    })
    .await;
}

/// No other server takes writes.
#[tokio::test]
async fn but_by_its_writes_while_it_is_the_primary() {
    let sandbox = cluster::shared();
    cluster::schema(sandbox, "drained", "CREATE TABLE t (v INT)");
    let mut gateway = cluster::start(setup(sandbox, &[]), 2).await;
    let mut session = cluster::connect_to(&gateway, "drained").await;
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    assert!(gateway.reload(setup(sandbox, &[sandbox.primary()])).await);
    for _ in 0..20 {
        session.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    }
    let mut later = cluster::connect_to(&gateway, "drained").await;
    later.query_drop("INSERT INTO t VALUES (3)").await.unwrap();
    let log = gateway.log();
    assert!(log.contains("server drains and takes the writes"), "{log}");
}

#[tokio::test]
async fn by_new_sessions_in_mode_session() {
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    let of_session = |drained: &[&Node]| {
        let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
        Setup::of_addresses(sandbox.addresses()).cluster(&format!("drain = {names:?}"))
    };
    let mut gateway = of_session(&[]).start();
    let mut others = Vec::new();
    let mut there = client::connect(&gateway).await;
    while client::server_port(&mut there).await != leaves.port() {
        others.push(std::mem::replace(&mut there, client::connect(&gateway).await));
    }
    assert!(gateway.reload(of_session(&[leaves])).await);
    for _ in 0..6 {
        let mut new = client::connect(&gateway).await;
        assert_ne!(client::server_port(&mut new).await, leaves.port());
    }
    assert_eq!(
        client::server_port(&mut there).await,
        leaves.port(),
        "who is there stays"
    );
}
