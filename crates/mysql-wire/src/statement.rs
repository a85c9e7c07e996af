//! Heads of the commands on prepared statements, as far as a gateway has to understand them: which statement
//! is meant, and how the types of its parameters travel.
//!
//! A client sends the types with the first execution and may leave them out from then on, because the server
//! keeps them. A statement that was prepared again on another connection has none there:
//! [`ExecuteHead::inject_types`] puts them in. Values are never read.
//!
//! Payloads here begin with the command byte.
//!
//! With QUERY_ATTRIBUTES a statement's parameters are counted and named in the packet, and query attributes
//! follow them; where the statement has no parameters only if a flag says so. The server keeps types of
//! parameters, not of attributes. (MySQL 9.7, by trial: whether the flag is set makes no difference where
//! there are parameters.)
//!
//! Sources: MySQL "COM_STMT_EXECUTE"; MariaDB "COM_STMT_BULK_EXECUTE"; MySQL 9.7 and MariaDB 10.11 as they
//! answer.

use std::ops::Range;

use crate::codec::Reader;
use crate::{Capabilities, Command, WireError};

/// MariaDB: the statement that was prepared last on this connection.
pub const LAST_PREPARED: u32 = u32::MAX;

/// Flag of COM_STMT_EXECUTE: the count of parameters is in the packet even if the statement has none.
const PARAMETER_COUNT_AVAILABLE: u8 = 0x08;
/// Flags of COM_STMT_EXECUTE that ask for a cursor of any kind.
const CURSOR_TYPES: u8 = 0x07;
/// Bytes of the payload of COM_STMT_EXECUTE up to and with its flags.
pub const CURSOR_FLAGS_END: usize = 6;
/// Flag of COM_STMT_BULK_EXECUTE: types are in the packet.
const BULK_TYPES: u16 = 0x80;
/// Bytes of a parameter's type: the type and a flag for unsigned.
const TYPE_LEN: usize = 2;
/// Where a statement's id is, in every command on one, and in the answer to a prepare.
const ID: Range<usize> = 1..5;

/// The statement that a command is about; `None` for commands that are about none.
pub fn statement_id(payload: &[u8]) -> Result<Option<u32>, WireError> {
    let mut reader = Reader::new(payload);
    match Command(reader.u8("command")?) {
        Command::STMT_EXECUTE
        | Command::STMT_BULK_EXECUTE
        | Command::STMT_FETCH
        | Command::STMT_RESET
        | Command::STMT_CLOSE
        | Command::STMT_SEND_LONG_DATA => reader.u32("statement id").map(Some),
        _ => Ok(None),
    }
}

/// Puts another id in the place of a command's, or into the OK packet of a prepare. False where the packet is
/// too short.
#[must_use]
pub fn replace_id(payload: &mut [u8], id: u32) -> bool {
    match payload.get_mut(ID) {
        Some(place) => {
            place.copy_from_slice(&id.to_le_bytes());
            true
        }
        None => false,
    }
}

/// What a command of one statement and nothing else is like: COM_STMT_RESET, COM_STMT_CLOSE.
pub fn encode(command: Command, id: u32) -> [u8; 5] {
    let [a, b, c, d] = id.to_le_bytes();
    [command.0, a, b, c, d]
}

/// The first packet of the answer to COM_STMT_PREPARE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrepareOk {
    pub statement_id: u32,
    pub columns: u16,
    pub parameters: u16,
}

impl PrepareOk {
    /// Bytes of its payload, at least.
    pub const LEN: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<PrepareOk, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(0, "the OK packet of a prepare")?;
        let statement_id = reader.u32("statement id")?;
        let columns = reader.u16("column count")?;
        let parameters = reader.u16("parameter count")?;
        reader.bytes(3, "filler and warnings")?;
        Ok(PrepareOk {
            statement_id,
            columns,
            parameters,
        })
    }
}

