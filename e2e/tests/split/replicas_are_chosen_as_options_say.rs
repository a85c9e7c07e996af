//! The limits of lag, with real replicas. Zones, weights and latency are with the tests of the data plane.

use std::collections::HashMap;

use e2e::{Gateway, Setup, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node, PASSWORD, Sandbox, Spec, USER};

use crate::cluster;

const READS: usize = 120;

/// A gateway in front of replicating servers with these options, one for each.
fn with(sandbox: &Sandbox, options: [&str; 3]) -> Setup {
    let server = |(address, options): (String, &str)| format!("{{ address = {address:?}, {options} }}");
    Setup::of_addresses([])
        .servers(sandbox.addresses().into_iter().zip(options).map(server))
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .listener("read_consistency = \"eventual\"")
        .cluster("topology = \"replication\"")
        .cluster(&cluster::monitor())
        .check(cluster::PATIENT_CHECKS)
}

/// How many reads of one session came to each server.
async fn counts(session: &mut Conn) -> HashMap<u16, usize> {
    let mut counts = HashMap::new();
    for _ in 0..READS {
        *counts.entry(cluster::where_am_i(session).await).or_default() += 1;
    }
    counts
}

/// What `FOREBAY EXPLAIN` says of a server.
async fn word_of(session: &mut Conn, node: &Node) -> String {
    let name = format!("candidate {}", node.address());
    let rows = cluster::why(session).await;
    let row = rows.iter().find(|(what, _)| *what == name);
    row.unwrap_or_else(|| panic!("{name}: {rows:?}")).1.clone()
}

async fn started(setup: Setup) -> (Gateway, Conn) {
    let gateway = cluster::start(setup, 2).await;
    let session = cluster::connect(&gateway).await;
    (gateway, session)
}

/// The roles are written, and whoever should say how far the replica is behind cannot log in. It is not known
/// to be near enough where somebody has said how near that is.
#[tokio::test]
async fn and_none_whose_lag_nobody_knows() {
    let sandbox = cluster::shared();
    let server = |(at, role): (usize, &str)| {
        format!(
            "{{ address = {:?}, role = {role:?} }}",
            sandbox.node(at).address()
        )
    };
    let setup = || {
        Setup::of_addresses([])
            .servers([(0, "primary"), (1, "replica")].map(server))
            .mode("split")
            .tables(&cluster::user(USER, PASSWORD))
            .listener("read_consistency = \"eventual\"")
            .cluster("monitor = { user = \"nobody_of_this_name\", password = \"x\", interval = \"100ms\" }")
            .check("kind = \"greeting\"\ninterval = \"200ms\"\nrise = 1")
    };
    for (limit, reads_at) in [("", 1), ("max_lag = \"5s\"", 0), ("max_lag = \"0s\"", 1)] {
        let gateway = setup().cluster(limit).start();
        let mut session = cluster::connect(&gateway).await;
        eventually("the monitor has failed", async || {
            gateway.metric("forebay_looks_failed_total", &[]) > 4.0
        })
        .await;
        let at = cluster::where_am_i(&mut session).await;
        assert_eq!(at, sandbox.node(reads_at).port(), "{limit}");
    }
}

