//! One client session of the bench: bytes in, bytes out. The rig owns its socket.

use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use mysql_wire::{AuthSwitch, Capabilities, ErrPacket, Greeting, Login, PacketHeader, auth, write_packet};

use super::workload::{PASSWORD, USER, Workload};

const PLUGIN: &[u8] = b"mysql_native_password";

/// What follows from received bytes.
pub(super) enum Input {
    /// More must arrive.
    More,
    /// To be sent before anything else can arrive.
    Send(Vec<u8>),
    /// The session waits for its next query.
    Idle,
}

enum Phase {
    Greeting,
    Login,
    Preparing,
    /// The first result, compared byte by byte.
    Proving,
    /// This many bytes of a result are outstanding; 0 means idle.
    Counting(usize),
}

pub(super) struct Session {
    phase: Phase,
    workload: Workload,
    /// The workload's, with the id that this session's statement was given.
    query: Rc<[u8]>,
    negotiated: Capabilities,
    /// Bytes of an unfinished packet or answer; empty, and without memory, once queries are only counted.
    received: Vec<u8>,
    answer_len: usize,
}

impl Session {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            phase: Phase::Greeting,
            workload: workload.clone(),
            query: Rc::clone(&workload.query),
            negotiated: capabilities(workload.older_clients),
            received: Vec::new(),
            answer_len: 0,
        }
    }

    /// The bytes of the next query, which the caller sends at once. Only for an idle session.
    pub(super) fn next_query(&mut self) -> &[u8] {
        debug_assert!(matches!(self.phase, Phase::Counting(0)));
        self.phase = Phase::Counting(self.answer_len);
        &self.query
    }

    /// What the session was doing, for error texts.
    pub(super) fn doing(&self) -> &'static str {
        match self.phase {
            Phase::Greeting => "before the greeting",
            Phase::Login => "during the login",
            Phase::Preparing => "while preparing",
            Phase::Proving => "in the first result",
            Phase::Counting(0) => "while idle",
            Phase::Counting(_) => "in the middle of a result",
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> anyhow::Result<Input> {
        if let Phase::Counting(outstanding) = self.phase {
            return self.count(outstanding, bytes);
        }
        self.received.extend(bytes);
        match self.phase {
            Phase::Preparing => {
                let Some(id) = self.received.get(5..9).and_then(|id| id.try_into().ok()) else {
                    return Ok(Input::More);
                };
                let id = u32::from_le_bytes(id);
                self.query = self.workload.execution(id);
                self.prove(self.workload.prepare_answer(id, self.negotiated))
            }
            Phase::Proving => self.prove(self.workload.query_answer(self.negotiated)),
            _ => self.log_in(),
        }
    }

    fn count(&mut self, outstanding: usize, bytes: &[u8]) -> anyhow::Result<Input> {
        ensure!(
            outstanding > 0,
            "{} bytes arrived that nobody asked for",
            bytes.len()
        );
        if outstanding == self.answer_len && bytes.get(4) == Some(&0xff) {
            bail!("a query failed: {}", error_text(&bytes[4..], self.negotiated));
        }
        ensure!(
            bytes.len() <= outstanding,
            "a result is {} bytes too long",
            bytes.len() - outstanding
        );
        self.phase = Phase::Counting(outstanding - bytes.len());
        Ok(if bytes.len() == outstanding {
            Input::Idle
        } else {
            Input::More
        })
    }

    fn prove(&mut self, expected: Vec<u8>) -> anyhow::Result<Input> {
        if !expected.starts_with(&self.received) {
            if self.received.get(4) == Some(&0xff) {
                bail!(
                    "{}: {}",
                    self.doing(),
                    error_text(&self.received[4..], self.negotiated)
                );
            }
            bail!("{}: the bytes are not those the server sent", self.doing());
        }
        if self.received.len() < expected.len() {
            return Ok(Input::More);
        }
        self.received.clear();
        if let Phase::Preparing = self.phase {
            self.phase = Phase::Proving;
            return Ok(Input::Send(self.query.to_vec()));
        }
        self.received = Vec::new();
        self.answer_len = expected.len();
        self.phase = Phase::Counting(0);
        Ok(Input::Idle)
    }

    fn log_in(&mut self) -> anyhow::Result<Input> {
        let Some(header) = PacketHeader::parse(&self.received) else {
            return Ok(Input::More);
        };
        let end = PacketHeader::LEN + header.payload_len;
        if self.received.len() < end {
            return Ok(Input::More);
        }
        ensure!(self.received.len() == end, "bytes follow a packet of the login");
        let received = std::mem::take(&mut self.received);
        let payload = &received[PacketHeader::LEN..];
        let first = payload.first().copied();
        if first == Some(0xff) {
            bail!("{}: {}", self.doing(), error_text(payload, self.negotiated));
        }
        match (&self.phase, first) {
            (Phase::Greeting, _) => {
                let greeting = Greeting::decode(payload)?;
                self.negotiated = self.negotiated & greeting.capabilities;
                self.phase = Phase::Login;
                Ok(Input::Send(login(self.negotiated, &greeting.nonce)))
            }
            (_, Some(0)) => Ok(Input::Send(self.first_command())),
            (_, Some(AuthSwitch::HEADER)) => {
                let AuthSwitch { plugin, data } = AuthSwitch::decode(payload)?;
                ensure!(
                    plugin == PLUGIN,
                    "asked for plugin {}",
                    String::from_utf8_lossy(&plugin)
                );
                let nonce = data.first_chunk().context("a nonce that is too short")?;
                let answer = auth::native_password(nonce, PASSWORD);
                Ok(Input::Send(packet(header.sequence.wrapping_add(1), &answer)))
            }
            _ => bail!("an unexpected packet during the login: {payload:02x?}"),
        }
    }

    fn first_command(&mut self) -> Vec<u8> {
        match &self.workload.prepare {
            Some(prepare) => {
                self.phase = Phase::Preparing;
                prepare.to_vec()
            }
            None => {
                self.phase = Phase::Proving;
                self.query.to_vec()
            }
        }
    }
}

fn login(negotiated: Capabilities, nonce: &[u8; 20]) -> Vec<u8> {
    let login = Login {
        capabilities: negotiated,
        max_packet_size: 1 << 24,
        charset: 45,
        user: USER.to_vec(),
        auth_response: auth::native_password(nonce, PASSWORD),
        database: None,
        auth_plugin: Some(PLUGIN.to_vec()),
        attributes: None,
        zstd_level: None,
    };
    let mut payload = Vec::new();
    login.encode(&mut payload);
    packet(1, &payload)
}

fn packet(mut sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_packet(&mut out, &mut sequence, payload);
    out
}

fn error_text(payload: &[u8], negotiated: Capabilities) -> String {
    match ErrPacket::decode(payload, negotiated) {
        Ok(error) => format!(
            "error {}: {}",
            error.code,
            String::from_utf8_lossy(&error.message)
        ),
        Err(error) => format!("an error packet that cannot be read: {error}"),
    }
}

/// What clients on libmysqlclient or Connector/J ask for, or `older` ones.
fn capabilities(older: bool) -> Capabilities {
    let newer = match older {
        true => Capabilities::default(),
        false => Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK,
    };
    newer
        | Capabilities::LONG_PASSWORD
        | Capabilities::LONG_FLAG
        | Capabilities::PROTOCOL_41
        | Capabilities::TRANSACTIONS
        | Capabilities::SECURE_CONNECTION
        | Capabilities::MULTI_STATEMENTS
        | Capabilities::MULTI_RESULTS
        | Capabilities::PS_MULTI_RESULTS
        | Capabilities::PLUGIN_AUTH
}
