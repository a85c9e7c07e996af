//! `KILL` of a session that another gateway has: that one is asked by way of the store, and answers there.
//!
//! The question ends with the lease of the gateway that asks, and goes once it has its answer. What was asked
//! once is not asked again: the statement that is under way by then may be another one. For the same reason
//! the other gateway takes a question before it does anything, and who asks and waits no longer takes it
//! back: the store lets only one of the two.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use upstream::etcd::{Entry, Guard, Op, Outcome, Transaction};

use crate::keys::{Keys, View, deletion, written};
use crate::order::said;

/// For so long the other gateway has time to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Own questions that are deleted at the same time.
const DELETED_MAX: usize = 64;

/// Where in a connection id the number of its gateway is.
const NUMBER: u32 = 24;

/// What is to be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The session, by the connection id that its client knows.
    pub id: u32,
    /// Only the statement that it has under way.
    pub query_only: bool,
    /// Whose session says it; none: an operator.
    pub by: Option<Killer>,
}

/// Whose session says `KILL`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Killer {
    /// The account.
    pub user: Vec<u8>,
    /// The cluster that it is of: the account's rights are rights there.
    pub cluster: String,
    /// Its server says that it may end sessions of others.
    pub may_others: bool,
}

/// Why a session, or its statement, was not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotKilled {
    /// There is none; why that is so, where there is more to say.
    Unknown(String),
    /// It is another user's.
    NotOwner,
    /// In words.
    Failed(String),
}

/// As it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KillQuestion {
    /// The gateway that is asked, and its lease: another process of it is not asked again.
    to: String,
    lease: i64,
    kill: Kill,
    /// That gateway does it now.
    #[serde(default)]
    is_taken: bool,
    #[serde(default)]
    answer: Option<Result<(), NotKilled>>,
}

/// What this gateway asks others, and what others ask it.
#[derive(Debug, Default)]
pub(crate) struct Kills {
    own: Vec<Own>,
    /// What was taken, by its keys; what there is to answer, once that is known.
    taken: BTreeMap<String, Option<Result<(), NotKilled>>>,
    writing: Option<Writing>,
    /// Own questions that are gone, and may be in the view still.
    deleted: BTreeSet<String>,
}

#[derive(Debug)]
struct Own {
    id: String,
    kill: Kill,
    ends: Duration,
    /// The gateway that was asked.
    asked: Option<String>,
    /// Why the store has not said whether it was.
    doubt: Option<String>,
    answer: Option<Result<(), NotKilled>>,
}

/// A write of which it counts what came of it.
#[derive(Debug)]
enum Writing {
    /// The question of this id.
    Question(String),
    /// That is taken back.
    Withdrawal(String, String),
    /// These have their end.
    Deletion(Vec<String>),
}

/// What is to be done.
pub(crate) enum KillStep {
    /// Write it, and tell with [`Kills::written`].
    Write(Transaction),
    /// Do it, and tell with [`Kills::answered`].
    Kill { key: String, kill: Kill },
}

impl Kills {
    /// `ends`: so long somebody waits for it.
    pub(crate) fn ask(&mut self, id: String, kill: Kill, ends: Duration) {
        self.own.push(Own {
            id,
            kill,
            ends,
            asked: None,
            doubt: None,
            answer: None,
        });
    }

    /// Those for whom nobody waits any more are not asked, or taken back.
    pub(crate) fn keep(&mut self, is_waited_for: impl Fn(&str) -> bool) {
        self.own
            .retain(|own| own.asked.is_some() || is_waited_for(&own.id));
        for own in self.own.iter_mut().filter(|own| !is_waited_for(&own.id)) {
            own.ends = Duration::ZERO;
        }
    }

    /// One of those that have their answer.
    pub(crate) fn finished(&mut self) -> Option<(String, Result<(), NotKilled>)> {
        let place = self.own.iter().position(|own| own.answer.is_some())?;
        let own = self.own.swap_remove(place);
        own.answer.map(|answer| (own.id, answer))
    }

    /// Nobody can be asked; `why`: what the store does, in words. What was asked may have its answer still.
    pub(crate) fn offline(&mut self, now: Duration, why: &str) {
        for own in self.own.iter_mut().filter(|own| own.answer.is_none()) {
            match own.asked.take() {
                Some(to) if now >= own.ends => own.is_unknown(&to, &format!("the store {why}")),
                Some(to) => own.asked = Some(to),
                None => own.fails(format!("the store, by which the other gateway is asked, {why}")),
            }
        }
    }

