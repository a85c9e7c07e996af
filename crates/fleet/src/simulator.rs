//! Gateways and a store of which everything can fail at any time: processes are killed, frozen, replaced by
//! newer ones; requests and answers are lost or come late; leases end; changes are forgotten. What must hold
//! is looked at all the time.
//!
//! `FOREBAY_FLEET_STEPS` is how many steps all histories have together, `FOREBAY_SEED` repeats one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use inputs::Random;
use upstream::etcd::{Change, Op, Outcome, Range, Transaction};

use crate::deed::{self, Wish};
use crate::histories;
use crate::keys::{About, Deed, Keys, View, first_about};
use crate::kill::{self, Kill, NotKilled};
use crate::member::{Action, Me, Member};
use crate::model::Model;
use crate::order::{Fate, Order};
use crate::share::{NONE, Share};

/// Milliseconds.
const LEASE: u64 = 10_000;
const ANSWER_LIMIT: u64 = 3_000;
const STEP: u64 = 20;

/// Steps of one history with faults, and then without.
const FAULTY: u64 = 4_000;
const SOUND: u64 = 6_000;

struct Process {
    gateway: usize,
    run: u64,
    member: Member,
    view: View,
    is_connected: bool,
    /// Does nothing until then.
    frozen_until: u64,
    /// What it waits for, and until when.
    waits: Option<(u64, Waits, u64)>,
    renew_at: u64,
    /// When the store is asked again.
    retry_at: u64,
    is_paused: bool,
    /// It takes one of so many parts of a limit.
    parts: u32,
    /// Until then it has not come down to that: it still takes one of so many.
    shrinks: Option<(u64, u32)>,
    /// Its lease was over since it took its part, or it took it without the store: others need not know.
    is_cut_off: bool,
}

#[derive(Clone, Debug)]
enum Waits {
    Look,
    Grant,
    Renew,
    Write,
    Ask,
}

#[derive(Clone)]
enum Request {
    Read(Range),
    Grant,
    Renew(i64),
    Write(Transaction),
}

enum StoreAnswer {
    Read(View, Option<About>),
    Grant(i64),
    Renew(bool),
    Write(Outcome),
}

/// Something on its way to the store.
struct Sent {
    call: u64,
    arrives: u64,
    request: Request,
    /// Who has sent it, for what he is granted.
    by: (usize, u64),
    /// When its answer is there; never.
    answered: Option<u64>,
}

#[derive(Default)]
struct Gateway {
    run: u64,
    disk: Option<(u64, Arc<str>)>,
    parts: Option<u32>,
}

struct World {
    random: Random,
    now: u64,
    keys: Keys,
    model: Model,
    gateways: Vec<Gateway>,
    processes: Vec<Process>,
    sent: Vec<Sent>,
    answers: Vec<(u64, u64, StoreAnswer)>,
    calls: u64,
    texts: u64,
    /// Who holds a lease.
    holders: BTreeMap<i64, (usize, u64)>,
    /// Which process can run which proposal.
    checked: BTreeSet<(String, usize, u64)>,
    /// Id and text of each revision.
    committed: Vec<(String, Arc<str>)>,
    /// Orders that must never be committed.
    never: BTreeSet<String>,
    /// Sessions that were ended for other gateways.
    kills: BTreeSet<u32>,
    /// Of others it was said that they were not, and will not be.
    never_killed: BTreeSet<u32>,
    is_faulty: bool,
    /// The store takes no values until then.
    full_until: u64,
    ends: BTreeMap<&'static str, u64>,
}

