//! Reading a table as it is: its definition, then its rows in chunks along the unique index of the key. No
//! lock is taken.
//!
//! It runs beside the stream, on the same thread. Before each chunk it makes a mark in the window of the
//! table, and waits until the server shows what the stream has applied until then: a transaction is in the
//! binary log before a SELECT sees it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mysql_wire::binlog::{BinaryRow, BinlogError, Zone};
use mysql_wire::gtid::{Flavor, GtidSet};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep;
use upstream::conversation::{Broken, QueryError};

use super::copy_window::CopyWindow;
use super::dump::{DumpError, gtids_at, snapshot};
use super::link::Link;
use super::log_continuity::end;
use super::pages::Pages;
use super::preflight::{self, FilePosition, PreflightError, Primary};
use super::progress::Progress;
use super::source::{SourceError, SourceServer};
use crate::coherence::Position;
use crate::mapping::{Mapping, MappingError, SESSION, TableShape, last_question, name, questions};
use crate::store::{MappingId, Mode};

/// Rows, and their bytes, that are handed over at once: the stream has its turn between them.
const BATCH_ROWS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

/// Of what is not committed nobody says whether it ever is: not what a server's own default may show.
pub(super) const COMMITTED: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";

/// Time between two looks whether the server shows a transaction already.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Looks whether transactions without GTIDs are a thing of the past, until rows are read with locks: a server
/// that always commits something may never show that.
const LOOKS: u32 = 50;

/// What the copier says to the thread that applies the stream.
pub(super) enum Message {
    /// The table's definition. The copier goes on when its changes are followed.
    Defined {
        mapping: Arc<Mapping>,
        window: Rc<RefCell<CopyWindow>>,
        followed: oneshot::Sender<()>,
    },
    Rows(Batch),
    /// That is all; it may be shown when the stream has come here.
    Done(Position),
}

/// Rows of a chunk.
pub(super) struct Batch {
    /// Of the chunk.
    pub(super) mark: u64,
    /// The last of its chunk.
    pub(super) last: bool,
    /// How much of the table has been read.
    pub(super) percent: u8,
    bytes: Vec<u8>,
    /// Lengths of keys and rows, which follow one another.
    lens: Vec<(u32, u32)>,
}

impl Batch {
    fn new(mark: u64) -> Self {
        Self {
            mark,
            last: false,
            percent: 0,
            bytes: Vec::new(),
            lens: Vec::new(),
        }
    }

    /// Keys with their rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.lens.iter().map_while(move |&(key, row)| {
            let (key, behind) = rest.split_at_checked(key as usize)?;
            let (row, behind) = behind.split_at_checked(row as usize)?;
            rest = behind;
            Some((key, row))
        })
    }
}

/// One statement's part of a table.
struct Chunk {
    command: Vec<u8>,
    mark: u64,
    /// Rows that were read before, and those that the table has.
    before: u64,
    total: u64,
}

impl Chunk {
    /// What has been read of the table, with so many rows of this chunk. The total is what the server
    /// guesses.
    fn percent(&self, count: u64) -> u8 {
        let read = self.before + count;
        (read * 100 / self.total.max(read).max(1)).min(99) as u8
    }
}

