//! The answers to a statement and to its copy on another cluster, for whoever compares them.
//!
//! The worker only keeps bytes and figures of both sides, up to limits, and hands them over where both are
//! there. It reads no rows, and no client waits for any of it.

use std::sync::Arc;
use std::time::Duration;

use mysql_wire::{Capabilities, Outcome};
use sql_class::{Class, Syntax};

use crate::copied::Copied;

/// Who compares answers. Asked on the worker: it must not wait.
pub trait Comparer: Send + Sync {
    /// Takes both answers. False where it has no room for more.
    fn compare(&self, pair: Box<Pair>) -> bool;
}

/// A statement that was sent to two clusters, with what came back.
#[derive(Debug)]
pub struct Pair {
    /// The cluster that got the copy.
    pub cluster: Arc<str>,
    /// As it was sent to both.
    pub text: Vec<u8>,
    /// How the text is read.
    pub syntax: Syntax,
    /// What kind of statement it is.
    pub class: Class,
    /// The client's own answer.
    pub original: ServerAnswer,
    /// The copy's.
    pub copy: ServerAnswer,
}

/// What a server has answered.
#[derive(Debug)]
pub struct ServerAnswer {
    /// The code of the error that was the answer, or its end.
    pub error: Option<u16>,
    /// Rows of the last result.
    pub rows: u64,
    /// Of the last result.
    pub affected_rows: u64,
    /// Of the last result.
    pub warnings: u16,
    /// From the moment at which the statement was sent until all of the answer was read; of the original,
    /// until its client had taken it.
    pub took: Duration,
    /// In which form the packets are.
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
