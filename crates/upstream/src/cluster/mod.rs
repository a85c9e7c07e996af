//! A cluster: its servers, and everything about them that all workers share.

mod labels;
mod members;
mod pause;
mod rebalance;
mod release;
mod signals;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::{RebalancePolicy, TlsMode};
use mysql_wire::Greeting;
use routing::{Candidate, Choice, Draw, choose_server};
use tokio::sync::{Notify, broadcast};

pub(crate) use self::members::is_zone;
pub use self::pause::PausedStatement;
pub use self::release::Released;

use self::labels::LabelTurn;
use self::members::Drain;
use self::pause::Pause;
use self::rebalance::Rebalance;
pub use self::rebalance::{Balance, Left, ServerBalance};
use self::release::Release;
use self::signals::Signals;
use crate::accounts::Accounts;
use crate::error::{ServerReason, UpstreamError};
use crate::health::Rules;
use crate::lock::lock;
use crate::permit::Permit;
use crate::pool::Pools;
use crate::queue::Queue;
use crate::read_index::{PrimaryPosition, Probes};
use crate::server::{Availability, DrainedBy, Server, ServerId, Status};
use crate::server_profile::{self, ServerProfile};
use crate::topology::Follow;

/// Events that a subscriber may fall behind before it misses some.
const EVENTS_KEPT: usize = 1024;

/// Time after which the primary is asked once more, while it does not answer the last question for its
/// position. In a group an answer waits for what is queued.
const POSITION_OVERDUE: Duration = Duration::from_millis(250);

/// The servers behind a name in the configuration.
pub struct Cluster {
    name: String,
    config: ArcSwap<config::Cluster>,
    /// Grows once there is another configuration, for those who keep the last one.
    config_number: AtomicU64,
    servers: ArcSwap<Vec<Arc<Server>>>,
    tls: ArcSwapOption<net::TlsConnector>,
    profile: ArcSwapOption<ServerProfile>,
    /// Somebody asked for the profile before any was known.
    profile_wanted: AtomicBool,
    /// Sessions share connections to its servers.
    pub(crate) shared: AtomicBool,
    /// Traits or the state of a server may have changed.
    pub(crate) news: Notify,
    queue: Queue<Grant>,
    pub(crate) pause: Pause,
    pub(crate) release: Release,
    events: broadcast::Sender<ServerEvent>,
    turns: AtomicU64,
    seeds: RandomState,
    next_id: AtomicU32,
    /// Held while servers or the profile are replaced, by whoever does that.
    changing: Mutex<()>,
    /// Servers that drain because an operator has said so, whatever the option `drain` says.
    drained: Mutex<BTreeMap<String, Drain>>,
    signals: Mutex<Signals>,
    /// The list of servers has changed.
    pub(crate) servers_changed: Notify,
    pub(crate) pools: Pools,
    pub(crate) follow: Follow,
    pub(crate) accounts: Accounts,
    rebalance: Rebalance,
    label_turn: LabelTurn,
    /// For strong reads.
    primary_positions: Probes<PrimaryPosition>,
    /// There is another `srv` option, or there may be.
    pub(crate) srv_changed: Notify,
    /// The same of `pd`.
    pub(crate) pd_changed: Notify,
    /// The same of `endpoint_slices`.
    pub(crate) slices_changed: Notify,
    /// Kubernetes has said which servers there are, and is watched on.
    pub(crate) slices_answer: AtomicBool,
    /// PD has said which servers there are, and is asked on.
    pub(crate) pd_answers: AtomicBool,
    /// How TLS to PD and to status ports is begun.
    pd_tls: ArcSwapOption<net::TlsConnector>,
}

/// What a session in the queue gets in the end.
pub(crate) type Grant = Result<Permit, NoPermit>;

/// No permit for a session, and it is of no use to wait: no server is available.
#[derive(Debug)]
pub(crate) struct NoPermit;

/// Something happened to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEvent {
    pub server: ServerId,
    pub change: ServerChange,
}

