//! Packets that a server sends between two commands, when nobody has asked it anything.

use std::task::{Context, Poll, ready};

use mysql_wire::PacketHeader;

use crate::relay::Streams;

/// The longest packet that a server may send unasked: an error packet with a message of 512 bytes, and some.
const LAST_WORDS_MAX: usize = 1024;

/// The bytes that a server has sent between two commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unasked {
    /// Nothing yet, or the start of an error packet.
    Unfinished,
    /// An error packet of so many bytes, header included: why the server ends the connection, or that the
    /// last command, which has no answer, was malformed (MySQL).
    Error(usize),
    /// Bytes that nothing in the protocol allows here.
    Nonsense,
}

/// Looks at what a server has said unasked so far.
pub(crate) fn unasked(bytes: &[u8]) -> Unasked {
    let Some(header) = PacketHeader::parse(bytes) else {
        return Unasked::Unfinished;
    };
    let len = PacketHeader::LEN + header.payload_len;
    match bytes.get(PacketHeader::LEN) {
        _ if header.payload_len == 0 || len > LAST_WORDS_MAX => Unasked::Nonsense,
        Some(0xff) if bytes.len() >= len => Unasked::Error(len),
        Some(0xff) | None => Unasked::Unfinished,
        Some(_) => Unasked::Nonsense,
    }
}

/// Waits until the whole packet is there. Unfinished where the server goes before.
pub(crate) fn poll_unasked(cx: &mut Context<'_>, streams: &mut Streams) -> Poll<Unasked> {
    loop {
        let said = unasked(streams.down.unseen());
        if said != Unasked::Unfinished {
            return Poll::Ready(said);
        }
        match ready!(streams.down.poll_read(cx, &mut streams.server)) {
            Ok(read) if read > 0 => {}
            _ => return Poll::Ready(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unasked_a_server_can_only_say_an_error() {
        let error = b"\x05\0\0\0\xff\x2b\x07no";
        for end in 0..error.len() {
            assert_eq!(unasked(&error[..end]), Unasked::Unfinished, "{end} bytes");
        }
        assert_eq!(unasked(error), Unasked::Error(error.len()));
        assert_eq!(
            unasked(&[error, &b"more"[..]].concat()),
            Unasked::Error(error.len())
        );
        assert_eq!(unasked(b"\x07\0\0\x01\0"), Unasked::Nonsense, "an OK packet");
        assert_eq!(unasked(b"\0\0\0\x01"), Unasked::Nonsense, "an empty packet");
        assert_eq!(
            unasked(b"\0\x10\0\0\xff"),
            Unasked::Nonsense,
            "too long to be kept"
        );
    }
}
