//! Authentication between a client and a server that may not be reached the same way.
//!
//! Packets of every plugin are passed on as they are: the server decides. The plugins that send the password
//! behave differently on a secure link (TLS or a Unix socket) and on a plain one. If the two links of a
//! session differ in this, the two ways are joined here:
//!
//! | plugin | secure link | plain link |
//! |---|---|---|
//! | `caching_sha2_password`, full | the password, NUL-terminated | request `02`, the server's RSA key, the password encrypted |
//! | `sha256_password` | the password, NUL-terminated | request `01`, the server's RSA key, the password encrypted |
//! | `mysql_clear_password`, `dialog` | the password | the password |
//! | `authentication_openid_connect_client` | a token that is as good as a password | the same |
//!
//! Sources:
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/page_caching_sha2_authentication_exchanges.html>,
//! `sql/auth/sha2_password.cc` and `sql-common/client_authentication.cc` of MySQL 9.
//!
//! A password that a client sent over a secure link never goes on in the clear over a plain one: it is
//! encrypted with the server's key, or the login is refused. The state machine does no I/O;
//! [`AuthRelay::server_said`] and [`AuthRelay::client_said`] take a payload and say what to do with it.

use crate::frontend::rsa_key::{self, PrivateKey};
use config::Secret;
use mysql_wire::{AuthNextFactor, AuthSwitch, WireError, auth};

use crate::error::SessionError;
use crate::frontend::accounts::Proof;
use crate::frontend::users::Plugin;

/// The next action after a packet of the authentication.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AuthStep {
    ToClient(Vec<u8>),
    ToServer(Vec<u8>),
    /// The server's OK, to be passed on: the client is logged in.
    Accepted(Vec<u8>),
    /// The server's error, to be passed on.
    Refused(Vec<u8>),
}

/// The kind of connection between two neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Plain,
    Unix,
    Tls,
}

impl Link {
    /// Whether the clients and servers of `plugin` take this link for safe enough to send the password
    /// itself. `sha256_password` does not trust Unix sockets (`sql/auth/sha2_password.cc` asks for TLS only).
    fn is_secure(self, plugin: &[u8]) -> bool {
        match self {
            Self::Tls => true,
            Self::Unix => plugin != SHA256,
            Self::Plain => false,
        }
    }
}

/// The properties of the two links.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    pub(crate) client: Link,
    pub(crate) server: Link,
    /// The operator allows passwords in the clear on the plain link to the server.
    pub(crate) cleartext_allowed: bool,
    /// The server is reached by a Unix socket, with or without TLS on it, so the server sees our process at
    /// the other end.
    pub(crate) server_sees_us: bool,
    /// A client on a Unix socket of the gateway may be taken for the gateway itself.
    pub(crate) trusts_unix_clients: bool,
    /// The login may have several factors (MySQL). Otherwise a packet that begins with `02` is the plugin's.
    pub(crate) multi_factor: bool,
}

/// An authentication under way.
pub(crate) struct AuthRelay<'k> {
    links: Links,
    key: &'k PrivateKey,
    plugin: Vec<u8>,
    nonce: Vec<u8>,
    expect: Expect,
    /// Questions of the present plugin that went to the client.
    questions: u32,
    server_owes: bool,
    /// The server has said something.
    heard: bool,
    /// The server has said yes or no.
    over: bool,
    /// The client may have seen that its first answer was wrong.
    told: bool,
    /// The client's last proof, as far as it can be understood.
    shown: Proof,
}

enum Expect {
    /// Nothing that has to be understood.
    Opaque,
    /// The client's password, in the plugin's own way. `key_request` is the byte that asks for the RSA key.
    Password { key_request: u8 },
    /// The server's RSA key, to encrypt this password with.
    ServerKey { password: Vec<u8> },
}

/// The refusal of an account that the server lets in and the gateway does not.
pub(crate) const TAKEN_FOR_THE_GATEWAY: &str = "Access denied: the server lets this account in whatever its password, for the sake of \
                                                the process at the other end of its Unix socket (unix_socket, auth_socket), and \
                                                that is the gateway";

