//! The writer's side: mappings and transactions.
//!
//! A change of a transaction makes a fork of the key's entry: what it is when the transaction is committed,
//! and what it is until then. So a commit is three stores, however large the transaction; afterwards forks
//! are replaced by their new side.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use foldhash::quality::FixedState;

use super::arena::{Arena, Owner, Shelves};
use super::index::{Growth, Index};
use super::layout::Entry;
use super::read::{Root, Store, Table};
use super::segments::Address;
use super::types::{Accounting, FillTicket, MappingId, Mode, Stopped, Version};
use super::{KEY_MAX, ROW_MAX};

/// Segments of nobody that are kept when a mapping is closed.
const POOL_KEPT: usize = 16;
/// Places where a bounded mapping notes its last changes, by hash.
const CHANGES: usize = 4096;

/// How many stores were made, from 1 on.
static STORES: AtomicU64 = AtomicU64::new(1);

/// Who changes the store: there is one.
pub struct Writer {
    pub(super) store: Arc<Store>,
    pub(super) arena: Arena,
    /// By mapping.
    pub(super) tables: HashMap<u32, Opened, RandomState>,
    pub(super) forks: Shelves,
    /// What the transaction has changed so far.
    pub(super) changes: Vec<Change>,
    openings: u64,
    /// The segment where the search for rows to evict goes on.
    pub(super) hand: usize,
    pub(super) evicted: u64,
    /// Key and row, one after the other.
    pub(super) scratch: Vec<u8>,
}

/// What the writer knows of a mapping.
pub(super) struct Opened {
    pub(super) table: Arc<Table>,
    pub(super) growth: Growth,
    pub(super) shelves: Shelves,
    /// Bytes of its rows, without rounding.
    pub(super) row_bytes: u64,
    /// Bytes of the directories of its index.
    pub(super) directories: u64,
    /// Segments of buckets, and of further lines.
    pub(super) segments: [usize; 2],
    /// The last transactions that changed keys of these hashes, from the one on that opened it.
    /// Only in [`Mode::Bounded`].
    changed: Box<[u64]>,
}

/// A fork of the transaction.
pub(super) struct Change {
    pub(super) mapping: u32,
    pub(super) hash: u64,
    pub(super) fork: Address,
}

impl Store {
    /// A store that takes at most `memory_max` bytes, and its one writer.
    pub fn new(memory_max: u64) -> (Arc<Store>, Writer) {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), memory_max);
        Store::with_seed(memory_max, seed)
    }

    /// With the seed of its hashes.
    pub(crate) fn with_seed(memory_max: u64, seed: u64) -> (Arc<Store>, Writer) {
        let arena = Arena::new(memory_max);
        let root = Root {
            tables: Box::default(),
            directory: Arc::clone(&arena.directory),
        };
        let store = Arc::new(Store {
            sequence: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            root: ArcSwap::from_pointee(root),
            root_number: AtomicU64::new(0),
            number: STORES.fetch_add(1, Ordering::Relaxed),
            gate: RwLock::new(()),
            hashes: FixedState::with_seed(seed),
            accounting: Mutex::default(),
            is_short: AtomicBool::new(false),
        });
        let mut writer = Writer {
            store: Arc::clone(&store),
            arena,
            tables: HashMap::default(),
            forks: Shelves::default(),
            changes: Vec::new(),
            openings: 0,
            hand: 0,
            evicted: 0,
            scratch: Vec::new(),
        };
        writer.account();
        (store, writer)
    }
}

impl Opened {
    fn new(mapping: MappingId, mode: Mode, opening: u64, since: u64) -> Opened {
        let table = Table {
            mapping,
            mode,
            opening,
            served: AtomicBool::new(false),
            index: Index::new(),
            rows: AtomicU64::new(0),
        };
        let changes = if mode == Mode::Bounded { CHANGES } else { 0 };
        Opened {
            directories: table.index.bytes(),
            table: Arc::new(table),
            growth: Growth::default(),
            shelves: Shelves::default(),
            row_bytes: 0,
            segments: [0; 2],
            changed: vec![since; changes].into_boxed_slice(),
        }
    }

    /// Bytes that are not in segments.
    fn notes(&self) -> u64 {
        let fixed = size_of::<Opened>() + size_of::<Table>() + size_of_val(&*self.changed);
        fixed as u64 + self.growth.bytes() + self.shelves.bytes()
    }

    fn changed(&mut self, hash: u64) -> Option<&mut u64> {
        self.changed.get_mut(hash as usize % CHANGES)
    }
}

