//! Kind `group-replication`: MySQL Group Replication, 8.0 to 9.
//!
//! Every member has a view of the group. A view counts only when the member itself is online in it and can
//! reach more than half of it: what a minority, or one that was expelled, believes is not so. The primary is
//! the member that is the primary in a view that counts, says so itself, and takes writes already: a newly
//! elected one is read-only until it has applied what it had received.
//!
//! Where all members are primaries (multi-primary mode) one of them gets the writes, always the same as long
//! as it is there, and the others take reads; or more than one, as `max_writers` says.

use super::{Claim, Judged, Past, Verdict, facts, names};
use crate::topology::observation::{Facts, GroupFacts, MemberState, Observation};

pub(super) fn decide(servers: &[Observation], past: Past) -> Verdict {
    let group = Group::new(servers, past.disputed);
    let candidates: Vec<usize> = (0..servers.len()).filter(|&at| group.is_candidate(at)).collect();
    let claim = group.settle(&candidates, past);
    let primary = match claim {
        Claim::Settled(at) => Some(at),
        Claim::None | Claim::Conflict => None,
    };
    let conflict = (claim == Claim::Conflict)
        .then(|| format!("{} are primaries of the same group", names(servers, &candidates)));
    let judge = |at: usize| group.judge(at, primary, &candidates);
    Verdict::of((0..servers.len()).map(judge).collect(), conflict)
}

/// Members that can take writes where all are primaries, those first that are the first to be chosen.
pub(super) fn writers(servers: &[Observation]) -> Vec<usize> {
    let group = Group::new(servers, false);
    let can =
        |at: &usize| group.is_candidate(*at) && group.facts[*at].is_some_and(|facts| !facts.single_primary);
    let mut writers: Vec<usize> = (0..servers.len()).filter(can).collect();
    writers.sort_by_key(|at| group.facts[*at].map(|facts| &facts.uuid));
    writers
}

struct Group<'a> {
    servers: &'a [Observation],
    facts: Vec<Option<&'a GroupFacts>>,
    /// Whose view counts.
    counts: Vec<bool>,
    /// There were several groups: what one says is nothing against the other.
    disputed: bool,
}

impl<'a> Group<'a> {
    fn new(servers: &'a [Observation], disputed: bool) -> Self {
        let facts = facts(servers, |facts| match facts {
            Facts::Group(facts) => Some(facts),
            Facts::Replication(_) | Facts::Galera(_) => None,
        });
        let counts = facts.iter().map(|facts| facts.is_some_and(view_counts)).collect();
        Self {
            servers,
            facts,
            counts,
            disputed,
        }
    }

    /// By its own words, and by a majority.
    fn is_candidate(&self, at: usize) -> bool {
        let own = |facts: &GroupFacts| facts.own().is_some_and(|own| own.is_primary) && facts.writable;
        self.counts[at] && self.facts[at].is_some_and(own) && !self.is_denied(at)
    }

    /// It cannot be seen clearly, and a member that can does not count it among the primaries (any more).
    fn is_denied(&self, at: usize) -> bool {
        let Some(facts) = self.facts[at] else { return true };
        let denies = |view: &GroupFacts| {
            let entry = view.view.iter().find(|member| member.uuid == facts.uuid);
            !entry.is_some_and(|entry| entry.is_primary && entry.state == MemberState::Online)
        };
        !self.disputed && !self.servers[at].visibility.is_seen() && self.clear_views().any(denies)
    }

    /// Views that count, of members seen clearly.
    fn clear_views(&self) -> impl Iterator<Item = &'a GroupFacts> {
        let clear = |at: &usize| self.counts[*at] && self.servers[*at].visibility.is_seen();
        (0..self.servers.len())
            .filter(clear)
            .filter_map(|at| self.facts[at])
    }

    fn settle(&self, candidates: &[usize], past: Past) -> Claim {
        let incumbent = past.incumbent.filter(|at| candidates.contains(at));
        let [first, ..] = *candidates else {
            return Claim::None;
        };
        if candidates.len() == 1 {
            return Claim::Settled(first);
        }
        let facts = || candidates.iter().filter_map(|&at| self.facts[at]);
        let agree = || {
            facts().all(|view| {
                facts().all(|other| {
                    view.view
                        .iter()
                        .any(|member| member.uuid == other.uuid && member.is_primary)
                })
            })
        };
        if facts().all(|facts| !facts.single_primary) && agree() {
            let drains = |at: &usize| self.servers[*at].drains;
            let lowest = |of: &mut dyn Iterator<Item = usize>| {
                of.min_by_key(|&at| self.facts[at].map(|facts| &facts.uuid))
            };
            let mut all = candidates.iter().copied();
            let mut stay = (all.clone()).filter(|at| !drains(at) && self.servers[*at].visibility.is_seen());
            let chosen = (incumbent.filter(|at| !drains(at)))
                .or_else(|| lowest(&mut stay))
                .or(incumbent)
                .or_else(|| lowest(&mut all));
            return chosen.map_or(Claim::None, Claim::Settled);
        }
        let clear = candidates
            .iter()
            .filter(|&&at| self.servers[at].visibility.is_seen())
            .count();
        match clear < 2 && !past.disputed {
            true => Claim::None,
            false => Claim::Conflict,
        }
    }

    fn judge(&self, at: usize, primary: Option<usize>, candidates: &[usize]) -> Judged {
        let server = &self.servers[at];
        if let Some(reason) = server.visibility.blindness() {
            return Judged::unusable(reason);
        }
        let Some(facts) = self.facts[at] else {
            return Judged::unusable("has said nothing of its group");
        };
        let Some(own) = facts.own() else {
            return Judged::unusable("is no member of a group");
        };
        if own.state != MemberState::Online {
            return Judged::unusable(format!("is {} in its group", own.state.word()));
        }
        if !self.counts[at] {
            let reachable = facts.reachable().count();
            return Judged::unusable(format!(
                "reaches {reachable} of {} members: no majority",
                facts.view.len()
            ));
        }
        let missed = |view: &GroupFacts| {
            !view
                .view
                .iter()
                .any(|member| member.uuid == facts.uuid && member.is_reachable())
        };
        match primary {
            Some(primary) if primary == at && facts.single_primary => {
                Judged::primary("is the primary of its group and takes writes")
            }
            Some(primary) if primary == at => {
                Judged::primary("is chosen for writes; its group has several primaries")
            }
            Some(primary) if self.facts[primary].is_some_and(missed) => Judged::unusable(format!(
                "is not in the group of {}, the primary",
                self.servers[primary].name
            )),
            None if candidates.contains(&at) => Judged::unusable(format!(
                "is a primary of its group, as are all of {}",
                names(self.servers, candidates)
            )),
            None if own.is_primary => Judged::replica(
                "is the primary of its group, but takes no writes yet",
                server.lag.map(|lag| lag.was),
            ),
            Some(primary) if own.is_primary => Judged::replica(
                format!("is online; writes go to {}", self.servers[primary].name),
                server.lag.map(|lag| lag.was + lag.age),
            ),
            _ => Judged::replica("is online in its group", server.lag.map(|lag| lag.was + lag.age)),
        }
    }
}

/// Whether the view is that of a member online in the majority.
fn view_counts(facts: &GroupFacts) -> bool {
    facts.own().is_some_and(|own| own.state == MemberState::Online) && facts.has_majority()
}
