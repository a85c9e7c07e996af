//! Sessions leave one after the other, not in a heap.

use std::time::Duration;

/// However long nobody has looked, no more sessions move at once than those of this time.
const CAUGHT_UP: Duration = Duration::from_secs(2);

/// When the next session may move.
#[derive(Debug)]
pub(super) struct Pace {
    /// Between two sessions.
    every: Duration,
    next: Duration,
}

impl Pace {
    /// So many sessions move in this time, the first one now.
    pub(super) fn new(now: Duration, within: Duration, sessions: u32) -> Self {
        Self {
            every: (within / sessions.max(1)).max(Duration::from_nanos(1)),
            next: now,
        }
    }

    /// Keeps its place in time, and goes on with that many.
    pub(super) fn change(&mut self, within: Duration, sessions: u32) {
        self.every = Self::new(self.next, within, sessions).every;
    }

    /// How many may move until the next look: those whose time has come, and those that nobody has taken, as
    /// long as these do not pile up.
    pub(super) fn owed(&mut self, now: Duration, untaken: u32) -> u32 {
        self.next = self.next.max(now.saturating_sub(CAUGHT_UP));
        let due = match now.checked_sub(self.next) {
            Some(late) => late.as_nanos() / self.every.as_nanos() + 1,
            None => 0,
        };
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        self.next += self.every * due;
        due.saturating_add(untaken.min(due.max(1)))
    }
}
