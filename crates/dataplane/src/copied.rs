//! Bounded copies of a command and of its answer, for those who observe commands or compare answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Limits of the copies of a command and of its answer, in bytes with packet headers. Longer parts are cut.
#[derive(Debug, Clone)]
pub struct CopyLimits {
    /// Limit of the command.
    pub command: usize,
    /// Limit of the answer.
    pub answer: usize,
    /// Limit of files that the client sends for the command (`LOAD DATA LOCAL`).
    pub files: usize,
    /// The room that all copies share. An observer makes one `Arc` for each worker, so that workers do not
    /// share a count of owners.
    pub room: Option<Arc<Room>>,
}

/// Room that all copies share, so that many sessions with long answers at a time do not take all memory. A
/// copy gives back what it has taken when it is dropped.
#[derive(Debug)]
pub struct Room {
    /// Bytes that are taken; others may be counted there as well.
    pub taken: Arc<AtomicUsize>,
    /// Bytes from which on copies of answers and files take no more.
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

/// Bytes behind the command into which most answers fit.
const ANSWER_ROOM: usize = 256;

/// A command and its answer as the client sent and got them: whole packets with their headers, unless they
/// are cut.
#[derive(Debug)]
pub struct Copied {
    bytes: Vec<u8>,
    /// How many of the bytes are the command's.
    pub(crate) command_end: usize,
    /// Length of the command's first packet with its header, cut or not.
    command_len: usize,
    limits: CopyLimits,
    /// The rest of the command goes to the server as it comes, so that it can be copied then.
    pub(crate) is_forwarded: bool,
    is_answer_cut: bool,
    /// There was no room for the answer.
    lacked_room: bool,
    /// Packets of files that the client has sent; `None` once they are cut.
    files: Option<Vec<u8>>,
    /// Bytes that are taken of the common room.
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
            bytes: Vec::with_capacity(len + ANSWER_ROOM),
            command_end: 0,
            command_len,
            limits,
            is_forwarded,
            is_answer_cut: false,
            lacked_room: false,
            files: Some(Vec::new()),
            taken: 0,
        };
        copied.add_command(&there[..len]);
        copied
    }

    /// Counts bytes that are taken with or without room: a command is whole, or its session is captured no
    /// more.
    fn count(&mut self, bytes: usize) {
        if let Some(room) = &self.limits.room {
            room.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        self.taken += bytes;
    }

    /// Takes room for so many bytes more. False where there is none.
    fn take(&mut self, bytes: usize) -> bool {
        let is_there = self.limits.room.as_ref().is_none_or(|room| room.take(bytes));
        self.taken += if is_there { bytes } else { 0 };
        is_there
    }

    fn give_back(&mut self, bytes: usize) {
        if let Some(room) = &self.limits.room {
            room.give_back(bytes);
        }
        self.taken -= bytes;
    }

    /// A copy of an answer alone. `beside`: further bytes that are kept as long as this copy.
    pub(crate) fn of_answer(limits: CopyLimits, beside: usize) -> Self {
        let mut copied = Self::new(limits, 0, &[], false);
        copied.count(beside);
        copied
    }

    /// A command of one packet and its answer, both with packet headers and both whole: for what
    /// was not copied here, as in tests of observers.
    #[must_use]
    pub fn whole(command: &[u8], answer: &[u8]) -> Self {
        let limits = CopyLimits {
            command: command.len(),
            answer: answer.len(),
            files: 0,
            room: None,
        };
        let mut copied = Self::new(limits, command.len(), command, false);
        copied.add_answer(answer);
        copied
    }

    /// Adds the packets of files, with their headers; `None` where these are cut. For tests of observers.
    #[must_use]
    pub fn with_files(mut self, packets: Option<&[u8]>) -> Self {
        self.files = packets.map(<[u8]>::to_vec);
        self
    }

    /// The command's first packet, or as much of it as was copied.
    #[must_use]
    pub fn command(&self) -> &[u8] {
        &self.bytes[..self.command_end]
    }

    /// Whether all of that packet is there. A command of 16 MiB and more has others behind it.
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

    /// Whether the answer is not whole: it was longer than what is copied of one, or found no room.
    #[must_use]
    pub fn is_answer_cut(&self) -> bool {
        self.is_answer_cut
    }

    /// Whether the answer would have been copied, but the common room had no space left.
    #[must_use]
    pub fn lacked_room(&self) -> bool {
        self.lacked_room
    }

    /// Whether the client has sent files for the command, and they are wanted.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.files.as_ref().is_none_or(|files| !files.is_empty())
    }

    /// The packets of these files with their headers, one file after the other, each with its empty packet
    /// unless its command has ended before. `None` where the files are longer than what is copied of them, or
    /// found no room.
    #[must_use]
    pub fn files(&self) -> Option<&[u8]> {
        self.files.as_deref()
    }

    /// Forgets the answer so far, since another server is asked.
    pub(crate) fn forget_answer(&mut self) {
        self.drop_answer();
        (self.is_answer_cut, self.lacked_room) = (false, false);
    }

    fn drop_answer(&mut self) {
        let len = self.bytes.len() - self.command_end;
        self.bytes.truncate(self.command_end);
        // Without a common room an answer is not counted.
        if self.limits.room.is_some() {
            self.give_back(len);
        }
    }

    /// Adds bytes of a command that had not come whole.
    pub(crate) fn add_command(&mut self, bytes: &[u8]) {
        let wanted = self.command_len.min(self.limits.command) - self.command_end;
        let bytes = &bytes[..bytes.len().min(wanted)];
        // Bytes that were said before the command had come are no answer to it.
        self.drop_answer();
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.command_end += bytes.len();
    }

    pub(crate) fn add_answer(&mut self, bytes: &[u8]) {
        if self.is_answer_cut && self.limits.room.is_some() {
            return;
        }
        let left = self.limits.answer - (self.bytes.len() - self.command_end);
        let wanted = &bytes[..bytes.len().min(left)];
        self.is_answer_cut |= bytes.len() > left;
        if self.limits.room.is_none() || !self.is_answer_cut && self.take(wanted.len()) {
            self.bytes.extend_from_slice(wanted);
        } else {
            // A part of the answer is of no use.
            self.lacked_room = !self.is_answer_cut;
            self.is_answer_cut = true;
            self.drop_answer();
            self.bytes.shrink_to_fit();
        }
    }

    /// Adds bytes of the files that the client sends.
    pub(crate) fn add_files(&mut self, bytes: &[u8]) {
        let Some(len) = self
            .files
            .as_ref()
            .map(Vec::len)
            .filter(|_| self.limits.files > 0)
        else {
            return;
        };
        if len + bytes.len() <= self.limits.files && self.take(bytes.len()) {
            self.files.get_or_insert_default().extend_from_slice(bytes);
        } else {
            // A part of the files is of no use.
            self.files = None;
            self.give_back(len);
        }
    }
}
