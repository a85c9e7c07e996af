//! Finds where a server's response ends, without decoding what is in it.
//!
//! A response is a sequence of packets whose shape depends on the command and on the capabilities that were
//! negotiated. The tracker looks at the header and the first byte of each packet; only of packets that begin
//! or end a result (column count, OK, EOF, ERR) it reads a few bytes more, at most [`HEAD_MAX`].
//!
//! Sources: MySQL "Command Phase" and, where the documentation is wrong, its server and client: the
//! metadata-follows byte comes after the column count in both MySQL and MariaDB (`protocol_classic.cc`,
//! `client.cc`); MariaDB "Result Set Packets", "COM_STMT_PREPARE".

use crate::codec::Reader;
use crate::{Capabilities, Command, EofPacket, PacketHeader, StatusFlags, WireError};

/// Payload bytes that must be visible to understand a packet that begins or ends a result: header byte, two
/// length-encoded integers, status and warnings of an OK packet.
const HEAD_MAX: usize = 23;
/// A packet under this length with header 0xFE is an EOF packet where DEPRECATE_EOF is not negotiated.
const EOF_MAX: usize = 9;
/// The error code of MariaDB's progress reports.
const PROGRESS_REPORT: u16 = 0xffff;

const OK: u8 = 0x00;
const LOCAL_INFILE: u8 = 0xfb;
const EOF: u8 = 0xfe;
const ERR: u8 = 0xff;

/// What [`ResponseTracker::advance`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that belong to the response and may be forwarded. The rest must be presented again: together with
    /// more bytes while the event is [`Event::More`], to the next response after [`Event::Done`].
    pub consumed: usize,
    pub event: Event,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The response goes on.
    More,
    /// The server waits for the contents of a file from the client, see [`crate::RequestTracker::begin_infile`];
    /// the response goes on after it.
    LocalInfile,
    /// The response has ended with the bytes consumed.
    Done(Outcome),
    /// The connection is a stream from here on (binlog dump, clone, Group Replication): both directions are to
    /// be forwarded as they come.
    Stream,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The last status seen in this response; where it had none (`has_status`), of an earlier one.
    pub status: StatusFlags,
    /// The code of the error that ended the response.
    pub error: Option<u16>,
    pub has_status: bool,
}

/// Finds the end of each response on one server connection. Make one a connection and call
/// [`ResponseTracker::begin`] for each command, in the order in which the server got them.
#[derive(Debug, Clone)]
pub struct ResponseTracker {
    capabilities: Capabilities,
    /// Payload bytes of the packet under way that have not come yet.
    skip: u32,
    /// Column definitions still to come before [`Expect`] moves on.
    definitions: u32,
    /// COM_STMT_PREPARE: the statement's columns, whose definitions come after its parameters'.
    columns: u16,
    /// Definitions are sent for the result or statement under way.
    metadata: bool,
    /// The result under way holds a procedure's OUT parameters, of which another result follows for certain:
    /// without DEPRECATE_EOF MySQL says MORE_RESULTS in the EOF before their row only, and not after it.
    out_parameters: bool,
    outcome: Outcome,
    command: Command,
    expect: Expect,
    /// The packet under way is continued by the next one.
    continued: bool,
}

const _: () = assert!(size_of::<ResponseTracker>() <= 64);

/// The kind of packet that comes next, or what to tell the caller once the packet under way has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// No response is under way.
    Nothing,
    /// A single OK, EOF or ERR.
    Verdict,
    /// COM_CHANGE_USER: packets of the authentication, then OK or ERR.
    Authentication,
    /// OK, ERR, a LOCAL INFILE request or a column count.
    Result,
    /// COM_STMT_PREPARE's OK or ERR.
    Prepared,
    /// `definitions` column definitions.
    Definitions,
    /// The EOF packet after definitions.
    DefinitionsEnd,
    /// Rows, then EOF, OK with header 0xFE, or ERR.
    Rows,
    /// COM_FIELD_LIST: column definitions without a count, ended like rows.
    FieldList,
    /// COM_STATISTICS: one packet of text.
    Text,
    /// ERR, or the first packet of a stream.
    StreamStart,
    Stream,
    /// A LOCAL INFILE request is passing.
    InfileRequested,
    /// The client sends its file: nothing but progress reports or ERR may come.
    Infile,
    /// The response's last packet is passing.
    Ended,
}

/// The visible start of a packet.
struct Head<'a> {
    header: PacketHeader,
    first: u8,
    /// At most [`HEAD_MAX`] bytes of payload.
    start: &'a [u8],
}

