//! Notes on the command under way, for those who observe commands: see [`finished`](crate::finished).

use std::cell::Cell;
use std::time::Instant;

use crate::copied::Copied;
use crate::mirrored::ServerAnswer;
use crate::relay::flow::Flow;

use mysql_wire::{Capabilities, Outcome};
use sql_class::Class;
use tokio::sync::oneshot;

/// The way a command has ended.
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

/// The record of a session's command under way; empty where nobody observes. A note then costs a branch, and
/// is dropped.
#[derive(Default)]
pub(crate) struct Record(Cell<Option<Box<Noted>>>);

/// The notes on the command under way.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) begun: Instant,
    /// Time at which the session borrowed a server connection for the command last.
    pub(crate) leased: Option<Instant>,
    /// Time at which the command was sent to a server last.
    pub(crate) sent: Option<Instant>,
    /// Time at which that server's answer began.
    pub(crate) answered: Option<Instant>,
    pub(crate) resent: u32,
    /// Bytes of the session before the command: from the client, and to it.
    pub(crate) bytes_before: (u64, u64),
    pub(crate) statement: Option<(Class, u64)>,
    pub(crate) end: Option<End>,
    pub(crate) outcome: Option<Outcome>,
    /// The code of the error that the client was told.
    pub(crate) error: Option<u16>,
    /// Copies of the command and of its answer, where somebody wants them.
    pub(crate) copied: Option<Copied>,
    /// The answer, where it is to be compared with the one to a copy of the statement.
    mirrored: Option<Mirrored>,
}

/// The answer to a statement as far as it has come, and the copy that waits for it.
#[derive(Debug)]
struct Mirrored {
    packets: Copied,
    copy: oneshot::Sender<ServerAnswer>,
}

impl Record {
    /// Begins the record of a command that has been received, or is taken up once more. `bytes`: the bytes
    /// that the session has had so far from its client, and sent to it.
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
            None => Box::new(Noted::new(bytes, copied())),
        };
        self.0.set(Some(noted));
    }

    /// Notes that the answer to the command under way is to be compared with the one to its copy. The
    /// receiver gets the answer as soon as the client has it, and nothing where the answer is not a server's,
    /// or not whole. `bytes`: as where a record [begins](Self::begin).
    pub(crate) fn note_mirrored(
        &self,
        bytes: (u64, u64),
        packets: Copied,
    ) -> oneshot::Receiver<ServerAnswer> {
        let (copy, answer) = oneshot::channel();
        let mut noted = self.0.take().unwrap_or_else(|| Box::new(Noted::new(bytes, None)));
        noted.mirrored = Some(Mirrored { packets, copy });
        self.0.set(Some(noted));
        answer
    }

    /// Notes that the statement is sent to another server, since the answer of its own has not begun.
    pub(crate) fn note_sent_again(&self) {
        self.note(|noted| {
            if let Some(mirrored) = &mut noted.mirrored {
                mirrored.packets.forget_answer();
            }
        });
    }

    /// Takes the notes, since the command is over.
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

    /// Notes bytes of the command that go to the server, the first of them `sent` bytes behind its beginning.
    /// A command that came whole, or was changed on its way, lacks none.
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

    /// Notes bytes of a file that the client sends for the command.
    pub(crate) fn note_file(&self, bytes: &[u8]) {
        self.note(|noted| {
            if let Some(copied) = &mut noted.copied {
                copied.add_files(bytes);
            }
        });
    }

    /// Notes the bytes of the answer that may go to the client and could not before.
    #[inline]
    pub(crate) fn note_relayed(&self, down: &Flow) {
        self.note(|noted| {
            for copied in noted.answers() {
                let outgoing = down.outgoing().into_iter();
                outgoing.for_each(|bytes| copied.add_answer(bytes));
            }
        });
    }

    /// Notes the packets with which the gateway answers.
    #[inline]
    pub(crate) fn note_said(&self, packets: &[u8]) {
        self.note(|noted| {
            noted.answers().for_each(|copied| copied.add_answer(packets));
        });
    }

    /// Notes the class and the digest of a statement's text.
    pub(crate) fn note_statement(&self, class: Class, digest: u64) {
        self.note(|noted| noted.statement = Some((class, digest)));
    }

    /// Notes that the session has borrowed a server connection.
    #[inline]
    pub(crate) fn note_leased(&self) {
        self.note(|noted| noted.leased = Some(Instant::now()));
    }

    /// Notes that the server has said something of its answer.
    #[inline]
    pub(crate) fn note_answer(&self) {
        self.note(|noted| _ = noted.answered.get_or_insert_with(Instant::now));
    }

    /// Notes that the command is about to be sent to a server.
    #[inline]
    pub(crate) fn note_sent(&self, at: impl FnOnce() -> Instant) {
        self.note(|noted| (noted.sent, noted.answered) = (Some(at()), None));
    }

    /// Notes how the command ends, where nothing else was noted before.
    #[inline]
    pub(crate) fn note_end(&self, end: End) {
        self.note(|noted| _ = noted.end.get_or_insert(end));
    }

    /// Notes a server's answer that has been relayed to its end.
    #[inline]
    pub(crate) fn note_outcome(&self, outcome: &Outcome) {
        self.note(|noted| {
            noted.end.get_or_insert(End::Relayed);
            (noted.outcome, noted.error) = (Some(*outcome), outcome.error);
        });
    }

    /// Notes the error that the gateway tells the client.
    #[inline]
    pub(crate) fn note_error(&self, code: u16) {
        self.note(|noted| {
            noted.end.get_or_insert(End::Refused);
            noted.error = Some(code);
        });
    }
}

