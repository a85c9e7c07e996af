//! Members that nobody has configured: found because others name them, and let go when nobody does any more.
//!
//! A server may go by several names (its own, the one its replicas use, one from another network), so what is
//! named is compared in three ways: by identity where it is told, as text, and by the addresses it resolves
//! to. One that turns out to be another under a further name, once it says who it is, is let go again, and
//! that name is not tried again for a while. Neither is a server added, nor does it stay, that is another one
//! than those say who name it (a wrong `report_host`): it may have other data. Nor one that the operator
//! wants left alone (`ignored`).
//!
//! Nothing is added before all servers have been looked at or have failed: until then it is not known who
//! they are. Nobody asks DNS for members (SRV records).

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::ServerAddress;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::cluster_state::ServerReport;
use super::connection::Connection;
use super::ignored::Ignored;
use super::look::{Named, look};
use super::observation::{Address, Identity};
use crate::cluster::Cluster;
use crate::lock::lock;
use crate::resolver::look_up;
use crate::server::{Server, ServerId, now};

/// Time between two passes.
const INTERVAL: Duration = Duration::from_millis(500);

/// A discovered server that nobody has named for this long is let go.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Time for which a name is left alone that cannot be resolved, or is that of a known server.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The same where the server itself had to be asked.
const RETRY_DOUBLE_AFTER: Duration = Duration::from_secs(3600);

/// Names that are left alone at the same time. Beyond that nothing is discovered any more.
const ALIAS_ADDRESSES_MAX: usize = 1024;

/// New names that a pass looks at.
const CANDIDATES_MAX: usize = 16;

/// Servers of a cluster that are there by discovery alone.
const DISCOVERED_MAX: usize = 64;

/// Number of a server that is in no list.
const UNLISTED: ServerId = ServerId(u32::MAX);

/// Time to resolve a name.
const LOOKUP_LIMIT: Duration = Duration::from_secs(1);

/// Adds and removes discovered servers until the future is dropped.
pub(crate) async fn discover(cluster: Arc<Cluster>) {
    let mut discovery = Discovery::default();
    loop {
        sleep(INTERVAL).await;
        let config = cluster.config();
        if config.discovers() {
            discovery.pass(&cluster).await;
        }
    }
}

#[derive(Default)]
struct Discovery {
    /// Names that are left alone, and until when.
    alias_addresses: HashMap<Address, Instant>,
    /// The time when a discovered server was last named, and the servers that named it.
    named: HashMap<ServerId, (Instant, HashSet<ServerId>)>,
    ignored: Ignored,
}

/// Somebody whom a member names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    named: Named,
    by: ServerId,
}

/// What to do with the discovered servers, as far as that can be said without a name server.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Named, and not known under that name.
    candidates: Vec<Candidate>,
    /// Discovered, and the same as another one.
    aliases: Vec<ServerId>,
    /// Discovered, and not who they are said to be.
    strangers: Vec<ServerId>,
    /// Discovered, and still named: by whom.
    named: HashMap<ServerId, HashSet<ServerId>>,
}

