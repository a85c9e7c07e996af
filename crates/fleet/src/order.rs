//! A change of the common text, from what somebody has asked for to what became of it.

use std::time::Duration;

use serde::Serialize;
use upstream::etcd::{Guard, Op, Outcome, Transaction, takes_no_changes};

use crate::keys::{About, HISTORY, Keys, Proposal, View, written};

/// For so long an order waits for the others, for its turn, and for the store.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// For so much longer it is tried to find out whether it was committed.
const DOUBT: Duration = Duration::from_secs(60);

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Fate {
    /// It is the text of all now.
    Committed {
        /// Its number.
        revision: u64,
    },
    /// All do it, or none does any more, where that was asked for.
    Done,
    /// It is the text that there is already.
    Unchanged {
        /// Its number.
        revision: u64,
    },
    /// Another change has come before it. Nothing has changed by it.
    Conflict {
        /// The revision that there is now.
        revision: u64,
        /// In words.
        why: String,
    },
    /// Gateways cannot run it, or have not said that they can. Nothing has changed.
    Refused {
        /// Who, and why.
        by: Vec<Refusal>,
    },
    /// It came to nothing. Nothing has changed.
    Failed {
        /// In words.
        why: String,
    },
    /// The store has not said whether it was committed.
    Unknown {
        /// The revision that it would be.
        revision: u64,
        /// In words.
        why: String,
    },
}

/// A gateway that cannot run a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Its name.
    pub gateway: String,
    /// In words.
    pub why: String,
}

/// A change that somebody has asked for.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) id: String,
    text: String,
    /// The revision that it is to follow.
    base: Option<u64>,
    about: About,
    ends: Duration,
    phase: Phase,
    /// Why the store has not said whether it is proposed.
    doubt: Option<String>,
    pub(crate) fate: Option<Fate>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// It is proposed, or will be.
    Proposing,
    /// It may be committed at any moment.
    Committing { proposed: i64 },
    /// Nobody has said whether it was. First no commit may come any more.
    InDoubt { proposed: i64, why: String },
    /// Then the history says it.
    Asking { why: String },
}

