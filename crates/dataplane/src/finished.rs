//! The end of a command, as observers hear of it: one [`Finished`] for each command of each session, in modes
//! `session` and `split`, whatever became of it.
//!
//! Without observers that costs one branch where a command begins, and with observers that have no
//! [`Interest`] just now two. Otherwise a [`Record`](crate::record::Record) of the command is kept in the
//! session's control, and the stages note there what only they know. An observer that asks for it gets copies
//! of the command and of its answer, up to the limits that the observer says.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mysql_wire::{Capabilities, Command, PacketHeader};
use sql_class::Class;

use crate::command_head::CommandHead;
use crate::control::Control;
use crate::error::SessionError;
use crate::record::Noted;
use crate::relay::{Streams, Traffic};

pub use crate::copied::{Copied, CopyLimits, Room};
pub use crate::record::End;

/// An observer hears of each command that has ended on one worker. The next command waits for that: an
/// observer must not wait itself, and cannot fail a command.
pub trait Observer {
    /// A command has ended.
    fn finished(&self, finished: &Finished<'_>);

    /// The flag that says whether the observer wants to hear of anything just now. Asked for once; `None`:
    /// always.
    fn interest(&self) -> Option<Arc<Interest>> {
        None
    }

    /// The limits of the copies that the observer wants of the next command of this session, and of the
    /// answer. Asked for where the command begins.
    fn copies(&self, _session: u32) -> Option<CopyLimits> {
        None
    }
}

/// Whether an observer wants to hear of commands just now. Shared by all workers.
#[derive(Debug, Default)]
pub struct Interest(AtomicBool);

impl Interest {
    /// Says whether the observer wants to hear of commands that begin from here on.
    pub fn set(&self, is_interested: bool) {
        self.0.store(is_interested, Ordering::Release);
    }

    #[inline]
    fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished<'a> {
    pub is_first: bool,
    /// The session's id, which is the connection id that its client knows.
    pub session: u32,
    /// The account that the session is logged in with.
    pub user: &'a str,
    pub listener: &'a str,
    pub command: Command,
    /// The kind of statement. `None` where no text was read: in mode `session`, and of commands that are no
    /// statements.
    pub class: Option<Class>,
    /// The digest of the statement's text, or of what a rule has made of it; 0 where no text was read, and of
    /// a text that was answered from memory.
    pub digest: u64,
    pub end: End,
    /// The name of the server that had the command last.
    pub server: Option<&'a str>,
    /// How often the command was sent to one more server, because the one before was lost or takes no writes.
    pub resent: u32,
    /// Time from the moment at which the command was there until its session has borrowed a server connection
    /// for it: rules, waits for a connection and for a replica that is fresh enough. Zero where the session
    /// had a connection. Zero, as the next three are, where the command was sent to no server.
    pub queue_time: Duration,
    /// Time from then on until the command was sent: the session's state on the connection.
    pub lease_time: Duration,
    /// Time from then on until the server's answer has begun; or until its end, where the answer was read for
    /// several sessions together.
    pub server_time: Duration,
    /// Time from then on until the client has taken all of the answer.
    pub relay_time: Duration,
    /// Time from the moment at which the command was there to its end.
    pub total: Duration,
    pub ended: Instant,
    /// Rows of the last result, where a server's answer was one.
    pub rows: u64,
    /// Affected rows of the last result, where a server's answer was none with rows.
    pub affected_rows: u64,
    /// Bytes of the command, with packet headers, as far as they were read.
    pub bytes_from_client: u64,
    /// Bytes of the answer, with packet headers.
    pub bytes_to_client: u64,
    /// The code of the error that the client was told.
    pub error: Option<u16>,
    /// Warnings of the last result; 0 where an error ended it.
    pub warnings: u16,
    /// The last insert id that the command has made; 0 where it made none.
    pub last_insert_id: u64,
    /// The session's current schema after the command, where the gateway knows it: in mode `split`, and in
    /// mode `session` with `moves` or `point_lookups`.
    pub schema: Option<&'a [u8]>,
    /// The schema that the client named when it logged in, or changed its user.
    pub login_schema: Option<&'a [u8]>,
    /// The low byte of the collation that the client named then.
    pub login_collation: u8,
    /// The client's capabilities, by which the copies are to be read.
    pub capabilities: Capabilities,
    /// The command and its answer, where an observer has asked for [copies](Observer::copies). The last
    /// observer may take them.
    pub copied: RefCell<Option<Copied>>,
}

#[derive(Default)]
pub(crate) struct Observers(OnceCell<Box<[Watching]>>);

struct Watching {
    observer: Rc<dyn Observer>,
    interest: Option<Arc<Interest>>,
}

impl Watching {
    #[inline]
    fn is_interested(&self) -> bool {
        self.interest.as_ref().is_none_or(|interest| interest.is_there())
    }
}

impl Observers {
    /// Sets the observers, which come with the worker's extension, before the worker's first session.
    pub(crate) fn set(&self, observers: Vec<Rc<dyn Observer>>) {
        if !observers.is_empty() {
            let watching = observers.into_iter().map(|observer| Watching {
                interest: observer.interest(),
                observer,
            });
            // An extension comes once.
            let _ = self.0.set(watching.collect());
        }
    }
}

/// Begins the record of a command that has been received, or is taken up once more. `is_forwarded`: the rest
/// of the command goes to the server as it comes.
#[inline]
pub(crate) fn begin(
    observers: &Observers,
    control: &Control,
    streams: &Streams,
    head: CommandHead,
    is_forwarded: bool,
) {
    if let Some(observers) = observers.0.get()
        && observers.iter().any(Watching::is_interested)
    {
        begin_record(observers, control, streams, head, is_forwarded);
    }
}

#[cold]
fn begin_record(
    observers: &[Watching],
    control: &Control,
    streams: &Streams,
    head: CommandHead,
    is_forwarded: bool,
) {
    let traffic = &streams.traffic;
    control
        .record
        .begin((traffic.from_client, traffic.to_client), || {
            let wanted = observers
                .iter()
                .filter(|watching| watching.is_interested())
                .filter_map(|watching| watching.observer.copies(control.id))
                .reduce(|one, other| CopyLimits {
                    command: one.command.max(other.command),
                    answer: one.answer.max(other.answer),
                    files: one.files.max(other.files),
                    room: one.room.or(other.room),
                })?;
            let command_len = PacketHeader::LEN + head.payload_len;
            Some(Copied::new(
                wanted,
                command_len,
                streams.up.unseen(),
                is_forwarded,
            ))
        });
}

/// The surroundings of a command: where it came in, and where it went.
pub(crate) struct Ways<'a> {
    pub(crate) listener: &'a str,
    /// The server that had the command last.
    pub(crate) server: &'a str,
    pub(crate) traffic: &'a Traffic,
    pub(crate) schema: Option<&'a [u8]>,
    /// The client's capabilities.
    pub(crate) capabilities: Capabilities,
}

