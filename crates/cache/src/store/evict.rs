//! Room for what is new. Bounded mappings are gone through segment by segment, as the hand of a clock: rows
//! that nobody has read since the last round are evicted, and after a few segments everything in one, so that
//! there is room for rows of another size, too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::arena::{Full, Owner};
use super::layout::{Header, append_key};
use super::segments::{Address, LINE_WORDS};
use super::types::{MappingId, Mode};
use super::writer::Writer;

/// Segments in which only rows are evicted that were not read.
const GENTLE: usize = 8;
/// Segments that are then emptied: in each there may be rows that a transaction is about to change.
const FORCED: usize = 64;
/// Segments, of 64 KiB each, that are given back at a time where there are few: else one of so many.
const GIVEN_BACK: usize = 64;

impl Writer {
    /// Makes room for a place of so many words, or for a segment.
    pub(super) fn make_room(&mut self, wanted: Option<(Owner, usize)>) -> Result<(), Full> {
        if self.arena.in_limbo() > 0 {
            self.turn(|_| {});
            if self.has_room(wanted) {
                return Ok(());
            }
        }
        for round in 0..GENTLE + FORCED {
            let segment = self.next_segment().ok_or(Full)?;
            self.sweep(segment, round >= GENTLE);
            self.turn(|_| {});
            if self.has_room(wanted) {
                return Ok(());
            }
        }
        Err(Full)
    }

    /// While memory is short: drops rows of bounded mappings, read lately or not, and gives their segments
    /// back to the allocator. To be called again and again.
    pub fn give_back(&mut self) {
        if !self.store.is_short.load(Ordering::Relaxed) {
            return;
        }
        let numbers = self.arena.numbers();
        for _ in 0..numbers.div_ceil(4).min(GIVEN_BACK.max(numbers / GIVEN_BACK)) {
            let Some(segment) = self.next_segment() else { break };
            self.sweep(segment, true);
        }
        self.turn(|_| {});
        self.shrink(0);
        self.account();
    }

    fn has_room(&self, wanted: Option<(Owner, usize)>) -> bool {
        let Some((owner, words)) = wanted else {
            return self.arena.has_segment();
        };
        let shelves = match owner {
            Owner::Rows(at) => self.tables.get(&at).map(|opened| &opened.shelves),
            _ => Some(&self.forks),
        };
        shelves.is_some_and(|shelves| self.arena.has_place(owner, shelves, words))
    }

    /// The next segment of rows of a bounded mapping.
    fn next_segment(&mut self) -> Option<usize> {
        let numbers = self.arena.numbers();
        let bounded = |segment: &usize| match self.arena.owner(*segment) {
            Owner::Rows(at) => {
                let opened = self.tables.get(&at);
                opened.is_some_and(|opened| opened.table.mode == Mode::Bounded)
            }
            _ => false,
        };
        let next = (1..=numbers)
            .map(|step| (self.hand + step) % numbers)
            .find(bounded)?;
        self.hand = next;
        Some(next)
    }

    fn sweep(&mut self, number: usize, everything: bool) {
        let directory = Arc::clone(&self.arena.directory);
        let (Owner::Rows(mapping), Some(segment)) = (self.arena.owner(number), directory.get(number)) else {
            return;
        };
        let mut places = Vec::new();
        self.arena.taken(number, &mut places);
        for place in places {
            let Some(words) = directory.words(place) else {
                continue;
            };
            if Header(words.load(0)).is_header() {
                if everything || !segment.referenced(place.word() / LINE_WORDS) {
                    self.evict(MappingId(mapping), place);
                }
            } else if everything {
                self.evict(MappingId(mapping), Address(words.load(1)));
            }
        }
        segment.forget_references();
    }

    /// Evicts the row at an address, if there is one that is not being changed.
    fn evict(&mut self, mapping: MappingId, address: Address) {
        let directory = Arc::clone(&self.arena.directory);
        let Some(words) = directory
            .words(address)
            .filter(|words| Header(words.load(0)).is_header())
        else {
            return;
        };
        let mut key = Vec::new();
        append_key(words, &mut key);
        let hash = self.store.hash(&key);
        match self.find(mapping, hash, &key) {
            Some(entry) if !entry.is_fork() && entry.address() == address => {
                self.drop_entry(mapping, hash, entry);
                self.evicted += 1;
            }
            _ => {}
        }
    }
}
