//! What is noted of the command under way for those who observe commands: see [`finished`](crate::finished).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::flow::Flow;

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
    /// Copies of the command and of its answer, where somebody wants them.
    pub(crate) copied: Option<Copied>,
}

/// How much is copied of a command and of its answer, in bytes with packet headers. What is longer is cut.
#[derive(Debug, Clone)]
pub struct CopyLimits {
    /// Of the command.
    pub command: usize,
    /// Of the answer.
    pub answer: usize,
    /// What all copies have together.
    pub room: Option<Room>,
}

/// Room that all copies share, so that many sessions with long answers at a time do not take all memory. A
/// copy gives back what it has taken when it is dropped.
#[derive(Debug, Clone)]
pub struct Room {
    /// Bytes that are taken; others may be counted there as well.
    pub taken: Arc<AtomicUsize>,
    /// A copy of an answer takes no more from so many on.
    pub max: usize,
}

impl Room {
    fn take(&self, bytes: usize) -> bool {
        let is_there = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.max;
        if !is_there {
            self.give_back(bytes);
        }
        is_there
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A command and its answer as the client sent and got them: whole packets with their headers, unless they
/// are cut.
#[derive(Debug)]
pub struct Copied {
    bytes: Vec<u8>,
    /// How many of the bytes are the command's.
    command_end: usize,
    /// Of the command's first packet with its header, cut or not.
    command_len: usize,
    limits: CopyLimits,
    /// What comes of the command later goes to the server as it comes, so that it can be copied then.
    is_forwarded: bool,
    is_answer_cut: bool,
    /// Bytes of the common room.
    taken: usize,
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Some(room) = &self.limits.room {
            room.give_back(self.taken);
        }
    }
}

impl Copied {
    pub(crate) fn new(limits: CopyLimits, command_len: usize, there: &[u8], is_forwarded: bool) -> Self {
        let len = there.len().min(command_len).min(limits.command);
        let mut copied = Self {
            // Most answers fit behind it.
            bytes: Vec::with_capacity(len + 256),
            command_end: 0,
            command_len,
            limits,
            is_forwarded,
            is_answer_cut: false,
            taken: 0,
        };
        copied.add_command(&there[..len]);
        copied
    }

    /// Counts bytes for which there has to be room: a command is whole, or its session is captured no more.
    fn count(&mut self, bytes: usize) {
        if let Some(room) = &self.limits.room {
            room.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        self.taken += bytes;
    }

    /// Whether there is room for so many bytes more.
    fn take(&mut self, bytes: usize) -> bool {
        let is_there = self.limits.room.as_ref().is_none_or(|room| room.take(bytes));
        self.taken += if is_there { bytes } else { 0 };
        is_there
    }

    /// Its bytes are counted in the common room.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.limits.room.is_some()
    }

    /// A command of one packet and its answer, both with packet headers and both whole: for what
    /// was not copied here, as in tests of observers.
    #[must_use]
    pub fn whole(command: &[u8], answer: &[u8]) -> Self {
        let limits = CopyLimits {
            command: command.len(),
            answer: answer.len(),
            room: None,
        };
        let mut copied = Self::new(limits, command.len(), command, false);
        copied.add_answer(answer);
        copied
    }

    /// The command's first packet, or as much of it as was copied.
    #[must_use]
    pub fn command(&self) -> &[u8] {
        &self.bytes[..self.command_end]
    }

    /// All of that packet is there. A command of 16 MiB and more has others behind it.
    #[must_use]
    pub fn is_command_whole(&self) -> bool {
        self.command_end == self.command_len
    }

    /// The answer's packets, or as many bytes of them as were copied. Empty where the answer was not one of a
    /// server's or of the gateway's own packets.
    #[must_use]
    pub fn answer(&self) -> &[u8] {
        &self.bytes[self.command_end..]
    }

    /// The answer was longer than what is copied of one.
    #[must_use]
    pub fn is_answer_cut(&self) -> bool {
        self.is_answer_cut
    }

    /// Another server is asked.
    fn forget_answer(&mut self) {
        self.drop_answer();
        self.is_answer_cut = false;
    }

    fn drop_answer(&mut self) {
        let len = self.bytes.len() - self.command_end;
        self.bytes.truncate(self.command_end);
        if let Some(room) = &self.limits.room {
            room.give_back(len);
            self.taken -= len;
        }
    }

    /// More of a command that had not come whole.
    fn add_command(&mut self, bytes: &[u8]) {
        let wanted = self.command_len.min(self.limits.command) - self.command_end;
        let bytes = &bytes[..bytes.len().min(wanted)];
        // Whatever has been said before the command had come is no answer to it.
        self.drop_answer();
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.command_end += bytes.len();
    }

