//! One gateway among the others, as a machine: what is seen of the store and the time go in, what is to be
//! done comes out. It does nothing by itself, so that a simulator can drive it.
//!
//! To drive it: look at the store (all live keys, then their changes), ask [`Member::next`] what to do, do
//! that and nothing else, tell what came of it, and ask again until there is nothing.
//!
//! What it promises, whatever is lost, repeated, or late:
//!
//! - A text is run only where it was seen at the key of the common text, so it was committed.
//! - A commit follows the revision that it was proposed for, and no other; and every gateway that lives at
//!   that moment has checked the text. The store itself looks at both.
//! - An order ends with what is so: committed, or never to be committed, or that nobody knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use upstream::etcd::{Entry, Guard, Op, Outcome, Transaction};

use crate::deed::Wish;
use crate::keys::{About, Deed, GatewayEntry, Keys, Proposal, Verdict, View, deletion, written};
use crate::kill::{Kill, KillStep, Kills};
use crate::number::{self, Gone};
use crate::order::{Fate, Order};
use crate::share::{NONE, Others, Share};

/// A text that could not be applied is tried again after this time: what it lacked may have come.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// What all do and this gateway could not do is tried again after this time; each time after twice as long,
/// up to [`TRY_AGAIN`].
const DO_AGAIN: Duration = Duration::from_secs(1);

/// What does not change about a gateway while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Me {
    pub(crate) id: String,
    /// Where its folder is: two folders with the same id are copies of one another.
    pub(crate) place: String,
    pub(crate) run: u64,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) zone: Option<String>,
    pub(crate) addresses: Vec<String>,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Get a lease, and tell with [`Member::granted`].
    Grant,
    /// Change the store, and tell with [`Member::written`].
    Write(Transaction),
    /// Look at all live keys, and tell with [`Member::seen`].
    Look,
    /// Find out who made a revision, and tell with [`Member::told_about`].
    Ask(u64),
    /// Check a text, and tell with [`Member::checked`].
    Check { proposal: String, text: String },
    /// Run a text from now on, and tell with [`Member::applied`].
    Apply { revision: u64, text: Arc<str> },
    /// Say that what was committed is no text, and tell with [`Member::applied`].
    Refuse { revision: u64 },
    /// Do this until it is taken back, and tell with [`Member::did`].
    Do {
        key: String,
        deed: Deed,
        /// When it was asked.
        asked: i64,
    },
    /// Do it no more, and tell with [`Member::undid`].
    Undo { key: String, deed: Deed },
    /// Take one of so many parts of each limit, and tell with [`Member::took`].
    Share(u32),
    /// End a session for another gateway, and tell with [`Kills::answered`], now or later.
    Kill { key: String, kill: Kill },
}

/// What a write is for, while it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Tell,
    Judge,
    Withdraw,
    Wish,
    Order,
    Number,
    Kill,
}

/// One gateway among the others.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) keys: Keys,
    me: Me,
    lease: Option<i64>,
    /// What it runs.
    running: Option<(u64, Arc<str>)>,
    /// What it cannot run.
    failed: Option<Failed>,
    /// What it says of the proposal that it has checked last.
    checked: Option<Verdict>,
    writing: Option<Purpose>,
    /// The view may lack what was written.
    must_look: bool,
    /// Another process of the same gateway has come after this one.
    retired: bool,
    order: Option<Order>,
    /// What it does because all do, and what was in the way.
    deeds: BTreeMap<String, Done>,
    /// What it is to do no more and still does, as far as is known.
    undoing: BTreeMap<String, Done>,
    wish: Option<Wish>,
    /// Where limits are shared.
    share: Option<Share>,
    /// The number that its connection ids begin with, as far as it knows.
    number: Option<u32>,
    /// When it was one of the fleet last, as far as it knows.
    member_at: Duration,
    gone: Gone,
    pub(crate) kills: Kills,
}

/// What was done because all do it.
#[derive(Debug)]
struct Done {
    deed: Deed,
    asked: i64,
    problem: Option<String>,
    /// Where there was a problem: when it is tried again, and for how long that is put off then.
    again: (Duration, Duration),
}

#[derive(Debug)]
struct Failed {
    revision: u64,
    modified: i64,
    problem: String,
    at: Duration,
}

