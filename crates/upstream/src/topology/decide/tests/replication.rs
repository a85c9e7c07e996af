//! Words: `w` takes writes, `r` does not; `>1` follows n1, `-1` cannot reach it (for 20 s), `x1` gets from it
//! and applies nothing, `s1` has both threads stopped; `nolag` does not say how far it is behind (else one
//! second); `heart` says how far behind the primary, by the heartbeat table.

use std::time::Duration;

use super::*;
use crate::topology::observation::{Identity, Receiving, ReplicationFacts, Source};

pub(super) fn facts(words: &[&str]) -> (Facts, Option<Lag>) {
    let source = |word: &&str| {
        let (how, at) = word.split_at(1);
        let (receiving, applying) = match how {
            ">" => (Receiving::Yes, true),
            "-" => (Receiving::Connecting, true),
            "x" => (Receiving::Yes, false),
            "s" => (Receiving::No, false),
            _ => return None,
        };
        let at = at.parse().unwrap();
        Some(Source {
            address: address(at),
            identity: Some(Identity(format!("id{at}"))),
            receiving,
            applying,
            error: (how == "x").then(|| "duplicate key".to_owned()),
        })
    };
    let facts = ReplicationFacts {
        identity: None,
        writable: words.contains(&"w"),
        sources: words.iter().filter_map(source).collect(),
    };
    let waits = words.iter().any(|word| word.starts_with('-'));
    let lag = Lag {
        was: Duration::from_secs(1),
        age: Duration::from_secs(if waits { 20 } else { 0 }),
        to_primary: words.contains(&"heart"),
    };
    let lag = (!facts.sources.is_empty() && !words.contains(&"nolag")).then_some(lag);
    (Facts::Replication(facts), lag)
}

pub(super) fn observe(at: usize, text: &str) -> Observation {
    observation(at, text, |words| {
        let (mut facts, lag) = facts(words);
        if let Facts::Replication(facts) = &mut facts {
            facts.identity = Some(Identity(format!("id{at}")));
        }
        (facts, lag)
    })
}

fn verdict(servers: &[&str], incumbent: Option<usize>) -> Verdict {
    let servers: Vec<Observation> = (0..).zip(servers).map(|(at, text)| observe(at, text)).collect();
    decide(rules(config::Topology::Replication), &servers, after(incumbent))
}

const PRIMARIES: &[Row] = &[
    ("all is well", &["w", "r >0", "r >0"], None, "PRR"),
    ("the primary is somewhere", &["r >2", "r >2", "w"], None, "RRP"),
    ("alone", &["w"], None, "P"),
    ("a writable replica is a replica", &["w", "w >0"], None, "PR"),
    (
        "so it is at the end of a chain",
        &["w", "w >0", "w >1"],
        None,
        "PRR",
    ),
    ("not all have been looked at", &["w", "r >0", "w ?"], None, "URU"),
    (
        "that does not shake the last one",
        &["w", "r >0", "w ?"],
        Some(0),
        "PRU",
    ),
    ("one look failed", &["w ~", "r >0"], Some(0), "PR"),
    (
        "the primary is gone: reads go on",
        &["w !", "r -0", "r -0"],
        Some(0),
        "URR",
    ),
    ("one was promoted", &["w !", "w", "r -0"], Some(0), "UPR"),
    (
        "one was promoted and the other follows",
        &["w !", "w", "r >1"],
        Some(0),
        "UPR",
    ),
    (
        "promoted with STOP REPLICA alone",
        &["w !", "w s0"],
        Some(0),
        "UP",
    ),
    (
        "the old one comes back as a replica",
        &["r >1", "w", "r >1"],
        Some(1),
        "RPR",
    ),
    (
        "the old one comes back and takes writes",
        &["w", "w", "r >1"],
        Some(1),
        "UPR",
    ),
    (
        "the followers went back to the old one",
        &["w", "w", "r >0"],
        Some(1),
        "UUR!",
    ),
    ("two, and nobody follows", &["w", "w"], None, "UU!"),
    (
        "two, and nobody follows the last one",
        &["w", "w"],
        Some(0),
        "UU!",
    ),
    (
        "two, and both are followed",
        &["w", "w", "r >0", "r >1"],
        Some(0),
        "UURR!",
    ),
    (
        "at the start the followers decide",
        &["w", "w", "r >1"],
        None,
        "UPR",
    ),
    (
        "the last one may have changed since",
        &["w ~", "w"],
        Some(0),
        "UU",
    ),
    ("nobody has been heard since", &["w ~", "w ~"], Some(1), "UP"),
    (
        "the middle of a switchover",
        &["r", "r >0", "r >0"],
        Some(0),
        "RRR",
    ),
    ("its end", &["r >1", "w", "r >1"], Some(0), "RPR"),
    ("a circle with one writer", &["w >1", "r >0"], None, "PR"),
    ("a circle with two", &["w >1", "w >0"], None, "UU!"),
    (
        "a circle of three has no beginning",
        &["w >1", "w >2", "w >0"],
        None,
        "RRR",
    ),
    (
        "the cluster itself follows another one",
        &["w >9", "r >0"],
        None,
        "PR",
    ),
];

