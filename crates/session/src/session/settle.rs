//! What a command does to the session: before it is sent, and when its response has ended.

use std::rc::Rc;

use mysql_wire::{Command, Outcome, StatusFlags};
use sql_class::text::savepoint::{Savepoint, begins_with_rollback, is_of_savepoint};
use sql_class::text::{
    Collation, HandlerStep, RowCount, handler_step, has_select, is_computed, is_one_select, may_count_rows,
    may_set_trackers, only_sets_insert_id, releases_all_locks, sets_once, uses_tables,
};
use sql_class::{Class, Effects, Facts};

use super::insert_id::InsertIdSource;
use super::{Current, Request, Session};
use crate::variables::AUTOCOMMIT;
use crate::{Pin, PinReason, prime_last_insert_id};

/// Effects that pin from the moment when the statement is sent, whatever becomes of it.
const PINS: &[(Effects, PinReason)] = &[
    (Effects::USER_VARIABLES, PinReason::UserVariables),
    (Effects::TAKES_USER_LOCK, PinReason::UserLock),
    (Effects::TEMPORARY_TABLE, PinReason::TemporaryTable),
    (Effects::LOCKS_TABLES, PinReason::TableLocks),
    (Effects::GLOBAL_LOCK, PinReason::GlobalLock),
    (Effects::HANDLER, PinReason::Handler),
    (Effects::TEXT_PREPARE, PinReason::TextPrepare),
    (Effects::NEXT_TRANSACTION, PinReason::NextTransaction),
    (Effects::SET_STATEMENT, PinReason::SetStatement),
    (Effects::SET_ROLE, PinReason::Role),
    (Effects::SETS_UNCARRIED, PinReason::Uncarried),
    (Effects::XA, PinReason::Xa),
    (Effects::LOADS_DATA, PinReason::LoadData),
    (Effects::SEQUENCE, PinReason::Sequence),
    (Effects::INCOMPLETE, PinReason::Incomplete),
    (Effects::CALCULATES_FOUND_ROWS, PinReason::FoundRows),
];

/// Statements with these run what their text does not tell.
const MAY_DO_ANYTHING: Effects = Effects::CALLS_PROCEDURE
    .with(Effects::UNKNOWN_FUNCTION)
    .with(Effects::TEXT_PREPARE);

/// Read LAST_INSERT_ID(), or may set it in a way that no OK packet shows.
const MAY_TOUCH_INSERT_ID: Effects = MAY_DO_ANYTHING
    .with(Effects::READS_LAST_INSERT_ID)
    .with(Effects::SETS_UNCARRIED)
    .with(Effects::LOADS_DATA)
    .with(Effects::RETURNS_INSERTED)
    .with(Effects::INCOMPLETE);

/// May read it where no text tells.
const MAY_READ_INSERT_ID_UNSEEN: Effects = MAY_DO_ANYTHING.with(Effects::INCOMPLETE);

/// A syntax error: nothing of a single statement was executed.
pub(super) const ER_PARSE_ERROR: u16 = 1064;

/// What a session knows of itself.
const OF_THE_SESSION: Effects = Effects::READS_LAST_INSERT_ID
    .with(Effects::READS_ROW_COUNT)
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_DIAGNOSTICS)
    .with(Effects::READS_CONNECTION_ID);

impl Session {
    /// It has begun at this time, with what binds it from the beginning.
    pub fn begins(&mut self, now_ms: u64) {
        self.pins.begin(now_ms);
    }

    /// Whether this statement has to run on the connection that the session holds. Where not, that may be
    /// given back even though [`Session::is_pinned`]: all that it holds are the last statement's warnings,
    /// and nobody asks for them. It is to be asked for LAST_INSERT_ID() before, where that is not
    /// [known](Session::knows_last_insert_id).
    #[must_use]
    pub fn needs_its_connection(&self, statement: &Request<'_>) -> bool {
        let ends = |reason| self.ends_with(reason, statement);
        !self.pins.as_slice().iter().all(|pin| ends(pin.reason))
    }

