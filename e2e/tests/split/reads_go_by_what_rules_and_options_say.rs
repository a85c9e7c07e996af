//! How fresh a read of a rule is, how often it is sent again, what a group's reads do without their server,
//! and which replica is quick.

use std::collections::HashMap;
use std::time::Duration;

use e2e::link::Link;
use e2e::{Setup, client, eventually, kind};
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node, PASSWORD, Sandbox, USER};
use testkit::lossy_link::Fault;
use tokio::task::JoinHandle;

use crate::cluster::{self, WHERE_AM_I, ask, user};

/// Servers with the roles that they have, each behind this address.
fn fixed(addresses: &[String]) -> Setup {
    let server = |(index, address): (usize, &String)| {
        let role = if index == 0 { "primary" } else { "replica" };
        format!("{{ address = {address:?}, role = {role:?} }}")
    };
    Setup::of_addresses([])
        .servers(addresses.iter().enumerate().map(server))
        .mode("split")
        .tables(&user(USER, PASSWORD))
}

/// Stops applying on a replica, or goes on with it.
fn apply(replica: &Node, goes_on: bool) {
    let verb = if goes_on { "START" } else { "STOP" };
    let noun = match kind() {
        Kind::Mysql => "REPLICA",
        _ => "SLAVE",
    };
    replica.sql(&format!("{verb} {noun} SQL_THREAD")).unwrap();
}

#[tokio::test]
async fn a_rule_says_how_fresh_they_are() {
    let sandbox = cluster::replicated();
    cluster::schema(
        &sandbox,
        "fresh",
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (1)",
    );
    let setup = fixed(&sandbox.addresses())
        .listener("read_consistency = \"eventual\"")
        .cluster("read_wait = \"100ms\"")
        .cluster(&cluster::monitor())
        .tables("[[rule]]\ntag = [\"own\"]\nread_consistency = \"session\"")
        .tables("[[rule]]\ntag = [\"all\"]\nread_consistency = \"strong\"");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, "fresh").await;
    let mut other = cluster::connect_to(&gateway, "fresh").await;
    for replica in &sandbox.nodes()[1..] {
        apply(replica, false);
    }
    session.query_drop("UPDATE t SET v = 2").await.unwrap();
    let read = |tag: &str| format!("/* forebay: tag={tag} */ SELECT v FROM t");
    let value = |text: &str| Ok(Some(text.to_owned()));
    for _ in 0..3 {
        assert_eq!(ask(&mut session, &read("none")).await, value("1"), "eventual");
        assert_eq!(ask(&mut session, &read("own")).await, value("2"), "its own write");
        assert_eq!(ask(&mut other, &read("own")).await, value("1"), "not its own");
        assert_eq!(ask(&mut other, &read("all")).await, value("2"), "everybody's");
        let prepared: Option<u32> = other.exec_first(read("all"), ()).await.unwrap();
        assert_eq!(prepared, Some(2));
    }
}

/// A group's read whose server lacks what it must see is for the primary; one whose server is gone is
/// refused.
#[tokio::test]
async fn a_group_is_replaced_by_the_primary_or_by_nobody() {
    let sandbox = cluster::replicated();
    cluster::schema(
        &sandbox,
        "grouped",
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (1)",
    );
    let reports = sandbox.node(2);
    let setup = fixed(&sandbox.addresses())
        .listener("read_consistency = \"session\"")
        .cluster("read_wait = \"100ms\"")
        .cluster(&cluster::monitor())
        .tables(&format!(
            "[cluster.main.group.reports]\nservers = [{:?}]\nexclusive = true",
            reports.address()
        ))
        .tables("[[rule]]\ntag = [\"report\"]\nroute = \"reports\"");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, "grouped").await;
    let tagged = format!("/* forebay: tag=report */ {WHERE_AM_I}");
    let port = |node: &Node| Ok(Some(node.port().to_string()));
    assert_eq!(ask(&mut session, &tagged).await, port(reports));
    apply(reports, false);
    session.query_drop("UPDATE t SET v = 2").await.unwrap();
    assert_eq!(ask(&mut session, &tagged).await, port(sandbox.primary()));
    let mut careless = cluster::connect_to(&gateway, "grouped").await;
    assert_eq!(
        ask(&mut careless, &tagged).await,
        port(reports),
        "it has written nothing"
    );
    apply(reports, true);
    eventually("the group's server has caught up", async || {
        ask(&mut session, &tagged).await == port(reports)
    })
    .await;

    reports.kill9().unwrap();
    eventually("it is known to be gone", async || {
        ask(&mut session, &tagged).await == Err(1429)
    })
    .await;
    let refused = session.query_drop(&tagged).await.unwrap_err();
    assert!(refused.to_string().contains("reports"), "{refused}");
    assert_ne!(cluster::where_am_i(&mut session).await, reports.port());
}

