//! The client's login (HandshakeResponse41) and COM_CHANGE_USER, which logs in again.
//!
//! Sources: MySQL "Protocol::HandshakeResponse41", "COM_CHANGE_USER"; MariaDB "Connection".

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::codec::{Reader, put_lenenc_bytes, put_nul};
use crate::{Capabilities, Command, SslRequest, WireError};

/// The client's login packet.
///
/// Its capabilities decide which fields are on the wire: `database` is written with CONNECT_WITH_DB,
/// `auth_plugin` with PLUGIN_AUTH, `attributes` with CONNECT_ATTRS, `zstd_level` with ZSTD_COMPRESSION, each
/// as empty where it is `None`. `Debug` hides the authentication response.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    pub capabilities: Capabilities,
    /// In bytes; what the client accepts as the longest packet.
    pub max_packet_size: u32,
    /// Low byte of the collation id.
    pub charset: u8,
    pub user: Vec<u8>,
    /// What the plugin made of password and nonce; empty for no password or to wait for an auth switch.
    pub auth_response: Vec<u8>,
    pub database: Option<Vec<u8>>,
    pub auth_plugin: Option<Vec<u8>>,
    /// The connection attributes as encoded key/value list, without the list's own length.
    pub attributes: Option<Vec<u8>>,
    /// 1 to 22, with ZSTD_COMPRESSION.
    pub zstd_level: Option<u8>,
}

impl Login {
    /// The longest authentication response that fits where the length is one byte.
    const SHORT_RESPONSE_MAX: usize = 250;

    /// Reads a login packet. As servers do, it accepts that a client leaves out the end of what its
    /// capabilities announce, and bytes after it.
    pub fn decode(payload: &[u8]) -> Result<Login, WireError> {
        let mut reader = Reader::new(payload);
        let SslRequest {
            capabilities,
            max_packet_size,
            charset,
        } = SslRequest::read(&mut reader)?;
        let user = reader.until_nul("user name")?.to_vec();
        let auth_response = if capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC) {
            reader.lenenc_bytes("authentication response")?
        } else if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let len = reader.u8("authentication response")?;
            reader.bytes(usize::from(len), "authentication response")?
        } else {
            reader.until_nul("authentication response")?
        };
        let has = |flag, reader: &Reader<'_>| capabilities.contains(flag) && !reader.is_empty();
        let database =
            has(Capabilities::CONNECT_WITH_DB, &reader).then(|| reader.until_nul_or_end().to_vec());
        let auth_plugin = has(Capabilities::PLUGIN_AUTH, &reader).then(|| reader.until_nul_or_end().to_vec());
        let attributes = match has(Capabilities::CONNECT_ATTRS, &reader) {
            true => Some(reader.lenenc_bytes("connection attributes")?.to_vec()),
            false => None,
        };
        let zstd_level = match has(Capabilities::ZSTD_COMPRESSION, &reader) {
            true => Some(reader.u8("zstd level")?),
            false => None,
        };
        Ok(Login {
            capabilities,
            max_packet_size,
            charset,
            user,
            auth_response: auth_response.to_vec(),
            database,
            auth_plugin,
            attributes,
            zstd_level,
        })
    }

    /// Appends the payload. A response over 250 bytes needs PLUGIN_AUTH_LENENC and sets it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut capabilities = self.capabilities;
        if self.auth_response.len() > Self::SHORT_RESPONSE_MAX {
            capabilities.insert(Capabilities::PLUGIN_AUTH_LENENC);
        }
        let (max_packet_size, charset) = (self.max_packet_size, self.charset);
        SslRequest {
            capabilities,
            max_packet_size,
            charset,
        }
        .encode(out);
        put_nul(out, &self.user);
        if capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC) {
            put_lenenc_bytes(out, &self.auth_response);
        } else if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            out.push(self.auth_response.len() as u8);
            out.extend_from_slice(&self.auth_response);
        } else {
            put_nul(out, &self.auth_response);
        }
        if capabilities.contains(Capabilities::CONNECT_WITH_DB) {
            put_nul(out, self.database.as_deref().unwrap_or_default());
        }
        if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            put_nul(out, self.auth_plugin.as_deref().unwrap_or_default());
        }
        if capabilities.contains(Capabilities::CONNECT_ATTRS) {
            put_lenenc_bytes(out, self.attributes.as_deref().unwrap_or_default());
        }
        if capabilities.contains(Capabilities::ZSTD_COMPRESSION) {
            out.push(self.zstd_level.unwrap_or(3));
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("capabilities", &self.capabilities)
            .field("max_packet_size", &self.max_packet_size)
            .field("charset", &self.charset)
            .field("user", &String::from_utf8_lossy(&self.user))
            .field(
                "auth_response",
                &format_args!("<{} bytes>", self.auth_response.len()),
            )
            .field("database", &self.database.as_deref().map(String::from_utf8_lossy))
            .field(
                "auth_plugin",
                &self.auth_plugin.as_deref().map(String::from_utf8_lossy),
            )
            .field("attributes", &self.attributes.as_ref().map(Vec::len))
            .field("zstd_level", &self.zstd_level)
            .finish()
    }
}