impl Member {
    pub(crate) fn new(keys: Keys, me: Me, running: Option<(u64, Arc<str>)>, share: Option<Share>) -> Self {
        Self {
            keys,
            me,
            lease: None,
            running,
            failed: None,
            checked: None,
            writing: None,
            must_look: true,
            retired: false,
            order: None,
            deeds: BTreeMap::new(),
            undoing: BTreeMap::new(),
            wish: None,
            share,
            number: None,
            member_at: Duration::ZERO,
            gone: Gone::default(),
            kills: Kills::default(),
        }
    }

    /// Whether the store has this gateway as one of the fleet.
    pub(crate) fn is_member(&self, view: &View) -> bool {
        self.own(view)
            .is_some_and(|entry| Some(entry.lease) == self.lease)
    }

    /// The number that the connection ids which it gives begin with. It is kept while the store is away, for
    /// a while.
    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    /// Whether it has to be known if the gateway has no more than its part: [`is_within`](Self::is_within).
    pub(crate) fn asks_whether_within(&self) -> bool {
        self.share.as_ref().is_some_and(Share::asks)
    }

    /// The gateway has no more than its part of each limit.
    pub(crate) fn is_within(&mut self) {
        if let Some(share) = &mut self.share {
            share.is_within();
        }
    }

    /// The gateway takes one of so many parts, or could not.
    pub(crate) fn took(&mut self, parts: u32, is_done: bool, now: Duration) {
        if let Some(share) = &mut self.share {
            share.taken(parts, is_done, now);
        }
    }

    /// How many parts it has one of; `None` where limits are not shared, or it has none yet.
    pub(crate) fn parts(&self) -> Option<u32> {
        let parts = self.share.as_ref()?.has();
        (parts != NONE).then_some(parts)
    }

    /// The lease that is to be renewed.
    pub(crate) fn lease(&self) -> Option<i64> {
        self.lease
    }

    pub(crate) fn running(&self) -> Option<&(u64, Arc<str>)> {
        self.running.as_ref()
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired
    }

    /// The revision that it cannot run, and why.
    pub(crate) fn problem(&self) -> Option<(u64, &str)> {
        let failed = self.failed.as_ref()?;
        Some((failed.revision, &failed.problem))
    }

    /// Why it is none of the fleet, where it is not.
    pub(crate) fn stranger(&self, view: &View) -> Option<String> {
        if self.retired {
            return Some("another process of this gateway has come after this one".to_owned());
        }
        let entry = self.own(view).filter(|entry| Some(entry.lease) != self.lease)?;
        let theirs = serde_json::from_slice::<GatewayEntry>(&entry.value).ok();
        if theirs.as_ref().is_some_and(|theirs| self.is_me(theirs)) {
            return None;
        }
        let copied = match theirs.is_some_and(|theirs| theirs.id == self.me.id) {
            true => {
                ": its `state_dir` and this one are copies, or this machine was started anew and the lease of \
                 before is not over"
            }
            false => "",
        };
        Some(format!(
            "another gateway has the name {:?} ([store] name){copied}",
            self.me.name
        ))
    }

    /// Whether an order can be taken: one at a time.
    pub(crate) fn is_idle(&self) -> bool {
        self.order.is_none()
    }

    pub(crate) fn take_order(&mut self, order: Order) {
        debug_assert!(self.order.is_none());
        self.order = Some(order);
        // What there is when it was asked for is what it follows.
        self.must_look = true;
    }

    /// Whether a wish can be taken: one at a time.
    pub(crate) fn is_content(&self) -> bool {
        self.wish.is_none()
    }

    pub(crate) fn take_wish(&mut self, wish: Wish) {
        debug_assert!(self.wish.is_none());
        self.wish = Some(wish);
        self.must_look = true;
    }

    /// The wish that has come to its end.
    pub(crate) fn fulfilled(&mut self) -> Option<(String, Fate)> {
        let fate = self.wish.as_mut()?.fate.take()?;
        let wish = self.wish.take()?;
        Some((wish.id, fate))
    }

    /// The order that has come to its end.
    pub(crate) fn finished(&mut self) -> Option<(String, Fate)> {
        let fate = self.order.as_mut()?.fate.take()?;
        let order = self.order.take()?;
        Some((order.id, fate))
    }

    /// Nobody can be asked: only time passes. `why`: what the store does, in words.
    pub(crate) fn offline(&mut self, now: Duration, why: &str) -> Option<Action> {
        if let Some(order) = &mut self.order {
            order.offline(now, why);
        }
        if let Some(wish) = &mut self.wish {
            wish.offline(now, why);
        }
        self.kills.offline(now, why);
        self.give_up_number(now);
        self.share.as_ref()?.offline(now).map(Action::Share)
    }

