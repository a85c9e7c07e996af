//! Events of the stream, applied to the store.

mod group;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mysql_wire::binlog::{
    BinlogError, Decoder, Event, Gtid, Header, Image, Kind, Layout, Query, Rows, TableMap,
};
use mysql_wire::gtid::GtidSet;
use sql_class::logged::{StatementKind, concerns_accounts, makes_rows, statement_kind};

use super::copy_window::CopyWindow;
use super::indexes::IndexChange;
use super::mapping_tables;
use super::preflight::FilePosition;
use super::prepared::{Changes, Prepared};
use super::progress::Progress;
use super::status::FeedStatus;
use super::stream::Ended;
use super::tables::{MISMATCH_BACKOFF, RETRY, State, Tables};
use crate::coherence::SourceId;
use crate::mapping::Mapping;
use crate::store::Version;
use crate::tracking::Touched;
use group::{Binding, Group};

/// Numbers of tables that are remembered from one transaction to the next. Each transaction names its tables
/// anew; servers give a table another number whenever they open it anew.
const BINDINGS_MAX: usize = 1024;

/// Applies a stream. What it has applied is in `progress`, and visible in the store.
pub(super) struct Applier {
    pub(super) tables: Tables,
    pub(super) progress: Rc<RefCell<Progress>>,
    /// The store's last transaction.
    pub(super) version: Version,
    source: SourceId,
    resumed: Option<Resumed>,
    /// The stream has come to where it was to begin.
    come_in: bool,
    feed_status: Arc<FeedStatus>,
    group: Option<Group>,
    bindings: HashMap<u64, Binding>,
    prepared: Prepared,
    pub(super) mapping_tables_changed: bool,
    pub(super) accounts_changed: bool,
    /// For clients that keep values themselves.
    pub(super) touched: Touched,
    key: Vec<u8>,
    old_key: Vec<u8>,
    row: Vec<u8>,
}

/// A stream that leaves out what is applied, and has besides what was not. That must all be behind what it
/// leaves out: a transaction that only this server had, before others that are applied already, would bring
/// old rows back.
struct Resumed {
    /// Behind this all is new.
    until: FilePosition,
    /// Something has come.
    received: bool,
}

impl Applier {
    pub(super) fn new(tables: Tables, feed_status: Arc<FeedStatus>) -> Self {
        Self {
            tables,
            progress: Rc::new(RefCell::new(Progress::nowhere())),
            version: Version::default(),
            source: SourceId(0),
            resumed: None,
            come_in: false,
            touched: Touched::new(Arc::clone(feed_status.tracking())),
            feed_status,
            group: None,
            bindings: HashMap::new(),
            prepared: Prepared::default(),
            mapping_tables_changed: false,
            accounts_changed: false,
            key: Vec::new(),
            old_key: Vec::new(),
            row: Vec::new(),
        }
    }

    /// A stream begins. `anew`: it does not go on where the one before was. `had`: it goes on by GTIDs, and
    /// this the server had when its log ended there.
    pub(super) fn begin(&mut self, source: SourceId, anew: bool, had: Option<(GtidSet, FilePosition)>) {
        if self.source != source {
            // Another server may have other definitions and grants.
            self.feed_status.note_definition();
        }
        self.source = source;
        self.come_in = false;
        self.cut();
        let missing = had.filter(|(had, _)| !self.progress.borrow().gtids().covers(had));
        self.resumed = missing.map(|(_, until)| Resumed {
            until,
            received: false,
        });
        if anew {
            self.prepared = Prepared::default();
            self.tables.invalidate_all("");
        } else {
            let by_gtid = self.progress.borrow().is_by_gtid();
            self.tables.go_on(source, by_gtid);
        }
    }

    /// What is applied may not be what the primary has: all rows go, and nothing is known.
    pub(super) fn forget(&mut self, reason: &str) {
        self.cut();
        self.tables.invalidate_all(reason);
        let nowhere = Progress::nowhere();
        self.feed_status.publish(nowhere.applied(self.version));
        *self.progress.borrow_mut() = nowhere;
    }