/// COM_CHANGE_USER: a new login on a connection that is logged in. Its response uses the nonce that this
/// connection's client last got. `Debug` hides the authentication response.
#[derive(Clone, PartialEq, Eq)]
pub struct ChangeUser {
    pub user: Vec<u8>,
    /// At most 255 bytes.
    pub auth_response: Vec<u8>,
    /// Empty for no database.
    pub database: Vec<u8>,
    /// Collation id; all 16 bits here.
    pub charset: Option<u16>,
    /// With PLUGIN_AUTH and a charset.
    pub auth_plugin: Option<Vec<u8>>,
    /// With CONNECT_ATTRS and a plugin: the encoded key/value list without its own length.
    pub attributes: Option<Vec<u8>>,
}

impl ChangeUser {
    /// Reads the whole payload, command byte included. `capabilities` are those of the connection.
    pub fn decode(payload: &[u8], capabilities: Capabilities) -> Result<ChangeUser, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Command::CHANGE_USER.0, "COM_CHANGE_USER")?;
        let user = reader.until_nul("user name")?.to_vec();
        let auth_response = if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let len = reader.u8("authentication response")?;
            reader
                .bytes(usize::from(len), "authentication response")?
                .to_vec()
        } else {
            reader.until_nul("authentication response")?.to_vec()
        };
        let database = reader.until_nul_or_end().to_vec();
        let charset = match reader.is_empty() {
            true => None,
            false => Some(reader.u16("charset")?),
        };
        let has = |flag, reader: &Reader<'_>| capabilities.contains(flag) && !reader.is_empty();
        let auth_plugin = has(Capabilities::PLUGIN_AUTH, &reader).then(|| reader.until_nul_or_end().to_vec());
        let attributes = match has(Capabilities::CONNECT_ATTRS, &reader) {
            true => Some(reader.lenenc_bytes("connection attributes")?.to_vec()),
            false => None,
        };
        Ok(ChangeUser {
            user,
            auth_response,
            database,
            charset,
            auth_plugin,
            attributes,
        })
    }

    /// Appends the payload, command byte included. A response over 255 bytes cannot be sent here (no client
    /// sends one: long secrets go through an auth switch) and is left empty, which the server refuses.
    pub fn encode(&self, out: &mut Vec<u8>, capabilities: Capabilities) {
        out.push(Command::CHANGE_USER.0);
        put_nul(out, &self.user);
        if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let len = u8::try_from(self.auth_response.len()).unwrap_or(0);
            out.push(len);
            out.extend(self.auth_response.iter().take(usize::from(len)));
        } else {
            put_nul(out, &self.auth_response);
        }
        put_nul(out, &self.database);
        let Some(charset) = self.charset else { return };
        out.extend_from_slice(&charset.to_le_bytes());
        let Some(auth_plugin) = &self.auth_plugin else {
            return;
        };
        if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            put_nul(out, auth_plugin);
        }
        let Some(attributes) = &self.attributes else {
            return;
        };
        if capabilities.contains(Capabilities::CONNECT_ATTRS) {
            put_lenenc_bytes(out, attributes);
        }
    }
}

impl fmt::Debug for ChangeUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeUser")
            .field("user", &String::from_utf8_lossy(&self.user))
            .field(
                "auth_response",
                &format_args!("<{} bytes>", self.auth_response.len()),
            )
            .field("database", &String::from_utf8_lossy(&self.database))
            .field("charset", &self.charset)
            .field(
                "auth_plugin",
                &self.auth_plugin.as_deref().map(String::from_utf8_lossy),
            )
            .field("attributes", &self.attributes.as_ref().map(Vec::len))
            .finish()
    }
}