impl Noted {
    fn new(bytes_before: (u64, u64), copied: Option<Copied>) -> Self {
        Self {
            begun: Instant::now(),
            leased: None,
            sent: None,
            answered: None,
            resent: 0,
            bytes_before,
            statement: None,
            end: None,
            outcome: None,
            error: None,
            copied,
            mirrored: None,
        }
    }

    /// The copies that the answer goes to.
    fn answers(&mut self) -> impl Iterator<Item = &mut Copied> {
        let mirrored = self.mirrored.as_mut().map(|mirrored| &mut mirrored.packets);
        self.copied.iter_mut().chain(mirrored)
    }

    /// Hands the answer to the copy that waits for it, where the answer is a server's and the client has all
    /// of it. `capabilities`: the client's, by which the packets are to be read.
    pub(crate) fn hand_to_copy(&mut self, capabilities: Capabilities) {
        let Some(Mirrored { packets, copy }) = self.mirrored.take() else {
            return;
        };
        if let (Some(End::Relayed | End::Pipelined), Some(outcome), Some(sent)) =
            (self.end, &self.outcome, self.sent)
        {
            // The copy may have come to nothing.
            let _ = copy.send(ServerAnswer::new(outcome, sent.elapsed(), capabilities, packets));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::copied::{CopyLimits, Room};

    use super::*;

    const LIMITS: CopyLimits = CopyLimits {
        command: 8,
        answer: 4,
        files: 10,
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
        // The bytes that had come first go to the server together with more.
        parts.note_request(0, b"abcd");
        parts.note_request(4, b"ef");
        // Packets behind the first are not copied.
        parts.note_request(6, b"more");
        parts.note_said(b"ok");
        let copied = copied(&parts);
        assert_eq!((copied.command(), copied.answer()), (&b"abcdef"[..], &b"ok"[..]));
        assert!(copied.is_command_whole() && !copied.is_answer_cut() && !copied.has_files());
    }

    #[test]
    fn files_are_copied_beside_their_command() {
        let loads = record(2, b"ab", true);
        loads.note_said(b"f");
        loads.note_file(b"12345");
        loads.note_file(b"67890");
        loads.note_said(b"ok");
        let copied = copied(&loads);
        assert_eq!((copied.command(), copied.answer()), (&b"ab"[..], &b"fok"[..]));
        assert!(copied.has_files() && copied.files() == Some(&b"1234567890"[..]));
    }

    #[test]
    fn of_files_that_are_too_long_nothing_is_kept() {
        let loads = record(2, b"ab", true);
        loads.note_file(b"1234567890");
        loads.note_file(b"1");
        loads.note_file(b"2");
        let copied = copied(&loads);
        assert!(copied.has_files() && copied.files().is_none());
    }

    #[test]
    fn files_are_not_copied_for_who_does_not_want_them() {
        let record = Record::default();
        let limits = CopyLimits { files: 0, ..LIMITS };
        record.begin((0, 0), || Some(Copied::new(limits, 2, b"ab", true)));
        record.note_file(b"1");
        let copied = copied(&record);
        assert!(!copied.has_files() && copied.files() == Some(&[][..]));
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
            files: 100,
            room: Some(Arc::new(Room {
                taken: Arc::clone(&taken),
                max: 100,
            })),
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
        let loads = copy();
        loads.note_file(&[4; 10]);
        assert_eq!(taken.load(Ordering::Relaxed), 100);
        loads.note_file(&[4; 1]);
        assert_eq!(taken.load(Ordering::Relaxed), 90);
        assert!(self::copied(&loads).files().is_none());
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

    #[test]
    fn a_copy_gets_what_the_client_was_answered() {
        for is_observed in [false, true] {
            let command = match is_observed {
                true => record(2, b"ab", true),
                false => Record::default(),
            };
            let mut answer = command.note_mirrored((0, 0), Copied::of_answer(LIMITS, 0));
            command.note_sent(Instant::now);
            command.note_said(b"lost");
            command.note_sent_again();
            command.note_said(b"ok");
            command.note_outcome(&Outcome {
                rows: 7,
                ..Outcome::default()
            });
            let mut noted = command.take().expect("a record");
            noted.hand_to_copy(Capabilities::PROTOCOL_41);
            let answer = answer.try_recv().expect("an answer");
            assert_eq!((answer.packets.answer(), answer.rows), (&b"ok"[..], 7));
            assert_eq!(noted.copied.is_some(), is_observed);
        }
    }

    #[test]
    fn what_no_server_has_answered_is_not_compared() {
        let command = Record::default();
        let mut answer = command.note_mirrored((0, 0), Copied::of_answer(LIMITS, 0));
        command.note_sent(Instant::now);
        command.note_error(1429);
        let mut noted = command.take().expect("a record");
        noted.hand_to_copy(Capabilities::PROTOCOL_41);
        assert!(answer.try_recv().is_err());
    }

    #[test]
    fn what_is_kept_beside_an_answer_is_counted() {
        let taken = Arc::new(AtomicUsize::new(0));
        let limits = CopyLimits {
            command: 0,
            answer: 100,
            files: 0,
            room: Some(Arc::new(Room {
                taken: Arc::clone(&taken),
                max: 50,
            })),
        };
        let mut copied = Copied::of_answer(limits.clone(), 45);
        copied.add_answer(&[1; 10]);
        assert!(copied.lacked_room() && copied.answer().is_empty());
        assert_eq!(taken.load(Ordering::Relaxed), 45);
        drop(copied);
        let mut long = Copied::of_answer(limits, 0);
        long.add_answer(&[1; 101]);
        assert!(long.is_answer_cut() && !long.lacked_room());
        drop(long);
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }
}
