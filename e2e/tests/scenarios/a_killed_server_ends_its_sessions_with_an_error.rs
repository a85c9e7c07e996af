use e2e::{Setup, client, eventually, server_at, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

const SLEEP: &str = "SELECT SLEEP(120)";

#[tokio::test]
async fn and_new_ones_go_elsewhere() {
    let servers = servers(2);
    let gateway = Setup::in_front_of(&servers).start();
    let mut busy = client::connect(&gateway).await;
    let port = client::server_port(&mut busy).await;
    let (victim, survivor) = (server_at(&servers, port), other(&servers, port));
    let mut elsewhere = client::connect(&gateway).await;
    assert_eq!(client::server_port(&mut elsewhere).await, survivor.port());

    let waiting = tokio::spawn(async move { busy.query_drop(SLEEP).await });
    eventually("the statement runs", async || {
        let running =
            victim.sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(120)%'");
        running.unwrap().trim() != "1" // the question finds itself, too
    })
    .await;
    victim.kill9().unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(client::code(&error), 1158, "{error}");

    // The others did not notice, and nobody is sent to the dead one.
    elsewhere.query_drop("SELECT 1").await.unwrap();
    for _ in 0..4 {
        assert_eq!(
            client::server_port(&mut client::connect(&gateway).await).await,
            survivor.port()
        );
    }
    victim.restart().unwrap();
    eventually("the server that came back gets sessions again", async || {
        let mut session: Conn = client::connect(&gateway).await;
        let port = client::server_port(&mut session).await;
        session.disconnect().await.unwrap();
        port == victim.port()
    })
    .await;
}

fn other(servers: &[sandbox::Lent], port: u16) -> &sandbox::Node {
    servers
        .iter()
        .map(|server| server.primary())
        .find(|node| node.port() != port)
        .unwrap()
}
