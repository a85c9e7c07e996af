//! The store against a model of it, and with several threads.

mod bounded;
mod large;
mod model;
mod threads;
mod whole;

use std::sync::Arc;

use inputs::Random;

use super::{Found, MappingId, Mode, Store, Writer};

const T: MappingId = MappingId(0);

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
