//! This gateway's claim to the virtual address, as a plain machine: it is told the time, what the store has
//! and what became of things, and says what to do next.
//!
//! Who has the key in the store has the address, as long as his lease lasts by his own clock. The kernel gets
//! the address for whole seconds within that time, so it takes it off by itself where this process is killed
//! or stopped; it looks up to a second late. So who comes after a lease that has ended waits [`GRACE`] more.
//! Who resigns takes the address off first and leaves the key as free: then nobody waits.

use std::fmt;
use std::time::Duration;

use net::arp::Mac;
use serde::{Deserialize, Serialize};
use upstream::etcd::{Entry, Guard, Op, Outcome, Transaction};

use crate::keys::written;

/// Counted from when a renewal was sent.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Between one attempt and the next, where the store has not answered.
const RENEW_AGAIN: Duration = Duration::from_millis(200);

/// The kernel takes an address off up to a second late, and clocks do not all run alike.
const GRACE: Duration = Duration::from_millis(1500);

/// Until somebody who has the address must have answered, and how often he is asked.
const LISTEN: Duration = Duration::from_millis(300);
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Those who have heard of another holder are told a few times, for one may be lost.
const BURST: u32 = 5;
const BURST_EVERY: Duration = Duration::from_millis(100);
const ANNOUNCE_EVERY: Duration = Duration::from_secs(30);

/// After something that has nothing to do with the store has gone wrong.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// One that is not ready for a moment does not have all clients connect anew.
const UNREADY: Duration = Duration::from_secs(1);

/// The lowest priority waits for so much longer than the highest.
const PER_PRIORITY: Duration = Duration::from_millis(1);

/// A free address is kept for the gateway that it was left to.
const LEFT_TO: Duration = Duration::from_secs(2);

/// How much longer the kernel has an address that was not lent again for so little.
const WORTH_IT: Duration = Duration::from_millis(500);
/// Where it took longer the process was stopped meanwhile.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The key is read again after this time: a watch that is cut off hears nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// What stands in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Said {
    /// The gateway that has the address; `None`: it is free.
    holder: Option<String>,
    /// The gateway that it is left to.
    #[serde(default)]
    next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Free { modified: i64, next: Option<String> },
    Held { holder: String },
}

/// To be done on this machine, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The kernel has the address for so many seconds.
    Lend(u32),
    Remove,
    /// Asks who has it.
    Probe,
    /// Tells that it is here.
    Announce,
}

/// To be asked of the store; one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Look,
    Grant,
    Write(Transaction),
    Renew(i64),
    Revoke(i64),
}

#[derive(Debug)]
struct Term {
    lease: i64,
    /// By this machine's clock.
    until: Duration,
    renew_at: Duration,
    /// Once the key is its own.
    taken: Option<Taken>,
    /// It is to end; the address goes first.
    resigns: bool,
}

#[derive(Debug)]
struct Taken {
    revision: i64,
    /// When the address may be bound, if nobody is heard.
    bind_at: Duration,
    probe_at: Duration,
    is_probed: bool,
    /// From then on it may be left to others as free.
    free_from: Duration,
}

/// What there is of the address on this machine.
#[derive(Debug)]
struct Bound {
    /// The kernel has it until then.
    until: Duration,
    /// It was lent for longer than the lease.
    recall: bool,
    announced: u32,
    announce_at: Duration,
}

/// How it stands, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds,
    Takes,
    Waits,
    Out,
}

impl fmt::Display for Standing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Holds => "holds",
            Self::Takes => "takes",
            Self::Waits => "waits",
            Self::Out => "out",
        })
    }
}

/// The claim of one gateway.
#[derive(Debug)]
pub(crate) struct Claim {
    key: String,
    name: String,
    priority: u32,
    seen: Option<Seen>,
    /// Since when that is so.
    seen_since: Duration,
    look_at: Duration,
    term: Option<Term>,
    /// The lease that it has lost. As long as the key has it nobody else can have had the address since.
    former: Option<i64>,
    bound: Option<Bound>,
    /// What it was that it asked to have.
    was_free: bool,
    /// The present question, and when it was asked.
    asking: Option<Ask>,
    asked: Duration,
    unfit: Option<Unfit>,
    /// The process ends; within it who is to have the address then.
    leaves: Option<Option<String>>,
    not_before: Duration,
    /// The last thing that went wrong.
    trouble: Option<String>,
    no_store: Option<String>,
}

