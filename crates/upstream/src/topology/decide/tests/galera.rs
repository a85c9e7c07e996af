//! Words: the number is `wsrep_local_state` (4 synced, 2 donor); `n` not in the primary component, `x` not
//! ready, `c` closed by its operator, `o` read-only; `@v` in a cluster of its own; `#7/3` component at its
//! change 7, with three nodes (`#1` and all of them without it). The index is the place.

use std::time::Duration;

use super::*;
use crate::topology::observation::{GaleraFacts, NodeState};

pub(super) fn observe(at: usize, text: &str) -> Observation {
    observation(at, text, |words| {
        let says = |word: &str| words.contains(&word);
        let component = words
            .iter()
            .find_map(|word| word.strip_prefix('#'))
            .unwrap_or("1/9");
        let (change, size) = component.split_once('/').unwrap();
        let uuid = words
            .iter()
            .find_map(|word| word.strip_prefix('@'))
            .unwrap_or("u");
        let facts = GaleraFacts {
            ready: !says("x"),
            in_primary_component: !says("n"),
            state: NodeState::of(words.iter().find_map(|word| word.parse().ok()).unwrap_or(0)),
            desynced: false,
            writable: !says("o"),
            closed: says("c").then(|| "wsrep_reject_queries = ALL".to_owned()),
            index: u32::try_from(at).unwrap(),
            component: (uuid.to_owned(), change.parse().unwrap()),
            size: size.parse().unwrap(),
        };
        let lag = Lag {
            was: Duration::ZERO,
            age: Duration::ZERO,
            to_primary: false,
        };
        (Facts::Galera(facts), Some(lag))
    })
}

const CLUSTERS: &[Row] = &[
    ("all are synced: the first writes", &["4", "4", "4"], None, "PRR"),
    ("or the one that did", &["4", "4", "4"], Some(2), "RRP"),
    ("it is gone", &["4", "4", "4 !"], Some(2), "PRU"),
    ("it is back, and writes stay", &["4", "4", "4"], Some(0), "PRR"),
    ("one look failed", &["4 ~", "4", "4"], Some(0), "PRR"),
    ("nobody is chosen unseen", &["4 ~", "4", "4 ?"], None, "RPU"),
    ("a donor writes no more", &["2", "4", "4"], Some(0), "UPR"),
    ("unless nobody else can", &["2", "1", "3"], Some(0), "PUU"),
    (
        "a node that drains writes no more",
        &["4 d", "4", "4"],
        Some(0),
        "RPR",
    ),
    ("unless no other is synced", &["4 d", "2", "1"], Some(0), "PUU"),
    ("or seen", &["4 d", "4 ~"], Some(0), "PR"),
    ("all drain, and writes stay", &["4 d", "4 d"], Some(1), "RP"),
    ("a node that is not ready", &["4 x", "4"], Some(0), "UP"),
    ("a node that lost the majority", &["4 n", "4"], Some(0), "UP"),
    ("a node that was closed", &["4 c", "4"], Some(0), "UP"),
    ("a read-only node takes reads", &["4 o", "4"], Some(0), "RP"),
    ("nobody has the majority", &["4 n", "4 n"], Some(0), "UU"),
    ("two clusters", &["4 #5/1", "4 #6/1"], Some(0), "UU!"),
    (
        "a node of another cluster, of which no more is known",
        &["4", "4 @v #3/3", "4"],
        Some(0),
        "PUR",
    ),
    (
        "of another one that joins none",
        &["4", "1 @v #3/3", "4 @v n"],
        Some(0),
        "PUU",
    ),
    (
        "two clusters, of which one is not ready",
        &["4 #5/1", "4 #6/1 x"],
        Some(0),
        "PU",
    ),
    (
        "a node left, seen half",
        &["4 #5/3", "4 #6/2", "4 #6/2"],
        Some(0),
        "PRR",
    ),
    ("a node joined, seen half", &["4 #5/1", "4 #6/2"], Some(0), "PR"),
    ("no Galera at all", &["0 x n", "0 x n"], None, "UU"),
];

#[test]
fn who_is_what_in_a_cluster() {
    check(config::Topology::Galera, CLUSTERS, observe);
}

/// Who takes writes, of at most `max`.
fn writers(texts: &[&str], before: &[usize], max: usize) -> Vec<usize> {
    let servers: Vec<Observation> = (0..).zip(texts).map(|(at, text)| observe(at, text)).collect();
    let verdict = decide(
        rules(config::Topology::Galera),
        &servers,
        after(before.first().copied()),
    );
    let of = |primary| {
        super::super::writers(
            config::Topology::Galera,
            &servers,
            &verdict.members,
            primary,
            before,
            max,
        )
    };
    verdict.primary.map_or_else(Vec::new, of)
}

#[test]
fn several_may_take_writes() {
    assert_eq!(writers(&["4", "4", "4"], &[], 1), [0]);
    assert_eq!(writers(&["4", "4", "4"], &[], 2), [0, 1]);
    assert_eq!(writers(&["4", "4", "4"], &[], 9), [0, 1, 2]);
    // Who was there before stays.
    assert_eq!(writers(&["4", "4", "4"], &[1, 2], 2), [1, 2]);
    assert_eq!(writers(&["4", "4 !", "4"], &[1, 2], 2), [0, 2]);
    assert_eq!(writers(&["4", "4", "4 ~"], &[1, 2], 2), [1, 2]);
    assert_eq!(writers(&["4", "4 ~"], &[0], 2), [0], "nobody is chosen unseen");
    assert_eq!(writers(&["4", "4 d", "4"], &[0, 1], 2), [0, 2], "it drains");
    for cannot in ["2", "4 x", "4 n", "4 c", "4 o", "4 ?"] {
        assert_eq!(writers(&["4", cannot, "4"], &[0, 1], 2), [0, 2], "{cannot}");
    }
    assert!(
        writers(&["4 #5/1", "4 #6/1"], &[0, 1], 2).is_empty(),
        "two clusters"
    );
}

#[test]
fn a_donor_takes_reads_where_it_may() {
    let outcome_of = |servers: &[&str], donor_reads| {
        let servers: Vec<Observation> = (0..).zip(servers).map(|(at, text)| observe(at, text)).collect();
        let rules = Rules {
            donor_reads,
            ..rules(config::Topology::Galera)
        };
        outcome(&decide(rules, &servers, after(Some(0))))
    };
    for (servers, without, with) in [
        (&["2", "4", "1"][..], "UPU", "RPU"),
        (&["2", "2 c", "3"], "PUU", "PUU"),
        (&["2 x", "4"], "UP", "UP"),
        (&["2 #5/1", "4 #6/1"], "UU!", "UU!"),
    ] {
        assert_eq!(outcome_of(servers, false), without, "{servers:?}");
        assert_eq!(outcome_of(servers, true), with, "{servers:?}");
    }
}
