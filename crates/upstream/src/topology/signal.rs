//! What a server says of itself that means: leave me. Pure; the time is an argument.
//!
//! What it says counts once two looks one after the other have heard it, and is over once two have not. A
//! server that says it again and again has to be well for longer each time before it is believed, as a
//! primary that flaps has: sessions that have left it never go back for that, but those that come meanwhile
//! would have to leave again.

use std::time::{Duration, Instant};

use super::damping::Damper;
use super::observation::{Facts, GaleraFacts, GroupFacts, MemberState, NodeState};
use crate::server::ServerId;

/// Looks in a row by which it is believed that something has changed.
const LOOKS: u32 = 2;

/// Why a server is to be left, by its own words. Those that weigh more come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// It refuses statements, or those of all but its operators, or its data are not what they should be.
    Unfit(String),
    /// Galera: it may fall behind. With `donor_reads` it is good enough.
    Donor(&'static str),
    /// It took writes until now.
    ReadOnly,
}

impl Signal {
    /// The reason for people: `offline_mode = ON`.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Unfit(words) => words,
            Self::Donor(words) => words,
            Self::ReadOnly => "read_only = ON, and it took writes before",
        }
    }
}

/// The signals that the looks at one server have heard. Each kind counts for itself: a server that is no
/// longer the primary for good is believed no sooner when it says something else.
#[derive(Clone, Debug, Default)]
pub(super) struct Hearing {
    unfit: Heard,
    donor: Heard,
    read_only: Heard,
    /// Whether it was a replica at the first look.
    began_as_replica: Option<bool>,
    /// At the last look.
    takes_writes: Option<bool>,
    took_writes: bool,
}

/// What was heard of one kind of signal.
#[derive(Clone, Debug, Default)]
struct Heard {
    /// The signal, as the server said it last.
    signal: Option<Signal>,
    /// The server is believed to mean this signal still.
    holds: bool,
    /// Looks in a row that speak for the opposite.
    against: u32,
    damper: Damper,
}

/// What a server means, and what else is to be known of it before all leave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// All that it says, in their order.
    pub(crate) signals: Vec<Signal>,
    /// As of its last look; `None` where it has not said.
    pub(crate) takes_writes: Option<bool>,
    /// It was a replica when it was looked at for the first time: sessions that come to it are meant for such
    /// a server.
    pub(crate) began_as_replica: bool,
}

impl Hearing {
    /// A look has succeeded.
    pub(super) fn note(&mut self, facts: &Facts, offline: bool) {
        let takes_writes = facts.is_writable();
        let is_replica = facts.follows_somebody();
        self.began_as_replica.get_or_insert(is_replica || !takes_writes);
        self.takes_writes = Some(takes_writes);
        // A replica that takes writes is none that applications write to.
        self.took_writes |= takes_writes && !is_replica;
        let said = match offline {
            true => Some(offline_mode()),
            false => of(facts),
        };
        let (donor, unfit) = match said {
            Some(donor @ Signal::Donor(_)) => (Some(donor), None),
            unfit => (None, unfit),
        };
        self.unfit.count(unfit);
        self.donor.count(donor);
        let is_over = self.took_writes && !takes_writes;
        self.read_only.count(is_over.then_some(Signal::ReadOnly));
    }

    /// It has refused the monitor, since it is in `offline_mode`. Looks that fail in any other way tell
    /// nothing.
    pub(super) fn note_offline(&mut self) {
        self.unfit.count(Some(offline_mode()));
    }

    pub(super) fn standing(&mut self, server: ServerId, damping: Duration, now: Instant) -> Standing {
        let heard = [&mut self.unfit, &mut self.donor, &mut self.read_only];
        let signals = heard
            .into_iter()
            .filter_map(|heard| heard.signal(server, damping, now));
        Standing {
            signals: signals.collect(),
            takes_writes: self.takes_writes,
            began_as_replica: self.began_as_replica == Some(true),
        }
    }
}

impl Heard {
    fn count(&mut self, said: Option<Signal>) {
        self.against = match said.is_some() == self.holds {
            true => 0,
            false => self.against + 1,
        };
        if said.is_some() {
            self.signal = said;
        }
        if self.against == LOOKS {
            (self.holds, self.against) = (!self.holds, 0);
        }
    }

    fn signal(&mut self, server: ServerId, damping: Duration, now: Instant) -> Option<Signal> {
        let is_well = (!self.holds).then_some(server);
        match self.damper.admit(is_well, damping, now) {
            Some(_) => None,
            None => self.signal.clone(),
        }
    }
}

