//! The scripted client.

use std::{io, net::SocketAddr, sync::Arc};

use mysql_wire::{
    AuthNextFactor, AuthSwitch, Capabilities, ChangeUser, Command, ErrPacket, Greeting, Login, SslRequest,
    write_packet,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{
    Compression, Packet, Reply, Script,
    link::{Link, within},
    plugin::Answering,
    tape::{Cuts, Tape},
};

/// The packets that every client sends when it is asked for a local file, before the empty one.
pub const INFILE_CONTENT: [&[u8]; 3] = [b"1\tone\n2\ttwo\n", b"3\tthree\n", b"4\tfour\n"];

/// Who logs in, and how.
#[derive(Clone)]
pub struct Identity {
    pub user: Vec<u8>,
    pub password: Vec<u8>,
    /// Asked for; the greeting decides what is negotiated. CONNECT_WITH_DB, CONNECT_ATTRS and SSL follow the
    /// fields below.
    pub capabilities: Capabilities,
    /// The plugin that the login packet names and its response is for.
    pub plugin: &'static str,
    /// Database to use from the start.
    pub database: Option<Vec<u8>>,
    /// Connection attributes, encoded.
    pub attributes: Option<Vec<u8>>,
    /// TLS, which is then required.
    pub tls: Option<Arc<ClientConfig>>,
    /// It has the RSA key of the scripted servers beforehand and does not ask for one.
    pub has_server_key: bool,
    /// Records the session's packets, of responses only those read with [`Client::receive`] or in a login.
    pub tape: Option<Tape>,
    /// Cuts what it writes.
    pub cuts: Option<Cuts>,
}

impl Default for Identity {
    /// User `app`, password `secret`, what every client can, `mysql_native_password`, no TLS.
    fn default() -> Self {
        use Capabilities as C;
        Self {
            user: b"app".to_vec(),
            password: b"secret".to_vec(),
            capabilities: C::LONG_PASSWORD
                | C::LONG_FLAG
                | C::PROTOCOL_41
                | C::TRANSACTIONS
                | C::SECURE_CONNECTION
                | C::MULTI_STATEMENTS
                | C::MULTI_RESULTS
                | C::PS_MULTI_RESULTS
                | C::LOCAL_FILES
                | C::PLUGIN_AUTH,
            plugin: "mysql_native_password",
            database: None,
            attributes: None,
            tls: None,
            has_server_key: false,
            tape: None,
            cuts: None,
        }
    }
}

/// What may go wrong for a [`Client`].
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The peer sent an error packet: in place of the greeting or during the login.
    #[error("refused: error {} {}", .0.code, String::from_utf8_lossy(&.0.message))]
    Refused(ErrPacket),
    /// The connection broke or the peer does not speak the protocol.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The response is not what the scripted server sends.
    #[error("byte {at} of the response differs: expected {expected:02x?}, got {got:02x?}")]
    Differs {
        /// The first byte that does.
        at: usize,
        /// Up to 32 bytes from there.
        expected: Vec<u8>,
        /// Up to 32 bytes from there.
        got: Vec<u8>,
    },
}

pub struct Client {
    pub(super) link: Link,
    pub(super) script: Script,
    identity: Identity,
    greeting: Greeting,
    negotiated: Capabilities,
}

impl Client {
    pub async fn connect(address: SocketAddr, identity: &Identity) -> Result<Self, ClientError> {
        let stream = within(TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        let mut link = Link::new(stream, 0, identity.tape.clone(), identity.cuts.clone());
        let payload = link.read_payload(false).await?;
        if payload.first() == Some(&ErrPacket::HEADER) {
            return Err(ClientError::Refused(decode(ErrPacket::decode(
                &payload,
                Capabilities(0),
            ))?));
        }
        let greeting = decode(Greeting::decode(&payload))?;
        let negotiated = wanted(identity) & greeting.capabilities;
        if let Some(tls) = &identity.tls {
            link = encrypt(link, negotiated, tls).await?;
        }
        let mut client = Self {
            link,
            script: Script::new(negotiated),
            identity: identity.clone(),
            greeting,
            negotiated,
        };
        client.log_in().await?;
        if let Some(algorithm) = compression_of(negotiated) {
            client.link.compress(algorithm);
        }
        Ok(client)
    }

    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Capabilities both sides have.
    pub fn negotiated(&self) -> Capabilities {
        self.negotiated
    }

    /// COM_QUERY in [`Script`]'s language, with a query attribute where those are negotiated.
    pub async fn query(&mut self, statement: &str) -> Result<Vec<u8>, ClientError> {
        let mut request = vec![Command::QUERY.0];
        if self.negotiated.contains(Capabilities::QUERY_ATTRIBUTES) {
            request.extend(b"\x01\x01\x00\x01\xfe\x00\x05trace\x03abc");
        }
        request.extend(statement.as_bytes());
        self.exchange(&request).await
    }

    /// Sends a request, its command byte first, reads the whole response, and compares it with what the
    /// scripted server sends. A request for a local file is met with [`INFILE_CONTENT`]. Returns the
    /// response's bytes. For a reply that cuts the connection those bytes must be followed by the end of the
    /// stream.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Vec<u8>, ClientError> {
        let reply = self.script.reply(request);
        self.send(request).await?;
        let first = self.link.sequence;
        match &reply {
            Reply::Cut(bytes) => {
                let got = self.expect(bytes).await?;
                return match self.link.read_packet(false).await {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(got),
                    Err(error) => Err(error.into()),
                    Ok(packet) => Err(differs(0, &[], &packet.payload)),
                };
            }
            Reply::LocalInfile(_, then) => {
                let mut got = self
                    .expect(&Script::bytes_from(&reply, first).unwrap_or_default())
                    .await?;
                let sequence = self.send_infile().await?;
                got.extend(self.expect_payloads(sequence, then).await?);
                Ok(got)
            }
            _ => {
                self.expect(&Script::bytes_from(&reply, first).unwrap_or_default())
                    .await
            }
        }
    }