/// Why it is no candidate.
#[derive(Debug)]
struct Unfit {
    why: String,
    since: Duration,
    at_once: bool,
}

impl Claim {
    /// `is_left`: one of before may have left the address on the interface.
    pub(crate) fn new(key: String, name: String, priority: u32, is_left: bool) -> Self {
        Self {
            key,
            name,
            priority,
            seen: None,
            seen_since: Duration::ZERO,
            look_at: Duration::ZERO,
            term: None,
            former: None,
            was_free: false,
            bound: is_left.then_some(Bound {
                until: Duration::ZERO,
                recall: true,
                announced: BURST,
                announce_at: Duration::MAX,
            }),
            asking: None,
            asked: Duration::ZERO,
            unfit: Some(Unfit {
                why: "it has just begun".to_owned(),
                since: Duration::ZERO,
                at_once: true,
            }),
            leaves: None,
            not_before: Duration::ZERO,
            trouble: None,
            no_store: None,
        }
    }

    /// What is to be done here now. To be called until there is nothing, with the time of each call.
    pub(crate) fn act(&mut self, now: Duration) -> Option<Act> {
        self.pass(now);
        let term = self.term.as_ref().filter(|term| !term.resigns);
        let taken = term.and_then(|term| Some((term, term.taken.as_ref()?)));
        let Some((term, taken)) = taken else {
            return self.bound.is_some().then_some(Act::Remove);
        };
        let left = term.until.saturating_sub(now);
        if self.bound.is_none() && (now < taken.bind_at || !taken.is_probed) {
            return (now >= taken.probe_at).then_some(Act::Probe);
        }
        let seconds = u32::try_from(left.as_secs()).unwrap_or_default();
        let lent = Duration::from_secs(u64::from(seconds));
        match &self.bound {
            Some(bound) if bound.recall => Some(Act::Remove),
            Some(bound) if seconds > 0 && now + lent >= bound.until + WORTH_IT => Some(Act::Lend(seconds)),
            None if seconds > 0 => Some(Act::Lend(seconds)),
            Some(bound) if now >= bound.announce_at => Some(Act::Announce),
            _ => None,
        }
    }

    /// What has become of it. `now` is the time behind it: the process may have been stopped within.
    pub(crate) fn acted(&mut self, act: Act, result: Result<(), String>, now: Duration) {
        match (act, result) {
            (Act::Lend(seconds), Ok(())) => self.lent(seconds, now),
            (Act::Lend(_), Err(why)) => self.give_up(format!("it cannot be bound: {why}"), now),
            (Act::Remove, Ok(())) => self.bound = None,
            (Act::Remove, Err(why)) => {
                self.trouble = Some(format!("it cannot be taken off: {why}"));
                // By then the kernel has done so.
                self.bound.take_if(|bound| bound.until + GRACE < now);
            }
            (Act::Probe, Ok(())) => {
                if let Some(taken) = self.term.as_mut().and_then(|term| term.taken.as_mut()) {
                    if !taken.is_probed {
                        taken.is_probed = true;
                        taken.bind_at = taken.bind_at.max(now + LISTEN);
                    }
                    taken.probe_at = now + PROBE_EVERY;
                }
            }
            (Act::Probe, Err(why)) => self.give_up(format!("nobody can be asked who has it: {why}"), now),
            (Act::Announce, result) => {
                let trouble = result.err().map(|why| format!("it cannot be announced: {why}"));
                if let Some(bound) = &mut self.bound {
                    // Another host that has the address answers each announcement, and is trouble again then.
                    if trouble.is_some() || bound.announced >= BURST {
                        self.trouble = trouble;
                    }
                    bound.announced += 1;
                    let pause = if bound.announced < BURST {
                        BURST_EVERY
                    } else {
                        ANNOUNCE_EVERY
                    };
                    bound.announce_at = now + pause;
                }
            }
        }
    }

