//! The readers' side.
//!
//! The sequence is odd for the three stores in which a transaction becomes visible, and another number after
//! them. A reader notes it, reads, and looks whether it is the same: then nothing that it can have come
//! across was given to somebody else meanwhile, and what it read is the state after the last transaction.
//! Nothing else that the writer does disturbs it: changes of a transaction that is not committed are in
//! forks, whose old side it takes.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arc_swap::ArcSwap;
use foldhash::quality::FixedState;

use super::index::Index;
use super::layout::{Entry, Header, append_key, append_row, key_is};
use super::segments::{Directory, Words};
use super::types::{Accounting, FillTicket, Found, MappingId, Mode, NotRead, Version};

/// Tries before the writer is asked to hold on.
const TRIES: usize = 64;
/// The same for several keys, which take longer.
const SNAPSHOT_TRIES: usize = 3;
/// Rows from this length on are copied only after another look at the sequence: the length may be anything.
const LONG: usize = 4096;
/// Buckets that a scan looks at for a row that is wanted.
const SCAN_BUCKETS: usize = 16;
/// The part of a hash's reversed bits that a cursor has: clients keep cursors as floating point numbers.
const CURSOR_SHIFT: u32 = 16;

thread_local! {
    /// The root that this thread has read last, with its store's number and its own. To count references to
    /// it would cost every read two locked instructions, which wait for all loads before them. So the memory
    /// of a mapping that was closed is given back when all threads have read something else.
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { number: (0, 0), root: None }) };
}

struct Kept {
    number: (u64, u64),
    root: Option<Arc<Root>>,
}

/// What readers see. Shared by all threads.
pub struct Store {
    /// Even while the rest can be read.
    pub(super) sequence: AtomicU64,
    /// The last transaction.
    pub(super) committed: AtomicU64,
    pub(super) root: ArcSwap<Root>,
    /// Which root it is.
    pub(super) root_number: AtomicU64,
    /// Another for every store.
    pub(super) number: u64,
    /// Held while the sequence turns, and by readers who were disturbed too often, so that it does not.
    pub(super) gate: RwLock<()>,
    pub(super) hashes: FixedState,
    pub(super) accounting: Mutex<Accounting>,
    /// The process is short of memory.
    pub(super) is_short: AtomicBool,
}

/// Where everything is.
pub(super) struct Root {
    /// By the [slot](MappingId::slot) of the mapping.
    pub(super) tables: Box<[Option<Arc<Table>>]>,
    pub(super) directory: Arc<Directory>,
}

/// A mapping that is open.
pub(super) struct Table {
    pub(super) mapping: MappingId,
    pub(super) mode: Mode,
    pub(super) opening: u64,
    pub(super) served: AtomicBool,
    pub(super) index: Index,
    /// Without absences.
    pub(super) rows: AtomicU64,
}

/// A time in which the sequence does not change.
#[derive(Clone, Copy)]
struct Period {
    sequence: u64,
    committed: u64,
}

