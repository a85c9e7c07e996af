//! Kind `galera`: MariaDB Galera Cluster, Percona XtraDB Cluster.
//!
//! Every node takes writes, and writes of two nodes to the same row make one of them fail. So one node gets
//! them all, unless `max_writers` says otherwise:
//! the one that had them, as long as it can and does not drain, or else the one with the lowest
//! `wsrep_local_index`, on which several gateways agree that start at the same time. Two gateways that
//! disagree for a while cost such failures and no data.
//!
//! A node is good for anything only in the primary component, ready and not closed by its operator. A donor
//! may fall behind: it takes writes only where no synced node can, and reads only where `donor_reads` says
//! so, as far as its lag allows.

use std::collections::BTreeMap;

use super::{Claim, Judged, Past, Verdict, facts, names};
use crate::topology::observation::{Facts, GaleraFacts, NodeState, Observation};

/// The best writers first, by their state and whether they drain.
const CHOICES: [(NodeState, bool); 4] = [
    (NodeState::Synced, false),
    (NodeState::Synced, true),
    (NodeState::Donor, false),
    (NodeState::Donor, true),
];

pub(super) fn decide(servers: &[Observation], past: Past, donor_reads: bool) -> Verdict {
    let facts = facts(servers, |facts| match facts {
        Facts::Galera(facts) => Some(facts),
        Facts::Replication(_) | Facts::Group(_) => None,
    });
    let claim = settle(servers, &facts, past);
    let conflict = (claim == Claim::Conflict).then(|| {
        let serving: Vec<usize> = (0..servers.len())
            .filter(|&at| facts[at].is_some_and(serves))
            .collect();
        format!(
            "{} are not all in one cluster, and serve",
            names(servers, &serving)
        )
    });
    let writer = match claim {
        Claim::Settled(at) => facts[at].map(|facts| (&servers[at].name, facts)),
        Claim::None | Claim::Conflict => None,
    };
    let judge = |at: usize| {
        if let Some(reason) = servers[at].visibility.blindness() {
            return Judged::unusable(reason);
        }
        let Some(facts) = facts[at] else {
            return Judged::unusable("has said nothing of its cluster");
        };
        // Whatever it has, it is not what is written here.
        if let Some((writer, its)) = writer
            && facts.component.0 != its.component.0
        {
            return Judged::unusable(format!("is in another cluster than {writer}"));
        }
        judge(
            &servers[at],
            facts,
            claim,
            claim == Claim::Settled(at),
            donor_reads,
        )
    };
    Verdict::of((0..servers.len()).map(judge).collect(), conflict)
}

/// Nodes that can take writes, those first that are the first to be chosen.
pub(super) fn writers(servers: &[Observation]) -> Vec<usize> {
    let facts = |at: usize| match servers[at].visibility.facts() {
        Some(Facts::Galera(facts)) => Some(facts),
        _ => None,
    };
    let can = |at: &usize| {
        facts(*at).is_some_and(|facts| facts.state == NodeState::Synced && facts.writable && serves(facts))
    };
    let mut writers: Vec<usize> = (0..servers.len()).filter(can).collect();
    writers.sort_by_key(|at| facts(*at).map(|facts| facts.index));
    writers
}

fn settle(servers: &[Observation], facts: &[Option<&GaleraFacts>], past: Past) -> Claim {
    if is_torn(servers, facts, past.disputed) {
        return Claim::Conflict;
    }
    let writers = |(state, drains): (NodeState, bool)| {
        facts
            .iter()
            .enumerate()
            .filter_map(|(at, facts)| Some((at, (*facts)?)))
            .filter(move |(at, facts)| {
                facts.state == state && servers[*at].drains == drains && facts.writable && serves(facts)
            })
    };
    for choice in CHOICES {
        // An incumbent that cannot be seen clearly stays until it is gone; nobody new is chosen unseen.
        let stays = writers(choice).find(|(at, _)| past.incumbent == Some(*at));
        let lowest = || {
            writers(choice)
                .filter(|(at, _)| servers[*at].visibility.is_seen())
                .min_by_key(|(at, facts)| (facts.index, *at))
        };
        if let Some((at, _)) = stays.or_else(lowest) {
            return Claim::Settled(at);
        }
    }
    Claim::None
}

/// Whether two components serve at the same time: somebody has started the cluster twice, or made a minority
/// go on. A component counts when all its nodes have been seen in it, so that looks before and after a change
/// do not contradict; once it was `disputed`, also as they were last seen.
fn is_torn(servers: &[Observation], facts: &[Option<&GaleraFacts>], disputed: bool) -> bool {
    let mut components: BTreeMap<(&(String, u64), u32), u32> = BTreeMap::new();
    for (server, facts) in servers.iter().zip(facts) {
        if let Some(facts) = facts.filter(|facts| serves(facts) && (disputed || server.visibility.is_seen()))
        {
            // Two parts that were separated by force count their changes alike, but not their nodes, as a
            // rule.
            *components.entry((&facts.component, facts.size)).or_default() += 1;
        }
    }
    components
        .iter()
        .filter(|((_, size), seen)| *seen >= size)
        .count()
        > 1
}

/// It runs statements, for the majority.
fn serves(facts: &GaleraFacts) -> bool {
    facts.ready && facts.in_primary_component && facts.closed.is_none()
}

fn judge(
    server: &Observation,
    facts: &GaleraFacts,
    claim: Claim,
    is_primary: bool,
    donor_reads: bool,
) -> Judged {
    let lag = || server.lag.map(|lag| lag.was + lag.age);
    let torn = claim == Claim::Conflict;
    if let Some(closed) = &facts.closed {
        return Judged::unusable(format!("is closed by its operator ({closed})"));
    }
    if !facts.in_primary_component {
        return Judged::unusable("is not in the primary component");
    }
    if !facts.ready {
        return Judged::unusable(format!("is not ready ({})", facts.state.word()));
    }
    match facts.state {
        NodeState::Synced if is_primary => Judged::primary("is synced, and chosen for writes"),
        NodeState::Donor if is_primary => Judged::primary("takes the writes, since no other node is synced"),
        NodeState::Synced if torn => Judged::unusable("is synced, but another cluster serves, too"),
        NodeState::Synced => Judged::replica("is synced", lag()),
        NodeState::Donor if donor_reads && !torn => {
            Judged::replica("is a donor or desynced, and takes reads (donor_reads)", lag())
        }
        state => Judged::unusable(format!("is {}", state.word())),
    }
}
