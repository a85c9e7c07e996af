//! What a session has of the rules, and what they say of its statement under way.

use std::collections::BTreeMap;
use std::rc::Rc;

use config::ReadConsistency;
use routing::rules::{Selection, Turn, Verdict};
use sql_class::Digest;
use tokio::time::Instant;

use crate::engine::rules::rule_set::Rules;
use crate::frontend::worker::Worker;

/// What a session has of the rules.
pub(crate) struct SessionRules {
    /// Those that the selection is from.
    pub(super) generation: u32,
    pub(super) rules: Rc<Rules>,
    pub(super) selection: Rc<Selection>,
    pub(super) decision: Option<Box<RuleDecision>>,
    /// What the client has sent of prepared statements that were rewritten, by their ids.
    pub(super) originals: BTreeMap<u32, Rc<[u8]>>,
}

/// What rules say about the statement under way.
pub(super) struct RuleDecision {
    pub(super) verdict: Rc<Verdict>,
    /// Given back when this is dropped.
    pub(super) _turns: Vec<Turn>,
    /// How often it was sent to another server.
    pub(super) resent: u32,
    /// It is about to be, and this stays what is said about it.
    pub(super) goes_on: bool,
    /// What its log line says of it.
    pub(super) logged: Option<Digest>,
    pub(super) begun: Instant,
}

impl SessionRules {
    /// For a session whose account has just been found out. Which rules concern it is seen at its first
    /// statement.
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

    /// What the client has sent of prepared statements that were rewritten, by their ids.
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