    fn add_answer(&mut self, bytes: &[u8]) {
        if self.is_answer_cut && self.limits.room.is_some() {
            return;
        }
        let left = self.limits.answer - (self.bytes.len() - self.command_end);
        let wanted = &bytes[..bytes.len().min(left)];
        self.is_answer_cut |= bytes.len() > left;
        if self.limits.room.is_none() || !self.is_answer_cut && self.take(wanted.len()) {
            self.bytes.extend_from_slice(wanted);
        } else {
            // A part of it is of no use.
            self.is_answer_cut = true;
            self.drop_answer();
            self.bytes.shrink_to_fit();
        }
    }
}

impl Record {
    /// A command has been received, or is taken up once more. `bytes`: what the session has had so far from
    /// its client, and said to it.
    #[cold]
    pub(crate) fn begin(&self, bytes: (u64, u64), copied: impl FnOnce() -> Option<Copied>) {
        let noted = match self.0.take() {
            Some(mut noted) => {
                noted.resent += 1;
                if let Some(copied) = &mut noted.copied {
                    copied.forget_answer();
                }
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
                copied: copied(),
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

    /// Bytes of the command that go to the server now, the first of them `sent` bytes behind its beginning.
    /// Of a command that came whole, or was changed on its way, nothing is lacking.
    #[inline]
    pub(crate) fn note_request(&self, sent: usize, bytes: &[u8]) {
        self.note(|noted| {
            if let Some(copied) = &mut noted.copied
                && copied.is_forwarded
                && !copied.is_command_whole()
                && let Some(lacking) = copied.command_end.checked_sub(sent)
            {
                copied.add_command(bytes.get(lacking..).unwrap_or_default());
            }
        });
    }

    /// What of the answer may go to the client now and could not before.
    #[inline]
    pub(crate) fn note_relayed(&self, down: &Flow) {
        self.note(|noted| {
            if let Some(copied) = &mut noted.copied {
                down.outgoing()
                    .into_iter()
                    .for_each(|bytes| copied.add_answer(bytes));
            }
        });
    }

    /// The gateway answers with these packets.
    #[inline]
    pub(crate) fn note_said(&self, packets: &[u8]) {
        self.note(|noted| {
            if let Some(copied) = &mut noted.copied {
                copied.add_answer(packets);
            }
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CopyLimits = CopyLimits {
        command: 8,
        answer: 4,
        room: None,
    };

    /// A record of a command of so many bytes, of which these have come.
    fn record(command_len: usize, there: &[u8], is_forwarded: bool) -> Record {
        let record = Record::default();
        record.begin((0, 0), || {
            Some(Copied::new(LIMITS, command_len, there, is_forwarded))
        });
        record
    }

    fn copied(record: &Record) -> Copied {
        record.take().and_then(|noted| noted.copied).expect("a copy")
    }

    #[test]
    fn a_command_that_comes_in_parts_is_copied_whole() {
        let parts = record(6, b"ab", true);
        // What had come first goes to the server together with more.
        parts.note_request(0, b"abcd");
        parts.note_request(4, b"ef");
        // The contents of a file that it loads are none of it.
        parts.note_request(6, b"file");
        parts.note_said(b"ok");
        let copied = copied(&parts);
        assert_eq!((copied.command(), copied.answer()), (&b"abcdef"[..], &b"ok"[..]));
        assert!(copied.is_command_whole() && !copied.is_answer_cut());
    }

    #[test]
    fn what_is_changed_on_its_way_is_not_taken_for_the_rest() {
        let changed = record(6, b"ab", false);
        changed.note_request(0, b"ABCDEF");
        let copied = copied(&changed);
        assert!(copied.command() == b"ab" && !copied.is_command_whole());
    }

    #[test]
    fn copies_are_bounded() {
        let long = record(20, b"0123456789", true);
        long.note_request(0, b"0123456789");
        long.note_request(10, b"0123456789");
        long.note_said(b"abc");
        long.note_said(b"def");
        let copied = copied(&long);
        assert_eq!(
            (copied.command(), copied.answer()),
            (&b"01234567"[..], &b"abcd"[..])
        );
        assert!(!copied.is_command_whole() && copied.is_answer_cut());
    }

    #[test]
    fn copies_of_all_sessions_have_one_room() {
        let taken = Arc::new(AtomicUsize::new(0));
        let limits = CopyLimits {
            command: 100,
            answer: 100,
            room: Some(Room {
                taken: Arc::clone(&taken),
                max: 100,
            }),
        };
        let copy = || {
            let record = Record::default();
            record.begin((0, 0), || Some(Copied::new(limits.clone(), 10, &[1; 10], false)));
            record
        };
        let (one, other) = (copy(), copy());
        one.note_said(&[2; 70]);
        assert_eq!(taken.load(Ordering::Relaxed), 90);
        other.note_said(&[3; 5]);
        other.note_said(&[3; 30]);
        let copied = copied(&other);
        assert!(copied.is_answer_cut() && copied.is_command_whole() && copied.answer().is_empty());
        drop(copied);
        assert_eq!(taken.load(Ordering::Relaxed), 80);
        // A session that ends in the middle gives back what it had.
        drop(one);
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_answer_of_a_server_that_is_left_is_forgotten() {
        let resent = record(2, b"ab", true);
        resent.note_said(b"lost");
        resent.begin((0, 0), || None);
        resent.note_said(b"ok");
        assert_eq!(copied(&resent).answer(), b"ok");
    }
}