/// Nodes of Galera count what they have still to apply. So do members of a group, whose start takes longer
/// than this: `the_cluster_is_followed`, of the crate `upstream`.
#[tokio::test]
async fn and_none_with_too_many_transactions_to_apply() {
    if kind() == Kind::Mysql {
        return;
    }
    let sandbox = Sandbox::start(Spec::new(Kind::Galera).nodes(2)).unwrap();
    let table = "CREATE TABLE held (id INT PRIMARY KEY)";
    sandbox.primary().sql(table).unwrap();
    sandbox.sync().unwrap();
    for node in sandbox.nodes() {
        let statements = format!(
            "SET wsrep_on = 0; CREATE TABLE where_am_i (port INT PRIMARY KEY); INSERT INTO where_am_i VALUES ({})",
            node.port()
        );
        node.sql(&statements).unwrap();
    }
    let setup = Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .listener("read_consistency = \"eventual\"")
        .cluster("topology = \"galera\"\nmax_transactions_behind = 3")
        .cluster(&cluster::monitor())
        .check(cluster::PATIENT_CHECKS);
    let gateway = cluster::start(setup, 1).await;
    let mut session = cluster::connect(&gateway).await;
    let replica = cluster::where_am_i(&mut session).await;
    let node = sandbox
        .nodes()
        .iter()
        .find(|node| node.port() == replica)
        .unwrap();
    let mut holds = Conn::new(e2e::client::options_at(replica)).await.unwrap();
    holds.query_drop("LOCK TABLES held READ").await.unwrap();
    for id in 0..6 {
        let insert = format!("INSERT INTO held VALUES ({id})");
        session.query_drop(insert).await.unwrap();
    }
    eventually("it has too much to apply", async || {
        let word = word_of(&mut session, node).await;
        word.contains("transactions to apply, of 3 allowed")
    })
    .await;
    assert_ne!(cluster::where_am_i(&mut session).await, replica);
    holds.query_drop("UNLOCK TABLES").await.unwrap();
    eventually("it has applied it", async || {
        cluster::where_am_i(&mut session).await == replica
    })
    .await;
}

/// Has a replica apply everything so many seconds late.
fn delay(replica: &Node, seconds: u32) {
    replica
        .sql(&match kind() {
            Kind::Mysql => format!(
                "STOP REPLICA SQL_THREAD; CHANGE REPLICATION SOURCE TO SOURCE_DELAY = {seconds}; START REPLICA SQL_THREAD"
            ),
            _ => format!("STOP SLAVE; CHANGE MASTER TO MASTER_DELAY = {seconds}; START SLAVE"),
        })
        .unwrap();
}

#[tokio::test]
async fn but_none_that_is_too_far_behind() {
    let sandbox = cluster::replicated();
    let setup = with(&sandbox, ["weight = 1"; 3]).cluster("max_lag = \"1s\"");
    let (gateway, mut session) = started(setup).await;
    eventually("both take reads", async || counts(&mut session).await.len() == 2).await;
    let late = sandbox.node(1);
    delay(late, 3600);
    sandbox
        .primary()
        .sql("CREATE TABLE late (v INT); INSERT INTO late VALUES (1)")
        .unwrap();
    eventually("it is too far behind", async || {
        let word = word_of(&mut session, late).await;
        word.contains("ms behind, of 1000 ms allowed")
    })
    .await;
    assert!(!counts(&mut session).await.contains_key(&late.port()));
    // It may itself take more than a second to make the table on a busy machine.
    eventually("the other one is there", async || {
        gateway.get("/readyz").1 == "ok\n"
    })
    .await;
    // Reads go to the primary, and everybody is told.
    delay(sandbox.node(2), 3600);
    let insert = "INSERT INTO late VALUES (2)";
    sandbox.primary().sql(insert).unwrap();
    let takes_none = || gateway.get("/status").1.matches("and takes no reads: ").count();
    eventually("all are too far behind", async || {
        takes_none() == 2 && gateway.metric("forebay_replicas_too_far_behind", &[]) == 1.0
    })
    .await;
    let said = "further behind than max_lag: reads go to the primary";
    let (code, ready) = gateway.get("/readyz");
    assert!(
        code == 200 && ready.starts_with("ok\n") && ready.contains(said),
        "{ready}"
    );
    // A busy machine may have been told before that they were behind, and that this is over.
    let over = "not all are too far behind";
    let told = || {
        let log = gateway.log();
        log.matches(said).count() - log.matches(over).count()
    };
    eventually("the log says so", async || told() == 1).await;
    assert!(counts(&mut session).await.contains_key(&sandbox.primary().port()));
    assert_eq!(told(), 1);
    for node in sandbox.nodes().iter().skip(1) {
        delay(node, 0);
    }
    // A replica that applies late what is old may be taken for behind again for a moment.
    eventually("they are there again", async || {
        counts(&mut session).await.len() == 2
            && gateway.metric("forebay_replicas_too_far_behind", &[]) == 0.0
            && gateway.get("/readyz").1 == "ok\n"
    })
    .await;
    eventually("the log says that, too", async || told() == 0).await;
}
