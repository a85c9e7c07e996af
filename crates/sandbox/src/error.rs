//! What can go wrong when servers are started, in words that say what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A program that the sandbox runs is not on this machine.
    #[error("{what} was not found: {remedy}")]
    Missing {
        what: &'static str,
        remedy: &'static str,
    },
    /// The program is not the server it should be, or cannot say its version.
    #[error("{path} is not usable as a server: {reason}", path = path.display())]
    Program { path: PathBuf, reason: String },
    #[error("{asked} nodes asked for; a sandbox has 1 to {max}")]
    Nodes { asked: usize, max: usize },
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("no free port on 127.0.0.1: {0}")]
    Port(io::Error),
    /// A first data folder could not be made.
    #[error("{program} could not make a data folder: {output}", program = program.display())]
    Template { program: PathBuf, output: String },
    /// The server ended before it answered. `log` holds the last lines of its log.
    #[error("node {node} ended while it started ({status}); the end of its log:\n{log}")]
    Ended {
        node: usize,
        status: String,
        log: String,
    },
    #[error("node {node}: {what} took more than {} s; the end of its log:\n{log}", waited.as_secs())]
    Timeout {
        node: usize,
        what: String,
        waited: Duration,
        log: String,
    },
    #[error("node {node} is not running")]
    NotRunning { node: usize },
    #[error("cannot send {signal} to node {node}: {source}")]
    Signal {
        node: usize,
        signal: &'static str,
        source: io::Error,
    },
    /// The server refused a statement of [`crate::Node::sql`]; the message is that of its client program.
    #[error("node {node} refused: {message}")]
    Sql { node: usize, message: String },
    #[error("{0}")]
    State(String),
}

impl SandboxError {
    /// `doing` reads before the path: "read", "make a folder in".
    pub(crate) fn io(doing: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Io {
            doing,
            path: path.as_ref().to_path_buf(),
            source,
        }
    }

    /// Whether a server ended since it found its port taken.
    pub(crate) fn is_taken_port(&self) -> bool {
        let signs = ["ddress already in use", "Do you already have another"];
        matches!(self, Self::Ended { log, .. } if signs.iter().any(|sign| log.contains(sign)))
    }
}
