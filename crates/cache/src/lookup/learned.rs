//! What was learned of lookups: how their answers look, and that this user has the right to them.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane::extension::Left;
use foldhash::fast::RandomState;

use super::render::Rendering;
use super::shape::{Kept, Shape};
use crate::mapping::Mapping;

/// How lookups of one shape are answered.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) mapping: Arc<Mapping>,
    /// Which condition is about which column of the key.
    pub(super) order: Box<[usize]>,
    /// The packets before the row, and the number of the one after them.
    pub(super) head: Box<[u8]>,
    pub(super) next: u8,
    /// The payload of the last packet.
    pub(super) end: Box<[u8]>,
    pub(super) rendering: Rendering,
    /// As of which definitions and grants.
    pub(super) definitions: u64,
    pub(super) epoch: u32,
}

/// A shape, and what came of it.
#[derive(Debug)]
struct Entry {
    shape: Kept,
    definitions: u64,
    epoch: u32,
    what: Result<Rc<Ready>, Left>,
}

impl Entry {
    /// Bytes that it holds.
    fn size(&self) -> usize {
        let head = self.what.as_ref().map_or(0, |ready| ready.head.len());
        size_of::<Self>() + self.shape.len() + head
    }
}

/// A shape whose answers were not what memory had at that moment: it was behind, or ahead, or shows rows
/// otherwise.
#[derive(Debug)]
struct Doubt {
    shape: Kept,
    ready: Rc<Ready>,
    /// Rows that the server has shown, the newest last.
    shown: VecDeque<Shown>,
}

/// A row that the server has shown, or that it showed none.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) key: Vec<u8>,
    pub(super) row: Option<Box<[u8]>>,
}

const DOUBTS_MAX: usize = 256;

/// Rows of a doubt: memory is seldom behind by more changes of one row.
const SHOWN_MAX: usize = 32;

/// The longest row of a doubt, in bytes.
const SHOWN_LEN_MAX: usize = 512;

/// Everything that was learned on one worker.
#[derive(Debug)]
pub(super) struct Learned {
    entries: HashMap<u64, Entry, RandomState>,
    doubts: HashMap<u64, Doubt, RandomState>,
    /// Bytes of what entries hold, those counted that have made room since the last epoch began.
    bytes: usize,
    pub(super) hashes: RandomState,
    epoch: u32,
    seen: Cell<(u64, Option<Instant>)>,
}

/// Shapes that are kept; an application has hundreds.
const KEPT_MAX: usize = 8192;

/// Bytes of what they hold. A SELECT of 20 columns takes 2 KB.
const BYTES_MAX: usize = 32 << 20;

/// What was learned is good for this one and the next: no grant that was taken away unseen is used for
/// longer.
pub(super) const EPOCH: Duration = Duration::from_secs(30);

/// A grant is in the binary log before all of the server goes by it.
const SETTLES: Duration = Duration::from_secs(1);

impl Learned {
    pub(super) fn new(definitions: u64) -> Self {
        Self {
            entries: HashMap::default(),
            doubts: HashMap::default(),
            bytes: 0,
            hashes: RandomState::default(),
            epoch: 0,
            seen: Cell::new((definitions, None)),
        }
    }

    /// What is known of a shape now.
    pub(super) fn get(
        &self,
        hash: u64,
        shape: &Shape<'_>,
        definitions: u64,
    ) -> Option<&Result<Rc<Ready>, Left>> {
        let entry = self.entries.get(&hash)?;
        let is_current = entry.definitions == definitions && self.is_of_now(entry.epoch);
        (is_current && shape.is(&entry.shape)).then_some(&entry.what)
    }

    pub(super) fn put(
        &mut self,
        hash: u64,
        shape: Kept,
        definitions: u64,
        epoch: u32,
        what: Result<Rc<Ready>, Left>,
    ) {
        self.doubts.remove(&hash);
        let entry = Entry {
            shape,
            definitions,
            epoch,
            what,
        };
        if self.entries.len() >= KEPT_MAX || self.bytes > BYTES_MAX {
            self.entries.clear();
            self.bytes = 0;
        }
        self.bytes += entry.size();
        self.entries.insert(hash, entry);
    }

    /// Keeps what the server has shown and memory has not: once memory does, the shape is known.
    pub(super) fn doubt(&mut self, hash: u64, shape: Kept, ready: Rc<Ready>, shown: Shown) {
        if shown.row.as_ref().is_some_and(|row| row.len() > SHOWN_LEN_MAX) {
            return;
        }
        if self.doubts.len() >= DOUBTS_MAX {
            self.doubts.clear();
        }
        let doubt = self.doubts.entry(hash).or_insert_with(|| Doubt {
            shape: shape.clone(),
            ready: Rc::clone(&ready),
            shown: VecDeque::new(),
        });
        if doubt.shape != shape || doubt.ready.definitions != ready.definitions {
            doubt.shown.clear();
        }
        (doubt.shape, doubt.ready) = (shape, ready);
        if doubt.shown.len() >= SHOWN_MAX {
            doubt.shown.pop_front();
        }
        doubt.shown.push_back(shown);
    }

    /// What would be known of a shape if memory showed any of these rows.
    pub(super) fn doubts(
        &self,
        hash: u64,
        shape: &Shape<'_>,
        definitions: u64,
    ) -> Option<(&Rc<Ready>, impl Iterator<Item = &Shown>)> {
        let doubt = self.doubts.get(&hash)?;
        let is_current = doubt.ready.definitions == definitions && self.is_of_now(doubt.ready.epoch);
        (is_current && shape.is(&doubt.shape)).then(|| (&doubt.ready, doubt.shown.iter()))
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether what was learned in that epoch is still good.
    pub(super) fn is_of_now(&self, epoch: u32) -> bool {
        self.epoch.wrapping_sub(epoch) < 2
    }

    /// Time has passed.
    pub(super) fn next_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        let epoch = self.epoch;
        self.entries
            .retain(|_, entry| epoch.wrapping_sub(entry.epoch) < 2);
        self.bytes = self.entries.values().map(Entry::size).sum();
        self.doubts
            .retain(|_, doubt| epoch.wrapping_sub(doubt.ready.epoch) < 2);
    }

    /// Whether nothing has changed just now, so that what a server says goes by the definitions and grants
    /// that it has logged.
    pub(super) fn is_settled(&self, definitions: u64, now: Instant) -> bool {
        let (seen, since) = self.seen.get();
        if seen != definitions {
            self.seen.set((definitions, Some(now)));
            return false;
        }
        since.is_none_or(|since| now.duration_since(since) >= SETTLES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_just_now_is_not_learned_from() {
        let learned = Learned::new(5);
        let now = Instant::now();
        assert!(learned.is_settled(5, now));
        assert!(!learned.is_settled(6, now));
        assert!(!learned.is_settled(6, now + SETTLES / 2));
        assert!(learned.is_settled(6, now + SETTLES));
    }
}
