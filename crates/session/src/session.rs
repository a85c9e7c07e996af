//! One session: what it is told, and what it answers.

mod found_rows;
mod insert_id;
mod intern;
mod settle;
mod tracker_reports;
mod transaction;
mod untracked_sets;
mod written_gtids;

use std::rc::Rc;

use mysql_wire::{Command, OkPacket, StatusFlags};
use serde::{Deserialize, Serialize};
use sql_class::text::savepoint::Savepoint;
use sql_class::text::{Collation, HandlerStep, RowCount};
use sql_class::{Charset, Class, Dialect, Effects, Facts, Syntax};

pub use self::insert_id::KnownConnection;
use self::insert_id::{InsertIdSource, ReportedIds};
use self::untracked_sets::UntrackedSets;
use self::written_gtids::{LastGtid, WrittenGtids};
use crate::next_transaction::NextTransaction;
use crate::pin::Pins;
use crate::user_variables::Named;
use crate::variables::{AUTOCOMMIT, CHARACTER_SET_CLIENT, DEFAULT, SQL_MODE, has_mode};
use crate::{Baseline, ClientTrackers, Pin, PinReason, PortableState, Prepared, Statements, TransactionInfo};

/// A session at its start, or after COM_CHANGE_USER.
#[derive(Debug, Clone)]
pub struct Start {
    pub schema: Option<Vec<u8>>,
    pub dialect: Dialect,
    /// The login's MULTI_STATEMENTS.
    pub multi_statements: bool,
    /// What the client sees of session state as long as it asks for nothing else.
    pub wants: ClientTrackers,
    pub baseline: Rc<Baseline>,
    /// The user's pooling is `session`: pinned for good.
    pub session_pooling: bool,
    /// The operator says that stored functions leave nothing behind on a connection.
    pub trusts_functions: bool,
    /// Most prepared statements at a time.
    pub statements_max: usize,
}

/// A command just before it is sent.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub command: Command,
    /// Of the text, or of the prepared statement that is executed. Not needed for an execute of a statement
    /// in [`Session::statements`]; a COM_QUERY without is taken for one that may do anything.
    pub facts: Option<&'a Facts>,
    /// COM_STMT_…: the client's statement id; COM_SET_OPTION: the option; otherwise 0.
    pub argument: u32,
    /// Of the text, where that may be what pins the session; 0 for a plain read.
    pub digest: u64,
    /// Of a COM_QUERY; of other commands empty. Read where the facts are not enough: whether `SET NAMES` has
    /// a COLLATE, which no tracker shows, and whether trackers are set.
    pub text: &'a [u8],
    pub now_ms: u64,
}

/// What the statement under way, or the last one, is about.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Current {
    command: Command,
    argument: u32,
    class: Class,
    effects: Effects,
    statements: u32,
    digest: u64,
    now_ms: u64,
    /// Was in a transaction, or without autocommit, before it.
    was_open: bool,
    /// Was pinned before it, to something that would be lost with the connection.
    was_pinned: bool,
    /// A GTID was reported.
    gtid: bool,
    /// It has committed something, as far as can be known.
    wrote: bool,
    /// It may have set trackers.
    sets_trackers: bool,
    /// A tracker is all that it sets, so that nothing is set where it fails.
    sets_one: bool,
    /// It ends the transaction without a trace.
    rolls_back: bool,
    /// COMMIT, however it goes on.
    may_commit: bool,
    handler: HandlerStep,
    savepoint: Savepoint,
    /// What FOUND_ROWS() says after it is not known.
    counts_rows: bool,
    /// What it is where that is not as usual.
    count: RowCount,
    /// `SET STATEMENT … FOR`, and then maybe another SET.
    sets_twice: bool,
    /// It cannot be read for certain, but is one SELECT; and no statement before was in doubt.
    doubtful_select: bool,
    collation: Collation,
}