#[test]
fn who_is_the_primary() {
    check(config::Topology::Replication, PRIMARIES, observe);
}

const REPLICAS: &[Row] = &[
    ("follows nobody", &["w", "r"], None, "PU"),
    ("applies nothing", &["w", "r x0"], None, "PU"),
    ("is stopped", &["w", "r s0"], None, "PU"),
    (
        "so it is without a primary",
        &["w !", "r x0", "r s0", "r -0"],
        Some(0),
        "UUUR",
    ),
    ("its lag is not known", &["w", "r >0 nolag"], None, "PU"),
    (
        "not known, and no primary writes",
        &["w !", "r -0 nolag"],
        Some(0),
        "UR",
    ),
    (
        "follows one that follows nobody",
        &["w", "r", "r >1"],
        None,
        "PUU",
    ),
    (
        "follows one that applies nothing",
        &["w", "r x0", "r >1"],
        None,
        "PUU",
    ),
    (
        "follows a member under an address nobody knows",
        &["w", "r >9"],
        None,
        "PR",
    ),
    (
        "has a second source that is no member",
        &["w", "r >9 >0"],
        None,
        "PR",
    ),
    ("two that follow each other", &["w", "r >2", "r >1"], None, "PUU"),
];

#[test]
fn who_is_a_replica() {
    check(config::Topology::Replication, REPLICAS, observe);
}

#[test]
fn lags_add_up_and_grow_while_somebody_may_write() {
    let lags = |servers: &[&str], incumbent| -> Vec<Option<u64>> {
        let members = verdict(servers, incumbent).members;
        members
            .iter()
            .map(|member| member.lag.map(|lag| lag.as_secs()))
            .collect()
    };
    assert_eq!(
        lags(&["w", "r >0", "r >1", "r >2"], None),
        [None, Some(1), Some(2), Some(3)]
    );
    assert_eq!(
        lags(&["w", "r >0 heart", "r >1 heart", "r >2"], None),
        [None, Some(1), Some(1), Some(2)],
        "the heart beats on the primary"
    );
    assert_eq!(
        lags(&["w", "r -0"], None),
        [None, Some(21)],
        "it cannot reach the primary, others can"
    );
    assert_eq!(lags(&["w !", "r -0"], Some(0)), [None, Some(1)], "nobody writes");
    assert_eq!(
        lags(&["w !", "w", "r -0"], Some(0)),
        [None, None, Some(21)],
        "the new one writes"
    );
    assert_eq!(
        lags(&["w", "r ! >0", "r -1"], None),
        [None, None, Some(21)],
        "the one in between is gone"
    );
}

#[test]
fn reasons_are_for_people() {
    let reasons = |servers: &[&str], incumbent| -> Vec<String> {
        verdict(servers, incumbent)
            .members
            .into_iter()
            .map(|member| member.reason)
            .collect()
    };
    assert_eq!(
        reasons(&["w", "r >0", "r x0", "r -0", "r", "r !", "r ?"], Some(0)),
        [
            "takes writes, and 2 servers follow it",
            "follows n0",
            "applies nothing from db0:3306: duplicate key",
            "follows n0, which it cannot reach",
            "follows nobody",
            "refuses connections",
            "has not been looked at yet",
        ]
    );
    assert_eq!(
        verdict(&["w", "w"], None).conflict.as_deref(),
        Some("n0 and n1 take writes, and nothing tells which is the primary")
    );
    assert_eq!(
        reasons(&["w", "w", "r >0", "r", "r >3"], None)[1..],
        [
            "takes writes, but n0 is the primary that others follow",
            "follows n0",
            "follows nobody",
            "follows n3, which does not follow the primary",
        ]
    );
}

/// Two replicas of one `server_id`: whoever follows one of them follows the one at the address it names.
#[test]
fn a_server_id_that_was_given_twice_does_not_mix_up_who_is_followed() {
    let mut servers: Vec<Observation> = (0..)
        .zip(["w", "r >0", "r >0", "r >2"])
        .map(|(at, text)| observe(at, text))
        .collect();
    for at in [1, 2] {
        let Visibility::Seen(Facts::Replication(facts)) = &mut servers[at].visibility else {
            panic!("replication")
        };
        facts.identity = Some(Identity("id2".to_owned()));
    }
    let verdict = decide(rules(config::Topology::Replication), &servers, Past::default());
    assert_eq!(outcome(&verdict), "PRRR");
    assert_eq!(verdict.members[3].reason, "follows n2");
}
