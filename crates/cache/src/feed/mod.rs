//! Keeping the store as fresh as the primary: a replica of its own, that follows the primary's binary log.
//!
//! One thread has the stream, the copies of tables and the store's writer. For each mapping:
//!
//! ```text
//! waiting → reading (its definition) → copying (its rows, beside the stream) → catching up → serving
//!    ↑__________ DDL, another primary without our last transaction, a purged log, rows not understood
//! ```
//!
//! A mapping is served when the stream has passed the position that was the primary's after its copy. Why
//! rows of a copy do not hide newer ones is in `copy_window`; what the stream must be like is in `preflight`;
//! statements that change tables without row events are seen by their words (`statement_kind`).

mod account;
mod apply;
mod copy;
mod dump;
mod indexes;
pub(crate) mod link;
mod mapping_tables;
mod pages;
mod preflight;
mod prepared;
mod progress;
mod source;
mod status;

mod copy_window;
mod log_continuity;
mod stream;
mod tables;
mod thread;

pub(crate) use dump::source_id;
pub use mapping_tables::MAPPING_TABLES;
pub(crate) use preflight::{NEW_STATUS, OLD_STATUS, words_of_mariadb};
pub use status::{FeedStatus, Fill, MappingState, Phase};
pub use thread::{Feed, FeedError};
