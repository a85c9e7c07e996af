use e2e::{Setup, client, eventually, servers};
use mysql_async::Conn;

async fn third_is_refused(setup: Setup) {
    let gateway = setup.start();
    let (_first, second) = (client::connect(&gateway).await, client::connect(&gateway).await);
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 1040, "{error}");
    assert_eq!(gateway.metric("forebay_sessions_rejected_total", &[]), 1.0);
    let labels = ["code=\"1040\"", "fault=\"gateway\""];
    assert_eq!(gateway.metric("forebay_errors_total", &labels), 1.0);
    second.disconnect().await.unwrap();
    eventually("there is room again", async || {
        Conn::new(client::options(&gateway)).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn in_all() {
    let servers = servers(1);
    third_is_refused(Setup::in_front_of(&servers).top("max_connections = 2")).await;
}

#[tokio::test]
async fn on_a_listener() {
    let servers = servers(1);
    third_is_refused(Setup::in_front_of(&servers).listener("max_connections = 2")).await;
}
