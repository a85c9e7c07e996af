//! What is known of a replay that was killed: its result, up to what was written of it, and a journal of the
//! commands that it has sent. What the journal has and the result has not was sent, and nobody knows what
//! became of it.
//!
//! The journal is there for the end of the replayer, not for that of its machine: nothing waits for the disk.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::file::{FileError, Folder, io_at, mend};
use crate::record::{CommandRecord, Flags, Head, Record};
use crate::seal::Key;

use super::ReplayError;
use super::ids::IDS_MAX;
use super::timeline::Timeline;

/// Its name in the folder of the result.
const NAME: &str = "sent.journal";
/// An entry: the session, the number of the command, when it was sent and how late that was, in microseconds.
const ENTRY_LEN: usize = 4 * size_of::<u64>();

/// The commands that were sent, in a file that one replayer has at a time.
pub(super) struct Journal(File);

impl Journal {
    pub(super) fn open(folder: &Path, is_new: bool) -> Result<Self, FileError> {
        let path = folder.join(NAME);
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .append(true)
            .create_new(is_new)
            .mode(0o600)
            .open(&path);
        let file = file.map_err(io_at(&path))?;
        let taken = |_| io::Error::other("another replayer is at it");
        file.try_lock().map_err(taken).map_err(io_at(&path))?;
        Ok(Self(file))
    }

    /// A command is about to be sent. `at`: since the beginning of the replay.
    pub(super) fn note(&mut self, command: &CommandRecord, at: Duration, late: Duration) -> io::Result<()> {
        let [at_us, late_us] = [at, late].map(|time| time.as_micros() as u64);
        let entry = [u64::from(command.session), command.number, at_us, late_us];
        self.0.write_all(&entry.map(u64::to_le_bytes).concat())
    }

    /// Tells of each entry.
    fn read(&mut self, mut tell: impl FnMut([u64; 4])) -> io::Result<()> {
        let mut entries = BufReader::new(&self.0);
        let (mut bytes, mut whole) = ([0_u8; ENTRY_LEN], 0);
        loop {
            match entries.read_exact(&mut bytes) {
                Ok(()) => whole += ENTRY_LEN as u64,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            let (numbers, _) = bytes.as_chunks::<8>();
            tell(std::array::from_fn(|at| u64::from_le_bytes(numbers[at])));
        }
        // An entry that is cut was not followed by its command; what comes next begins behind it.
        self.0.set_len(whole)
    }
}

/// What became of a command before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was not sent.
    Open,
    /// It was answered, or left out.
    Done {
        /// Behind it a transaction was open, which has gone with its connection.
        is_in_transaction: bool,
    },
    /// It was sent, and no more is known.
    Unknown,
}

/// What a replay has done until it was killed.
pub struct Before {
    pub(super) journal: Option<Journal>,
    pub(super) head: Head,
    /// When its last command had ended, in microseconds since its beginning.
    pub(super) until_us: u64,
    /// The lateness of its commands.
    pub(super) timeline: Timeline,
    /// Of each session the last command that is written, and whether a transaction was open behind it.
    last: HashMap<u32, (u64, bool)>,
    unknown: HashSet<(u32, u64)>,
    /// Affected rows and the id that was made, by session and command.
    made: HashMap<(u32, u64), (u64, u64)>,
}

impl Before {
    /// Reads the folder of a result, and takes off what was written half.
    ///
    /// # Errors
    /// It cannot be read, is none of a replay, or one that has come to its end.
    pub fn read(result: &Path, key: Option<&Key>) -> Result<Self, ReplayError> {
        let wrong = |why: &str| Err(ReplayError::Resume(format!("{}: {why}", result.display())));
        let mut journal = Journal::open(result, false)?;
        mend(result, key)?;
        let mut folder = Folder::open(result, key)?;
        let head = folder.head().clone();
        if head.replay.is_none() {
            return wrong("this is no result of a replay");
        }
        let mut last: HashMap<u32, (u64, bool)> = HashMap::new();
        let (mut until_us, mut made) = (0, HashMap::new());
        while let Some(record) = folder.next_record()? {
            match record {
                Record::Command(command) => {
                    until_us = until_us.max(command.start_us.saturating_add(command.took_us));
                    let is_in_transaction = command.flags.has(Flags::IN_TRANSACTION);
                    if command.insert_id != 0 && command.error == 0 && made.len() < IDS_MAX {
                        let place = (command.session, command.number);
                        made.insert(place, (command.affected_rows, command.insert_id));
                    }
                    last.insert(command.session, (command.number, is_in_transaction));
                }
                Record::End(_) => return wrong("this replay has come to its end"),
                Record::Head(_) | Record::Session(_) | Record::Thinned { .. } | Record::Result(_) => {}
            }
        }
        let (mut unknown, mut timeline) = (HashSet::new(), Timeline::default());
        let sent = journal.read(|[session, number, at_us, late_us]| {
            let [at, late] = [at_us, late_us].map(Duration::from_micros);
            timeline.note(at, late);
            let session = session as u32;
            let last = last.get(&session);
            if last.is_none_or(|(last, _)| number > *last) {
                unknown.insert((session, number));
            }
        });
        sent.map_err(io_at(result))?;
        Ok(Self {
            journal: Some(journal),
            head,
            until_us,
            timeline,
            unknown,
            last,
            made,
        })
    }

    pub(super) fn fate(&self, session: u32, number: u64) -> Fate {
        match self.last.get(&session) {
            Some((last, is_in_transaction)) if number <= *last => Fate::Done {
                is_in_transaction: *is_in_transaction && number == *last,
            },
            _ if self.unknown.contains(&(session, number)) => Fate::Unknown,
            _ => Fate::Open,
        }
    }

    /// How many rows a command has affected, and the id that it has made.
    pub(super) fn made(&self, command: &CommandRecord) -> Option<(u64, u64)> {
        self.made.get(&(command.session, command.number)).copied()
    }

    pub(super) fn is_done(&self, session: u32, number: u64) -> bool {
        matches!(self.fate(session, number), Fate::Done { .. })
    }
}
