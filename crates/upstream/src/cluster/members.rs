//! Servers that come to a cluster and go: by the configuration, by SRV records, by PD, by Kubernetes, and
//! because members name them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use config::ServerAddress;

use super::{Cluster, ServerChange, limit_of_discovered};
use crate::lock::lock;
use crate::server::{Availability, DrainedBy, Server, ServerId, now};
use crate::topology::Signal;

/// Of a server that drains because an operator has said so.
pub(super) struct Drain {
    ends: Option<Instant>,
}

/// Longest name of a zone, in bytes.
const ZONE_MAX: usize = 255;

/// Whether this can be the zone of a server, whoever says so.
pub(crate) fn is_zone(name: &str) -> bool {
    !name.is_empty() && name.len() <= ZONE_MAX && !name.chars().any(char::is_control)
}

impl Cluster {
    /// The server of that name at that address; a new one where there is none yet, and then the log says who
    /// named it.
    pub(super) fn keep_or_add(
        &self,
        old: &[Arc<Server>],
        config: &config::Server,
        named_by: &str,
    ) -> Arc<Server> {
        match old
            .iter()
            .find(|old| old.name() == config.name && *old.address() == config.address)
        {
            Some(known) => {
                known.reconfigure(config);
                Arc::clone(known)
            }
            None => {
                let id = ServerId(self.next_id.fetch_add(1, Ordering::Relaxed));
                tracing::info!(
                    cluster = self.name,
                    server = config.name,
                    named_by,
                    "server added"
                );
                Server::new(id, config, false)
            }
        }
    }

    /// Adds a server that another member names; false where its name is taken, or nobody wants it any more.
    pub(crate) fn add_discovered(&self, address: ServerAddress, named_by: &str) -> bool {
        let changing = lock(&self.changing);
        let old = self.servers.load_full();
        let of_all = self.config.load();
        let is_wanted = of_all.discovers() && !of_all.ignores(&address);
        let mut config = config::Server::new(address);
        if !is_wanted || old.iter().any(|server| server.name() == config.name) {
            return false;
        }
        config.max_connections = limit_of_discovered(&of_all);
        let server = self.keep_or_add(&old, &config, named_by);
        server.set_discovered(true);
        let servers = old.iter().cloned().chain([server]).collect();
        self.replace_servers(servers, |_| "");
        drop(changing);
        self.renew_topology();
        self.servers_changed.notify_one();
        true
    }

    /// Takes over which servers DNS, PD or Kubernetes (`named_by`) names. Those of the configuration stay
    /// what they are, whoever names them.
    pub(crate) fn take_named(self: &Arc<Self>, named: &[config::Server], named_by: &str) {
        let changing = lock(&self.changing);
        let old = self.servers.load_full();
        let is_own = |server: &&Arc<Server>| !server.is_looked_up() && !server.is_discovered();
        let own: Vec<_> = old.iter().filter(is_own).cloned().collect();
        let is_new = |config: &&config::Server| {
            own.iter()
                .all(|own| own.name() != config.name && *own.address() != config.address)
        };
        let named: Vec<_> = (named.iter().filter(is_new))
            .map(|config| self.keep_or_add(&old, config, named_by))
            .collect();
        for server in &named {
            server.set_discovered(false);
            server.set_looked_up(true);
        }
        let other = old.iter().filter(|server| server.is_discovered()).cloned();
        let servers: Vec<_> = own.into_iter().chain(named).chain(other).collect();
        let same = servers
            .iter()
            .map(|server| server.id())
            .eq(old.iter().map(|server| server.id()));
        if same {
            drop(changing);
            // Their zones may have changed.
            self.renew_topology();
            return;
        }
        let reason = format!("no longer named by {named_by}");
        self.replace_servers(servers, |_| reason.as_str());
        self.combine_traits();
        drop(changing);
        self.renew_topology();
        self.servers_changed.notify_one();
        self.serve_queue();
    }

