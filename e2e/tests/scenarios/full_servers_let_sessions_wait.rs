use e2e::{Gateway, Setup, client, eventually, servers};
use mysql_async::Conn;

/// A gateway whose only server takes one session.
fn narrow(servers: &[sandbox::Lent], cluster: &str) -> Gateway {
    let server = format!(
        "{{ address = {:?}, max_connections = 1 }}",
        servers[0].primary().address()
    );
    Setup::in_front_of(servers)
        .servers([server])
        .cluster(cluster)
        .start()
}

#[tokio::test]
async fn until_there_is_room() {
    let servers = servers(1);
    let gateway = narrow(&servers, "queue_timeout = \"60s\"");
    let first = client::connect(&gateway).await;
    let options = client::options(&gateway);
    let waiting = tokio::spawn(Conn::new(options));
    eventually("the second waits", async || {
        gateway.metric("forebay_queue_waiting", &[]) == 1.0
    })
    .await;
    assert!(!waiting.is_finished());
    first.disconnect().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn but_not_longer_than_the_timeout() {
    let servers = servers(1);
    let gateway = narrow(&servers, "queue_timeout = \"300ms\"");
    let _first = client::connect(&gateway).await;
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 1040, "{error}");
    assert_eq!(gateway.metric("forebay_queue_timeouts_total", &[]), 1.0);
}

#[tokio::test]
async fn and_no_more_than_the_queue_holds() {
    let servers = servers(1);
    let gateway = narrow(&servers, "queue_timeout = \"60s\"\nqueue_max = 1");
    let _first = client::connect(&gateway).await;
    let waiting = tokio::spawn(Conn::new(client::options(&gateway)));
    eventually("the second waits", async || {
        gateway.metric("forebay_queue_waiting", &[]) == 1.0
    })
    .await;
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 1040, "{error}");
    waiting.abort();
}
