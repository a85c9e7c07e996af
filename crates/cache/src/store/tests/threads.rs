//! Readers on other threads while the writer works.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::store::NotRead;

const PAIRS: u64 = 200;

/// A row that says which pair and transaction it is of, of a length that changes.
fn row(pair: u64, number: u64) -> Vec<u8> {
    let len = 16 + (number * 37 + pair) % 300 + if number.is_multiple_of(50) { 9000 } else { 0 };
    let mut row = [pair.to_le_bytes(), number.to_le_bytes()].concat();
    row.resize(len as usize, (pair + number) as u8);
    row
}

fn number(pair: u64, row: &[u8]) -> u64 {
    let number = u64::from_le_bytes(row[8..16].try_into().unwrap());
    assert!(row == self::row(pair, number), "a row is mixed of several");
    number
}

fn key(side: u8, pair: u64) -> Vec<u8> {
    [&[side][..], &pair.to_le_bytes()].concat()
}

struct Counts {
    read: AtomicU64,
    busy: AtomicU64,
}

/// Reads until `stop`: both rows of a pair are of one transaction, numbers do not go back.
fn reader(store: &Store, seed: u64, stop: &AtomicBool, counts: &Counts) {
    let (mut random, mut last) = (Random::new(seed), vec![0; PAIRS as usize]);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let pair = random.below(PAIRS);
        let now = if random.below(2) == 0 {
            match store.get(T, &key(b'l', pair), &mut left) {
                Found::Row => number(pair, &left),
                Found::Missing => continue,
                Found::Busy => {
                    counts.busy.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                found => panic!("{found:?}"),
            }
        } else {
            let both = store.snapshot(|view| {
                [
                    view.get(T, &key(b'l', pair), &mut left),
                    view.get(T, &key(b'r', pair), &mut right),
                ]
            });
            match both {
                Ok([Found::Row, Found::Row]) => {}
                Ok(both) if both.contains(&Found::Missing) => continue,
                Ok(both) => panic!("{both:?}"),
                Err(NotRead::Busy) => {
                    counts.busy.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Err(NotRead::Closed) => panic!("closed"),
            }
            assert_eq!(number(pair, &left), number(pair, &right), "half a transaction");
            number(pair, &left)
        };
        assert!(now >= last[pair as usize], "{now} after {}", last[pair as usize]);
        last[pair as usize] = now;
        counts.read.fetch_add(1, Ordering::Relaxed);
    }
}

fn with_readers(store: &Arc<Store>, write: impl FnOnce()) -> Counts {
    let counts = Counts {
        read: AtomicU64::new(0),
        busy: AtomicU64::new(0),
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (counts, stop) = (&counts, &stop);
            scope.spawn(move || reader(store, seed, stop, counts));
        }
        write();
        while counts.read.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    counts
}

fn rounds(many: u64) -> u64 {
    if cfg!(miri) { many / 500 } else { many }
}

#[test]
fn readers_see_whole_transactions_of_a_whole_mapping_that_grows() {
    let (store, mut writer) = served(1 << 28, Mode::Whole);
    let mut put = |number: u64, pairs: std::ops::Range<u64>| {
        writer.begin();
        for pair in pairs {
            writer.put(T, &key(b'l', pair), &row(pair, number)).unwrap();
            writer.put(T, &key(b'r', pair), &row(pair, number)).unwrap();
            // What nobody reads: it makes the mapping grow, and gives places to others.
            let other = number * PAIRS + pair;
            writer.put(T, &key(b'o', other), &other.to_le_bytes()).unwrap();
            writer
                .remove(T, &key(b'o', other.saturating_sub(5000 + other % 3 * 10_000)))
                .unwrap();
        }
        writer.commit();
    };
    put(1, 0..PAIRS);
    let counts = with_readers(&store, || {
        let mut random = Random::new(1);
        for number in 2..rounds(20_000) {
            let pair = random.below(PAIRS);
            if number.is_multiple_of(1000) {
                put(number, 0..PAIRS);
            } else {
                put(number, pair..(pair + 1 + random.below(4)).min(PAIRS));
            }
        }
    });
    check_accounting(&store);
    assert!(counts.busy.into_inner() <= counts.read.into_inner() / 10);
}

#[test]
fn readers_see_whole_transactions_of_a_bounded_mapping() {
    let (store, mut writer) = served(3 << 20, Mode::Bounded);
    let counts = with_readers(&store, || {
        let (mut random, mut current) = (Random::new(2), vec![1; PAIRS as usize]);
        for number in 2..rounds(20_000) {
            let pair = random.below(PAIRS);
            let ticket = store.fill_begin(T, store.version()).unwrap();
            let row_now = row(pair, current[pair as usize]);
            writer.fill(&ticket, &key(b'l', pair), Some(&row_now));
            writer.fill(&ticket, &key(b'r', pair), Some(&row_now));
            for other in number * 8..number * 8 + 8 {
                writer.fill(&ticket, &key(b'o', other), Some(&[0; 200]));
            }
            let pair = random.below(PAIRS);
            writer.begin();
            writer.put(T, &key(b'l', pair), &row(pair, number)).unwrap();
            writer.put(T, &key(b'r', pair), &row(pair, number)).unwrap();
            writer.commit();
            current[pair as usize] = number;
        }
    });
    check_accounting(&store);
    assert!(
        cfg!(miri) || store.memory().evicted > 10_000,
        "{:?}",
        store.memory()
    );
    assert!(counts.busy.into_inner() <= counts.read.into_inner() / 10);
}

#[test]
fn a_mapping_may_go_while_it_is_read() {
    let (store, mut writer) = served(1 << 26, Mode::Whole);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let (mut random, mut found) = (Random::new(seed), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let pair = random.below(2000);
                    if store.get(T, &key(b'l', pair), &mut found) == Found::Row {
                        number(pair, &found);
                    }
                }
            });
        }
        for round in 0..rounds(100).max(2) {
            writer.open(T, Mode::Whole);
            writer.serve(T, true);
            writer.begin();
            for pair in 0..if cfg!(miri) { 20 } else { 2000 } {
                writer.put(T, &key(b'l', pair), &row(pair, round)).unwrap();
            }
            writer.commit();
            writer.close(T);
        }
        stop.store(true, Ordering::Relaxed);
    });
    check_accounting(&store);
    assert_eq!(store.memory().rows, 0);
}
