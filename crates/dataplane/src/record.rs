//! What is noted of the command under way for those who observe commands: see [`finished`](crate::finished).

use std::cell::Cell;
use std::time::Instant;

use mysql_wire::Outcome;
use sql_class::Class;

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// A server's answer was relayed, which may be an error; or a server was sent a command that has none.
    Relayed,
    /// A server's answer was relayed, to a read that went down one connection together with others.
    Pipelined,
    /// The answer was made of rows in memory.
    Memory,
    /// The gateway has answered itself, or had nothing to answer.
    Gateway,
    /// The gateway has refused the command with an error. No server has executed it.
    Refused,
    /// The answer of a server was cut short, or did not come: nobody knows whether it was executed.
    Lost,
    /// The session has ended with the command, in order or before a server had it.
    Closed,
}

/// The record of a session's command under way; empty where nobody observes. All that is noted then is for
/// nothing, and costs a branch.
#[derive(Default)]
pub(crate) struct Record(Cell<Option<Box<Noted>>>);

/// What is known so far of the command under way.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) begun: Instant,
    /// When its session borrowed a server connection for it last.
    pub(crate) leased: Option<Instant>,
    /// When it was sent to a server last.
    pub(crate) sent: Option<Instant>,
    /// When that server's answer began.
    pub(crate) answered: Option<Instant>,
    pub(crate) resent: u32,
    /// Of the session before the command: from the client, and to it.
    pub(crate) bytes_before: (u64, u64),
    pub(crate) statement: Option<(Class, u64)>,
    pub(crate) end: Option<End>,
    pub(crate) outcome: Option<Outcome>,
    /// The code of the error that the client was told.
    pub(crate) error: Option<u16>,
}

impl Record {
    /// A command has been received, or is taken up once more. `bytes`: what the session has had so far from
    /// its client, and said to it.
    #[cold]
    pub(crate) fn begin(&self, bytes: (u64, u64)) {
        let noted = match self.0.take() {
            Some(mut noted) => {
                noted.resent += 1;
                noted
            }
            None => Box::new(Noted {
                begun: Instant::now(),
                leased: None,
                sent: None,
                answered: None,
                resent: 0,
                bytes_before: bytes,
                statement: None,
                end: None,
                outcome: None,
                error: None,
            }),
        };
        self.0.set(Some(noted));
    }

    /// The command is over.
    pub(crate) fn take(&self) -> Option<Box<Noted>> {
        self.0.take()
    }

    /// Whether somebody wants to know of the command under way.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        let noted = self.0.take();
        let is_wanted = noted.is_some();
        self.0.set(noted);
        is_wanted
    }

    #[inline]
    fn note(&self, change: impl FnOnce(&mut Noted)) {
        if let Some(mut noted) = self.0.take() {
            change(&mut noted);
            self.0.set(Some(noted));
        }
    }

    /// What is read of a statement's text.
    pub(crate) fn note_statement(&self, class: Class, digest: u64) {
        self.note(|noted| noted.statement = Some((class, digest)));
    }

    /// The session has borrowed a server connection.
    #[inline]
    pub(crate) fn note_leased(&self) {
        self.note(|noted| noted.leased = Some(Instant::now()));
    }

    /// The server has said something of its answer.
    #[inline]
    pub(crate) fn note_answer(&self) {
        self.note(|noted| _ = noted.answered.get_or_insert_with(Instant::now));
    }

    /// The command is about to be sent to a server.
    #[inline]
    pub(crate) fn note_sent(&self, at: impl FnOnce() -> Instant) {
        self.note(|noted| (noted.sent, noted.answered) = (Some(at()), None));
    }

    /// What becomes of the command, where nothing else was said before.
    #[inline]
    pub(crate) fn note_end(&self, end: End) {
        self.note(|noted| _ = noted.end.get_or_insert(end));
    }

    /// A server's answer has been relayed to its end.
    #[inline]
    pub(crate) fn note_outcome(&self, outcome: &Outcome) {
        self.note(|noted| {
            noted.end.get_or_insert(End::Relayed);
            (noted.outcome, noted.error) = (Some(*outcome), outcome.error);
        });
    }

    /// The gateway tells the client this error.
    #[inline]
    pub(crate) fn note_error(&self, code: u16) {
        self.note(|noted| {
            noted.end.get_or_insert(End::Refused);
            noted.error = Some(code);
        });
    }
}
