//! Commands of the gateway's own on a server connection: setting its state, preparing a statement, asking for
//! a position.
//!
//! They are sent together and answered in their order, so that several cost one round trip.

use std::io;

use mysql_wire::{
    Capabilities, Command, ErrPacket, Event, Outcome, PacketHeader, ResponseTracker, WireError, write_packet,
};
use net::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The longest answer to one command of our own, in bytes.
const ANSWER_MAX: usize = 1 << 20;

/// Bytes that one read asks for.
const READ_AT_ONCE: usize = 1024;

/// The answer to one command.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    /// All its packets, with headers.
    pub(crate) bytes: Vec<u8>,
}

/// The conversation did not come to its end. The connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server's answer makes no sense: {0}")]
    Wire(#[from] WireError),
    #[error("the server's answer to {0} is not what belongs there")]
    Unexpected(&'static str),
}

impl Reply {
    /// The payload of the packet at this place in the answer.
    pub(crate) fn packet(&self, index: usize) -> Option<&[u8]> {
        let mut rest = self.bytes.as_slice();
        for _ in 0..index {
            let header = PacketHeader::parse(rest)?;
            rest = rest.get(PacketHeader::LEN + header.payload_len..)?;
        }
        let header = PacketHeader::parse(rest)?;
        rest.get(PacketHeader::LEN..PacketHeader::LEN + header.payload_len)
    }

    /// Where the packet is that ends it, on a connection with DEPRECATE_EOF: an OK alone, or behind rows of
    /// one column.
    pub(crate) fn end(&self) -> usize {
        match self.outcome.is_result_set {
            true => 2 + self.outcome.rows as usize,
            false => 0,
        }
    }

    /// The error that is the whole answer, or its end.
    pub(crate) fn error(&self, capabilities: Capabilities) -> Option<ErrPacket> {
        self.outcome.error?;
        (0..)
            .map_while(|index| self.packet(index))
            .find(|packet| packet.first() == Some(&ErrPacket::HEADER))
            .and_then(|packet| ErrPacket::decode(packet, capabilities).ok())
    }

    /// The first column of the first row of a text result with one column, on a connection with
    /// DEPRECATE_EOF.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        let [value] = self.row()?;
        value
    }

    /// The first row of a text result with so many columns, likewise. NULL is `None`.
    pub(crate) fn row<const COLUMNS: usize>(&self) -> Option<[Option<&[u8]>; COLUMNS]> {
        if !self.outcome.is_result_set || self.outcome.rows == 0 {
            return None;
        }
        // Column count, the definitions, the row.
        let mut rest = self.packet(1 + COLUMNS)?;
        let mut row = [None; COLUMNS];
        for value in &mut row {
            *value = take_value(&mut rest)?;
        }
        Some(row)
    }
}

/// A value is its length and its bytes, NULL is 0xfb.
fn take_value<'r>(rest: &mut &'r [u8]) -> Option<Option<&'r [u8]>> {
    let (first, tail) = rest.split_first()?;
    let (len, tail) = match *first {
        len @ 0..=250 => (usize::from(len), tail),
        251 => {
            *rest = tail;
            return Some(None);
        }
        252 => (usize::from(u16::from_le_bytes(*tail.first_chunk()?)), &tail[2..]),
        253 => {
            let [a, b, c] = *tail.first_chunk()?;
            (u32::from_le_bytes([a, b, c, 0]) as usize, &tail[3..])
        }
        _ => return None,
    };
    let (value, tail) = tail.split_at_checked(len)?;
    *rest = tail;
    Some(Some(value))
}

/// A value in ASCII, whatever `character_set_results` is: some have more bytes for each character.
pub(crate) fn plain(value: Option<&[u8]>) -> Option<Vec<u8>> {
    value.map(|value| value.iter().copied().filter(|&byte| byte != 0).collect())
}

/// First columns of all rows of a text result, whether definitions end with an EOF or not, in ASCII.
/// Definitions come along, as the word `def` each.
pub(crate) fn values(reply: &Reply) -> impl Iterator<Item = Vec<u8>> {
    let packets = (1..).map_while(|index| reply.packet(index));
    packets.filter_map(|mut packet| plain(take_value(&mut packet)?))
}

/// Sends all commands and reads all answers. An answer that is an error does not end it.
///
/// To be dropped together with the connection only: after a cancelled conversation nobody knows what comes
/// next on it.
pub(crate) async fn ask(
    stream: &mut Stream,
    capabilities: Capabilities,
    commands: &[Vec<u8>],
) -> Result<Vec<Reply>, AskError> {
    // Packets of a compressed connection are numbered command by command.
    if stream.is_compressed() && commands.len() > 1 {
        let mut replies = Vec::with_capacity(commands.len());
        for command in commands {
            replies.extend(converse(stream, capabilities, std::slice::from_ref(command)).await?);
        }
        return Ok(replies);
    }
    converse(stream, capabilities, commands).await
}

