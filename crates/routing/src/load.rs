//! Load in relation to weight, and the choice of the least: what the methods that look at load have in
//! common.
//!
//! Ties are broken by the seed, or else every gateway would send its first statement to the same server.

use std::cmp::Ordering;

use crate::below;

/// What a server would carry after the choice, divided by its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) amount: u64,
    pub(crate) weight: u64,
}

impl Load {
    /// Less is better. Exact: two fractions are compared without dividing.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        if self.weight == other.weight {
            return self.amount.cmp(&other.amount);
        }
        let mine = u128::from(self.amount) * u128::from(other.weight);
        let theirs = u128::from(other.amount) * u128::from(self.weight);
        mine.cmp(&theirs)
    }
}

/// The place with the least load, drawn among equals.
pub(crate) fn least(loads: impl Iterator<Item = (usize, Load)> + Clone, seed: u64) -> Option<usize> {
    let mut all = loads.clone();
    let (mut place, mut least) = all.next()?;
    let mut ties = 1;
    for (at, load) in all {
        match load.compare(least) {
            Ordering::Less => (place, least, ties) = (at, load, 1),
            Ordering::Equal => ties += 1,
            Ordering::Greater => {}
        }
    }
    if ties == 1 {
        return Some(place);
    }
    let mut tied = loads.filter(|(_, load)| load.compare(least) == Ordering::Equal);
    tied.nth(below(ties, seed) as usize).map(|(place, _)| place)
}
