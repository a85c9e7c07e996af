//! What the cache shows at a scrape, besides what workers count.

use std::sync::Arc;

use telemetry::{Samples, Source, catalog};

use crate::feed::{FeedStatus, Phase};
use crate::store::Store;

/// The feed's and the store's values.
pub(crate) struct Metrics {
    feed_status: Arc<FeedStatus>,
    store: Arc<Store>,
}

impl Metrics {
    pub(crate) fn new(feed_status: &Arc<FeedStatus>, store: &Arc<Store>) -> Self {
        Self {
            feed_status: Arc::clone(feed_status),
            store: Arc::clone(store),
        }
    }
}

impl Source for Metrics {
    fn collect(&self, out: &mut Samples) {
        let mappings = self.feed_status.mappings();
        for state in self.feed_status.states().iter() {
            let name = &*state.name;
            out.state(
                &catalog::CACHE_MAPPING_STATE,
                &[name],
                &Phase::LABELS,
                state.phase.label(),
            );
            let mapping = mappings.by_name(name.as_bytes());
            let rows = mapping.and_then(|mapping| self.store.len(mapping.id));
            out.gauge(&catalog::CACHE_ROWS, &[name], rows.unwrap_or(0));
        }
        let counts = &self.feed_status.counts;
        out.counter(&catalog::CACHE_FEED_TRANSACTIONS, &[], counts.transactions.get());
        out.counter(&catalog::CACHE_FEED_ROWS, &[], counts.rows.get());
        out.counter(&catalog::CACHE_FEED_CONNECTS, &[], counts.connects.get());
        out.counter(&catalog::CACHE_COPIES, &[], counts.copies.get());
        out.counter(&catalog::CACHE_COPIED_ROWS, &[], counts.copied_rows.get());
        out.float(&catalog::CACHE_FEED_LAG, &[], self.feed_status.lag());
        let memory = self.store.memory();
        out.gauge(&catalog::CACHE_MEMORY, &[], memory.held);
        out.gauge(&catalog::CACHE_MEMORY_MAX, &[], memory.memory_max);
        out.counter(&catalog::CACHE_EVICTED, &[], memory.evicted);
    }
}
