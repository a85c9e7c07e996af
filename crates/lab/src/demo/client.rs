//! A MySQL client just large enough for the demo: `mysql_native_password`, text protocol, results that are
//! not looked at.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use mysql_wire::{
    AuthSwitch, Capabilities, Command, ErrPacket, Event, Greeting, Login, PacketHeader, ResponseTracker,
    auth, write_packet,
};

/// A demo whose servers or gateway are silent for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);
const PLUGIN: &[u8] = b"mysql_native_password";

pub(super) struct Client {
    stream: TcpStream,
    tracker: ResponseTracker,
    /// What was read and not handled yet.
    received: Vec<u8>,
    scratch: Box<[u8]>,
    negotiated: Capabilities,
}

impl Client {
    /// Connects and logs in.
    pub(super) fn connect(
        address: SocketAddr,
        user: &str,
        password: &str,
        database: &str,
    ) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self {
            stream,
            tracker: ResponseTracker::new(wanted()),
            received: Vec::new(),
            scratch: vec![0; 16 << 10].into_boxed_slice(),
            negotiated: Capabilities(0),
        };
        let greeting = client.packet()?.1;
        client.refuse_error(&greeting)?;
        let greeting = Greeting::decode(&greeting)?;
        client.negotiated = wanted() & greeting.capabilities;
        client.tracker = ResponseTracker::new(client.negotiated);
        let login = Login {
            capabilities: client.negotiated,
            max_packet_size: 1 << 24,
            charset: 45,
            user: user.into(),
            auth_response: auth::native_password(&greeting.nonce, password.as_bytes()),
            database: Some(database.into()),
            auth_plugin: Some(PLUGIN.into()),
            attributes: None,
            zstd_level: None,
        };
        let mut payload = Vec::new();
        login.encode(&mut payload);
        client.send(1, &payload)?;
        client.finish_login(password)?;
        Ok(client)
    }

    /// Runs one statement and reads its whole response.
    pub(super) fn query(&mut self, statement: &str) -> anyhow::Result<()> {
        let mut payload = vec![Command::QUERY.0];
        payload.extend(statement.as_bytes());
        self.tracker.begin(Command::QUERY);
        self.send(0, &payload)?;
        loop {
            self.read_more()?;
            let progress = self.tracker.advance(&self.received)?;
            match progress.event {
                Event::More => drop(self.received.drain(..progress.consumed)),
                Event::Done(outcome) if outcome.error.is_none() => {
                    self.received.drain(..progress.consumed);
                    return Ok(());
                }
                Event::Done(_) => bail!("{statement}: {}", self.error_text()),
                Event::LocalInfile | Event::Stream | Event::State => {
                    bail!("{statement}: an answer nobody asked for")
                }
            }
        }
    }

    fn finish_login(&mut self, password: &str) -> anyhow::Result<()> {
        loop {
            let (sequence, payload) = self.packet()?;
            self.refuse_error(&payload)?;
            if payload.first() != Some(&AuthSwitch::HEADER) {
                return Ok(());
            }
            let switch = AuthSwitch::decode(&payload)?;
            let plugin = String::from_utf8_lossy(&switch.plugin);
            ensure!(
                switch.plugin == PLUGIN,
                "the account uses {plugin}, which the demo's client does not know"
            );
            let nonce = switch
                .nonce()
                .context("an authentication switch without a nonce")?;
            self.send(
                sequence.wrapping_add(1),
                &auth::native_password(&nonce, password.as_bytes()),
            )?;
        }
    }

    fn packet(&mut self) -> anyhow::Result<(u8, Vec<u8>)> {
        loop {
            if let Some(header) = PacketHeader::parse(&self.received) {
                let end = PacketHeader::LEN + header.payload_len;
                if let Some(payload) = self.received.get(PacketHeader::LEN..end) {
                    let payload = payload.to_vec();
                    self.received.drain(..end);
                    return Ok((header.sequence, payload));
                }
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> anyhow::Result<()> {
        let read = self.stream.read(&mut self.scratch)?;
        ensure!(read > 0, "the connection was closed");
        self.received.extend(&self.scratch[..read]);
        Ok(())
    }

    fn send(&mut self, mut sequence: u8, payload: &[u8]) -> anyhow::Result<()> {
        let mut packet = Vec::new();
        write_packet(&mut packet, &mut sequence, payload);
        Ok(self.stream.write_all(&packet)?)
    }

    fn refuse_error(&self, payload: &[u8]) -> anyhow::Result<()> {
        if payload.first() != Some(&ErrPacket::HEADER) {
            return Ok(());
        }
        let error = ErrPacket::decode(payload, self.negotiated)?;
        bail!(
            "error {}: {}",
            error.code,
            String::from_utf8_lossy(&error.message)
        )
    }

    /// The error at the beginning of what was received; only the code is known of one further back.
    fn error_text(&self) -> String {
        let payload = self.received.get(PacketHeader::LEN..).unwrap_or_default();
        match self.refuse_error(payload) {
            Err(error) => error.to_string(),
            Ok(()) => "an error after a part of the result".to_owned(),
        }
    }
}

fn wanted() -> Capabilities {
    Capabilities::LONG_FLAG
        | Capabilities::CONNECT_WITH_DB
        | Capabilities::PROTOCOL_41
        | Capabilities::TRANSACTIONS
        | Capabilities::SECURE_CONNECTION
        | Capabilities::MULTI_RESULTS
        | Capabilities::PLUGIN_AUTH
        | Capabilities::DEPRECATE_EOF
}