impl Discovery {
    async fn pass(&mut self, cluster: &Arc<Cluster>) {
        let (now, config) = (now(), cluster.config());
        self.ignored.renew(&config, now).await;
        let servers = cluster.servers();
        let reports = lock(&cluster.follow.state).reports(config.topology, &servers);
        let plan = plan(&reports);
        self.alias_addresses.retain(|_, until| *until > now);
        let forgotten = self.forgotten(&reports, &plan, now);
        let ignored = self.no_longer_wanted(&servers);
        for (ids, pause, reason) in [
            (
                &plan.aliases,
                RETRY_DOUBLE_AFTER,
                "another server under a further name",
            ),
            (
                &plan.strangers,
                RETRY_AFTER,
                "not the member that others name by its address",
            ),
            (&forgotten, Duration::ZERO, "no member names it any more"),
            (&ignored, Duration::ZERO, "its address is in `discover_ignore`"),
        ] {
            for known in reports.iter().filter(|known| ids.contains(&known.id)) {
                self.named.remove(&known.id);
                self.alias_addresses
                    .extend(known.address.clone().map(|address| (address, now + pause)));
                cluster.remove_discovered(known.id, reason);
            }
        }
        let discovered = reports.iter().filter(|known| known.discovered).count();
        let room = DISCOVERED_MAX.saturating_sub(discovered);
        let left_alone =
            |address: &Address| self.alias_addresses.contains_key(address) || self.ignored.names(address);
        let mut candidates = plan.candidates;
        candidates.retain(|candidate| !left_alone(&candidate.named.address));
        candidates.truncate(
            CANDIDATES_MAX
                .min(room)
                .min(ALIAS_ADDRESSES_MAX.saturating_sub(self.alias_addresses.len())),
        );
        if !candidates.is_empty() {
            self.consider(cluster, candidates, now).await;
        }
    }

    /// Adds those of `candidates` that are not at the address of a known server, nor at one that is to be
    /// left alone.
    async fn consider(&mut self, cluster: &Arc<Cluster>, candidates: Vec<Candidate>, now: Instant) {
        let servers = cluster.servers();
        let known = together(servers.iter().cloned().map(addresses_of)).await;
        let mut known: HashSet<SocketAddr> = known.into_iter().flatten().flatten().collect();
        let addresses = candidates.iter().map(|candidate| candidate.named.address.clone());
        let found = together(addresses.map(resolve)).await;
        let (mut new, mut left) = (Vec::new(), Vec::new());
        for (candidate, found) in candidates.into_iter().zip(found) {
            let found = found.unwrap_or_default();
            if self.ignored.has(&candidate.named.address, &found) {
                continue;
            }
            let is_new = !found.is_empty() && !found.iter().any(|address| known.contains(address));
            known.extend(found);
            (if is_new { &mut new } else { &mut left }).push(candidate);
        }
        let asked = new
            .iter()
            .map(|candidate| is_another(Arc::clone(cluster), candidate.named.clone()));
        let name = |id: ServerId| servers.iter().find(|server| server.id() == id);
        for (is_another, candidate) in together(asked).await.into_iter().zip(new) {
            let address = &candidate.named.address;
            let by = name(candidate.by).map_or("a member", |server| server.name());
            if is_another == Some(false) && cluster.add_discovered(place_of(address), by) {
                continue;
            }
            if is_another == Some(true) {
                tracing::warn!(
                    cluster = cluster.name(),
                    member = %address,
                    "members name a server by this address, and it is another one: a wrong report_host?"
                );
            }
            left.push(candidate);
        }
        for address in left.into_iter().map(|candidate| candidate.named.address) {
            tracing::debug!(
                cluster = cluster.name(),
                member = %address,
                "named, but known by another name, or not who is meant, or not to be found"
            );
            self.alias_addresses.insert(address, now + RETRY_AFTER);
        }
    }

    /// Discovered servers that are to be left alone from now on.
    fn no_longer_wanted(&mut self, servers: &[Arc<Server>]) -> Vec<ServerId> {
        let mut ids = Vec::new();
        for server in servers.iter().filter(|server| server.is_discovered()) {
            if let Some(address) = Address::of(server.address())
                && self.ignored.has(&address, &server.addresses.known())
            {
                ids.push(server.id());
            }
        }
        ids
    }

