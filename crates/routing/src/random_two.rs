//! Random of two: draw two servers by weight, take the one with the lower load.
//!
//! Nearly as even as least connections, and it does not send a whole burst of sessions to the one server that
//! had the fewest when the burst began, which matters where several gateways share the servers and none sees
//! all sessions.

use std::cmp::Ordering;

use crate::tier::Tier;
use crate::{Candidate, below, mix};

pub(crate) fn pick(tier: Tier<'_>, seed: u64) -> usize {
    let Some((first, a)) = draw(tier, None, seed) else {
        return 0;
    };
    match draw(tier, Some(first), mix(seed)) {
        // The first of the two was drawn first by its weight; on equal load it stays.
        Some((second, b)) if b.load().compare(a.load()) == Ordering::Less => second,
        _ => first,
    }
}

/// One server, each with the probability of its weight, without the one at `except`.
fn draw<'a>(tier: Tier<'a>, except: Option<usize>, seed: u64) -> Option<(usize, &'a Candidate)> {
    let mut rest = tier.iter().filter(|(place, _)| Some(*place) != except);
    let total: u64 = rest
        .clone()
        .map(|(_, candidate)| candidate.effective_weight())
        .sum();
    if total == 0 {
        return None;
    }
    let mut ticket = below(total, seed);
    rest.find(
        |(_, candidate)| match ticket.checked_sub(candidate.effective_weight()) {
            Some(left) => {
                ticket = left;
                false
            }
            None => true,
        },
    )
}