impl Writer {
    /// Makes an empty mapping that is not served yet. One that was open is closed before. No other mapping is
    /// open that has its [slot](MappingId::slot).
    pub fn open(&mut self, mapping: MappingId, mode: Mode) {
        self.close(mapping);
        debug_assert!(
            self.tables
                .keys()
                .all(|&id| MappingId(id).slot() != mapping.slot()),
            "two mappings of one slot"
        );
        self.openings += 1;
        let since = self.next() - 1;
        let opened = Opened::new(mapping, mode, self.openings, since);
        self.tables.insert(mapping.0, opened);
        self.publish();
        self.account();
    }

    /// From now on readers see the mapping, or do not. Not within a transaction.
    pub fn serve(&mut self, mapping: MappingId, served: bool) {
        if let Some(opened) = self.opened(mapping) {
            opened.table.served.store(served, Ordering::Release);
            self.turn(|_| {});
        }
    }

    /// Drops a mapping with its rows. Its changes in an open transaction are forgotten.
    pub fn close(&mut self, mapping: MappingId) {
        if self.opened(mapping).is_none() {
            return;
        }
        for change in self.changes.extract_if(.., |change| change.mapping == mapping.0) {
            self.arena.give_back(change.fork);
        }
        self.tables.remove(&mapping.0);
        self.publish();
        self.turn(|_| {});
        self.arena.forsake(mapping.0);
        self.shrink(POOL_KEPT);
        self.account();
    }

    /// Gives segments of nobody back, but for so many.
    pub(super) fn shrink(&mut self, keep: usize) {
        if self.arena.shrink(keep) {
            self.publish();
            // The directory that readers have until now does not get the segments to come.
            self.turn(|_| {});
        }
    }

    /// Begins a transaction. What was not committed before is forgotten.
    pub fn begin(&mut self) {
        self.rollback();
    }

    /// The row of a key is this one. Visible after [`commit`](Writer::commit). Nothing happens where the
    /// mapping is closed.
    ///
    /// # Errors
    /// The mapping is closed now, and the transaction goes on without it.
    pub fn put(&mut self, mapping: MappingId, key: &[u8], row: &[u8]) -> Result<(), Stopped> {
        self.change(mapping, key, Some(row))
    }

    /// There is no row of this key. As [`put`](Writer::put).
    pub fn remove(&mut self, mapping: MappingId, key: &[u8]) -> Result<(), Stopped> {
        self.change(mapping, key, None)
    }

    fn change(&mut self, mapping: MappingId, key: &[u8], row: Option<&[u8]>) -> Result<(), Stopped> {
        let hash = self.store.hash(key);
        let next = self.next();
        let Some(opened) = self.opened(mapping) else {
            return Ok(());
        };
        let mode = opened.table.mode;
        if let Some(changed) = opened.changed(hash) {
            *changed = next;
        }
        if let Err(stopped) = fits(key, row) {
            return self.cannot_keep(mapping, hash, key, stopped);
        }
        let had = self.find(mapping, hash, key).is_some();
        let new = match (row, mode) {
            (_, Mode::Bounded) if !had => return Ok(()),
            (None, Mode::Whole) if !had => return Ok(()),
            (None, Mode::Whole) => Ok(Entry::NONE),
            (None, Mode::Bounded) => self.write_row(mapping, hash, key, None),
            (Some(row), _) => self.write_row(mapping, hash, key, Some(row)),
        };
        match new.and_then(|new| self.fork(mapping, hash, key, new)) {
            Ok(()) => Ok(()),
            Err(_) => {
                let memory_max = self.arena.memory_max;
                self.cannot_keep(mapping, hash, key, Stopped::MemoryMax { memory_max })
            }
        }
    }

    /// A bounded mapping forgets the key, at once; a whole one is no longer whole.
    fn cannot_keep(
        &mut self,
        mapping: MappingId,
        hash: u64,
        key: &[u8],
        why: Stopped,
    ) -> Result<(), Stopped> {
        if self
            .opened(mapping)
            .is_some_and(|opened| opened.table.mode == Mode::Bounded)
        {
            self.forget(mapping, hash, key);
            return Ok(());
        }
        self.close(mapping);
        Err(why)
    }

    /// Makes all of the transaction visible, and says under which number.
    pub fn commit(&mut self) -> Version {
        let version = self.next();
        if self.changes.is_empty() && self.arena.in_limbo() == 0 {
            self.store.committed.store(version, Ordering::Release);
            return Version(version);
        }
        let changes = std::mem::take(&mut self.changes);
        for change in &changes {
            let (_, old) = self.sides(change);
            self.give_back_row(change.mapping, old);
        }
        self.turn(|store| store.committed.store(version, Ordering::Relaxed));
        for change in &changes {
            let (new, _) = self.sides(change);
            self.settle(change, new);
        }
        self.reuse(changes);
        Version(version)
    }

    /// Forgets what was not committed.
    pub fn rollback(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        for change in &changes {
            let (new, old) = self.sides(change);
            self.give_back_row(change.mapping, new);
            self.settle(change, old);
        }
        self.reuse(changes);
    }

