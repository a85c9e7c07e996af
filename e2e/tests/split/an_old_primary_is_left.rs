//! Sessions in a transaction on a primary that is replaced, in order: it takes no more writes, and runs
//! on. Those that are bound to its connection are with the tests of the data plane, of the same name.

use e2e::{Gateway, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use sandbox::{Kind, Lent, Node, Sandbox};

use crate::a_new_primary_is_followed::{follow, promote};
use crate::cluster::{self, ask};

const SCHEMA: &str = "left_behind";

async fn gateway() -> (Lent, Gateway) {
    let sandbox = cluster::replicated();
    let table = "CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)";
    cluster::schema(&sandbox, SCHEMA, table);
    let setup = cluster::split(&sandbox).cluster("failover_wait = \"50s\"");
    let gateway = cluster::start(setup, 2).await;
    (sandbox, gateway)
}

async fn session(gateway: &Gateway, statements: &[&str]) -> Conn {
    let mut session = cluster::connect_to(gateway, SCHEMA).await;
    for statement in statements {
        session.query_drop(*statement).await.unwrap();
    }
    session
}

/// The second server becomes the primary. The first takes no writes of those who have no right to write even
/// so.
async fn switch_over(sandbox: &Sandbox, gateway: &Gateway) {
    sandbox.node(0).sql("SET GLOBAL read_only = ON").unwrap();
    sandbox.sync().unwrap();
    promote(sandbox.node(1));
    follow(sandbox.node(2), sandbox.node(1), false);
    is_primary(gateway, sandbox.node(1)).await;
}

async fn is_primary(gateway: &Gateway, node: &Node) {
    let server = format!("server=\"{}\"", node.address());
    eventually("the new primary is known", async || {
        gateway.metric("forebay_server_role", &[&server, "role=\"primary\""]) == 1.0
    })
    .await;
}

/// The session ends, with an error that says why.
#[track_caller]
fn assert_told(said: Result<(), Error>, old: &Node, reason: &str) {
    let Err(Error::Server(error)) = said else {
        panic!("the session goes on: {said:?}");
    };
    assert_eq!((error.code, error.state.as_str()), (1158, "08S01"), "{error}");
    for part in [&old.address(), reason, "no longer the primary", "not executed"] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
}

/// The same, and the first takes no writes of anybody.
async fn switch_over_in_full(sandbox: &Sandbox, gateway: &Gateway) {
    switch_over(sandbox, gateway).await;
    if kind() == Kind::Mysql {
        sandbox.node(0).sql("SET GLOBAL super_read_only = ON").unwrap();
    }
}

/// Clients that do not heed errors: what they begin next is begun on the new primary.
#[tokio::test]
async fn by_those_who_begin_again() {
    let (sandbox, gateway) = gateway().await;
    let mut begins = session(&gateway, &["BEGIN", "SELECT v FROM t"]).await;
    let mut unasked = session(&gateway, &["BEGIN", "SELECT v FROM t"]).await;
    let mut loses = session(&gateway, &["BEGIN", "INSERT INTO t VALUES (5, 5)"]).await;
    let mut writes = session(&gateway, &["SET autocommit = 0", "SELECT v FROM t"]).await;
    let mut bound = session(&gateway, &["SET @x = 1", "BEGIN", "SELECT v FROM t"]).await;
    switch_over_in_full(&sandbox, &gateway).await;
    let old = sandbox.node(0);

    assert_eq!(ask(&mut begins, "INSERT INTO t VALUES (2, 2)").await, Err(1290));
    for statement in ["BEGIN", "INSERT INTO t VALUES (2, 2)", "COMMIT"] {
        begins.query_drop(statement).await.unwrap();
    }
    // Without an error before it.
    for statement in ["START TRANSACTION", "UPDATE t SET v = 3 WHERE id = 2", "COMMIT"] {
        unasked.query_drop(statement).await.unwrap();
    }
    // What would be committed by it is refused, and rolled back.
    assert_eq!(ask(&mut loses, "BEGIN").await, Err(1290));
    for statement in ["BEGIN", "INSERT INTO t VALUES (6, 6)", "COMMIT"] {
        loses.query_drop(statement).await.unwrap();
    }
    assert_eq!(ask(&mut writes, "INSERT INTO t VALUES (7, 7)").await, Err(1290));
    assert_told(
        writes.query_drop("INSERT INTO t VALUES (7, 7)").await,
        old,
        "transaction",
    );
    assert_eq!(ask(&mut bound, "INSERT INTO t VALUES (8, 8)").await, Err(1290));
    assert_told(bound.query_drop("BEGIN").await, old, "user-variables");
    let rows = sandbox
        .node(1)
        .sql(&format!("SELECT id, v FROM {SCHEMA}.t ORDER BY id"));
    assert_eq!(rows.unwrap().trim(), "1\t1\n2\t3\n6\t6");
}

/// The server has ended a transaction with its error: the next statement is in none.
#[tokio::test]
async fn by_those_whose_commit_was_refused() {
    let (sandbox, gateway) = gateway().await;
    let mut session = session(&gateway, &["BEGIN", "INSERT INTO t VALUES (5, 5)"]).await;
    switch_over_in_full(&sandbox, &gateway).await;
    assert_eq!(ask(&mut session, "COMMIT").await, Err(1290));
    session.query_drop("INSERT INTO t VALUES (6, 6)").await.unwrap();
    let rows = sandbox
        .node(1)
        .sql(&format!("SELECT id FROM {SCHEMA}.t ORDER BY id"));
    assert_eq!(rows.unwrap().trim(), "1\n6");
}