    /// Lets a server go that was discovered.
    pub(crate) fn remove_discovered(self: &Arc<Self>, id: ServerId, reason: &str) {
        let changing = lock(&self.changing);
        let old = self.servers.load_full();
        let stays = |server: &Arc<Server>| server.id() != id || !server.is_discovered();
        self.replace_servers(
            old.iter().filter(|server| stays(server)).cloned().collect(),
            |_| reason,
        );
        self.combine_traits();
        drop(changing);
        self.renew_topology();
        self.servers_changed.notify_one();
        self.serve_queue();
    }

    /// The cluster is no longer in the configuration: nobody comes to its servers any more.
    pub fn retire(&self) {
        let _changing = lock(&self.changing);
        let gone = "its cluster is no longer in the configuration";
        self.servers().iter().for_each(|server| server.remove(gone));
    }

    /// Of a server that a reload removes.
    pub(super) fn why_no_longer(&self, server: &Server) -> &'static str {
        let config = self.config.load();
        if config.discovers() && !config.ignores(server.address()) {
            "no longer in the configuration; discovery takes it up again as long as other members name it, unless its address is in `ignore`"
        } else {
            "no longer in the configuration"
        }
    }

    /// Those that are not in the new list are removed. To be called with `changing` held.
    pub(super) fn replace_servers<'r>(&self, servers: Vec<Arc<Server>>, reason: impl Fn(&Server) -> &'r str) {
        let deadline = now() + self.config.load().drain_timeout;
        let old = self.servers.swap(Arc::new(servers.clone()));
        let is_gone = |old: &Arc<Server>| !servers.iter().any(|server| server.id() == old.id());
        for server in old.iter().filter(|old| is_gone(old)) {
            let reason = reason(server);
            server.remove(reason);
            let (cluster, name, sessions) = (&self.name, server.name(), server.sessions());
            tracing::info!(cluster, server = name, sessions, reason, "server removed");
            self.announce(server, ServerChange::Removed { deadline });
        }
        self.leave_somebody(&servers);
        self.judge_signals(&servers);
        self.settle_drains(&servers);
    }

    /// Has those servers drain that are to, and no others. Returns whether one takes sessions again.
    pub(super) fn settle_drains(&self, servers: &[Arc<Server>]) -> bool {
        let was_draining = |server: &&Arc<Server>| server.is_draining();
        let comes_back =
            (servers.iter().filter(was_draining)).any(|server| self.drained_by(server).is_none());
        // Who takes sessions again comes first: at no moment all of them drain.
        let (draining, others): (Vec<_>, Vec<_>) = servers
            .iter()
            .partition(|server| self.drained_by(server).is_some());
        others
            .into_iter()
            .chain(draining)
            .for_each(|server| self.drain_or_not(server));
        comes_back
    }

    /// Has a server drain until [`undrain`](Self::undrain), whatever the option `drain` says. At the moment
    /// `ends` its sessions should end that are still there; `None` for never.
    ///
    /// # Errors
    /// In words for a person: there is no such server, or nobody would be left to take sessions.
    pub fn drain(self: &Arc<Self>, name: &str, ends: Option<Instant>) -> Result<(), String> {
        let changing = lock(&self.changing);
        let server = self.named(name)?;
        let servers = self.servers();
        // Signals are judged anew without this server.
        let is_unfit = |other: &Server| matches!(self.signal_of(other), Some(Signal::Unfit(_)));
        let stays = |other: &&Arc<Server>| {
            other.id() != server.id()
                && other.own_weight() > 0
                && !self.is_drained_by_hand(other.name())
                && !is_unfit(other)
        };
        let is_left = |other: &Arc<Server>| other.availability() == Availability::Yes;
        if !servers.iter().filter(stays).any(is_left) {
            let cluster = &self.name;
            return Err(format!(
                "no other server of cluster {cluster} is up and takes sessions: bring one back first"
            ));
        }
        let config = self.config.load();
        let of_group = |group: &config::Group| {
            let mut others = group.servers.iter().filter(|other| *other != name);
            group.servers.iter().any(|of_group| of_group == name)
                && others.all(|other| self.is_drained_by_hand(other))
        };
        if let Some((group, _)) = config.groups.iter().find(|(_, group)| of_group(group)) {
            return Err(format!(
                "all servers of group {group} would drain: statements for it would be refused"
            ));
        }
        lock(&self.drained).insert(name.to_owned(), Drain { ends });
        self.judge_signals(&servers);
        let comes_back = self.settle_drains(&servers);
        drop(changing);
        if comes_back {
            self.serve_queue();
        }
        Ok(())
    }

    /// Takes back what operators have said where nobody would take sessions, of the cluster or of a group:
    /// the configuration has other servers than at that time, or drains others itself.
    fn leave_somebody(&self, servers: &[Arc<Server>]) {
        let config = self.config.load();
        let takes = |server: &Arc<Server>| !self.is_drained_by_hand(server.name()) && server.own_weight() > 0;
        let group_drains =
            |group: &config::Group| group.servers.iter().all(|name| self.is_drained_by_hand(name));
        let nobody_is_left = !servers.iter().any(takes) || config.groups.values().any(group_drains);
        let drained = lock(&self.drained).keys().cloned().collect::<Vec<_>>();
        if nobody_is_left && !servers.is_empty() && !drained.is_empty() {
            lock(&self.drained).clear();
            tracing::warn!(
                cluster = self.name,
                servers = drained.join(", "),
                "what `ctl drain` has said is forgotten: with it no server would be left to take sessions"
            );
        }
    }

    /// Has a server take sessions again, also one that is away at the moment.
    ///
    /// # Errors
    /// In words for a person: there is no such server, the option `drain` names it, or nobody but the server
    /// itself says that it is to be left.
    pub fn undrain(self: &Arc<Self>, name: &str) -> Result<(), String> {
        let was_drained = self.forget_drain(name);
        let server = match self.named(name) {
            Ok(server) => server,
            Err(_) if was_drained => return Ok(()),
            Err(unknown) => return Err(unknown),
        };
        match server.drained_by().as_deref() {
            // As after a restart: the operator's word is taken back, and the server's own reason passes.
            Some(DrainedBy::Server(_)) if was_drained => Ok(()),
            Some(DrainedBy::Server(signal)) => Err(format!(
                "server {name} says itself that it is to be left ({}): it takes sessions again once that is over",
                signal.words()
            )),
            Some(_) => Err("the option `drain` of the configuration names it: take it out there".to_owned()),
            None => Ok(()),
        }
    }

    /// Takes back what was said with [`drain`](Self::drain), whatever else the server drains for. Says
    /// whether that was said.
    pub fn forget_drain(self: &Arc<Self>, name: &str) -> bool {
        let changing = lock(&self.changing);
        let was_drained = lock(&self.drained).remove(name).is_some();
        let servers = self.servers();
        self.judge_signals(&servers);
        self.settle_drains(&servers);
        drop(changing);
        self.serve_queue();
        was_drained
    }

    /// When the sessions should end that are still on a server which drains.
    #[must_use]
    pub fn drain_ends(&self, name: &str) -> Option<Instant> {
        lock(&self.drained).get(name)?.ends
    }

    pub(crate) fn named(&self, name: &str) -> Result<Arc<Server>, String> {
        let servers = self.servers();
        let found = servers.iter().find(|server| server.name() == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<_> = servers.iter().map(|server| server.name()).collect();
            format!(
                "cluster {} has no server {name:?}; it has {}",
                self.name,
                names.join(", ")
            )
        })
    }

    /// Whether the option `drain` or an operator says so.
    pub(super) fn is_drained_by_hand(&self, name: &str) -> bool {
        self.config.load().drains(name) || lock(&self.drained).contains_key(name)
    }

    /// What has the server drain, if it is to.
    fn drained_by(&self, server: &Server) -> Option<DrainedBy> {
        let name = server.name();
        if self.config.load().drains(name) {
            return Some(DrainedBy::Option);
        }
        if lock(&self.drained).contains_key(name) {
            return Some(DrainedBy::Operator);
        }
        self.signal_of(server).map(DrainedBy::Server)
    }

    /// Has a server drain that is to, and no other.
    pub(super) fn drain_or_not(&self, server: &Server) {
        let drained_by = self.drained_by(server);
        let drains = drained_by.is_some();
        let by = drained_by.as_ref().map(ToString::to_string).unwrap_or_default();
        let is_another = server.drained_by().as_deref() != drained_by.as_ref();
        if !server.set_draining(drained_by) {
            if is_another {
                let (cluster, name) = (&self.name, server.name());
                tracing::info!(
                    cluster,
                    server = name,
                    drained_by = by,
                    "server drains for another reason"
                );
            }
            return;
        }
        if drains {
            self.announce(server, ServerChange::Draining);
        }
        let (cluster, name, sessions) = (&self.name, server.name(), server.sessions());
        // Where another server can take the writes, it does at once.
        self.look_again();
        let topology = self.topology();
        let is_writer = topology.writers().any(|writer| writer.server.id() == server.id());
        match (drains, is_writer) {
            (false, _) => tracing::info!(
                cluster,
                server = name,
                "server takes sessions again: it drains no longer"
            ),
            (true, false) => tracing::info!(
                cluster,
                server = name,
                sessions,
                drained_by = by,
                "server drains: it gets no new sessions and no reads"
            ),
            (true, true) => tracing::warn!(
                cluster,
                server = name,
                sessions,
                drained_by = by,
                "server drains and takes the writes: listeners of mode `split` leave it once another one does"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, max_connections: u32) -> config::Server {
        let address = ServerAddress::Host {
            host: host.to_owned(),
            port: 3306,
        };
        config::Server {
            max_connections,
            ..config::Server::new(address)
        }
    }

    fn with_limit(max_connections: u32) -> config::Cluster {
        let mut config = config::Cluster::new("main", vec![at("db1", max_connections)]);
        config.topology = config::Topology::Replication;
        config.monitor = Some(config::Monitor::new("watch"));
        config
    }

    #[tokio::test]
    async fn a_new_limit_counts_at_once_for_servers_that_others_have_named() {
        let cluster = Cluster::new(with_limit(100)).unwrap();
        assert!(cluster.add_discovered(at("db2", 0).address, "db1"));
        let limits = || -> Vec<u32> {
            let servers = cluster.servers();
            servers.iter().map(|server| server.max_connections()).collect()
        };
        assert_eq!(limits(), [100, 100]);
        cluster.reload(with_limit(50)).unwrap();
        assert_eq!(limits(), [50, 50]);
        let mut by_dns = config::Cluster::new("main", Vec::new());
        let srv = |max_connections| config::Srv {
            max_connections,
            ..config::Srv::new("_mysql._tcp.example.com")
        };
        by_dns.srv = Some(srv(100));
        let cluster = Cluster::new(by_dns.clone()).unwrap();
        cluster.take_named(&[at("db1", 100)], "DNS");
        by_dns.srv = Some(srv(30));
        cluster.reload(by_dns).unwrap();
        assert_eq!(cluster.servers()[0].max_connections(), 30);
    }

    #[tokio::test]
    async fn a_member_that_others_name_has_the_limit_of_those_that_dns_names() {
        let mut config = config::Cluster {
            servers: Vec::new(),
            ..with_limit(0)
        };
        let srv = |max_connections| config::Srv {
            max_connections,
            ..config::Srv::new("_mysql._tcp.example.com")
        };
        config.srv = Some(srv(100));
        let cluster = Cluster::new(config.clone()).unwrap();
        assert!(cluster.add_discovered(at("db2", 0).address, "db1"));
        assert_eq!(cluster.servers()[0].max_connections(), 100);
        config.srv = Some(srv(30));
        cluster.reload(config).unwrap();
        assert_eq!(cluster.servers()[0].max_connections(), 30);
    }
}