impl Store {
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    fn period(&self) -> Option<Period> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let committed = self.committed.load(Ordering::Relaxed);
        sequence
            .is_multiple_of(2)
            .then_some(Period { sequence, committed })
    }

    /// All that was read since the period began belongs together.
    fn lasts(&self, period: Period) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == period.sequence
    }

    /// With the root that is there now, or that was there when the caller's period began.
    fn with_root<R>(&self, read: impl FnOnce(&Root) -> R) -> R {
        let number = (self.number, self.root_number.load(Ordering::Relaxed));
        KEPT.with(|kept| {
            let is_kept = kept.try_borrow().is_ok_and(|kept| kept.number == number);
            if !is_kept && let Ok(mut kept) = kept.try_borrow_mut() {
                *kept = Kept {
                    number,
                    root: Some(self.root.load_full()),
                };
            }
            match kept.try_borrow().as_deref() {
                Ok(Kept {
                    number: of,
                    root: Some(root),
                }) if *of == number => read(root),
                // Within a read of another store.
                _ => read(&self.root.load()),
            }
        })
    }

    /// What `read` gives when nothing disturbed it. `None` from it is a disturbance, too.
    fn undisturbed<R>(
        &self,
        tries: usize,
        mut read: impl FnMut(&View<'_>) -> Option<R>,
    ) -> Result<R, NotRead> {
        let mut once = || {
            let period = self.period()?;
            self.with_root(|root| {
                read(&View {
                    store: self,
                    root,
                    period,
                })
            })
            .filter(|_| self.lasts(period))
        };
        for _ in 0..tries {
            if let Some(result) = once() {
                return Ok(result);
            }
            std::hint::spin_loop();
        }
        let _held = self.gate.try_read().map_err(|_| NotRead::Busy)?;
        (0..TRIES).find_map(|_| once()).ok_or(NotRead::Busy)
    }

    /// The row of a key replaces what is in `row`.
    pub fn get(&self, mapping: MappingId, key: &[u8], row: &mut Vec<u8>) -> Found {
        let hash = self.hash(key);
        self.undisturbed(TRIES, |view| view.look_up(mapping, key, hash, row))
            .unwrap_or(Found::Busy)
    }

    /// Reads several keys of one state. `look` may be called several times, and only its last result counts;
    /// where it gets [`Found::Busy`] it should return at once, no matter what.
    ///
    /// `look` should be short, some milliseconds at most: after a few tries it keeps the writer from
    /// committing.
    ///
    /// # Errors
    /// [`NotRead::Busy`].
    pub fn snapshot<R>(&self, mut look: impl FnMut(&View<'_>) -> R) -> Result<R, NotRead> {
        self.undisturbed(SNAPSHOT_TRIES, |view| Some(look(view)))
    }

    /// Calls `each` with `count` rows or a few more, and returns where to go on: 0 at the end. Begins at 0;
    /// cursors are below 2^48. A row that is there from the beginning of a scan to its end is seen, perhaps
    /// twice, whatever happens to others.
    pub fn scan(
        &self,
        mapping: MappingId,
        cursor: u64,
        count: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, NotRead> {
        let mut point = cursor << CURSOR_SHIFT;
        let (mut rows, mut seen) = (Vec::new(), 0);
        for _ in 0..count.saturating_mul(SCAN_BUCKETS).max(SCAN_BUCKETS) {
            let bits = self.undisturbed(TRIES, |view| view.bucket(mapping, point, &mut rows))??;
            for (key, row) in &rows {
                each(key, row);
            }
            seen += rows.len();
            let step = 1_u64 << (64 - bits);
            match (point & !(step - 1)).checked_add(step) {
                None => return Ok(0),
                Some(next) => point = next,
            }
            if seen >= count {
                break;
            }
        }
        Ok(point >> CURSOR_SHIFT)
    }

    /// The key of some row, chosen by `random`, replaces what is in `key`. Where rows are gone most buckets
    /// are empty: `look_on` is told of each that is looked at, with the bytes of the rows there, and ends the
    /// search with false ([`Found::Missing`]).
    pub fn random_key(
        &self,
        mapping: MappingId,
        random: u64,
        key: &mut Vec<u8>,
        mut look_on: impl FnMut(usize) -> bool,
    ) -> Found {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut point = random;
        loop {
            if self.len(mapping) == Some(0) {
                return Found::Absent;
            }
            let bits = match self.undisturbed(TRIES, |view| view.bucket(mapping, point, &mut rows)) {
                Err(_) => return Found::Busy,
                Ok(Err(_)) => return Found::Closed,
                Ok(Ok(bits)) => bits,
            };
            let looks_on = look_on(rows.iter().map(|(key, row)| key.len() + row.len()).sum());
            if !rows.is_empty() {
                let (found, _) = rows.swap_remove((random >> 7) as usize % rows.len());
                *key = found;
                return Found::Row;
            }
            if !looks_on {
                return Found::Missing;
            }
            let step = 1_u64 << (64 - bits);
            point = (point & !(step - 1)).wrapping_add(step);
        }
    }

    /// How many rows a mapping has here. `None` where it is not served.
    pub fn len(&self, mapping: MappingId) -> Option<u64> {
        self.with_root(|root| Some(root.served(mapping)?.rows.load(Ordering::Relaxed)))
    }

    /// Bytes that a row takes here, with its place in the index. `None` where there is none.
    pub fn row_size(&self, mapping: MappingId, key: &[u8]) -> Option<u64> {
        let mut row = Vec::new();
        let found = self.get(mapping, key, &mut row);
        let header = Header::new(key.len(), row.len());
        (found == Found::Row).then(|| header.place_bytes() + size_of::<Entry>() as u64)
    }

    /// From here on rows of bounded mappings are given back and none are taken, or all is as before.
    pub fn set_short_of_memory(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// Where memory is, as of the writer's last change.
    pub fn memory(&self) -> Accounting {
        *self.accounting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last transaction that is visible.
    pub fn version(&self) -> Version {
        Version(self.committed.load(Ordering::Acquire))
    }

    /// Before the server is asked for rows that are missing: `version` is that of
    /// [`Applied`](crate::coherence::Applied). `None` where the mapping is closed or whole.
    pub fn fill_begin(&self, mapping: MappingId, version: Version) -> Option<FillTicket> {
        let opening = self.with_root(|root| {
            let table = root.table(mapping).filter(|table| table.mode == Mode::Bounded);
            table.map(|table| table.opening)
        })?;
        Some(FillTicket {
            mapping,
            opening,
            version,
        })
    }
}

impl Root {
    pub(super) fn table(&self, mapping: MappingId) -> Option<&Arc<Table>> {
        let table = self.tables.get(mapping.slot() as usize)?.as_ref();
        table.filter(|table| table.mapping == mapping)
    }

    fn served(&self, mapping: MappingId) -> Option<&Table> {
        self.table(mapping)
            .map(|table| &**table)
            .filter(|table| table.served.load(Ordering::Acquire))
    }
}

/// One state of the store, for [`Store::snapshot`].
pub struct View<'s> {
    store: &'s Store,
    root: &'s Root,
    period: Period,
}

/// What an entry says about a key.
enum Look<'s> {
    Row(Words<'s>),
    Absent,
    /// There is a fork for it, with nothing on the side that counts.
    Nothing,
}

impl View<'_> {
    /// As [`Store::get`], of this state.
    pub fn get(&self, mapping: MappingId, key: &[u8], row: &mut Vec<u8>) -> Found {
        let hash = self.store.hash(key);
        for _ in 0..TRIES {
            let found = self.look_up(mapping, key, hash, row);
            if !self.store.lasts(self.period) {
                return Found::Busy;
            }
            if let Some(found) = found {
                return found;
            }
            std::hint::spin_loop();
        }
        Found::Busy
    }

    /// `None`: disturbed.
    fn look_up(&self, mapping: MappingId, key: &[u8], hash: u64, row: &mut Vec<u8>) -> Option<Found> {
        let Some(table) = self.root.served(mapping) else {
            return Some(Found::Closed);
        };
        let found = table.index.search(hash, |entry| self.look(entry, key)).ok()?;
        let words = match (found, table.mode) {
            (Some(Look::Row(words)), _) => words,
            (Some(Look::Absent), _) | (_, Mode::Whole) => return Some(Found::Absent),
            (_, Mode::Bounded) => return Some(Found::Missing),
        };
        row.clear();
        self.append(words, row)?;
        if table.mode == Mode::Bounded {
            words.touch();
        }
        Some(Found::Row)
    }

    /// What an entry says, if it is the key's.
    fn look(&self, entry: Entry, key: &[u8]) -> Option<Look<'_>> {
        let (now, other) = self.resolve(entry)?;
        let words = self
            .root
            .directory
            .words(if now.is_none() { other } else { now }.address())?;
        if !key_is(words, key) {
            return None;
        }
        Some(match now {
            Entry::NONE => Look::Nothing,
            now if now.is_absent() => Look::Absent,
            _ => Look::Row(words),
        })
    }

    /// The side of a fork that counts, and the other one.
    fn resolve(&self, entry: Entry) -> Option<(Entry, Entry)> {
        if !entry.is_fork() {
            return Some((entry, entry));
        }
        let fork = self.root.directory.words(entry.address())?;
        let (new, old) = (Entry(fork.load(1)), Entry(fork.load(2)));
        Some(if fork.load(0) <= self.period.committed {
            (new, old)
        } else {
            (old, new)
        })
    }

    fn append(&self, words: Words<'_>, row: &mut Vec<u8>) -> Option<()> {
        let header = Header(words.load(0));
        if !header.is_header() || header.row() > LONG && !self.store.lasts(self.period) {
            return None;
        }
        append_row(&self.root.directory, words, header, row)
    }

    /// The rows of the bucket at a point replace what is in `rows`; returns the bits that the bucket takes.
    fn bucket(
        &self,
        mapping: MappingId,
        point: u64,
        rows: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Option<Result<u32, NotRead>> {
        let Some(table) = self.root.served(mapping) else {
            return Some(Err(NotRead::Closed));
        };
        rows.clear();
        let mut torn = false;
        let bits = table.index.each_at(point, |entry| match self.resolve(entry) {
            Some((now, _)) if now.is_row() => {
                let (mut key, mut row) = (Vec::new(), Vec::new());
                let copied = self.root.directory.words(now.address()).and_then(|words| {
                    append_key(words, &mut key);
                    self.append(words, &mut row)
                });
                torn |= copied.is_none();
                rows.push((key, row));
            }
            Some(_) => {}
            None => torn = true,
        });
        bits.ok().filter(|_| !torn).map(Ok)
    }
}
