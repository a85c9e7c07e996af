//! Probes of the cache: those of all workers, and whom the feed follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use upstream::{Arrival, Probe};

use crate::coherence::{Position, SourceId};

/// How probes of the cache have ended.
pub(crate) type Ended = upstream::Ended<Position>;

/// Time after which another worker asks, too. Between servers that are far from each other each worker asks
/// for itself.
const OVERDUE: Duration = Duration::from_millis(10);

/// See the module.
pub(crate) struct Probes {
    of_all: upstream::Probes<Position>,
    /// Whom the feed follows; 0 where that is nobody yet.
    followed: AtomicU64,
    elsewhere: Notify,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            of_all: upstream::Probes::new(OVERDUE),
            followed: AtomicU64::default(),
            elsewhere: Notify::default(),
        }
    }
}

impl Probes {
    /// See [`upstream::Probes::arrive`].
    pub(crate) fn arrive(&self) -> Arrival {
        self.of_all.arrive()
    }

    /// See [`upstream::Probes::send`].
    pub(crate) fn send(&self, now: Instant) -> Result<Probe, Instant> {
        self.of_all.send(now)
    }

    /// The feed follows this one from now on.
    pub(crate) fn follow(&self, source: SourceId) {
        self.followed.store(source.0, Ordering::Relaxed);
    }

    /// It follows another one.
    pub(crate) fn is_elsewhere(&self, source: SourceId) -> bool {
        let followed = self.followed.load(Ordering::Relaxed);
        followed != 0 && followed != source.0
    }

    /// Waits for an answer of another one than the feed follows.
    pub(crate) async fn elsewhere(&self) {
        self.elsewhere.notified().await;
    }

    /// The end of a probe, for all to hear.
    pub(crate) fn end(&self, probe: Probe, answer: &Result<Position, Arc<str>>) {
        if answer
            .as_ref()
            .is_ok_and(|position| self.is_elsewhere(position.source))
        {
            self.elsewhere.notify_one();
        }
        self.of_all.end(probe, answer);
    }

    /// How probes end, from now on.
    pub(crate) fn ended(&self) -> watch::Receiver<Ended> {
        self.of_all.ended()
    }
}
