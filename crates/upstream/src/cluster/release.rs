//! Who has waited for a new primary is let through a few at a time, so that it is not overrun by all who have
//! gathered meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

use super::Cluster;

/// Who was let through and is not done yet, and who waits for that.
#[derive(Default)]
pub(crate) struct Release {
    under_way: AtomicU32,
    done: Notify,
    waiting: AtomicU32,
    pub(crate) total: AtomicU64,
}

/// One that was let through, until this is dropped.
pub struct Released(Arc<Cluster>);

/// One that waits.
struct InLine<'c>(&'c Release);

impl Cluster {
    /// Waits until fewer than `failover_release` are under way, or for as long: then there are more.
    pub async fn release(self: &Arc<Self>, until: Instant) -> Released {
        if self.release.take(self.config().failover_release) {
            return Released(Arc::clone(self));
        }
        let in_line = InLine::new(&self.release);
        loop {
            // Registered before the look, so that nobody's end falls between the two.
            let mut done = std::pin::pin!(self.release.done.notified());
            done.as_mut().enable();
            if self.release.take(self.config().failover_release) {
                break;
            }
            if tokio::time::timeout_at(until.into(), done).await.is_err() {
                self.release.under_way.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
        drop(in_line);
        Released(Arc::clone(self))
    }

    /// One that has waited has a server now.
    pub fn count_released(&self) {
        self.release.total.fetch_add(1, Ordering::Relaxed);
    }

    /// Those who wait to be let through now.
    #[must_use]
    pub fn waiting_for_release(&self) -> u32 {
        self.release.waiting.load(Ordering::Relaxed)
    }
}

impl Release {
    fn take(&self, most: u32) -> bool {
        let one_more = |under_way| (most == 0 || under_way < most).then(|| under_way + 1);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        self.under_way.try_update(set, fetch, one_more).is_ok()
    }
}

impl<'c> InLine<'c> {
    fn new(release: &'c Release) -> Self {
        release.waiting.fetch_add(1, Ordering::Relaxed);
        Self(release)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.0.release.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.release.done.notify_one();
    }
}
