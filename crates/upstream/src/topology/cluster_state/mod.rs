//! What the looks at the servers of a cluster have shown, and the picture that it makes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::behind::Limits;
use super::connection::{Blind, Meaning};
use super::damping::Damper;
use super::decide::{self, Judged, Past, Rules, Verdict};
use super::lag::LagGauge;
use super::look::{Finding, Named};
use super::observation::{
    Address, Facts, HostIdentity, Identity, Observation, Receiving, Source, Visibility,
};
use super::rogue_writers::RogueWriters;
use super::signal::{Hearing, Standing};
use super::{Member, Role, Topology, flavor};
use crate::server::{Server, ServerId, Status};

/// Looks in a row that fail before a server is given up. One that refuses connections is given up at the
/// first.
const LOOKS_LOST: u32 = 3;

/// How long the loss of a primary is worth looking more often. Some clusters never have one.
const SEARCHING_FOR: Duration = Duration::from_secs(60);

/// What is remembered of a cluster.
#[derive(Default)]
pub(super) struct ClusterState {
    seen: HashMap<ServerId, Seen>,
    /// What followers call the servers they follow, learned while those said who they are. A replica that is
    /// restarted does not know whom it follows until it has reached it, and must not be taken for one that
    /// follows nobody.
    called: HashMap<ServerId, Vec<Address>>,
    /// The last primary, whether or not it is still there.
    incumbent: Option<ServerId>,
    /// All that take writes.
    writers: Vec<ServerId>,
    /// Of a server with several names the others, by which it is of no use.
    aliases: Vec<ServerId>,
    damper: Damper,
    rogue_writers: RogueWriters,
    conflict_since: Option<Instant>,
    /// It was believed, and writes are refused.
    disputed: bool,
    without_primary_since: Option<Instant>,
}

/// What is remembered of one server.
#[derive(Default)]
struct Seen {
    /// When the last look began that succeeded.
    at: Option<Instant>,
    facts: Option<Facts>,
    identity: Option<Identity>,
    host_identity: Option<HostIdentity>,
    named: Vec<Named>,
    lag: LagGauge,
    /// Transactions that it had still to apply.
    waiting: Option<u64>,
    /// Since the last look that succeeded.
    failures: u32,
    blind: Option<Blind>,
    /// Whether it says itself that it is to be left.
    hearing: Hearing,
}

impl Seen {
    /// Whether what it has said last still counts: several looks that tell nothing make it old.
    fn is_heard(&self) -> bool {
        let tells = |blind: &Blind| matches!(blind.meaning, Meaning::Full | Meaning::Offline);
        self.failures < LOOKS_LOST || self.blind.as_ref().is_some_and(tells)
    }
}

/// Who a server is and whom it names, as of its last look.
#[derive(Clone, Debug)]
pub(super) struct ServerReport {
    pub(super) id: ServerId,
    pub(super) address: Option<Address>,
    /// It is not in the configuration.
    pub(super) discovered: bool,
    pub(super) identity: Option<Identity>,
    pub(super) named: Vec<Named>,
    pub(super) is_seen: bool,
    pub(super) is_unseen: bool,
}

impl ClusterState {
    /// A look that began at `begun` has come to its end.
    pub(super) fn note(&mut self, server: ServerId, begun: Instant, result: Result<Finding, Blind>) {
        let seen = self.seen.entry(server).or_default();
        match result {
            Ok(finding) => {
                seen.lag.read(finding.lag, begun);
                seen.hearing.note(&finding.facts, finding.offline);
                seen.at = Some(begun);
                seen.facts = Some(finding.facts);
                seen.waiting = finding.waiting;
                (seen.identity, seen.host_identity) = (finding.identity, finding.host_identity);
                seen.named = finding.named;
                (seen.failures, seen.blind) = (0, None);
            }
            Err(blind) => {
                seen.failures = seen.failures.saturating_add(1);
                if blind.meaning == Meaning::Offline {
                    seen.hearing.note_offline();
                }
                seen.blind = Some(blind);
            }
        }
    }

