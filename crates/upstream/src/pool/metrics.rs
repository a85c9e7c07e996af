//! What pools count, and how they find one another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use telemetry::{Counter, Gauge, Histogram, Samples, catalog};
use tokio::sync::Notify;

use super::size::{Climb, Look};
use crate::lock::lock;
use crate::server::{Server, ServerId};

/// Time between two looks at the sizes.
const LOOKS_EVERY: Duration = Duration::from_millis(95);

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// Its session had no more use for it, and nobody else could have.
    Dropped,
    /// It was older than `pool.max_age`.
    MaxAge,
    /// Nobody used it for `pool.idle_timeout`.
    IdleTimeout,
    /// The server closed it, or said something unasked.
    Broken,
    /// No answer to a ping.
    Ping,
    /// The server is down or removed, or was down since it was opened.
    Server,
    /// Fewer connections do.
    Size,
    /// Its login was too old for a session that has begun since.
    Login,
    /// The server's name has another address now.
    Moved,
    /// The configuration asks for another kind of connection now.
    Config,
    /// Its permit went to another account, or to a session without a pool.
    Handover,
    /// `max_connections` of the server was lowered.
    Limit,
    /// The pool is gone.
    Shutdown,
}

impl Closed {
    const ALL: [Self; 13] = [
        Self::Dropped,
        Self::MaxAge,
        Self::IdleTimeout,
        Self::Broken,
        Self::Ping,
        Self::Server,
        Self::Size,
        Self::Login,
        Self::Moved,
        Self::Config,
        Self::Handover,
        Self::Limit,
        Self::Shutdown,
    ];

    const fn label(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::MaxAge => "max_age",
            Self::IdleTimeout => "idle_timeout",
            Self::Broken => "broken",
            Self::Ping => "ping",
            Self::Server => "server",
            Self::Size => "size",
            Self::Login => "login",
            Self::Moved => "moved",
            Self::Config => "config",
            Self::Handover => "handover",
            Self::Limit => "limit",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What one pool counts of one server. Written by the pool's worker only.
#[derive(Debug)]
pub(super) struct Metrics {
    /// The pool's number.
    pub(super) pool: u64,
    pub(super) server: Arc<Server>,
    pub(super) idle: Gauge,
    pub(super) busy: Gauge,
    /// Connections that are being opened, or wait for their turn.
    pub(super) opening: Gauge,
    /// Statements that were executed, as far as leases tell.
    pub(super) done: Counter,
    /// Idle connections that nobody has used since the last look, as of this one.
    unused: Gauge,
    /// Looks at the pool's size.
    looks: Counter,
    /// Connections that were leased before the last look but one.
    held: Gauge,
    /// Those that were leased since, before and after the last look.
    young: [Gauge; 2],
    pub(super) opened: Counter,
    /// Live connections that came from other workers.
    pub(super) moved_in: Counter,
    pub(super) open_failures: Counter,
    pub(super) closed: [Counter; Closed::ALL.len()],
    pub(super) waits: Counter,
    pub(super) wait_seconds: Histogram,
    pub(super) lease_seconds: Histogram,
}

/// The pools of a cluster, one a worker.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    members: Mutex<Vec<Arc<Member>>>,
    ids: AtomicU64,
    sizes: Mutex<Sizes>,
}

/// What finds the sizes of the cluster's servers.
#[derive(Debug, Default)]
struct Sizes {
    looked: Option<Instant>,
    climb: Climb,
    /// Statements of each server, and sessions that have waited, as of the last look.
    before: Vec<(ServerId, u64, u64)>,
}

/// What all workers have of one server.
struct Sum {
    server: Arc<Server>,
    idle: u32,
    busy: u32,
    opening: u32,
    unused: u32,
    held: u32,
    done: u64,
    waits: u64,
}

/// A pool as the others see it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: u64,
    /// Somebody elsewhere waits for a connection.
    pub(super) called: Notify,
    metrics: Mutex<Vec<(Arc<Server>, Arc<Metrics>)>>,
}

