//! What a folder of traffic consists of: one record for its beginning, one for each session and each command,
//! and one for its end.

use std::fmt::Write as _;

use mysql_wire::Command;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::codec::{Reader, put_bytes, put_number};

pub use crate::codec::Senseless;

/// Most columns that the checks of one result have, over all its result sets.
pub const CHECKS_MAX: usize = 8192;
/// Most bytes of the files that a command has.
pub const FILES_MAX: usize = 32 << 20;
/// Most files that a command has: more than its text has room to name.
pub(crate) const FILE_COUNT_MAX: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The first of each file.
    Head(Box<Head>),
    /// A session, before its first command; and again where its user has changed.
    Session(SessionRecord),
    /// A command that has ended.
    Command(Box<CommandRecord>),
    /// Nothing more of this session was captured from here on: the buffer was full.
    Thinned { session: u32 },
    /// The last of the last file, where whoever wrote it came to its end.
    End(Box<End>),
    /// The result of the command whose record comes behind, in a replay that keeps results.
    Result(ResultRecord),
}

/// How it all began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// `capture`, `replay` or `import`.
    pub kind: String,
    /// Of an import: from what, as `slow-log`.
    #[serde(default)]
    pub imported: Option<String>,
    /// The version of Forebay.
    pub forebay: String,
    /// When it began, in microseconds since 1970. Times of records count from here on.
    pub began_unix_us: u64,
    /// The number of this file in its folder, from 1.
    pub file: u32,
    /// Bytes of the file before it, where the same program has written that one to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_before: Option<u64>,
    /// Which part of the traffic: `--user`, `--listener`, `--schema`, `--digest`, `--sample`.
    #[serde(default)]
    pub filters: Filters,
    /// The servers as they were when it began: those of the captured clusters, or the target of the replay.
    #[serde(default)]
    pub servers: Vec<ServerAtStart>,
    /// Its values are pseudonyms.
    #[serde(default)]
    pub is_anonymised: bool,
    /// Of a replay: how it was done.
    #[serde(default)]
    pub replay: Option<ReplayOf>,
}

/// What of the traffic is captured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Filters {
    /// Of this account alone.
    pub user: Option<String>,
    /// Commands in this schema alone, and what sessions set for themselves.
    pub schema: Option<String>,
    /// The share of sessions, 0 to 1; all where nothing is said.
    pub sample: Option<f64>,
    /// Sessions that came by this listener alone.
    #[serde(default)]
    pub listener: Option<String>,
    /// Statements with this digest alone, and what sessions set for themselves. The digest has 16 hexadecimal
    /// digits.
    #[serde(default)]
    pub digest: Option<String>,
}

