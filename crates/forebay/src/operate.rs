//! What operators can ask of a running gateway: is it ready, how is it, read the configuration again.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use admin::{
    BalanceStatus, CacheStatus, ClusterStatus, DrainStatus, LastMovedStatus, ListenerStatus, MappingStatus,
    PinStatus, RefusedReload, ServerBalanceStatus, ServerStatus, SessionStatus, Status, SwitchoverOrder,
    SwitchoverStatus, WorkerStatus,
};
use cache::Cache;
use config::{Config, Reload};
use dataplane::Gateway;
use telemetry::Telemetry;
use telemetry::log::LogHandle;
use tracing::{error, info, warn};
use upstream::{Cluster, Member, Server};

use crate::certificates::Certificates;
use crate::notify;
use crate::serve::settle_max_connections;
use crate::switchover::{Switchovers, not_paused};
use crate::upgrade::{Program, Upgrades};

/// The word for the log levels of the configuration.
const CONFIGURED: &str = "configured";
const SHUTTING_DOWN: &str = "shutting down; it counts at the next start";

/// The running gateway with the configuration it runs by.
pub(crate) struct Operator {
    path: PathBuf,
    config: Mutex<Config>,
    /// What a restart would change is what differs from this.
    started_with: Config,
    pub(crate) gateway: Arc<Gateway>,
    cache: Option<Arc<Cache>>,
    pub(crate) telemetry: Arc<Telemetry>,
    log: LogHandle,
    certificates: Arc<Certificates>,
    switchovers: Switchovers,
    pub(crate) upgrades: Arc<Upgrades>,
    started: Instant,
    is_leaving: AtomicBool,
    /// When the configuration that is in force was taken up.
    taken: Mutex<Instant>,
    /// The last reload, where it was refused.
    refused: Mutex<Option<Refused>>,
}

/// A reload that was refused.
struct Refused {
    at: Instant,
    why: String,
    /// The mistakes, one a line.
    cause: String,
}

impl Operator {
    pub(crate) fn new(
        path: PathBuf,
        config: Config,
        gateway: Arc<Gateway>,
        cache: Option<Arc<Cache>>,
        telemetry: Arc<Telemetry>,
        log: LogHandle,
    ) -> Arc<Self> {
        let operator = Self {
            path,
            started_with: config.clone(),
            config: Mutex::new(config),
            gateway,
            cache,
            telemetry,
            log,
            certificates: Arc::default(),
            switchovers: Switchovers::default(),
            upgrades: Arc::default(),
            started: Instant::now(),
            is_leaving: AtomicBool::new(false),
            taken: Mutex::new(Instant::now()),
            refused: Mutex::default(),
        };
        operator.publish_limit(&operator.config());
        operator.look_at_certificates();
        operator
            .telemetry
            .register(Arc::clone(&operator.certificates) as _);
        Arc::new(operator)
    }

    fn publish_limit(&self, config: &Config) {
        let limit = config.max_connections.map_or(0, i64::from);
        self.telemetry.control.sessions_limit.set(limit);
    }

    /// To be called when files of certificates have been taken into use.
    pub(crate) fn look_at_certificates(&self) {
        self.certificates.look(&self.config());
    }