    /// Whether it may ask for the warnings or the error of the statement before, or keeps them.
    #[must_use]
    pub fn keeps_diagnostics(&self, statement: &Request<'_>) -> bool {
        !self.ends_with(PinReason::Diagnostics, statement)
    }

    /// The connection that came to hand has been made to show the error of the session's last statement,
    /// which has this digest.
    pub fn has_diagnostics_again(&mut self, digest: u64, now_ms: u64) {
        self.pins.add(PinReason::Diagnostics, digest, now_ms);
        self.diagnostics_are_there = true;
    }

    /// What to send first, on the connection that was leased and rebuilt, where the statement reads
    /// LAST_INSERT_ID(), or may do so or set it unseen, and the connection has another session's. To be asked
    /// for every statement that has effects, and every write while there are
    /// [many ids](Session::has_many_insert_ids).
    /// What the server reports with its OK goes to [`Session::observe_ok`], like everything on a connection
    /// that the session holds; then there may be one more.
    #[must_use]
    pub fn prime(&mut self, statement: &Request<'_>) -> Option<Vec<u8>> {
        let (class, effects, statements) = self.what_it_does(statement);
        let several = statements > 1 && class >= Class::Write;
        let one_more = class == Class::Write && self.has_many_insert_ids();
        let touches =
            effects.intersects(MAY_TOUCH_INSERT_ID) || class == Class::Unknown || several || one_more;
        // `WHERE id IS NULL` reads it under sql_auto_is_null, which pins.
        let may_touch = runs_sql(statement.command) && (touches || self.pins.has(PinReason::Uncarried));
        let asks = effects.contains(Effects::READS_DIAGNOSTICS);
        if asks && self.diagnostics_are_there {
            return None; // anything in between would end them
        }
        if self.insert_id_is_there || !may_touch {
            return None;
        }
        if self.has_lost_insert_id() && !self.may_read_insert_id(statement, class, effects) {
            return None; // nobody knows it, and nobody asks
        }
        if let Some(ask) = self.ask_last_insert_id() {
            return Some(ask);
        }
        self.insert_id_is_there = true;
        Some(prime_last_insert_id(self.last.insert_id))
    }

    /// Whether the statement reads LAST_INSERT_ID(), or may do so unseen.
    fn may_read_insert_id(&self, statement: &Request<'_>, class: Class, effects: Effects) -> bool {
        let unseen = effects.intersects(MAY_READ_INSERT_ID_UNSEEN)
            || class == Class::Unknown
            || self.pins.has(PinReason::Uncarried);
        let sets = effects.contains(Effects::SETS_UNCARRIED);
        let reads = effects.contains(Effects::READS_LAST_INSERT_ID);
        unseen || reads && !(sets && only_sets_insert_id(self.text_of(statement), self.syntax()))
    }

    /// A command is about to be sent on the session's connection.
    pub fn begin(&mut self, statement: &Request<'_>) {
        if !statement.command.has_response() {
            self.begin_unanswered(statement);
            return;
        }
        self.current = self.current_of(statement);
        self.insert_id_asked = InsertIdSource::Known;
        let Current { class, effects, .. } = self.current;
        self.insert_id_was_touched |= class >= Class::Write || effects.intersects(MAY_TOUCH_INSERT_ID);
        let lost_with_it =
            |pin: &Pin| pin.reason != PinReason::SessionPooling && !self.ends_with(pin.reason, statement);
        self.current.was_pinned = self.pins.as_slice().iter().any(lost_with_it);
        for reason in [PinReason::Diagnostics, PinReason::FoundRows] {
            if self.pins.has(reason) && self.ends_with(reason, statement) {
                self.pins.remove(reason);
            }
        }
        if begins_replication(statement.command) {
            self.pin(PinReason::Stream);
        }
        self.note_assigned(statement);
        if self.current.effects == Effects::NONE {
            return;
        }
        if self.current.effects.contains(Effects::USER_VARIABLES) {
            let text = self.text_of(statement);
            // What a function behind a view sets counts as what the SET itself does.
            let may_hide = self.current.class == Class::Session && has_select(text);
            let names = sql_class::user_variables(text, self.syntax);
            let names = names.filter(|names| !names.is_empty() && !may_hide);
            self.user_variables.get_or_insert_default().add(names);
        }
        for (effect, reason) in PINS {
            if self.current.effects.contains(*effect) {
                self.pin(if self.current.sets_insert_id_only(*effect) {
                    PinReason::LastInsertId
                } else {
                    *reason
                });
            }
        }
        let leaves_nothing = self.current.effects.contains(Effects::LEAVES_NOTHING);
        if self.current.effects.contains(Effects::CALLS_PROCEDURE) && !leaves_nothing {
            self.pin(PinReason::Procedure);
        }
        if self.current.effects.contains(Effects::UNKNOWN_FUNCTION) && !self.trusts_functions {
            self.pin(PinReason::UnknownFunction);
        }
        if self.current.effects.contains(Effects::GLOBAL_LOCK) {
            self.unlocked = Effects::NONE;
        }
    }

