//! The client's side of a login, for those who have a user and a password, or what is as good as one: checks
//! and pools.
//!
//! Plugins: `mysql_native_password`, `caching_sha2_password`, `sha256_password`, `mysql_clear_password`, and
//! MariaDB's `client_ed25519` and `parsec`. A password goes over the wire readable only inside TLS or a Unix
//! socket; the SHA-256 plugins encrypt it with the server's RSA key elsewhere (and `sha256_password` in a
//! Unix socket, too). Not here: Kerberos, LDAP, a second factor.
//!
//! A login that cannot go on is ended by an answer that the server refuses: one that breaks off is held
//! against this host ([`crate::disconnect`](mod@crate::disconnect)).

use std::io;
use std::time::Duration;

use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OaepPublicEncryptingKey, PublicEncryptingKey};
use config::TlsMode;
use mysql_wire::compression::Algorithm;
use mysql_wire::{
    AuthMoreData, AuthNextFactor, AuthSwitch, Capabilities, Command, ErrPacket, Greeting, Login, OkPacket,
    SslRequest, WireError, auth,
};
use net::{Stream, TlsConnector, TlsRefusal, Toward};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;

use tokio::time::timeout;

use crate::disconnect::{Nobody, disconnect};
use crate::packets::{PacketError, Packets};

/// Packets that a server may send before its verdict.
const MAX_ROUNDS: usize = 8;

/// How long a server may take to refuse a login that is given up.
const PARTING: Duration = Duration::from_secs(1);

/// Largest packet that we say we accept, in bytes.
const MAX_PACKET_SIZE: u32 = 1 << 24;

/// `utf8mb4_general_ci`, known to every server.
const UTF8MB4: u8 = 45;

/// What is asked for, where the server has it.
const WANTED: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0
        | Capabilities::LONG_PASSWORD.0
        | Capabilities::LONG_FLAG.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::PLUGIN_AUTH_LENENC.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::DEPRECATE_EOF.0,
);

/// What a login may have only where it is decided here.
const OWN_WAYS: Capabilities = Capabilities(
    Capabilities::SSL.0
        | Capabilities::COMPRESS.0
        | Capabilities::ZSTD_COMPRESSION.0
        | Capabilities::CONNECT_WITH_DB.0
        | Capabilities::CONNECT_ATTRS.0
        | Capabilities::MULTI_FACTOR.0
        | Capabilities::SSL_VERIFY_SERVER_CERT.0
        // Never negotiated: its responses cannot be tracked.
        | Capabilities::MARIADB_COM_MULTI.0,
);

/// Who logs in.
#[derive(Clone, Copy)]
pub struct Account<'a> {
    pub user: &'a [u8],
    pub secret: Secret<'a>,
}

impl<'a> Account<'a> {
    /// An account as it is configured.
    #[must_use]
    pub fn of(user: &'a str, password: Option<&'a config::Secret>) -> Self {
        Self {
            user: user.as_bytes(),
            secret: Secret::Password(password.map_or("", |password| password.reveal()).as_bytes()),
        }
    }
}

/// What an account proves itself with.
#[derive(Clone, Copy)]
pub enum Secret<'a> {
    /// The password; empty for none.
    Password(&'a [u8]),
    /// `SHA1(password)`: what a client's login with `mysql_native_password` reveals to who knows the
    /// account's hash. Good for that plugin only.
    NativeStage1(&'a [u8; 20]),
    /// A TiDB server has given it to a session that is to go on on another one, with
    /// `SHOW SESSION_STATES`.
    SessionToken(&'a [u8]),
}

/// What a connection is to be like, beyond who uses it.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// What is asked for on top of what every login asks for, where the server has it. Not for TLS,
    /// compression and a database, which go their own ways.
    pub capabilities: Capabilities,
    /// Low byte of the collation id.
    pub collation: u8,
    /// Connection attributes as encoded key/value list, without the list's own length.
    pub attributes: Option<&'a [u8]>,
    /// Asked for where the server has it.
    pub compression: Option<Algorithm>,
}

impl Terms<'_> {
    /// Nothing but what every login asks for.
    pub const PLAIN: Terms<'static> = Terms {
        capabilities: Capabilities(0),
        collation: UTF8MB4,
        attributes: None,
        compression: None,
    };
}

