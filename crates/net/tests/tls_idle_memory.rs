//! What an idle TLS connection costs in memory of this process. Alone in its binary: it measures the process.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test's own helpers is a failure of the test"
)]

#[path = "tls/authority.rs"]
#[allow(dead_code, reason = "shared with the other TLS tests")]
mod authority;
#[path = "tls/pair.rs"]
#[allow(dead_code, reason = "shared with the other TLS tests")]
mod pair;

use config::Verify;
use net::{TlsAcceptor, TlsConnector, buffer};

const PAIRS: usize = 400;

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn an_idle_tls_connection_holds_no_record_and_no_buffer() {
    net::limits::raise_nofile().unwrap();
    let authority = authority::Authority::new();
    let acceptor = TlsAcceptor::new(&authority::listener(&authority.issue("gate", &["localhost"]))).unwrap();
    let connector = TlsConnector::new(&authority::cluster(Verify::Ca, Some(authority.ca()))).unwrap();
    let mut pairs = Vec::with_capacity(PAIRS);
    let mut before = 0;
    for n in 0..PAIRS {
        if n == 100 {
            before = resident();
        }
        pairs.push(pair::encrypted(&connector, &acceptor, "localhost").await);
    }
    // Both ends are ours.
    let each = resident().saturating_sub(before) / (PAIRS - 100) / 2;
    println!("{each} bytes for one end of an idle TLS connection");
    assert!(each < 24 * 1024, "{each} bytes");
    assert_eq!(buffer::in_use_count(), 0);
}
