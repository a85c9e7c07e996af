//! Under a load whose result is known: nothing acknowledged is lost, nothing is done twice, and the load goes
//! on.

use std::time::Duration;

use e2e::{eventually, kind};
use sandbox::{Kind, Node, PASSWORD, Sandbox, Spec, USER};

use crate::cluster;
use crate::ledger::{self, Failure, Load};

const SESSIONS: usize = 12;

/// Servers that can do semi-synchronous replication.
fn replicated() -> Sandbox {
    Sandbox::start(Spec::new(kind()).nodes(3).semi_synchronous()).unwrap()
}

/// Makes a replica the primary.
pub(crate) fn promote(replica: &Node) {
    replica.promote().unwrap();
}

/// Lets a primary take no more writes. The server waits for the statements that run, some of which wait for
/// locks of transactions whose next statements wait for the server: given up and tried again, or it would
/// last as long as a lock may be waited for.
async fn demote(node: &Node) {
    let statements = match kind() {
        Kind::Mysql => "SET lock_wait_timeout = 1; SET GLOBAL super_read_only = ON",
        _ => "SET lock_wait_timeout = 1; SET GLOBAL read_only = ON",
    };
    eventually("the primary takes no more writes", async || {
        node.sql(statements).is_ok()
    })
    .await;
}

/// Makes a server follow another; `was_primary` has written itself before.
pub(crate) fn follow(node: &Node, primary: &Node, was_primary: bool) {
    node.follow(primary, was_primary).unwrap();
}

fn wait_for(replica: &Node, position: &str) {
    let function = match kind() {
        Kind::Mysql => "WAIT_FOR_EXECUTED_GTID_SET",
        _ => "MASTER_GTID_WAIT",
    };
    let reached = replica
        .sql(&format!("SELECT {function}('{position}', 60)"))
        .unwrap();
    assert_eq!(reached.trim(), "0", "the replica does not catch up");
}

fn settings() -> &'static str {
    "failover_wait = \"50s\""
}

/// By hand: the old primary takes no more writes, the new one has all of them, and takes over.
#[tokio::test]
async fn after_a_switchover() {
    let sandbox = cluster::replicated();
    ledger::prepare(&sandbox);
    let gateway = cluster::start(cluster::split(&sandbox).cluster(settings()), 2).await;
    let load = Load::start(&gateway, SESSIONS);
    let mut primary = 0;
    for _ in 0..2 {
        let new = (primary + 1) % 3;
        load.goes_on(300).await;
        let (old_node, new_node) = (sandbox.node(primary), sandbox.node(new));
        demote(old_node).await;
        wait_for(new_node, &old_node.position().unwrap());
        promote(new_node);
        follow(old_node, new_node, true);
        follow(sandbox.node((primary + 2) % 3), new_node, false);
        load.goes_on(300).await;
        cluster::knows(&gateway, 2).await;
        primary = new;
    }
    let failures = load.end(sandbox.node(primary));
    assert_only(&failures, &[1290]);
    // At most what was under way on every session, each time.
    assert!(failures.len() <= 2 * 2 * SESSIONS, "{failures:#?}");
}

/// A primary that is gone without a word: who was in the middle is told, the others wait for the next.
#[tokio::test]
async fn after_a_kill() {
    let sandbox = replicated();
    ledger::prepare(&sandbox);
    sandbox.replicate_safely().unwrap();
    let gateway = cluster::start(cluster::split(&sandbox).cluster(settings()), 2).await;
    let load = Load::start(&gateway, SESSIONS);
    load.goes_on(500).await;
    sandbox.primary().kill9().unwrap();
    // One of the replicas has every transaction that was acknowledged: the one that is further.
    for replica in &sandbox.nodes()[1..] {
        replica.apply_received().unwrap();
    }
    let (new, other) = if !sandbox.node(1).has(&sandbox.node(2).position().unwrap()).unwrap() {
        (2, 1)
    } else {
        (1, 2)
    };
    promote(sandbox.node(new));
    follow(sandbox.node(other), sandbox.node(new), false);
    load.goes_on(500).await;
    let failures = load.end(sandbox.node(new));
    assert_only(&failures, &[1158, 1429]);
    assert!(failures.len() <= 2 * SESSIONS, "{failures:#?}");
}

/// Galera where the server is MariaDB, Group Replication where it is MySQL: the others elect a primary by
/// themselves.
#[tokio::test]
async fn of_a_group_that_finds_it_itself() {
    let (of_group, topology) = match kind() {
        Kind::Mysql => (Kind::GroupReplication, "group-replication"),
        _ => (Kind::Galera, "galera"),
    };
    let sandbox = Sandbox::start(Spec::new(of_group).nodes(3)).unwrap();
    ledger::prepare(&sandbox);
    let setup = e2e::Setup::of_addresses(sandbox.addresses())
        .mode("split")
        .tables(&cluster::user(USER, PASSWORD))
        .cluster(&format!("topology = {topology:?}\n{}", settings()))
        .cluster(&cluster::monitor())
        .check(cluster::PATIENT_CHECKS);
    let gateway = cluster::start(setup, 2).await;
    let load = Load::start(&gateway, SESSIONS);
    load.goes_on(300).await;
    let primary_of = || {
        sandbox.nodes().iter().position(|node| {
            let name = format!("127.0.0.1:{}", node.port());
            gateway.metric(
                "forebay_server_role",
                &[&format!("server=\"{name}\""), "role=\"primary\""],
            ) == 1.0
        })
    };
    let old = primary_of().expect("a primary");
    sandbox.node(old).kill9().unwrap();
    load.goes_on(300).await;
    let mut new = None;
    eventually("another is the primary", async || {
        new = primary_of().filter(|new| *new != old);
        new.is_some()
    })
    .await;
    let failures = load.end(sandbox.node(new.unwrap()));
    assert_only(&failures, &[1158, 1429]);
    assert!(failures.len() <= 3 * SESSIONS, "{failures:#?}");
    tokio::time::timeout(Duration::from_secs(60), cluster::knows(&gateway, 1))
        .await
        .unwrap();
}

#[track_caller]
fn assert_only(failures: &[Failure], codes: &[u16]) {
    for failure in failures {
        // A session whose place in the protocol has none for an error ends without one; a transaction's end
        // tells.
        let is_right = failure.code.is_none_or(|code| codes.contains(&code));
        assert!(is_right, "{failure:?}");
    }
}