impl ResponseTracker {
    /// `capabilities`: what client and server both have, as the login of this server connection said.
    pub const fn new(capabilities: Capabilities) -> ResponseTracker {
        ResponseTracker {
            capabilities,
            skip: 0,
            definitions: 0,
            columns: 0,
            metadata: true,
            out_parameters: false,
            outcome: Outcome {
                status: StatusFlags(0),
                error: None,
                has_status: false,
            },
            command: Command::SLEEP,
            expect: Expect::Nothing,
            continued: false,
        }
    }

    /// The next response is this command's. For a command without a response nothing is under way after this.
    pub fn begin(&mut self, command: Command) {
        debug_assert!(!self.in_progress(), "{} begins inside a response", command.name());
        self.command = command;
        self.skip = 0;
        self.out_parameters = false;
        self.continued = false;
        self.outcome = Outcome {
            status: self.outcome.status,
            error: None,
            has_status: false,
        };
        self.expect = match command {
            _ if !command.has_response() => Expect::Nothing,
            _ if command.starts_stream() => Expect::StreamStart,
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE | Command::PROCESS_INFO => {
                Expect::Result
            }
            Command::STMT_PREPARE => Expect::Prepared,
            Command::STMT_FETCH => Expect::Rows,
            Command::FIELD_LIST => Expect::FieldList,
            Command::STATISTICS => Expect::Text,
            Command::CHANGE_USER => Expect::Authentication,
            _ => Expect::Verdict,
        };
    }

    /// A response is under way.
    pub fn in_progress(&self) -> bool {
        self.expect != Expect::Nothing
    }

    /// The client's file, up to and with its empty packet, has been sent to the server after
    /// [`Event::LocalInfile`]: the result follows. Before this the server may only send an error.
    pub fn resume_after_local_infile(&mut self) {
        if self.expect == Expect::Infile {
            self.expect = Expect::Result;
        }
    }

