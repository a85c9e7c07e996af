//! What is done by all gateways as long as the store says so: servers that are left, clusters whose
//! statements wait.

use std::time::Duration;

use upstream::etcd::{Entry, Guard, Op, Outcome, Transaction, takes_no_changes};

use crate::keys::{Deed, GatewayEntry, Keys, View, deletion, written};
use crate::order::{Fate, Refusal, said};

/// For so long all have time, from when it was asked: whoever asks has ten seconds in all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(6);

/// A deed that somebody has asked for, or that somebody wants taken back.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) id: String,
    deed: Deed,
    is_wanted: bool,
    ends: Duration,
    phase: Phase,
    /// Who has not done it.
    missing: Vec<Refusal>,
    /// The store takes no changes; whether the last one was made all the same is to be looked at.
    refused: Option<String>,
    pub(crate) fate: Option<Fate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is asked of all.
    Asking,
    /// Not all have done it: none is to.
    Undoing,
}

impl Wish {
    pub(crate) fn new(id: String, deed: Deed, is_wanted: bool) -> Self {
        Self {
            id,
            deed,
            is_wanted,
            ends: Duration::ZERO,
            phase: Phase::Asking,
            missing: Vec::new(),
            refused: None,
            fate: None,
        }
    }

    /// The wish's turn begins. The client that asked for it is told at `ends` that it has failed, if it has
    /// no result by then.
    pub(crate) fn begin(&mut self, ends: Duration) {
        self.ends = ends;
    }

    pub(crate) fn key(&self, keys: &Keys) -> String {
        self.deed.key(keys)
    }

    /// Time has passed and the store cannot be asked, for which `why` says what it does.
    pub(crate) fn offline(&mut self, now: Duration, why: &str) {
        if now >= self.ends && self.fate.is_none() {
            self.fate = Some(Fate::Unknown {
                revision: 0,
                why: format!("the store {why}"),
            });
        }
    }

    pub(crate) fn written(&mut self, outcome: &Outcome) {
        if let Outcome::Refused(why) | Outcome::Unknown(why) = outcome
            && takes_no_changes(why)
        {
            self.refused = Some(said(why));
        }
    }

    /// It only takes something back, or looks what has come of its last change: that goes on in a store that
    /// is full and takes no word of this gateway.
    pub(crate) fn needs_no_word(&self) -> bool {
        !self.is_wanted || self.refused.is_some()
    }

    /// What is to be written next. `lease`: of this gateway, where it is one of the fleet.
    pub(crate) fn next(
        &mut self,
        view: &View,
        keys: &Keys,
        lease: Option<i64>,
        now: Duration,
    ) -> Option<Transaction> {
        let write = self.step(view, keys, lease, now);
        match self.refused.take().filter(|_| self.fate.is_none()) {
            Some(why) => {
                self.fate = Some(Fate::Failed { why });
                None
            }
            None => write,
        }
    }

    fn step(&mut self, view: &View, keys: &Keys, lease: Option<i64>, now: Duration) -> Option<Transaction> {
        if self.fate.is_some() {
            return None;
        }
        let key = self.deed.key(keys);
        let entry = view.get(&key);
        let value = written(&self.deed);
        match (self.phase, entry) {
            // Also where it was to be undone: what made it count may have come late.
            (_, Some(entry)) if self.is_wanted && entry.lease == 0 && entry.value == value => {
                self.fate = Some(Fate::Done);
            }
            (Phase::Undoing, Some(entry)) if Some(entry.lease) == lease => return Some(deletion(entry)),
            (Phase::Undoing, _) => {
                self.fate = Some(match std::mem::take(&mut self.missing) {
                    by if by.is_empty() => too_late(),
                    by => Fate::Refused { by },
                });
            }
            (Phase::Asking, None) if !self.is_wanted => self.fate = Some(Fate::Done),
            (Phase::Asking, Some(entry)) if self.is_wanted && Some(entry.lease) == lease => {
                return self.wait_for_all(view, keys, entry, now);
            }
            _ if now >= self.ends => self.fate = Some(too_late()),
            (Phase::Asking, Some(_)) if !self.is_wanted => {
                return Some(Transaction {
                    guards: Vec::new(),
                    ops: vec![Op::Delete(key)],
                });
            }
            (Phase::Asking, _) if matches!(self.deed, Deed::Drain { .. }) => {
                return Some(Transaction {
                    guards: Vec::new(),
                    ops: vec![Op::Put(key, value, 0)],
                });
            }
            (Phase::Asking, None) => {
                return lease.map(|lease| Transaction {
                    guards: vec![Guard::Version(key.clone(), 0)],
                    ops: vec![Op::Put(key, value, lease)],
                });
            }
            // Another gateway was asked for the same.
            (Phase::Asking, Some(_)) => {}
        }
        None
    }

