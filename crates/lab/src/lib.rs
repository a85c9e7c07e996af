//! The lab measures what a gateway costs and gives, on real processes, and shows it working.
//!
//! [`overhead`] compares this program with HAProxy in front of a server that costs almost nothing, and [`split`] in front of a
//! primary and replicas, on connections that sessions share. [`demo`] runs the
//! gateway in front of three real servers. [`cli`] is how the binary mounts them. Nothing here is on the path of a
//! query.

mod child;
pub mod cli;
pub mod demo;
pub mod machine;
pub mod overhead;
pub mod split;
pub mod usage;
