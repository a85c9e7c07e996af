use e2e::raw::{self, CAPABILITIES, CREATE_GUEST, Raw};
use e2e::{Gateway, Setup, eventually, servers};
use mysql_wire::ErrPacket;

use crate::footprint::assert_no_panic;

/// The next packet must be an error, numbered `sequence`. Returns its code and message.
async fn error(raw: &mut Raw, sequence: u8) -> (u16, String) {
    let (number, payload) = raw.packet().await.unwrap();
    assert_eq!(number, sequence, "{}", String::from_utf8_lossy(&payload));
    let error = ErrPacket::decode(&payload, CAPABILITIES).unwrap();
    (error.code, String::from_utf8(error.message).unwrap())
}

async fn greeted(gateway: &Gateway) -> Raw {
    let mut raw = Raw::connect(gateway.port()).await.unwrap();
    assert_eq!(raw.packet().await.unwrap().0, 0);
    raw
}

#[tokio::test]
async fn in_a_packet_with_the_right_number() {
    let servers = servers(1);
    servers[0].primary().sql(CREATE_GUEST).unwrap();
    let gateway = Setup::in_front_of(&servers)
        // Nobody but the silent ones is to be late, on a busy machine as well.
        .listener("login_timeout = \"6s\"")
        .start();

    let mut long = greeted(&gateway).await;
    long.send_bytes(&[0, 0, 0x10, 1]).await.unwrap();
    let (code, message) = error(&mut long, 2).await;
    assert_eq!(code, 1835);
    assert!(
        message.contains("a login packet of 1048576 bytes is too long"),
        "{message}"
    );

    let mut short = greeted(&gateway).await;
    short.send(1, b"short").await.unwrap();
    assert_eq!(error(&mut short, 2).await.0, 1835);

    let mut silent = greeted(&gateway).await;
    assert_eq!(error(&mut silent, 1).await.0, 1159);

    // Login 1, the server's question 2: an error has number 3.
    let mut forgetful = greeted(&gateway).await;
    forgetful.send(1, &raw::login()).await.unwrap();
    assert_eq!(forgetful.packet().await.unwrap().0, 2);
    assert_eq!(error(&mut forgetful, 3).await.0, 1159);

    // It is the answer that is too long.
    let mut verbose = greeted(&gateway).await;
    verbose.send(1, &raw::login()).await.unwrap();
    verbose.packet().await.unwrap();
    verbose.send_bytes(&[0, 0, 1, 3]).await.unwrap();
    assert_eq!(error(&mut verbose, 4).await.0, 1835);
    assert_no_panic(&gateway);
}

#[tokio::test]
async fn and_writes_nothing_of_its_own_into_the_log() {
    let servers = servers(1);
    let gateway = Setup::in_front_of(&servers).start();
    let forged_line = "x\n2026-01-01T00:00:00Z  INFO forged line\x1b[31m";
    let forged_fields = "a server=\"db1\" reason=\"client_quit\"";
    for (count, forged) in [(1, forged_line), (2, forged_fields)] {
        let mut payload = raw::login();
        let name = payload
            .windows(raw::GUEST.len())
            .position(|at| at == raw::GUEST.as_bytes())
            .unwrap();
        payload.splice(name..name + raw::GUEST.len(), forged.bytes());
        let mut raw = greeted(&gateway).await;
        raw.send(1, &payload).await.unwrap();
        drop(raw);
        eventually("the end of the session is in the log", async || {
            gateway.log().matches("session ended").count() == count
        })
        .await;
    }
    let log = gateway.log();
    assert!(log.contains(&format!(" user={forged_fields:?} ")), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01")), "{log}");
    assert!(!log.contains('\x1b'), "{log}");
}
