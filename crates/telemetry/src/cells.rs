//! One number in memory: a [`Counter`] only grows, a [`Gauge`] goes both ways.
//!
//! Both have a single writer: the thread that owns the worker. That is what lets `add` be a load, an addition
//! and a store, which cost a nanosecond, where an atomic read-modify-write costs six and more under
//! contention. Readers may be on any thread. Two writers would not be unsafe, but would lose counts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A number that only grows. Wraps at 2^64, which at a byte a nanosecond is after 584 years.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one. Only ever called from one thread.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`. Only ever called from one thread.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The count so far, from any thread.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// A gauge at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Adds one. Only ever called from one thread.
    pub fn inc(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Takes one away. Only ever called from one thread.
    pub fn dec(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// Adds `n`, or takes it away where it is negative. Only ever called from one thread.
    pub fn add(&self, n: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// The value now, from any thread.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_counts() {
        let counter = Counter::new();
        counter.inc();
        counter.add(41);
        assert_eq!(counter.get(), 42);
    }

    #[test]
    fn a_gauge_goes_both_ways() {
        let gauge = Gauge::new();
        gauge.inc();
        gauge.dec();
        gauge.dec();
        assert_eq!(gauge.get(), -1);
        gauge.set(7);
        assert_eq!(gauge.get(), 7);
    }
}
