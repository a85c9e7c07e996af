//! From what is known of all servers to the role of each. Pure: one file for each kind of cluster.
//!
//! Common to all: there is a primary only when nobody contradicts. A server that cannot be seen clearly keeps
//! the role that its last words justify, until it is gone; but it takes part in a contradiction, so that
//! nobody is chosen in its place before. Several that claim to be the primary are a [`Verdict::conflict`].

mod fixed;
mod galera;
mod group_replication;
mod replication;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::Role;
use super::observation::{Facts, Observation};

/// What the servers are, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) members: Vec<Judged>,
    /// The one whose role is [`Role::Primary`].
    pub(super) primary: Option<usize>,
    /// Who claims to be the primary, and that nothing decides between them. To be believed only when all of
    /// them have been looked at again: during a switchover one of the looks is usually older than the
    /// other's.
    pub(super) conflict: Option<String>,
    /// Those that take writes beside the primary and follow nobody: an old primary, mostly, that came back as
    /// it was. To be believed as a conflict is.
    pub(super) rogue_writers: Vec<usize>,
}

/// What one server is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) role: Role,
    pub(super) reason: String,
    pub(super) lag: Option<Duration>,
}

impl Judged {
    fn primary(reason: impl Into<String>) -> Self {
        Self {
            role: Role::Primary,
            reason: reason.into(),
            lag: None,
        }
    }

    fn replica(reason: impl Into<String>, lag: Option<Duration>) -> Self {
        Self {
            role: Role::Replica,
            reason: reason.into(),
            lag,
        }
    }

    fn unusable(reason: impl Into<String>) -> Self {
        Self {
            role: Role::Unusable,
            reason: reason.into(),
            lag: None,
        }
    }
}

/// What the configuration says of how to decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) kind: config::Topology,
    /// Where roles are written: a replica that is not known to be near enough takes no reads.
    pub(super) lag_must_be_known: bool,
    /// Where roles are written: somebody goes by them.
    pub(super) uses_roles: bool,
    /// Galera: a node that gives its data to another one, or is desynced, takes reads.
    pub(super) donor_reads: bool,
}

impl Rules {
    pub(super) fn of(config: &config::Cluster) -> Self {
        Self {
            kind: config.topology,
            lag_must_be_known: config.monitor.is_some() && config.limits_lag,
            uses_roles: config.uses_roles,
            donor_reads: config.donor_reads,
        }
    }
}

/// What was decided before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// The last primary, whether or not it is still there.
    pub(super) incumbent: Option<usize>,
    /// The last verdict was a conflict, and believed. It is one for as long as those who claim to be the
    /// primary are there: that one of them is not seen clearly for a while decides nothing.
    pub(super) disputed: bool,
}

/// Decides by the rules of a kind.
pub(super) fn decide(rules: Rules, servers: &[Observation], past: Past) -> Verdict {
    let verdict = match rules.kind {
        config::Topology::Static => fixed::decide(servers, rules),
        config::Topology::Tidb => fixed::decide_alike(servers),
        config::Topology::Replication => replication::decide(servers, past),
        config::Topology::GroupReplication => group_replication::decide(servers, past),
        config::Topology::Galera => galera::decide(servers, past, rules.donor_reads),
    };
    verdict.check_invariants(servers);
    verdict
}

/// Who takes writes, at most `max`: the primary, and replicas that can as well. Those of `before` stay, and
/// nobody new is chosen unseen.
pub(super) fn writers(
    kind: config::Topology,
    servers: &[Observation],
    members: &[Judged],
    primary: usize,
    before: &[usize],
    max: usize,
) -> Vec<usize> {
    let can = match kind {
        _ if max < 2 => Vec::new(),
        config::Topology::Static | config::Topology::Tidb | config::Topology::Replication => Vec::new(),
        config::Topology::GroupReplication => group_replication::writers(servers),
        config::Topology::Galera => galera::writers(servers),
    };
    let further = |at: &usize| *at != primary && !servers[*at].drains && members[*at].role == Role::Replica;
    let (old, new): (Vec<usize>, Vec<usize>) =
        (can.into_iter().filter(further)).partition(|at| before.contains(at));
    let new = new.into_iter().filter(|at| servers[*at].visibility.is_seen());
    std::iter::once(primary)
        .chain(old)
        .chain(new)
        .take(max.max(1))
        .collect()
}

impl Verdict {
    fn of(members: Vec<Judged>, conflict: Option<String>) -> Self {
        Self {
            primary: members.iter().position(|member| member.role == Role::Primary),
            members,
            conflict,
            rogue_writers: Vec::new(),
        }
    }

    fn check_invariants(&self, servers: &[Observation]) {
        debug_assert_eq!(self.members.len(), servers.len());
        let primaries = || self.members.iter().filter(|member| member.role == Role::Primary);
        debug_assert_eq!(primaries().count(), usize::from(self.primary.is_some()));
        debug_assert!(self.conflict.is_none() || self.primary.is_none());
        debug_assert!(self.rogue_writers.is_empty() || self.primary.is_some());
    }
}

/// How those who claim to be the primary are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// By this one, and nobody speaks against it.
    Settled(usize),
    /// By nobody; or by several of whom all but one may have changed their mind since they were last seen.
    None,
    /// By several.
    Conflict,
}

/// What all looks that succeed tell of the same kind of cluster: `pick` takes it out of the facts.
fn facts<'a, T>(servers: &'a [Observation], pick: impl Fn(&'a Facts) -> Option<&'a T>) -> Vec<Option<&'a T>> {
    servers
        .iter()
        .map(|server| server.visibility.facts().and_then(&pick))
        .collect()
}

/// `a, b and c`, of at most five.
fn names(servers: &[Observation], which: &[usize]) -> String {
    const SHOWN: usize = 5;
    let mut names: Vec<&str> = which
        .iter()
        .take(SHOWN)
        .map(|&at| servers[at].name.as_str())
        .collect();
    if which.len() > SHOWN {
        names.push("others");
    }
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}
