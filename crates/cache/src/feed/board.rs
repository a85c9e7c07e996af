//! What other threads see of the feed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc, watch};

use crate::coherence::Applied;
use crate::mapping::MappingSet;
use crate::probes::Probes;
use crate::store::FillTicket;
use crate::tracking::Tracking;

/// Rows from the server that wait for being kept.
const FILLS_MAX: usize = 1024;

/// Time without a word of the primary that is no lag: more than two heartbeats.
const QUIET_MS: u64 = 1000;

/// What the feed tells, and what it is told. Shared by all threads.
pub struct Board {
    applied: watch::Sender<Arc<Applied>>,
    mappings: ArcSwap<MappingSet>,
    definitions: AtomicU64,
    states: ArcSwap<Vec<MappingState>>,
    stream: ArcSwap<String>,
    fills: mpsc::Sender<Fill>,
    tracking: Arc<Tracking>,
    probes: Arc<Probes>,
    flush: Notify,
    pub(crate) counts: Counts,
}

/// Rows that were asked of the server, for a bounded mapping.
#[derive(Debug)]
pub struct Fill {
    pub ticket: FillTicket,
    pub key: Box<[u8]>,
    /// `None`: there is no such row.
    pub row: Option<Box<[u8]>>,
}

/// How a mapping is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingState {
    pub name: Box<str>,
    /// `schema.table`.
    pub table: Box<str>,
    /// The mapping table that it is a row of. `None`: the configuration has it.
    pub row_of: Option<Box<str>>,
    pub phase: Phase,
}

/// On its way to being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its turn has not come, or it cannot be served now and is tried again.
    Waiting {
        reason: Box<str>,
    },
    /// Its definition is being read.
    Reading,
    /// Its rows are being read.
    Copying {
        rows: u64,
        /// As far as the server knows how many rows the table has.
        percent: u8,
    },
    /// Its rows are there, and not yet as new as the newest of them.
    CatchingUp,
    Serving,
    /// It cannot be served, until its table or its definition is changed, or somebody asks for another try.
    Stopped {
        reason: Box<str>,
    },
}

impl Phase {
    /// All of them, in the order of metrics.
    pub const LABELS: [&str; 6] = [
        "waiting",
        "reading",
        "copying",
        "catching_up",
        "serving",
        "stopped",
    ];

    /// The word in metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Reading => "reading",
            Self::Copying { .. } => "copying",
            Self::CatchingUp => "catching_up",
            Self::Serving => "serving",
            Self::Stopped { .. } => "stopped",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { reason } if reason.is_empty() => f.write_str("waiting"),
            Self::Waiting { reason } => write!(f, "waiting: {reason}"),
            Self::Reading => f.write_str("reading its definition"),
            Self::Copying { percent, .. } => write!(f, "copying {percent} %"),
            Self::CatchingUp => f.write_str("catching up"),
            Self::Serving => f.write_str("serving"),
            Self::Stopped { reason } => write!(f, "stopped: {reason}"),
        }
    }
}

/// What has happened so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) transactions: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) copies: AtomicU64,
    pub(crate) copied_rows: AtomicU64,
    /// Seconds since 1970 on the primary's clock: when the statement began that came last. 0 where nothing came since.
    pub(crate) last_event: AtomicU64,
    /// Seconds that this was old when it was applied.
    behind: AtomicU64,
    /// Milliseconds since 1970 on our clock: when something was heard of the primary.
    heard: AtomicU64,
}

impl Counts {
    /// All that has come until now is applied.
    pub(super) fn note_heard(&self) {
        let now = now_ms();
        let last = self.last_event.load(Ordering::Relaxed);
        let behind = if last == 0 {
            0
        } else {
            (now / 1000).saturating_sub(last)
        };
        self.behind.store(behind, Ordering::Relaxed);
        self.heard.store(now, Ordering::Relaxed);
    }

    pub(super) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

impl Board {
    pub(crate) fn new(applied: Applied, tracking: Arc<Tracking>) -> (Arc<Self>, mpsc::Receiver<Fill>) {
        let (fills, orders) = mpsc::channel(FILLS_MAX);
        let board = Self {
            applied: watch::Sender::new(Arc::new(applied)),
            mappings: ArcSwap::default(),
            definitions: AtomicU64::new(0),
            states: ArcSwap::default(),
            stream: ArcSwap::default(),
            fills,
            tracking,
            probes: Arc::default(),
            flush: Notify::new(),
            counts: Counts::default(),
        };
        (Arc::new(board), orders)
    }