/// The number of a digest that is written in 16 hexadecimal digits.
#[must_use]
pub fn digest_of(text: &str) -> Option<u64> {
    let is_one = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// A server, as it was at the beginning. What could not be asked for is missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerAtStart {
    pub cluster: String,
    pub name: String,
    /// `primary`, `replica` or another word of `/status`.
    pub role: String,
    /// `server_uuid`, of MySQL.
    pub server_uuid: Option<String>,
    pub server_id: Option<String>,
    pub version: Option<String>,
    /// The global one.
    pub sql_mode: Option<String>,
    /// The global one.
    pub time_zone: Option<String>,
    /// MySQL `gtid_executed`, MariaDB `gtid_current_pos`.
    pub gtid_position: Option<String>,
    /// Why something is missing.
    pub missing: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayOf {
    /// When the capture that was replayed began, in microseconds since 1970.
    pub capture_began_unix_us: u64,
    /// `max`, or how many times as fast.
    pub speed: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number, which is the connection id that its client knew.
    pub id: u32,
    /// When this was so, in microseconds since the beginning.
    pub at_us: u64,
    pub user: String,
    /// The listener by which it came.
    pub listener: String,
    /// The current schema before its first command, as far as that is known.
    pub schema: Vec<u8>,
    /// What its client had negotiated: [`mysql_wire::Capabilities`].
    pub capabilities: u64,
    /// It was there before the capture began, so that more than user and schema may have been set: variables,
    /// prepared statements, temporary tables, locks.
    pub was_open: bool,
    /// The low byte of the id of the collation that its client had named at its login; 0 where that is not
    /// known. Records of before have none.
    pub collation: u8,
}

/// What is so of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// The text, or the parameters, were not written: they may have a secret.
    pub const WITHHELD: Self = Self(1);
    /// The text, or the parameters, were not written: they are too long.
    pub const CUT: Self = Self(2);
    /// The result has no checks: it is too long, or of a kind that is not read.
    pub const UNCHECKED: Self = Self(4);
    /// The rows came from the gateway's memory.
    pub const MEMORY: Self = Self(8);
    /// The gateway has answered itself, or refused.
    pub const GATEWAY: Self = Self(16);
    /// Nobody knows what became of it.
    pub const LOST: Self = Self(32);
    /// The session has ended with it.
    pub const CLOSED: Self = Self(64);
    /// Of a replay: it was not sent.
    pub const LEFT_OUT: Self = Self(128);
    /// Of an import: nobody knows whether it has failed. Its rows are then not known, either.
    pub const ERROR_UNKNOWN: Self = Self(256);
    /// Of an import: how many rows there were is not known.
    pub const ROWS_UNKNOWN: Self = Self(512);
    /// Of an import: how many rows it has affected is not known.
    pub const AFFECTED_UNKNOWN: Self = Self(1024);
    /// Of an import: how many warnings there were is not known.
    pub const WARNINGS_UNKNOWN: Self = Self(2048);
    /// Of an import: how long it took is not known.
    pub const TIME_UNKNOWN: Self = Self(4096);

    /// Of a replay: behind it a transaction was open.
    pub const IN_TRANSACTION: Self = Self(8192);
    /// The files that it loads were to be captured and are not there: they are too long, have found no room,
    /// were not sent to their end, or may have a secret; or the command was anonymised.
    pub const FILES_CUT: Self = Self(16384);

    /// Whether all of these are so.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Two hashes over the values of one column, or over whole rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Check {
    /// The same in any order.
    pub sum: u64,
    /// The same in the same order.
    pub chain: u64,
}

/// The checks of a result. A result of one column, as most are, needs no memory of its own for them.
pub type Checks = SmallVec<[Check; 2]>;

/// A command that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandRecord {
    pub session: u32,
    /// The how many-th command of its session that was captured, from 0. A replay keeps it.
    pub number: u64,
    /// When it was there, in microseconds since the beginning.
    pub start_us: u64,
    /// From then until its client had all of the answer.
    pub took_us: u64,
    /// The protocol's number.
    pub command: u8,
    pub flags: Flags,
    /// `sql_class::Digest`'s hash of the text; of an execution that of its statement. 0 where there is no
    /// text.
    pub digest: u64,
    /// The current schema before the command; empty where it is not known, or there is none.
    pub schema: Vec<u8>,
    /// COM_QUERY and COM_STMT_PREPARE: the text. Others: what comes behind the command byte, for an execution
    /// the parameters as the protocol has them.
    pub body: Vec<u8>,
    /// The number of the prepared statement that it makes or uses.
    pub statement: u32,
    /// COM_STMT_PREPARE: how many parameters the statement has.
    pub parameters: u16,
    /// Of all results.
    pub rows: u64,
    /// Of the last result.
    pub affected_rows: u64,
    /// The id that the server has made; 0 for none.
    pub insert_id: u64,
    pub warnings: u16,
    /// The code of the error; 0 for none.
    pub error: u16,
    /// Of each result set one for each column, then one for whole rows.
    pub checks: Checks,
    /// COM_QUERY: the files that the client has sent for `LOAD DATA LOCAL`, in their order, where they were
    /// to be captured.
    pub files: Vec<Vec<u8>>,
}

impl CommandRecord {
    /// Whether the body is the text of a statement.
    #[must_use]
    pub fn is_text(&self) -> bool {
        matches!(
            Command(self.command),
            Command::QUERY | Command::STMT_PREPARE | Command::INIT_DB
        )
    }

    /// The packet's payload, as far as it was written.
    pub(crate) fn payload(&self) -> Vec<u8> {
        [&[self.command], &self.body[..]].concat()
    }

    /// Whether its session is as new behind it, or has ended.
    pub(crate) fn is_anew(&self) -> bool {
        let anew = [Command::RESET_CONNECTION, Command::CHANGE_USER, Command::QUIT];
        anew.contains(&Command(self.command))
    }

