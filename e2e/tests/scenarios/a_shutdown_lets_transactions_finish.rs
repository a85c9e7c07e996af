use std::time::{Duration, Instant};

use e2e::{Setup, client, eventually, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

#[tokio::test]
async fn and_then_ends_with_status_0() {
    let servers = servers(1);
    let mut gateway = Setup::in_front_of(&servers).top("watch = true").start();
    let mut idle = client::connect(&gateway).await;
    let mut busy = client::connect(&gateway).await;
    busy.query_drop("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB")
        .await
        .unwrap();
    busy.query_drop("START TRANSACTION").await.unwrap();
    busy.query_drop("INSERT INTO t VALUES (1)").await.unwrap();

    gateway.terminate();
    eventually("it says that it is not ready", async || {
        gateway.get("/readyz").0 == 503
    })
    .await;
    // It says so a moment before its workers hear of it.
    eventually("new sessions are not taken", async || {
        Conn::new(client::options(&gateway)).await.is_err()
    })
    .await;
    eventually("an idle session has ended", async || {
        idle.query_drop("SELECT 1").await.is_err()
    })
    .await;
    assert!(gateway.is_running());
    // Nothing of a new configuration could be taken up, right or wrong: that is no failure.
    gateway.write_config(Setup::in_front_of(&servers).top("watch = true\nmax_connections = \"many\""));
    eventually("the gateway has seen the file", async || {
        gateway
            .log()
            .contains("configuration not read again: shutting down")
    })
    .await;
    let failed = gateway.metric("forebay_config_reloads_total", &["result=\"failed\""]);
    assert_eq!(failed, 0.0, "{}", gateway.log());

    busy.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    busy.query_drop("COMMIT").await.unwrap();
    assert!(gateway.exit().await.success(), "{}", gateway.log());
    assert_eq!(servers[0].primary().sql("SELECT COUNT(*) FROM t").unwrap(), "2\n");
}

/// Balancers that ask whether it is ready need a while until they send nobody any more.
#[tokio::test]
async fn and_takes_sessions_until_balancers_have_noticed() {
    let servers = servers(1);
    let delayed = |delay: &str| Setup::in_front_of(&servers).top(&format!("shutdown_delay = {delay:?}"));
    let mut gateway = delayed("10m").start();
    gateway.terminate();
    eventually("it says that it is not ready", async || {
        gateway.get("/readyz") == (503, "shutting down\n".to_owned())
    })
    .await;
    eventually("its metrics say so, a moment later", async || {
        gateway.metric("forebay_shutting_down", &[]) == 1.0
    })
    .await;
    let mut late = client::connect(&gateway).await;
    late.query_drop("START TRANSACTION").await.unwrap();
    late.query_drop("SELECT 1").await.unwrap();
    assert!(gateway.is_running());
    // The next signal ends this wait, and not what sessions do.
    gateway.terminate();
    eventually("new sessions are not taken", async || {
        Conn::new(client::options(&gateway)).await.is_err()
    })
    .await;
    late.query_drop("COMMIT").await.unwrap();
    assert!(gateway.exit().await.success(), "{}", gateway.log());

    let mut gateway = delayed("100ms").start();
    gateway.terminate();
    assert!(gateway.exit().await.success(), "{}", gateway.log());
}

#[tokio::test]
async fn but_not_longer_than_the_timeout() {
    let servers = servers(1);
    let mut gateway = Setup::in_front_of(&servers)
        .top("shutdown_timeout = \"1s\"")
        .start();
    let mut busy = client::connect(&gateway).await;
    busy.query_drop("START TRANSACTION").await.unwrap();
    let begin = Instant::now();
    gateway.terminate();
    gateway.exit().await;
    assert!(
        begin.elapsed() >= Duration::from_millis(900),
        "the session had its second: {:?}",
        begin.elapsed()
    );
    assert!(busy.query_drop("SELECT 1").await.is_err());
}

#[tokio::test]
async fn nor_after_a_second_signal() {
    let servers = servers(1);
    let mut gateway = Setup::in_front_of(&servers)
        .top("shutdown_timeout = \"10m\"")
        .start();
    let mut busy = client::connect(&gateway).await;
    busy.query_drop("START TRANSACTION").await.unwrap();
    gateway.terminate();
    eventually("it says that it is not ready", async || {
        gateway.get("/readyz").0 == 503
    })
    .await;
    gateway.terminate();
    gateway.exit().await;
}
