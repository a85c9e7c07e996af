//! Least connections: the server with the fewest sessions for its weight.
//!
//! Load is (sessions + 1) / weight, the load after the choice: with weights 1 and 3 and no sessions the
//! heavier one comes first.

use crate::load;
use crate::tier::Tier;

pub(crate) fn pick(tier: Tier<'_>, seed: u64) -> usize {
    let loads = tier.iter().map(|(place, candidate)| (place, candidate.load()));
    load::least(loads, seed).unwrap_or(0)
}
