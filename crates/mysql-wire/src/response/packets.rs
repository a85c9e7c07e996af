//! The packets of a response: which may come, and what each says about the next one.

use super::ResponseTracker;
use crate::codec::Reader;
use crate::statement::PrepareOk;
use crate::{Capabilities, Command, EofPacket, PacketHeader, StatusFlags, WireError};

/// Payload bytes that must be visible to understand a packet that begins or ends a result: header byte, two
/// length-encoded integers, status and warnings of an OK packet.
pub(super) const HEAD_MAX: usize = 23;
/// A packet under this length with header 0xFE is an EOF packet where DEPRECATE_EOF is not negotiated.
const EOF_MAX: usize = 9;
/// The error code of MariaDB's progress reports.
const PROGRESS_REPORT: u16 = 0xffff;

const OK: u8 = 0x00;
const LOCAL_INFILE: u8 = 0xfb;
pub(super) const EOF: u8 = 0xfe;
pub(super) const ERR: u8 = 0xff;

/// The kind of packet that comes next, or what to tell the caller once the packet under way has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
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
pub(super) struct Head<'a> {
    pub(super) header: PacketHeader,
    pub(super) first: u8,
    /// At most [`HEAD_MAX`] bytes of payload.
    pub(super) start: &'a [u8],
}