async fn converse(
    stream: &mut Stream,
    capabilities: Capabilities,
    commands: &[Vec<u8>],
) -> Result<Vec<Reply>, AskError> {
    let (replies, unread) = ask_ahead(stream, capabilities, commands, &[]).await?;
    if unread.is_empty() {
        Ok(replies)
    } else {
        Err(AskError::Unexpected("a command of the gateway"))
    }
}

/// Sends the commands and, in the same write, the packet of somebody else's behind them. The answers to the
/// commands, and what has been read of the one to that packet. Not for a stream that is compressed.
pub(crate) async fn ask_ahead(
    stream: &mut Stream,
    capabilities: Capabilities,
    commands: &[Vec<u8>],
    packet: &[u8],
) -> Result<(Vec<Reply>, Vec<u8>), AskError> {
    let len: usize = commands
        .iter()
        .map(|command| command.len() + PacketHeader::LEN)
        .sum();
    let mut packets = Vec::with_capacity(len + packet.len());
    for command in commands {
        write_packet(&mut packets, &mut 0, command);
    }
    packets.extend_from_slice(packet);
    stream.begin_command()?;
    stream.write_all(&packets).await?;
    stream.flush().await?;

    let mut tracker = ResponseTracker::new(capabilities);
    let mut replies = Vec::with_capacity(commands.len());
    let mut unread = Vec::with_capacity(READ_AT_ONCE);
    for command in commands {
        tracker.begin(Command(command[0]));
        if !tracker.in_progress() {
            replies.push(Reply {
                outcome: Outcome::default(),
                bytes: Vec::new(),
            });
            continue;
        }
        replies.push(read_reply(stream, &mut tracker, &mut unread).await?);
    }
    Ok((replies, unread))
}

/// The answer to a command that was sent [behind others](ask_ahead), of which so much has been read.
pub(crate) async fn rest(
    stream: &mut Stream,
    capabilities: Capabilities,
    command: Command,
    mut unread: Vec<u8>,
) -> Result<Reply, AskError> {
    let mut tracker = ResponseTracker::new(capabilities);
    tracker.begin(command);
    let reply = read_reply(stream, &mut tracker, &mut unread).await?;
    match unread.is_empty() {
        true => Ok(reply),
        false => Err(AskError::Unexpected("a statement")),
    }
}

/// Runs one statement and drops what it answers, however much that is.
pub(crate) async fn run(
    stream: &mut Stream,
    capabilities: Capabilities,
    command: &[u8],
) -> Result<Outcome, AskError> {
    let mut packets = Vec::with_capacity(command.len() + PacketHeader::LEN);
    write_packet(&mut packets, &mut 0, command);
    stream.begin_command()?;
    stream.write_all(&packets).await?;
    stream.flush().await?;
    let mut tracker = ResponseTracker::new(capabilities);
    tracker.begin(Command(command[0]));
    let mut unread = Vec::new();
    loop {
        let progress = tracker.advance(&unread)?;
        unread.drain(..progress.consumed);
        match progress.event {
            Event::Done(outcome) if unread.is_empty() => return Ok(outcome),
            Event::More if unread.len() <= ANSWER_MAX => {}
            _ => return Err(AskError::Unexpected("a copied statement")),
        }
        if stream.read_buf(&mut unread).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

async fn read_reply(
    stream: &mut Stream,
    tracker: &mut ResponseTracker,
    unread: &mut Vec<u8>,
) -> Result<Reply, AskError> {
    let mut bytes = Vec::new();
    loop {
        let progress = tracker.advance(unread)?;
        bytes.extend(unread.drain(..progress.consumed));
        match progress.event {
            Event::More => {}
            Event::Done(outcome) => return Ok(Reply { outcome, bytes }),
            Event::State | Event::LocalInfile | Event::Stream => {
                return Err(AskError::Unexpected("a command of the gateway"));
            }
        }
        if bytes.len() > ANSWER_MAX {
            return Err(AskError::Unexpected("a command of the gateway (too long)"));
        }
        if stream.read_buf(unread).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// Commands as `session` makes them, in the form that this connection takes: see [`query`].
pub(crate) fn framed(capabilities: Capabilities, mut commands: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        let queries = commands
            .iter_mut()
            .filter(|command| command.first() == Some(&Command::QUERY.0));
        queries.for_each(|query| drop(query.splice(1..1, NO_ATTRIBUTES)));
    }
    commands
}

/// How many there are, and how many sets of them follow.
const NO_ATTRIBUTES: [u8; 2] = [0, 1];

/// A statement as a command. With query attributes negotiated there are none of them.
pub(crate) fn query(capabilities: Capabilities, text: &str) -> Vec<u8> {
    let mut payload = Vec::with_capacity(text.len() + 3);
    payload.push(Command::QUERY.0);
    if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        payload.extend(NO_ATTRIBUTES);
    }
    payload.extend_from_slice(text.as_bytes());
    payload
}
