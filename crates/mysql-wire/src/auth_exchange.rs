//! The packets that a server sends between login and verdict. What the client answers has no structure of its
//! own: the payload is the plugin's.
//!
//! Sources: MySQL "Protocol::AuthSwitchRequest", "Protocol::AuthMoreData", "Protocol::AuthNextFactor".

use std::fmt;

use crate::WireError;
use crate::codec::{Reader, put_nul};

/// The server asks the client to authenticate with another plugin. Header 0xFE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSwitch {
    pub plugin: Vec<u8>,
    /// The plugin's data as sent: for most plugins a nonce of 20 bytes and a zero byte.
    pub data: Vec<u8>,
}

impl AuthSwitch {
    pub const HEADER: u8 = 0xfe;

    /// Reads the payload. The one-byte form of servers before 5.5 names `mysql_old_password`.
    pub fn decode(payload: &[u8]) -> Result<AuthSwitch, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Self::HEADER, "an authentication switch")?;
        if reader.is_empty() {
            return Ok(AuthSwitch {
                plugin: b"mysql_old_password".to_vec(),
                data: Vec::new(),
            });
        }
        let plugin = reader.until_nul("authentication plugin")?.to_vec();
        Ok(AuthSwitch {
            plugin,
            data: reader.remaining().to_vec(),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(Self::HEADER);
        put_nul(out, &self.plugin);
        out.extend_from_slice(&self.data);
    }

    /// The nonce of the plugins that use one of 20 bytes.
    pub fn nonce(&self) -> Option<[u8; 20]> {
        self.data.first_chunk().copied()
    }
}

/// Data of the current plugin. Header 0x01. `Debug` shows the length only: some plugins send secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthMoreData {
    pub data: Vec<u8>,
}

impl AuthMoreData {
    pub const HEADER: u8 = 0x01;
    /// caching_sha2_password: the server knew the password's hash; OK follows without an answer.
    pub const FAST_AUTH_OK: &'static [u8] = &[3];
    /// caching_sha2_password: the server needs the password itself.
    pub const FULL_AUTH: &'static [u8] = &[4];

    pub fn decode(payload: &[u8]) -> Result<AuthMoreData, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Self::HEADER, "authentication data")?;
        Ok(AuthMoreData {
            data: reader.remaining().to_vec(),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(Self::HEADER);
        out.extend_from_slice(&self.data);
    }
}

impl fmt::Debug for AuthMoreData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthMoreData(<{} bytes>)", self.data.len())
    }
}

/// One factor is accepted, the next is asked for (MySQL, MULTI_FACTOR). Header 0x02.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthNextFactor {
    pub plugin: Vec<u8>,
    pub data: Vec<u8>,
}

impl AuthNextFactor {
    pub const HEADER: u8 = 0x02;

    pub fn decode(payload: &[u8]) -> Result<AuthNextFactor, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Self::HEADER, "the next authentication factor")?;
        let plugin = reader.until_nul("authentication plugin")?.to_vec();
        Ok(AuthNextFactor {
            plugin,
            data: reader.remaining().to_vec(),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(Self::HEADER);
        put_nul(out, &self.plugin);
        out.extend_from_slice(&self.data);
    }
}