    /// The stream is cut: what of a transaction had come is forgotten.
    pub(super) fn cut(&mut self) {
        if let Some(group) = self.group.take() {
            self.undo(&group);
        }
        self.bindings.clear();
        self.progress.borrow_mut().cut();
    }

    /// Transactions have come, or heartbeats.
    pub(super) fn has_come_in(&self) -> bool {
        self.come_in
    }

    /// It is not known yet whether this server's log goes on where that of the one before ended.
    pub(super) fn is_resuming(&self) -> bool {
        self.resumed.is_some()
    }

    /// The same, when rows that do not belong there may have come already.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.resumed.as_ref().is_some_and(|resumed| resumed.received)
    }

    /// The store has a part of a transaction: nobody else may write.
    pub(super) fn is_writing(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.writing)
    }

    pub(super) fn event(&mut self, event: Event<'_>, decoder: &Decoder) -> Result<(), Ended> {
        self.check_order(&event)?;
        if let Kind::Gtid(_) = event.kind {
            // Where it ends nobody can go on.
            self.progress.borrow_mut().enter_transaction();
        }
        self.progress.borrow_mut().reach(event.header.next_position);
        if event.header.timestamp > 0 {
            let time = u64::from(event.header.timestamp);
            self.feed_status.counts.last_event.store(time, Ordering::Relaxed);
        }
        match event.kind {
            Kind::FormatDescription { .. }
                if !self.progress.borrow_mut().describe(event.header.timestamp) =>
            {
                Err(Ended::Reset)
            }
            Kind::TransactionPayload(mut payload) => {
                while let Some(bytes) = payload.next_event()? {
                    let inner = decoder.inner(bytes)?;
                    self.inner(inner.kind)?;
                }
                Ok(())
            }
            kind => self.inner(kind),
        }
    }

    /// What comes between two transactions begins where the one before ended, unless the server has left out
    /// some.
    fn check_order(&self, event: &Event<'_>) -> Result<(), Ended> {
        if !self.is_in_doubt() {
            return Ok(());
        }
        let progress = self.progress.borrow();
        let header = &event.header;
        let start = match event.kind {
            // Those that the server makes up are nowhere.
            Kind::Gtid(_) | Kind::Rotate { .. } if header.next_position > 0 => {
                header.next_position.wrapping_sub(header.size)
            }
            // MariaDB sends one that is in no file when it has left out something.
            Kind::GtidList if header.flags & Header::ARTIFICIAL != 0 => header.next_position,
            // Tells where the server is now. So does MySQL then.
            Kind::Heartbeat { file, offset } if self.group.is_none() && progress.is_in(file) => offset as u32,
            _ => return Ok(()),
        };
        match progress.leaves_out(start) {
            true => Err(Ended::OutOfOrder),
            false => Ok(()),
        }
    }

    fn inner(&mut self, kind: Kind<'_>) -> Result<(), Ended> {
        match kind {
            Kind::Rows(rows) => self.rows(&rows),
            Kind::TableMap(map) => self.table_map(map),
            Kind::Gtid(gtid) => self.gtid(gtid)?,
            Kind::Xid(_) => self.end(true)?,
            Kind::Query(query) => self.query(&query)?,
            Kind::XaPrepare { one_phase } => self.xa_prepare(one_phase)?,
            Kind::Rotate { file, offset } => self.rotate(file, offset),
            Kind::Heartbeat { file, offset } => self.heartbeat(file, offset),
            Kind::PartialUpdateRows => {
                let reason = "JSON values are partly logged: binlog_row_value_options must be empty";
                self.all_unknown(reason);
            }
            Kind::Incident { .. } => self.all_unknown("the primary's binary log has a gap (incident)"),
            Kind::TransactionPayload(_)
            | Kind::FormatDescription { .. }
            | Kind::GtidList
            | Kind::RowsQuery(_)
            | Kind::Stop
            | Kind::Other => {}
        }
        Ok(())
    }

    /// The stream goes on in another file. No transaction does: one that was begun in the file before has no
    /// end, because the server had one while it wrote it.
    fn rotate(&mut self, file: &[u8], offset: u64) {
        if self.group.is_some() {
            self.cut();
        }
        self.progress.borrow_mut().rotate(self.source, file, offset);
    }

    fn heartbeat(&mut self, file: &[u8], offset: u64) {
        self.come_in = true;
        if self.group.is_none() {
            self.feed_status.counts.last_event.store(0, Ordering::Relaxed);
            self.progress.borrow_mut().rotate(self.source, file, offset);
            self.note_resumed();
        }
    }

    /// What was in doubt is so no more when the stream has come far enough.
    fn note_resumed(&mut self) {
        let progress = self.progress.borrow();
        self.resumed = self
            .resumed
            .take()
            .filter(|resumed| !progress.has_passed(&resumed.until));
    }

    fn gtid(&mut self, gtid: Gtid) -> Result<(), Ended> {
        let mut progress = self.progress.borrow_mut();
        match &gtid {
            // Numbers of MySQL are given once.
            Gtid::MySql { .. } if gtid.is_in(progress.gtids()) => return Err(Ended::Reset),
            Gtid::Anonymous => progress.note_unnumbered(),
            Gtid::MySql { .. } | Gtid::MariaDb { .. } => {}
        }
        drop(progress);
        if self.bindings.len() > BINDINGS_MAX {
            self.bindings.clear();
        }
        // One without an end.
        if let Some(group) = self.group.take() {
            self.undo(&group);
        }
        self.group = Some(Group::new(gtid, self.tables.last_id()));
        Ok(())
    }

    /// The transaction ends.
    fn end(&mut self, commit: bool) -> Result<(), BinlogError> {
        let Some(group) = self.group.take() else {
            return Ok(());
        };
        if !commit {
            self.undo(&group);
        } else if group.writing {
            self.version = self.tables.writer.commit();
            self.touched.commit();
            self.tables.windows(&group.written, CopyWindow::commit);
        }
        self.come_in = true;
        self.feed_status.counts.transactions.inc();
        let mut progress = self.progress.borrow_mut();
        group.gtid.add_to(progress.gtids_mut())?;
        progress.leave_transaction();
        progress.note_new();
        drop(progress);
        if let Some(resumed) = &mut self.resumed {
            resumed.received = true;
            self.note_resumed();
        }
        Ok(())
    }

    /// What has come of a transaction did not happen.
    fn undo(&mut self, group: &Group) {
        if group.writing {
            self.tables.writer.rollback();
            self.touched.rollback();
            self.tables.windows(&group.written, CopyWindow::rollback);
        }
    }

    fn query(&mut self, query: &Query<'_>) -> Result<(), BinlogError> {
        let statement_kind = statement_kind(&query.sql);
        match statement_kind {
            StatementKind::Begin => self.open(),
            StatementKind::Commit => return self.end(true),
            StatementKind::Rollback => return self.end(false),
            StatementKind::XaStart(_) => {
                self.open();
                if let Some(group) = &mut self.group {
                    group
                        .xa
                        .get_or_insert_with(|| Changes::new(self.tables.last_id()));
                }
            }
            StatementKind::XaEnd(xid) => {
                if let Some(group) = &mut self.group {
                    group.xid = xid.to_vec();
                }
            }
            StatementKind::XaCommit(xid) => {
                let changes = self.prepared.take(xid);
                self.apply(changes);
                return self.end(true);
            }
            StatementKind::XaRollback(xid) => {
                self.prepared.take(xid);
                return self.end(false);
            }
            // Grants.
            StatementKind::Harmless => {
                self.feed_status.note_definition();
                self.accounts_changed |= concerns_accounts(&query.sql);
            }
            StatementKind::Savepoint => {}
            StatementKind::RollbackTo => self.rolled_back(),
            StatementKind::Definition => {
                // It may be a view, a routine, or what makes accounts.
                self.feed_status.note_definition();
                self.mapping_tables_changed |= mapping_tables::concerned(&query.sql, query.schema);
                self.defined(query);
                if makes_rows(&query.sql) {
                    self.unseen(query);
                }
            }
            StatementKind::Unseen => self.unseen(query),
        }
        match &self.group {
            Some(group) if !group.open => self.end(true),
            _ => Ok(()),
        }
    }

    /// Tables are not what they were. Where only indexes have come and gone, and not the mapping's, its rows
    /// stay.
    fn defined(&mut self, query: &Query<'_>) {
        let indexes = IndexChange::read(&query.sql);
        for at in self.tables.concerned(&query.sql, query.schema) {
            let mapping = self.tables.all[at].mapping();
            let index = mapping.map(|mapping| &*mapping.index.name);
            let stays = indexes
                .as_ref()
                .zip(index)
                .is_some_and(|(change, index)| change.keeps(index));
            if !stays {
                self.tables.all[at].mismatches = MISMATCH_BACKOFF;
                self.tables
                    .invalidate(at, "its definition is being changed", None);
            }
        }
    }

    /// Rows were changed, and nobody says which: a view or a trigger may lead to any table.
    fn unseen(&mut self, query: &Query<'_>) {
        self.mapping_tables_changed |= mapping_tables::concerned(&query.sql, query.schema);
        let named = self.tables.concerned(&query.sql, query.schema);
        for at in 0..self.tables.all.len() {
            if named.contains(&at) || self.tables.all[at].mapping().is_some() {
                let reason =
                    "a change of rows was logged as a statement: binlog_format must be ROW in every session";
                self.tables.invalidate(at, reason, Some(RETRY));
            }
        }
    }

    fn open(&mut self) {
        if let Some(group) = &mut self.group {
            group.open = true;
        }
    }

    /// A part of the transaction is undone, and nobody says which.
    fn rolled_back(&mut self) {
        if let Some(changes) = self.group.as_mut().and_then(|group| group.xa.as_mut())
            && !changes.is_empty()
        {
            changes.spoil();
        }
        for &at in self.group.iter().flat_map(|group| &group.written) {
            if self.tables.all[at].mapping().is_some() {
                self.tables
                    .invalidate(at, "a transaction was rolled back in part", None);
            }
        }
    }

    fn all_unknown(&mut self, reason: &str) {
        for at in 0..self.tables.all.len() {
            self.tables.invalidate(at, reason, Some(RETRY));
        }
    }

    fn xa_prepare(&mut self, one_phase: bool) -> Result<(), BinlogError> {
        let Some(group) = &mut self.group else {
            return Ok(());
        };
        let changes = group.xa.take();
        let xid = std::mem::take(&mut group.xid);
        if one_phase {
            self.apply(changes);
            return self.end(true);
        }
        if let Some(changes) = changes {
            self.prepared.keep(xid, changes);
        }
        self.end(false)
    }

    /// Writes what a transaction changed that was prepared.
    fn apply(&mut self, changes: Option<Changes>) {
        // Prepared before this stream began, or before a copy that did not see it; or too large, or undone in
        // part.
        for at in 0..self.tables.all.len() {
            let unknown = |id| !changes.as_ref().is_some_and(|changes| changes.is_of(id));
            if self.tables.all[at]
                .mapping()
                .is_some_and(|mapping| unknown(mapping.id))
            {
                let reason = "a transaction was committed whose changes are not known";
                self.tables.invalidate(at, reason, None);
            }
        }
        self.mapping_tables_changed |= changes.as_ref().is_none_or(|changes| changes.mapping_tables);
        let places = self.tables.places();
        for change in changes.map(Changes::into_list).unwrap_or_default() {
            if let Some(&at) = places.get(&change.mapping) {
                self.write(at, &change.key, change.row.as_deref());
            }
        }
    }

    fn table_map(&mut self, map: TableMap) {
        let known = self.bindings.get(&map.table_id);
        if known.is_some_and(|known| known.epoch == self.tables.epoch && known.map == map) {
            return;
        }
        let targets = self.targets(&map);
        let binding = Binding {
            epoch: self.tables.epoch,
            targets,
            is_mapping_table: mapping_tables::is_one(&map.schema, &map.table),
            map,
        };
        self.bindings.insert(binding.map.table_id, binding);
    }

    /// The mappings of a table that follow the stream, with how its rows are read.
    fn targets(&mut self, map: &TableMap) -> Vec<(usize, Layout)> {
        let mut targets = Vec::new();
        for at in self.tables.following(&map.schema, &map.table) {
            let Some(mapping) = self.tables.all[at].mapping() else {
                continue;
            };
            match Layout::new(map, &mapping.column_types) {
                Ok(layout) => {
                    self.tables.all[at].mismatches = MISMATCH_BACKOFF;
                    targets.push((at, layout));
                }
                // Its definition was read before or after it was changed, and the change is still to come; or
                // it is not understood.
                Err(error) => self.tables.mismatched(at, &error.to_string()),
            }
        }
        targets
    }

    fn rows(&mut self, rows: &Rows<'_>) {
        let Some(mut binding) = self.bindings.remove(&rows.table_id) else {
            return;
        };
        if binding.epoch != self.tables.epoch {
            binding.targets = self.targets(&binding.map);
            binding.epoch = self.tables.epoch;
        }
        if binding.is_mapping_table {
            match self.group.as_mut().and_then(|group| group.xa.as_mut()) {
                Some(changes) => changes.mapping_tables = true,
                None => self.mapping_tables_changed = true,
            }
        }
        for (at, layout) in &binding.targets {
            if let Err(error) = self.rows_of(*at, layout, rows) {
                self.tables.invalidate(*at, &error.to_string(), Some(RETRY));
            }
        }
        self.bindings.insert(rows.table_id, binding);
    }

    fn rows_of(&mut self, at: usize, layout: &Layout, rows: &Rows<'_>) -> Result<(), BinlogError> {
        let Some(mapping) = self.tables.all[at].mapping().cloned() else {
            return Ok(());
        };
        let mut count = 0;
        for change in rows.iter(layout) {
            let change = change?;
            count += 1;
            let (mut key, mut old, mut row) = (
                std::mem::take(&mut self.key),
                std::mem::take(&mut self.old_key),
                std::mem::take(&mut self.row),
            );
            if let Some(before) = &change.before {
                key_of(&mapping, before, layout, &mut old)?;
            }
            if let Some(after) = &change.after {
                key_of(&mapping, after, layout, &mut key)?;
                let value = |column: usize| after.value(layout, mapping.columns[column].place);
                mapping.row_of(value, &mut row)?;
            }
            if change.before.is_some() && (change.after.is_none() || old != key) {
                self.change(at, &old, None);
            }
            if change.after.is_some() {
                self.change(at, &key, Some(&row));
            }
            (self.key, self.old_key, self.row) = (key, old, row);
        }
        self.feed_status.counts.rows.add(count);
        Ok(())
    }

    fn change(&mut self, at: usize, key: &[u8], row: Option<&[u8]>) {
        let xa = self.group.as_mut().and_then(|group| group.xa.as_mut());
        if let (Some(changes), Some(mapping)) = (xa, self.tables.all[at].mapping()) {
            changes.push(self.prepared.room(), mapping.id, key, row);
        } else {
            self.write(at, key, row);
        }
    }

    fn write(&mut self, at: usize, key: &[u8], row: Option<&[u8]>) {
        let Some(group) = &mut self.group else { return };
        let table = &self.tables.all[at];
        let Some(mapping) = table.mapping() else { return };
        if let State::Copying { window, .. } = &table.state {
            window.borrow_mut().touch(key);
        }
        let writer = &mut self.tables.writer;
        if !group.writing {
            writer.begin();
            group.writing = true;
        }
        group.note_written(at);
        self.touched.note(mapping.id, key);
        let written = match row {
            Some(row) => writer.put(mapping.id, key, row),
            None => writer.remove(mapping.id, key),
        };
        if let Err(stopped) = written {
            self.tables.stop(at, &stopped.to_string());
        }
    }
}

fn key_of(
    mapping: &Mapping,
    image: &Image<'_>,
    layout: &Layout,
    key: &mut Vec<u8>,
) -> Result<(), BinlogError> {
    mapping.key_of(|column| image.value(layout, mapping.columns[column].place), key)
}

#[cfg(test)]
mod tests;