const NATIVE: &[u8] = b"mysql_native_password";
const CACHING_SHA2: &[u8] = b"caching_sha2_password";
const SHA256: &[u8] = b"sha256_password";
const DIALOG: &[u8] = b"dialog";
const CLEAR: &[u8] = b"mysql_clear_password";
const OPENID: &[u8] = b"authentication_openid_connect_client";
/// The server's message in `caching_sha2_password` that the fast way was enough: its OK follows.
const FAST_WAY_DID: &[u8] = &[1, 3];
/// The server's message in `caching_sha2_password` that the fast way is not enough: the client is to send the
/// password.
const PERFORM_FULL_AUTHENTICATION: &[u8] = &[1, 4];

impl<'k> AuthRelay<'k> {
    pub(crate) fn new(links: Links, key: &'k PrivateKey) -> Self {
        Self {
            links,
            key,
            plugin: Vec::new(),
            nonce: Vec::new(),
            expect: Expect::Opaque,
            questions: 0,
            server_owes: true,
            heard: false,
            over: false,
            told: false,
            shown: Proof::Nothing,
        }
    }

    /// The client's proof of who it is, where that is of use for another login.
    pub(crate) fn take_shown(&mut self) -> Proof {
        std::mem::replace(&mut self.shown, Proof::Nothing)
    }

    /// Whether the server is to speak next.
    pub(crate) fn server_owes(&self) -> bool {
        self.server_owes
    }

    /// Whether the client may say something now. Before the server has named its plugin nobody knows how long
    /// an answer has to be (see [`Self::client_said`]), and for the server an answer before its question is
    /// out of order.
    pub(crate) fn may_client_speak(&self) -> bool {
        self.heard && !(self.server_owes && auth::takes_turns(&self.plugin))
    }

    /// Whether the server has said yes or no.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the client may know already that its first answer was wrong: the server has asked for more.
    pub(crate) fn has_told(&self) -> bool {
        self.told
    }

    /// Takes a packet from the server.
    pub(crate) fn server_said(&mut self, payload: Vec<u8>) -> Result<AuthStep, SessionError> {
        let step = self.take_from_server(payload);
        self.heard = true;
        self.server_owes = match &step {
            // After "the fast way did" of caching_sha2_password the server has still to send its OK.
            Ok(AuthStep::ToClient(payload)) => *payload == FAST_WAY_DID,
            Ok(_) => true,
            Err(_) => false,
        };
        self.questions += u32::from(!self.server_owes);
        self.over = matches!(step, Ok(AuthStep::Accepted(_) | AuthStep::Refused(_)));
        step
    }

    /// Takes a packet from the client. A packet that its plugin could not even read is replaced: see
    /// [`Self::wrong_answer`].
    pub(crate) fn client_said(&mut self, mut payload: Vec<u8>) -> Result<AuthStep, SessionError> {
        if !auth::is_readable_answer(&self.plugin, self.questions, &payload) {
            payload = auth::wrong_answer(&self.plugin, self.questions);
        }
        let step = self.take_from_client(payload)?;
        self.server_owes = matches!(step, AuthStep::ToServer(_));
        Ok(step)
    }

    /// The answer to the server in the place of a client that gives none; `None` while the server is to
    /// speak.
    ///
    /// A connection that breaks off in a login, or an answer of the wrong length, counts against
    /// `max_connect_errors`, and after a hundred of them (the default) a server takes no connection of ours
    /// any more: anybody could block the gateway. A wrong password counts against nobody's host.
    pub(crate) fn wrong_answer(&mut self) -> Option<Vec<u8>> {
        let answer = (!self.server_owes).then(|| auth::wrong_answer(&self.plugin, self.questions));
        self.server_owes = true;
        answer
    }

    fn take_from_server(&mut self, payload: Vec<u8>) -> Result<AuthStep, SessionError> {
        match payload.first() {
            Some(0x00) if self.is_taken_for_the_gateway() => {
                Err(SessionError::PasswordExposed(TAKEN_FOR_THE_GATEWAY.into()))
            }
            Some(0x00) => Ok(AuthStep::Accepted(payload)),
            Some(0xff) => Ok(AuthStep::Refused(payload)),
            Some(0xfe) => self.switch(payload),
            Some(0x02) if self.links.multi_factor => self.next_factor(payload),
            Some(0x01) => self.more_data(payload),
            _ => Ok(AuthStep::ToClient(payload)),
        }
    }

