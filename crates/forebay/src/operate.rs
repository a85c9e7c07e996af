//! What operators can ask of a running gateway: is it ready, how is it, read the configuration again.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use admin::{
    BalanceStatus, CacheStatus, CaptureOrder, CaptureStatus, ClusterStatus, DrainStatus, LastMovedStatus,
    ListenerStatus, MappingStatus, MirrorStatus, MirrorTimes, MirroredStatement, PinStatus, RefusedReload,
    ServerBalanceStatus, ServerStatus, SessionStatus, Status, SwitchoverOrder, SwitchoverStatus,
    UploadStatus, WorkerStatus,
};
use cache::Cache;
use config::{Config, Reload, Secret};
use dataplane::Gateway;
use dataplane::elsewhere::{Elsewhere, KillRequest, NotKilled};
use fleet::{Deed, Fleet, Host};
use net::handover::Channel;
use telemetry::Telemetry;
use telemetry::log::LogHandle;
use tracing::{error, info, warn};
use traffic::capture::{self, Capture, WhenFull};
use traffic::compare::Latency;
use traffic::mirrors::{self, Mirrors};
use traffic::objects::{Location, ObjectsError};
use traffic::record::Filters;
use upstream::{Cluster, Member, Server};

use crate::certificates::Certificates;
use crate::fleet_host::{self, Common};
use crate::memory::{self, Memory};
use crate::notify;
use crate::others::{self, Others};
use crate::serve::settle_max_connections;
use crate::switchover::{Switchovers, not_paused};
use crate::token;
use crate::upgrade::{Program, Upgrades};

/// The word for the log levels of the configuration.
const CONFIGURED: &str = "configured";
/// What a reload says that has found one.
const ANOTHER_TOKEN: &str = "admin.token_file: another token (live)";
const UNREADY: &str = "taken out by an operator (forebay ctl ready ends that)";
const SHUTTING_DOWN: &str = "shutting down; it counts at the next start";

/// The running gateway with the configuration it runs by.
pub(crate) struct Operator {
    path: PathBuf,
    config: Mutex<Config>,
    /// By which acts are taken over TCP.
    token: Mutex<Option<Secret>>,
    /// What a restart would change is what differs from this.
    started_with: Config,
    pub(crate) gateway: Arc<Gateway>,
    cache: Option<Arc<Cache>>,
    pub(crate) capture: Arc<Capture>,
    mirrors: Arc<Mirrors>,
    pub(crate) telemetry: Arc<Telemetry>,
    log: LogHandle,
    /// What it has in common with other gateways, where there is a store.
    common: Option<Common>,
    certificates: Arc<Certificates>,
    switchovers: Switchovers,
    pub(crate) upgrades: Arc<Upgrades>,
    started: Instant,
    is_leaving: AtomicBool,
    unready: Mutex<Option<Unready>>,
    memory: Mutex<Memory>,
    /// When the configuration that is in force was taken up.
    taken: Mutex<Instant>,
    /// The last reload, where it was refused.
    refused: Mutex<Option<Refused>>,
}

/// An operator's word that no client is to come.
#[derive(Clone)]
struct Unready {
    /// May be empty.
    reason: String,
    /// When that ends by itself, if it does.
    until: Option<Instant>,
}

struct Refused {
    at: Instant,
    why: String,
    /// The mistakes, one a line.
    cause: String,
}

impl Unready {
    /// None where it does not end by itself.
    fn seconds_left(&self) -> Option<u64> {
        let left = self.until?.saturating_duration_since(Instant::now());
        Some(left.as_secs_f64().ceil() as u64)
    }
}

