//! Connections have the congestion control that is chosen for them, at both ends that are ours.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use config::{BindAddress, Cluster, Congestion, Listener as Options};
use net::{Listener, Stream};
use socket2::SockRef;

/// What the kernel says of a connection.
fn of(socket: impl AsFd) -> String {
    let name = SockRef::from(&socket).tcp_congestion().unwrap();
    String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
}

/// What a connection has for which nobody has chosen.
fn systems() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    of(TcpStream::connect(listener.local_addr().unwrap()).unwrap())
}

/// One that the kernel has and that is not the system's, so that it shows.
fn another() -> String {
    let systems = systems();
    // Those that everybody may set, and those that root may.
    let lists =
        ["allowed", "available"].map(|which| format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control"));
    let names =
        lists.map(|file| std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}")));
    let other = names
        .iter()
        .flat_map(|names| names.split_whitespace())
        .find(|name| *name != systems);
    other
        .unwrap_or_else(|| {
            panic!("the kernel has {systems} alone, and these tests need one more: `modprobe tcp_cubic` loads one, as root")
        })
        .to_owned()
}

/// `auto` where the system's paces, whatever it is here.
const SPARING: Congestion = Congestion::Auto { spares_local: true };
const AUTO: Congestion = Congestion::Auto { spares_local: false };

fn listens(bind: &str, congestion: &Congestion) -> Listener {
    let address = BindAddress::Tcp(bind.parse().unwrap());
    Listener::bind(&Options {
        congestion: congestion.clone(),
        ..Options::new(address, "main")
    })
    .unwrap_or_else(|error| {
        panic!("{bind}: {error}; for [::] the kernel needs IPv6 (no `ipv6.disable=1` at its start)")
    })
}

fn port(listener: &Listener) -> u16 {
    listener.local_addr().unwrap().socket_addr().unwrap().port()
}

async fn accepted(listener: &Listener, ip: impl Into<IpAddr>) -> String {
    let _client = TcpStream::connect((ip.into(), port(listener))).unwrap();
    of(listener.accept().await.unwrap())
}

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// An address of this machine beside the loopback interface's, where there is one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip())
}

#[tokio::test]
async fn accepted_ones_by_name_or_by_the_system() {
    for bind in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        let named = listens(bind, &Congestion::Named(another()));
        assert_eq!(accepted(&named, LOOPBACK).await, another(), "{bind}");
        for choice in [Congestion::System, AUTO] {
            assert_eq!(
                accepted(&listens(bind, &choice), LOOPBACK).await,
                systems(),
                "{bind}"
            );
        }
    }
}

#[tokio::test]
async fn accepted_ones_that_stay_here() {
    for bind in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        assert_eq!(
            accepted(&listens(bind, &SPARING), LOOPBACK).await,
            "reno",
            "{bind}"
        );
    }
    let Some(own) = own_address() else { return };
    for bind in [
        SocketAddr::new(own, 0).to_string(),
        "0.0.0.0:0".to_owned(),
        "[::]:0".to_owned(),
    ] {
        assert_eq!(accepted(&listens(&bind, &SPARING), own).await, "reno", "{bind}");
    }
}

#[tokio::test]
async fn accepted_ones_as_a_reload_says() {
    let listener = listens("0.0.0.0:0", &AUTO);
    let mut seen = Vec::new();
    let named = Congestion::Named(another());
    for choice in [&named, &Congestion::System, &SPARING, &AUTO, &named, &AUTO] {
        listener.set_congestion(choice);
        seen.push(accepted(&listener, LOOPBACK).await);
    }
    let (named, systems) = (another(), systems());
    let expected = [&named, &systems, "reno", &systems, &named, &systems];
    assert_eq!(seen, expected);
}

async fn connected(address: SocketAddr, congestion: &Congestion) -> String {
    let cluster = Cluster {
        congestion: congestion.clone(),
        ..Cluster::new("main", Vec::new())
    };
    let stream = Stream::connect_server(address, &cluster).await.unwrap();
    let Stream::Tcp(socket) = &stream else {
        panic!("not TCP")
    };
    let options = SockRef::from(&**socket);
    assert!(options.tcp_nodelay().unwrap() && options.keepalive().unwrap());
    of(&**socket)
}

#[tokio::test]
async fn those_to_servers() {
    let mut addresses = vec![IpAddr::from(LOOPBACK)];
    addresses.extend(own_address());
    for ip in addresses {
        let server = TcpListener::bind((ip, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let named = Congestion::Named(another());
        assert_eq!(connected(address, &named).await, another(), "{ip}");
        assert_eq!(connected(address, &SPARING).await, "reno", "{ip}");
        assert_eq!(connected(address, &AUTO).await, systems(), "{ip}");
        assert_eq!(connected(address, &Congestion::System).await, systems(), "{ip}");
    }
}

#[tokio::test]
async fn the_system_s_where_the_kernel_refuses_another() {
    let unknown = Congestion::Named("nobody_has_it".to_owned());
    let listener = listens("127.0.0.1:0", &unknown);
    assert_eq!(accepted(&listener, LOOPBACK).await, systems());
    listener.set_congestion(&Congestion::Named(another()));
    listener.set_congestion(&unknown);
    assert_eq!(accepted(&listener, LOOPBACK).await, systems());
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(connected(server.local_addr().unwrap(), &unknown).await, systems());
}
