//! Finds where a server's response ends, without decoding what is in it.
//!
//! A response is a sequence of packets whose shape depends on the command and on the capabilities that were
//! negotiated. The tracker looks at the header and the first byte of each packet; only of packets that begin
//! or end a result (column count, OK, EOF, ERR) it reads a few bytes more, at most 23.
//!
//! What each kind of packet means is in `response/packets.rs`; `response/reshape.rs` changes responses on
//! their way to a client that speaks less of the protocol than we do with the server.
//!
//! Sources: MySQL "Command Phase" and, where the documentation is wrong, its server and client: the
//! metadata-follows byte comes after the column count in both MySQL and MariaDB (`protocol_classic.cc`,
//! `client.cc`); MariaDB "Result Set Packets", "COM_STMT_PREPARE".

mod packets;
mod reshape;

pub use reshape::Reshaper;

use crate::{Capabilities, Command, PacketHeader, StatusFlags, WireError};
use packets::{EOF, Expect, HEAD_MAX, Head};

/// What [`ResponseTracker::advance`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that belong to the response and may be forwarded. The rest must be presented again: together
    /// with more bytes while the event is [`Event::More`], to the next response after [`Event::Done`].
    pub consumed: usize,
    pub event: Event,
}

impl Progress {
    const fn more(consumed: usize) -> Progress {
        Progress {
            consumed,
            event: Event::More,
        }
    }
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The response goes on.
    More,
    /// The server waits for the contents of a file from the client, see
    /// [`crate::RequestTracker::begin_infile`]; the response goes on after it.
    LocalInfile,
    /// The response has ended with the bytes consumed.
    Done(Outcome),
    /// The next packet, whose first byte is the first that was not consumed, is an OK packet with session
    /// state. Only where [`ResponseTracker::inspect_state`] has asked for it; go on with
    /// [`ResponseTracker::pass_state`].
    State,
    /// The connection is a stream from here on (binlog dump, clone, Group Replication): both directions are
    /// to be forwarded as they come.
    Stream,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The last status seen in this response; where it had none (`has_status`), of an earlier one. Of a
    /// cursor it tells only after a command that may have opened one or read from one.
    pub status: StatusFlags,
    /// The code of the error that ended the response.
    pub error: Option<u16>,
    pub has_status: bool,
    /// The last result was a result set, not an OK packet: it had rows, or could have had some.
    pub is_result_set: bool,
    /// Of the last OK or EOF packet; 0 where an error ended the response.
    pub warnings: u16,
    /// Of the last result, where that was an OK packet.
    pub affected_rows: u64,
    /// The last one in this response that is not 0: a later statement without one does not change
    /// LAST_INSERT_ID().
    pub last_insert_id: u64,
    /// Rows of the last result, where that was a result set.
    pub rows: u64,
}

impl Outcome {
    /// Before anything of a response has come; the status is that of an earlier one.
    const fn none(status: StatusFlags) -> Outcome {
        Outcome {
            status,
            error: None,
            has_status: false,
            is_result_set: false,
            warnings: 0,
            affected_rows: 0,
            last_insert_id: 0,
            rows: 0,
        }
    }
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
    /// Groups of definitions that have ended, whose EOF packets DEPRECATE_EOF has left out. For [`Reshaper`],
    /// which takes them.
    groups_ended: u8,
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
    /// Of the last packet that began.
    sequence: u8,
    /// Stop before OK packets with session state.
    inspects_state: bool,
    /// The next packet is one at which the tracker has stopped.
    state_passes: bool,
    /// The execution under way has asked for a cursor.
    may_open_cursor: bool,
    /// The command under way may load a file of the client's.
    may_load_file: bool,
}

const _: () = assert!(size_of::<ResponseTracker>() <= 72);

impl ResponseTracker {
    /// `capabilities`: what client and server both have, as the login of this server connection said.
    pub const fn new(capabilities: Capabilities) -> ResponseTracker {
        ResponseTracker {
            capabilities,
            skip: 0,
            definitions: 0,
            columns: 0,
            groups_ended: 0,
            metadata: true,
            out_parameters: false,
            outcome: Outcome::none(StatusFlags(0)),
            command: Command::SLEEP,
            expect: Expect::Nothing,
            continued: false,
            sequence: 0,
            inspects_state: false,
            state_passes: false,
            may_open_cursor: false,
            may_load_file: false,
        }
    }

    /// Whether to stop before each OK packet with session state, with [`Event::State`]. Off in a new tracker.
    pub fn inspect_state(&mut self, on: bool) {
        self.inspects_state = on;
    }

    /// The caller has seen the packet of [`Event::State`], which may be another OK packet now, shorter or of
    /// the same length, with the same status but for SESSION_STATE_CHANGED: [`ResponseTracker::advance`] goes
    /// on with it.
    pub fn pass_state(&mut self) {
        self.state_passes = true;
    }

