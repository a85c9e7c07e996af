//! All sessions leave servers that a factor finds bad, each server in a time of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pace::Pace;
use super::plan::Plan;
use super::{Factor, Figures, Move};

/// Where for so long nobody has taken what was asked for, those that are left are held where they are.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Leaving {
    servers: BTreeMap<u32, One>,
}

#[derive(Debug)]
struct One {
    pace: Pace,
    within: Duration,
    /// When a session has left for the last time.
    taken: Duration,
    /// What the last look has asked for.
    asked: u32,
}

impl Leaving {
    pub(super) fn is_moving(&self, now: Duration) -> bool {
        let moves = |one: &One| one.asked > 0 && now.saturating_sub(one.taken) < PATIENCE;
        self.servers.values().any(moves)
    }

    /// Asks for what is due. `bad`: the servers that are to be left, and the time for all sessions of each.
    /// `may`: who gets them. Factors of less weight leave these servers alone.
    pub(super) fn look(
        &mut self,
        now: Duration,
        factor: Factor,
        bad: &BTreeMap<u32, Duration>,
        untaken: &[Move],
        may: impl Fn(&Figures) -> bool,
        plan: &mut Plan,
    ) {
        self.servers.retain(|id, _| bad.contains_key(id));
        for (id, within) in bad {
            let Some((at, sessions)) = plan.find(*id) else {
                // It takes no part for now, and gives nobody away.
                if let Some(one) = self.servers.get_mut(id) {
                    one.asked = 0;
                }
                continue;
            };
            let untaken = untaken.iter().filter(|of| of.factor == factor && of.from == *id);
            let untaken = untaken.map(|of| of.sessions).sum();
            let one = self
                .servers
                .entry(*id)
                .or_insert_with(|| One::new(now, *within, sessions));
            let owed = one.owed(now, *within, sessions, untaken);
            one.asked = 0;
            while one.asked < owed && plan.one(at, factor, |to| !bad.contains_key(&to.id) && may(to)) {
                one.asked += 1;
            }
        }
        bad.keys().for_each(|id| plan.leave_alone(*id));
    }
}

impl One {
    fn new(now: Duration, within: Duration, sessions: u32) -> Self {
        Self {
            pace: Pace::new(now, within, sessions),
            within,
            taken: now,
            asked: 0,
        }
    }

    fn owed(&mut self, now: Duration, within: Duration, sessions: u32, untaken: u32) -> u32 {
        if within != self.within {
            self.within = within;
            self.pace.change(within, sessions);
        }
        if self.asked > untaken || self.asked == 0 {
            self.taken = now;
        }
        self.pace.owed(now, untaken).min(sessions)
    }
}
