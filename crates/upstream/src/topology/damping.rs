//! Keeps a cluster that flaps from taking writes back and forth. Pure; the time is an argument.

use std::time::{Duration, Instant};

use crate::server::ServerId;

/// Decides when a server that is found to be the primary is taken for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Damper {
    taken: Option<ServerId>,
    /// One was taken before: the first one of all needs no patience.
    experienced: bool,
    waiting: Option<(ServerId, Instant)>,
}

impl Damper {
    /// `found` is the primary by all signs. It is taken at once where it was the primary all the time or is the first
    /// one; else after it has been found and nobody else for as long as `damping`.
    pub(super) fn admit(
        &mut self,
        found: Option<ServerId>,
        damping: Duration,
        now: Instant,
    ) -> Option<ServerId> {
        let Some(server) = found else {
            (self.taken, self.waiting) = (None, None);
            return None;
        };
        if self.taken == found {
            return found;
        }
        let since = match self.waiting {
            Some((waiting, since)) if waiting == server => since,
            _ => now,
        };
        if self.experienced && now.saturating_duration_since(since) < damping {
            (self.taken, self.waiting) = (None, Some((server, since)));
            return None;
        }
        (self.taken, self.waiting, self.experienced) = (found, None, true);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<ServerId> = Some(ServerId(0));
    const B: Option<ServerId> = Some(ServerId(1));

    #[test]
    fn without_damping_whoever_is_found_is_taken() {
        let (mut damper, now) = (Damper::default(), Instant::now());
        for found in [A, B, None, B, A] {
            assert_eq!(damper.admit(found, Duration::ZERO, now), found);
        }
    }

    #[test]
    fn a_new_primary_must_have_been_the_only_one_for_a_while() {
        let damping = Duration::from_secs(3);
        let (mut damper, start) = (Damper::default(), Instant::now());
        let mut admit = |found, second| damper.admit(found, damping, start + Duration::from_secs(second));
        assert_eq!(admit(A, 0), A, "the first");
        assert_eq!(admit(A, 1), A);
        assert_eq!(admit(None, 2), None);
        assert_eq!(admit(A, 3), None, "it was lost");
        assert_eq!(admit(A, 5), None);
        assert_eq!(admit(A, 6), A);
        assert_eq!(admit(B, 7), None, "changed");
        assert_eq!(admit(A, 8), None, "flaps");
        assert_eq!(admit(B, 9), None);
        assert_eq!(admit(B, 11), None);
        assert_eq!(admit(B, 12), B);
    }
}
