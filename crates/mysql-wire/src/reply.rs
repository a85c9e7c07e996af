//! OK, ERR and EOF: the packets that end a response, or are one.
//!
//! Sources: MySQL "OK_Packet", "ERR_Packet", "EOF_Packet"; where MySQL's documentation and its server differ
//! (the info text of an OK packet always has a length in front) the server is right.

use serde::{Deserialize, Serialize};

use crate::codec::{Reader, put_lenenc, put_lenenc_bytes};
use crate::{Capabilities, StatusFlags, WireError};

/// A statement's success, or the end of rows where DEPRECATE_EOF is negotiated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OkPacket {
    pub affected_rows: u64,
    pub last_insert_id: u64,
    pub status: StatusFlags,
    pub warnings: u16,
    /// Text like `Rows matched: 1  Changed: 0  Warnings: 0`.
    pub info: Vec<u8>,
    /// Session state changes, encoded; only with SESSION_TRACK and SESSION_STATE_CHANGED.
    pub session_state: Vec<u8>,
}

impl OkPacket {
    pub const HEADER: u8 = 0x00;
    /// The header in place of an EOF packet's.
    pub const HEADER_AS_EOF: u8 = 0xfe;

    /// Reads the payload, with either header.
    pub fn decode(payload: &[u8], capabilities: Capabilities) -> Result<OkPacket, WireError> {
        let mut reader = Reader::new(payload);
        match reader.u8("OK header")? {
            Self::HEADER | Self::HEADER_AS_EOF => {}
            found => {
                return Err(WireError::Unexpected {
                    expected: "an OK packet",
                    found,
                });
            }
        }
        let affected_rows = reader.lenenc("affected rows")?;
        let last_insert_id = reader.lenenc("last insert id")?;
        let status = StatusFlags(reader.u16("status")?);
        let warnings = reader.u16("warnings")?;
        let mut ok = OkPacket {
            affected_rows,
            last_insert_id,
            status,
            warnings,
            ..OkPacket::default()
        };
        if reader.is_empty() {
            return Ok(ok);
        }
        if !capabilities.contains(Capabilities::SESSION_TRACK) {
            ok.info = info_without_tracking(reader).to_vec();
            return Ok(ok);
        }
        ok.info = reader.lenenc_bytes("info")?.to_vec();
        if status.contains(StatusFlags::SESSION_STATE_CHANGED) {
            ok.session_state = reader.lenenc_bytes("session state")?.to_vec();
        }
        Ok(ok)
    }

    /// Appends the payload with header 0x00. Session state is left out, and its status flag cleared, for a
    /// peer without SESSION_TRACK.
    pub fn encode(&self, out: &mut Vec<u8>, capabilities: Capabilities) {
        self.encode_with_header(Self::HEADER, out, capabilities);
    }

    /// Appends the payload with header 0xFE: the end of rows for a peer with DEPRECATE_EOF.
    pub fn encode_as_eof(&self, out: &mut Vec<u8>, capabilities: Capabilities) {
        self.encode_with_header(Self::HEADER_AS_EOF, out, capabilities);
    }

    fn encode_with_header(&self, header: u8, out: &mut Vec<u8>, capabilities: Capabilities) {
        let tracking = capabilities.contains(Capabilities::SESSION_TRACK);
        let mut status = self.status;
        if !tracking {
            status.remove(StatusFlags::SESSION_STATE_CHANGED);
        }
        out.push(header);
        put_lenenc(out, self.affected_rows);
        put_lenenc(out, self.last_insert_id);
        out.extend_from_slice(&status.0.to_le_bytes());
        out.extend_from_slice(&self.warnings.to_le_bytes());
        let changed = status.contains(StatusFlags::SESSION_STATE_CHANGED);
        if changed || !self.info.is_empty() {
            put_lenenc_bytes(out, &self.info);
        }
        if changed {
            put_lenenc_bytes(out, &self.session_state);
        }
    }
}

/// Servers put a length in front of the text; the documentation says that there is none, and some servers
/// that were written after the documentation follow it.
fn info_without_tracking(reader: Reader<'_>) -> &[u8] {
    let mut with_length = reader;
    match with_length.lenenc_bytes("info") {
        Ok(info) if with_length.is_empty() => info,
        _ => { reader }.remaining(),
    }
}

/// An error. Header 0xFF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrPacket {
    pub code: u16,
    /// Five characters; `HY000` where the packet has none.
    pub sql_state: [u8; 5],
    pub message: Vec<u8>,
}

impl ErrPacket {
    pub const HEADER: u8 = 0xff;
    /// The state for errors that have no state of their own.
    pub const GENERAL_STATE: [u8; 5] = *b"HY000";

    /// Reads the payload. Servers may or may not send a state before the login, when nobody has said
    /// PROTOCOL_41 yet: with empty `capabilities` a `#` counts as its marker only before five letters or
    /// digits.
    pub fn decode(payload: &[u8], capabilities: Capabilities) -> Result<ErrPacket, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Self::HEADER, "an ERR packet")?;
        let code = reader.u16("error code")?;
        let mut after_state = reader;
        let sql_state = match after_state.array::<6>("SQL state") {
            Ok([b'#', state @ ..])
                if capabilities.contains(Capabilities::PROTOCOL_41)
                    || state.iter().all(u8::is_ascii_alphanumeric) =>
            {
                reader = after_state;
                state
            }
            _ => Self::GENERAL_STATE,
        };
        Ok(ErrPacket {
            code,
            sql_state,
            message: reader.remaining().to_vec(),
        })
    }

    /// Appends the payload; the SQL state only for a peer that has said PROTOCOL_41. Before the login, pass
    /// empty capabilities.
    pub fn encode(&self, out: &mut Vec<u8>, capabilities: Capabilities) {
        out.push(Self::HEADER);
        out.extend_from_slice(&self.code.to_le_bytes());
        if capabilities.contains(Capabilities::PROTOCOL_41) {
            out.push(b'#');
            out.extend_from_slice(&self.sql_state);
        }
        out.extend_from_slice(&self.message);
    }
}

/// The end of column definitions or rows where DEPRECATE_EOF is not negotiated. Header 0xFE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EofPacket {
    pub warnings: u16,
    pub status: StatusFlags,
}

impl EofPacket {
    pub const HEADER: u8 = 0xfe;
    /// Payload bytes. Clients take any packet under 9 bytes with this header for one.
    pub const LEN: usize = 5;

    pub fn decode(payload: &[u8]) -> Result<EofPacket, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Self::HEADER, "an EOF packet")?;
        let warnings = reader.u16("warnings")?;
        let status = StatusFlags(reader.u16("status")?);
        match reader.is_empty() {
            true => Ok(EofPacket { warnings, status }),
            false => Err(WireError::Invalid {
                field: "length of an EOF packet",
            }),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(Self::HEADER);
        out.extend_from_slice(&self.warnings.to_le_bytes());
        out.extend_from_slice(&self.status.0.to_le_bytes());
    }
}