    fn lent(&mut self, seconds: u32, now: Duration) {
        let until = now + Duration::from_secs(u64::from(seconds));
        let recall = self.term.as_ref().is_none_or(|term| until > term.until + AT_ONCE);
        // Where the kernel has taken it off meanwhile others may think of another one.
        let before = self.bound.take().filter(|bound| bound.until > now);
        self.bound = Some(Bound {
            until,
            recall,
            announced: before.as_ref().map_or(0, |bound| bound.announced),
            announce_at: before.as_ref().map_or(now, |bound| bound.announce_at),
        });
        if before.is_none() {
            self.trouble = None;
        }
    }

    /// What the store is to be asked now. What becomes of it has to be told before the next question.
    pub(crate) fn ask(&mut self, now: Duration) -> Option<Ask> {
        self.pass(now);
        let ask = match &self.term {
            // The address is to be off first.
            Some(term) if term.resigns => self.bound.is_none().then(|| self.resignation(term, now)),
            Some(term) if term.taken.is_none() => self.taking(term.lease).map(Ask::Write),
            Some(term) => (now >= term.renew_at).then_some(Ask::Renew(term.lease)),
            None => (self.bound.is_none() && self.candidate_at().is_some_and(|at| now >= at))
                .then_some(Ask::Grant),
        };
        self.asked = now;
        self.was_free = matches!(self.seen, Some(Seen::Free { .. }));
        self.asking = ask.or_else(|| (now >= self.look_at).then_some(Ask::Look));
        self.asking.clone()
    }

    /// When it may take the address that nobody has. Others come first.
    fn candidate_at(&self) -> Option<Duration> {
        if self.unfit.is_some() || self.leaves.is_some() {
            return None;
        }
        let behind = PER_PRIORITY * 255_u32.saturating_sub(self.priority);
        let pause = match self.seen.as_ref()? {
            Seen::Held { .. } => return None,
            Seen::Free { next: Some(next), .. } if *next == self.name => Duration::ZERO,
            Seen::Free { next: Some(_), .. } => behind + LEFT_TO,
            Seen::Free { next: None, .. } | Seen::Nothing => behind,
        };
        Some((self.seen_since + pause).max(self.not_before))
    }

    fn taking(&self, lease: i64) -> Option<Transaction> {
        let guard = match self.seen.as_ref()? {
            Seen::Nothing => Guard::Version(self.key.clone(), 0),
            Seen::Free { modified, .. } => Guard::Modified(self.key.clone(), *modified),
            Seen::Held { .. } => return None,
        };
        let said = Said {
            holder: Some(self.name.clone()),
            next: None,
        };
        Some(self.write(guard, &said, lease))
    }

    /// Free is only what was bound: before that others have to wait as this one had to.
    fn resignation(&self, term: &Term, now: Duration) -> Ask {
        if term.taken.as_ref().is_none_or(|taken| now < taken.free_from) {
            return Ask::Revoke(term.lease);
        }
        let said = Said {
            holder: None,
            next: self.leaves.clone().flatten(),
        };
        Ask::Write(self.write(Guard::Lease(self.key.clone(), term.lease), &said, 0))
    }

    fn write(&self, guard: Guard, said: &Said, lease: i64) -> Transaction {
        Transaction {
            guards: vec![guard],
            ops: vec![Op::Put(self.key.clone(), written(said), lease)],
        }
    }

    /// The key was read, or has changed.
    pub(crate) fn looked(&mut self, entry: Option<&Entry>, revision: i64, now: Duration) {
        let said = entry.map(|entry| serde_json::from_slice::<Said>(&entry.value).unwrap_or_default());
        let seen = match (entry, said) {
            (Some(entry), Some(said)) if entry.lease == 0 && said.holder.is_none() => Seen::Free {
                modified: entry.modified,
                next: said.next,
            },
            (Some(entry), _) if self.former == Some(entry.lease) && self.term.is_none() => Seen::Free {
                modified: entry.modified,
                next: Some(self.name.clone()),
            },
            (Some(_), Some(said)) => Seen::Held {
                holder: said.holder.unwrap_or_default(),
            },
            _ => Seen::Nothing,
        };
        if self.asking == Some(Ask::Look) {
            self.asking = None;
            self.look_at = now + LOOK_AGAIN;
            self.no_store = None;
        }
        if self.seen.as_ref() != Some(&seen) {
            self.seen_since = now;
            self.seen = Some(seen);
        }
        let Some(term) = self.term.as_mut().filter(|term| !term.resigns) else {
            return;
        };
        match &term.taken {
            Some(taken)
                if revision >= taken.revision && entry.map_or(0, |entry| entry.lease) != term.lease =>
            {
                self.lose("somebody else has changed its key in the store");
            }
            // Another one was quicker. Where it is being taken what becomes of that will be told.
            None if self.asking.is_none() && matches!(self.seen, Some(Seen::Held { .. })) => {
                term.resigns = true
            }
            _ => {}
        }
    }

