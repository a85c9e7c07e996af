//! A primary with writers, its binary log, the feed, workers with readers, and whatever goes wrong, one step
//! after the other as a seed says. The rules and the store are the real ones. Each mutant breaks one
//! decision, and has to be caught.
//!
//! To repeat a failure: `SIMULATOR_SEED=17 cargo test -p cache simulator::readers`; for more runs:
//! `SIMULATOR_RUNS=10000`.

mod feed;
mod readers;
mod servers;
mod verdict;

use std::sync::Arc;

use inputs::{Random, asked};
use mysql_wire::gtid::{Flavor, GtidSet};
use upstream::ReadIndex;

use self::feed::Feed;
use self::readers::{Pending, Read, Worker};
use self::servers::{Server, Timelines};
use super::{Applied, Position};
use crate::store::{MappingId, Mode, Store, Writer};

const T: MappingId = MappingId(0);
/// Each group has two keys, which every transaction changes alike.
const GROUPS: u64 = 3;
const SESSIONS: usize = 3;
const WORKERS: usize = 2;
const STEPS: u64 = 1500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Strong,
    Session,
    Eventual,
}

/// A decision that is made wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// A probe serves reads that arrived while it was under way.
    ProbeServesLateReads,
    /// All requests that came together are served by a probe that was sent when the first of them had come.
    FirstIsWaitedForOnly,
    /// The answer to a probe that another one has overtaken is taken for the other's.
    AnswersMixed,
    /// A strong read does not wait until what the probe said is applied.
    NoWaitForApplied,
    /// Positions of all sources are compared.
    SourcesMixed,
    /// A primary that is one no more may answer a probe.
    FencedPrimaryAnswers,
    /// Rows are kept that the SELECT may have seen before the last events.
    FillOfOldAnswer,
    /// Rows are kept before all that they may show is applied.
    FillOfNewAnswer,
    /// The ticket is made when the answer is there.
    TicketAfterSelect,
    /// The ticket is of a transaction that was not yet part of what the answer is compared with.
    TicketNewerThanApplied,
    /// A strong read shows an answer that is older than what others saw.
    OldAnswerShown,
    /// A session does not wait.
    SessionDoesNotWait,
    /// Rows stay after a failover that lost transactions.
    LostTailKept,
    /// A transaction is committed in two halves.
    HalfCommitted,
    /// What was begun when the stream was cut is committed.
    CutCommits,
    /// What is applied is published before it is committed.
    PublishedBeforeCommit,
    /// The stream begins where the log ends, though a copy may not see all of it.
    CopyFromEndOfLog,
    /// Rows of a copy are served before the stream has passed its end.
    CopyServedAtOnce,
    /// TRUNCATE is not noticed.
    TruncateMissed,
}

const MUTANTS: [Mutant; 19] = [
    Mutant::ProbeServesLateReads,
    Mutant::FirstIsWaitedForOnly,
    Mutant::AnswersMixed,
    Mutant::NoWaitForApplied,
    Mutant::SourcesMixed,
    Mutant::FencedPrimaryAnswers,
    Mutant::FillOfOldAnswer,
    Mutant::FillOfNewAnswer,
    Mutant::TicketAfterSelect,
    Mutant::TicketNewerThanApplied,
    Mutant::OldAnswerShown,
    Mutant::SessionDoesNotWait,
    Mutant::LostTailKept,
    Mutant::HalfCommitted,
    Mutant::CutCommits,
    Mutant::PublishedBeforeCommit,
    Mutant::CopyFromEndOfLog,
    Mutant::CopyServedAtOnce,
    Mutant::TruncateMissed,
];

/// What was found wrong.
type Violation = String;

struct Simulator {
    random: Random,
    mutant: Option<Mutant>,
    mode: Mode,
    now: u64,
    truth: Timelines,
    store: Arc<Store>,
    writer: Writer,
    applied: Arc<Applied>,
    feed: Feed,
    /// Of all workers.
    index: ReadIndex<Position>,
    workers: Vec<Worker>,
    /// What each session was told about its writes.
    sessions: Vec<(usize, GtidSet)>,
    pending: Vec<Pending>,
    /// Commits are slow to become visible.
    slow: bool,
    /// Reads that ended, by level.
    done: [u64; 3],
    kept: u64,
}