    /// Takes bytes that start where the bytes consumed before ended.
    ///
    /// Up to [`PacketHeader::LEN`] + 23 bytes may be left unconsumed for want of more; everything else of the
    /// response is consumed as it comes.
    ///
    /// # Errors
    /// What the server sent is no response to the command; the connection cannot be used any more.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Progress, WireError> {
        let mut at = 0;
        loop {
            at += self.pass_payload(bytes.len() - at);
            if self.skip > 0 {
                return Ok(Progress {
                    consumed: at,
                    event: Event::More,
                });
            }
            if self.continued {
                let Some(header) = PacketHeader::parse(&bytes[at..]) else {
                    return Ok(Progress {
                        consumed: at,
                        event: Event::More,
                    });
                };
                at += self.enter(header);
                continue;
            }
            if self.expect == Expect::Rows {
                at = self.pass_rows(bytes, at);
                if self.skip > 0 {
                    return Ok(Progress {
                        consumed: at,
                        event: Event::More,
                    });
                }
            }
            if let Some(event) = self.settled() {
                let consumed = if event == Event::Stream { bytes.len() } else { at };
                return Ok(Progress { consumed, event });
            }
            let Some(head) = self.head(&bytes[at..])? else {
                return Ok(Progress {
                    consumed: at,
                    event: Event::More,
                });
            };
            self.expect = self.next(&head)?;
            if self.expect != Expect::Stream {
                at += self.enter(head.header);
            }
        }
    }

    /// Passes what is there of the packet under way.
    fn pass_payload(&mut self, available: usize) -> usize {
        let passed = (self.skip as usize).min(available);
        self.skip -= passed as u32;
        passed
    }

    /// The hot path: passes whole rows, as far as their headers and first bytes are visible. Stops at a packet
    /// that needs a closer look.
    fn pass_rows(&mut self, bytes: &[u8], mut at: usize) -> usize {
        while let Some(&[a, b, c, _, first]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            let payload_len = u32::from_le_bytes([a, b, c, 0]) as usize;
            if first >= EOF || payload_len == 0 || payload_len == PacketHeader::MAX_PAYLOAD {
                return at;
            }
            at += PacketHeader::LEN + payload_len;
        }
        self.skip = at.saturating_sub(bytes.len()) as u32;
        at.min(bytes.len())
    }

    /// Goes into a packet: its payload is to be passed. Returns the length of its header.
    fn enter(&mut self, header: PacketHeader) -> usize {
        self.skip = header.payload_len as u32;
        self.continued = header.is_continued();
        PacketHeader::LEN
    }

    /// What to tell the caller at the end of a packet, where it was one that the caller must know of.
    fn settled(&mut self) -> Option<Event> {
        match self.expect {
            Expect::Ended => {
                self.expect = Expect::Nothing;
                Some(Event::Done(self.outcome))
            }
            Expect::InfileRequested => {
                self.expect = Expect::Infile;
                Some(Event::LocalInfile)
            }
            Expect::Stream => Some(Event::Stream),
            _ => None,
        }
    }

    /// The start of the packet at the start of `bytes`; `None` while not enough of it is there.
    fn head<'a>(&self, bytes: &'a [u8]) -> Result<Option<Head<'a>>, WireError> {
        if self.expect == Expect::Nothing && !bytes.is_empty() {
            return Err(WireError::NotAsked);
        }
        let Some(header) = PacketHeader::parse(bytes) else {
            return Ok(None);
        };
        if header.payload_len == 0 {
            return Err(WireError::Empty {
                expected: self.expect.words(),
            });
        }
        let payload = &bytes[PacketHeader::LEN..];
        let Some(&first) = payload.first() else {
            return Ok(None);
        };
        // Definitions and long rows pass on sight of their first byte.
        let looks_inside = match self.expect {
            Expect::Definitions | Expect::Text | Expect::FieldList | Expect::Rows => first >= EOF,
            _ => true,
        };
        let needed = if looks_inside {
            header.payload_len.min(HEAD_MAX)
        } else {
            1
        };
        Ok(payload.get(..needed).map(|start| Head { header, first, start }))
    }

    /// What to expect after the packet that starts like this.
    fn next(&mut self, head: &Head<'_>) -> Result<Expect, WireError> {
        if head.first == ERR {
            return self.error(head);
        }
        match self.expect {
            Expect::Verdict => self.verdict(head),
            Expect::Authentication => match head.first {
                OK => self.verdict(head),
                0x01 | 0x02 | 0xfe => Ok(Expect::Authentication),
                found => Err(self.unexpected(found)),
            },
            Expect::Result => self.result(head),
            Expect::Prepared => self.prepared(head),
            Expect::Definitions if self.is_terminator(head) => Err(self.unexpected(head.first)),
            Expect::Definitions => {
                self.definitions -= 1;
                Ok(self.after_definition())
            }
            Expect::DefinitionsEnd if self.is_eof(head) => self.after_definitions_end(head),
            Expect::DefinitionsEnd => Err(self.unexpected(head.first)),
            Expect::Rows | Expect::FieldList if self.is_terminator(head) => {
                let status = self.terminator_status(head)?;
                Ok(self.after_result(status))
            }
            Expect::Rows => Ok(Expect::Rows),
            Expect::FieldList => Ok(Expect::FieldList),
            Expect::Text => Ok(Expect::Ended),
            Expect::StreamStart => Ok(Expect::Stream),
            Expect::Infile => Err(self.unexpected(head.first)),
            Expect::Nothing | Expect::Stream | Expect::InfileRequested | Expect::Ended => {
                Err(WireError::NotAsked)
            }
        }
    }

    fn error(&mut self, head: &Head<'_>) -> Result<Expect, WireError> {
        let mut reader = Reader::new(head.start);
        reader.tag(ERR, "an ERR packet")?;
        let code = reader.u16("error code")?;
        if code == PROGRESS_REPORT && self.capabilities.contains(Capabilities::MARIADB_PROGRESS) {
            return Ok(self.expect);
        }
        self.outcome.error = Some(code);
        Ok(Expect::Ended)
    }

    fn verdict(&mut self, head: &Head<'_>) -> Result<Expect, WireError> {
        match head.first {
            OK => self.ok_status(head)?,
            EOF if self.is_terminator(head) => self.terminator_status(head)?,
            found => return Err(self.unexpected(found)),
        };
        Ok(Expect::Ended)
    }

    fn result(&mut self, head: &Head<'_>) -> Result<Expect, WireError> {
        match head.first {
            OK => {
                let status = self.ok_status(head)?;
                return Ok(self.after_result(status));
            }
            LOCAL_INFILE => return Ok(Expect::InfileRequested),
            EOF => return Err(self.unexpected(EOF)),
            _ => {}
        }
        let mut reader = Reader::new(head.start);
        let count = reader.lenenc("column count")?;
        let count = u32::try_from(count).map_err(|_| WireError::Invalid {
            field: "column count",
        })?;
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
        self.metadata = !self.capabilities.intersects(optional) || reader.u8("metadata flag")? != 0;
        Ok(self.definitions(count))
    }

    fn prepared(&mut self, head: &Head<'_>) -> Result<Expect, WireError> {
        let mut reader = Reader::new(head.start);
        reader.tag(OK, "the OK packet of a prepare")?;
        reader.u32("statement id")?;
        self.columns = reader.u16("column count")?;
        let parameters = reader.u16("parameter count")?;
        reader.bytes(3, "warnings")?;
        self.metadata = !self
            .capabilities
            .contains(Capabilities::OPTIONAL_RESULTSET_METADATA)
            || reader.is_empty()
            || reader.u8("metadata flag")? != 0;
        match parameters {
            0 => Ok(self.after_definitions()),
            _ => Ok(self.definitions(u32::from(parameters))),
        }
    }

    /// A group of `count` definitions begins. Where metadata is left out, its EOF packet comes nevertheless
    /// (recorded from MySQL 9.7 and MariaDB 10.11).
    fn definitions(&mut self, count: u32) -> Expect {
        self.definitions = if self.metadata { count } else { 0 };
        self.after_definition()
    }

    fn after_definition(&mut self) -> Expect {
        if self.definitions > 0 {
            Expect::Definitions
        } else if self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.after_definitions()
        } else {
            Expect::DefinitionsEnd
        }
    }

    fn after_definitions_end(&mut self, head: &Head<'_>) -> Result<Expect, WireError> {
        let status = self.terminator_status(head)?;
        self.out_parameters = status.contains(StatusFlags::PS_OUT_PARAMS | StatusFlags::MORE_RESULTS);
        // An opened cursor has no rows here. With DEPRECATE_EOF servers say so in place of the first row.
        let cursor = self.command == Command::STMT_EXECUTE && status.contains(StatusFlags::CURSOR_EXISTS);
        Ok(if cursor {
            self.after_result(status)
        } else {
            self.after_definitions()
        })
    }

    fn after_definitions(&mut self) -> Expect {
        if self.command != Command::STMT_PREPARE {
            return Expect::Rows;
        }
        match std::mem::take(&mut self.columns) {
            0 => Expect::Ended,
            columns => self.definitions(u32::from(columns)),
        }
    }

    /// Only statements have several results: elsewhere the flag may be left over from an earlier one.
    fn after_result(&mut self, status: StatusFlags) -> Expect {
        let may_have_more = matches!(
            self.command,
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE
        );
        let more = may_have_more && (status.contains(StatusFlags::MORE_RESULTS) || self.out_parameters);
        self.out_parameters = false;
        if more { Expect::Result } else { Expect::Ended }
    }

    /// An EOF packet, or the OK packet that takes its place: no row, however it starts.
    fn is_terminator(&self, head: &Head<'_>) -> bool {
        let limit = match self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            true => PacketHeader::MAX_PAYLOAD,
            false => EOF_MAX,
        };
        head.first == EOF && head.header.payload_len < limit
    }

    fn is_eof(&self, head: &Head<'_>) -> bool {
        head.first == EOF && head.header.payload_len < EOF_MAX
    }

    fn terminator_status(&mut self, head: &Head<'_>) -> Result<StatusFlags, WireError> {
        let is_ok = self.capabilities.contains(Capabilities::DEPRECATE_EOF);
        if is_ok && head.header.payload_len != EofPacket::LEN {
            return self.ok_status(head);
        }
        let mut reader = Reader::new(head.start);
        reader.bytes(3, "warnings")?;
        self.set_status(&mut reader)
    }

    fn ok_status(&mut self, head: &Head<'_>) -> Result<StatusFlags, WireError> {
        let mut reader = Reader::new(head.start);
        reader.u8("OK header")?;
        reader.lenenc("affected rows")?;
        reader.lenenc("last insert id")?;
        self.set_status(&mut reader)
    }

    fn set_status(&mut self, reader: &mut Reader<'_>) -> Result<StatusFlags, WireError> {
        let status = StatusFlags(reader.u16("status")?);
        self.outcome.status = status;
        self.outcome.has_status = true;
        Ok(status)
    }

    fn unexpected(&self, found: u8) -> WireError {
        WireError::Unexpected {
            expected: self.expect.words(),
            found,
        }
    }
}

impl Expect {
    fn words(self) -> &'static str {
        match self {
            Expect::Nothing => "nothing",
            Expect::Verdict => "OK or ERR",
            Expect::Authentication => "a packet of the authentication",
            Expect::Result => "the start of a result",
            Expect::Prepared => "the OK packet of a prepare",
            Expect::Definitions => "a column definition",
            Expect::DefinitionsEnd => "EOF after column definitions",
            Expect::Rows => "a row or the end of rows",
            Expect::FieldList => "a column definition or their end",
            Expect::Text => "a text",
            Expect::StreamStart | Expect::Stream => "a stream",
            Expect::InfileRequested | Expect::Infile => "nothing before the end of the client's file",
            Expect::Ended => "nothing after the end of a response",
        }
    }
}