    /// Another gateway may have it soon.
    fn give_up_number(&mut self, now: Duration) {
        if now.saturating_sub(self.member_at) > number::KEPT {
            self.number = None;
        }
    }

    // What came of an action, or came by itself.

    pub(crate) fn granted(&mut self, lease: i64) {
        self.lease = Some(lease);
    }

    /// The lease is over: all that it held is gone, or will be.
    pub(crate) fn lease_lost(&mut self) {
        self.lease = None;
        self.must_look = true;
    }

    /// All live keys were looked at.
    pub(crate) fn seen(&mut self) {
        self.must_look = false;
    }

    pub(crate) fn written(&mut self, outcome: &Outcome) {
        let purpose = self.writing.take();
        // What is seen next has it, if it was made.
        self.must_look |= purpose != Some(Purpose::Kill) || self.kills.written(outcome);
        if let (Some(Purpose::Order), Some(order)) = (purpose, &mut self.order) {
            order.written(outcome);
        }
        if let (Some(Purpose::Wish), Some(wish)) = (purpose, &mut self.wish) {
            wish.written(outcome);
        }
    }

    pub(crate) fn told_about(&mut self, about: Option<About>) {
        if let Some(order) = &mut self.order {
            order.told_about(about.as_ref());
        }
    }

    pub(crate) fn checked(&mut self, proposal: String, problem: Option<String>) {
        self.checked = Some(Verdict { proposal, problem });
    }

    /// Says whether that is news: the same problem as before is none.
    pub(crate) fn did(
        &mut self,
        key: String,
        deed: Deed,
        asked: i64,
        problem: Option<String>,
        now: Duration,
    ) -> bool {
        let before = self.deeds.get(&key).filter(|done| done.asked == asked);
        let is_news = before.is_none_or(|done| done.problem != problem);
        let pause = before.map_or(DO_AGAIN, |done| done.again.1);
        let done = Done {
            deed,
            asked,
            problem,
            again: (now + pause, (2 * pause).min(TRY_AGAIN)),
        };
        self.deeds.insert(key, done);
        is_news
    }

    /// Says whether that is news, as [`did`](Self::did).
    pub(crate) fn undid(&mut self, key: &str, problem: Option<String>, now: Duration) -> bool {
        let Some(done) = self.undoing.get_mut(key).filter(|_| problem.is_some()) else {
            return self.undoing.remove(key).is_some();
        };
        let is_news = done.problem != problem;
        let pause = done.again.1;
        done.again = (now + pause, (2 * pause).min(TRY_AGAIN));
        done.problem = problem;
        is_news
    }

    /// Somebody has asked for it here since: it is no longer what all do.
    pub(crate) fn done_here(&mut self, key: &str) {
        self.undoing.remove(key);
    }

    /// What all do and this gateway could not do, or do no more, in words.
    pub(crate) fn undone(&self) -> Vec<String> {
        let failed = |done: &Done, ends: &str| {
            let why = done.problem.as_ref()?;
            Some(format!("{}{ends}: {why}", done.deed))
        };
        let not_done = self.deeds.values().filter_map(|done| failed(done, ""));
        let not_ended = self.undoing.values();
        let not_ended = not_ended.filter_map(|done| failed(done, ", which is to end"));
        not_done.chain(not_ended).collect()
    }

    /// `modified`: when the text was committed, as the view had it.
    pub(crate) fn applied(
        &mut self,
        revision: u64,
        text: Arc<str>,
        problem: Option<String>,
        modified: i64,
        now: Duration,
    ) {
        match problem {
            None => {
                self.running = Some((revision, text));
                self.failed = None;
            }
            Some(problem) => {
                self.failed = Some(Failed {
                    revision,
                    modified,
                    problem,
                    at: now,
                });
            }
        }
    }

    /// What this gateway's own file says has changed: what could not be applied is tried at once.
    pub(crate) fn try_again(&mut self) {
        if let Some(failed) = &mut self.failed {
            failed.modified = -1;
        }
        for done in self.deeds.values_mut().chain(self.undoing.values_mut()) {
            done.again = (Duration::ZERO, DO_AGAIN);
        }
    }

