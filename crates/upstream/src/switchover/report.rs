//! How far a switchover is, for who looks on.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Failure;
use crate::lock::lock;

/// A switchover as it is seen from outside.
pub struct Report {
    pub cluster: String,
    /// The primary that there was.
    pub from: String,
    /// The one that there is to be.
    pub to: String,
    began: Instant,
    told: Mutex<ReportedProgress>,
}

/// What has happened so far.
#[derive(Clone, Debug)]
pub struct ReportedProgress {
    pub state: State,
    /// What was done, in this order.
    pub steps: Vec<ReportedStep>,
    /// What somebody should know, or do.
    pub warnings: Vec<String>,
    /// Why it is not [`Done`](State::Done).
    pub reason: String,
    /// For how long statements have waited.
    pub paused: Option<Duration>,
}

/// How a switchover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is under way.
    Running,
    /// The new server is the primary.
    Done,
    /// Nothing was changed.
    Refused,
    /// What was changed has been put back.
    Undone,
    /// The rest is to be done by hand.
    Failed,
}

/// One thing that a switchover has done.
#[derive(Clone, Debug)]
pub struct ReportedStep {
    pub what: String,
    /// How long after its beginning.
    pub at: Duration,
}

impl State {
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Undone => "undone",
            Self::Failed => "failed",
        }
    }
}

impl Report {
    pub(super) fn new(cluster: &str, from: &str, to: &str) -> Self {
        let told = ReportedProgress {
            state: State::Running,
            steps: Vec::new(),
            warnings: Vec::new(),
            reason: String::new(),
            paused: None,
        };
        Self {
            cluster: cluster.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            began: Instant::now(),
            told: Mutex::new(told),
        }
    }

    /// All of it, now.
    #[must_use]
    pub fn told(&self) -> ReportedProgress {
        lock(&self.told).clone()
    }

    /// Somebody should know this, or do it.
    pub fn warn(&self, what: String) {
        tracing::warn!(cluster = self.cluster, to = self.to, "switchover: {what}");
        lock(&self.told).warnings.push(what);
    }

    pub(super) fn step(&self, what: String) {
        tracing::info!(cluster = self.cluster, to = self.to, "switchover: {what}");
        let at = self.began.elapsed();
        lock(&self.told).steps.push(ReportedStep { what, at });
    }

    pub(super) fn paused(&self, paused: Duration) {
        lock(&self.told).paused = Some(paused);
    }

    pub(super) fn end(&self, result: Result<(), Failure>) {
        let (state, reason) = match result {
            Ok(()) => (State::Done, String::new()),
            Err(Failure::Refused(reason)) => (State::Refused, reason),
            Err(Failure::Undone(reason)) => (State::Undone, reason),
            Err(Failure::Failed(reason)) => (State::Failed, reason),
        };
        let (cluster, from, to) = (&self.cluster, &self.from, &self.to);
        match state {
            State::Done => tracing::info!(cluster, from, to, "switchover done"),
            State::Failed => tracing::error!(cluster, from, to, reason, "switchover failed in the middle"),
            _ => tracing::warn!(cluster, from, to, reason, state = state.label(), "no switchover"),
        }
        let mut told = lock(&self.told);
        (told.state, told.reason) = (state, reason);
    }

    /// It was dropped before its end.
    pub(super) fn is_left(&self) {
        if lock(&self.told).state == State::Running {
            let cause = "it has come to no end: look at both servers (read_only, replication), and put right by hand what is not";
            self.end(Err(Failure::Failed(cause.to_owned())));
        }
    }
}
