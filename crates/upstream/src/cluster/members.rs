//! Servers that come to a cluster and go: by the configuration, by SRV records, and because members name
//! them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use config::ServerAddress;

use super::{Cluster, ServerChange};
use crate::server::{Server, ServerId, now};

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
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.servers.load_full();
        let of_all = self.config.load();
        let is_wanted = of_all.discovers() && !of_all.ignores(&address);
        let mut config = config::Server::new(address);
        if !is_wanted || old.iter().any(|server| server.name() == config.name) {
            return false;
        }
        // It is like the others, as far as anybody has said.
        config.max_connections = of_all.servers.first().map_or(0, |first| first.max_connections);
        let server = self.keep_or_add(&old, &config, named_by);
        server.set_discovered(true);
        let servers = old.iter().cloned().chain([server]).collect();
        self.replace_servers(servers, |_| "");
        drop(changing);
        self.renew_topology();
        self.servers_changed.notify_one();
        true
    }

    /// Takes over which servers DNS names. Those of the configuration stay what they are, whoever names them.
    pub(crate) fn take_named(self: &Arc<Self>, named: &[config::Server]) {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.servers.load_full();
        let is_own = |server: &&Arc<Server>| !server.is_by_dns() && !server.is_discovered();
        let own: Vec<_> = old.iter().filter(is_own).cloned().collect();
        let is_new = |config: &&config::Server| {
            own.iter()
                .all(|own| own.name() != config.name && *own.address() != config.address)
        };
        let named: Vec<_> = (named.iter().filter(is_new))
            .map(|config| self.keep_or_add(&old, config, "SRV records"))
            .collect();
        for server in &named {
            server.set_discovered(false);
            server.set_by_dns(true);
        }
        let other = old.iter().filter(|server| server.is_discovered()).cloned();
        let servers: Vec<_> = own.into_iter().chain(named).chain(other).collect();
        let same = servers
            .iter()
            .map(|server| server.id())
            .eq(old.iter().map(|server| server.id()));
        if same {
            return;
        }
        self.replace_servers(servers, |_| "SRV records do not name it any more");
        self.combine_traits();
        drop(changing);
        self.renew_topology();
        self.servers_changed.notify_one();
        self.serve_queue();
    }

    /// Lets a server go that was discovered.
    pub(crate) fn remove_discovered(self: &Arc<Self>, id: ServerId, reason: &str) {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
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
        // Who takes sessions again comes first: at no moment all of them drain.
        let config = self.config.load();
        let (draining, others): (Vec<_>, Vec<_>) =
            servers.iter().partition(|server| config.drains(server.name()));
        others
            .into_iter()
            .chain(draining)
            .for_each(|server| self.drain_or_not(server));
    }

    /// Has a server drain that the option `drain` names, and no other.
    pub(super) fn drain_or_not(&self, server: &Server) {
        let drains = self.config.load().drains(server.name());
        if !server.set_draining(drains) {
            return;
        }
        if drains {
            self.announce(server, ServerChange::Draining);
        }
        let (cluster, name, sessions) = (&self.name, server.name(), server.sessions());
        let topology = self.topology();
        let is_writer = topology.writers().any(|writer| writer.server.id() == server.id());
        match (drains, is_writer) {
            (false, _) => tracing::info!(
                cluster,
                server = name,
                "server takes sessions again: no longer in `drain`"
            ),
            (true, false) => tracing::info!(
                cluster,
                server = name,
                sessions,
                "server drains: it gets no new sessions and no reads"
            ),
            (true, true) => tracing::warn!(
                cluster,
                server = name,
                sessions,
                "server drains and takes the writes: listeners of mode `split` leave it once another one does"
            ),
        }
    }
}
