use std::time::{Duration, Instant};

use e2e::raw::Raw;
use e2e::{Gateway, Setup, servers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbox::Lent;

use crate::footprint::{Footprint, assert_no_panic};
use crate::witness::{Witness, assert_not_slowed};

const TEN_THOUSAND: usize = 10_000;
/// Left for good clients below `max_connections`, and for all else below the limit of descriptors.
const ROOM: usize = 100;
/// How many are in the kernel's queue at a time: fewer than its `backlog`.
const AT_ONCE: usize = 250;

/// As many as can be: this process needs a descriptor for each, and the gateway, which has the same limit,
/// allows for two.
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
    for login_timeout in [8, 20, 50].map(Duration::from_secs) {
        let Some([first, second]) = two_crowds(&servers, count, login_timeout).await else {
            println!("{count} connections do not come within {login_timeout:?}");
            continue;
        };
        println!("{count} connections twice: {first:?}, then {second:?}");
        // What the allocator keeps of the first time serves the second.
        assert!(first.kept < 96e6 && second.kept < 96e6, "{first:?}, {second:?}");
        assert!(second.held < first.held + 8e6, "{first:?}, {second:?}");
        return;
    }
    panic!("{count} connections were never there at once");
}

/// By how many bytes the gateway is larger than before a crowd.
#[derive(Debug, Clone, Copy)]
struct Growth {
    /// While all of the crowd is there.
    held: f64,
    /// When all have gone. The allocator gives more or less of it back, as the order of their ends will have
    /// it.
    kept: f64,
}

/// What each of two crowds takes. They can be compared when each was there as a whole: `None` when a busy
/// machine brought the last after the first had been ended.
async fn two_crowds(servers: &[Lent], count: usize, login_timeout: Duration) -> Option<[Growth; 2]> {
    let mut gateway = Setup::in_front_of(servers)
        .top(&format!("max_connections = {}", count + ROOM))
        .listener(&format!("login_timeout = \"{}s\"", login_timeout.as_secs()))
        .start();
    let before = Footprint::of(&gateway);
    let mut growth = [Growth { held: 0.0, kept: 0.0 }; 2];
    for growth in &mut growth {
        let mut witness = Witness::start(&gateway).await;
        let calm = witness.p95().await;
        let begin = Instant::now();
        let mut crowd = gather(&gateway, count).await;
        growth.held = Footprint::of(&gateway).resident_bytes - before.resident_bytes;
        if begin.elapsed() >= login_timeout {
            return None;
        }
        assert_not_slowed(calm, witness.p95().await);
        are_ended(&mut crowd).await;
        witness.stop().await;
        growth.kept = before.comes_back(&mut gateway).await;
    }
    let ended = gateway.metric("forebay_sessions_ended_total", &["reason=\"login_timeout\""]);
    assert_eq!(ended, 2.0 * count as f64);
    assert_no_panic(&gateway);
    Some(growth)
}

/// Connections that have got a greeting.
async fn gather(gateway: &Gateway, count: usize) -> Vec<Raw> {
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
    for raw in &mut crowd {
        assert_eq!(raw.packet().await.unwrap().1[0], 10, "version of the protocol");
    }
    crowd
}

/// They get an error after the timeout, then the end.
async fn are_ended(crowd: &mut [Raw]) {
    let (sequence, error) = crowd.last_mut().unwrap().packet().await.unwrap();
    assert_eq!(
        (sequence, &error[..3]),
        (1, &[0xff, 0x87, 0x04][..]),
        "error 1159"
    );
    for raw in crowd {
        raw.read_to_end("a connection and no more").await;
    }
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
