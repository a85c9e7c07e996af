//! Running out of file descriptors is noticed as such and passes.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test's own helpers is a failure of the test"
)]

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use net::{Listener, Stream, limits};

/// Says to the copy of this program that it has few descriptors.
const FEW: &str = "NET_TEST_FEW_DESCRIPTORS";

/// The limit is one of the whole process, so this test runs itself again, in a process of its own.
#[test]
fn accept_reports_exhaustion_and_goes_on_when_there_is_room_again() {
    if std::env::var_os(FEW).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(run_out());
    }
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 40 && exec \"$0\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(FEW, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("1 passed"), "{said}");
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
