//! What pools count, and how they find one another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telemetry::{Counter, Gauge, Histogram, Samples, catalog};
use tokio::sync::Notify;

use crate::server::Server;

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
    /// Its login was too old for a session that has begun since.
    Login,
    /// The server's name has another address now.
    Moved,
    /// The configuration asks for another kind of connection now.
    Config,
    /// Its seat went to another account, or to a session without a pool.
    Handover,
    /// `max_connections` of the server was lowered.
    Limit,
    /// The pool is gone.
    Shutdown,
}

impl Closed {
    const ALL: [Self; 12] = [
        Self::Dropped,
        Self::MaxAge,
        Self::IdleTimeout,
        Self::Broken,
        Self::Ping,
        Self::Server,
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
pub(super) struct Series {
    /// The pool's number.
    pub(super) pool: u64,
    pub(super) server: Arc<Server>,
    pub(super) idle: Gauge,
    pub(super) busy: Gauge,
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
}

/// A pool as the others see it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: u64,
    /// Somebody elsewhere waits for a connection.
    pub(super) called: Notify,
    series: Mutex<Vec<(Arc<Server>, Arc<Series>)>>,
}

impl Pools {
    pub(super) fn enter(&self) -> Arc<Member> {
        let member = Arc::new(Member {
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            called: Notify::new(),
            series: Mutex::default(),
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

    pub(crate) fn collect(&self, cluster: &str, out: &mut Samples) {
        for member in lock(&self.members).iter() {
            for (server, series) in lock(&member.series).iter() {
                series.collect(&[cluster, server.name()], out);
            }
        }
    }
}

impl Member {
    /// The series of a server. Looked up once a server, and kept.
    pub(super) fn series(&self, server: &Arc<Server>) -> Arc<Series> {
        let series = Arc::new(Series::new(self.id, server));
        lock(&self.series).push((Arc::clone(server), Arc::clone(&series)));
        series
    }

    /// Forgets a server of which nothing is left.
    pub(super) fn forget(&self, series: &Arc<Series>) {
        lock(&self.series).retain(|(_, other)| !Arc::ptr_eq(other, series));
    }

    pub(super) fn sum(&self, of: impl Fn(&Series) -> i64) -> usize {
        let sum: i64 = lock(&self.series).iter().map(|(_, series)| of(series)).sum();
        usize::try_from(sum).unwrap_or(0)
    }
}

impl Series {
    fn new(pool: u64, server: &Arc<Server>) -> Self {
        Self {
            pool,
            server: Arc::clone(server),
            idle: Gauge::new(),
            busy: Gauge::new(),
            opened: Counter::new(),
            moved_in: Counter::new(),
            open_failures: Counter::new(),
            closed: Default::default(),
            waits: Counter::new(),
            wait_seconds: Histogram::default(),
            lease_seconds: Histogram::default(),
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