    /// What the store shows, now and whenever it changes. Changes may be seen late, and several as one.
    pub fn applied(&self) -> watch::Receiver<Arc<Applied>> {
        self.applied.subscribe()
    }

    /// The mappings that are served now, and why others are not.
    pub fn mappings(&self) -> Arc<MappingSet> {
        self.mappings.load_full()
    }

    /// The same without a count that all threads share. Not to be kept.
    pub fn peek_mappings(&self) -> arc_swap::Guard<Arc<MappingSet>> {
        self.mappings.load()
    }

    /// Rises with every statement of the stream that may change the definition of a mapped table or what accounts may do,
    /// and with every change of the mappings that are served, before anything later is shown.
    pub fn definitions(&self) -> u64 {
        self.definitions.load(Ordering::Acquire)
    }

    pub(super) fn note_definition(&self) {
        self.definitions.fetch_add(1, Ordering::Release);
    }

    /// Who is told which rows have changed.
    pub fn tracking(&self) -> &Arc<Tracking> {
        &self.tracking
    }

    /// What workers tell one another of where the primary is.
    pub(crate) fn probes(&self) -> &Arc<Probes> {
        &self.probes
    }

    /// Has the mapping tables read again, and what cannot be served tried again at once. Nothing that is served is disturbed.
    pub fn flush(&self) {
        self.flush.notify_one();
    }

    pub(super) async fn flushed(&self) {
        self.flush.notified().await;
    }

    /// How all mappings are, in the order of the configuration, then of the mapping tables; then, by the names of their tables, rows that are
    /// no mappings.
    pub fn states(&self) -> Arc<Vec<MappingState>> {
        self.states.load_full()
    }

    /// How the stream is: `following n1`, or why there is none.
    pub fn stream(&self) -> Arc<String> {
        self.stream.load_full()
    }

    /// Seconds that the rows are behind the primary's, as far as the clocks of both go together: how old the last statement was when it was
    /// applied, and for how long nothing has been heard, which is no longer than a heartbeat while all is well.
    pub fn lag(&self) -> f64 {
        let counts = &self.counts;
        let silent = now_ms().saturating_sub(counts.heard.load(Ordering::Relaxed));
        let silent = silent.saturating_sub(QUIET_MS) as f64 / 1000.0;
        counts.behind.load(Ordering::Relaxed) as f64 + silent
    }

    /// Copies that were begun so far.
    pub fn copies(&self) -> u64 {
        self.counts.copies.load(Ordering::Relaxed)
    }

    /// Changes of rows that were applied so far.
    pub fn changed_rows(&self) -> u64 {
        self.counts.rows.load(Ordering::Relaxed)
    }

    /// Streams that were begun so far.
    pub fn streams(&self) -> u64 {
        self.counts.connects.load(Ordering::Relaxed)
    }

    /// Rows of copies that were kept so far.
    pub fn copied_rows(&self) -> u64 {
        self.counts.copied_rows.load(Ordering::Relaxed)
    }

    /// Has a row kept, if the ticket still allows that. False where too many wait: it is forgotten, and asked for again.
    #[must_use]
    pub fn fill(&self, fill: Fill) -> bool {
        self.fills.try_send(fill).is_ok()
    }

    pub(super) fn publish(&self, applied: Applied) {
        self.applied.send_replace(Arc::new(applied));
    }

    pub(super) fn set_mappings(&self, mappings: MappingSet) {
        let mappings = Arc::new(mappings);
        let before = self.mappings.swap(Arc::clone(&mappings));
        // Why others are not served is no definition: a primary that is away would take from everybody what they know.
        if !before.serves_what(&mappings) {
            self.note_definition();
            self.tracking.set_open(&mappings);
        }
    }

    pub(super) fn set_states(&self, states: Vec<MappingState>) {
        self.states.store(Arc::new(states));
    }

    pub(super) fn set_stream(&self, text: String) {
        self.stream.store(Arc::new(text));
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_told_in_words() {
        let copying = Phase::Copying {
            rows: 43,
            percent: 43,
        };
        assert_eq!(copying.to_string(), "copying 43 %");
        let waiting = Phase::Waiting {
            reason: "no primary".into(),
        };
        assert_eq!(waiting.to_string(), "waiting: no primary");
        for phase in [copying, waiting, Phase::Serving] {
            assert!(Phase::LABELS.contains(&phase.label()));
        }
    }
}
