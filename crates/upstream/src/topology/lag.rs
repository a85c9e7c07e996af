//! How far a server is behind, from one look to the next. Pure; the time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::observation::Lag;

/// Marks that are kept. While there are as many, none is added: the lag is then that of an older one, never
/// too small.
const MARKS_MAX: usize = 64;

/// What a look tells of the lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The server knows it, of its source.
    Behind(Duration),
    /// The newest row of the heartbeat table, which comes from the primary, is so old.
    Heartbeat(Duration),
    /// Transactions that it has applied since it began to count, and those that wait for it.
    Backlog { applied: u64, waiting: u64 },
    /// Nothing: it cannot reach its source, or does not say.
    Nothing,
}

/// The lag of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct LagGauge {
    known: Option<(Lag, Instant)>,
    /// When the server had received how many transactions, oldest first.
    marks: VecDeque<(Instant, u64)>,
}

impl LagGauge {
    pub(super) fn read(&mut self, reading: Reading, now: Instant) {
        let (was, to_primary) = match reading {
            Reading::Behind(lag) => (lag, false),
            Reading::Heartbeat(lag) => (lag, true),
            Reading::Backlog { applied, waiting } => (self.behind(applied, waiting, now), false),
            Reading::Nothing => return,
        };
        let age = Duration::ZERO;
        self.known = Some((Lag { was, age, to_primary }, now));
    }

    /// What was known last.
    pub(super) fn lag(&self, now: Instant) -> Option<Lag> {
        self.known.map(|(lag, at)| Lag {
            age: now.saturating_duration_since(at),
            ..lag
        })
    }

    /// The server has by now what it had received when the last mark was set that it has reached.
    fn behind(&mut self, applied: u64, waiting: u64, now: Instant) -> Duration {
        let received = applied.saturating_add(waiting);
        // It was restarted and counts anew.
        if self.marks.back().is_some_and(|(_, mark)| *mark > received) {
            self.marks.clear();
        }
        let reached = self.marks.iter().take_while(|(_, mark)| *mark <= applied).count();
        // The last one that was reached stays as the beginning.
        self.marks.drain(..reached.saturating_sub(1));
        if self.marks.len() < MARKS_MAX {
            self.marks.push_back((now, received));
        }
        match (waiting, self.marks.front()) {
            (1.., Some((since, _))) => now.saturating_duration_since(*since),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_backlog_is_as_old_as_the_last_time_all_of_it_was_there() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut gauge = LagGauge::default();
        let mut behind = |ms, applied, waiting| {
            gauge.read(Reading::Backlog { applied, waiting }, at(ms));
            gauge.lag(at(ms)).unwrap().was.as_millis()
        };
        assert_eq!(behind(0, 10, 0), 0);
        assert_eq!(
            behind(500, 10, 5),
            500,
            "it last had everything half a second ago"
        );
        assert_eq!(behind(1000, 12, 9), 1000);
        assert_eq!(behind(1500, 15, 9), 1000, "what was there at 500 is applied");
        assert_eq!(behind(2000, 24, 1), 500, "never idle, and hardly behind");
        assert_eq!(behind(2500, 25, 0), 0);
        assert_eq!(behind(3000, 0, 3), 0, "restarted: nothing is known of before");
        assert_eq!(behind(3500, 1, 2), 500);
    }

    #[test]
    fn what_is_not_told_grows_old() {
        let start = Instant::now();
        let mut gauge = LagGauge::default();
        gauge.read(Reading::Nothing, start);
        assert_eq!(gauge.lag(start), None);
        let (behind, later) = (Duration::from_secs(3), start + Duration::from_secs(7));
        for (reading, to_primary) in [
            (Reading::Behind(behind), false),
            (Reading::Heartbeat(behind), true),
        ] {
            gauge.read(reading, start);
            gauge.read(Reading::Nothing, later);
            let expected = Lag {
                was: behind,
                age: Duration::from_secs(7),
                to_primary,
            };
            assert_eq!(gauge.lag(later), Some(expected));
        }
    }

    proptest! {
        /// Against the truth: a source that writes and a replica that applies, both at any pace.
        #[test]
        fn the_lag_is_never_too_small(steps in prop::collection::vec((0..20_u64, 0..20_u64), 1..200)) {
            let start = Instant::now();
            let mut gauge = LagGauge::default();
            let (mut received, mut applied) = (0_u64, 0_u64);
            let mut history = Vec::new();
            for (step, (writes, applies)) in (0_u64..).zip(steps) {
                let now = start + Duration::from_secs(step);
                received += writes;
                applied = (applied + applies).min(received);
                history.push((now, received));
                gauge.read(Reading::Backlog { applied, waiting: received - applied }, now);
                // The last moment of which everything is applied; before the first look nothing is known.
                let truth = history.iter().rev().find(|(_, received)| *received <= applied);
                let truth = truth.map_or(now - start, |(at, _)| now - *at);
                prop_assert!(gauge.lag(now).unwrap().was >= truth);
                prop_assert!(gauge.marks.len() <= MARKS_MAX);
                if received == applied {
                    prop_assert_eq!(gauge.lag(now).unwrap().was, Duration::ZERO);
                }
            }
        }
    }
}