    /// The response to the command has ended.
    pub fn end(&mut self, outcome: &Outcome) {
        self.settle_assigned(outcome.error.is_some());
        self.settle_status(outcome);
        self.settle_transaction(outcome);
        self.settle_locks(outcome);
        self.settle_command(outcome);
        self.settle_doubts(outcome);
        self.settle_last(outcome);
    }

    pub(super) fn pin(&mut self, reason: PinReason) {
        self.pins.add(reason, self.current.digest, self.current.now_ms);
    }

    /// The reason is one that ends with this statement.
    fn ends_with(&self, reason: PinReason, statement: &Request<'_>) -> bool {
        if !runs_sql(statement.command) {
            return false;
        }
        let (class, effects, _) = self.what_it_does(statement);
        match reason {
            PinReason::Diagnostics => {
                // MariaDB keeps them over statements that use no tables.
                let keeps = self.dialect.is_mariadb()
                    && match class {
                        Class::Session | Class::Begin | Class::BeginReadOnly | Class::Transaction => true,
                        // What asks for more than the session's own may belong to another server than the
                        // connection's.
                        Class::Read if OF_THE_SESSION.contains(effects) => {
                            let text = self.text_of(statement);
                            is_computed(text) && !uses_tables(text, self.syntax)
                        }
                        _ => false,
                    };
                !keeps && !effects.contains(Effects::READS_DIAGNOSTICS)
            }
            PinReason::FoundRows => {
                matches!(class, Class::Read | Class::LockingRead)
                    && !effects.contains(Effects::READS_FOUND_ROWS)
            }
            _ => false,
        }
    }

    fn what_it_does(&self, statement: &Request<'_>) -> (Class, Effects, u32) {
        let of = |facts: &Facts| (facts.class, facts.effects, facts.statements);
        if !runs_sql(statement.command) {
            return (Class::Read, Effects::NONE, 0);
        }
        if let Some(facts) = statement.facts {
            return of(facts);
        }
        let prepared = match statement.command {
            Command::QUERY => None,
            _ => self.statements.get(statement.argument),
        };
        prepared.map_or((Class::Unknown, Effects::NONE, 1), |prepared| of(&prepared.facts))
    }

