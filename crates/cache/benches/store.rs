//! What a row costs, in bytes and in time: `cargo bench -p cache --bench store`.
//!
//! A million rows with keys of eight bytes. Times are those of the thread on its processor, and the best of
//! several rounds, because the machine has other things to do as well.

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::time::Instant;

use cache::store::{Accounting, Found, MappingId, Mode, Store, Writer};

const T: MappingId = MappingId(0);
const ROWS: u64 = 1_000_000;

/// Nanoseconds that this thread has run. Source: Linux, "sched-stats".
fn ran() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ')
        .next()
        .and_then(|ran| ran.parse().ok())
        .expect("a number")
}

fn fill(writer: &mut Writer, len: usize) -> f64 {
    let start = ran();
    let mut row = vec![0; len];
    for first in (0..ROWS).step_by(1000) {
        writer.begin();
        for key in first..first + 1000 {
            row[..8].copy_from_slice(&key.to_le_bytes());
            writer.put(T, &key.to_le_bytes(), &row).expect("there is room");
        }
        writer.commit();
    }
    (ran() - start) as f64 / ROWS as f64
}

/// Nanoseconds for one of `keys`, the best round.
fn best(keys: &[u64], mut one: impl FnMut(&[u8])) -> f64 {
    let round = |one: &mut dyn FnMut(&[u8])| {
        let start = ran();
        for key in keys {
            one(&key.to_le_bytes());
        }
        (ran() - start) as f64 / keys.len() as f64
    };
    (0..5).map(|_| round(&mut one)).fold(f64::MAX, f64::min)
}

fn keys(count: u64, below: u64) -> Vec<u64> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..count).map(|_| next()).collect()
}

fn of_length(len: usize, mode: Mode) {
    let (store, mut writer) = Store::new(4 << 30);
    writer.open(T, Mode::Whole);
    writer.serve(T, true);
    let put = fill(&mut writer, len);
    let memory: Accounting = store.memory();
    let mut row = Vec::new();
    let mut get = |key: &[u8]| {
        assert_eq!(store.get(T, key, &mut row), Found::Row);
        black_box(&row);
    };
    let random = best(&keys(1_000_000, ROWS), &mut get);
    let cached = best(&keys(2_000_000, 1000), &mut get);
    let mut row = Vec::new();
    let absent = best(
        &keys(200_000, ROWS)
            .iter()
            .map(|key| key + ROWS)
            .collect::<Vec<_>>(),
        |key| {
            assert_eq!(store.get(T, key, &mut row), Found::Absent);
        },
    );
    let mut row = Vec::new();
    let ten = best(&keys(100_000, ROWS), |key| {
        let key = u64::from_le_bytes(key.try_into().expect("eight bytes"));
        let read = store.snapshot(|view| {
            for other in 0..10 {
                view.get(T, &((key + other * 99_991) % ROWS).to_le_bytes(), &mut row);
            }
        });
        assert!(read.is_ok());
    });
    let update = best(&keys(200_000, ROWS), |key| {
        writer.begin();
        writer.put(T, key, &[7; 16]).expect("there is room");
        writer.commit();
    });
    println!(
        "{len:>4} B {mode:?}: {:.1} bytes a row (index {:.1}, rounding {:.1}, free {:.1}, notes {:.1}); get {random:.0} ns random, {cached:.0} ns \
         cached, absent {absent:.0} ns, ten at once {ten:.0} ns; put {put:.0} ns, update {update:.0} ns",
        memory.held as f64 / ROWS as f64,
        memory.index as f64 / ROWS as f64,
        memory.rounding as f64 / ROWS as f64,
        memory.free as f64 / ROWS as f64,
        memory.notes as f64 / ROWS as f64,
    );
}

/// How long a transaction keeps readers, and how long it takes.
fn large_transaction() {
    let (store, mut writer) = Store::new(4 << 30);
    writer.open(T, Mode::Whole);
    writer.serve(T, true);
    fill(&mut writer, 64);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut busy, mut reads, mut row) = (0_u64, 0_u64, Vec::new());
            let mut longest = std::time::Duration::ZERO;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let start = Instant::now();
                let found = store.get(T, &(reads * 7919 % ROWS).to_le_bytes(), &mut row);
                longest = longest.max(start.elapsed());
                busy += u64::from(found == Found::Busy);
                reads += 1;
            }
            (reads, busy, longest)
        });
        let start = Instant::now();
        writer.begin();
        for key in 0..ROWS {
            writer
                .put(T, &key.to_le_bytes(), &[9; 64])
                .expect("there is room");
        }
        let prepared = start.elapsed();
        writer.commit();
        let committed = start.elapsed() - prepared;
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let (reads, busy, longest) = reader.join().expect("the reader ends");
        println!(
            "a transaction of {ROWS} rows: {prepared:?} to prepare, {committed:?} to commit and settle; meanwhile {reads} reads, {busy} busy, \
             the longest {longest:?}"
        );
    });
}

/// What any program pays for two words in memory, the second found by the first.
fn memory_itself() {
    let words: Vec<u64> = (0..6 * ROWS)
        .map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .collect();
    let mut sum = 0;
    let two = best(&keys(1_000_000, ROWS), |key| {
        let key = u64::from_le_bytes(key.try_into().expect("eight bytes"));
        let first = words[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (6 * ROWS)) as usize];
        sum ^= words[(first % (6 * ROWS)) as usize];
    });
    let mut last = 0;
    let chain = best(&keys(1_000_000, ROWS), |key| {
        let key = u64::from_le_bytes(key.try_into().expect("eight bytes"));
        let first = words[((key ^ last).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (6 * ROWS)) as usize];
        last = words[(first % (6 * ROWS)) as usize];
    });
    println!(
        "two dependent words in 48 MB: {two:.0} ns, {chain:.0} ns where the next two depend on them ({})",
        (sum ^ last) % 2
    );
}

fn main() {
    memory_itself();
    for len in [16, 128, 256] {
        of_length(len, Mode::Whole);
    }
    large_transaction();
}
