//! Rows from the primary itself: those that are not in memory, and those of keys that only the server can
//! compare.
//!
//! The rules are [`Fill`]'s: an answer is shown when it is not older than what memory showed when the
//! question began, and it is kept when, besides, all that it can have seen is applied. Several keys are read
//! in one snapshot.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mysql_wire::binlog::BinlogError;
use mysql_wire::gtid::{Flavor, GtidSet};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use upstream::Backoff;
use upstream::conversation::TextRow;

use super::primary_connection::{AskError, Identity, Primary, PrimaryConnection, end_of_log, file_position};
use super::sql::{self, KEYS_MAX, Row};
use crate::coherence::{Applied, Fill, FillVerdict, Position, Visible};
use crate::feed::FeedStatus;
use crate::mapping::{Mapping, quoted, variable};
use crate::store::{FillTicket, Store};

/// Questions that a worker has under way at the same time; further ones wait.
const CONNECTIONS_MAX: usize = 8;

/// Pauses before the primary is asked again.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));

const BEGIN: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
const SNAPSHOT: &str = "SHOW STATUS LIKE 'binlog_snapshot_%'";
const COMMIT: &str = "COMMIT";

/// The longest rows that one question may bring where the asker says nothing else, in bytes of memory.
pub const BYTES_MAX: usize = 64 << 20;

/// Bytes of rows that wait for being kept, of a worker; where there are more they are shown, and not kept.
/// Where the feed stands still while the primary answers, that is all.
const WAITING_MAX: usize = 16 << 20;
/// What an answer costs beside its rows: its task.
const WAITING_EACH: usize = 1024;
/// Rows as long as that wait beside those that have no room left for them, one at a time: each is dear to ask
/// for again.
const LONG: usize = 1 << 20;
/// Longest wait of theirs. A feed that is further behind is asked again later.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A key whose row is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    pub mapping: &'a Mapping,
    pub key: &'a [u8],
}

/// Why the primary did not tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the row is not in memory, and {reason}")]
pub struct NotFetched {
    pub reason: Arc<str>,
    /// There were rows, longer than was asked for.
    pub too_long: bool,
}

impl NotFetched {
    fn new(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            too_long: false,
        }
    }
}

impl From<AskError> for NotFetched {
    fn from(error: AskError) -> Self {
        Self {
            reason: error.to_string().into(),
            too_long: matches!(error, AskError::TooLong(_)),
        }
    }
}

/// Asks the primary for rows.
pub(super) struct Fetcher {
    primary: Rc<Primary>,
    store: Arc<Store>,
    feed_status: Arc<FeedStatus>,
    applied: watch::Receiver<Arc<Applied>>,
    idle: RefCell<Vec<PrimaryConnection>>,
    connections: Semaphore,
    waiting: Rc<WaitingRows>,
    limit: Duration,
    metrics: Arc<telemetry::Worker>,
}

/// What the primary is asked for.
struct FetchQuestion {
    parts: Vec<Part>,
    /// That all rows may take, in bytes of memory.
    bytes_max: usize,
}

/// One statement of a question, and which of the wants it is for.
struct Part {
    sql: String,
    wants: Vec<usize>,
}

struct FetchAnswer {
    visible: Visible,
    /// The primary's position after it, or its own.
    until: Position,
    /// In the order of the parts.
    rows: Vec<Vec<TextRow>>,
}

impl Fetcher {
    pub(super) fn new(
        primary: Rc<Primary>,
        store: Arc<Store>,
        feed_status: Arc<FeedStatus>,
        limit: Duration,
        metrics: Arc<telemetry::Worker>,
    ) -> Self {
        Self {
            primary,
            store,
            applied: feed_status.applied(),
            feed_status,
            idle: RefCell::default(),
            connections: Semaphore::new(CONNECTIONS_MAX),
            waiting: Rc::default(),
            limit,
            metrics,
        }
    }

