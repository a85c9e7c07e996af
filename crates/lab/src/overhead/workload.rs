//! What the clients of the bench ask: one statement, over and over, in one of the two protocols.

use std::{fmt, rc::Rc};

use mysql_wire::{Capabilities, Command, write_packet};
use serde::Serialize;
use testkit::result_set::{Shape, encode_prepare_ok};

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
        out.pad(match self {
            Self::Text => "text",
            Self::Prepared => "prepared",
        })
    }
}

/// The bytes a session sends and expects, shared by all sessions of a run.
#[derive(Clone)]
pub(super) struct Workload {
    /// COM_STMT_PREPARE, where there is one.
    pub prepare: Option<Rc<[u8]>>,
    pub query: Rc<[u8]>,
    pub protocol: Protocol,
    pub rows: u32,
}

impl Workload {
    pub(super) fn new(protocol: Protocol, rows: u32) -> Self {
        let statement = format!("SELECT c FROM t LIMIT {rows}");
        let (prepare, query) = match protocol {
            Protocol::Text => (None, command(Command::QUERY, statement.as_bytes())),
            Protocol::Prepared => (
                Some(command(Command::STMT_PREPARE, statement.as_bytes())),
                execute(rows),
            ),
        };
        Self {
            prepare: prepare.map(Rc::from),
            query: query.into(),
            protocol,
            rows,
        }
    }

    /// COM_QUIT.
    pub(super) fn quit() -> Vec<u8> {
        command(Command::QUIT, &[])
    }

    pub(super) fn prepare_answer(&self, negotiated: Capabilities) -> Vec<u8> {
        encode_prepare_ok(self.rows, 0, negotiated.contains(Capabilities::DEPRECATE_EOF))
    }

    pub(super) fn query_answer(&self, negotiated: Capabilities) -> Vec<u8> {
        Shape::new(self.rows, self.protocol == Protocol::Prepared, negotiated).encode()
    }
}

/// The fake server's statement ids are numbers of rows. No cursor, one iteration, no parameter.
fn execute(rows: u32) -> Vec<u8> {
    let mut body = rows.to_le_bytes().to_vec();
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
