//! How late a replay was in each part of its run, in a few numbers whatever its length.

use std::time::Duration;

use hdrhistogram::Histogram;

const PARTS_MAX: usize = 200;
/// How long a part is at first.
const PART_US: u64 = 100_000;

/// The greatest lateness of each part of a run. The parts are of equal length; where the run is longer than
/// they reach, neighbours become one and the length doubles.
pub(super) struct Timeline {
    pub(super) part_us: u64,
    /// From the beginning of the run on, in microseconds.
    pub(super) greatest: Vec<u64>,
    /// The lateness of all commands.
    pub(super) all: Option<Histogram<u64>>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            part_us: PART_US,
            greatest: Vec::new(),
            all: Histogram::new(2).ok(),
        }
    }
}

impl Timeline {
    /// Notes how late a command was. `at`: when it was sent, since the beginning of the run.
    pub(super) fn note(&mut self, at: Duration, late: Duration) {
        let (at_us, late_us) = (at.as_micros() as u64, late.as_micros() as u64);
        if let Some(all) = &mut self.all {
            // The histogram grows as it needs, so that this does not fail.
            let _ = all.record(late_us);
        }
        while at_us / self.part_us >= PARTS_MAX as u64 {
            let merged = self.greatest.chunks(2).filter_map(|pair| pair.iter().max());
            self.greatest = merged.copied().collect();
            self.part_us *= 2;
        }
        let index = (at_us / self.part_us) as usize;
        if self.greatest.len() <= index {
            self.greatest.resize(index + 1, 0);
        }
        let greatest = &mut self.greatest[index];
        *greatest = (*greatest).max(late_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_any_length_has_at_most_so_many_parts() {
        let mut timeline = Timeline::default();
        let note = |timeline: &mut Timeline, at_ms, late_us| {
            timeline.note(Duration::from_millis(at_ms), Duration::from_micros(late_us));
        };
        note(&mut timeline, 50, 3);
        note(&mut timeline, 60, 1);
        note(&mut timeline, 150, 7);
        assert_eq!((timeline.part_us, &timeline.greatest[..]), (100_000, &[3, 7][..]));
        note(&mut timeline, 19_999, 5);
        assert_eq!(timeline.greatest.len(), PARTS_MAX);
        note(&mut timeline, 20_000, 9);
        assert_eq!((timeline.part_us, timeline.greatest.len()), (200_000, 101));
        let of = |index: usize| timeline.greatest[index];
        assert_eq!((of(0), of(1), of(99), of(100)), (7, 0, 5, 9));
        note(&mut timeline, 3_600_000_000, 2);
        assert!(timeline.greatest.len() <= PARTS_MAX);
        assert_eq!((timeline.greatest[0], timeline.greatest.last()), (9, Some(&2)));
    }
}
