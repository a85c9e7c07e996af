use e2e::{Setup, client, eventually, servers};
use mysql_async::Conn;
use sandbox::free_port;

#[tokio::test]
async fn when_there_never_was_one() {
    let addresses = (0..2).map(|_| format!("127.0.0.1:{}", free_port().unwrap()));
    let gateway = Setup::of_addresses(addresses).start_unready();
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
    assert_eq!(gateway.get("/readyz").0, 503);
    assert_eq!(gateway.get("/healthz").0, 200, "the gateway itself is well");
}

#[tokio::test]
async fn when_the_last_one_went_and_until_it_is_back() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    servers[0].primary().kill9().unwrap();
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
    servers[0].primary().restart().unwrap();
    eventually("it serves again", async || {
        Conn::new(client::options(&gateway)).await.is_ok()
    })
    .await;
}
