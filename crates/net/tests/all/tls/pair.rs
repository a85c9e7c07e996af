//! Two streams of ours, connected, before and after a handshake.

use std::io;
use std::time::Duration;

use net::{Listener, Stream, TlsAcceptor, TlsConnector};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Client's end, server's end.
pub(crate) async fn plain() -> (Stream, Stream) {
    let listener = Listener::bind_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let address = listener.local_addr().unwrap().socket_addr().unwrap();
    let (client, accepted) = tokio::join!(Stream::connect_tcp(address, Duration::ZERO), listener.accept());
    (client.unwrap(), Stream::from_accepted(accepted.unwrap()).unwrap())
}

/// Both results of a handshake over a fresh connection.
pub(crate) async fn shake_hands(
    connector: &TlsConnector,
    acceptor: &TlsAcceptor,
    name: &str,
) -> (io::Result<Stream>, io::Result<Stream>) {
    let (client, server) = plain().await;
    let client = async {
        let mut stream = connector.connect(client, name).await?;
        // In TLS 1.3 a client learns that its certificate was refused by its first read.
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await?;
        Ok(stream)
    };
    let server = async {
        let mut stream = acceptor.accept(server, Vec::new()).await?;
        stream.write_all(b"hello").await?;
        stream.flush().await?;
        Ok(stream)
    };
    tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(client, server) })
        .await
        .unwrap()
}

/// A handshake that must work, and bytes both ways.
pub(crate) async fn encrypted(
    connector: &TlsConnector,
    acceptor: &TlsAcceptor,
    name: &str,
) -> (Stream, Stream) {
    let (client, server) = shake_hands(connector, acceptor, name).await;
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    client.write_all(b"select 1").await.unwrap();
    client.flush().await.unwrap();
    let mut word = [0; 8];
    server.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"select 1");
    (client, server)
}
