//! `forebay serve`: puts the parts together, and turns signals and changed files into calls.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use cache::Cache;
use config::Config;
use dataplane::Gateway;
use dataplane::extension::{BuildExtension, Extension};
use net::handover::{Channel, Predecessor};
use telemetry::Telemetry;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_local;
use tracing::{info, warn};
use traffic::capture::Capture;
use traffic::mirrors::Mirrors;

use crate::admin_sockets::{AdminSockets, ServedAdmin};
use crate::features::Features;
use crate::fleet_host::Common;
use crate::notify;
use crate::operate::Operator;
use crate::others::Others;
use crate::token;
use crate::upgrade::{self, Program};

/// How often the configuration, the users file and certificates are looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// File descriptors that are not for sessions, at least: listeners, runtimes, checks, admin, log. See
/// [`spare`].
const SPARE_DESCRIPTORS: u64 = 128;
/// The client's and the server's.
const DESCRIPTORS_PER_SESSION: u64 = 2;
const DEFAULT_MAX_CONNECTIONS: u64 = 20_000;
/// How long the log may take to be written at the end.
const LOG_FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Runs the gateway until it is told to end.
pub(crate) fn run(path: &Path) -> anyhow::Result<()> {
    let program: &'static Program = Box::leak(Box::new(Program::running()?));
    let predecessor = upgrade::predecessor()?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let (mut config, common) = runtime.block_on(Common::begin(path, crate::load(path)?))?;
    crate::rights_of_vip(&config)?;
    let token = token::of(&config)?;
    let log = telemetry::log::init(&config.log)?;
    settle_max_connections(&mut config)?;
    let telemetry = Telemetry::new(config.workers, |byte| mysql_wire::Command(byte).name());
    let ended = runtime.block_on(async {
        let signals = (Signals::catch()?, signal(SignalKind::user_defined2())?);
        info!(
            version = env!("CARGO_PKG_VERSION"),
            config = %path.display(),
            workers = config.workers,
            max_connections = config.max_connections.unwrap_or_default(),
            "starting"
        );
        let of_log = config::log_worries(&config.log.level).into_iter();
        for words in of_log.chain(crate::worries(&config)) {
            warn!("{words}");
        }
        if let Some(common) = &common {
            common.tell();
            telemetry.register(Arc::clone(&common.fleet) as _);
        }
        let admin = config.admin.as_ref().map(AdminSockets::open).transpose()?;
        let (cache, capture, mirrors) = (OnceCell::new(), Capture::new(), Mirrors::new());
        let extension = extension(config.cache.as_ref(), &telemetry, &cache, (&capture, &mirrors));
        let gateway =
            Gateway::start(&config, Arc::clone(&telemetry), Some(extension)).context("cannot start")?;
        telemetry.control.config_reloaded(true);
        telemetry.register(Arc::clone(&gateway) as _);
        telemetry.register(Arc::new(log.clone()));
        telemetry.register(Arc::clone(&capture) as _);
        telemetry.register(Arc::clone(&mirrors) as _);
        let operator = Operator::new(
            path.to_owned(),
            (config, token),
            common,
            Arc::clone(&gateway),
            (cache.into_inner(), Arc::clone(&capture), mirrors),
            Arc::clone(&telemetry),
            log.clone(),
        );
        if let Some(fleet) = operator.fleet() {
            fleet.begin(operator.as_ref());
        }
        let following = Arc::clone(&gateway);
        spawn_local(async move { following.run().await });
        spawn_local(watch(Arc::clone(&operator)));
        let takes_over = predecessor.is_some();
        if let Some(predecessor) = &predecessor {
            until_ready(&operator, predecessor).await;
        }
        let admin = admin
            .map(|sockets| sockets.serve(&telemetry, &operator))
            .transpose()?;
        if let Some(predecessor) = predecessor
            && let Err(error) = predecessor
                .ready()
                .and_then(|channel| gateway.take_sessions(channel))
        {
            warn!(%error, "the process before this one has ended meanwhile");
        }
        // The process before this one leaves the fleet when it sees this one there.
        if let Some(fleet) = operator.fleet() {
            gateway.reach_others(Arc::new(Others(Arc::clone(&fleet))));
            let (host, running) = (Arc::clone(&operator), operator.common_text());
            spawn_local(Arc::clone(&fleet).run_vip(Arc::clone(&host) as _, takes_over));
            spawn_local(fleet.run(host as _, running));
        }
        notify::ready(takes_over);
        take_signals(&operator, signals, program, admin).await;
        capture.finish("shutdown", LOG_FLUSH_LIMIT);
        Ok(())
    });
    log.flush(LOG_FLUSH_LIMIT);
    ended
}

