//! What the clients of the bench ask: one statement, over and over, in one of the two protocols.

use std::{fmt, rc::Rc};

use mysql_wire::{Capabilities, Command, write_packet};
use serde::Serialize;
use testkit::result_set::{Shape, encode_prepare_ok};

/// The account that every contender lets in.
pub(super) const USER: &[u8] = b"bench";
pub(super) const PASSWORD: &[u8] = b"bench";

/// How the statement is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// COM_QUERY.
    Text,
    /// COM_STMT_PREPARE once, then COM_STMT_EXECUTE.
    Prepared,
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::write_name(self, out)
    }
}

/// The id of the first statement that a connection prepares; a gateway numbers those of its sessions in its
/// own way.
const FIRST_ID: u32 = 1;

/// The bytes a session sends and expects, shared by all sessions of a run.
#[derive(Clone)]
pub(super) struct Workload {
    /// COM_STMT_PREPARE, where there is one.
    pub prepare: Option<Rc<[u8]>>,
    pub query: Rc<[u8]>,
    pub protocol: Protocol,
    pub rows: u32,
    /// Clients that know neither DEPRECATE_EOF nor SESSION_TRACK.
    pub older_clients: bool,
}

impl Workload {
    pub(super) fn new(protocol: Protocol, rows: u32, older_clients: bool) -> Self {
        let statement = format!("SELECT c FROM t LIMIT {rows}");
        let (prepare, query) = match protocol {
            Protocol::Text => (None, command(Command::QUERY, statement.as_bytes())),
            Protocol::Prepared => (
                Some(command(Command::STMT_PREPARE, statement.as_bytes())),
                execute(FIRST_ID),
            ),
        };
        Self {
            prepare: prepare.map(Rc::from),
            query: query.into(),
            protocol,
            rows,
            older_clients,
        }
    }

    pub(super) fn quit() -> Vec<u8> {
        command(Command::QUIT, &[])
    }

    /// The query of a session whose statement has this id.
    pub(super) fn execution(&self, id: u32) -> Rc<[u8]> {
        if id == FIRST_ID {
            return Rc::clone(&self.query);
        }
        execute(id).into()
    }

    pub(super) fn prepare_answer(&self, id: u32, negotiated: Capabilities) -> Vec<u8> {
        encode_prepare_ok(id, 0, negotiated.contains(Capabilities::DEPRECATE_EOF))
    }

    pub(super) fn query_answer(&self, negotiated: Capabilities) -> Vec<u8> {
        Shape::new(self.rows, self.protocol == Protocol::Prepared, negotiated).encode()
    }
}

/// No cursor, one iteration, no parameter.
fn execute(id: u32) -> Vec<u8> {
    let mut body = id.to_le_bytes().to_vec();
    body.push(0);
    body.extend(1u32.to_le_bytes());
    command(Command::STMT_EXECUTE, &body)
}

fn command(command: Command, body: &[u8]) -> Vec<u8> {
    let mut payload = vec![command.0];
    payload.extend(body);
    let mut out = Vec::new();
    write_packet(&mut out, &mut 0, &payload);
    out
}