/// What happened to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerChange {
    /// It takes sessions again, or for the first time.
    Up,
    /// It drains: its sessions should go to other servers, as far as they can.
    Draining,
    /// Its checks failed `fall` times in a row. What becomes of its sessions is the option `on_down`.
    Down {
        /// For logs and for clients: `connection refused by 10.0.0.1:3306`.
        reason: Arc<str>,
    },
    /// It has let the monitor wait in vain: it may stand still. What can be asked of another server goes
    /// there.
    Silent,
    /// It is no longer in the configuration, or no longer a member of the cluster: its sessions should end
    /// between transactions, and at the deadline anyhow.
    Removed {
        /// `drain_timeout` from the moment of removal.
        deadline: Instant,
    },
}

impl Cluster {
    /// A cluster whose servers are all still unknown. Checks begin with [`run_checks`](Self::run_checks).
    ///
    /// # Errors
    /// If its TLS files cannot be used.
    pub fn new(config: config::Cluster) -> Result<Arc<Self>, UpstreamError> {
        let (tls, pd_tls) = (connector(&config.name, &config.tls)?, pd_connector(&config)?);
        let servers = (0..)
            .zip(&config.servers)
            .map(|(id, server)| Server::new(ServerId(id), server, true));
        let servers: Vec<_> = servers.collect();
        let follow = Follow::new(&config, &servers);
        let cluster = Arc::new(Self {
            name: config.name.clone(),
            next_id: AtomicU32::new(u32::try_from(servers.len()).unwrap_or(u32::MAX)),
            config: ArcSwap::from_pointee(config),
            config_number: AtomicU64::new(0),
            servers: ArcSwap::from_pointee(servers),
            tls: ArcSwapOption::new(tls),
            profile: ArcSwapOption::empty(),
            profile_wanted: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            news: Notify::new(),
            queue: Queue::new(),
            pause: Pause::default(),
            release: Release::default(),
            events: broadcast::Sender::new(EVENTS_KEPT),
            turns: AtomicU64::new(0),
            seeds: RandomState::new(),
            changing: Mutex::new(()),
            drained: Mutex::default(),
            signals: Mutex::default(),
            servers_changed: Notify::new(),
            pools: Pools::default(),
            follow,
            accounts: Accounts::default(),
            rebalance: Rebalance::default(),
            label_turn: LabelTurn::default(),
            primary_positions: Probes::new(POSITION_OVERDUE),
            srv_changed: Notify::new(),
            pd_changed: Notify::new(),
            slices_changed: Notify::new(),
            slices_answer: AtomicBool::new(false),
            pd_answers: AtomicBool::new(false),
            pd_tls: ArcSwapOption::new(pd_tls),
        });
        cluster
            .servers()
            .iter()
            .for_each(|server| cluster.drain_or_not(server));
        Ok(cluster)
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the primary was when it was asked last, for strong reads.
    #[must_use]
    pub fn primary_positions(&self) -> &Probes<PrimaryPosition> {
        &self.primary_positions
    }

    /// Its configuration as it is now.
    #[must_use]
    pub fn config(&self) -> Arc<config::Cluster> {
        self.config.load_full()
    }

    /// Another one than before: there is another configuration.
    #[inline]
    pub(crate) fn config_number(&self) -> u64 {
        self.config_number.load(Ordering::Acquire)
    }

    /// Its servers in the order of the configuration, without removed ones.
    #[must_use]
    pub fn servers(&self) -> Arc<Vec<Arc<Server>>> {
        self.servers.load_full()
    }

    /// The server of that number; `None` where it is no longer one of the cluster's.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<Arc<Server>> {
        self.servers
            .load()
            .iter()
            .find(|server| server.id() == id)
            .cloned()
    }