    /// The rows of these keys, all of one moment that is not before this call, if they take no more than
    /// `bytes_max` of memory.
    pub(super) async fn fetch(
        &self,
        wants: &[Want<'_>],
        bytes_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, NotFetched> {
        let begun = Instant::now();
        let parts = parts(wants).map_err(|error| NotFetched::new(error.to_string()))?;
        let question = FetchQuestion { parts, bytes_max };
        let last = RefCell::new(None);
        let fetched = match timeout(self.limit, self.until_shown(&question, wants, &last)).await {
            Ok(fetched) => fetched,
            Err(_) => {
                let reason = last.take();
                let reason = reason.unwrap_or_else(|| AskError::Timeout(self.limit).to_string().into());
                Err(NotFetched::new(reason))
            }
        };
        let cache = &self.metrics.cache;
        match &fetched {
            Ok(_) => {
                cache.fetches.inc();
                cache.fetch_seconds.record(begun.elapsed());
            }
            Err(_) => cache.fetches_failed.inc(),
        }
        fetched
    }

    /// Asks until there is an answer that may be shown. `last` is why the last one was none.
    async fn until_shown(
        &self,
        question: &FetchQuestion,
        wants: &[Want<'_>],
        last: &RefCell<Option<Arc<str>>>,
    ) -> Result<Vec<Option<Vec<u8>>>, NotFetched> {
        let mut backoff = BACKOFF;
        loop {
            let fill = Fill::begin(Arc::clone(&self.applied.borrow()));
            let tickets = self.tickets(wants, &fill);
            let reason = match self.ask(question, fill.begun()).await {
                Ok(answer) if fill.may_show(&answer.visible) => {
                    let rows = read(question, wants, &answer.rows)?;
                    self.keep(fill, &answer, wants, &tickets, &rows);
                    let rows = rows.into_iter().map(|row| row.map(|row| row.row));
                    return Ok(rows.collect());
                }
                Ok(_) if fill.begun().position.is_none() => "the binary log is not followed yet".into(),
                Ok(_) => "the primary does not show yet what memory has shown".into(),
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => Arc::from(error.to_string()),
            };
            last.replace(Some(reason));
            sleep(backoff.pause()).await;
        }
    }

    fn tickets(&self, wants: &[Want<'_>], fill: &Fill) -> Vec<Option<FillTicket>> {
        let version = fill.begun().version;
        let ticket = |want: &Want<'_>| self.store.fill_begin(want.mapping.id, version);
        wants.iter().map(ticket).collect()
    }

    /// One exchange with the primary. A connection that is gone is no reason to fail: another one is tried.
    async fn ask(&self, question: &FetchQuestion, begun: &Applied) -> Result<FetchAnswer, AskError> {
        let _permit = self
            .connections
            .acquire()
            .await
            .map_err(|_| AskError::NoPrimary)?;
        let idle = self.idle.borrow_mut().pop();
        if let Some(mut connection) = idle.filter(|connection| self.primary.is_current(connection)) {
            match exchange(&mut connection, question, begun).await {
                Ok(answer) => {
                    self.idle.borrow_mut().push(connection);
                    return Ok(answer);
                }
                Err(error) if error.is_final() => return Err(error),
                Err(_) => {}
            }
        }
        let mut connection = self.primary.connect().await?;
        let answer = exchange(&mut connection, question, begun).await?;
        self.primary.note_first_answer(&connection);
        self.idle.borrow_mut().push(connection);
        Ok(answer)
    }

    /// Gives rows to memory, as soon as all that they can have seen is applied.
    fn keep(
        &self,
        fill: Fill,
        answer: &FetchAnswer,
        wants: &[Want<'_>],
        tickets: &[Option<FillTicket>],
        rows: &[Option<Row>],
    ) {
        let mut kept = Vec::new();
        for ((want, ticket), row) in wants.iter().zip(tickets).zip(rows) {
            let Some(ticket) = *ticket else { continue };
            let key = row.as_ref().map_or(want.key, |row| &row.key);
            kept.push(crate::feed::Fill {
                ticket,
                key: key.into(),
                row: row.as_ref().map(|row| row.row.as_slice().into()),
            });
        }
        if kept.is_empty() {
            return;
        }
        let (visible, until) = (answer.visible.clone(), answer.until.clone());
        let now = Arc::clone(&self.applied.borrow());
        let (feed_status, metrics) = (Arc::clone(&self.feed_status), Arc::clone(&self.metrics));
        match fill.verdict(&visible, &until, &now) {
            FillVerdict::Store => give(&feed_status, &metrics, kept),
            FillVerdict::Drop => metrics.cache.fills_dropped.add(kept.len() as u64),
            FillVerdict::Wait => {
                let (mut room, all) = (Room::of(&self.waiting), kept.len());
                kept.retain(|fill| room.take(fill.bytes()));
                metrics.cache.fills_dropped.add((all - kept.len()) as u64);
                if kept.is_empty() {
                    return;
                }
                let deadline = Instant::now() + self.limit.min(WAIT_MAX);
                let mut applied = self.applied.clone();
                spawn_local(async move {
                    let _room = room;
                    let applied_all =
                        applied.wait_for(|now| fill.verdict(&visible, &until, now) != FillVerdict::Wait);
                    let may = match timeout_at(deadline, applied_all).await {
                        Ok(Ok(now)) => fill.verdict(&visible, &until, &now) == FillVerdict::Store,
                        Ok(Err(_)) | Err(_) => false,
                    };
                    if may {
                        give(&feed_status, &metrics, kept);
                    } else {
                        metrics.cache.fills_dropped.add(kept.len() as u64);
                    }
                });
            }
        }
    }
}

/// Rows of a worker that wait for being kept.
#[derive(Debug, Default)]
struct WaitingRows {
    bytes: Cell<usize>,
    /// A long one is among them for which there was no room.
    has_extra: Cell<bool>,
}

/// Room for the rows of an answer. It is given back when this is dropped.
#[derive(Debug)]
struct Room {
    all: Rc<WaitingRows>,
    bytes: usize,
    has_extra: bool,
}

impl Room {
    /// None yet.
    fn of(all: &Rc<WaitingRows>) -> Self {
        Self {
            all: Rc::clone(all),
            bytes: 0,
            has_extra: false,
        }
    }

    /// For one more row; false where there is none.
    fn take(&mut self, row: usize) -> bool {
        let each = if self.bytes == 0 { WAITING_EACH } else { 0 };
        let bytes = row.saturating_add(each);
        let wanted = self.all.bytes.get().saturating_add(bytes);
        if wanted <= WAITING_MAX {
            self.all.bytes.set(wanted);
            self.bytes += bytes;
            return true;
        }
        let is_extra = row >= LONG && !self.all.has_extra.get();
        if is_extra {
            self.all.has_extra.set(true);
            self.has_extra = true;
        }
        is_extra
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.bytes.set(self.all.bytes.get() - self.bytes);
        if self.has_extra {
            self.all.has_extra.set(false);
        }
    }
}

fn give(feed_status: &FeedStatus, metrics: &telemetry::Worker, rows: Vec<crate::feed::Fill>) {
    let all = rows.len();
    let kept = rows
        .into_iter()
        .map(|fill| feed_status.fill(fill))
        .filter(|&is_kept| is_kept)
        .count();
    metrics.cache.fills_kept.add(kept as u64);
    metrics.cache.fills_dropped.add((all - kept) as u64);
}

/// Statements for all wants. Where the key of an answer's row says which want it is for, one asks for many.
fn parts(wants: &[Want<'_>]) -> Result<Vec<Part>, BinlogError> {
    let mut groups: Vec<(&Mapping, Vec<usize>)> = Vec::new();
    for (at, want) in wants.iter().enumerate() {
        let same = |(mapping, group): &&mut (&Mapping, Vec<usize>)| {
            std::ptr::eq(*mapping, want.mapping) && group.len() < KEYS_MAX
        };
        match groups
            .iter_mut()
            .rev()
            .find(same)
            .filter(|_| want.mapping.compares_exactly())
        {
            Some((_, group)) => group.push(at),
            None => groups.push((want.mapping, vec![at])),
        }
    }
    let parts = groups.into_iter().map(|(mapping, group)| {
        let keys = group.iter().map(|&at| wants[at].key);
        let sql = sql::select(mapping, keys)?;
        Ok(Part { sql, wants: group })
    });
    parts.collect()
}

/// The rows of the wants, out of the answers to the parts.
fn read(
    question: &FetchQuestion,
    wants: &[Want<'_>],
    answers: &[Vec<TextRow>],
) -> Result<Vec<Option<Row>>, AskError> {
    let mut found: Vec<Option<Row>> = wants.iter().map(|_| None).collect();
    let mut room = question.bytes_max;
    for (part, answer) in question.parts.iter().zip(answers) {
        for values in answer {
            let Some(&first) = part.wants.first() else {
                continue;
            };
            let row = sql::row(wants[first].mapping, values)?;
            let same = |&&at: &&usize| part.wants.len() == 1 || wants[at].key == row.key;
            let places: Vec<usize> = part.wants.iter().filter(same).copied().collect();
            for at in places {
                // A key that is wanted many times has its row as often.
                let left = room.checked_sub(row.key.len() + row.row.len());
                room = left.ok_or(AskError::TooLong(question.bytes_max))?;
                found[at] = Some(row.clone());
            }
        }
    }
    Ok(found)
}

/// Asks for the parts in one snapshot.
async fn exchange(
    connection: &mut PrimaryConnection,
    question: &FetchQuestion,
    begun: &Applied,
) -> Result<FetchAnswer, AskError> {
    match connection.flavor {
        Flavor::MySql => exchange_mysql(connection, question, begun).await,
        Flavor::MariaDb => exchange_mariadb(connection, question, begun).await,
    }
}

/// What is visible is `gtid_executed`, read before the snapshot is taken. Without GTIDs nothing says what a
/// snapshot has; then rows are read with locks, which wait for transactions that are in the binary log and
/// not visible yet. So they are when some transactions have none, also while the server had them when the
/// connection was made, and while there are no GTIDs at all.
async fn exchange_mysql(
    connection: &mut PrimaryConnection,
    question: &FetchQuestion,
    begun: &Applied,
) -> Result<FetchAnswer, AskError> {
    let parts = &question.parts;
    let by_gtid = connection.has_gtids && begun.is_numbered && !begun.gtids.is_empty();
    let (begin, lock) = match by_gtid {
        true => (BEGIN, ""),
        false => ("START TRANSACTION", " FOR SHARE"),
    };
    let questions: Vec<String> = parts.iter().map(|part| format!("{}{lock}", part.sql)).collect();
    let mut statements = vec![begin];
    statements.extend(questions.iter().map(String::as_str));
    statements.extend([COMMIT, connection.status()]);
    let (identity, answers) = connection.ask(by_gtid, &statements, question.bytes_max).await?;
    let until = end_of_log(identity.source, answers.last().map_or(&[], Vec::as_slice))?;
    let visible = match by_gtid {
        true => {
            let gtids = GtidSet::parse(Flavor::MySql, &identity.gtids);
            Visible::Gtids(
                identity.source,
                gtids.map_err(|_| AskError::Malformed("no GTIDs"))?,
            )
        }
        false => Visible::Everything(identity.source),
    };
    let rows = answers.into_iter().skip(1).take(parts.len()).collect();
    Ok(FetchAnswer { visible, until, rows })
}

/// The snapshot says itself where it is.
async fn exchange_mariadb(
    connection: &mut PrimaryConnection,
    question: &FetchQuestion,
    begun: &Applied,
) -> Result<FetchAnswer, AskError> {
    let parts = &question.parts;
    let by_gtid = begun.position.as_ref().is_some_and(Position::is_by_gtid);
    let mut statements = vec![BEGIN, SNAPSHOT];
    statements.extend(parts.iter().map(|part| part.sql.as_str()));
    if !by_gtid {
        statements.push(COMMIT);
    }
    let (identity, mut answers) = connection.ask(false, &statements, question.bytes_max).await?;
    let rows = answers.split_off(2);
    let rows: Vec<Vec<TextRow>> = rows.into_iter().take(parts.len()).collect();
    let snapshot = answers.pop().ok_or(AskError::Malformed("no snapshot"))?;
    let until = snapshot_position(connection, &identity, &snapshot, by_gtid).await?;
    Ok(FetchAnswer {
        visible: Visible::Snapshot(until.clone()),
        until,
        rows,
    })
}

async fn snapshot_position(
    connection: &mut PrimaryConnection,
    identity: &Identity,
    snapshot: &[TextRow],
    by_gtid: bool,
) -> Result<Position, AskError> {
    let file = variable(snapshot, "Binlog_snapshot_file");
    let offset = variable(snapshot, "Binlog_snapshot_position");
    let position = file_position(identity.source, file, offset)?;
    if !by_gtid {
        return Ok(position);
    }
    let question = format!("SELECT BINLOG_GTID_POS({}, {offset})", quoted(file));
    connection.link.send_queries(&[&question, COMMIT]).await?;
    let gtids = connection.link.result().await?;
    connection.link.result().await?;
    let gtids = gtids.first().and_then(|row| row.first()?.as_deref());
    super::primary_connection::gtid_position(
        identity.source,
        gtids.ok_or(AskError::Malformed("no GTIDs of its snapshot"))?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_wait_are_bounded() {
        let all = Rc::default();
        let take = |row: usize| {
            let mut room = Room::of(&all);
            room.take(row).then_some(room)
        };
        let held: Vec<_> = std::iter::from_fn(|| take(LONG - 1)).collect();
        assert_eq!(held.len(), 15, "and what their tasks cost");
        drop(held);
        assert_eq!(all.bytes.get(), 0);
        let small: Vec<_> = std::iter::from_fn(|| take(1)).collect();
        assert!(small.len() < 17_000);
        let long = take(BYTES_MAX).unwrap();
        assert!(take(BYTES_MAX).is_none(), "one at a time");
        drop(long);
        assert!(take(BYTES_MAX).is_some());
    }

    #[test]
    fn of_an_answer_that_is_too_long_a_part_waits() {
        let all = Rc::default();
        let mut room = Room::of(&all);
        let kept = (0..1000).filter(|_| room.take(20_000)).count();
        assert_eq!(kept, (WAITING_MAX - WAITING_EACH) / 20_000);
        drop(room);
        assert_eq!(all.bytes.get(), 0);
    }
}
