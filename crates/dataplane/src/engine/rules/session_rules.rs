//! The rules that concern a session, and their verdict about its statement under way.

use std::collections::BTreeMap;
use std::rc::Rc;

use config::{PinRule, ReadConsistency};
use routing::rules::{Selection, Turn, Verdict, Who};
use session::{PinReason, Session, Statements};
use sql_class::Digest;
use tokio::time::Instant;

use crate::engine::rules::rule_set::Rules;
use crate::frontend::worker::Worker;

pub(crate) struct SessionRules {
    /// The generation of the rules that the selection is from.
    pub(super) generation: u32,
    pub(super) rules: Rc<Rules>,
    pub(super) selection: Rc<Selection>,
    pub(super) decision: Option<Box<RuleDecision>>,
    /// The texts that the client has sent of prepared statements that were rewritten, by their ids.
    pub(super) originals: BTreeMap<u32, Rc<[u8]>>,
}

/// The decision of rules about the statement under way.
pub(super) struct RuleDecision {
    pub(super) verdict: Rc<Verdict>,
    /// The turns, given back when this is dropped.
    pub(super) _turns: Vec<Turn>,
    /// How often the statement was sent to another server.
    pub(super) resent: u32,
    /// The statement is about to be sent again, and this decision stays.
    pub(super) goes_on: bool,
    /// The digest for the log line of the statement.
    pub(super) logged: Option<Digest>,
    pub(super) begun: Instant,
}

impl SessionRules {
    /// The rules of a session whose account has just been found out. The session's first statement finds
    /// which rules concern it.
    pub(crate) fn new(worker: &Worker) -> Self {
        let rules = Rc::clone(&worker.rules.current());
        Self {
            generation: worker.rules.generation().wrapping_sub(1),
            selection: Rc::clone(rules.none()),
            rules,
            decision: None,
            originals: BTreeMap::new(),
        }
    }

    /// Takes the rules that concern the session from those of its worker.
    #[cold]
    pub(super) fn select(&mut self, worker: &Worker, who: &Who<'_>) {
        self.rules = Rc::clone(&worker.rules.current());
        self.selection = self.rules.select(who);
        self.generation = worker.rules.generation();
    }

    /// Keeps the text that the client has sent of a statement that was rewritten. Texts of statements that
    /// were closed since go when there are too many of them.
    pub(super) fn remember_original(&mut self, statements: &Statements, id: u32, text: Rc<[u8]>) {
        const CLOSED_MAX: usize = 64;
        if self.originals.len() > statements.len() + CLOSED_MAX {
            self.originals.retain(|id, _| statements.get(*id).is_some());
        }
        self.originals.insert(id, text);
    }

    /// The texts that the client has sent of prepared statements that were rewritten, by their ids.
    pub(crate) fn originals(&self) -> &BTreeMap<u32, Rc<[u8]>> {
        &self.originals
    }

    /// See [`originals`](Self::originals).
    pub(crate) fn set_originals(&mut self, originals: BTreeMap<u32, Rc<[u8]>>) {
        self.originals = originals;
    }

    /// How fresh the read under way must be, where a rule says so.
    pub(crate) fn read_consistency(&self) -> Option<ReadConsistency> {
        self.verdict()?.read_consistency
    }

    pub(super) fn verdict(&self) -> Option<&Verdict> {
        self.decision.as_ref().map(|decision| &*decision.verdict)
    }

    /// Whether the command is one that is sent again, about which everything is said.
    pub(super) fn goes_on(&mut self) -> bool {
        match &mut self.decision {
            Some(decision) if decision.goes_on => {
                decision.goes_on = false;
                true
            }
            decision => {
                *decision = None;
                false
            }
        }
    }

    /// Forgets, after a statement that must not bind the session, that the server has reported some change of
    /// its state, if that was the first.
    pub(crate) fn overlook_change(&self, state: &mut Session) {
        let pin = self.verdict().and_then(|verdict| verdict.pin);
        if pin == Some(PinRule::Never) && !state.was_pinned() {
            state.cleared(PinReason::StateChange);
        }
    }

    /// Whether a statement whose server was lost may be sent to another one; without a rule, once.
    pub(crate) fn may_send_again(&mut self, was_sent_again: bool) -> bool {
        let decision = self.decision.as_mut();
        match decision.and_then(|decision| Some((decision.verdict.retries?, decision))) {
            None => !was_sent_again,
            Some((retries, decision)) => {
                decision.resent += 1;
                decision.resent <= retries
            }
        }
    }

    /// Notes that the statement under way is about to be taken up again.
    pub(crate) fn sent_again(&mut self) {
        if let Some(decision) = &mut self.decision {
            decision.goes_on = true;
        }
    }

    /// Ends the explanation of a statement.
    pub(crate) fn explained(&mut self) {
        self.decision = None;
    }
}

impl RuleDecision {
    pub(super) fn new(verdict: Rc<Verdict>, turns: Vec<Turn>, logged: Option<Digest>) -> Self {
        Self {
            verdict,
            _turns: turns,
            resent: 0,
            goes_on: false,
            logged,
            begun: Instant::now(),
        }
    }
}
