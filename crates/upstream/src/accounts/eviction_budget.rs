//! How many connections of the pools may go for logins of strangers that come to nothing.
//!
//! Where a server is full, a login that is tried there takes the place of an idle connection, which somebody
//! has to open again. Whoever tries passwords must not be able to keep the pools at that: so many connections
//! may go in vain, and then strangers wait for a permit that is free anyway. One whose password is right
//! costs nothing of it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// Connections that may go in vain within [`WITHIN`]: as many as logins are tried at the same time, and one a
/// second.
const MOST: usize = 8;
const WITHIN: Duration = Duration::from_secs(8);

/// When they went, or may have.
#[derive(Debug, Default)]
pub(super) struct EvictionBudget(Mutex<Vec<Instant>>);

/// The right to have one connection go. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Eviction<'e> {
    all: &'e EvictionBudget,
    at: Instant,
    in_vain: bool,
}

impl EvictionBudget {
    /// One more, unless there were too many of late.
    pub(super) fn allow(&self, now: Instant) -> Option<Eviction<'_>> {
        let mut all = lock(&self.0);
        all.retain(|at| now.saturating_duration_since(*at) < WITHIN);
        (all.len() < MOST).then(|| {
            all.push(now);
            Eviction {
                all: self,
                at: now,
                in_vain: false,
            }
        })
    }
}

impl Eviction<'_> {
    /// The login came to nothing.
    pub(super) fn was_in_vain(mut self) {
        self.in_vain = true;
    }
}

impl Drop for Eviction<'_> {
    fn drop(&mut self) {
        if self.in_vain {
            return;
        }
        let mut all = lock(&self.all.0);
        if let Some(place) = all.iter().position(|at| *at == self.at) {
            all.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_vain_is_bounded() {
        let (eviction_budget, start) = (EvictionBudget::default(), Instant::now());
        for _ in 0..100 {
            drop(eviction_budget.allow(start).unwrap());
        }
        for _ in 0..MOST {
            eviction_budget.allow(start).unwrap().was_in_vain();
        }
        assert!(eviction_budget.allow(start).is_none());
        let later = start + WITHIN;
        assert!(eviction_budget.allow(later - Duration::from_millis(1)).is_none());
        let held: Vec<_> = (0..MOST).map(|_| eviction_budget.allow(later).unwrap()).collect();
        assert!(eviction_budget.allow(later).is_none(), "nor at the same time");
        drop(held);
        assert!(eviction_budget.allow(later).is_some());
    }
}