    /// The files whose change is reason enough to reload; none where changes are not watched.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        let config = self.config();
        if !config.watch {
            return Vec::new();
        }
        std::iter::once(self.path.clone())
            .chain(config.users_file.clone())
            .collect()
    }

    /// How long clients may still come after the signal, and then how long their sessions have to end.
    pub(crate) fn shutdown_times(&self) -> (Duration, Duration) {
        let config = self.config();
        (config.shutdown_delay, config.shutdown_timeout)
    }

    /// From here on it is not ready: whoever asks sends no more clients.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.telemetry.control.shutting_down.set(1);
    }

    /// How long the sessions of a process that was replaced have to end by themselves.
    pub(crate) fn upgrade_timeout(&self) -> Duration {
        self.config().upgrade_timeout
    }

    /// Has a new process take over, with these sockets besides those of listeners. False where it does not.
    pub(crate) async fn hand_over(
        &self,
        program: &'static Program,
        of_admin: std::io::Result<Vec<(String, OwnedFd)>>,
    ) -> bool {
        if let Some(why) = self.no_upgrade_now() {
            self.upgrades.fail(why);
            return false;
        }
        let sockets = self.gateway.listening_sockets().and_then(|mut sockets| {
            sockets.extend(of_admin?);
            Ok(sockets)
        });
        match sockets {
            Ok(sockets) => self.upgrades.upgrade(program, sockets).await,
            Err(error) => {
                self.upgrades
                    .fail(format!("the listeners cannot be handed over: {error}"));
                false
            }
        }
    }

    /// What has to come to its end in this process.
    fn no_upgrade_now(&self) -> Option<String> {
        if std::process::id() == 1 {
            return Some("process 1 of a container cannot be replaced: start another container".to_owned());
        }
        if self.switchovers.are_under_way() {
            return Some("a switchover is under way".to_owned());
        }
        let clusters = self.gateway.clusters();
        let paused = clusters.iter().find(|cluster| cluster.is_paused())?;
        Some(format!("cluster {} is paused: say resume first", paused.name()))
    }

    /// Waits for switchovers, which have limits of their own: one that is left in the middle may leave no
    /// server that takes writes.
    pub(crate) async fn end_switchovers(&self) {
        while self.switchovers.are_under_way() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Another process serves from here on.
    pub(crate) fn replaced(&self) {
        net::handover::leave_files();
        notify::replaced();
        self.leave();
        self.gateway.stop_listening();
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Reads the configuration again, applies what can be applied, and logs what was and what was not.
    ///
    /// # Errors
    /// What is wrong with it; the one in force stays. So it does when sessions are being ended, where nothing
    /// is read, and nothing counted.
    pub(crate) fn reload_and_log(&self, why: &str) -> Result<String, String> {
        if self.gateway.is_draining() {
            info!(why, "configuration not read again: {SHUTTING_DOWN}");
            return Err(format!("the configuration is not read again: {SHUTTING_DOWN}"));
        }
        let result = self.reload_now();
        self.telemetry.control.config_reloaded(result.is_ok());
        let refused = result.as_ref().err().map(|cause| Refused {
            at: Instant::now(),
            why: why.to_owned(),
            cause: cause.clone(),
        });
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        // Of a process that ends its end is what counts.
        if !self.is_leaving() {
            notify::reloaded(result.is_ok());
        }
        match &result {
            Ok(report) => info!(why, report, "configuration reloaded"),
            Err(cause) => error!(
                why,
                cause, "configuration not reloaded; the old one stays in force"
            ),
        }
        result
    }

    fn reload_now(&self) -> Result<String, String> {
        let mut new = Config::load(&self.path).map_err(|errors| errors.to_string())?;
        settle_max_connections(&mut new).map_err(|error| format!("{error:#}"))?;
        let mut config = self.config();
        let diff = config.diff(&new);
        // Also what an earlier reload could not take over is still waiting.
        let waiting = self.started_with.diff(&new);
        for change in waiting.of(Reload::Restart) {
            warn!(%change, "takes effect at the next start");
        }
        if diff.is_empty() {
            let waiting: Vec<_> = waiting
                .of(Reload::Restart)
                .map(|change| format!("\n{change}: waits for a restart"))
                .collect();
            // Most of those who ask have just saved the file, and the watch was quicker.
            let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let ago = taken.elapsed().as_secs();
            return Ok(format!(
                "nothing has changed since the configuration was taken up {ago} s ago{}",
                waiting.concat()
            ));
        }
        // First what can be taken back.
        if config.log.level != new.log.level {
            self.log
                .set_level(&new.log.level)
                .map_err(|error| error.to_string())?;
            for words in config::log_worries(&new.log.level) {
                warn!("{words}");
            }
        }
        let primaries = primaries(&self.gateway.clusters());
        if let Err(error) = self.gateway.reload(&new) {
            // It was in force until now.
            let _ = self.log.set_level(&config.log.level);
            return Err(error.to_string());
        }
        primaries.iter().for_each(warn_of_removed);
        // Of what was so before it was told before.
        let worries =
            |config: &Config| [config::idle_worries(config), config::setup_worries(config)].concat();
        let known = worries(&config);
        for words in worries(&new).iter().filter(|words| !known.contains(words)) {
            warn!("{words}");
        }
        self.publish_limit(&new);
        self.certificates.look(&new);
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        *config = new;
        Ok(diff.to_string())
    }

    /// What is wrong with the file, since nobody has mended it.
    fn refused_reload(&self) -> Option<RefusedReload> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let Refused { at, why, cause } = refused.as_ref()?;
        let mut mistakes = cause.lines();
        Some(RefusedReload {
            seconds_ago: at.elapsed().as_secs(),
            why: why.clone(),
            first_mistake: mistakes.next().unwrap_or_default().to_owned(),
            more_mistakes: mistakes.count() as u64,
        })
    }

    /// The cluster that has a server of this name.
    fn cluster_of(&self, cluster: Option<&str>, server: &str) -> Result<Arc<Cluster>, String> {
        let clusters = self.gateway.clusters();
        if cluster.is_some() {
            return self.cluster_by(cluster);
        }
        let has = |cluster: &&Arc<Cluster>| cluster.servers().iter().any(|known| known.name() == server);
        let having: Vec<_> = clusters.iter().filter(has).collect();
        match having.as_slice() {
            [cluster] => Ok(Arc::clone(cluster)),
            [] => Err(format!("no cluster has a server {server:?}; /status names them")),
            several => {
                let names: Vec<_> = several.iter().map(|cluster| cluster.name()).collect();
                Err(format!(
                    "clusters {} have a server {server:?}: say which one (cluster)",
                    names.join(", ")
                ))
            }
        }
    }

    /// The cluster of this name; where none is said the only one.
    fn cluster_by(&self, name: Option<&str>) -> Result<Arc<Cluster>, String> {
        let clusters = self.gateway.clusters();
        let names = || {
            clusters
                .iter()
                .map(|cluster| cluster.name())
                .collect::<Vec<_>>()
                .join(", ")
        };
        match (name, clusters.as_slice()) {
            (None, [only]) => Ok(Arc::clone(only)),
            (None, _) => Err(format!("say which cluster: {}", names())),
            (Some(name), _) => {
                let found = clusters.iter().find(|cluster| cluster.name() == name);
                found
                    .cloned()
                    .ok_or_else(|| format!("there is no cluster {name:?}; there are {}", names()))
            }
        }
    }

    fn config(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl admin::Gateway for Operator {
    fn sessions(&self, limit: usize) -> Pin<Box<dyn Future<Output = Vec<SessionStatus>> + Send + '_>> {
        let shown = |session: dataplane::SessionStatus| SessionStatus {
            id: session.id,
            worker: session.worker,
            listener: session.listener,
            user: session.user,
            client: session.client,
            waits_for: session.waits_for.to_owned(),
            waiting_seconds: session.waiting_seconds,
            server: session.server,
            server_connection_id: session.server_connection_id,
            schema: session.schema,
            digest: session.digest,
            pins: session
                .pins
                .into_iter()
                .map(|pin| PinStatus {
                    reason: pin.reason.to_owned(),
                    digest: pin.digest,
                    since_seconds: pin.since_seconds,
                })
                .collect(),
        };
        Box::pin(async move {
            let sessions = self.gateway.describe_sessions(limit).await;
            sessions.into_iter().map(shown).collect()
        })
    }

    fn ready(&self) -> Result<Vec<String>, Vec<String>> {
        let (mut reasons, mut wrong) = (Vec::new(), Vec::new());
        if self.is_leaving() {
            reasons.push("shutting down".to_owned());
        }
        let listeners = self.gateway.listeners();
        let has_clients = |cluster: &str| listeners.iter().any(|listener| listener.cluster == cluster);
        // One that gets copies of statements only may be down without anybody's noticing.
        for cluster in self.gateway.clusters() {
            if !has_clients(cluster.name()) {
                continue;
            }
            if !cluster
                .servers()
                .iter()
                .any(|server| server.state().status == upstream::Status::Up)
            {
                reasons.push(format!("cluster {}: no server is up", cluster.name()));
            }
            let is_shared = listeners.iter().any(|listener| {
                listener.cluster == cluster.name()
                    && listener.mode == config::Mode::Split
                    && listener.protocol == config::Protocol::Mysql
            });
            if is_shared && let Some(reason) = no_login(&cluster) {
                reasons.push(format!(
                    "cluster {}: mode split refuses every login: {reason}",
                    cluster.name()
                ));
            }
            wrong.extend(writes_wait(&cluster));
            wrong.extend(reads_at_primary(&cluster));
        }
        if reasons.is_empty() {
            Ok(wrong)
        } else {
            Err(reasons)
        }
    }

    fn status(&self) -> Status {
        let listeners = self
            .gateway
            .listeners()
            .into_iter()
            .map(|listener| ListenerStatus {
                name: listener.name,
                bind: listener.address.to_string(),
                protocol: listener.protocol.word().into(),
                mode: listener.mode.word().into(),
                cluster: listener.cluster,
                sessions: u64::from(listener.sessions),
            });
        let workers = self.gateway.sessions_per_worker().into_iter().enumerate();
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: self.started.elapsed().as_secs(),
            shutting_down: self.is_leaving(),
            process_id: std::process::id(),
            failed_upgrade: self.upgrades.failed(),
            refused_reload: self.refused_reload(),
            sessions: self.gateway.sessions() as u64,
            listeners: listeners.collect(),
            clusters: self
                .gateway
                .clusters()
                .iter()
                .map(|cluster| cluster_status(cluster))
                .collect(),
            workers: workers
                .map(|(index, sessions)| WorkerStatus {
                    index,
                    sessions: sessions as u64,
                })
                .collect(),
        }
    }

    fn log_level(&self) -> String {
        self.log.level()
    }

    fn change_log_level(&self, change: &str) -> Result<String, String> {
        if change == CONFIGURED {
            let configured = self.config().log.level.clone();
            self.log
                .set_level(&configured)
                .map_err(|error| error.to_string())?;
            info!(level = configured, "log level changed");
            return Ok(self.log.level());
        }
        // Whoever asks is there to read it. In the file it is a word in the log.
        let worries = config::log_worries(change);
        if !worries.is_empty() {
            return Err(worries.join("\n"));
        }
        let level = self.log.change_level(change).map_err(|error| error.to_string())?;
        info!(level, "log level changed");
        Ok(level)
    }

    fn reload(&self) -> Result<String, String> {
        self.reload_and_log("asked by admin")
    }

    fn drain(&self, cluster: Option<&str>, server: &str, end_after: Option<Duration>) -> Result<(), String> {
        let ends = end_after.map(|after| Instant::now() + after);
        self.cluster_of(cluster, server)?.drain(server, ends)
    }

    fn undrain(&self, cluster: Option<&str>, server: &str) -> Result<(), String> {
        self.cluster_of(cluster, server)?.undrain(server)
    }

    fn pause(&self, cluster: Option<&str>) -> Result<(), String> {
        let cluster = self.cluster_by(cluster)?;
        for words in not_paused(&cluster, &self.config().listeners) {
            warn!(cluster = cluster.name(), "{words}");
        }
        if self.switchovers.is_under_way(&cluster) {
            return Err("a switchover is under way, which has statements wait by itself".to_owned());
        }
        cluster.pause();
        Ok(())
    }

    fn resume(&self, cluster: Option<&str>) -> Result<(), String> {
        let cluster = self.cluster_by(cluster)?;
        if self.switchovers.is_under_way(&cluster) {
            return Err("a switchover is under way: statements go on when it is over".to_owned());
        }
        cluster.resume();
        Ok(())
    }

    fn switch_over(&self, cluster: Option<&str>, order: SwitchoverOrder) -> Result<(), String> {
        let cluster = self.cluster_of(cluster, &order.to)?;
        let listeners = self.config().listeners.clone();
        self.switchovers
            .begin(&self.gateway, &cluster, &listeners, &order)
    }

    fn upgrade(&self) {
        self.upgrades.ask();
    }

    fn switchovers(&self) -> Vec<SwitchoverStatus> {
        self.switchovers.status()
    }

    fn drains(&self) -> Pin<Box<dyn Future<Output = Vec<DrainStatus>> + Send + '_>> {
        Box::pin(async move {
            let draining = |cluster: Arc<Cluster>| {
                let servers = cluster.servers();
                let draining = servers.iter().filter(|server| server.is_draining());
                let draining = draining.map(|server| (Arc::clone(&cluster), Arc::clone(server)));
                draining.collect::<Vec<_>>()
            };
            let draining: Vec<_> = self.gateway.clusters().into_iter().flat_map(draining).collect();
            // Every worker goes through its sessions for this.
            let sessions = match draining.iter().any(|(_, server)| server.sessions() > 0) {
                true => self.gateway.describe_sessions(usize::MAX).await,
                false => Vec::new(),
            };
            let listeners = self.config().listeners.clone();
            let drains = draining
                .iter()
                .map(|(cluster, server)| drain_status(cluster, server, &sessions, &listeners));
            drains.collect()
        })
    }

    fn kill(
        &self,
        id: u32,
        query_only: bool,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(self.gateway.kill(id, query_only))
    }

    fn balance(&self) -> Vec<BalanceStatus> {
        let clusters = self.gateway.clusters();
        clusters.iter().map(|cluster| balance_status(cluster)).collect()
    }

    fn cache(&self) -> Option<CacheStatus> {
        self.cache.as_deref().map(cache_status)
    }

    fn flush_cache(&self) -> bool {
        if let Some(cache) = &self.cache {
            info!("cache flushed: what is not served is tried again");
            cache.feed_status().flush();
        }
        self.cache.is_some()
    }
}

