//! Gateways, their kernels and a store: processes are stopped, killed and replaced, questions and answers are
//! lost or come late, no two clocks run alike, kernels are late. No two kernels ever have the address.
//!
//! `FOREBAY_VIP_STEPS` is how many steps all histories have together, `FOREBAY_SEED` repeats one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use inputs::Random;
use upstream::etcd::{Entry, Outcome, Range};

use crate::claim::{Act, Ask, Claim, LEASE, Standing};
use crate::histories;
use crate::model::Model;

const KEY: &str = "/forebay/main/vip/10.0.0.9";

/// Milliseconds.
const STEP: u64 = 10;
const ANSWER_LIMIT: u64 = 800;
/// How late a kernel is at most.
const LATE: u64 = 1000;

/// Steps of one history with faults, and then without.
const FAULTY: u64 = 8_000;
const SOUND: u64 = 2_000;

struct Process {
    gateway: usize,
    claim: Claim,
    /// Does nothing until then.
    frozen_until: u64,
    /// What it was stopped in the middle of.
    pending: Option<Act>,
    asked: Option<Asked>,
    /// What its watch has still to tell, and what it has looked at last.
    news: VecDeque<(u64, Option<Entry>, i64)>,
    watched: i64,
    is_ready: bool,
    is_linked: bool,
}

struct Asked {
    ask: Ask,
    /// When it is there; never.
    arrives: Option<u64>,
    answer: Option<(Option<u64>, ClaimAnswer)>,
    given_up: u64,
}

#[derive(Clone)]
enum ClaimAnswer {
    Key(Option<Entry>, i64),
    Granted(i64),
    Wrote(Option<i64>),
    Renewed(bool),
    Revoked,
}

struct Clock {
    ahead: f64,
    pace: f64,
}

struct World {
    random: Random,
    now: u64,
    model: Model,
    clocks: Vec<Clock>,
    /// When each takes the address off by itself.
    kernels: Vec<Option<u64>>,
    processes: Vec<Process>,
    cut_off_until: Vec<u64>,
    restarts: Vec<(u64, usize)>,
    strays: Vec<(u64, Ask)>,
    is_faulty: bool,
    ends: BTreeMap<&'static str, u64>,
}

