//! CPU: a server computes more than another, and for a while.
//!
//! Figures are averaged, the latest counting half, and count in steps: what differs by less is noise. A
//! server gives to one with less by a fifth, also with one more session. A 600th of the difference moves in a
//! second, since the figures follow slowly.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pace::Pace;
use super::plan::Plan;
use super::{Factor, Figures, Move, Sample};

/// Thousandths of a server's processors.
const STEP: u32 = 50;

/// Servers that differ by fewer steps are even.
const STEPS: u32 = 2;

/// It gives where it has more than another by this, in percent.
const RATIO: u32 = 120;

/// In this time all of a difference moves.
const WITHIN: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Cpu {
    /// Averages in thousandths, with the time of the latest figure.
    seen: BTreeMap<u32, Sample>,
    /// The server that gives.
    giving: Option<(u32, Pace)>,
    asked: u32,
    /// Nobody could leave it: it is not tried before that.
    held: BTreeMap<u32, Duration>,
    taken: Duration,
}

impl Cpu {
    pub(super) fn is_moving(&self) -> bool {
        self.asked > 0
    }

    pub(super) fn look(&mut self, now: Duration, untaken: &[Move], plan: &mut Plan) {
        self.average(plan);
        let all = plan.servers().count();
        // Most figures are missing: it is their source, or the way there.
        if self.seen.len() * 2 < all {
            self.seen.clear();
        }
        let steps = self.seen.iter().map(|(id, sample)| (*id, sample.permille / STEP));
        plan.note_steps(steps.collect());
        self.held.retain(|_, until| now < *until);
        let untaken = untaken.iter().filter(|of| of.factor == Factor::Cpu);
        let untaken = untaken.map(|of| of.sessions).sum();
        if self.asked > untaken || self.asked == 0 {
            self.taken = now;
        }
        if now.saturating_sub(self.taken) > WITHIN / 4
            && let Some((id, _)) = self.giving.take()
        {
            self.held.insert(id, now + WITHIN);
        }
        self.asked = 0;
        let Some((id, at, too_many)) = self.giver(plan) else {
            self.giving = None;
            return;
        };
        match &mut self.giving {
            Some((giving, pace)) if *giving == id => pace.change(WITHIN, too_many),
            giving => *giving = Some((id, Pace::new(now, WITHIN, too_many))),
        }
        let owed = self
            .giving
            .as_mut()
            .map_or(0, |(_, pace)| pace.owed(now, untaken));
        let giver = *plan.server(at);
        while self.asked < owed && plan.one(at, Factor::Cpu, |to| self.takes(&giver, to)) {
            self.asked += 1;
        }
    }

    fn average(&mut self, plan: &Plan) {
        let known = plan
            .servers()
            .filter_map(|(_, server)| Some((server.id, server.cpu?)));
        let known: BTreeMap<_, _> = known.collect();
        // What is not known is neither nothing nor all.
        self.seen.retain(|id, _| known.contains_key(id));
        for (id, sample) in known {
            let seen = self.seen.entry(id).or_insert(sample);
            if sample.at > seen.at {
                seen.permille = (seen.permille + sample.permille) / 2;
                seen.at = sample.at;
            }
        }
    }

    /// The server that computes most, where another one computes clearly less, and how many of its sessions
    /// are too many.
    fn giver(&self, plan: &Plan) -> Option<(u32, usize, u32)> {
        let gives = |server: &Figures| server.candidate.sessions > 0 && !self.held.contains_key(&server.id);
        let known = plan
            .servers()
            .filter_map(|(at, server)| Some((at, server, self.seen.get(&server.id)?.permille)));
        let known: Vec<_> = known.collect();
        let givers = known.iter().filter(|(_, server, _)| gives(server));
        let (at, giver, most) = *givers.max_by_key(|(_, _, cpu)| *cpu)?;
        let takes = |to: &Figures| self.takes(giver, to) && !to.candidate.is_full();
        let takers = known.iter().filter(|(_, to, _)| takes(to));
        let least = takers.map(|(_, _, cpu)| *cpu).min()?;
        let too_many = u64::from(giver.candidate.sessions) * u64::from(most - least) / u64::from(2 * most);
        Some((giver.id, at, u32::try_from(too_many).unwrap_or(u32::MAX).max(1)))
    }

    fn takes(&self, giver: &Figures, to: &Figures) -> bool {
        let of = |server: &Figures| self.seen.get(&server.id).map(|seen| seen.permille);
        let (Some(from), Some(cpu)) = (of(giver), of(to)) else {
            return false;
        };
        let with_one_more = cpu + from / giver.candidate.sessions.max(1);
        !to.candidate.backup
            && to.candidate.warmth_permille >= crate::WARM
            && from / STEP >= cpu / STEP + STEPS
            && from * 100 > with_one_more * RATIO
    }
}