fn drain_status(
    cluster: &Cluster,
    server: &Server,
    sessions: &[dataplane::SessionStatus],
    listeners: &[config::Listener],
) -> DrainStatus {
    let mut held_by = BTreeMap::new();
    for session in sessions
        .iter()
        .filter(|session| session.server.as_deref() == Some(server.name()))
    {
        let listener = listeners
            .iter()
            .find(|listener| listener.name == session.listener);
        if listener.is_some_and(|listener| listener.cluster != cluster.name()) {
            continue;
        }
        let moves = listener.is_none_or(|listener| listener.mode == config::Mode::Split || listener.moves);
        let reason = match session.pins.first() {
            Some(pin) => pin.reason,
            None if moves => "moving",
            None => "moves-off",
        };
        *held_by.entry(reason.to_owned()).or_default() += 1;
    }
    let ends = cluster.drain_ends(server.name());
    DrainStatus {
        cluster: cluster.name().to_owned(),
        server: server.name().to_owned(),
        drained_by: server.drained_by().map(|by| by.to_string()).unwrap_or_default(),
        sessions: u64::from(server.sessions()),
        held_by,
        ends_in_seconds: ends.map(|ends| ends.saturating_duration_since(Instant::now()).as_secs_f64()),
    }
}

fn balance_status(cluster: &Cluster) -> BalanceStatus {
    let balance = cluster.balance();
    let last_moved = |left: upstream::Left| LastMovedStatus {
        factor: left.factor.label().to_owned(),
        sessions: left.sessions.into(),
        to: left.to,
        seconds_ago: left.at.elapsed().as_secs_f64(),
    };
    let servers = balance.servers.into_iter().map(|server| ServerBalanceStatus {
        server: server.name,
        sessions: server.sessions.into(),
        share: server.share,
        score: (server.share > 0.0).then(|| f64::from(server.sessions) / server.share),
        note: server.why.map(str::to_owned),
        last_moved: server.left.map(last_moved),
    });
    BalanceStatus {
        cluster: cluster.name().to_owned(),
        policy: balance.policy.word().to_owned(),
        state: balance.phase.label().to_owned(),
        servers: servers.collect(),
    }
}