    fn current_of(&self, statement: &Request<'_>) -> Current {
        let (class, mut effects, statements) = self.what_it_does(statement);
        let was_open = self.in_transaction() || !self.autocommit;
        let text = self.text_of(statement);
        if effects.contains(Effects::RELEASES_ALL_LOCKS) && !releases_all_locks(text) {
            // The function may not be called.
            effects = Effects(effects.0 & !Effects::RELEASES_ALL_LOCKS.0);
        }
        let may_set = matches!(class, Class::Session | Class::Unknown) || statements > 1;
        let sets_trackers = may_set && may_set_trackers(text);
        Current {
            command: statement.command,
            argument: statement.argument,
            class,
            effects,
            statements,
            digest: statement.digest,
            now_ms: statement.now_ms,
            was_open,
            was_pinned: false,
            gtid: false,
            wrote: false,
            sets_trackers,
            sets_one: sets_trackers
                && (class, statements) == (Class::Session, 1)
                && !effects.intersects(MAY_DO_ANYTHING.with(Effects::USER_VARIABLES))
                && sql_class::set_targets(text, self.syntax).is_some_and(|names| names.len() == 1),
            handler: handler_step(effects, statements, text),
            savepoint: match class {
                Class::Transaction if !self.autocommit => Savepoint::of(text),
                _ => Savepoint::Other,
            },
            counts_rows: match class {
                Class::Write | Class::Ddl => may_count_rows(text, self.dialect.is_mariadb()),
                Class::Session => self.dialect.is_mariadb() && may_count_rows(text, true),
                _ => {
                    let is_unclear = text.is_empty() && effects.contains(Effects::READS_DIAGNOSTICS);
                    is_unclear || effects.contains(Effects::LEAVES_NOTHING)
                }
            },
            count: match statements {
                1 => RowCount::of(text, class, self.syntax),
                _ => RowCount::Usual,
            },
            rolls_back: class == Class::Transaction && statements == 1 && begins_with_rollback(text),
            may_commit: class == Class::Transaction
                && !effects.contains(Effects::XA)
                && !is_of_savepoint(text),
            sets_twice: effects.contains(Effects::SET_STATEMENT) && !sets_once(text),
            doubtful_select: effects.contains(Effects::INCOMPLETE)
                && statement.command == Command::QUERY
                && !self.pins.has(PinReason::Incomplete)
                && is_one_select(text),
            collation: match may_set && !effects.intersects(MAY_DO_ANYTHING) {
                true => Collation::of(text),
                false => Collation::Unclear,
            },
        }
    }

    pub(super) fn text_of<'a>(&'a self, statement: &Request<'a>) -> &'a [u8] {
        match statement.command {
            Command::QUERY => statement.text,
            _ if runs_sql(statement.command) => self
                .statements
                .get(statement.argument)
                .map_or(&[][..], |prepared| &prepared.text),
            _ => &[],
        }
    }

    /// Commands without a response: there will be no [`Session::end`], and the command under way stays what
    /// it is.
    fn begin_unanswered(&mut self, statement: &Request<'_>) {
        match statement.command {
            Command::STMT_SEND_LONG_DATA => {
                if let Some(prepared) = self.statements.get_mut(statement.argument) {
                    prepared.long_data = true;
                    self.pins
                        .add(PinReason::LongData, statement.digest, statement.now_ms);
                }
            }
            Command::STMT_CLOSE => {
                self.statements.remove(statement.argument);
                self.settle_statements();
            }
            _ => {}
        }
    }

    fn settle_status(&mut self, outcome: &Outcome) {
        if !outcome.has_status {
            return;
        }
        self.status = outcome.status;
        self.syntax.no_backslash_escapes = outcome.status.contains(StatusFlags::NO_BACKSLASH_ESCAPES);
        let autocommit = outcome.status.contains(StatusFlags::AUTOCOMMIT);
        if autocommit != self.autocommit {
            Rc::make_mut(&mut self.carried).set(AUTOCOMMIT, if autocommit { b"ON" } else { b"OFF" });
            self.autocommit = autocommit;
        }
    }

    /// Locks that the statement has released for certain.
    fn settle_locks(&mut self, outcome: &Outcome) {
        self.pins.remove(PinReason::LoadData);
        if outcome.error.is_some() {
            return;
        }
        self.handlers = match (self.current.handler, self.handlers) {
            (HandlerStep::Other, open) => open,
            (HandlerStep::Opens, Some(open)) => open.checked_add(1),
            (HandlerStep::Closes, Some(open)) => Some(open.saturating_sub(1)),
            (HandlerStep::Unclear, _) | (_, None) => None,
        };
        if self.handlers == Some(0) {
            self.pins.remove(PinReason::Handler);
        }
        let effects = self.current.effects;
        // With `sql_select_limit = 0` nothing is called.
        let had_rows = !outcome.is_result_set || outcome.rows > 0;
        if effects.contains(Effects::RELEASES_ALL_LOCKS) && had_rows {
            self.pins.remove(PinReason::UserLock);
        }
        if effects.contains(Effects::UNLOCKS_TABLES)
            && !effects.contains(Effects::LOCKS_TABLES)
            && self.transaction_state[7] == b'_'
        {
            self.pins.remove(PinReason::TableLocks);
        }
        // One word for locks that different statements release: gone when all of them were said. On MariaDB,
        // where BACKUP UNLOCK succeeds during a BACKUP STAGE, they are never known to be gone.
        if !effects.contains(Effects::GLOBAL_LOCK) {
            let releases = Effects::UNLOCKS_TABLES.with(Effects::RELEASES_GLOBAL_LOCK);
            self.unlocked = self.unlocked.with(Effects(effects.0 & releases.0));
            if self.unlocked.contains(releases) && !self.dialect.is_mariadb() {
                self.pins.remove(PinReason::GlobalLock);
            }
        }
    }

