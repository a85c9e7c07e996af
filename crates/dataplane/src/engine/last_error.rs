//! The error that a client was told last.

use mysql_wire::{Capabilities, ErrPacket, PacketHeader};

/// The longest message that servers take in a `SIGNAL`, in characters.
pub(super) const MESSAGE_MAX: usize = 128;

/// The error that the client was told.
pub(crate) struct LastError {
    pub(super) error: ErrPacket,
    /// The digest of the statement that failed, once the connection that has told the error is somebody
    /// else's.
    pub(super) stashed: Option<u64>,
}

impl LastError {
    /// Puts the error that the exchange of a command has `told` in the place of the one before. If nothing
    /// was told, the one before stays as long as it `is_kept` on its connection, or if it was put away: the
    /// command is then one that servers do not hear of.
    pub(super) fn renew(known: &mut Option<Box<Self>>, told: Option<Box<Self>>, is_kept: bool) {
        let outlives = |known: &Self| is_kept || known.stashed.is_some();
        if told.is_some() || !known.as_deref().is_some_and(outlives) {
            *known = told;
        }
    }

    /// The error packet with this code that ends these bytes.
    pub(crate) fn at_end_of(bytes: &[u8], code: u16) -> Option<Box<Self>> {
        const HEAD: usize = PacketHeader::LEN + 9;
        let end = bytes.len();
        let first = end.saturating_sub(HEAD + MESSAGE_MAX);
        let payload = (first..=end.checked_sub(HEAD)?).rev().find_map(|start| {
            let header = PacketHeader::parse(&bytes[start..])?;
            let payload = &bytes[start + PacketHeader::LEN..];
            let [low, high] = code.to_le_bytes();
            let is_it = header.payload_len == payload.len() && payload.starts_with(&[0xff, low, high, b'#']);
            is_it.then_some(payload)
        })?;
        Self::new(ErrPacket::decode(payload, Capabilities::PROTOCOL_41).ok()?)
    }

    /// `None` where the error cannot be raised again as it was.
    pub(crate) fn new(error: ErrPacket) -> Option<Box<Self>> {
        may_be_raised(&error).then(|| Box::new(Self { error, stashed: None }))
    }
}

/// Whether a text can say the error that means the same under any `sql_mode` and in any charset.
pub(super) fn may_be_raised(error: &ErrPacket) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
    error.code > 0
        && !matches!(&error.sql_state[..2], b"00" | b"01" | b"02")
        && error.sql_state.iter().all(u8::is_ascii_alphanumeric)
        && error.message.len() <= MESSAGE_MAX
        && error.message.iter().all(is_plain)
}
