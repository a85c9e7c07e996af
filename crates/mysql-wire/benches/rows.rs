//! What it costs to find the end of a response, and to give it another shape: `cargo bench -p mysql-wire`.
//!
//! 1000 rows, presented as a socket gives them, 64 KiB at a time. Best of many rounds, because the machine
//! has other things to do as well.

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use mysql_wire::{
    Capabilities, Command, EofPacket, Event, OkPacket, Progress, Reshaper, ResponseTracker, write_packet,
};

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

/// Presents `bytes` as they are read, until `advance` says that all of the response was there.
fn present(bytes: &[u8], mut advance: impl FnMut(&[u8]) -> Progress) {
    let mut at = 0;
    loop {
        let end = (at + READ).min(bytes.len());
        let progress = advance(black_box(&bytes[at..end]));
        at += progress.consumed;
        if let Event::Done(outcome) = progress.event {
            black_box(outcome);
            return;
        }
    }
}

fn best(mut round: impl FnMut()) -> Duration {
    let rounds = (0..3000).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed()
    });
    rounds.min().unwrap_or_default()
}

fn tracked(capabilities: Capabilities, bytes: &[u8]) -> Duration {
    let mut tracker = ResponseTracker::new(capabilities);
    best(|| {
        tracker.begin(Command::QUERY);
        present(bytes, |read| tracker.advance(read).expect("a valid response"));
    })
}

/// Copied and numbered anew for a client without DEPRECATE_EOF.
fn reshaped(bytes: &[u8]) -> Duration {
    let mut reshaper = Reshaper::new(NEW, Capabilities::PROTOCOL_41);
    let mut out = Vec::with_capacity(2 * READ);
    best(|| {
        reshaper.begin(Command::QUERY);
        present(bytes, |read| {
            out.clear();
            let progress = reshaper.advance(read, &mut out, &mut |_| Vec::new());
            black_box(&out);
            progress.expect("a valid response")
        });
    })
}

const NEW: Capabilities = Capabilities(Capabilities::PROTOCOL_41.0 | Capabilities::DEPRECATE_EOF.0);

fn main() {
    for row_len in [10, 119, 250] {
        let (old, new) = (
            response(Capabilities::PROTOCOL_41, row_len),
            response(NEW, row_len),
        );
        for (name, best) in [
            ("EOF packets", tracked(Capabilities::PROTOCOL_41, &old)),
            ("DEPRECATE_EOF", tracked(NEW, &new)),
            ("reshaped", reshaped(&new)),
        ] {
            let per_row = best.as_secs_f64() * 1e9 / ROWS as f64;
            println!("{name:14} {ROWS} rows of {row_len:3} bytes: {per_row:.2} ns a row");
        }
    }
}
