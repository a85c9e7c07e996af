//! One server of a cluster: who it is, how it is, how many sessions it has.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::ServerAddress;
use mysql_wire::gtid::GtidSet;
use routing::rebalance::{Attempts, Factor};
use tokio::sync::Notify;

use crate::address::Addresses;
use crate::disconnect::Nobody;
use crate::health::{Change, Health, Phase, Rules};
use crate::lock::lock;
use crate::metrics::{CheckMetrics, LookMetrics};
use crate::pool::{Tracked, WaitQueue};
use crate::server_profile::ServerProfile;
use crate::tickets::Tickets;
use crate::topology::{ServerPlace, Signal};
use crate::usage::Usage;

/// Tells servers of one cluster apart. Never reused while the process runs, so that an event about a removed
/// server cannot hit one that was added later under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A server of a cluster.
///
/// Its name and address never change: a server whose address is changed in the configuration is another
/// server.
#[derive(Debug)]
pub struct Server {
    id: ServerId,
    name: String,
    address: ServerAddress,
    weight: AtomicU32,
    max_connections: AtomicU32,
    backup: AtomicBool,
    /// It is a backup that takes the writes in place of another server: it comes before other backups.
    stands_in: AtomicBool,
    /// The short form of `drained_by`.
    draining: AtomicBool,
    /// How much of its CPU and memory is in use.
    pub(crate) usage: Usage,
    /// What has come of connections for traffic: how many were tried, and how many failed.
    attempts: [AtomicU64; 2],
    /// Sessions that may leave it so that the load evens out.
    pub(crate) tickets: Tickets,
    drained_by: ArcSwapOption<DrainedBy>,
    place: ArcSwap<ServerPlace>,
    /// It is in the gateway's own zone.
    near: AtomicBool,
    /// Other members named it; it is not in the configuration.
    discovered: AtomicBool,
    looked_up: AtomicBool,
    /// Its status port says that it is about to end.
    leaving: AtomicBool,
    /// Kubernetes ends it.
    terminating: AtomicBool,
    /// Permits taken. Sequentially consistent, see [`crate::queue::Queue`].
    sessions: AtomicU32,
    /// [`Availability`], for the choice: the short form of `health`.
    availability: AtomicU8,
    /// Milliseconds of `epoch` when it began to warm, plus one; 0 when it is not warming.
    warming_since_ms: AtomicU64,
    epoch: Instant,
    health: Mutex<Health>,
    state: ArcSwap<ServerState>,
    pub(crate) addresses: Addresses,
    pub(crate) profile: ArcSwapOption<ServerProfile>,
    applied: ArcSwapOption<GtidSet>,
    /// What was known of that before the look failed after which nothing is known; and what it has executed
    /// beside that.
    last_applied: ArcSwapOption<GtidSet>,
    without_gtids: AtomicBool,
    /// It has not answered the monitor's last look in time.
    silent: AtomicBool,
    pub(crate) check_now: Notify,
    pub(crate) checks: CheckMetrics,
    /// Who checks without an account log in as.
    pub(crate) nobody: Nobody,
    /// The monitor should ask it at once what it is.
    pub(crate) look_now: Notify,
    pub(crate) looks: LookMetrics,
    /// Those who wait for a connection to it.
    pub(crate) wait_queue: WaitQueue,
    /// Session variables by which connections track their state, as of the version they were read from.
    pub(crate) tracked: ArcSwapOption<Tracked>,
    /// Grows when connections from before are of no use any more: when it goes down, drains or is removed.
    generation: AtomicU32,
    /// Grows with every suspicion: connections from before are tried before they are used.
    doubts: AtomicU32,
}

/// The right of one session to leave its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub to: ServerId,
    pub factor: Factor,
}

/// Whether a server may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Availability {
    /// Not now.
    No = 0,
    /// Not checked yet: only when no other can be chosen.
    Unknown = 1,
    Yes = 2,
}