/// COM_STMT_FETCH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    pub statement_id: u32,
    pub rows: u32,
}

impl Fetch {
    pub fn decode(payload: &[u8]) -> Result<Fetch, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Command::STMT_FETCH.0, "COM_STMT_FETCH")?;
        Ok(Fetch {
            statement_id: reader.u32("statement id")?,
            rows: reader.u32("rows to fetch")?,
        })
    }
}

/// The head of COM_STMT_SEND_LONG_DATA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongDataHead {
    pub statement_id: u32,
    pub parameter: u16,
}

impl LongDataHead {
    /// `payload`: the whole packet, or as much of it as has come.
    pub fn decode(payload: &[u8]) -> Result<LongDataHead, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Command::STMT_SEND_LONG_DATA.0, "COM_STMT_SEND_LONG_DATA")?;
        Ok(LongDataHead {
            statement_id: reader.u32("statement id")?,
            parameter: reader.u16("parameter")?,
        })
    }
}

/// Whether a COM_STMT_EXECUTE asks for a cursor. `payload`: of the packet, as much as has come.
pub fn asks_for_cursor(payload: &[u8]) -> bool {
    matches!(payload, [command, _, _, _, _, flags, ..] if *command == Command::STMT_EXECUTE.0 && flags & CURSOR_TYPES != 0)
}

/// The head of COM_STMT_EXECUTE or MariaDB's COM_STMT_BULK_EXECUTE: all before the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteHead {
    pub statement_id: u32,
    pub command: Command,
    pub opens_cursor: bool,
    /// Query attributes behind the statement's parameters.
    pub attributes: usize,
    /// Bytes of the payload up to the first value.
    pub len: usize,
    parameters: usize,
    /// Where the packet says whether it has types; `None` where it could have none. One byte, or two in a
    /// bulk.
    flag: Option<Range<usize>>,
    types: Option<Box<[u8]>>,
    /// Types are followed by names.
    is_named: bool,
    bulk_flags: u16,
}

impl ExecuteHead {
    /// Reads a head. `payload`: the whole packet, or as much of it as has come. `parameters`: how many the
    /// statement has, as the answer to its prepare said. `capabilities`: those of the peer that sent this.
    pub fn decode(
        payload: &[u8],
        parameters: u16,
        capabilities: Capabilities,
    ) -> Result<ExecuteHead, WireError> {
        let mut reader = Reader::new(payload);
        let command = Command(reader.u8("command")?);
        let mut head = ExecuteHead {
            statement_id: reader.u32("statement id")?,
            command,
            opens_cursor: false,
            attributes: 0,
            len: 0,
            parameters: usize::from(parameters),
            flag: None,
            types: None,
            is_named: false,
            bulk_flags: 0,
        };
        match command {
            Command::STMT_EXECUTE => head.read_execute(&mut reader, payload.len(), capabilities)?,
            Command::STMT_BULK_EXECUTE => head.read_bulk(&mut reader)?,
            Command(found) => {
                return Err(WireError::Unexpected {
                    expected: "COM_STMT_EXECUTE",
                    found,
                });
            }
        }
        head.len = payload.len() - reader.len();
        Ok(head)
    }

    fn read_execute(
        &mut self,
        reader: &mut Reader<'_>,
        payload_len: usize,
        capabilities: Capabilities,
    ) -> Result<(), WireError> {
        let flags = reader.u8("cursor flags")?;
        self.opens_cursor = flags & CURSOR_TYPES != 0;
        reader.u32("iterations")?;
        let mut sent = self.parameters;
        self.is_named = capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
        if self.is_named && (self.parameters > 0 || flags & PARAMETER_COUNT_AVAILABLE != 0) {
            let field = "parameter count";
            sent = usize::try_from(reader.lenenc(field)?).map_err(|_| WireError::Invalid { field })?;
            self.attributes = sent
                .checked_sub(self.parameters)
                .ok_or(WireError::Invalid { field })?;
        }
        if sent == 0 {
            return Ok(());
        }
        reader.bytes(sent.div_ceil(8), "NULL bitmap")?;
        let at = payload_len - reader.len();
        self.flag = Some(at..at + 1);
        if reader.u8("flag for types")? != 0 {
            self.read_types(reader, sent)?;
        }
        Ok(())
    }

