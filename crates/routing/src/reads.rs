//! Which server gets a read: a snapshot of a cluster's members in, the place of the chosen one out.
//!
//! `standing` says who takes part and who comes first, then one method decides: `least_outstanding`,
//! `latency` or `weighted`. The primary serves reads when nobody else can, or always under
//! [`ReadPolicy::primary_reads`].
//!
//! A read that must see a certain write goes in two steps. First [`choose_replica`] without `last_resort`:
//! one that has applied the write. When there is none, [`choose_to_wait_for`] names the one to wait on, and
//! after the wait [`choose_replica`] is asked again, now with `last_resort`.

use std::time::Duration;

use config::ReadBalance;

use crate::explain::{Explanation, explain};
use crate::load::{self, Load};
use crate::standing::Standing;
use crate::{Draw, WARM, latency, least_outstanding, weighted};

/// What a member of a cluster is there for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Follows a primary.
    Replica,
    /// Neither: joining, recovering, broken, not known.
    Unusable,
}

/// A member as it is at the moment of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCandidate {
    pub role: Role,
    /// Belongs to those that the statement may go to: all, unless a rule or a hint names a group or a server.
    pub admitted: bool,
    /// Healthy, and not tried already for this statement.
    pub available: bool,
    /// Every connection it may have is in use: a statement would wait.
    pub full: bool,
    /// Takes reads only when no other replica can.
    pub backup: bool,
    /// It is in another zone than the gateway. `false` where either has none.
    pub other_zone: bool,
    /// Has applied what the read must see. `true` where it must see nothing in particular.
    pub applied: bool,
    /// How far it is behind; `None` where there is no such figure, and then no limit of it.
    pub lag: Option<Duration>,
    /// Transactions that it has still to apply; 0 where there is no such figure.
    pub transactions_behind: u32,
    /// Share of the reads relative to the other members. 0: none.
    pub weight: u32,
    /// Slow start: from 0 (has just come up) to [`WARM`].
    pub warmth_permille: u32,
    /// Statements sent to it that are not answered yet.
    pub outstanding: u32,
    /// What [`crate::PeakEwma`] expects of it now; 0 is not known.
    pub latency_us: u64,
}

impl ReadCandidate {
    /// A member in best order: of weight 1, warm, idle, here, with everything applied.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            admitted: true,
            available: true,
            full: false,
            backup: false,
            other_zone: false,
            applied: true,
            lag: None,
            transactions_behind: 0,
            weight: 1,
            warmth_permille: WARM,
            outstanding: 0,
            latency_us: 0,
        }
    }

    /// Weight times warmth, in thousandths; never 0, since the only one left is the right one.
    pub(crate) fn effective_weight(&self) -> u64 {
        u64::from(self.weight.max(1)) * u64::from(self.warmth_permille.clamp(1, WARM))
    }
}

/// What the cluster's configuration says about reads, and what this read can do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPolicy {
    pub balance: ReadBalance,
    /// A replica further behind takes no part. Zero is no limit.
    pub max_lag: Duration,
    /// A replica with more transactions to apply takes no part. [`u32::MAX`] is no limit, which costs a
    /// comparison less than a zero would.
    pub max_transactions_behind: u32,
    /// The primary takes its share like a replica.
    pub primary_reads: bool,
    /// The primary serves the read when nobody else can.
    pub last_resort: bool,
}

impl Default for ReadPolicy {
    fn default() -> Self {
        Self {
            balance: ReadBalance::LeastOutstanding,
            max_lag: Duration::ZERO,
            max_transactions_behind: u32::MAX,
            primary_reads: false,
            last_resort: true,
        }
    }
}

/// The place of the member that gets the read. `None` when none may have it. Does not allocate.
///
/// Best first: replicas with a free connection in our zone, those in another zone, full ones; then backups in
/// the same order; then the primary.
#[must_use]
pub fn choose_replica(candidates: &[ReadCandidate], policy: &ReadPolicy, draw: Draw) -> Option<usize> {
    choose(candidates, policy.balance, draw, |candidate| {
        Standing::of(candidate, policy).ok()
    })
}

/// The place of the replica to wait on for what the read must see: the best of those that lack nothing else.
/// Never the primary, which has everything.
#[must_use]
pub fn choose_to_wait_for(candidates: &[ReadCandidate], policy: &ReadPolicy, draw: Draw) -> Option<usize> {
    let policy = ReadPolicy {
        primary_reads: false,
        last_resort: false,
        ..*policy
    };
    choose(candidates, policy.balance, draw, |candidate| {
        let applied = ReadCandidate {
            applied: true,
            ..*candidate
        };
        Standing::of(&applied, &policy).ok()
    })
}

/// The same choice as [`choose_replica`] with a reason for every candidate, in their order.
#[must_use]
pub fn explain_replica(candidates: &[ReadCandidate], policy: &ReadPolicy, draw: Draw) -> Vec<Explanation> {
    explain(candidates, policy, choose_replica(candidates, policy, draw))
}

/// The choice of the balance among those of the best standing.
fn choose(
    candidates: &[ReadCandidate],
    balance: ReadBalance,
    draw: Draw,
    standing: impl Fn(&ReadCandidate) -> Option<Standing> + Copy,
) -> Option<usize> {
    let best = candidates.iter().filter_map(standing).min()?;
    let takes_part = candidates
        .iter()
        .enumerate()
        .filter(move |(_, candidate)| standing(candidate) == Some(best));
    let least = |of: fn(&ReadCandidate) -> Load| {
        let loads = takes_part
            .clone()
            .map(|(place, candidate)| (place, of(candidate)));
        load::least(loads, draw.seed)
    };
    let place = match balance {
        ReadBalance::LeastOutstanding => least(least_outstanding::load),
        ReadBalance::Latency => least(latency::load),
        ReadBalance::Weighted => {
            let weights = takes_part.map(|(place, candidate)| (place, candidate.effective_weight()));
            weighted::pick(weights, draw.turn)
        }
    };
    debug_assert!(
        place
            .and_then(|place| candidates.get(place))
            .is_some_and(|chosen| standing(chosen) == Some(best)),
        "{place:?} must not be chosen from {candidates:?}"
    );
    place
}
