//! The answer to a command, packet by packet, with the part that each packet plays.
//!
//! Written from the protocol's documentation and not with `mysql_wire::ResponseTracker`, whose errors would
//! otherwise hide themselves.

use std::io;

use e2e::packets::{Client, Physical};
use mysql_wire::{Capabilities, Command, StatusFlags};

use crate::script::{Patch, Request};

const MAX_PAYLOAD: usize = 0xff_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// OK, EOF or ERR.
    Verdict,
    /// Column count, the head of a prepare, a LOCAL INFILE request, text.
    Head,
    Definition,
    Row,
    /// MariaDB's progress report.
    Progress,
    /// What goes on of a binlog dump.
    Event,
}

#[derive(Clone)]
pub struct Packet {
    pub role: Role,
    pub physical: Physical,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Whole,
    /// The connection was closed.
    Closed,
    /// Nothing came for 30 s.
    Silence,
}

/// All that came in answer to one command.
#[derive(Clone)]
pub struct Answer {
    pub packets: Vec<Packet>,
    pub end: End,
}

impl Answer {
    /// No further command can follow: the connection is closed, or a stream.
    pub fn ends_session(&self) -> bool {
        self.end != End::Whole
            || self
                .packets
                .last()
                .is_some_and(|packet| packet.role == Role::Event)
    }

    /// The id that a prepare gave to its statement.
    pub fn statement(&self) -> Option<u32> {
        let head = &self.packets.first()?.physical.payload;
        (head.first() == Some(&0)).then(|| u32::from_le_bytes(head[1..5].try_into().unwrap()))
    }
}

/// Reads the answer to `request`, which has been sent.
pub fn read(client: &mut Client, request: &Request) -> Answer {
    let mut reading = Reading {
        client,
        request,
        packets: Vec::new(),
    };
    let end = match reading.whole() {
        Ok(()) | Err(Stop::Error) => End::Whole,
        Err(Stop::Failed(error)) if error.kind() == io::ErrorKind::TimedOut => End::Silence,
        Err(Stop::Failed(_)) => End::Closed,
    };
    Answer {
        packets: reading.packets,
        end,
    }
}

struct Reading<'a> {
    client: &'a mut Client,
    request: &'a Request,
    packets: Vec<Packet>,
}

enum Stop {
    /// An ERR packet ended the answer.
    Error,
    Failed(io::Error),
}

/// The start of a payload, and its whole length where it came in several packets.
struct Seen {
    start: Vec<u8>,
    len: usize,
}

impl Seen {
    fn first(&self) -> u8 {
        self.start.first().copied().unwrap_or(0xfe)
    }
}

