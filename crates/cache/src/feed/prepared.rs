//! Transactions that are prepared and not committed (XA): their rows are in the log already, and must not be
//! shown.

use std::collections::HashMap;

use crate::store::MappingId;

/// Changes that are kept for later, in bytes. A transaction beyond that is forgotten, and all tables are
/// copied again when it is committed.
const KEPT_MAX: usize = 256 << 20;

pub(super) struct Change {
    pub(super) mapping: MappingId,
    pub(super) key: Box<[u8]>,
    /// `None`: the row is gone.
    pub(super) row: Option<Box<[u8]>>,
}

pub(super) struct Changes {
    list: Vec<Change>,
    bytes: usize,
    /// The last mapping that was followed when it began.
    last: MappingId,
    /// Something is missing, or was undone.
    broken: bool,
    /// It changes the mapping tables.
    pub(super) mapping_tables: bool,
}

impl Changes {
    pub(super) fn new(last: MappingId) -> Self {
        Self {
            list: Vec::new(),
            bytes: 0,
            last,
            broken: false,
            mapping_tables: false,
        }
    }

    /// One more, as long as all together have no more than `room` bytes.
    pub(super) fn push(&mut self, room: usize, mapping: MappingId, key: &[u8], row: Option<&[u8]>) {
        let bytes = size_of::<Change>() + key.len() + row.map_or(0, <[u8]>::len);
        if self.broken || self.bytes + bytes > room {
            return self.spoil();
        }
        self.bytes += bytes;
        self.list.push(Change {
            mapping,
            key: key.into(),
            row: row.map(Box::from),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// It is not known any more what it changes.
    pub(super) fn spoil(&mut self) {
        (self.list, self.bytes, self.broken, self.mapping_tables) = (Vec::new(), 0, true, true);
    }

    /// Whether all that it changes of this mapping is known.
    pub(super) fn is_of(&self, mapping: MappingId) -> bool {
        !self.broken && mapping <= self.last
    }

    /// What is known of its changes.
    pub(super) fn into_list(self) -> Vec<Change> {
        self.list
    }
}

/// Prepared transactions, by the names that the server writes.
#[derive(Default)]
pub(super) struct Prepared {
    kept: HashMap<Vec<u8>, Changes>,
    bytes: usize,
}

impl Prepared {
    /// Bytes that more changes may have.
    pub(super) fn room(&self) -> usize {
        KEPT_MAX.saturating_sub(self.bytes)
    }

    pub(super) fn keep(&mut self, xid: Vec<u8>, changes: Changes) {
        self.take(&xid);
        if changes.bytes <= self.room() {
            self.bytes += changes.bytes;
            self.kept.insert(xid, changes);
        }
    }

    pub(super) fn take(&mut self, xid: &[u8]) -> Option<Changes> {
        let changes = self.kept.remove(xid)?;
        self.bytes = self.bytes.saturating_sub(changes.bytes);
        Some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_not_kept() {
        let mut prepared = Prepared::default();
        let mapping = MappingId(1);
        let mut changes = Changes::new(mapping);
        changes.push(prepared.room(), mapping, b"a", None);
        assert!(changes.bytes > 0);
        changes.push(prepared.room(), mapping, &vec![0; KEPT_MAX], None);
        assert_eq!((changes.list.capacity(), changes.bytes), (0, 0));
        changes.push(prepared.room(), mapping, b"a", None);
        assert!(changes.is_empty(), "a part is of no use");
        prepared.keep(b"a".to_vec(), changes);
        assert!(!prepared.take(b"a").unwrap().is_of(mapping));
    }

    #[test]
    fn what_is_kept_is_given_back_once() {
        let mut prepared = Prepared::default();
        let changes = || {
            let mut changes = Changes::new(MappingId(7));
            changes.push(KEPT_MAX, MappingId(3), b"key", Some(b"row"));
            changes
        };
        prepared.keep(b"b".to_vec(), changes());
        prepared.keep(b"c".to_vec(), changes());
        prepared.keep(b"c".to_vec(), changes());
        assert_eq!(KEPT_MAX - prepared.room(), 2 * changes().bytes);
        let taken = prepared.take(b"b").unwrap();
        assert!(
            taken.is_of(MappingId(7)) && !taken.is_of(MappingId(8)),
            "one that was not followed then"
        );
        assert_eq!(taken.into_list().len(), 1);
        assert!(prepared.take(b"b").is_none());
        assert!(prepared.take(b"c").is_some());
        assert_eq!(prepared.room(), KEPT_MAX);
    }
}