    /// Whether what was written is to be looked at.
    pub(crate) fn written(&mut self, outcome: &Outcome) -> bool {
        let is_made = matches!(outcome, Outcome::Made(_));
        match self.writing.take() {
            Some(Writing::Question(id)) => {
                if let Some(own) = self.own.iter_mut().find(|own| own.id == id) {
                    own.written(outcome);
                }
                true
            }
            Some(Writing::Withdrawal(id, key)) => {
                let mut own = self.own.iter_mut().filter(|_| is_made);
                if let Some(own) = own.find(|own| own.id == id) {
                    let to = own.asked.take().unwrap_or_default();
                    own.fails(format!(
                        "the gateway {to} has not answered within {PATIENCE:?}, and does not do it any more"
                    ));
                }
                self.deleted.extend(is_made.then_some(key));
                !is_made
            }
            Some(Writing::Deletion(keys)) => {
                self.deleted.extend(keys.into_iter().filter(|_| is_made));
                !is_made
            }
            None => true,
        }
    }

    /// What came of a question of another gateway.
    pub(crate) fn answered(&mut self, key: &str, answer: Result<(), NotKilled>) {
        if let Some(taken) = self.taken.get_mut(key) {
            *taken = Some(answer);
        }
    }

    /// What is to be done next by the gateway of this name, which lives by this lease.
    pub(crate) fn next(
        &mut self,
        view: &View,
        keys: &Keys,
        me: (&str, i64),
        now: Duration,
    ) -> Option<KillStep> {
        self.taken.retain(|key, _| view.get(key).is_some());
        if let Some(step) = self.serve(view, keys, me) {
            return Some(step);
        }
        for own in self.own.iter_mut().filter(|own| own.answer.is_none()) {
            if let Some((writing, write)) = own.next(view, keys, me, now) {
                self.writing = Some(writing);
                return Some(KillStep::Write(write));
            }
        }
        self.clean(view, keys, me.1).map(KillStep::Write)
    }

    /// What this gateway has asked by this lease and nobody waits for any more is taken back. A store that is
    /// full takes that, too.
    pub(crate) fn clean(&mut self, view: &View, keys: &Keys, lease: i64) -> Option<Transaction> {
        self.deleted.retain(|key| view.get(key).is_some());
        let of_own = |entry: &&Entry| {
            let is_under_way = |own: &Own| own.answer.is_none() && keys.kill(&own.id) == entry.key;
            entry.lease == lease && !self.own.iter().any(is_under_way) && !self.deleted.contains(&entry.key)
        };
        let over = view.kills(keys).filter(of_own).take(DELETED_MAX);
        let over: Vec<String> = over.map(|entry| entry.key.clone()).collect();
        if over.is_empty() {
            return None;
        }
        let ops = over.iter().cloned().map(Op::Delete).collect();
        self.writing = Some(Writing::Deletion(over));
        Some(Transaction {
            guards: Vec::new(),
            ops,
        })
    }

    /// What others ask.
    fn serve(&mut self, view: &View, keys: &Keys, (name, lease): (&str, i64)) -> Option<KillStep> {
        let is_for_this =
            |asked: &KillQuestion| asked.to == name && asked.lease == lease && asked.answer.is_none();
        for entry in view.kills(keys) {
            let Some(mut question) = question(entry).filter(is_for_this) else {
                continue;
            };
            match self.taken.get(&entry.key) {
                None if question.is_taken => {
                    self.taken.insert(entry.key.clone(), None);
                    return Some(KillStep::Kill {
                        key: entry.key.clone(),
                        kill: question.kill,
                    });
                }
                None => question.is_taken = true,
                Some(None) => continue,
                Some(answer @ Some(_)) => question.answer.clone_from(answer),
            }
            return Some(KillStep::Write(Transaction {
                guards: vec![Guard::Modified(entry.key.clone(), entry.modified)],
                ops: vec![Op::Put(entry.key.clone(), written(&question), entry.lease)],
            }));
        }
        None
    }
}

impl Own {
    fn fails(&mut self, why: String) {
        self.answer = Some(Err(NotKilled::Failed(why)));
    }

    fn is_unknown(&mut self, to: &str, why: &str) {
        self.fails(format!(
            "it is not known whether the gateway {to} has done it: {why}"
        ));
    }

