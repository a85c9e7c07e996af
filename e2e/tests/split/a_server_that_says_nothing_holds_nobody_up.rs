//! A server that stands still is waited for no longer than `login_timeout` by who asks it something before a
//! statement is sent, or behind one: what a session has set, or the end of a transaction that has moved.

use std::time::{Duration, Instant};

use e2e::{Setup, eventually};
use mysql_async::prelude::Queryable;
use sandbox::{Node, PASSWORD, Sandbox, USER};
use tokio::time::timeout;

use crate::cluster::{self, WHERE_AM_I, user, where_am_i};

/// Nobody has to wait for longer.
const SOON: Duration = Duration::from_secs(30);

/// With roles that the configuration says, and checks that come too late to tell anybody anything. The first
/// one of a server decides for the whole test, and may take its time.
fn with_roles(sandbox: &Sandbox) -> Setup {
    let servers = sandbox.nodes().iter().map(|node| {
        let role = if node.index() == 0 { "primary" } else { "replica" };
        format!("{{ address = {:?}, role = {role:?} }}", node.address())
    });
    Setup::of_addresses([])
        .servers(servers)
        .mode("split")
        .top("workers = 1")
        .tables(&user(USER, PASSWORD))
        .cluster("login_timeout = \"3s\"\nfailover_wait = \"1s\"")
        .check("interval = \"10m\"\ntimeout = \"30s\"")
}

#[tokio::test]
async fn while_it_is_given_what_a_session_has_set() {
    let sandbox = cluster::replicated();
    let gateway = with_roles(&sandbox).start();
    let mut plain = cluster::connect(&gateway).await;
    let mut other = cluster::connect(&gateway).await;
    other.query_drop("SET time_zone = '+03:00'").await.unwrap();
    let write = "UPDATE where_am_i SET port = port";
    plain.query_drop(write).await.unwrap();
    sandbox.primary().freeze().unwrap();
    let written = timeout(SOON, other.query_drop(write)).await;
    let read = timeout(SOON, where_am_i(&mut plain)).await;
    sandbox.primary().thaw().unwrap();
    assert!(written.expect("in time").is_err());
    let ports = cluster::replica_ports(&sandbox);
    assert!(ports.contains(&read.expect("in time")));
}

#[tokio::test]
async fn while_a_transaction_leaves_it() {
    let sandbox = cluster::replicated();
    let gateway = with_roles(&sandbox)
        .listener("transaction_reads = \"replica\"")
        .start();
    let mut session = cluster::connect(&gateway).await;
    session.query_drop("BEGIN").await.unwrap();
    let port = where_am_i(&mut session).await;
    let replica = sandbox.nodes().iter().skip(1).find(|node| node.port() == port);
    let replica = replica.expect("a replica");
    replica.freeze().unwrap();
    let write = "UPDATE where_am_i SET port = port";
    let written = timeout(SOON, session.query_drop(write)).await;
    let committed = timeout(SOON, session.query_drop("COMMIT")).await;
    replica.thaw().unwrap();
    written.expect("in time").unwrap();
    committed.expect("in time").unwrap();
}

/// Longer than the monitor takes to call a server silent, and far below the time after which checks find it
/// down.
const KNOWN_AFTER: Duration = Duration::from_secs(20);

/// Reads that are under way on a replica that stands still go to another server once the monitor finds it
/// silent; those that come later do not go there at all.
#[tokio::test]
async fn while_it_is_read_from() {
    let sandbox = cluster::replicated();
    let account = format!("user = {USER:?}, password = {PASSWORD:?}");
    // One of the replicas gets all reads.
    let server = |node: &Node| {
        let weight = u8::from(node.index() != 2);
        format!("{{ address = {:?}, weight = {weight} }}", node.address())
    };
    let setup = Setup::of_addresses([])
        .servers(sandbox.nodes().iter().map(server))
        .mode("split")
        .top("workers = 1")
        .tables(&user(USER, PASSWORD))
        .cluster("topology = \"replication\"")
        .cluster(&format!(
            "monitor = {{ {account}, interval = \"100ms\", timeout = \"3s\" }}"
        ))
        .check("interval = \"30s\"");
    let gateway = cluster::start(setup, 2).await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        let mut session = cluster::connect(&gateway).await;
        where_am_i(&mut session).await;
        sessions.push(session);
    }
    let frozen = sandbox.node(1);
    // A read that is under way there before it stands, whoever is late. Elsewhere it is quick.
    let mut waits = sessions.pop().unwrap();
    let slow = format!("{WHERE_AM_I} WHERE port <> {} OR SLEEP(600) = 0", frozen.port());
    let mut reading = vec![tokio::spawn(async move {
        let port: u16 = cluster::first(&mut waits, &slow).await;
        (waits, port)
    })];
    let under_way = "SELECT COUNT(*) FROM information_schema.processlist
         WHERE info LIKE '%SLEEP(600)%' AND id <> CONNECTION_ID()";
    eventually("it is under way", async || {
        frozen.sql(under_way).unwrap().trim() == "1"
    })
    .await;
    frozen.freeze().unwrap();
    let begun = Instant::now();
    reading.extend(sessions.into_iter().map(|mut session| {
        tokio::spawn(async move {
            let port = where_am_i(&mut session).await;
            (session, port)
        })
    }));
    let mut sessions = Vec::new();
    for read in reading {
        let (session, port) = timeout(SOON, read).await.expect("in time").unwrap();
        assert_eq!(port, sandbox.primary().port());
        sessions.push(session);
    }
    assert!(begun.elapsed() < KNOWN_AFTER, "{:?}", begun.elapsed());
    let sent_again = || gateway.metric("forebay_split_reads_retried_total", &[]);
    let so_far = sent_again();
    assert!(so_far > 0.0);
    for session in &mut sessions {
        assert_eq!(where_am_i(session).await, sandbox.primary().port());
    }
    assert_eq!(sent_again(), so_far, "none of them went to the silent one");
    frozen.thaw().unwrap();
    eventually("it is read from again", async || {
        let mut ports = Vec::new();
        for session in &mut sessions {
            ports.push(where_am_i(session).await);
        }
        ports.contains(&frozen.port())
    })
    .await;
}
