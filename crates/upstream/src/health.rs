//! When a server counts as up: the results of checks in, changes out. Pure; the time is an argument.
//!
//! The first check decides at once, since before it nothing is known. After that `fall` failures in a row
//! take a server down and `rise` successes in a row bring it back. Traffic that finds a server refusing makes
//! it *suspect*: it keeps its state and its sessions, but gets no new ones until a check has passed.

use std::time::Instant;

/// How many results in a row change the state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Successes that bring a server up; at least 1.
    pub(crate) rise: u32,
    /// Failures that take it down; at least 1.
    pub(crate) fall: u32,
}

/// What the checks say of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not checked yet.
    Starting,
    Up,
    Down,
}

/// A result that changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    CameUp,
    /// After this many failures in a row.
    WentDown {
        failures: u32,
    },
    /// A suspicion was not confirmed.
    Cleared,
}

/// The health of one server.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    phase: Phase,
    /// Results in a row that speak against the phase.
    contrary: u32,
    suspect: bool,
    /// Slow start counts from here; `None` for a server that is warm or not up.
    warming_since: Option<Instant>,
    /// Whether coming up for the first time needs no slow start: the server was there when the process
    /// started.
    born_warm: bool,
}

impl Health {
    pub(crate) fn new(born_warm: bool) -> Self {
        Self {
            phase: Phase::Starting,
            contrary: 0,
            suspect: false,
            warming_since: None,
            born_warm,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// Since when it has been warming, where slow start applies.
    pub(crate) fn warming_since(&self) -> Option<Instant> {
        self.warming_since
    }

    /// A check passed.
    pub(crate) fn passed(&mut self, rules: Rules, now: Instant) -> Option<Change> {
        let was_suspect = std::mem::take(&mut self.suspect);
        match self.phase {
            Phase::Up => {
                self.contrary = 0;
                was_suspect.then_some(Change::Cleared)
            }
            Phase::Starting => {
                self.warming_since = (!self.born_warm).then_some(now);
                self.enter(Phase::Up);
                Some(Change::CameUp)
            }
            Phase::Down => {
                self.contrary += 1;
                if self.contrary < rules.rise {
                    return None;
                }
                self.warming_since = Some(now);
                self.enter(Phase::Up);
                Some(Change::CameUp)
            }
        }
    }

    /// A check failed.
    pub(crate) fn failed(&mut self, rules: Rules) -> Option<Change> {
        match self.phase {
            Phase::Down => {
                self.contrary = 0;
                return None;
            }
            Phase::Up => {
                self.contrary += 1;
                if self.contrary < rules.fall {
                    return None;
                }
            }
            Phase::Starting => self.contrary = 1,
        }
        let failures = self.contrary;
        self.warming_since = None;
        self.suspect = false;
        self.enter(Phase::Down);
        Some(Change::WentDown { failures })
    }

    /// Traffic could not connect. Returns whether that is news.
    pub(crate) fn suspect(&mut self) -> bool {
        if self.phase == Phase::Down {
            return false;
        }
        !std::mem::replace(&mut self.suspect, true)
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.contrary = 0;
        debug_assert!(self.phase == Phase::Up || self.warming_since.is_none());
        debug_assert!(self.phase != Phase::Down || !self.suspect);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const RULES: Rules = Rules { rise: 2, fall: 3 };

    fn up() -> Health {
        let mut health = Health::new(true);
        assert_eq!(health.passed(RULES, Instant::now()), Some(Change::CameUp));
        health
    }

    #[test]
    fn the_first_check_decides() {
        assert_eq!(up().phase(), Phase::Up);
        let mut health = Health::new(true);
        assert_eq!(health.failed(RULES), Some(Change::WentDown { failures: 1 }));
        assert_eq!(health.phase(), Phase::Down);
    }

    #[test]
    fn falls_after_three_and_rises_after_two() {
        let mut health = up();
        assert_eq!(health.failed(RULES), None);
        assert_eq!(health.failed(RULES), None);
        assert_eq!(health.failed(RULES), Some(Change::WentDown { failures: 3 }));
        assert_eq!(health.passed(RULES, Instant::now()), None);
        assert_eq!(
            health.failed(RULES),
            None,
            "a failure between starts the count again"
        );
        assert_eq!(health.passed(RULES, Instant::now()), None);
        assert_eq!(health.passed(RULES, Instant::now()), Some(Change::CameUp));
    }

    #[test]
    fn a_suspicion_lasts_until_a_check_passes() {
        let mut health = up();
        assert!(health.suspect());
        assert!(!health.suspect(), "not news twice");
        assert_eq!(health.failed(RULES), None);
        assert!(health.is_suspect());
        assert_eq!(health.passed(RULES, Instant::now()), Some(Change::Cleared));
        assert!(!health.is_suspect());
    }

    #[test]
    fn slow_start_is_for_those_who_come_back() {
        let now = Instant::now();
        let mut health = up();
        assert_eq!(health.warming_since(), None);
        for _ in 0..3 {
            health.failed(RULES);
        }
        health.passed(RULES, now);
        health.passed(RULES, now + Duration::from_secs(2));
        assert_eq!(health.warming_since(), Some(now + Duration::from_secs(2)));
        let mut added_later = Health::new(false);
        added_later.passed(RULES, now);
        assert_eq!(added_later.warming_since(), Some(now));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Pass,
        Fail,
        Suspect,
    }

    proptest! {
        /// Against the definition: a change of phase happens exactly where the last results in a row are
        /// enough.
        #[test]
        fn changes_only_on_enough_results_in_a_row(
            rise in 1..5_u32,
            fall in 1..5_u32,
            steps in prop::collection::vec(
                prop_oneof![Just(Step::Pass), Just(Step::Fail), Just(Step::Suspect)], 1..200),
        ) {
            let rules = Rules { rise, fall };
            let start = Instant::now();
            let mut health = Health::new(true);
            let (mut passes, mut failures) = (0_u32, 0_u32);
            for (second, step) in steps.into_iter().enumerate() {
                let before = health.phase();
                let now = start + Duration::from_secs(second as u64);
                match step {
                    Step::Pass => {
                        (passes, failures) = (passes + 1, 0);
                        let change = health.passed(rules, now);
                        let due = before == Phase::Starting || (before == Phase::Down && passes >= rise);
                        prop_assert_eq!(change == Some(Change::CameUp), due);
                        prop_assert!(!health.is_suspect());
                    }
                    Step::Fail => {
                        (passes, failures) = (0, failures + 1);
                        let change = health.failed(rules);
                        let due = before == Phase::Starting || (before == Phase::Up && failures >= fall);
                        prop_assert_eq!(matches!(change, Some(Change::WentDown { .. })), due);
                    }
                    Step::Suspect => {
                        let was = health.is_suspect();
                        prop_assert_eq!(health.suspect(), !was && before != Phase::Down);
                        prop_assert_eq!(health.phase(), before);
                    }
                }
                if health.phase() != before {
                    (passes, failures) = (0, 0);
                }
                prop_assert!(health.phase() != Phase::Down || !health.is_suspect());
            }
        }
    }
}