fn cache_status(cache: &Cache) -> CacheStatus {
    let (feed_status, store) = (cache.feed_status(), cache.store());
    let memory = store.memory();
    let served = feed_status.mappings();
    let mappings = feed_status.states();
    let mappings = mappings.iter().map(|mapping| MappingStatus {
        name: mapping.name.to_string(),
        table: mapping.table.to_string(),
        row_of: mapping.row_of.as_deref().map(str::to_owned),
        state: mapping.phase.label().to_owned(),
        reason: mapping.phase.to_string(),
        rows: served
            .by_name(mapping.name.as_bytes())
            .and_then(|mapping| store.len(mapping.id)),
    });
    CacheStatus {
        stream: feed_status.stream().to_string(),
        lag_seconds: feed_status.lag(),
        memory_bytes: memory.held,
        memory_max_bytes: memory.memory_max,
        mappings: mappings.collect(),
    }
}

/// Why sessions of mode `split` cannot begin, although a server is up: none is fit for it, or none has a role
/// that takes them.
fn no_login(cluster: &Cluster) -> Option<String> {
    /// Servers that are named.
    const SHOWN: usize = 4;
    let is_up = |server: &Arc<Server>| server.state().status == upstream::Status::Up;
    if !cluster.servers().iter().any(is_up) {
        return None;
    }
    cluster.cannot_be_shared().or_else(|| {
        let servers = cluster.topology().entrance().err()?;
        let named: Vec<String> = servers.iter().take(SHOWN).map(ToString::to_string).collect();
        let more = match servers.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Some(format!("{}{more}", named.join("; ")))
    })
}

