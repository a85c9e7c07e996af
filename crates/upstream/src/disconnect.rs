//! Leaving a server after its greeting without being held to account for it.
//!
//! Servers count a client that goes away before it has sent a login as a handshake error of its host, and
//! after `max_connect_errors` (default 100) of them in a row they refuse the whole host: error 1129, for the
//! gateway the end of the service. Tried on MariaDB 10.11.19 and MySQL 9.7.4 with `max_connect_errors = 10`,
//! from an address that is not loopback (which MySQL never blocks), 50 connections each:
//!
//! | after the greeting | blocked | in the error log (default settings), each time |
//! |---|---|---|
//! | close, reset, or half-close | both, after 10 | MariaDB: warning "Aborted connection" |
//! | COM_QUIT, empty packet, SSL request | both, after 10 | MariaDB: the same |
//! | login with an empty user name | MySQL, after 10 | MariaDB: warning "Access denied" |
//! | login without PLUGIN_AUTH | MySQL, after 10 | MariaDB: the same |
//! | login of a user who does not exist | neither | MariaDB: warning "Access denied"; MySQL: see below |
//!
//! A refused login counts as an authentication error, and those never block a host. So we log in as
//! [`Nobody`], are refused, and go. MySQL (8.0 and later) pretends that an unknown user has an account with
//! one of its plugins: which one it draws by lot when it first hears of the name, and remembers until it
//! ends. When that is `sha256_password` it logs a deprecation each time, so the next login there is another
//! nobody's.
//!
//! MariaDB pretends that an unknown user has the plugin of some account that exists. `client_ed25519` takes
//! an answer of the wrong length for a broken handshake, so that an empty one would be held against us after
//! all: every plugin gets an answer that it can read ([`auth::wrong_answer`]).
//!
//! What remains: `Aborted_connects` (and `Access_denied_errors` on MariaDB) grow by one each time, and
//! MariaDB with `log_warnings` of 2 or more (2 is its default) writes a line. A check of kind `login` leaves
//! no trace at all.

use std::sync::atomic::{AtomicU8, Ordering};

use mysql_wire::{AuthSwitch, Capabilities, Command, ErrPacket, Greeting, Login, OkPacket, SslRequest, auth};
use net::Stream;

use crate::packets::{PacketError, Packets};

/// The user that a server should not have: `forebay_probe`, or a number behind that, of a server's own.
#[derive(Debug, Default)]
pub struct Nobody(AtomicU8);

impl Nobody {
    /// The one of this number; 0 is the first.
    #[must_use]
    pub fn numbered(number: u8) -> Self {
        Self(AtomicU8::new(number))
    }

    fn name(&self) -> Vec<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => b"forebay_probe".to_vec(),
            number => format!("forebay_probe_{number}").into_bytes(),
        }
    }

    /// What the server said the plugin is.
    fn has_plugin(&self, plugin: &[u8]) {
        if plugin == LOGGED {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The plugin that MySQL writes into its log that it is deprecated, whoever comes by it.
const LOGGED: &[u8] = b"sha256_password";

/// Questions that a server may ask before its verdict.
const MAX_ROUNDS: usize = 4;

/// Ends a connection on which nothing but `greeting` has been exchanged, in a way that servers do not hold
/// against this host. `tls`: the request by which TLS was begun on `stream`; the login must go on as that has
/// begun. The connection is of no use afterwards. Has no time limit of its own.
///
/// # Errors
/// When the connection fails; there is nothing more to be done then.
pub async fn disconnect(
    stream: &mut Stream,
    greeting: &Greeting,
    nobody: &Nobody,
    tls: Option<&SslRequest>,
) -> std::io::Result<()> {
    let mut wrongly = Wrongly {
        user: nobody.name(),
        // The server's own default, so that it need not ask again.
        plugin: greeting.auth_plugin.clone(),
        nobody: Some(nobody),
    };
    match wrongly.log_in(stream, greeting, tls).await {
        Ok(_) => Ok(()),
        Err(PacketError::Io(error)) => Err(error),
        Err(error) => Err(std::io::Error::other(error)),
    }
}

/// Logs in as `user` by answers that cannot be right, and says what the server says to that: its last packet,
/// `None` where it has come to no verdict. `tls`: the request by which TLS was begun on `stream`. Has no time
/// limit of its own.
///
/// # Errors
/// The connection fails.
pub(crate) async fn answer_wrongly(
    stream: &mut Stream,
    greeting: &Greeting,
    user: &[u8],
    tls: Option<&SslRequest>,
) -> Result<Option<Vec<u8>>, PacketError> {
    let mut wrongly = Wrongly {
        user: user.to_vec(),
        // The account's own plugin has to ask, whichever it is: an answer to the greeting might be empty, and
        // so right.
        plugin: b"forebay_ask_the_client".to_vec(),
        nobody: None,
    };
    wrongly.log_in(stream, greeting, tls).await
}

const WANTED: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH);

/// A login that is to be refused.
struct Wrongly<'n> {
    user: Vec<u8>,
    plugin: Vec<u8>,
    nobody: Option<&'n Nobody>,
}

