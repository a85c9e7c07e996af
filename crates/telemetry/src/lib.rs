//! What Forebay tells its operators: metrics in the Prometheus and OpenMetrics text formats, and the log.
//!
//! Every metric is declared once, in [`metrics`]. Series that the data plane writes live in a [`Worker`]
//! each: one thread writes them with a plain load and store, nothing is locked or shared on the path of a
//! query, and the values of all workers are summed when somebody asks. Values that have an owner already
//! (server states, queues) are read from that owner at the moment of the scrape, through a [`Source`].
//!
//! There is no global registry: who wants to count is given the [`Telemetry`] or a [`Worker`] of it.

mod cells;
mod control;
pub mod docs;
mod end_reason;
mod error_table;
mod exposition;
mod fault;
mod histogram;
mod labels;
pub mod log;
mod metric;
mod process;
mod samples;
mod telemetry;
mod worker;
mod worker_metrics;

pub use cells::{Counter, Gauge};
pub use control::{ControlMetrics, Refusal};
pub use end_reason::EndReason;
pub use exposition::Format;
pub use fault::Fault;
pub use histogram::{Histogram, Snapshot};
pub use metric::{Kind, MetricDoc, catalog, metrics};
pub use process::resident_memory;
pub use samples::{Samples, Source};
pub use telemetry::Telemetry;
pub use worker::Worker;
pub use worker_metrics::{CacheMetrics, ListenerMetrics, MirrorMetrics, OTHER, ServerMetrics};