    /// Bytes of the files that it has.
    #[must_use]
    pub fn files_len(&self) -> usize {
        self.files.iter().map(Vec::len).sum()
    }
}

/// The first rows of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultRecord {
    pub session: u32,
    /// The command's number in its session.
    pub number: u64,
    /// A line for each row, with tabs between its cells.
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// `stopped`, `duration`, `max-size`, `disk`, `buffer`, `error`, `shutdown`; of a replay `done`, or
    /// `error` where sessions have failed; of an import `imported`.
    pub reason: String,
    /// More about that, in words.
    pub words: String,
    pub commands: u64,
    pub sessions: u64,
    /// Sessions of which only the beginning was written.
    pub thinned_sessions: u64,
    /// Commands whose text or parameters were not written.
    pub withheld: u64,
    /// Commands whose result has no checks: it was too long, or there was no room for its copy.
    #[serde(default)]
    pub unchecked: u64,
    /// Lateness of the commands of a replay in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
}

/// How late the commands of a replay were sent, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    pub p99_us: u64,
    /// Above this the times of the replay are worth nothing (`--max-lateness`).
    #[serde(default)]
    pub limit_us: Option<u64>,
    /// How long each part of the timeline is.
    #[serde(default)]
    pub part_us: u64,
    /// The greatest lateness of each part, from the beginning of the replay on.
    #[serde(default)]
    pub timeline: Vec<u64>,
}

impl Lateness {
    /// Why the times are worth nothing, in words; `None` where nobody has said how late is too late, or they
    /// are in time.
    #[must_use]
    pub fn verdict(&self) -> Option<String> {
        let limit_us = self.limit_us.filter(|limit_us| self.p99_us > *limit_us)?;
        Some(format!(
            "its times are worth nothing: the 99th percentile of lateness is {:.3} ms, above {:.3} ms",
            self.p99_us as f64 / 1e3,
            limit_us as f64 / 1e3
        ))
    }
}

const HEAD: u8 = 1;
const SESSION: u8 = 2;
const COMMAND: u8 = 3;
const THINNED: u8 = 4;
const END: u8 = 5;
const RESULT: u8 = 6;

impl Record {
    /// Appends the record's bytes, without its length and checksum.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Head(head) => json(out, HEAD, head),
            Self::Session(session) => session.encode(out),
            Self::Command(command) => command.encode(out),
            Self::Thinned { session } => {
                out.push(THINNED);
                put_number(out, u64::from(*session));
            }
            Self::End(end) => json(out, END, end),
            Self::Result(result) => result.encode(out),
        }
    }

    /// Reads a record. `None` where it is of a kind that a later version has.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Senseless> {
        let mut reader = Reader(bytes);
        Ok(Some(match reader.byte("kind of the record")? {
            HEAD => Self::Head(serde_json::from_slice(reader.0).map_err(|_| Senseless("the head"))?),
            SESSION => Self::Session(SessionRecord::decode(reader)?),
            COMMAND => Self::Command(Box::new(CommandRecord::decode(reader)?)),
            THINNED => {
                let session = reader.small("session's number")?;
                reader.end()?;
                Self::Thinned { session }
            }
            END => Self::End(serde_json::from_slice(reader.0).map_err(|_| Senseless("the end"))?),
            RESULT => Self::Result(ResultRecord::decode(reader)?),
            _ => return Ok(None),
        }))
    }
}

fn json(out: &mut Vec<u8>, kind: u8, value: &impl Serialize) {
    out.push(kind);
    // A struct of texts and numbers can be written, and a Vec takes all.
    let _ = serde_json::to_writer(out, value);
}

impl SessionRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(SESSION);
        put_number(out, u64::from(self.id));
        put_number(out, self.at_us);
        put_bytes(out, self.user.as_bytes());
        put_bytes(out, self.listener.as_bytes());
        put_bytes(out, &self.schema);
        put_number(out, self.capabilities);
        put_number(out, u64::from(self.was_open));
        put_number(out, u64::from(self.collation));
    }

    fn decode(mut reader: Reader<'_>) -> Result<Self, Senseless> {
        let session = Self {
            id: reader.small("session's number")?,
            at_us: reader.number("time of the session")?,
            user: String::from_utf8_lossy(reader.bytes("user")?).into_owned(),
            listener: String::from_utf8_lossy(reader.bytes("listener")?).into_owned(),
            schema: reader.bytes("schema")?.to_vec(),
            capabilities: reader.number("capabilities")?,
            was_open: reader.number("whether the session was open")? != 0,
            collation: match reader.0.is_empty() {
                true => 0,
                false => reader.small("collation")?,
            },
        };
        reader.end().map(|()| session)
    }
}