    /// What commands other than queries leave behind.
    fn settle_command(&mut self, outcome: &Outcome) {
        let (command, argument) = (self.current.command, self.current.argument);
        let failed = outcome.error.is_some();
        match command {
            Command::SET_OPTION if !failed && argument <= 1 => {
                let on = argument == 0;
                if self.carried.multi_statements() != on {
                    Rc::make_mut(&mut self.carried).set_multi_statements(on);
                }
            }
            Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE if !failed => {
                let open = outcome.status.contains(StatusFlags::CURSOR_EXISTS)
                    && !outcome.status.contains(StatusFlags::LAST_ROW_SENT);
                match self.statements.get_mut(argument) {
                    Some(prepared) => {
                        prepared.long_data = false;
                        prepared.cursor = open;
                    }
                    None if open => self.stray_cursor = true,
                    None => {}
                }
            }
            Command::STMT_FETCH if !failed && outcome.status.contains(StatusFlags::LAST_ROW_SENT) => {
                if let Some(prepared) = self.statements.get_mut(argument) {
                    prepared.cursor = false;
                }
            }
            // Nothing has begun. Where the connection is bound for another reason, that may be a beginning
            // before this one.
            _ if failed && begins_replication(command) && !self.current.was_pinned => {
                self.pins.remove(PinReason::Stream);
                return;
            }
            Command::STMT_RESET if !failed => {
                if let Some(prepared) = self.statements.get_mut(argument) {
                    prepared.long_data = false;
                    prepared.cursor = false;
                }
            }
            _ => return,
        }
        self.settle_statements();
    }

    fn settle_statements(&mut self) {
        match self.stray_cursor || self.statements.any_cursor() {
            true => self.pin(PinReason::Cursor),
            false => self.pins.remove(PinReason::Cursor),
        }
        match self.statements.any_long_data() {
            true => self.pin(PinReason::LongData),
            false => self.pins.remove(PinReason::LongData),
        }
    }

    /// The server has not understood a SELECT that was not understood here either: `select $$`, with which
    /// MySQL's client begins. Nothing of it was executed.
    pub(super) fn is_select_refused(&self, outcome: &Outcome) -> bool {
        self.current.doubtful_select && outcome.error == Some(ER_PARSE_ERROR)
    }

    /// What was not understood, or failed half-way.
    fn settle_doubts(&mut self, outcome: &Outcome) {
        let (class, effects, statements) = self.current.what_it_does();
        let ran = runs_sql(self.current.command);
        let not_executed =
            outcome.error == Some(ER_PARSE_ERROR) && statements <= 1 && !effects.intersects(MAY_DO_ANYTHING);
        let is_known = effects.intersects(Effects::CALLS_PROCEDURE.with(Effects::LEAVES_NOTHING));
        self.may_have_set_unnamed |= outcome.error.is_some() && !not_executed && self.runs_others();
        if ran && class == Class::Unknown && !is_known && !not_executed {
            self.pin(PinReason::NotUnderstood);
        }
        if self.is_select_refused(outcome) {
            self.pins.remove(PinReason::Incomplete);
        }
        let harmless = matches!(
            class,
            Class::Read | Class::LockingRead | Class::Write | Class::Ddl | Class::Administration
        );
        match outcome.error {
            None if outcome.has_status => {
                if self.current.sets_trackers && self.pins.has(PinReason::Unsettled) {
                    self.lose_meaning(); // the trackers that would have told may be off
                }
                self.pins.remove(PinReason::Unsettled);
                if ran && !effects.contains(Effects::SET_STATEMENT) {
                    self.pins.remove(PinReason::SetStatement);
                }
            }
            None => {}
            Some(_) if not_executed && !self.current.was_open => {}
            Some(_) if harmless && !self.current.was_open && (statements <= 1 || class == Class::Read) => {}
            Some(_) => self.pin(PinReason::Unsettled),
        }
        // To arm the trackers would wipe the error of one that is as it was.
        let is_as_it_was = outcome.error.is_some() && self.current.sets_one;
        if self.current.sets_trackers && !is_as_it_was {
            self.needs_rearming = true;
            self.pin(PinReason::Trackers);
        }
        if self.current.sets_twice {
            // Which of the reported values will last cannot be told apart.
            self.lose_meaning();
        }
    }

