//! What the scripted server answers: a pure function of request and capabilities, kept by both sides.
//!
//! The statements of its language, in COM_QUERY or prepared; `;` between them makes several results:
//!
//! | statement | answer |
//! |---|---|
//! | `OK` | OK with figures and a text |
//! | `TRACK` | OK with session state changes, where SESSION_TRACK is negotiated |
//! | `ERROR` | error 1064 |
//! | `ROWS n` | n rows of 120 bytes |
//! | `WIDE n` | one row with a value of n bytes, which may be more than a packet holds |
//! | `BROKEN n` | n rows, then an error in the place of the end |
//! | `INFILE name` | a request for a local file, then OK with its length as affected rows |
//! | `PROGRESS n` | n MariaDB progress reports where those are negotiated, then OK |
//! | `HALF n` | the first n bytes of `ROWS 1000`, then the connection is cut |
//! | `PART n` | the same, and then nothing, ever |
//! | `CUT` | the connection is cut |
//! | `STALL` | nothing, ever |
//!
//! A prepared statement with `'CURSOR n'` in it has n rows, which a client may fetch, and nobody is warned.

use mysql_wire::{Capabilities, Command, EofPacket, ErrPacket, OkPacket, StatusFlags, write_packet};

use super::client::INFILE_CONTENT;
use crate::result_set::ROW_VALUE;

/// What a server does about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Sends these payloads.
    Payloads(Vec<Vec<u8>>),
    /// Asks for a local file with the first payload; when it has come, sends the others.
    LocalInfile(Vec<u8>, Vec<Vec<u8>>),
    /// Sends bytes, which may end anywhere, and cuts the connection.
    Cut(Vec<u8>),
    /// Sends bytes, which may end anywhere, and nothing behind them.
    Part(Vec<u8>),
    /// Says nothing: the command has no response, or never gets one.
    Silence,
    /// Says nothing yet: what is special is asked again in a moment, until it has another answer.
    Later,
}

/// The state of one session that answers depend on.
#[derive(Clone, Debug)]
pub struct Script {
    negotiated: Capabilities,
    /// By statement id less one; closed ones stay.
    statements: Vec<String>,
    /// Rows that the open cursor has left.
    cursor: Option<u32>,
    /// With the ends of rows.
    warnings: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Text,
    Binary,
}

impl Script {
    pub fn new(negotiated: Capabilities) -> Self {
        Self {
            negotiated,
            statements: Vec::new(),
            cursor: None,
            warnings: 1,
        }
    }

    /// The answer to one request, its command byte first.
    pub fn reply(&mut self, request: &[u8]) -> Reply {
        let Some((&command, body)) = request.split_first() else {
            return self.refuse(1835, "Malformed communication packet");
        };
        match Command(command) {
            Command::QUERY => self.query(body),
            Command::STMT_PREPARE => self.prepare(body),
            Command::STMT_EXECUTE => self.execute(body),
            Command::STMT_FETCH => self.fetch(body),
            Command::STMT_CLOSE | Command::STMT_SEND_LONG_DATA => Reply::Silence,
            Command::QUIT => Reply::Cut(Vec::new()),
            Command::STATISTICS => Reply::Payloads(vec![b"Uptime: 7  Threads: 1".to_vec()]),
            Command::FIELD_LIST => {
                Reply::Payloads(vec![self.field(), self.end_of_rows(StatusFlags::AUTOCOMMIT)])
            }
            Command::PROCESS_INFO => self.statement("ROWS 3", Rows::Text, false).into_reply(),
            Command::SET_OPTION => Reply::Payloads(vec![self.end_of_rows(StatusFlags::AUTOCOMMIT)]),
            Command::RESET_CONNECTION => {
                self.statements.clear();
                self.ok()
            }
            Command::PING
            | Command::INIT_DB
            | Command::STMT_RESET
            | Command::STMT_BULK_EXECUTE
            | Command::REGISTER_SLAVE
            | Command::DEBUG
            | Command::PROCESS_KILL => self.ok(),
            _ => self.refuse(1047, "Unknown command"),
        }
    }

    /// The bytes of a reply to a request whose last packet had number 0; None where it is not made of whole
    /// packets.
    pub fn bytes(reply: &Reply) -> Option<Vec<u8>> {
        Self::bytes_from(reply, 1)
    }

