//! The cache as a whole: one store, one feed, and on each worker a reader for Redis clients and point
//! lookups.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use config::ReadConsistency;
use dataplane::extension::{
    Extension, Gate, Lookups, ProtocolConnection, ProtocolEnd, WorkerExtension, WorkerHandle,
};
use mysql_wire::gtid::GtidSet;
use telemetry::Telemetry;
use upstream::Cluster;

use crate::feed::{Feed, FeedError, FeedStatus};
use crate::lookup::{Memory, PointLookups};
use crate::mapping::{Mapping, MappingSet};
use crate::metrics::Metrics;
use crate::reader::{Reader, Want};
use crate::redis;
use crate::store::{Found, Store};

/// A running cache. Dropping it ends its feed; what workers have of it goes with them.
pub struct Cache {
    config: config::Cache,
    cluster: Arc<Cluster>,
    store: Arc<Store>,
    feed: Feed,
    redis: Arc<redis::Shared>,
}

impl Cache {
    /// Starts a cache of `cluster`. Its rows come later: [`states`](FeedStatus::states) tells how far they
    /// are.
    pub fn start(
        config: &config::Cache,
        cluster: Arc<Cluster>,
        telemetry: &Telemetry,
    ) -> Result<Arc<Self>, FeedError> {
        let (store, writer) = Store::new(config.memory_max.0);
        let feed = Feed::start(config, Arc::clone(&cluster), writer)?;
        telemetry.register(Arc::new(Metrics::new(feed.status(), &store)));
        telemetry.register(Arc::clone(feed.status().tracking()) as _);
        let redis = redis::Shared::new(config);
        telemetry.register(Arc::clone(&redis) as _);
        Ok(Arc::new(Self {
            config: config.clone(),
            cluster,
            store,
            feed,
            redis,
        }))
    }

    /// What the feed tells: how mappings are, how far the stream is.
    #[must_use]
    pub fn feed_status(&self) -> &Arc<FeedStatus> {
        self.feed.status()
    }

    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Extension for Cache {
    fn reload(&self, config: &config::Config) {
        // With another cluster, or none, they wait for the restart that this takes.
        let ours = config
            .cache
            .as_ref()
            .filter(|new| new.cluster == self.config.cluster);
        if let Some(new) = ours {
            self.feed.reload(new);
        }
    }

    fn on_worker(&self, worker: &WorkerHandle) -> Rc<dyn WorkerExtension> {
        let reader = Reader::new(
            &self.config,
            Arc::clone(&self.cluster),
            Arc::clone(&self.store),
            Arc::clone(self.feed_status()),
            Arc::clone(&worker.metrics),
        );
        let memory = WorkerMemory(Rc::clone(&reader));
        Rc::new(Part {
            redis: redis::Service::new(reader, Arc::clone(&self.redis)),
            lookups: PointLookups::start(memory),
            cluster: self.config.cluster.clone(),
        })
    }
}

/// What lives on a worker.
struct Part {
    redis: redis::Service,
    lookups: Rc<PointLookups<WorkerMemory>>,
    cluster: String,
}

impl WorkerExtension for Part {
    fn serve(&self, connection: ProtocolConnection) -> Pin<Box<dyn Future<Output = ProtocolEnd> + '_>> {
        Box::pin(self.redis.serve(connection))
    }

    fn lookups(&self, listener: &config::Listener) -> Option<Rc<dyn Lookups>> {
        let ours = listener.point_lookups && listener.cluster == self.cluster;
        ours.then(|| Rc::clone(&self.lookups) as Rc<dyn Lookups>)
    }
}

/// Memory as point lookups see it.
struct WorkerMemory(Rc<Reader>);

impl Memory for WorkerMemory {
    fn mappings(&self) -> Arc<MappingSet> {
        self.0.mappings()
    }

    fn definitions(&self) -> u64 {
        self.0.feed_status().definitions()
    }

    fn gate(&self, task: &Waker) -> Option<Box<dyn Gate>> {
        Some(Box::new(self.0.gate(task)))
    }

    fn note(&self, level: ReadConsistency) {
        self.0.note_reads(level, 1);
    }

    fn has(&self, own: Option<&GtidSet>) -> bool {
        self.0.has_applied(own)
    }

    async fn fresh(&self, level: ReadConsistency, own: Option<&GtidSet>) -> bool {
        self.0.fresh(level, own).await.is_ok()
    }

    fn get(&self, mapping: &Mapping, key: &[u8], row: &mut Vec<u8>) -> Found {
        self.0.get(mapping, key, row)
    }

    async fn fetch(&self, mapping: &Arc<Mapping>, key: &[u8], row: &mut Vec<u8>) -> Result<bool, ()> {
        let wants = [Want { mapping, key }];
        let found = self.0.fetch(&wants).await.map_err(drop)?.pop().flatten();
        row.clear();
        row.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }
}