    /// What is to be done next; nothing: wait until something is seen, or time has passed.
    pub(crate) fn next(&mut self, view: &View, now: Duration) -> Option<Action> {
        debug_assert!(self.writing.is_none());
        if self.is_member(view) {
            self.member_at = now;
        }
        self.give_up_number(now);
        if self.must_look {
            return Some(Action::Look);
        }
        if let Some(apply) = self.apply(view, now) {
            return Some(apply);
        }
        if let Some(deed) = self.deed(view, now) {
            return Some(deed);
        }
        if let Some(parts) = self.part(view, now) {
            return Some(Action::Share(parts));
        }
        if self.retired {
            self.fail_order("another process of this gateway has come after this one");
            self.kills.offline(now, "takes no word of an old process");
            return None;
        }
        let Some(lease) = self.lease else {
            return Some(Action::Grant);
        };
        // A store that is full takes no word of this gateway any more, and these all the same.
        if let Some(withdraw) = self.orphan(view, lease) {
            return self.write(Purpose::Withdraw, withdraw);
        }
        if let Some(clean) = self.kills.clean(view, &self.keys, lease) {
            return self.write(Purpose::Kill, clean);
        }
        let lease_of_member = self.is_member(view).then_some(lease);
        if let Some(wish) = self.wish.as_mut().filter(|wish| wish.needs_no_word())
            && let Some(write) = wish.next(view, &self.keys, lease_of_member, now)
        {
            return self.write(Purpose::Wish, write);
        }
        if let Some(order) = &mut self.order {
            order.pass(now);
            if let Some(revision) = order.asks() {
                return Some(Action::Ask(revision));
            }
            if let Some(settle) = order.settle(&self.keys) {
                return self.write(Purpose::Order, settle);
            }
        }
        if let Some(write) = self.tell(view, lease) {
            return self.write(Purpose::Tell, write);
        }
        let is_member = self.is_member(view);
        if is_member {
            let me = (self.me.name.as_str(), lease);
            let claim = number::claim(view, &self.keys, me, &mut self.gone, now);
            self.number = number::of(view, &self.keys, &self.me.name);
            if let Some(claim) = claim {
                return self.write(Purpose::Number, claim);
            }
        } else if self.stranger(view).is_some() {
            self.number = None;
            self.kills
                .offline(now, "has another gateway by the name of this one");
        }
        if is_member && let Some(judge) = self.judge(view, lease) {
            return match judge {
                Judge::Check(action) => Some(action),
                Judge::Write(write) => self.write(Purpose::Judge, write),
            };
        }
        let lease = is_member.then_some(lease);
        if let Some(wish) = &mut self.wish
            && let Some(write) = wish.next(view, &self.keys, lease, now)
        {
            return self.write(Purpose::Wish, write);
        }
        if let Some(order) = &mut self.order
            && let Some(write) = order.next(view, &self.keys, &self.me.name, lease, now)
        {
            return self.write(Purpose::Order, write);
        }
        // Every client may ask for these: all else goes before.
        match self.kills.next(view, &self.keys, (&self.me.name, lease?), now)? {
            KillStep::Write(write) => self.write(Purpose::Kill, write),
            KillStep::Kill { key, kill } => Some(Action::Kill { key, kill }),
        }
    }

    fn fail_order(&mut self, why: &str) {
        if let Some(order) = &mut self.order {
            order.give_up(why);
        }
    }

    fn write(&mut self, purpose: Purpose, transaction: Transaction) -> Option<Action> {
        self.writing = Some(purpose);
        Some(Action::Write(transaction))
    }

