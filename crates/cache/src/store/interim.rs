//! The store as a map behind a lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use super::types::{Accounting, FillTicket, Filled, Found, MappingId, Mode, NotRead, Stopped, Version};
use super::{KEY_MAX, ROW_MAX};

/// What readers see. Shared by all threads.
pub struct Store {
    tables: RwLock<Tables>,
    memory_max: u64,
}

#[derive(Default)]
struct Tables {
    open: HashMap<MappingId, Table>,
    version: Version,
    openings: u64,
}

struct Table {
    mode: Mode,
    opening: u64,
    served: bool,
    /// `None` is a remembered absence.
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    changed: HashMap<Vec<u8>, Version>,
}

impl Store {
    /// A store that takes at most `memory_max` bytes, and its one writer.
    pub fn new(memory_max: u64) -> (Arc<Store>, Writer) {
        let store = Arc::new(Store {
            tables: RwLock::default(),
            memory_max,
        });
        let writer = Writer {
            store: Arc::clone(&store),
            changes: Vec::new(),
        };
        (store, writer)
    }

    fn read<R>(&self, look: impl FnOnce(&Tables) -> R) -> R {
        look(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The row of a key replaces what is in `row`.
    pub fn get(&self, mapping: MappingId, key: &[u8], row: &mut Vec<u8>) -> Found {
        self.read(|tables| tables.get(mapping, key, row))
    }

    /// Reads several keys of one state. `look` may be called several times, and only its last result counts; where it
    /// gets [`Found::Busy`] it should return, no matter what.
    ///
    /// # Errors
    /// [`NotRead::Busy`].
    pub fn snapshot<R>(&self, mut look: impl FnMut(&View<'_>) -> R) -> Result<R, NotRead> {
        self.read(|tables| Ok(look(&View { tables })))
    }

    /// Calls `each` with `count` rows or a few more, and returns where to go on: 0 at the end. Begins at 0. A row that is there from
    /// the beginning of a scan to its end is seen, perhaps twice, even when the mapping grows.
    ///
    /// # Errors
    /// The mapping cannot be read now.
    pub fn scan(
        &self,
        mapping: MappingId,
        cursor: u64,
        count: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, NotRead> {
        self.read(|tables| {
            let table = tables.served(mapping).ok_or(NotRead::Closed)?;
            let mut rows = table.rows.iter().enumerate().skip(cursor as usize);
            for (_, (key, row)) in rows.by_ref().take(count.max(1)) {
                if let Some(row) = row {
                    each(key, row);
                }
            }
            Ok(rows.next().map_or(0, |(at, _)| at as u64))
        })
    }

    /// The key of some row, chosen by `random`, replaces what is in `key`.
    pub fn random_key(&self, mapping: MappingId, random: u64, key: &mut Vec<u8>) -> Found {
        self.read(|tables| {
            let Some(table) = tables.served(mapping) else {
                return Found::Closed;
            };
            let rows = table.rows.iter().filter(|(_, row)| row.is_some());
            let at = random as usize % table.rows.len().max(1);
            match rows.cycle().nth(at) {
                Some((found, _)) => {
                    key.clone_from(found);
                    Found::Row
                }
                None => Found::Absent,
            }
        })
    }

    /// How many rows a mapping has here. `None` where it is not served.
    pub fn len(&self, mapping: MappingId) -> Option<u64> {
        self.read(|tables| Some(tables.served(mapping)?.rows.values().flatten().count() as u64))
    }

    /// Bytes that a row takes here, with its share of the index. `None` where there is none.
    pub fn row_size(&self, mapping: MappingId, key: &[u8]) -> Option<u64> {
        self.read(|tables| Some((key.len() + tables.served(mapping)?.rows.get(key)?.as_ref()?.len()) as u64))
    }

    pub fn memory(&self) -> Accounting {
        Accounting {
            memory_max: self.memory_max,
            ..Accounting::default()
        }
    }

    /// The last transaction that is visible.
    pub fn version(&self) -> Version {
        self.read(|tables| tables.version)
    }

    /// Before the server is asked for rows that are missing: `version` is that of [`Applied`](crate::coherence::Applied).
    /// `None` where the mapping is closed or whole.
    pub fn fill_begin(&self, mapping: MappingId, version: Version) -> Option<FillTicket> {
        self.read(|tables| {
            let table = tables.open.get(&mapping)?;
            let ticket = FillTicket {
                mapping,
                opening: table.opening,
                version,
            };
            (table.mode == Mode::Bounded).then_some(ticket)
        })
    }
}

impl Tables {
    fn served(&self, mapping: MappingId) -> Option<&Table> {
        self.open.get(&mapping).filter(|table| table.served)
    }

    fn get(&self, mapping: MappingId, key: &[u8], row: &mut Vec<u8>) -> Found {
        let Some(table) = self.served(mapping) else {
            return Found::Closed;
        };
        match (table.rows.get(key), table.mode) {
            (Some(Some(found)), _) => {
                row.clone_from(found);
                Found::Row
            }
            (Some(None), _) | (None, Mode::Whole) => Found::Absent,
            (None, Mode::Bounded) => Found::Missing,
        }
    }
}

/// One state of the store, for [`Store::snapshot`].
pub struct View<'s> {
    tables: &'s Tables,
}

impl View<'_> {
    /// As [`Store::get`], of this state.
    pub fn get(&self, mapping: MappingId, key: &[u8], row: &mut Vec<u8>) -> Found {
        self.tables.get(mapping, key, row)
    }

    pub fn version(&self) -> Version {
        self.tables.version
    }
}

/// Who changes the store: there is one.
pub struct Writer {
    store: Arc<Store>,
    changes: Vec<(MappingId, Vec<u8>, Option<Vec<u8>>)>,
}

impl Writer {
    fn write<R>(&mut self, change: impl FnOnce(&mut Tables) -> R) -> R {
        change(&mut self.store.tables.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes an empty mapping that is not served yet. One that was open is closed before.
    pub fn open(&mut self, mapping: MappingId, mode: Mode) {
        self.write(|tables| {
            tables.openings += 1;
            let table = Table {
                mode,
                opening: tables.openings,
                served: false,
                rows: BTreeMap::new(),
                changed: HashMap::new(),
            };
            tables.open.insert(mapping, table);
        });
    }

    /// From now on readers see the mapping, or do not.
    pub fn serve(&mut self, mapping: MappingId, served: bool) {
        self.write(|tables| {
            if let Some(table) = tables.open.get_mut(&mapping) {
                table.served = served;
            }
        });
    }

    /// Drops a mapping with its rows.
    pub fn close(&mut self, mapping: MappingId) {
        self.write(|tables| tables.open.remove(&mapping));
    }

    /// Drops all rows of a mapping, at once and outside of a transaction, as TRUNCATE does. It is served as before.
    pub fn truncate(&mut self, mapping: MappingId) {
        self.write(|tables| {
            tables.openings += 1;
            tables.version.0 += 1;
            let opening = tables.openings;
            if let Some(table) = tables.open.get_mut(&mapping) {
                table.opening = opening;
                table.rows.clear();
            }
        });
    }

    /// Begins a transaction. What was not committed before is forgotten.
    pub fn begin(&mut self) {
        self.rollback();
    }

    /// The row of a key is this one. Visible after [`commit`](Writer::commit). Without meaning where the mapping is closed.
    ///
    /// # Errors
    /// The mapping is closed now, and the transaction goes on without it.
    pub fn put(&mut self, mapping: MappingId, key: &[u8], row: &[u8]) -> Result<(), Stopped> {
        if key.len() > KEY_MAX {
            return Err(Stopped::KeyTooLong { len: key.len() });
        }
        if row.len() > ROW_MAX {
            return Err(Stopped::RowTooLong { len: row.len() });
        }
        self.changes.push((mapping, key.to_vec(), Some(row.to_vec())));
        Ok(())
    }

    /// There is no row of this key. As [`put`](Writer::put).
    ///
    /// # Errors
    /// As [`put`](Writer::put).
    pub fn remove(&mut self, mapping: MappingId, key: &[u8]) -> Result<(), Stopped> {
        self.changes.push((mapping, key.to_vec(), None));
        Ok(())
    }

    /// Makes all of the transaction visible, and says under which number.
    pub fn commit(&mut self) -> Version {
        let changes = std::mem::take(&mut self.changes);
        self.write(|tables| {
            tables.version.0 += 1;
            for (mapping, key, row) in changes {
                let Some(table) = tables.open.get_mut(&mapping) else {
                    continue;
                };
                table.changed.insert(key.clone(), tables.version);
                match (row, table.mode) {
                    (None, Mode::Whole) => {
                        table.rows.remove(&key);
                    }
                    (row, Mode::Bounded) if table.rows.contains_key(&key) => {
                        table.rows.insert(key, row);
                    }
                    (_, Mode::Bounded) => {}
                    (row, Mode::Whole) => {
                        table.rows.insert(key, row);
                    }
                }
            }
            tables.version
        })
    }

    /// Forgets what was not committed.
    pub fn rollback(&mut self) {
        self.changes.clear();
    }

    /// Keeps what the server said about a key: its row, or that there is none. Visible at once. It may be called within a transaction.
    pub fn fill(&mut self, ticket: &FillTicket, key: &[u8], row: Option<&[u8]>) -> Filled {
        let open = self
            .changes
            .iter()
            .any(|(mapping, changed, _)| (*mapping, &changed[..]) == (ticket.mapping, key));
        self.write(|tables| {
            let table = tables.open.get_mut(&ticket.mapping);
            let Some(table) = table.filter(|table| table.opening == ticket.opening) else {
                return Filled::Dropped;
            };
            let newer = table
                .changed
                .get(key)
                .is_some_and(|&changed| changed > ticket.version);
            if open || newer || table.rows.contains_key(key) {
                return Filled::Dropped;
            }
            table.rows.insert(key.to_vec(), row.map(<[u8]>::to_vec));
            Filled::Stored
        })
    }
}
