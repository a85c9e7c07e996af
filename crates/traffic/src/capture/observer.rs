//! A worker's part of a capture: it hands over copies, and never waits.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dataplane::finished::{Copied, CopyLimits, End, Finished, Interest, Observer, Room};
use foldhash::fast::RandomState;
use mysql_wire::{Capabilities, Command, PacketHeader};
use smallvec::SmallVec;

use super::{ANSWER_MAX, COMMAND_MAX, COPIES_MAX, QUEUE_MAX, Run, Shared, WhenFull, lock};
use crate::checks::{self, Read};
use crate::hash;
use crate::kept_columns::KeptColumns;

/// Answers of up to so many bytes are read on the worker, whose caches have them. Where the disk is late the
/// queue has room for more commands without them.
const READ_HERE_MAX: usize = 16 << 10;

/// Commands that one worker has for the thread, which takes all of them together and leaves an empty batch:
/// memory that one thread takes and another gives back is dear.
#[derive(Default)]
pub(super) struct Batch {
    /// In the order in which they have ended.
    pub(super) commands: VecDeque<Ended>,
    /// Sessions that the full queue has cost. Nothing more of them comes.
    pub(super) thinned: Vec<u32>,
    #[cfg(test)]
    pub(super) panics: bool,
}

/// The batch that a worker fills. The lock is held for one command, or to take all.
pub(super) type Queue = Arc<Mutex<Batch>>;

/// A command that has ended, as the thread gets it.
pub(crate) struct Ended {
    pub(crate) session: u32,
    /// It is the first of its session.
    pub(crate) is_first: bool,
    pub(crate) at: Instant,
    pub(crate) total: Duration,
    pub(crate) command: Command,
    /// Whose session it is, where that is new.
    pub(crate) who: Option<Box<Who>>,
    /// The session's schema now, where the gateway knows it and it is another than before.
    pub(crate) schema: Option<Box<[u8]>>,
    pub(crate) capabilities: Capabilities,
    pub(crate) digest: u64,
    pub(crate) end: End,
    pub(crate) rows: u64,
    pub(crate) affected_rows: u64,
    pub(crate) insert_id: u64,
    pub(crate) warnings: u16,
    pub(crate) error: u16,
    /// The command's first packet with its header, or as much of it as was copied. A short one is kept
    /// within, as are the checks of a short answer.
    pub(crate) packet: SmallVec<[u8; 64]>,
    pub(crate) is_packet_whole: bool,
    pub(crate) answer: CapturedAnswer,
}

/// The answer to a command, as the client got it.
pub(crate) enum CapturedAnswer {
    /// More than is copied of one.
    Cut,
    Read(Read),
    /// It is read by the thread.
    Long(Copied),
}

impl CapturedAnswer {
    /// Reads it. `packets`: with their headers; there are none where the command has no answer.
    pub(crate) fn read(command: Command, capabilities: Capabilities, packets: &[u8]) -> Self {
        Self::Read(checks::read_with(command, capabilities, &[], packets))
    }
}

pub(crate) struct Who {
    pub(crate) user: Box<str>,
    pub(crate) listener: Box<str>,
    pub(crate) login_schema: Option<Box<[u8]>>,
    pub(crate) login_collation: u8,
}

impl Ended {
    /// About so many bytes of memory, without those of a long answer, which are counted already.
    pub(super) fn size(&self) -> usize {
        let checks = match &self.answer {
            CapturedAnswer::Read(read) => size_of_val(&read.checks[..]),
            CapturedAnswer::Cut | CapturedAnswer::Long(_) => 0,
        };
        size_of::<Self>() + 128 + self.packet.len() + checks
    }
}

pub(super) struct WorkerObserver {
    shared: Arc<Shared>,
    part: RefCell<Part>,
}

/// What this worker has of the present capture.
#[derive(Default)]
struct Part {
    generation: u64,
    run: Option<(Arc<Run>, Queue, Arc<Room>)>,
    /// Sessions that are not captured any further. As many as have come and been thinned while it ran.
    thinned: HashSet<u32>,
    sessions: Sessions,
}

/// The sessions of a worker, as far as they are known.
#[derive(Default)]
struct Sessions {
    known: HashMap<u32, Known, RandomState>,
    /// Bytes of the columns of all of them.
    column_bytes: usize,
}

/// A session, as far as it is known.
#[derive(Default)]
struct Known {
    /// Hashes of the user and of the schema that the thread was told.
    told: Option<(u64, u64)>,
    columns: KeptColumns,
}

