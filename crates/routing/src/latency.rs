//! Latency: the server that will probably answer first.
//!
//! Its cost is the peak-sensitive average of its answer times, times the statements it would have under way,
//! divided by its weight: a slow answer counts at once and in full, and is forgotten step by step, so that a
//! server that stalls loses its reads after one answer and gets a trial soon after. A server that has not
//! answered yet costs little and is tried; its statements under way keep everybody from trying it at the same
//! time.

use std::time::Duration;

use crate::load::Load;
use crate::reads::ReadCandidate;

/// Time in which a past answer loses 63 % of its say.
const DECAY: Duration = Duration::from_secs(10);

/// The cost of a server without an answer yet: less than that of any server that has answered.
const UNKNOWN_US: u64 = 1;

/// The answer times of a server: an exponentially weighted moving average that follows peaks at once. Time is
/// an argument, in microseconds of any clock that does not go back; one that does is taken as standing still.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeakEwma {
    average_us: f64,
    noted_at_us: u64,
}

impl PeakEwma {
    /// One more answer, which took `took` and ended at `now_us`.
    pub fn note(&mut self, took: Duration, now_us: u64) {
        let took = took.as_secs_f64() * 1e6;
        let remaining = self.remaining(now_us);
        self.average_us = if took > self.average_us {
            took
        } else {
            self.average_us * remaining + took * (1.0 - remaining)
        };
        self.noted_at_us = self.noted_at_us.max(now_us);
    }

    /// What to expect at `now_us`, in microseconds. Sinks while nothing is heard, or else a server that was
    /// slow once would never be asked again. 0 is not known.
    #[must_use]
    pub fn expected_us(&self, now_us: u64) -> u64 {
        // A float beyond the range of the integer becomes its largest value.
        (self.average_us * self.remaining(now_us)) as u64
    }

    /// How much of the average is left at `now_us`, from 1 to 0.
    fn remaining(&self, now_us: u64) -> f64 {
        let passed = now_us.saturating_sub(self.noted_at_us) as f64;
        (-passed / (DECAY.as_secs_f64() * 1e6)).exp()
    }
}

pub(crate) fn load(candidate: &ReadCandidate) -> Load {
    let under_way = u64::from(candidate.outstanding) + 1;
    Load {
        amount: candidate.latency_us.max(UNKNOWN_US).saturating_mul(under_way),
        weight: candidate.effective_weight(),
    }
}
