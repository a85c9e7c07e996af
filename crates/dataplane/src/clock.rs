//! The time of sessions, in steps that cost nobody a timer.

use std::cell::Cell;
use std::time::Duration;

/// How often the coarse clock ticks and idle sessions are looked for.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// A duration in ticks of the coarse clock.
pub(crate) fn ticks(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX / 2)
}

/// The worker's coarse clock: ticks since it started, moved on by its sweep, so that no command reads a
/// timer.
#[derive(Debug, Default)]
pub(crate) struct Clock(Cell<u32>);

impl Clock {
    pub(crate) fn now(&self) -> u32 {
        self.0.get()
    }

    pub(crate) fn advance(&self) {
        self.0.set(self.0.get().wrapping_add(1));
    }
}
