//! Answers that come one after another on one connection.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use mysql_wire::{Capabilities, Command, Event, Outcome, ResponseTracker, StatusFlags, WireError};
use net::Stream;
use net::buffer::{self, Buffer};
use tokio::time::{Instant, timeout, timeout_at};

/// Time, and bytes, for answers that nobody waits for any more, before the connection is given up.
const DISCARDED_MAX: (Duration, usize) = (Duration::from_secs(5), 1 << 20);

/// The state of an answer.
pub(super) enum Arrived {
    /// The answer has come, and its statement has left nothing behind.
    Clean,
    /// The answer has come, but is an error, or warns.
    Unclean,
    /// The answer has come, and something of its session has changed: the connection, with what was sent down
    /// it after that, is of no use.
    Changed,
    /// The answer is not there yet.
    Late,
    /// The answer is longer than a buffer.
    Long,
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswersError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("an answer that nobody has asked for")]
    Unexpected,
    #[error("too much that nobody waits for")]
    TooLong,
    #[error("a read that has changed its session")]
    Changed,
}

/// The answers on a connection, as far as they have been read.
pub(super) struct Answers {
    tracker: ResponseTracker,
    buffer: Buffer,
    /// An answer has been asked for and has not been taken.
    under_way: bool,
    /// Bytes of that answer that were looked at.
    seen: usize,
    reports_state: bool,
}

impl Answers {
    pub(super) fn new(capabilities: Capabilities) -> Self {
        let mut tracker = ResponseTracker::new(capabilities);
        tracker.inspect_state(true);
        Self {
            tracker,
            buffer: buffer::take(),
            under_way: false,
            seen: 0,
            reports_state: false,
        }
    }

    /// Reads the next answer, which is that to `command`.
    pub(super) async fn next(
        &mut self,
        stream: &mut Stream,
        command: Command,
        deadline: Instant,
    ) -> Result<Arrived, AnswersError> {
        self.begin(command);
        loop {
            if let Some(outcome) = self.look()? {
                return Ok(self.judge(&outcome));
            }
            if self.buffer.spare().is_empty() {
                self.buffer.compact();
            }
            if self.buffer.is_full() {
                return Ok(Arrived::Long);
            }
            match timeout_at(deadline, self.read(stream)).await {
                Ok(read) => read?,
                Err(_) => return Ok(Arrived::Late),
            }
        }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        let answer = self.buffer.filled()[..self.seen].to_vec();
        self.pass();
        self.under_way = false;
        answer
    }

    /// Reads the answers to these commands, the first of which may be under way. True where one of them is an
    /// error, or warns.
    pub(super) async fn discard(
        &mut self,
        stream: &mut Stream,
        commands: Vec<Command>,
    ) -> Result<bool, AnswersError> {
        let (time, bytes) = DISCARDED_MAX;
        let discarding = self.discard_within(stream, commands, bytes);
        let discarded = timeout(time, discarding).await;
        discarded.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn discard_within(
        &mut self,
        stream: &mut Stream,
        commands: Vec<Command>,
        mut bytes: usize,
    ) -> Result<bool, AnswersError> {
        let mut unclean = false;
        for command in commands {
            self.begin(command);
            let outcome = loop {
                let outcome = self.look()?;
                bytes = bytes.checked_sub(self.seen).ok_or(AnswersError::TooLong)?;
                self.pass();
                if let Some(outcome) = outcome {
                    break outcome;
                }
                self.buffer.compact();
                self.read(stream).await?;
            };
            self.under_way = false;
            match self.judge(&outcome) {
                Arrived::Changed => return Err(AnswersError::Changed),
                Arrived::Clean => {}
                _ => unclean = true,
            }
        }
        match self.is_empty() {
            true => Ok(unclean),
            false => Err(AnswersError::Unexpected),
        }
    }

    /// Whether nothing has come that is not the answer to something.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.filled().is_empty()
    }

    fn begin(&mut self, command: Command) {
        if !self.under_way {
            self.tracker.begin(command);
            (self.under_way, self.seen, self.reports_state) = (true, 0, false);
        }
    }

    /// Looks at what has come. Returns the end of the answer, if it is there.
    fn look(&mut self) -> Result<Option<Outcome>, AnswersError> {
        loop {
            let progress = self.tracker.advance(&self.buffer.filled()[self.seen..])?;
            self.seen += progress.consumed;
            match progress.event {
                Event::Done(outcome) => return Ok(Some(outcome)),
                Event::More => return Ok(None),
                Event::State => {
                    self.reports_state = true;
                    self.tracker.pass_state();
                }
                Event::LocalInfile | Event::Stream => return Err(AnswersError::Unexpected),
            }
        }
    }

    fn judge(&self, outcome: &Outcome) -> Arrived {
        if self.reports_state || outcome.status.contains(StatusFlags::IN_TRANS) {
            Arrived::Changed
        } else if leaves_nothing(outcome) {
            Arrived::Clean
        } else {
            Arrived::Unclean
        }
    }

    /// Drops the bytes that were looked at.
    fn pass(&mut self) {
        self.buffer.consume(std::mem::take(&mut self.seen));
    }

    async fn read(&mut self, stream: &mut Stream) -> Result<(), AnswersError> {
        match poll_fn(|cx| net::poll_read_into(cx, stream, &mut self.buffer)).await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(()),
        }
    }
}

/// Whether there is nothing to be asked or ended after this answer.
pub(super) fn leaves_nothing(outcome: &Outcome) -> bool {
    outcome.error.is_none()
        && outcome.warnings == 0
        && outcome.is_result_set
        && !outcome.status.contains(StatusFlags::IN_TRANS)
}