/// The links to a primary and its replicas.
struct Links<'s> {
    sandbox: &'s Sandbox,
    links: Vec<Link>,
}

impl Links<'_> {
    fn to(sandbox: &Sandbox) -> Links<'_> {
        let links = sandbox.nodes().iter().map(Link::to_node).collect();
        Links { sandbox, links }
    }

    fn addresses(&self) -> Vec<String> {
        self.links.iter().map(|link| link.address().to_string()).collect()
    }

    /// The server on which the statement of this tag runs.
    async fn wait_for(&self, tag: &str) -> usize {
        let mut found = None;
        eventually("the statement runs", async || {
            let mut nodes = self.sandbox.nodes().iter();
            found = nodes.position(|node| !running(node, tag).is_empty());
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// Cuts what goes over a link now, and ends the statement, which its server may not notice by itself.
    async fn cut(&self, index: usize, tag: &str) {
        let node = self.sandbox.node(index);
        let lost = running(node, tag);
        self.links[index].set_to_client(Fault::CutAfter(0));
        eventually("its server has ended it", async || {
            for id in &lost {
                // It may just have ended.
                let _ = node.sql(&format!("KILL {id}"));
            }
            running(node, tag).is_empty()
        })
        .await;
        self.links[index].set_to_client(Fault::None);
    }
}

/// The connections on which the statement of this tag runs.
fn running(node: &Node, tag: &str) -> Vec<String> {
    let question = format!(
        "SELECT id FROM information_schema.processlist WHERE info LIKE '%tag={tag} %SLEEP%' AND info NOT LIKE '%processlist%'"
    );
    node.sql(&question).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_rule_says_how_often_they_are_sent_again() {
    let sandbox = cluster::replicated();
    let links = Links::to(&sandbox);
    let setup = fixed(&links.addresses())
        .cluster("failover_wait = \"50s\"")
        .tables("[[rule]]\ntag = [\"never\"]\nretries = 0")
        .tables("[[rule]]\ntag = [\"twice\"]\nretries = 2");
    let gateway = cluster::start(setup, 2).await;
    let retried = || gateway.metric("forebay_split_reads_retried_total", &[]);
    for (tag, cuts) in [("never", 1), ("once", 2), ("twice", 3)] {
        let before = retried();
        let mut session = cluster::connect(&gateway).await;
        let statement = format!("/* forebay: tag={tag} */ SELECT '{tag}', SLEEP(1000) FROM where_am_i");
        let reading: JoinHandle<_> = tokio::spawn(async move { session.query_drop(statement).await });
        for _ in 0..cuts {
            let server = links.wait_for(tag).await;
            links.cut(server, tag).await;
        }
        let error = reading.await.unwrap().unwrap_err();
        assert_eq!(client::code(&error), 1158, "{tag}: {error}");
        assert_eq!(retried() - before, f64::from(cuts - 1), "{tag}");
        eventually("all servers are up again", async || {
            gateway.servers_up() == sandbox.nodes().len()
        })
        .await;
    }
}

#[tokio::test]
async fn a_slow_replica_gets_few_of_them() {
    let sandbox = cluster::shared();
    let slow = Link::to_node(sandbox.node(2));
    let addresses = [
        sandbox.primary().address(),
        sandbox.node(1).address(),
        slow.address().to_string(),
    ];
    for (balance, few) in [("least-outstanding", false), ("latency", true)] {
        let setup = fixed(&addresses).cluster(&format!("read_balance = {balance:?}"));
        let gateway = cluster::start(setup, 2).await;
        let mut session = cluster::connect(&gateway).await;
        slow.set_to_client(Fault::Delay(Duration::from_millis(60)));
        let mut counts = HashMap::<u16, usize>::new();
        for _ in 0..150 {
            *counts.entry(cluster::where_am_i(&mut session).await).or_default() += 1;
        }
        slow.set_to_client(Fault::None);
        let slow_ones = counts.get(&sandbox.node(2).port()).copied().unwrap_or_default();
        assert_eq!(slow_ones < 40, few, "{balance}: {counts:?}");
    }
}
