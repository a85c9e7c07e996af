//! The end of a command, as observers hear of it: one [`Finished`] for each command of each session, in modes
//! `session` and `split`, whatever became of it.
//!
//! Without observers that costs one branch where a command begins. With some a [`Record`] of the command is
//! kept in the session's control, and the stages note there what only they know.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mysql_wire::Command;
use sql_class::Class;

use crate::error::SessionError;
use crate::record::{Noted, Record};
use crate::relay::Traffic;

pub use crate::record::End;

/// Who hears of each command that has ended on one worker. What it does is part of the time of the next
/// command: it must not wait, and it cannot fail a command.
pub trait Observer {
    /// A command has ended.
    fn finished(&self, finished: &Finished<'_>);
}

/// A command that has ended.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The session's id, which is the connection id that its client knows.
    pub session: u32,
    /// The account that the session is logged in with.
    pub user: &'a str,
    /// The listener's name.
    pub listener: &'a str,
    /// The command.
    pub command: Command,
    /// What kind of statement it was. `None` where no text was read: in mode `session`, and of commands that
    /// are no statements.
    pub class: Option<Class>,
    /// The digest of the statement's text, or of what a rule has made of it; 0 where no text was read, and of
    /// a text that was answered from memory.
    pub digest: u64,
    /// What became of it.
    pub end: End,
    /// The name of the server that had it last.
    pub server: Option<&'a str>,
    /// How often it was sent to one more server, because the one before was lost or takes no writes.
    pub resent: u32,
    /// From the moment at which it was there until its session has borrowed a server connection for it:
    /// rules, waits for a connection and for a replica that is fresh enough. Zero where the session had one,
    /// and where the command was sent to no server, as the next three are then.
    pub queue_time: Duration,
    /// From then on until it was sent: the session's state on the connection.
    pub lease_time: Duration,
    /// From then on until the server's answer has begun; or until its end, where it was read for several
    /// sessions together.
    pub server_time: Duration,
    /// From then on until the client has taken all of the answer.
    pub relay_time: Duration,
    /// From the moment at which it was there to its end.
    pub total: Duration,
    /// Rows of the last result, where a server's answer was one.
    pub rows: u64,
    /// Of the last result, where a server's answer was none with rows.
    pub affected_rows: u64,
    /// Bytes of the command, with packet headers, as far as they were read.
    pub bytes_from_client: u64,
    /// Bytes of the answer, with packet headers.
    pub bytes_to_client: u64,
    /// The code of the error that the client was told.
    pub error: Option<u16>,
}

/// The observers of one worker.
#[derive(Default)]
pub(crate) struct Observers(OnceCell<Box<[Rc<dyn Observer>]>>);

impl Observers {
    /// They come with the worker's extension, before its first session.
    pub(crate) fn set(&self, observers: Vec<Rc<dyn Observer>>) {
        if !observers.is_empty() {
            // An extension comes once.
            let _ = self.0.set(observers.into());
        }
    }
}

/// A command has been received, or is taken up once more.
#[inline]
pub(crate) fn begin(observers: &Observers, record: &Record, traffic: &Traffic) {
    if observers.0.get().is_some() {
        record.begin((traffic.from_client, traffic.to_client));
    }
}

/// Where a command came in, and what it went to.
pub(crate) struct Ways<'a> {
    pub(crate) session: u32,
    pub(crate) user: Option<String>,
    pub(crate) listener: &'a str,
    /// The server that had it last.
    pub(crate) server: &'a str,
    pub(crate) traffic: &'a Traffic,
}

/// The command is over. An error has ended the session. `ways` is asked where somebody observes.
#[inline]
pub(crate) fn tell<'a>(
    observers: &Observers,
    record: &Record,
    command: Command,
    served: Result<(), &SessionError>,
    ways: impl FnOnce() -> Ways<'a>,
) {
    if let (Some(noted), Some(observers)) = (record.take(), observers.0.get()) {
        tell_all(observers, &noted, command, served, &ways());
    }
}

#[cold]
fn tell_all(
    observers: &[Rc<dyn Observer>],
    noted: &Noted,
    command: Command,
    served: Result<(), &SessionError>,
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
    let [queue_time, lease_time, server_time, relay_time] = times(noted, now);
    let finished = Finished {
        session: ways.session,
        user: ways.user.as_deref().unwrap_or_default(),
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
        rows: outcome.map_or(0, |outcome| outcome.rows),
        affected_rows: outcome.map_or(0, |outcome| outcome.affected_rows),
        bytes_from_client: ways.traffic.from_client - noted.bytes_before.0,
        bytes_to_client: ways.traffic.to_client - noted.bytes_before.1,
        error: noted.error.or(told),
    };
    observers.iter().for_each(|observer| observer.finished(&finished));
}

/// Those of queue, lease, server and relay. A command that was sent more than once waits in the queue until
/// it is leased a connection for the last time.
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