impl ResultRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(RESULT);
        put_number(out, u64::from(self.session));
        put_number(out, self.number);
        put_bytes(out, self.text.as_bytes());
    }

    fn decode(mut reader: Reader<'_>) -> Result<Self, Senseless> {
        let result = Self {
            session: reader.small("session's number")?,
            number: reader.number("number of the command")?,
            text: String::from_utf8_lossy(reader.bytes("text of the result")?).into_owned(),
        };
        reader.end().map(|()| result)
    }
}

impl CommandRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(COMMAND);
        out.push(self.command);
        put_number(out, u64::from(self.flags.0));
        put_number(out, u64::from(self.session));
        put_number(out, self.number);
        put_number(out, self.start_us);
        put_number(out, self.took_us);
        out.extend_from_slice(&self.digest.to_le_bytes());
        put_bytes(out, &self.schema);
        put_bytes(out, &self.body);
        put_number(out, u64::from(self.statement));
        put_number(out, u64::from(self.parameters));
        put_number(out, self.rows);
        put_number(out, self.affected_rows);
        put_number(out, self.insert_id);
        put_number(out, u64::from(self.warnings));
        put_number(out, u64::from(self.error));
        put_number(out, self.checks.len() as u64);
        for check in &self.checks {
            out.extend_from_slice(&check.sum.to_le_bytes());
            out.extend_from_slice(&check.chain.to_le_bytes());
        }
        if !self.files.is_empty() {
            put_number(out, self.files.len() as u64);
            self.files.iter().for_each(|file| put_bytes(out, file));
        }
    }

    fn decode(mut reader: Reader<'_>) -> Result<Self, Senseless> {
        let mut command = Self {
            command: reader.byte("command")?,
            flags: Flags(reader.small("flags")?),
            session: reader.small("session's number")?,
            number: reader.number("number of the command")?,
            start_us: reader.number("start")?,
            took_us: reader.number("time")?,
            digest: reader.fixed("digest")?,
            schema: reader.bytes("schema")?.to_vec(),
            body: reader.bytes("text")?.to_vec(),
            statement: reader.small("statement's number")?,
            parameters: reader.small("parameters")?,
            rows: reader.number("rows")?,
            affected_rows: reader.number("affected rows")?,
            insert_id: reader.number("insert id")?,
            warnings: reader.small("warnings")?,
            error: reader.small("error")?,
            checks: Checks::new(),
            files: Vec::new(),
        };
        let count: usize = reader.small("count of checks")?;
        if count > CHECKS_MAX || count * 16 > reader.0.len() {
            return Err(Senseless("count of checks"));
        }
        for _ in 0..count {
            command.checks.push(Check {
                sum: reader.fixed("check")?,
                chain: reader.fixed("check")?,
            });
        }
        // Records without files say nothing of them.
        if !reader.0.is_empty() {
            let count: usize = reader.small("count of files")?;
            if count > FILE_COUNT_MAX {
                return Err(Senseless("count of files"));
            }
            for _ in 0..count {
                command.files.push(reader.bytes("file")?.to_vec());
            }
        }
        reader.end().map(|()| command)
    }

    /// One line for a person.
    #[must_use]
    pub fn line(&self) -> String {
        let known = |unknown: Flags, value: String| match self.flags.has(unknown) {
            true => "?".to_owned(),
            false => value,
        };
        let mut line = format!(
            "{:>12.6} {:>8} #{:<5} {:<14} {:>9} ms",
            self.start_us as f64 / 1e6,
            self.session,
            self.number,
            Command(self.command).name(),
            known(Flags::TIME_UNKNOWN, format!("{:.3}", self.took_us as f64 / 1e3)),
        );
        let rows = known(Flags::ROWS_UNKNOWN, self.rows.to_string());
        let affected_rows = known(Flags::AFFECTED_UNKNOWN, self.affected_rows.to_string());
        // Writing to a String cannot fail, here and below.
        let _ = match self.error {
            0 => write!(line, "  {rows} rows, {affected_rows} affected"),
            code => write!(line, "  error {code}"),
        };
        let _ = match self.is_text() && !self.body.is_empty() {
            true => write!(line, "  {}", plain(&self.body, 200)),
            false if self.flags.has(Flags::WITHHELD) => {
                write!(line, "  (withheld) digest {:016x}", self.digest)
            }
            false if self.digest != 0 => write!(line, "  digest {:016x}", self.digest),
            false => Ok(()),
        };
        let _ = match self.flags.has(Flags::FILES_CUT) {
            true => write!(line, "  (without its files)"),
            false if self.files.is_empty() => Ok(()),
            false => write!(line, "  ({} bytes of files)", self.files_len()),
        };
        line
    }
}

