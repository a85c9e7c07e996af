//! The transaction that is being read, and the tables that it names.

use mysql_wire::binlog::{Gtid, Layout, TableMap};

use crate::feed::prepared::Changes;
use crate::store::MappingId;

/// See the module.
pub(super) struct Group {
    pub(super) gtid: Gtid,
    /// It has more than one event: it ends with one that says so.
    pub(super) open: bool,
    /// Rows of it are in the store's hands.
    pub(super) writing: bool,
    /// Places of the tables that have such rows.
    pub(super) written: Vec<usize>,
    /// It is prepared only: its rows are kept until it is committed.
    pub(super) xa: Option<Changes>,
    pub(super) xid: Vec<u8>,
}

impl Group {
    /// `last`: the last mapping that is followed.
    pub(super) fn new(gtid: Gtid, last: MappingId) -> Self {
        let (open, xa) = match &gtid {
            // MariaDB says so here, MySQL by what follows.
            Gtid::MariaDb { flags, .. } => (flags & Gtid::STANDALONE == 0, flags & Gtid::PREPARED_XA != 0),
            Gtid::MySql { .. } | Gtid::Anonymous => (false, false),
        };
        Self {
            gtid,
            open,
            writing: false,
            written: Vec::new(),
            xa: xa.then(|| Changes::new(last)),
            xid: Vec::new(),
        }
    }

    /// It writes to the table at this place.
    pub(super) fn note_written(&mut self, at: usize) {
        if self.written.last() != Some(&at) && !self.written.contains(&at) {
            self.written.push(at);
        }
    }
}

/// A table's number in the stream.
pub(super) struct Binding {
    pub(super) map: TableMap,
    /// Of [`Tables`](crate::feed::tables::Tables), when `targets` was made.
    pub(super) epoch: u64,
    pub(super) targets: Vec<(usize, Layout)>,
    pub(super) is_mapping_table: bool,
}
