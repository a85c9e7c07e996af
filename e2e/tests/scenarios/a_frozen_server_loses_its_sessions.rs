use e2e::{Setup, client, eventually, server_at, servers};
use mysql_async::prelude::Queryable;

#[tokio::test]
async fn after_its_checks_failed() {
    let servers = servers(2);
    let gateway = Setup::in_front_of(&servers).start();
    let mut session = client::connect(&gateway).await;
    let frozen = server_at(&servers, client::server_port(&mut session).await);
    frozen.freeze().unwrap();

    let error = session.query_drop("SELECT 1").await.unwrap_err();
    assert_eq!(client::code(&error), 1158, "{error}");
    for _ in 0..4 {
        assert_ne!(
            client::server_port(&mut client::connect(&gateway).await).await,
            frozen.port()
        );
    }
    frozen.thaw().unwrap();
    eventually("the thawed server gets sessions again", async || {
        client::server_port(&mut client::connect(&gateway).await).await == frozen.port()
    })
    .await;
}

#[tokio::test]
async fn or_keeps_them_where_the_cluster_says_so() {
    let servers = servers(2);
    let gateway = Setup::in_front_of(&servers).cluster("on_down = \"keep\"").start();
    let mut session = client::connect(&gateway).await;
    let frozen = server_at(&servers, client::server_port(&mut session).await);
    frozen.freeze().unwrap();
    let label = format!("server={:?}", frozen.address());
    eventually("the frozen server is seen to be down", async || {
        gateway.metric("forebay_server_state", &[&label, "state=\"down\""]) == 1.0
    })
    .await;
    frozen.thaw().unwrap();
    assert_eq!(client::server_port(&mut session).await, frozen.port());
}