impl Pools {
    pub(super) fn enter(&self) -> Arc<Member> {
        let member = Arc::new(Member {
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            called: Notify::new(),
            metrics: Mutex::default(),
        });
        lock(&self.members).push(Arc::clone(&member));
        member
    }

    pub(super) fn leave(&self, member: &Member) {
        lock(&self.members).retain(|other| other.id != member.id);
    }

    /// Has the pools look whether they can give up a connection.
    pub(crate) fn call(&self) {
        for member in lock(&self.members).iter() {
            member.called.notify_one();
        }
    }

    /// Looks at the sizes of all servers, where the last look is long enough ago: one worker does it for all.
    /// `is_on`: they are to have sizes. Gives the servers of which more connections may be of use now.
    pub(super) fn look_at_sizes(&self, is_on: bool, now: Instant) -> Vec<Arc<Server>> {
        let Ok(mut sizes) = self.sizes.try_lock() else {
            return Vec::new();
        };
        if sizes
            .looked
            .is_some_and(|looked| now.saturating_duration_since(looked) < LOOKS_EVERY)
        {
            return Vec::new();
        }
        sizes.looked = Some(now);
        let sums = self.sums();
        sizes.look(is_on, &sums, now);
        let lacks = |server: &Server| {
            server.wait_queue.wants_permits() && !server.wait_queue.size.is_reached(server.sessions())
        };
        sums.into_iter()
            .map(|sum| sum.server)
            .filter(|server| lacks(server))
            .collect()
    }

    /// Server by server.
    fn sums(&self) -> Vec<Sum> {
        let mut sums = Vec::<Sum>::new();
        let count = |gauge: &Gauge| u32::try_from(gauge.get()).unwrap_or(0);
        for member in lock(&self.members).iter() {
            for (server, metrics) in lock(&member.metrics).iter() {
                let sum = match sums.iter().position(|sum| sum.server.id() == server.id()) {
                    Some(at) => &mut sums[at],
                    None => sums.push_mut(Sum::of(server)),
                };
                sum.idle += count(&metrics.idle);
                sum.busy += count(&metrics.busy);
                sum.opening += count(&metrics.opening);
                sum.unused += count(&metrics.unused);
                sum.held += count(&metrics.held);
                sum.waits += metrics.waits.get();
                sum.done += metrics.done.get();
            }
        }
        sums
    }

    pub(crate) fn collect(&self, cluster: &str, out: &mut Samples) {
        for member in lock(&self.members).iter() {
            for (server, metrics) in lock(&member.metrics).iter() {
                metrics.collect(&[cluster, server.name()], out);
            }
        }
    }
}

impl Sizes {
    fn look(&mut self, is_on: bool, sums: &[Sum], now: Instant) {
        let mut looks = Vec::with_capacity(sums.len());
        for sum in sums {
            let (wait_queue, id) = (&sum.server.wait_queue, sum.server.id());
            wait_queue.size.switch(is_on);
            let pooled = sum.idle + sum.busy + sum.opening;
            let foreign = sum.server.sessions().saturating_sub(pooled);
            wait_queue.size.set_beside(sum.unused + sum.held, foreign);
            let before = self.before.iter().find(|(other, ..)| *other == id);
            let (_, done, waits) = *before.unwrap_or(&(id, sum.done, sum.waits));
            let waited = wait_queue.wants_permits() || waits != sum.waits;
            let used = (sum.busy + sum.idle).saturating_sub(sum.held + sum.unused);
            wait_queue.size.drift(used, waited);
            looks.push(Look {
                id,
                bound: wait_queue.size.bound(),
                most: sum.server.max_connections(),
                used,
                done: sum.done.saturating_sub(done),
                waited,
            });
        }
        self.before = sums
            .iter()
            .map(|sum| (sum.server.id(), sum.done, sum.waits))
            .collect();
        if let Some(change) = self.climb.step(now, &looks)
            && let Some(sum) = sums.iter().find(|sum| sum.server.id() == change.id)
        {
            change.make(&sum.server.wait_queue.size);
        }
    }
}

