//! Location: sessions on servers of other zones come to the gateway's own, one a second, as long as a server
//! there has room.

use std::time::Duration;

use super::plan::{self, Plan};
use super::{Factor, Figures, Move};
use crate::WARM;

/// Between two sessions.
const PACE: Duration = Duration::from_secs(1);

/// Where for so long nobody has taken what was asked for, those that are left are held where they are.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Location {
    /// When the next session may move.
    next: Duration,
    /// When the last one has moved, or there was none that should.
    taken: Duration,
    /// Servers of other zones give in turn: the sessions of some may be held there.
    turn: usize,
    moving: bool,
}

impl Location {
    pub(super) fn is_moving(&self) -> bool {
        self.moving
    }

    pub(super) fn look(&mut self, now: Duration, untaken: &[Move], plan: &mut Plan) {
        let is_untaken = untaken.iter().any(|of| of.factor == Factor::Location);
        if !is_untaken {
            self.taken = now;
        } else {
            self.next = now;
        }
        if now < self.next {
            return;
        }
        let gives = |server: &Figures| !server.is_near && server.candidate.sessions > 0;
        let far = plan
            .servers()
            .filter(|(_, server)| gives(server))
            .map(|(at, _)| at);
        let far: Vec<_> = far.collect();
        let from = far.get(self.turn.checked_rem(far.len()).unwrap_or(0)).copied();
        self.turn = self.turn.wrapping_add(1);
        let of_all = Share::of_the_own_zone(plan);
        let has_asked = from.is_some_and(|from| {
            plan.one(from, Factor::Location, |to| {
                to.is_near && !to.candidate.backup && has_room(to) && of_all.admits(to)
            })
        });
        if has_asked {
            self.next = now + PACE;
        }
        self.moving = has_asked && now.saturating_sub(self.taken) < PATIENCE;
    }
}

/// One place of ten is left for those who come anew: a session that found none would go to another zone, and
/// come back from there.
fn has_room(server: &Figures) -> bool {
    let (sessions, max) = (server.candidate.sessions, server.candidate.max_connections);
    max == 0 || u64::from(sessions + 1) * 10 <= u64::from(max) * 9
}

/// How much of all sessions servers of the own zone may have that have just come up.
struct Share {
    sessions: u64,
    weight: u64,
}

impl Share {
    fn of_the_own_zone(plan: &Plan) -> Self {
        let near = plan.servers().filter(|(_, server)| server.is_near);
        Self {
            sessions: plan
                .servers()
                .map(|(_, server)| u64::from(server.candidate.sessions))
                .sum(),
            weight: near.map(|(_, server)| u64::from(server.candidate.weight)).sum(),
        }
    }

    fn admits(&self, server: &Figures) -> bool {
        if server.candidate.warmth_permille >= WARM {
            return true;
        }
        let whole = self.weight.max(1) * u64::from(WARM);
        let share = (self.sessions * plan::warm_weight(server)).div_ceil(whole);
        u64::from(server.candidate.sessions) < share
    }
}