    pub(crate) fn granted(&mut self, lease: i64) {
        self.asking = None;
        self.trouble = None;
        self.term = Some(Term {
            lease,
            until: self.asked + LEASE,
            renew_at: self.asked + RENEW_EVERY,
            taken: None,
            resigns: false,
        });
    }

    /// What became of a change.
    pub(crate) fn wrote(&mut self, outcome: &Outcome, now: Duration) {
        self.asking = None;
        self.look_at = now;
        let Some(term) = &mut self.term else { return };
        match outcome {
            // It was left as free. Where nobody knows, the lease ends by itself.
            _ if term.taken.is_some() => self.term = None,
            Outcome::Made(revision) => {
                let bind_at = now + if self.was_free { LISTEN } else { GRACE };
                term.taken = Some(Taken {
                    revision: *revision,
                    bind_at,
                    probe_at: bind_at.saturating_sub(LISTEN),
                    is_probed: false,
                    free_from: if self.was_free { now } else { bind_at },
                });
                self.seen = Some(Seen::Held {
                    holder: self.name.clone(),
                });
            }
            // What may still be on its way comes to nothing without the lease.
            Outcome::NotMade | Outcome::Refused(_) | Outcome::Unknown(_) => {
                term.resigns = true;
                self.seen = None;
            }
        }
        if let Outcome::Unknown(why) | Outcome::Refused(why) = outcome {
            self.trouble = Some(format!("the store does not take its name: {why}"));
            self.not_before = now + RENEW_EVERY;
        }
    }

    /// Whether the lease lasts as long again.
    pub(crate) fn renewed(&mut self, is_so: bool) {
        self.asking = None;
        match &mut self.term {
            Some(term) if is_so => {
                term.until = term.until.max(self.asked + LEASE);
                term.renew_at = self.asked + RENEW_EVERY;
            }
            _ => self.lose("its lease in the store is over"),
        }
    }

    pub(crate) fn revoked(&mut self) {
        self.asking = None;
        self.term = None;
    }

    /// The watch has ended.
    pub(crate) fn look_again(&mut self, now: Duration) {
        self.look_at = now;
    }

    /// The store has not answered.
    pub(crate) fn failed(&mut self, why: &str, now: Duration) {
        self.look_at = now + RENEW_AGAIN;
        match (self.asking.take(), &mut self.term) {
            (Some(Ask::Renew(_)), Some(term)) => term.renew_at = now + RENEW_AGAIN,
            (Some(Ask::Write(_) | Ask::Revoke(_)), Some(_)) => self.term = None,
            _ => {}
        }
        if self.term.is_none() {
            self.seen = None;
            self.no_store = Some(format!("the store does not say who has it: {why}"));
        }
    }

    /// Whether clients may come and can, and else why not.
    pub(crate) fn is_fit(&mut self, ready: Result<(), String>, link: Result<(), String>, now: Duration) {
        let since = self.unfit.take().map_or(now, |unfit| unfit.since);
        let at_once = link.is_err();
        self.unfit = link.and(ready).err().map(|why| Unfit { why, since, at_once });
    }

