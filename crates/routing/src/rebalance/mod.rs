//! When live sessions go from one server to another so that the load evens out ([`Rebalancer`]): the time,
//! the figures of all servers and what became of the last moves in, moves out.
//!
//! Pure, as the choice for a new session is: it is looked at servers again and again, and each look says how
//! many sessions are to go from where to where until the next one. Which sessions these are is not its
//! business, nor whether any can: what nobody has taken is given back with the next look.
//!
//! One file a factor, in the order of their weight: `health`, `memory`, `cpu`, `location`, `connections`. A
//! factor sees what those before it have asked for in the same look, and leaves alone what is theirs, so that
//! no two of them undo one another. (That a server drains or is gone is no factor: its sessions leave it
//! without a plan, since each of them has to.)

mod connections;
mod cpu;
mod health;
mod leaving;
mod location;
mod memory;
mod pace;
mod plan;

use std::time::Duration;

use config::{Balance, RebalancePolicy};

use crate::{Candidate, Draw};

use connections::Connections;
use cpu::Cpu;
use health::Health;
use location::Location;
use memory::Memory;
use plan::Plan;

/// A session that has been moved for the sake of balance stays where it is for this long, whatever the
/// figures say: nobody goes to and fro.
pub const SESSION_RESTS: Duration = Duration::from_secs(3600);

/// The same for one whose move came to nothing.
pub const SESSION_RESTS_AFTER_FAILURE: Duration = Duration::from_secs(600);

/// Why sessions move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Factor {
    /// Connections to their server fail.
    Health,
    /// Their server runs out of memory.
    Memory,
    /// Their server computes more than others.
    Cpu,
    /// They are in another zone than the gateway.
    Location,
    /// Their server has more sessions for its weight than others.
    Connections,
}

impl Factor {
    /// All of them, in the order of their weight.
    pub const ALL: [Self; 5] = [
        Self::Health,
        Self::Memory,
        Self::Cpu,
        Self::Location,
        Self::Connections,
    ];

    /// The word in metrics and for operators.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Location => "location",
            Self::Connections => "connections",
        }
    }
}

/// A server as it is at the moment of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Tells it from all others that there ever are.
    pub id: u32,
    /// `available`: it is up, answers, and does not drain.
    pub candidate: Candidate,
    /// It is in the gateway's own zone.
    pub is_near: bool,
    /// What has become of connections to it.
    pub attempts: Attempts,
    /// How much of its processors is in use; `None` where nobody says so, or has for a while.
    pub cpu: Option<Sample>,
    /// How much of its memory.
    pub memory: Option<Sample>,
}

/// Counts that only grow: what came of a server's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Connections that were tried, and those that have ended by the server's doing.
    pub made: u64,
    /// Those of them that could not be made or have ended so.
    pub failed: u64,
}

/// A figure of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// In thousandths of all there is.
    pub permille: u32,
    /// Of which moment, counted as the time of a look is.
    pub at: Duration,
}

/// How the load is to be evened out.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// By which factors.
    pub policy: RebalancePolicy,
    /// In this time a difference is gone.
    pub within: Duration,
    /// How a server is chosen among those that may get a session.
    pub balance: Balance,
}

impl Policy {
    /// How often to look. Often enough that sessions go one after the other, and not in heaps.
    #[must_use]
    pub fn pause(&self) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(50);
        (self.within / 120).clamp(SHORTEST, Duration::from_secs(1))
    }
}

/// So many sessions are to go from one server to another until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The `id` of the one.
    pub from: u32,
    /// Of the other. A server has one at a time.
    pub to: u32,
    /// At most so many.
    pub sessions: u32,
    pub factor: Factor,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is to be done.
    Even,
    /// The figures differ. It is seen whether that lasts.
    Uneven,
    /// Sessions move.
    Moving,
    /// Sessions should have moved, and none could. It is tried again later.
    Stuck,
}

impl Phase {
    /// The word for operators.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Uneven => "uneven",
            Self::Moving => "moving",
            Self::Stuck => "stuck",
        }
    }
}

/// Decides for the servers of one cluster.
#[derive(Debug, Default)]
pub struct Rebalancer {
    health: Health,
    memory: Memory,
    cpu: Cpu,
    location: Location,
    connections: Connections,
    /// Sessions leave servers that are no good.
    leaves: bool,
}

impl Rebalancer {
    /// Looks at the servers, and says who is to move until the next look. `now` counts from any moment on and
    /// never goes back. `untaken`: of the moves of the last look, what no session has taken.
    pub fn look(
        &mut self,
        now: Duration,
        policy: &Policy,
        servers: &[Figures],
        untaken: &[Move],
        seed: u64,
    ) -> Vec<Move> {
        let draw = Draw { turn: seed, seed };
        let mut plan = Plan::new(servers, policy.balance, draw);
        if policy.policy == RebalancePolicy::Off {
            *self = Self::default();
            return Vec::new();
        }
        self.health.look(now, untaken, &mut plan);
        if policy.policy == RebalancePolicy::Resource {
            self.memory.look(now, untaken, &mut plan);
            self.cpu.look(now, untaken, &mut plan);
        } else {
            (self.memory, self.cpu) = Default::default();
        }
        if policy.policy == RebalancePolicy::Connections {
            self.location = Location::default();
        } else {
            self.location.look(now, untaken, &mut plan);
            plan.keep_to_the_own_zone();
        }
        self.connections.look(now, policy.within, untaken, &mut plan);
        self.leaves = self.health.is_moving(now) || self.memory.is_moving(now);
        let moves = plan.into_moves();
        debug_assert!(
            moves.iter().all(|of| of.from != of.to && of.sessions > 0),
            "{moves:?}"
        );
        moves
    }

    /// What is under way.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.leaves || self.cpu.is_moving() || self.location.is_moving() {
            true => Phase::Moving,
            false => self.connections.phase(),
        }
    }
}

/// How many of all their sessions each server would have by its weight, as far as it has come in its slow
/// start; 0 where it takes none.
#[must_use]
pub fn shares(servers: &[Candidate]) -> Vec<f64> {
    let takes = |server: &Candidate| server.available && server.weight > 0;
    let has_normal = servers.iter().any(|server| takes(server) && !server.backup);
    let weight = |server: &Candidate| match takes(server) && server.backup != has_normal {
        true => server.effective_weight() as f64,
        false => 0.0,
    };
    let all: f64 = servers
        .iter()
        .filter(|server| takes(server))
        .map(|server| f64::from(server.sessions))
        .sum();
    let weights: f64 = servers.iter().map(weight).sum();
    servers
        .iter()
        .map(|server| all * weight(server) / weights.max(1.0))
        .collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_resources;
