//! One stream, from its beginning until it is cut: events, copies, fills.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::CacheMapping;
use mysql_wire::ErrPacket;
use mysql_wire::binlog::{BinlogError, Decoder, Packet, Zone};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use upstream::conversation::QueryError;
use upstream::{Cluster, Server};

use super::account::Replica;
use super::apply::Applier;
use super::copy::{Batch, Copier, CopyError, Message};
use super::dump::{Dump, SILENCE};
use super::log_continuity::LogContinuity;
use super::mapping_tables::{Answers, MappingTables, Reading, Refused, Wanted};
use super::source::{SourceError, SourceServer};
use super::status::{FeedStatus, Fill, Fills};
use super::tables::{RETRY, State};

/// Packets that are applied before others have their turn.
const TURN: usize = 1024;

/// Rows of a copy that become visible at once: whoever reads other mappings waits for no more than these.
const COPIED_AT_ONCE: usize = 256;

/// Rows from the server that are kept before the stream has its turn again.
const FILLS_AT_ONCE: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the gateway stops")]
    Stopped,
    #[error("another server is the primary now")]
    OtherPrimary,
    #[error("its name has moved to another address")]
    Moved,
    #[error("another machine answers at its address")]
    Elsewhere,
    #[error(transparent)]
    Link(#[from] QueryError),
    #[error(transparent)]
    Event(#[from] BinlogError),
    #[error("the server ended the stream: {} (error {})", String::from_utf8_lossy(&.0.message), .0.code)]
    Refused(ErrPacket),
    #[error("the server ended the stream")]
    EndOfStream,
    #[error("the server's binary log began anew")]
    Reset,
    /// Of MariaDB, when `gtid_strict_mode` was switched off. What is applied is what it was.
    #[error("the server's positions are of another kind now")]
    OtherKind,
    /// Which variable must be another one is found out when the next stream is asked for.
    #[error("the server replicates what it does not log")]
    Unlogged,
    #[error("the server has transactions before others that are applied already")]
    OutOfOrder,
    #[error("nothing heard for {} s", .0.as_secs())]
    Silence(Duration),
}

/// What does not change while streams come and go.
pub(super) struct Surroundings {
    pub(super) cluster: Arc<Cluster>,
    pub(super) replica: Replica,
    pub(super) feed_status: Arc<FeedStatus>,
    pub(super) zone: Zone,
    /// Rows.
    pub(super) copy_chunk: u32,
    /// What the configuration says of mappings.
    pub(super) wanted: watch::Receiver<Wanted>,
    pub(super) mapping_tables: MappingTables,
    pub(super) stop: watch::Receiver<bool>,
}

impl Surroundings {
    /// Takes over what the configuration says now; and what mappings there are to be, what cannot be one,
    /// and why there may be others.
    pub(super) fn arrangement(&mut self) -> (Vec<CacheMapping>, Vec<Refused>, Option<String>) {
        self.mapping_tables.want(self.wanted.borrow_and_update().clone());
        let (wanted, refused) = self.mapping_tables.arrangement();
        (wanted, refused, self.mapping_tables.unread())
    }
}

/// A copy that is under way.
struct Copying {
    /// Place of its table.
    at: usize,
    messages: mpsc::Receiver<Message>,
    task: JoinHandle<Result<(), CopyError>>,
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What ends at some time.
type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// A stream, and what goes on beside it.
pub(super) struct Stream<'s> {
    pub(super) around: &'s mut Surroundings,
    pub(super) applier: &'s mut Applier,
    pub(super) fills: &'s mut Fills,
    source_server: SourceServer,
    dump: Dump,
    decoder: Decoder,
    copying: Option<Copying>,
    /// Of mapping tables.
    reading: Option<Later<Result<Answers, CopyError>>>,
    applied: Rc<Notify>,
    heard: bool,
    /// When something came. Whatever else goes on here does not keep a dead stream alive.
    last_heard: Instant,
    /// When memory was given back last, or might have been.
    gave_back: Instant,
    /// Ends when the binary log is not the one any more that is to be followed.
    log_continuity: Later<Ended>,
}

impl<'s> Stream<'s> {
    pub(super) fn new(
        around: &'s mut Surroundings,
        applier: &'s mut Applier,
        fills: &'s mut Fills,
        server: Arc<Server>,
        dump: Dump,
    ) -> Self {
        let source_server = SourceServer {
            replica: around.replica.clone(),
            cluster: Arc::clone(&around.cluster),
            server,
            primary: dump.primary.clone(),
            source: dump.source,
        };
        let probes = Arc::clone(around.feed_status.probes());
        probes.follow(dump.source);
        let log_continuity = LogContinuity::new(source_server.clone(), probes, Rc::clone(&applier.progress));
        Self {
            around,
            applier,
            fills,
            source_server,
            dump,
            decoder: Decoder::new(),
            copying: None,
            reading: None,
            applied: Rc::new(Notify::new()),
            heard: false,
            last_heard: Instant::now(),
            gave_back: Instant::now(),
            log_continuity: Box::pin(log_continuity.run()),
        }
    }

    /// Events have come.
    pub(super) fn was_heard(&self) -> bool {
        self.heard
    }

    /// It ended before it was known whether all that has come belongs there.
    pub(super) fn was_in_doubt(&self) -> bool {
        self.applier.is_in_doubt()
    }

    /// Follows it until it ends.
    pub(super) async fn follow(&mut self) -> Ended {
        self.around.mapping_tables.ask(Duration::ZERO);
        self.applier
            .begin(self.dump.source, self.dump.anew, self.dump.had.take());
        self.applier.tables.must_be_logged(&self.dump.primary);
        self.publish();
        let ended = loop {
            if let Err(ended) = self.turn().await {
                break ended;
            }
        };
        self.copying = None;
        self.applier.cut();
        self.applier.tables.abandon_copies(&ended.to_string());
        ended
    }

    /// What has come, then what comes next.
    async fn turn(&mut self) -> Result<(), Ended> {
        let more = self.apply()?;
        self.keep_fills();
        self.give_back();
        self.manage_copies();
        self.manage_containers();
        if more {
            // Others of this thread: the copier.
            tokio::task::yield_now().await;
        }
        let cluster = Arc::clone(&self.around.cluster);
        let generation = cluster.topology().generation;
        self.must_be_current()?;
        let due = match &self.copying {
            Some(_) => None,
            None => self.applier.tables.next_due(),
        };
        let due = due.into_iter().chain(self.around.mapping_tables.due()).min();
        let due = due.unwrap_or_else(|| Instant::now() + RETRY);
        let silence = match self.applier.has_come_in() {
            true => SILENCE,
            false => self.dump.silence_at_first,
        };
        let writing = self.applier.is_writing();
        let messages = async {
            match &mut self.copying {
                Some(copying) => copying.messages.recv().await,
                None => std::future::pending().await,
            }
        };
        let answers = async {
            match &mut self.reading {
                Some(reading) => reading.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.around.stop.changed() => return Err(Ended::Stopped),
            message = messages, if !writing => {
                // A copier that came later may read another machine.
                self.must_be_current()?;
                self.message(message).await?;
            }
            Ok(()) = self.around.wanted.changed(), if !writing => self.arrange(),
            answers = answers, if !writing => {
                self.must_be_current()?;
                self.have_read_containers(answers)?;
            }
            () = self.around.feed_status.flushed() => self.flush(),
            () = std::future::ready(()), if more => {}
            filled = self.dump.link.fill() => {
                filled.map_err(QueryError::from)?;
                self.last_heard = Instant::now();
            }
            Some(fill) = self.fills.recv() => self.fill(&fill),
            _ = cluster.wait_for_topology_change(generation) => {}
            () = sleep_until(due) => {}
            ended = &mut self.log_continuity => {
                self.must_be_current()?;
                return Err(ended);
            }
            () = sleep_until(self.last_heard + silence) => return Err(Ended::Silence(silence)),
        }
        Ok(())
    }

    /// No other server is the primary, and this one is where it was. While there is none, this one may become
    /// it again.
    fn must_be_current(&self) -> Result<(), Ended> {
        let topology = self.around.cluster.topology();
        let primary = topology.primary();
        if primary.is_some_and(|primary| primary.server.id() != self.source_server.server.id()) {
            return Err(Ended::OtherPrimary);
        }
        if self.dump.link.is_elsewhere(&self.source_server.server) {
            return Err(Ended::Moved);
        }
        Ok(())
    }

    /// Applies what has come; true when there is more.
    fn apply(&mut self) -> Result<bool, Ended> {
        let mut count = 0;
        while count < TURN {
            let Some(packet) = self.dump.link.buffered().map_err(QueryError::from)? else {
                break;
            };
            match self.decoder.packet(packet)? {
                Packet::Event(event) => self.applier.event(event, &self.decoder)?,
                Packet::End => return Err(Ended::EndOfStream),
                Packet::Refused(error) => return Err(Ended::Refused(error)),
            }
            count += 1;
        }
        if count > 0 {
            self.heard = true;
            self.last_heard = Instant::now();
            self.around.feed_status.counts.note_heard();
            if std::mem::take(&mut self.applier.accounts_changed) {
                self.around.cluster.accounts_changed();
            }
            self.publish();
        }
        Ok(count == TURN)
    }

    /// Shows what is applied, and serves what has caught up.
    fn publish(&mut self) {
        let progress = self.applier.progress.borrow();
        let applied = progress.applied(self.applier.version);
        drop(progress);
        // Until it is known that this server's log goes on where the one before ended, reads that demand
        // something wait.
        if applied.position.is_none() || !self.applier.is_resuming() {
            let is_catching_up = self.applier.tables.is_catching_up();
            let reached = applied.position.clone().filter(|_| is_catching_up);
            self.around.feed_status.publish(applied);
            // Behind that: whoever asks the server for rows of a mapping that is served asks for what is as
            // new as its definition.
            if let Some(reached) = reached {
                self.applier.tables.serve(&reached);
            }
        }
        self.applier.touched.tell();
        self.applied.notify_one();
    }

    /// Takes over which mappings are wanted. The one that is being copied may have another place then.
    fn arrange(&mut self) {
        let (wanted, refused, unread) = self.around.arrangement();
        let tables = &mut self.applier.tables;
        let copied = self
            .copying
            .take()
            .map(|copying| (tables.all[copying.at].config.clone(), copying));
        tables.arrange(wanted, refused, unread);
        self.copying = copied.and_then(|(config, mut copying)| {
            copying.at = tables.all.iter().position(|table| table.config == config)?;
            Some(copying)
        });
    }

    /// Has the mapping tables read where that is due.
    fn manage_containers(&mut self) {
        if self.applier.mapping_tables_changed && !self.applier.progress.borrow().is_in_transaction() {
            self.applier.mapping_tables_changed = false;
            self.around.mapping_tables.ask(Duration::ZERO);
        }
        if self.reading.is_some() || !self.around.mapping_tables.take_due() {
            return;
        }
        let reading = Reading {
            source_server: self.source_server.clone(),
            progress: Rc::clone(&self.applier.progress),
        };
        self.reading = Some(Box::pin(reading.run()));
    }

    fn have_read_containers(&mut self, answers: Result<Answers, CopyError>) -> Result<(), Ended> {
        self.reading = None;
        if let Err(CopyError::Source(SourceError::Another)) = answers {
            return Err(Ended::Elsewhere);
        }
        self.around.mapping_tables.answered(answers);
        self.arrange();
        Ok(())
    }

    /// Reads mapping tables again, and tries again what cannot be served.
    fn flush(&mut self) {
        self.around.mapping_tables.ask(Duration::ZERO);
        self.applier.tables.retry();
    }

    /// Ends a copy that is of no use any more, and begins the next.
    fn manage_copies(&mut self) {
        let tables = &mut self.applier.tables;
        if let Some(copying) = &self.copying {
            if let State::Reading | State::Copying { .. } = tables.all[copying.at].state {
                return;
            }
            self.copying = None;
        }
        let Some(at) = tables.due() else { return };
        let (out, messages) = mpsc::channel(1);
        let copier = Copier {
            source_server: self.source_server.clone(),
            config: tables.all[at].config.clone(),
            id: tables.free_id(),
            mode: tables.mode(),
            zone: self.around.zone,
            chunk: self.around.copy_chunk,
            progress: Rc::clone(&self.applier.progress),
            applied: Rc::clone(&self.applied),
            out,
        };
        tables.read(at);
        self.around.feed_status.counts.copies.inc();
        let task = tokio::task::spawn_local(copier.run());
        self.copying = Some(Copying { at, messages, task });
    }

    /// What the copier says; `None` when it has ended.
    async fn message(&mut self, message: Option<Message>) -> Result<(), Ended> {
        let Some(at) = self.copying.as_ref().map(|copying| copying.at) else {
            return Ok(());
        };
        match message {
            Some(Message::Defined {
                mapping,
                window,
                followed,
            }) => {
                self.applier.tables.follow(at, mapping, window);
                // A copier that is gone does not listen.
                let _ = followed.send(());
            }
            Some(Message::Rows(batch)) => self.keep(at, &batch),
            Some(Message::Done(until)) => {
                self.applier.tables.catch_up(at, until);
                self.copying = None;
                self.publish();
            }
            None => {
                if let Some(mut copying) = self.copying.take() {
                    self.failed(at, (&mut copying.task).await)?;
                }
            }
        }
        Ok(())
    }

    fn failed(
        &mut self,
        at: usize,
        result: Result<Result<(), CopyError>, tokio::task::JoinError>,
    ) -> Result<(), Ended> {
        let (mut reason, delay) = match result {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(CopyError::Source(SourceError::Another))) => return Err(Ended::Elsewhere),
            Ok(Err(error @ (CopyError::Mapping(_) | CopyError::Preflight(_)))) => (error.to_string(), RETRY),
            Ok(Err(error)) => (format!("cannot be copied: {error}"), Duration::from_secs(1)),
            Err(error) => (format!("copier ended: {error}"), RETRY),
        };
        let table = &mut self.applier.tables.all[at];
        if let Some(row_of) = &table.config.row_of {
            reason = format!("{reason} (a row of {row_of})");
        }
        if table.told.is_news(&reason) {
            tracing::warn!(
                mapping = table.config.name,
                table = table.config.table,
                reason,
                "mapping cannot be served"
            );
        }
        self.applier.tables.invalidate(at, &reason, Some(delay));
        Ok(())
    }

    /// Puts rows of a copy into the store.
    fn keep(&mut self, at: usize, batch: &Batch) {
        let tables = &mut self.applier.tables;
        let State::Copying { mapping, window, .. } = &tables.all[at].state else {
            return;
        };
        let (id, window) = (mapping.id, Rc::clone(window));
        let mut window = window.borrow_mut();
        let mut kept = 0;
        let mut rows = batch.rows().peekable();
        while rows.peek().is_some() {
            tables.writer.begin();
            for (key, row) in rows.by_ref().take(COPIED_AT_ONCE) {
                if !window.admits(batch.mark, key) {
                    continue;
                }
                kept += 1;
                if let Err(stopped) = tables.writer.put(id, key, row) {
                    tables.writer.commit();
                    return tables.stop(at, &stopped.to_string());
                }
            }
            self.applier.version = tables.writer.commit();
        }
        if batch.last {
            window.done(batch.mark);
        }
        self.around.feed_status.counts.copied_rows.add(kept);
        tables.copied(at, kept, batch.percent);
    }

    /// Those that wait, however busy the stream is; and not so many that it waits.
    fn keep_fills(&mut self) {
        for _ in 0..FILLS_AT_ONCE {
            let Some(fill) = self.fills.try_recv() else { return };
            self.fill(&fill);
        }
    }

    /// The stream's heartbeats let it come here several times a second.
    fn give_back(&mut self) {
        const INTERVAL: Duration = Duration::from_millis(200);
        if self.gave_back.elapsed() >= INTERVAL {
            self.gave_back = Instant::now();
            self.applier.tables.writer.give_back();
        }
    }

    fn fill(&mut self, fill: &Fill) {
        self.applier
            .tables
            .writer
            .fill(&fill.ticket, &fill.key, fill.row.as_deref());
    }
}