/// What belongs to the last statement and may be asked for on another connection.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Last {
    insert_id: u64,
    /// What it was when that was known last.
    insert_id_before: u64,
    /// Those that OK packets said since.
    reported_ids: ReportedIds,
    row_count: i64,
    found_rows: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Session {
    dialect: Dialect,
    syntax: Syntax,
    autocommit: bool,
    session_pooling: bool,
    trusts_functions: bool,
    needs_rearming: bool,
    carried: Rc<PortableState>,
    baseline: Rc<Baseline>,
    /// At the start, to come back to with a reset.
    initial_trackers: Rc<ClientTrackers>,
    trackers: Rc<ClientTrackers>,
    pub(crate) pins: Pins,
    /// Of what gives texts their meaning on the connection not all is known: it was set where no tracker and
    /// no text shows it.
    meaning_is_unclear: bool,
    unseen: Option<Box<UntrackedSets>>,
    /// A savepoint was set without autocommit, and nothing else yet: the server says of no transaction.
    has_savepoint: bool,
    /// What collation a charset has by itself was set.
    sets_own_collations: bool,
    statements: Statements,
    pub(crate) user_variables: Option<Box<Named>>,
    /// A write has failed whose triggers may have set user variables; the next OK would tell.
    pub(crate) may_have_set_unnamed: bool,
    status: StatusFlags,
    transaction_state: [u8; 8],
    has_written: bool,
    /// Whether the next or current transaction is like the others.
    pub(crate) next_transaction: NextTransaction,
    /// It has written something for which no GTID came.
    untracked_writes: bool,
    /// Of something that it may have written no answer came: it may be there, under a GTID that nobody has
    /// told, or come to be there later.
    lost_writes: bool,
    insert_id: InsertIdSource,
    /// What it was when the connection was asked for the id, until it answers.
    insert_id_asked: InsertIdSource,
    /// LAST_INSERT_ID() of the connection at hand is this session's.
    insert_id_is_there: bool,
    /// It may be another one since the connection came to hand.
    insert_id_was_touched: bool,
    /// LAST_INSERT_ID() of the connection may be one that nobody was told.
    insert_id_may_differ: bool,
    /// The connection at hand has warnings or an error to show.
    diagnostics_are_there: bool,
    /// Tables opened with `HANDLER … OPEN` and not closed; `None` where that is not known.
    handlers: Option<u32>,
    /// A cursor of a statement that is not in the table.
    stray_cursor: bool,
    /// What was said to release a global lock, since it was taken.
    unlocked: Effects,
    gtid: Option<Box<WrittenGtids>>,
    /// MariaDB: what the connection at hand has told last.
    gtid_there: LastGtid,
    last: Last,
    /// Of the last statement.
    warnings: u16,
    current: Current,
}

/// There may be fifteen thousand of them, idle.
const _: () = assert!(size_of::<Session>() <= 448);

/// What a session that moves to another server has there as well.
const CARRIED: [PinReason; 3] = [
    PinReason::UserVariables,
    PinReason::Role,
    PinReason::NextTransaction,
];

const IDLE: [u8; 8] = *b"________";

impl Session {
    #[must_use]
    pub fn new(start: Start) -> Self {
        let trackers = Rc::new(start.wants);
        let mut session = Self {
            dialect: start.dialect,
            syntax: Syntax::default(),
            autocommit: true,
            session_pooling: start.session_pooling,
            trusts_functions: start.trusts_functions,
            needs_rearming: false,
            carried: Rc::new(PortableState::fresh(
                start.schema.as_deref(),
                start.multi_statements,
            )),
            baseline: start.baseline,
            initial_trackers: Rc::clone(&trackers),
            trackers,
            pins: Pins::default(),
            meaning_is_unclear: false,
            unseen: None,
            has_savepoint: false,
            sets_own_collations: false,
            statements: Statements::new(start.statements_max),
            user_variables: None,
            may_have_set_unnamed: false,
            status: StatusFlags::AUTOCOMMIT,
            transaction_state: IDLE,
            has_written: false,
            next_transaction: NextTransaction::Usual,
            untracked_writes: false,
            lost_writes: false,
            insert_id: InsertIdSource::Known,
            insert_id_asked: InsertIdSource::Known,
            insert_id_is_there: false,
            insert_id_was_touched: false,
            insert_id_may_differ: false,
            diagnostics_are_there: false,
            handlers: Some(0),
            stray_cursor: false,
            unlocked: Effects::NONE,
            gtid: None,
            gtid_there: LastGtid::NONE,
            last: Last::default(),
            warnings: 0,
            current: Current::none(),
        };
        if session.session_pooling {
            session.pins.add(PinReason::SessionPooling, 0, 0);
        }
        session.read_variables();
        session
    }

    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// How the server reads this session's next text.
    #[must_use]
    pub fn syntax(&self) -> Syntax {
        self.syntax
    }

    /// Why it may not leave its connection. At most one pin a reason.
    #[must_use]
    pub fn pins(&self) -> &[Pin] {
        self.pins.as_slice()
    }

    #[must_use]
    pub fn has_pin(&self, reason: PinReason) -> bool {
        self.pins.has(reason)
    }

