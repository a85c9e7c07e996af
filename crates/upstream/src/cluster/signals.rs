//! Servers that say by themselves that they are to be left, and whether that is heeded.
//!
//! What a server says is the business of `topology`. Here it is decided who drains for it, so that somebody
//! is left in any case: [`decide`], which is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Cluster;
use crate::server::{Availability, Server, ServerId};
use crate::topology::{Signal, Standing};

/// What servers have said.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Who drains for it, and the words.
    heeded: BTreeMap<ServerId, Arc<str>>,
    /// Whom nobody leaves in spite of it: nobody else would be left.
    refused: BTreeSet<ServerId>,
}

/// What is to be known of a server.
#[derive(Clone, Debug)]
struct Candidate {
    standing: Standing,
    availability: Availability,
    /// Its configuration lets sessions come to it: it has a weight, and does not drain for another reason.
    is_open: bool,
    backup: bool,
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
    let all = || 0..servers.len();
    let is_unfit = |at: &usize| {
        matches!(
            servers[*at].standing.signal,
            Some(Signal::Unfit(_) | Signal::Donor(_))
        )
    };
    let mut heeded: BTreeSet<usize> = all().filter(is_unfit).collect();
    let takes = |at: &usize| servers[*at].is_open && servers[*at].availability == Availability::Yes;
    let takes_writes = |at: &usize| servers[*at].standing.takes_writes == Some(true);
    let read_only: Vec<usize> = all()
        .filter(|at| servers[*at].standing.signal == Some(Signal::ReadOnly))
        .collect();
    let successors: Vec<usize> = all()
        .filter(|at| takes(at) && takes_writes(at) && servers[*at].standing.signal.is_none())
        .collect();
    // Sessions come to replicas as well: who is meant to write and who is not, nobody knows.
    let serves_replicas =
        all().any(|at| servers[at].is_open && !servers[at].backup && servers[at].standing.began_as_replica);
    let is_succeeded = !by_role && !serves_replicas && !successors.is_empty() && !read_only.is_empty();
    if is_succeeded {
        heeded.extend(&read_only);
    }
    let mut refused = BTreeSet::new();
    if !all().any(|at| takes(&at) && !heeded.contains(&at)) {
        refused = std::mem::take(&mut heeded);
    }
    for group in groups {
        if group
            .iter()
            .all(|at| heeded.contains(at) || !servers[*at].is_open)
        {
            let (spared, others) = heeded.into_iter().partition(|at| group.contains(at));
            heeded = others;
            refused.extend(BTreeSet::<usize>::from_iter(spared));
        }
    }
    Verdict {
        stand_ins: match is_succeeded && !heeded.is_disjoint(&read_only.into_iter().collect()) {
            true => successors.into_iter().collect(),
            false => BTreeSet::new(),
        },
        heeded,
        refused,
    }
}

impl Cluster {
    /// Has servers drain that say that they are to be left, and those take sessions again that do so no
    /// longer. To be called whenever something has been learned of the servers.
    pub(crate) fn heed_signals(self: &Arc<Self>) {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
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
        let standings = match config.drain_on_signal {
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
        let words = |at: usize| {
            let signal = candidates[at].standing.signal.as_ref();
            signal.map_or("", Signal::words)
        };
        // Until all have been checked it may be that another one is left.
        let is_known = |candidate: &Candidate| candidate.availability != Availability::Unknown;
        let is_certain = candidates.iter().all(is_known);
        let mut signals = self.signals();
        signals.heeded = (verdict.heeded.iter())
            .map(|&at| (servers[at].id(), Arc::from(words(at))))
            .collect();
        let refused = verdict.refused.iter().filter(|_| is_certain);
        let refused: BTreeMap<ServerId, usize> = refused.map(|&at| (servers[at].id(), at)).collect();
        if refused.keys().any(|id| !signals.refused.contains(id)) {
            let named: Vec<String> = (refused.values())
                .map(|&at| format!("{} ({})", servers[at].name(), words(at)))
                .collect();
            tracing::error!(
                cluster = self.name,
                servers = named.join(", "),
                "servers say that they are to be left, and stay in use: no other server would be left to take sessions"
            );
        }
        signals.refused = refused.into_keys().collect();
    }

    fn candidate(&self, server: &Server, mut standing: Standing, donor_reads: bool) -> Candidate {
        if donor_reads && matches!(standing.signal, Some(Signal::Donor(_))) {
            standing.signal = None;
        }
        Candidate {
            standing,
            availability: server.availability(),
            is_open: server.own_weight() > 0 && !self.is_drained_by_hand(server.name()),
            backup: server.is_configured_backup(),
        }
    }

    /// Why this server says that it is to be left, where that is heeded.
    pub(super) fn signal_of(&self, server: &Server) -> Option<Arc<str>> {
        self.signals().heeded.get(&server.id()).cloned()
    }

    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `-` says that it is to be left, `o` took writes until now, `w` takes writes, `r` began as a replica
    /// and is one; behind it `b` a backup, `x` down, `?` not checked yet, `d` drained by hand.
    fn servers(words: &[&str]) -> Vec<Candidate> {
        let of = |word: &&str| {
            let says = |letter: char| word.contains(letter);
            Candidate {
                standing: Standing {
                    signal: match (says('-'), says('o')) {
                        (true, _) => Some(Signal::Unfit("offline_mode = ON".to_owned())),
                        (false, true) => Some(Signal::ReadOnly),
                        (false, false) => None,
                    },
                    takes_writes: Some(says('w')),
                    began_as_replica: says('r'),
                },
                availability: match (says('x'), says('?')) {
                    (true, _) => Availability::No,
                    (_, true) => Availability::Unknown,
                    _ => Availability::Yes,
                },
                is_open: !says('d'),
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
    }

    proptest! {
        /// Whatever they say, somebody is left whom sessions can go to, if there was anybody.
        #[test]
        fn somebody_is_left(
            words in prop::collection::vec("[-owr]{0,2}b?[x?d]?", 1..6),
            by_role in any::<bool>(),
        ) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let servers = servers(&words);
            let groups: Vec<BTreeSet<usize>> = (0..servers.len()).map(|at| BTreeSet::from([at])).collect();
            for groups in [&groups[..], &[]] {
                let verdict = decide(&servers, groups, by_role);
                let takes = |at: &usize| servers[*at].is_open && servers[*at].availability == Availability::Yes;
                let before = (0..servers.len()).filter(takes).count();
                let left = (0..servers.len()).filter(|at| takes(at) && !verdict.heeded.contains(at)).count();
                prop_assert!(before == 0 || left > 0, "{verdict:?}");
                prop_assert!(verdict.heeded.is_disjoint(&verdict.refused));
                for at in verdict.heeded.iter().chain(&verdict.refused) {
                    prop_assert!(servers[*at].standing.signal.is_some());
                }
            }
        }
    }
}
