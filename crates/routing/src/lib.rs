//! Which server gets a new session ([`choose_server`]) or a read ([`choose_replica`]): a snapshot of a
//! cluster in, the place of the chosen server out.
//!
//! Pure. Nothing is remembered between two choices: what a method needs to take turns or to draw is an
//! argument ([`Draw`]), so workers choose at the same time without a lock and every choice can be repeated in
//! a test. One file a factor: `least_connections`, `weighted`, `round_robin`, `random_two`,
//! `least_outstanding`, `latency` decide between servers, `tier` (sessions) and `standing` (reads) say who
//! takes part, `warmth` how much a server that has just come up may take.
//!
//! [`rebalance`] is how sessions that live go to other servers later, so that the load evens out.
//!
//! [`rules`] is what the configuration says about certain statements.
//!
//! Health is not judged here; a [`Candidate`] is `available` or not.

mod explain;
mod latency;
mod least_connections;
mod least_outstanding;
mod load;
mod random_two;
mod reads;
pub mod rebalance;
mod round_robin;
pub mod rules;
mod standing;
mod tier;
mod warmth;
mod weighted;

use config::Balance;

pub use explain::Explanation;
pub use latency::PeakEwma;
use load::Load;
pub use reads::{ReadCandidate, ReadPolicy, Role, choose_replica, choose_to_wait_for, explain_replica};
use tier::Tier;
pub use warmth::{WARM, warmth_permille};

/// A server as it is at the moment of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Share of new sessions relative to the other servers. 0: takes none.
    pub weight: u32,
    /// Takes sessions only when no other server is available.
    pub backup: bool,
    /// May be chosen: healthy, and not tried already for this session.
    pub available: bool,
    pub sessions: u32,
    /// Most sessions it may have; 0 is no limit.
    pub max_connections: u32,
    /// Slow start: from 0 (has just come up) to [`WARM`].
    pub warmth_permille: u32,
}

impl Candidate {
    /// Whether it has as many sessions as it may have.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.max_connections != 0 && self.sessions >= self.max_connections
    }

    /// Weight times warmth, in thousandths. Never 0 for a server that takes sessions: where a cold server is
    /// the only one, it is the right one.
    fn effective_weight(&self) -> u64 {
        u64::from(self.weight) * u64::from(self.warmth_permille.clamp(1, WARM))
    }

    /// Sessions per weight once the new session is counted.
    fn load(&self) -> Load {
        Load {
            amount: u64::from(self.sessions) + 1,
            weight: self.effective_weight(),
        }
    }
}

/// What makes one choice differ from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// How many choices were made before in this cluster. Wraps.
    pub turn: u64,
    /// Uniformly random bits.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The place of the chosen server in the candidates.
    Server(usize),
    /// Servers are available, but each has as many sessions as it may have.
    AllFull,
    /// No server is available that takes new sessions.
    NoneAvailable,
}

/// Chooses a server for a new session. Does not allocate.
///
/// Servers marked `backup` take part only when no other server is available; when the others are merely full
/// the answer is [`Choice::AllFull`], since a backup is there for failures and not for rush hours.
#[must_use]
pub fn choose_server(balance: Balance, candidates: &[Candidate], draw: Draw) -> Choice {
    let Some(tier) = Tier::of(candidates) else {
        return Choice::NoneAvailable;
    };
    if tier.len() == 0 {
        return Choice::AllFull;
    }
    let place = match balance {
        Balance::LeastConnections => least_connections::pick(tier, draw.seed),
        Balance::Weighted => {
            let weights = tier
                .iter()
                .map(|(place, candidate)| (place, candidate.effective_weight()));
            weighted::pick(weights, draw.turn).unwrap_or(0)
        }
        Balance::RoundRobin => round_robin::pick(tier, draw),
        Balance::RandomTwo => random_two::pick(tier, draw.seed),
    };
    debug_assert!(
        tier.contains(place),
        "{place} must not be chosen from {candidates:?}"
    );
    Choice::Server(place)
}

/// An independent stream of bits from a seed (the finaliser of SplitMix64, public domain).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number below `bound` (which is not 0), as even as the seed is.
fn below(bound: u64, seed: u64) -> u64 {
    debug_assert_ne!(bound, 0, "nothing to draw from");
    // The product is below 2^64 * bound, so the upper half fits.
    ((u128::from(mix(seed)) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tests_reads;