    fn read_bulk(&mut self, reader: &mut Reader<'_>) -> Result<(), WireError> {
        self.bulk_flags = reader.u16("bulk flags")?;
        self.flag = Some(ID.end..ID.end + 2);
        if self.bulk_flags & BULK_TYPES != 0 {
            self.read_types(reader, self.parameters)?;
        }
        Ok(())
    }

    /// Reads `sent` types with their names, and keeps those of the statement's parameters.
    fn read_types(&mut self, reader: &mut Reader<'_>, sent: usize) -> Result<(), WireError> {
        let mut types = Vec::with_capacity(self.parameters * TYPE_LEN);
        for index in 0..sent {
            let kind = reader.array::<TYPE_LEN>("parameter's type")?;
            if self.is_named {
                reader.lenenc_bytes("parameter's name")?;
            }
            if index < self.parameters {
                types.extend_from_slice(&kind);
            }
        }
        self.types = Some(types.into_boxed_slice());
        Ok(())
    }

    /// The types of the statement's parameters, where the packet has them: two bytes each. To be kept for
    /// packets that do not.
    pub fn types(&self) -> Option<&[u8]> {
        self.types.as_deref()
    }

    /// Where the bits are that say which parameters are NULL, attributes included; `None` where there are no
    /// parameters.
    pub fn nulls(&self) -> Option<Range<usize>> {
        let flag = self
            .flag
            .as_ref()
            .filter(|_| self.command == Command::STMT_EXECUTE)?;
        let len = (self.parameters + self.attributes).div_ceil(8);
        Some(flag.start.checked_sub(len)?..flag.start)
    }

    /// Whether there is a query attribute of this name. `payload`: what this was read from.
    pub fn has_attribute(&self, payload: &[u8], name: &[u8]) -> bool {
        let types = self
            .flag
            .as_ref()
            .filter(|_| self.is_named && self.types.is_some());
        let types = types.and_then(|flag| payload.get(flag.end..self.len));
        let mut reader = Reader::new(types.unwrap_or_default());
        (0..self.parameters + self.attributes).any(|index| {
            let kind = reader.array::<TYPE_LEN>("parameter's type");
            let found = kind.and_then(|_| reader.lenenc_bytes("parameter's name"));
            index >= self.parameters && found.is_ok_and(|found| *found == *name)
        })
    }

    /// The server has to know types from an earlier execution on the same connection.
    pub fn needs_types(&self) -> bool {
        self.place_for_types().is_some()
    }

    /// Attributes cannot do without types, which no server keeps: there is nothing to be saved in such a
    /// packet.
    fn place_for_types(&self) -> Option<Range<usize>> {
        let lacks = self.types.is_none() && self.parameters > 0 && self.attributes == 0;
        self.flag.clone().filter(|_| lacks)
    }

    /// What makes a packet that [needs types](Self::needs_types) one that has them. `None` where it has them
    /// or needs none, and where these are not the types of a statement with so many parameters.
    pub fn injection(&self, types: &[u8]) -> Option<Injection> {
        let place = self.place_for_types()?;
        if types.len() != self.parameters * TYPE_LEN {
            return None;
        }
        let mut bytes = Vec::with_capacity(2 + self.parameters * (TYPE_LEN + 1));
        match self.command {
            Command::STMT_BULK_EXECUTE => {
                bytes.extend_from_slice(&(self.bulk_flags | BULK_TYPES).to_le_bytes())
            }
            _ => bytes.push(1),
        }
        for kind in types.chunks(TYPE_LEN) {
            bytes.extend_from_slice(kind);
            bytes.extend(self.is_named.then_some(0));
        }
        Some(Injection { place, bytes })
    }

