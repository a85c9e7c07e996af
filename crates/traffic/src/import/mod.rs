//! Makes a folder of traffic of what others have written: logs of servers, captures of networks, captures of
//! TiProxy.
//!
//! Each kind has a reader that finds commands in a file and hands them over here. What is written of them is
//! decided as it is of a capture (the same function does both), so that no secret of a log gets into a
//! folder. What a file does not say is marked as not known, and never compared.

mod general_log;
mod lines;
mod pcap;
mod slow_log;
mod talk;
mod tcp;
mod times;
mod tiproxy;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dataplane::finished::End as HowEnded;
use mysql_wire::{Capabilities, ChangeUser, Command, PacketHeader, write_packet};

use crate::capture::{COMMAND_MAX, CapturedAnswer, Ended, STATEMENTS_MAX, Session, record};
use crate::file::{FileError, FolderWriter};
use crate::kept_columns::KeptColumns;
use crate::record::{End, Flags, Head, Record, ServerAtStart, SessionRecord, plain};
use crate::seal::Key;

/// From so many bytes on the next file is begun.
const FILE_MAX: u64 = 256 << 20;
/// Sessions that are known at a time. Not all logs tell where one has ended, so that beyond this the half
/// that has been silent the longest is forgotten; who speaks again then is another session.
const SESSIONS_MAX: usize = 200_000;
/// The longest name of a user or a schema: servers have much shorter ones, and it is in each record.
const NAME_MAX: usize = 1024;
/// Places that make no sense and reasons to leave something out that are told; the rest is counted.
const TOLD_MAX: usize = 100;
/// Letters of a reason, and of a version.
const WORDS_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The slow query log of MySQL or MariaDB.
    SlowLog,
    /// The general query log of MySQL or MariaDB.
    GeneralLog,
    /// What TiProxy has captured.
    Tiproxy,
    /// Packets of a network.
    Pcap,
}

impl From {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlowLog => "slow-log",
            Self::GeneralLog => "general-log",
            Self::Tiproxy => "tiproxy",
            Self::Pcap => "pcap",
        }
    }
}

impl fmt::Display for From {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("no command was found: is it a {0}?{1}")]
    Nothing(From, String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub commands: u64,
    pub sessions: u64,
    /// Commands of which only the digest was written.
    pub withheld: u64,
    /// What was not taken over, by why.
    pub left_out: BTreeMap<String, u64>,
    /// Where files make no sense, or end too early: what came before was taken over.
    pub stops: Vec<String>,
}

/// Imports files, one after the other.
pub struct Importer {
    from: From,
    to: PathBuf,
    key: Option<Key>,
    forebay: String,
    /// Made with the first command, since the folder begins with its time.
    writer: Option<FolderWriter>,
    began_us: u64,
    /// What the server says that it is.
    version: Option<String>,
    /// Sessions by the numbers that the file has for them.
    sessions: HashMap<u64, Known>,
    /// Bytes that are known of prepared statements, and of some that have gone since they were counted.
    statement_bytes: usize,
    /// Numbers that sessions have had, here.
    used: HashSet<u32>,
    /// From here on upwards numbers were given to those whose own was taken.
    spare: u32,
    /// Of a network.
    streams: tcp::Streams,
    imported: Imported,
}

/// A session that goes on.
struct Known {
    id: u32,
    session: Session,
    columns: KeptColumns,
    /// The number of the statement that was prepared last, of TiProxy alone; 0 for none.
    last_prepared: u32,
    is_written: bool,
    /// Whose it is was written.
    is_told: bool,
    who: Who,
    /// It has a name that no server takes, so that nothing more of it is taken over.
    is_refused: bool,
    at_us: u64,
    /// When its last command has ended.
    until_us: u64,
}