    /// COM_CHANGE_USER and its login.
    pub async fn change_user(&mut self, user: &[u8], password: &[u8]) -> Result<(), ClientError> {
        let change = ChangeUser {
            user: user.to_vec(),
            auth_response: self.early_response(self.greeting.nonce),
            database: Vec::new(),
            charset: Some(45),
            auth_plugin: Some(self.identity.plugin.into()),
            attributes: self.identity.attributes.clone(),
        };
        let mut request = Vec::new();
        change.encode(&mut request, self.negotiated);
        self.identity.password = password.to_vec();
        self.send(&request).await?;
        self.script = Script::new(self.negotiated);
        self.finish_login(self.identity.plugin.into(), Vec::new()).await
    }

    /// Sends a request and reads nothing.
    pub async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.link.number_from(0);
        self.link.write_payload(request).await
    }

    /// Sends a payload that goes on with what the server has said, such as a piece of a file.
    pub async fn send_behind(&mut self, payload: &[u8]) -> io::Result<()> {
        self.link.write_payload(payload).await
    }

    /// Sends bytes as they are, framed only if the session is compressed.
    pub async fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.link.write(bytes).await
    }

    pub async fn receive(&mut self) -> io::Result<Packet> {
        self.link.read_packet(false).await
    }

    /// Reads a packet that answers nothing: the last words of a server between commands.
    pub async fn receive_unasked(&mut self) -> io::Result<Packet> {
        self.link.read_packet(true).await
    }

    /// Reads as many bytes as `expected` has and compares them.
    pub async fn expect(&mut self, expected: &[u8]) -> Result<Vec<u8>, ClientError> {
        let mut got = vec![0; expected.len()];
        let mut compared = 0;
        while compared < expected.len() {
            let end = compared + self.link.read_some(&mut got[compared..]).await?;
            if got[compared..end] != expected[compared..end] {
                return Err(differs(compared, &expected[compared..], &got[compared..end]));
            }
            compared = end;
        }
        Ok(got)
    }

    async fn expect_payloads(
        &mut self,
        mut sequence: u8,
        payloads: &[Vec<u8>],
    ) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        payloads
            .iter()
            .for_each(|payload| write_packet(&mut bytes, &mut sequence, payload));
        self.expect(&bytes).await
    }

    /// Returns the number of the response's first packet.
    async fn send_infile(&mut self) -> io::Result<u8> {
        self.link.sequence = 2;
        for content in INFILE_CONTENT.into_iter().chain([&b""[..]]) {
            self.link.write_payload(content).await?;
        }
        Ok(self.link.sequence)
    }

    async fn log_in(&mut self) -> Result<(), ClientError> {
        let plugin = self.identity.plugin.as_bytes().to_vec();
        let nonce = self.greeting.nonce.to_vec();
        let auth_response = self.early_response(self.greeting.nonce);
        let identity = &self.identity;
        let login = Login {
            capabilities: self.negotiated,
            max_packet_size: 1 << 24,
            charset: 45,
            user: identity.user.clone(),
            auth_response,
            database: identity.database.clone(),
            auth_plugin: Some(plugin.clone()),
            attributes: identity.attributes.clone(),
            zstd_level: self
                .negotiated
                .contains(Capabilities::ZSTD_COMPRESSION)
                .then_some(3),
        };
        let mut payload = Vec::new();
        login.encode(&mut payload);
        self.link.write_payload(&payload).await?;
        self.finish_login(plugin, nonce).await
    }

    async fn finish_login(&mut self, mut plugin: Vec<u8>, mut nonce: Vec<u8>) -> Result<(), ClientError> {
        loop {
            let payload = self.link.read_payload(false).await?;
            match payload.first() {
                Some(0) => return Ok(()),
                Some(&ErrPacket::HEADER) => {
                    return Err(ClientError::Refused(decode(ErrPacket::decode(
                        &payload,
                        self.negotiated,
                    ))?));
                }
                Some(&AuthSwitch::HEADER) => {
                    let switch = decode(AuthSwitch::decode(&payload))?;
                    (plugin, nonce) = (switch.plugin, switch.data);
                    self.begin_plugin(&plugin, &nonce).await?;
                }
                Some(&AuthNextFactor::HEADER) if self.negotiated.contains(Capabilities::MULTI_FACTOR) => {
                    let factor = decode(AuthNextFactor::decode(&payload))?;
                    (plugin, nonce) = (factor.plugin, factor.data);
                    self.begin_plugin(&plugin, &nonce).await?;
                }
                _ => {
                    if let Some(answer) = self.answering(&plugin, &nonce).next(&payload)? {
                        self.link.write_payload(&answer).await?;
                    }
                }
            }
        }
    }

    /// The response to the greeting's nonce. One for a plugin that needs a challenge of its own is left
    /// empty: the server asks for a switch.
    fn early_response(&self, nonce: [u8; 20]) -> Vec<u8> {
        match self.identity.plugin {
            "mysql_native_password" | "caching_sha2_password" | "sha256_password" => self
                .answering(self.identity.plugin.as_bytes(), &nonce)
                .first()
                .unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    async fn begin_plugin(&mut self, plugin: &[u8], data: &[u8]) -> Result<(), ClientError> {
        let name = String::from_utf8_lossy(plugin);
        let answer = self.answering(plugin, data).first();
        let answer = answer.ok_or_else(|| io::Error::other(format!("unknown plugin {name}")))?;
        Ok(self.link.write_payload(&answer).await?)
    }

    fn answering(&self, plugin: &[u8], nonce: &[u8]) -> Answering<'_> {
        let Identity {
            password,
            tls,
            has_server_key,
            ..
        } = &self.identity;
        Answering {
            plugin: plugin.to_vec(),
            nonce: nonce.to_vec(),
            password,
            encrypted: tls.is_some(),
            has_server_key: *has_server_key,
        }
    }
}