/// Why a table was not copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// It cannot be mapped as it is.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// Its changes are not in the binary log.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Link(#[from] QueryError),
    #[error(transparent)]
    Dump(#[from] DumpError),
    #[error("a row cannot be read: {0}")]
    Row(#[from] BinlogError),
    /// What it goes by is not so any more: GTIDs do not say what the server shows.
    #[error("transactions come without GTIDs: gtid_mode was changed")]
    Unnumbered,
    /// Nobody is interested any more.
    #[error("given up")]
    GivenUp,
}

pub(super) struct Copier {
    pub(super) source_server: SourceServer,
    pub(super) config: config::CacheMapping,
    pub(super) id: MappingId,
    pub(super) mode: Mode,
    pub(super) zone: Zone,
    /// Rows.
    pub(super) chunk: u32,
    pub(super) progress: Rc<RefCell<Progress>>,
    /// Told after each transaction of the stream.
    pub(super) applied: Rc<Notify>,
    pub(super) out: mpsc::Sender<Message>,
}

impl Copier {
    pub(super) async fn run(mut self) -> Result<(), CopyError> {
        let schema = self.config.schema_and_table().0;
        self.source_server.primary.filters.show(schema)?;
        let mut link = self.source_server.connect().await?;
        match preflight::must_log_rows(&mut link).await {
            Err(PreflightError::Link(error)) => return Err(error.into()),
            looked => looked?,
        }
        self.prepare(&mut link).await?;
        let shape = self.shape(&mut link).await?;
        let mapping = Arc::new(Mapping::new(self.id, &self.config, shape.as_ref(), self.zone)?);
        let window = Rc::new(RefCell::new(CopyWindow::default()));
        let (followed, is_followed) = oneshot::channel();
        let defined = Message::Defined {
            mapping: Arc::clone(&mapping),
            window: Rc::clone(&window),
            followed,
        };
        self.send(defined).await?;
        is_followed.await.map_err(|_| CopyError::GivenUp)?;
        if let (Mode::Whole, Some(shape)) = (self.mode, &shape) {
            self.copy(&mut link, &mapping, shape, &window).await?;
        }
        // Where the binary log is now that all has been read.
        let until = end(&mut link, &mut self.source_server).await?;
        self.send(Message::Done(until)).await
    }

    async fn prepare(&self, link: &mut Link) -> Result<(), CopyError> {
        link.query(SESSION).await?;
        link.query(COMMITTED).await?;
        let limits = match self.source_server.primary.flavor {
            Flavor::MySql => "SET SESSION max_execution_time = 0, net_write_timeout = 600",
            Flavor::MariaDb => "SET SESSION max_statement_time = 0, net_write_timeout = 600",
        };
        link.query(limits).await?;
        Ok(())
    }

    async fn shape(&self, link: &mut Link) -> Result<Option<TableShape>, CopyError> {
        let (schema, table) = self.config.schema_and_table();
        opened(link, schema, table).await?;
        let mut answers: [_; 5] = std::array::from_fn(|_| Vec::new());
        for (answer, question) in answers.iter_mut().zip(questions(schema, table)) {
            *answer = link.query(&question).await?;
        }
        let definition = match last_question(&answers) {
            Some(question) => link.query(&question).await?,
            None => Vec::new(),
        };
        Ok(TableShape::read(&answers, &definition))
    }

    async fn copy(
        &mut self,
        link: &mut Link,
        mapping: &Mapping,
        shape: &TableShape,
        window: &RefCell<CopyWindow>,
    ) -> Result<(), CopyError> {
        let total = self.estimate(link, mapping).await?;
        let is_mariadb = self.source_server.primary.flavor == Flavor::MariaDb;
        let by_gtid = shows_by_gtid(link, &self.source_server.primary, &self.progress).await?;
        let locking = !is_mariadb && !by_gtid;
        let mut pages = Pages::new(mapping, shape, self.chunk, locking);
        let mut read = 0;
        loop {
            let mark = self.mark(window).await;
            wait_until_visible(link, &self.source_server.primary, by_gtid, &self.progress).await?;
            let chunk = Chunk {
                command: pages.command(link).await?,
                mark,
                before: read,
                total,
            };
            let rows = self.chunk(link, mapping, &mut pages, chunk).await?;
            if is_mariadb {
                link.query("COMMIT").await?;
            }
            read += rows;
            if rows < u64::from(self.chunk) {
                return Ok(());
            }
        }
    }

    /// Rows that the table has, as far as the server knows.
    async fn estimate(&self, link: &mut Link, mapping: &Mapping) -> Result<u64, CopyError> {
        let sql = format!(
            "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
            crate::mapping::quoted(&mapping.schema),
            crate::mapping::quoted(&mapping.table)
        );
        let rows = link.value(&sql).await?;
        Ok(rows.and_then(|rows| rows.parse().ok()).unwrap_or(0))
    }

    /// Between two transactions of the stream.
    async fn mark(&self, window: &RefCell<CopyWindow>) -> u64 {
        while self.progress.borrow().is_in_transaction() {
            self.applied.notified().await;
        }
        window.borrow_mut().mark()
    }

    /// Reads the rows of one statement and hands them over. Returns how many.
    async fn chunk(
        &mut self,
        link: &mut Link,
        mapping: &Mapping,
        pages: &mut Pages,
        chunk: Chunk,
    ) -> Result<u64, CopyError> {
        link.send(&chunk.command).await?;
        if !link.result_head().await? {
            return Err(QueryError::from(Broken::Unexpected("a SELECT without rows")).into());
        }
        let columns = &mapping.columns;
        let (mut key, mut row, mut last) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = Batch::new(chunk.mark);
        let mut count = 0;
        while let Some(packet) = link.row().await? {
            let mut values = Vec::with_capacity(columns.len());
            let mut reader = BinaryRow::new(packet, columns.len()).map_err(BinlogError::from)?;
            for column in columns {
                values.push(reader.next_value(&column.column_type)?);
            }
            let value = |column: usize| Ok::<_, BinlogError>(values[column].clone());
            mapping.key_of(value, &mut key)?;
            mapping.row_of(value, &mut row)?;
            batch.bytes.extend_from_slice(&key);
            batch.bytes.extend_from_slice(&row);
            batch.lens.push((key.len() as u32, row.len() as u32));
            count += 1;
            if count == u64::from(self.chunk) {
                last = values
                    .into_iter()
                    .map(mysql_wire::binlog::Value::into_owned)
                    .collect();
            }
            if batch.lens.len() >= BATCH_ROWS || batch.bytes.len() >= BATCH_BYTES {
                batch.percent = chunk.percent(count);
                let full = std::mem::replace(&mut batch, Batch::new(chunk.mark));
                self.send(Message::Rows(full)).await?;
            }
        }
        pages.go_on_after(&last);
        batch.last = true;
        batch.percent = chunk.percent(count);
        self.send(Message::Rows(batch)).await?;
        Ok(count)
    }

    async fn send(&self, message: Message) -> Result<(), CopyError> {
        self.out.send(message).await.map_err(|_| CopyError::GivenUp)
    }
}

/// Waits until definitions that are in the binary log are those that the server shows: MySQL logs a statement
/// first, and has the table locked until then. There may be no such table.
async fn opened(link: &mut Link, schema: &str, table: &str) -> Result<(), CopyError> {
    let sql = format!("SELECT 1 FROM {}.{} LIMIT 0", name(schema), name(table));
    match link.query(&sql).await {
        Ok(_) | Err(QueryError::Refused(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether GTIDs say what a MySQL server shows of what is applied. `gtid_mode` may be changed while it runs.
/// Where it is ON again, the server shows all that has no GTID; and what had one before the stream began,
/// once nobody has a GTID whose commit is under way.
pub(super) async fn shows_by_gtid(
    link: &mut Link,
    primary: &Primary,
    progress: &RefCell<Progress>,
) -> Result<bool, CopyError> {
    if primary.flavor != Flavor::MySql || progress.borrow().is_shown_by_gtid() {
        return Ok(primary.flavor == Flavor::MySql);
    }
    if link.value("SELECT @@GLOBAL.gtid_mode").await?.as_deref() != Some("ON") {
        return Ok(false);
    }
    // A stream that is behind may have more without one.
    let until = primary.clone().status(link).await?.end;
    for _ in 0..LOOKS {
        let (has_passed, unnumbered) = {
            let progress = progress.borrow();
            (progress.has_passed(&until), progress.unnumbered())
        };
        let sql = "SELECT @@GLOBAL.gtid_mode = 'ON' AND @@GLOBAL.gtid_owned = ''";
        if has_passed && link.value(sql).await?.as_deref() == Some("1") {
            progress.borrow_mut().note_shown(unnumbered);
            break;
        }
        sleep(LOOK_AGAIN).await;
    }
    Ok(progress.borrow().is_shown_by_gtid())
}

/// What is applied now the next SELECT sees: on MySQL without GTIDs if it is `FOR SHARE`, on MariaDB until
/// the next `COMMIT`. `by_gtid`: see [`shows_by_gtid`].
pub(super) async fn wait_until_visible(
    link: &mut Link,
    primary: &Primary,
    by_gtid: bool,
    progress: &RefCell<Progress>,
) -> Result<(), CopyError> {
    let (gtids, transaction, is_shown_by_gtid) = {
        let progress = progress.borrow();
        (
            progress.gtids().clone(),
            progress.transaction().cloned(),
            progress.is_shown_by_gtid(),
        )
    };
    match primary.flavor {
        Flavor::MySql if by_gtid && !is_shown_by_gtid => return Err(CopyError::Unnumbered),
        Flavor::MySql if by_gtid => {
            let sql = format!("SELECT GTID_SUBSET('{gtids}', @@GLOBAL.gtid_executed)");
            while link.value(&sql).await?.as_deref() != Some("1") {
                sleep(LOOK_AGAIN).await;
            }
        }
        // The locking read waits for whoever is about to be visible.
        Flavor::MySql => {}
        Flavor::MariaDb => {
            while !shows(link, &gtids, transaction.as_ref()).await? {
                link.query("COMMIT").await?;
                sleep(LOOK_AGAIN).await;
            }
        }
    }
    Ok(())
}

/// MariaDB: begins a transaction, and says whether its snapshot has all that is applied.
async fn shows(
    link: &mut Link,
    gtids: &GtidSet,
    transaction: Option<&FilePosition>,
) -> Result<bool, CopyError> {
    let here = snapshot(link).await?;
    match transaction {
        Some(applied) => Ok(here.covers(applied)),
        None => Ok(gtids_at(link, &here).await?.covers(gtids)),
    }
}
