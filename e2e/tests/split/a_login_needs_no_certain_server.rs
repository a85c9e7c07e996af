//! Who reads needs no primary: a login is made on the first server that can be had.

use std::time::Duration;

use e2e::{Gateway, Setup, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{PASSWORD, Sandbox, USER};
use tokio::time::timeout;

use crate::accounts::{account, log_in};
use crate::cluster::{self, user, where_am_i};

/// Nobody has to wait for longer.
const SOON: Duration = Duration::from_secs(30);

/// With roles that the configuration says, so that nobody finds out that the primary is away. The first check
/// of a server decides for the whole test, and may take its time.
fn with_roles(sandbox: &Sandbox, max_connections: [u32; 3]) -> Setup {
    let servers = sandbox.nodes().iter().zip(max_connections).map(|(node, max)| {
        let role = if node.index() == 0 { "primary" } else { "replica" };
        format!(
            "{{ address = {:?}, role = {role:?}, max_connections = {max} }}",
            node.address()
        )
    });
    Setup::of_addresses(sandbox.addresses())
        .servers(servers)
        .mode("split")
        .top("workers = 1")
        .tables(&user(USER, PASSWORD))
        .cluster("login_timeout = \"5s\"\nqueue_timeout = \"60s\"")
        .check("interval = \"10m\"\ntimeout = \"30s\"")
}

async fn reads_on_a_replica(gateway: &Gateway, sandbox: &Sandbox) {
    let mut session = timeout(SOON, cluster::connect(gateway)).await.unwrap();
    let port = where_am_i(&mut session).await;
    assert!(cluster::replica_ports(sandbox).contains(&port), "{port}");
}

#[tokio::test]
async fn where_the_primary_is_full() {
    let sandbox = cluster::shared();
    let gateway = with_roles(sandbox, [2, 20, 20]).start();
    let mut holders = Vec::new();
    for _ in 0..2 {
        let mut holder = cluster::connect(&gateway).await;
        holder.query_drop("BEGIN").await.unwrap();
        holders.push(holder);
    }
    reads_on_a_replica(&gateway, sandbox).await;
}

#[tokio::test]
async fn where_the_primary_is_frozen_or_gone() {
    let sandbox = cluster::replicated();
    let gateway = with_roles(&sandbox, [0; 3]).start();
    sandbox.primary().freeze().unwrap();
    reads_on_a_replica(&gateway, &sandbox).await;

    // One after the other says nothing.
    drop(gateway);
    sandbox.primary().thaw().unwrap();
    let gateway = with_roles(&sandbox, [0; 3]).start();
    for node in sandbox.nodes() {
        node.freeze().unwrap();
    }
    let refused = timeout(SOON, Conn::new(cluster::options(&gateway)))
        .await
        .unwrap();
    let refused = refused.unwrap_err();
    assert_eq!(client::code(&refused), 1429, "{refused}");
    for node in sandbox.nodes() {
        let address = node.address();
        assert!(!refused.to_string().contains(&address), "{refused}");
        eventually("the log says why", async || gateway.log().contains(&address)).await;
        node.thaw().unwrap();
    }

    drop(gateway);
    let gateway = with_roles(&sandbox, [0; 3]).start();
    sandbox.primary().kill9().unwrap();
    for _ in 0..3 {
        reads_on_a_replica(&gateway, &sandbox).await;
    }
}

#[tokio::test]
async fn and_waits_where_all_are_full() {
    let sandbox = cluster::shared();
    let gateway = with_roles(sandbox, [1; 3])
        .cluster("failover_wait = \"1s\"")
        .start();
    let mut holders = Vec::new();
    for _ in sandbox.nodes() {
        holders.push(cluster::connect(&gateway).await);
    }
    for (holder, node) in holders.iter_mut().zip(sandbox.nodes()) {
        let hold = format!(
            "/* forebay: server={} */ SELECT GET_LOCK('held', 0)",
            node.address()
        );
        holder.query_drop(hold).await.unwrap();
    }
    let options = cluster::options(&gateway);
    let waiting = tokio::spawn(async move { Conn::new(options).await.map(drop) });
    eventually("it waits", async || {
        gateway.metric("forebay_pool_waiting", &[]) == 1.0
    })
    .await;
    drop(holders);
    timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
}

/// What somebody has mistyped is no server that is lost.
#[tokio::test]
async fn and_a_mistake_is_counted_as_one() {
    let sandbox = cluster::single();
    account(sandbox, "mistyped");
    let gateway = cluster::narrow(sandbox, 4)
        .tables(&user("mistyped", "hunter3"))
        .start();
    let ended = |reason: &str| {
        let label = format!("reason={reason:?}");
        gateway.metric("forebay_sessions_ended_total", &[&label]) as u64
    };
    let before = ended("no_server");
    let nowhere = cluster::options(&gateway).db_name(Some("nowhere"));
    assert_eq!(client::code(&Conn::new(nowhere).await.unwrap_err()), 1049);
    eventually("it is counted", async || ended("login_failed") == 1).await;
    let wrong = log_in(&gateway, "mistyped", "hunter3").await.unwrap_err();
    assert_eq!(client::code(&wrong), 1429, "{wrong}");
    eventually("it is counted", async || ended("login_failed") == 2).await;
    assert_eq!(ended("no_server"), before);
    assert_eq!(gateway.metric("forebay_errors_total", &["fault=\"server\""]), 0.0);
}