impl Reading<'_> {
    fn whole(&mut self) -> Result<(), Stop> {
        match self.request.command() {
            Command::STMT_CLOSE | Command::STMT_SEND_LONG_DATA => Ok(()),
            // The connection is closed, and that is the answer.
            Command::QUIT => self.packet(Role::Verdict).map(drop),
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
                while self.result()? {}
                Ok(())
            }
            Command::PROCESS_INFO => self.result().map(drop),
            Command::STMT_PREPARE => self.prepared(),
            Command::STMT_FETCH | Command::FIELD_LIST => self.rows().map(drop),
            Command::STATISTICS => self.packet(Role::Head).map(drop),
            Command::CHANGE_USER => self.change_user(),
            Command::BINLOG_DUMP => self.events(self.request.events),
            _ => self.packet(Role::Verdict).map(drop),
        }
    }

    fn has(&self, capability: Capabilities) -> bool {
        self.client.capabilities.contains(capability)
    }

    /// The next payload. `role` unless it is an error or a progress report.
    fn packet(&mut self, role: Role) -> Result<Seen, Stop> {
        let mut seen: Option<Seen> = None;
        loop {
            let physical = self.client.packet().map_err(Stop::Failed)?;
            let payload = &physical.payload;
            let continued = payload.len() == MAX_PAYLOAD;
            match &mut seen {
                Some(seen) => seen.len += payload.len(),
                None => {
                    let start = payload[..payload.len().min(64)].to_vec();
                    seen = Some(Seen {
                        start,
                        len: payload.len(),
                    });
                }
            }
            let Some(of) = seen.as_ref() else { continue };
            let role = match (of.first(), role) {
                (_, Role::Event) => role,
                (0xff, _) if self.has(Capabilities::MARIADB_PROGRESS) && of.start[1..3] == [0xff, 0xff] => {
                    Role::Progress
                }
                (0xff, _) => Role::Verdict,
                _ => role,
            };
            let is_error = of.first() == 0xff && role == Role::Verdict;
            self.packets.push(Packet { role, physical });
            if role == Role::Progress {
                seen = None;
            } else if is_error {
                return Err(Stop::Error);
            } else if !continued {
                return Ok(seen.expect("a packet"));
            }
        }
    }

    /// One result. True when another follows.
    fn result(&mut self) -> Result<bool, Stop> {
        let head = self.packet(Role::Head)?;
        match head.first() {
            0 => {
                self.last_is_verdict();
                let status = ok_status(&head.start);
                return Ok(status.contains(StatusFlags::MORE_RESULTS));
            }
            0xfb => {
                self.infile()?;
                return self.result();
            }
            _ => {}
        }
        let (count, rest) = lenenc(&head.start);
        let optional = Capabilities::OPTIONAL_RESULTSET_METADATA | Capabilities::MARIADB_CACHE_METADATA;
        let with_metadata = !self.client.capabilities.intersects(optional) || rest.first() == Some(&1);
        let status = self.definitions(if with_metadata { count } else { 0 })?;
        let executes = self.request.command() == Command::STMT_EXECUTE;
        if executes && status.contains(StatusFlags::CURSOR_EXISTS) {
            return Ok(status.contains(StatusFlags::MORE_RESULTS));
        }
        // MySQL forgets the second flag after the row of OUT parameters.
        let out_parameters = status.contains(StatusFlags::PS_OUT_PARAMS | StatusFlags::MORE_RESULTS);
        Ok(self.rows()?.contains(StatusFlags::MORE_RESULTS) || out_parameters)
    }

    fn definitions(&mut self, count: u64) -> Result<StatusFlags, Stop> {
        for _ in 0..count {
            self.packet(Role::Definition)?;
        }
        if self.has(Capabilities::DEPRECATE_EOF) {
            return Ok(StatusFlags::default());
        }
        self.packet(Role::Verdict).map(|eof| eof_status(&eof.start))
    }

    fn rows(&mut self) -> Result<StatusFlags, Stop> {
        let deprecate_eof = self.has(Capabilities::DEPRECATE_EOF);
        loop {
            let row = self.packet(Role::Row)?;
            let limit = if deprecate_eof { MAX_PAYLOAD } else { 9 };
            if row.first() == 0xfe && row.len < limit {
                self.last_is_verdict();
                let is_ok = deprecate_eof && row.len != 5;
                return Ok(if is_ok {
                    ok_status(&row.start)
                } else {
                    eof_status(&row.start)
                });
            }
        }
    }

    fn prepared(&mut self) -> Result<(), Stop> {
        let head = self.packet(Role::Head)?.start;
        let count = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let with_metadata = head.get(12) != Some(&0);
        for count in [count(7), count(5)] {
            if count > 0 {
                self.definitions(if with_metadata { count } else { 0 })?;
            }
        }
        Ok(())
    }

    fn infile(&mut self) -> Result<(), Stop> {
        let mut sequence = self
            .packets
            .last()
            .map_or(0, |packet| packet.physical.sequence)
            .wrapping_add(1);
        let mut bytes = Vec::new();
        for part in self.request.file.iter().flatten().chain([&Vec::new()]) {
            mysql_wire::write_packet(&mut bytes, &mut sequence, part);
        }
        self.request
            .file_writes
            .send(self.client, &bytes)
            .map_err(Stop::Failed)
    }

    fn change_user(&mut self) -> Result<(), Stop> {
        let Patch::ChangeUser { password, .. } = self.request.patch else {
            return self.packet(Role::Verdict).map(drop);
        };
        let physical = self.client.authenticate(password).map_err(Stop::Failed)?;
        self.packets.push(Packet {
            role: Role::Verdict,
            physical,
        });
        Ok(())
    }

    fn events(&mut self, count: usize) -> Result<(), Stop> {
        for _ in 0..count {
            let event = self.packet(Role::Event)?;
            if matches!(event.first(), 0xff | 0xfe) {
                self.last_is_verdict();
                break;
            }
        }
        Ok(())
    }

    fn last_is_verdict(&mut self) {
        if let Some(last) = self.packets.last_mut() {
            last.role = Role::Verdict;
        }
    }
}

fn ok_status(payload: &[u8]) -> StatusFlags {
    let (_affected, rest) = lenenc(&payload[1..]);
    let (_insert_id, rest) = lenenc(rest);
    StatusFlags(u16::from_le_bytes([rest[0], rest[1]]))
}

fn eof_status(payload: &[u8]) -> StatusFlags {
    StatusFlags(u16::from_le_bytes([payload[3], payload[4]]))
}

/// A length-encoded integer at the start of `bytes`, and what comes after it.
pub fn lenenc(bytes: &[u8]) -> (u64, &[u8]) {
    let len = match bytes[0] {
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        small => return (u64::from(small), &bytes[1..]),
    };
    let value = bytes[1..=len]
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte));
    (value, &bytes[1 + len..])
}
