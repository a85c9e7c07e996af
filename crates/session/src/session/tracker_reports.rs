//! What the server's trackers say.

use std::rc::Rc;

use mysql_wire::session_state::{Change, changes};
use mysql_wire::{OkPacket, StatusFlags};
use sql_class::text::Collation;
use sql_class::{Class, Dialect, Effects};

use super::written_gtids::Report;
use super::{Session, written_gtids};
use crate::next_transaction::NextTransaction;
use crate::rebuild::{Excursion, excursion};
use crate::variables::{
    self, CHARACTER_SET_CONNECTION, CHARACTER_SET_RESULTS, COLLATION_CONNECTION, Meaning, OWN_COLLATIONS,
    meaning,
};
use crate::{Baseline, PinReason, PortableState};

impl Session {
    /// Every OK packet with session state, in their order. Gives back the session state that the client
    /// itself is to see, encoded; where that is empty its OK must not have SESSION_STATE_CHANGED.
    pub fn observe_ok(&mut self, ok: &OkPacket) -> Vec<u8> {
        self.observe(ok, false)
    }

    /// The answer to a command of the gateway's own that has given the connection the session's id, or asked
    /// for it. Late reports come with it, and that some state has changed is no news.
    pub fn observe_primed(&mut self, ok: &OkPacket) {
        self.observe(ok, true);
    }

    fn observe(&mut self, ok: &OkPacket, is_own: bool) -> Vec<u8> {
        self.learn_wishes(ok);
        let mut shown = Vec::new();
        let mut state_changed = false;
        let after_failure = std::mem::take(&mut self.may_have_set_unnamed);
        let mut explained = false;
        let (mut charset, mut collation) = (false, false);
        for change in changes(&ok.session_state) {
            let Ok(change) = change else {
                // Not readable: what it said may have been anything.
                self.pin(PinReason::StateChange);
                break;
            };
            match change {
                Change::StateChanged(changed) => {
                    state_changed |= changed && !is_own;
                    if changed && (!is_own || after_failure) {
                        self.note_changed_user_variables(after_failure);
                    }
                }
                Change::Variable { name, value } if is_own && meaning(name) == Meaning::Gtid => {
                    // It has written nothing.
                    self.gtid_there.note(value);
                }
                Change::Variable { name, value } if meaning(name) == Meaning::Gtid => {
                    // `SET autocommit=1` ends a transaction.
                    let commits = self.has_written && !ok.status.contains(StatusFlags::IN_TRANS);
                    let may_repeat = self.current.class == Class::Session && !commits;
                    let report = self.gtid_there.note(value);
                    let is_older = report == Report::Unclear && written_gtids::is_beyond(self.gtid(), value);
                    if is_older || !report.is_news(may_repeat) {
                        continue; // it may be another session's
                    }
                    self.learn_gtid(value);
                }
                _ => explained |= self.learn(&change),
            }
            self.note_reported(&change);
            charset |= is_variable(&change, CHARACTER_SET_CONNECTION);
            collation |= is_variable(&change, COLLATION_CONNECTION);
            if !is_for_the_gateway_only(&change) && self.trackers.shows(&change) {
                change.encode(&mut shown);
            }
        }
        if !self.current.effects.contains(Effects::SET_STATEMENT) {
            self.forget_others(ok);
        }
        if charset != collation && !self.current.effects.contains(Effects::SET_STATEMENT) {
            self.pair_charset_and_collation(charset);
            self.show_charset(collation, &mut shown);
        }
        let said = explained
            || self.awaits_values()
            || self.current.sets_trackers
            || self.current.effects.intersects(EXPLAINS);
        if state_changed && (!said || self.sets_unclear()) {
            self.pin(PinReason::StateChange);
        }
        self.status = ok.status;
        shown
    }

    /// What makes texts mean on its connection what they mean under `context`, and the way back. None where
    /// there is none. What the server may have to report of the last statement has to be known before: its OK
    /// would be lost.
    #[must_use]
    pub fn excursion(&self, context: &PortableState, baseline: &Baseline) -> Option<Excursion> {
        match self.meaning_is_unclear || self.sets_own_collations {
            true => None,
            false => excursion(context, &self.carried, baseline),
        }
    }

    /// The command to send on its connection before something is prepared there, where it is not known what
    /// gives texts their meaning on it. It changes nothing; its OK reports all of that, and goes to
    /// [`Session::learn_meaning`].
    #[must_use]
    pub fn ask_meaning(&self) -> Option<Vec<u8>> {
        let ask = || crate::rebuild::ask_values(variables::to_be_asked(self.dialect));
        self.meaning_is_unclear.then(ask)
    }

    /// The connection has said what it was asked for.
    pub fn learn_meaning(&mut self, ok: &OkPacket) {
        let carried = Rc::make_mut(&mut self.carried);
        for change in changes(&ok.session_state).flatten() {
            let Change::Variable { name, value } = change else {
                continue;
            };
            if name == COLLATION_CONNECTION {
                carried.set(CHARACTER_SET_CONNECTION, variables::charset_of(value));
            }
            if variables::gives_meaning(name) || name == CHARACTER_SET_RESULTS {
                carried.set(name, value);
            }
        }
        self.meaning_is_unclear = false;
        self.read_variables();
    }