impl Simulator {
    fn new(seed: u64, mutant: Option<Mutant>) -> Simulator {
        let (store, writer) = Store::with_seed(2 << 20, seed);
        let nothing = GtidSet::empty(Flavor::MySql);
        let mut simulator = Simulator {
            random: Random::new(seed),
            mutant,
            mode: if seed.is_multiple_of(2) {
                Mode::Whole
            } else {
                Mode::Bounded
            },
            now: 0,
            truth: Timelines::new(),
            applied: Arc::new(Applied {
                version: store.version(),
                position: None,
                gtids: nothing.clone(),
                is_numbered: true,
                numbered_alone: false,
            }),
            store,
            writer,
            feed: Feed::new(),
            index: ReadIndex::default(),
            workers: (0..WORKERS).map(|_| Worker::default()).collect(),
            sessions: (0..SESSIONS).map(|session| (session, nothing.clone())).collect(),
            pending: Vec::new(),
            slow: seed % 4 >= 2,
            done: [0; 3],
            kept: 0,
        };
        simulator.begin_copy();
        simulator
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn primary(&mut self) -> &mut Server {
        self.truth.current()
    }

    fn run(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS {
            self.now += 1;
            self.step()
                .map_err(|wrong| format!("step {}: {wrong}", self.now))?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Violation> {
        match self.random.below(1000) {
            0..60 => self.write(),
            60..140 if self.slow && self.random.below(4) > 0 => {}
            60..140 => self.primary().show(),
            140..200 => self.acknowledge(),
            200..400 => self.deliver(),
            400..410 => self.heartbeat(),
            410..415 => self.cut(),
            415..420 if self.mode == Mode::Bounded || self.random.below(4) == 0 => self.begin_copy(),
            420..423 => self.fail_over(),
            423..440 => self.turn_to_primary(),
            440..455 => self.learn(),
            455..460 => self.give_up(),
            460..540 => self.arrive(),
            540..940 => return self.advance_worker(),
            940..1000 => self.try_fills(),
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self) {
        let (group, session) = (
            self.random.below(GROUPS as usize) as u64,
            self.random.below(SESSIONS),
        );
        let (kind, session) = (self.random.below(40), self.sessions[session].0);
        self.primary().write(group, session, kind);
    }

    /// The client of the next transaction that is visible is told so, with its GTID.
    fn acknowledge(&mut self) {
        let now = self.now;
        if let Some((session, gtid)) = self.primary().acknowledge(now)
            && let Some((_, told)) = self.sessions.iter_mut().find(|(number, _)| *number == session)
        {
            told.merge(&gtid).unwrap();
        }
    }

    /// Another server, which may lack the last transactions, is the primary from now on. The old one takes no
    /// writes any more.
    fn fail_over(&mut self) {
        let lost = match self.random.below(3) {
            0 => self.random.below(6),
            _ => 0,
        };
        self.truth.fail_over(self.now, lost);
    }

    /// A worker hears who the primary is.
    fn learn(&mut self) {
        let (worker, last) = (self.random.below(WORKERS), self.truth.last());
        self.workers[worker].believes = last;
    }

    /// Reads that have waited for long end, and a session, whose writes may be lost for ever.
    fn give_up(&mut self) {
        let oldest = self.now.saturating_sub(200);
        for worker in &mut self.workers {
            worker.reads.retain(|read| read.arrived > oldest);
        }
        let session = self.random.below(SESSIONS);
        let (number, told) = &mut self.sessions[session];
        (*number, *told) = (*number + SESSIONS, GtidSet::empty(Flavor::MySql));
    }

    fn arrive(&mut self) {
        let worker = self.random.below(WORKERS);
        if self.workers[worker].reads.len() > 6 {
            return;
        }
        if self.random.below(4) == 0 {
            let mut reads = self.workers[worker].reads.iter_mut();
            if let Some(first) = reads.find(|read| read.level == Level::Strong && read.behind.is_none()) {
                first.behind = Some(self.now);
                return;
            }
        }
        let level = [Level::Strong, Level::Strong, Level::Session, Level::Eventual][self.random.below(4)];
        let session = self.random.below(SESSIONS);
        let read = Read {
            level,
            session: self.sessions[session].0,
            group: self.random.below(GROUPS as usize) as u64,
            arrived: self.now,
            arrival: self.index.arrive(),
            wants: self.sessions[session].1.clone(),
            fetch: None,
            behind: None,
        };
        self.workers[worker].reads.push(read);
    }
}

/// Runs seeds until one shows a violation.
fn search(mutant: Option<Mutant>, seeds: std::ops::Range<u64>) -> Option<(u64, Violation)> {
    seeds
        .into_iter()
        .find_map(|seed| Some((seed, Simulator::new(seed, mutant).run().err()?)))
}

#[test]
fn readers_see_what_their_level_promises() {
    let one = asked("SIMULATOR_SEED");
    let seeds = one.map_or(0..asked("SIMULATOR_RUNS").unwrap_or(300), |seed| seed..seed + 1);
    let (mut done, mut kept) = ([0; 3], 0);
    for seed in seeds {
        let mut simulator = Simulator::new(seed, None);
        if let Err(wrong) = simulator.run() {
            panic!("SIMULATOR_SEED={seed}: {wrong}");
        }
        done.iter_mut()
            .zip(simulator.done)
            .for_each(|(all, these)| *all += these);
        kept += simulator.kept;
    }
    println!("reads at levels strong, session, eventual: {done:?}; fills kept: {kept}");
    assert!(one.is_some() || done.iter().all(|&reads| reads > 3000) && kept > 300);
}

#[test]
fn each_mutant_is_caught() {
    let alive: Vec<Mutant> = MUTANTS
        .into_iter()
        .filter(|&mutant| match search(Some(mutant), 0..6000) {
            Some((seed, wrong)) => {
                println!("{mutant:?}: seed {seed}: {wrong}");
                false
            }
            None => true,
        })
        .collect();
    assert!(alive.is_empty(), "not caught: {alive:?}");
}