    /// Whether its servers are MariaDB's, as far as one has been seen.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        let servers = self.servers();
        let seen = servers.iter().find_map(|server| server.profile());
        seen.is_some_and(|profile| crate::pool::is_mariadb(&profile.server_version))
    }

    /// What all its servers seen so far can; `None` until one has been seen.
    ///
    /// Asking before that makes checks read a greeting even where they are of kind `tcp`.
    #[must_use]
    pub fn profile(&self) -> Option<Arc<ServerProfile>> {
        let profile = self.profile.load_full();
        if profile.is_none() {
            self.profile_wanted.store(true, Ordering::Relaxed);
        }
        profile
    }

    /// [`profile`](Self::profile), waiting for the first greeting where none has been seen yet: the first
    /// moments of the process. `None` when all servers are down, or after `limit`.
    pub async fn introduced(&self, limit: Duration) -> Option<Arc<ServerProfile>> {
        // The usual case, without a clock.
        if let Some(profile) = self.profile() {
            return Some(profile);
        }
        self.servers()
            .iter()
            .for_each(|server| server.check_now.notify_one());
        let wait = async {
            loop {
                let news = self.news.notified();
                if let Some(profile) = self.profile() {
                    return Some(profile);
                }
                if self
                    .servers()
                    .iter()
                    .all(|server| server.state().status == Status::Down)
                {
                    return None;
                }
                news.await;
            }
        };
        tokio::time::timeout(limit, wait).await.ok().flatten()
    }

    /// How TLS to its servers is begun; `None` where it is off.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<net::TlsConnector>> {
        self.tls.load_full()
    }

    /// Sessions that wait for a permit now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What happens to its servers from now on. Who falls more than 1024 events behind is told so by
    /// [`RecvError::Lagged`](broadcast::error::RecvError::Lagged), and must look at
    /// [`servers`](Self::servers) instead.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<ServerEvent> {
        self.events.subscribe()
    }

    /// Looks for what [`reload`](Self::reload) would find wrong, and changes nothing.
    ///
    /// # Errors
    /// If its TLS files cannot be used.
    pub fn check_tls(config: &config::Cluster) -> Result<(), UpstreamError> {
        connector(&config.name, &config.tls)?;
        pd_connector(config).map(drop)
    }

    /// Takes over a changed configuration. Servers with the same name and address stay what they are, with
    /// their sessions; new ones wait for their first check; those that are gone are
    /// [removed](ServerChange::Removed), but for those that were discovered.
    ///
    /// # Errors
    /// If its TLS files cannot be used. Then nothing has changed.
    pub fn reload(self: &Arc<Self>, config: config::Cluster) -> Result<(), UpstreamError> {
        let (tls, pd_tls) = (connector(&config.name, &config.tls)?, pd_connector(&config)?);
        let changing = lock(&self.changing);
        let old = self.servers.load_full();
        let mut servers: Vec<_> = config
            .servers
            .iter()
            .map(|server| self.keep_or_add(&old, server, "the configuration"))
            .collect();
        for server in &servers {
            server.set_discovered(false);
            server.set_looked_up(false);
            if config.endpoint_slices.is_none() {
                server.set_terminating(false);
            }
        }
        if config.discovers() {
            let configured: Vec<_> = servers.iter().map(|server| server.address().clone()).collect();
            let discovered = old.iter().filter(|old| old.is_discovered());
            servers.extend(
                discovered
                    .filter(|old| !configured.contains(old.address()))
                    .cloned(),
            );
        }
        if config.looks_up_servers() {
            let is_listed = |named: &Arc<Server>| servers.iter().any(|server| server.id() == named.id());
            let named: Vec<_> = old
                .iter()
                .filter(|old| old.is_looked_up() && !is_listed(old))
                .collect();
            servers.extend(named.into_iter().cloned());
        }
        limit_those_found(&config, &servers);
        self.tls.store(tls);
        self.pd_tls.store(pd_tls);
        self.config.store(Arc::new(config));
        self.srv_changed.notify_one();
        self.pd_changed.notify_one();
        self.slices_changed.notify_one();
        self.config_number.fetch_add(1, Ordering::Release);
        self.replace_servers(servers.clone(), |gone| self.why_no_longer(gone));
        self.combine_traits();
        drop(changing);
        self.renew_topology();
        self.servers_changed.notify_one();
        self.want_accounts();
        // The interval may have become shorter than what is left of the old one.
        servers.iter().for_each(|server| {
            server.check_now.notify_one();
            server.look_now.notify_one();
        });
        // There may be more permits now, or nobody left to wait for.
        self.serve_queue();
        Ok(())
    }

    /// How TLS to PD and to status ports is begun; `None` where it is off.
    pub(crate) fn pd_tls(&self) -> Option<Arc<net::TlsConnector>> {
        self.pd_tls.load_full()
    }

    /// Reads certificates and keys again if their files have changed.
    ///
    /// # Errors
    /// If they cannot be used; then the old ones stay in use.
    pub fn reload_tls_if_changed(&self) -> Result<bool, UpstreamError> {
        let mut changed = false;
        for tls in [self.tls(), self.pd_tls()].into_iter().flatten() {
            changed |= tls.reload_if_changed().map_err(|source| UpstreamError::Tls {
                cluster: self.name.clone(),
                source,
            })?;
        }
        Ok(changed)
    }

    /// Learns from a greeting that `server` has sent. To be called with every greeting read; costs a
    /// comparison when it says nothing new.
    pub fn note_greeting(&self, server: &Server, greeting: &Greeting) {
        if server
            .profile
            .load()
            .as_ref()
            .is_some_and(|known| known.matches(greeting))
        {
            return;
        }
        let _changing = lock(&self.changing);
        let profile = Arc::new(ServerProfile::of(greeting));
        self.warn_unless_shared(server, &profile);
        server.profile.store(Some(profile));
        tracing::debug!(
            cluster = self.name,
            server = server.name(),
            version = %String::from_utf8_lossy(&greeting.server_version),
            "server introduced itself"
        );
        self.combine_traits();
    }

    /// A session's connection to `server` failed before the login was over, in a way that speaks against the
    /// server (closed without a greeting, say). It gets no new sessions until a check has passed, which is
    /// made at once.
    pub fn suspect(&self, server: &Server, reason: &str) {
        server.note_failed_attempt();
        self.suspect_by_monitor(server, reason);
    }

    /// The monitor's connection to `server` failed. Does what [`suspect`](Self::suspect) does, without
    /// counting a failed attempt of a session.
    pub(crate) fn suspect_by_monitor(&self, server: &Server, reason: &str) {
        if server.suspect(reason) {
            tracing::warn!(
                cluster = self.name,
                server = server.name(),
                reason,
                "server suspected: no new sessions until a check has passed"
            );
            self.follow.news.notify_one();
        }
    }

    /// Whether a check has to read a greeting for more than the server's health.
    pub(crate) fn wants_traits_of(&self, server: &Server) -> bool {
        self.profile_wanted.load(Ordering::Relaxed) && server.profile.load().is_none()
    }

    pub(crate) fn queue(&self) -> &Queue<Grant> {
        &self.queue
    }

    pub(crate) fn rules(&self) -> Rules {
        let config = self.config.load();
        Rules {
            rise: config.check.rise,
            fall: config.check.fall,
        }
    }

    pub(crate) fn announce(&self, server: &Server, change: ServerChange) {
        // Fails when nobody listens, which is fine.
        let _ = self.events.send(ServerEvent {
            server: server.id(),
            change,
        });
        self.follow.news.notify_one();
    }

    /// A permit on the best server that is not in `tried`, or else on one that drains as a donor of Galera:
    /// it may fall behind, which is better than no server. `Ok(None)` when all are full.
    pub(crate) fn try_permit(self: &Arc<Self>, tried: &[ServerId]) -> Result<Option<Permit>, NoPermit> {
        let found = self.best_permit(tried, Server::weight);
        if matches!(found, Ok(Some(_))) {
            return found;
        }
        let as_donor = |server: &Server| match server.drains_as_donor() {
            true => server.own_weight(),
            false => 0,
        };
        match (found, self.best_permit(tried, as_donor)) {
            (_, Ok(Some(permit))) => Ok(Some(permit)),
            (Err(none), Err(_)) => Err(none),
            _ => Ok(None),
        }
    }

    /// A permit on the best server by these weights that is not in `tried`: `Ok(None)` when all are full. A
    /// server of weight 0 takes nobody.
    fn best_permit(
        self: &Arc<Self>,
        tried: &[ServerId],
        weight: impl Fn(&Server) -> u32,
    ) -> Result<Option<Permit>, NoPermit> {
        let weight = |server: &Server| match tried.contains(&server.id()) {
            true => 0,
            false => weight(server),
        };
        let (balance, slow_start, near_first) = {
            let config = self.config.load();
            let near_first = matches!(
                config.rebalance.policy,
                RebalancePolicy::Location | RebalancePolicy::Resource
            );
            (config.balance, config.slow_start, near_first)
        };
        // A backup of the own zone comes after the others of all zones.
        let weight_if_near = |server: &Server| match server.is_near() && !server.is_backup() {
            true => weight(server),
            false => 0,
        };
        let servers = self.servers.load();
        let draw = self.draw();
        loop {
            let near = near_first.then(|| choose(balance, &servers, weight_if_near, slow_start, draw));
            let choice = match near {
                Some(choice @ Choice::Server(_)) => choice,
                _ => choose(balance, &servers, weight, slow_start, draw),
            };
            match choice {
                Choice::Server(place) => {
                    // Another worker may have been faster; then somebody has made progress, and the count is
                    // up to date.
                    if let Some(permit) = Permit::take(self, &servers[place]) {
                        return Ok(Some(permit));
                    }
                }
                Choice::AllFull => return Ok(None),
                Choice::NoneAvailable => return Err(NoPermit),
            }
        }
    }

    /// What makes the next choice differ from those before.
    pub(crate) fn draw(&self) -> Draw {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        Draw {
            turn,
            seed: self.seeds.hash_one(turn),
        }
    }

    /// A permit for a session that leaves its server, on the best of those that are not named: `None` when
    /// all of them are full, or none is available. Nobody waits in line for one.
    #[must_use]
    pub fn permit_beside(self: &Arc<Self>, others: &[ServerId]) -> Option<Permit> {
        // Those who wait for any server at all come first.
        self.queue
            .is_empty()
            .then(|| self.best_permit(others, Server::weight).ok().flatten())?
    }

    /// A permit on this server alone, whether it takes new sessions or not, for a session that has lost its
    /// own connection: `None` where it is full, or not to be reached.
    #[must_use]
    pub fn permit_to(self: &Arc<Self>, server: &Arc<Server>) -> Option<Permit> {
        let takes = server.takes_statements() && !server.is_silent();
        takes.then(|| Permit::take(self, server)).flatten()
    }

    /// Gives free permits to those in line, and tells them when none can come any more.
    pub(crate) fn serve_queue(self: &Arc<Self>) {
        self.servers
            .load()
            .iter()
            .for_each(|server| self.serve_wait_queue(server));
        let offer = |tried: &[ServerId]| self.try_permit(tried).transpose();
        let mut returned = Vec::new();
        while self.queue.serve_next(offer, |grant| returned.extend(grant.ok())) {
            // Without serving the queue from within: this loop does that.
            returned.drain(..).for_each(Permit::give_back);
        }
    }

    /// Gives free permits of `server` to those who wait for it, and tells them when none can come any more.
    /// Usually one look at an atomic.
    pub(crate) fn serve_wait_queue(self: &Arc<Self>, server: &Arc<Server>) {
        while !server.wait_queue.is_empty() {
            if server.availability() == Availability::No {
                server.wait_queue.dismiss();
                return;
            }
            if !server.wait_queue.wants_permits() || server.is_full() {
                return;
            }
            let Some(permit) = Permit::take(self, server) else {
                return;
            };
            if let Err(permit) = server.wait_queue.give(permit) {
                // Without serving the line from within: this loop looks again.
                permit.give_back();
            }
        }
    }

    /// Why each server takes no sessions.
    pub(crate) fn reasons(&self) -> Vec<ServerReason> {
        self.servers.load().iter().map(|server| reason(server)).collect()
    }

    /// To be called with `changing` held.
    fn combine_traits(&self) {
        let seen: Vec<_> = self
            .servers
            .load()
            .iter()
            .filter_map(|server| server.profile())
            .collect();
        let config = self.config.load();
        let combined =
            server_profile::combine(seen.iter().map(AsRef::as_ref), config.server_version.as_deref());
        // A cluster all of whose servers were replaced keeps what it knew until one of the new ones is seen.
        if let Some(combined) = combined {
            self.profile.store(Some(Arc::new(combined)));
            self.news.notify_waiters();
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Chooses among the servers that have a weight and are up, or else among those that have not been checked
/// yet.
fn choose(
    balance: config::Balance,
    servers: &[Arc<Server>],
    weight: impl Fn(&Server) -> u32,
    slow_start: Duration,
    draw: Draw,
) -> Choice {
    // Looked at once: a server that comes up between the two rounds would be in neither.
    let seen: Vec<Availability> = servers.iter().map(|server| server.availability()).collect();
    let mut candidates: Vec<Candidate> = Vec::with_capacity(servers.len());
    for wanted in [Availability::Yes, Availability::Unknown] {
        candidates.clear();
        candidates.extend(
            servers
                .iter()
                .zip(&seen)
                .map(|(server, seen)| server.weighing(weight(server), *seen == wanted, slow_start)),
        );
        match choose_server(balance, &candidates, draw) {
            Choice::NoneAvailable => {}
            choice => return choice,
        }
    }
    Choice::NoneAvailable
}

type Connector = Option<Arc<net::TlsConnector>>;

fn connector(cluster: &str, tls: &config::ClusterTls) -> Result<Connector, UpstreamError> {
    if tls.mode == TlsMode::Off {
        return Ok(None);
    }
    match net::TlsConnector::new(tls) {
        Ok(connector) => Ok(Some(Arc::new(connector))),
        Err(source) => Err(UpstreamError::Tls {
            cluster: cluster.to_owned(),
            source,
        }),
    }
}

fn pd_connector(config: &config::Cluster) -> Result<Connector, UpstreamError> {
    let pd = config.pd.as_ref();
    pd.map_or(Ok(None), |pd| connector(&format!("{}: pd", config.name), &pd.tls))
}

pub(crate) fn reason(server: &Server) -> ServerReason {
    let state = server.state();
    let reason = match state.status {
        Status::Down => format!("is down ({})", state.reason),
        _ if state.suspect => format!("does not answer ({})", state.reason),
        _ if server.is_draining() => match server.drained_by().as_deref() {
            Some(DrainedBy::Server(signal)) => format!("takes no new sessions ({})", signal.words()),
            Some(DrainedBy::Operator) => "takes no new sessions (`ctl drain`)".to_owned(),
            Some(DrainedBy::Option) | None => "takes no new sessions (it is in `drain`)".to_owned(),
        },
        _ if server.weight() == 0 => "takes no new sessions (weight = 0)".to_owned(),
        status => format!("is {status}"),
    };
    ServerReason {
        server: server.name().to_owned(),
        reason,
    }
}

/// Servers that others have named have their limit from there: at once, and not with the next answer.
fn limit_those_found(config: &config::Cluster, servers: &[Arc<Server>]) {
    for server in servers {
        if server.is_looked_up() {
            server.limit(limit_of_named(config));
        } else if server.is_discovered() {
            server.limit(limit_of_discovered(config));
        }
    }
}

/// The connection limit of a server that DNS, PD or Kubernetes names.
fn limit_of_named(config: &config::Cluster) -> u32 {
    let of_srv = config.srv.as_ref().map(|srv| srv.max_connections);
    let of_pd = config.pd.as_ref().map(|pd| pd.max_connections);
    let of_slices = config.endpoint_slices.as_ref();
    let of_slices = of_slices.map(|slices| slices.max_connections);
    of_srv.or(of_pd).or(of_slices).unwrap_or(0)
}

/// The connection limit of a server that members name: that of the first configured server, where there is
/// one.
fn limit_of_discovered(config: &config::Cluster) -> u32 {
    let first = config.servers.first();
    first.map_or_else(|| limit_of_named(config), |first| first.max_connections)
}
