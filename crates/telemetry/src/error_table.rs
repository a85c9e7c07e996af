//! Errors counted by code and fault, in a fixed table that one thread writes and any thread reads.
//!
//! A hash map would need a lock, and errors are on the path of a query: an application that runs into
//! duplicate keys makes thousands a second.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Counter, Fault};

/// Distinct pairs of code and fault that are told apart; further ones are counted without their code.
const SLOTS: usize = 256;
/// How far from its place a pair may be stored.
const PROBES: usize = 16;

/// Counts by error code and fault. Bounded: codes that find no place are counted as [`None`].
#[derive(Debug)]
pub(crate) struct ErrorTable {
    /// 0 = free, otherwise `code << 2 | fault + 1`. Written once.
    keys: [AtomicU32; SLOTS],
    counts: [Counter; SLOTS],
    overflow: [Counter; Fault::ALL.len()],
}

impl Default for ErrorTable {
    fn default() -> Self {
        Self {
            keys: [const { AtomicU32::new(0) }; SLOTS],
            counts: [const { Counter::new() }; SLOTS],
            overflow: [const { Counter::new() }; Fault::ALL.len()],
        }
    }
}

impl ErrorTable {
    /// Counts one error. Only ever called from one thread.
    pub(crate) fn record(&self, code: u16, fault: Fault) {
        let key = u32::from(code) << 2 | (fault as u32 + 1);
        // Fibonacci hashing: error codes are consecutive numbers, which must not land side by side.
        let home = (key.wrapping_mul(0x9e37_79b9) >> 24) as usize;
        for slot in (home..home + PROBES).map(|slot| slot % SLOTS) {
            match self.keys[slot].load(Ordering::Relaxed) {
                0 => self.keys[slot].store(key, Ordering::Relaxed),
                taken if taken != key => continue,
                _ => {}
            }
            return self.counts[slot].inc();
        }
        self.overflow[fault as usize].inc();
    }

    /// Every pair counted so far. The code is `None` for those that found no place.
    pub(crate) fn each(&self, mut visit: impl FnMut(Option<u16>, Fault, u64)) {
        for (key, count) in self.keys.iter().zip(&self.counts) {
            let key = key.load(Ordering::Relaxed);
            if key != 0 {
                visit(
                    Some((key >> 2) as u16),
                    Fault::ALL[(key & 3) as usize - 1],
                    count.get(),
                );
            }
        }
        for (fault, count) in Fault::ALL.into_iter().zip(&self.overflow) {
            if count.get() > 0 {
                visit(None, fault, count.get());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn counts(table: &ErrorTable) -> BTreeMap<(Option<u16>, &'static str), u64> {
        let mut found = BTreeMap::new();
        table.each(|code, fault, count| assert!(found.insert((code, fault.label()), count).is_none()));
        found
    }

    #[test]
    fn code_and_fault_are_told_apart() {
        let table = ErrorTable::default();
        table.record(1062, Fault::Server);
        table.record(1062, Fault::Server);
        table.record(1062, Fault::Client);
        table.record(0, Fault::Gateway);
        table.record(u16::MAX, Fault::Server);
        assert_eq!(
            counts(&table),
            BTreeMap::from([
                ((Some(0), "gateway"), 1),
                ((Some(1062), "client"), 1),
                ((Some(1062), "server"), 2),
                ((Some(u16::MAX), "server"), 1),
            ])
        );
    }

    #[test]
    fn a_peer_that_invents_codes_fills_the_table_and_nothing_is_lost() {
        let table = ErrorTable::default();
        (0..=u16::MAX).for_each(|code| table.record(code, Fault::Server));
        let found = counts(&table);
        assert!(found.len() <= SLOTS + 1);
        assert_eq!(found.values().sum::<u64>(), 65_536);
    }

    #[test]
    fn the_codes_of_a_busy_server_find_a_place() {
        let table = ErrorTable::default();
        (1000..1100).for_each(|code| table.record(code, Fault::Server));
        assert_eq!(
            counts(&table).keys().filter(|(code, _)| code.is_none()).count(),
            0
        );
    }
}
