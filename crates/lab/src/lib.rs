//! The lab measures what a gateway costs and gives, on real processes.
//!
//! [`overhead`] compares this program with HAProxy in front of a server that costs almost nothing. [`cli`] is how the
//! binary mounts it. Nothing here is on the path of a query.

pub mod cli;
pub mod machine;
pub mod overhead;
pub mod usage;