    fn wait_for_all(
        &mut self,
        view: &View,
        keys: &Keys,
        asked: &Entry,
        now: Duration,
    ) -> Option<Transaction> {
        let Deed::Pause { cluster } = &self.deed else {
            return None;
        };
        let gateways = view.gateways(keys);
        let asked_for = (cluster.clone(), asked.created);
        let has_paused =
            |told: &Option<GatewayEntry>| told.as_ref().is_some_and(|told| told.paused.contains(&asked_for));
        let missing = gateways.iter().filter(|(_, _, told)| !has_paused(told));
        let missing = missing.map(|(name, ..)| Refusal {
            gateway: (*name).to_owned(),
            why: "it lives, and has not paused in time".to_owned(),
        });
        let missing: Vec<Refusal> = missing.collect();
        let is_over = now >= self.ends;
        if missing.is_empty() && !is_over {
            let key = self.deed.key(keys);
            let mut guards = view.those_that_live(keys);
            guards.push(Guard::Modified(key.clone(), asked.modified));
            return Some(Transaction {
                guards,
                // It stays when this gateway goes.
                ops: vec![Op::Put(key, asked.value.clone(), 0)],
            });
        }
        if is_over {
            self.missing = missing;
            self.phase = Phase::Undoing;
            return Some(deletion(asked));
        }
        None
    }
}

fn too_late() -> Fate {
    Fate::Failed {
        why: "it could not be asked of all in time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    /// The next step of a wish, by what the store has.
    fn next(model: &Model, keys: &Keys, lease: i64, wish: &mut Wish, now: Duration) -> Option<Transaction> {
        let seen: View = model.read(&keys.live()).into();
        wish.next(&seen, keys, Some(lease), now)
    }

    #[test]
    fn whoever_was_told_that_it_has_failed_does_not_have_it_done_later() {
        let (keys, mut model) = (Keys::of("main"), Model::default());
        let drain = Deed::Drain {
            cluster: "c".to_owned(),
            server: "s1".to_owned(),
            end_after: None,
        };
        let pause = Deed::Pause {
            cluster: "c".to_owned(),
        };
        let lease = model.grant(1_000, 0);
        let next = |model: &Model, wish: &mut Wish, now| next(model, &keys, lease, wish, now);
        let begun = |deed: &Deed, is_wanted| {
            let mut wish = Wish::new("w".to_owned(), deed.clone(), is_wanted);
            wish.begin(PATIENCE);
            wish
        };
        let mut late = begun(&drain, true);
        assert_eq!(next(&model, &mut late, PATIENCE), None);
        assert_eq!(late.fate, Some(too_late()));

        let write = next(&model, &mut begun(&drain, true), Duration::ZERO);
        assert!(model.change(&write.unwrap()));
        let mut late = begun(&drain, false);
        assert_eq!(next(&model, &mut late, PATIENCE), None);
        assert_eq!(late.fate, Some(too_late()));

        // Nobody is missing, and the store was slow.
        let mut late = begun(&pause, true);
        let write = next(&model, &mut late, Duration::ZERO);
        assert!(model.change(&write.unwrap()));
        let write = next(&model, &mut late, PATIENCE);
        assert!(model.change(&write.unwrap()));
        assert_eq!(next(&model, &mut late, PATIENCE), None);
        assert_eq!(late.fate, Some(too_late()));
        let left: View = model.read(&keys.live()).into();
        assert_eq!(left.acts(&keys).len(), 1, "the drain");
    }

    #[test]
    fn a_pause_that_counts_late_is_done_where_it_was_to_be_undone() {
        let (keys, mut model) = (Keys::of("main"), Model::default());
        let pause = Deed::Pause {
            cluster: "c".to_owned(),
        };
        let lease = model.grant(1_000, 0);
        let next = |model: &Model, wish: &mut Wish, now| next(model, &keys, lease, wish, now);
        let mut wish = Wish::new("w".to_owned(), pause, true);
        wish.begin(PATIENCE);
        let asked = next(&model, &mut wish, Duration::ZERO);
        assert!(model.change(&asked.unwrap()));
        let counts = next(&model, &mut wish, Duration::ZERO).unwrap();
        wish.written(&Outcome::Unknown("timed out".to_owned()));
        let undo = next(&model, &mut wish, PATIENCE).unwrap();
        assert!(model.change(&counts), "it was on its way");
        assert!(!model.change(&undo));
        assert_eq!(next(&model, &mut wish, PATIENCE), None);
        assert_eq!(wish.fate, Some(Fate::Done));
    }

    #[test]
    fn what_filled_the_store_is_done_and_what_found_it_full_is_not() {
        let keys = Keys::of("main");
        let drain = Deed::Drain {
            cluster: "c".to_owned(),
            server: "s1".to_owned(),
            end_after: None,
        };
        let full = Outcome::Unknown("etcdserver: mvcc: database space exceeded".to_owned());
        for is_made in [true, false] {
            let mut model = Model::default();
            let mut wish = Wish::new("w".to_owned(), drain.clone(), true);
            wish.begin(PATIENCE);
            let write = wish.next(&View::default(), &keys, Some(1), Duration::ZERO);
            if is_made {
                assert!(model.change(&write.unwrap()));
            }
            wish.written(&full);
            assert_eq!(wish.fate, None, "it is to be looked at");
            let seen: View = model.read(&keys.live()).into();
            assert_eq!(wish.next(&seen, &keys, Some(1), Duration::ZERO), None);
            let is_done = wish.fate == Some(Fate::Done);
            let words = "the store takes no changes: etcdserver: mvcc: database space exceeded";
            let is_refused = matches!(&wish.fate, Some(Fate::Failed { why }) if why == words);
            assert_eq!((is_done, is_refused), (is_made, !is_made), "{:?}", wish.fate);
        }
    }
}
