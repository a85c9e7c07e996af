//! What an idle connection costs in memory of the process, without and with TLS.

use std::net::TcpStream;
use std::time::Duration;

use config::Verify;
use net::{Listener, Stream, TlsAcceptor, TlsConnector, buffer, limits, poll_read_into};

use crate::alone::alone;
use crate::tls::authority::{Authority, cluster, listener};
use crate::tls::pair::encrypted;

const CONNECTIONS: usize = 2000;
const PAIRS: usize = 400;

/// Resident bytes of this process, without pages of the program itself, which come when they are used first.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn an_idle_plain_connection_costs_less_than_a_kilobyte() {
    let name = "idle_memory::an_idle_plain_connection_costs_less_than_a_kilobyte";
    alone(name, "true", async {
        let limit = limits::raise_nofile().unwrap();
        assert!(
            limit > 2 * CONNECTIONS as u64 + 100,
            "needs more than {limit} descriptors"
        );
        let listener = Listener::bind_tcp("127.0.0.1:0".parse().unwrap(), 128).unwrap();
        let address = listener.local_addr().unwrap().socket_addr().unwrap();
        // The first ones fill pools and the allocator's arenas.
        let (mut clients, mut tasks) = (Vec::with_capacity(CONNECTIONS), Vec::with_capacity(CONNECTIONS));
        let mut before = 0;
        for n in 0..CONNECTIONS {
            if n == 200 {
                before = resident();
            }
            clients.push(TcpStream::connect(address).unwrap());
            let stream = Stream::from_accepted(listener.accept().await.unwrap()).unwrap();
            tasks.push(tokio::task::spawn_local(wait_for_bytes(stream)));
            tokio::task::yield_now().await;
        }
        let each = resident().saturating_sub(before) / (CONNECTIONS - 200);
        println!("{each} bytes for an idle plain connection (task, stream and registration)");
        assert!(each < 1024, "{each} bytes");
        assert_eq!(buffer::in_use_count(), 0, "idle connections hold buffers");
        drop(clients);
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(20), task)
                .await
                .unwrap()
                .unwrap();
        }
    });
}

/// As the data plane does: a buffer only while there are bytes.
async fn wait_for_bytes(mut stream: Stream) {
    let read = std::future::poll_fn(|cx| poll_read_into(cx, &mut stream, &mut buffer::take())).await;
    assert!(matches!(read, Ok(0)));
}

#[test]
fn an_idle_tls_connection_holds_no_record_and_no_buffer() {
    let name = "idle_memory::an_idle_tls_connection_holds_no_record_and_no_buffer";
    alone(name, "true", async {
        limits::raise_nofile().unwrap();
        let authority = Authority::new();
        let acceptor = TlsAcceptor::new(&listener(&authority.issue("gate", &["localhost"]))).unwrap();
        let connector = TlsConnector::new(&cluster(Verify::Ca, Some(authority.ca()))).unwrap();
        let mut pairs = Vec::with_capacity(PAIRS);
        let mut before = 0;
        for n in 0..PAIRS {
            if n == 100 {
                before = resident();
            }
            pairs.push(encrypted(&connector, &acceptor, "localhost").await);
        }
        // Both ends are ours.
        let each = resident().saturating_sub(before) / (PAIRS - 100) / 2;
        println!("{each} bytes for one end of an idle TLS connection");
        assert!(each < 24 * 1024, "{each} bytes");
        assert_eq!(buffer::in_use_count(), 0);
    });
}
