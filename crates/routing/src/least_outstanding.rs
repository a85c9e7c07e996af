//! Least outstanding: the server with the fewest statements under way for its weight.
//!
//! Like least connections, but counted in statements: connections are shared, and most sessions do nothing
//! most of the time.

use crate::load::Load;
use crate::reads::ReadCandidate;

pub(crate) fn load(candidate: &ReadCandidate) -> Load {
    Load {
        amount: u64::from(candidate.outstanding) + 1,
        weight: candidate.effective_weight(),
    }
}
