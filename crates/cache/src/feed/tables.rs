//! The mapped tables, and how far each is on its way to being served.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::CacheMapping;
use sql_class::logged;
use tokio::time::Instant;
use upstream::Backoff;

use super::copy_window::CopyWindow;
use super::mapping_tables::{MappingTables, Refused, Wanted};
use super::preflight::Primary;
use super::status::{FeedStatus, MappingState, Phase};
use crate::coherence::{Position, SourceId};
use crate::mapping::{Mapping, MappingSet};
use crate::store::{MappingId, Mode, Writer};

/// Time until a table that cannot be served is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(10);

/// Time until a table is looked at again whose rows are not what its definition says. It grows, or a table
/// that is never understood would be copied again and again.
const MISMATCH_RETRY: Duration = Duration::from_millis(200);
pub(super) const MISMATCH_BACKOFF: Backoff = Backoff::new(MISMATCH_RETRY, Duration::from_secs(120));

/// Time after which the log says again why something still is not served.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Ids are told apart by their last bits by those who have no room for more; these bits all set are nobody's.
const SLOT_MASK: u32 = MappingId::SLOTS - 1;

/// A mapping of the configuration.
pub(super) struct Table {
    pub(super) config: CacheMapping,
    pub(super) state: State,
    /// Its rows are looked at again so late where they are not what its definition says.
    pub(super) mismatches: Backoff,
    /// Why it could not be served, as far as the log has it.
    pub(super) told: LoggedReason,
}

/// What the log says of something that is tried again and again.
#[derive(Default)]
pub(super) struct LoggedReason(Option<(String, Instant)>);

impl LoggedReason {
    /// Whether the log is to have this: it did not say so last, or a while ago.
    pub(super) fn is_news(&mut self, reason: &str) -> bool {
        let now = Instant::now();
        let told = self.0.as_ref();
        let is_known = told.is_some_and(|(last, since)| last == reason && now < *since + TELL_AGAIN);
        if !is_known {
            self.0 = Some((reason.to_owned(), now));
        }
        !is_known
    }
}

pub(super) enum State {
    /// To be copied, not before `from`.
    Waiting {
        from: Option<Instant>,
        reason: String,
    },
    /// The copier reads its definition.
    Reading,
    Copying {
        mapping: Arc<Mapping>,
        window: Rc<RefCell<CopyWindow>>,
        rows: u64,
        percent: u8,
    },
    CatchingUp {
        mapping: Arc<Mapping>,
        until: Position,
    },
    Serving {
        mapping: Arc<Mapping>,
    },
    Stopped {
        reason: String,
    },
}

impl State {
    /// The mapping whose rows follow the stream.
    fn mapping(&self) -> Option<&Arc<Mapping>> {
        match self {
            Self::Copying { mapping, .. } | Self::CatchingUp { mapping, .. } | Self::Serving { mapping } => {
                Some(mapping)
            }
            Self::Waiting { .. } | Self::Reading | Self::Stopped { .. } => None,
        }
    }

    fn phase(&self) -> Phase {
        match self {
            Self::Waiting { reason, .. } => Phase::Waiting {
                reason: reason.as_str().into(),
            },
            Self::Reading => Phase::Reading,
            &Self::Copying { rows, percent, .. } => Phase::Copying { rows, percent },
            Self::CatchingUp { .. } => Phase::CatchingUp,
            Self::Serving { .. } => Phase::Serving,
            Self::Stopped { reason } => Phase::Stopped {
                reason: reason.as_str().into(),
            },
        }
    }
}

impl Table {
    fn new(config: CacheMapping) -> Self {
        let (from, reason) = (None, String::new());
        Self {
            config,
            state: State::Waiting { from, reason },
            mismatches: MISMATCH_BACKOFF,
            told: LoggedReason::default(),
        }
    }

    /// The mapping whose rows follow the stream.
    pub(super) fn mapping(&self) -> Option<&Arc<Mapping>> {
        self.state.mapping()
    }

    fn is(&self, schema: &[u8], table: &[u8]) -> bool {
        let (own_schema, own_table) = self.config.schema_and_table();
        // The configuration may differ from the server in case; the mapping, where there is one, does not.
        match self.mapping() {
            Some(mapping) => mapping.schema.as_bytes() == schema && mapping.table.as_bytes() == table,
            None => {
                own_schema.as_bytes().eq_ignore_ascii_case(schema)
                    && own_table.as_bytes().eq_ignore_ascii_case(table)
            }
        }
    }
}