impl ResponseTracker {
    /// What to expect after the packet that starts like this.
    pub(super) fn next(&mut self, head: &Head<'_>) -> Result<Expect, WireError> {
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
            Expect::Rows => {
                self.outcome.rows += 1;
                Ok(Expect::Rows)
            }
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
        (self.outcome.warnings, self.outcome.affected_rows) = (0, 0);
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
                (self.outcome.is_result_set, self.outcome.rows) = (false, 0);
                let status = self.ok_status(head)?;
                return Ok(self.after_result(status));
            }
            LOCAL_INFILE if self.may_load_file => return Ok(Expect::InfileRequested),
            LOCAL_INFILE => return Err(WireError::FileNotOffered),
            EOF => return Err(self.unexpected(EOF)),
            _ => {}
        }
        (
            self.outcome.is_result_set,
            self.outcome.rows,
            self.outcome.affected_rows,
        ) = (true, 0, 0);
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
        // MySQL says a plain OK where it has prepared nothing: `SET GLOBAL` without the right to it (9.7).
        if head.first == OK && head.header.payload_len < PrepareOk::LEN {
            return self.verdict(head);
        }
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
            self.groups_ended = self.groups_ended.saturating_add(1);
            self.after_definitions()
        } else {
            Expect::DefinitionsEnd
        }
    }

    fn after_definitions_end(&mut self, head: &Head<'_>) -> Result<Expect, WireError> {
        let status = self.terminator_status(head)?;
        self.out_parameters = status.contains(StatusFlags::PS_OUT_PARAMS | StatusFlags::MORE_RESULTS);
        // An opened cursor has no rows here. With DEPRECATE_EOF servers say so in place of the first row.
        Ok(if self.opens_cursor(status) {
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
        if self.is_ok_terminator(head) {
            return self.ok_status(head);
        }
        let end = OkStart::read_eof(head)?;
        self.outcome.warnings = end.warnings;
        Ok(self.note_status(end.status))
    }

    /// The packet ends rows: what it says of them, whichever of the two packets it is.
    pub(super) fn end_of_rows(&self, head: &Head<'_>) -> Result<Option<OkStart>, WireError> {
        if self.expect != Expect::Rows || !self.is_terminator(head) {
            return Ok(None);
        }
        if self.is_ok_terminator(head) {
            OkStart::read(head).map(Some)
        } else {
            OkStart::read_eof(head).map(Some)
        }
    }

    /// Of a terminator: an OK packet and no EOF packet, which some servers send even so.
    fn is_ok_terminator(&self, head: &Head<'_>) -> bool {
        self.capabilities.contains(Capabilities::DEPRECATE_EOF) && head.header.payload_len != EofPacket::LEN
    }

    fn ok_status(&mut self, head: &Head<'_>) -> Result<StatusFlags, WireError> {
        let start = OkStart::read(head)?;
        self.outcome.affected_rows = start.affected_rows;
        if start.last_insert_id != 0 {
            self.outcome.last_insert_id = start.last_insert_id;
        }
        self.outcome.warnings = start.warnings;
        Ok(self.note_status(start.status))
    }

    /// Whether the result under way has no rows here, because they come with COM_STMT_FETCH. `status`: of the
    /// packet behind its definitions. Servers show the cursors of stored programs in the same way, also to
    /// those who have asked for a cursor; results of a CALL have more results behind them.
    pub(super) fn opens_cursor(&self, status: StatusFlags) -> bool {
        self.may_open_cursor
            && self.outcome.is_result_set
            && self.outcome.rows == 0
            && status.contains(StatusFlags::CURSOR_EXISTS)
            && !status.contains(StatusFlags::MORE_RESULTS)
    }

    fn note_status(&mut self, status: StatusFlags) -> StatusFlags {
        let tells_of_cursor = self.command == Command::STMT_FETCH || self.opens_cursor(status);
        self.outcome.status = match tells_of_cursor {
            true => status,
            false => status.without(StatusFlags::CURSOR_EXISTS | StatusFlags::LAST_ROW_SENT),
        };
        self.outcome.has_status = true;
        status
    }

    /// The packet is an OK packet that tells of changes of the session.
    pub(super) fn carries_state(&self, head: &Head<'_>) -> Result<bool, WireError> {
        let tracks = self.capabilities.contains(Capabilities::SESSION_TRACK);
        if !tracks || !(self.is_ok(head) || self.is_ok_as_eof(head)) {
            return Ok(false);
        }
        let status = OkStart::read(head)?.status;
        Ok(status.contains(StatusFlags::SESSION_STATE_CHANGED))
    }

    /// The packet is an OK packet with header 0x00. (That of a prepare is another kind of packet.)
    pub(super) fn is_ok(&self, head: &Head<'_>) -> bool {
        let may_come = matches!(
            self.expect,
            Expect::Verdict | Expect::Authentication | Expect::Result
        );
        may_come && head.first == OK
    }

    /// The packet is an OK packet with header 0xFE, in the place of an EOF packet.
    pub(super) fn is_ok_as_eof(&self, head: &Head<'_>) -> bool {
        let may_come = matches!(self.expect, Expect::Verdict | Expect::Rows | Expect::FieldList);
        may_come && self.is_terminator(head) && self.is_ok_terminator(head)
    }

    fn unexpected(&self, found: u8) -> WireError {
        WireError::Unexpected {
            expected: self.expect.words(),
            found,
        }
    }
}

/// The part of an OK packet that every one has, or of an EOF packet, which has less.
pub(super) struct OkStart {
    affected_rows: u64,
    last_insert_id: u64,
    pub(super) status: StatusFlags,
    pub(super) warnings: u16,
}

impl OkStart {
    pub(super) fn read(head: &Head<'_>) -> Result<OkStart, WireError> {
        let mut reader = Reader::new(head.start);
        reader.u8("OK header")?;
        Ok(OkStart {
            affected_rows: reader.lenenc("affected rows")?,
            last_insert_id: reader.lenenc("last insert id")?,
            status: StatusFlags(reader.u16("status")?),
            warnings: reader.u16("warnings")?,
        })
    }

    fn read_eof(head: &Head<'_>) -> Result<OkStart, WireError> {
        let mut reader = Reader::new(head.start);
        reader.u8("EOF header")?;
        Ok(OkStart {
            affected_rows: 0,
            last_insert_id: 0,
            warnings: reader.u16("warnings")?,
            status: StatusFlags(reader.u16("status")?),
        })
    }
}

impl Expect {
    pub(super) fn words(self) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_place_between_rows_and_nowhere_inside_a_packet() {
        let mut tracker = ResponseTracker::new(Capabilities::DEPRECATE_EOF);
        tracker.begin(Command::QUERY);
        let row = b"\x02\0\0\x03\x01a";
        tracker.advance(b"\x01\0\0\x01\x01").unwrap();
        assert_eq!(tracker.error_sequence(), None, "before the definitions have come");
        tracker.advance(b"\x02\0\0\x02\x03d").unwrap();
        assert_eq!(tracker.error_sequence(), Some(3), "before the first row");
        tracker.advance(&row[..5]).unwrap();
        assert_eq!(tracker.error_sequence(), None, "inside a row");
        tracker.advance(&row[5..]).unwrap();
        assert_eq!(tracker.error_sequence(), Some(4), "after a row");
    }
}