    /// The question.
    fn written(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Made(_) => {}
            // The lease is another one.
            Outcome::NotMade => self.asked = None,
            Outcome::Refused(why) => {
                self.asked = None;
                self.fails(said(why));
            }
            Outcome::Unknown(why) => self.doubt = Some(said(why)),
        }
    }

    fn next(
        &mut self,
        view: &View,
        keys: &Keys,
        me: (&str, i64),
        now: Duration,
    ) -> Option<(Writing, Transaction)> {
        let Some(to) = self.asked.clone() else {
            return self.question(view, keys, me, now);
        };
        let key = keys.kill(&self.id);
        let Some(entry) = view.get(&key) else {
            let why = self.doubt.take();
            self.is_unknown(&to, &why.unwrap_or_else(|| "the question is gone".to_owned()));
            return None;
        };
        let question = question(entry)?;
        self.answer = question.answer;
        if self.answer.is_some() || now < self.ends {
            return None;
        }
        if question.is_taken {
            self.is_unknown(&to, &format!("it has not answered within {PATIENCE:?}"));
            return None;
        }
        Some((Writing::Withdrawal(self.id.clone(), key), deletion(entry)))
    }

    fn question(
        &mut self,
        view: &View,
        keys: &Keys,
        (name, lease): (&str, i64),
        now: Duration,
    ) -> Option<(Writing, Transaction)> {
        let holder = view.holder(keys, self.kill.id >> NUMBER & crate::number::LAST);
        let Some(holder) = holder.filter(|holder| *holder != name) else {
            self.answer = Some(Err(NotKilled::Unknown(String::new())));
            return None;
        };
        let Some(gateway) = view.get(&keys.gateway(holder)) else {
            let why =
                format!("it was on the gateway {holder}, which does not live, or does not reach the store");
            self.answer = Some(Err(NotKilled::Unknown(why)));
            return None;
        };
        if now >= self.ends {
            self.fails(format!("the gateway {holder} could not be asked in time"));
            return None;
        }
        self.asked = Some(holder.to_owned());
        let question = KillQuestion {
            to: holder.to_owned(),
            lease: gateway.lease,
            kill: self.kill.clone(),
            is_taken: false,
            answer: None,
        };
        let key = keys.kill(&self.id);
        let ask = Transaction {
            guards: vec![
                Guard::Version(key.clone(), 0),
                Guard::Lease(keys.gateway(name), lease),
            ],
            ops: vec![Op::Put(key, written(&question), lease)],
        };
        Some((Writing::Question(self.id.clone()), ask))
    }
}

