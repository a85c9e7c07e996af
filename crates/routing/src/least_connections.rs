//! Least connections: the server with the fewest sessions for its weight.
//!
//! Load is (sessions + 1) / weight, the load after the choice: with weights 1 and 3 and no sessions the heavier one
//! comes first. Ties are broken by the seed, or else every gateway would send its first session to the same server.

use std::cmp::Ordering;

use crate::below;
use crate::tier::Tier;

pub(crate) fn pick(tier: Tier<'_>, seed: u64) -> usize {
    let Some((_, least)) = tier.iter().min_by(|(_, a), (_, b)| a.compare_load(b)) else {
        return 0;
    };
    let mut tied = tier
        .iter()
        .filter(|(_, candidate)| candidate.compare_load(least) == Ordering::Equal);
    let drawn = below(tied.clone().count() as u64, seed);
    tied.nth(drawn as usize).map_or(0, |(place, _)| place)
}
