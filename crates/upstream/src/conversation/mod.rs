//! The gateway's own questions to a server: setting a connection's state, preparing a statement, reading
//! variables, grants or a position.
//!
//! Commands are sent together and answered in their order, so that several cost one round trip. An answer is
//! read whole and is bounded; that it is an error ends nothing. Time limits are the caller's. A conversation
//! that was dropped before its end, or that [broke](Broken), is to be dropped together with its connection:
//! nobody knows what comes next on it.
//!
//! What a client asks is not read here, nor is a result that is too long to be kept.

mod rows;

use std::io;

use mysql_wire::{
    Capabilities, Command, ErrPacket, Event, Outcome, PacketHeader, ResponseTracker, WireError, text_values,
    write_packet,
};
use net::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) use rows::{Bounds, Row, Rows, is_off, rows};
pub use rows::{QueryError, TextRow, text_row};

/// The longest answer to one command, in bytes, where the caller does not say.
pub const ANSWER_MAX: usize = 1 << 20;

/// Bytes that one read asks for.
const READ_AT_ONCE: usize = 1024;

const NO_RESULT: Broken = Broken::Unexpected("it has no plain result");

/// The answer to one command.
#[derive(Debug)]
pub struct Reply {
    pub outcome: Outcome,
    /// All its packets, with headers.
    pub bytes: Vec<u8>,
}

/// The conversation did not come to its end. The connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// It could not be read from or written to.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server has closed it.
    #[error("server closed the connection")]
    Closed,
    /// What came does not follow the protocol.
    #[error("server broke the protocol: {0}")]
    Wire(#[from] WireError),
    /// What came does, but answers something else.
    #[error("server broke the protocol: {0}")]
    Unexpected(&'static str),
    /// An answer has more than so many bytes.
    #[error("its result is longer than {0} bytes")]
    TooLong(usize),
}

impl Reply {
    /// The payloads of its packets. One of 16 MiB and more is in several of them.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let header = PacketHeader::parse(rest)?;
            let (packet, behind) = rest.split_at_checked(PacketHeader::LEN + header.payload_len)?;
            rest = behind;
            packet.get(PacketHeader::LEN..)
        })
    }

    /// The payload of the packet at this place in the answer.
    #[must_use]
    pub fn packet(&self, index: usize) -> Option<&[u8]> {
        self.packets().nth(index)
    }

    /// Where the packet is that ends it, on a connection with DEPRECATE_EOF: an OK alone, or behind rows of
    /// one column.
    #[must_use]
    pub fn end(&self) -> usize {
        match self.outcome.is_result_set {
            true => 2 + self.outcome.rows as usize,
            false => 0,
        }
    }

    /// The error that is the whole answer, or its end.
    #[must_use]
    pub fn error(&self, capabilities: Capabilities) -> Option<ErrPacket> {
        self.outcome.error?;
        let packet = self.packets().last()?;
        ErrPacket::decode(packet, capabilities).ok()
    }

    /// The first column of the first row of a text result with one column.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        let [value] = self.row()?;
        value
    }

    /// The first row of a text result, likewise, with so many values [in ASCII](plain).
    #[must_use]
    pub fn plain_row(&self, columns: usize) -> Option<Vec<Option<Vec<u8>>>> {
        let row = self.first_row(columns).filter(|_| self.outcome.rows > 0)?;
        let values: Result<Vec<_>, _> = text_values(row).map(|value| value.map(plain)).collect();
        values.ok().filter(|values| values.len() == columns)
    }

    /// Behind the column count and the definitions, which an EOF ends where DEPRECATE_EOF was not agreed on.
    fn first_row(&self, columns: usize) -> Option<&[u8]> {
        const EOF_LEN: usize = 5;
        let is_eof = |packet: &&[u8]| packet.len() == EOF_LEN && packet[0] == 0xfe;
        let row = self.packet(1 + columns)?;
        match is_eof(&row) {
            true => self.packet(2 + columns),
            false => Some(row),
        }
    }

    /// The first row of a text result with so many columns, likewise. NULL is `None`.
    #[must_use]
    pub fn row<const COLUMNS: usize>(&self) -> Option<[Option<&[u8]>; COLUMNS]> {
        if !self.outcome.is_result_set || self.outcome.rows == 0 {
            return None;
        }
        let mut values = text_values(self.first_row(COLUMNS)?);
        let mut row = [None; COLUMNS];
        for value in &mut row {
            *value = values.next()?.ok()?;
        }
        Some(row)
    }
}

/// A value in ASCII, whatever `character_set_results` is: some have more bytes for each character.
#[must_use]
pub fn plain(value: Option<&[u8]>) -> Option<Vec<u8>> {
    value.map(|value| value.iter().copied().filter(|&byte| byte != 0).collect())
}

/// First columns of all rows of a text result, whether definitions end with an EOF or not, in ASCII.
/// Definitions come along, as the word `def` each.
pub fn values(reply: &Reply) -> impl Iterator<Item = Vec<u8>> {
    let packets = reply.packets().skip(1);
    packets.filter_map(|packet| plain(text_values(packet).next()?.ok()?))
}

/// Sends all commands and reads all answers.
///
/// # Errors
/// See [`Broken`].
pub async fn ask(
    stream: &mut Stream,
    capabilities: Capabilities,
    commands: &[Vec<u8>],
) -> Result<Vec<Reply>, Broken> {
    ask_within(stream, capabilities, commands, ANSWER_MAX).await
}