/// Lines without what a terminal would obey: names and versions in them come from files of others.
#[must_use]
pub fn harmless(lines: &str) -> String {
    let clean = |letter: char| match letter {
        '\n' => letter,
        letter if letter.is_control() => ' ',
        letter => letter,
    };
    lines.chars().map(clean).collect()
}

/// A text as one line of at most so many letters, without what a terminal would obey.
#[must_use]
pub fn plain(text: &[u8], letters: usize) -> String {
    let text = String::from_utf8_lossy(text);
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut line: String = text.chars().take(letters).map(clean).collect();
    if text.chars().nth(letters).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_before_there_were_collations_is_read() {
        let mut session = SessionRecord {
            id: 7,
            user: "app".to_owned(),
            was_open: true,
            collation: 8,
            ..SessionRecord::default()
        };
        let mut bytes = Vec::new();
        Record::Session(session.clone()).encode(&mut bytes);
        assert_eq!(Record::decode(&bytes), Ok(Some(Record::Session(session.clone()))));
        bytes.pop();
        session.collation = 0;
        assert_eq!(Record::decode(&bytes), Ok(Some(Record::Session(session))));
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let record = Record::Result(ResultRecord {
            session: 7,
            number: 300,
            text: "1\té\n".to_owned(),
        });
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(Record::decode(&bytes), Ok(Some(record)));
        bytes.pop();
        assert!(Record::decode(&bytes).is_err(), "it is cut");
        assert_eq!(Record::decode(&[RESULT + 1]), Ok(None), "of a later version");
    }

    #[test]
    fn a_command_is_read_with_its_files_and_without() {
        let mut command = CommandRecord {
            body: b"LOAD DATA LOCAL INFILE 'f' INTO TABLE t".to_vec(),
            checks: smallvec::smallvec![Check { sum: 1, chain: 2 }],
            ..CommandRecord::default()
        };
        for files in [vec![], vec![vec![]], vec![b"1\n2\n".to_vec(), vec![b'x'; 300]]] {
            command.files = files;
            let record = Record::Command(Box::new(command.clone()));
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&bytes), Ok(Some(record)));
            bytes.pop();
            assert!(Record::decode(&bytes).is_err(), "it is cut");
        }
        assert!(
            command.line().ends_with("  (304 bytes of files)"),
            "{}",
            command.line()
        );
    }

    #[test]
    fn an_end_of_before_there_was_lateness_is_read_and_one_with_it_as_well() {
        let old =
            br#"{"reason":"done","words":"","commands":1,"sessions":1,"thinned_sessions":0,"withheld":0}"#;
        let bytes = [&[END], &old[..]].concat();
        let Ok(Some(Record::End(mut end))) = Record::decode(&bytes) else {
            panic!("it is not read");
        };
        assert_eq!(end.lateness, None);
        end.lateness = Some(Lateness {
            p99_us: 7,
            timeline: vec![3, 7],
            ..Lateness::default()
        });
        let mut bytes = Vec::new();
        Record::End(end.clone()).encode(&mut bytes);
        assert_eq!(Record::decode(&bytes), Ok(Some(Record::End(end))));
    }

    #[test]
    fn times_are_worth_nothing_above_the_limit_alone() {
        let verdict = |p99_us, limit_us| {
            let lateness = Lateness {
                p99_us,
                limit_us,
                ..Lateness::default()
            };
            lateness.verdict().is_some()
        };
        assert!(verdict(1001, Some(1000)));
        assert!(!verdict(1000, Some(1000)) && !verdict(1001, None));
    }
}