    fn take_from_client(&mut self, payload: Vec<u8>) -> Result<AuthStep, SessionError> {
        let Expect::Password { key_request } = self.expect else {
            if self.plugin == NATIVE {
                self.shown = Proof::Answer {
                    plugin: Plugin::Native,
                    nonce: self.nonce.clone(),
                    bytes: payload.clone(),
                };
            }
            return Ok(AuthStep::ToServer(payload));
        };
        if self.links.client.is_secure(&self.plugin) {
            self.shown = password(&payload);
        }
        // An empty password is sent as it is on every link, and `sha256_password` accepts it only so.
        if payload.is_empty() || payload == [0] {
            self.expect = Expect::Opaque;
            return Ok(AuthStep::ToServer(payload));
        }
        match (
            self.links.client.is_secure(&self.plugin),
            self.links.server.is_secure(&self.plugin),
        ) {
            (true, true) | (false, false) => {
                self.expect = Expect::Opaque;
                Ok(AuthStep::ToServer(payload))
            }
            (true, false) => {
                self.expect = Expect::ServerKey { password: payload };
                Ok(AuthStep::ToServer(vec![key_request]))
            }
            (false, true) if payload == [key_request] => Ok(AuthStep::ToClient(
                [&[1], self.key.public_pem().as_bytes()].concat(),
            )),
            (false, true) => {
                self.expect = Expect::Opaque;
                let password = self.key.decrypt_password(&payload, &self.nonce).map_err(|_| {
                    SessionError::PasswordExposed(
                        "the password could not be decrypted: the client encrypted it with a key that is not this \
                         gateway's (let it ask for the key, or give the listener the server's rsa_key)"
                            .into(),
                    )
                })?;
                self.shown = self::password(&password);
                Ok(AuthStep::ToServer(password))
            }
        }
    }

    /// Takes an auth switch request. MySQL before 5.5 says only `fe`, which asks for its old passwords. The
    /// client knows what that means.
    fn switch(&mut self, payload: Vec<u8>) -> Result<AuthStep, SessionError> {
        let AuthSwitch { plugin, data } = AuthSwitch::decode(&payload).map_err(unreadable)?;
        self.begin(plugin, &data)?;
        Ok(AuthStep::ToClient(payload))
    }

    /// Takes the request for the next of several factors, which begins as a switch does.
    fn next_factor(&mut self, payload: Vec<u8>) -> Result<AuthStep, SessionError> {
        let AuthNextFactor { plugin, data } = AuthNextFactor::decode(&payload).map_err(unreadable)?;
        self.begin(plugin, &data)?;
        Ok(AuthStep::ToClient(payload))
    }

    /// Begins with a plugin that the server has named. The plugin decides what is understood from here on.
    fn begin(&mut self, plugin: Vec<u8>, data: &[u8]) -> Result<(), SessionError> {
        self.expect = if plugin == SHA256 {
            Expect::Password { key_request: 1 }
        } else {
            Expect::Opaque
        };
        self.nonce = data.iter().copied().take(20).collect();
        self.plugin = plugin;
        // A proof that was given to another plugin has let nobody in.
        self.shown = Proof::Nothing;
        self.questions = 0;
        self.refuse_exposure(&self.plugin)
    }

    fn more_data(&mut self, payload: Vec<u8>) -> Result<AuthStep, SessionError> {
        if let Expect::ServerKey { password } = std::mem::replace(&mut self.expect, Expect::Opaque) {
            let encrypted =
                rsa_key::encrypt_password(&payload[1..], &password, &self.nonce).map_err(|error| {
                    SessionError::PasswordExposed(format!("the server's RSA key does not work: {error}"))
                })?;
            return Ok(AuthStep::ToServer(encrypted));
        }
        if self.plugin == CACHING_SHA2 && payload.starts_with(PERFORM_FULL_AUTHENTICATION) {
            self.expect = Expect::Password { key_request: 2 };
            self.told = true;
        }
        Ok(AuthStep::ToClient(payload))
    }

    /// Whether an OK of the server proves nothing by itself. Over a Unix socket the server sees whose process
    /// is at the other end: ours. An account that trusts our process must not be open to everybody who
    /// reaches us.
    pub(crate) fn needs_proof(&self) -> bool {
        let is_trusted = self.links.trusts_unix_clients && self.links.client == Link::Unix;
        self.links.server_sees_us && !is_trusted
    }