/// How the data plane makes what features add to it: the capture of traffic, the comparison of copies, and
/// where there is one the cache of one of its clusters, which is then in `made`.
fn extension<'a>(
    config: Option<&'a config::Cache>,
    telemetry: &'a Telemetry,
    made: &'a OnceCell<Arc<Cache>>,
    (capture, mirrors): (&Arc<Capture>, &Arc<Mirrors>),
) -> BuildExtension<'a> {
    let (capture, mirrors) = (Arc::clone(capture), Arc::clone(mirrors));
    Box::new(move |clusters| {
        if let Some(config) = config {
            let cluster = clusters.iter().find(|cluster| cluster.name() == config.cluster);
            let cluster =
                cluster.ok_or_else(|| format!("there is no cluster {:?} for [cache]", config.cluster))?;
            let cache =
                Cache::start(config, Arc::clone(cluster), telemetry).map_err(|error| error.to_string())?;
            made.get_or_init(|| cache);
        }
        let cache = made.get().map(|cache| Arc::clone(cache) as Arc<dyn Extension>);
        Ok(Arc::new(Features::new(cache, capture, mirrors)) as _)
    })
}

/// Settles how many sessions there may be: what the configuration says, or as many as there are file
/// descriptors for.
///
/// # Errors
/// The configuration asks for more than this process has descriptors for: connections would be refused below
/// the limit.
pub(crate) fn settle_max_connections(config: &mut Config) -> anyhow::Result<()> {
    let present = net::limits::raise_nofile().context("cannot raise the limit of open files")?;
    let (per_session, shared) = descriptors(config);
    let spare = spare(config) + shared;
    let possible = present.saturating_sub(spare) / per_session;
    let wanted = config
        .max_connections
        .unwrap_or(possible.clamp(1, DEFAULT_MAX_CONNECTIONS) as u32);
    let needed = per_session * u64::from(wanted) + spare;
    let or_fewer = match possible {
        0 => String::new(),
        possible => format!(" or set max_connections to at most {possible}"),
    };
    anyhow::ensure!(
        present >= needed,
        "max_connections = {wanted} needs {needed} file descriptors, and this process may have {present}; raise the limit \
         (systemd: LimitNOFILE={needed}, shell: ulimit -n {needed}){or_fewer}"
    );
    config.max_connections = Some(wanted);
    Ok(())
}

/// Descriptors that are not for sessions: a runtime has a handful; a server its check, its monitor, a
/// statement of the gateway's own and an address being tried; a cluster the logins that are tried at the same
/// time, and a reader of the binary log.
fn spare(config: &Config) -> u64 {
    let servers: usize = config
        .clusters
        .values()
        .map(|cluster| cluster.servers.len())
        .sum();
    let needed = 48
        + 6 * config.workers as u64
        + 4 * servers as u64
        + 16 * config.clusters.len() as u64
        + config.listeners.len() as u64;
    needed.max(SPARE_DESCRIPTORS)
}

/// Descriptors of a session, and those that sessions share. In mode `split` a session has its client's only,
/// where the connections to every server are limited.
fn descriptors(config: &Config) -> (u64, u64) {
    let only_split = config.listeners.iter().all(config::Listener::shares);
    let limits = config
        .clusters
        .values()
        .flat_map(|cluster| &cluster.servers)
        .map(|server| u64::from(server.max_connections));
    let limits: Vec<u64> = limits.collect();
    if only_split && limits.iter().all(|limit| *limit > 0) {
        (1, limits.iter().sum())
    } else {
        (DESCRIPTORS_PER_SESSION, 0)
    }
}

/// The signals that mean something. One that comes before they are looked at is not lost, and a SIGHUP at the
/// start does not end the process.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("cannot catch signals");
        Ok(Self {
            hangup: catch(SignalKind::hangup())?,
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
        })
    }

    /// Waits for one that ends something, and reloads at those that ask for it.
    async fn ending(&mut self, operator: &Operator) {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => {
                    // What was done or refused has been logged.
                    let _ = operator.reload_and_log("SIGHUP");
                }
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
            }
        }
    }
}