    /// The same where the first packet has another number: a request over 16 MiB takes several.
    pub fn bytes_from(reply: &Reply, mut sequence: u8) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match reply {
            Reply::Payloads(payloads) => {
                payloads
                    .iter()
                    .for_each(|payload| write_packet(&mut out, &mut sequence, payload));
            }
            Reply::LocalInfile(request, _) => write_packet(&mut out, &mut sequence, request),
            Reply::Silence => {}
            Reply::Cut(_) | Reply::Part(_) | Reply::Later => return None,
        }
        Some(out)
    }

    fn query(&mut self, body: &[u8]) -> Reply {
        let text = match skip_attributes(body, self.negotiated) {
            Some(text) => String::from_utf8_lossy(text).into_owned(),
            None => return self.refuse(1835, "Malformed query attributes"),
        };
        self.statements_of(&text, Rows::Text)
    }

    fn statements_of(&mut self, text: &str, rows: Rows) -> Reply {
        let statements: Vec<&str> = text
            .split(';')
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .collect();
        let mut all = Vec::new();
        for (at, statement) in statements.iter().enumerate() {
            match self.statement(statement, rows, at + 1 < statements.len()) {
                ScriptedAnswer::Payloads(payloads) => all.extend(payloads),
                ScriptedAnswer::Failed(payloads) => {
                    all.extend(payloads);
                    break;
                }
                ScriptedAnswer::Other(reply) => return reply,
            }
        }
        Reply::Payloads(all)
    }

    fn statement(&self, statement: &str, rows: Rows, more: bool) -> ScriptedAnswer {
        let (word, argument) = statement.split_once(' ').unwrap_or((statement, ""));
        let number: usize = argument.parse().unwrap_or(1);
        let status = if more {
            StatusFlags::AUTOCOMMIT | StatusFlags::MORE_RESULTS
        } else {
            StatusFlags::AUTOCOMMIT
        };
        match word {
            "ROWS" => ScriptedAnswer::Payloads(self.rows(number, ROW_VALUE, rows, status)),
            "WIDE" => ScriptedAnswer::Payloads(self.rows(1, &vec![b'w'; number], rows, status)),
            "BROKEN" => {
                let mut payloads = self.rows(number, ROW_VALUE, rows, status);
                payloads.pop();
                payloads.push(self.error(1317, "Query execution was interrupted"));
                ScriptedAnswer::Failed(payloads)
            }
            "ERROR" => ScriptedAnswer::Failed(vec![self.error(1064, "You have an error in your SQL syntax")]),
            "TRACK" => ScriptedAnswer::Payloads(vec![self.ok_packet(status, 0, &track())]),
            "PROGRESS" => {
                let reports = if self.negotiated.contains(Capabilities::MARIADB_PROGRESS) {
                    number
                } else {
                    0
                };
                let mut payloads: Vec<_> = (0..reports).map(|at| progress(at as u8)).collect();
                payloads.push(self.ok_packet(status, 0, &[]));
                ScriptedAnswer::Payloads(payloads)
            }
            "INFILE" => {
                let request = [&[0xfb], argument.as_bytes()].concat();
                let end = self.ok_packet(status, INFILE_CONTENT.concat().len() as u64, &[]);
                ScriptedAnswer::Other(Reply::LocalInfile(request, vec![end]))
            }
            "HALF" | "PART" => {
                let reply = Reply::Payloads(self.rows(1000, ROW_VALUE, rows, status));
                let mut bytes = Self::bytes(&reply).unwrap_or_default();
                bytes.truncate(number);
                ScriptedAnswer::Other(match word {
                    "HALF" => Reply::Cut(bytes),
                    _ => Reply::Part(bytes),
                })
            }
            "CUT" => ScriptedAnswer::Other(Reply::Cut(Vec::new())),
            "STALL" => ScriptedAnswer::Other(Reply::Silence),
            _ => ScriptedAnswer::Payloads(vec![self.ok_packet(status, 3, &[])]),
        }
    }

    fn prepare(&mut self, body: &[u8]) -> Reply {
        let statement = String::from_utf8_lossy(body).into_owned();
        if statement.starts_with("ERROR") {
            return self.refuse(1064, "You have an error in your SQL syntax");
        }
        let has_rows = ["ROWS", "WIDE", "BROKEN", "SELECT @", "SELECT DATABASE()"]
            .iter()
            .any(|word| statement.starts_with(word))
            || rows_of_cursor(&statement).is_some();
        let parameters = statement.matches('?').count();
        self.statements.push(statement);
        let mut head = vec![0];
        head.extend((self.statements.len() as u32).to_le_bytes());
        head.extend(u16::from(has_rows).to_le_bytes());
        head.extend((parameters as u16).to_le_bytes());
        head.extend([0, 0, 0]);
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA;
        if self.negotiated.contains(optional) {
            head.push(1);
        }
        let mut payloads = vec![head];
        for count in [parameters, usize::from(has_rows)] {
            payloads.extend((0..count).map(|_| self.column()));
            if count > 0 && !self.deprecate_eof() {
                payloads.push(eof(StatusFlags::AUTOCOMMIT));
            }
        }
        Reply::Payloads(payloads)
    }

    fn execute(&mut self, body: &[u8]) -> Reply {
        let id = body
            .first_chunk()
            .map_or(0, |id| u32::from_le_bytes(*id) as usize);
        let Some(statement) = id.checked_sub(1).and_then(|at| self.statements.get(at)).cloned() else {
            return self.refuse(1243, "Unknown prepared statement handler given to execute");
        };
        let wants_cursor = body.get(4).is_some_and(|flags| flags & 1 != 0);
        let quiet = rows_of_cursor(&statement);
        self.warnings = u16::from(quiet.is_none());
        let rows = statement
            .strip_prefix("ROWS ")
            .and_then(|number| number.parse().ok())
            .or(quiet);
        match (rows, quiet) {
            (Some(rows), _) if wants_cursor => {
                self.cursor = Some(rows);
                Reply::Payloads(self.cursor_head())
            }
            (_, Some(rows)) => self.statements_of(&format!("ROWS {rows}"), Rows::Binary),
            _ => self.statements_of(&statement, Rows::Binary),
        }
    }

    fn fetch(&mut self, body: &[u8]) -> Reply {
        let wanted = body
            .get(4..8)
            .and_then(|wanted| wanted.first_chunk())
            .map_or(0, |n| u32::from_le_bytes(*n));
        let Some(left) = self.cursor else {
            return self.refuse(1421, "The statement has no open cursor");
        };
        let rows = wanted.min(left);
        let mut status = StatusFlags::AUTOCOMMIT | StatusFlags::CURSOR_EXISTS;
        self.cursor = Some(left - rows);
        if rows < wanted {
            status = StatusFlags::AUTOCOMMIT | StatusFlags::LAST_ROW_SENT;
            self.cursor = None;
        }
        let mut payloads: Vec<_> = (0..rows).map(|_| row(ROW_VALUE, Rows::Binary)).collect();
        payloads.push(self.end_of_rows(status));
        Reply::Payloads(payloads)
    }

    /// The answer to an execute that opened a cursor ends where rows would begin.
    fn cursor_head(&self) -> Vec<Vec<u8>> {
        let status = StatusFlags::AUTOCOMMIT | StatusFlags::CURSOR_EXISTS;
        vec![self.column_count(), self.column(), self.end_of_rows(status)]
    }

    fn rows(&self, count: usize, value: &[u8], rows: Rows, status: StatusFlags) -> Vec<Vec<u8>> {
        let mut payloads = vec![self.column_count(), self.column()];
        if !self.deprecate_eof() {
            payloads.push(eof(status));
        }
        payloads.extend(std::iter::repeat_n(row(value, rows), count));
        payloads.push(self.end_of_rows(status));
        payloads
    }

    fn column_count(&self) -> Vec<u8> {
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
        if self.negotiated.intersects(optional) {
            vec![1, 1]
        } else {
            vec![1]
        }
    }

    fn column(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for text in [&b"def"[..], b"script", b"t", b"t", b"c", b"c"] {
            out.push(text.len() as u8);
            out.extend(text);
        }
        if self.negotiated.contains(Capabilities::MARIADB_EXTENDED_METADATA) {
            out.extend(b"\x06\x00\x04json");
        }
        out.extend([0x0c, 45, 0, 0, 0, 0, 1, 0xfc, 1, 0, 0, 0, 0]);
        out
    }

    /// COM_FIELD_LIST adds the default value.
    fn field(&self) -> Vec<u8> {
        [self.column(), vec![0xfb]].concat()
    }

    fn end_of_rows(&self, status: StatusFlags) -> Vec<u8> {
        if !self.deprecate_eof() {
            return eof(status);
        }
        let mut out = Vec::new();
        let end = OkPacket {
            affected_rows: 0,
            last_insert_id: 0,
            status,
            warnings: self.warnings,
            info: vec![],
            session_state: vec![],
        };
        end.encode_as_eof(&mut out, self.negotiated);
        out
    }

    /// The OK of a login, with a change of session state where that is tracked.
    pub(super) fn welcome(&self) -> Vec<u8> {
        self.ok_packet(StatusFlags::AUTOCOMMIT, 0, &track())
    }

    fn ok(&self) -> Reply {
        Reply::Payloads(vec![self.ok_packet(StatusFlags::AUTOCOMMIT, 0, &[])])
    }

    fn ok_packet(&self, status: StatusFlags, affected_rows: u64, session_state: &[u8]) -> Vec<u8> {
        let tracked = !session_state.is_empty() && self.negotiated.contains(Capabilities::SESSION_TRACK);
        let mut out = Vec::new();
        OkPacket {
            affected_rows,
            last_insert_id: affected_rows * 100,
            status: if tracked {
                status | StatusFlags::SESSION_STATE_CHANGED
            } else {
                status
            },
            warnings: 2,
            info: b"Rows matched: 3".to_vec(),
            session_state: session_state.to_vec(),
        }
        .encode(&mut out, self.negotiated);
        out
    }

    fn error(&self, code: u16, message: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let error = ErrPacket {
            code,
            sql_state: *b"42000",
            message: message.into(),
        };
        error.encode(&mut out, self.negotiated);
        out
    }

    fn refuse(&self, code: u16, message: &str) -> Reply {
        Reply::Payloads(vec![self.error(code, message)])
    }

    fn deprecate_eof(&self) -> bool {
        self.negotiated.contains(Capabilities::DEPRECATE_EOF)
    }
}

