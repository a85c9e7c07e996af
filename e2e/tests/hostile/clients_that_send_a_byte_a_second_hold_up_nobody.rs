use std::time::Duration;

use e2e::raw::{self, CREATE_GUEST, Raw};
use e2e::{Setup, servers};
use tokio::io::AsyncWriteExt;

use crate::footprint::{Footprint, assert_no_panic};
use crate::scaled;
use crate::witness::{Witness, assert_not_slowed};

const ONE_BYTE: Duration = Duration::from_secs(1);
const LOGGING_IN: usize = 150;
const LOGGED_IN: usize = 150;
/// A buffer for each, and some for the good client and the checks.
const BUFFERS: f64 = 20.0;

/// Sends one byte a second until all are sent or nobody takes them.
async fn trickle(raw: &mut Raw, bytes: &[u8]) {
    for byte in bytes {
        if raw.stream.write_all(&[*byte]).await.is_err() {
            return;
        }
        tokio::time::sleep(ONE_BYTE).await;
    }
}

#[tokio::test]
async fn and_get_right_answers_if_they_are_quick_enough() {
    let servers = servers(1);
    servers[0].primary().sql(CREATE_GUEST).unwrap();
    let (logging_in, logged_in) = (scaled(LOGGING_IN), scaled(LOGGED_IN));
    let mut gateway = Setup::in_front_of(&servers)
        .top(&format!("max_connections = {}", logging_in + logged_in + 50))
        .listener("login_timeout = \"6s\"")
        .start();
    let before = Footprint::of(&gateway);
    let mut witness = Witness::start(&gateway).await;
    let calm = witness.p95().await;

    let port = gateway.port();
    let mut slow_logins = Vec::new();
    for _ in 0..logging_in {
        let mut raw = Raw::connect(port).await.unwrap();
        slow_logins.push(tokio::spawn(async move {
            raw.packet().await.unwrap();
            trickle(&mut raw, &raw::packet(1, &raw::login())).await;
            // A login of 60 bytes takes 60 s, and that is too long.
            raw.read_to_end("a login, a byte a second").await;
        }));
    }
    let mut slow_commands = Vec::new();
    for _ in 0..logged_in {
        let mut raw = Raw::log_in(port).await.unwrap();
        slow_commands.push(tokio::spawn(async move {
            trickle(&mut raw, &raw::packet(0, &raw::query("DO 1"))).await;
            let (sequence, answer) = raw.packet().await.unwrap();
            assert_eq!((sequence, answer[0]), (1, 0), "an OK packet");
        }));
    }
    assert_not_slowed(calm, witness.p95().await);
    let buffers = gateway.metric("forebay_buffers_in_use", &[]);
    assert!(buffers <= logged_in as f64 + BUFFERS, "{buffers} buffers");
    for task in slow_commands.into_iter().chain(slow_logins) {
        task.await.unwrap();
    }
    witness.stop().await;
    let grown = before.comes_back(&mut gateway).await;
    // What the pool keeps, 64 KiB a client at most, and what the allocator does.
    assert!(grown < 48e6, "memory grew by {grown} bytes");
    let timed_out = gateway.metric("forebay_sessions_ended_total", &["reason=\"login_timeout\""]);
    assert_eq!(timed_out, logging_in as f64);
    assert_no_panic(&gateway);
}