    /// Whether the server has let the account in without a question, and so perhaps for our process's sake.
    fn is_taken_for_the_gateway(&self) -> bool {
        self.plugin.is_empty() && self.needs_proof()
    }

    fn refuse_exposure(&self, plugin: &[u8]) -> Result<(), SessionError> {
        let in_the_clear = [CLEAR, DIALOG, OPENID].contains(&plugin);
        if in_the_clear
            && self.links.client.is_secure(plugin)
            && !self.links.server.is_secure(plugin)
            && !self.links.cleartext_allowed
        {
            return Err(SessionError::PasswordExposed(format!(
                "Access denied: the account's plugin {} sends the password in the clear, and the link from the gateway to \
                 the server is not encrypted (set tls for the cluster, or allow_cleartext_passwords)",
                String::from_utf8_lossy(plugin)
            )));
        }
        Ok(())
    }
}

/// A password as it is sent, with a zero behind it.
fn password(sent: &[u8]) -> Proof {
    let text = std::str::from_utf8(sent.strip_suffix(&[0]).unwrap_or(sent));
    text.map_or(Proof::Nothing, |text| Proof::Password(Secret::new(text)))
}

/// Refuses a question that cannot be read. Passed on, such a question might make the client expose its
/// password.
fn unreadable(cause: WireError) -> SessionError {
    SessionError::PasswordExposed(format!(
        "the server's question for the password makes no sense: {cause}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(client: Link, server: Link) -> Links {
        Links {
            client,
            server,
            cleartext_allowed: false,
            server_sees_us: server == Link::Unix,
            trusts_unix_clients: false,
            multi_factor: false,
        }
    }

    #[test]
    fn an_account_that_trusts_the_process_behind_a_unix_socket_is_not_open_to_the_network() {
        let key = PrivateKey::generate().unwrap();
        let ok = vec![0, 0, 0, 2, 0, 0, 0];
        for client in [Link::Plain, Link::Tls, Link::Unix] {
            for server in [Link::Unix, Link::Tls] {
                let by_socket = Links {
                    server_sees_us: true,
                    ..links(client, server)
                };
                let mut relay = AuthRelay::new(by_socket, &key);
                assert!(matches!(
                    relay.server_said(ok.clone()),
                    Err(SessionError::PasswordExposed(_))
                ));
            }
        }
        for (client, server) in [
            (Link::Unix, Link::Unix),
            (Link::Plain, Link::Plain),
            (Link::Tls, Link::Plain),
        ] {
            let trusting = Links {
                trusts_unix_clients: true,
                ..links(client, server)
            };
            let mut relay = AuthRelay::new(trusting, &key);
            assert!(matches!(relay.server_said(ok.clone()), Ok(AuthStep::Accepted(_))));
        }
    }

    #[test]
    fn sha256_password_takes_a_unix_socket_for_a_plain_link() {
        let key = PrivateKey::generate().unwrap();
        let mut relay = AuthRelay::new(links(Link::Unix, Link::Plain), &key);
        let switch = b"\xfesha256_password\0abcdefghijklmnopqrst\0".to_vec();
        assert!(matches!(relay.server_said(switch), Ok(AuthStep::ToClient(_))));
        let key_request = vec![1];
        assert_eq!(
            relay.client_said(key_request.clone()).unwrap(),
            AuthStep::ToServer(key_request)
        );
    }

    #[test]
    fn what_is_as_good_as_a_password_does_not_leave_a_secure_link_either() {
        let key = PrivateKey::generate().unwrap();
        for plugin in [
            "mysql_clear_password",
            "dialog",
            "authentication_openid_connect_client",
        ] {
            let switch = [b"\xfe", plugin.as_bytes(), b"\0"].concat();
            for (client, server, exposed) in [
                (Link::Tls, Link::Plain, true),
                (Link::Unix, Link::Plain, true),
                (Link::Tls, Link::Tls, false),
                (Link::Plain, Link::Plain, false),
            ] {
                let mut relay = AuthRelay::new(links(client, server), &key);
                let step = relay.server_said(switch.clone());
                let refused = matches!(step, Err(SessionError::PasswordExposed(_)));
                assert_eq!(refused, exposed, "{plugin}, {client:?} to {server:?}");
            }
        }
    }
}