/// The same with answers of up to `answer_max` bytes each.
///
/// # Errors
/// See [`Broken`].
pub async fn ask_within(
    stream: &mut Stream,
    capabilities: Capabilities,
    commands: &[Vec<u8>],
    answer_max: usize,
) -> Result<Vec<Reply>, Broken> {
    // Packets of a compressed connection are numbered command by command.
    let together = if stream.is_compressed() {
        1
    } else {
        commands.len().max(1)
    };
    let mut replies = Vec::with_capacity(commands.len());
    for commands in commands.chunks(together) {
        let (answers, unread) = converse(stream, capabilities, commands, &[], answer_max).await?;
        nothing_behind(&unread)?;
        replies.extend(answers);
    }
    Ok(replies)
}

/// Sends the commands and, in the same write, the packet of somebody else's behind them. The answers to the
/// commands, and what has been read of the one to that packet. Not for a stream that is compressed.
///
/// # Errors
/// See [`Broken`].
pub async fn ask_ahead(
    stream: &mut Stream,
    capabilities: Capabilities,
    commands: &[Vec<u8>],
    packet: &[u8],
) -> Result<(Vec<Reply>, Vec<u8>), Broken> {
    converse(stream, capabilities, commands, packet, ANSWER_MAX).await
}

/// The answer to a command that was sent [behind others](ask_ahead), of which so much has been read.
///
/// # Errors
/// See [`Broken`].
pub async fn rest(
    stream: &mut Stream,
    capabilities: Capabilities,
    command: Command,
    mut unread: Vec<u8>,
) -> Result<Reply, Broken> {
    let mut tracker = ResponseTracker::new(capabilities);
    tracker.begin(command);
    let reply = read_reply(stream, &mut tracker, &mut unread, ANSWER_MAX).await?;
    nothing_behind(&unread)?;
    Ok(reply)
}

/// Runs one statement and drops what it answers, however much that is. `note` is shown what comes of the
/// answer: packets with their headers, in parts of any length.
///
/// # Errors
/// See [`Broken`].
pub async fn run(
    stream: &mut Stream,
    capabilities: Capabilities,
    command: &[u8],
    mut note: impl FnMut(&[u8]),
) -> Result<Outcome, Broken> {
    send(stream, &[command], &[]).await?;
    let mut tracker = ResponseTracker::new(capabilities);
    tracker.begin(Command(command[0]));
    let mut unread = Vec::with_capacity(READ_AT_ONCE);
    loop {
        let progress = tracker.advance(&unread)?;
        note(&unread[..progress.consumed]);
        unread.drain(..progress.consumed);
        match progress.event {
            Event::Done(outcome) => return nothing_behind(&unread).map(|()| outcome),
            Event::More => fill(stream, &mut unread).await?,
            _ => return Err(NO_RESULT),
        }
    }
}

async fn converse(
    stream: &mut Stream,
    capabilities: Capabilities,
    commands: &[Vec<u8>],
    packet: &[u8],
    answer_max: usize,
) -> Result<(Vec<Reply>, Vec<u8>), Broken> {
    send(stream, commands, packet).await?;
    let mut tracker = ResponseTracker::new(capabilities);
    let mut replies = Vec::with_capacity(commands.len());
    let mut unread = Vec::with_capacity(READ_AT_ONCE);
    for command in commands {
        tracker.begin(Command(command[0]));
        replies.push(read_reply(stream, &mut tracker, &mut unread, answer_max).await?);
    }
    Ok((replies, unread))
}

async fn send(stream: &mut Stream, commands: &[impl AsRef<[u8]>], packet: &[u8]) -> io::Result<()> {
    let mut packets = Vec::new();
    for command in commands {
        write_packet(&mut packets, &mut 0, command.as_ref());
    }
    packets.extend_from_slice(packet);
    stream.begin_command()?;
    stream.write_all(&packets).await?;
    stream.flush().await
}

async fn fill(stream: &mut Stream, unread: &mut Vec<u8>) -> Result<(), Broken> {
    match stream.read_buf(unread).await? {
        0 => Err(Broken::Closed),
        _ => Ok(()),
    }
}

/// Reads the answer under way. There may be none to read.
async fn read_reply(
    stream: &mut Stream,
    tracker: &mut ResponseTracker,
    unread: &mut Vec<u8>,
    answer_max: usize,
) -> Result<Reply, Broken> {
    let (mut outcome, mut bytes) = (Outcome::default(), Vec::new());
    while tracker.in_progress() {
        let progress = tracker.advance(unread)?;
        bytes.extend(unread.drain(..progress.consumed));
        match progress.event {
            Event::More if bytes.len() > answer_max => return Err(Broken::TooLong(answer_max)),
            Event::More => fill(stream, unread).await?,
            Event::Done(done) => outcome = done,
            Event::State | Event::LocalInfile | Event::Stream => return Err(NO_RESULT),
        }
    }
    Ok(Reply { outcome, bytes })
}

fn nothing_behind(unread: &[u8]) -> Result<(), Broken> {
    match unread.is_empty() {
        true => Ok(()),
        false => Err(Broken::Unexpected("it says more than it was asked for")),
    }
}

/// Commands as `session` makes them, in the form that this connection takes: see [`query`].
#[must_use]
pub fn framed(capabilities: Capabilities, mut commands: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
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
#[must_use]
pub fn query(capabilities: Capabilities, text: &str) -> Vec<u8> {
    let mut payload = Vec::with_capacity(text.len() + 3);
    payload.push(Command::QUERY.0);
    if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        payload.extend(NO_ATTRIBUTES);
    }
    payload.extend_from_slice(text.as_bytes());
    payload
}

#[cfg(test)]
mod tests;
