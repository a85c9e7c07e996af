//! A client that shows every packet: connect, log in, send bytes, read packets.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use mysql_wire::{Capabilities, ChangeUser, Greeting, Login, PacketHeader, write_packet};

use crate::authentication;

/// Longest wait for a byte. Nothing that a script does takes a server as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes that one read asks for.
const READ_MAX: usize = 1 << 18;

/// Who logs in, and how.
#[derive(Clone, Debug)]
pub struct Identity {
    pub user: &'static str,
    pub password: &'static str,
    pub database: Option<&'static str>,
    /// Collation id.
    pub charset: u8,
    /// What the client can do, as far as the server can, too.
    pub capabilities: Capabilities,
}

/// A packet as it came: no longer than 16 MiB, with its sequence number.
#[derive(Clone, PartialEq, Eq)]
pub struct Physical {
    pub sequence: u8,
    pub payload: Vec<u8>,
}

pub struct Client {
    wire: BufReader<TcpStream>,
    pub greeting: Greeting,
    /// The last one that the server sent.
    nonce: [u8; 20],
    /// What both sides can.
    pub capabilities: Capabilities,
}

impl Client {
    /// Connects and logs in. The last packet of the login, OK or ERR, comes along.
    ///
    /// # Errors
    /// The connection failed or was closed before that packet.
    pub fn connect(address: &str, identity: &Identity) -> io::Result<(Self, Physical)> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut wire = BufReader::with_capacity(READ_MAX, stream);
        let first = packet(&mut wire)?;
        let greeting = Greeting::decode(&first.payload).map_err(io::Error::other)?;
        let capabilities = identity.capabilities & greeting.capabilities;
        let mut client = Self {
            wire,
            nonce: greeting.nonce,
            greeting,
            capabilities,
        };
        let verdict = client.log_in(identity)?;
        Ok((client, verdict))
    }

    fn log_in(&mut self, identity: &Identity) -> io::Result<Physical> {
        let &Identity {
            user,
            password,
            database,
            charset,
            ..
        } = identity;
        let plugin = self.greeting.auth_plugin.clone();
        let login = Login {
            capabilities: self.capabilities,
            max_packet_size: 1 << 30,
            charset,
            user: user.into(),
            auth_response: authentication::scramble(&plugin, &self.nonce, password),
            database: database.map(Into::into),
            auth_plugin: Some(plugin),
            attributes: Some(b"\x04_app\x0cdifferential".to_vec()),
            zstd_level: None,
        };
        let mut payload = Vec::new();
        login.encode(&mut payload);
        self.send_payload(1, &payload)?;
        self.authenticate(password)
    }

    /// COM_CHANGE_USER with the answer to the last nonce, as clients send it.
    pub fn change_user_payload(&self, user: &str, password: &str, database: &str) -> Vec<u8> {
        let plugin = self.greeting.auth_plugin.clone();
        let request = ChangeUser {
            user: user.into(),
            auth_response: authentication::scramble(&plugin, &self.nonce, password),
            database: database.into(),
            charset: Some(45),
            auth_plugin: Some(plugin),
            attributes: Some(b"\x04_app\x06second".to_vec()),
        };
        let mut payload = Vec::new();
        request.encode(&mut payload, self.capabilities);
        payload
    }

    /// Answers what the server asks until it has said OK or ERR, which is returned.
    pub fn authenticate(&mut self, password: &str) -> io::Result<Physical> {
        loop {
            let packet = self.packet()?;
            if matches!(packet.payload.first(), Some(0x00 | 0xff) | None) {
                return Ok(packet);
            }
            if let Some(answer) = authentication::answer(&packet.payload, &mut self.nonce, password) {
                self.send_payload(packet.sequence.wrapping_add(1), &answer)?;
            }
        }
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.get_mut().write_all(bytes)
    }

    pub fn send_payload(&mut self, mut sequence: u8, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + PacketHeader::LEN);
        write_packet(&mut bytes, &mut sequence, payload);
        self.send(&bytes)
    }

    /// The next packet. `UnexpectedEof` when the connection was closed or reset, `TimedOut` when nothing
    /// comes.
    pub fn packet(&mut self) -> io::Result<Physical> {
        packet(&mut self.wire)
    }

    /// Runs a statement that must succeed, and returns the rows' values, NULL as empty.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn ask(&mut self, statement: &str) -> Vec<Vec<u8>> {
        self.send_payload(0, &[b"\x03", statement.as_bytes()].concat())
            .unwrap();
        let first = self.packet().unwrap().payload;
        assert_ne!(first[0], 0xff, "{statement}: {}", String::from_utf8_lossy(&first));
        let mut rows = Vec::new();
        if first[0] == 0 {
            return rows;
        }
        let mut ends = 0;
        while ends < 2 {
            let packet = self.packet().unwrap().payload;
            assert_ne!(
                packet[0],
                0xff,
                "{statement}: {}",
                String::from_utf8_lossy(&packet)
            );
            match packet[0] {
                0xfe if packet.len() < 9 => ends += 1,
                _ if ends == 1 => rows.push(packet),
                _ => {}
            }
        }
        rows
    }

    /// Runs a statement whose result says nothing; it may fail.
    pub fn attempt(&mut self, statement: &str) {
        self.send_payload(0, &[b"\x03", statement.as_bytes()].concat())
            .unwrap();
        self.packet().unwrap();
    }
}

/// Reads one packet; a connection that was reset has come to its end.
fn packet(wire: &mut BufReader<TcpStream>) -> io::Result<Physical> {
    let mut fill = |bytes: &mut [u8]| {
        wire.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => io::Error::from(ErrorKind::TimedOut),
            _ => ErrorKind::UnexpectedEof.into(),
        })
    };
    let mut header = [0; PacketHeader::LEN];
    fill(&mut header)?;
    let header = PacketHeader::parse(&header).expect("four bytes");
    let mut payload = vec![0; header.payload_len];
    fill(&mut payload)?;
    Ok(Physical {
        sequence: header.sequence,
        payload,
    })
}