    /// Somebody else has it, as is heard in the network.
    pub(crate) fn heard(&mut self, mac: Mac, now: Duration) {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        let taken = self.term.as_ref().and_then(|term| term.taken.as_ref());
        match (&self.bound, taken) {
            (Some(_), _) => self.trouble = Some(format!("{mac} answers for it as well")),
            // Whoever has lost it may answer for a second more.
            (None, Some(taken)) if now >= taken.bind_at.saturating_sub(LISTEN) => {
                self.give_up(format!("{mac} answers for it"), now);
            }
            (None, _) => {}
        }
    }

    /// This process ends. `next`: the gateway that is to have the address then, before any other.
    pub(crate) fn leave(&mut self, next: Option<&str>) {
        self.leaves.get_or_insert_with(|| next.map(str::to_owned));
    }

    #[cfg(test)]
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.is_some()
    }

    /// Whether nothing is left to be done before the end.
    pub(crate) fn has_left(&self) -> bool {
        self.leaves.is_some() && self.term.is_none() && self.bound.is_none() && self.asking.is_none()
    }

    pub(crate) fn standing(&self) -> Standing {
        match (&self.term, &self.bound) {
            (Some(term), Some(_)) if term.taken.is_some() && !term.resigns => Standing::Holds,
            (Some(_), _) => Standing::Takes,
            (None, _) if self.unfit.is_some() || self.leaves.is_some() => Standing::Out,
            (None, _) => Standing::Waits,
        }
    }

    /// Who has it, as far as the store says.
    pub(crate) fn holder(&self) -> Option<&str> {
        match &self.seen {
            Some(Seen::Held { holder }) => Some(holder),
            _ => None,
        }
    }

    /// What is in the way.
    pub(crate) fn problem(&self) -> Option<&str> {
        let unfit = self.unfit.as_ref().map(|unfit| unfit.why.as_str());
        unfit.or(self.no_store.as_deref()).or(self.trouble.as_deref())
    }

    /// What the time does.
    fn pass(&mut self, now: Duration) {
        let unfit = self.unfit.as_ref();
        let is_unfit = unfit.is_some_and(|unfit| unfit.at_once || now >= unfit.since + UNREADY);
        let Some(term) = &mut self.term else { return };
        term.resigns |= is_unfit || self.leaves.is_some();
        if now >= term.until {
            self.lose("the store has not renewed its lease in time");
        }
    }

    fn lose(&mut self, why: &str) {
        let Some(term) = self.term.take() else { return };
        if !term.resigns {
            self.trouble = Some(why.to_owned());
        }
        self.former = term.taken.map(|_| term.lease);
        self.seen = None;
        self.look_at = Duration::ZERO;
    }

    fn give_up(&mut self, why: String, now: Duration) {
        self.trouble = Some(why);
        self.not_before = now + TRY_AGAIN;
        if let Some(term) = &mut self.term {
            term.resigns = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Result<(), String> = Ok(());

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// One that has taken the key at this time; it was in the store before, or was not.
    fn taken(before: Option<&Entry>, time: u64) -> Claim {
        let mut claim = Claim::new("vip".to_owned(), "g1".to_owned(), 255, false);
        claim.is_fit(NOTHING, NOTHING, at(0));
        assert_eq!(claim.ask(at(time)), Some(Ask::Look));
        claim.looked(before, 5, at(time));
        assert_eq!(claim.ask(at(time)), Some(Ask::Grant));
        claim.granted(7);
        assert!(matches!(claim.ask(at(time)), Some(Ask::Write(_))));
        claim.wrote(&Outcome::Made(6), at(time));
        claim
    }

    fn free(next: Option<&str>) -> Entry {
        let said = Said {
            holder: None,
            next: next.map(str::to_owned),
        };
        Entry {
            key: "vip".to_owned(),
            value: written(&said),
            lease: 0,
            created: 1,
            modified: 1,
            version: 1,
        }
    }

    #[test]
    fn the_kernel_has_it_for_less_than_the_lease_lasts() {
        let mut claim = taken(Some(&free(None)), 1000);
        assert_eq!(claim.act(at(1000)), Some(Act::Probe));
        claim.acted(Act::Probe, NOTHING, at(1000));
        assert_eq!(claim.act(at(1001)), None);
        assert_eq!(claim.act(at(1300)), Some(Act::Lend(2)));
        claim.acted(Act::Lend(2), NOTHING, at(1300));
        assert_eq!(claim.act(at(1300)), Some(Act::Announce));
        claim.acted(Act::Announce, NOTHING, at(1300));
        // Nothing more can be lent but at the very end, and then it goes.
        assert_eq!(claim.act(at(1399)), None);
        assert_eq!(claim.act(at(4000)), Some(Act::Remove));
        claim.acted(Act::Remove, NOTHING, at(4000));
        assert_eq!(claim.act(at(4000)), None);
    }

    #[test]
    fn who_was_stopped_while_it_lent_takes_it_off_at_once() {
        let mut claim = taken(Some(&free(None)), 1000);
        // It comes late to ask who has it, and waits for an answer all the same.
        assert_eq!(claim.act(at(1600)), Some(Act::Probe));
        claim.acted(Act::Probe, NOTHING, at(1600));
        assert_ne!(claim.act(at(1899)), Some(Act::Lend(2)));
        assert_eq!(claim.act(at(1900)), Some(Act::Lend(2)));
        claim.acted(Act::Lend(2), NOTHING, at(3900));
        assert_eq!(claim.act(at(3900)), Some(Act::Remove));
    }

    #[test]
    fn who_has_not_waited_leaves_others_to_wait() {
        let mut claim = taken(None, 1000);
        claim.leave(None);
        assert_eq!(claim.ask(at(2499)), Some(Ask::Revoke(7)));
        let mut claim = taken(None, 1000);
        claim.leave(Some("g1"));
        let resignation = claim.ask(at(2500));
        let Some(Ask::Write(Transaction { ops, .. })) = resignation else {
            panic!("{resignation:?}")
        };
        assert_eq!(ops, [Op::Put("vip".to_owned(), free(Some("g1")).value, 0)]);
    }

    #[test]
    fn somebody_who_answers_keeps_it() {
        let mut claim = taken(None, 1000);
        let mac = [2, 0, 0, 0, 0, 7];
        // The one before may still have it.
        claim.heard(mac, at(2199));
        assert_eq!(claim.problem(), None);
        assert_eq!(claim.act(at(2200)), Some(Act::Probe));
        claim.heard(mac, at(2200));
        assert_eq!(claim.problem(), Some("02:00:00:00:00:07 answers for it"));
        assert_eq!(claim.act(at(2500)), None);
        assert_eq!(claim.ask(at(2499)), Some(Ask::Revoke(7)));
        claim.revoked();
        claim.looked(None, 8, at(2500));
        assert_ne!(claim.ask(at(7199)), Some(Ask::Grant), "not so soon");
    }

    #[test]
    fn what_is_over_is_no_problem_of_the_holder() {
        let mut claim = taken(Some(&free(None)), 1000);
        claim.acted(Act::Lend(2), NOTHING, at(1300));
        let announced = |claim: &mut Claim, result| claim.acted(Act::Announce, result, at(1400));
        announced(&mut claim, Err("the network is down".to_owned()));
        assert_eq!(
            claim.problem(),
            Some("it cannot be announced: the network is down")
        );
        (1..BURST).for_each(|_| announced(&mut claim, NOTHING));
        claim.heard([2, 0, 0, 0, 0, 7], at(1500));
        assert_eq!(claim.problem(), Some("02:00:00:00:00:07 answers for it as well"));
        announced(&mut claim, NOTHING);
        assert_eq!(claim.problem(), None);
    }

    #[test]
    fn one_that_is_not_ready_for_a_moment_keeps_it() {
        let mut claim = taken(Some(&free(None)), 1000);
        claim.acted(Act::Lend(2), NOTHING, at(1300));
        let no = || Err("no server is up".to_owned());
        claim.is_fit(no(), NOTHING, at(1500));
        assert_ne!(claim.act(at(2499)), Some(Act::Remove));
        assert_eq!(claim.act(at(2500)), Some(Act::Remove));
        // Without a link nobody has anything of it.
        let mut claim = taken(Some(&free(None)), 1000);
        claim.acted(Act::Lend(2), NOTHING, at(1300));
        claim.is_fit(NOTHING, no(), at(1500));
        assert_eq!(claim.act(at(1500)), Some(Act::Remove));
    }
}
