//! What recording costs. Printed, not asserted: `cargo test -p telemetry --release cost -- --nocapture`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use telemetry::{Fault, Telemetry};

fn measure(what: &str, mut each: impl FnMut(u64)) {
    const TURNS: u64 = 200_000;
    let best_ns = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..TURNS).for_each(&mut each);
            start.elapsed().as_nanos() as f64 / TURNS as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{what:28} {best_ns:8.2} ns");
}

#[test]
fn recording() {
    let telemetry = Telemetry::new(1, |_| "unknown");
    let worker = telemetry.worker(0);
    let server = worker.server("main", "db-1");
    measure("counter add", |i| server.bytes_from_server.add(black_box(i)));
    measure("command count", |i| {
        worker.commands[black_box(i as u8) as usize].inc()
    });
    measure("histogram record", |i| {
        server.latency.record(black_box(Duration::from_nanos(i * 7919)))
    });
    measure("error sent", |i| {
        worker.error_sent(black_box(1000 + i as u16 % 50), Fault::Server)
    });
    measure("server lookup", |_| {
        drop(black_box(worker.server("main", "db-1")))
    });
    let start = Instant::now();
    let bytes = black_box(telemetry.encode()).len();
    println!(
        "{:28} {:8.2} µs for {bytes} bytes",
        "scrape",
        start.elapsed().as_secs_f64() * 1e6
    );
}