    #[must_use]
    pub fn is_pinned(&self) -> bool {
        !self.pins.as_slice().is_empty()
    }

    /// It was pinned before the command under way, to something that is lost with the connection.
    #[must_use]
    pub fn was_pinned(&self) -> bool {
        self.current.was_pinned
    }

    /// The gateway has asked the server, or knows for certain, that this reason is gone: a probe has found no
    /// user variables, no locks.
    pub fn cleared(&mut self, reason: PinReason) {
        self.pins.remove(reason);
    }

    /// A transaction is open, as far as the last answer said.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.status.contains(StatusFlags::IN_TRANS) || self.transaction_state[..7] != IDLE[..7]
    }

    /// Whether calls of stored functions leave nothing behind, as the operator says.
    #[must_use]
    pub fn trusts_functions(&self) -> bool {
        self.trusts_functions
    }

    #[must_use]
    pub fn autocommit(&self) -> bool {
        self.autocommit
    }

    /// The status flags that its variables have in an answer outside of any transaction.
    #[must_use]
    pub fn status_at_rest(&self) -> StatusFlags {
        let mut status = StatusFlags::default();
        if self.autocommit {
            status.insert(StatusFlags::AUTOCOMMIT);
        }
        if self.syntax.no_backslash_escapes {
            status.insert(StatusFlags::NO_BACKSLASH_ESCAPES);
        }
        if self.syntax.ansi_quotes && self.dialect.is_mariadb() {
            status.insert(StatusFlags::ANSI_QUOTES);
        }
        status
    }

    /// `START TRANSACTION READ ONLY`.
    #[must_use]
    pub fn transaction_is_read_only(&self) -> bool {
        self.in_transaction() && self.status.contains(StatusFlags::IN_TRANS_READONLY)
    }

    /// The open transaction has written, or may have.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.has_written
    }

    /// The open transaction has written to tables that know no transactions, as its server says: that stays,
    /// whatever becomes of the transaction.
    #[must_use]
    pub fn has_written_for_good(&self) -> bool {
        self.transaction_state[3] == b'w'
    }

    /// What another connection needs to have for this session.
    #[must_use]
    pub fn carried(&self) -> &Rc<PortableState> {
        &self.carried
    }

    /// The session gives its connection back, which it does not need any more: what that has now, for the
    /// next one's [`crate::rebuild()`].
    #[must_use]
    pub fn leave(&mut self) -> Rc<PortableState> {
        let has_diagnostics = self.diagnostics_are_there;
        self.pins.remove(PinReason::Diagnostics);
        self.pins.remove(PinReason::FoundRows);
        debug_assert!(
            !self.is_pinned(),
            "a connection is given back in spite of {:?}",
            self.pins()
        );
        // Who was not asked before is believed.
        self.insert_id_was_made();
        (self.insert_id_is_there, self.insert_id_was_touched) = (false, false);
        self.insert_id_may_differ = false;
        self.diagnostics_are_there = false;
        match has_diagnostics {
            true => Rc::new(self.carried.with_diagnostics()),
            false => Rc::clone(&self.carried),
        }
    }

    /// The session goes on on another connection, which has what [`move_plan`](Self::move_plan) asks for.
    pub fn move_on(&mut self) {
        let carried = CARRIED.map(|reason| self.pins.get(reason));
        CARRIED.iter().for_each(|reason| self.pins.remove(*reason));
        let is_lost = self.has_lost_insert_id();
        // What it leaves on the old connection is nobody's.
        let _ = self.leave();
        if is_lost {
            self.insert_id = InsertIdSource::Lost;
        }
        for pin in carried.into_iter().flatten() {
            self.pins.add(pin.reason, pin.digest, pin.since_ms);
        }
    }

    /// The same, and nobody can ask the connection any more that it had: it is gone.
    pub fn move_on_without(&mut self) {
        let is_known = self.knows_last_insert_id();
        self.move_on();
        if !is_known {
            self.insert_id = InsertIdSource::Lost;
        }
    }

    /// Its open transaction, in which nothing was executed but reads, goes on on another connection, where
    /// one has just begun: `begun` is that server's answer. What the connection that it leaves has once the
    /// transaction is rolled back there, for the next one's [`crate::rebuild()`].
    #[must_use]
    pub fn move_transaction(&mut self, begun: &OkPacket) -> Rc<PortableState> {
        debug_assert!(self.in_transaction());
        let open = self.pins.get(PinReason::Transaction);
        self.pins.remove(PinReason::Transaction);
        self.pins.remove(PinReason::Unsettled);
        self.has_written = false;
        let left = self.leave();
        // The client knows that it is in a transaction.
        self.observe_ok(begun);
        if let Some(pin) = open {
            self.pins.add(pin.reason, pin.digest, pin.since_ms);
        }
        left
    }

    /// Its client is told what its transactions have done so far.
    #[must_use]
    pub fn shows_transactions(&self) -> bool {
        self.trackers.enabled && self.trackers.transaction_info != TransactionInfo::Off
    }

    /// The session goes on in another process, whose clock says `here` where the one before says `there`, in
    /// milliseconds.
    pub fn set_clock(&mut self, there: u64, here: u64) {
        self.pins.set_clock(there, here);
        self.current.now_ms = here;
    }

    /// What its variables are where they are not carried.
    #[must_use]
    pub fn baseline(&self) -> &Rc<Baseline> {
        &self.baseline
    }

    /// What the statement under way, or the last one, is.
    #[must_use]
    pub fn statement(&self) -> (Class, Effects) {
        (self.current.class, self.current.effects)
    }

    /// Of the same; 0 where nobody has asked for it.
    #[must_use]
    pub fn statement_digest(&self) -> u64 {
        self.current.digest
    }

    /// Whether the last statement has committed something, as far as can be known.
    #[must_use]
    pub fn has_just_written(&self) -> bool {
        self.current.wrote
    }

    /// A variable as this session sees it, as far as that is known.
    #[must_use]
    pub fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        self.carried
            .variable(name)
            .or_else(|| self.baseline.variable(name))
    }

    /// Of its writes, as the server reported them, and maybe of some that others have committed in between.
    /// Not to be read as GTIDs where there are too many of them.
    #[must_use]
    pub fn gtid(&self) -> Option<&[u8]> {
        self.gtid.as_ref().map(|written| &*written.text)
    }

    /// It has written something for which no GTID came, or may have: no position says which replicas have it.
    #[must_use]
    pub fn has_untracked_writes(&self) -> bool {
        self.untracked_writes
    }

    #[must_use]
    pub fn prepared(&self, id: u32) -> Option<&Prepared> {
        self.statements.get(id)
    }

    pub fn statements(&mut self) -> &mut Statements {
        &mut self.statements
    }

    /// `ROW_COUNT()`: -1 after a result set or an error.
    #[must_use]
    pub fn row_count(&self) -> i64 {
        self.last.row_count
    }

    /// `@@warning_count`.
    #[must_use]
    pub fn warning_count(&self) -> u16 {
        self.warnings
    }

    /// What the client has set for itself, where no tracker says it: the server does not report a change of
    /// `session_track_system_variables` that takes that variable off its own list. A gateway that wants to
    /// know reads the five variables before it arms the trackers again; those that are not as it armed them
    /// are the client's.
    pub fn learn_wish(&mut self, name: &[u8], value: &[u8]) {
        Rc::make_mut(&mut self.trackers).wish(name, value);
    }

    /// The client has set what was meant for the gateway's trackers: arm them again before anything else,
    /// then call [`Session::rearmed`].
    #[must_use]
    pub fn needs_rearming(&self) -> bool {
        self.needs_rearming
    }

    /// The trackers of its connection are armed again.
    pub fn rearmed(&mut self) {
        self.needs_rearming = false;
        self.pins.remove(PinReason::Trackers);
    }

    /// The answer to the command under way was lost, and nobody knows whether it was executed: who looks has
    /// to look where it would be. False where it leaves nothing to be looked for.
    pub fn lost_answer(&mut self) -> bool {
        let calls = Effects::CALLS_PROCEDURE.with(Effects::UNKNOWN_FUNCTION);
        let may_write = self.current.class >= Class::Transaction || self.current.effects.intersects(calls);
        self.untracked_writes |= may_write;
        self.lost_writes |= may_write;
        may_write
    }

    /// Its server connection is gone, and everything that was bound to it.
    pub fn lost(&mut self) {
        self.leave_connection();
        self.statements.forget_server_side();
        self.warnings = 0;
        self.last.found_rows = None;
    }

    /// COM_RESET_CONNECTION has succeeded: the schema stays, everything else is as after a login, but for the
    /// charset, which the server now takes from its global variables.
    pub fn reset(&mut self) {
        self.carried = Rc::new(self.carried.after_reset(self.dialect, &self.baseline));
        self.start_over();
    }

    /// COM_RESET_CONNECTION was executed on a connection that is this session's alone, on which variables
    /// have these values now.
    pub fn reset_on_own_connection(&mut self, baseline: Rc<Baseline>) {
        self.baseline = baseline;
        let (schema, multi_statements) = (self.carried.schema(), self.carried.multi_statements());
        self.carried = Rc::new(PortableState::fresh(schema, multi_statements));
        self.start_over();
    }

    /// MariaDB has refused COM_CHANGE_USER, and reset the session before; its charset is now the server's,
    /// not the login's.
    pub fn change_user_refused(&mut self) {
        self.carried = Rc::new(self.carried.with_global_variables(&self.baseline));
        self.start_over();
    }

    fn start_over(&mut self) {
        self.leave_connection();
        self.statements.clear();
        self.trackers = Rc::clone(&self.initial_trackers);
        (self.last, self.warnings) = (self.last.after_reset(), 0);
        self.lost_writes = false;
        self.needs_rearming = true;
        self.pins.add(PinReason::Trackers, 0, self.current.now_ms);
        self.read_variables();
    }

    /// COM_CHANGE_USER has succeeded: a new session. Statement ids go on, so that none means another
    /// statement.
    pub fn change_user(&mut self, start: Start) {
        let mut statements = std::mem::replace(&mut self.statements, Statements::new(0));
        statements.start_over(start.statements_max);
        let last = self.last.after_reset();
        *self = Self::new(start);
        (self.statements, self.last) = (statements, last);
    }

    /// The same on a connection that is this session's alone: what was written there before was seen by all
    /// that came after.
    pub fn change_user_on_own_connection(&mut self, start: Start) {
        let written = (self.gtid.take(), self.untracked_writes, self.lost_writes);
        self.change_user(start);
        (self.gtid, self.untracked_writes, self.lost_writes) = written;
    }

    /// The transaction is gone, and every pin that is of the connection.
    fn leave_connection(&mut self) {
        self.pins.clear();
        (self.meaning_is_unclear, self.sets_own_collations) = (false, false);
        self.status.remove(StatusFlags::IN_TRANS);
        self.status.remove(StatusFlags::IN_TRANS_READONLY);
        self.transaction_state = IDLE;
        self.next_transaction = NextTransaction::Usual;
        (self.unseen, self.has_savepoint) = (None, false);
        (self.user_variables, self.may_have_set_unnamed) = (None, false);
        self.handlers = Some(0);
        self.stray_cursor = false;
        self.unlocked = Effects::NONE;
        self.has_written = false;
        self.insert_id_was_made();
        self.insert_id_asked = InsertIdSource::Known;
        (self.insert_id_is_there, self.insert_id_was_touched) = (false, false);
        self.insert_id_may_differ = false;
        self.diagnostics_are_there = false;
        self.needs_rearming = false;
        self.current = Current::none();
    }

    /// What the variables say about how this session is to be read.
    fn read_variables(&mut self) {
        let sql_mode = match self.carried.variable(SQL_MODE) {
            // What the login has added to the global one changes nothing here.
            None | Some(DEFAULT) => self.baseline.variable(SQL_MODE),
            set => set,
        };
        let has = |mode| has_mode(sql_mode.unwrap_or_default(), mode);
        let (ansi_quotes, no_backslash_escapes) = (has(b"ANSI_QUOTES"), has(b"NO_BACKSLASH_ESCAPES"));
        let charset = self
            .variable(CHARACTER_SET_CLIENT)
            .map_or(Charset::default(), Charset::named);
        let autocommit = self
            .variable(AUTOCOMMIT)
            .is_none_or(|value| !matches!(value, b"OFF" | b"0"));
        self.syntax = Syntax {
            ansi_quotes,
            no_backslash_escapes,
            charset,
            dialect: self.dialect,
        };
        self.autocommit = autocommit;
    }
}

impl Current {
    const fn none() -> Self {
        Self {
            command: Command::SLEEP,
            argument: 0,
            class: Class::Read,
            effects: Effects::NONE,
            statements: 0,
            digest: 0,
            now_ms: 0,
            was_open: false,
            was_pinned: false,
            gtid: false,
            wrote: false,
            sets_trackers: false,
            sets_one: false,
            rolls_back: false,
            may_commit: false,
            handler: HandlerStep::Other,
            savepoint: Savepoint::Other,
            counts_rows: false,
            count: RowCount::Usual,
            sets_twice: false,
            doubtful_select: false,
            collation: Collation::Unclear,
        }
    }
}