    /// The same for a packet that is there as a whole. False where nothing was done.
    pub fn inject_types(&self, payload: &mut Vec<u8>, types: &[u8]) -> bool {
        match self.injection(types) {
            Some(Injection { place, bytes }) if place.end <= payload.len() => {
                payload.splice(place, bytes);
                true
            }
            _ => false,
        }
    }
}

/// A change of a payload: `bytes` in the place of those at `place`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    pub place: Range<usize>,
    pub bytes: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Capabilities = Capabilities::PROTOCOL_41;
    const NAMED: Capabilities = Capabilities(PLAIN.0 | Capabilities::QUERY_ATTRIBUTES.0);
    const START: &[u8] = b"\x17\x07\0\0\0\x00\x01\0\0\0";

    fn payload(flags: u8, rest: &[u8]) -> Vec<u8> {
        let mut payload = [START, rest].concat();
        payload[5] = flags;
        payload
    }

    fn decode(payload: &[u8], parameters: u16, capabilities: Capabilities) -> ExecuteHead {
        for cut in 0..payload.len() {
            if let Ok(head) = ExecuteHead::decode(&payload[..cut], parameters, capabilities) {
                assert!(cut >= head.len, "{head:?} of {cut} bytes");
            }
        }
        let head = ExecuteHead::decode(payload, parameters, capabilities).unwrap();
        let exact = ExecuteHead::decode(&payload[..head.len], parameters, capabilities);
        assert_eq!(exact.as_ref(), Ok(&head));
        head
    }

    #[test]
    fn types_are_kept_and_put_in_again() {
        let first = payload(0, b"\x02\x01\xfd\0\x08\x80\x03abc");
        let head = decode(&first, 2, PLAIN);
        assert_eq!((head.statement_id, head.opens_cursor, head.len), (7, false, 16));
        assert_eq!(head.types(), Some(&b"\xfd\0\x08\x80"[..]));
        assert!(!head.needs_types());
        assert_eq!(head.injection(b"\xfd\0\x08\x80"), None);

        let mut later = payload(1, b"\x02\x00\x03abc");
        let head = decode(&later, 2, PLAIN);
        assert!(head.needs_types() && head.opens_cursor);
        assert!(head.inject_types(&mut later, b"\xfd\0\x08\x80"));
        assert_eq!(later, payload(1, b"\x02\x01\xfd\0\x08\x80\x03abc"));
        assert!(!head.inject_types(&mut later, b"\xfd\0"), "of another statement");
    }

    #[test]
    fn a_statement_without_parameters_needs_no_types() {
        for capabilities in [PLAIN, NAMED] {
            let head = decode(&payload(0, b""), 0, capabilities);
            assert_eq!((head.needs_types(), head.types(), head.len), (false, None, 10));
        }
    }

    #[test]
    fn with_attributes_parameters_are_counted_and_named() {
        // Both flags: servers do not care where there are parameters.
        for flags in [0, PARAMETER_COUNT_AVAILABLE] {
            let first = payload(flags, b"\x01\x00\x01\xfd\0\x00\x03abc");
            let head = decode(&first, 1, NAMED);
            assert_eq!((head.types(), head.attributes), (Some(&b"\xfd\0"[..]), 0));
            let mut later = payload(flags, b"\x01\x00\x00\x03abc");
            let head = decode(&later, 1, NAMED);
            assert!(head.inject_types(&mut later, b"\xfd\0"));
            assert_eq!(later, first);
        }
        let with_attribute = payload(8, b"\x02\x00\x01\xfd\0\x00\x03\0\x02aa\x03abc\x01\0\0\0");
        let head = decode(&with_attribute, 1, NAMED);
        assert_eq!((head.types(), head.attributes), (Some(&b"\xfd\0"[..]), 1));
        assert!(head.has_attribute(&with_attribute, b"aa"));
        assert!(!head.has_attribute(&with_attribute, b"a"));
        let named = payload(8, b"\x01\x00\x01\xfd\0\x02aa\x03abc");
        assert!(
            !decode(&named, 1, NAMED).has_attribute(&named, b"aa"),
            "a parameter's name"
        );

        let attribute_only = payload(8, b"\x01\x00\x01\x03\0\x02aa\x01\0\0\0");
        let head = decode(&attribute_only, 0, NAMED);
        assert_eq!(
            (head.types(), head.attributes, head.opens_cursor),
            (Some(&b""[..]), 1, false)
        );
        let head = decode(&attribute_only, 0, NAMED);
        assert!(head.has_attribute(&attribute_only, b"aa") && !head.has_attribute(b"", b"aa"));
        assert_eq!(decode(&payload(8, b"\0"), 0, NAMED).attributes, 0);
        let untyped = decode(&payload(8, b"\x01\x00\x00\x04attr"), 0, NAMED);
        assert!(!untyped.needs_types(), "the server refuses it");
        assert!(
            ExecuteHead::decode(&payload(8, b"\0"), 1, NAMED).is_err(),
            "too few"
        );
    }

    #[test]
    fn types_of_a_bulk_are_put_behind_its_flags() {
        let first = b"\xfa\x07\0\0\0\xc0\x00\x03\0\x00\x4d\0\0\0";
        let head = decode(first, 1, PLAIN);
        assert_eq!(
            (head.statement_id, head.types(), head.len),
            (7, Some(&b"\x03\0"[..]), 9)
        );
        let mut later = b"\xfa\x07\0\0\0\x40\x00\x00\x4d\0\0\0".to_vec();
        let head = decode(&later, 1, PLAIN);
        assert!(head.needs_types());
        assert!(head.inject_types(&mut later, b"\x03\0"));
        assert_eq!(later, first);
    }

    #[test]
    fn ids_are_found_and_replaced() {
        for command in [
            Command::STMT_EXECUTE,
            Command::STMT_BULK_EXECUTE,
            Command::STMT_FETCH,
            Command::STMT_RESET,
            Command::STMT_CLOSE,
            Command::STMT_SEND_LONG_DATA,
        ] {
            let mut payload = encode(command, 9);
            assert_eq!(statement_id(&payload), Ok(Some(9)));
            assert!(replace_id(&mut payload, 0x0102_0304));
            assert_eq!(payload, [command.0, 4, 3, 2, 1]);
            assert!(statement_id(&payload[..4]).is_err());
            assert!(!replace_id(&mut payload[..4], 1));
        }
        assert_eq!(statement_id(b"\x03SELECT 1"), Ok(None));
    }

    #[test]
    fn short_commands_are_read() {
        let fetch = Fetch::decode(b"\x1c\x01\0\0\0\x0a\0\0\0");
        assert_eq!(
            fetch,
            Ok(Fetch {
                statement_id: 1,
                rows: 10
            })
        );
        let long = LongDataHead::decode(b"\x18\x01\0\0\0\x02\0data");
        assert_eq!(
            long,
            Ok(LongDataHead {
                statement_id: 1,
                parameter: 2
            })
        );
        let ok = PrepareOk::decode(b"\0\x01\0\0\0\x02\0\x03\0\0\x04\0").unwrap();
        assert_eq!((ok.statement_id, ok.columns, ok.parameters), (1, 2, 3));
        assert!(Fetch::decode(b"\x1b\x01\0\0\0\x0a\0\0\0").is_err());
        assert!(LongDataHead::decode(b"\x18\x01\0\0\0\x02").is_err());
        assert!(PrepareOk::decode(b"\xff\x01\0").is_err());
        assert!(
            PrepareOk::decode(b"\0\x01\0\0\0\x02\0\x03\0\0\x04").is_err(),
            "cut"
        );
    }
}
