use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use e2e::{Setup, client, servers};
use mysql_async::prelude::Queryable;
use mysql_async::{Compression, Conn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn whatever_the_way_to_the_server_is() {
    let servers = servers(1);
    for server_side in ["off", "zlib"] {
        let setup = Setup::in_front_of(&servers).cluster(&format!("compression = {server_side:?}"));
        let gateway = setup.start();
        let question = "SELECT REPEAT('forebay', 300000); SHOW STATUS LIKE 'Compression'";
        for arguments in [&["--compress"][..], &[]] {
            let answer = client::command_line(gateway.port(), arguments, question).unwrap();
            let (big, status) = answer.trim_end().split_once('\n').unwrap();
            assert_eq!(big.len(), 7 * 300_000);
            let expected = if server_side == "off" {
                "Compression\tOFF"
            } else {
                "Compression\tON"
            };
            assert_eq!(status, expected, "the way to the server: {server_side}");
        }
        let (port, bytes) = counted(gateway.port()).await;
        let options = client::options_at(port).compression(Some(Compression::best()));
        let mut session = Conn::new(options).await.unwrap();
        let body = "compress me ".repeat(200_000);
        let length: Option<usize> = session.exec_first("SELECT LENGTH(?)", (&body,)).await.unwrap();
        assert_eq!(length, Some(body.len()));
        let back: Option<String> = session.query_first("SELECT REPEAT('z', 1000000)").await.unwrap();
        assert_eq!(back.unwrap().len(), 1_000_000);
        session.ping().await.unwrap();
        let bytes = bytes.load(Ordering::Relaxed);
        assert!(
            bytes < 100_000,
            "3.4 million bytes that compress well took {bytes} on the wire"
        );
    }
}

/// A relay in front of `port` and the number of bytes that its one client and the gateway exchanged.
async fn counted(port: u16) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own_port = listener.local_addr().unwrap().port();
    let bytes = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&bytes);
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let gateway = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let ((from_client, to_client), (from_gateway, to_gateway)) =
            (client.into_split(), gateway.into_split());
        tokio::join!(
            forward(from_client, to_gateway, &counter),
            forward(from_gateway, to_client, &counter)
        );
    });
    (own_port, bytes)
}

/// Until either side ends.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, counter: &AtomicU64) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        counter.fetch_add(count as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}
