//! Tables: what servers say, in a short hand, and what they are then.
//!
//! A server is written as words. `!` it is gone, `?` nobody has looked at it yet, `~` its last look failed,
//! `d` it drains; the rest depends on the kind of cluster. What comes out is a letter a server, P(rimary),
//! R(eplica) or U(nusable), and `!` for a conflict.

mod galera;
mod group_replication;
mod properties;
mod replication;

use super::*;
use crate::topology::observation::{Address, Lag, Visibility};

/// Server number `at`, at `db{at}:3306`. `facts` reads the words that are not about how well it is seen.
fn observation(at: usize, text: &str, facts: impl Fn(&[&str]) -> (Facts, Option<Lag>)) -> Observation {
    let words: Vec<&str> = text
        .split(' ')
        .filter(|word| !["", "!", "?", "~", "d"].contains(word))
        .collect();
    let (facts, lag) = facts(&words);
    let says = |word: &str| text.split(' ').any(|other| other == word);
    Observation {
        name: format!("n{at}"),
        address: Some(address(at)),
        also: Vec::new(),
        role: None,
        drains: says("d"),
        lag,
        visibility: match () {
            () if says("!") => Visibility::Lost {
                reason: "refuses connections".to_owned(),
            },
            () if says("?") => Visibility::Unseen,
            () if says("~") => Visibility::Stale { facts },
            () => Visibility::Seen(facts),
        },
    }
}

fn address(at: usize) -> Address {
    Address {
        host: format!("db{at}"),
        port: 3306,
    }
}

fn outcome(verdict: &Verdict) -> String {
    let letter = |member: &Judged| match member.role {
        Role::Primary => 'P',
        Role::Replica => 'R',
        Role::Unusable => 'U',
    };
    let letters = verdict.members.iter().map(letter);
    letters.chain(verdict.conflict.as_ref().map(|_| '!')).collect()
}

fn after(incumbent: Option<usize>) -> Past {
    Past {
        incumbent,
        disputed: false,
    }
}

/// As without any options.
fn rules(kind: config::Topology) -> Rules {
    Rules {
        kind,
        lag_must_be_known: false,
        uses_roles: true,
        donor_reads: false,
    }
}

/// What is so, the servers, the last primary, the outcome.
type Row = (&'static str, &'static [&'static str], Option<usize>, &'static str);

fn check(kind: config::Topology, table: &[Row], observe: impl Fn(usize, &str) -> Observation) {
    for (what, servers, incumbent, expected) in table {
        let servers: Vec<Observation> = (0..).zip(*servers).map(|(at, text)| observe(at, text)).collect();
        let verdict = decide(rules(kind), &servers, after(*incumbent));
        assert_eq!(outcome(&verdict), *expected, "{what}: {verdict:#?}");
    }
}

#[test]
fn fixed_roles() {
    let observe = |at: usize, text: &str| {
        let facts = Facts::Group(crate::topology::observation::GroupFacts {
            uuid: String::new(),
            writable: false,
            single_primary: true,
            view: Vec::new(),
        });
        let mut server = observation(at, text, |_| (facts.clone(), None));
        server.role = match text.split(' ').next() {
            Some("p") => Some(config::Role::Primary),
            Some("r") => Some(config::Role::Replica),
            _ => None,
        };
        server
    };
    check(
        config::Topology::Static,
        &[
            ("the only server", &["-"], None, "P"),
            ("the only server, a replica", &["r"], None, "R"),
            ("the only server is gone", &["- !"], None, "U"),
            ("one has the role", &["p", "r", "-"], None, "PRR"),
            ("nobody has looked, and nobody must", &["p ?", "r ?"], None, "PR"),
            (
                "the primary is gone, and has no stand-in",
                &["p !", "r", "-"],
                None,
                "URR",
            ),
            ("nobody has the role", &["-", "-"], None, "RR"),
            ("two have it", &["p", "p", "r"], None, "UUR!"),
            ("two have it, of whom one is gone", &["p !", "p"], None, "UU!"),
        ],
        observe,
    );
}

/// Words: `p` the primary, `lag` it has told its lag, `>0` follows, `?` nobody has looked at it, `!` it is
/// gone.
#[test]
fn where_the_lag_is_limited_it_has_to_be_known() {
    let observe = |at: usize, text: &str| {
        let mut server = observation(at, text, |words| {
            let (facts, lag) = super::tests::replication::facts(words);
            (facts, lag.filter(|_| words.contains(&"lag")))
        });
        server.role = Some(match text.starts_with('p') {
            true => config::Role::Primary,
            false => config::Role::Replica,
        });
        server
    };
    let servers = ["p", "lag >0", "s0", "-0", "r", "r ?", "lag >0 ~", "r !"];
    let servers: Vec<Observation> = (0..).zip(servers).map(|(at, text)| observe(at, text)).collect();
    let outcome = |lag_must_be_known| {
        let rules = Rules {
            lag_must_be_known,
            ..rules(config::Topology::Static)
        };
        outcome(&decide(rules, &servers, Past::default()))
    };
    assert_eq!(outcome(false), "PRRRRRRU");
    assert_eq!(outcome(true), "PRUURURU", "one that follows nobody has none");
}

#[test]
fn names_are_listed_and_not_too_many() {
    let facts = |_: &[&str]| super::tests::replication::facts(&["w"]);
    let servers: Vec<Observation> = (0..7).map(|at| observation(at, "w", facts)).collect();
    assert_eq!(names(&servers, &[]), "");
    assert_eq!(names(&servers, &[3]), "n3");
    assert_eq!(names(&servers, &[3, 4]), "n3 and n4");
    assert_eq!(
        names(&servers, &[0, 1, 2, 3, 4, 5]),
        "n0, n1, n2, n3, n4 and others"
    );
}

#[test]
fn what_was_disputed_is_not_decided_by_a_look_that_failed() {
    let outcome_of = |kind, texts: &[&str], disputed| {
        let observe = |(at, text): (usize, &&str)| properties::observe(kind, at, text);
        let servers: Vec<Observation> = (0..).zip(texts).map(observe).collect();
        let past = Past {
            disputed,
            ..after(Some(0))
        };
        outcome(&decide(rules(kind), &servers, past))
    };
    for (kind, servers, without, with) in [
        (config::Topology::Replication, ["w ~", "w"], "UU", "UU!"),
        (config::Topology::Replication, ["w ~", "w ~"], "PU", "UU!"),
        (config::Topology::Replication, ["w !", "w"], "UP", "UP"),
        (config::Topology::Replication, ["w ~", "r >0"], "PR", "PR"),
        (config::Topology::Galera, ["4 #5/1 ~", "4 #6/1"], "PR", "UU!"),
        (config::Topology::Galera, ["4 #5/1 !", "4 #6/1"], "UP", "UP"),
        (
            config::Topology::GroupReplication,
            ["P. w", ".P w ~"],
            "PU",
            "UU!",
        ),
    ] {
        assert_eq!(outcome_of(kind, &servers, false), without, "{kind:?} {servers:?}");
        assert_eq!(outcome_of(kind, &servers, true), with, "{kind:?} {servers:?}");
    }
}
