//! One client of the fake server: login, then commands.

use std::{
    io::{self, Read, Write},
    ops::ControlFlow::{self, Break, Continue},
};

use mio::{event::Event, net::TcpStream};
use mysql_wire::{AuthSwitch, Capabilities, Greeting, Login, PacketHeader, StatusFlags, write_packet};

use super::answers::{Answers, FakeAnswer};
use crate::result_set;

const PLUGIN: &[u8] = b"mysql_native_password";
const NONCE: [u8; 20] = *b"forebay-fake-server!";

enum Phase {
    Login,
    AuthSwitch,
    Command,
}

pub(super) struct Connection {
    stream: TcpStream,
    phase: Phase,
    negotiated: Capabilities,
    /// Rows of each prepared statement, by its number.
    rows_of: Vec<u32>,
    /// What was received and not handled: a packet whose end has not arrived, or commands pipelined behind a
    /// response that the socket did not take whole.
    waiting: Vec<u8>,
    /// What the socket did not take yet; nothing is read before it has.
    unsent: Vec<u8>,
}

impl Connection {
    /// Sends the greeting. None: the client is gone already.
    pub(super) fn greet(stream: TcpStream, id: u32) -> Option<Self> {
        let mut connection = Self {
            stream,
            phase: Phase::Login,
            negotiated: offered(),
            rows_of: Vec::new(),
            waiting: Vec::new(),
            unsent: Vec::new(),
        };
        let mut payload = Vec::new();
        greeting(id).encode(&mut payload);
        connection
            .send_packet(0, &payload)
            .is_continue()
            .then_some(connection)
    }

    /// Break: the connection is over.
    pub(super) fn handle(
        &mut self,
        event: &Event,
        scratch: &mut [u8],
        answers: &mut Answers,
    ) -> ControlFlow<()> {
        if !self.unsent.is_empty() {
            let unsent = std::mem::take(&mut self.unsent);
            self.send(&unsent)?;
            self.receive(&[], answers)?;
        }
        while self.unsent.is_empty() {
            let read = match self.stream.read(scratch) {
                Ok(0) => return Break(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Break(()),
            };
            self.receive(&scratch[..read], answers)?;
            // After a short read the socket is empty and epoll reports what comes next, but for a close that
            // this same event has reported.
            if read < scratch.len() && !event.is_read_closed() {
                break;
            }
        }
        Continue(())
    }

    fn receive(&mut self, bytes: &[u8], answers: &mut Answers) -> ControlFlow<()> {
        if self.waiting.is_empty() {
            let rest = self.take_packets(bytes, answers)?;
            self.waiting.extend(rest);
        } else {
            let mut joined = std::mem::take(&mut self.waiting);
            joined.extend(bytes);
            let rest = self.take_packets(&joined, answers)?.len();
            joined.drain(..joined.len() - rest);
            self.waiting = joined;
        }
        Continue(())
    }

    fn take_packets<'a>(&mut self, mut bytes: &'a [u8], answers: &mut Answers) -> ControlFlow<(), &'a [u8]> {
        while self.unsent.is_empty()
            && let Some(header) = PacketHeader::parse(bytes)
        {
            let Some(payload) = bytes.get(PacketHeader::LEN..PacketHeader::LEN + header.payload_len) else {
                break;
            };
            self.packet(header.sequence, payload, answers)?;
            bytes = &bytes[PacketHeader::LEN + header.payload_len..];
        }
        Continue(bytes)
    }

    fn packet(&mut self, sequence: u8, payload: &[u8], answers: &mut Answers) -> ControlFlow<()> {
        match self.phase {
            Phase::Login => self.login(sequence, payload),
            Phase::AuthSwitch => self.accept_login(sequence),
            Phase::Command => match answers.answer(payload, self.negotiated, &mut self.rows_of) {
                FakeAnswer::Bytes(bytes) => self.send(bytes),
                FakeAnswer::Silence => Continue(()),
                FakeAnswer::Close => Break(()),
            },
        }
    }

    fn login(&mut self, sequence: u8, payload: &[u8]) -> ControlFlow<()> {
        let Ok(login) = Login::decode(payload) else {
            return Break(());
        };
        self.negotiated = login.capabilities & offered();
        if login.auth_plugin.as_deref().is_none_or(|plugin| plugin == PLUGIN) {
            return self.accept_login(sequence);
        }
        self.phase = Phase::AuthSwitch;
        let mut data = NONCE.to_vec();
        data.push(0);
        let mut request = Vec::new();
        AuthSwitch {
            plugin: PLUGIN.to_vec(),
            data,
        }
        .encode(&mut request);
        self.send_packet(sequence.wrapping_add(1), &request)
    }

    fn accept_login(&mut self, sequence: u8) -> ControlFlow<()> {
        self.phase = Phase::Command;
        self.send(&result_set::encode_ok(sequence.wrapping_add(1)))
    }

    fn send_packet(&mut self, mut sequence: u8, payload: &[u8]) -> ControlFlow<()> {
        let mut packet = Vec::new();
        write_packet(&mut packet, &mut sequence, payload);
        self.send(&packet)
    }

    fn send(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        let mut sent = 0;
        while self.unsent.is_empty() && sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Break(()),
            }
        }
        self.unsent.extend(&bytes[sent..]);
        Continue(())
    }
}

fn greeting(connection_id: u32) -> Greeting {
    Greeting {
        server_version: b"8.4.0-forebay-fake".to_vec(),
        connection_id,
        nonce: NONCE,
        capabilities: offered(),
        charset: 45,
        status: StatusFlags(2),
        auth_plugin: PLUGIN.to_vec(),
    }
}

fn offered() -> Capabilities {
    Capabilities::LONG_PASSWORD
        | Capabilities::FOUND_ROWS
        | Capabilities::LONG_FLAG
        | Capabilities::CONNECT_WITH_DB
        | Capabilities::PROTOCOL_41
        | Capabilities::TRANSACTIONS
        | Capabilities::SECURE_CONNECTION
        | Capabilities::MULTI_STATEMENTS
        | Capabilities::MULTI_RESULTS
        | Capabilities::PS_MULTI_RESULTS
        | Capabilities::PLUGIN_AUTH
        | Capabilities::CONNECT_ATTRS
        | Capabilities::PLUGIN_AUTH_LENENC
        | Capabilities::SESSION_TRACK
        | Capabilities::DEPRECATE_EOF
}