    /// The next response is this command's. For a command without a response nothing is under way after this.
    pub fn begin(&mut self, command: Command) {
        debug_assert!(!self.in_progress(), "{} begins inside a response", command.name());
        self.command = command;
        self.skip = 0;
        self.out_parameters = false;
        self.continued = false;
        self.groups_ended = 0;
        self.state_passes = false;
        self.may_open_cursor = false;
        self.may_load_file = false;
        self.outcome = Outcome::none(self.outcome.status);
        self.expect = match command {
            _ if !command.has_response() => Expect::Nothing,
            _ if command.starts_stream() => Expect::StreamStart,
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE | Command::PROCESS_INFO => {
                Expect::Result
            }
            Command::STMT_PREPARE => Expect::Prepared,
            Command::STMT_FETCH => {
                self.outcome.is_result_set = true;
                Expect::Rows
            }
            Command::FIELD_LIST => Expect::FieldList,
            Command::STATISTICS => Expect::Text,
            Command::CHANGE_USER => Expect::Authentication,
            _ => Expect::Verdict,
        };
    }

    /// The execution that has [begun](Self::begin) asks for a cursor, see
    /// [`crate::statement::asks_for_cursor`]. Without this no status is believed that tells of one: servers
    /// show the cursors of a stored program to whoever calls it.
    pub fn allow_cursor(&mut self) {
        self.may_open_cursor = self.command == Command::STMT_EXECUTE;
    }

    /// The command that has [begun](Self::begin) may load a file of the client's. Without this a server that
    /// asks for one gets none: whoever has taken its place could ask for any.
    pub fn allow_infile(&mut self) {
        self.may_load_file = matches!(self.command, Command::QUERY | Command::STMT_EXECUTE);
    }

    /// A response is under way.
    pub fn in_progress(&self) -> bool {
        self.expect != Expect::Nothing
    }

    /// The sequence number of an error packet in the place of what the server still owes, where the protocol
    /// has a place for one: between two rows. (Also before the first packet of a response, which the caller
    /// knows.)
    pub fn error_sequence(&self) -> Option<u8> {
        let between_rows = self.expect == Expect::Rows && self.skip == 0 && !self.continued;
        between_rows.then_some(self.sequence.wrapping_add(1))
    }

    /// The sequence number of the last packet that began.
    pub fn sequence(&self) -> u8 {
        self.sequence
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
                return Ok(Progress::more(at));
            }
            if self.continued {
                let Some(header) = bytes.get(at..).and_then(PacketHeader::parse) else {
                    return Ok(Progress::more(at));
                };
                at += self.enter(header);
                continue;
            }
            if self.expect == Expect::Rows {
                at = self.pass_rows(bytes, at);
                if self.skip > 0 {
                    return Ok(Progress::more(at));
                }
            }
            if let Some(event) = self.settled() {
                let consumed = if event == Event::Stream { bytes.len() } else { at };
                return Ok(Progress { consumed, event });
            }
            let Some(head) = self.head(bytes.get(at..).unwrap_or_default())? else {
                return Ok(Progress::more(at));
            };
            if self.inspects_state && !std::mem::take(&mut self.state_passes) && self.carries_state(&head)? {
                return Ok(Progress {
                    consumed: at,
                    event: Event::State,
                });
            }
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

    /// The hot path: passes whole rows, as far as their headers and first bytes are visible. Stops at a
    /// packet that needs a closer look.
    fn pass_rows(&mut self, bytes: &[u8], mut at: usize) -> usize {
        let mut rows = 0;
        let (mut last_len, mut alike) = (0, 0);
        while let Some(&[a, b, c, sequence, first]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            let payload_len = u32::from_le_bytes([a, b, c, 0]) as usize;
            if first >= EOF || payload_len == 0 || payload_len == PacketHeader::MAX_PAYLOAD {
                break;
            }
            at += PacketHeader::LEN + payload_len;
            self.sequence = sequence;
            rows += 1;
            // A product and no branch: whether two lengths are the same cannot be foretold where rows are of
            // any length.
            alike = (alike + 1) * u32::from(payload_len == last_len);
            last_len = payload_len;
            if alike == ROWS_ALIKE {
                let passed = rows_alike(bytes.get(at..).unwrap_or_default(), payload_len);
                at += passed * (PacketHeader::LEN + payload_len);
                rows += passed as u64;
                alike = 0;
            }
        }
        self.outcome.rows += rows;
        self.skip = at.saturating_sub(bytes.len()) as u32;
        at.min(bytes.len())
    }

    /// Goes into a packet: its payload is to be passed. Returns the length of its header.
    fn enter(&mut self, header: PacketHeader) -> usize {
        self.skip = header.payload_len as u32;
        self.continued = header.is_continued();
        self.sequence = header.sequence;
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
        let payload = bytes.get(PacketHeader::LEN..).unwrap_or_default();
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
}

/// So many rows of one length in a row, and the next ones are taken to be as long.
const ROWS_ALIKE: u32 = 6;

/// How many rows of this length there are whole at the start of `bytes`, but for the last of them, which the
/// caller looks at. To know where each begins nobody has to wait for the length of the one before: four times
/// as quick as row by row.
fn rows_alike(bytes: &[u8], payload_len: usize) -> usize {
    let [a, b, c, _] = (payload_len as u32).to_le_bytes();
    let rows = bytes.chunks_exact(PacketHeader::LEN + payload_len);
    let alike = rows.take_while(|row| {
        row.first_chunk() == Some(&[a, b, c]) && row.get(PacketHeader::LEN).is_some_and(|&first| first < EOF)
    });
    alike.count().saturating_sub(1)
}
