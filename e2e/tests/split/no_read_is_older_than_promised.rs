//! What a read must see is asked of the right server, and is there on the server that answers.

use e2e::{Setup, kind};
use mysql_async::prelude::Queryable;
use sandbox::{Kind, PASSWORD, Sandbox, Spec, USER};

use crate::cluster::{self, ask};

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
        .cluster(&cluster::monitor());
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