    fn own<'v>(&self, view: &'v View) -> Option<&'v Entry> {
        view.get(&self.keys.gateway(&self.me.name))
    }

    /// Whether this gateway says it, be it by another process. An older version does not say its place.
    fn is_me(&self, told: &GatewayEntry) -> bool {
        told.id == self.me.id && (told.place.is_empty() || told.place == self.me.place)
    }

    fn apply(&mut self, view: &View, now: Duration) -> Option<Action> {
        let (revision, entry) = view.config(&self.keys);
        let entry = entry?;
        // Somebody may have written past us what is no text.
        let text = std::str::from_utf8(&entry.value).ok();
        if let Some((of, running)) = &mut self.running
            && Some(&**running) == text
        {
            *of = revision;
            self.failed = None;
            return None;
        }
        let has_failed =
            |failed: &Failed| failed.modified == entry.modified && now.saturating_sub(failed.at) < TRY_AGAIN;
        if self.failed.as_ref().is_some_and(has_failed) {
            return None;
        }
        Some(match text {
            Some(text) => Action::Apply {
                revision,
                text: text.into(),
            },
            None => Action::Refuse { revision },
        })
    }

    fn deed(&mut self, view: &View, now: Duration) -> Option<Action> {
        for (entry, deed) in view.acts(&self.keys) {
            let is_done = |done: &Done| {
                let is_over = done.problem.is_none() || now < done.again.0;
                is_over && done.asked == entry.created && done.deed == deed
            };
            if !self.deeds.get(&entry.key).is_some_and(is_done) {
                self.undoing.remove(&entry.key);
                return Some(Action::Do {
                    key: entry.key.clone(),
                    deed,
                    asked: entry.created,
                });
            }
        }
        let over = self.deeds.keys().find(|key| view.get(key).is_none());
        if let Some((key, done)) = over.cloned().and_then(|key| self.deeds.remove_entry(&key)) {
            let deed = done.deed.clone();
            let at_once = Done {
                problem: None,
                again: (now, DO_AGAIN),
                ..done
            };
            self.undoing.insert(key.clone(), at_once);
            return Some(Action::Undo { key, deed });
        }
        let (key, done) = self.undoing.iter().find(|(_, done)| now >= done.again.0)?;
        Some(Action::Undo {
            key: key.clone(),
            deed: done.deed.clone(),
        })
    }

    /// The part to take now, if another one.
    fn part(&mut self, view: &View, now: Duration) -> Option<u32> {
        let own = self.own(view).filter(|entry| Some(entry.lease) == self.lease);
        let told =
            own.and_then(|entry| Some(serde_json::from_slice::<GatewayEntry>(&entry.value).ok()?.parts));
        let gateways = view.gateways(&self.keys);
        let others = || gateways.iter().filter(|(name, ..)| *name != self.me.name);
        let promises =
            others().filter_map(|(.., told)| Some(told.as_ref()?.parts).filter(|parts| *parts > 0));
        let others = Others {
            live: u32::try_from(others().count() + 1).unwrap_or(NONE),
            promised: promises.min().unwrap_or(NONE),
            told,
        };
        self.share.as_mut().filter(|_| !self.retired)?.next(&others, now)
    }

    /// Says what this gateway is, where the store has something else.
    fn tell(&mut self, view: &View, lease: i64) -> Option<Transaction> {
        let told = GatewayEntry {
            id: self.me.id.clone(),
            place: self.me.place.clone(),
            run: self.me.run,
            version: self.me.version.clone(),
            zone: self.me.zone.clone(),
            addresses: self.me.addresses.clone(),
            revision: self.running.as_ref().map_or(0, |(revision, _)| *revision),
            refused: self
                .failed
                .as_ref()
                .map(|failed| (failed.revision, failed.problem.clone())),
            paused: self.paused(),
            undone: self.undone(),
            parts: self.share.as_ref().map_or(0, Share::told),
        };
        let value = written(&told);
        let key = self.keys.gateway(&self.me.name);
        let guard = match self.own(view) {
            None => Guard::Version(key.clone(), 0),
            Some(entry) if entry.lease == lease && entry.value == value => return None,
            Some(entry) if entry.lease == lease => Guard::Modified(key.clone(), entry.modified),
            Some(entry) => {
                let theirs: GatewayEntry = serde_json::from_slice(&entry.value).ok()?;
                if !self.is_me(&theirs) {
                    return None;
                }
                if theirs.run > self.me.run {
                    self.retired = true;
                    return None;
                }
                Guard::Modified(key.clone(), entry.modified)
            }
        };
        Some(Transaction {
            guards: vec![guard],
            ops: vec![Op::Put(key, value, lease)],
        })
    }

    /// What this gateway has asked of all and does not want any more.
    fn orphan(&self, view: &View, lease: i64) -> Option<Transaction> {
        let proposed = view.proposal(&self.keys).filter(|(_, proposal)| {
            let order = self.order.as_ref();
            order.is_none_or(|order| order.id != proposal.id)
        });
        let acts = view.acts(&self.keys).into_iter();
        let acts = acts.filter(|(entry, _)| {
            let wish = self.wish.as_ref();
            wish.is_none_or(|wish| wish.key(&self.keys) != entry.key)
        });
        let of_lease = |entry: &&Entry| entry.lease == lease;
        let proposed = proposed.map(|(entry, _)| entry).filter(of_lease);
        let entry = proposed.or_else(|| acts.map(|(entry, _)| entry).find(of_lease));
        entry.map(deletion)
    }

    fn paused(&self) -> Vec<(String, i64)> {
        let paused = self.deeds.values().filter_map(|done| match &done.deed {
            Deed::Pause { cluster } if done.problem.is_none() => Some((cluster.clone(), done.asked)),
            _ => None,
        });
        paused.collect()
    }

    fn judge(&self, view: &View, lease: i64) -> Option<Judge> {
        let (entry, proposal) = view.proposal(&self.keys)?;
        let Proposal { id, text, .. } = proposal;
        let checked = self.checked.as_ref().filter(|checked| checked.proposal == id);
        let Some(checked) = checked else {
            return Some(Judge::Check(Action::Check { proposal: id, text }));
        };
        if view.verdict(&self.keys, &self.me.name, lease, &id).as_ref() == Some(checked) {
            return None;
        }
        Some(Judge::Write(Transaction {
            guards: vec![
                Guard::Modified(entry.key.clone(), entry.modified),
                Guard::Lease(self.keys.gateway(&self.me.name), lease),
            ],
            ops: vec![Op::Put(self.keys.check(&self.me.name), written(checked), lease)],
        }))
    }
}