fn name(gateway: usize) -> String {
    format!("g{gateway}")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let gateways = random.between(2, 4);
        let clock = |random: &mut Random| Clock {
            ahead: random.below(1_000_000) as f64 / 10.0,
            pace: 1.0 + (random.below(1000) as f64 - 500.0) / 1e6,
        };
        let mut world = Self {
            now: 0,
            model: Model::default(),
            clocks: (0..gateways).map(|_| clock(&mut random)).collect(),
            kernels: vec![None; gateways],
            processes: Vec::new(),
            cut_off_until: vec![0; gateways],
            restarts: Vec::new(),
            strays: Vec::new(),
            is_faulty: true,
            ends: BTreeMap::new(),
            random,
        };
        (0..gateways).for_each(|gateway| world.start(gateway, false));
        world
    }

    fn start(&mut self, gateway: usize, takes_over: bool) {
        let priority = self.random.pick(&[0, 100, 255]);
        self.processes.push(Process {
            gateway,
            claim: Claim::new(KEY.to_owned(), name(gateway), priority, !takes_over),
            frozen_until: 0,
            pending: None,
            asked: None,
            news: VecDeque::new(),
            watched: i64::MAX,
            is_ready: true,
            is_linked: true,
        });
    }

    fn count(&mut self, what: &'static str) {
        *self.ends.entry(what).or_default() += 1;
    }

    fn clock(&self, gateway: usize) -> Duration {
        let clock = &self.clocks[gateway];
        Duration::from_secs_f64(clock.ahead + self.now as f64 / 1000.0 * clock.pace)
    }

    fn step(&mut self) {
        self.now += STEP;
        self.model.pass(self.now);
        for kernel in &mut self.kernels {
            kernel.take_if(|end| *end <= self.now);
        }
        if self.is_faulty {
            self.harm();
        }
        while let Some(place) = self.restarts.iter().position(|(at, _)| *at <= self.now) {
            let (_, gateway) = self.restarts.remove(place);
            self.start(gateway, false);
        }
        while let Some(place) = self.strays.iter().position(|(at, _)| *at <= self.now) {
            let (_, ask) = self.strays.remove(place);
            self.count("strayed");
            self.serve(&ask);
        }
        for index in 0..self.processes.len() {
            self.travel(index);
            if self.processes[index].frozen_until <= self.now {
                self.drive(index);
            }
        }
        self.processes.retain(|process| !process.claim.has_left());
        let holders: Vec<_> = (0..self.kernels.len())
            .filter(|gateway| self.kernels[*gateway].is_some())
            .collect();
        assert!(
            holders.len() <= 1,
            "at {} ms all of {holders:?} have it",
            self.now
        );
    }

    fn harm(&mut self) {
        for index in 0..self.processes.len() {
            let gateway = self.processes[index].gateway;
            match self.random.below(1000) {
                0 => {
                    self.count("stopped");
                    self.processes[index].frozen_until = self.now + self.random.below(12_000_u64);
                }
                1..=3 => self.processes[index].is_ready ^= true,
                4 => self.processes[index].is_linked ^= true,
                5 => self.cut_off_until[gateway] = self.now + self.random.below(10_000_u64),
                _ => {}
            }
            let process = &mut self.processes[index];
            if !(process.is_ready && process.is_linked) && self.random.one_in(200) {
                (process.is_ready, process.is_linked) = (true, true);
            }
        }
        if self.random.one_in(800) {
            let index = self.random.below(self.processes.len().max(1));
            if index < self.processes.len() {
                self.count("killed");
                let process = self.processes.remove(index);
                let at = self.now + self.random.below(4_000_u64);
                if !self
                    .processes
                    .iter()
                    .any(|other| other.gateway == process.gateway)
                {
                    self.restarts.push((at, process.gateway));
                }
            }
        }
        if self.random.one_in(1000) && !self.processes.is_empty() {
            let index = self.random.below(self.processes.len());
            let gateway = self.processes[index].gateway;
            let is_alone = self
                .processes
                .iter()
                .filter(|other| other.gateway == gateway)
                .count()
                == 1;
            if is_alone && self.processes[index].frozen_until <= self.now {
                self.count("replaced");
                self.processes[index].claim.leave(Some(&name(gateway)));
                self.start(gateway, true);
            }
        }
    }

    fn delay(&mut self) -> Option<u64> {
        match self.random.below(100) {
            _ if !self.is_faulty => Some(self.random.below(5)),
            0..3 => None,
            3..10 => Some(self.random.below(1500)),
            _ => Some(self.random.below(20)),
        }
    }

    /// Its question reaches the store, and its watch hears.
    fn travel(&mut self, index: usize) {
        let gateway = self.processes[index].gateway;
        if self.cut_off_until[gateway] > self.now {
            return;
        }
        let is_there =
            |asked: &Asked| asked.answer.is_none() && asked.arrives.is_some_and(|at| at <= self.now);
        if let Some(ask) = self.processes[index]
            .asked
            .as_ref()
            .filter(|asked| is_there(asked))
        {
            let ask = ask.ask.clone();
            let answer = self.serve(&ask);
            let back = self.delay().map(|delay| self.now + delay);
            if let Some(asked) = &mut self.processes[index].asked {
                asked.answer = Some((back, answer));
            }
        }
        let revision = self.model.revision();
        if self.processes[index].watched < revision {
            let delay = self.delay();
            let entry = self.entry();
            let process = &mut self.processes[index];
            process.watched = revision;
            let last = process.news.back().map_or(0, |(at, ..)| *at);
            match delay {
                Some(delay) => process
                    .news
                    .push_back((last.max(self.now + delay), entry, revision)),
                // It hears nothing any more.
                None => process.watched = i64::MAX,
            }
        }
    }

    fn entry(&self) -> Option<Entry> {
        self.model.read(&Range::of(KEY)).entries.into_iter().next()
    }

    fn serve(&mut self, ask: &Ask) -> ClaimAnswer {
        match ask {
            Ask::Look => ClaimAnswer::Key(self.entry(), self.model.revision()),
            Ask::Grant => {
                let lasts = u64::try_from(LEASE.as_millis()).unwrap();
                ClaimAnswer::Granted(self.model.grant(lasts, self.now))
            }
            Ask::Write(transaction) => {
                let made = self.model.change(transaction);
                ClaimAnswer::Wrote(made.then(|| self.model.revision()))
            }
            Ask::Renew(lease) => ClaimAnswer::Renewed(self.model.renew(*lease, self.now)),
            Ask::Revoke(lease) => {
                self.model.end(*lease);
                ClaimAnswer::Revoked
            }
        }
    }

    fn drive(&mut self, index: usize) {
        let now = self.clock(self.processes[index].gateway);
        self.hear(index, now);
        let process = &mut self.processes[index];
        let or = |is_so: bool, why: &str| is_so.then_some(()).ok_or(why.to_owned());
        let ready = or(process.is_ready, "no server");
        let link = or(process.is_linked, "down");
        process.claim.is_fit(ready, link, now);
        // What it was about to do it does, whatever the time is now. That it is stopped once more before it
        // has looked at the clock cannot be helped: then two have it for a moment.
        let pending = self.processes[index].pending.take();
        let may_stop = self.is_faulty && pending.is_none();
        if let Some(act) = pending {
            self.act(index, act);
        }
        for _ in 0..8 {
            let Some(act) = self.processes[index].claim.act(now) else {
                break;
            };
            if may_stop && self.random.one_in(60) {
                self.count("stopped within");
                let process = &mut self.processes[index];
                process.pending = Some(act);
                process.frozen_until = self.now + self.random.below(8_000_u64);
                return;
            }
            self.act(index, act);
        }
        let process = &mut self.processes[index];
        if process.asked.is_none()
            && let Some(ask) = process.claim.ask(now)
        {
            let arrives = self.delay().map(|delay| self.now + delay);
            self.processes[index].asked = Some(Asked {
                ask,
                arrives,
                answer: None,
                given_up: self.now + ANSWER_LIMIT,
            });
        }
    }

    fn hear(&mut self, index: usize, now: Duration) {
        let (at, process) = (self.now, &mut self.processes[index]);
        while process.news.front().is_some_and(|(arrives, ..)| *arrives <= at) {
            if let Some((_, entry, revision)) = process.news.pop_front() {
                process.claim.looked(entry.as_ref(), revision, now);
            }
        }
        let Some(asked) = &process.asked else { return };
        let answer = asked
            .answer
            .as_ref()
            .filter(|(back, _)| back.is_some_and(|back| back <= at));
        let answer = answer.map(|(_, answer)| answer.clone());
        if answer.is_none() && asked.given_up > at {
            return;
        }
        let is_write = matches!(asked.ask, Ask::Write(_));
        // One that was given up may still come to the store.
        if let Some(Asked {
            ask,
            arrives: Some(arrives),
            answer: None,
            ..
        }) = process.asked.take()
        {
            self.strays.push((arrives, ask));
        }
        match answer {
            Some(ClaimAnswer::Key(entry, revision)) => {
                process.claim.looked(entry.as_ref(), revision, now);
                process.watched = revision;
                process.news.clear();
            }
            Some(ClaimAnswer::Granted(lease)) => process.claim.granted(lease),
            Some(ClaimAnswer::Wrote(Some(revision))) => process.claim.wrote(&Outcome::Made(revision), now),
            Some(ClaimAnswer::Wrote(None)) => process.claim.wrote(&Outcome::NotMade, now),
            Some(ClaimAnswer::Renewed(is_so)) => process.claim.renewed(is_so),
            Some(ClaimAnswer::Revoked) => process.claim.revoked(),
            None if is_write => process
                .claim
                .wrote(&Outcome::Unknown("no answer".to_owned()), now),
            None => process.claim.failed("no answer", now),
        }
    }

    fn act(&mut self, index: usize, act: Act) {
        let gateway = self.processes[index].gateway;
        match act {
            Act::Lend(seconds) => {
                if self.kernels[gateway].is_none() {
                    self.count("bound");
                }
                let late = if self.is_faulty {
                    self.random.pick(&[0, LATE])
                } else {
                    0
                };
                self.kernels[gateway] = Some(self.now + u64::from(seconds) * 1000 + late);
            }
            Act::Remove => self.kernels[gateway] = None,
            Act::Probe | Act::Announce => {}
        }
        let now = self.clock(gateway);
        self.processes[index].claim.acted(act, Ok(()), now);
    }

    /// Nothing fails any more: one has it, and keeps it.
    fn settle(&mut self) {
        self.is_faulty = false;
        self.cut_off_until.fill(0);
        for gateway in 0..self.kernels.len() {
            let is_there = |process: &Process| process.gateway == gateway && !process.claim.leaves();
            if !self.processes.iter().any(is_there) {
                self.start(gateway, false);
            }
        }
        self.restarts.clear();
        for process in &mut self.processes {
            (process.is_ready, process.is_linked, process.frozen_until) = (true, true, 0);
        }
        (0..SOUND).for_each(|_| self.step());
        let holds = |process: &Process| process.claim.standing() == Standing::Holds;
        let holders: Vec<_> = self.processes.iter().filter(|process| holds(process)).collect();
        assert_eq!(holders.len(), 1, "one has it");
        let holder = holders[0].gateway;
        assert!(self.kernels[holder].is_some(), "and so has its kernel");
        for process in &self.processes {
            assert_eq!(process.claim.holder(), Some(&*name(holder)), "all know who");
        }
    }
}

#[test]
fn whatever_fails_no_two_have_the_address() {
    let history = |seed| {
        let mut world = World::new(seed);
        (0..FAULTY).for_each(|_| world.step());
        world.settle();
        world.ends
    };
    let wanted = [
        "bound",
        "stopped",
        "stopped within",
        "strayed",
        "killed",
        "replaced",
    ];
    histories::run(("FOREBAY_VIP_STEPS", 1_000_000), FAULTY + SOUND, history, &wanted);
}
