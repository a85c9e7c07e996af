//! Running out of file descriptors is noticed as such and passes.

use std::fs::File;
use std::time::Duration;

use net::{Listener, Stream, limits};

use crate::alone::alone;

#[test]
fn accept_reports_exhaustion_and_goes_on_when_there_is_room_again() {
    let name = "descriptors::accept_reports_exhaustion_and_goes_on_when_there_is_room_again";
    alone(name, "ulimit -n 40", run_out());
}

async fn run_out() {
    // `ulimit -n` has set the hard limit as well.
    assert_eq!(limits::raise_nofile().unwrap(), 40);
    let listener = Listener::bind_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
    let address = listener.local_addr().unwrap().socket_addr().unwrap();
    let client = std::net::TcpStream::connect(address).unwrap();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    for _ in 0..3 {
        let error = listener.accept().await.unwrap_err();
        assert!(limits::is_exhausted(&error), "{error}");
    }
    let error = Stream::connect_tcp(address, Duration::ZERO).await.unwrap_err();
    assert!(limits::is_exhausted(&error), "{error}");
    files.clear();
    let accepted = tokio::time::timeout(Duration::from_secs(20), listener.accept())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(accepted.peer().socket_addr(), Some(client.local_addr().unwrap()));
}