/// The primary of each cluster that has one.
fn primaries(clusters: &[Arc<Cluster>]) -> Vec<(Arc<Cluster>, Arc<Server>)> {
    let primary = |cluster: &Arc<Cluster>| {
        let topology = cluster.topology();
        Some((Arc::clone(cluster), Arc::clone(&topology.primary()?.server)))
    };
    clusters.iter().filter_map(primary).collect()
}

/// A primary that a reload has taken out of `servers` may be meant (a switchover) or a slip; writes wait
/// either way.
fn warn_of_removed((cluster, primary): &(Arc<Cluster>, Arc<Server>)) {
    let servers = cluster.servers();
    if servers.is_empty() || servers.iter().any(|server| server.id() == primary.id()) {
        return;
    }
    let next = match cluster.config().discovers() {
        true => "until it is discovered again, or another server takes writes",
        false => "until another server of the list is the primary",
    };
    warn!(
        cluster = cluster.name(),
        server = primary.name(),
        "the primary is no longer in `servers`: its sessions end, and writes wait {next}"
    );
}

/// Why nothing is written in a cluster of which it is known who would take it.
fn writes_wait(cluster: &Cluster) -> Option<String> {
    let (name, topology) = (cluster.name(), cluster.topology());
    let is_followed = cluster.config().topology != config::Topology::Static;
    match &topology.refuse_writes {
        Some(reason) => Some(format!("cluster {name}: writes are refused: {reason}")),
        None if is_followed && topology.primary.is_none() => {
            Some(format!("cluster {name}: no primary: writes wait"))
        }
        None => None,
    }
}

