//! Keeping the store as fresh as the primary: a replica of its own, that follows the primary's binary log.
//!
//! One thread has the stream, the copies of tables and the store's writer. For each mapping:
//!
//! ```text
//! waiting → reading (its definition) → copying (its rows, beside the stream) → catching up → serving
//!    ↑__________ DDL, another primary without our last transaction, a purged log, rows not understood
//! ```
//!
//! A mapping is served when the stream has passed the position that was the primary's after its copy. Why rows of a copy do
//! not hide newer ones is in `window`; what the stream must be like is in `preflight`; statements that change
//! tables without row events are seen by their words (`words`).

mod account;
mod apply;
mod board;
mod containers;
mod copy;
mod dump;
mod indexes;
pub(crate) mod link;
mod machine;
mod objects;
mod pages;
mod preflight;
mod prepared;
mod progress;

mod stream;
mod tables;
mod thread;
mod watch;
mod window;
mod words;

pub use board::{Board, Fill, MappingState, Phase};
pub use containers::MAPPING_TABLES;
pub(crate) use dump::source_id;
pub(crate) use preflight::words_of_mariadb;
pub use thread::{Feed, FeedError};