fn question(entry: &Entry) -> Option<KillQuestion> {
    serde_json::from_slice(&entry.value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    const ASKER: (&str, i64) = ("g1", 1);
    const ASKED: (&str, i64) = ("g2", 2);

    /// Two gateways and the store; the second one has the number 5.
    struct Pair {
        keys: Keys,
        model: Model,
        asker: Kills,
        asked: Kills,
    }

    impl Pair {
        fn new() -> Self {
            let (keys, mut model) = (Keys::of("main"), Model::default());
            let mut ops = vec![Op::Put(keys.number(5), b"g2".to_vec(), 0)];
            for (name, lease) in [ASKER, ASKED] {
                assert_eq!(model.grant(1_000, 0), lease);
                ops.push(Op::Put(keys.gateway(name), b"{}".to_vec(), lease));
            }
            let guards = Vec::new();
            assert!(model.change(&Transaction { guards, ops }));
            let (asker, asked) = (Kills::default(), Kills::default());
            Self {
                keys,
                model,
                asker,
                asked,
            }
        }

        fn ask(&mut self, id: &str) {
            let kill = Kill {
                id: 1 << 30 | 5 << NUMBER | 7,
                query_only: true,
                by: None,
            };
            self.asker.ask(id.to_owned(), kill, PATIENCE);
        }

        fn view(&self) -> View {
            self.model.read(&self.keys.live()).into()
        }

        fn of_asker(&mut self, view: &View, now: Duration) -> Option<KillStep> {
            self.asker.next(view, &self.keys, ASKER, now)
        }

        fn of_asked(&mut self, view: &View) -> Option<KillStep> {
            self.asked.next(view, &self.keys, ASKED, Duration::ZERO)
        }

        fn write(&mut self, step: Option<KillStep>) -> Outcome {
            let Some(KillStep::Write(write)) = step else {
                panic!("nothing is written")
            };
            match self.model.change(&write) {
                true => Outcome::Made(self.model.revision()),
                false => Outcome::NotMade,
            }
        }

        /// The asker does what it has to do now.
        fn asker_writes(&mut self, now: Duration) -> bool {
            let step = self.of_asker(&self.view(), now);
            let outcome = self.write(step);
            self.asker.written(&outcome)
        }

        fn why(&mut self) -> String {
            match self.asker.finished() {
                Some((_, Err(NotKilled::Failed(why)))) => why,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn of_a_question_that_is_taken_and_taken_back_at_once_one_counts() {
        for is_taken_first in [true, false] {
            let mut pair = Pair::new();
            pair.ask("k");
            pair.asker_writes(Duration::ZERO);
            // Both have seen it as it is now.
            let seen = pair.view();
            let takes = pair.of_asked(&seen);
            let withdraws = pair.of_asker(&seen, PATIENCE);
            if is_taken_first {
                assert!(matches!(pair.write(takes), Outcome::Made(_)));
                let outcome = pair.write(withdraws);
                assert_eq!(outcome, Outcome::NotMade);
                assert!(pair.asker.written(&outcome), "it has to look");
                let now = pair.view();
                pair.of_asker(&now, PATIENCE);
                assert!(pair.why().contains("not known"));
                assert!(matches!(pair.of_asked(&now), Some(KillStep::Kill { .. })));
            } else {
                let outcome = pair.write(withdraws);
                pair.asker.written(&outcome);
                assert_eq!(pair.write(takes), Outcome::NotMade);
                assert!(pair.why().contains("does not do it any more"));
                assert!(pair.of_asked(&pair.view()).is_none());
            }
        }
    }

    #[test]
    fn a_store_that_takes_no_changes_fails_what_is_not_asked_and_leaves_what_is() {
        let mut pair = Pair::new();
        pair.ask("asked");
        pair.asker_writes(Duration::ZERO);
        pair.ask("new");
        pair.asker.offline(Duration::ZERO, "takes no changes: it is full");
        let (id, failed) = pair.asker.finished().unwrap();
        assert_eq!(id, "new");
        assert!(
            format!("{failed:?}").contains("takes no changes: it is full"),
            "{failed:?}"
        );
        assert!(pair.asker.finished().is_none(), "its question stands");
        // Its answer counts still.
        let takes = pair.of_asked(&pair.view());
        pair.write(takes);
        let Some(KillStep::Kill { key, .. }) = pair.of_asked(&pair.view()) else {
            panic!("it is not done")
        };
        pair.asked.answered(&key, Ok(()));
        let answers = pair.of_asked(&pair.view());
        pair.write(answers);
        assert!(!pair.asker_writes(PATIENCE), "its question goes");
        assert_eq!(pair.asker.finished(), Some(("asked".to_owned(), Ok(()))));
        // Without an answer it is not known.
        pair.ask("late");
        pair.asker_writes(Duration::ZERO);
        pair.asker.offline(PATIENCE, "does not answer");
        assert!(
            pair.why()
                .contains("it is not known whether the gateway g2 has done it")
        );
    }

    #[test]
    fn what_is_over_is_taken_back_while_others_are_to_be_asked() {
        let mut pair = Pair::new();
        pair.ask("over");
        pair.asker_writes(Duration::ZERO);
        pair.asker.own.clear();
        pair.ask("new");
        let view = pair.view();
        let clean = pair.asker.clean(&view, &pair.keys, ASKER.1).map(KillStep::Write);
        let outcome = pair.write(clean);
        assert!(!pair.asker.written(&outcome), "it knows what is there now");
        assert_eq!(pair.view().kills(&pair.keys).count(), 0);
        assert!(pair.asker.clean(&view, &pair.keys, ASKER.1).is_none(), "once");
    }

    #[test]
    fn what_nobody_waits_for_is_not_asked_and_what_is_over_goes_at_once_without_a_look() {
        let mut pair = Pair::new();
        for id in ["a", "b", "gone"] {
            pair.ask(id);
        }
        pair.asker.keep(|id| id != "gone");
        assert!(pair.asker_writes(Duration::ZERO) && pair.asker_writes(Duration::ZERO));
        assert!(pair.of_asker(&pair.view(), Duration::ZERO).is_none());
        // Nor do the others wait any more.
        pair.asker.keep(|_| false);
        let seen = pair.view();
        for _ in 0..2 {
            let step = pair.of_asker(&seen, Duration::ZERO);
            let outcome = pair.write(step);
            assert!(!pair.asker.written(&outcome), "it knows what is there now");
            pair.why();
        }
        assert_eq!(pair.view().kills(&pair.keys).count(), 0);
        assert!(
            pair.of_asker(&seen, Duration::ZERO).is_none(),
            "it is not taken back twice"
        );
        // Several that have come to their end.
        let mut pair = Pair::new();
        for id in ["a", "b"] {
            pair.ask(id);
            pair.asker_writes(Duration::ZERO);
        }
        pair.asker.own.clear();
        let seen = pair.view();
        assert!(!pair.asker_writes(Duration::ZERO));
        assert_eq!(pair.view().kills(&pair.keys).count(), 0);
        assert!(pair.of_asker(&seen, Duration::ZERO).is_none());
    }
}