impl Known {
    /// Bytes that are known of its prepared statements.
    fn statement_bytes(&self) -> usize {
        self.session.statement_bytes() + self.columns.size()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Who {
    user: String,
    /// Its schema at the beginning; `None` where that is not known.
    schema: Option<Vec<u8>>,
    capabilities: Capabilities,
    collation: u8,
    /// Its beginning is not there.
    was_open: bool,
}

/// A command, as a file tells it. What is `None` the file does not say. Times are microseconds since 1970.
#[derive(Default)]
struct Said<'a> {
    thread: u64,
    start_us: u64,
    took_us: Option<u64>,
    command: u8,
    /// What comes behind the byte of the command.
    body: &'a [u8],
    is_cut: bool,
    /// The answer's packets, with their headers.
    answer: &'a [u8],
    error: Option<u16>,
    rows: Option<u64>,
    affected_rows: Option<u64>,
    warnings: Option<u16>,
    insert_id: u64,
    is_lost: bool,
}

impl Importer {
    /// `to`: a new folder. `key`: with which it is sealed. `forebay`: this version.
    #[must_use]
    pub fn new(from: From, to: &Path, key: Option<Key>, forebay: &str) -> Self {
        Self {
            from,
            to: to.to_owned(),
            key,
            forebay: forebay.to_owned(),
            writer: None,
            began_us: 0,
            version: None,
            sessions: HashMap::new(),
            statement_bytes: 0,
            used: HashSet::new(),
            spare: 0,
            streams: tcp::Streams::default(),
            imported: Imported::default(),
        }
    }

    /// Reads a file. Sessions go on from one file to the next.
    pub fn file(&mut self, path: &Path, source: impl Read) -> Result<(), ImportError> {
        match self.from {
            From::SlowLog => slow_log::read(self, path, source),
            From::GeneralLog => general_log::read(self, path, source),
            From::Tiproxy => tiproxy::read(self, path, source),
            From::Pcap => pcap::read(self, path, source),
        }
    }

    /// Writes the end.
    pub fn finish(mut self) -> Result<Imported, ImportError> {
        std::mem::take(&mut self.streams).end(&mut self)?;
        let Some(mut writer) = self.writer.take() else {
            let stops = self.imported.stops.iter().map(|stop| format!("\n{stop}"));
            let left_out = self.imported.left_out.iter();
            let left_out = left_out.map(|(why, count)| format!("\n{count:>10}  left out: {why}"));
            return Err(ImportError::Nothing(self.from, stops.chain(left_out).collect()));
        };
        writer.put(&Record::End(Box::new(End {
            reason: "imported".to_owned(),
            words: self.imported.stops.join("; "),
            commands: self.imported.commands,
            sessions: self.imported.sessions,
            withheld: self.imported.withheld,
            ..End::default()
        })))?;
        writer.finish()?;
        Ok(self.imported)
    }

    /// A session begins, or is another one than before under this number.
    fn begins(&mut self, thread: u64, at_us: u64, who: Who) {
        let mut id = thread as u32;
        while id == 0 || self.used.contains(&id) {
            // Taken: the server has begun anew, or there are several.
            self.spare = self.spare.wrapping_sub(1);
            id = self.spare;
        }
        self.used.insert(id);
        let schema_len = who.schema.as_ref().map_or(0, Vec::len);
        let is_refused = who.user.len().max(schema_len) > NAME_MAX;
        let who = if is_refused { Who::default() } else { who };
        let session = Session::new(&who.user, who.schema.as_deref());
        let known = Known {
            id,
            session,
            columns: KeptColumns::default(),
            last_prepared: 0,
            is_written: false,
            is_told: false,
            who,
            is_refused,
            at_us,
            until_us: at_us,
        };
        self.forget(SESSIONS_MAX);
        self.sessions.insert(thread, known);
    }

    /// Makes room for another session where there are so many.
    fn forget(&mut self, max: usize) {
        if self.sessions.len() < max {
            return;
        }
        let mut times: Vec<_> = self.sessions.values().map(|known| known.until_us).collect();
        let half = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(half);
        let median = *median;
        self.sessions.retain(|_, known| known.until_us > median);
    }

    /// The first line that a server writes into a log: all sessions have ended before.
    fn begin_of_server(&mut self, line: &[u8]) {
        self.sessions.clear();
        self.version = begin_of_server(line);
    }

    /// The session begins anew with its next command.
    fn changes_user(&mut self, thread: u64, at_us: u64, change: &ChangeUser) {
        let Some(known) = self.sessions.get_mut(&thread) else {
            return;
        };
        if change.user.len().max(change.database.len()) > NAME_MAX {
            known.is_refused = true;
            return;
        }
        known.who.user = String::from_utf8_lossy(&change.user).into_owned();
        // The low byte of a collation counts where it is above 255, as at the login.
        known.who.collation = change
            .charset
            .map_or(known.who.collation, |charset| charset as u8);
        known.session.is_in(change.database.clone());
        known.at_us = at_us;
        known.is_told = false;
    }

