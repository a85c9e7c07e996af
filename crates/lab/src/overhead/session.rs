//! One client session of the bench: bytes in, bytes out. The rig owns its socket.

use anyhow::{bail, ensure};
use mysql_wire::{AuthSwitch, Capabilities, ErrPacket, Greeting, Login, PacketHeader, write_packet};

use super::workload::Workload;

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
            negotiated: capabilities(),
            received: Vec::new(),
            answer_len: 0,
        }
    }

    /// The bytes of the next query, which the caller sends at once. Only for an idle session.
    pub(super) fn next_query(&mut self) -> &[u8] {
        debug_assert!(matches!(self.phase, Phase::Counting(0)));
        self.phase = Phase::Counting(self.answer_len);
        &self.workload.query
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
            Phase::Preparing => self.prove(self.workload.prepare_answer(self.negotiated)),
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
            return Ok(Input::Send(self.workload.query.to_vec()));
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
                self.negotiated = capabilities() & Greeting::decode(payload)?.capabilities;
                self.phase = Phase::Login;
                Ok(Input::Send(login(self.negotiated)))
            }
            (_, Some(0)) => Ok(Input::Send(self.first_command())),
            (_, Some(0xfe)) => {
                let plugin = AuthSwitch::decode(payload)?.plugin;
                ensure!(
                    plugin == b"mysql_native_password",
                    "asked for plugin {}",
                    String::from_utf8_lossy(&plugin)
                );
                Ok(Input::Send(packet(header.sequence.wrapping_add(1), &[0; 20])))
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
                self.workload.query.to_vec()
            }
        }
    }
}

fn login(negotiated: Capabilities) -> Vec<u8> {
    let login = Login {
        capabilities: negotiated,
        max_packet_size: 1 << 24,
        charset: 45,
        user: b"bench".to_vec(),
        auth_response: vec![0; 20],
        database: None,
        auth_plugin: Some(b"mysql_native_password".to_vec()),
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

fn capabilities() -> Capabilities {
    Capabilities::LONG_PASSWORD
        | Capabilities::LONG_FLAG
        | Capabilities::PROTOCOL_41
        | Capabilities::TRANSACTIONS
        | Capabilities::SECURE_CONNECTION
        | Capabilities::MULTI_STATEMENTS
        | Capabilities::MULTI_RESULTS
        | Capabilities::PS_MULTI_RESULTS
        | Capabilities::PLUGIN_AUTH
        | Capabilities::DEPRECATE_EOF
}
