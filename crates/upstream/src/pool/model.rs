//! Workers that share a full server, in time of their own: what becomes of their shares under random loads.
//!
//! Each session thinks, waits for a connection, uses it and gives it back, as [`Pool`](super::Pool) has it
//! done: the [`WaitQueue`] is the real one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use inputs::Random;
use mysql_wire::Capabilities;

use super::Key;
use super::wait_queue::{Free, How, PATIENCE, WaitQueue, Wish};

/// Microseconds.
type Time = u64;

/// A connection is on its way for so long.
const JOURNEY: Time = 50;

/// When shares have found each other.
const WARM: Time = 500_000;

const END: Time = 2_000_000;

/// What the sessions of a worker do.
#[derive(Clone, Copy)]
struct Load {
    sessions: usize,
    /// The usual time between two leases, and that of one.
    think: Time,
    hold: Time,
}

const fn load(sessions: usize, think: Time, hold: Time) -> Load {
    Load {
        sessions,
        think,
        hold,
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wants(usize),
    GivesBack(usize),
    /// A connection has arrived at the worker of this session, which has waited for it.
    Arrives(usize),
    /// A worker looks after its sessions in line.
    Looks(usize),
}

struct Worker {
    /// Since when each of its connections that nobody uses is so.
    idle: Vec<Time>,
    at_once: u32,
    looks: bool,
    load: Load,
}

struct Model {
    wait_queue: WaitQueue,
    key: Key,
    begun: Instant,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    workers: Vec<Worker>,
    /// The worker of each session, and when it began to wait.
    sessions: Vec<(usize, Time)>,
    in_line: HashMap<u64, usize>,
    permits: usize,
    opened: usize,
    random: Random,
    serial: u64,
    // What is seen once shares have found each other.
    waits: Vec<Time>,
    moves: usize,
    least: Vec<u32>,
}

impl Model {
    fn new(permits: usize, loads: &[Load], seed: u64) -> Self {
        let mut model = Self {
            wait_queue: WaitQueue::default(),
            key: Key {
                user: "u".into(),
                account: 0,
                capabilities: Capabilities(0),
                collation: 45,
            },
            begun: Instant::now(),
            now: 0,
            events: BinaryHeap::new(),
            workers: Vec::new(),
            sessions: Vec::new(),
            in_line: HashMap::new(),
            permits,
            opened: 0,
            random: Random::new(seed),
            serial: 0,
            waits: Vec::new(),
            moves: 0,
            least: vec![u32::MAX; loads.len()],
        };
        for (worker, &load) in loads.iter().enumerate() {
            model.workers.push(Worker {
                idle: Vec::new(),
                at_once: 0,
                looks: false,
                load,
            });
            for _ in 0..load.sessions {
                model.sessions.push((worker, 0));
                let begins = model.about(load.think + 1);
                model.after(begins, Event::Wants(model.sessions.len() - 1));
            }
        }
        model
    }

    /// Until `end`.
    fn run(mut self, end: Time) -> Self {
        while let Some(Reverse((now, _, event))) = self.events.pop()
            && now < end
        {
            self.now = now;
            match event {
                Event::Wants(session) => self.wants(session),
                Event::GivesBack(session) => self.gives_back(session),
                Event::Arrives(session) => self.begins(session),
                Event::Looks(worker) => self.looks(worker),
            }
            self.check();
        }
        self
    }

    fn wants(&mut self, session: usize) {
        let worker = self.sessions[session].0;
        self.sessions[session].1 = self.now;
        if self.workers[worker].idle.pop().is_some() {
            self.workers[worker].at_once += 1;
            self.begins(session);
        } else if self.opened < self.permits && !self.wait_queue.wants_permits() {
            self.opened += 1;
            self.wait_queue.note_opened(worker as u64);
            self.begins(session);
        } else {
            let wish = Wish {
                pool: worker as u64,
                key: &self.key,
                since: self.time(),
                until: self.time() + Duration::from_secs(600),
                called: false,
                confined: false,
            };
            let (number, _) = self.wait_queue.join(wish, 10_000).unwrap();
            self.in_line.insert(number, session);
            if !std::mem::replace(&mut self.workers[worker].looks, true) {
                self.after(PATIENCE.as_micros() as Time, Event::Looks(worker));
            }
        }
    }

    fn begins(&mut self, session: usize) {
        let (worker, since) = self.sessions[session];
        if self.now > WARM {
            self.waits.push(self.now - since);
        }
        let holds = self.about(self.workers[worker].load.hold);
        self.after(holds, Event::GivesBack(session));
    }

    fn gives_back(&mut self, session: usize) {
        let worker = self.sessions[session].0;
        if !self.offers(worker, 0) {
            self.workers[worker].idle.push(self.now);
        }
        let thinks = self.about(self.workers[worker].load.think + 1);
        self.after(thinks, Event::Wants(session));
    }

    /// True where somebody has taken it.
    fn offers(&mut self, worker: usize, unused: Time) -> bool {
        let free = Free {
            pool: worker as u64,
            key: &self.key,
            unused: Duration::from_micros(unused),
            at_once: std::mem::take(&mut self.workers[worker].at_once),
            may_end: true,
        };
        if self.wait_queue.is_empty() {
            return false;
        }
        let Some(turn) = self.wait_queue.next_for(free, self.time()) else {
            return false;
        };
        let session = self.in_line.remove(&turn.number).unwrap();
        assert!(turn.how != How::Ends, "there is one key");
        if turn.how == How::Moves {
            self.moves += usize::from(self.now > WARM);
            self.after(JOURNEY, Event::Arrives(session));
        } else {
            self.begins(session);
        }
        true
    }

    fn looks(&mut self, worker: usize) {
        let found = self.wait_queue.look_after(worker as u64, self.time());
        self.workers[worker].looks = self.in_line.values().any(|&one| self.sessions[one].0 == worker);
        if self.workers[worker].looks {
            self.after(PATIENCE.as_micros() as Time, Event::Looks(worker));
        }
        for other in 0..self.workers.len() {
            while found.has_called && !self.workers[other].idle.is_empty() {
                let unused = self.now - self.workers[other].idle[0];
                if !self.offers(other, unused) {
                    break;
                }
                self.workers[other].idle.remove(0);
            }
        }
    }

    fn check(&mut self) {
        let shares: Vec<u32> = (0..self.workers.len())
            .map(|worker| self.wait_queue.share(worker as u64))
            .collect();
        let sum: u32 = shares.iter().sum();
        assert!(
            sum as usize == self.opened && self.opened <= self.permits,
            "{shares:?}"
        );
        if self.now > WARM {
            for (least, share) in self.least.iter_mut().zip(shares) {
                *least = share.min(*least);
            }
        }
    }

    fn time(&self) -> Instant {
        self.begun + Duration::from_micros(self.now)
    }

    fn after(&mut self, delay: Time, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((self.now + delay, self.serial, event)));
    }

    /// Between half of it and one and a half.
    fn about(&mut self, usual: Time) -> Time {
        usual / 2 + self.random.below(usual + 1)
    }

    /// The median wait, and the longest.
    fn waits(&self) -> (Time, Time) {
        let mut all = self.waits.clone();
        all.sort_unstable();
        (all[all.len() / 2], all[all.len() - 1])
    }

    fn moves_a_second(&self) -> usize {
        self.moves * 1_000_000 / (self.now - WARM) as usize
    }

    fn seen(&self) -> String {
        format!(
            "{} permits, {} workers: {} moves a second, least shares {:?}, median and longest wait {:?}",
            self.permits,
            self.workers.len(),
            self.moves_a_second(),
            self.least,
            self.waits()
        )
    }
}