impl Sum {
    fn of(server: &Arc<Server>) -> Self {
        Self {
            server: Arc::clone(server),
            idle: 0,
            busy: 0,
            opening: 0,
            unused: 0,
            held: 0,
            done: 0,
            waits: 0,
        }
    }
}

impl Member {
    /// The series of a server. Looked up once a server, and kept.
    pub(super) fn metrics(&self, server: &Arc<Server>) -> Arc<Metrics> {
        let metrics = Arc::new(Metrics::new(self.id, server));
        lock(&self.metrics).push((Arc::clone(server), Arc::clone(&metrics)));
        metrics
    }

    /// Forgets a server of which nothing is left.
    pub(super) fn forget(&self, metrics: &Arc<Metrics>) {
        lock(&self.metrics).retain(|(_, other)| !Arc::ptr_eq(other, metrics));
    }

    pub(super) fn sum(&self, of: impl Fn(&Metrics) -> i64) -> usize {
        let sum: i64 = lock(&self.metrics).iter().map(|(_, metrics)| of(metrics)).sum();
        usize::try_from(sum).unwrap_or(0)
    }
}

impl Metrics {
    fn new(pool: u64, server: &Arc<Server>) -> Self {
        Self {
            pool,
            server: Arc::clone(server),
            idle: Gauge::new(),
            busy: Gauge::new(),
            opening: Gauge::new(),
            done: Counter::new(),
            unused: Gauge::new(),
            looks: Counter::new(),
            held: Gauge::new(),
            young: Default::default(),
            opened: Counter::new(),
            moved_in: Counter::new(),
            open_failures: Counter::new(),
            closed: Default::default(),
            waits: Counter::new(),
            wait_seconds: Histogram::default(),
            lease_seconds: Histogram::default(),
        }
    }

    /// A connection is leased. The answer is for [`returned`](Self::returned).
    pub(super) fn lent(&self) -> u64 {
        let look = self.looks.get();
        self.young[(look & 1) as usize].inc();
        look
    }

    /// The same connection is back, or lost.
    pub(super) fn returned(&self, look: u64) {
        match self.looks.get() - look {
            0 | 1 => self.young[(look & 1) as usize].dec(),
            _ => self.held.dec(),
        }
    }

    /// What was leased before the last look, and is out still, is held from here on. `unused`: idle
    /// connections that nobody has used since then.
    pub(super) fn look(&self, unused: usize) {
        self.unused.set(i64::try_from(unused).unwrap_or(i64::MAX));
        let look = self.looks.get() + 1;
        let young = &self.young[(look & 1) as usize];
        for _ in 0..young.get() {
            young.dec();
            self.held.inc();
        }
        self.looks.inc();
    }

    /// Somebody has waited for a connection, in vain or not.
    pub(super) fn waited(&self, duration: Duration) {
        self.waits.inc();
        self.wait_seconds.record(duration);
    }

    fn collect(&self, labels: &[&str; 2], out: &mut Samples) {
        let [cluster, server] = *labels;
        out.gauge(&catalog::POOL_IDLE, labels, self.idle.get());
        out.gauge(&catalog::POOL_BUSY, labels, self.busy.get());
        out.counter(&catalog::POOL_OPENED, labels, self.opened.get());
        out.counter(&catalog::POOL_OPEN_FAILURES, labels, self.open_failures.get());
        out.counter(&catalog::POOL_MOVED, labels, self.moved_in.get());
        for reason in Closed::ALL {
            let count = self.closed[reason as usize].get();
            out.counter(&catalog::POOL_CLOSED, &[cluster, server, reason.label()], count);
        }
        out.counter(&catalog::POOL_WAITS, labels, self.waits.get());
        out.histogram(&catalog::POOL_WAIT_DURATION, labels, &self.wait_seconds);
        out.histogram(&catalog::POOL_LEASE_DURATION, labels, &self.lease_seconds);
    }
}
