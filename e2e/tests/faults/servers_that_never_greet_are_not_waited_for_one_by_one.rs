//! Servers that take connections and say nothing: another one is tried, and a client in front of many such
//! servers hears of it as soon as one in front of two.

use std::time::{Duration, Instant};

use e2e::link::Link;
use e2e::raw::{self, CREATE_GUEST, Raw};
use e2e::{Setup, servers};
use testkit::lossy_link::Fault;

/// One by one they would take ten times as long as they may all together.
const SERVERS: u32 = 20;
/// Long enough for the first login, which is to succeed, on a busy machine.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn and_a_client_hears_within_twice_the_time() {
    let servers = servers(1);
    servers[0].primary().sql(CREATE_GUEST).unwrap();
    let links: Vec<Link> = (0..SERVERS).map(|_| Link::to(&servers[0])).collect();
    let gateway = Setup::of_addresses(links.iter().map(|link| link.address().to_string()))
        .check("kind = \"tcp\"\ninterval = \"60s\"\ntimeout = \"5s\"")
        .cluster(&format!("login_timeout = \"{}ms\"", LOGIN_TIMEOUT.as_millis()))
        .start();
    // The gateway has seen a greeting, and can make its own.
    drop(Raw::log_in(gateway.port()).await.unwrap());
    for link in &links {
        link.set_to_client(Fault::Stall);
    }
    let mut client = Raw::connect(gateway.port()).await.unwrap();
    client.packet().await.unwrap();
    let began = Instant::now();
    client.send(1, &raw::login()).await.unwrap();
    let (sequence, error) = client.packet().await.unwrap();
    let took = began.elapsed();
    assert_eq!(
        (sequence, &error[..3]),
        (2, &[0xff, 0x95, 0x05][..]),
        "error 1429"
    );
    assert!(took >= LOGIN_TIMEOUT, "{took:?}");
    // Twice the time; the rest is for a machine that has much else to do.
    let one_by_one = SERVERS * LOGIN_TIMEOUT;
    assert!(took < one_by_one / 2, "{took:?} for {SERVERS} servers");
}
