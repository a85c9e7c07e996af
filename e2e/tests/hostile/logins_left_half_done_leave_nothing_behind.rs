use e2e::raw::{self, CREATE_GUEST, Raw};
use e2e::{Setup, eventually, servers};

use crate::footprint::{Footprint, assert_no_panic};
use crate::witness::{Witness, assert_not_slowed};
use crate::{scaled, seed};
use inputs::Random;

/// Below the server's `max_connections`.
const AT_ONCE: usize = 50;

/// Leaves at a moment of the login that the dice choose.
async fn half_a_login(port: u16, dice: &mut Random) {
    let mut raw = Raw::connect(port).await.unwrap();
    let login = raw::packet(1, &raw::login());
    match dice.below(5) {
        0 => {}
        1 => drop(raw.packet().await.unwrap()),
        2 => {
            raw.packet().await.unwrap();
            raw.send_bytes(&login[..dice.below(login.len())]).await.unwrap();
        }
        3 => raw.begin_login().await.unwrap(),
        // The server has asked for the password and waits.
        _ => {
            raw.begin_login().await.unwrap();
            raw.packet().await.unwrap();
        }
    }
    if dice.one_in(2) {
        raw.reset();
    }
}

#[tokio::test]
async fn on_either_side() {
    let servers = servers(1);
    let server = servers[0].primary();
    server.sql(CREATE_GUEST).unwrap();
    let mut gateway = Setup::in_front_of(&servers).start();
    let before = Footprint::of(&gateway);
    let mut witness = Witness::start(&gateway).await;
    let calm = witness.p95().await;
    let mut dice = Random::new(seed());
    for _ in 0..scaled(60) {
        let (port, rolls) = (gateway.port(), dice.bytes(AT_ONCE));
        let leaving = rolls.into_iter().enumerate().map(|(at, roll)| {
            let mut dice = Random::new(u64::from(roll) + at as u64 * 256);
            tokio::spawn(async move { half_a_login(port, &mut dice).await })
        });
        for login in leaving.collect::<Vec<_>>() {
            login.await.unwrap();
        }
    }
    assert_not_slowed(calm, witness.p95().await);
    witness.stop().await;
    let grown = before.comes_back(&mut gateway).await;
    assert!(grown < 32e6, "memory grew by {grown} bytes");
    eventually("the server has none of them", async || {
        let sessions = "SELECT COUNT(*) FROM information_schema.processlist WHERE user IN ('unauthenticated user', 'guest')";
        server.sql(sessions).unwrap() == "0\n"
    })
    .await;
    assert_no_panic(&gateway);
}
