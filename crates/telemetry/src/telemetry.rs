//! The root: workers, control series and sources of one process.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{ControlMetrics, Format, Samples, Source, Worker, catalog, exposition, process};

/// All telemetry of one process. Made once by the binary and handed down.
pub struct Telemetry {
    /// Series of the control thread.
    pub control: ControlMetrics,
    workers: Vec<Arc<Worker>>,
    sources: Mutex<Vec<Arc<dyn Source>>>,
    command_name: fn(u8) -> &'static str,
}

impl Telemetry {
    /// Telemetry for `workers` worker threads. `command_name` gives the label of a command byte; bytes that
    /// share a name share a series.
    #[must_use]
    pub fn new(workers: usize, command_name: fn(u8) -> &'static str) -> Arc<Self> {
        Arc::new(Self {
            control: ControlMetrics::default(),
            workers: (0..workers).map(|index| Arc::new(Worker::new(index))).collect(),
            sources: Mutex::default(),
            command_name,
        })
    }

    /// The series of one worker.
    ///
    /// # Panics
    /// If `index` is not below the number of workers given to [`new`](Self::new).
    #[must_use]
    pub fn worker(&self, index: usize) -> Arc<Worker> {
        Arc::clone(&self.workers[index])
    }

    /// The series of all workers, by index.
    #[must_use]
    pub fn workers(&self) -> &[Arc<Worker>] {
        &self.workers
    }

    /// Has `source` asked at every scrape, for the rest of the process. Owners of a changing set of things
    /// (clusters) register once and walk the set, so that what is removed is no longer shown.
    pub fn register(&self, source: Arc<dyn Source>) {
        self.sources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(source);
    }

    /// Every metric as it is now, in the Prometheus text format 0.0.4.
    #[must_use]
    pub fn encode(&self) -> String {
        self.encode_as(Format::Prometheus)
    }

    /// Every metric as it is now, in the given format. Takes well under a millisecond for ten servers; reads
    /// `/proc`.
    #[must_use]
    pub fn encode_as(&self, format: Format) -> String {
        let mut samples = Samples::default();
        samples.gauge(&catalog::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
        process::collect(&mut samples);
        self.control.collect(&mut samples);
        for worker in &self.workers {
            worker.collect(self.command_name, &mut samples);
        }
        // Cloned, so that a slow source delays this scrape and not those who register.
        let sources = self
            .sources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for source in &sources {
            source.collect(&mut samples);
        }
        exposition::write(&samples, format)
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry")
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}