    /// What is remembered of the servers there are; the rest is forgotten.
    pub(super) fn retain(&mut self, servers: &[Arc<Server>]) {
        self.seen
            .retain(|id, _| servers.iter().any(|server| server.id() == *id));
        self.called
            .retain(|id, _| servers.iter().any(|server| server.id() == *id));
    }

    /// Forgets what the looks at a server have shown.
    pub(super) fn forget(&mut self, server: ServerId) {
        self.seen.remove(&server);
    }

    /// Learns under which address followers know a server. An address that leads to another one by now is
    /// that one's.
    fn learn_names(&mut self) {
        let sources = |seen: &Seen| match (&seen.facts, &seen.blind) {
            (Some(Facts::Replication(facts)), None) => facts.sources.clone(),
            _ => Vec::new(),
        };
        let followed: Vec<Source> = (self.seen.values().flat_map(sources))
            .filter(|source| source.receiving == Receiving::Yes && source.identity.is_some())
            .collect();
        for source in followed {
            let mut who = (self.seen.iter())
                .filter(|(_, seen)| seen.identity == source.identity)
                .map(|(id, _)| *id);
            if let (Some(id), None) = (who.next(), who.next())
                && !self
                    .called
                    .get(&id)
                    .is_some_and(|names| names.contains(&source.address))
            {
                for names in self.called.values_mut() {
                    names.retain(|name| *name != source.address);
                }
                self.called.entry(id).or_default().push(source.address);
            }
        }
    }

    /// Where several can be the primary this one is it, as long as it can.
    pub(super) fn prefer(&mut self, server: ServerId) {
        self.incumbent = Some(server);
    }

    /// Who each server is and whom it names.
    pub(super) fn reports(&self, kind: config::Topology, servers: &[Arc<Server>]) -> Vec<ServerReport> {
        let report = |server: &Arc<Server>| {
            let seen = self.seen.get(&server.id());
            let visibility = visibility(kind, server, seen);
            ServerReport {
                id: server.id(),
                address: Address::of(server.address()),
                discovered: server.is_discovered(),
                identity: seen.and_then(|seen| seen.identity.clone()),
                named: seen.map(|seen| seen.named.clone()).unwrap_or_default(),
                is_seen: visibility.is_seen(),
                is_unseen: visibility.is_unseen(),
            }
        };
        servers.iter().map(report).collect()
    }

    /// What each server says of whether it is to be left.
    pub(super) fn standings(
        &mut self,
        config: &config::Cluster,
        servers: &[Arc<Server>],
        now: Instant,
    ) -> Vec<Standing> {
        let damping = config
            .monitor
            .as_ref()
            .map_or(Duration::ZERO, |monitor| monitor.damping);
        let standing = |server: &Arc<Server>| match self.seen.get_mut(&server.id()) {
            Some(seen) if seen.is_heard() => seen.hearing.standing(server.id(), damping, now),
            _ => Standing::default(),
        };
        servers.iter().map(standing).collect()
    }

    /// The topology as it is now, of generation 0.
    pub(super) fn topology(
        &mut self,
        config: &config::Cluster,
        servers: &[Arc<Server>],
        now: Instant,
    ) -> Topology {
        self.learn_names();
        let mut observations: Vec<Observation> = (servers.iter())
            .map(|server| self.observe(config.topology, server, now))
            .collect();
        let place = |id: ServerId| servers.iter().position(|server| server.id() == id);
        let incumbent = self.incumbent.and_then(place);
        if config.topology.has_primary() {
            self.leave_out_aliases(servers, &mut observations, incumbent);
        }
        let past = Past {
            incumbent,
            disputed: self.disputed,
        };
        let Verdict {
            mut members,
            primary: found,
            conflict,
            rogue_writers,
        } = decide::decide(Rules::of(config), &observations, past);
        let damping = match &config.monitor {
            Some(monitor) if config.topology.has_primary() => monitor.damping,
            _ => Duration::ZERO,
        };
        let admitted = self.damper.admit(found.map(|at| servers[at].id()), damping, now);
        let primary = found.filter(|_| admitted.is_some());
        if let (Some(found), None) = (found, primary) {
            let reason = format!(
                "{}, but has become the primary too often to be believed at once (monitor.damping)",
                members[found].reason
            );
            members[found] = Judged {
                role: Role::Replica,
                reason,
                lag: None,
            };
        }
        self.incumbent = admitted.or(self.incumbent);
        self.without_primary_since = match primary {
            Some(_) => None,
            None => self.without_primary_since.or(Some(now)),
        };
        let before: Vec<usize> = self.writers.iter().filter_map(|id| place(*id)).collect();
        let max = config.max_writers as usize;
        let writers = primary.map_or_else(Vec::new, |primary| {
            decide::writers(config.topology, &observations, &members, primary, &before, max)
        });
        for &at in writers.iter().skip(1) {
            members[at].reason.push_str(", and takes writes as well");
        }
        self.writers = writers.iter().map(|at| servers[*at].id()).collect();
        let refuse_writes = self.confirm(conflict, &observations, servers, now);
        self.disputed = refuse_writes.is_some();
        self.note_rogue_writers(primary, &rogue_writers, servers, now);
        let limits = Limits::of(config);
        let members = servers
            .iter()
            .zip(members)
            .map(|(server, judged)| self.member(server, judged, limits));
        Topology {
            members: members.collect(),
            primary,
            writers,
            generation: 0,
            refuse_writes,
        }
    }

