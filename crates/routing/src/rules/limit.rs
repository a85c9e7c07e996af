//! How many statements of a rule may be under way, and how many may begin in a second.
//!
//! Shared by all workers, without a lock: a counter, and for the rate the one figure of the generic cell rate
//! algorithm, the time at which the bucket will be full again. The clock is an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use config::Rule;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub struct Limit {
    max_concurrency: Option<u32>,
    rate: Option<Rate>,
    under_way: AtomicU32,
    /// When everything taken so far is paid for, in nanoseconds of the caller's clock.
    paid_at_ns: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    /// What one statement costs, in time.
    interval_ns: u64,
    /// How far ahead of the clock statements may be paid for.
    ahead_ns: u64,
}

/// Why a statement has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Too many are under way: until one of them ends.
    Concurrency,
    /// Too many began: not before this time has passed.
    Rate(Duration),
}

/// The permission for one statement; its end is when this is dropped.
#[derive(Debug)]
pub struct Turn(Arc<Limit>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Release);
    }
}

impl Limit {
    /// The limits of a rule, `None` where it has none.
    pub(super) fn of(rule: &Rule) -> Option<Self> {
        let rate = rule.rate.map(|rate| {
            let interval_ns = SECOND_NS / u64::from(rate.max(1));
            let burst = u64::from(rule.burst.unwrap_or(rate).max(1));
            Rate {
                interval_ns,
                ahead_ns: interval_ns.saturating_mul(burst - 1),
            }
        });
        (rate.is_some() || rule.max_concurrency.is_some()).then(|| Self {
            max_concurrency: rule.max_concurrency,
            rate,
            under_way: AtomicU32::new(0),
            paid_at_ns: AtomicU64::new(0),
        })
    }

    /// Whether the two are the same but for what is under way.
    pub(super) fn allows_the_same(&self, other: &Self) -> bool {
        self.max_concurrency == other.max_concurrency && self.rate == other.rate
    }

    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// A turn at `now_ns`, of any clock that all callers share and that does not go back.
    ///
    /// # Errors
    /// What there is to wait for; asking again is up to the caller, and first come is not first served.
    pub fn turn(self: &Arc<Self>, now_ns: u64) -> Result<Turn, Wait> {
        let most = self.max_concurrency.unwrap_or(u32::MAX);
        self.under_way
            .try_update(Ordering::Acquire, Ordering::Relaxed, |count| {
                (count < most).then(|| count + 1)
            })
            .map_err(|_| Wait::Concurrency)?;
        // From here on the place is given back by dropping the turn.
        let turn = Turn(Arc::clone(self));
        self.pay(now_ns).map_err(Wait::Rate)?;
        Ok(turn)
    }

    fn pay(&self, now_ns: u64) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        let paid_at = |before: u64| before.max(now_ns);
        self.paid_at_ns
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                let is_open = paid_at(before) - now_ns <= rate.ahead_ns;
                is_open.then(|| paid_at(before).saturating_add(rate.interval_ns))
            })
            .map(|_| ())
            .map_err(|before| Duration::from_nanos(paid_at(before) - now_ns - rate.ahead_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(max_concurrency: Option<u32>, rate: Option<u32>, burst: Option<u32>) -> Arc<Limit> {
        let rule = Rule {
            max_concurrency,
            rate,
            burst,
            ..Rule::new("limited")
        };
        Arc::new(Limit::of(&rule).unwrap())
    }

    #[test]
    fn a_turn_that_ends_makes_room() {
        let limit = limit(Some(2), None, None);
        let first = limit.turn(0).unwrap();
        let _second = limit.turn(0).unwrap();
        assert_eq!(limit.turn(0).unwrap_err(), Wait::Concurrency);
        drop(first);
        assert!(limit.turn(0).is_ok());
        assert_eq!(limit.under_way(), 1);
    }

    #[test]
    fn a_statement_over_the_rate_takes_no_place() {
        let limit = limit(Some(5), Some(10), Some(1));
        drop(limit.turn(SECOND_NS).unwrap());
        let wait = Wait::Rate(Duration::from_millis(100));
        assert_eq!(limit.turn(SECOND_NS).unwrap_err(), wait);
        assert_eq!(limit.under_way(), 0);
        assert!(limit.turn(SECOND_NS + SECOND_NS / 10).is_ok());
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate(
            rate in 1..1000_u32,
            burst in 1..50_u32,
            pauses in prop::collection::vec(0..5_000_000_u64, 1..300),
        ) {
            let limit = limit(None, Some(rate), Some(burst));
            let mut now = SECOND_NS;
            let mut begun: Vec<u64> = Vec::new();
            for pause in pauses {
                now += pause;
                match limit.turn(now) {
                    Ok(_) => begun.push(now),
                    Err(Wait::Rate(wait)) => {
                        let then = now + u64::try_from(wait.as_nanos()).unwrap();
                        prop_assert!(wait > Duration::ZERO);
                        // A probe of its own: what is told to wait may begin when it has waited.
                        let probe = Limit {
                            max_concurrency: None,
                            rate: limit.rate,
                            under_way: AtomicU32::new(0),
                            paid_at_ns: AtomicU64::new(limit.paid_at_ns.load(Ordering::Relaxed)),
                        };
                        prop_assert!(Arc::new(probe).turn(then).is_ok());
                    }
                    Err(Wait::Concurrency) => prop_assert!(false, "there is no such limit"),
                }
            }
            let interval = SECOND_NS / u64::from(rate);
            for (index, first) in begun.iter().enumerate() {
                for (count, last) in begun[index..].iter().enumerate() {
                    prop_assert!(count as u64 <= (last - first) / interval + u64::from(burst));
                }
            }
        }
    }
}
