//! What a statement sets, and what of that nothing has told.
//!
//! Trackers name what was set, as a rule. MariaDB says nothing of `SET @@x = …`. From 11 on it reports
//! several variables under one name, and 10.11.5 and 11.4.5 are silent about those of storage engines. So
//! what a text sets is remembered until it was reported by its own name, and what is left is asked for.

use std::rc::Rc;

use mysql_wire::session_state::Change;
use serde::{Deserialize, Serialize};
use sql_class::text::unreported_variables;
use sql_class::{Class, Dialect, Effects};

use super::{Request, Session};
use crate::PinReason;
use crate::rebuild::ask_values;
use crate::variables::{
    self, AUTOCOMMIT, COLLATION_CONNECTION, Meaning, carried_name, is_told_by, is_word, meaning,
    that_tells_of_both,
};

/// Of the statement under way.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct UntrackedSets {
    /// Has the server report what it says nothing of.
    question: Option<Vec<u8>>,
    /// What was set and not reported yet.
    names: Vec<Box<[u8]>>,
    /// Nobody knows what else.
    is_unclear: bool,
}

/// More than that are not asked for.
const NAMES_MAX: usize = 16;

impl UntrackedSets {
    /// Nobody knows whether it was set, or even may be: what is refused to be set to what it is would be
    /// refused on other connections, too.
    fn ask_by_setting(&mut self, dialect: Dialect) {
        let is_carried = |name: &[u8]| {
            let name = carried_name(name, dialect);
            meaning(name) == Meaning::Carry && name != AUTOCOMMIT && is_word(name)
        };
        let names = self.names.iter().filter(|name| is_carried(name));
        let names: Vec<&str> = names
            .filter_map(|name| str::from_utf8(that_tells_of_both(name)).ok())
            .take(NAMES_MAX)
            .collect();
        if self.question.is_none() && !names.is_empty() {
            self.question = Some(ask_values(names.into_iter()));
        }
    }
}

impl Session {
    /// Remembers what the statement sets.
    pub(super) fn note_assigned(&mut self, statement: &Request<'_>) {
        let (class, effects) = (self.current.class, self.current.effects);
        let may_set = matches!(class, Class::Session | Class::Administration | Class::Unknown);
        if !self.dialect.is_mariadb() || !may_set && self.current.statements <= 1 {
            return;
        }
        let text = self.text_of(statement);
        let names = sql_class::set_targets_in_session(text, self.syntax);
        let asks = effects.contains(Effects::SETS_UNSEEN);
        let question = match asks {
            true => unreported_variables(text, self.syntax),
            false => None,
        };
        let question = question.map(|names| ask_values(names.iter().map(String::as_str)));
        if asks && question.is_none() {
            self.lose_meaning();
        }
        let unseen = UntrackedSets {
            question,
            is_unclear: names.is_none(),
            names: names.unwrap_or_default(),
        };
        let is_known = unseen.question.is_none() && unseen.names.is_empty() && !unseen.is_unclear;
        self.unseen = (!is_known).then(|| Box::new(unseen));
    }

    pub(super) fn sets_unclear(&self) -> bool {
        self.unseen.as_ref().is_some_and(|unseen| unseen.is_unclear)
    }

    /// The server has reported something.
    pub(super) fn note_reported(&mut self, change: &Change<'_>) {
        if let (Some(unseen), Change::Variable { name, .. }) = (&mut self.unseen, change) {
            unseen.names.retain(|set| !is_told_by(set, name));
        }
    }

    /// Something was set that was not reported, and will be asked for.
    pub(super) fn awaits_values(&self) -> bool {
        self.unseen
            .as_ref()
            .is_some_and(|unseen| !unseen.names.is_empty())
    }

    /// The statement has ended. One that has failed has set nothing: a server checks everything before. Of
    /// several some may have been run.
    pub(super) fn settle_assigned(&mut self, has_failed: bool) {
        let several = self.current.statements > 1;
        self.unseen = self.unseen.take().filter(|unseen| {
            let asks = unseen.question.is_some() || !unseen.names.is_empty();
            asks && (several || !has_failed)
        });
        if let Some(unseen) = &mut self.unseen
            && has_failed
        {
            unseen.ask_by_setting(self.dialect);
        }
    }

    /// The statement under way has set something that was not reported: see [`Session::ask_unseen`] and
    /// [`Session::take_unnamed`].
    #[must_use]
    pub fn has_unseen(&self) -> bool {
        self.unseen.is_some()
    }

    /// What to send, once the statement under way has ended, for what it has set and no answer reports: the
    /// OK goes to [`Session::observe_ok`], or else [`Session::remains_unseen`] is to be called.
    #[must_use]
    pub fn ask_unseen(&mut self) -> Option<Vec<u8>> {
        self.unseen.as_mut()?.question.take()
    }

    /// After that: what is to be [asked for](crate::ask_value) by its name, with [`Session::learn_value`] for
    /// each.
    #[must_use]
    pub fn take_unnamed(&mut self) -> Vec<Box<[u8]>> {
        let mut names = self.unseen.take().map_or_else(Vec::new, |unseen| unseen.names);
        if names.len() > NAMES_MAX || !names.iter().all(|name| is_word(name)) {
            self.lose_meaning();
            return Vec::new();
        }
        for name in &mut names {
            // By the charset alone one could not tell whether its collation is its own.
            *name = that_tells_of_both(name).into();
        }
        names
    }

    /// What a variable is set to, and a charset with its collation. None where the server does not say it in
    /// plain words.
    pub fn learn_value(&mut self, name: &[u8], value: Option<&[u8]>) {
        let Some(value) = value.filter(|value| value.is_ascii()) else {
            self.lose_meaning();
            return;
        };
        // As trackers write it, and the baseline.
        let is_switch = matches!(self.baseline.variable(name), Some(b"ON" | b"OFF"));
        let value: &[u8] = match value {
            b"1" if is_switch => b"ON",
            b"0" if is_switch => b"OFF",
            value => value,
        };
        if !self.learn_variable(name, value) {
            self.pin(PinReason::Uncarried);
        }
        if name == COLLATION_CONNECTION {
            self.pair_charset_and_collation(false);
        }
        for (charset, _) in variables::others_of_pairs().filter(|(_, collation)| *collation == name) {
            Rc::make_mut(&mut self.carried).unset(charset);
        }
    }

    /// The server does not tell.
    pub fn remains_unseen(&mut self) {
        self.unseen = None;
        self.lose_meaning();
    }
}
