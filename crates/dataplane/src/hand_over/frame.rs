//! What the two processes say to one another about sessions: one byte that says what it is, the number of the
//! offer, and the rest.

use std::io;
use std::os::fd::OwnedFd;

use net::handover::{Channel, MESSAGE_MAX};
use zeroize::Zeroizing;

/// What a message is. The last two are the new process's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The number of the session that came last: the new process keeps off those before it. With what the old
    /// one has learned of servers: `sizes`.
    Last = b'L',
    /// The next part of what is known of a session.
    Part = b'P',
    /// The last part, with its sockets.
    Offer = b'O',
    /// The session is the new process's from here on.
    Yours = b'Y',
    /// It stays.
    Withdrawn = b'W',
    /// Why sessions stay. The number is none.
    Staying = b'S',
    /// A session that has gone is to end: somebody has killed it here. The number is the one its client
    /// knows.
    Kill = b'K',
    Accepted = b'A',
    /// With a word that says why.
    Refused = b'R',
}

const HEAD: usize = 5;

impl Kind {
    const ALL: [Self; 9] = [
        Self::Last,
        Self::Part,
        Self::Offer,
        Self::Yours,
        Self::Withdrawn,
        Self::Staying,
        Self::Kill,
        Self::Accepted,
        Self::Refused,
    ];
}

/// Sends a message. Blocks.
pub(super) fn send(
    channel: &Channel,
    (kind, number): (Kind, u32),
    rest: &[u8],
    sockets: &[OwnedFd],
) -> io::Result<()> {
    // An offer has passwords.
    let mut bytes = Zeroizing::new(Vec::<u8>::with_capacity(HEAD + rest.len()));
    bytes.push(kind as u8);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(rest);
    channel.send(&bytes, sockets)
}

/// Offers a session, in as many messages as it takes. Blocks.
pub(super) fn send_offer(channel: &Channel, number: u32, body: &[u8], sockets: &[OwnedFd]) -> io::Result<()> {
    let mut parts = body.chunks(MESSAGE_MAX - HEAD).peekable();
    while let Some(part) = parts.next() {
        let (kind, sockets) = match parts.peek() {
            Some(_) => (Kind::Part, &[][..]),
            None => (Kind::Offer, sockets),
        };
        send(channel, (kind, number), part, sockets)?;
    }
    Ok(())
}

/// What a message says: what it is, the number, and the rest.
pub(super) fn read(bytes: &[u8]) -> Option<(Kind, u32, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (kind, number) = head.split_first()?;
    let kind = Kind::ALL.into_iter().find(|known| *known as u8 == *kind)?;
    Some((kind, u32::from_le_bytes(number.try_into().ok()?), rest))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_long_offer_comes_in_parts_and_its_sockets_with_the_last() {
        let (old, new) = Channel::pair().unwrap();
        let body: Vec<u8> = (0..MESSAGE_MAX as u32 + 10).map(|n| n as u8).collect();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        send_offer(&old, 7, &body, &[socket.into()]).unwrap();
        let mut whole = Vec::new();
        for (expected, count) in [(Kind::Part, 0), (Kind::Offer, 1)] {
            let (bytes, sockets) = new.receive().unwrap().unwrap();
            let (kind, number, rest) = read(&bytes).unwrap();
            assert_eq!((kind, number, sockets.len()), (expected, 7, count));
            whole.extend_from_slice(rest);
        }
        assert_eq!(whole, body);
        assert!(read(b"").is_none() && read(b"O").is_none() && read(b"?\0\0\0\0").is_none());
    }
}
