//! What rules make of a statement.

use std::sync::Arc;
use std::time::Duration;

use config::{Fraction, PinRule, ReadConsistency};

use super::{Compiled, Limit};

/// Longest statement that a rewrite may make, in bytes: what fits into one packet.
const REWRITTEN_MAX: usize = 0xff_ffff - 1;

/// Where a rule sends a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    Primary,
    Replicas,
    Group(Arc<str>),
}

impl Route {
    /// The meaning of the option's text.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "primary" => Self::Primary,
            "replicas" => Self::Replicas,
            group => Self::Group(Arc::from(group)),
        }
    }
}

/// All that the rules which match a statement say. Where nothing is said, the gateway does what it does
/// without rules.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The rules that matched, in order, by their place in the configuration: for counting.
    pub rules: Vec<usize>,
    pub route: Option<Route>,
    pub pin: Option<PinRule>,
    pub refuse: Option<Arc<str>>,
    pub answer_ok: Option<Arc<str>>,
    /// The statement to send in the place of the client's. Its class, its digest and so on are to be found
    /// out anew, but the rules are not asked again.
    pub rewritten: Option<Vec<u8>>,
    /// Every one of them is to be asked for a [`super::Turn`].
    pub limits: Vec<Arc<Limit>>,
    /// The longest that the statement waits for its turns.
    pub limit_wait: Duration,
    pub timeout: Option<Duration>,
    pub delay: Option<Duration>,
    pub retries: Option<u32>,
    /// The name of a cluster.
    pub mirror: Option<Arc<str>>,
    /// The share of the copies whose answers are compared.
    pub mirror_compare: Option<Fraction>,
    pub log: bool,
    pub read_consistency: Option<ReadConsistency>,
}

impl Verdict {
    /// Whether no rule matched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether no server gets the statement.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        self.refuse.is_some() || self.answer_ok.is_some()
    }

    /// Whether a row that is read by its key may be answered from the gateway's memory: nothing is said that
    /// only a server or the gateway's own answer can keep. Memory follows the primary as a replica does, and
    /// is as fresh as its listener promises; how long the statement may take and how often it is tried is
    /// about servers.
    #[must_use]
    pub fn allows_memory(&self) -> bool {
        matches!(self.route, None | Some(Route::Replicas))
            && !self.is_answer()
            && self.pin != Some(PinRule::Always)
            && self.rewritten.is_none()
            && self.limits.is_empty()
            && self.delay.is_none()
            && self.mirror.is_none()
            && self.read_consistency.is_none()
            && !self.log
    }

    /// What happens to the statement, for explanations: options and their values. Where it goes is not among
    /// it.
    #[must_use]
    pub fn in_words(&self) -> Vec<(&'static str, String)> {
        let text =
            |option: &'static str, value: &Option<Arc<str>>| Some((option, value.as_deref()?.to_owned()));
        let time = |option: &'static str, value: Option<Duration>| Some((option, format!("{:?}", value?)));
        let rewritten = self.rewritten.as_deref().filter(|_| !self.is_answer());
        [
            text("refuse", &self.refuse),
            text("answer_ok", &self.answer_ok),
            rewritten.map(|text| ("rewrite", String::from_utf8_lossy(text).into_owned())),
            time("limit_wait", (!self.limits.is_empty()).then_some(self.limit_wait)),
            time("timeout", self.timeout),
            time("delay", self.delay),
            text("mirror", &self.mirror),
            self.mirror_compare
                .map(|share| ("mirror_compare", share.to_string())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Adds what a rule says that matched; `text` is the statement as the client sent it.
    pub(super) fn add(&mut self, compiled: &Compiled, text: &[u8]) {
        let rule = &compiled.rule;
        self.rules.push(compiled.place);
        later(&mut self.route, &compiled.route);
        later(&mut self.pin, &rule.pin);
        later(&mut self.timeout, &rule.timeout);
        later(&mut self.delay, &rule.delay);
        later(&mut self.retries, &rule.retries);
        if compiled.mirror.is_some() {
            self.mirror.clone_from(&compiled.mirror);
            self.mirror_compare = rule.mirror_compare;
        }
        later(&mut self.read_consistency, &rule.read_consistency);
        // Of two answers the later counts, of whichever kind it is.
        if compiled.refuse.is_some() || compiled.answer_ok.is_some() {
            self.refuse.clone_from(&compiled.refuse);
            self.answer_ok.clone_from(&compiled.answer_ok);
        }
        self.log |= rule.log;
        if let Some(limit) = &compiled.limit {
            self.limits.push(Arc::clone(limit));
            self.limit_wait = self.limit_wait.max(rule.limit_wait);
        }
        self.rewrite(compiled, text);
    }

    fn rewrite(&mut self, compiled: &Compiled, text: &[u8]) {
        let rule = &compiled.rule;
        let (Some(pattern), Some(replacement)) = (&rule.text, &rule.rewrite) else {
            return;
        };
        let text = self.rewritten.as_deref().unwrap_or(text);
        match pattern.replace(text, replacement, rule.rewrite_all, REWRITTEN_MAX) {
            Some(rewritten) => self.rewritten = Some(rewritten),
            // The rule matched, so there was something to replace, and the result is too long. What the
            // operator did not want to reach a server does not.
            None => self.refuse = Some(Arc::from("the rewritten statement is too long")),
        }
    }
}

fn later<T: Clone>(said: &mut Option<T>, new: &Option<T>) {
    if new.is_some() {
        said.clone_from(new);
    }
}
