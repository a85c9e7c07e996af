//! Replicas that are further behind than reads may see: which they are, and when that is worth a line in the
//! log. Pure; the time is an argument.

use std::time::{Duration, Instant};

use super::decide::Judged;
use super::{Member, Role};

/// Least time between two lines that say that all are behind.
const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// How far a replica may be behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    lag: Duration,
    transactions: u32,
}

impl Limits {
    pub(super) fn of(config: &config::Cluster) -> Self {
        Self {
            lag: config.max_lag,
            transactions: config.max_transactions_behind,
        }
    }

    /// Why a replica takes no reads, in words that go on from what it is.
    pub(super) fn judge(self, judged: &Judged, transactions: Option<u32>) -> Option<String> {
        let lag = judged.lag.filter(|lag| !self.lag.is_zero() && *lag > self.lag);
        let transactions = transactions.filter(|count| self.transactions > 0 && *count > self.transactions);
        let why = match (judged.role, lag, transactions) {
            (Role::Replica, Some(lag), _) => format!("{:.1} s behind (max_lag)", lag.as_secs_f64()),
            (Role::Replica, None, Some(count)) => {
                format!("{count} transactions behind (max_transactions_behind)")
            }
            _ => return None,
        };
        Some(format!(", and takes no reads: {why}"))
    }
}

/// There are replicas, and all of them are too far behind: reads go to the primary.
pub(super) fn are_all(members: &[Member]) -> bool {
    let mut replicas = members
        .iter()
        .filter(|member| member.role == Role::Replica)
        .peekable();
    replicas.peek().is_some() && replicas.all(|member| member.is_too_far_behind)
}

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    AllBehind,
    Over,
}

/// What was said of it last.
#[derive(Debug, Default)]
pub(super) struct Said {
    is_said: bool,
    at: Option<Instant>,
}

impl Said {
    pub(super) fn note(&mut self, are_behind: bool, now: Instant) -> Option<News> {
        let is_early = |at: Instant| now.saturating_duration_since(at) < SAID_AGAIN_AFTER;
        match (are_behind, self.is_said) {
            (true, false) if !self.at.is_some_and(is_early) => {
                (self.is_said, self.at) = (true, Some(now));
                Some(News::AllBehind)
            }
            (false, true) => {
                self.is_said = false;
                Some(News::Over)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_too_far_behind_by_either_limit() {
        let limits = Limits {
            lag: Duration::from_secs(10),
            transactions: 5,
        };
        let replica = |lag| Judged {
            role: Role::Replica,
            reason: String::new(),
            lag,
        };
        let ten = Some(Duration::from_secs(10));
        let eleven = Some(Duration::from_secs(11));
        assert_eq!(limits.judge(&replica(ten), Some(5)), None);
        assert!(
            limits
                .judge(&replica(eleven), None)
                .unwrap()
                .contains("11.0 s behind")
        );
        assert!(
            limits
                .judge(&replica(None), Some(6))
                .unwrap()
                .contains("6 transactions")
        );
        let off = Limits {
            lag: Duration::ZERO,
            transactions: 0,
        };
        assert_eq!(off.judge(&replica(eleven), Some(6)), None);
    }

    #[test]
    fn it_is_said_once_a_minute_at_most_and_that_it_is_over() {
        let start = Instant::now();
        let mut said = Said::default();
        let mut note = |second, are_behind| said.note(are_behind, start + Duration::from_secs(second));
        assert_eq!(note(0, false), None);
        assert_eq!(note(1, true), Some(News::AllBehind));
        assert_eq!(note(2, true), None);
        assert_eq!(note(3, false), Some(News::Over));
        assert_eq!(note(4, true), None, "said a moment ago");
        assert_eq!(note(5, false), None);
        assert_eq!(note(62, true), Some(News::AllBehind));
    }
}
