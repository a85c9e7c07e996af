//! Connections: a server has more sessions for its weight than another, and for a while.
//!
//! It begins where the ratio of two servers is above [`RATIO_PERCENT`] and stays there, and goes on until
//! they are even, but for no more sessions than were too many at its beginning: new ones that come meanwhile
//! even it out as well. All of the difference moves in `within`, one session after the other.

use std::cmp::Ordering;
use std::time::Duration;

use super::pace::Pace;
use super::plan::{self, Plan, load};
use super::{Factor, Figures, Move, Phase};
use crate::WARM;
use crate::load::Load;

/// A server that has more sessions than another by this is too full.
const RATIO_PERCENT: u64 = 120;

/// Any server with a session more than another is too full: what has begun ends when they are even.
const EVEN_PERCENT: u64 = 100;

/// Fewer sessions than this on all servers together say nothing.
const HANDFUL: u64 = 5;

#[derive(Debug, Default)]
pub(super) struct Connections {
    uneven_since: Option<Duration>,
    evening: Option<Evening>,
    /// Nobody could move: it is not tried before that.
    rests_until: Option<Duration>,
}

/// Sessions move until all servers have their share.
#[derive(Debug)]
struct Evening {
    pace: Pace,
    /// Sessions that were too many at the beginning, as far as they have not moved yet.
    left: u32,
    /// What the last look has asked for.
    asked: u32,
    /// When a session has moved for the last time.
    taken: Duration,
    /// Servers whose sessions do not move: something holds them, or they have moved lately.
    held: Vec<u32>,
}

impl Connections {
    pub(super) fn phase(&self) -> Phase {
        match (&self.evening, self.rests_until, self.uneven_since) {
            (Some(_), ..) => Phase::Moving,
            (_, Some(_), _) => Phase::Stuck,
            (.., Some(_)) => Phase::Uneven,
            _ => Phase::Even,
        }
    }

    pub(super) fn look(&mut self, now: Duration, within: Duration, untaken: &[Move], plan: &mut Plan) {
        if self.rests_until.is_some_and(|until| now < until) {
            return;
        }
        self.rests_until = None;
        if self.evening.is_none() {
            self.begin(now, within, plan);
        }
        let Some(evening) = &mut self.evening else { return };
        match evening.go_on(now, within, untaken, plan) {
            Phase::Moving => {}
            Phase::Stuck => {
                *self = Self {
                    rests_until: Some(now + within),
                    ..Self::default()
                }
            }
            Phase::Even | Phase::Uneven => *self = Self::default(),
        }
    }

    /// Begins to even out where that is due.
    fn begin(&mut self, now: Duration, within: Duration, plan: &Plan) {
        let Some(too_many) = too_many(plan) else {
            self.uneven_since = None;
            return;
        };
        // A rush of sessions that come or go evens itself out.
        let since = *self.uneven_since.get_or_insert(now);
        if now.saturating_sub(since) < within / 24 {
            return;
        }
        self.uneven_since = None;
        self.evening = Some(Evening {
            pace: Pace::new(now, within, too_many),
            left: too_many,
            asked: 0,
            taken: now,
            held: Vec::new(),
        });
    }
}

impl Evening {
    /// Asks for what is due, and says whether it is over.
    fn go_on(&mut self, now: Duration, within: Duration, untaken: &[Move], plan: &mut Plan) -> Phase {
        let untaken = untaken.iter().filter(|of| of.factor == Factor::Connections);
        let count = untaken.clone().map(|of| of.sessions).sum();
        self.left += count;
        if count == 0 || self.asked > count {
            self.taken = now;
        } else if now.saturating_sub(self.taken) > within / 4 {
            self.held.extend(untaken.map(|of| of.from));
            self.taken = now;
        }
        let wanted = self.pace.owed(now, count).min(self.left);
        self.asked = 0;
        while self.asked < wanted {
            let Some(from) = giver(plan, &self.held) else {
                break;
            };
            let giver = *plan.server(from);
            let takers = Takers::of(plan);
            let takes = |to: &Figures| takers.admit(to) && is_above(&giver, to, EVEN_PERCENT);
            if !plan.one(from, Factor::Connections, takes) {
                break;
            }
            self.asked += 1;
        }
        self.left -= self.asked;
        match (wanted, self.asked) {
            (0, _) if self.left == 0 => Phase::Even,
            (1.., 0) if !self.held.is_empty() => Phase::Stuck,
            (1.., 0) => Phase::Even,
            _ => Phase::Moving,
        }
    }
}

