//! The feed's side: what has changed, from one moment at which changes become visible to the next.

use std::sync::Arc;

use mysql_wire::binlog::Value;

use super::table::Taken;
use super::{Broadcast, Tracking, lock};
use crate::mapping::{Mapping, stored_values};
use crate::store::MappingId;

/// Bytes of keys that are noted, with their ends. With more everybody is told to forget everything.
const TOUCHED_MAX: usize = 4 << 20;
/// The memory that is kept from one time to the next, in bytes.
const KEPT_MAX: usize = 256 * 1024;

/// Keys whose rows have changed and that nobody was told of yet. It belongs to the feed.
pub(crate) struct Touched {
    tracking: Arc<Tracking>,
    /// Somebody tracks, as far as is known.
    collects: bool,
    /// The open transaction has changed something.
    is_open: bool,
    /// One behind the other.
    bytes: Vec<u8>,
    /// Each with its end in `bytes`.
    keys: Vec<(MappingId, usize)>,
    /// So many of `keys` are committed.
    committed: usize,
    /// Touched were not noted: of what is committed, and of the transaction that is open.
    missed: bool,
    missed_open: bool,
    /// The part of the table that is emptied next while nobody tracks.
    part: usize,
}

impl Touched {
    pub(crate) fn new(tracking: Arc<Tracking>) -> Self {
        Self {
            tracking,
            collects: false,
            is_open: false,
            bytes: Vec::new(),
            keys: Vec::new(),
            committed: 0,
            missed: false,
            missed_open: false,
            part: 0,
        }
    }

    /// The open transaction changes the row of a key.
    #[inline]
    pub(crate) fn note(&mut self, mapping: MappingId, key: &[u8]) {
        if !self.is_open {
            self.is_open = true;
            self.collects |= self.tracking.clients_count() > 0;
        }
        let bytes = self.bytes.len() + size_of_val(&*self.keys) + key.len();
        if !self.collects || bytes > TOUCHED_MAX {
            self.missed_open = true;
            return;
        }
        self.bytes.extend_from_slice(key);
        self.keys.push((mapping, self.bytes.len()));
    }

    /// The open transaction is in the store.
    pub(crate) fn commit(&mut self) {
        self.missed |= self.missed_open;
        self.missed_open = false;
        self.is_open = false;
        self.committed = self.keys.len();
    }

    /// The open transaction did not happen.
    pub(crate) fn rollback(&mut self) {
        self.missed_open = false;
        self.is_open = false;
        self.keys.truncate(self.committed);
        let end = self.keys.last().map_or(0, |(_, end)| *end);
        self.bytes.truncate(end);
    }

    /// What was committed is visible, and what is applied is published: tells everybody whom it concerns.
    pub(crate) fn tell(&mut self) {
        let was_missed = std::mem::take(&mut self.missed);
        if !self.tracking.is_active() {
            self.missed_open |= self.keys.len() > self.committed;
            self.collects = false;
            self.keys = Vec::new();
            self.bytes = Vec::new();
            self.committed = 0;
            self.part += 1;
            // Nearly always of clients that are gone; one that has begun just now is told.
            self.tracking.tell(&self.tracking.table.take_part(self.part));
            return;
        }
        self.collects = true;
        if was_missed {
            self.tracking.invalidate_all();
        } else if self.committed > 0 {
            self.tell_each();
        }
        self.drop_committed();
    }

    fn tell_each(&mut self) {
        let open = lock(&self.tracking.open);
        let has_broadcasts = self.tracking.has_broadcasts();
        let (mut taken, mut broadcasts) = (Taken::new(), Vec::new());
        let mut start = 0;
        for &(id, end) in &self.keys[..self.committed] {
            let key = &self.bytes[start..end];
            start = end;
            let Some(mapping) = open.get(&id.0) else { continue };
            self.tracking.table.take(id.0, key, &mut taken);
            if !mapping.compares_exactly() {
                take_unsure(&self.tracking, mapping, key, &mut taken);
            }
            if has_broadcasts {
                let text = text(mapping, key);
                broadcasts.push(Broadcast { mapping, text });
            }
        }
        self.tracking.tell(&taken);
        if has_broadcasts {
            self.tracking.broadcast(&broadcasts);
        }
    }

    /// What belongs to the open transaction stays.
    fn drop_committed(&mut self) {
        let end = match self.committed {
            0 => 0,
            committed => self.keys[committed - 1].1,
        };
        self.keys.drain(..self.committed);
        self.bytes.drain(..end);
        self.keys.iter_mut().for_each(|(_, to)| *to -= end);
        self.committed = 0;
        self.keys.shrink_to(KEPT_MAX / size_of::<(MappingId, usize)>());
        self.bytes.shrink_to(KEPT_MAX);
    }
}

/// Takes keys out that may be the same to the server although their bytes differ.
fn take_unsure(tracking: &Tracking, mapping: &Mapping, key: &[u8], taken: &mut Taken) {
    let is_known = |text: &[u8]| text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let is_known = stored_values(key).all(|value| match value {
        Ok(Value::Bytes(text)) => is_known(&text),
        Ok(_) => true,
        Err(_) => false,
    });
    if is_known {
        tracking.table.take_by_server(mapping.id.0, taken);
    } else {
        tracking.table.take_mapping(mapping.id.0, taken);
    }
}

/// The Redis key of a row, unless it has several, or none that is known.
fn text(mapping: &Mapping, key: &[u8]) -> Option<Box<[u8]>> {
    if !mapping.has_one_text() {
        return None;
    }
    Some(mapping.redis_key(key).ok()?.into())
}