    /// What the next statement may ask for.
    fn settle_last(&mut self, outcome: &Outcome) {
        let (class, effects, statements) = self.current.what_it_does();
        let failed = outcome.error.is_some();
        let ran = runs_sql(self.current.command);
        // Of an earlier statement of the text, kept over a last one that asks for them, or on MariaDB uses no
        // tables.
        let keeps = self.dialect.is_mariadb() || effects.contains(Effects::READS_DIAGNOSTICS);
        let hidden = statements > 1 && keeps;
        if failed || outcome.warnings > 0 || hidden {
            self.pin(PinReason::Diagnostics);
            self.diagnostics_are_there = true;
        } else if self.current.command == Command::STMT_PREPARE && !self.dialect.is_mariadb() {
            // MySQL forgets them when it prepares; MariaDB keeps them where no table is named.
            self.pins.remove(PinReason::Diagnostics);
            self.diagnostics_are_there = false;
        } else if ran && !effects.contains(Effects::READS_DIAGNOSTICS) {
            // MariaDB keeps them over a statement that uses no tables, and a read may be one.
            let cleared = matches!(class, Class::LockingRead | Class::Write | Class::Ddl);
            self.diagnostics_are_there &= self.dialect.is_mariadb() && !cleared;
        }
        let fetches = self.current.command == Command::STMT_FETCH;
        if fetches || outcome.status.contains(StatusFlags::CURSOR_EXISTS) {
            self.last.found_rows = None; // the rows have not come, or not all of them
        }
        if failed && self.current.command == Command::STMT_PREPARE {
            self.last.row_count = -1;
        }
        if !ran {
            return;
        }
        if !effects.contains(Effects::READS_DIAGNOSTICS) {
            self.warnings = outcome.warnings.max(failed.into());
        }
        self.last.row_count = match (failed, outcome.is_result_set) {
            (false, false) => i64::try_from(outcome.affected_rows).unwrap_or(i64::MAX),
            _ => -1,
        };
        self.settle_insert_id(outcome);
        if effects.contains(Effects::CALLS_PROCEDURE) && !effects.contains(Effects::LEAVES_NOTHING) {
            // A procedure's inserts count, and no OK tells of them.
            self.pin(PinReason::LastInsertId);
        }
        self.settle_found_rows(outcome);
    }
}

/// Commands by which a replica or a reader of the binary log begins.
fn begins_replication(command: Command) -> bool {
    command.starts_stream() || command == Command::REGISTER_SLAVE
}

impl Current {
    pub(super) fn what_it_does(&self) -> (Class, Effects, u32) {
        (self.class, self.effects, self.statements)
    }

    /// What is not carried is LAST_INSERT_ID(), set with an argument: an OK packet may say it, or the server
    /// if asked.
    fn sets_insert_id_only(&self, effect: Effects) -> bool {
        effect == Effects::SETS_UNCARRIED
            && self.effects.contains(Effects::READS_LAST_INSERT_ID)
            && matches!(self.class, Class::Read | Class::LockingRead | Class::Write)
            && self.statements == 1
    }
}

pub(super) const fn runs_sql(command: Command) -> bool {
    matches!(
        command,
        Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE
    )
}