    /// Discovered servers that nobody has named for a while. Silence means something where one of those can
    /// be asked that have named the server last: replicas do not name each other while their primary is away.
    fn forgotten(&mut self, reports: &[ServerReport], plan: &Plan, now: Instant) -> Vec<ServerId> {
        let discovered = || {
            reports
                .iter()
                .filter(|known| known.discovered)
                .map(|known| known.id)
        };
        self.named.retain(|id, _| discovered().any(|other| other == *id));
        let is_there = |id: &ServerId| reports.iter().any(|known| known.id == *id);
        for id in discovered() {
            let (_, by) = self.named.entry(id).or_insert_with(|| (now, HashSet::new()));
            if let Some(namers) = plan.named.get(&id) {
                by.clone_from(namers);
            }
            by.retain(is_there);
        }
        let mut forgotten = Vec::new();
        let away = self.away(reports, plan);
        let is_seen = |id: &ServerId| reports.iter().any(|known| known.id == *id && known.is_seen);
        let somebody_is_seen = reports.iter().any(|known| known.is_seen);
        for id in discovered() {
            let Some((since, by)) = self.named.get_mut(&id) else {
                continue;
            };
            let is_waited_for = !by.iter().any(is_seen) && by.iter().any(|id| away.contains(id));
            let is_heard = somebody_is_seen && !is_waited_for;
            if plan.named.contains_key(&id) || !is_heard {
                *since = now;
            } else if now.saturating_duration_since(*since) >= FORGET_AFTER {
                forgotten.push(id);
            }
        }
        forgotten
    }

    /// Servers that are away and may come back to name others: those that are not discovered, discovered ones
    /// that are named, and discovered ones that one of these has named last. Members that have left
    /// together do not keep each other.
    fn away(&self, reports: &[ServerReport], plan: &Plan) -> HashSet<ServerId> {
        let mut away: HashSet<ServerId> = HashSet::new();
        loop {
            let was_named_by_one = |id: &ServerId| {
                let named = self.named.get(id);
                named.is_some_and(|(_, by)| by.iter().any(|namer| away.contains(namer)))
            };
            let counts = |known: &&ServerReport| {
                let is_expected = !known.discovered || plan.named.contains_key(&known.id);
                !known.is_seen && !away.contains(&known.id) && (is_expected || was_named_by_one(&known.id))
            };
            let Some(another) = reports.iter().find(counts).map(|known| known.id) else {
                return away;
            };
            away.insert(another);
        }
    }
}

fn plan(reports: &[ServerReport]) -> Plan {
    let mut plan = Plan::default();
    let everybody_was_asked = !reports.iter().any(|known| known.is_unseen);
    for namer in reports.iter().filter(|known| known.is_seen) {
        for named in &namer.named {
            match reports.iter().find(|known| is_same(known, named)) {
                Some(known) if known.discovered && known.id != namer.id => {
                    plan.named.entry(known.id).or_default().insert(namer.id);
                }
                Some(_) => {}
                None if everybody_was_asked
                    && means_the_same_here(namer, &named.address)
                    && !(plan.candidates.iter()).any(|known| known.named.address == named.address) =>
                {
                    plan.candidates.push(Candidate {
                        named: named.clone(),
                        by: namer.id,
                    });
                }
                None => {}
            }
        }
    }
    let is_stranger = |known: &&ServerReport| known.discovered && is_stranger(known, reports);
    plan.strangers = (reports.iter().filter(is_stranger))
        .map(|known| known.id)
        .collect();
    for (at, known) in reports.iter().enumerate() {
        let same = |other: &ServerReport| other.identity.is_some() && other.identity == known.identity;
        if known.discovered && reports[..at].iter().any(same) {
            plan.aliases.push(known.id);
        }
    }
    plan
}

fn is_same(known: &ServerReport, named: &Named) -> bool {
    let same_identity = |identity: &Identity| named.identity.as_ref() == Some(identity);
    known.identity.as_ref().is_some_and(same_identity) || known.address.as_ref() == Some(&named.address)
}

pub(super) fn place_of(address: &Address) -> ServerAddress {
    let Address { host, port } = address.clone();
    ServerAddress::Host { host, port }
}

