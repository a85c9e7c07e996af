//! What features add to the data plane, as the one extension that it takes.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use dataplane::extension::{
    Extension, Lookups, ProtocolConnection, ProtocolEnd, WorkerExtension, WorkerHandle,
};
use dataplane::finished::Observer;
use dataplane::mirrored::Comparer;
use traffic::capture::Capture;
use traffic::mirrors::Mirrors;

pub(crate) struct Features {
    cache: Option<Arc<dyn Extension>>,
    capture: Arc<Capture>,
    mirrors: Arc<Mirrors>,
}

impl Features {
    pub(crate) fn new(
        cache: Option<Arc<dyn Extension>>,
        capture: Arc<Capture>,
        mirrors: Arc<Mirrors>,
    ) -> Self {
        Self {
            cache,
            capture,
            mirrors,
        }
    }
}

impl Extension for Features {
    fn on_worker(&self, worker: &WorkerHandle) -> Rc<dyn WorkerExtension> {
        Rc::new(WorkerFeatures {
            cache: self.cache.as_ref().map(|cache| cache.on_worker(worker)),
            capture: self.capture.observer(),
            mirrors: Arc::clone(&self.mirrors),
        })
    }

    fn reload(&self, config: &config::Config) {
        if let Some(cache) = &self.cache {
            cache.reload(config);
        }
    }
}

/// What of them lives on a worker.
struct WorkerFeatures {
    cache: Option<Rc<dyn WorkerExtension>>,
    capture: Rc<dyn Observer>,
    mirrors: Arc<Mirrors>,
}

impl WorkerExtension for WorkerFeatures {
    fn serve(&self, connection: ProtocolConnection) -> Pin<Box<dyn Future<Output = ProtocolEnd> + '_>> {
        match &self.cache {
            Some(cache) => cache.serve(connection),
            // The configuration has no such listener without a cache.
            None => Box::pin(async { ProtocolEnd::Protocol("nobody serves this protocol".to_owned()) }),
        }
    }

    fn observers(&self) -> Vec<Rc<dyn Observer>> {
        let mut observers = self
            .cache
            .as_ref()
            .map(|cache| cache.observers())
            .unwrap_or_default();
        // It takes the copies, so it is the last.
        observers.push(Rc::clone(&self.capture));
        observers
    }

    fn comparer(&self) -> Option<Arc<dyn Comparer>> {
        Some(Arc::clone(&self.mirrors) as _)
    }

    fn lookups(&self, listener: &config::Listener) -> Option<Rc<dyn Lookups>> {
        self.cache.as_ref()?.lookups(listener)
    }
}
