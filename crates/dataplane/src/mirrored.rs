//! The answers to a statement and to its copy on another cluster, for a [`Comparer`].
//!
//! The worker only keeps bytes and figures of both sides, up to limits, and hands them over where both are
//! there. The worker reads no rows, and no client waits for any of this.

use std::sync::Arc;
use std::time::Duration;

use mysql_wire::{Capabilities, Outcome};
use sql_class::{Class, Syntax};

use crate::copied::Copied;

/// A comparer of answers. Called on the worker, so it must not wait.
pub trait Comparer: Send + Sync {
    /// Takes both answers. False where the comparer has no room for more.
    fn compare(&self, pair: Box<Pair>) -> bool;
}

/// A statement that was sent to two clusters, with what came back.
#[derive(Debug)]
pub struct Pair {
    /// The cluster that got the copy.
    pub cluster: Arc<str>,
    /// The text as it was sent to both.
    pub text: Vec<u8>,
    /// The syntax in which the text is read.
    pub syntax: Syntax,
    /// The kind of statement.
    pub class: Class,
    /// The client's own answer.
    pub original: ServerAnswer,
    /// The answer to the copy.
    pub copy: ServerAnswer,
}

/// The answer of a server.
#[derive(Debug)]
pub struct ServerAnswer {
    /// The code of the error that was the answer, or its end.
    pub error: Option<u16>,
    /// Rows of the last result.
    pub rows: u64,
    /// Affected rows of the last result.
    pub affected_rows: u64,
    /// Warnings of the last result.
    pub warnings: u16,
    /// Time from the moment at which the statement was sent until all of the answer was read; of the
    /// original, until its client had taken it.
    pub took: Duration,
    /// The capabilities by which the packets are to be read.
    pub capabilities: Capabilities,
    /// The packets, or none where there were too many bytes of them.
    pub packets: Copied,
}

impl ServerAnswer {
    pub(crate) fn new(
        outcome: &Outcome,
        took: Duration,
        capabilities: Capabilities,
        packets: Copied,
    ) -> Self {
        Self {
            error: outcome.error,
            rows: outcome.rows,
            affected_rows: outcome.affected_rows,
            warnings: outcome.warnings,
            took,
            capabilities,
            packets,
        }
    }
}