impl Order {
    /// `about`: who and why. `expect`: the revision that it is to follow.
    pub(crate) fn new(id: String, text: String, expect: Option<u64>, about: About, now: Duration) -> Self {
        let about = About {
            id: id.clone(),
            ..about
        };
        Self {
            id,
            text,
            base: expect,
            about,
            ends: now + PATIENCE,
            phase: Phase::Proposing,
            doubt: None,
            fate: None,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// It is taken now.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.ends = now + PATIENCE;
    }

    fn end(&mut self, fate: Fate) -> Option<Transaction> {
        self.fate = Some(fate);
        None
    }

    /// Time has passed and the store cannot be asked, for which `why` says what it does.
    pub(crate) fn offline(&mut self, now: Duration, why: &str) {
        let ends = match &self.phase {
            Phase::Proposing => self.ends,
            Phase::Committing { .. } | Phase::InDoubt { .. } | Phase::Asking { .. } => self.ends + DOUBT,
        };
        if now >= ends {
            self.give_up(&format!("the store {why}"));
        }
    }

    /// Time has passed: what the store does not say by then is not known.
    pub(crate) fn pass(&mut self, now: Duration) {
        if let Phase::InDoubt { why, .. } | Phase::Asking { why } = &self.phase
            && now >= self.ends + DOUBT
        {
            let why = why.clone();
            self.give_up(&why);
        }
    }

    pub(crate) fn give_up(&mut self, why: &str) {
        if self.fate.is_some() {
            return;
        }
        let why = why.to_owned();
        self.fate = Some(match self.phase {
            // No commit was ever sent.
            Phase::Proposing => Fate::Failed { why },
            Phase::Committing { .. } | Phase::InDoubt { .. } | Phase::Asking { .. } => Fate::Unknown {
                revision: self.base.unwrap_or_default() + 1,
                why,
            },
        });
    }

    /// The revision of which it has to be known whether it is this order's.
    pub(crate) fn asks(&self) -> Option<u64> {
        let is_asking = matches!(self.phase, Phase::Asking { .. }) && self.fate.is_none();
        is_asking.then(|| self.base.unwrap_or_default() + 1)
    }

    pub(crate) fn told_about(&mut self, about: Option<&About>) {
        let Phase::Asking { why } = &self.phase else {
            return;
        };
        let revision = self.base.unwrap_or_default() + 1;
        let fate = match about {
            Some(about) if about.id == self.id => Fate::Committed { revision },
            _ => Fate::Failed { why: why.clone() },
        };
        self.fate = Some(fate);
    }

    pub(crate) fn written(&mut self, outcome: &Outcome) {
        match (&self.phase, outcome) {
            // A proposal that is there all the same is withdrawn: it is nobody's.
            (Phase::Proposing, Outcome::Unknown(why)) if takes_no_changes(why) => {
                self.fate = Some(Fate::Failed { why: said(why) });
            }
            (Phase::Proposing | Phase::Committing { .. }, Outcome::Refused(why)) => {
                self.fate = Some(Fate::Failed { why: said(why) });
            }
            // What is seen next says whether it is proposed.
            (Phase::Proposing, Outcome::Unknown(why)) => self.doubt = Some(why.clone()),
            (Phase::Proposing | Phase::Asking { .. }, _) => {}
            (Phase::Committing { .. }, Outcome::Made(_)) => {
                let revision = self.base.unwrap_or_default() + 1;
                self.fate = Some(Fate::Committed { revision });
            }
            // A gateway has come or gone, or the proposal is no more: what is seen next says which.
            (Phase::Committing { .. }, Outcome::NotMade) => self.phase = Phase::Proposing,
            (Phase::Committing { proposed }, Outcome::Unknown(why)) => {
                self.phase = Phase::InDoubt {
                    proposed: *proposed,
                    why: said(why),
                };
            }
            (Phase::InDoubt { why, .. }, Outcome::Made(_) | Outcome::NotMade) => {
                self.phase = Phase::Asking { why: why.clone() };
            }
            (Phase::InDoubt { .. }, Outcome::Unknown(_) | Outcome::Refused(_)) => {}
        }
    }

    /// What is to be written where it is in doubt whether it was committed: a commit that is still on its way
    /// finds no proposal then.
    pub(crate) fn settle(&self, keys: &Keys) -> Option<Transaction> {
        let Phase::InDoubt { proposed, .. } = &self.phase else {
            return None;
        };
        self.fate.is_none().then(|| Transaction {
            guards: vec![Guard::Modified(keys.proposal(), *proposed)],
            ops: vec![Op::Delete(keys.proposal())],
        })
    }

    /// What is to be written next. `lease`: of this gateway, where it is one of the fleet.
    pub(crate) fn next(
        &mut self,
        view: &View,
        keys: &Keys,
        name: &str,
        lease: Option<i64>,
        now: Duration,
    ) -> Option<Transaction> {
        if self.fate.is_some() {
            return None;
        }
        if let Some(settle) = self.settle(keys) {
            return Some(settle);
        }
        let (revision, entry) = view.config(keys);
        let base = *self.base.get_or_insert(revision);
        if base != revision {
            let why = format!("revision {revision} has come before it");
            return self.end(Fate::Conflict { revision, why });
        }
        if entry.is_some_and(|entry| entry.value == self.text.as_bytes()) {
            return self.end(Fate::Unchanged { revision });
        }
        let Some(lease) = lease else {
            if now >= self.ends {
                self.give_up("this gateway is none of the fleet: `forebay ctl members` says why");
            }
            return None;
        };
        match view.proposal(keys) {
            None if now >= self.ends => {
                let why = self.doubt.take().map(|why| format!(": {why}"));
                self.end(Fate::Failed {
                    why: format!("it could not be proposed in time{}", why.unwrap_or_default()),
                })
            }
            None => Some(self.propose(keys, name, base, lease)),
            Some((entry, proposal)) if proposal.id == self.id => {
                self.weigh(view, keys, name, (entry.modified, lease), now)
            }
            Some((_, other)) if now >= self.ends => {
                let why = format!("a change that {} has proposed is under way", other.by);
                self.end(Fate::Conflict { revision, why })
            }
            Some(_) => None,
        }
    }

    fn propose(&self, keys: &Keys, name: &str, base: u64, lease: i64) -> Transaction {
        let proposal = Proposal {
            id: self.id.clone(),
            by: name.to_owned(),
            base,
            text: self.text.clone(),
        };
        Transaction {
            guards: vec![
                Guard::Version(keys.proposal(), 0),
                Guard::Version(keys.config(), count(base)),
                Guard::Lease(keys.gateway(name), lease),
            ],
            ops: vec![Op::Put(keys.proposal(), written(&proposal), lease)],
        }
    }

    /// What the others say of it.
    fn weigh(
        &mut self,
        view: &View,
        keys: &Keys,
        name: &str,
        (proposed, lease): (i64, i64),
        now: Duration,
    ) -> Option<Transaction> {
        let mut by = Vec::new();
        let mut silent = Vec::new();
        for (gateway, entry, _) in view.gateways(keys) {
            let refusal = |why: String| Refusal {
                gateway: gateway.to_owned(),
                why,
            };
            match view.verdict(keys, gateway, entry.lease, &self.id) {
                Some(verdict) => by.extend(verdict.problem.map(refusal)),
                None => silent.push(refusal("it lives, and has not answered in time".to_owned())),
            }
        }
        if now >= self.ends {
            by.append(&mut silent);
        }
        if !silent.is_empty() {
            return None;
        }
        if !by.is_empty() {
            return self.end(Fate::Refused { by });
        }
        let mut guards = view.those_that_live(keys);
        guards.extend([
            Guard::Modified(keys.proposal(), proposed),
            Guard::Version(keys.config(), count(self.base.unwrap_or_default())),
            Guard::Lease(keys.gateway(name), lease),
        ]);
        self.phase = Phase::Committing { proposed };
        Some(Transaction {
            guards,
            ops: self.commit(keys, name),
        })
    }

    fn commit(&self, keys: &Keys, name: &str) -> Vec<Op> {
        let revision = self.base.unwrap_or_default() + 1;
        let about = About {
            revision,
            gateway: name.to_owned(),
            ..self.about.clone()
        };
        let mut ops = vec![
            Op::Put(keys.config(), self.text.clone().into_bytes(), 0),
            Op::Put(keys.text(revision), self.text.clone().into_bytes(), 0),
            Op::Put(keys.about(revision), written(&about), 0),
            Op::Delete(keys.proposal()),
        ];
        if let Some(old) = revision.checked_sub(HISTORY).filter(|old| *old > 0) {
            ops.extend([Op::Delete(keys.text(old)), Op::Delete(keys.about(old))]);
        }
        ops
    }
}

/// What went wrong with a change, for whoever has asked for it.
pub(crate) fn said(why: &str) -> String {
    match takes_no_changes(why) {
        true => format!("the store takes no changes: {why}"),
        false => why.to_owned(),
    }
}

fn count(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Verdict;
    use crate::model::Model;

    #[test]
    fn a_store_that_lets_nobody_find_out_is_not_asked_for_ever() {
        let (keys, mut model) = (Keys::of("main"), Model::default());
        let lease = model.grant(1_000, 0);
        let verdict = Verdict {
            proposal: "o".to_owned(),
            problem: None,
        };
        let ops = vec![
            Op::Put(keys.gateway("g1"), b"{}".to_vec(), lease),
            Op::Put(keys.check("g1"), written(&verdict), lease),
        ];
        let guards = Vec::new();
        assert!(model.change(&Transaction { guards, ops }));
        let text = "text".to_owned();
        let mut order = Order::new("o".to_owned(), text, None, About::default(), Duration::ZERO);
        let next = |model: &Model, order: &mut Order| {
            let seen: View = model.read(&keys.live()).into();
            order.next(&seen, &keys, "g1", Some(lease), Duration::ZERO)
        };
        let proposal = next(&model, &mut order).unwrap();
        assert!(model.change(&proposal));
        assert!(next(&model, &mut order).is_some(), "the commit");
        order.written(&Outcome::Unknown("it was lost".to_owned()));
        assert!(order.settle(&keys).is_some());
        order.written(&Outcome::Refused("permission denied".to_owned()));
        order.pass(PATIENCE + DOUBT - Duration::from_millis(1));
        assert_eq!(order.fate, None);
        order.pass(PATIENCE + DOUBT);
        let why = "it was lost".to_owned();
        assert_eq!(order.fate, Some(Fate::Unknown { revision: 1, why }));
    }

    #[test]
    fn what_cannot_be_proposed_says_why() {
        let mut order = Order::new(
            "o".to_owned(),
            "text".to_owned(),
            None,
            About::default(),
            Duration::ZERO,
        );
        let next =
            |order: &mut Order, now| order.next(&View::default(), &Keys::of("main"), "g1", Some(1), now);
        assert!(next(&mut order, Duration::ZERO).is_some());
        order.written(&Outcome::Unknown("etcd1:2379: status 413".to_owned()));
        assert_eq!(next(&mut order, PATIENCE), None);
        let why = "it could not be proposed in time: etcd1:2379: status 413".to_owned();
        assert_eq!(order.fate, Some(Fate::Failed { why }));
    }
}
