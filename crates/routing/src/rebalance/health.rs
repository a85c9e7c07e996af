//! Health: connections to a server fail, though it is up. All of its sessions leave in a minute.
//!
//! A server is bad from more than half of its attempts on that failed in the last half minute, until fewer
//! than a tenth do. Too few attempts say nothing. Where more than half of the servers look bad it is the
//! gateway's own network: then nobody moves.
//!
//! A server that takes no sessions for a moment keeps what is known of it: each connection that fails has it
//! suspected until its next check.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::leaving::Leaving;
use super::plan::Plan;
use super::{Attempts, Factor, Move};

/// What failed of a server's connections is counted over this time.
const WINDOW: Duration = Duration::from_secs(30);

/// Counts are kept for no shorter steps.
const STEP: Duration = Duration::from_secs(1);

/// Fewer attempts than this say nothing.
const HANDFUL: u64 = 10;

/// In percent: more is bad, and less is good again.
const BAD: u64 = 50;
const GOOD: u64 = 10;

/// All sessions of a bad server leave in this time.
const WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Health {
    seen: BTreeMap<u32, Seen>,
    leaving: Leaving,
}

#[derive(Debug, Default)]
struct Seen {
    /// The counts at former looks, the oldest first.
    counts: VecDeque<(Duration, Attempts)>,
    bad: bool,
}

impl Health {
    pub(super) fn is_moving(&self, now: Duration) -> bool {
        self.leaving.is_moving(now)
    }

    pub(super) fn look(&mut self, now: Duration, untaken: &[Move], plan: &mut Plan) {
        let is_there = |id: u32| plan.all().iter().any(|server| server.id == id);
        self.seen.retain(|id, _| is_there(*id));
        for server in plan.all() {
            let seen = self.seen.entry(server.id).or_default();
            seen.note(now, server.attempts);
        }
        let counts = |(id, seen): &(&u32, &Seen)| seen.bad || plan.find(**id).is_some();
        let counted = self.seen.iter().filter(counts).count();
        let bad = self.seen.iter().filter(|(_, seen)| seen.bad);
        let mut bad: BTreeMap<_, _> = bad.map(|(id, _)| (*id, WITHIN)).collect();
        if bad.len() * 2 > counted {
            bad.clear();
        }
        self.leaving.look(
            now,
            Factor::Health,
            &bad,
            untaken,
            |to| !to.candidate.backup,
            plan,
        );
    }
}

impl Seen {
    fn note(&mut self, now: Duration, attempts: Attempts) {
        while self
            .counts
            .get(1)
            .is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW)
        {
            self.counts.pop_front();
        }
        if self
            .counts
            .back()
            .is_none_or(|(at, _)| now.saturating_sub(*at) >= STEP)
        {
            self.counts.push_back((now, attempts));
        }
        let before = self.counts.front().map_or(attempts, |(_, before)| *before);
        let made = attempts.made.saturating_sub(before.made);
        let failed = attempts.failed.saturating_sub(before.failed);
        let above = |percent: u64| failed * 100 > made * percent;
        self.bad = match self.bad {
            // What nobody tries any more is not known to fail.
            true => above(GOOD),
            false => made >= HANDFUL && above(BAD),
        };
    }
}
