//! What other threads see of the feed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use telemetry::Counter;
use tokio::sync::{Notify, mpsc, watch};

use crate::coherence::Applied;
use crate::mapping::MappingSet;
use crate::probes::Probes;
use crate::store::FillTicket;
use crate::tracking::Tracking;

/// Rows from the server that wait for being kept.
const FILLS_MAX: usize = 1024;
/// Bytes that they may have together. However long a row is, it may wait alone. While there is no stream
/// nobody takes them.
const FILLS_BYTES_MAX: usize = 16 << 20;

/// Time without a word of the primary that is no lag: more than two heartbeats.
const QUIET_MS: u64 = 1000;

/// What the feed tells, and what it is told. Shared by all threads.
pub struct FeedStatus {
    applied: watch::Sender<Arc<Applied>>,
    mappings: ArcSwap<MappingSet>,
    definitions: AtomicU64,
    states: ArcSwap<Vec<MappingState>>,
    stream: ArcSwap<String>,
    fills: mpsc::Sender<Fill>,
    /// Of those that wait.
    fill_bytes: Arc<AtomicUsize>,
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

impl Fill {
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.row.as_ref().map_or(0, |row| row.len())
    }
}

/// Rows that wait for being kept.
pub(crate) struct Fills {
    waiting: mpsc::Receiver<Fill>,
    bytes: Arc<AtomicUsize>,
}

impl Fills {
    /// The next, as soon as there is one.
    pub(super) async fn recv(&mut self) -> Option<Fill> {
        let fill = self.waiting.recv().await;
        fill.map(|fill| self.taken(fill))
    }

    /// The next, if there is one.
    pub(super) fn try_recv(&mut self) -> Option<Fill> {
        let fill = self.waiting.try_recv().ok();
        fill.map(|fill| self.taken(fill))
    }

    fn taken(&self, fill: Fill) -> Fill {
        self.bytes.fetch_sub(fill.bytes(), Ordering::Relaxed);
        fill
    }
}

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

/// Counts of what has happened so far, kept by the feed's thread alone.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) transactions: Counter,
    pub(crate) rows: Counter,
    pub(crate) connects: Counter,
    pub(crate) copies: Counter,
    pub(crate) copied_rows: Counter,
    /// Seconds since 1970 on the primary's clock: when the statement began that came last. 0 where nothing
    /// came since.
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
}

impl FeedStatus {
    pub(crate) fn new(applied: Applied, tracking: Arc<Tracking>) -> (Arc<Self>, Fills) {
        let (fills, waiting) = mpsc::channel(FILLS_MAX);
        let fill_bytes = Arc::<AtomicUsize>::default();
        let bytes = Arc::clone(&fill_bytes);
        let feed_status = Self {
            applied: watch::Sender::new(Arc::new(applied)),
            mappings: ArcSwap::default(),
            definitions: AtomicU64::new(0),
            states: ArcSwap::default(),
            stream: ArcSwap::default(),
            fills,
            fill_bytes,
            tracking,
            probes: Arc::default(),
            flush: Notify::new(),
            counts: Counts::default(),
        };
        (Arc::new(feed_status), Fills { waiting, bytes })
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

    /// Rises with every statement of the stream that may change the definition of a mapped table or what
    /// accounts may do, and with every change of the mappings that are served, before anything later is
    /// shown.
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

    /// Has the mapping tables read again, and what cannot be served tried again at once. Nothing that is
    /// served is disturbed.
    pub fn flush(&self) {
        self.flush.notify_one();
    }

    pub(super) async fn flushed(&self) {
        self.flush.notified().await;
    }

    /// How all mappings are, in the order of the configuration, then of the mapping tables; then, by the
    /// names of their tables, rows that are no mappings.
    pub fn states(&self) -> Arc<Vec<MappingState>> {
        self.states.load_full()
    }

    /// How the stream is: `following n1`, or why there is none.
    pub fn stream(&self) -> Arc<String> {
        self.stream.load_full()
    }

    /// Seconds that the rows are behind the primary's, as far as the clocks of both go together: how old the
    /// last statement was when it was applied, and for how long nothing has been heard, which is no longer
    /// than a heartbeat while all is well.
    pub fn lag(&self) -> f64 {
        let counts = &self.counts;
        let silent = now_ms().saturating_sub(counts.heard.load(Ordering::Relaxed));
        let silent = silent.saturating_sub(QUIET_MS) as f64 / 1000.0;
        counts.behind.load(Ordering::Relaxed) as f64 + silent
    }

    /// Copies that were begun so far.
    pub fn copies(&self) -> u64 {
        self.counts.copies.get()
    }

    /// Changes of rows that were applied so far.
    pub fn changed_rows(&self) -> u64 {
        self.counts.rows.get()
    }

    /// Streams that were begun so far.
    pub fn streams(&self) -> u64 {
        self.counts.connects.get()
    }

    /// Rows of copies that were kept so far.
    pub fn copied_rows(&self) -> u64 {
        self.counts.copied_rows.get()
    }

    /// Has a row kept, if the ticket still allows that. False where too many wait: it is forgotten, and asked
    /// for again.
    #[must_use]
    pub fn fill(&self, fill: Fill) -> bool {
        let bytes = fill.bytes();
        let before = self.fill_bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before == 0 || before.saturating_add(bytes) <= FILLS_BYTES_MAX;
        let is_kept = has_room && self.fills.try_send(fill).is_ok();
        if !is_kept {
            self.fill_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_kept
    }

    pub(super) fn publish(&self, applied: Applied) {
        self.applied.send_replace(Arc::new(applied));
    }

    pub(super) fn set_mappings(&self, mappings: MappingSet) {
        let mappings = Arc::new(mappings);
        let before = self.mappings.swap(Arc::clone(&mappings));
        // Why others are not served is no definition: a primary that is away would take from everybody what
        // they know.
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
    use super::super::progress::Progress;
    use super::*;
    use crate::store::{MappingId, Mode, Store, Version};

    #[test]
    fn rows_that_wait_for_the_feed_are_bounded() {
        let (store, mut writer) = Store::new(1 << 20);
        writer.open(MappingId(1), Mode::Bounded);
        let ticket = store.fill_begin(MappingId(1), Version::default()).unwrap();
        let nothing = Progress::nowhere().applied(Version::default());
        let (feed_status, mut fills) = FeedStatus::new(nothing, Tracking::new(1));
        let give = |bytes: usize| {
            feed_status.fill(Fill {
                ticket,
                key: Box::new([1]),
                row: Some(vec![0; bytes].into()),
            })
        };
        assert!(give(FILLS_BYTES_MAX + 1), "however long it is");
        assert!(!give(1), "and nothing beside it");
        assert!(fills.try_recv().is_some());
        let long = std::iter::repeat_with(|| give(1 << 20)).take_while(|&is_kept| is_kept);
        assert_eq!(long.count(), 15, "with their keys");
        assert!(fills.try_recv().is_some() && give(1 << 20) && !give(1 << 20));
        while fills.try_recv().is_some() {}
        let short = std::iter::repeat_with(|| give(1)).take_while(|&is_kept| is_kept);
        assert_eq!(short.count(), FILLS_MAX);
    }

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
