//! A server's own limits, and its short absences: sessions wait, or read elsewhere, and see no error.

use std::time::{Duration, Instant};

use e2e::{client, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use sandbox::{Node, Sandbox, Spec};
use tokio::time::timeout;

use crate::accounts::{account, log_in, options, sql};
use crate::cluster::{self, ask, narrow, where_am_i};

/// Nobody has to wait for longer.
const LONG: Duration = Duration::from_secs(30);

fn direct(node: &Node) -> OptsBuilder {
    client::options_at(node.port())
        .max_allowed_packet(Some(1 << 24))
        .wait_timeout(Some(28_800))
}

/// Takes all connections that the server still has; those of health checks, too, which come and go.
async fn fill(node: &Node) -> Vec<Conn> {
    const NO_CHECK_IS_LONGER: Duration = Duration::from_millis(100);
    let mut others = Vec::new();
    let mut full_since = None;
    loop {
        match Conn::new(direct(node)).await {
            Ok(other) => {
                others.push(other);
                full_since = None;
            }
            Err(error) => {
                assert_eq!(client::code(&error), 1040, "{error}");
                if full_since.get_or_insert_with(Instant::now).elapsed() > NO_CHECK_IS_LONGER {
                    return others;
                }
            }
        }
    }
}

#[tokio::test]
async fn the_only_server_is_waited_for() {
    let sandbox = Sandbox::start(Spec::new(kind()).option("--max-connections=20")).unwrap();
    let node = sandbox.primary();
    sql(
        &sandbox,
        "CREATE TABLE test.locked (n INT PRIMARY KEY); INSERT INTO test.locked VALUES (7)",
    );
    let gateway = narrow(&sandbox, 4)
        .cluster("failover_wait = \"60s\"\nqueue_timeout = \"60s\"\npool.idle_timeout = \"100ms\"")
        .start();

    // A read that is lost with it is sent again when it is back.
    let mut locker = Conn::new(direct(node)).await.unwrap();
    locker.query_drop("LOCK TABLES locked WRITE").await.unwrap();
    let mut session = cluster::connect(&gateway).await;
    let reading = tokio::spawn(async move { ask(&mut session, "SELECT n FROM locked").await });
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT n FROM locked'";
    eventually("it waits for the lock", async || {
        node.sql(waiting).unwrap().trim() == "1"
    })
    .await;
    node.kill9().unwrap();
    node.restart().unwrap();
    let read = timeout(LONG, reading).await.unwrap().unwrap();
    assert_eq!(read, Ok(Some("7".to_owned())));

    // A login waits for room where others have taken it all.
    eventually("it has no connection", async || {
        gateway.metric("forebay_pool_idle", &[]) == 0.0
    })
    .await;
    let others = fill(node).await;
    let waiting = tokio::spawn({
        let options = cluster::options(&gateway);
        async move { Conn::new(options).await.map(drop) }
    });
    // A check that ends may leave room for one.
    eventually("it waits", async || {
        gateway.metric("forebay_pool_waiting", &[]) == 1.0 || waiting.is_finished()
    })
    .await;
    drop(others);
    timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn reads_go_where_there_is_room() {
    let sandbox = Sandbox::start(Spec::new(kind()).nodes(3).option("--max-connections=20")).unwrap();
    cluster::tell_ports(&sandbox);
    let setup = cluster::split(&sandbox).cluster("queue_timeout = \"60s\"\nslow_start = \"1h\"");
    let gateway = cluster::start(setup, 2).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(cluster::connect(&gateway).await);
    }
    let ports: Vec<u16> = sandbox.nodes().iter().map(Node::port).collect();
    let begun = Instant::now();
    let mut others = Vec::new();
    // One replica after the other. A check that ends may leave room for one.
    let mut seen = Vec::new();
    for full in 1..3 {
        others.push(fill(sandbox.node(full)).await);
        for session in &mut sessions {
            for _ in 0..10 {
                seen.push(where_am_i(session).await);
            }
        }
        assert!(seen.contains(&ports[2]), "{seen:?} of {ports:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "nobody waits");
    drop(others);
    for port in &ports[1..] {
        eventually("both are used again", async || {
            where_am_i(&mut sessions[0]).await == *port
        })
        .await;
    }

    // One that has come back gets its full share after an hour.
    let node = sandbox.node(2);
    node.kill9().unwrap();
    eventually("it is down", async || gateway.servers_up() == 2).await;
    node.restart().unwrap();
    eventually("it is up", async || gateway.servers_up() == 3).await;
    cluster::knows(&gateway, 2).await;
    for _ in 0..20 {
        assert_eq!(where_am_i(&mut sessions[0]).await, ports[1]);
    }
}

/// Accounts come to replicas a little late.
#[tokio::test]
async fn a_replica_that_does_not_know_the_account_is_passed_over() {
    let sandbox = cluster::shared();
    sql(
        sandbox,
        "SET sql_log_bin = 0; CREATE USER new_here@'%' IDENTIFIED BY 'hunter2'; GRANT ALL ON test.* TO new_here@'%'",
    );
    let setup = cluster::split(sandbox).tables(&cluster::user("new_here", "hunter2"));
    let gateway = cluster::start(setup, 2).await;
    let mut session = log_in(&gateway, "new_here", "hunter2").await.unwrap();
    for _ in 0..4 {
        assert_eq!(where_am_i(&mut session).await, sandbox.primary().port());
    }
}

/// Some of them on connections that others of the same account cannot use as they are, and on two workers.
#[tokio::test]
async fn an_account_that_may_have_few_connections_is_shared_by_many_sessions() {
    let sandbox = cluster::single();
    account(sandbox, "narrowed");
    sql(sandbox, "ALTER USER narrowed@'%' WITH MAX_USER_CONNECTIONS 3");
    let gateway = cluster::narrow_over(sandbox, 100, 2)
        .cluster("queue_timeout = \"60s\"")
        .tables(&cluster::user("narrowed", "hunter2"))
        .start();
    let mut all = Vec::new();
    for index in 0..12 {
        let options = options(&gateway, "narrowed", "hunter2").client_found_rows(index % 2 == 0);
        all.push(tokio::spawn(async move {
            let mut session = Conn::new(options).await.unwrap();
            for _ in 0..20 {
                session.query_drop("DO SLEEP(0.002)").await.unwrap();
            }
        }));
    }
    for session in all {
        timeout(LONG, session).await.unwrap().unwrap();
    }

    // What the server says is what the client is told, where nothing comes free.
    let impatient = cluster::narrow_over(sandbox, 100, 1)
        .cluster("queue_timeout = \"3s\"")
        .tables(&cluster::user("narrowed", "hunter2"));
    drop(gateway);
    let left = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'narrowed'";
    eventually("the server knows that it is gone", async || {
        sandbox.primary().sql(left).unwrap().trim() == "0"
    })
    .await;
    let gateway = impatient.start();
    let mut holders = Vec::new();
    for _ in 0..3 {
        let mut holder = log_in(&gateway, "narrowed", "hunter2").await.unwrap();
        holder.query_drop("BEGIN").await.unwrap();
        holders.push(holder);
    }
    let error = log_in(&gateway, "narrowed", "hunter2").await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
    assert!(error.to_string().contains("max_user_connections"), "{error}");
}