    fn member(&self, server: &Arc<Server>, judged: Judged, limits: Limits) -> Member {
        let transactions_behind = self.waiting(server).filter(|_| judged.role == Role::Replica);
        let too_far = limits.judge(&judged, transactions_behind);
        Member {
            server: Arc::clone(server),
            role: judged.role,
            is_too_far_behind: too_far.is_some(),
            reason: judged.reason + too_far.as_deref().unwrap_or_default(),
            lag: judged.lag,
            transactions_behind,
            zone: server.place().zone.clone(),
            flavor: server.profile().map(|profile| flavor(&profile.server_version)),
            identity: self.identity(server),
        }
    }

    /// There has been no primary for a short while: it is worth looking more often.
    pub(super) fn is_searching(&self, now: Instant) -> bool {
        self.without_primary_since
            .is_some_and(|since| now.saturating_duration_since(since) < SEARCHING_FOR)
    }

    /// Several servers claim to be the primary, or did when they were last seen.
    pub(super) fn has_conflict(&self) -> bool {
        self.conflict_since.is_some()
    }

    /// A conflict counts when everybody who can be seen has been looked at since it appeared.
    fn confirm(
        &mut self,
        conflict: Option<String>,
        observations: &[Observation],
        servers: &[Arc<Server>],
        now: Instant,
    ) -> Option<String> {
        if conflict.is_none() {
            self.conflict_since = None;
            return None;
        }
        let since = *self.conflict_since.get_or_insert(now);
        let seen_since = |server: &Server| {
            let seen = self.seen.get(&server.id()).and_then(|seen| seen.at);
            seen.is_some_and(|at| at >= since)
        };
        let confirmed = observations
            .iter()
            .zip(servers)
            .all(|(observation, server)| !observation.visibility.is_seen() || seen_since(server));
        conflict.filter(|_| confirmed)
    }

    /// Notes who takes writes beside the primary. As long as the primary or that server has not been looked
    /// at since, one may be about to replace the other.
    fn note_rogue_writers(
        &mut self,
        primary: Option<usize>,
        rogue_writers: &[usize],
        servers: &[Arc<Server>],
        now: Instant,
    ) {
        let rogue_writers: Vec<ServerId> = primary
            .iter()
            .flat_map(|_| rogue_writers)
            .map(|at| servers[*at].id())
            .collect();
        let seen_at = |id: ServerId| self.seen.get(&id).and_then(|seen| seen.at);
        let primary_seen_at = primary.and_then(|primary| seen_at(servers[primary].id()));
        let last_look = |id| seen_at(id).min(primary_seen_at);
        self.rogue_writers.note(&rogue_writers, now, last_look);
    }

    /// Servers that are known to take writes beside the primary; each once, for as long as it does.
    pub(super) fn take_rogue_writers(&mut self) -> Vec<ServerId> {
        self.rogue_writers.take()
    }