/// The rows of a prepared statement that says so in its text.
fn rows_of_cursor(statement: &str) -> Option<u32> {
    let (_, rest) = statement.split_once("'CURSOR ")?;
    rest.split_once('\'')?.0.parse().ok()
}

enum ScriptedAnswer {
    Payloads(Vec<Vec<u8>>),
    /// What comes after in a multi-statement is not run.
    Failed(Vec<Vec<u8>>),
    Other(Reply),
}

impl ScriptedAnswer {
    fn into_reply(self) -> Reply {
        match self {
            Self::Payloads(payloads) | Self::Failed(payloads) => Reply::Payloads(payloads),
            Self::Other(reply) => reply,
        }
    }
}

/// The statement behind the query attributes, which are strings in this language.
fn skip_attributes(body: &[u8], negotiated: Capabilities) -> Option<&[u8]> {
    if !negotiated.contains(Capabilities::QUERY_ATTRIBUTES) {
        return Some(body);
    }
    let (&[count, _sets], mut rest) = body.split_first_chunk::<2>()?;
    let count = usize::from(count);
    if count == 0 {
        return Some(rest);
    }
    rest = rest.get(count.div_ceil(8) + 1..)?;
    for _ in 0..count {
        rest = rest.get(2..)?;
        rest = skip_string(rest)?;
    }
    for _ in 0..count {
        rest = skip_string(rest)?;
    }
    Some(rest)
}

