//! Round robin: every server with room has equal turns, whatever its weight and its load.
//!
//! A server in slow start passes on the share of its turns that it is not warm for.

use crate::tier::Tier;
use crate::{Draw, WARM, below, mix};

pub(crate) fn pick(tier: Tier<'_>, draw: Draw) -> usize {
    let len = tier.len() as u64;
    let position = draw.turn % len;
    let Some((place, candidate)) = tier.iter().nth(position as usize) else {
        return 0;
    };
    let ready = below(u64::from(WARM), draw.seed) < u64::from(candidate.warmth_permille.max(1));
    if ready || len == 1 {
        return place;
    }
    // To any of the others, not to the next one, which would have double turns.
    let other = (position + 1 + below(len - 1, mix(draw.seed))) % len;
    tier.iter().nth(other as usize).map_or(place, |(place, _)| place)
}