/// How many sessions have to move until all is even; `None` where it is not worth it.
fn too_many(plan: &Plan) -> Option<u32> {
    let from = giver(plan, &[])?;
    let giver = plan.server(from);
    let takers = Takers::of(plan);
    let others = plan.servers().filter(|(at, _)| !plan.computes_more(*at, from));
    let mut others = others.map(|(_, server)| server);
    let is_worth_it = giver.candidate.backup || takers.sessions >= HANDFUL;
    let is_due = is_worth_it
        && others.any(|to| to.id != giver.id && takers.admit(to) && is_above(giver, to, RATIO_PERCENT));
    if !is_due {
        return None;
    }
    let too_many = plan.servers().map(|(_, server)| takers.too_many(server)).sum();
    Some(u32::try_from(u64::max(too_many, 1)).unwrap_or(u32::MAX))
}

/// Whose sessions move first: those of a backup that others can take again, then those of the fullest.
fn giver(plan: &Plan, held: &[u32]) -> Option<usize> {
    let has_normal = plan.has_normal();
    let gives = |server: &Figures| server.candidate.sessions > 0 && !held.contains(&server.id);
    let backups = plan.servers().filter(|(_, server)| server.candidate.backup);
    let backup = backups
        .filter(|(_, server)| has_normal && gives(server))
        .map(|(at, _)| at)
        .next();
    backup.or_else(|| {
        let same = plan
            .servers()
            .filter(|(_, server)| server.candidate.backup != has_normal);
        plan::fullest(same.filter(|(_, server)| gives(server)))
    })
}

/// Whether `giver` has more sessions for its weight by that, also once `to` has one more.
fn is_above(giver: &Figures, to: &Figures, percent: u64) -> bool {
    if giver.candidate.backup && !to.candidate.backup {
        return true;
    }
    let (giver, to) = (load(giver, 0), load(to, 1));
    let scaled = |load: Load, by: u64| Load {
        amount: load.amount * by,
        ..load
    };
    scaled(giver, 100).compare(scaled(to, percent)) == Ordering::Greater
}

/// Those who may get sessions, and how many.
struct Takers {
    has_normal: bool,
    /// Of all servers.
    sessions: u64,
    /// Of those who take some.
    weight: u64,
    /// As far as they have come in their slow start.
    warm_weight: u64,
}

impl Takers {
    fn of(plan: &Plan) -> Self {
        let has_normal = plan.has_normal();
        let takers = || {
            let servers = plan.servers().map(|(_, server)| server);
            servers.filter(move |server| server.candidate.backup != has_normal)
        };
        Self {
            has_normal,
            sessions: plan
                .servers()
                .map(|(_, server)| u64::from(server.candidate.sessions))
                .sum(),
            weight: takers().map(|server| u64::from(server.candidate.weight)).sum(),
            warm_weight: takers().map(plan::warm_weight).sum(),
        }
    }

    /// Whether it may have one more. One in its slow start has a share of that alone.
    fn admit(&self, server: &Figures) -> bool {
        let is_warm = server.candidate.warmth_permille >= WARM;
        let share = (self.sessions * plan::warm_weight(server)).div_ceil(self.warm_weight.max(1));
        server.candidate.backup != self.has_normal
            && !server.candidate.is_full()
            && (is_warm || u64::from(server.candidate.sessions) < share)
    }

    /// Sessions beyond its share, of a server that is warm: one that has just come up gives none away for it.
    fn too_many(&self, server: &Figures) -> u64 {
        let share = match server.candidate.backup != self.has_normal {
            true => self.sessions * u64::from(server.candidate.weight) / self.weight.max(1),
            false => 0,
        };
        u64::from(server.candidate.sessions).saturating_sub(share)
    }
}