    /// The answer to a command of an [`Session::excursion`]: of what it reports, the transaction alone is the
    /// session's.
    pub fn observe_excursion(&mut self, ok: &OkPacket) {
        for change in changes(&ok.session_state).flatten() {
            let is_lasting = matches!(
                change,
                Change::TransactionState(_) | Change::Characteristics(_) | Change::Gtids(_)
            );
            if is_lasting {
                self.learn(&change);
            }
        }
        self.status = ok.status;
    }

    /// What the client wants to see holds for the OK packet that says so, too.
    fn learn_wishes(&mut self, ok: &OkPacket) {
        for change in changes(&ok.session_state) {
            if let Ok(Change::Variable { name, value }) = change
                && meaning(name) == Meaning::Arming
            {
                self.learn_wish(name, value);
            }
        }
    }

    /// Whether the change explains that "some state" changed.
    fn learn(&mut self, change: &Change<'_>) -> bool {
        match *change {
            Change::Variable { name, value } => return self.learn_variable(name, value),
            Change::Schema(schema) => {
                let schema = Some(schema).filter(|schema| !schema.is_empty());
                Rc::make_mut(&mut self.carried).set_schema(schema);
                return true;
            }
            Change::Gtids(gtids) => self.learn_gtid(gtids),
            Change::Characteristics(statements) => {
                self.next_transaction = NextTransaction::reported(statements);
                let is_usual = self.next_transaction == NextTransaction::Usual;
                if is_usual && !self.current.effects.contains(Effects::NEXT_TRANSACTION) {
                    self.pins.remove(PinReason::NextTransaction);
                }
            }
            Change::TransactionState(state) => self.learn_transaction_state(state),
            Change::StateChanged(_) | Change::Other { .. } => {}
        }
        false
    }

    fn learn_transaction_state(&mut self, state: &[u8]) {
        match state.first_chunk::<8>() {
            Some(state_8) if state.len() == 8 => self.transaction_state = *state_8,
            _ => self.pin(PinReason::StateChange),
        }
        let releases = matches!(self.current.class, Class::Begin | Class::BeginReadOnly)
            || self.current.effects.contains(Effects::UNLOCKS_TABLES);
        match self.transaction_state[7] {
            // MySQL forgets to say that they are held with the commit of DDL.
            b'_' if releases => self.pins.remove(PinReason::TableLocks),
            b'_' => {}
            _ => self.pin(PinReason::TableLocks),
        }
    }

    fn learn_gtid(&mut self, gtid: &[u8]) {
        self.set_gtid(written_gtids::with(self.gtid(), gtid));
        self.current.gtid = true;
        // What came without one before was nothing, or is covered: the server has reported every write since.
        if !self.pins.has(PinReason::BinlogOff) {
            self.untracked_writes = false;
        }
    }

    /// The charset of the server, or of the schema, goes with its collation: one that was not reported with
    /// the other is what that sets.
    fn forget_others(&mut self, ok: &OkPacket) {
        for other in variables::others_of_pairs() {
            let (name, with) = other;
            let is_said = |name| {
                changes(&ok.session_state)
                    .flatten()
                    .any(|change| is_variable(&change, name))
            };
            if self.carried.variable(name).is_some() && !is_said(name) && is_said(with) {
                Rc::make_mut(&mut self.carried).unset(name);
            }
        }
    }