fn millis(time: u64) -> Duration {
    Duration::from_millis(time)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let gateways = random.between(1, 5);
        let mut world = Self {
            random,
            now: 0,
            keys: Keys::of("main"),
            model: Model::default(),
            gateways: (0..gateways).map(|_| Gateway::default()).collect(),
            processes: Vec::new(),
            sent: Vec::new(),
            answers: Vec::new(),
            calls: 0,
            texts: 0,
            holders: BTreeMap::new(),
            checked: BTreeSet::new(),
            committed: Vec::new(),
            never: BTreeSet::new(),
            kills: BTreeSet::new(),
            never_killed: BTreeSet::new(),
            is_faulty: true,
            full_until: 0,
            ends: BTreeMap::new(),
        };
        (0..gateways).for_each(|gateway| world.start(gateway));
        world
    }

    fn start(&mut self, gateway: usize) {
        let of = &mut self.gateways[gateway];
        of.run += 1;
        let me = Me {
            id: format!("id{gateway}"),
            place: format!("folder {gateway}"),
            run: of.run,
            name: format!("g{gateway}"),
            version: "1".to_owned(),
            zone: None,
            addresses: Vec::new(),
        };
        self.processes.push(Process {
            gateway,
            run: of.run,
            member: Member::new(self.keys.clone(), me, of.disk.clone(), Some(Share::new(of.parts))),
            view: View::default(),
            is_connected: false,
            frozen_until: 0,
            waits: None,
            renew_at: 0,
            retry_at: 0,
            is_paused: false,
            parts: NONE,
            shrinks: None,
            is_cut_off: true,
        });
    }

    fn step(&mut self) {
        self.now += STEP;
        self.model.pass(self.now);
        if self.is_faulty {
            self.harm();
        }
        self.arrive();
        for index in 0..self.processes.len() {
            if self.processes[index].frozen_until <= self.now {
                self.drive(index);
            }
        }
        // They leave.
        self.processes.retain(|process| !process.member.is_retired());
        self.look_at_parts();
    }

    /// Together those whom the others know of take no more than the whole.
    fn look_at_parts(&mut self) {
        let living = self.model.read(&self.keys.gateways()).entries;
        let mut all = 0.0;
        for process in &mut self.processes {
            let holder = (process.gateway, process.run);
            let is_known = living.iter().any(|entry| self.holders[&entry.lease] == holder);
            process.is_cut_off |= !is_known;
            if process.is_cut_off {
                continue;
            }
            let parts = process.shrinks.map_or(process.parts, |(_, before)| before);
            if parts != NONE {
                all += 1.0 / f64::from(parts);
            }
        }
        assert!(all < 1.000_001, "{all} of a limit");
    }

    fn harm(&mut self) {
        if self.random.one_in(400) && !self.processes.is_empty() {
            // Killed, and started again at once or later.
            let index = self.random.below(self.processes.len());
            let killed = self.processes.swap_remove(index);
            if self.random.chance(50) {
                self.start(killed.gateway);
            }
        }
        if self.random.one_in(300) && !self.processes.is_empty() {
            let index = self.random.below(self.processes.len());
            self.processes[index].frozen_until = self.now + self.random.below(25_000u64);
        }
        if self.random.one_in(300) {
            // Beside one that runs still, as at an upgrade, or the only one.
            let gateway = self.random.below(self.gateways.len());
            let beside = self.processes.iter().filter(|process| process.gateway == gateway);
            if beside.count() < 2 {
                self.start(gateway);
            }
        }
    }

    /// Requests that reach the store.
    fn arrive(&mut self) {
        let now = self.now;
        let (here, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|sent| sent.arrives <= now);
        self.sent = later;
        for sent in here {
            let answer = self.serve(&sent);
            if let Some(answered) = sent.answered {
                self.answers.push((sent.call, answered, answer));
            }
        }
    }

    fn serve(&mut self, sent: &Sent) -> StoreAnswer {
        match &sent.request {
            Request::Read(range) => {
                let found = self.model.read(range);
                let about = first_about(&found);
                StoreAnswer::Read(found.into(), about)
            }
            Request::Grant => {
                let lease = self.model.grant(LEASE, self.now);
                self.holders.insert(lease, sent.by);
                StoreAnswer::Grant(lease)
            }
            Request::Renew(lease) => StoreAnswer::Renew(self.model.renew(*lease, self.now)),
            Request::Write(transaction) => StoreAnswer::Write(self.write(transaction)),
        }
    }

    fn write(&mut self, transaction: &Transaction) -> Outcome {
        let takes_room = transaction.ops.iter().any(|op| matches!(op, Op::Put(..)));
        let no_space = || Outcome::Unknown("etcdserver: mvcc: database space exceeded".to_owned());
        if takes_room && self.now < self.full_until {
            return no_space();
        }
        if !self.model.change(transaction) {
            return Outcome::NotMade;
        }
        self.look_at_commit(transaction);
        self.look_at_pause(transaction);
        // The larger ones fill it: a commit has the whole text twice.
        let is_commit = transaction.ops.len() > 1;
        if self.is_faulty && takes_room && self.random.one_in(if is_commit { 10 } else { 300 }) {
            self.full_until = self.now + self.random.below(12_000u64);
            let word = if is_commit { "fills as commit" } else { "fills" };
            *self.ends.entry(word).or_default() += 1;
            return no_space();
        }
        Outcome::Made(self.model.revision())
    }

    /// What a commit has to be like.
    fn look_at_commit(&mut self, transaction: &Transaction) {
        let put = |wanted: &str| {
            transaction.ops.iter().find_map(|op| match op {
                Op::Put(key, value, _) if key == wanted => Some(value.clone()),
                _ => None,
            })
        };
        let Some(text) = put(&self.keys.config()) else {
            return;
        };
        let revision = self.committed.len() as u64 + 1;
        let about = put(&self.keys.about(revision)).expect("a commit in the line of all");
        let about: About = serde_json::from_slice(&about).unwrap();
        assert_eq!(about.revision, revision);
        assert!(!self.never.contains(&about.id), "{} has ended already", about.id);
        for entry in self.model.read(&self.keys.gateways()).entries {
            let (gateway, run) = self.holders[&entry.lease];
            assert!(
                self.checked.contains(&(about.id.clone(), gateway, run)),
                "g{gateway} lives (run {run}) and has not checked {}",
                about.id
            );
        }
        self.committed
            .push((about.id, String::from_utf8(text).unwrap().into()));
    }

    /// A pause that counts for good is one of all who live.
    fn look_at_pause(&self, transaction: &Transaction) {
        let pause = self.keys.pause("c");
        let counts = |op: &Op| matches!(op, Op::Put(key, _, 0) if *key == pause);
        if !transaction.ops.iter().any(counts) {
            return;
        }
        for entry in self.model.read(&self.keys.gateways()).entries {
            let holder = self.holders[&entry.lease];
            let mut processes = self.processes.iter();
            let process = processes.find(|process| (process.gateway, process.run) == holder);
            // Of one that was killed the lease goes on.
            let is_paused = process.is_none_or(|process| process.is_paused);
            assert!(
                is_paused,
                "g{} (run {}) lives and has not paused",
                holder.0, holder.1
            );
        }
    }

    fn send(&mut self, index: usize, waits: Waits, request: Request) {
        self.calls += 1;
        let (is_lost, is_answer_lost, delay, back) = match self.is_faulty {
            true => (
                self.random.chance(3),
                self.random.chance(3),
                match self.random.chance(3) {
                    true => self.random.below(8_000u64),
                    false => self.random.below(60u64),
                },
                self.random.below(60u64),
            ),
            false => (false, false, self.random.below(40u64), self.random.below(40u64)),
        };
        let process = &mut self.processes[index];
        process.waits = Some((self.calls, waits, self.now + ANSWER_LIMIT));
        if !is_lost {
            let arrives = self.now + delay;
            self.sent.push(Sent {
                call: self.calls,
                arrives,
                request,
                by: (process.gateway, process.run),
                answered: (!is_answer_lost).then_some(arrives + back),
            });
        }
    }

    fn drive(&mut self, index: usize) {
        let now = self.now;
        if let Some((call, waits, until)) = self.processes[index].waits.clone() {
            let answer = self
                .answers
                .iter()
                .position(|(of, at, _)| *of == call && *at <= now && *at <= until);
            match answer {
                Some(at) => {
                    let (_, _, answer) = self.answers.swap_remove(at);
                    self.processes[index].waits = None;
                    self.answered(index, &waits, answer);
                }
                None if now > until => {
                    let process = &mut self.processes[index];
                    process.waits = None;
                    match waits {
                        Waits::Write => process.member.written(&Outcome::Unknown("no answer".to_owned())),
                        _ => self.lose(index),
                    }
                }
                None => {}
            }
            self.conclude(index);
            return;
        }
        if !self.processes[index].is_connected {
            let process = &mut self.processes[index];
            let retry_at = process.retry_at;
            if let Some(Action::Share(parts)) = process.member.offline(millis(now), "does not answer") {
                self.share(index, parts);
                self.processes[index].is_cut_off = true;
            }
            if now >= retry_at {
                let live = self.keys.live();
                self.send(index, Waits::Look, Request::Read(live));
            }
            self.conclude(index);
            return;
        }
        self.watch(index);
        self.order(index);
        self.wish(index);
        self.kill(index);
        let process = &mut self.processes[index];
        if let Some(lease) = process.member.lease().filter(|_| now >= process.renew_at) {
            self.send(index, Waits::Renew, Request::Renew(lease));
            return;
        }
        if process.shrinks.is_some_and(|(until, _)| now >= until) {
            process.shrinks = None;
        }
        if process.member.asks_whether_within() && process.shrinks.is_none() {
            process.member.is_within();
        }
        let action = process.member.next(&process.view, millis(now));
        self.conclude(index);
        if let Some(action) = action {
            self.act(index, action);
        }
    }

    fn lose(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.is_connected = false;
        process.retry_at = self.now + self.random.below(3_000u64);
    }

    fn answered(&mut self, index: usize, waits: &Waits, answer: StoreAnswer) {
        let process = &mut self.processes[index];
        match (waits, answer) {
            (Waits::Look, StoreAnswer::Read(view, _)) => {
                process.view = view;
                process.is_connected = true;
                process.member.seen();
            }
            (Waits::Ask, StoreAnswer::Read(_, about)) => process.member.told_about(about),
            (Waits::Grant, StoreAnswer::Grant(lease)) => {
                process.member.granted(lease);
                process.renew_at = self.now + LEASE / 3;
            }
            (Waits::Renew, StoreAnswer::Renew(true)) => process.renew_at = self.now + LEASE / 3,
            (Waits::Renew, StoreAnswer::Renew(false)) => process.member.lease_lost(),
            (Waits::Write, StoreAnswer::Write(outcome)) => {
                if outcome == Outcome::NotMade {
                    process.renew_at = 0;
                }
                process.member.written(&outcome);
            }
            _ => unreachable!("an answer to another question"),
        }
    }

    /// Some of what has changed.
    fn watch(&mut self, index: usize) {
        if self.is_faulty && self.random.chance(40) {
            return;
        }
        let behind = self.processes[index].view.revision;
        let changes = self.model.changes(&self.keys.live(), behind);
        let Some(mut changes) = changes.filter(|_| !self.is_faulty || !self.random.one_in(500)) else {
            return self.lose(index);
        };
        let at = |change: &Change| match change {
            Change::Put(entry) => entry.modified,
            Change::Deleted { modified, .. } => *modified,
        };
        if let Some(last) = changes.iter().map(at).max().filter(|_| self.random.chance(30)) {
            let some = behind + self.random.below(u64::try_from(last - behind + 1).unwrap()) as i64;
            changes.retain(|change| at(change) <= some);
        }
        self.processes[index].view.take(changes);
    }

    fn order(&mut self, index: usize) {
        let often = if self.is_faulty { 60 } else { 2_000 };
        if !self.processes[index].member.is_idle() || !self.random.one_in(often) {
            return;
        }
        self.texts += 1;
        let id = format!("o{}", self.texts);
        // Some cannot be run by one of them.
        let bad = match self.random.chance(15) {
            true => format!("bad for g{}", self.random.below(self.gateways.len())),
            false => String::new(),
        };
        let text = match self.committed.last().filter(|_| self.random.chance(5)) {
            Some((_, text)) => text.to_string(),
            None => format!("text {} {bad}", self.texts),
        };
        let last = self.committed.len() as u64;
        let expect = match self.random.below(3) {
            0 => Some(self.random.below(last + 1)),
            1 => Some(last),
            _ => None,
        };
        let mut order = Order::new(id, text, expect, About::default(), Duration::ZERO);
        order.begin(millis(self.now));
        self.processes[index].member.take_order(order);
    }

    fn wish(&mut self, index: usize) {
        let member = &mut self.processes[index].member;
        if !self.is_faulty || !member.is_content() || !self.random.one_in(100) {
            return;
        }
        self.texts += 1;
        let deed = match self.random.chance(80) {
            true => Deed::Pause {
                cluster: "c".to_owned(),
            },
            false => Deed::Drain {
                cluster: "c".to_owned(),
                server: "s/1".to_owned(),
                end_after: None,
            },
        };
        let mut wish = Wish::new(format!("w{}", self.texts), deed, self.random.chance(50));
        wish.begin(millis(self.now) + deed::PATIENCE);
        member.take_wish(wish);
    }

    /// Each has an id of its own, of a number that some gateway may have.
    fn kill(&mut self, index: usize) {
        if self.is_faulty && self.random.one_in(400) {
            self.processes[index].member.kills.keep(|_| false);
        }
        if !self.random.one_in(if self.is_faulty { 100 } else { 1_000 }) {
            return;
        }
        self.calls += 1;
        let number = self.random.below(6u32);
        let kill = Kill {
            id: 1 << 30 | number << 24 | u32::try_from(self.calls).unwrap(),
            query_only: true,
            by: None,
        };
        let id = format!("k{}", self.calls);
        let ends = millis(self.now) + kill::PATIENCE;
        self.processes[index].member.kills.ask(id, kill, ends);
    }

    fn conclude(&mut self, index: usize) {
        while let Some((id, answer)) = self.processes[index].member.kills.finished() {
            let call: u32 = id[1..].parse().unwrap();
            let is_done = self.kills.iter().any(|kill| kill & 0xff_ffff == call);
            let word = match &answer {
                Ok(()) => "killed",
                Err(NotKilled::Unknown(_)) => "not there",
                Err(NotKilled::Failed(why)) if why.contains("not known") => "kill in doubt",
                Err(NotKilled::Failed(why)) if why.contains("any more") => "kill withdrawn",
                Err(_) => "kill failed",
            };
            assert!(is_done || word != "killed", "{id} was not ended");
            if !["killed", "kill in doubt"].contains(&word) {
                assert!(!is_done, "{id} was ended: {answer:?}");
                self.never_killed.insert(call);
            }
            *self.ends.entry(word).or_default() += 1;
        }
        if let Some((_, fate)) = self.processes[index].member.fulfilled() {
            let word = match fate {
                Fate::Done => "done",
                Fate::Refused { .. } => "undone",
                _ => "wish failed",
            };
            *self.ends.entry(word).or_default() += 1;
        }
        let Some((id, fate)) = self.processes[index].member.finished() else {
            return;
        };
        let is_committed = self.committed.iter().any(|(of, _)| *of == id);
        let word = match &fate {
            Fate::Committed { revision } => {
                let (of, _) = &self.committed[usize::try_from(*revision - 1).unwrap()];
                assert_eq!(*of, id, "committed as revision {revision}");
                "committed"
            }
            Fate::Unknown { .. } => "unknown",
            other => {
                assert!(!is_committed, "{id}: {other:?}, and it was committed");
                self.never.insert(id);
                match other {
                    Fate::Unchanged { .. } => "unchanged",
                    Fate::Conflict { .. } => "conflict",
                    Fate::Refused { by } => {
                        assert!(!by.is_empty());
                        "refused"
                    }
                    _ => "failed",
                }
            }
        };
        *self.ends.entry(word).or_default() += 1;
    }

    fn act(&mut self, index: usize, action: Action) {
        match action {
            Action::Look => {
                let live = self.keys.live();
                self.send(index, Waits::Look, Request::Read(live));
            }
            Action::Grant => self.send(index, Waits::Grant, Request::Grant),
            Action::Write(transaction) => self.send(index, Waits::Write, Request::Write(transaction)),
            Action::Ask(revision) => {
                let range = Range::of(&self.keys.about(revision));
                self.send(index, Waits::Ask, Request::Read(range));
            }
            Action::Check { proposal, text } => {
                let process = &mut self.processes[index];
                let bad = format!("bad for g{}", process.gateway);
                let problem = text.contains(&bad).then(|| "it is bad".to_owned());
                if problem.is_none() {
                    self.checked
                        .insert((proposal.clone(), process.gateway, process.run));
                }
                process.member.checked(proposal, problem);
            }
            Action::Apply { revision, text } => self.apply(index, revision, text),
            Action::Refuse { .. } => unreachable!("all that is written here are texts"),
            Action::Do { key, deed, asked } => {
                let is_done = !(self.is_faulty && self.random.one_in(4));
                let process = &mut self.processes[index];
                process.is_paused |= is_done && matches!(deed, Deed::Pause { .. });
                let problem = (!is_done).then(|| "not now".to_owned());
                process.member.did(key, deed, asked, problem, millis(self.now));
            }
            Action::Share(parts) => self.share(index, parts),
            Action::Kill { key, kill } => {
                let call = kill.id & 0xff_ffff;
                assert!(
                    !self.never_killed.contains(&call),
                    "k{call} is ended all the same"
                );
                assert!(
                    self.kills.insert(kill.id),
                    "{} is ended for the second time",
                    kill.id
                );
                self.processes[index].member.kills.answered(&key, Ok(()));
            }
            Action::Undo { key, deed } => {
                let is_done = !(self.is_faulty && self.random.one_in(4));
                let process = &mut self.processes[index];
                process.is_paused &= !(is_done && matches!(deed, Deed::Pause { .. }));
                let problem = (!is_done).then(|| "not now".to_owned());
                process.member.undid(&key, problem, millis(self.now));
            }
        }
    }

    fn share(&mut self, index: usize, parts: u32) {
        let now = self.now;
        let is_done = !(self.is_faulty && self.random.one_in(10));
        let lasts = self.random.below(3_000u64);
        let process = &mut self.processes[index];
        process.member.took(parts, is_done, millis(now));
        if !is_done {
            return;
        }
        match parts < process.parts {
            // The others have left room for it.
            true => process.is_cut_off = false,
            false if process.shrinks.is_none() => process.shrinks = Some((now + lasts, process.parts)),
            false => {}
        }
        process.parts = parts;
        self.gateways[process.gateway].parts = Some(parts);
        *self.ends.entry("shared").or_default() += 1;
    }

    fn apply(&mut self, index: usize, revision: u64, text: Arc<str>) {
        let committed = &self.committed[usize::try_from(revision - 1).unwrap()].1;
        assert_eq!(
            *committed, text,
            "revision {revision} is run, and was not committed"
        );
        let process = &mut self.processes[index];
        let problem = (self.is_faulty && self.random.one_in(20)).then(|| "a file is gone".to_owned());
        if problem.is_none() {
            self.gateways[process.gateway].disk = Some((revision, Arc::clone(&text)));
        }
        let config = process.view.config(&self.keys).1;
        let modified = config.map_or(0, |entry| entry.modified);
        process
            .member
            .applied(revision, text, problem, modified, millis(self.now));
    }

    /// Nothing fails any more, and nobody wants anything: all are on the same.
    fn settle(&mut self) {
        self.is_faulty = false;
        self.full_until = 0;
        // One that finds that another process of its gateway has come after it leaves, also where that was
        // killed: then it is started again.
        for steps in [SOUND / 3, SOUND - SOUND / 3] {
            for gateway in 0..self.gateways.len() {
                if !self.processes.iter().any(|process| process.gateway == gateway) {
                    self.start(gateway);
                }
            }
            (0..steps).for_each(|_| self.step());
        }
        // Orders of the last seconds may be under way.
        let last = self.committed.len() as u64;
        for process in &self.processes {
            let name = format!("g{}", process.gateway);
            let mut others = self
                .processes
                .iter()
                .filter(|other| other.gateway == process.gateway);
            assert!(
                others.all(|other| other.run == process.run),
                "{name}: an old process goes on"
            );
            let running = process.member.running().map_or(0, |(revision, _)| *revision);
            assert!(
                running + 1 >= last,
                "{name} runs {running}, and {last} is committed"
            );
            let pause = self.model.read(&Range::of(&self.keys.pause("c"))).entries;
            let is_for_good = pause.iter().any(|entry| entry.lease == 0);
            assert_eq!(process.is_paused, is_for_good, "{name} is paused as all are");
            assert_eq!(process.parts as usize, self.gateways.len(), "{name} has its part");
            let number = process.member.number().expect("a number");
            let holder = process.view.holder(&self.keys, number);
            assert_eq!(holder, Some(name.as_str()), "its number is its own");
            let own = process.view.get(&self.keys.gateway(&name));
            assert_eq!(own.map(|entry| entry.lease), process.member.lease(), "{name}");
        }
    }
}

#[test]
fn whatever_fails_all_run_what_was_committed_and_nothing_else() {
    let history = |seed| {
        let mut world = World::new(seed);
        (0..FAULTY).for_each(|_| world.step());
        world.settle();
        world.ends
    };
    let wanted = [
        "committed",
        "conflict",
        "refused",
        "fills as commit",
        "unchanged",
        "failed",
        "done",
        "undone",
        "shared",
        "killed",
        "not there",
        "kill failed",
        "kill in doubt",
        "kill withdrawn",
    ];
    histories::run(("FOREBAY_FLEET_STEPS", 150_000), FAULTY + SOUND, history, &wanted);
}