fn skip_string(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(1 + usize::from(*bytes.first()?)..)
}

fn row(value: &[u8], rows: Rows) -> Vec<u8> {
    let mut out = if rows == Rows::Binary {
        vec![0, 0]
    } else {
        Vec::new()
    };
    match value.len() {
        length @ ..251 => out.push(length as u8),
        length @ ..0x1_0000 => {
            out.push(0xfc);
            out.extend(&length.to_le_bytes()[..2]);
        }
        length @ ..0x100_0000 => {
            out.push(0xfd);
            out.extend(&length.to_le_bytes()[..3]);
        }
        length => {
            out.push(0xfe);
            out.extend(length.to_le_bytes());
        }
    }
    out.extend(value);
    out
}

fn eof(status: StatusFlags) -> Vec<u8> {
    let mut out = Vec::new();
    EofPacket { warnings: 1, status }.encode(&mut out);
    out
}

/// One change of a system variable: type 0, then name and value.
fn track() -> Vec<u8> {
    b"\x00\x0f\x0aautocommit\x03OFF".to_vec()
}

/// An ERR packet with code 0xFFFF: stage, number of stages, progress in thousandths of a percent, text.
fn progress(stage: u8) -> Vec<u8> {
    [
        &[0xff, 0xff, 0xff, 1, stage + 1, 9, 0x10, 0x27, 0, 7][..],
        b"copying",
    ]
    .concat()
}
