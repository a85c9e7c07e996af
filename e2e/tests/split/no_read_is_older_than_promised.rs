//! What a read must see is asked of the right server, and is there on the server that answers.

use std::time::Duration;

use e2e::{Setup, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node, PASSWORD, Sandbox, Spec, USER};

use crate::a_new_primary_is_followed::promote;
use crate::cluster::{self, ask};

const READ: &str = "SELECT v FROM fresh.cells WHERE id = 1";

fn cells(sandbox: &Sandbox) {
    cluster::schema(
        sandbox,
        "fresh",
        "CREATE TABLE cells (id INT PRIMARY KEY, v INT); INSERT INTO cells VALUES (1, 0), (2, 0)",
    );
}

/// A monitor that looks once, and again only when it is told to. On a busy machine the first look must not
/// fail: the next one comes late.
fn seldom() -> String {
    format!("monitor = {{ user = {USER:?}, password = {PASSWORD:?}, interval = \"60s\", timeout = \"10s\" }}")
}

fn strong(sandbox: &Sandbox) -> Setup {
    Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .listener("read_consistency = \"strong\"")
}

/// The server takes no more writes.
fn close(node: &Node) {
    let statement = match kind() {
        Kind::Mysql => "SET GLOBAL super_read_only = ON",
        _ => "SET GLOBAL read_only = ON",
    };
    node.sql(statement).unwrap();
}

/// A switchover by hand, of which nobody has told the gateway.
#[tokio::test]
async fn strong_reads_do_not_believe_the_last_primary() {
    let sandbox = cluster::replicated();
    cells(&sandbox);
    let setup = strong(&sandbox).cluster(&format!("topology = \"replication\"\n{}", seldom()));
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect(&gateway).await;
    assert_eq!(ask(&mut session, READ).await, Ok(Some("0".to_owned())));
    let (old, new) = (sandbox.node(0), sandbox.node(1));
    close(old);
    promote(new);
    // The third goes on following the old one, and has all that that has.
    new.sql("UPDATE fresh.cells SET v = 1 WHERE id = 1").unwrap();
    for _ in 0..10 {
        assert_eq!(ask(&mut session, READ).await, Ok(Some("1".to_owned())));
    }
}

/// Who the primary is was written down by somebody who may have closed it on purpose.
#[tokio::test]
async fn a_static_primary_may_be_closed() {
    let sandbox = cluster::replicated();
    cells(&sandbox);
    close(sandbox.primary());
    let servers = ["primary", "replica"]
        .iter()
        .zip(sandbox.addresses())
        .map(|(role, address)| format!("{{ address = {address:?}, role = {role:?} }}"));
    let setup = strong(&sandbox)
        .servers(servers)
        .cluster("failover_wait = \"1s\"");
    let gateway = cluster::start(setup, 1).await;
    let mut session = cluster::connect(&gateway).await;
    assert_eq!(ask(&mut session, READ).await, Ok(Some("0".to_owned())));
}

/// Who does not wait for another primary waits for the answer of this one.
#[tokio::test]
async fn a_primary_has_time_to_answer() {
    let sandbox = cluster::replicated();
    cells(&sandbox);
    let setup = strong(&sandbox).cluster(&format!(
        "topology = \"replication\"\nfailover_wait = \"0s\"\n{}",
        seldom()
    ));
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect(&gateway).await;
    assert_eq!(ask(&mut session, READ).await, Ok(Some("0".to_owned())));
    sandbox.primary().freeze().unwrap();
    // Not to wait for something: it is how slow the primary is.
    let thaw = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        sandbox.primary().thaw().unwrap();
    };
    let (answer, ()) = tokio::join!(ask(&mut session, READ), thaw);
    assert_eq!(answer, Ok(Some("0".to_owned())));
}

/// The primary of a group that cannot ask the others does not know what they have agreed on.
#[tokio::test]
async fn nor_a_primary_that_has_lost_its_group() {
    if kind() != Kind::Mysql {
        return;
    }
    let sandbox = Sandbox::start(Spec::new(Kind::GroupReplication).nodes(3)).unwrap();
    cells(&sandbox);
    let monitor = seldom().replace(" }", ", discover = false }");
    let setup = strong(&sandbox)
        .servers([format!("{:?}", sandbox.primary().address())])
        .cluster(&format!(
            "topology = \"group-replication\"\nfailover_wait = \"2s\"\n{monitor}"
        ));
    let gateway = cluster::start(setup, 0).await;
    let mut session = cluster::connect(&gateway).await;
    let there = Ok(Some("0".to_owned()));
    assert_eq!(ask(&mut session, READ).await, there);
    let others = &sandbox.nodes()[1..];
    others.iter().for_each(|node| node.freeze().unwrap());
    // For some seconds it takes itself for what it was.
    assert_eq!(sandbox.primary().sql("SELECT @@read_only").unwrap().trim(), "0");
    assert_eq!(ask(&mut session, READ).await, Err(1290));
    others.iter().for_each(|node| node.thaw().unwrap());
    eventually("the group has found together again", async || {
        ask(&mut session, READ).await == there
    })
    .await;
}

