//! Who may serve a read, and who comes before whom: role, lag, what has been applied, backups, room and zone.
//!
//! All of it is one figure, the [`Standing`]: only those of the best standing take part in the choice, which
//! the balance then makes among them.

use crate::reads::{ReadCandidate, ReadPolicy, Role};

/// The place of a candidate in line. Ordered: less comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    /// Replicas, then backups, then the primary.
    pub(crate) line: Line,
    /// A statement would wait for a connection: another zone is nearer than a queue.
    pub(crate) full: bool,
    pub(crate) other_zone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    First,
    Backup,
    /// The primary, where it does not serve reads as a rule.
    LastResort,
}

/// Why a candidate may not serve this read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    Outside,
    Unusable,
    Unavailable,
    NoWeight,
    Lag,
    Behind,
    Stale,
    Primary,
}

impl Standing {
    /// The standing of `candidate` for a read under `policy`, or what bars it.
    pub(crate) fn of(candidate: &ReadCandidate, policy: &ReadPolicy) -> Result<Self, Bar> {
        if !candidate.admitted {
            return Err(Bar::Outside);
        }
        if candidate.role == Role::Unusable {
            return Err(Bar::Unusable);
        }
        if !candidate.available {
            return Err(Bar::Unavailable);
        }
        Ok(Self {
            line: line(candidate, policy)?,
            full: candidate.full,
            other_zone: candidate.other_zone,
        })
    }
}

fn line(candidate: &ReadCandidate, policy: &ReadPolicy) -> Result<Line, Bar> {
    if candidate.role == Role::Primary {
        // It has every write, and no weight keeps it from reads that nobody else can serve.
        return match (policy.primary_reads && candidate.weight > 0, policy.last_resort) {
            (true, _) => Ok(if candidate.backup {
                Line::Backup
            } else {
                Line::First
            }),
            (false, true) => Ok(Line::LastResort),
            (false, false) => Err(Bar::Primary),
        };
    }
    if candidate.weight == 0 {
        return Err(Bar::NoWeight);
    }
    if !policy.max_lag.is_zero() && candidate.lag.is_some_and(|lag| lag > policy.max_lag) {
        return Err(Bar::Lag);
    }
    if candidate.transactions_behind > policy.max_transactions_behind {
        return Err(Bar::Behind);
    }
    if !candidate.applied {
        return Err(Bar::Stale);
    }
    Ok(if candidate.backup {
        Line::Backup
    } else {
        Line::First
    })
}