impl Wrongly<'_> {
    /// The server's verdict, where it has come to one.
    async fn log_in(
        &mut self,
        stream: &mut Stream,
        greeting: &Greeting,
        tls: Option<&SslRequest>,
    ) -> Result<Option<Vec<u8>>, PacketError> {
        let plain = SslRequest {
            capabilities: WANTED & greeting.capabilities,
            max_packet_size: 1 << 24,
            charset: greeting.charset,
        };
        let (request, sequence) = tls.map_or((&plain, 1), |request| (request, 2));
        let has = |flag| request.capabilities.contains(flag);
        let mut packets = Packets::new(stream, sequence);
        let login = Login {
            capabilities: request.capabilities,
            max_packet_size: request.max_packet_size,
            charset: request.charset,
            user: self.user.clone(),
            auth_response: Vec::new(),
            database: has(Capabilities::CONNECT_WITH_DB).then(Vec::new),
            auth_plugin: Some(self.plugin.clone()),
            attributes: has(Capabilities::CONNECT_ATTRS).then(Vec::new),
            zstd_level: has(Capabilities::ZSTD_COMPRESSION).then_some(1),
        };
        let mut payload = Vec::new();
        login.encode(&mut payload);
        packets.send(&payload).await?;
        let mut questions = 0;
        for _ in 0..MAX_ROUNDS {
            let packet = packets.receive().await?;
            match packet.first() {
                Some(&AuthSwitch::HEADER) => {
                    self.plugin = AuthSwitch::decode(&packet)?.plugin;
                    if let Some(nobody) = self.nobody {
                        nobody.has_plugin(&self.plugin);
                    }
                    questions = 1;
                }
                Some(&ErrPacket::HEADER) => return Ok(Some(packet)),
                None => break,
                // Somebody has such an account.
                Some(&OkPacket::HEADER) => {
                    packets.send_command(&[Command::QUIT.0]).await?;
                    return Ok(Some(packet));
                }
                Some(_) => questions += 1,
            }
            packets.send(&self.answer(questions)).await?;
        }
        Ok(None)
    }

    /// Nobody's password is empty as well as any other. An account that exists must be given one that it does
    /// not have.
    fn answer(&self, question: u32) -> Vec<u8> {
        let answer = auth::wrong_answer(&self.plugin, question);
        match (self.nobody, self.plugin.as_slice()) {
            (Some(_), _) | (None, b"parsec") => answer,
            (None, b"caching_sha2_password") if question == 1 => vec![0; 32],
            (None, _) if answer.len() <= 1 => b"forebay tries a password that nobody has\0".to_vec(),
            (None, _) => answer,
        }
    }
}