/// A server that a session has left with another wait than the gateway's.
#[tokio::test]
async fn what_one_session_sets_is_no_other_ones_wait() {
    if kind() == Kind::Mysql {
        return;
    }
    let sandbox = Sandbox::start(Spec::new(Kind::Galera).nodes(2)).unwrap();
    let servers = sandbox
        .addresses()
        .into_iter()
        .map(|address| format!("{{ address = {address:?}, max_connections = 1 }}"));
    let setup = Setup::of_addresses([])
        .mode("split")
        .servers(servers)
        .top("workers = 1")
        .tables(&cluster::user(USER, PASSWORD))
        .tables("[[rule]]\ntext = \"any_age\"\nread_consistency = \"eventual\"")
        .cluster("topology = \"galera\"")
        .cluster(&cluster::monitor())
        .check(cluster::PATIENT_CHECKS);
    let gateway = cluster::start(setup, 1).await;
    let mut one = cluster::connect(&gateway).await;
    let mut other = cluster::connect(&gateway).await;
    let read = "/* forebay: replica */ SELECT @@wsrep_sync_wait";
    let eventual = "/* forebay: replica */ SELECT @@wsrep_sync_wait /* any_age */";
    let is = |bits: u8| Ok(Some(bits.to_string()));
    assert_eq!(ask(&mut other, read).await, is(1));
    one.query_drop("SET SESSION wsrep_sync_wait = 6").await.unwrap();
    assert_eq!(ask(&mut one, read).await, is(7), "its own, and the gateway's");
    assert_eq!(ask(&mut other, read).await, is(1));
    assert_eq!(ask(&mut one, eventual).await, is(6));
    assert_eq!(ask(&mut other, eventual).await, is(0));
    one.query_drop("SET SESSION wsrep_sync_wait = 0").await.unwrap();
    assert_eq!(ask(&mut one, read).await, is(1));
    // On the replica's connection itself, to what it is already.
    for statement in [
        "START TRANSACTION READ ONLY",
        "SET SESSION wsrep_sync_wait = 0",
        "COMMIT",
    ] {
        one.query_drop(statement).await.unwrap();
    }
    assert_eq!(ask(&mut one, read).await, is(1));
    assert_eq!(ask(&mut other, read).await, is(1));
}

/// The last write of a session is on the replica, and the one before is not.
#[tokio::test]
async fn a_session_sees_all_its_writes_and_not_only_the_last() {
    if kind() != Kind::Mysql {
        return;
    }
    let spec = Spec::new(Kind::Mysql)
        .nodes(2)
        .option("--replica-parallel-workers=4")
        // What MySQL 9 does anyway, and no longer knows by this name.
        .option("--loose-binlog-transaction-dependency-tracking=WRITESET")
        .option("--replica-preserve-commit-order=OFF");
    let sandbox = Sandbox::start(spec).unwrap();
    cells(&sandbox);
    let setup = cluster::split(&sandbox).cluster("read_wait = \"200ms\"\nmax_lag = \"60s\"");
    let gateway = cluster::start(setup, 1).await;
    let mut session = cluster::connect(&gateway).await;
    let replica = sandbox.node(1);
    // Nothing is applied to the first row while this is open.
    replica.sql("SET GLOBAL super_read_only = OFF").unwrap();
    let mut blocker = Conn::new(e2e::client::options_at(replica.port())).await.unwrap();
    blocker.query_drop("BEGIN").await.unwrap();
    blocker
        .query_drop("SELECT * FROM fresh.cells WHERE id = 1 FOR UPDATE")
        .await
        .unwrap();
    for id in 1..=2 {
        let write = format!("UPDATE fresh.cells SET v = 1 WHERE id = {id}");
        session.query_drop(write).await.unwrap();
    }
    eventually("the replica has the second write", async || {
        replica
            .sql("SELECT v FROM fresh.cells WHERE id = 2")
            .unwrap()
            .trim()
            == "1"
    })
    .await;
    assert_eq!(ask(&mut session, READ).await, Ok(Some("1".to_owned())));
    blocker.disconnect().await.unwrap();
    sandbox.sync().unwrap();
    let on_replica = || gateway.metric("forebay_split_statements_total", &["ran=\"replica\""]);
    let before = on_replica();
    // For a moment the replica is still known to be behind.
    eventually("it is read where both writes are", async || {
        assert_eq!(ask(&mut session, READ).await, Ok(Some("1".to_owned())));
        on_replica() > before
    })
    .await;
}

/// A node that has just become the writer has yet to apply what was committed on another. Here the other is
/// one that the gateway does not know: to a session that has never written it is the same.
#[tokio::test]
async fn a_writer_of_galera_has_applied_what_others_have_committed() {
    if kind() == Kind::Mysql {
        return;
    }
    let sandbox = Sandbox::start(Spec::new(Kind::Galera).nodes(2)).unwrap();
    // Without a key a row is looked for among all, which takes an applier seconds.
    sandbox
        .primary()
        .sql(
            "CREATE TABLE test.slow (v INT, w INT);
             INSERT INTO test.slow SELECT 0, seq FROM test.seq_1_to_2000",
        )
        .unwrap();
    sandbox.sync().unwrap();
    let setup = strong(&sandbox)
        .servers([format!("{:?}", sandbox.primary().address())])
        .cluster("topology = \"galera\"\nfailover_wait = \"50s\"")
        .cluster(&cluster::monitor());
    let gateway = cluster::start(setup, 0).await;
    let mut session = cluster::connect(&gateway).await;
    for round in 1..=3 {
        sandbox.node(1).sql("UPDATE test.slow SET v = v + 1").unwrap();
        let read = ask(&mut session, "SELECT v FROM test.slow LIMIT 1").await;
        assert_eq!(read, Ok(Some(round.to_string())));
    }
}
