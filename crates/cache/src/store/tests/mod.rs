//! The store against a model of it, and with several threads.

mod bounded;
mod large;
mod model;
mod threads;
mod whole;

use std::sync::Arc;

use super::{Found, MappingId, Mode, Store, Writer};

const T: MappingId = MappingId(0);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn served(memory_max: u64, mode: Mode) -> (Arc<Store>, Writer) {
    let (store, mut writer) = Store::new(memory_max);
    writer.open(T, mode);
    writer.serve(T, true);
    (store, writer)
}

fn get(store: &Store, key: &[u8]) -> Result<Vec<u8>, Found> {
    let mut row = b"before".to_vec();
    match store.get(T, key, &mut row) {
        Found::Row => Ok(row),
        found => Err(found),
    }
}

/// Every byte is somewhere, and no more than may be.
fn check_accounting(store: &Store) {
    let memory = store.memory();
    let sum = memory.rows + memory.rounding + memory.free + memory.index + memory.notes;
    assert_eq!(sum, memory.held, "{memory:?}");
    assert!(memory.held <= memory.memory_max, "{memory:?}");
}
