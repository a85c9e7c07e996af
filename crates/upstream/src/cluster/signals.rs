//! Servers that say by themselves that they are to be left, and whether that is heeded.
//!
//! What a server says is the business of `topology`. Here it is decided who drains for it, so that somebody
//! is left in any case: [`decide`], which is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Cluster;
use crate::lock::lock;
use crate::server::{Availability, Server, ServerId};
use crate::topology::{Signal, Standing};

/// What servers have said.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Who drains for it.
    heeded: BTreeMap<ServerId, Signal>,
    /// Whom nobody leaves in spite of it: nobody else would be left.
    refused: BTreeSet<ServerId>,
}

/// What is to be known of a server.
#[derive(Clone, Debug)]
struct Candidate {
    /// What weighs most of what it says.
    signal: Option<Signal>,
    takes_writes: bool,
    began_as_replica: bool,
    availability: Availability,
    /// By the configuration.
    has_weight: bool,
    /// By the configuration or an operator.
    drains: bool,
    backup: bool,
}

impl Candidate {
    /// Whether sessions may come to it, whatever it says itself.
    fn takes(&self) -> bool {
        self.has_weight && !self.drains && self.availability == Availability::Yes
    }
}

/// Places of servers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    heeded: BTreeSet<usize>,
    refused: BTreeSet<usize>,
    /// Backups that take the writes in place of a server which takes none any more. They come before the
    /// others.
    stand_ins: BTreeSet<usize>,
}

/// Who is left for what it has said. `groups` must not be without a server, either. `by_role`: sessions go
/// where the roles of the servers send them, and no longer taking writes is a role.
fn decide(servers: &[Candidate], groups: &[BTreeSet<usize>], by_role: bool) -> Verdict {
    let all: BTreeSet<usize> = (0..servers.len()).collect();
    let is_read_only = |at: &usize| servers[*at].signal == Some(Signal::ReadOnly);
    let takes_over =
        |at: &usize| servers[*at].takes() && servers[*at].takes_writes && servers[*at].signal.is_none();
    let successors: BTreeSet<usize> = all.iter().copied().filter(takes_over).collect();
    // Sessions come to replicas as well: who is meant to write and who is not, nobody knows.
    let serves_replicas = servers
        .iter()
        .any(|server| server.has_weight && !server.backup && server.began_as_replica);
    let is_succeeded = !by_role && !serves_replicas && !successors.is_empty();
    let says_so = |at: &usize| servers[*at].signal.is_some() && (is_succeeded || !is_read_only(at));
    let mut verdict = Verdict {
        heeded: all.iter().copied().filter(says_so).collect(),
        ..Verdict::default()
    };
    for needed in std::iter::once(&all).chain(groups) {
        verdict.leave_somebody_in(needed, servers);
    }
    if verdict.heeded.iter().any(is_read_only) {
        verdict.stand_ins = successors;
    }
    verdict
}

impl Verdict {
    /// Where all of these that take sessions would be left, those stay whose reason weighs least.
    fn leave_somebody_in(&mut self, needed: &BTreeSet<usize>, servers: &[Candidate]) {
        let stays = |heeded: &BTreeSet<usize>| {
            let mut others = needed.difference(heeded);
            others.any(|at| servers[*at].takes())
        };
        while !stays(&self.heeded)
            && let Some(least) = (self.heeded.intersection(needed))
                .filter_map(|at| servers[*at].signal.as_ref())
                .max()
                .map(std::mem::discriminant)
        {
            let is_least = |at: &usize| {
                let signal = servers[*at].signal.as_ref();
                needed.contains(at) && signal.map(std::mem::discriminant) == Some(least)
            };
            let spared: BTreeSet<usize> = self.heeded.iter().copied().filter(is_least).collect();
            self.heeded.retain(|at| !spared.contains(at));
            self.refused.extend(spared);
        }
    }
}

impl Cluster {
    /// Has servers drain that say that they are to be left, and those take sessions again that do so no
    /// longer. To be called whenever something has been learned of the servers.
    pub(crate) fn heed_signals(self: &Arc<Self>) {
        let changing = lock(&self.changing);
        let servers = self.servers();
        self.judge_signals(&servers);
        let comes_back = self.settle_drains(&servers);
        drop(changing);
        if comes_back {
            self.serve_queue();
        }
    }