/// How a server is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// What the checks say.
    pub status: Status,
    /// Traffic could not connect, and no check has passed since: it gets no new sessions although it may be
    /// up.
    pub suspect: bool,
    /// Why, in words for a person: `no check yet`, `connection refused by 10.0.0.1:3306 (3 checks in a row)`.
    pub reason: String,
    /// When it came into this state.
    pub since: SystemTime,
}

/// What has a server drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainedBy {
    /// The option `drain` names it.
    Option,
    /// An operator has said so: [`Cluster::drain`](crate::Cluster::drain).
    Operator,
    /// It says so itself.
    Server(Signal),
}

impl fmt::Display for DrainedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Option => "option",
            Self::Operator => "operator",
            Self::Server(signal) => signal.words(),
        })
    }
}

/// What the checks say of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Not checked yet. Chosen only when no server is known to be up.
    Starting,
    /// Takes sessions.
    Up,
    /// Failed its checks.
    Down,
    /// No longer in the configuration; its last sessions are leaving.
    Removed,
}

impl Status {
    /// All of them, in the order of [`label`](Self::label)s in metrics.
    pub const ALL: [Self; 4] = [Self::Starting, Self::Up, Self::Down, Self::Removed];

    /// The word in logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Down => "down",
            Self::Removed => "removed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl Server {
    /// `born_warm`: there when the process started, so that its first coming up is no reason for a slow
    /// start.
    pub(crate) fn new(id: ServerId, config: &config::Server, born_warm: bool) -> Arc<Self> {
        let state = ServerState {
            status: Status::Starting,
            suspect: false,
            reason: "no check yet".to_owned(),
            since: SystemTime::now(),
        };
        Arc::new(Self {
            id,
            name: config.name.clone(),
            address: config.address.clone(),
            weight: AtomicU32::new(config.weight),
            max_connections: AtomicU32::new(config.max_connections),
            backup: AtomicBool::new(config.backup),
            stands_in: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            usage: Usage::default(),
            attempts: [AtomicU64::new(0), AtomicU64::new(0)],
            tickets: Tickets::default(),
            drained_by: ArcSwapOption::empty(),
            place: ArcSwap::from_pointee(ServerPlace::of(config)),
            near: AtomicBool::new(false),
            discovered: AtomicBool::new(false),
            looked_up: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            terminating: AtomicBool::new(false),
            sessions: AtomicU32::new(0),
            availability: AtomicU8::new(Availability::Unknown as u8),
            warming_since_ms: AtomicU64::new(0),
            epoch: now(),
            health: Mutex::new(Health::new(born_warm)),
            state: ArcSwap::from_pointee(state),
            addresses: Addresses::of(&config.address),
            profile: ArcSwapOption::empty(),
            applied: ArcSwapOption::empty(),
            last_applied: ArcSwapOption::empty(),
            without_gtids: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            check_now: Notify::new(),
            checks: CheckMetrics::default(),
            look_now: Notify::new(),
            looks: LookMetrics::default(),
            wait_queue: WaitQueue::default(),
            nobody: Nobody::default(),
            tracked: ArcSwapOption::empty(),
            generation: AtomicU32::new(0),
            doubts: AtomicU32::new(0),
        })
    }

    /// Its number in this cluster.
    #[must_use]
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// Its name in the configuration, unique in its cluster; by default its address.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name with its address: what another process calls so is the same server.
    #[must_use]
    pub fn whereabouts(&self) -> String {
        format!("{} {}", self.name, self.address)
    }

    /// Its address as configured.
    #[must_use]
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Whether its host name has left the address that a connection was made to: another machine may be the
    /// server now.
    #[must_use]
    pub fn has_left(&self, peer: Option<SocketAddr>) -> bool {
        peer.is_some_and(|peer| self.addresses.is_gone(peer))
    }

    /// The name that its TLS certificate must bear: the configured host. A server on a Unix socket is
    /// `localhost`.
    #[must_use]
    pub fn tls_name(&self) -> &str {
        match &self.address {
            ServerAddress::Host { host, .. } => host,
            ServerAddress::Unix(_) => "localhost",
        }
    }

