//! Rows in memory: one writer applies transactions, any number of threads read.
//!
//! Keys and rows are bytes that mean nothing here. A transaction becomes visible as a whole; what a reader
//! gets is one state between two transactions.

mod arena;
mod classes;
mod evict;
mod index;
mod layout;
mod read;
mod rows;
mod segments;
mod types;
mod writer;

pub use read::{Store, View};
pub use types::{Accounting, FillTicket, Found, MappingId, Mode, NotRead, Stopped, Version};
pub use writer::Writer;

/// The longest key, in bytes: an index of the servers has at most 3072, and a key its types and lengths
/// besides.
pub const KEY_MAX: usize = 4096;
/// The longest row, in bytes.
pub const ROW_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests;