/// Sessions of all workers do the same.
#[test]
fn workers_with_the_same_load_keep_their_shares() {
    for (permits, workers, load) in [
        (8, 2, load(100, 100, 1000)),
        (32, 2, load(100, 100, 4000)),
        (3, 2, load(20, 100, 1000)),
        (2, 2, load(20, 100, 1000)),
        (8, 4, load(20, 100, 1000)),
        (6, 4, load(20, 100, 1000)),
        (32, 16, load(6, 100, 1000)),
        (24, 16, load(12, 100, 1000)),
        (16, 16, load(6, 100, 1000)),
    ] {
        let model = Model::new(permits, &vec![load; workers], 1).run(END);
        let seen = model.seen();
        let least = (permits / workers / 2).max(1) as u32;
        assert!(model.least.iter().all(|share| *share >= least), "{seen}");
        assert!(model.moves_a_second() <= 1, "{seen}");
        let (median, longest) = model.waits();
        assert!(longest <= 3 * median, "{seen}");
    }
}

#[test]
fn connections_go_round_where_there_are_fewer_than_workers() {
    for (permits, workers) in [(1, 2), (3, 4), (8, 16)] {
        let model = Model::new(permits, &vec![load(6, 100, 1000); workers], 1).run(END);
        let seen = model.seen();
        let (median, longest) = model.waits();
        assert!(longest <= 3 * median, "{seen}");
        // Not with every lease, of which there are so many thousand a second.
        assert!(model.moves_a_second() < 200 * permits, "{seen}");
    }
}

#[test]
fn nobody_starves_whatever_the_loads() {
    for seed in 1..=9_u64 {
        let mut random = Random::new(seed);
        let workers = [2, 4, 16][seed as usize % 3];
        let permits = 1 + random.below(32);
        let loads: Vec<Load> = (0..workers)
            .map(|_| {
                load(
                    random.below(40) as usize,
                    random.below(5000),
                    200 + random.below(2000),
                )
            })
            .collect();
        let model = Model::new(permits as usize, &loads, random.number()).run(END);
        let seen = model.seen();
        let (median, longest) = model.waits();
        assert!(longest <= 3 * median + 20_000, "{seen}");
        assert!(model.moves_a_second() <= 500, "{seen}");
    }
}
