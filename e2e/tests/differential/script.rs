//! What a session does: steps of one or more commands, and how their bytes are written.

use std::io;

use e2e::packets::Client;
use mysql_wire::{Command, write_packet};

use crate::answer::{self, Answer};

/// A command and what belongs to it.
#[derive(Clone)]
pub struct Request {
    /// As people read it.
    pub label: String,
    /// Command byte included; empty for an empty packet.
    pub payload: Vec<u8>,
    pub patch: Patch,
    /// Of the first packet.
    pub sequence: u8,
    /// Where the server may ask for a file: its packets, before the empty one. Without any the client
    /// refuses.
    pub file: Option<Vec<Vec<u8>>>,
    pub file_writes: Writes,
    pub mask: Mask,
    /// The statement that this prepares, by its place in the script.
    pub prepares: Option<usize>,
    /// How many packets of an answer without end are read.
    pub events: usize,
}

/// What the two sides know under different names, put into the payload before it is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    None,
    /// Bytes 1 to 5 are the id of a prepared statement.
    Statement(usize),
    /// The session's connection id as text comes at the end.
    ConnectionId,
    /// The payload is COM_CHANGE_USER for this account and database.
    ChangeUser {
        user: &'static str,
        password: &'static str,
        database: &'static str,
    },
}

/// What is not compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// All is compared.
    Nothing,
    /// Rows: neither their contents nor their number.
    Rows,
    /// Digits in a text.
    Digits,
    /// Sequence numbers: packets of an authentication were left out.
    Sequence,
}

/// Commands that are sent together, before any answer is read.
#[derive(Clone)]
pub struct Step {
    pub requests: Vec<Request>,
    pub writes: Writes,
}

/// How bytes are handed to the socket.
#[derive(Clone, Copy)]
pub enum Writes {
    AtOnce,
    /// So many bytes at a time.
    InPieces(usize),
}

impl Writes {
    pub fn send(self, client: &mut Client, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::AtOnce => client.send(bytes),
            Self::InPieces(size) => bytes.chunks(size).try_for_each(|piece| client.send(piece)),
        }
    }
}

impl Request {
    pub fn new(label: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            label: label.into(),
            payload: payload.into(),
            patch: Patch::None,
            sequence: 0,
            file: None,
            file_writes: Writes::AtOnce,
            mask: Mask::Nothing,
            prepares: None,
            events: 0,
        }
    }

    /// Servers take an empty packet for COM_SLEEP.
    pub fn command(&self) -> Command {
        Command(self.payload.first().copied().unwrap_or(0))
    }

    /// Cannot be in a pipeline: the client has more to say before the answer ends, or there is no end.
    pub fn stands_alone(&self) -> bool {
        matches!(
            self.command(),
            Command::CHANGE_USER | Command::QUIT | Command::BINLOG_DUMP
        ) || self.file.is_some()
            || self.sequence != 0
            || self.payload.len() > 1 << 14
    }
}

/// One side of a comparison: all that a session got.
pub struct Side {
    /// For each step that was sent, an answer to each of its requests.
    pub steps: Vec<Vec<Answer>>,
}

impl Side {
    pub fn commands(&self) -> usize {
        self.steps.iter().map(Vec::len).sum()
    }

    pub fn packets(&self) -> usize {
        self.steps
            .iter()
            .flatten()
            .map(|answer| answer.packets.len())
            .sum()
    }
}

/// Runs the steps until they end or the connection does, with something `between` each two of them.
pub fn run(client: &mut Client, steps: &[Step], mut between: impl FnMut()) -> Side {
    let mut statements = Vec::new();
    let mut side = Side { steps: Vec::new() };
    for step in steps {
        let mut bytes = Vec::new();
        for request in &step.requests {
            let payload = patched(client, request, &statements);
            write_packet(&mut bytes, &mut request.sequence.clone(), &payload);
        }
        // Where this fails the server may have said why: the answer is read in any case.
        let _ = step.writes.send(client, &bytes);
        let mut answers = Vec::new();
        for request in &step.requests {
            let answer = answer::read(client, request);
            if let Some(slot) = request.prepares {
                statements.resize(statements.len().max(slot + 1), None);
                statements[slot] = answer.statement();
            }
            let ended = answer.ends_session();
            answers.push(answer);
            if ended {
                break;
            }
        }
        let ended = answers.last().is_some_and(Answer::ends_session);
        side.steps.push(answers);
        if ended {
            break;
        }
        between();
    }
    side
}

fn patched(client: &Client, request: &Request, statements: &[Option<u32>]) -> Vec<u8> {
    let mut payload = request.payload.clone();
    match request.patch {
        Patch::None => {}
        Patch::Statement(slot) => {
            let id = statements.get(slot).copied().flatten().unwrap_or(0x7fff_fff0);
            payload[1..5].copy_from_slice(&id.to_le_bytes());
        }
        Patch::ConnectionId => payload.extend(client.greeting.connection_id.to_string().bytes()),
        Patch::ChangeUser {
            user,
            password,
            database,
        } => {
            payload = client.change_user_payload(user, password, database);
        }
    }
    payload
}
