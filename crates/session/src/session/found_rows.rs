//! What FOUND_ROWS() says: of the last statement that has counted rows.

use mysql_wire::{Outcome, StatusFlags};
use sql_class::text::RowCount;
use sql_class::{Class, Effects};

use super::Session;
use super::settle::runs_sql;

impl Session {
    /// `FOUND_ROWS()`; `None` where only the server can say. Rows that OFFSET passed over count for the
    /// server and are not known here.
    #[must_use]
    pub fn found_rows(&self) -> Option<u64> {
        self.last.found_rows
    }

    /// The last statement has counted rows that its answer says nothing of, and the connection may be asked
    /// how many those were.
    #[must_use]
    pub fn may_ask_found_rows(&self) -> bool {
        self.counts_unseen() && self.last.found_rows.is_none() && !self.in_transaction() && self.autocommit
    }

    /// The connection has said what its `FOUND_ROWS()` is after the session's last statement.
    pub fn learn_found_rows(&mut self, rows: u64) {
        self.last.found_rows = Some(rows);
    }

    /// Whether the last statement has counted rows, or may have: otherwise its connection says those of a
    /// statement before, which may have been another session's.
    #[must_use]
    pub fn has_counted_rows(&self, outcome: &Outcome) -> bool {
        let (class, effects, statements) = self.current.what_it_does();
        if self.current.count == RowCount::Kept || !runs_sql(self.current.command) {
            return false;
        }
        // A procedure most likely has a query, be it one that answers nothing.
        let is_called = class == Class::Unknown && !effects.contains(Effects::TEXT_PREPARE);
        let may_have = self.counts_unseen() || statements > 1 || is_called;
        // `SELECT … INTO @x`; of rows that were changed `RETURNING` is no count.
        let is_query = class == Class::Read && outcome.error.is_none();
        let has_rows = outcome.is_result_set && (class != Class::Write || statements > 1);
        is_query || has_rows || may_have && !self.is_taken_to_count_none(outcome)
    }

    /// The last statement has counted rows of which its answer says nothing, and changes none: its connection
    /// is to be asked how many before it is given back.
    #[must_use]
    pub fn has_unclear_count(&self) -> bool {
        self.current.count == RowCount::Unclear && self.may_ask_found_rows()
    }

    /// Nothing but its connection can tell what the last statement has counted.
    pub(super) fn counts_unseen(&self) -> bool {
        self.current.counts_rows || self.current.count == RowCount::Unclear
    }

    /// It may do anything, is said to leave nothing, and has shown no rows.
    fn is_taken_to_count_none(&self, outcome: &Outcome) -> bool {
        let leaves_nothing = self.current.effects.contains(Effects::LEAVES_NOTHING);
        leaves_nothing && self.current.statements == 1 && !outcome.is_result_set
    }

    pub(super) fn settle_found_rows(&mut self, outcome: &Outcome) {
        let (class, effects, statements) = self.current.what_it_does();
        // Of several the last counts, if it is a query.
        let opaque = Effects::CALLS_PROCEDURE
            .with(Effects::TEXT_PREPARE)
            .with(Effects::RETURNS_INSERTED)
            .with(Effects::READS_DIAGNOSTICS);
        let ends_with_rows = statements > 1
            && outcome.is_result_set
            && outcome.error.is_none()
            && class < Class::Administration
            && !effects.intersects(opaque);
        let calculates = effects.contains(Effects::CALCULATES_FOUND_ROWS);
        let count = self.current.count;
        if self.is_taken_to_count_none(outcome) || count == RowCount::Kept {
            // stays what it was
        } else if count == RowCount::None && outcome.error.is_none() {
            self.last.found_rows = Some(0);
        } else if count == RowCount::Shown && outcome.error.is_none() || ends_with_rows && !calculates {
            self.last.found_rows = Some(outcome.rows);
        } else if calculates || statements > 1 || self.counts_unseen() {
            self.last.found_rows = None;
        } else if outcome.status.contains(StatusFlags::CURSOR_EXISTS) {
            // said above
        } else if outcome.is_result_set && matches!(class, Class::Read | Class::LockingRead) {
            self.last.found_rows = Some(outcome.rows);
        } else if class == Class::Read && outcome.error.is_none() {
            // MySQL's DO counts one row, a SELECT … INTO @x those that there were.
            self.last.found_rows = match effects.contains(Effects::USER_VARIABLES) {
                true => None,
                false => Some(1),
            };
        }
    }
}