/// TLS for a login.
#[derive(Clone, Copy)]
pub struct Tls<'a> {
    pub connector: &'a TlsConnector,
    /// The name that the server's certificate must bear.
    pub server_name: &'a str,
    /// Give up on a server that has no TLS, and do not log in over a plain link.
    pub required: bool,
}

impl<'a> Tls<'a> {
    /// TLS as the cluster of that connector has it; `None` where the cluster has none.
    pub(crate) fn of(
        connector: Option<&'a TlsConnector>,
        server_name: &'a str,
        config: &config::Cluster,
    ) -> Option<Self> {
        connector.map(|connector| Self {
            connector,
            server_name,
            required: config.tls.mode == TlsMode::Required,
        })
    }
}

/// A connection that is ready for commands.
#[derive(Debug)]
pub struct LoggedIn {
    /// The connection, inside TLS and compression if they were agreed on. Nothing is left to read.
    pub stream: Stream,
    /// What both sides agreed on.
    pub capabilities: Capabilities,
    /// The server's verdict.
    pub ok: OkPacket,
}

/// Why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server's verdict.
    #[error("{} (error {})", String::from_utf8_lossy(&.0.message), .0.code)]
    Refused(ErrPacket),
    /// TLS is required and the server does not offer it.
    #[error("server offers no TLS, and tls.mode is required")]
    NoTls,
    /// TLS could not be begun, or the connection failed.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection before its verdict.
    #[error("server closed the connection during the login")]
    Closed,
    /// A plugin that this client does not have.
    #[error("account uses authentication plugin {0}, which is not supported here")]
    UnknownPlugin(String),
    /// The plugin wants the password as it is, over a link that anybody can read.
    #[error("authentication plugin {0} sends what proves the account readable, and so needs TLS")]
    NeedsTls(&'static str),
    /// Only the hash is known, and the plugin needs the password.
    #[error(
        "account uses authentication plugin {0}, which needs the password itself, and only its native hash is known"
    )]
    NeedsPassword(&'static str),
    /// The server sent a public key that cannot be used for this password.
    #[error("server's RSA key cannot be used: {0}")]
    Key(&'static str),
    /// The server did not follow the protocol.
    #[error("server broke the protocol: {0}")]
    Protocol(String),
}

/// Logs in over `stream`, from which `greeting` has been read and nothing else. With `tls`, TLS is begun
/// where the server offers it. Has no time limit of its own.
///
/// # Errors
/// See [`LoginError`]. The connection is closed.
pub async fn log_in(
    stream: Stream,
    greeting: &Greeting,
    account: Account<'_>,
    terms: Terms<'_>,
    tls: Option<Tls<'_>>,
) -> Result<LoggedIn, LoginError> {
    let compression = terms
        .compression
        .filter(|&algorithm| greeting.capabilities.contains(flag_of(algorithm)));
    let mut capabilities = (WANTED | terms.capabilities).without(OWN_WAYS) & greeting.capabilities;
    if terms.attributes.is_some() {
        capabilities.insert(Capabilities::CONNECT_ATTRS & greeting.capabilities);
    }
    capabilities.insert(compression.map_or(Capabilities(0), flag_of));
    let (mut stream, sequence) = match tls {
        Some(tls) if greeting.capabilities.contains(Capabilities::SSL) => {
            capabilities.insert(Capabilities::SSL);
            let request = SslRequest {
                capabilities,
                max_packet_size: MAX_PACKET_SIZE,
                charset: terms.collation,
            };
            (begin_tls(stream, &request, greeting, tls).await?, 2)
        }
        Some(tls) if tls.required => return Err(LoginError::NoTls),
        _ => (stream, 1),
    };
    let mut exchange = Exchange::new(greeting, account.secret, &stream);
    if exchange.plugin == Plugin::SessionToken && exchange.link == Link::Open {
        let nobody = Nobody::default();
        let _ = timeout(PARTING, disconnect(&mut stream, greeting, &nobody, None)).await;
        return Err(LoginError::NeedsTls(Plugin::SessionToken.name()));
    }
    let login = Login {
        capabilities,
        max_packet_size: MAX_PACKET_SIZE,
        charset: terms.collation,
        user: account.user.to_vec(),
        auth_response: exchange.first_response().unwrap_or_default(),
        database: None,
        auth_plugin: Some(exchange.plugin.name().as_bytes().to_vec()),
        attributes: terms.attributes.map(<[u8]>::to_vec),
        zstd_level: match compression {
            Some(Algorithm::Zstd { level }) => Some(level),
            _ => None,
        },
    };
    let mut payload = Vec::new();
    login.encode(&mut payload);
    let mut packets = Packets::new(&mut stream, sequence);
    packets.send(&payload).await?;
    let ok = match exchange.finish(&mut packets, capabilities).await {
        Err(error) if error.leaves_server_waiting() => {
            let _ = timeout(PARTING, exchange.give_up(&mut packets)).await;
            return Err(error);
        }
        finished => finished?,
    };
    if let Some(algorithm) = compression {
        stream = net::compressed(stream, algorithm, Toward::Server, &[])?;
    }
    Ok(LoggedIn {
        stream,
        capabilities,
        ok,
    })
}

fn flag_of(algorithm: Algorithm) -> Capabilities {
    match algorithm {
        Algorithm::Zlib => Capabilities::COMPRESS,
        Algorithm::Zstd { .. } => Capabilities::ZSTD_COMPRESSION,
    }
}

/// A server that is not trusted is left in order: it must not block this host for that, which others may use,
/// too.
pub(crate) async fn begin_tls(
    mut stream: Stream,
    request: &SslRequest,
    greeting: &Greeting,
    tls: Tls<'_>,
) -> Result<Stream, LoginError> {
    let mut payload = Vec::new();
    request.encode(&mut payload);
    Packets::new(&mut stream, 1).send(&payload).await?;
    match tls.connector.connect(stream, tls.server_name).await {
        Ok(stream) => Ok(stream),
        Err(TlsRefusal { error, stream }) => {
            if let Some(mut stream) = stream {
                let nobody = Nobody::default();
                let leaving = disconnect(&mut stream, greeting, &nobody, Some(request));
                let _ = timeout(PARTING, leaving).await;
            }
            Err(LoginError::Io(error))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plugin {
    NativePassword,
    CachingSha2,
    Sha256,
    Clear,
    Ed25519,
    Parsec,
    /// No server asks for it: who has a token names it.
    SessionToken,
}

impl Plugin {
    /// Those that a server may ask for.
    const ALL: [Self; 6] = [
        Self::NativePassword,
        Self::CachingSha2,
        Self::Sha256,
        Self::Clear,
        Self::Ed25519,
        Self::Parsec,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::NativePassword => "mysql_native_password",
            Self::CachingSha2 => "caching_sha2_password",
            Self::Sha256 => "sha256_password",
            Self::Clear => "mysql_clear_password",
            Self::Ed25519 => "client_ed25519",
            Self::Parsec => "parsec",
            Self::SessionToken => "tidb_session_token",
        }
    }

    /// MariaDB's own plugins need a longer nonce, which comes with an auth switch.
    fn takes_nonce_of_greeting(self) -> bool {
        !matches!(self, Self::Ed25519 | Self::Parsec)
    }

    fn by_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|plugin| plugin.name().as_bytes() == name)
    }
}

/// Who can read what goes over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Encrypted,
    /// A Unix socket: nobody else can, but `sha256_password`, unlike the others, does not trust it.
    Local,
    /// Anybody on the way.
    Open,
}

