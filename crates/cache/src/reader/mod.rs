//! Reading on a worker: waiting until memory is new enough, looking into it, and asking the primary for what
//! is not there.

mod fetch;
mod index;
mod position_query;
mod primary_connection;
mod sql;
mod wait_list;

use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use config::Consistency;
use mysql_wire::gtid::GtidSet;
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, timeout};
use upstream::Cluster;

pub use fetch::{BYTES_MAX, NotFetched, Want};
pub use index::Gate;

use crate::coherence::Applied;
use crate::feed::FeedStatus;
use crate::mapping::{Mapping, MappingSet};
use crate::store::{Found, Store};
use fetch::Fetcher;
use index::Index;
use primary_connection::Primary;

/// Memory was not new enough in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory was not as new as the read demands within {} ms: {reason}", .waited.as_millis())]
pub struct NotFresh {
    pub waited: Duration,
    pub reason: Arc<str>,
}

/// The reader of one worker.
///
/// A read first waits for [`fresh`](Self::fresh), then looks into memory ([`get`](Self::get), or the
/// [`store`](Self::store) itself with [`mappings`](Self::mappings)), and then, where that does not know, asks
/// with [`fetch`](Self::fetch).
pub struct Reader {
    store: Arc<Store>,
    feed_status: Arc<FeedStatus>,
    applied: watch::Receiver<Arc<Applied>>,
    index: Rc<Index>,
    fetcher: Fetcher,
    /// Longest wait of a read.
    limit: Duration,
    metrics: Arc<telemetry::Worker>,
    /// Asks the primary on behalf of strong reads.
    driver: AbortHandle,
}

impl Reader {
    /// Must be called on the worker, in its `LocalSet`. `cluster` is that of the cache, and `metrics` the
    /// worker's.
    #[must_use]
    pub fn new(
        config: &config::Cache,
        cluster: Arc<Cluster>,
        store: Arc<Store>,
        feed_status: Arc<FeedStatus>,
        metrics: Arc<telemetry::Worker>,
    ) -> Rc<Self> {
        let limit = config.strong_wait;
        let primary = Rc::new(Primary::new(config, cluster, Arc::clone(&feed_status)));
        let index = Index::new(Arc::clone(feed_status.probes()), limit, Arc::clone(&metrics));
        let driver =
            spawn_local(Rc::clone(&index).drive(Rc::clone(&primary), feed_status.applied())).abort_handle();
        Rc::new(Self {
            fetcher: Fetcher::new(
                primary,
                Arc::clone(&store),
                Arc::clone(&feed_status),
                limit,
                Arc::clone(&metrics),
            ),
            applied: feed_status.applied(),
            store,
            feed_status,
            index,
            limit,
            metrics,
            driver,
        })
    }

    /// Waits until memory is as new as a read demands that arrives now. `session` are the transactions that a
    /// `session` read must see. `eventual` costs nothing.
    ///
    /// # Errors
    /// It is not so within `strong_wait`. The read must fail.
    #[inline]
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps each argument twice that it needs behind a wait, in every connection"
    )]
    pub fn fresh<'r>(
        &'r self,
        level: Consistency,
        session: Option<&'r GtidSet>,
    ) -> impl Future<Output = Result<(), NotFresh>> + 'r {
        async move {
            match level {
                Consistency::Eventual => {
                    self.metrics.cache.eventual.inc();
                    Ok(())
                }
                Consistency::Strong => {
                    self.metrics.cache.strong.inc();
                    self.index.fresh().await.map_err(|error| self.explained(error))
                }
                Consistency::Session => {
                    self.metrics.cache.session.inc();
                    match session.filter(|session| !session.is_empty()) {
                        Some(session) => self.has(session).await,
                        None => Ok(()),
                    }
                }
            }
        }
    }

    /// Why no binary log is followed, where that is what it comes from.
    fn explained(&self, error: NotFresh) -> NotFresh {
        let stream = self.feed_status.stream();
        match self.applied.borrow().position.is_none() && stream.starts_with("not following ") {
            true => NotFresh {
                reason: stream.as_str().into(),
                ..error
            },
            false => error,
        }
    }

    /// A gate for the connection that this task serves: its strong reads wait before they are read from its
    /// socket.
    #[must_use]
    pub fn gate(&self, task: &Waker) -> Gate {
        self.index.gate(task)
    }

    /// Counts reads that did not wait by themselves: another that came with them has waited in
    /// [`fresh`](Self::fresh), or there was nothing to wait for.
    pub fn note_reads(&self, level: Consistency, reads: u64) {
        let cache = &self.metrics.cache;
        let counter = match level {
            Consistency::Eventual => &cache.eventual,
            Consistency::Strong => &cache.strong,
            Consistency::Session => &cache.session,
        };
        counter.add(reads);
    }

    /// Looks into memory. [`Found::Absent`] is said only where the server would say so, too.
    #[inline]
    pub fn get(&self, mapping: &Mapping, key: &[u8], row: &mut Vec<u8>) -> Found {
        match self.store.get(mapping.id, key, row) {
            Found::Absent if mapping.may_be_beyond() => Found::Missing,
            found => found,
        }
    }

    /// The rows of these keys from the primary, all of one moment that is not before this call, in the order
    /// of `wants`. They are given to memory where it has room for them (mode `bounded`).
    ///
    /// # Errors
    /// The primary does not tell within `strong_wait`, or the rows take more than [`BYTES_MAX`].
    pub async fn fetch(&self, wants: &[Want<'_>]) -> Result<Vec<Option<Vec<u8>>>, NotFetched> {
        self.fetch_within(wants, BYTES_MAX).await
    }

    /// The same for rows that take no more than `bytes_max` of memory, together.
    pub async fn fetch_within(
        &self,
        wants: &[Want<'_>],
        bytes_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, NotFetched> {
        self.fetcher.fetch(wants, bytes_max).await
    }

    /// The rows themselves, for those who read several at once.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What the feed tells of itself.
    #[must_use]
    pub fn feed_status(&self) -> &Arc<FeedStatus> {
        &self.feed_status
    }

    /// The mappings of this moment.
    #[must_use]
    pub fn mappings(&self) -> Arc<MappingSet> {
        self.feed_status.mappings()
    }

    /// Whether memory is known to have these transactions of a session.
    #[must_use]
    pub fn has_applied(&self, session: Option<&GtidSet>) -> bool {
        match session.filter(|session| !session.is_empty()) {
            Some(session) => self.applied.borrow().has(session),
            None => true,
        }
    }

    async fn has(&self, session: &GtidSet) -> Result<(), NotFresh> {
        if self.applied.borrow().numbered_alone {
            // All that the cluster has committed does instead.
            return self.index.fresh().await.map_err(|error| self.explained(error));
        }
        if self.has_applied(Some(session)) {
            return Ok(());
        }
        let since = Instant::now();
        let mut applied = self.applied.clone();
        let waited = timeout(self.limit, applied.wait_for(|applied| applied.has(session))).await;
        let is_fresh = matches!(waited, Ok(Ok(_)));
        self.metrics.cache.wait_seconds.record(since.elapsed());
        if is_fresh {
            return Ok(());
        }
        self.metrics.cache.not_fresh.inc();
        let stream = self.feed_status.stream();
        Err(NotFresh {
            waited: self.limit,
            reason: format!("the session's own writes are not applied ({stream})").into(),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
