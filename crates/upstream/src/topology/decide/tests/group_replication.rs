//! The first word is the server's view, a letter a member: `P` primary, `S` secondary, `r` recovering, `u`
//! unreachable, `U` the same of a primary, `e` in error, `.` not in it; `-` is no group at all. `w` takes
//! writes, `m` multi-primary.

use std::time::Duration;

use super::*;
use crate::topology::observation::{GroupFacts, GroupMember, MemberState};

pub(super) fn observe(at: usize, text: &str) -> Observation {
    observation(at, text, |words| {
        let member = |(at, letter): (usize, char)| {
            let state = match letter {
                'P' | 'S' => MemberState::Online,
                'r' => MemberState::Recovering,
                'u' | 'U' => MemberState::Unreachable,
                'e' => MemberState::Error,
                _ => return None,
            };
            Some(GroupMember {
                uuid: format!("u{at}"),
                state,
                is_primary: matches!(letter, 'P' | 'U'),
            })
        };
        let view = words.first().copied().unwrap_or("-");
        let facts = GroupFacts {
            uuid: format!("u{at}"),
            writable: words.contains(&"w"),
            single_primary: !words.contains(&"m"),
            view: view.chars().enumerate().filter_map(member).collect(),
        };
        let lag = Lag {
            was: Duration::ZERO,
            age: Duration::ZERO,
            to_primary: false,
        };
        (Facts::Group(facts), Some(lag))
    })
}

const GROUPS: &[Row] = &[
    ("all is well", &["PSS w", "PSS", "PSS"], None, "PRR"),
    ("one look failed", &["PSS w ~", "PSS", "PSS"], Some(0), "PRR"),
    (
        "killed, and not noticed yet",
        &["PSS w !", "PSS", "PSS"],
        Some(0),
        "URR",
    ),
    (
        "killed, and not expelled yet",
        &["PSS w !", "USS", "USS"],
        Some(0),
        "URR",
    ),
    (
        "another is elected and applies what it has",
        &["PSS w !", ".PS", ".PS"],
        Some(0),
        "URR",
    ),
    ("and takes writes", &["PSS w !", ".PS w", ".PS"], Some(0), "UPR"),
    (
        "the old one is a minority and does not know",
        &["Puu w", ".PS w", ".PS"],
        Some(0),
        "UPR",
    ),
    (
        "it has not been heard since",
        &["PSS w ~", ".PS w", ".PS"],
        Some(0),
        "UPR",
    ),
    (
        "it has not been heard, and may still be it",
        &["PSS w ~", "PSS ~", "PSS"],
        Some(0),
        "PRR",
    ),
    (
        "it is back and recovers",
        &["rPS", "rPS w", "rPS"],
        Some(1),
        "UPR",
    ),
    ("it was expelled", &["e..", ".PS w", ".PS"], Some(1), "UPR"),
    ("it is in no group", &["-", ".PS w", ".PS"], Some(1), "UPR"),
    ("and takes writes there", &["- w", ".PS w", ".PS"], Some(1), "UPR"),
    ("a majority is lost", &["Puu w", "PSS !", "PSS !"], Some(0), "UUU"),
    (
        "half is no majority",
        &["PSuu w", "PSuu", "PSSS !", "PSSS !"],
        Some(0),
        "UUUU",
    ),
    (
        "a switchover, seen half",
        &["PSS w", "SPS w", "SPS"],
        Some(0),
        "UUR!",
    ),
    ("a switchover, seen", &["SPS", "SPS w", "SPS"], Some(0), "RPR"),
    (
        "somebody began a second group",
        &["P.. w", ".PS w", ".PS"],
        Some(1),
        "UUR!",
    ),
    (
        "several primaries: the first by name",
        &["PPP w m", "PPP w m", "PPP w m"],
        None,
        "PRR",
    ),
    (
        "or the one that was it",
        &["PPP w m", "PPP w m", "PPP w m"],
        Some(2),
        "RRP",
    ),
    (
        "until it is gone",
        &["PPP w m", "PPP w m", "PPP w m !"],
        Some(2),
        "PRU",
    ),
    ("or drains", &["PPP w m", "PPP w m", "PPP w m d"], Some(2), "PRR"),
    (
        "where another one is seen that does not",
        &["PPP w m ~", "PPP w m d", "PPP w m d"],
        Some(2),
        "RRP",
    ),
    (
        "a primary that joins is none yet",
        &["rPP m", "rPP w m", "rPP w m"],
        None,
        "UPR",
    ),
    ("nobody has looked", &["- ?", "- ?"], None, "UU"),
    ("a group of one", &["P w"], None, "P"),
    (
        "a replica of another cluster takes no writes at all",
        &["PSS", "PSS", "PSS"],
        None,
        "RRR",
    ),
];

#[test]
fn who_is_what_in_a_group() {
    check(config::Topology::GroupReplication, GROUPS, observe);
}

#[test]
fn reasons_are_for_people() {
    let servers = ["PSSS w", "PSSS", "Pur.", "---u"];
    let servers: Vec<Observation> = (0..).zip(servers).map(|(at, text)| observe(at, text)).collect();
    let verdict = decide(
        rules(config::Topology::GroupReplication),
        &servers,
        Past::default(),
    );
    let reasons: Vec<&str> = verdict
        .members
        .iter()
        .map(|member| member.reason.as_str())
        .collect();
    assert_eq!(
        reasons,
        [
            "is the primary of its group and takes writes",
            "is online in its group",
            "is recovering in its group",
            "is unreachable in its group",
        ]
    );
}

#[test]
fn several_may_take_writes() {
    let writers = |texts: &[&str], max| {
        let kind = config::Topology::GroupReplication;
        let servers: Vec<Observation> = (0..).zip(texts).map(|(at, text)| observe(at, text)).collect();
        let Verdict { members, primary, .. } = decide(rules(kind), &servers, Past::default());
        primary.map(|primary| super::super::writers(kind, &servers, &members, primary, &[], max))
    };
    let all = ["PPP w m", "PPP w m", "PPP w m"];
    assert_eq!(writers(&all, 1), Some(vec![0]));
    assert_eq!(writers(&all, 2), Some(vec![0, 1]));
    assert_eq!(writers(&all, 9), Some(vec![0, 1, 2]));
    assert_eq!(
        writers(&["PPr w m", "PPr m", "PPr m"], 9),
        Some(vec![0]),
        "the others take no writes yet"
    );
    assert_eq!(
        writers(&["PSS w", "PSS", "PSS"], 9),
        Some(vec![0]),
        "single-primary mode"
    );
}