/// Why no replica serves reads in a cluster that has some.
fn reads_at_primary(cluster: &Cluster) -> Option<String> {
    let name = cluster.name();
    let is_so = cluster.config().uses_roles && cluster.topology().are_replicas_too_far_behind();
    is_so.then(|| {
        format!("cluster {name}: all replicas are further behind than max_lag: reads go to the primary")
    })
}

fn cluster_status(cluster: &Cluster) -> ClusterStatus {
    ClusterStatus {
        name: cluster.name().to_owned(),
        waiting: cluster.waiting() as u64,
        paused: cluster.is_paused(),
        servers: cluster.topology().members.iter().map(server_status).collect(),
    }
}

fn server_status(member: &Member) -> ServerStatus {
    let server = &member.server;
    let state = server.state();
    ServerStatus {
        name: server.name().to_owned(),
        address: server.address().to_string(),
        state: state.status.label().to_owned(),
        state_seconds: SystemTime::now()
            .duration_since(state.since)
            .unwrap_or_default()
            .as_secs(),
        reason: state.reason.clone(),
        role: member.role.label().to_owned(),
        role_reason: member.reason.clone(),
        lag_seconds: member.lag.map(|lag| lag.as_secs_f64()),
        sessions: u64::from(server.sessions()),
        draining: server.is_draining(),
        drained_by: server.drained_by().map(|by| by.to_string()),
    }
}
