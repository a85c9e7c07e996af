//! In mode `session`, a primary that takes no writes any more is left for the one that does; but not where
//! sessions are spread over replicas as well.

use e2e::{Gateway, Setup, client, eventually, kind};
use sandbox::{Kind, Node, Sandbox};

use crate::a_new_primary_is_followed::{follow, promote};
use crate::a_server_that_says_so_is_left::{Busy, is_draining, is_left, session_on, sessions_on, setup};
use crate::cluster;

pub(crate) const WHY: &str = "read_only = ON, and it took writes before";

fn demote(node: &Node) {
    let statement = match kind() {
        Kind::Mysql => "SET GLOBAL super_read_only = ON",
        _ => "SET GLOBAL read_only = ON",
    };
    node.sql(statement).unwrap();
}

/// A planned switchover, as operators do it.
fn switch_over(sandbox: &Sandbox, from: &Node, to: &Node) {
    demote(from);
    sandbox.sync().unwrap();
    promote(to);
    follow(sandbox.node(2), to, false);
    follow(from, to, true);
}

pub(crate) async fn is_primary(gateway: &Gateway, node: &Node) {
    let server = format!("server={:?}", node.address());
    eventually("it is known as the primary", async || {
        gateway.metric("forebay_server_role", &[&server, "role=\"primary\""]) == 1.0
    })
    .await;
}

/// Mode `session`, in which all servers but the primary are backups.
pub(crate) fn with_backups(sandbox: &Sandbox) -> Setup {
    let servers = sandbox.nodes().iter().map(|node| {
        let (address, backup) = (node.address(), node.index() > 0);
        format!("{{ address = {address:?}, backup = {backup} }}")
    });
    setup(sandbox, "replication").servers(servers)
}

#[tokio::test]
async fn for_the_backup_that_takes_them() {
    let sandbox = cluster::replicated();
    let (old, new) = (sandbox.node(0), sandbox.node(1));
    let gateway = with_backups(&sandbox).start();
    is_primary(&gateway, old).await;
    let mut silent = session_on(&gateway, old).await;
    let busy = Busy::on(&gateway, old).await;

    switch_over(&sandbox, old, new);
    is_left(&gateway, old, WHY).await;
    busy.end().await;
    assert_eq!(client::server_port(&mut silent).await, new.port());
    for _ in 0..4 {
        let mut later = client::connect(&gateway).await;
        assert_eq!(
            client::server_port(&mut later).await,
            new.port(),
            "no other backup"
        );
    }

    switch_over(&sandbox, new, old);
    eventually("the session is back where the writes are", async || {
        sessions_on(&gateway, old) == 1.0 && !is_draining(&gateway, old)
    })
    .await;
    assert_eq!(client::server_port(&mut silent).await, old.port());
}

#[tokio::test]
async fn but_not_by_sessions_that_may_be_meant_for_a_replica() {
    let sandbox = cluster::replicated();
    let (old, new) = (sandbox.node(0), sandbox.node(1));
    let gateway = setup(&sandbox, "replication").start();
    is_primary(&gateway, old).await;
    let mut stays = session_on(&gateway, old).await;
    switch_over(&sandbox, old, new);
    is_primary(&gateway, new).await;
    let looks = || gateway.metric("forebay_looks_total", &[&format!("server={:?}", old.address())]);
    let before = looks();
    eventually("it has been looked at some more times", async || {
        looks() > before + 4.0
    })
    .await;
    assert!(!is_draining(&gateway, old));
    assert_eq!(client::server_port(&mut stays).await, old.port());
    session_on(&gateway, old).await;
}
