//! Sessions that are bound to a connection of a primary that is replaced, in order: it takes no more writes,
//! and runs on. What their account may do on it even so is not done.

use e2e::{Gateway, client, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use sandbox::{Kind, Node, PASSWORD, Sandbox};

use crate::a_new_primary_is_followed::{follow, promote};
use crate::cluster::{self, ask};

const SCHEMA: &str = "left_behind";

/// An account whose sessions keep their connections.
const KEEPS: &str = "keeps";

async fn gateway() -> (Sandbox, Gateway) {
    let sandbox = cluster::replicated();
    let keeps = format!(
        "CREATE USER {KEEPS}@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO {KEEPS}@'%';
         CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)"
    );
    cluster::schema(&sandbox, SCHEMA, &keeps);
    let setup = cluster::split(&sandbox)
        .cluster("failover_wait = \"50s\"")
        .tables(&format!(
            "{}pooling = \"session\"\n",
            cluster::user(KEEPS, PASSWORD)
        ));
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
pub(crate) async fn switch_over(sandbox: &Sandbox, gateway: &Gateway) {
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

#[tokio::test]
async fn by_those_who_cannot_move() {
    let (sandbox, gateway) = gateway().await;
    let old = sandbox.node(0);
    let mut writes = session(&gateway, &["SET @x = 1"]).await;
    let mut reads = session(&gateway, &["CREATE TEMPORARY TABLE own (n INT)"]).await;
    let mut begins = session(&gateway, &["SET @x = 1"]).await;
    let mut executes = session(&gateway, &["SET @x = 1"]).await;
    let prepared = executes.prep("UPDATE t SET v = 9 WHERE id = ?").await.unwrap();
    let mut pings = session(&gateway, &["SELECT GET_LOCK('held', 0)"]).await;
    let options = cluster::options(&gateway).user(Some(KEEPS)).db_name(Some(SCHEMA));
    let mut keeps = Conn::new(options).await.unwrap();
    keeps.query_drop("SELECT COUNT(*) FROM t").await.unwrap();
    let mut resets = session(&gateway, &["SET @x = 1"]).await;
    switch_over(&sandbox, &gateway).await;
    sandbox
        .node(1)
        .sql(&format!("UPDATE {SCHEMA}.t SET v = 2"))
        .unwrap();

    assert_told(
        writes.query_drop("INSERT INTO t VALUES (2, 2)").await,
        old,
        "user-variables",
    );
    assert_told(reads.query_drop("SELECT v FROM t").await, old, "temporary-table");
    assert_told(begins.query_drop("BEGIN").await, old, "user-variables");
    assert_told(executes.exec_drop(&prepared, (1,)).await, old, "user-variables");
    assert_told(pings.ping().await, old, "user-lock");
    assert_told(keeps.query_drop("SELECT v FROM t").await, old, "session-pooling");
    assert!(
        matches!(
            writes.query_drop("DO 1").await,
            Err(Error::Io(_) | Error::Driver(_))
        ),
        "it has ended"
    );
    // What bound it is gone.
    resets.reset().await.unwrap();
    resets.query_drop("USE left_behind").await.unwrap();
    resets.query_drop("INSERT INTO t VALUES (3, 3)").await.unwrap();
    let rows = |node: &Node| {
        node.sql(&format!("SELECT id, v FROM {SCHEMA}.t ORDER BY id"))
            .unwrap()
    };
    assert_eq!(
        (rows(old).as_str().trim(), rows(sandbox.node(1)).as_str().trim()),
        ("1\t1", "1\t2\n3\t3")
    );
}

#[tokio::test]
async fn after_the_transaction_that_is_open() {
    let (sandbox, gateway) = gateway().await;
    let mut free = session(&gateway, &["BEGIN", "SELECT v FROM t"]).await;
    let mut bound = session(&gateway, &["SET @x = 1", "BEGIN", "SELECT v FROM t"]).await;
    let mut chained = session(&gateway, &["SET @x = 1, autocommit = 0", "SELECT v FROM t"]).await;
    switch_over(&sandbox, &gateway).await;
    let old = sandbox.node(0);
    sandbox
        .node(1)
        .sql(&format!("UPDATE {SCHEMA}.t SET v = 2"))
        .unwrap();
    for session in [&mut free, &mut bound, &mut chained] {
        let seen = ask(session, "SELECT v FROM t").await;
        assert_eq!(seen, Ok(Some("1".to_owned())), "of one snapshot");
        session.query_drop("ROLLBACK").await.unwrap();
    }
    assert_told(bound.query_drop("SELECT v FROM t").await, old, "user-variables");
    assert_told(
        chained.query_drop("UPDATE t SET v = 3").await,
        old,
        "user-variables",
    );
    free.query_drop("INSERT INTO t VALUES (2, 2)").await.unwrap();
    let seen = ask(&mut free, "SELECT v FROM t WHERE id = 1").await;
    assert_eq!(seen, Ok(Some("2".to_owned())));
}

/// The other way round: whoever is bound to a replica may write there once it is the primary.
#[tokio::test]
async fn for_one_that_some_are_bound_to() {
    let (sandbox, gateway) = gateway().await;
    let lock = format!(
        "/* forebay: server={} */ SELECT GET_LOCK('there', 0)",
        sandbox.node(1).address()
    );
    let mut bound = session(&gateway, &[&lock]).await;
    assert_eq!(ask(&mut bound, "INSERT INTO t VALUES (2, 2)").await, Err(1290));
    switch_over(&sandbox, &gateway).await;
    bound.query_drop("INSERT INTO t VALUES (2, 2)").await.unwrap();
    assert_eq!(ask(&mut bound, "DO RELEASE_ALL_LOCKS()").await, Ok(None));
}

/// Two that take writes: sessions that are bound to one of them write no more than others.
#[tokio::test]
async fn by_nobody_for_one_of_two() {
    let (sandbox, gateway) = gateway().await;
    let mut bound = session(&gateway, &["SET @x = 1"]).await;
    promote(sandbox.node(1));
    follow(sandbox.node(2), sandbox.node(1), false);
    eventually("writes are refused", async || {
        gateway.metric("forebay_writes_refused", &[]) == 1.0
    })
    .await;
    let error = bound.query_drop("INSERT INTO t VALUES (2, 2)").await.unwrap_err();
    assert_eq!(client::code(&error), 1290, "{error}");
    assert!(error.to_string().contains("writes are refused"), "{error}");
    sandbox.node(1).sql("SET GLOBAL read_only = ON").unwrap();
    is_primary(&gateway, sandbox.node(0)).await;
    bound.query_drop("INSERT INTO t VALUES (2, 2)").await.unwrap();
    assert_eq!(ask(&mut bound, "SELECT @x").await, Ok(Some("1".to_owned())));
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
