use e2e::{Setup, client, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

#[tokio::test]
async fn on_the_loopback_address() {
    // A kernel without IPv6 cannot run this; that must show.
    std::net::TcpListener::bind("[::1]:0").expect("this machine has IPv6 on its loopback interface");
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).ipv6().start();
    let options = client::options(&gateway).ip_or_hostname("::1");
    let mut session = Conn::new(options).await.unwrap();
    assert_eq!(session.query_first("SELECT 42").await.unwrap(), Some(42));
}
