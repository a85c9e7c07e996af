//! Messages of the two processes to one another about sessions: one byte for the kind, the number of the
//! offer, and the rest.

use std::io;
use std::os::fd::OwnedFd;

use net::handover::{Channel, MESSAGE_MAX};
use zeroize::Zeroizing;

/// The kind of a message. The last two are sent by the new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The number of the session that came last: the new process keeps off the numbers up to it. The rest is
    /// what the old process has learned of servers: see `sizes`.
    Last = b'L',
    /// The next part of the offer of a session.
    Part = b'P',
    /// The last part of an offer, with the session's sockets.
    Offer = b'O',
    /// The session is the new process's from here on.
    Yours = b'Y',
    /// The session stays.
    Withdrawn = b'W',
    /// The counts of sessions that stay, by reason. The number is 0.
    Staying = b'S',
    /// A session that has gone is to end: somebody has killed it here. The number is the one that the client
    /// knows.
    Kill = b'K',
    Accepted = b'A',
    /// The offer is refused, with a word that says why.
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
    // An offer contains passwords.
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

/// Splits a message into its kind, its number and the rest.
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