    /// A file makes no sense from there on, or ends too early. `place`: a line, or a byte.
    fn stop(&mut self, path: &Path, place: u64, why: &str) {
        if self.imported.stops.len() >= TOLD_MAX {
            return self.leave_out("further places that make no sense");
        }
        let why = plain(why.as_bytes(), WORDS_MAX);
        self.imported
            .stops
            .push(format!("{}:{place}: {why}", path.display()));
    }

    /// Something is not taken over.
    fn leave_out(&mut self, why: &str) {
        let left_out = &mut self.imported.left_out;
        let is_one_more = left_out.len() >= TOLD_MAX && !left_out.contains_key(why);
        let why = if is_one_more { "for other reasons" } else { why };
        *left_out.entry(why.to_owned()).or_default() += 1;
    }

    /// Makes the folder with the first command.
    fn open(&mut self, first_us: u64) -> Result<(), ImportError> {
        if self.writer.is_some() {
            return Ok(());
        }
        self.began_us = first_us;
        let version = self.version.as_ref();
        let server = ServerAtStart {
            cluster: "imported".to_owned(),
            name: self.from.name().to_owned(),
            version: version.map(|version| plain(version.as_bytes(), WORDS_MAX)),
            ..ServerAtStart::default()
        };
        let head = Head {
            kind: "import".to_owned(),
            imported: Some(self.from.name().to_owned()),
            forebay: self.forebay.clone(),
            began_unix_us: first_us,
            servers: vec![server],
            ..Head::default()
        };
        self.writer = Some(FolderWriter::create(&self.to, head, FILE_MAX, self.key.as_ref())?);
        Ok(())
    }

    /// Takes over a command of a session that has begun; what comes of others is left out.
    fn say(&mut self, said: &Said<'_>) -> Result<(), ImportError> {
        self.open(said.start_us)?;
        let Some(known) = self.sessions.get_mut(&said.thread) else {
            self.leave_out("commands of sessions that were silent for too long");
            return Ok(());
        };
        if known.is_refused {
            self.leave_out("commands of sessions with a name that no server takes");
            return Ok(());
        }
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        if !std::mem::replace(&mut known.is_told, true) {
            self.imported.sessions += u64::from(!std::mem::replace(&mut known.is_written, true));
            writer.put(&Record::Session(SessionRecord {
                id: known.id,
                at_us: known.at_us.saturating_sub(self.began_us),
                user: known.who.user.clone(),
                listener: String::new(),
                schema: known.session.schema.clone(),
                capabilities: known.who.capabilities.0,
                was_open: known.who.was_open,
                collation: known.who.collation,
            }))?;
        }
        let start_us = said.start_us.saturating_sub(self.began_us);
        let bytes_before = known.statement_bytes();
        let mut ended = ended(said, known);
        let mut record = record(&mut ended, &mut known.session, start_us);
        self.statement_bytes += known.statement_bytes().saturating_sub(bytes_before);
        known.session.commands += 1;
        known.until_us = said.start_us.saturating_add(said.took_us.unwrap_or(0));
        note_unknown(said, &mut record.flags);
        self.imported.commands += 1;
        self.imported.withheld += u64::from(record.flags.has(Flags::WITHHELD));
        writer.put(&Record::Command(Box::new(record)))?;
        if Command(said.command) == Command::QUIT {
            self.sessions.remove(&said.thread);
        }
        if self.statement_bytes > STATEMENTS_MAX {
            self.forget_statements(STATEMENTS_MAX / 2);
        }
        Ok(())
    }

    /// Counts what is known of prepared statements, and forgets it where that is more than so many bytes.
    fn forget_statements(&mut self, max: usize) {
        self.statement_bytes = self.sessions.values().map(Known::statement_bytes).sum();
        if self.statement_bytes > max {
            self.statement_bytes = 0;
            for known in self.sessions.values_mut() {
                known.session.forget_statements();
                known.columns = KeptColumns::default();
            }
        }
    }

