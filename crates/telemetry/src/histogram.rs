//! Durations counted in fixed log-linear buckets: four to each power of two, from 8 µs to 137 s.
//!
//! A bucket is found with `leading_zeros` and a shift, so that recording costs two or three nanoseconds and
//! the memory of a histogram is fixed (800 bytes). Two buckets to a power of two are shown to Prometheus; all
//! four serve [`Snapshot::quantile`], which is therefore at most 25 % above the truth.

use std::time::Duration;

use crate::Counter;

/// log2 of the number of buckets to a power of two.
const STEP_BITS: u32 = 2;
const STEPS: usize = 1 << STEP_BITS;
/// The first bucket holds everything up to 2^13 ns = 8.192 µs.
const FIRST_POWER: u32 = 13;
/// Beyond 2^37 ns = 137.4 s durations fall in the last bucket, which has no upper bound.
const LAST_POWER: u32 = 37;
/// Buckets that have an upper bound.
const BOUNDED: usize = (LAST_POWER - FIRST_POWER) as usize * STEPS + 1;
/// One of two buckets is shown.
const SHOWN_STEP: usize = 2;

/// Where durations are counted. One writer, as for [`Counter`].
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BOUNDED + 1],
    sum_ns: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { Counter::new() }; BOUNDED + 1],
            sum_ns: Counter::new(),
        }
    }
}

impl Histogram {
    /// Counts one duration. Allocates nothing. Only ever called from one thread.
    pub fn record(&self, duration: Duration) {
        let ns = duration
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(duration.subsec_nanos().into());
        self.buckets[bucket_of(ns)].inc();
        self.sum_ns.add(ns);
    }

    /// What has been counted so far, from any thread.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            buckets: std::array::from_fn(|index| self.buckets[index].get()),
            sum_ns: self.sum_ns.get().into(),
        }
    }
}

/// The counts of one histogram, or of several added up, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    buckets: [u64; BOUNDED + 1],
    sum_ns: u128,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            buckets: [0; BOUNDED + 1],
            sum_ns: 0,
        }
    }
}

impl Snapshot {
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Snapshot) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine = mine.wrapping_add(theirs);
        }
        self.sum_ns += other.sum_ns;
    }

    /// Number of durations counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Sum of the durations counted, in seconds.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The duration that a `q` part (0.0 to 1.0) of those counted did not exceed, rounded up to a bucket's
    /// bound: at most 25 % above the truth for durations from 8 µs to 137 s. `None` when nothing was counted.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let index = self.buckets.iter().position(|bucket| {
            seen += bucket;
            seen >= wanted
        });
        (count > 0).then(|| Duration::from_nanos(upper_bound_ns(index.unwrap_or(BOUNDED).min(BOUNDED - 1))))
    }

    /// Upper bound in seconds and number of durations not above it, for the buckets shown to Prometheus, in
    /// order. The bucket without an upper bound is left out: its value is [`count`](Self::count).
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut seen = 0;
        self.buckets[..BOUNDED]
            .iter()
            .enumerate()
            .filter_map(move |(index, bucket)| {
                seen += bucket;
                index
                    .is_multiple_of(SHOWN_STEP)
                    .then(|| (upper_bound_ns(index) as f64 / 1e9, seen))
            })
    }
}

/// Index of the bucket whose range (lower, upper] holds `ns`.
fn bucket_of(ns: u64) -> usize {
    // Bounds belong to the lower bucket, as Prometheus' `le` says; on whole numbers that is a shift by one.
    let n = ns.saturating_sub(1);
    if n < 1 << FIRST_POWER {
        return 0;
    }
    let power = u64::BITS - 1 - n.leading_zeros();
    let step = (n >> (power - STEP_BITS)) as usize & (STEPS - 1);
    ((power - FIRST_POWER) as usize * STEPS + step + 1).min(BOUNDED)
}

/// Upper bound of a bucket that has one, in nanoseconds; it belongs to the bucket.
fn upper_bound_ns(index: usize) -> u64 {
    debug_assert!(index < BOUNDED);
    let power = FIRST_POWER + (index / STEPS) as u32;
    (1 << power) + ((index % STEPS) as u64) * (1 << (power - STEP_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_belongs_to_its_bucket_and_the_next_nanosecond_does_not() {
        for index in 0..BOUNDED {
            let bound = upper_bound_ns(index);
            assert_eq!(bucket_of(bound), index, "bound {bound} ns");
            assert_eq!(bucket_of(bound + 1), index + 1, "just above {bound} ns");
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BOUNDED);
    }

    #[test]
    fn the_range_is_what_the_module_says() {
        assert_eq!(upper_bound_ns(0), 8_192);
        assert_eq!(upper_bound_ns(BOUNDED - 1), 137_438_953_472);
        assert!(size_of::<Histogram>() <= 800);
    }

    #[test]
    fn cumulative_counts_never_fall_and_reach_the_count() {
        let histogram = Histogram::default();
        for micros in [0, 8, 9, 100, 100, 1_000, 50_000, 130_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let snapshot = histogram.snapshot();
        let shown: Vec<_> = snapshot.cumulative().collect();
        assert!(shown.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert_eq!(shown.last().map(|last| last.1), Some(8));
        assert_eq!(shown[0].1, 2);
        assert_eq!(snapshot.count(), 8);

        histogram.record(Duration::MAX);
        assert_eq!(
            histogram.snapshot().cumulative().last().map(|last| last.1),
            Some(8)
        );
        assert_eq!(histogram.snapshot().count(), 9);
    }

    #[test]
    fn a_quantile_is_at_most_a_quarter_above_the_truth() {
        let histogram = Histogram::default();
        (1..=10_000).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        let snapshot = histogram.snapshot();
        for (q, truth_us) in [(0.01, 100.0), (0.5, 5_000.0), (0.95, 9_500.0), (1.0, 10_000.0)] {
            let found = snapshot.quantile(q).unwrap().as_secs_f64() * 1e6;
            assert!(
                found >= truth_us && found <= truth_us * 1.25,
                "q {q}: {found} µs, truth {truth_us} µs"
            );
        }
        assert_eq!(Snapshot::default().quantile(0.5), None);
    }

    #[test]
    fn merging_adds_counts_and_sums() {
        let (one, two) = (Histogram::default(), Histogram::default());
        one.record(Duration::from_millis(1));
        two.record(Duration::from_millis(2));
        let mut both = one.snapshot();
        both.merge(&two.snapshot());
        assert_eq!(both.count(), 2);
        assert!((both.sum_seconds() - 0.003).abs() < 1e-12);
    }
}