impl Operator {
    pub(crate) fn new(
        path: PathBuf,
        (config, token): (Config, Option<Secret>),
        common: Option<Common>,
        gateway: Arc<Gateway>,
        (cache, capture, mirrors): (Option<Arc<Cache>>, Arc<Capture>, Arc<Mirrors>),
        telemetry: Arc<Telemetry>,
        log: LogHandle,
    ) -> Arc<Self> {
        let operator = Self {
            path,
            started_with: config.clone(),
            config: Mutex::new(config),
            token: Mutex::new(token),
            gateway,
            cache,
            capture,
            mirrors,
            telemetry,
            log,
            common,
            certificates: Arc::default(),
            switchovers: Switchovers::default(),
            upgrades: Arc::default(),
            started: Instant::now(),
            is_leaving: AtomicBool::new(false),
            unready: Mutex::default(),
            memory: Mutex::default(),
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
            .chain(config.admin.as_ref().and_then(|admin| admin.token_file.clone()))
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
        if let Some(fleet) = self.fleet() {
            fleet.leave();
        }
        self.telemetry.control.shutting_down.set(1);
    }

    /// How long the sessions of a process that was replaced have to end by themselves.
    pub(crate) fn upgrade_timeout(&self) -> Duration {
        self.config().upgrade_timeout
    }

    /// Has a new process take over, with these sockets besides those of listeners, and says by which way
    /// sessions can follow. `None` where it does not.
    pub(crate) async fn hand_over(
        &self,
        program: &'static Program,
        of_admin: std::io::Result<Vec<(String, OwnedFd)>>,
    ) -> Option<Channel> {
        if let Some(why) = self.no_upgrade_now() {
            self.upgrades.fail(why);
            return None;
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
                None
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
        if let Some(fleet) = self.fleet() {
            fleet.leave_to_successor();
        }
        self.leave();
        self.gateway.stop_listening();
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// To be called now and then, so that the metric and the log tell the end of what has a limit.
    pub(crate) fn look_at_unready(&self) {
        self.unready();
    }

    /// Looks how much memory there is: whether clients are taken depends on it.
    pub(crate) fn look_at_memory(&self) {
        let Some(used) = telemetry::resident_memory() else {
            return;
        };
        let wanted = self.config().memory_max.map(|max| max.0);
        let max = wanted.or_else(memory::of_cgroup);
        let before = self.memory();
        let now = before.looked(used, max);
        *crate::lock(&self.memory) = now;
        let published = max.and_then(|max| i64::try_from(max).ok()).unwrap_or_default();
        self.telemetry.control.memory_max.set(published);
        if let Some(cache) = &self.cache {
            cache.store().set_short_of_memory(now.is_tight);
            if now.is_tight != before.is_tight {
                info!(
                    used_bytes = used,
                    max_bytes = max,
                    gives_back = now.is_tight,
                    "the cache gives back bounded rows while memory is nearly short, and takes none"
                );
            }
        }
        if now.is_short == before.is_short {
            return;
        }
        self.telemetry.control.memory_short.set(i64::from(now.is_short));
        self.gateway.set_short_of_memory(now.is_short);
        match now.is_short {
            true => warn!(
                used_bytes = used,
                max_bytes = max,
                "short of memory: new clients are refused"
            ),
            false => info!(
                used_bytes = used,
                max_bytes = max,
                "memory is short no longer: new clients are served"
            ),
        }
    }

    fn memory(&self) -> Memory {
        *crate::lock(&self.memory)
    }

    fn unready(&self) -> Option<Unready> {
        let mut unready = crate::lock(&self.unready);
        let until = unready.as_ref().and_then(|unready| unready.until);
        if until.is_some_and(|until| until <= Instant::now()) {
            *unready = None;
            self.telemetry.control.unready.set(0);
            info!("ready again, as far as operators are concerned: the time that they gave is over");
        }
        unready.clone()
    }

    /// Reads the configuration again, applies what can be applied, and logs what was and what was not.
    ///
    /// # Errors
    /// What is wrong with it; the one in force stays. So it does when sessions are being ended, where nothing
    /// is read, and nothing counted.
    pub(crate) fn reload_and_log(&self, why: &str) -> Result<String, String> {
        let text = self.common_text();
        let result = self.take_and_log(why, text.as_ref());
        if let Some(fleet) = self.fleet().filter(|_| result.is_ok()) {
            // What the store has may have lacked something that is there now.
            fleet.try_again();
        }
        result
    }

    /// The same with this text of the store.
    fn take_and_log(&self, why: &str, common: Option<&(u64, Arc<str>)>) -> Result<String, String> {
        if self.gateway.is_draining() {
            info!(why, "configuration not read again: {SHUTTING_DOWN}");
            return Err(format!("the configuration is not read again: {SHUTTING_DOWN}"));
        }
        let result = self.reload_now(common);
        let refused = result.as_ref().err().map(|cause| Refused {
            at: Instant::now(),
            why: why.to_owned(),
            cause: cause.clone(),
        });
        *crate::lock(&self.refused) = refused;
        // Of a process that ends its end is what counts.
        if !self.is_leaving() {
            notify::reloaded(result.is_ok());
        }
        match &result {
            Ok(report) => info!(why, report = for_log(report), "configuration reloaded"),
            Err(cause) => error!(
                why,
                cause = for_log(cause),
                "configuration not reloaded; the old one stays in force"
            ),
        }
        // Last: whoever has seen the count finds all of it.
        self.telemetry.control.config_reloaded(result.is_ok());
        result
    }

    fn reload_now(&self, common: Option<&(u64, Arc<str>)>) -> Result<String, String> {
        let mut new = fleet_host::load(&self.path, common).map_err(|errors| errors.to_string())?;
        new.share(self.common.as_ref().map_or(1, Common::parts));
        settle_max_connections(&mut new).map_err(|error| format!("{error:#}"))?;
        let token = token::of(&new).map_err(|error| format!("{error:#}"))?;
        let mut config = self.config();
        let diff = config.diff(&new);
        // Also what an earlier reload could not take over is still waiting.
        let waiting = self.started_with.diff(&new);
        for change in waiting.of(Reload::Restart) {
            warn!(%change, "takes effect at the next start");
        }
        if diff.is_empty() {
            if self.take_token(token) {
                return Ok(ANOTHER_TOKEN.to_owned());
            }
            let waiting: Vec<_> = waiting
                .of(Reload::Restart)
                .map(|change| format!("\n{change}: waits for a restart"))
                .collect();
            // Most of those who ask have just saved the file, and the watch was quicker.
            let taken = crate::lock(&self.taken);
            let ago = taken.elapsed().as_secs();
            return Ok(format!(
                "nothing has changed since the configuration was taken up {ago} s ago{}",
                waiting.concat()
            ));
        }
        // First what can be taken back.
        let level = self.log.level();
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
            // The level to return to comes from the configuration or from an operator.
            let _ = self.log.set_level(&level);
            return Err(error.to_string());
        }
        let mut report = diff.to_string();
        if self.take_token(token) {
            report = format!("{report}\n{ANOTHER_TOKEN}");
        }
        primaries.iter().for_each(warn_of_removed);
        // Of what was so before it was told before.
        let known = crate::worries(&config);
        for words in crate::worries(&new).iter().filter(|words| !known.contains(words)) {
            warn!("{words}");
        }
        self.publish_limit(&new);
        self.certificates.look(&new);
        *crate::lock(&self.taken) = Instant::now();
        *config = new;
        Ok(report)
    }

    /// The gateways that this one has its configuration in common with.
    pub(crate) fn fleet(&self) -> Option<Arc<Fleet>> {
        self.common.as_ref().map(|common| Arc::clone(&common.fleet))
    }

    /// The revision and the text of the store that it runs by.
    pub(crate) fn common_text(&self) -> Option<(u64, Arc<str>)> {
        self.common.as_ref()?.text()
    }

    /// Whether that is another one than before.
    fn take_token(&self, token: Option<Secret>) -> bool {
        let mut before = crate::lock(&self.token);
        let is_another = *before != token;
        *before = token;
        is_another
    }

    /// What is wrong with the file, since nobody has mended it.
    fn refused_reload(&self) -> Option<RefusedReload> {
        let refused = crate::lock(&self.refused);
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

    /// What all are to end goes on here, where somebody has asked for it since.
    fn note_done_here(&self, deed: &Deed) {
        if let Some(fleet) = self.fleet() {
            fleet.note_done_here(deed);
        }
    }

    fn config(&self) -> MutexGuard<'_, Config> {
        crate::lock(&self.config)
    }
}

impl Host for Operator {
    fn check(&self, text: &str) -> Result<(), String> {
        let words = |error: anyhow::Error| format!("{error:#}");
        let loaded = Config::load_common(&self.path, text, "the new text");
        let mut new = loaded.map_err(|errors| errors.to_string())?;
        settle_max_connections(&mut new).map_err(words)?;
        crate::check_files(&new).map_err(words)
    }

    fn apply(&self, revision: u64, text: &Arc<str>) -> Result<(), String> {
        let taken = (revision, Arc::clone(text));
        self.take_and_log(&format!("revision {revision} of all gateways"), Some(&taken))?;
        if let Some(common) = &self.common {
            common.take(taken);
        }
        Ok(())
    }

    fn share(&self, parts: u32) -> Result<(), String> {
        let Some(common) = &self.common else {
            return Ok(());
        };
        let before = common.parts();
        common.take_parts(parts);
        let why = format!("its part of the limits is one of {parts}");
        let taken = self.take_and_log(&why, common.text().as_ref());
        if taken.is_err() {
            common.take_parts(before);
        }
        taken.map(drop)
    }

    fn is_ready(&self) -> Result<(), String> {
        let ready = admin::Gateway::ready(self);
        ready.map(drop).map_err(|reasons| reasons.join("; "))
    }

    fn is_within_share(&self) -> bool {
        let is_within = |server: &Arc<Server>| {
            let most = server.max_connections();
            most == 0 || server.sessions() <= most
        };
        let clusters = self.gateway.clusters();
        clusters
            .iter()
            .all(|cluster| cluster.servers().iter().all(is_within))
    }

    fn number(&self, number: u32) {
        self.gateway.take_number(number);
    }

    fn kill(&self, kill: fleet::Kill, told: fleet::OnKilled) {
        others::kill_here(Arc::clone(&self.gateway), kill, told);
    }

    fn act(&self, deed: &Deed) -> Result<(), String> {
        match deed {
            Deed::Drain {
                cluster,
                server,
                end_after,
            } => {
                let end_after = end_after.map(Duration::try_from_secs_f64).transpose();
                let end_after = end_after.map_err(|error| error.to_string())?;
                admin::Gateway::drain(self, Some(cluster), server, end_after)
            }
            Deed::Pause { cluster } => admin::Gateway::pause(self, Some(cluster)).map(drop),
        }
    }

    fn undo(&self, deed: &Deed) -> Result<(), String> {
        let (Deed::Drain { cluster, .. } | Deed::Pause { cluster }) = deed;
        // What is gone has nothing to be taken back.
        let Ok(found) = self.cluster_by(Some(cluster)) else {
            return Ok(());
        };
        match deed {
            // What else has it drain is no business of all.
            Deed::Drain { server, .. } => {
                found.forget_drain(server);
                Ok(())
            }
            Deed::Pause { .. } => admin::Gateway::resume(self, Some(cluster)),
        }
    }
}

impl admin::Gateway for Operator {
    fn cluster_name(&self, cluster: Option<&str>, server: Option<&str>) -> Result<String, String> {
        let found = match server {
            Some(server) => self.cluster_of(cluster, server)?,
            None => self.cluster_by(cluster)?,
        };
        Ok(found.name().to_owned())
    }

    fn fleet(&self) -> Option<Arc<Fleet>> {
        Operator::fleet(self)
    }

    fn is_token(&self, given: &[u8]) -> Option<bool> {
        let token = crate::lock(&self.token);
        token.as_ref().map(|token| token.is(given))
    }

    fn hosts(&self) -> Vec<String> {
        let config = self.config();
        config
            .admin
            .as_ref()
            .map(|admin| admin.hosts.clone())
            .unwrap_or_default()
    }

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
        if let Some(unready) = self.unready() {
            let left = unready.seconds_left();
            let left = left.map_or_else(String::new, |seconds| format!(", for {seconds} s more"));
            match unready.reason.as_str() {
                "" => reasons.push(format!("{UNREADY}{left}")),
                reason => reasons.push(format!("{UNREADY}{left}: {reason}")),
            }
        }
        reasons.extend(self.memory().reason());
        if let Some(common) = &self.common {
            if common.text().is_none() {
                let why =
                    "the store has no configuration yet, or was not reached yet: forebay ctl apply FILE";
                reasons.push(why.to_owned());
            }
            if common.fleet.waits_for_part() {
                let why = "it has one of each limit until the other gateways have made room (share_limits): forebay ctl members";
                reasons.push(why.to_owned());
            }
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
                    && listener.shares
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

    fn set_unready(&self, reason: Option<String>, limit: Option<Duration>) -> Result<(), String> {
        let until = limit.map(|limit| Instant::now().checked_add(limit).ok_or("for: too long"));
        let until = until.transpose()?;
        match (&reason, limit) {
            (Some(reason), Some(limit)) => warn!(
                reason,
                seconds = limit.as_secs_f64(),
                "not ready, by an operator's word, for so long, or until ctl ready or a restart"
            ),
            (Some(reason), None) => warn!(
                reason,
                "not ready, by an operator's word, until ctl ready or a restart"
            ),
            (None, _) => info!("ready again, as far as operators are concerned"),
        }
        let mut unready = crate::lock(&self.unready);
        self.telemetry.control.unready.set(i64::from(reason.is_some()));
        *unready = reason.map(|reason| Unready { reason, until });
        Ok(())
    }

    fn status(&self) -> Status {
        let unready = self.unready();
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
            unready_ends_in_seconds: unready.as_ref().and_then(Unready::seconds_left),
            unready: unready.map(|unready| unready.reason),
            process_id: std::process::id(),
            failed_upgrade: self.upgrades.failed(),
            refused_reload: self.refused_reload(),
            store: self.fleet().map(|fleet| fleet.status()),
            capture: self.capture.status().map(capture_status),
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
        let too_long = || "end_after: so many seconds are more than there is time".to_owned();
        let end = |after| Instant::now().checked_add(after).ok_or_else(too_long);
        let ends = end_after.map(end).transpose()?;
        let found = self.cluster_of(cluster, server)?;
        found.drain(server, ends)?;
        self.note_done_here(&Deed::Drain {
            cluster: found.name().to_owned(),
            server: server.to_owned(),
            end_after: None,
        });
        Ok(())
    }

    fn undrain(&self, cluster: Option<&str>, server: &str) -> Result<(), String> {
        self.cluster_of(cluster, server)?.undrain(server)
    }

    fn pause(&self, cluster: Option<&str>) -> Result<bool, String> {
        let cluster = self.cluster_by(cluster)?;
        for words in not_paused(&cluster, &self.config().listeners) {
            warn!(cluster = cluster.name(), "{words}");
        }
        if self.switchovers.is_under_way(&cluster) {
            return Err("a switchover is under way, which has statements wait by itself".to_owned());
        }
        let was_off = cluster.pause();
        self.note_done_here(&Deed::Pause {
            cluster: cluster.name().to_owned(),
        });
        Ok(was_off)
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
        let request = KillRequest {
            id,
            query_only,
            by: None,
        };
        Box::pin(async move {
            let killed = match self.fleet().filter(|_| self.gateway.is_of_another(id)) {
                Some(fleet) => Others(fleet).kill(request).await,
                None => self.gateway.kill(&request).await,
            };
            killed.map_err(|why| match why {
                NotKilled::Unknown(why) if why.is_empty() => {
                    format!("there is no session {id} that has logged in; `forebay ctl sessions` lists them")
                }
                NotKilled::Unknown(why) | NotKilled::Failed(why) => why,
                NotKilled::NotOwner => "it is another's".to_owned(),
            })
        })
    }

    fn start_capture(
        &self,
        order: CaptureOrder,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let listeners = self.config().listeners.clone();
        let is_known = |name: &str| listeners.iter().any(|listener| listener.name == name);
        let unknown = order.listener.clone().filter(|name| !is_known(name));
        Box::pin(async move {
            let duration = order.duration.map(Duration::try_from_secs_f64).transpose();
            let duration = duration.map_err(|error| format!("duration: {error}"))?;
            if let Some(name) = unknown {
                return Err(format!("there is no listener {name:?}"));
            }
            let (to, upload) = destination(order.to, order.spool)?;
            let servers = capture::servers(&self.gateway.clusters()).await;
            let order = capture::Order {
                to,
                upload,
                duration,
                max_size: order.max_size,
                free_disk: order.free_disk,
                filters: Filters {
                    user: order.user,
                    schema: order.schema,
                    sample: order.sample,
                    listener: order.listener,
                    digest: order.digest,
                },
                load_data: order.load_data,
                when_full: match order.end_when_full {
                    true => WhenFull::End,
                    false => WhenFull::Thin,
                },
                key_file: order.key_file.map(Into::into),
            };
            let capture = Arc::clone(&self.capture);
            // An object store is waited for.
            let start = move || capture.start(order, servers, env!("CARGO_PKG_VERSION"));
            let started = tokio::task::spawn_blocking(start).await;
            let started = started.map_err(|error| error.to_string())?;
            started.map_err(|error| error.to_string())
        })
    }

    fn stop_capture(&self) -> Result<(), String> {
        match self.capture.stop("stopped") {
            true => Ok(()),
            false => Err("no traffic is captured".to_owned()),
        }
    }

    fn capture(&self) -> Option<CaptureStatus> {
        self.capture.status().map(capture_status)
    }

    fn mirrors(&self) -> Vec<MirrorStatus> {
        self.mirrors.status().into_iter().map(mirror_status).collect()
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
        let moves = listener.is_none_or(|listener| listener.shares() || listener.moves);
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
    let percent = |known: Option<u32>| known.map(|permille| f64::from(permille) / 10.0);
    let servers = balance.servers.into_iter().map(|server| ServerBalanceStatus {
        server: server.name,
        sessions: server.sessions.into(),
        share: server.share,
        score: (server.share > 0.0).then(|| f64::from(server.sessions) / server.share),
        cpu_percent: percent(server.usage[0]),
        memory_percent: percent(server.usage[1]),
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

/// Where a capture is written, and where its files go from there.
fn destination(to: String, spool: Option<String>) -> Result<(PathBuf, Option<Location>), String> {
    match (Location::is_meant(&to), spool) {
        (true, Some(spool)) => {
            let location: Location = to.parse().map_err(|error: ObjectsError| error.to_string())?;
            Ok((spool.into(), Some(location)))
        }
        (true, None) => Err(format!(
            "{to}: name a folder on the gateway's machine as well (spool), in which files wait until they are there"
        )),
        (false, Some(_)) => Err("a spool is for captures that go to an object store".to_owned()),
        (false, None) => Ok((to.into(), None)),
    }
}

fn capture_status(status: capture::Status) -> CaptureStatus {
    let reason = status.end.map(|(reason, words)| match words.is_empty() {
        true => reason,
        false => format!("{reason}: {words}"),
    });
    CaptureStatus {
        state: if status.is_running { "running" } else { "ended" }.to_owned(),
        folder: status.folder.display().to_string(),
        seconds: status.seconds,
        commands: status.commands,
        sessions: status.sessions,
        thinned_sessions: status.thinned_sessions,
        withheld: status.withheld,
        bytes: status.bytes,
        queued_bytes: status.queued_bytes,
        reason: reason.unwrap_or_default(),
        upload: status.upload.map(|upload| UploadStatus {
            state: match (upload.is_running, upload.is_complete) {
                (true, _) => "running",
                (false, true) => "complete",
                (false, false) => "given-up",
            }
            .to_owned(),
            to: upload.to,
            files: upload.files,
            bytes: upload.bytes,
            waiting_files: upload.waiting_files,
            waiting_bytes: upload.waiting_bytes,
            failures: upload.failures,
            error: upload.error,
        }),
    }
}

fn mirror_status(status: mirrors::ClusterStatus) -> MirrorStatus {
    let counts = |counts: Vec<(&'static str, u64)>| {
        let counts = counts.into_iter();
        counts.map(|(word, count)| (word.to_owned(), count)).collect()
    };
    let times = |times: Latency| MirrorTimes {
        p50_ms: times.p50,
        p95_ms: times.p95,
        p99_ms: times.p99,
    };
    let statements = status.statements.into_iter();
    let statements = statements.map(|statement| MirroredStatement {
        digest: statement.digest,
        text: statement.text,
        compared: counts(statement.results),
        example: statement.example,
        seconds_ago: statement.seconds_ago,
    });
    MirrorStatus {
        cluster: status.cluster,
        compared: counts(status.results),
        unchecked: counts(status.unchecked),
        original: times(status.original),
        copy: times(status.copy),
        statements: statements.collect(),
        of_others: status.of_others,
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
    let is_followed = cluster.config().topology.has_primary();
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
        too_far_behind: member.is_too_far_behind,
        sessions: u64::from(server.sessions()),
        draining: server.is_draining(),
        drained_by: server.drained_by().map(|by| by.to_string()),
    }
}

/// Cuts a text behind the last line for which a line of the log has room: a longer line of the log would be
/// dropped as a whole.
fn for_log(text: &str) -> String {
    const ROOM: usize = 8 << 10;
    let mut taken = 0;
    let has_room = |line: &&str| {
        taken += line.len() + 1;
        taken <= ROOM
    };
    let lines: Vec<&str> = text.lines().take_while(has_room).collect();
    match text.lines().count() - lines.len() {
        0 => text.to_owned(),
        more => format!("{}\nand {more} more", lines.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_report_is_cut_where_a_line_ends() {
        let report = |users: usize| {
            let lines: Vec<String> = (0..users)
                .map(|user| format!("user[app{user:04}]: added (live)"))
                .collect();
            lines.join("\n")
        };
        assert_eq!(for_log(&report(100)), report(100));
        let cut = for_log(&report(1000));
        let shown = cut.lines().count() - 1;
        assert!(cut.len() < 9 << 10 && shown > 200, "{shown}");
        assert_eq!(cut, format!("{}\nand {} more", report(shown), 1000 - shown));
    }
}