/// Tells observers that the command is over. An error has ended the session. `ways` is called if there is a
/// record.
#[inline]
pub(crate) fn tell<'a>(
    observers: &Observers,
    control: &Control,
    command: Command,
    served: Result<(), &SessionError>,
    ways: impl FnOnce() -> Ways<'a>,
) {
    if let Some(mut noted) = control.record.take() {
        let ways = ways();
        noted.hand_to_copy(ways.capabilities);
        if let Some(observers) = observers.0.get() {
            tell_all(observers, control, &mut noted, (command, served), &ways);
        }
    }
}

#[cold]
fn tell_all(
    observers: &[Watching],
    control: &Control,
    noted: &mut Noted,
    (command, served): (Command, Result<(), &SessionError>),
    ways: &Ways<'_>,
) {
    let now = Instant::now();
    let end = match (noted.end, served) {
        (Some(end), _) => end,
        (None, Ok(())) => End::Gateway,
        (None, Err(_)) if noted.sent.is_some() && command != Command::QUIT => End::Lost,
        (None, Err(_)) => End::Closed,
    };
    let told = served.err().and_then(|error| Some(error.to_packet()?.code));
    let (outcome, sent) = (noted.outcome.as_ref(), noted.sent);
    let (user, login_schema) = (control.user(), control.login_schema());
    let [queue_time, lease_time, server_time, relay_time] = times(noted, now);
    let finished = Finished {
        is_first: noted.bytes_before.0 == 0,
        session: control.id,
        user: user.as_deref().unwrap_or_default(),
        listener: ways.listener,
        command,
        class: noted.statement.map(|(class, _)| class),
        digest: noted.statement.map_or(0, |(_, digest)| digest),
        end,
        server: sent.map(|_| ways.server).filter(|name| !name.is_empty()),
        resent: noted.resent,
        queue_time,
        lease_time,
        server_time,
        relay_time,
        total: now - noted.begun,
        ended: now,
        rows: outcome.map_or(0, |outcome| outcome.rows),
        affected_rows: outcome.map_or(0, |outcome| outcome.affected_rows),
        bytes_from_client: ways.traffic.from_client - noted.bytes_before.0,
        bytes_to_client: ways.traffic.to_client - noted.bytes_before.1,
        error: noted.error.or(told),
        warnings: outcome.map_or(0, |outcome| outcome.warnings),
        last_insert_id: outcome.map_or(0, |outcome| outcome.last_insert_id),
        schema: ways.schema,
        login_schema: login_schema.as_deref(),
        login_collation: control.login_collation(),
        capabilities: ways.capabilities,
        copied: RefCell::new(noted.copied.take()),
    };
    for watching in observers.iter().filter(|watching| watching.is_interested()) {
        watching.observer.finished(&finished);
    }
}

/// The times of queue, lease, server and relay. A command that was sent more than once waits in the queue
/// until it is leased a connection for the last time.
fn times(noted: &Noted, now: Instant) -> [Duration; 4] {
    let Some(sent) = noted.sent else {
        return [Duration::ZERO; 4];
    };
    let leased = noted.leased.unwrap_or(noted.begun).min(sent);
    let answered = noted.answered.unwrap_or(now);
    [
        leased - noted.begun,
        sent - leased,
        answered - sent,
        now - answered,
    ]
}
