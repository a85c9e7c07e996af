//! What must hold whatever servers say.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

const KINDS: [config::Topology; 3] = [
    config::Topology::Replication,
    config::Topology::GroupReplication,
    config::Topology::Galera,
];

pub(super) fn observe(kind: config::Topology, at: usize, text: &str) -> Observation {
    match kind {
        config::Topology::GroupReplication => super::group_replication::observe(at, text),
        config::Topology::Galera => super::galera::observe(at, text),
        _ => super::replication::observe(at, text),
    }
}

/// Servers of a kind, as in the tables: mostly well, and in every bad way.
fn servers(kind: config::Topology) -> impl Strategy<Value = Vec<String>> {
    let visibility = select(vec!["", "", "", "", "~", "!", "?"]);
    let words: BoxedStrategy<String> = match kind {
        config::Topology::GroupReplication => ("[PPSSruUe.]{0,5}", subsequence(vec!["w", "m"], 0..=2))
            .prop_map(|(view, flags)| format!("{view} {}", flags.join(" ")))
            .boxed(),
        config::Topology::Galera => (
            select(vec![4, 4, 4, 4, 2, 1, 3]),
            subsequence(vec!["n", "x", "c", "o"], 0..=2),
            (1..4, 1..5),
        )
            .prop_map(|(state, flags, (change, size))| {
                format!("{state} {} #{change}/{size}", flags.join(" "))
            })
            .boxed(),
        _ => (
            select(vec!["w", "r", "r"]),
            prop::collection::vec((select(vec![">", ">", ">", "-", "x", "s"]), 0..7), 0..3),
            select(vec!["", "", "", "nolag"]),
        )
            .prop_map(|(writes, sources, lag)| {
                let sources: Vec<String> = sources.iter().map(|(how, at)| format!("{how}{at}")).collect();
                format!("{writes} {} {lag}", sources.join(" "))
            })
            .boxed(),
    };
    prop::collection::vec(
        (words, visibility).prop_map(|(words, visibility)| format!("{words} {visibility}")),
        1..6,
    )
}

fn any_cluster() -> impl Strategy<Value = (config::Topology, Vec<String>, Option<usize>)> {
    select(KINDS.to_vec()).prop_flat_map(|kind| (Just(kind), servers(kind), prop::option::of(0..6_usize)))
}

/// Whether a server's last words allow it to take writes.
fn may_write(server: &Observation) -> bool {
    match server.visibility.facts() {
        Some(Facts::Replication(facts)) => facts.writable,
        Some(Facts::Group(facts)) => facts.writable,
        Some(Facts::Galera(facts)) => facts.writable && facts.ready && facts.in_primary_component,
        None => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(4000)))]

    #[test]
    fn a_primary_may_write_and_is_sure((kind, texts, incumbent) in any_cluster()) {
        let servers: Vec<Observation> =
            (0..).zip(&texts).map(|(at, text)| observe(kind, at, text)).collect();
        let incumbent = incumbent.filter(|at| *at < servers.len());
        // At most one, and none in a conflict: `check_invariants`.
        let verdict = decide(rules(kind), &servers, after(incumbent));
        if let Some(primary) = verdict.primary {
            prop_assert!(may_write(&servers[primary]), "{verdict:#?}");
            prop_assert!(
                incumbent == Some(primary) || servers[primary].visibility.is_seen() || kind != config::Topology::Galera,
                "chosen unseen"
            );
            let again = decide(rules(kind), &servers, after(Some(primary)));
            prop_assert_eq!(again.primary, Some(primary), "who was chosen stays");
        }
        for (server, judged) in servers.iter().zip(&verdict.members) {
            let blind = server.visibility.facts().is_none();
            prop_assert!(!blind || judged.role == Role::Unusable, "{}: {:?}", server.name, judged);
            prop_assert!(!judged.reason.is_empty());
        }
    }

    /// A gateway whose configuration has the same servers in another order comes to the same end.
    #[test]
    fn the_order_of_the_servers_does_not_matter((kind, texts, incumbent) in any_cluster()) {
        let forward: Vec<Observation> =
            (0..).zip(&texts).map(|(at, text)| observe(kind, at, text)).collect();
        let backward: Vec<Observation> = forward.iter().rev().cloned().collect();
        let incumbent = incumbent.filter(|at| *at < forward.len());
        let one = decide(rules(kind), &forward, after(incumbent));
        let mut other = decide(rules(kind), &backward, after(incumbent.map(|at| forward.len() - 1 - at)));
        other.members.reverse();
        let roles = |verdict: &Verdict| verdict.members.iter().map(|member| member.role).collect::<Vec<_>>();
        prop_assert_eq!(roles(&one), roles(&other));
        prop_assert_eq!(one.conflict.is_some(), other.conflict.is_some());
    }
}
