//! What lookups need of the memory and of those who keep it fresh.

use std::future::Future;
use std::sync::Arc;
use std::task::Waker;

use config::ReadConsistency;
use dataplane::extension::Gate;
use mysql_wire::gtid::GtidSet;

use crate::mapping::{Mapping, MappingSet};
use crate::store::Found;

/// Rows, as one worker sees them.
pub trait Memory {
    /// The mappings that are served now.
    fn mappings(&self) -> Arc<MappingSet>;

    /// Rises with every statement of the binary log that may change a definition or a grant, before what
    /// comes after it is shown.
    fn definitions(&self) -> u64;

    /// See [`Lookups::gate`](dataplane::extension::Lookups::gate).
    fn gate(&self, task: &Waker) -> Option<Box<dyn Gate>>;

    /// Counts a read that waits for nothing.
    fn note(&self, level: ReadConsistency);

    /// Whether it has what a session has written.
    fn has(&self, own: Option<&GtidSet>) -> bool;

    /// Whether the memory is as fresh as that in time. Counts the read.
    fn fresh(&self, level: ReadConsistency, own: Option<&GtidSet>) -> impl Future<Output = bool>;

    /// Reads a row into `row`.
    fn get(&self, mapping: &Mapping, key: &[u8], row: &mut Vec<u8>) -> Found;

    /// Reads a row of the primary into `row`, for a mapping that does not have all of them; false where there
    /// is none.
    fn fetch(
        &self,
        mapping: &Arc<Mapping>,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> impl Future<Output = Result<bool, ()>>;
}