    /// Decides anew whose signal is heeded. To be called with `changing` held, and
    /// [`settle_drains`](Self::settle_drains) behind it.
    pub(super) fn judge_signals(&self, servers: &[Arc<Server>]) {
        let config = self.config.load();
        let standings = match config.drain_on_signal && config.monitor.is_some() {
            true => self.follow.standings(&config, servers),
            false => vec![Standing::default(); servers.len()],
        };
        let candidates: Vec<Candidate> = servers
            .iter()
            .zip(standings)
            .map(|(server, standing)| self.candidate(server, standing, config.donor_reads))
            .collect();
        let places = |names: &[String]| {
            let is_in = |at: &usize| names.iter().any(|name| name == servers[*at].name());
            (0..servers.len()).filter(is_in).collect()
        };
        let groups: Vec<_> = (config.groups.values())
            .map(|group| places(&group.servers))
            .filter(|group: &BTreeSet<usize>| !group.is_empty())
            .collect();
        let verdict = decide(&candidates, &groups, self.shared.load(Ordering::Relaxed));
        for (at, server) in servers.iter().enumerate() {
            server.set_stands_in(verdict.stand_ins.contains(&at));
        }
        let signal = |at: usize| candidates[at].signal.as_ref();
        // Until all have been checked it may be that another one is left.
        let is_known = |candidate: &Candidate| candidate.availability != Availability::Unknown;
        let is_certain = candidates.iter().all(is_known);
        let mut signals = lock(&self.signals);
        signals.heeded = (verdict.heeded.iter())
            .filter_map(|&at| Some((servers[at].id(), signal(at)?.clone())))
            .collect();
        let refused = verdict.refused.iter().filter(|_| is_certain);
        let refused: BTreeMap<ServerId, usize> = refused.map(|&at| (servers[at].id(), at)).collect();
        if refused.keys().any(|id| !signals.refused.contains(id)) {
            let named: Vec<String> = (refused.values())
                .map(|&at| {
                    let words = signal(at).map_or("", Signal::words);
                    format!("{} ({words})", servers[at].name())
                })
                .collect();
            tracing::error!(
                cluster = self.name,
                servers = named.join(", "),
                "servers say that they are to be left, and stay in use: no other server would be left to take sessions"
            );
        }
        signals.refused = refused.into_keys().collect();
    }

    fn candidate(&self, server: &Server, standing: Standing, donor_reads: bool) -> Candidate {
        let words = match (server.is_terminating(), server.is_leaving()) {
            (true, _) => Some("is about to end, by Kubernetes"),
            (false, true) => Some("is about to end, by its status port"),
            (false, false) => None,
        };
        let words = words.filter(|_| self.config.load().drain_on_signal);
        let by_status = words.map(|words| Signal::Unfit(words.to_owned()));
        let mut signals = by_status.into_iter().chain(standing.signals);
        let counts = |signal: &Signal| !donor_reads || !matches!(signal, Signal::Donor(_));
        Candidate {
            signal: signals.find(counts),
            takes_writes: standing.takes_writes == Some(true),
            began_as_replica: standing.began_as_replica,
            availability: server.availability(),
            has_weight: server.own_weight() > 0,
            drains: self.is_drained_by_hand(server.name()),
            backup: server.is_configured_backup(),
        }
    }