    /// One server by two names or addresses is one server. It goes by the name that it went by, for as long
    /// as it is not lost under that, and is what the best look by any of its names has shown; by the others
    /// it is of no use.
    fn leave_out_aliases(
        &mut self,
        servers: &[Arc<Server>],
        observations: &mut [Observation],
        incumbent: Option<usize>,
    ) {
        let host_identity = |at: usize| self.seen.get(&servers[at].id())?.host_identity.as_ref();
        let rank = |at: usize| {
            let visibility = &observations[at].visibility;
            (
                visibility.facts().is_none(),
                self.aliases.contains(&servers[at].id()),
                !visibility.is_seen(),
                incumbent != Some(at),
                at,
            )
        };
        let stands_for = |at: usize| {
            let own = host_identity(at)?;
            let same = (0..servers.len()).filter(|other| host_identity(*other) == Some(own));
            same.min_by_key(|other| rank(*other)).filter(|best| *best != at)
        };
        let aliases: Vec<(usize, usize)> = (0..servers.len())
            .filter_map(|at| Some((at, stands_for(at)?)))
            .collect();
        self.aliases = aliases.iter().map(|(at, _)| servers[*at].id()).collect();
        for (at, best) in aliases {
            if observations[at].visibility.facts().is_none() {
                continue;
            }
            let reason = format!("is the same server as {}", observations[best].name);
            let seen = std::mem::replace(&mut observations[at].visibility, Visibility::Lost { reason });
            if seen.is_seen() && matches!(observations[best].visibility, Visibility::Stale { .. }) {
                observations[best].visibility = seen;
            }
        }
    }

    /// Transactions that a server had still to apply.
    fn waiting(&self, server: &Server) -> Option<u32> {
        let waiting = self.seen.get(&server.id())?.waiting?;
        Some(u32::try_from(waiting).unwrap_or(u32::MAX))
    }

    /// Times that a primary was not believed at once.
    pub(super) fn damped(&self) -> u64 {
        self.damper.waits()
    }

    fn identity(&self, server: &Server) -> Option<Arc<str>> {
        let identity = self.seen.get(&server.id())?.identity.as_ref()?;
        Some(Arc::from(identity.0.as_str()))
    }

    fn observe(&self, kind: config::Topology, server: &Server, now: Instant) -> Observation {
        let seen = self.seen.get(&server.id());
        Observation {
            name: server.name().to_owned(),
            address: Address::of(server.address()),
            also: (server.addresses.known().iter().map(|known| Address::from(*known)))
                .chain(self.called.get(&server.id()).into_iter().flatten().cloned())
                .collect(),
            role: server.place().role,
            drains: server.is_draining(),
            lag: seen.and_then(|seen| seen.lag.lag(now)),
            visibility: visibility(kind, server, seen),
        }
    }
}

fn visibility(kind: config::Topology, server: &Server, seen: Option<&Seen>) -> Visibility {
    let state = server.state();
    if matches!(state.status, Status::Down | Status::Removed) {
        let reason = format!("is {} ({})", state.status, state.reason);
        return Visibility::Lost { reason };
    }
    let Some(seen) = seen else {
        return Visibility::Unseen;
    };
    // Where the roles are written the monitor is for what is good to know, and may lack the privileges for
    // it: that a server does not tell is nothing against it.
    let failures = match kind {
        config::Topology::Static | config::Topology::Tidb => 0,
        _ => seen.failures,
    };
    match (&seen.facts, &seen.blind) {
        (Some(facts), None) => Visibility::Seen(facts.clone()),
        (_, Some(blind)) if blind.meaning == Meaning::NobodyThere => Visibility::Lost {
            reason: blind.reason.clone(),
        },
        // A server that is full runs, whatever the number of failures: it is not given up for that.
        (Some(facts), Some(blind)) if failures < LOOKS_LOST || blind.meaning == Meaning::Full => {
            Visibility::Stale { facts: facts.clone() }
        }
        (None, Some(_)) if failures < LOOKS_LOST => Visibility::Unseen,
        (_, Some(blind)) => Visibility::Lost {
            reason: blind.reason.clone(),
        },
        (None, None) => Visibility::Unseen,
    }
}

#[cfg(test)]
mod tests;