enum Judge {
    Check(Action),
    Write(Transaction),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    fn member(keys: &Keys) -> Member {
        let me = Me {
            id: "id1".to_owned(),
            place: "folder".to_owned(),
            run: 1,
            name: "g1".to_owned(),
            version: "1".to_owned(),
            zone: None,
            addresses: Vec::new(),
        };
        Member::new(keys.clone(), me, None, None)
    }

    #[test]
    fn a_number_is_given_up_before_another_gateway_may_have_it() {
        let (keys, mut model) = (Keys::of("main"), Model::default());
        let mut member = member(&keys);
        member.granted(model.grant(1_000, 0));
        let mut view = View::default();
        let mut follow = |member: &mut Member, now| {
            while let Some(action) = member.next(&view, now) {
                match action {
                    Action::Look => {
                        view = model.read(&keys.live()).into();
                        member.seen();
                    }
                    Action::Write(write) => {
                        assert!(model.change(&write));
                        member.written(&Outcome::Made(model.revision()));
                    }
                    other => panic!("{other:?}"),
                }
            }
        };
        let began = Duration::from_secs(100);
        follow(&mut member, began);
        assert_eq!(member.number(), Some(1));
        member.offline(began + number::KEPT, "does not answer");
        assert_eq!(member.number(), Some(1));
        let late = began + number::KEPT + Duration::from_secs(1);
        member.offline(late, "does not answer");
        assert_eq!(member.number(), None);
        follow(&mut member, late);
        assert_eq!(member.number(), Some(1), "it is its own still");
    }

    #[test]
    fn kills_wait_until_a_proposal_is_judged() {
        let (keys, mut model) = (Keys::of("main"), Model::default());
        let mut member = member(&keys);
        let proposal = Proposal {
            id: "p".to_owned(),
            by: "g2".to_owned(),
            base: 0,
            text: "text".to_owned(),
        };
        let lease = model.grant(1_000, 0);
        member.granted(lease);
        let ops = vec![
            Op::Put(keys.proposal(), written(&proposal), 0),
            Op::Put(keys.number(5), b"g2".to_vec(), 0),
            Op::Put(keys.gateway("g2"), b"{}".to_vec(), 0),
        ];
        let guards = Vec::new();
        assert!(model.change(&Transaction { guards, ops }));
        for id in ["k1", "k2", "k3"] {
            let kill = Kill {
                id: 1 << 30 | 5 << 24 | 7,
                query_only: true,
                by: None,
            };
            member.kills.ask(id.to_owned(), kill, Duration::from_secs(2));
        }
        let mut view = View::default();
        let mut keys_written = Vec::new();
        while let Some(action) = member.next(&view, Duration::ZERO) {
            match action {
                Action::Look => {
                    view = model.read(&keys.live()).into();
                    member.seen();
                }
                Action::Check { proposal, .. } => member.checked(proposal, None),
                Action::Write(write) => {
                    assert!(model.change(&write));
                    keys_written.extend(write.ops.iter().map(|op| match op {
                        Op::Put(key, ..) | Op::Delete(key) => key.clone(),
                    }));
                    member.written(&Outcome::Made(model.revision()));
                }
                other => panic!("{other:?}"),
            }
        }
        let judged = keys_written.iter().position(|key| *key == keys.check("g1"));
        let asked = keys_written.iter().position(|key| *key == keys.kill("k1"));
        assert!(judged.is_some() && judged < asked, "{keys_written:?}");
    }
}
