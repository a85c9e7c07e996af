use std::net::SocketAddr;

use e2e::{Gateway, Setup, client, eventually, kind, servers, servers_with};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::Kind;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// A load balancer in front of the gateway: sends `header` before what its one client sends. Returns its
/// port.
async fn balancer(gateway: &Gateway, header: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let target = gateway.address();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(target).await.unwrap();
        server.write_all(header).await.unwrap();
        // Its end is that of either side, in order or not.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    });
    address.port()
}

const V1: &[u8] = b"PROXY TCP4 198.51.100.7 192.0.2.1 40001 3306\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc6\x33\x64\x07\xc0\0\x02\x01\x9c\x41\x0c\xea";

#[tokio::test]
async fn from_a_load_balancer_to_the_log() {
    let servers = servers(1);
    for header in [V1, V2] {
        let gateway = Setup::in_front_of(&servers)
            .listener("accept_proxy_from = [\"127.0.0.0/8\"]")
            .start();
        let port = balancer(&gateway, header).await;
        let mut session = Conn::new(client::options_at(port)).await.unwrap();
        assert_eq!(session.query_first("SELECT 42").await.unwrap(), Some(42));
        session.disconnect().await.unwrap();
        let logged = async || gateway.log().contains("198.51.100.7:40001");
        eventually("the client's own address is in the log", logged).await;
    }
}

#[tokio::test]
async fn to_the_server() {
    if kind() == Kind::Mysql {
        // MySQL does not know the header: a server that gets one must not be taken for a working one.
        let servers = servers(1);
        let gateway = Setup::in_front_of(&servers)
            .cluster("send_proxy = true")
            .start_unready();
        assert!(Conn::new(client::options(&gateway)).await.is_err());
        return;
    }
    let servers = servers_with(1, &["--proxy-protocol-networks=127.0.0.1"]);
    let gateway = Setup::in_front_of(&servers)
        .listener("accept_proxy_from = [\"127.0.0.1/32\"]")
        .cluster("send_proxy = true")
        .start();
    let port = balancer(&gateway, V2).await;
    let mut session = Conn::new(client::options_at(port)).await.unwrap();
    let user: Option<String> = session.query_first("SELECT USER()").await.unwrap();
    assert_eq!(user.as_deref(), Some("forebay@198.51.100.7"));
}

#[tokio::test]
async fn but_nobody_else_may_send_one() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers)
        .listener("accept_proxy_from = [\"10.0.0.0/8\"]")
        .start();
    let mut session = client::connect(&gateway).await; // without a header, as the rest of the world
    session.ping().await.unwrap();
    for (count, header) in [(1, V1), (2, V2)] {
        let port = balancer(&gateway, header).await;
        assert!(Conn::new(client::options_at(port)).await.is_err());
        eventually("it is counted", async || ended_for_headers(&gateway) == count).await;
        let told = gateway.metric("forebay_errors_total", &["code=\"1835\""]);
        assert_eq!(told as u64, count);
        let named = "from an address that accept_proxy_from does not name";
        eventually("the log names the option", async || {
            gateway.log().matches(named).count() as u64 == count
        })
        .await;
    }
    session.ping().await.unwrap();
}

/// Its client waits for the greeting, and we for the header.
#[tokio::test]
async fn and_whoever_has_to_send_one_is_told_apart_from_who_is_slow_to_log_in() {
    let servers = servers(1);
    let address = servers[0].primary().address();
    for mode in ["session", "split", "tcp"] {
        let setup = Setup::in_front_of(&servers)
            .mode(mode)
            .listener("accept_proxy_from = [\"127.0.0.1/32\"]\nlogin_timeout = \"300ms\"");
        let gateway = match mode {
            "split" => setup
                .servers([format!("{{ address = {address:?}, role = \"primary\" }}")])
                .tables("[[user]]\nname = \"a\"\npassword = \"b\"\n"),
            _ => setup,
        }
        .start_unready();
        assert!(Conn::new(client::options(&gateway)).await.is_err());
        eventually("it is counted", async || ended_for_headers(&gateway) == 1).await;
        eventually("the log names the option", async || {
            gateway.log().contains("accept_proxy_from asks of this address")
        })
        .await;
    }
}

fn ended_for_headers(gateway: &Gateway) -> u64 {
    gateway.metric("forebay_sessions_ended_total", &["reason=\"proxy_header\""]) as u64
}
