use std::fmt::Write as _;
use std::sync::Arc;

use e2e::raw::{self, CREATE_GUEST, Raw};
use e2e::{Setup, servers};
use sandbox::Certificates;
use tokio::sync::Semaphore;

use crate::footprint::{Footprint, assert_no_panic};
use crate::witness::{Witness, assert_not_slowed};
use crate::{scaled, seed};
use inputs::Random;

const CONNECTIONS: usize = 3000;
const AT_ONCE: usize = 40;

/// How far the client behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// It does not even wait for the greeting.
    Connected,
    Greeted,
    /// It has asked for TLS.
    Encrypting,
    /// It has sent its login, and the server has asked for a password.
    Asked,
    LoggedIn,
    /// A result is on its way.
    Answered,
}

const STAGES: [Stage; 6] = [
    Stage::Connected,
    Stage::Greeted,
    Stage::Encrypting,
    Stage::Asked,
    Stage::LoggedIn,
    Stage::Answered,
];

impl Stage {
    /// The sequence number and payload of a packet that would be right here.
    fn right_packet(self, dice: &mut Random) -> (u8, Vec<u8>) {
        match self {
            Self::Connected | Self::Greeted if dice.one_in(4) => (1, raw::ssl_request()),
            Self::Connected | Self::Greeted => (1, raw::login()),
            Self::Encrypting => (2, raw::login()),
            Self::Asked => (3, Vec::new()),
            Self::LoggedIn | Self::Answered => (0, command(dice)),
        }
    }

    async fn reach(self, port: u16) -> std::io::Result<Raw> {
        match self {
            Self::Connected => Raw::connect(port).await,
            Self::Greeted => {
                let mut raw = Raw::connect(port).await?;
                raw.packet().await?;
                Ok(raw)
            }
            Self::Encrypting => {
                let mut raw = Raw::connect(port).await?;
                raw.packet().await?;
                raw.send(1, &raw::ssl_request()).await?;
                Ok(raw)
            }
            Self::Asked => {
                let mut raw = Raw::connect(port).await?;
                raw.begin_login().await?;
                raw.packet().await?;
                Ok(raw)
            }
            Self::LoggedIn => Raw::log_in(port).await,
            Self::Answered => {
                let mut raw = Raw::log_in(port).await?;
                raw.query("SELECT REPEAT('x', 300000)").await?;
                Ok(raw)
            }
        }
    }
}

/// Any command byte, with arguments that are noise or a statement.
fn command(dice: &mut Random) -> Vec<u8> {
    if dice.one_in(3) {
        return raw::query("SELECT 1");
    }
    let len = dice.between(1, 40);
    let mut payload = dice.bytes(len);
    if dice.one_in(2) {
        payload[0] %= 32; // most commands are here
    }
    payload
}

/// Bytes that are wrong in one of many ways.
fn wrong_bytes(stage: Stage, dice: &mut Random) -> Vec<u8> {
    let (sequence, payload) = stage.right_packet(dice);
    let mut packet = raw::packet(sequence, &payload);
    match dice.below(8) {
        0 => {
            let len = dice.between(1, 3000);
            dice.bytes(len)
        }
        // The longest claim there is, with a little or nothing behind.
        1 => {
            let behind = dice.below(20);
            [vec![0xff, 0xff, 0xff, sequence], dice.bytes(behind)].concat()
        }
        // A claim that is not kept.
        2 => {
            let claimed = (dice.between(1, 300_000) as u32).to_le_bytes();
            let behind = dice.below(2000).min(u32::from_le_bytes(claimed) as usize - 1);
            [&claimed[..3], &[sequence], &dice.bytes(behind)].concat()
        }
        3 => raw::packet(sequence, b""),
        4 => raw::packet(sequence.wrapping_add(dice.between(1, 255) as u8), &payload),
        5 => {
            packet.truncate(dice.below(packet.len() + 1));
            packet
        }
        6 => {
            for _ in 0..dice.between(1, 4) {
                let at = dice.below(packet.len());
                packet[at] ^= 1 << dice.below(8);
            }
            packet
        }
        // Longer than anything that belongs here, and all of it sent.
        _ => {
            let len = dice.between(60_000, 400_000);
            raw::packet(sequence, &dice.bytes(len))
        }
    }
}

/// One client: behaves up to its stage, sends what is wrong, and goes in one way or another.
async fn attack(port: u16, stage: Stage, mut dice: Random) {
    // The stage may not be reached: the gateway has more clients than it may have, or the server.
    let Ok(mut raw) = stage.reach(port).await else {
        return;
    };
    let mut story = format!("{stage:?}");
    for _ in 0..dice.between(1, 3) {
        let bytes = wrong_bytes(stage, &mut dice);
        let _ = write!(
            story,
            ", then {} bytes: {:02x?}",
            bytes.len(),
            &bytes[..bytes.len().min(24)]
        );
        // Fails where the gateway has seen enough.
        let _ = raw.send_bytes(&bytes).await;
    }
    match dice.below(4) {
        0 => raw.reset(),
        1 => {}
        // A login has a time limit. A session may last, and one that is asked for its password may get in.
        2 if matches!(stage, Stage::Connected | Stage::Greeted | Stage::Encrypting) => {
            if !dice.one_in(8) {
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut raw.stream).await;
            }
            raw.read_to_end(&story).await;
        }
        _ => {
            // The result says nothing: the other side may have gone first.
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut raw.stream).await;
            raw.read_to_end(&story).await;
        }
    }
}

async fn attacks(tls: bool) {
    let servers = servers(1);
    servers[0].primary().sql(CREATE_GUEST).unwrap();
    let mut setup = Setup::in_front_of(&servers).listener("login_timeout = \"6s\"");
    if tls {
        let Certificates {
            server_cert,
            server_key,
            ..
        } = servers[0].certificates();
        setup = setup.listener_tls(&format!(
            "mode = \"preferred\"\ncert = {server_cert:?}\nkey = {server_key:?}"
        ));
    }
    let mut gateway = setup.start();
    let before = Footprint::of(&gateway);
    let mut witness = Witness::start(&gateway).await;
    let calm = witness.p95().await;
    let mut dice = Random::new(seed());
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = Vec::new();
    for number in 0..scaled(CONNECTIONS / 2) {
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        let stage = STAGES[number % STAGES.len()];
        let own = Random::new(dice.below(usize::MAX) as u64);
        let port = gateway.port();
        running.push(tokio::spawn(async move {
            attack(port, stage, own).await;
            drop(slot);
        }));
    }
    for attack in running {
        attack.await.unwrap();
    }
    assert_not_slowed(calm, witness.p95().await);
    witness.stop().await;
    let grown = before.comes_back(&mut gateway).await;
    assert!(grown < 48e6, "memory grew by {grown} bytes");
    assert_no_panic(&gateway);
    assert!(servers[0].primary().sql("SELECT 1").is_ok(), "the server lives");
}

#[tokio::test]
async fn on_a_plain_listener() {
    attacks(false).await;
}

#[tokio::test]
async fn on_a_listener_with_tls() {
    attacks(true).await;
}
