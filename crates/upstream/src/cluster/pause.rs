//! A cluster whose statements wait for a while, since something is done to its servers that no statement
//! should meet.
//!
//! Sessions look at a flag before each statement. Those in a transaction go on, so that it comes to its end.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use super::Cluster;

/// Whether statements wait, and those that do.
#[derive(Default)]
pub(crate) struct Pause {
    is_on: AtomicBool,
    waiting: AtomicU32,
    over: Notify,
    pub(crate) timeouts: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

/// A statement that waits, until this is dropped.
pub struct PausedStatement<'c> {
    cluster: &'c Cluster,
    until: Instant,
}

impl Cluster {
    /// Has statements wait, but for those of transactions, until [`resume`](Self::resume). False where they
    /// do already.
    pub fn pause(&self) -> bool {
        let was_on = self.pause.is_on.swap(true, Ordering::SeqCst);
        if !was_on {
            let limit = self.config().pause_timeout;
            tracing::info!(cluster = self.name(), ?limit, "paused: statements wait");
        }
        !was_on
    }

    /// Has the statements go on that wait, and those that come. False where none had to wait.
    pub fn resume(&self) -> bool {
        let was_on = self.pause.is_on.swap(false, Ordering::SeqCst);
        if was_on {
            let waiting = self.paused_statements();
            tracing::info!(cluster = self.name(), waiting, "resumed: statements go on");
            self.pause.over.notify_waiters();
        }
        was_on
    }

    /// Whether statements wait.
    #[inline]
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.pause.is_on.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn paused_statements(&self) -> u32 {
        self.pause.waiting.load(Ordering::Relaxed)
    }

    /// A place for a statement that has to wait; `None` where `pause_max` of them do already.
    #[must_use]
    pub fn wait_paused(&self) -> Option<PausedStatement<'_>> {
        let config = self.config();
        let one_more = |waiting| (waiting < config.pause_max).then(|| waiting + 1);
        let taken = self
            .pause
            .waiting
            .try_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if taken.is_err() {
            self.pause.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(PausedStatement {
            cluster: self,
            until: Instant::now() + config.pause_timeout,
        })
    }
}

impl PausedStatement<'_> {
    /// Resolves when the cluster goes on; with false after `pause_timeout` in vain.
    pub async fn over(&self) -> bool {
        let pause = &self.cluster.pause;
        loop {
            // Registered before the look, so that no end falls between the two.
            let mut over = std::pin::pin!(pause.over.notified());
            over.as_mut().enable();
            if !self.cluster.is_paused() {
                return true;
            }
            if tokio::time::timeout_at(self.until.into(), over).await.is_err() {
                pause.timeouts.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        }
    }
}

impl Drop for PausedStatement<'_> {
    fn drop(&mut self) {
        self.cluster.pause.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