/// A session's user and its schema, where the thread has not heard of them.
type News = (Option<Box<Who>>, Option<Box<[u8]>>);

/// Sessions that are known. Beyond that all are forgotten: the thread is told once more.
const KNOWN_MAX: usize = 200_000;
/// Bytes of columns. Beyond that all are forgotten: executions that come without definitions have no checks
/// until their statement is prepared again.
const COLUMNS_MAX: usize = 32 << 20;

impl Sessions {
    /// Reads the answer to a command of one of them, or leaves that to the thread.
    fn read(&mut self, copied: Copied, finished: &Finished<'_>) -> (News, CapturedAnswer) {
        if self.known.len() >= KNOWN_MAX {
            *self = Self::default();
        }
        let known = self.known.entry(finished.session).or_default();
        let news = news(&mut known.told, finished);
        let size_before = known.columns.size();
        let answer = answer(copied, &mut known.columns, finished);
        self.column_bytes = self.column_bytes + known.columns.size() - size_before;
        if finished.command == Command::QUIT {
            self.column_bytes -= known.columns.size();
            self.known.remove(&finished.session);
        }
        if self.column_bytes > COLUMNS_MAX {
            let all = self.known.values_mut();
            all.for_each(|known| known.columns = KeptColumns::default());
            self.column_bytes = 0;
        }
        (news, answer)
    }
}

impl WorkerObserver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            part: RefCell::default(),
        }
    }

    /// Takes up another capture, where there is one. Only then a lock is taken.
    fn follow(&self, part: &mut Part) {
        let generation = self.shared.generation.load(Relaxed);
        if part.generation == generation {
            return;
        }
        *part = Part {
            generation,
            run: lock(&self.shared.run).as_ref().map(|run| {
                let room = Arc::new(Room {
                    taken: Arc::clone(&run.queued),
                    max: COPIES_MAX,
                });
                let queue = Queue::default();
                lock(&run.queues).push(Arc::clone(&queue));
                (Arc::clone(run), queue, room)
            }),
            ..Part::default()
        };
    }
}

impl Observer for WorkerObserver {
    fn interest(&self) -> Option<Arc<Interest>> {
        Some(Arc::clone(&self.shared.interest))
    }

    fn copies(&self, session: u32) -> Option<CopyLimits> {
        let mut part = self.part.borrow_mut();
        self.follow(&mut part);
        let (run, _, room) = part.run.as_ref()?;
        // Which sessions are among the share is the same for all of a session's commands.
        let place = u64::from(session.wrapping_mul(0x9e37_79b1));
        let is_wanted = place < run.share && !part.thinned.contains(&session);
        is_wanted.then_some(CopyLimits {
            command: COMMAND_MAX,
            answer: ANSWER_MAX,
            files: run.order.load_data.unwrap_or(0),
            room: Some(Arc::clone(room)),
        })
    }

    fn finished(&self, finished: &Finished<'_>) {
        let mut part = self.part.borrow_mut();
        self.follow(&mut part);
        let part = &mut *part;
        let Some((run, queue, _)) = &part.run else { return };
        let filters = &run.order.filters;
        let is_other = |wanted: &Option<String>, is: &str| wanted.as_ref().is_some_and(|wanted| wanted != is);
        if is_other(&filters.user, finished.user) || is_other(&filters.listener, finished.listener) {
            return;
        }
        let Some(copied) = finished.copied.take() else {
            return;
        };
        let (packet, is_packet_whole) = (copied.command().into(), copied.is_command_whole());
        let ((who, schema), answer) = part.sessions.read(copied, finished);
        let ended = Ended {
            session: finished.session,
            is_first: finished.is_first,
            at: finished.ended,
            total: finished.total,
            command: finished.command,
            who,
            schema,
            capabilities: finished.capabilities,
            digest: finished.digest,
            end: finished.end,
            rows: finished.rows,
            affected_rows: finished.affected_rows,
            insert_id: finished.last_insert_id,
            warnings: finished.warnings,
            error: finished.error.unwrap_or(0),
            packet,
            is_packet_whole,
            answer,
        };
        let size = ended.size();
        if run.queued.fetch_add(size, Relaxed) + size <= QUEUE_MAX {
            lock(queue).commands.push_back(ended);
            return;
        }
        run.queued.fetch_sub(size, Relaxed);
        match run.order.when_full {
            WhenFull::Thin => {
                lock(queue).thinned.push(finished.session);
                part.thinned.insert(finished.session);
            }
            WhenFull::End => {
                run.is_overrun.store(true, Relaxed);
                self.shared.interest.set(false);
            }
        }
    }
}