    /// The client may want to know the charset, in the place of the collation by which MariaDB 11 tells the
    /// gateway.
    fn show_charset(&self, by_collation: bool, shown: &mut Vec<u8>) {
        let is_new = matches!(self.dialect, Dialect::MariaDb { version } if version >= 110_000);
        let variable = |name| {
            self.carried
                .variable(name)
                .map(|value| Change::Variable { name, value })
        };
        let (charset, collation) = (variable(CHARACTER_SET_CONNECTION), variable(COLLATION_CONNECTION));
        let (Some(charset), Some(collation)) = (charset, collation) else {
            return;
        };
        let len = |change: &Change<'_>| {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            bytes.len()
        };
        // Nor may the packet become longer than it was.
        let wants = self.trackers.shows(&charset) && !self.trackers.shows(&collation);
        if by_collation && is_new && wants && len(&charset) <= len(&collation) {
            charset.encode(shown);
        }
    }

    /// `character_set_connection` and `collation_connection` are one to the server, which reports only the
    /// one that the statement named.
    pub(super) fn pair_charset_and_collation(&mut self, by_charset: bool) {
        let carried = Rc::make_mut(&mut self.carried);
        if !by_charset {
            let collation = carried.variable(COLLATION_CONNECTION).unwrap_or_default();
            let charset = variables::charset_of(collation).to_vec();
            carried.set(CHARACTER_SET_CONNECTION, &charset);
            return;
        }
        carried.unset(COLLATION_CONNECTION);
        let charset = carried.variable(CHARACTER_SET_CONNECTION).unwrap_or_default();
        match &self.current.collation {
            // Its own is another one here.
            Collation::OfCharset if self.sets_own_collations => self.lose_meaning(),
            Collation::OfCharset => {}
            Collation::Named(collation) if variables::belongs(collation, charset) => {
                carried.set(COLLATION_CONNECTION, collation);
            }
            Collation::Named(_) | Collation::Unclear => self.lose_meaning(),
        }
    }

    /// What is set on the connection is not all known, and what gives texts their meaning may be of it.
    pub(super) fn lose_meaning(&mut self) {
        self.meaning_is_unclear = true;
        self.pin(PinReason::Uncarried);
    }

    pub(super) fn learn_variable(&mut self, name: &[u8], value: &[u8]) -> bool {
        let name = variables::carried_name(name, self.dialect);
        match meaning(name) {
            Meaning::Nothing | Meaning::Gtid => return false,
            Meaning::Redirect => {}
            Meaning::LastInsertId => {
                let value = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                match value {
                    Some(value) => self.learn_insert_id_asked(value),
                    None => self.pin(PinReason::LastInsertId),
                }
            }
            Meaning::Arming => {
                self.needs_rearming = true;
                self.pin(PinReason::Trackers);
            }
            Meaning::PinUnless(reason, free) => {
                match free
                    .iter()
                    .any(|free| free.as_bytes().eq_ignore_ascii_case(value))
                {
                    // Uncarried has other causes, too.
                    true if reason == PinReason::Uncarried => {}
                    true => self.pins.remove(reason),
                    false => self.pin(reason),
                }
            }
            Meaning::Pin if OWN_COLLATIONS.contains(&name) => {
                self.sets_own_collations = true;
                self.lose_meaning();
            }
            Meaning::Pin => self.pin(PinReason::Uncarried),
            // A temporary value, of which the true one is reported with the next OK.
            Meaning::Carry if self.current.effects.contains(Effects::SET_STATEMENT) => {
                if self.pins.has(PinReason::Unsettled) {
                    self.lose_meaning(); // or what the failed statement before has set
                }
            }
            Meaning::Carry => self.carry(name, value),
        }
        true
    }

    fn carry(&mut self, name: &[u8], value: &[u8]) {
        if self.carried.variable(name) == Some(value) {
            if name.starts_with(b"wsrep_") {
                // On this connection it may have been more, for the gateway's sake: another allocation says
                // that it was set.
                self.carried = Rc::new(PortableState::clone(&self.carried));
            }
            return;
        }
        if !self.carried.has_room(name, value) {
            self.lose_meaning(); // whichever it was
            return;
        }
        let is_of_strings = matches!(name, CHARACTER_SET_CONNECTION | COLLATION_CONNECTION);
        if is_of_strings
            && (value.starts_with(b"ucs2") || value.starts_with(b"utf16") || value.starts_with(b"utf32"))
        {
            // Under it no text sets anything: what is between quotes is not what servers know.
            self.pin(PinReason::Uncarried);
        }
        if name == b"completion_type" && matches!(value, b"RELEASE" | b"2") {
            // The server ends the connection with the transaction, and that is not to be anybody else's.
            self.pin(PinReason::Uncarried);
        }
        Rc::make_mut(&mut self.carried).set(name, value);
        self.read_variables();
    }
}

impl Session {
    /// The server says that some state has changed, by a statement before that has failed perhaps.
    fn note_changed_user_variables(&mut self, after_failure: bool) {
        let is_named = self.current.effects.contains(Effects::USER_VARIABLES);
        // A read that assigns is not reported; what it calls is.
        let is_hidden = self.runs_others() || self.current.class == Class::Read;
        if is_named && is_hidden || after_failure {
            self.user_variables.get_or_insert_default().add(None);
            // Or a trigger or a function has made a temporary table: nobody tells which it was.
            self.pin(PinReason::StateChange);
        }
    }

    /// A trigger or a function may have set user variables that its text does not name.
    pub(super) fn runs_others(&self) -> bool {
        self.current.class >= Class::Write && self.current.class != Class::Session
            || self.current.effects.contains(Effects::UNKNOWN_FUNCTION)
    }
}

/// Statements that change state which no tracker names, and which are pinned for it.
const EXPLAINS: Effects = Effects::USER_VARIABLES
    .with(Effects::TEXT_PREPARE)
    .with(Effects::TEMPORARY_TABLE)
    .with(Effects::SET_ROLE)
    .with(Effects::SET_STATEMENT)
    .with(Effects::SETS_UNCARRIED)
    .with(Effects::NEXT_TRANSACTION);

fn is_variable(change: &Change<'_>, wanted: &[u8]) -> bool {
    matches!(change, Change::Variable { name, .. } if *name == wanted)
}

/// Clients that follow a redirection would go round the gateway.
fn is_for_the_gateway_only(change: &Change<'_>) -> bool {
    matches!(change, Change::Variable { name, .. } if meaning(name) == Meaning::Redirect)
}
