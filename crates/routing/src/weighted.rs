//! Weighted: turns in proportion to weight, as evenly spaced as they can be (smooth weighted round robin).
//!
//! The usual algorithm keeps a running balance per server, which workers would have to share under a lock.
//! Here the number of the turn says whose turn it is. A cycle has as many turns as all weights together; a
//! server divides it into as many equal parts as its weight and wishes for one turn in each, at its own
//! [`phase`] of the part, so that servers of equal weight do not wish for the same moments. Turn *t* belongs
//! to the *t*-th earliest wish of all servers. Over a cycle every server has exactly its weight in turns.

/// Fineness of phases.
const PHASES: u128 = 1 << 16;

/// The place whose turn it is, of places with their weights (none of them 0) in a fixed order.
pub(crate) fn pick(weights: impl Iterator<Item = (usize, u64)> + Clone, turn: u64) -> Option<usize> {
    let cycle: u64 = weights.clone().map(|(_, weight)| weight).sum();
    let turn = turn.checked_rem(cycle)?;
    let mut wishers = weights.clone();
    wishers
        .find(|&wisher| wishes(&weights, wisher, turn))
        .map(|(place, _)| place)
}

/// Whether the wish that comes `turn`-th is one of `wisher`'s: its wishes are in order, so search for it.
fn wishes(weights: &(impl Iterator<Item = (usize, u64)> + Clone), wisher: (usize, u64), turn: u64) -> bool {
    let (mut low, mut high) = (0, wisher.1);
    while low < high {
        let middle = low + (high - low) / 2;
        match rank(weights.clone(), wisher, middle).cmp(&turn) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    false
}

/// How many wishes come before `wisher`'s wish number `k`. Wishes at the same moment are in the order of the
/// servers.
fn rank(weights: impl Iterator<Item = (usize, u64)>, (place, weight): (usize, u64), k: u64) -> u64 {
    let weight = u128::from(weight);
    let moment = u128::from(k) * PHASES + phase(place);
    weights
        .map(|(other_place, other)| {
            if other_place == place {
                return k;
            }
            // Wish m of the other comes before ours if (m * PHASES + phase) / other < moment / weight; at the
            // same moment it does if the other stands before us.
            let reach = moment * u128::from(other) + u128::from(other_place < place);
            let Some(last) = reach.checked_sub(1) else {
                return 0;
            };
            match (last / weight).checked_sub(phase(other_place)) {
                Some(room) => u64::try_from(room / PHASES + 1).unwrap_or(u64::MAX),
                None => 0,
            }
        })
        .sum()
}

/// Where in each of its parts a server's wish is, of [`PHASES`]: half way for the first one, and for each
/// next one a golden section further, which keeps any number of them apart.
fn phase(place: usize) -> u128 {
    const GOLDEN_SECTION: u128 = PHASES * 618 / 1000;
    (PHASES / 2 + place as u128 * GOLDEN_SECTION) % PHASES
}
