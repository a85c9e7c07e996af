use std::net::Ipv4Addr;

use e2e::raw::Raw;
use e2e::{Setup, servers};

use crate::footprint::{Footprint, assert_no_panic};
use crate::witness::Witness;
use crate::{scaled, seed};
use inputs::Random;

/// The balancer. The good client comes from elsewhere and sends no header.
const TRUSTED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const V1: &[u8] = b"PROXY TCP4 198.51.100.7 192.0.2.1 40001 3306\r\n";
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const CONNECTIONS: usize = 600;

/// Headers that begin well and go wrong in a place that the dice choose, or right to the end.
fn header(dice: &mut Random) -> Vec<u8> {
    match dice.below(6) {
        0 => {
            let len = dice.between(1, 300);
            dice.bytes(len)
        }
        1 => V1[..dice.below(V1.len())].to_vec(),
        2 => {
            let mut bytes = V1.to_vec();
            let at = dice.below(bytes.len());
            bytes[at] = dice.below(256) as u8;
            bytes
        }
        // A line without an end.
        3 => [b"PROXY ".to_vec(), vec![b'1'; dice.between(1, 5000)]].concat(),
        // A claimed length with less behind, of any version, command and family.
        4 => {
            let claimed = dice.below(1 << 16);
            let bytes = dice.between(0, claimed.min(2000));
            let words = [dice.below(256) as u8, dice.below(256) as u8];
            [
                V2_SIGNATURE,
                &words,
                &(claimed as u16).to_be_bytes(),
                &dice.bytes(bytes),
            ]
            .concat()
        }
        // The largest, whole: a family and TLVs of noise, then something that is no login.
        _ => {
            let noise = dice.bytes(0xffff + 40);
            [V2_SIGNATURE, &[0x21, 0x11], &[0xff, 0xff], &noise].concat()
        }
    }
}

#[tokio::test]
async fn from_a_trusted_sender() {
    let servers = servers(1);
    for mode in ["session", "tcp"] {
        let mut gateway = Setup::in_front_of(&servers)
            .mode(mode)
            // A gateway that has had no turn for a moment may find all of them at once.
            .top(&format!("max_connections = {}", scaled(CONNECTIONS) + 50))
            .listener("accept_proxy_from = [\"127.0.0.2/32\"]\nlogin_timeout = \"6s\"")
            .start();
        let before = Footprint::of(&gateway);
        let mut witness = Witness::start(&gateway).await;
        let mut dice = Random::new(seed());
        let mut waiting = Vec::new();
        for _ in 0..scaled(CONNECTIONS) {
            let mut raw = Raw::connect_from(TRUSTED, gateway.port()).await.unwrap();
            // Fails where the gateway has seen enough.
            let _ = raw.send_bytes(&header(&mut dice)).await;
            match dice.below(4) {
                0 => raw.reset(),
                1 => waiting.push(raw),
                _ => {}
            }
        }
        // In mode tcp a header that happens to be right begins a session that only its client ends.
        if mode == "session" {
            for raw in &mut waiting {
                raw.read_to_end("a PROXY header").await;
            }
        }
        drop(waiting);
        witness.more(20).await;
        witness.stop().await;
        let grown = before.comes_back(&mut gateway).await;
        assert!(grown < 32e6, "memory grew by {grown} bytes");
        assert!(gateway.metric("forebay_sessions_ended_total", &["reason=\"proxy_header\""]) > 0.0);
        assert_no_panic(&gateway);
    }
}
