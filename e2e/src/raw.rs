//! A client that sends what it is told, in order or not.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mysql_wire::{
    AuthSwitch, Capabilities, Command, Login, OkPacket, PacketHeader, SslRequest, write_packet,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::PATIENCE;

/// An account without a password and with no privileges: what it sends at random harms nobody.
pub const GUEST: &str = "guest";
pub const CREATE_GUEST: &str = "CREATE USER guest@'%'; CREATE USER guest@localhost";

pub struct Raw {
    pub stream: TcpStream,
}

impl Raw {
    pub async fn connect(port: u16) -> io::Result<Self> {
        Self::connect_from(Ipv4Addr::LOCALHOST, port).await
    }

    /// From one of the addresses of loopback.
    pub async fn connect_from(source: Ipv4Addr, port: u16) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if source != Ipv4Addr::LOCALHOST {
            socket.bind(SocketAddr::from((source, 0)))?;
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = within(socket.connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Reads one packet: its sequence number and payload.
    pub async fn packet(&mut self) -> io::Result<(u8, Vec<u8>)> {
        within(async {
            let mut head = [0; PacketHeader::LEN];
            self.stream.read_exact(&mut head).await?;
            let header = PacketHeader::parse(&head).unwrap();
            let mut payload = vec![0; header.payload_len];
            self.stream.read_exact(&mut payload).await?;
            Ok((header.sequence, payload))
        })
        .await
    }

    pub async fn send(&mut self, sequence: u8, payload: &[u8]) -> io::Result<()> {
        self.send_bytes(&packet(sequence, payload)).await
    }

    /// Sends bytes as they are.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        within(self.stream.write_all(bytes)).await
    }

    /// Reads the greeting and sends a login; what comes next is the server's question for a password.
    pub async fn begin_login(&mut self) -> io::Result<()> {
        self.packet().await?;
        self.send(1, &login()).await
    }

    /// Connects and logs in as [`GUEST`].
    pub async fn log_in(port: u16) -> io::Result<Self> {
        Self::log_in_with(port, CAPABILITIES).await
    }

    pub async fn log_in_with(port: u16, capabilities: Capabilities) -> io::Result<Self> {
        let mut raw = Self::connect(port).await?;
        raw.packet().await?;
        raw.send(1, &login_of(GUEST, capabilities)).await?;
        loop {
            let (sequence, payload) = raw.packet().await?;
            match payload.first() {
                Some(&AuthSwitch::HEADER) => raw.send(sequence.wrapping_add(1), b"").await?,
                Some(&OkPacket::HEADER) => return Ok(raw),
                _ => return Err(io::Error::other(String::from_utf8_lossy(&payload).into_owned())),
            }
        }
    }

    pub async fn query(&mut self, statement: &str) -> io::Result<()> {
        self.send(0, &query(statement)).await
    }

    /// Reads until the other side closes, and says how many bytes came.
    ///
    /// # Panics
    /// When it does not close; with `story`, what the client did before.
    pub async fn read_to_end(&mut self, story: &str) -> usize {
        let mut bytes = 0;
        while let Some(piece) = self.piece(story).await {
            bytes += piece.len();
        }
        bytes
    }

    /// Reads until the other side closes, and returns what came.
    ///
    /// # Panics
    /// When it does not close.
    pub async fn take_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece("a response").await {
            bytes.extend(piece);
        }
        bytes
    }

    async fn piece(&mut self, story: &str) -> Option<Vec<u8>> {
        let mut piece = Vec::with_capacity(16 << 10);
        match timeout(PATIENCE, self.stream.read_buf(&mut piece)).await {
            Ok(Ok(0) | Err(_)) => None,
            Ok(Ok(_)) => Some(piece),
            Err(_) => panic!("the gateway keeps a connection that should have ended: {story}"),
        }
    }

    /// Closes without a goodbye of any kind.
    pub fn reset(self) {
        // Fails where the other side was quicker.
        let _ = self.stream.set_zero_linger();
    }
}

pub fn packet(mut sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + PacketHeader::LEN);
    write_packet(&mut bytes, &mut sequence, payload);
    bytes
}

pub fn query(statement: &str) -> Vec<u8> {
    [&[Command::QUERY.0], statement.as_bytes()].concat()
}

/// What [`GUEST`] can.
pub const CAPABILITIES: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::DEPRECATE_EOF);

const MAX_PACKET_SIZE: u32 = 1 << 24;
const UTF8MB4: u8 = 45;

/// The login of [`GUEST`].
pub fn login() -> Vec<u8> {
    login_of(GUEST, CAPABILITIES)
}

pub fn login_of(user: &str, capabilities: Capabilities) -> Vec<u8> {
    let mut payload = Vec::new();
    Login {
        capabilities,
        max_packet_size: MAX_PACKET_SIZE,
        charset: UTF8MB4,
        user: user.into(),
        auth_response: Vec::new(),
        database: None,
        auth_plugin: Some(b"mysql_native_password".to_vec()),
        attributes: None,
        zstd_level: None,
    }
    .encode(&mut payload);
    payload
}

pub fn ssl_request() -> Vec<u8> {
    let mut payload = Vec::new();
    SslRequest {
        capabilities: CAPABILITIES.with(Capabilities::SSL),
        max_packet_size: MAX_PACKET_SIZE,
        charset: UTF8MB4,
    }
    .encode(&mut payload);
    payload
}

async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let too_late = |_| io::Error::from(io::ErrorKind::TimedOut);
    timeout(PATIENCE + Duration::from_secs(5), step)
        .await
        .map_err(too_late)?
}