    /// Keeps the memory for the next transaction, if it is not much.
    fn reuse(&mut self, mut changes: Vec<Change>) {
        changes.clear();
        if changes.capacity() <= 1 << 12 {
            self.changes = changes;
        }
        self.account();
    }

    /// Keeps what the server said about a key: its row, or that there is none. Visible at once. It may be
    /// called within a transaction. False where nothing is kept: the row has changed since, or was filled by
    /// another, or there is no room, or the mapping was closed.
    pub fn fill(&mut self, ticket: &FillTicket, key: &[u8], row: Option<&[u8]>) -> bool {
        let (mapping, hash) = (ticket.mapping, self.store.hash(key));
        let is_short = self.store.is_short.load(Ordering::Relaxed);
        let Some(opened) = self.opened(mapping).filter(|_| !is_short) else {
            return false;
        };
        let newer = opened
            .changed(hash)
            .is_none_or(|changed| *changed > ticket.version.0);
        if newer || opened.table.opening != ticket.opening || fits(key, row).is_err() {
            return false;
        }
        if self.find(mapping, hash, key).is_some() {
            return false;
        }
        let Ok(entry) = self.write_row(mapping, hash, key, row) else {
            return false;
        };
        if self.insert(mapping, hash, entry).is_err() {
            self.give_back_row(mapping.0, entry);
            return false;
        }
        self.count(mapping.0, Entry::NONE, entry);
        self.account();
        true
    }

    /// The number of the transaction that is open.
    pub(super) fn next(&self) -> u64 {
        self.store.committed.load(Ordering::Relaxed) + 1
    }

    pub(super) fn opened(&mut self, mapping: MappingId) -> Option<&mut Opened> {
        self.tables.get_mut(&mapping.0)
    }

    /// Shows readers which mappings are open, and where memory is.
    fn publish(&self) {
        let slots = self.tables.keys().map(|&id| MappingId(id).slot() as usize + 1);
        let mut tables = vec![None; slots.max().unwrap_or(0)];
        for (&id, opened) in &self.tables {
            tables[MappingId(id).slot() as usize] = Some(Arc::clone(&opened.table));
        }
        let root = Root {
            tables: tables.into(),
            directory: Arc::clone(&self.arena.directory),
        };
        self.store.root.store(Arc::new(root));
        self.store.root_number.fetch_add(1, Ordering::Release);
    }

    /// Turns the sequence, with `flip` while it is odd: this is all that readers can be disturbed by. Then
    /// what was given back is free.
    pub(super) fn turn(&mut self, flip: impl FnOnce(&Store)) {
        {
            let _gate = self.store.gate.write().unwrap_or_else(PoisonError::into_inner);
            let sequence = self.store.sequence.load(Ordering::Relaxed);
            self.store.sequence.store(sequence + 1, Ordering::Relaxed);
            fence(Ordering::Release);
            flip(&self.store);
            self.store.sequence.store(sequence + 2, Ordering::Release);
        }
        let (tables, forks) = (&mut self.tables, &mut self.forks);
        self.arena.turned(|owner, with| match owner {
            Owner::Forks => with(forks),
            Owner::Rows(at) => {
                if let Some(opened) = tables.get_mut(&at) {
                    with(&mut opened.shelves);
                }
            }
            Owner::Index(_) | Owner::Nobody => {}
        });
    }

    /// Publishes where memory is.
    pub(super) fn account(&mut self) {
        let opened = || self.tables.values();
        let fixed =
            size_of::<Store>() + size_of::<Writer>() + self.tables.capacity() * size_of::<(u32, Opened)>();
        let lists = self.changes.capacity() * size_of::<Change>() + self.scratch.capacity();
        let notes = opened().map(Opened::notes).sum::<u64>() + self.forks.bytes() + (fixed + lists) as u64;
        let directories = opened().map(|opened| opened.directories).sum::<u64>();
        self.arena.others = notes + directories;
        let rows = opened().map(|opened| opened.row_bytes).sum();
        let accounting = Accounting {
            memory_max: self.arena.memory_max,
            held: self.arena.held(),
            rows,
            rounding: self.arena.used_bytes().saturating_sub(rows),
            free: self.arena.free_bytes(),
            index: self.arena.index_bytes() + directories,
            notes: notes + self.arena.bytes(),
            row_count: opened().map(|opened| opened.growth.entries()).sum(),
            evicted: self.evicted,
        };
        *self
            .store
            .accounting
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = accounting;
    }
}

fn fits(key: &[u8], row: Option<&[u8]>) -> Result<(), Stopped> {
    let len = row.map_or(0, <[u8]>::len);
    if key.len() > KEY_MAX {
        return Err(Stopped::KeyTooLong { len: key.len() });
    }
    if len > ROW_MAX {
        return Err(Stopped::RowTooLong { len });
    }
    Ok(())
}
