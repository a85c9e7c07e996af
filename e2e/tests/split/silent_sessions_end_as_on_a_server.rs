//! A server ends a session that is silent for longer than its `wait_timeout`, and a client hears of it as it
//! would without the gateway: drivers take an error that nobody asked for as the answer to their next
//! statement.

use std::io;
use std::time::{Duration, Instant};

use e2e::packets::{Client, Physical};
use e2e::{Setup, eventually, kind};
use mysql_wire::Capabilities;
use sandbox::Spec;

use crate::cluster;

/// The packet that a session gets which is silent for longer than it may, and after how long.
fn heard(mut session: Client) -> (Option<Vec<u8>>, Duration) {
    let began = Instant::now();
    session.attempt("SET SESSION wait_timeout = 1");
    let last = session.packet();
    let heard = match last {
        Ok(last) => {
            assert!(is_end(session.packet()));
            Some(last)
        }
        end => {
            assert!(is_end(end));
            None
        }
    };
    (heard.map(|last| last.payload), began.elapsed())
}

fn is_end(read: io::Result<Physical>) -> bool {
    read.is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

fn raw(address: &str) -> Client {
    cluster::connect_raw(address, "test", Capabilities::default())
}

#[tokio::test]
async fn in_mode_session_as_the_server_does_it() {
    let server = &e2e::servers(1)[0];
    let directly = heard(raw(&server.primary().address()));
    for listener in ["moves = false", "moves = true"] {
        let gateway = Setup::of_addresses(server.addresses())
            .listener(listener)
            .cluster(&cluster::monitor())
            .start();
        let session = raw(&format!("127.0.0.1:{}", gateway.port()));
        let (last, after) = tokio::task::spawn_blocking(|| heard(session)).await.unwrap();
        assert_eq!(last, directly.0, "{listener}");
        assert!(after >= Duration::from_secs(1), "{listener}: {after:?}");
    }
}

#[tokio::test]
async fn in_mode_session_without_a_word_where_the_server_has_none() {
    let server = sandbox::Sandbox::start(Spec::new(kind())).unwrap();
    for listener in ["moves = false", "moves = true"] {
        // So long a session that may move waits for another server, where its password is known.
        let gateway = Setup::of_addresses(server.addresses())
            .listener(listener)
            .cluster("failover_wait = \"1s\"")
            .cluster(&cluster::monitor())
            .start();
        let address = format!("127.0.0.1:{}", gateway.port());
        let (mut silent, mut in_transaction) = (raw(&address), raw(&address));
        // Behind the second answer nothing of a login is under way any more, nor of the first statement.
        silent.attempt("DO 1");
        in_transaction.attempt("DO 1");
        silent.attempt("DO 1");
        in_transaction.attempt("BEGIN");
        server.primary().kill9().unwrap();
        let both = move || (is_end(silent.packet()), is_end(in_transaction.packet()));
        let ended = tokio::task::spawn_blocking(both).await.unwrap();
        assert_eq!(ended, (true, true), "{listener}");
        server.primary().restart().unwrap();
    }
}

#[tokio::test]
async fn in_mode_split_though_their_connections_are_not_their_own() {
    let gateway = cluster::start(cluster::split(cluster::shared()), 2).await;
    let address = format!("127.0.0.1:{}", gateway.port());
    let mut stays = raw(&address);
    let session = raw(&address);
    let server = raw(&cluster::shared().primary().address());
    let both = || [server, session].map(heard);
    let [directly, (last, after)] = tokio::task::spawn_blocking(both).await.unwrap();
    assert_eq!(last, directly.0);
    assert!(after >= Duration::from_secs(1), "{after:?}");
    eventually("it is told why", async || {
        gateway.metric("forebay_sessions_ended_total", &["reason=\"client_idle\""]) == 1.0
    })
    .await;
    stays.attempt("DO 1");
}