/// The exchange between login packet and verdict.
struct Exchange<'a> {
    plugin: Plugin,
    /// As the plugin's first data.
    nonce: Vec<u8>,
    secret: Secret<'a>,
    link: Link,
    asked_for_key: bool,
    /// Who asks at the server, by name, since it may be one that we do not have; and its questions so far.
    asks: Vec<u8>,
    questions: u32,
}

impl<'a> Exchange<'a> {
    fn new(greeting: &Greeting, secret: Secret<'a>, stream: &Stream) -> Self {
        let link = match stream {
            Stream::Unix(_) => Link::Local,
            encrypted if encrypted.is_encrypted() => Link::Encrypted,
            _ => Link::Open,
        };
        let plugin = match secret {
            // An unknown default plugin is no reason to give up: the account may have another one, and the
            // server asks then.
            Secret::Password(_) => Plugin::by_name(&greeting.auth_plugin)
                .filter(|plugin| plugin.takes_nonce_of_greeting())
                .unwrap_or(Plugin::NativePassword),
            Secret::NativeStage1(_) => Plugin::NativePassword,
            Secret::SessionToken(_) => Plugin::SessionToken,
        };
        Self {
            plugin,
            nonce: greeting.nonce.to_vec(),
            secret,
            link,
            asked_for_key: false,
            asks: plugin.name().into(),
            questions: 0,
        }
    }