/// All of them, with the store that their rows are in.
pub(super) struct Tables {
    pub(super) all: Vec<Table>,
    pub(super) writer: Writer,
    feed_status: Arc<FeedStatus>,
    mode: Mode,
    /// What of the mapping tables is no mapping.
    refused: Vec<Refused>,
    /// Why there may be mappings whose names are not known.
    unread: Option<String>,
    /// The last that was used.
    last_id: u32,
    /// Grows when the mapping of a table or its place changes.
    pub(super) epoch: u64,
}

impl Tables {
    pub(super) fn new(config: &config::Cache, writer: Writer, feed_status: Arc<FeedStatus>) -> Self {
        let tables = Self {
            all: config.mappings.iter().cloned().map(Table::new).collect(),
            writer,
            feed_status,
            mode: match config.mode {
                config::CacheMode::Whole => Mode::Whole,
                config::CacheMode::Bounded => Mode::Bounded,
            },
            refused: Vec::new(),
            unread: MappingTables::new(Wanted::of(config)).unread(),
            last_id: 0,
            epoch: 0,
        };
        tables.publish();
        tables
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// These are wanted from now on, in this order. What is as it was stays as it is, with all its rows;
    /// others are to be copied. `unread`: why there may be others. Not within a transaction of the store.
    pub(super) fn arrange(
        &mut self,
        wanted: Vec<CacheMapping>,
        refused: Vec<Refused>,
        unread: Option<String>,
    ) {
        let refused: Vec<_> = refused
            .into_iter()
            .filter(|refused| !refused.is_overridden)
            .collect();
        let is_same = refused == self.refused && unread == self.unread;
        if is_same && wanted.iter().eq(self.all.iter().map(|table| &table.config)) {
            return;
        }
        (self.refused, self.unread) = (refused, unread);
        let mut before = std::mem::take(&mut self.all);
        for config in wanted {
            let known = before.iter().position(|table| table.config == config);
            let table = known.map_or_else(|| Table::new(config), |at| before.swap_remove(at));
            self.all.push(table);
        }
        for Table { config, state, .. } in before {
            tracing::info!(
                mapping = config.name,
                table = config.table,
                "mapping is removed, or defined in another way"
            );
            if let Some(mapping) = state.mapping() {
                self.writer.close(mapping.id);
            }
        }
        self.epoch += 1;
        self.publish();
    }

    /// What cannot be served is tried again now.
    pub(super) fn retry(&mut self) {
        for at in 0..self.all.len() {
            let (State::Waiting { reason, .. } | State::Stopped { reason }) = &self.all[at].state else {
                continue;
            };
            let (from, reason) = (None, reason.clone());
            self.set(at, State::Waiting { from, reason });
        }
    }

    /// An id that no mapping had before, and whose [slot](MappingId::slot) none has now. It stays free until
    /// a mapping with it is followed: attempts that fail before that use up none.
    pub(super) fn free_id(&self) -> MappingId {
        let live = self
            .all
            .iter()
            .filter_map(|table| Some(table.mapping()?.id.slot()));
        let live: HashSet<u32> = live.chain([0, SLOT_MASK]).collect();
        let free = (self.last_id + 1..)
            .map(MappingId)
            .find(|id| !live.contains(&id.slot()));
        // There are fewer mappings than slots.
        free.unwrap_or(MappingId(self.last_id + 1))
    }

    /// The last id that a mapping has got.
    pub(super) fn last_id(&self) -> MappingId {
        MappingId(self.last_id)
    }

    /// The places of those that follow the stream.
    pub(super) fn places(&self) -> HashMap<MappingId, usize> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(at, table)| Some((table.mapping()?.id, at)))
            .collect()
    }

    /// Places of those that map this table and follow the stream.
    pub(super) fn following(&self, schema: &[u8], table: &[u8]) -> Vec<usize> {
        let all = self.all.iter().enumerate();
        let ours = all.filter(|(_, own)| own.mapping().is_some() && own.is(schema, table));
        ours.map(|(at, _)| at).collect()
    }

    /// The first that is to be copied now.
    pub(super) fn due(&self) -> Option<usize> {
        let now = Instant::now();
        self.all.iter().position(|table| {
            matches!(&table.state, State::Waiting { from, .. } if from.is_none_or(|from| from <= now))
        })
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let times = self.all.iter().filter_map(|table| match &table.state {
            State::Waiting { from, .. } => Some(from.unwrap_or_else(Instant::now)),
            _ => None,
        });
        times.min()
    }

    /// Its definition is going to be read.
    pub(super) fn read(&mut self, at: usize) {
        self.set(at, State::Reading);
    }

    /// Its definition is known: from now on its changes are followed.
    pub(super) fn follow(&mut self, at: usize, mapping: Arc<Mapping>, window: Rc<RefCell<CopyWindow>>) {
        self.last_id = self.last_id.max(mapping.id.0);
        self.writer.open(mapping.id, self.mode);
        let state = State::Copying {
            mapping,
            window,
            rows: 0,
            percent: 0,
        };
        self.set(at, state);
    }

    pub(super) fn copied(&mut self, at: usize, more: u64, percent: u8) {
        if let Some(State::Copying {
            rows, percent: known, ..
        }) = self.all.get_mut(at).map(|table| &mut table.state)
        {
            *rows += more;
            *known = percent;
        }
        self.tell();
    }

    /// All rows are there; they may be shown when the stream has come to `until`.
    pub(super) fn catch_up(&mut self, at: usize, until: Position) {
        if let Some(mapping) = self.all[at].mapping().cloned() {
            self.set(at, State::CatchingUp { mapping, until });
        }
    }

    pub(super) fn is_catching_up(&self) -> bool {
        self.all
            .iter()
            .any(|table| matches!(table.state, State::CatchingUp { .. }))
    }

    /// A stream of `source` goes on. What waits for a position that it never comes to is copied again: that
    /// of another server, which may have had more than this one, or one of another kind.
    pub(super) fn go_on(&mut self, source: SourceId, by_gtid: bool) {
        for at in 0..self.all.len() {
            let State::CatchingUp { until, .. } = &self.all[at].state else {
                continue;
            };
            if until.source != source || until.is_by_gtid() != by_gtid {
                self.invalidate(at, "the primary changed before all was there", None);
            }
        }
    }

    /// Those go whose changes do not all come from this primary: it may be another one, or have been started
    /// with other options.
    pub(super) fn must_be_logged(&mut self, primary: &Primary) {
        for at in 0..self.all.len() {
            let Some(mapping) = self.all[at].mapping() else {
                continue;
            };
            let loses_cascades = mapping.cascades && !primary.logs_cascades;
            if let Err(error) = primary.filters.show(&mapping.schema) {
                self.invalidate(at, &error.to_string(), Some(RETRY));
            } else if loses_cascades {
                let reason = "its rows change with those of another table, and this server may not log that";
                self.invalidate(at, reason, None);
            }
        }
    }

    /// Serves those that have caught up. `gtid_strict_mode` of MariaDB may have been another while a copy
    /// came to its end.
    pub(super) fn serve(&mut self, reached: &Position) {
        for at in 0..self.all.len() {
            let State::CatchingUp { mapping, until } = &self.all[at].state else {
                continue;
            };
            if !reached.is_like(until) {
                let reason = "the primary's positions are of another kind";
                self.invalidate(at, reason, Some(MISMATCH_RETRY));
            } else if reached.covers(until) {
                let mapping = Arc::clone(mapping);
                tracing::info!(
                    mapping = &*mapping.name,
                    table = self.all[at].config.table,
                    "mapping is served"
                );
                self.writer.serve(mapping.id, true);
                self.set(at, State::Serving { mapping });
            }
        }
    }

    /// Its rows are not what its table has, or may not be: they go, and are copied again after `delay`.
    pub(super) fn invalidate(&mut self, at: usize, reason: &str, delay: Option<Duration>) {
        let from = delay.map(|delay| Instant::now() + delay);
        self.drop_rows(at, reason);
        let reason = reason.to_owned();
        self.set(at, State::Waiting { from, reason });
    }

    /// Its rows are not what its definition says.
    pub(super) fn mismatched(&mut self, at: usize, reason: &str) {
        let delay = self.all[at].mismatches.pause();
        self.invalidate(at, reason, Some(delay));
    }

    /// It is served no more until something changes about it.
    pub(super) fn stop(&mut self, at: usize, reason: &str) {
        self.drop_rows(at, reason);
        let reason = reason.to_owned();
        self.set(at, State::Stopped { reason });
    }

    pub(super) fn invalidate_all(&mut self, reason: &str) {
        for at in 0..self.all.len() {
            if !matches!(self.all[at].state, State::Stopped { .. }) {
                self.invalidate(at, reason, None);
            }
        }
    }

    /// Those whose copy cannot go on: the connection is gone, or rows are missing.
    pub(super) fn abandon_copies(&mut self, reason: &str) {
        for at in 0..self.all.len() {
            if let State::Reading | State::Copying { .. } = self.all[at].state {
                self.invalidate(at, reason, None);
            }
        }
    }

    /// What the transaction has touched of the tables that are being copied, at these places, counts or does
    /// not.
    pub(super) fn windows(&self, places: &[usize], ended: fn(&mut CopyWindow)) {
        for &at in places {
            if let Some(State::Copying { window, .. }) = self.all.get(at).map(|table| &table.state) {
                ended(&mut window.borrow_mut());
            }
        }
    }

    /// Those that a statement may concern.
    pub(super) fn concerned(&self, sql: &[u8], schema: &[u8]) -> Vec<usize> {
        if logged::leaves_tables_alone(sql) {
            return Vec::new();
        }
        let is_concerned = |table: &Table| {
            let (own_schema, own_table) = table.config.schema_and_table();
            logged::concerns(sql, schema, own_schema, own_table)
        };
        let all = self.all.iter().enumerate();
        all.filter(|(_, table)| is_concerned(table))
            .map(|(at, _)| at)
            .collect()
    }

    fn drop_rows(&mut self, at: usize, reason: &str) {
        let table = &self.all[at];
        let name = table.config.name.as_str();
        if let Some(mapping) = table.mapping() {
            tracing::warn!(
                mapping = name,
                table = table.config.table,
                reason,
                "mapping is not served"
            );
            self.writer.close(mapping.id);
        }
    }

    fn set(&mut self, at: usize, state: State) {
        let had = self.all[at].mapping().map(|mapping| mapping.id);
        let has = state.mapping().map(|mapping| mapping.id);
        if had != has {
            self.epoch += 1;
        }
        self.all[at].state = state;
        self.publish();
    }

    /// Shows what is served.
    pub(super) fn publish(&self) {
        let served = self.all.iter().filter_map(|table| match &table.state {
            State::Serving { mapping } => Some(Arc::clone(mapping)),
            _ => None,
        });
        let unready = self
            .all
            .iter()
            .filter(|table| !matches!(table.state, State::Serving { .. }));
        let stream = self.feed_status.stream();
        let is_without_stream = !stream.is_empty() && !stream.starts_with("following ");
        let unready = unready.map(|table| {
            let state = match table.state.phase() {
                // Nothing is in its own way.
                Phase::Waiting { reason } if reason.is_empty() && is_without_stream => {
                    format!("waiting: {stream}")
                }
                phase => phase.to_string(),
            };
            (table.config.name.as_str().into(), state.into())
        });
        let refused = self.refused.iter().filter_map(|refused| {
            let reason = format!(
                "a row of {} that is no mapping: {}",
                refused.table, refused.reason
            );
            Some((refused.name.as_deref()?.into(), reason.into()))
        });
        let unread = self.unread.as_deref().map(Box::from);
        self.feed_status
            .set_mappings(MappingSet::new(served, refused.chain(unready)).with_unread(unread));
        self.tell();
    }

    fn tell(&self) {
        let states = self.all.iter().map(|table| MappingState {
            name: table.config.name.as_str().into(),
            table: table.config.table.as_str().into(),
            row_of: table.config.row_of.as_deref().map(Box::from),
            phase: table.state.phase(),
        });
        let mut states: Vec<_> = states.collect();
        states.extend(self.refused.iter().map(Refused::state));
        self.feed_status.set_states(states);
    }
}