    /// The session is in this schema before its next command. Where the file has not told how it came there,
    /// a command of its own says so.
    fn is_in(&mut self, thread: u64, at_us: u64, schema: &[u8]) -> Result<(), ImportError> {
        let Some(known) = self.sessions.get_mut(&thread) else {
            return Ok(());
        };
        known.is_refused |= schema.len() > NAME_MAX;
        if known.is_refused || known.session.schema == schema || schema.is_empty() {
            return Ok(());
        }
        self.say(&Said {
            thread,
            start_us: at_us,
            command: Command::INIT_DB.0,
            body: schema,
            ..Said::default()
        })
    }
}

/// A line that was read, its number, and whether it was cut.
type Line = (Vec<u8>, u64, bool);

/// Reads on behind a line that looks as a server's first one. Where its ports and names of columns come, it
/// is. Otherwise it is part of a text, and the lines that were read are returned.
fn behind_begin<R: Read>(lines: &mut lines::Lines<R>) -> io::Result<Option<Vec<Line>>> {
    let is_ports = |line: &[u8]| line.starts_with(b"Tcp port: ");
    let is_columns = |line: &[u8]| line.starts_with(b"Time") && line.ends_with(b"Argument");
    let mut read = vec![(lines.line.clone(), lines.number, lines.is_cut)];
    for is_right in [is_ports, is_columns] {
        if !lines.next()? {
            return Ok(Some(read));
        }
        read.push((lines.line.clone(), lines.number, lines.is_cut));
        if !is_right(lines.line.trim_ascii_end()) {
            return Ok(Some(read));
        }
    }
    Ok(None)
}

/// The version in `/usr/sbin/mariadbd, Version: 10.11.19-MariaDB-log (Debian 12). started with:`, with
/// which a server begins a log.
fn begin_of_server(line: &[u8]) -> Option<String> {
    let line = line.strip_suffix(b"started with:")?;
    let line = String::from_utf8_lossy(line);
    let (_, rest) = line.split_once(", Version: ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

/// The command in the form in which a capture gets it.
fn ended(said: &Said<'_>, known: &mut Known) -> Ended {
    let kept = &said.body[..said.body.len().min(COMMAND_MAX)];
    let payload = [&[said.command], kept].concat();
    let mut packet = Vec::with_capacity(PacketHeader::LEN + payload.len());
    write_packet(&mut packet, &mut 0, &payload);
    let (command, capabilities) = (Command(said.command), known.who.capabilities);
    let lacks_answer = said.answer.is_empty() && command.has_response();
    let answer = match KeptColumns::are_those_of(capabilities) {
        true if lacks_answer => {
            known.columns.forget(command, &payload);
            CapturedAnswer::Cut
        }
        true => CapturedAnswer::Read(known.columns.read(command, capabilities, &payload, said.answer)),
        false => CapturedAnswer::read(command, capabilities, said.answer),
    };
    Ended {
        session: known.id,
        is_first: false,
        at: Instant::now(),
        total: Duration::from_micros(said.took_us.unwrap_or(0)),
        command,
        who: None,
        schema: None,
        capabilities,
        digest: 0,
        end: match said.is_lost {
            true => HowEnded::Lost,
            false => HowEnded::Relayed,
        },
        rows: said.rows.unwrap_or(0),
        affected_rows: said.affected_rows.unwrap_or(0),
        insert_id: said.insert_id,
        warnings: said.warnings.unwrap_or(0),
        error: said.error.unwrap_or(0),
        packet: packet.into(),
        is_packet_whole: !said.is_cut && kept.len() == said.body.len(),
        answer,
    }
}

fn note_unknown(said: &Said<'_>, flags: &mut Flags) {
    for (is_unknown, flag) in [
        (said.error.is_none(), Flags::ERROR_UNKNOWN),
        (said.rows.is_none(), Flags::ROWS_UNKNOWN),
        (said.affected_rows.is_none(), Flags::AFFECTED_UNKNOWN),
        (said.warnings.is_none(), Flags::WARNINGS_UNKNOWN),
        (said.took_us.is_none(), Flags::TIME_UNKNOWN),
        (
            said.answer.is_empty() && Command(said.command).has_response(),
            Flags::UNCHECKED,
        ),
    ] {
        if is_unknown {
            flags.set(flag);
        }
    }
}

#[cfg(test)]
mod tests;
