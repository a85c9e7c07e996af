//! A server that goes away after it has asked for the password: the client is told in a packet with the
//! number that it expects after its answer, also when that answer is still to come.

use std::time::{Duration, Instant};

use e2e::link::Link;
use e2e::raw::{self, CAPABILITIES, CREATE_GUEST, GUEST, Raw};
use e2e::{Setup, eventually, servers};
use mysql_wire::{AuthSwitch, Login, PacketHeader};
use testkit::lossy_link::Fault;
use tokio::time::timeout;

/// Long enough for a packet that is sent without waiting for the client.
const MOMENT: Duration = Duration::from_millis(100);
/// The gateway waits a second for the answer, and not for longer.
const IN_TIME: Duration = Duration::from_millis(900);

/// Bytes that the server sends until it has asked for the password.
async fn bytes_up_to_the_question(port: u16) -> u64 {
    let mut direct = Raw::connect(port).await.unwrap();
    let greeting = direct.packet().await.unwrap().1;
    let mut login = Vec::new();
    Login {
        capabilities: CAPABILITIES,
        max_packet_size: 1 << 24,
        charset: 45,
        user: GUEST.into(),
        auth_response: Vec::new(),
        database: None,
        auth_plugin: Some(b"no_such_plugin".to_vec()),
        attributes: None,
        zstd_level: None,
    }
    .encode(&mut login);
    direct.send(1, &login).await.unwrap();
    let question = direct.packet().await.unwrap().1;
    assert_eq!(question[0], AuthSwitch::HEADER);
    (greeting.len() + question.len() + 2 * PacketHeader::LEN) as u64
}

/// The answer to a client that is asked for its password, lets a moment pass and answers. `None` where a busy
/// machine lets that take so long that the gateway need not have waited.
async fn heard_behind_the_answer(port: u16) -> Option<(u8, Vec<u8>)> {
    let mut client = Raw::connect(port).await.unwrap();
    client.packet().await.unwrap();
    let began = Instant::now();
    client.send(1, &raw::login()).await.unwrap();
    let (sequence, question) = client.packet().await.unwrap();
    assert_eq!((sequence, question[0]), (2, AuthSwitch::HEADER));
    let early = timeout(MOMENT, client.packet()).await;
    let sent = client.send(3, b"").await;
    if began.elapsed() >= IN_TIME {
        return None;
    }
    assert!(early.is_err(), "before the answer: {early:?}");
    sent.unwrap();
    Some(client.packet().await.unwrap())
}

#[tokio::test]
async fn after_the_answer_of_its_client() {
    let servers = servers(1);
    servers[0].primary().sql(CREATE_GUEST).unwrap();
    let bytes = bytes_up_to_the_question(servers[0].primary().port()).await;
    let link = Link::to(&servers[0]);
    let gateway = Setup::of_addresses([link.address().to_string()])
        .check("kind = \"tcp\"\ninterval = \"500ms\"\ntimeout = \"5s\"")
        .start();
    // The gateway has seen a greeting, and can make its own.
    drop(Raw::log_in(gateway.port()).await.unwrap());
    link.set_to_client(Fault::CutAfter(bytes));
    let mut heard = None;
    eventually("the client is quick enough", async || {
        heard = heard_behind_the_answer(gateway.port()).await;
        heard.is_some()
    })
    .await;
    let (sequence, error) = heard.unwrap();
    assert_eq!(
        (sequence, &error[..3]),
        (4, &[0xff, 0x86, 0x04][..]),
        "error 1158"
    );
}
