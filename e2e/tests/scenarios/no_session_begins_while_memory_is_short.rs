//! A gateway that has nearly all of its memory refuses new clients, says so, and leaves the others alone.

use e2e::{Setup, client, eventually, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

#[tokio::test]
async fn sessions_go_on_and_logins_wait() {
    let servers = servers(1);
    let with = |max: &str| Setup::in_front_of(&servers).top(max);
    let mut gateway = with("").start();
    let mut established = client::connect(&gateway).await;
    let used = gateway.metric("process_resident_memory_bytes", &[]);
    // It may give some of it back meanwhile.
    let max = (used * 0.9) as u64;
    assert!(gateway.reload(with(&format!("memory_max = \"{max}B\""))).await);
    eventually("the gateway is not ready", async || {
        let (status, reasons) = gateway.get("/readyz");
        status == 503 && reasons.contains("short of memory: ")
    })
    .await;
    // What it does last: it is not ready a moment before it refuses anybody.
    eventually("the log says so", async || {
        gateway.log().contains("short of memory: new clients are refused")
    })
    .await;
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 1040, "{error}");
    assert!(
        error.to_string().contains("short of memory (memory_max)"),
        "{error}"
    );
    let one: Option<u32> = established.query_first("SELECT 1").await.unwrap();
    assert_eq!(one, Some(1));
    assert_eq!(gateway.metric("forebay_memory_short", &[]), 1.0);
    assert_eq!(gateway.metric("forebay_memory_max_bytes", &[]), max as f64);
    let ended = ["reason=\"short_of_memory\""];
    assert_eq!(gateway.metric("forebay_sessions_ended_total", &ended), 1.0);
    assert_eq!(gateway.metric("forebay_sessions_rejected_total", &[]), 1.0);

    assert!(gateway.reload(with("memory_max = \"64GiB\"")).await);
    eventually("the gateway is ready again", async || {
        gateway.get("/readyz").0 == 200
    })
    .await;
    eventually("the log says that, too", async || {
        gateway.log().contains("memory is short no longer")
    })
    .await;
    let mut another = client::connect(&gateway).await;
    let two: Option<u32> = another.query_first("SELECT 2").await.unwrap();
    assert_eq!(two, Some(2));
    assert_eq!(gateway.metric("forebay_memory_short", &[]), 0.0);
    let one: Option<u32> = established.query_first("SELECT 1").await.unwrap();
    assert_eq!(one, Some(1));
}
