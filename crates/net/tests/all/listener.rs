//! Listeners give connections that are ready for use, and say what is wrong when they cannot be opened.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use net::{Accepted, Listener, NetError, Peer, Stream};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn address_of(listener: &Listener) -> SocketAddr {
    listener.local_addr().unwrap().socket_addr().unwrap()
}

/// Accepts the connection that `client` is and sends a word each way.
async fn exchange(listener: &Listener, mut client: impl Read + Write) -> Accepted {
    let accepted = listener.accept().await.unwrap();
    let (peer, local) = (accepted.peer(), accepted.local().unwrap());
    let mut stream = Stream::from_accepted(accepted).unwrap();
    assert_eq!((stream.peer().unwrap(), stream.local().unwrap()), (peer, local));
    assert!(!stream.is_encrypted());
    stream.write_all(b"greeting").await.unwrap();
    let mut word = [0; 8];
    client.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"greeting");
    client.write_all(b"login").unwrap();
    let mut word = [0; 5];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"login");
    drop(client);
    assert_eq!(stream.read(&mut word).await.unwrap(), 0);
    // A second one, untouched, for the caller to look at.
    match listener.unix_path() {
        Some(path) => drop(UnixStream::connect(path).unwrap()),
        None => drop(std::net::TcpStream::connect(address_of(listener)).unwrap()),
    }
    listener.accept().await.unwrap()
}

#[tokio::test]
async fn accepts_over_ipv4_with_options_set() {
    let listener = Listener::bind_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let client = std::net::TcpStream::connect(address_of(&listener)).unwrap();
    let name = client.local_addr().unwrap();
    let accepted = exchange(&listener, client).await;
    assert_eq!(accepted.local().unwrap(), listener.local_addr().unwrap());
    assert_ne!(accepted.peer(), Peer::Tcp(name));
    let socket = SockRef::from(&accepted);
    assert!(
        socket.tcp_nodelay().unwrap(),
        "TCP_NODELAY not handed down by the listener"
    );
    assert!(
        socket.keepalive().unwrap(),
        "SO_KEEPALIVE not handed down by the listener"
    );
    assert!(socket.nonblocking().unwrap());
}

#[tokio::test]
async fn accepts_over_ipv6() {
    let listener = Listener::bind_tcp("[::1]:0".parse().unwrap(), 16).unwrap();
    let client = std::net::TcpStream::connect(address_of(&listener)).unwrap();
    let accepted = exchange(&listener, client).await;
    assert!(accepted.peer().socket_addr().unwrap().is_ipv6());
    assert!(SockRef::from(&accepted.as_fd()).tcp_nodelay().unwrap());
}

#[tokio::test]
async fn names_ipv4_clients_of_an_ipv6_listener_by_their_ipv4_address() {
    let listener = Listener::bind_tcp("[::]:0".parse().unwrap(), 16).unwrap();
    let port = address_of(&listener).port();
    let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let accepted = listener.accept().await.unwrap();
    assert_eq!(accepted.peer(), Peer::Tcp(client.local_addr().unwrap()));
    assert_eq!(accepted.local().unwrap(), Peer::Tcp(client.peer_addr().unwrap()));
}

#[tokio::test]
async fn says_that_an_address_is_taken() {
    let first = Listener::bind_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let error = Listener::bind_tcp(address_of(&first), 16)
        .unwrap_err()
        .to_string();
    assert!(error.contains(&address_of(&first).to_string()), "{error}");
    assert!(
        error.contains("another process or another listener uses this address"),
        "{error}"
    );
}

#[tokio::test]
async fn says_that_an_address_is_not_ours() {
    let error = Listener::bind_tcp("192.0.2.1:0".parse().unwrap(), 16)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no interface of this machine has this address"),
        "{error}"
    );
}

#[test]
fn refuses_politely_outside_of_a_runtime() {
    assert!(matches!(
        Listener::bind_tcp("127.0.0.1:0".parse().unwrap(), 16),
        Err(NetError::Bind { .. })
    ));
}

#[tokio::test]
async fn accepts_on_a_unix_socket_and_removes_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gate.sock");
    let listener = Listener::bind_unix(&path, 0o640, 16).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(listener.local_addr().unwrap(), Peer::Unix);
    let accepted = exchange(&listener, UnixStream::connect(&path).unwrap()).await;
    assert_eq!(accepted.peer(), Peer::Unix);
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn replaces_a_socket_file_nobody_listens_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gate.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind_unix(&path, 0o666, 16).unwrap();
    exchange(&listener, UnixStream::connect(&path).unwrap()).await;
}

#[tokio::test]
async fn leaves_a_living_socket_and_other_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let living = folder.path().join("living.sock");
    let other = UnixListener::bind(&living).unwrap();
    assert!(
        matches!(Listener::bind_unix(&living, 0o666, 16), Err(NetError::PathInUse(path)) if path == living)
    );
    other.set_nonblocking(false).unwrap();
    drop(UnixStream::connect(&living).unwrap());

    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(Listener::bind_unix(&file, 0o666, 16), Err(NetError::NotASocket(path)) if path == file));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");

    let error = Listener::bind_unix(Path::new("/nonexistent/x.sock"), 0o666, 16)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the folder of the socket does not exist"),
        "{error}"
    );
    let long = folder.path().join("x".repeat(200));
    assert!(matches!(
        Listener::bind_unix(&long, 0o666, 16),
        Err(NetError::Bind { .. })
    ));
}

#[tokio::test]
async fn does_not_wait_for_a_socket_that_takes_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hung.sock");
    let address = SockAddr::unix(&path).unwrap();
    let socket = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let hung = socket();
    hung.bind(&address).unwrap();
    hung.listen(0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = socket();
        client.set_nonblocking(true).unwrap();
        if client.connect(&address).is_err() {
            break;
        }
        waiting.push(client);
    }
    assert!(matches!(
        Listener::bind_unix(&path, 0o666, 16),
        Err(NetError::PathInUse(in_use)) if in_use == path
    ));
}

#[tokio::test]
async fn does_not_remove_the_file_of_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gate.sock");
    let first = Listener::bind_unix(&path, 0o666, 16).unwrap();
    std::fs::rename(&path, folder.path().join("aside")).unwrap();
    let _second = Listener::bind_unix(&path, 0o666, 16).unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    drop(first);
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);
}

#[tokio::test]
async fn a_cancelled_accept_loses_no_connection() {
    let listener = Listener::bind_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    for _ in 0..20 {
        let client = std::net::TcpStream::connect(address_of(&listener)).unwrap();
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            accepted = listener.accept() => {
                assert_eq!(accepted.unwrap().peer(), Peer::Tcp(client.local_addr().unwrap()));
                continue;
            }
        }
        assert_eq!(
            listener.accept().await.unwrap().peer(),
            Peer::Tcp(client.local_addr().unwrap())
        );
    }
}

#[tokio::test]
async fn opens_what_the_configuration_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gate.sock");
    let text = format!(
        r#"
        [[listener]]
        bind = "127.0.0.1:0"
        cluster = "main"

        [[listener]]
        bind = "unix:{}"
        unix_mode = "0600"
        cluster = "main"

        [cluster.main]
        servers = ["127.0.0.1:3306"]
        "#,
        path.display()
    );
    let config = config::Config::parse(&text, "test.toml").unwrap();
    let listeners: Vec<_> = config
        .listeners
        .iter()
        .map(|listener| Listener::bind(listener).unwrap())
        .collect();
    assert_ne!(address_of(&listeners[0]).port(), 0);
    assert_eq!(listeners[1].unix_path(), Some(path.as_path()));
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}