/// Reads an answer, or leaves that to the thread.
fn answer(copied: Copied, columns: &mut KeptColumns, finished: &Finished<'_>) -> CapturedAnswer {
    let (command, capabilities) = (finished.command, finished.capabilities);
    let keeps_columns = KeptColumns::are_those_of(capabilities);
    let payload = copied.command().get(PacketHeader::LEN..).unwrap_or_default();
    match copied.answer() {
        // The thread takes the files over.
        _ if copied.has_files() => CapturedAnswer::Long(copied),
        _ if copied.is_answer_cut() => {
            if keeps_columns {
                columns.forget(command, payload);
            }
            CapturedAnswer::Cut
        }
        // Long ones as well: what one of them tells of columns counts for the next.
        packets if keeps_columns => {
            CapturedAnswer::Read(columns.read(command, capabilities, payload, packets))
        }
        packets if packets.len() > READ_HERE_MAX => CapturedAnswer::Long(copied),
        packets => CapturedAnswer::read(command, capabilities, packets),
    }
}

/// Takes the news of a session, which count as told from here on.
fn news(told: &mut Option<(u64, u64)>, finished: &Finished<'_>) -> News {
    let schema = finished.schema.map_or(0, hash::bytes);
    let now = (hash::bytes(finished.user.as_bytes()), schema);
    let before = told.replace(now);
    let has_same = |part: fn((u64, u64)) -> u64| before.is_some_and(|before| part(before) == part(now));
    // By the same user, too, it begins anew: in the schema and with the collation that it names.
    let begins_anew = finished.command == Command::CHANGE_USER && finished.error.is_none();
    let who = (begins_anew || !has_same(|(user, _)| user)).then(|| {
        Box::new(Who {
            user: finished.user.into(),
            listener: finished.listener.into(),
            login_schema: finished.login_schema.map(Into::into),
            login_collation: finished.login_collation,
        })
    });
    let schema = finished.schema.filter(|_| !has_same(|(_, schema)| schema));
    (who, schema.map(Into::into))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::tests::{finished, packet, stalled};
    use super::*;

    /// The answer of a command of the only worker, and the bytes of columns after it.
    fn answered(
        observer: &WorkerObserver,
        run: &Run,
        payload: &[u8],
        answer: &[&[u8]],
    ) -> (CapturedAnswer, usize) {
        let packets: Vec<_> = answer.iter().flat_map(|payload| packet(payload)).collect();
        let mut command = finished(1, payload, &[]);
        command.capabilities = command.capabilities | Capabilities::MARIADB_CACHE_METADATA;
        command.copied = RefCell::new(Some(Copied::whole(&packet(payload), &packets)));
        observer.finished(&command);
        let ended = lock(&lock(&run.queues)[0]).commands.pop_back().unwrap();
        (ended.answer, observer.part.borrow().sessions.column_bytes)
    }

    #[test]
    fn columns_of_prepared_statements_are_kept_as_long_as_their_session() {
        let (shared, run) = stalled(WhenFull::Thin, 1.0);
        let observer = WorkerObserver::new(shared);
        let (number, row, end): (&[u8], &[u8], &[u8]) = (
            &[3, 0, 0, 0, 0, 0],
            &[0, 0, 7, 0, 0, 0],
            &[0xfe, 0, 0, 2, 0, 0, 0],
        );
        let execute = [Command::STMT_EXECUTE.0, 7, 0, 0, 0, 0, 1, 0, 0, 0];
        let is_read = |payload: &[u8], answer: &[&[u8]]| match answered(&observer, &run, payload, answer) {
            (CapturedAnswer::Read(read), bytes) => (read.is_whole, bytes > 0),
            (CapturedAnswer::Cut | CapturedAnswer::Long(_), _) => panic!("it is read at once"),
        };
        let ok: &[u8] = &[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(is_read(b"\x16SELECT 7", &[ok, number]), (true, true));
        assert_eq!(is_read(&execute, &[&[1, 0], row, end]), (true, true));
        let rows: Vec<_> = std::iter::repeat_n(row, READ_HERE_MAX).collect();
        let long = [&[&[1, 0][..]], &rows[..], &[end]].concat();
        assert_eq!(is_read(&execute, &long), (true, true), "a long one as well");
        assert_eq!(is_read(&[Command::QUIT.0], &[]), (true, false));
        assert!(observer.part.borrow().sessions.known.is_empty());
        assert_eq!(is_read(&execute, &[&[1, 0], row, end]), (false, false));
    }
}
