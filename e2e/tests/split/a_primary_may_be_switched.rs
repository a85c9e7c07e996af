//! Another server is made the primary by `forebay ctl switchover`, under a load whose result is known: no
//! client meets an error, and nothing is lost or done twice.

use std::time::{Duration, Instant};

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node, PASSWORD, Sandbox, Spec, USER};

use crate::a_primary_that_takes_no_writes_any_more_is_left::{WHY, is_primary, with_backups};
use crate::a_server_that_says_so_is_left::{Busy, is_left, sessions_on};
use crate::cluster::{self, ctl};
use crate::ledger::{self, Load};

const SESSIONS: usize = 12;

fn setup(sandbox: &Sandbox) -> Setup {
    patient(sandbox, split(sandbox))
}

/// With time for all of it on a busy machine, for its steps and for the statements that wait meanwhile.
fn patient(sandbox: &Sandbox, setup: Setup) -> Setup {
    let setup = setup.cluster("pause_timeout = \"50s\"\nfailover_wait = \"50s\"");
    let more = ", transactions_wait = \"40s\", step_timeout = \"40s\"";
    with_switchover(sandbox, setup, more)
}

fn split(sandbox: &Sandbox) -> Setup {
    cluster::split(sandbox).admin("socket = \"admin.sock\"")
}

/// With an account of its own, which has the privileges that the guide names.
fn with_switchover(sandbox: &Sandbox, setup: Setup, more: &str) -> Setup {
    sandbox.let_switch_over("switcher").unwrap();
    // A password in which quotes and backslashes mean themselves.
    let change = r"ALTER USER switcher@'%' IDENTIFIED BY 'it''s \\'";
    sandbox.primary().sql(change).unwrap();
    sandbox.sync().unwrap();
    let account = r#"user = "switcher", password = "it's \\""#;
    setup.cluster(&format!("switchover = {{ {account}{more} }}"))
}

/// Has the gateway make this server the primary, which must be done without a word of warning.
fn switch(gateway: &Gateway, to: &Node) {
    let (code, said) = ctl(gateway, &["switchover", "main", "--to", &to.address()]);
    println!("{said}");
    assert_eq!(code, Some(0), "{said}\n{}", gateway.log());
    assert!(!said.contains("by hand"), "{said}");
}

/// Servers free the lock of a switchover that was not done only when they turn to its connection, and until
/// then they refuse the next one.
async fn lock_is_free(sandbox: &Sandbox) {
    let is_free = |node: &Node| {
        let lock = node.sql("SELECT IS_FREE_LOCK('forebay.switchover')").unwrap();
        lock.trim() == "1"
    };
    eventually("another switchover may begin", async || {
        sandbox.nodes().iter().all(is_free)
    })
    .await;
}

#[tokio::test]
async fn there_and_back_by_replication() {
    let sandbox = cluster::replicated();
    ledger::prepare(&sandbox);
    let gateway = cluster::start(setup(&sandbox), 2).await;
    let load = Load::start(&gateway, SESSIONS);
    load.goes_on(300).await;
    let name = sandbox.node(1).address();
    let (code, said) = ctl(&gateway, &["switchover", "main", "--to", &name, "--check"]);
    assert!(code == Some(0) && said.contains("can take over"), "{said}");
    lock_is_free(&sandbox).await;
    for to in [1, 2, 0] {
        switch(&gateway, sandbox.node(to));
        load.goes_on(300).await;
        cluster::knows(&gateway, 2).await;
    }
    let failures = load.end(sandbox.node(0));
    assert!(failures.is_empty(), "{failures:#?}");
    sandbox.sync().unwrap();
    for node in &sandbox.nodes()[1..] {
        let rows = node.sql("SELECT COUNT(*) FROM ledger.events").unwrap();
        let all = sandbox.node(0).sql("SELECT COUNT(*) FROM ledger.events").unwrap();
        assert_eq!(rows, all, "the others follow");
    }
}

/// The old primary drains, since it takes no writes any more: which is no reason to refuse it.
#[tokio::test]
async fn there_and_back_in_mode_session() {
    let sandbox = cluster::replicated();
    let gateway = patient(&sandbox, with_backups(&sandbox)).start();
    let (first, second) = (sandbox.node(0), sandbox.node(1));
    is_primary(&gateway, first).await;
    let busy = Busy::on(&gateway, first).await;
    switch(&gateway, second);
    is_left(&gateway, first, WHY).await;
    switch(&gateway, first);
    is_left(&gateway, second, WHY).await;
    busy.end().await;
    assert_eq!(sessions_on(&gateway, second), 0.0);
}

