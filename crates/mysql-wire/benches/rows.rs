//! What it costs to find the end of a response: `cargo bench -p mysql-wire`.
//!
//! 1000 rows, presented as a socket gives them, 64 KiB at a time. Best of many rounds, because the machine has
//! other things to do as well.

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use mysql_wire::{Capabilities, Command, EofPacket, Event, OkPacket, ResponseTracker, write_packet};

const ROWS: usize = 1000;
const READ: usize = 64 * 1024;

fn response(capabilities: Capabilities, row_len: usize) -> Vec<u8> {
    let (mut out, mut sequence) = (Vec::new(), 1);
    let eof = |out: &mut Vec<u8>| match capabilities.contains(Capabilities::DEPRECATE_EOF) {
        true => OkPacket::default().encode_as_eof(out, capabilities),
        false => EofPacket::default().encode(out),
    };
    let mut end = Vec::new();
    eof(&mut end);
    write_packet(&mut out, &mut sequence, &[1]);
    write_packet(
        &mut out,
        &mut sequence,
        b"\x03def\0\0\0\x01c\x01c\x0c\x21\0\0\x01\0\0\xfd\0\0\0\0\0",
    );
    if !capabilities.contains(Capabilities::DEPRECATE_EOF) {
        write_packet(&mut out, &mut sequence, &end);
    }
    for _ in 0..ROWS {
        let mut row = vec![b'x'; row_len];
        row[0] = (row_len - 1) as u8;
        write_packet(&mut out, &mut sequence, &row);
    }
    write_packet(&mut out, &mut sequence, &end);
    out
}

fn best_round(capabilities: Capabilities, bytes: &[u8]) -> Duration {
    let mut tracker = ResponseTracker::new(capabilities);
    let round = |tracker: &mut ResponseTracker| {
        tracker.begin(Command::QUERY);
        let mut at = 0;
        loop {
            let end = (at + READ).min(bytes.len());
            let progress = tracker
                .advance(black_box(&bytes[at..end]))
                .expect("a valid response");
            at += progress.consumed;
            if let Event::Done(outcome) = progress.event {
                return black_box(outcome);
            }
        }
    };
    let rounds = (0..3000).map(|_| {
        let start = Instant::now();
        round(&mut tracker);
        start.elapsed()
    });
    rounds.min().unwrap_or_default()
}

fn main() {
    for (name, capabilities) in [
        ("EOF packets", Capabilities::PROTOCOL_41),
        (
            "DEPRECATE_EOF",
            Capabilities::PROTOCOL_41 | Capabilities::DEPRECATE_EOF,
        ),
    ] {
        for row_len in [10, 119, 250] {
            let bytes = response(capabilities, row_len);
            let best = best_round(capabilities, &bytes);
            let per_row = best.as_secs_f64() * 1e9 / ROWS as f64;
            println!("{name:14} {ROWS} rows of {row_len:3} bytes: {per_row:.2} ns a row");
        }
    }
}
