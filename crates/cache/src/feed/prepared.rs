//! Transactions that are prepared and not committed (XA): their rows are in the log already, and must not be shown.

use std::collections::HashMap;

/// Changes that are kept for later, in bytes. A transaction beyond that is forgotten, and its tables copied again when it is
/// committed.
const KEPT_MAX: usize = 256 << 20;

/// One row's change.
pub(super) struct Change {
    /// Place among the tables.
    pub(super) table: usize,
    pub(super) key: Box<[u8]>,
    /// `None`: the row is gone.
    pub(super) row: Option<Box<[u8]>>,
}

/// Prepared transactions, by the names that the server writes.
#[derive(Default)]
pub(super) struct Prepared {
    kept: HashMap<Vec<u8>, (Vec<Change>, u64)>,
    bytes: usize,
}

impl Prepared {
    /// `epoch` is given back with them.
    pub(super) fn keep(&mut self, xid: Vec<u8>, changes: Vec<Change>, epoch: u64) {
        let bytes = size(&changes);
        if self.bytes + bytes <= KEPT_MAX {
            self.bytes += bytes;
            self.kept.insert(xid, (changes, epoch));
        }
    }

    pub(super) fn take(&mut self, xid: &[u8]) -> Option<(Vec<Change>, u64)> {
        let (changes, epoch) = self.kept.remove(xid)?;
        self.bytes = self.bytes.saturating_sub(size(&changes));
        Some((changes, epoch))
    }
}

fn size(changes: &[Change]) -> usize {
    let one = |change: &Change| {
        size_of::<Change>() + change.key.len() + change.row.as_ref().map_or(0, |row| row.len())
    };
    changes.iter().map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_not_kept() {
        let change = |len: usize| Change {
            table: 0,
            key: vec![0; len].into(),
            row: None,
        };
        let mut prepared = Prepared::default();
        prepared.keep(b"a".to_vec(), vec![change(KEPT_MAX)], 1);
        assert!(prepared.take(b"a").is_none());
        prepared.keep(b"b".to_vec(), vec![change(9)], 7);
        let (changes, epoch) = prepared.take(b"b").unwrap();
        assert_eq!((changes.len(), epoch, prepared.bytes), (1, 7, 0));
        assert!(prepared.take(b"b").is_none());
    }
}