/// Galera where the server is MariaDB, Group Replication where it is MySQL.
#[tokio::test]
async fn of_a_group() {
    let (of_group, topology) = match kind() {
        Kind::Mysql => (Kind::GroupReplication, "group-replication"),
        _ => (Kind::Galera, "galera"),
    };
    let sandbox = Sandbox::start(Spec::new(of_group).nodes(3)).unwrap();
    ledger::prepare(&sandbox);
    let setup = Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .admin("socket = \"admin.sock\"")
        .cluster(&format!("topology = {topology:?}"))
        .cluster(&cluster::monitor())
        .check(cluster::PATIENT_CHECKS);
    let gateway = cluster::start(patient(&sandbox, setup), 2).await;
    let load = Load::start(&gateway, SESSIONS);
    load.goes_on(200).await;
    let is_primary = |node: &&Node| {
        let label = format!("server={:?}", node.address());
        gateway.metric("forebay_server_role", &[&label, "role=\"primary\""]) == 1.0
    };
    for _ in 0..2 {
        let to = sandbox.nodes().iter().find(|node| !is_primary(node)).unwrap();
        switch(&gateway, to);
        load.goes_on(200).await;
        assert!(is_primary(&to));
    }
    // The others apply the last writes of a Galera cluster a moment later.
    let primary = sandbox.nodes().iter().find(is_primary).unwrap();
    let failures = load.end(primary);
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test]
async fn unless_something_speaks_against_it() {
    let sandbox = cluster::replicated();
    cluster::schema(&sandbox, "switched", "CREATE TABLE t (v INT PRIMARY KEY)");
    let gateway = cluster::start(
        with_switchover(&sandbox, split(&sandbox), ", transactions_wait = \"200ms\""),
        2,
    )
    .await;
    let (primary, replica) = (sandbox.node(0), sandbox.node(1));
    let refused = |to: &Node, words: &str| {
        let (code, said) = ctl(&gateway, &["switchover", "main", "--to", &to.address()]);
        assert!(
            matches!(code, Some(1 | 2)) && said.contains(words),
            "{code:?} {said}"
        );
    };
    refused(primary, "is the primary already");
    // Somebody is in the middle of a transaction: it comes to its end, and nothing has changed.
    let mut session = cluster::connect_to(&gateway, "switched").await;
    session.query_drop("BEGIN").await.unwrap();
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    refused(replica, "1 sessions are still in a transaction");
    lock_is_free(&sandbox).await;
    session.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    session.query_drop("COMMIT").await.unwrap();
    // What only the replica has.
    cluster::write_at(replica, "USE switched; INSERT INTO t VALUES (10);");
    refused(replica, "has transactions that");
    lock_is_free(&sandbox).await;
    let stop = match kind() {
        Kind::Mysql => "STOP REPLICA",
        _ => "STOP SLAVE",
    };
    sandbox.node(2).sql(stop).unwrap();
    refused(sandbox.node(2), "does not replicate at the moment");
    let read_only = primary.sql("SELECT @@GLOBAL.read_only").unwrap();
    assert_eq!(read_only.trim(), "0");
    session.query_drop("INSERT INTO t VALUES (3)").await.unwrap();
    assert!(gateway.log().contains("no switchover"), "{}", gateway.log());
}

#[tokio::test]
async fn and_statements_wait_while_their_cluster_is_paused() {
    let sandbox = cluster::shared();
    cluster::schema(sandbox, "paused", "CREATE TABLE t (v INT)");
    let with = |timeout: &str| split(sandbox).cluster(&format!("pause_timeout = {timeout:?}\npause_max = 1"));
    // On a busy machine it takes long until all is done that is to be done meanwhile.
    let mut gateway = cluster::start(with("1m"), 2).await;
    let mut in_transaction = cluster::connect_to(&gateway, "paused").await;
    let mut first = cluster::connect_to(&gateway, "paused").await;
    let mut second = cluster::connect_to(&gateway, "paused").await;
    in_transaction.query_drop("BEGIN").await.unwrap();
    in_transaction
        .query_drop("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    assert_eq!(ctl(&gateway, &["pause"]).0, Some(0));
    in_transaction
        .query_drop("INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    in_transaction.query_drop("COMMIT").await.unwrap();

    let waits = async { first.query_drop("INSERT INTO t VALUES (3)").await };
    let meanwhile = async {
        eventually("it waits", async || {
            gateway.metric("forebay_pause_waiting", &[]) == 1.0
        })
        .await;
        let (_, said) = ctl(&gateway, &["sessions"]);
        assert!(said.contains("pause"), "{said}");
        // One more than may wait.
        let error = second.query_drop("SELECT 1").await.unwrap_err();
        assert!(error.to_string().contains("pause_max"), "{error}");
        assert_eq!(client::code(&error), 1290);
        assert_eq!(ctl(&gateway, &["resume", "main"]).0, Some(0));
    };
    let (done, ()) = tokio::join!(waits, meanwhile);
    done.unwrap();
    second.query_drop("INSERT INTO t VALUES (4)").await.unwrap();

    assert!(gateway.reload(with("2s")).await);
    assert_eq!(ctl(&gateway, &["pause"]).0, Some(0));
    let began = Instant::now();
    let error = first.query_drop("INSERT INTO t VALUES (5)").await.unwrap_err();
    assert!(error.to_string().contains("pause_timeout"), "{error}");
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(ctl(&gateway, &["resume"]).0, Some(0));
    let rows = sandbox
        .primary()
        .sql("SELECT GROUP_CONCAT(v ORDER BY v) FROM paused.t")
        .unwrap();
    assert_eq!(rows.trim(), "1,2,3,4");
    assert_eq!(gateway.metric("forebay_pause_timeouts_total", &[]), 1.0);
    assert_eq!(gateway.metric("forebay_pause_rejected_total", &[]), 1.0);
}