    async fn finish(
        &mut self,
        packets: &mut Packets<'_>,
        capabilities: Capabilities,
    ) -> Result<OkPacket, LoginError> {
        for _ in 0..MAX_ROUNDS {
            let packet = packets.receive().await?;
            match packet.first() {
                Some(&OkPacket::HEADER) => return Ok(OkPacket::decode(&packet, capabilities)?),
                Some(&ErrPacket::HEADER) => {
                    return Err(LoginError::Refused(ErrPacket::decode(&packet, capabilities)?));
                }
                Some(&AuthSwitch::HEADER) => {
                    let response = self.switch(&AuthSwitch::decode(&packet)?)?;
                    packets.send(&response).await?;
                }
                Some(&AuthMoreData::HEADER) => {
                    self.questions += 1;
                    if let Some(response) = self.more(&AuthMoreData::decode(&packet)?.data)? {
                        packets.send(&response).await?;
                    }
                }
                Some(&AuthNextFactor::HEADER) => {
                    return Err(LoginError::Protocol("it asks for a second factor".to_owned()));
                }
                // Some servers send the salt of parsec bare, others as more data.
                Some(b'P') if self.plugin == Plugin::Parsec => packets.send(&self.parsec(&packet)?).await?,
                Some(header) => {
                    return Err(LoginError::Protocol(format!(
                        "packet {header:#04x} during the login"
                    )));
                }
                None => return Err(LoginError::Protocol("empty packet during the login".to_owned())),
            }
        }
        Err(LoginError::Protocol("no verdict on the login".to_owned()))
    }

    /// Answers what the server will refuse, until it has.
    async fn give_up(&mut self, packets: &mut Packets<'_>) -> Result<(), PacketError> {
        for _ in 0..MAX_ROUNDS {
            packets
                .send(&auth::wrong_answer(&self.asks, self.questions))
                .await?;
            let packet = packets.receive().await?;
            match packet.first() {
                Some(&AuthSwitch::HEADER) => {
                    self.asks = AuthSwitch::decode(&packet)?.plugin;
                    self.questions = 1;
                }
                Some(&ErrPacket::HEADER) | None => return Ok(()),
                // An account for everybody.
                Some(&OkPacket::HEADER) => return packets.send_command(&[Command::QUIT.0]).await,
                Some(_) => self.questions += 1,
            }
        }
        Ok(())
    }

    fn switch(&mut self, switch: &AuthSwitch) -> Result<Vec<u8>, LoginError> {
        self.asks.clone_from(&switch.plugin);
        self.questions = 1;
        let unknown = || LoginError::UnknownPlugin(String::from_utf8_lossy(&switch.plugin).into_owned());
        self.plugin = Plugin::by_name(&switch.plugin).ok_or_else(unknown)?;
        self.asked_for_key = false;
        if !switch.data.is_empty() {
            self.nonce.clone_from(&switch.data);
        }
        self.first_response()
    }

    /// What the plugin says first.
    fn first_response(&mut self) -> Result<Vec<u8>, LoginError> {
        match self.plugin {
            Plugin::NativePassword => self.native(),
            Plugin::CachingSha2 => Ok(auth::caching_sha2_password(self.nonce()?, self.password()?)),
            Plugin::Clear if self.link != Link::Open => self.readable(),
            Plugin::Clear => Err(LoginError::NeedsTls(Plugin::Clear.name())),
            Plugin::Sha256 if self.link == Link::Encrypted || self.password()?.is_empty() => self.readable(),
            Plugin::Ed25519 => Ok(auth::ed25519(self.nonce()?, self.password()?).to_vec()),
            // Asks for the salt.
            Plugin::Parsec => Ok(Vec::new()),
            Plugin::SessionToken => match self.secret {
                Secret::SessionToken(token) => Ok(token.to_vec()),
                _ => Err(LoginError::NeedsPassword(Plugin::SessionToken.name())),
            },
            Plugin::Sha256 => {
                self.asked_for_key = true;
                Ok(vec![1])
            }
        }
    }

