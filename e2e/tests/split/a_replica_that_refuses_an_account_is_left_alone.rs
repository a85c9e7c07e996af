//! An account that only the primary knows has its reads there, and nobody asks the replicas each time.

use e2e::Setup;
use e2e::eventually;
use mysql_async::prelude::Queryable;
use sandbox::{PASSWORD, Sandbox, USER};

use crate::accounts::log_in;
use crate::cluster::{self, user, where_am_i};

/// Makes the account on some servers, each by itself.
fn known_to(sandbox: &Sandbox, servers: std::ops::Range<usize>, name: &str) {
    let statements = format!(
        "SET sql_log_bin = 0; CREATE USER {name}@'%' IDENTIFIED BY 'hunter2';
         GRANT ALL ON test.* TO {name}@'%';"
    );
    for node in &sandbox.nodes()[servers] {
        cluster::write_at(node, &statements);
    }
}

#[tokio::test]
async fn for_a_while() {
    let sandbox = cluster::shared();
    known_to(sandbox, 0..1, "known_here");
    let setup = cluster::split(sandbox)
        .top("workers = 1")
        .tables(&user("known_here", "hunter2"));
    let gateway = cluster::start(setup, 2).await;
    let mut session = log_in(&gateway, "known_here", "hunter2").await.unwrap();
    for _ in 0..50 {
        assert_eq!(where_am_i(&mut session).await, sandbox.primary().port());
    }
    let failures = gateway.metric("forebay_pool_open_failures_total", &[]);
    assert!(failures <= 4.0, "{failures}");
    let why = "why=\"account_refused\"";
    let refused = gateway.metric("forebay_split_reads_at_primary_total", &[why]);
    assert!(refused >= 49.0, "{refused}");
    let explained = cluster::why(&mut session).await;
    for port in cluster::replica_ports(sandbox) {
        let name = format!("candidate 127.0.0.1:{port}");
        let (_, reason) = explained.iter().find(|(what, _)| *what == name).unwrap();
        assert!(reason.contains("refuses the account"), "{explained:?}");
    }
    let said = || gateway.log().matches("account is refused by a server").count();
    eventually("it is in the log", async || said() > 0).await;
    assert!(said() <= 4, "{}", gateway.log());

    known_to(sandbox, 1..3, "known_here");
    eventually("the replicas are asked again", async || {
        where_am_i(&mut session).await != sandbox.primary().port()
    })
    .await;
    session.query_drop("DO 1").await.unwrap();
}

/// What the replicas have is asked for too seldom to be known, so each read has to wait there.
#[tokio::test]
async fn also_by_reads_that_wait_there() {
    let sandbox = cluster::shared();
    known_to(sandbox, 0..1, "known_there");
    sandbox
        .primary()
        .sql("CREATE TABLE test.of_known_there (v INT)")
        .unwrap();
    // The first look decides for the whole test, and may take its time.
    let monitor = format!(
        "monitor = {{ user = {USER:?}, password = {PASSWORD:?}, interval = \"1m\", timeout = \"10s\" }}"
    );
    let setup = Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .top("workers = 1")
        .tables(&user("known_there", "hunter2"))
        .cluster("topology = \"replication\"")
        .cluster(&monitor);
    let gateway = cluster::start(setup, 2).await;
    let mut session = log_in(&gateway, "known_there", "hunter2").await.unwrap();
    for _ in 0..40 {
        let write = "INSERT INTO test.of_known_there VALUES (1)";
        session.query_drop(write).await.unwrap();
        assert_eq!(where_am_i(&mut session).await, sandbox.primary().port());
    }
    let failures = gateway.metric("forebay_pool_open_failures_total", &[]);
    assert!((1.0..=8.0).contains(&failures), "{failures}");
}
