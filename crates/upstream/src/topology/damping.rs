//! Keeps a cluster that flaps from taking writes back and forth, and a server that says again and again that
//! it is to be left from being taken back each time. Pure; the time is an argument.
//!
//! A primary that is lost or replaced is taken at once: no failover is slowed down. Only a server that has
//! become the primary several times within a minute must last before it is believed once more, and the next
//! time for twice as long. So a cluster that does not come to rest costs a few changes a minute, whatever its
//! rhythm, and not one with every look. Each server counts for itself: whoever is promoted because another
//! one keeps crashing is not made to wait for that.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::server::ServerId;

/// For how long a change counts.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Changes to one server within that time that are believed at once: a failover that does not succeed at the
/// first go, or the servers of a cluster restarted one after the other.
const FREE: usize = 2;

/// How often the patience doubles.
const DOUBLINGS: usize = 3;

/// Changes that are remembered at most.
const CHANGES_MAX: usize = 64;

/// Decides when a server that is found to be the primary, or to be well again, is taken for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Damper {
    taken: Option<ServerId>,
    /// One was taken before: the first one of all is no change.
    experienced: bool,
    /// The last changes that were believed, oldest first: to whom, and when.
    changes: VecDeque<(ServerId, Instant)>,
    waiting: Option<WaitingPrimary>,
    /// Times that one was not believed at once.
    waits: u64,
}

#[derive(Clone, Copy, Debug)]
struct WaitingPrimary {
    server: ServerId,
    since: Instant,
    patience: Duration,
}

impl Damper {
    /// `found` is the primary by all signs. It is taken at once where it was the primary all the time, or has
    /// seldom become it lately; else after it has been found and nobody else for as long as `damping`, or
    /// several times that.
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
        let known = self.waiting.filter(|waiting| waiting.server == server);
        let waiting = known.unwrap_or_else(|| WaitingPrimary {
            server,
            since: now,
            patience: self.patience(server, damping, now),
        });
        // It may have been made shorter since.
        let patience = waiting.patience.min(damping * (1 << DOUBLINGS));
        if now.saturating_duration_since(waiting.since) < patience {
            self.waits += u64::from(known.is_none());
            (self.taken, self.waiting) = (None, Some(waiting));
            return None;
        }
        (self.taken, self.waiting) = (found, None);
        if std::mem::replace(&mut self.experienced, true) {
            self.changes.push_back((server, now));
            self.changes
                .drain(..self.changes.len().saturating_sub(CHANGES_MAX));
        }
        found
    }

    /// Times that one was not believed at once.
    pub(super) fn waits(&self) -> u64 {
        self.waits
    }

    fn patience(&mut self, server: ServerId, damping: Duration, now: Instant) -> Duration {
        self.changes
            .retain(|(_, at)| now.saturating_duration_since(*at) < REMEMBERED);
        let to_it = self.changes.iter().filter(|(to, _)| *to == server).count();
        match to_it.checked_sub(FREE) {
            None => Duration::ZERO,
            Some(beyond) => damping * (1 << beyond.min(DOUBLINGS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Option<ServerId> = Some(ServerId(0));
    const B: Option<ServerId> = Some(ServerId(1));
    const DAMPING: Duration = Duration::from_secs(1);

    #[test]
    fn without_damping_whoever_is_found_is_taken() {
        let (mut damper, now) = (Damper::default(), Instant::now());
        for found in [A, B, None, B, A, B, A, B, A] {
            assert_eq!(damper.admit(found, Duration::ZERO, now), found);
        }
        assert_eq!(damper.waits(), 0);
    }

    #[test]
    fn a_failover_is_believed_at_once_and_a_primary_that_flaps_is_not() {
        let (mut damper, start) = (Damper::default(), Instant::now());
        let mut admit = |found, ms| {
            let taken = damper.admit(found, DAMPING, start + Duration::from_millis(ms));
            (taken, damper.waits())
        };
        assert_eq!(admit(A, 0), (A, 0), "the first");
        assert_eq!(admit(None, 100), (None, 0));
        assert_eq!(admit(B, 200), (B, 0), "a failover");
        assert_eq!(admit(A, 300), (A, 0), "and back");
        assert_eq!(admit(None, 400), (None, 0));
        assert_eq!(admit(A, 500), (A, 0), "and lost for a moment");
        assert_eq!(admit(None, 550), (None, 0));
        assert_eq!(admit(A, 600), (None, 1), "that is too much");
        assert_eq!(admit(A, 1599), (None, 1));
        assert_eq!(admit(A, 1600), (A, 1), "it lasts");
        assert_eq!(admit(B, 1700), (B, 1), "who has not been it often is believed");
        assert_eq!(admit(A, 1800), (None, 2));
        assert_eq!(
            admit(B, 1900),
            (None, 3),
            "it did not last, and B becomes it for the third time"
        );
        assert_eq!(admit(B, 2900), (B, 3));
        assert_eq!(admit(A, 3000), (None, 4));
        assert_eq!(admit(A, 4999), (None, 4));
        assert_eq!(admit(A, 5000), (A, 4), "twice as long");
        assert_eq!(admit(B, 70_000), (B, 4), "forgotten");
    }

    proptest! {
        /// However it flaps, there are few changes, and whoever lasts is taken.
        #[test]
        fn a_cluster_that_flaps_changes_seldom_and_comes_to_rest(
            history in prop::collection::vec((prop::option::of(0..3_u32), 20..3000_u64), 1..400),
        ) {
            let (mut damper, start) = (Damper::default(), Instant::now());
            let (mut ms, mut before, mut changes) = (0, None, Vec::new());
            for (found, pause) in history {
                ms += pause;
                let found = found.map(ServerId);
                let taken = damper.admit(found, DAMPING, start + Duration::from_millis(ms));
                prop_assert!(taken.is_none() || taken == found, "nobody else");
                if taken.is_some() && taken != before {
                    changes.push((taken, ms));
                }
                before = taken;
            }
            for (to, at) in &changes {
                let others = changes.iter().filter(|(other, _)| other == to);
                let within = others.filter(|(_, other)| (*at..at + 60_000).contains(other)).count();
                // The first of all, those that are free, and as many waits of 1, 2, 4, 8, 8 … s as go into a
                // minute.
                prop_assert!(within <= 1 + FREE + 11, "{within} changes in a minute: {changes:?}");
            }
            let mut admit = |ms| damper.admit(A, DAMPING, start + Duration::from_millis(ms));
            admit(ms);
            prop_assert_eq!(admit(ms + 8000), A);
        }
    }
}