    /// Why this server says that it is to be left, where that is heeded.
    pub(super) fn signal_of(&self, server: &Server) -> Option<Signal> {
        lock(&self.signals).heeded.get(&server.id()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `-` says that it is to be left, `+` is a donor, `o` took writes until now, `w` takes writes, `r` began
    /// as a replica and is one; behind it `b` a backup, `x` down, `?` not checked yet, `d` drained by hand.
    fn servers(words: &[&str]) -> Vec<Candidate> {
        let of = |word: &&str| {
            let says = |letter: char| word.contains(letter);
            Candidate {
                signal: match () {
                    () if says('-') => Some(Signal::Unfit("offline_mode = ON".to_owned())),
                    () if says('+') => Some(Signal::Donor("wsrep_desync = ON")),
                    () if says('o') => Some(Signal::ReadOnly),
                    () => None,
                },
                takes_writes: says('w'),
                began_as_replica: says('r'),
                availability: match (says('x'), says('?')) {
                    (true, _) => Availability::No,
                    (_, true) => Availability::Unknown,
                    _ => Availability::Yes,
                },
                has_weight: true,
                drains: says('d'),
                backup: says('b'),
            }
        };
        words.iter().map(of).collect()
    }

    fn heeded(words: &[&str]) -> (Vec<usize>, Vec<usize>) {
        let verdict = decide(&servers(words), &[], false);
        let list = |places: BTreeSet<usize>| places.into_iter().collect();
        (list(verdict.heeded), list(verdict.refused))
    }

    #[test]
    fn who_says_so_is_left_as_long_as_somebody_is_left_to_take_sessions() {
        for (words, expected, refused) in [
            (&["-", "r", "w"][..], &[0][..], &[][..]),
            (&["-", "-", "w"], &[0, 1], &[]),
            (&["-", "-", "-"], &[], &[0, 1, 2]),
            (&["-"], &[], &[0]),
            (&["-", "wx"], &[], &[0]),
            (&["-", "w?"], &[], &[0]),
            (&["-", "wd"], &[], &[0]),
            (&["-d", "-", "w"], &[0, 1], &[]),
            (&["-", "wb"], &[0], &[]),
            // Who is less fit is left.
            (&["-", "+", "-"], &[0, 2], &[1]),
            (&["-", "+x"], &[], &[0, 1]),
        ] {
            let found = heeded(words);
            assert_eq!(found, (expected.to_vec(), refused.to_vec()), "{words:?}");
        }
    }

    #[test]
    fn who_takes_no_writes_any_more_is_left_where_sessions_are_not_meant_for_replicas() {
        for (what, words, expected) in [
            ("its backup has taken over", &["o", "wb"][..], &[0][..]),
            ("nobody has yet", &["o", "rb"], &[]),
            ("it is down", &["o", "wbx"], &[]),
            ("all others take writes, as nodes do", &["o", "w", "w"], &[0]),
            ("sessions are spread over replicas", &["o", "w", "r"], &[]),
            ("as the successor was", &["o", "wr"], &[]),
            (
                "a replica that is a backup is none of those",
                &["o", "wrb", "rb"],
                &[0],
            ),
            ("it has just begun to take writes again", &["ow", "b"], &[]),
            ("its successor is to be left itself", &["o", "w-b"], &[1]),
            (
                "a replica that drains is meant for sessions",
                &["o", "w", "rd"],
                &[],
            ),
        ] {
            assert_eq!(heeded(words).0, expected, "{what}");
        }
        let by_role = decide(&servers(&["o", "wb"]), &[], true);
        assert_eq!(by_role, Verdict::default());
    }

    #[test]
    fn the_successor_comes_before_other_backups() {
        let of = |words: &[&str]| decide(&servers(words), &[], false).stand_ins;
        assert_eq!(of(&["o", "rb", "wrb"]), BTreeSet::from([2]));
        assert_eq!(of(&["w", "rb", "rb"]), BTreeSet::new());
        assert_eq!(
            of(&["-", "rb", "wrb"]),
            BTreeSet::new(),
            "it is away for another reason"
        );
    }

    #[test]
    fn no_group_is_without_a_server() {
        let group = |places: &[usize]| BTreeSet::from_iter(places.iter().copied());
        let verdict = decide(&servers(&["w", "-", "-d", "-"]), &[group(&[1, 2])], false);
        assert_eq!(verdict.heeded, group(&[3]));
        assert_eq!(verdict.refused, group(&[1, 2]));
        let verdict = decide(&servers(&["w", "-"]), &[group(&[0, 1])], false);
        assert_eq!(verdict.heeded, group(&[1]));
        let verdict = decide(&servers(&["w", "-", "wx"]), &[group(&[1, 2])], false);
        assert_eq!(verdict.refused, group(&[1]), "the other one is down");
    }

    proptest! {
        /// Whatever they say, somebody is left whom sessions can go to, if there was anybody.
        #[test]
        fn somebody_is_left(
            words in prop::collection::vec("[-+owr]{0,2}b?[x?d]?", 1..6),
            by_role in any::<bool>(),
        ) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let servers = servers(&words);
            let groups: Vec<BTreeSet<usize>> = (0..servers.len()).map(|at| BTreeSet::from([at])).collect();
            for groups in [&groups[..], &[]] {
                let verdict = decide(&servers, groups, by_role);
                let takes = |at: &usize| servers[*at].takes();
                let before = (0..servers.len()).filter(takes).count();
                let left = (0..servers.len()).filter(|at| takes(at) && !verdict.heeded.contains(at)).count();
                prop_assert!(before == 0 || left > 0, "{verdict:?}");
                prop_assert!(verdict.heeded.is_disjoint(&verdict.refused));
                for at in verdict.heeded.iter().chain(&verdict.refused) {
                    prop_assert!(servers[*at].signal.is_some());
                }
            }
        }
    }
}