    /// The answer to more data of the plugin; `None` when only the verdict is missing.
    fn more(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, LoginError> {
        if std::mem::take(&mut self.asked_for_key) {
            return self.encrypted(data).map(Some);
        }
        match self.plugin {
            Plugin::CachingSha2 if data == AuthMoreData::FAST_AUTH_OK => Ok(None),
            Plugin::CachingSha2 if data == AuthMoreData::FULL_AUTH && self.link != Link::Open => {
                self.readable().map(Some)
            }
            Plugin::CachingSha2 if data == AuthMoreData::FULL_AUTH => {
                self.asked_for_key = true;
                Ok(Some(vec![2]))
            }
            Plugin::Parsec => self.parsec(data).map(Some),
            plugin => Err(LoginError::Protocol(format!(
                "unexpected data for {}",
                plugin.name()
            ))),
        }
    }

    /// The nonce in the length that the plugin wants.
    fn nonce<const LEN: usize>(&self) -> Result<&[u8; LEN], LoginError> {
        let short = || {
            LoginError::Protocol(format!(
                "nonce of {} bytes for {}",
                self.nonce.len(),
                self.plugin.name()
            ))
        };
        self.nonce.first_chunk().ok_or_else(short)
    }

    fn parsec(&self, salt: &[u8]) -> Result<Vec<u8>, LoginError> {
        let salt = auth::ParsecSalt::decode(salt)?;
        let mut nonce = [0; 32];
        let no_bits = |_| LoginError::Io(io::Error::other("the system gives no random bytes"));
        aws_lc_rs::rand::fill(&mut nonce).map_err(no_bits)?;
        Ok(auth::parsec(self.nonce()?, &nonce, &salt, self.password()?).to_vec())
    }

    /// The password and a zero byte.
    fn readable(&self) -> Result<Vec<u8>, LoginError> {
        let mut bytes = self.password()?.to_vec();
        bytes.push(0);
        Ok(bytes)
    }

    fn password(&self) -> Result<&'a [u8], LoginError> {
        match self.secret {
            Secret::Password(password) => Ok(password),
            Secret::NativeStage1(_) | Secret::SessionToken(_) => {
                Err(LoginError::NeedsPassword(self.plugin.name()))
            }
        }
    }

    fn native(&self) -> Result<Vec<u8>, LoginError> {
        match self.secret {
            Secret::Password(password) => Ok(auth::native_password(self.nonce()?, password)),
            Secret::NativeStage1(stage1) => Ok(auth::native_from_stage1(self.nonce()?, stage1).to_vec()),
            Secret::SessionToken(_) => Err(LoginError::NeedsPassword(self.plugin.name())),
        }
    }

    /// The password mixed with the nonce, encrypted for the holder of the key in `pem`.
    fn encrypted(&self, pem: &[u8]) -> Result<Vec<u8>, LoginError> {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(pem)
            .map_err(|_| LoginError::Key("it is not in PEM format"))?;
        let key = PublicEncryptingKey::from_der(&key)
            .map_err(|_| LoginError::Key("it is not an RSA key of 2048 bits or more"))?;
        let key =
            OaepPublicEncryptingKey::new(key).map_err(|_| LoginError::Key("it is not for encryption"))?;
        let mixed = auth::xor_with_nonce(self.nonce()?, self.password()?);
        if mixed.len() > key.max_plaintext_size(&OAEP_SHA1_MGF1SHA1) {
            return Err(LoginError::Key("the password is too long for it"));
        }
        let mut encrypted = vec![0; key.ciphertext_size()];
        let len = key
            .encrypt(&OAEP_SHA1_MGF1SHA1, &mixed, &mut encrypted, None)
            .map_err(|_| LoginError::Key("encryption failed"))?
            .len();
        encrypted.truncate(len);
        Ok(encrypted)
    }
}

impl LoginError {
    /// Whether the server has asked something that has no answer here.
    pub(crate) fn leaves_server_waiting(&self) -> bool {
        matches!(
            self,
            Self::UnknownPlugin(_) | Self::NeedsTls(_) | Self::NeedsPassword(_) | Self::Key(_)
        )
    }
}

impl From<PacketError> for LoginError {
    fn from(error: PacketError) -> Self {
        match error {
            PacketError::Io(error) => Self::Io(error),
            PacketError::Closed => Self::Closed,
            error @ (PacketError::TooLarge(_) | PacketError::Wire(_)) => Self::Protocol(error.to_string()),
        }
    }
}

impl From<WireError> for LoginError {
    fn from(error: WireError) -> Self {
        Self::Protocol(error.to_string())
    }
}