fn offline_mode() -> Signal {
    Signal::Unfit("offline_mode = ON".to_owned())
}

fn of(facts: &Facts) -> Option<Signal> {
    match facts {
        // Whether a replica is good for reads is a matter of roles and of lag.
        Facts::Replication(_) => None,
        Facts::Group(facts) => of_member(facts).map(Signal::Unfit),
        Facts::Galera(facts) => of_node(facts),
    }
}

fn of_member(facts: &GroupFacts) -> Option<String> {
    let Some(own) = facts.own() else {
        return Some("is no member of a group".to_owned());
    };
    if own.state != MemberState::Online {
        return Some(format!("is {} in its group", own.state.word()));
    }
    let (reached, all) = (facts.reachable().count(), facts.view.len());
    (!facts.has_majority()).then(|| format!("reaches {reached} of {all} members of its group"))
}

fn of_node(facts: &GaleraFacts) -> Option<Signal> {
    let unfit = |words: &str| Some(Signal::Unfit(words.to_owned()));
    if let Some(closed) = &facts.closed {
        return unfit(closed);
    }
    if !facts.in_primary_component {
        return unfit("is not in the primary component");
    }
    if !facts.ready {
        return unfit("wsrep_ready = OFF");
    }
    match facts.state {
        NodeState::Synced => None,
        NodeState::Donor if facts.desynced => Some(Signal::Donor("wsrep_desync = ON")),
        NodeState::Donor => Some(Signal::Donor("is a donor (wsrep_local_state = 2)")),
        state => Some(Signal::Unfit(format!("is {}", state.word()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::observation::{Address, GroupMember, Receiving, ReplicationFacts, Source};

    const WELL: bool = true;
    const DAMPING: Duration = Duration::from_secs(1);

    fn node() -> GaleraFacts {
        GaleraFacts {
            ready: true,
            in_primary_component: true,
            state: NodeState::Synced,
            desynced: false,
            writable: true,
            closed: None,
            index: 0,
            component: ("u".to_owned(), 7),
            size: 3,
        }
    }

    fn group(states: &[MemberState]) -> Facts {
        let view = states.iter().enumerate().map(|(at, state)| GroupMember {
            uuid: at.to_string(),
            state: *state,
            is_primary: at == 0,
        });
        Facts::Group(GroupFacts {
            uuid: "0".to_owned(),
            writable: true,
            single_primary: true,
            view: view.collect(),
        })
    }

    fn replicating(writable: bool) -> Facts {
        following(&[], writable)
    }

    fn following(sources: &[Source], writable: bool) -> Facts {
        Facts::Replication(ReplicationFacts {
            identity: None,
            writable,
            sources: sources.to_vec(),
        })
    }

    fn words(facts: &Facts) -> Option<String> {
        of(facts).map(|signal| signal.words().to_owned())
    }

    #[test]
    fn a_node_of_galera_says_why() {
        let said = |change: &dyn Fn(&mut GaleraFacts)| {
            let mut node = node();
            change(&mut node);
            words(&Facts::Galera(node))
        };
        assert_eq!(said(&|_| {}), None);
        let closed = "wsrep_reject_queries = ALL";
        let says = |words: &str| Some(words.to_owned());
        assert_eq!(said(&|node| node.closed = Some(closed.to_owned())), says(closed));
        assert_eq!(said(&|node| node.ready = false), says("wsrep_ready = OFF"));
        let donor = said(&|node| node.state = NodeState::Donor);
        assert_eq!(donor, says("is a donor (wsrep_local_state = 2)"));
        let desynced = said(&|node| (node.state, node.desynced) = (NodeState::Donor, true));
        assert_eq!(desynced, says("wsrep_desync = ON"));
        let joined = said(&|node| node.state = NodeState::Joined);
        assert_eq!(joined, says("is joined, not yet synced"));
        let minority = said(&|node| (node.in_primary_component, node.ready) = (false, false));
        assert_eq!(minority, says("is not in the primary component"));
    }

    #[test]
    fn a_member_of_a_group_says_why() {
        use MemberState::{Error, Online, Recovering, Unreachable};
        let says = |words: &str| Some(words.to_owned());
        assert_eq!(words(&group(&[Online, Online, Unreachable])), None);
        assert_eq!(
            words(&group(&[Recovering, Online])),
            says("is recovering in its group")
        );
        assert_eq!(words(&group(&[Error, Online])), says("is in error in its group"));
        assert_eq!(words(&group(&[])), says("is no member of a group"));
        let minority = words(&group(&[Online, Unreachable, Unreachable]));
        assert_eq!(minority, says("reaches 1 of 3 members of its group"));
        assert_eq!(words(&replicating(false)), None, "a replica is one");
    }

    /// What is believed after each of these looks, one every 100 ms: `+` well, `-` a signal, `?` a failure.
    fn believed(looks: &str) -> String {
        let (mut hearing, start) = (Hearing::default(), Instant::now());
        let mut believed = String::new();
        for (ms, look) in (0..).step_by(100).zip(looks.chars()) {
            match look {
                '+' => hearing.note(&replicating(WELL), false),
                '-' => hearing.note(&replicating(WELL), true),
                _ => {}
            }
            let standing = hearing.standing(ServerId(0), DAMPING, start + Duration::from_millis(ms));
            believed.push(if standing.signals.is_empty() { '+' } else { '-' });
        }
        believed
    }

    #[test]
    fn two_looks_one_after_the_other_are_believed() {
        for (looks, expected) in [
            ("++--", "+++-"),
            ("--++", "+--+"),
            ("-+-+-+", "++++++"),
            ("--+-+-", "+-----"),
            ("-?-", "++-"),
            ("--??+?+", "+-----+"),
        ] {
            assert_eq!(believed(looks), expected, "{looks}");
        }
    }

    #[test]
    fn who_flaps_has_to_be_well_for_longer() {
        let flaps = "--++".repeat(3);
        let well = "+".repeat(20);
        let expected = format!("{}{}{}", "+--+".repeat(2), "+---", "-".repeat(9));
        let expected = format!("{expected}{}", "+".repeat(20 - 9));
        assert_eq!(believed(&format!("{flaps}{well}")), expected);
    }

    #[test]
    fn who_took_writes_and_takes_none_says_so_and_a_replica_does_not() {
        let now = Instant::now();
        let hear = |looks: &[bool]| {
            let mut hearing = Hearing::default();
            for takes_writes in looks {
                hearing.note(&replicating(*takes_writes), false);
            }
            hearing.standing(ServerId(0), DAMPING, now)
        };
        let standing = hear(&[true, false, false]);
        assert_eq!(standing.signals, [Signal::ReadOnly]);
        assert_eq!(
            (standing.takes_writes, standing.began_as_replica),
            (Some(false), false)
        );
        let replica = hear(&[false, false]);
        assert_eq!((replica.signals, replica.began_as_replica), (vec![], true));
        let promoted = hear(&[false, true, true]);
        assert_eq!((promoted.signals, promoted.takes_writes), (vec![], Some(true)));
    }

    #[test]
    fn a_replica_that_took_writes_by_mistake_is_no_former_primary() {
        let source = Source {
            address: Address {
                host: "db1".to_owned(),
                port: 3306,
            },
            identity: None,
            receiving: Receiving::Yes,
            applying: true,
            error: None,
        };
        let mut hearing = Hearing::default();
        for writable in [true, false, false] {
            hearing.note(&following(std::slice::from_ref(&source), writable), false);
        }
        let standing = hearing.standing(ServerId(0), DAMPING, Instant::now());
        assert_eq!((standing.signals, standing.began_as_replica), (vec![], true));
    }

    #[test]
    fn each_kind_of_signal_needs_two_looks() {
        let mut hearing = Hearing::default();
        let mut hear = |writable: bool, offline: bool| {
            hearing.note(&replicating(writable), offline);
            hearing.standing(ServerId(0), DAMPING, Instant::now()).signals
        };
        hear(true, false);
        assert_eq!(hear(false, false), [], "one look");
        assert_eq!(hear(false, false), [Signal::ReadOnly]);
        assert_eq!(hear(false, true), [Signal::ReadOnly], "one look");
        assert_eq!(hear(false, true), [offline_mode(), Signal::ReadOnly]);
    }

    #[test]
    fn who_refuses_the_monitor_in_offline_mode_says_so() {
        let mut hearing = Hearing::default();
        hearing.note_offline();
        hearing.note_offline();
        let standing = hearing.standing(ServerId(0), DAMPING, Instant::now());
        assert_eq!(standing.signals, [offline_mode()]);
        assert_eq!(standing.takes_writes, None);
    }
}