/// What these capabilities mean for the bytes after the login. MySQL's client prefers zlib where both are
/// negotiated.
pub(super) fn compression_of(negotiated: Capabilities) -> Option<Compression> {
    if negotiated.contains(Capabilities::COMPRESS) {
        Some(Compression::Zlib)
    } else if negotiated.contains(Capabilities::ZSTD_COMPRESSION) {
        Some(Compression::Zstd)
    } else {
        None
    }
}

fn wanted(identity: &Identity) -> Capabilities {
    use Capabilities as C;
    let mut wanted = identity
        .capabilities
        .without(C::CONNECT_WITH_DB | C::CONNECT_ATTRS | C::SSL);
    let follow = [
        (identity.database.is_some(), C::CONNECT_WITH_DB),
        (identity.attributes.is_some(), C::CONNECT_ATTRS),
        (identity.tls.is_some(), C::SSL),
    ];
    for (_, capability) in follow.into_iter().filter(|(wanted, _)| *wanted) {
        wanted = wanted | capability;
    }
    wanted
}

async fn encrypt(mut link: Link, negotiated: Capabilities, tls: &Arc<ClientConfig>) -> io::Result<Link> {
    if !negotiated.contains(Capabilities::SSL) {
        return Err(io::Error::other("the server does not offer TLS"));
    }
    let mut payload = Vec::new();
    SslRequest {
        capabilities: negotiated,
        max_packet_size: 1 << 24,
        charset: 45,
    }
    .encode(&mut payload);
    link.write_payload(&payload).await?;
    let (sequence, tape, cuts) = (link.sequence, link.tape.take(), link.cuts.take());
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::clone(tls));
    let stream = within(connector.connect(name, link.into_stream())).await?;
    Ok(Link::new(stream, sequence, tape, cuts))
}

fn decode<T>(decoded: Result<T, mysql_wire::WireError>) -> io::Result<T> {
    decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn differs(offset: usize, expected: &[u8], got: &[u8]) -> ClientError {
    let at = expected
        .iter()
        .zip(got)
        .take_while(|(one, other)| one == other)
        .count();
    let part = |bytes: &[u8]| bytes[at.min(bytes.len())..].iter().copied().take(32).collect();
    ClientError::Differs {
        at: offset + at,
        expected: part(expected),
        got: part(got),
    }
}
