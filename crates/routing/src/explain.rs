//! Why each member was or was not chosen for a read, in words: for `FOREBAY EXPLAIN`, not for the path of a
//! query.

use std::fmt;
use std::time::Duration;

use crate::reads::{ReadCandidate, ReadPolicy};
use crate::standing::{Bar, Line, Standing};

/// What became of one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// It gets the read.
    Chosen,
    /// It gets the read since nobody else could serve it: it is the primary.
    ChosenAsLastResort,
    /// As good as the chosen one but for its load, its latency or its turn.
    Outbalanced,
    /// Every connection it may have is in use, and another member has one left.
    Full,
    /// In another zone, and one of ours can serve the read.
    OtherZone,
    /// A backup, and another replica can serve the read.
    Backup,
    /// The primary, and a replica can serve the read.
    Primary,
    /// The candidate's weight is 0. A server that drains has this weight, too.
    NoWeight,
    /// Further behind than the limit.
    Lagging { lag: Duration, limit: Duration },
    /// With more transactions to apply than the limit.
    Behind { transactions: u32, limit: u32 },
    /// It has not applied what the read must see.
    Stale,
    /// Neither primary nor replica at the moment.
    Unusable,
    /// Down, without room, or tried already.
    Unavailable,
    /// Not among those that the rule or the hint names.
    NotAdmitted,
}

impl Explanation {
    /// Whether it gets the read.
    #[must_use]
    pub fn is_chosen(self) -> bool {
        matches!(self, Self::Chosen | Self::ChosenAsLastResort)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Chosen => "chosen",
            Self::ChosenAsLastResort => "chosen: the primary, since no replica can serve it",
            Self::Outbalanced => "could serve it: another one had the lower load or the turn",
            Self::Full => "all its connections are in use, and another one has one left",
            Self::OtherZone => "in another zone",
            Self::Backup => "a backup, and others can serve it",
            Self::Primary => "the primary, and reads go to replicas",
            Self::NoWeight => "weight 0, or it is in `drain`",
            Self::Lagging { lag, limit } => {
                return write!(
                    out,
                    "{} ms behind, of {} ms allowed",
                    lag.as_millis(),
                    limit.as_millis()
                );
            }
            Self::Behind { transactions, limit } => {
                return write!(
                    out,
                    "has {transactions} transactions to apply, of {limit} allowed"
                );
            }
            Self::Stale => "has not applied the write that the read must see",
            Self::Unusable => "neither primary nor replica at the moment",
            Self::Unavailable => "down, without room, or tried already",
            Self::NotAdmitted => "not among the servers that were asked for",
        };
        out.write_str(words)
    }
}

/// A reason for each candidate, given which one was chosen.
pub(crate) fn explain(
    candidates: &[ReadCandidate],
    policy: &ReadPolicy,
    chosen: Option<usize>,
) -> Vec<Explanation> {
    let best = chosen
        .and_then(|place| candidates.get(place))
        .and_then(|candidate| Standing::of(candidate, policy).ok());
    let reason = |(place, candidate): (usize, &ReadCandidate)| {
        if Some(place) == chosen {
            return match best.map(|best| best.line) {
                Some(Line::LastResort) => Explanation::ChosenAsLastResort,
                _ => Explanation::Chosen,
            };
        }
        match Standing::of(candidate, policy) {
            Err(bar) => barred(bar, candidate, policy),
            Ok(standing) => outdone(standing, best),
        }
    };
    candidates.iter().enumerate().map(reason).collect()
}

fn barred(bar: Bar, candidate: &ReadCandidate, policy: &ReadPolicy) -> Explanation {
    match bar {
        Bar::Outside => Explanation::NotAdmitted,
        Bar::Unusable => Explanation::Unusable,
        Bar::Unavailable => Explanation::Unavailable,
        Bar::NoWeight => Explanation::NoWeight,
        Bar::Lag => Explanation::Lagging {
            lag: candidate.lag.unwrap_or_default(),
            limit: policy.max_lag,
        },
        Bar::Behind => Explanation::Behind {
            transactions: candidate.transactions_behind,
            limit: policy.max_transactions_behind,
        },
        Bar::Stale => Explanation::Stale,
        Bar::Primary => Explanation::Primary,
    }
}

/// Why one that may serve the read was not in the choice: the first factor in which the best is better.
fn outdone(standing: Standing, best: Option<Standing>) -> Explanation {
    let Some(best) = best else {
        return Explanation::Outbalanced;
    };
    if standing.line != best.line {
        return match standing.line {
            Line::LastResort => Explanation::Primary,
            Line::Backup | Line::First => Explanation::Backup,
        };
    }
    if standing.full != best.full {
        return Explanation::Full;
    }
    if standing.other_zone != best.other_zone {
        return Explanation::OtherZone;
    }
    Explanation::Outbalanced
}
