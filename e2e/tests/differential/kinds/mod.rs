//! The kinds of commands that scripts are made of.

mod accounts;
mod bulk;
mod commands;
mod errors;
mod framing;
mod infile;
mod large;
pub mod parameters;
mod prepared;
mod reads;
mod rhythm;
mod server;
mod settings;
mod shows;
mod transactions;
mod writes;

use mysql_wire::{Capabilities, Command};
use sandbox::Kind;

use crate::script::{Request, Step, Writes};
use inputs::Random;

/// Adds steps of one kind to a script.
pub type Add = fn(&mut Maker);

/// A kind: its name, what adds its steps, and the share that it has in a mixed script.
pub type Scripts = (&'static str, Add, usize);

/// The kinds of scripts.
pub const KINDS: &[Scripts] = &[
    ("reads", reads::add, 10),
    ("writes", writes::add, 10),
    ("definitions", writes::add_definition, 6),
    ("errors", errors::add, 8),
    ("transactions", transactions::add, 6),
    ("several results", reads::add_several, 8),
    ("prepared statements", prepared::add, 14),
    ("bulk", bulk::add, 4),
    ("files", infile::add, 6),
    ("commands", commands::add, 6),
    ("shows", shows::add, 6),
    ("settings", settings::add, 8),
    ("locks and handlers", server::add, 6),
    ("accounts", accounts::add, 4),
    ("framing", framing::add, 6),
    ("ends of sessions", framing::add_end, 1),
    ("streams", server::add_stream, 0),
    ("large packets", large::add, 0),
    ("prepare, execute, close", rhythm::add, 0),
];

/// A script under construction.
pub struct Maker {
    pub dice: Random,
    /// What client and server both can.
    pub capabilities: Capabilities,
    pub server: Kind,
    /// The gateway's connection to the server is.
    pub compressed: bool,
    /// Sessions share connections.
    pub shared: bool,
    /// The server is MySQL 8.
    pub is_mysql_8: bool,
    pub steps: Vec<Step>,
    pub statements: Vec<Prepared>,
}

/// A prepared statement of the script.
#[derive(Clone, Copy)]
pub struct Prepared {
    pub parameters: usize,
    /// It was executed with a cursor.
    pub had_cursor: bool,
}

impl Maker {
    pub fn is_mariadb(&self) -> bool {
        self.server == Kind::Mariadb
    }

    pub fn has(&self, capability: Capabilities) -> bool {
        self.capabilities.contains(capability)
    }

    /// One of the statements, `%` in it replaced by a small number.
    pub fn statement(&mut self, choices: &[&str]) -> String {
        let text = self.dice.pick(choices);
        let mut out = String::new();
        for part in text.split_inclusive('%') {
            match part.strip_suffix('%') {
                Some(before) => {
                    out.push_str(before);
                    out.push_str(&self.dice.between(0, 9).to_string());
                }
                None => out.push_str(part),
            }
        }
        out
    }

    /// COM_QUERY; with query attributes, where they were agreed on, some of the time.
    pub fn query(&mut self, text: &str) -> Request {
        let mut payload = vec![Command::QUERY.0];
        if self.has(Capabilities::QUERY_ATTRIBUTES) {
            payload.extend(self.query_attributes());
        }
        payload.extend(text.as_bytes());
        Request::new(text, payload)
    }

    /// Adds a step of one COM_QUERY.
    pub fn add_query(&mut self, text: &str) {
        let request = self.query(text);
        self.add(request);
    }

    /// Adds a step of one command.
    pub fn add(&mut self, request: Request) {
        // After a refused COM_CHANGE_USER MariaDB goes back to the charset of that, and not of the login.
        let resets = request.command() == Command::RESET_CONNECTION;
        if self.shared && resets && self.steps.iter().any(accounts::is_refused_change) {
            return;
        }
        // MySQL 8 forgets that the client ignores spaces, which the gateway does not.
        if self.shared && resets && self.is_mysql_8 && self.has(Capabilities::IGNORE_SPACE) {
            return;
        }
        // MySQL 9.7 leaves foreign keys to InnoDB in a session that was reset, which finds other errors
        // first.
        let foreign_keys = ["child", "REPLACE INTO small"];
        let touches = foreign_keys.iter().any(|part| request.label.contains(part));
        if self.shared && !self.is_mariadb() && touches && self.was_renewed() {
            return;
        }
        self.steps.push(Step {
            requests: vec![request],
            writes: Writes::AtOnce,
        });
    }

    /// The session was reset, or is another account's.
    fn was_renewed(&self) -> bool {
        let mut requests = self.steps.iter().flat_map(|step| &step.requests);
        requests.any(|request| {
            matches!(
                request.command(),
                Command::RESET_CONNECTION | Command::CHANGE_USER
            )
        })
    }

    /// Adds a command without a text.
    pub fn add_command(&mut self, command: Command, body: &[u8]) {
        let label = format!("{} {:02x?}", command.name(), &body[..body.len().min(24)]);
        self.add(Request::new(label, [&[command.0], body].concat()));
    }

    /// Count and set count, then bitmap, types, names and values.
    /// <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query.html>
    fn query_attributes(&mut self) -> Vec<u8> {
        let count = if self.dice.one_in(3) {
            self.dice.between(1, 3)
        } else {
            0
        };
        let mut out = vec![count as u8, 1];
        if count == 0 {
            return out;
        }
        out.extend([0, 1]);
        for index in 0..count {
            out.extend([0xfe, 0, 2, b'a', b'0' + index as u8]);
        }
        for index in 0..count {
            out.extend([3, b'v', b'=', b'0' + index as u8]);
        }
        out
    }
}
