//! Rows of chosen tables in memory, fed by the binary log, served over the Redis protocol and as answers to
//! point lookups.
//!
//! ```text
//! primary's binary log → feed → store ┬→ redis  (GET, HGET …, where `protocol = "redis"`)
//!                                     └→ lookup (SELECT … WHERE key = ?, where `point_lookups = true`)
//! ```
//!
//! `coherence` says when a row may be shown; `mapping` what a row is; `fill` gets rows that are not there.

mod cache;
pub mod coherence;
pub mod feed;
pub mod lookup;
pub mod mapping;
mod metrics;
mod probes;
pub mod reader;
pub mod redis;
pub mod store;
mod tracking;

pub use cache::Cache;
pub use tracking::Tracking;