/// Whether others name somebody by its address, and nobody means it.
fn is_stranger(known: &ServerReport, reports: &[ServerReport]) -> bool {
    let others = reports
        .iter()
        .filter(|other| other.is_seen && other.id != known.id);
    let mut meant = others
        .flat_map(|other| &other.named)
        .filter(|named| named.is_present && known.address.as_ref() == Some(&named.address))
        .filter_map(|named| Some(named.identity.as_ref()? == known.identity.as_ref()?))
        .peekable();
    meant.peek().is_some() && !meant.any(|is_it| is_it)
}

/// Whether the server at the address of `named` says that it is another one. One that cannot be asked may be
/// the right one.
async fn is_another(cluster: Arc<Cluster>, named: Named) -> bool {
    let config = cluster.config();
    let (Some(identity), Some(monitor)) = (&named.identity, &config.monitor) else {
        return false;
    };
    if !named.is_present {
        return false;
    }
    let server = Server::new(UNLISTED, &config::Server::new(place_of(&named.address)), false);
    let ask = async {
        let opened = Connection::open(&cluster, &server, &config, monitor, monitor.timeout).await;
        let mut connection = opened.ok()?;
        let finding = look(&mut connection, config.topology, monitor).await.ok()?;
        connection.close().await;
        finding.identity
    };
    let found = timeout(monitor.timeout, ask).await;
    found.is_ok_and(|found| found.is_some_and(|found| found != *identity))
}

