use std::time::Duration;

use e2e::raw::{CAPABILITIES, CREATE_GUEST, Raw};
use e2e::{Setup, client, eventually, servers};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use mysql_wire::{Capabilities, ErrPacket, OkPacket};
use tokio::time::timeout;

use crate::CHECK;
use crate::bank::{self, Load, Step};
use crate::frames;

#[tokio::test]
async fn under_load() {
    let servers = servers(2);
    bank::prepare(&servers);
    let mut gateway = Setup::in_front_of(&servers).check(CHECK).start();
    let load = Load::start(&gateway, 16);
    load.goes_on(&[servers[0].primary(), servers[1].primary()], 50)
        .await;
    gateway.terminate();
    assert!(gateway.exit().await.success(), "{}", gateway.log());
    assert!(
        gateway.log().contains("all sessions have ended"),
        "{}",
        gateway.log()
    );
    // A worker that slept meanwhile has yet to find its session ended.
    load.has_failed(16).await;
    let failures = load.end(&servers).await;
    for failure in &failures {
        assert_ne!(
            failure.step,
            Step::Transfer,
            "a transaction was ended: {failure:?}"
        );
        assert!(matches!(failure.code, None | Some(1053)), "{failure:?}");
    }
}

/// Far above what "at once" takes, far below all the timeouts of this test.
const AT_ONCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn and_a_second_signal_ends_all_of_them_at_once() {
    let servers = servers(1);
    let node = servers[0].primary();
    let address = node.address();
    let mut gateway = Setup::in_front_of(&servers)
        .servers([format!("{{ address = {address:?}, max_connections = 2 }}")])
        .top("shutdown_timeout = \"1h\"")
        .listener("login_timeout = \"1h\"")
        .cluster("queue_timeout = \"1h\"")
        .start();
    let mut open = client::connect(&gateway).await;
    open.query_drop("START TRANSACTION").await.unwrap();
    let mut busy = client::connect(&gateway).await;
    let busy = tokio::spawn(async move { busy.query_drop("SELECT SLEEP(3600)").await });
    // One in front of the login, one in the queue for a server.
    let mut silent = Raw::connect(gateway.port()).await.unwrap();
    silent.packet().await.unwrap();
    let options = client::options(&gateway);
    let queued = tokio::spawn(async move { Conn::new(options).await.map(drop) });
    eventually("all of them are where they should be", async || {
        let sleeping =
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(3600)'";
        gateway.metric("forebay_queue_waiting", &[]) == 1.0 && node.sql(sleeping).unwrap() == "1\n"
    })
    .await;

    gateway.terminate();
    // Whoever is not logged in ends with the first signal.
    assert_eq!(client::code(&queued.await.unwrap().unwrap_err()), 1053);
    assert_eq!(
        silent.packet().await.unwrap().1[..3],
        [0xff, 0x1d, 0x04],
        "error 1053"
    );
    assert!(gateway.is_running());
    gateway.terminate();
    timeout(AT_ONCE, gateway.exit()).await.expect("it ends at once");
    assert_eq!(client::code(&busy.await.unwrap().unwrap_err()), 1053);
    assert!(open.query_drop("SELECT 1").await.is_err());
}

/// A command that has come early is refused as the answer to it, also where answers are in numbered frames.
#[tokio::test]
async fn and_refuses_the_next_command_of_a_client_that_compresses() {
    let servers = servers(1);
    let node = servers[0].primary();
    node.sql(CREATE_GUEST).unwrap();
    // One worker: when it has told one session it has told all.
    let gateway = Setup::in_front_of(&servers).top("workers = 1").start();
    let mut holder = Conn::new(client::options_at(node.port())).await.unwrap();
    holder.query_drop("DO GET_LOCK('early', 60)").await.unwrap();
    let compressing = CAPABILITIES.with(Capabilities::COMPRESS);
    let mut busy = Raw::log_in_with(gateway.port(), compressing).await.unwrap();
    let mut idle = Raw::log_in(gateway.port()).await.unwrap();
    let waits = "DO GET_LOCK('early', 61)";
    let commands = [frames::query_in_frame(waits), frames::query_in_frame("DO 1")];
    busy.send_bytes(&commands.concat()).await.unwrap();
    eventually("it waits for the lock", async || {
        let waiting = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE info = {waits:?}");
        node.sql(&waiting).unwrap() == "1\n"
    })
    .await;
    gateway.terminate();
    idle.read_to_end("a shutdown").await;

    holder.query_drop("DO RELEASE_LOCK('early')").await.unwrap();
    let is_error = |packet: &frames::Framed| packet.payload[0] == ErrPacket::HEADER;
    let answers = frames::answers(&mut busy, is_error).await;
    let [done, refused] = answers.as_slice() else {
        panic!("{answers:?}");
    };
    assert_eq!(
        (done.frame, done.sequence, done.payload[0]),
        (1, 1, OkPacket::HEADER)
    );
    assert_eq!((refused.frame, refused.sequence), (1, 1));
    let error = ErrPacket::decode(&refused.payload, CAPABILITIES).unwrap();
    assert_eq!(error.code, 1053);
}
