//! The server's first packet (HandshakeV10) and the client's request for TLS.
//!
//! Sources: MySQL "Protocol::HandshakeV10", "Protocol::SSLRequest"; MariaDB "Connection".

use crate::codec::{Reader, put_nul};
use crate::{Capabilities, StatusFlags, WireError};

/// The server's first packet. A server that refuses the connection sends an [`crate::ErrPacket`] instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    pub server_version: Vec<u8>,
    /// The low 32 bits of the server's connection id, for KILL and logs.
    pub connection_id: u32,
    /// Random bytes that the client mixes with its password; zeros where a server sends fewer.
    pub nonce: [u8; 20],
    pub capabilities: Capabilities,
    /// Low byte of the server's default collation id.
    pub charset: u8,
    pub status: StatusFlags,
    /// The plugin that `nonce` is for; empty where the server has no PLUGIN_AUTH.
    pub auth_plugin: Vec<u8>,
}

impl Greeting {
    const PROTOCOL_VERSION: u8 = 10;
    /// The nonce and the zero byte after it, as every server since 4.1 announces it.
    const AUTH_DATA_LEN: u8 = 21;

    pub fn decode(payload: &[u8]) -> Result<Greeting, WireError> {
        let mut reader = Reader::new(payload);
        reader.tag(Self::PROTOCOL_VERSION, "a greeting of protocol version 10")?;
        let server_version = reader.until_nul("server version")?.to_vec();
        let connection_id = reader.u32("connection id")?;
        let nonce_head: [u8; 8] = reader.array("nonce")?;
        reader.u8("filler")?;
        let low = reader.u16("capabilities")?;
        let charset = reader.u8("charset")?;
        let status = StatusFlags(reader.u16("status")?);
        let high = reader.u16("capabilities")?;
        let auth_data_len = reader.u8("nonce length")?;
        reader.bytes(6, "filler")?;
        let extended = reader.u32("extended capabilities")?;
        let mysql = u32::from(low) | u32::from(high) << 16;
        let capabilities = Capabilities::from_halves(mysql, extended);
        if !capabilities.contains(Capabilities::PROTOCOL_41) {
            return Err(WireError::OldProtocol);
        }
        // Always 13 bytes or more, also when the length byte is 0 (servers without PLUGIN_AUTH).
        let tail = reader.bytes(usize::from(auth_data_len).saturating_sub(8).max(13), "nonce")?;
        let mut nonce = [0; 20];
        nonce[..8].copy_from_slice(&nonce_head);
        let nonce_tail = tail.first_chunk::<12>();
        nonce[8..].copy_from_slice(nonce_tail.ok_or(WireError::Truncated { field: "nonce" })?);
        let auth_plugin = match capabilities.contains(Capabilities::PLUGIN_AUTH) {
            true => reader.until_nul_or_end().to_vec(),
            false => Vec::new(),
        };
        Ok(Greeting {
            server_version,
            connection_id,
            nonce,
            capabilities,
            charset,
            status,
            auth_plugin,
        })
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mysql = self.capabilities.mysql();
        let has_plugin = self.capabilities.contains(Capabilities::PLUGIN_AUTH);
        out.push(Self::PROTOCOL_VERSION);
        put_nul(out, &self.server_version);
        out.extend_from_slice(&self.connection_id.to_le_bytes());
        out.extend_from_slice(&self.nonce[..8]);
        out.push(0);
        out.extend_from_slice(&(mysql as u16).to_le_bytes());
        out.push(self.charset);
        out.extend_from_slice(&self.status.0.to_le_bytes());
        out.extend_from_slice(&((mysql >> 16) as u16).to_le_bytes());
        out.push(if has_plugin { Self::AUTH_DATA_LEN } else { 0 });
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.capabilities.mariadb().to_le_bytes());
        out.extend_from_slice(&self.nonce[8..]);
        out.push(0);
        if has_plugin {
            put_nul(out, &self.auth_plugin);
        }
    }
}

/// The fixed first 32 bytes of a login packet, sent alone to ask for TLS; the login follows inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SslRequest {
    /// Contains [`Capabilities::SSL`].
    pub capabilities: Capabilities,
    /// In bytes; what the client accepts as the longest packet.
    pub max_packet_size: u32,
    /// Low byte of the collation id.
    pub charset: u8,
}

impl SslRequest {
    /// Payload bytes of an SSL request: a login packet is always longer.
    pub const LEN: usize = 32;

    /// Whether this first packet of a client is an SSL request and not yet the login.
    pub fn is_ssl_request(payload: &[u8]) -> bool {
        payload.len() == Self::LEN && SslRequest::decode(payload).is_ok()
    }

    pub fn decode(payload: &[u8]) -> Result<SslRequest, WireError> {
        let mut reader = Reader::new(payload);
        let request = SslRequest::read(&mut reader)?;
        if !reader.is_empty() {
            return Err(WireError::Invalid {
                field: "length of an SSL request",
            });
        }
        match request.capabilities.contains(Capabilities::SSL) {
            true => Ok(request),
            false => Err(WireError::Invalid {
                field: "capabilities of an SSL request",
            }),
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.capabilities.mysql().to_le_bytes());
        out.extend_from_slice(&self.max_packet_size.to_le_bytes());
        out.push(self.charset);
        out.extend_from_slice(&[0; 19]);
        out.extend_from_slice(&self.capabilities.mariadb().to_le_bytes());
    }

    /// The 32 bytes that a login packet starts with as well.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SslRequest, WireError> {
        let mysql = reader.u32("capabilities")?;
        if !Capabilities::from_halves(mysql, 0).contains(Capabilities::PROTOCOL_41) {
            return Err(WireError::OldProtocol);
        }
        let max_packet_size = reader.u32("maximum packet size")?;
        let charset = reader.u8("charset")?;
        reader.bytes(19, "filler")?;
        let extended = reader.u32("extended capabilities")?;
        Ok(SslRequest {
            capabilities: Capabilities::from_halves(mysql, extended),
            max_packet_size,
            charset,
        })
    }
}
