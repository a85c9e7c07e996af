use e2e::{Setup, servers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::footprint::{Footprint, assert_no_panic};
use crate::raw::Raw;
use crate::witness::{Witness, assert_not_slowed};

const TEN_THOUSAND: usize = 10_000;
/// Left for good clients below `max_connections`, and for all else below the limit of descriptors.
const ROOM: usize = 100;
/// How many are in the kernel's queue at a time: fewer than its `backlog`.
const AT_ONCE: usize = 250;

/// As many as can be: this process needs a descriptor for each, and the gateway, which has the same limit, allows for two.
fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let descriptors = limit.maximum.map_or(usize::MAX, |limit| limit as usize);
    TEN_THOUSAND.min((descriptors / 2).saturating_sub(3 * ROOM))
}

#[tokio::test]
async fn and_cost_nothing_afterwards() {
    let servers = servers(1);
    let count = connections();
    let mut gateway = Setup::in_front_of(&servers)
        .top(&format!("max_connections = {}", count + ROOM))
        .listener("login_timeout = \"8s\"")
        .start();
    let before = Footprint::of(&gateway);
    let mut grown = Vec::new();
    for _ in 0..2 {
        let mut witness = Witness::start(&gateway).await;
        let calm = witness.p95().await;

        let mut crowd = Vec::with_capacity(count);
        while crowd.len() < count {
            let size = AT_ONCE.min(count - crowd.len());
            let arriving: Vec<_> = (0..size)
                .map(|_| tokio::spawn(Raw::connect(gateway.port())))
                .collect();
            for raw in arriving {
                crowd.push(raw.await.unwrap().unwrap());
            }
        }
        assert_not_slowed(calm, witness.p95().await);

        // They get the greeting, then an error after the timeout, then the end.
        let last = crowd.last_mut().unwrap();
        assert_eq!(last.packet().await.unwrap().1[0], 10, "version of the protocol");
        let (sequence, error) = last.packet().await.unwrap();
        assert_eq!(
            (sequence, &error[..3]),
            (1, &[0xff, 0x87, 0x04][..]),
            "error 1159"
        );
        for raw in &mut crowd {
            raw.read_to_end("a connection and no more").await;
        }
        witness.stop().await;
        grown.push(before.comes_back(&mut gateway).await);
    }
    let ended = gateway.metric("forebay_sessions_ended_total", &["reason=\"login_timeout\""]);
    assert_eq!(ended, 2.0 * count as f64);
    println!("{count} connections twice; memory grew by {grown:?} bytes");
    // What the allocator keeps of the first time serves the second.
    assert!(
        grown[0] < 96e6 && grown[1] < grown[0] + 8e6,
        "memory grew by {grown:?} bytes"
    );
    assert_no_panic(&gateway);
}

#[tokio::test]
async fn and_do_not_hold_up_a_shutdown() {
    let servers = servers(1);
    let mut gateway = Setup::in_front_of(&servers)
        .listener("login_timeout = \"1h\"")
        .top("shutdown_timeout = \"1h\"")
        .start();
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut raw = Raw::connect(gateway.port()).await.unwrap();
        raw.packet().await.unwrap();
        waiting.push(raw);
    }
    gateway.terminate();
    assert!(gateway.exit().await.success());
    let (sequence, error) = waiting[0].packet().await.unwrap();
    assert_eq!(
        (sequence, &error[..3]),
        (1, &[0xff, 0x1d, 0x04][..]),
        "error 1053"
    );
}