/// Waits until sessions can be served, so that clients come to the process before this one until then. Where
/// that one could serve none, either, or has ended, it does not last for ever.
async fn until_ready(operator: &Operator, predecessor: &Predecessor) {
    const PATIENCE: Duration = Duration::from_secs(10);
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    let began = Instant::now();
    while admin::Gateway::ready(operator).is_err() {
        if predecessor.has_ended() {
            return warn!(
                "the process before this one has ended: takes over although it is not ready: /readyz says why"
            );
        }
        if began.elapsed() >= PATIENCE {
            return warn!("takes over although it is not ready: /readyz says why");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until somebody wants the program to be replaced.
async fn upgrading(upgrade: &mut Signal, operator: &Operator) {
    tokio::select! {
        _ = upgrade.recv() => {}
        () = operator.upgrades.asked() => {}
    }
}

/// Waits for signals until one of them ends the process, or another process has taken over.
async fn take_signals(
    operator: &Operator,
    (mut signals, mut upgrade): (Signals, Signal),
    program: &'static Program,
    mut admin: Option<ServedAdmin>,
) {
    loop {
        tokio::select! {
            () = signals.ending(operator) => break,
            () = upgrading(&mut upgrade, operator) => {}
        }
        let of_admin = admin.as_ref().map_or_else(|| Ok(Vec::new()), ServedAdmin::share);
        if let Some(channel) = operator.hand_over(program, of_admin).await {
            operator.replaced();
            if let Some(admin) = admin.take() {
                admin.end();
            }
            wait_for_sessions(operator, &mut signals, channel).await;
            break;
        }
    }
    shut_down(operator, &mut signals).await;
}

/// Another process has taken over: the sessions of this one go there, and those that cannot have
/// `upgrade_timeout` to end by themselves.
async fn wait_for_sessions(operator: &Operator, signals: &mut Signals, channel: Channel) {
    let limit = operator.upgrade_timeout();
    let sessions = operator.gateway.sessions();
    info!(
        sessions,
        deadline_seconds = limit.as_secs_f64(),
        "sessions go to the new process, or on until they end"
    );
    tokio::select! {
        _ = operator.gateway.wait_until_empty(limit) => {}
        () = operator.gateway.give_sessions(channel) => {}
        () = signals.ending(operator) => {}
        // A service manager starts it again once no process is left.
        () = operator.upgrades.successor_ended() => {}
    }
}

/// Waits until balancers have noticed, if so configured; lets sessions end by themselves until the deadline;
/// then ends the rest. Each further signal ends the wait that it meets.
async fn shut_down(operator: &Operator, signals: &mut Signals) {
    let gateway = &operator.gateway;
    let (delay, limit) = operator.shutdown_times();
    // Nobody comes to a process that was replaced.
    let delay = if gateway.is_draining() {
        Duration::ZERO
    } else {
        delay
    };
    operator.leave();
    if !delay.is_zero() {
        notify::leaving(delay, limit);
        info!(
            sessions = gateway.sessions(),
            delay_seconds = delay.as_secs_f64(),
            "about to shut down: not ready, and new connections are still taken"
        );
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = signals.ending(operator) => {}
        }
    }
    notify::stopping(limit);
    let began = Instant::now();
    info!(
        sessions = gateway.sessions(),
        deadline_seconds = limit.as_secs_f64(),
        "shutting down: no new connections"
    );
    gateway.drain();
    let why = tokio::select! {
        empty = gateway.wait_until_empty(limit) => if empty { "all sessions have ended" } else { "the deadline has passed" },
        () = signals.ending(operator) => "one more signal",
    };
    info!(
        why,
        sessions_left = gateway.sessions(),
        seconds = began.elapsed().as_secs_f64(),
        "stopping"
    );
    if let Some(fleet) = operator.fleet() {
        fleet.left().await;
    }
    operator.end_switchovers().await;
    gateway.stop_now();
    gateway.wait_until_empty(Duration::from_secs(2)).await;
    gateway.join();
}

/// Reloads when the configuration or the users file has changed, and certificates when theirs have.
async fn watch(operator: Arc<Operator>) {
    let mut seen = stamps(&operator);
    let mut ticks = tokio::time::interval(WATCH_INTERVAL);
    loop {
        ticks.tick().await;
        operator.look_at_unready();
        operator.look_at_memory();
        let now = stamps(&operator);
        // A file that is gone for a moment is being replaced.
        let is_new = |file: &(PathBuf, Option<Stamp>)| file.1.is_some() && !seen.contains(file);
        let changed = now.iter().any(is_new);
        seen = now;
        if changed {
            let _ = operator.reload_and_log("the file has changed");
        }
        let mut read = operator.gateway.reload_tls_if_changed();
        read.extend(operator.fleet().and_then(|fleet| fleet.reload_tls_if_changed()));
        for result in read {
            match result {
                Ok(what) => {
                    operator.look_at_certificates();
                    info!(what, "certificates read again");
                }
                Err(why) => warn!(why, "certificates not read again; the old ones stay in use"),
            }
        }
    }
}

/// Time and size: an editor that writes twice within the clock's grain changes at least one.
type Stamp = (SystemTime, u64);

fn stamps(operator: &Operator) -> Vec<(PathBuf, Option<Stamp>)> {
    let watched = operator.watched().into_iter();
    watched
        .map(|path| {
            let stamp = modified(&path);
            (path, stamp)
        })
        .collect()
}

fn modified(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_for_sessions_grows_with_workers_and_servers() {
        let text = "[[listener]]\nbind = \"127.0.0.1:6033\"\ncluster = \"main\"\n[cluster.main]\nservers = [\"db1\", \"db2\"]\n";
        let spare_of = |workers: u32| {
            let config = Config::parse(&format!("workers = {workers}\n{text}"), "f.toml");
            config.map(|config| spare(&config)).unwrap_or_default()
        };
        assert_eq!(spare_of(4), SPARE_DESCRIPTORS);
        assert!(spare_of(64) > 64 * 4 + SPARE_DESCRIPTORS / 2);
    }
}
