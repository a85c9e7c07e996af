//! Memory: a server is about to run out of it. Its sessions leave before it does, the faster the nearer that
//! is.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::leaving::Leaving;
use super::plan::Plan;
use super::{Factor, Move, Sample};

/// How fast memory fills is judged by samples of this time.
const WINDOW: Duration = Duration::from_secs(60);

/// A shorter time between the first and the last of them says nothing of that.
const SHORTEST: Duration = Duration::from_secs(10);

/// Below this nothing is said of when it will be full: caches fill after a start.
const FILLS_FROM: u32 = 400;

/// A risk is over where the server stays below its bounds by so much, in thousandths.
const BELOW: u32 = 100;

#[derive(Debug, Default)]
pub(super) struct Memory {
    seen: BTreeMap<u32, Seen>,
    leaving: Leaving,
}

#[derive(Debug, Default)]
struct Seen {
    /// The oldest first.
    samples: VecDeque<Sample>,
    risk: Option<Risk>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Risk {
    Some,
    High,
}

impl Risk {
    const ALL: [Self; 2] = [Self::High, Self::Some];

    /// More than so many thousandths are used, or all of it will be in this time.
    const fn bounds(self) -> (u32, Duration) {
        match self {
            Self::High => (750, Duration::from_secs(45)),
            Self::Some => (600, Duration::from_secs(180)),
        }
    }

    /// In this time all sessions leave.
    const fn within(self) -> Duration {
        match self {
            Self::High => Duration::from_secs(10),
            Self::Some => Duration::from_secs(60),
        }
    }
}

impl Memory {
    pub(super) fn is_moving(&self, now: Duration) -> bool {
        self.leaving.is_moving(now)
    }

    pub(super) fn look(&mut self, now: Duration, untaken: &[Move], plan: &mut Plan) {
        let known = plan
            .servers()
            .filter_map(|(_, server)| Some((server.id, server.memory?)));
        let known: BTreeMap<_, _> = known.collect();
        // What is not known is not a risk.
        self.seen.retain(|id, _| known.contains_key(id));
        for (id, sample) in &known {
            self.seen.entry(*id).or_default().note(*sample);
        }
        let bad = self
            .seen
            .iter()
            .filter_map(|(id, seen)| Some((*id, seen.risk?.within())));
        let mut bad: BTreeMap<_, _> = bad.collect();
        // Where most are short of memory, or most figures are missing, the others would be no better off.
        let all = plan.servers().count();
        if bad.len() * 2 > all || known.len() * 2 < all {
            bad.clear();
        }
        let may = |to: &super::Figures| !to.candidate.backup && to.memory.is_some();
        self.leaving.look(now, Factor::Memory, &bad, untaken, may, plan);
    }
}

impl Seen {
    fn note(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| last.at >= sample.at) {
            return;
        }
        self.samples.push_back(sample);
        while self
            .samples
            .front()
            .is_some_and(|first| sample.at - first.at > WINDOW)
        {
            self.samples.pop_front();
        }
        self.risk = Risk::ALL.into_iter().find(|risk| {
            let (used, full_in) = risk.bounds();
            let used = match self.risk >= Some(*risk) {
                true => used - BELOW,
                false => used,
            };
            sample.permille > used || self.full_in().is_some_and(|time| time < full_in)
        });
    }

    /// When all of it will be used, where more and more is.
    fn full_in(&self) -> Option<Duration> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        if last.permille < FILLS_FROM {
            return None;
        }
        let time = last.at.checked_sub(first.at).filter(|time| *time >= SHORTEST)?;
        let more = last
            .permille
            .checked_sub(first.permille)
            .filter(|more| *more > 0)?;
        let left = 1000_u32.saturating_sub(last.permille);
        Some(time * left / more)
    }
}