/// A server that is not on this machine means another one by `localhost`.
fn means_the_same_here(namer: &ServerReport, named: &Address) -> bool {
    !is_loopback(&named.host) || namer.address.as_ref().is_none_or(|own| is_loopback(&own.host))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

pub(super) async fn resolve(address: Address) -> Vec<SocketAddr> {
    let lookup = look_up(&address.host, address.port);
    timeout(LOOKUP_LIMIT, lookup)
        .await
        .map_or_else(|_| Vec::new(), Result::unwrap_or_default)
}

async fn addresses_of(server: Arc<Server>) -> Vec<SocketAddr> {
    let addresses = timeout(LOOKUP_LIMIT, server.addresses.get()).await;
    addresses.map_or_else(
        |_| Vec::new(),
        |found| found.map_or_else(|_| Vec::new(), |found| found.to_vec()),
    )
}

/// Does all of it at the same time, since each may wait for somebody who is not there. What it comes to, in
/// the same order; `None` only if a task panics.
pub(super) async fn together<T: Send + 'static>(
    tasks: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<Option<T>> {
    let mut set = JoinSet::new();
    for (place, task) in tasks.enumerate() {
        set.spawn(async move { (place, task.await) });
    }
    let mut results = Vec::new();
    results.resize_with(set.len(), || None);
    while let Some(done) = set.join_next().await {
        if let Ok((place, result)) = done {
            results[place] = Some(result);
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str) -> Address {
        Address {
            host: host.to_owned(),
            port: 3306,
        }
    }

    fn known(id: u32, host: &str, identity: &str) -> ServerReport {
        ServerReport {
            id: ServerId(id),
            address: Some(address(host)),
            discovered: false,
            identity: Some(Identity(identity.to_owned())).filter(|_| !identity.is_empty()),
            named: Vec::new(),
            is_seen: true,
            is_unseen: false,
        }
    }

    fn named(host: &str, identity: &str) -> Named {
        Named {
            address: address(host),
            identity: Some(Identity(identity.to_owned())).filter(|_| !identity.is_empty()),
            is_present: true,
        }
    }

    fn candidates(servers: &[ServerReport]) -> Vec<Address> {
        let plan = plan(servers);
        let addresses = plan.candidates.into_iter().map(|found| found.named.address);
        addresses.collect()
    }

    #[test]
    fn who_is_named_and_not_known_is_a_candidate() {
        let mut servers = vec![known(0, "10.0.0.1", "a"), known(1, "10.0.0.2", "b")];
        servers[0].named = vec![
            named("db2", "b"),
            named("10.0.0.2", ""),
            named("10.0.0.3", "c"),
            named("10.0.0.3", "c"),
        ];
        servers[1].named = vec![named("10.0.0.1", "a"), named("db2", "b")];
        assert_eq!(candidates(&servers), [address("10.0.0.3")]);
        servers[1].is_unseen = true;
        assert_eq!(
            candidates(&servers),
            [],
            "the third may be the one that was not asked yet"
        );
        servers[1].is_unseen = false;
        servers[0].is_seen = false;
        assert_eq!(candidates(&servers), [], "what it said before does not count");
    }

    /// Members that are there and say nothing are waited for together.
    #[tokio::test(start_paused = true)]
    async fn many_that_do_not_answer_cost_no_more_time_than_one() {
        let silent: Vec<_> = (0..8)
            .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let mut config = config::Cluster::new("main", Vec::new());
        config.topology = config::Topology::Replication;
        config.monitor = Some(config::Monitor {
            timeout: Duration::from_millis(400),
            ..config::Monitor::new("watch")
        });
        let cluster = Cluster::new(config).unwrap();
        let named = silent.iter().map(|listener| Candidate {
            named: Named {
                address: Address {
                    host: "127.0.0.1".to_owned(),
                    port: listener.local_addr().unwrap().port(),
                },
                ..named("127.0.0.1", "a")
            },
            by: UNLISTED,
        });
        let begun = tokio::time::Instant::now();
        Discovery::default()
            .consider(&cluster, named.collect(), now())
            .await;
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(1600), "{took:?}");
        assert_eq!(
            cluster.servers().len(),
            8,
            "whoever cannot be asked may be the right one"
        );
    }

    #[test]
    fn localhost_is_somebody_else_elsewhere() {
        let mut servers = vec![known(0, "10.0.0.1", "a")];
        servers[0].named = vec![named("localhost", "b"), named("127.0.0.1", "c")];
        assert_eq!(candidates(&servers), []);
        servers[0].address = Some(address("127.0.0.1"));
        servers[0].named = vec![named("localhost", "b")];
        assert_eq!(candidates(&servers), [address("localhost")]);
    }

    #[test]
    fn a_discovered_server_that_is_another_one_goes() {
        let mut servers = vec![
            known(0, "10.0.0.1", "a"),
            known(1, "db1", "a"),
            known(2, "db3", ""),
        ];
        (servers[1].discovered, servers[2].discovered) = (true, true);
        assert_eq!(plan(&servers).aliases, [ServerId(1)]);
    }

    /// Its `report_host` is the name of a server somewhere else.
    #[test]
    fn a_discovered_server_that_nobody_means_goes() {
        let mut servers = vec![
            known(0, "10.0.0.1", "a"),
            known(1, "10.0.0.2", "b"),
            known(2, "other", "z"),
        ];
        servers[2].discovered = true;
        servers[0].named = vec![named("other", "c")];
        servers[2].named = vec![named("other", "z")];
        assert_eq!(plan(&servers).strangers, [ServerId(2)]);
        servers[1].named = vec![named("other", "z")];
        assert_eq!(plan(&servers).strangers, [], "somebody means it");
        servers[1].named.clear();
        servers[0].named[0].is_present = false;
        assert_eq!(plan(&servers).strangers, [], "it was another one at some time");
        servers[0].named[0] = named("other", "");
        assert_eq!(plan(&servers).strangers, [], "who is meant is not said");
        servers[0].named[0] = named("other", "c");
        servers[2].identity = None;
        assert_eq!(plan(&servers).strangers, [], "nor who it is");
    }

    #[test]
    fn a_discovered_server_stays_as_long_as_another_one_names_it() {
        let mut servers = vec![known(0, "10.0.0.1", "a"), known(1, "10.0.0.2", "b")];
        servers[1].discovered = true;
        servers[0].named = vec![named("db2", "b")];
        servers[1].named = vec![named("10.0.0.2", "b")];
        let mut discovery = Discovery::default();
        let start = now();
        let mut forgotten = |servers: &[ServerReport], second| {
            discovery.forgotten(servers, &plan(servers), start + Duration::from_secs(second))
        };
        assert_eq!(forgotten(&servers, 0), []);
        assert_eq!(forgotten(&servers, 100), []);
        servers[0].named.clear();
        assert_eq!(
            forgotten(&servers, 130),
            [],
            "itself does not count, but it takes a while"
        );
        servers[0].is_seen = false;
        servers[1].is_seen = false;
        assert_eq!(forgotten(&servers, 200), [], "nobody could name it");
        servers[0].is_seen = true;
        assert_eq!(forgotten(&servers, 259), []);
        assert_eq!(forgotten(&servers, 260), [ServerId(1)]);
    }

    /// Replicas name their primary and not each other, and one that is promoted is named by nobody.
    #[test]
    fn a_discovered_server_stays_while_whoever_named_it_is_away() {
        let mut servers = vec![
            known(0, "10.0.0.1", "a"),
            known(1, "10.0.0.2", "b"),
            known(2, "10.0.0.3", "c"),
        ];
        (servers[1].discovered, servers[2].discovered) = (true, true);
        servers[0].named = vec![named("10.0.0.2", "b"), named("10.0.0.3", "c")];
        let mut discovery = Discovery::default();
        let start = now();
        let mut forgotten = |servers: &[ServerReport], second| {
            discovery.forgotten(servers, &plan(servers), start + Duration::from_secs(second))
        };
        assert_eq!(forgotten(&servers, 0), []);
        servers[0].is_seen = false;
        assert_eq!(forgotten(&servers, 100), []);
        assert_eq!(forgotten(&servers, 200), []);
        servers.remove(0);
        assert_eq!(forgotten(&servers, 210), [], "it was taken out of the list");
        assert_eq!(forgotten(&servers, 270), [ServerId(1), ServerId(2)]);
    }

    /// Nodes that leave together name each other for a moment longer than the one that stays names them.
    #[test]
    fn discovered_servers_that_are_gone_do_not_keep_each_other() {
        let mut servers = vec![
            known(0, "10.0.0.1", "a"),
            known(1, "10.0.0.2", "b"),
            known(2, "10.0.0.3", "c"),
        ];
        (servers[1].discovered, servers[2].discovered) = (true, true);
        servers[1].named = vec![named("10.0.0.3", "c")];
        servers[2].named = vec![named("10.0.0.2", "b")];
        let mut discovery = Discovery::default();
        let start = now();
        let mut forgotten = |servers: &[ServerReport], second| {
            discovery.forgotten(servers, &plan(servers), start + Duration::from_secs(second))
        };
        assert_eq!(forgotten(&servers, 0), []);
        (servers[1].is_seen, servers[2].is_seen) = (false, false);
        assert_eq!(forgotten(&servers, 59), []);
        assert_eq!(forgotten(&servers, 60), [ServerId(1), ServerId(2)]);
    }

    /// A primary that was discovered, and has named others, is named by those who follow it.
    #[test]
    fn who_is_named_by_one_that_is_away_is_waited_for_as_well() {
        let mut servers = vec![
            known(0, "10.0.0.1", "a"),
            known(1, "10.0.0.2", "b"),
            known(2, "10.0.0.3", "c"),
        ];
        (servers[1].discovered, servers[2].discovered) = (true, true);
        servers[0].named = vec![named("10.0.0.2", "b")];
        servers[1].named = vec![named("10.0.0.3", "c")];
        let mut discovery = Discovery::default();
        let start = now();
        let mut forgotten = |servers: &[ServerReport], second| {
            discovery.forgotten(servers, &plan(servers), start + Duration::from_secs(second))
        };
        assert_eq!(forgotten(&servers, 0), []);
        servers[1].is_seen = false;
        assert_eq!(forgotten(&servers, 100), [], "its replica names it");
        servers[0].is_seen = false;
        assert_eq!(forgotten(&servers, 200), [], "whoever named it is away");
    }
}
