//! Whether a transaction is open, what was written in it, and what was committed of which no GTID tells.

use mysql_wire::{Command, OkPacket, Outcome};
use sql_class::text::savepoint::Savepoint;
use sql_class::{Class, Dialect, Effects};

use super::settle::{ER_PARSE_ERROR, runs_sql};
use super::{Current, IDLE, Session};
use crate::PinReason;
use crate::next_transaction::NextTransaction;

impl Session {
    pub(super) fn settle_transaction(&mut self, outcome: &Outcome) {
        let in_transaction = self.in_transaction();
        let is_bare = !in_transaction && !self.autocommit;
        self.has_savepoint = is_bare
            && match self.current.savepoint {
                Savepoint::Sets => true,
                Savepoint::Ends => outcome.error.is_some() && self.has_savepoint,
                Savepoint::Other => self.has_savepoint,
            };
        match in_transaction || self.has_savepoint {
            true => self.pin(PinReason::Transaction),
            false => self.pins.remove(PinReason::Transaction),
        }
        if self.next_transaction != NextTransaction::Usual && !in_transaction {
            self.pin(PinReason::NextTransaction);
        }
        if self.current.effects.contains(Effects::XA) && outcome.error.is_none() && !in_transaction {
            // A branch that was prepared is nobody's, since MySQL 8.0.29; on MariaDB the transaction stays
            // open.
            if !matches!(self.dialect, Dialect::MySql { version } if version < 80_029) {
                self.pins.remove(PinReason::Xa);
            }
        }
        self.settle_writes(outcome);
    }

    fn settle_writes(&mut self, outcome: &Outcome) {
        let in_transaction = self.in_transaction();
        let Current { class, effects, .. } = self.current;
        let calls = Effects::CALLS_PROCEDURE.with(Effects::UNKNOWN_FUNCTION);
        // `XA COMMIT` of what another session has written. In a branch of its own a session is pinned;
        // without autocommit it counts as open also where it is in none.
        let is_in_own = self.current.was_open && self.current.was_pinned;
        let ends_branch = class == Class::Transaction && effects.contains(Effects::XA) && !is_in_own;
        let wrote = class >= Class::Write && !self.is_select_refused(outcome)
            || ends_branch
            || effects.intersects(calls)
            || self.transaction_state[3..6] != IDLE[3..6];
        let has_written = self.has_written || wrote;
        // A server that has reported one GTID reports them all: what comes without was no write after all.
        let may_be_silent = self.current.sets_trackers || self.needs_rearming;
        let reports = self.gtid.is_some() && !self.pins.has(PinReason::BinlogOff) && !may_be_silent;
        let goes_on = match outcome.error {
            None => !reports && !self.current.gtid && self.has_begun_anew(wrote),
            Some(error) => self.may_have_committed(error),
        };
        self.has_written = in_transaction && has_written && !goes_on;
        let rows_only = class == Class::Write && self.current.statements == 1;
        // `RETURNING` shows the rows in the place of their count.
        let rows = match outcome.is_result_set {
            true => outcome.rows,
            false => outcome.affected_rows,
        };
        let nothing = rows_only && !self.current.was_open && rows == 0;
        let nothing = nothing || self.current.rolls_back || reports;
        let untracked = !in_transaction && has_written && !self.current.gtid && !nothing;
        self.untracked_writes |= untracked || goes_on;
        self.current.wrote = untracked || goes_on || self.current.gtid;
    }

    /// The open transaction was committed by a command of the gateway's own, with this answer.
    pub fn observe_commit(&mut self, ok: &OkPacket) {
        self.current.gtid = false;
        self.observe_ok(ok);
        self.current.wrote = std::mem::take(&mut self.has_written);
        self.untracked_writes |= self.current.wrote && !self.current.gtid;
    }

    /// What was written is committed, and a transaction is open that is another one: rolled back it says
    /// nothing of the first.
    fn has_begun_anew(&self, wrote: bool) -> bool {
        let (class, effects, statements) = self.current.what_it_does();
        let begins = matches!(class, Class::Begin | Class::BeginReadOnly) && !effects.contains(Effects::XA);
        let ended_one = self.has_written && (begins || self.current.may_commit);
        self.in_transaction() && (ended_one || statements > 1 && (self.has_written || wrote))
    }

    /// Something may be committed although the answer is an error. MySQL sends no GTID with one, and has
    /// forgotten it by the next answer.
    fn may_have_committed(&self, error: u16) -> bool {
        let (class, effects, statements) = self.current.what_it_does();
        let was_understood = error != ER_PARSE_ERROR || statements > 1;
        let commits = effects.contains(Effects::COMMITS);
        let ends_one = commits && (self.has_written || statements > 1);
        // A bulk execution commits each of its rows, where nothing is open.
        let is_bulk = self.current.command == Command::STMT_BULK_EXECUTE && !self.current.was_open;
        // `DROP TABLE a, b` of MariaDB, and accounts.
        let is_done_in_part =
            is_bulk || commits && (class == Class::Ddl || effects.contains(Effects::CHANGES_ACCOUNT));
        let calls = effects.contains(Effects::CALLS_PROCEDURE) || class == Class::Unknown;
        runs_sql(self.current.command) && was_understood && (ends_one || is_done_in_part || calls)
    }
}
