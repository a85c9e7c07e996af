//! The picture of a cluster that all workers see, and how it is renewed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::behind::{News, Said};
use super::cluster_state::ClusterState;
use super::connection::Blind;
use super::look::Finding;
use super::signal::Standing;
use super::{Role, Topology};
use crate::cluster::Cluster;
use crate::lock::lock;
use crate::server::{Server, ServerId, now};

/// Replicas that a line in the log names.
const NAMED_MAX: usize = 5;

/// What a cluster keeps to be followed.
pub(crate) struct Follow {
    topology: ArcSwap<Topology>,
    /// Grows once there is another, be it only in lags, for those who keep the last one.
    number: AtomicU64,
    changed: Notify,
    /// Something was learned that may change the picture.
    pub(crate) news: Notify,
    pub(super) state: Mutex<ClusterState>,
    /// What was said of replicas that are too far behind.
    said: Mutex<Said>,
    /// Times that another server was taken for the primary.
    pub(crate) primary_changes: AtomicU64,
}

impl Follow {
    /// What can be said before anybody was asked.
    pub(crate) fn new(config: &config::Cluster, servers: &[Arc<Server>]) -> Self {
        let mut state = ClusterState::default();
        let topology = state.topology(config, servers, now());
        let primary_changes = AtomicU64::new(u64::from(topology.primary.is_some()));
        Self {
            topology: ArcSwap::from_pointee(topology),
            number: AtomicU64::new(0),
            changed: Notify::new(),
            news: Notify::new(),
            state: Mutex::new(state),
            said: Mutex::default(),
            primary_changes,
        }
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.topology.load_full()
    }

    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub(super) async fn changed_from(&self, generation: u64) -> Arc<Topology> {
        loop {
            // Registered before the look, so that no change falls between the two.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let topology = self.topology();
            if topology.generation != generation {
                return topology;
            }
            changed.await;
        }
    }

    /// A look that began at `begun` has come to its end.
    pub(super) fn note(&self, server: &Server, begun: Instant, result: Result<Finding, Blind>) {
        lock(&self.state).note(server.id(), begun, result);
        self.news.notify_one();
    }

    /// Forgets what the looks at a server have shown: its monitor rests.
    pub(super) fn forget(&self, server: &Server) {
        lock(&self.state).forget(server.id());
        self.news.notify_one();
    }

    /// What each of these servers says of whether it is to be left.
    pub(crate) fn standings(&self, config: &config::Cluster, servers: &[Arc<Server>]) -> Vec<Standing> {
        lock(&self.state).standings(config, servers, now())
    }

    /// It is worth looking more often than usual.
    pub(super) fn is_searching(&self) -> bool {
        lock(&self.state).is_searching(now())
    }
}

impl Cluster {
    /// Decides anew who is what, and publishes it.
    pub(crate) fn renew_topology(&self) {
        let follow = &self.follow;
        let mut state = lock(&follow.state);
        // Under the lock, so that no older list is published after a newer one.
        let (config, servers) = (self.config(), self.servers());
        state.retain(&servers);
        let (had_conflict, damped_before) = (state.has_conflict(), state.damped());
        let mut new = state.topology(&config, &servers, now());
        let has_conflict = state.has_conflict();
        let is_damped = state.damped() != damped_before;
        let rogue_writers = state.take_rogue_writers();
        let old = follow.topology();
        let same = new.same_roles(&old);
        new.generation = old.generation + u64::from(!same);
        let new = Arc::new(new);
        follow.topology.store(Arc::clone(&new));
        follow.number.fetch_add(1, Ordering::Release);
        drop(state);
        if is_damped {
            let cluster = self.name();
            tracing::warn!(
                cluster,
                "the primary changes too often: the next one has to last before it is believed (monitor.damping)"
            );
        }
        if !same {
            self.tell(&old, &new);
            follow.changed.notify_waiters();
        }
        self.tell_of_lag(&new);
        for member in rogue_writers.into_iter().filter_map(|id| new.member(id)) {
            let (cluster, server, reason) = (self.name(), member.server.name(), &member.reason);
            tracing::warn!(
                cluster,
                server,
                reason,
                "server takes writes beside the primary: make it read-only, or who goes past the gateway writes there"
            );
        }
        // What is known of the others may be older than what has just been learned.
        if primary(&old) != primary(&new) || (has_conflict && !had_conflict) {
            self.look_again();
        }
    }

    /// Of several servers that could be the primary this one is to be it, as if it had been so far.
    pub(crate) fn prefer_primary(&self, server: ServerId) {
        lock(&self.follow.state).prefer(server);
        self.renew_topology();
    }

    /// Traffic has met something that does not fit the topology, such as a primary that takes no writes: all
    /// servers are looked at at once. Costs little, however often it is called.
    pub fn look_again(&self) {
        self.servers()
            .iter()
            .for_each(|server| server.look_now.notify_one());
    }

    /// Times that a primary was not believed at once, since there had been several changes within a minute.
    pub(crate) fn primaries_damped(&self) -> u64 {
        lock(&self.follow.state).damped()
    }

    /// Says when all replicas are further behind than reads may see, and when that is over.
    fn tell_of_lag(&self, new: &Topology) {
        if !self.config().uses_roles {
            return;
        }
        let mut said = lock(&self.follow.said);
        let cluster = self.name();
        match said.note(new.are_replicas_too_far_behind(), now()) {
            Some(News::AllBehind) => {
                let replicas = new.members.iter().filter(|member| member.is_too_far_behind);
                let named: Vec<String> = replicas
                    .take(NAMED_MAX)
                    .map(|member| format!("{} {}", member.server.name(), member.reason))
                    .collect();
                tracing::warn!(
                    cluster,
                    replicas = named.join("; "),
                    "all replicas are further behind than max_lag: reads go to the primary"
                );
            }
            Some(News::Over) => {
                tracing::info!(
                    cluster,
                    "a replica takes reads again, or there is none: not all are too far behind"
                );
            }
            None => {}
        }
    }

    /// Counts what has changed, and logs it where it matters to anybody.
    fn tell(&self, old: &Topology, new: &Topology) {
        if primary(old) != primary(new) && new.primary.is_some() {
            self.follow.primary_changes.fetch_add(1, Ordering::Relaxed);
        }
        if !self.config().uses_roles {
            return;
        }
        let cluster = self.name();
        for member in &new.members {
            let before = old.member(member.server.id()).map(|before| before.role);
            if before != Some(member.role) && member.role != Role::Primary {
                let (server, role, reason) = (member.server.name(), member.role.label(), &member.reason);
                tracing::info!(cluster, server, role, reason, "server's role");
            }
        }
        if primary(old) != primary(new) {
            match new.primary() {
                Some(primary) => {
                    let (server, reason) = (primary.server.name(), &primary.reason);
                    tracing::info!(cluster, server, reason, "server is the primary");
                }
                None => {
                    let reason = old.primary().and_then(|old| new.member(old.server.id()));
                    let reason = reason.map_or("it is no longer among the servers", |lost| &lost.reason);
                    tracing::warn!(
                        cluster,
                        reason,
                        "the primary is lost: writes of mode split wait for one"
                    );
                }
            }
        }
        if new.refuse_writes != old.refuse_writes {
            match &new.refuse_writes {
                Some(reason) => tracing::error!(cluster, reason, "several primaries: writes are refused"),
                None => tracing::info!(cluster, "writes are no longer refused"),
            }
        }
    }
}

fn primary(topology: &Topology) -> Option<crate::server::ServerId> {
    topology.primary().map(|primary| primary.server.id())
}
