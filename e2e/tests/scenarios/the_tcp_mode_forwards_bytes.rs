use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use e2e::{PATIENCE, Setup, client, server_at, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

#[tokio::test]
async fn of_many_sessions_over_all_servers() {
    let servers = servers(2);
    let gateway = Setup::in_front_of(&servers).mode("tcp").start();
    let mut sessions = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..4 {
        let mut session = client::connect(&gateway).await;
        ports.push(client::server_port(&mut session).await);
        sessions.push(session);
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 2, "both servers are used");

    let big: Option<String> = sessions[0]
        .query_first("SELECT REPEAT('x', 20000000)")
        .await
        .unwrap();
    assert_eq!(big.unwrap().len(), 20_000_000);

    let victim = server_at(&servers, client::server_port(&mut sessions[0]).await);
    victim.kill9().unwrap();
    sessions[0].query_drop("SELECT 1").await.unwrap_err();
    for _ in 0..4 {
        assert_ne!(
            client::server_port(&mut client::connect(&gateway).await).await,
            victim.port()
        );
    }
}

#[tokio::test]
async fn and_says_when_there_is_no_server() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).mode("tcp").start();
    servers[0].primary().kill9().unwrap();
    let error = Conn::new(client::options(&gateway)).await.unwrap_err();
    assert_eq!(client::code(&error), 1429, "{error}");
}

const WORDS: &[u8] = b"a packet that is too large";

/// A server that reads the beginning of what it is sent, says why it takes no more, and closes.
fn server_that_refuses() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            // A check says nothing.
            if client.read_exact(&mut [0; 8]).is_ok() {
                client.write_all(WORDS).unwrap();
            }
        }
    });
    address
}

#[tokio::test]
async fn and_the_last_words_of_a_server_that_takes_no_more() {
    let gateway = Setup::of_addresses([server_that_refuses()])
        .mode("tcp")
        .check("kind = \"tcp\"\ninterval = \"200ms\"")
        .start();
    for _ in 0..10 {
        let mut client = TcpStream::connect(gateway.address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        // Fails once the server has closed.
        let _ = client.write_all(&vec![b'x'; 20 << 20]);
        let mut heard = Vec::new();
        let _ = client.read_to_end(&mut heard);
        assert_eq!(heard, WORDS);
    }
}