    #[must_use]
    pub fn state(&self) -> Arc<ServerState> {
        self.state.load_full()
    }

    /// Who waits in line for a connection to it, on all workers.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.wait_queue.len()).unwrap_or(u32::MAX)
    }

    /// Permits taken: sessions on it and connections being made.
    #[must_use]
    pub fn sessions(&self) -> u32 {
        self.sessions.load(Ordering::SeqCst)
    }

    /// How many connections to it are of use for its pools, as far as they have learned, with those that are
    /// held for long or unused; 0 where they do not learn it.
    #[must_use]
    pub fn learned_size(&self) -> u32 {
        self.wait_queue.size.learned()
    }

    /// Another process has learned that. Where fewer do, its pools find that by and by.
    pub fn begin_with_size(&self, learned: u32) {
        self.wait_queue.size.begin_with(learned);
    }

    /// Share of new sessions relative to the others; 0 takes none.
    #[must_use]
    pub fn weight(&self) -> u32 {
        match self.is_draining() {
            true => 0,
            false => self.own_weight(),
        }
    }

    /// The same, whether it drains or not.
    pub(crate) fn own_weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Whether the server is to be left: it gets no new sessions and no reads.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether it drains for no other reason than that it may fall behind.
    pub(crate) fn drains_as_donor(&self) -> bool {
        matches!(
            self.drained_by().as_deref(),
            Some(DrainedBy::Server(Signal::Donor(_)))
        )
    }

    /// Whether some of its sessions are to go to another server so that the load evens out.
    #[inline]
    #[must_use]
    pub fn has_tickets(&self) -> bool {
        self.tickets.are_there()
    }

    /// The right of one of them to leave.
    #[must_use]
    pub fn take_ticket(&self) -> Option<Ticket> {
        let (to, factor) = self.tickets.take()?;
        Some(Ticket {
            to: ServerId(to),
            factor,
        })
    }

    /// What has it drain; `None` where it does not.
    #[must_use]
    pub fn drained_by(&self) -> Option<Arc<DrainedBy>> {
        self.drained_by.load_full()
    }

    /// Returns whether it drains and did not before, or the other way round. Once a server drains, the pools
    /// close its connections as sessions let go of them.
    pub(crate) fn set_draining(&self, drained_by: Option<DrainedBy>) -> bool {
        let draining = drained_by.is_some();
        self.drained_by.store(drained_by.map(Arc::new));
        let is_news = self.draining.swap(draining, Ordering::Relaxed) != draining;
        if is_news && draining {
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        is_news
    }

    /// Most sessions it may have; 0 is no limit.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.max_connections.load(Ordering::SeqCst)
    }

    /// Whether all connections that it may have are taken, by its limit here or, as far as that is known, by
    /// its own; or all that are of use.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_at_its_limit() || self.wait_queue.size.is_reached(self.sessions())
    }

    /// The same, but for what is of use.
    pub(crate) fn is_at_its_limit(&self) -> bool {
        let (sessions, max) = (self.sessions(), self.max_connections());
        max > 0 && sessions >= max || self.wait_queue.ceiling.is_reached(sessions)
    }

    /// Whether it has no room for a single connection of ours, as it has said itself a moment ago: nothing
    /// can come free.
    #[inline]
    #[must_use]
    pub fn has_no_room(&self) -> bool {
        self.wait_queue.ceiling.is_reached(0)
    }

    /// Whether it takes sessions only when no normal server is available.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.is_configured_backup() && !self.stands_in.load(Ordering::Relaxed)
    }

    pub(crate) fn is_configured_backup(&self) -> bool {
        self.backup.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stands_in(&self, stands_in: bool) {
        self.stands_in.store(stands_in, Ordering::Relaxed);
    }

    /// What it said of itself last; `None` before its first greeting.
    #[must_use]
    pub fn profile(&self) -> Option<Arc<ServerProfile>> {
        self.profile.load_full()
    }

    /// Whether it is here because other members named it, and not in the configuration.
    #[must_use]
    pub fn is_discovered(&self) -> bool {
        self.discovered.load(Ordering::Relaxed)
    }

    pub(crate) fn set_discovered(&self, discovered: bool) {
        self.discovered.store(discovered, Ordering::Relaxed);
    }

    /// Whether it is here because SRV records or PD name it.
    pub(crate) fn is_looked_up(&self) -> bool {
        self.looked_up.load(Ordering::Relaxed)
    }

    pub(crate) fn set_looked_up(&self, looked_up: bool) {
        self.looked_up.store(looked_up, Ordering::Relaxed);
    }

    /// Whether its status port says that it is about to end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Returns whether that is news.
    pub(crate) fn set_leaving(&self, leaving: bool) -> bool {
        self.leaving.swap(leaving, Ordering::Relaxed) != leaving
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Relaxed)
    }

    /// Returns whether that is news.
    pub(crate) fn set_terminating(&self, terminating: bool) -> bool {
        self.terminating.swap(terminating, Ordering::Relaxed) != terminating
    }

    /// Whether it is known to be in the gateway's own zone.
    pub(crate) fn is_near(&self) -> bool {
        self.near.load(Ordering::Relaxed)
    }

    /// The gateway is in this zone, as far as anybody has said.
    pub(crate) fn note_zone(&self, zone: Option<&str>) {
        let is_near = zone.is_some() && self.place().zone.as_deref() == zone;
        self.near.store(is_near, Ordering::Relaxed);
    }

    /// What the configuration says of its place in the cluster.
    pub(crate) fn place(&self) -> Arc<ServerPlace> {
        self.place.load_full()
    }

    /// Transactions that it is known to have executed: it may have more by now. `None` while nothing is
    /// known.
    #[must_use]
    pub fn applied(&self) -> Option<Arc<GtidSet>> {
        self.applied.load_full()
    }

    /// Transactions that it was known to have executed, also where it cannot be asked any more.
    #[must_use]
    pub fn last_applied(&self) -> Option<Arc<GtidSet>> {
        let (applied, last) = (self.applied(), self.last_applied.load_full());
        match last {
            Some(last) if applied.is_some() => with(applied.as_ref(), &last),
            last => last.or(applied),
        }
    }

    /// It was seen to have executed these, too.
    pub fn note_applied(&self, position: &GtidSet) {
        self.applied.rcu(|known| with(known.as_ref(), position));
    }

    /// It does not answer: it may have lost some of them.
    pub(crate) fn forget_applied(&self) {
        // In this order: who looks meanwhile sees one or the other.
        if let Some(known) = self.applied() {
            self.last_applied.rcu(|last| with(last.as_ref(), &known));
        }
        self.set_applied(None);
    }

    /// It answers again: what it says counts. `executed`: all that it has, where [`Self::applied`] is only
    /// what it has from others.
    pub(crate) fn answers(&self, executed: Option<GtidSet>) {
        self.last_applied.store(executed.map(Arc::new));
    }

    /// It says that it has executed these and no others; `None` when nobody can tell, or it may have lost
    /// some.
    pub(crate) fn set_applied(&self, position: Option<GtidSet>) {
        self.applied.store(position.map(Arc::new));
    }

    /// Not every transaction gets a GTID there (MySQL, `gtid_mode`), as of the monitor's last look that it
    /// answered: what it has besides no position says.
    #[must_use]
    pub fn is_without_gtids(&self) -> bool {
        self.without_gtids.load(Ordering::Relaxed)
    }

    pub(crate) fn set_without_gtids(&self, without_gtids: bool) {
        self.without_gtids.store(without_gtids, Ordering::Relaxed);
    }

    /// Whether it has let the monitor wait in vain: it may stand still. Reads go elsewhere then; for anything
    /// else it is what it was until its checks or further looks find that it is gone.
    #[inline]
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Returns whether that is news.
    pub(crate) fn set_silent(&self, silent: bool) -> bool {
        self.silent.swap(silent, Ordering::Relaxed) != silent
    }

    /// Whether a statement may be sent to it, as far as checks and traffic know.
    #[must_use]
    pub fn takes_statements(&self) -> bool {
        self.availability() != Availability::No
    }

    pub(crate) fn availability(&self) -> Availability {
        match self.availability.load(Ordering::SeqCst) {
            1 => Availability::Unknown,
            2 => Availability::Yes,
            _ => Availability::No,
        }
    }

    /// It as a candidate for a session, but for `available`, which the caller knows better.
    pub(crate) fn candidate(&self, available: bool, slow_start: Duration) -> routing::Candidate {
        self.weighing(self.weight(), available, slow_start)
    }

    /// The same with another weight.
    pub(crate) fn weighing(&self, weight: u32, available: bool, slow_start: Duration) -> routing::Candidate {
        routing::Candidate {
            weight,
            backup: self.is_backup(),
            available,
            sessions: self.sessions(),
            max_connections: self.max_connections(),
            warmth_permille: self.warmth_permille(slow_start),
        }
    }

    /// Takes a permit, unless all are taken. Counts across workers without a lock.
    pub(crate) fn take_permit(&self) -> bool {
        self.sessions
            .try_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
                let max = self.max_connections();
                (max == 0 || taken < max).then_some(taken.saturating_add(1))
            })
            .is_ok()
    }

    pub(crate) fn free_permit(&self) {
        let before = self.sessions.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(before, 0, "a permit freed twice");
    }

    /// Takes over a limit that it has from others: no line of the configuration is its own.
    pub(crate) fn limit(&self, max_connections: u32) {
        self.max_connections.store(max_connections, Ordering::SeqCst);
    }

    /// Takes over what may change in place.
    pub(crate) fn reconfigure(&self, config: &config::Server) {
        debug_assert_eq!((&self.name, &self.address), (&config.name, &config.address));
        self.weight.store(config.weight, Ordering::Relaxed);
        self.max_connections
            .store(config.max_connections, Ordering::SeqCst);
        self.backup.store(config.backup, Ordering::Relaxed);
        self.place.store(Arc::new(ServerPlace::of(config)));
    }

    /// A check passed; `reason` is what to show if that changes anything.
    pub(crate) fn passed(&self, rules: Rules, reason: &str) -> Option<Change> {
        self.judge(reason, |health| health.passed(rules, now()))
    }

    /// A check failed.
    pub(crate) fn failed(&self, rules: Rules, reason: &str) -> Option<Change> {
        self.judge(reason, |health| health.failed(rules))
    }

    /// Traffic could not connect: no new sessions until a check has passed, and a check at once. Returns
    /// whether this is news.
    pub(crate) fn suspect(&self, reason: &str) -> bool {
        let mut news = false;
        self.judge(reason, |health| {
            news = health.suspect();
            None
        });
        if news {
            self.doubts.fetch_add(1, Ordering::SeqCst);
            self.check_now.notify_one();
            self.look_now.notify_one();
        }
        news
    }

    /// Whether sessions of listeners with this label come here first.
    #[must_use]
    pub fn has_label(&self, label: &str) -> bool {
        self.place().label.as_deref() == Some(label)
    }

    /// Traffic tries a connection to it.
    pub(crate) fn note_attempt(&self) {
        self.attempts[0].fetch_add(1, Ordering::Relaxed);
    }

    /// One that was tried has failed.
    pub(crate) fn note_failed_attempt(&self) {
        self.attempts[1].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn attempts(&self) -> Attempts {
        let [made, failed] = self
            .attempts
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed));
        Attempts { made, failed }
    }

    /// It belongs to the cluster no more, for this reason.
    pub(crate) fn remove(&self, reason: &str) {
        let _health = lock(&self.health);
        self.availability.store(Availability::No as u8, Ordering::SeqCst);
        self.state.store(Arc::new(ServerState {
            status: Status::Removed,
            suspect: false,
            reason: reason.to_owned(),
            since: SystemTime::now(),
        }));
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.tickets.withdraw();
        self.wait_queue.dismiss();
        self.check_now.notify_one();
        self.look_now.notify_one();
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(crate) fn doubts(&self) -> u32 {
        self.doubts.load(Ordering::SeqCst)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.state.load().status == Status::Removed
    }

    /// Runs `verdict` on the health and publishes what follows from it. A removed server stays removed.
    fn judge(&self, reason: &str, verdict: impl FnOnce(&mut Health) -> Option<Change>) -> Option<Change> {
        let mut health = lock(&self.health);
        if self.is_removed() {
            return None;
        }
        let suspect_before = health.is_suspect();
        let change = verdict(&mut health);
        if change.is_some() || health.is_suspect() != suspect_before {
            self.publish(&health, reason);
        }
        change
    }

    fn publish(&self, health: &Health, reason: &str) {
        let (status, availability) = match health.phase() {
            Phase::Starting => (Status::Starting, Availability::Unknown),
            Phase::Up => (Status::Up, Availability::Yes),
            Phase::Down => (Status::Down, Availability::No),
        };
        let availability = if health.is_suspect() {
            Availability::No
        } else {
            availability
        };
        let warming = health
            .warming_since()
            .map_or(0, |since| millis(since.duration_since(self.epoch)) + 1);
        self.warming_since_ms.store(warming, Ordering::Relaxed);
        self.state.store(Arc::new(ServerState {
            status,
            suspect: health.is_suspect(),
            reason: reason.to_owned(),
            since: SystemTime::now(),
        }));
        self.availability.store(availability as u8, Ordering::SeqCst);
        if status == Status::Down {
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        if availability == Availability::No {
            self.wait_queue.dismiss();
        }
    }

    /// How far it has come in its slow start: from 1 to [`routing::WARM`].
    #[must_use]
    pub fn warmth_permille(&self, slow_start: Duration) -> u32 {
        match self.warming_since_ms.load(Ordering::Relaxed) {
            // No clock is read for the usual case.
            0 => routing::WARM,
            _ if slow_start.is_zero() => routing::WARM,
            since => {
                let since = Duration::from_millis(since - 1);
                let now = now().saturating_duration_since(self.epoch);
                routing::warmth_permille(now.saturating_sub(since), slow_start)
            }
        }
    }
}

/// The time of the runtime, which tests can stop.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What is known, and this.
fn with(known: Option<&Arc<GtidSet>>, position: &GtidSet) -> Option<Arc<GtidSet>> {
    let merged = known.and_then(|known| {
        let mut merged = GtidSet::clone(known);
        merged.merge(position).ok().map(|()| merged)
    });
    // What does not go together with what was known takes its place: less is known then.
    Some(Arc::new(merged.unwrap_or_else(|| position.clone())))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use mysql_wire::gtid::Flavor;

    use super::*;

    #[test]
    fn what_it_had_is_known_until_it_answers_again() {
        let address = config::ServerAddress::Unix("/nowhere".into());
        let server = Server::new(ServerId(0), &config::Server::new(address), true);
        let position = |text: &[u8]| GtidSet::parse(Flavor::MariaDb, text).unwrap();
        let last = || server.last_applied().map(|last| last.to_string());
        assert_eq!(last(), None);
        server.note_applied(&position(b"0-1-7"));
        for _ in 0..2 {
            server.forget_applied();
            assert_eq!((server.applied(), last().as_deref()), (None, Some("0-1-7")));
        }
        // A session has waited there for what it has written.
        server.note_applied(&position(b"0-1-5"));
        assert_eq!(last().as_deref(), Some("0-1-7"));
        server.set_applied(Some(position(b"0-1-6")));
        server.answers(None);
        assert_eq!(last().as_deref(), Some("0-1-6"));
        server.answers(Some(position(b"0-2-9")));
        assert_eq!(last().as_deref(), Some("0-2-9"));
        let applied = server.applied().map(|applied| applied.to_string());
        assert_eq!(applied.as_deref(), Some("0-1-6"));
    }
}
