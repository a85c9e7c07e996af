//! Login: our greeting, the client's answer, a server for it, and that server's verdict.
//!
//! The greeting is sent before a server is chosen, so its nonce is ours, and no server would take an answer
//! made with it. The login that goes on to the server therefore names a plugin that no account has. The
//! server then asks for the plugin of the account with a nonce of its own (auth switch request), the client
//! is asked the same, and from there on both talk to each other. Every client with CLIENT_PLUGIN_AUTH
//! understands this one switch.

mod change_user;
mod compression;
mod give_up;
mod patience;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use config::{ServerAddress, TlsMode};
use mysql_wire::compression::Algorithm;
use mysql_wire::{Capabilities, ErrPacket, Greeting, Login, OkPacket, SslRequest, StatusFlags};
use net::{Stream, TlsRefusal};
use tokio::time::{sleep, timeout};
use upstream::{Cluster, GreetingError, Lease, Server, ServerProfile};

use crate::control::Control;
use crate::error::{During, SessionError};
use crate::frontend::accounts::Proof;
use crate::frontend::auth_relay::{AuthRelay, AuthStep, Links, TAKEN_FOR_THE_GATEWAY};
use crate::frontend::guesses::Attempt;
use crate::frontend::listener_state::ListenerState;
use crate::frontend::packet_io::{LoginPeer, ReadError, malformed};
use crate::session_end::signal_as_error;

pub(crate) use change_user::{Changed, change_user};
pub(crate) use compression::{agreed_compression, compressed};
use compression::{compression_flag, server_compression, zstd_level};
pub(crate) use patience::Patience;

/// The plugin named in logins to servers; see the head of this file.
const NO_SUCH_PLUGIN: &[u8] = b"forebay_ask_the_client";

/// Capabilities that a client may agree on with a server. TLS and compression are not among them, since they
/// are between neighbours. Neither are bits that change the protocol in ways that the gateway does not know.
pub(crate) const PASSED_ON: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::FOUND_ROWS)
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::NO_SCHEMA)
    .with(Capabilities::ODBC)
    .with(Capabilities::LOCAL_FILES)
    .with(Capabilities::IGNORE_SPACE)
    .with(Capabilities::INTERACTIVE)
    .with(Capabilities::IGNORE_SIGPIPE)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::RESERVED)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::CONNECT_ATTRS)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::CAN_HANDLE_EXPIRED_PASSWORDS)
    .with(Capabilities::LAYOUT)
    .with(Capabilities::MULTI_FACTOR)
    .with(Capabilities::REMEMBER_OPTIONS)
    .with(Capabilities::MARIADB_STMT_BULK)
    .with(Capabilities::MARIADB_BULK_UNIT_RESULTS);

/// The client's side, up to its login packet.
pub(crate) struct Client {
    pub(crate) stream: Stream,
    pub(crate) sequence: u8,
    pub(crate) unread: Vec<u8>,
    /// The capabilities that the client has named in its login; none before that.
    pub(crate) capabilities: Capabilities,
}

/// The capabilities that decide how a session's packets look, on each of its sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) client: Capabilities,
    pub(crate) server: Capabilities,
}

impl Agreed {
    /// Alike capabilities on both sides.
    pub(crate) const fn alike(capabilities: Capabilities) -> Self {
        Self {
            client: capabilities,
            server: capabilities,
        }
    }

    /// The server's OK, in the layout of the client's capabilities.
    fn ok_for_client(self, payload: Vec<u8>) -> Vec<u8> {
        if self.client == self.server {
            return payload;
        }
        let Ok(mut ok) = OkPacket::decode(&payload, self.server) else {
            return payload;
        };
        if !self.client.contains(Capabilities::SESSION_TRACK) {
            ok.status.remove(StatusFlags::SESSION_STATE_CHANGED);
            ok.session_state.clear();
        }
        let mut said = Vec::with_capacity(payload.len());
        ok.encode(&mut said, self.client);
        said
    }
}

/// A session that both sides agree on.
pub(crate) struct LoggedIn {
    pub(crate) lease: Lease,
    pub(crate) greeting: Greeting,
    /// When the login began on the server.
    pub(crate) began: Instant,
    pub(crate) user: Vec<u8>,
    pub(crate) agreed: Agreed,
    pub(crate) client_compression: Option<Algorithm>,
    pub(crate) server_compression: Option<Algorithm>,
    pub(crate) status: StatusFlags,
    /// The client's proof of who it is.
    pub(crate) proof: Proof,
    /// Bytes that were read from the client beyond the login.
    pub(crate) client_unread: Vec<u8>,
    /// Bytes that were read from the server beyond the login.
    pub(crate) server_unread: Vec<u8>,
}

impl LoggedIn {
    /// Whether the server reports what the session does, so that the session can be understood.
    pub(crate) fn is_understood(&self) -> bool {
        self.agreed.server.contains(WATCHED)
    }

    /// Whether the server itself can tell what state a session has that is to move, as TiDB can.
    pub(crate) fn moves_by_session_states(&self, listener: &ListenerState) -> bool {
        listener.config.moves && ServerProfile::of(&self.greeting).is_tidb()
    }
}

/// The capabilities that a server must have if the gateway is to follow what a session does.
pub(crate) const WATCHED: Capabilities = Capabilities::SESSION_TRACK.with(Capabilities::DEPRECATE_EOF);

/// Greets the client and reads its login, over TLS when the client asks for it. Returns the greeting, too,
/// since it has the nonce of the client's answer.
///
/// `client` is `None` only while TLS is being negotiated: when that fails there is nobody left to tell.
pub(crate) async fn greet(
    client: &mut Option<Client>,
    listener: &ListenerState,
    profile: &ServerProfile,
    connection_id: u32,
) -> Result<(Login, Greeting), SessionError> {
    let Some(plain) = client.as_mut() else {
        return Err(SessionError::ClientGone);
    };
    let greeting = greeting(listener, profile, connection_id)?;
    let mut payload = Vec::with_capacity(128);
    greeting.encode(&mut payload);
    let mut side = LoginPeer::new(
        &mut plain.stream,
        &mut plain.sequence,
        std::mem::take(&mut plain.unread),
    );
    side.write(&payload).await.map_err(SessionError::ClientFailed)?;
    let mut first = side.read().await.map_err(client_read)?;
    plain.unread = side.into_unread();

    if let (true, Some(tls)) = (SslRequest::is_ssl_request(&first), &listener.tls) {
        let request = SslRequest::decode(&first).map_err(malformed)?;
        plain.capabilities = request.capabilities;
        if let Some(plain) = client.take() {
            let stream = tls
                .accept(plain.stream, plain.unread)
                .await
                .map_err(SessionError::ClientTls)?;
            client.replace(Client {
                stream,
                unread: Vec::new(),
                ..plain
            });
        }
        let Some(secure) = client.as_mut() else {
            return Err(SessionError::ClientGone);
        };
        let mut side = LoginPeer::new(&mut secure.stream, &mut secure.sequence, Vec::new());
        first = side.read().await.map_err(client_read)?;
        secure.unread = side.into_unread();
    }
    let Some(client) = client.as_mut() else {
        return Err(SessionError::ClientGone);
    };
    let login = Login::decode(&first).map_err(malformed)?;
    // Clients may set bits that nobody offered; servers do not heed those. LONG_PASSWORD is heeded always:
    // the bit says that the client is none of MariaDB's, and servers of MariaDB do not offer it.
    let heeded = greeting.capabilities | Capabilities::LONG_PASSWORD;
    client.capabilities = login.capabilities & heeded;
    check_login(&login, &client.stream, listener)?;
    Ok((login, greeting))
}

fn check_login(login: &Login, stream: &Stream, listener: &ListenerState) -> Result<(), SessionError> {
    let unix = matches!(stream, Stream::Unix(_));
    if listener.config.tls.mode == TlsMode::Required && !stream.is_encrypted() && !unix {
        return Err(SessionError::TlsRequired);
    }
    if !login.capabilities.contains(Capabilities::PROTOCOL_41) {
        return Err(SessionError::ClientTooOld("protocol 4.1"));
    }
    if !login.capabilities.contains(Capabilities::PLUGIN_AUTH) {
        return Err(SessionError::ClientTooOld("CLIENT_PLUGIN_AUTH"));
    }
    Ok(())
}

fn greeting(
    listener: &ListenerState,
    profile: &ServerProfile,
    connection_id: u32,
) -> Result<Greeting, SessionError> {
    let mut capabilities = profile.capabilities & PASSED_ON;
    if listener.config.understands() {
        // With this bit a server leaves out the columns of a statement whose columns it has told before, to
        // whichever session had the connection then.
        capabilities.remove(Capabilities::MARIADB_CACHE_METADATA);
    }
    if listener.tls.is_some() {
        capabilities.insert(Capabilities::SSL);
    }
    if listener.config.compression {
        capabilities.insert(Capabilities::COMPRESS | Capabilities::ZSTD_COMPRESSION);
    }
    Ok(Greeting {
        server_version: profile.server_version.clone(),
        connection_id,
        nonce: nonce().map_err(SessionError::ClientFailed)?,
        capabilities,
        charset: profile.charset,
        status: profile.status,
        auth_plugin: profile.auth_plugin.clone(),
    })
}

/// Random bytes from `!` to `~` without `$`: clients take the nonce for a C string, and MySQL's own
/// (`generate_user_salt`) has neither NUL nor `$`.
pub(crate) fn nonce<const LEN: usize>() -> io::Result<[u8; LEN]> {
    let mut nonce = [0; LEN];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| io::Error::other("no randomness"))?;
    Ok(nonce.map(|byte| match b'!' + byte % 94 {
        b'$' => b'%',
        other => other,
    }))
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = timeout(limit, work).await;
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Logs the client in on a leased server, which has greeted. A signal that ends the session ends the login in
/// order.
pub(crate) async fn log_in(
    client: &mut Client,
    login: Login,
    (mut lease, greeting): (Lease, Greeting),
    listener: &Arc<ListenerState>,
    (control, attempt): (&Control, Attempt<'_>),
) -> Result<LoggedIn, SessionError> {
    let server = Arc::clone(&lease.server);
    let failed = |cause: String| SessionError::ServerLogin {
        server: server.name().to_owned(),
        cause,
    };
    let cluster = listener.cluster.config();
    let (capabilities, with_tls) = match agree(client.capabilities, cluster.tls.mode, &greeting) {
        Ok(agreed) => agreed,
        Err(cause) => {
            give_up::after_greeting(&mut lease.stream, &greeting, None).await;
            return Err(failed(cause));
        }
    };
    let agreed = Agreed {
        client: capabilities,
        server: match listener.config.understands() {
            true => watched(capabilities, &greeting),
            false => capabilities,
        },
    };
    let server_compression = server_compression(cluster.compression, &greeting);
    let client_compression =
        agreed_compression(client.capabilities, login.zstd_level).filter(|_| listener.config.compression);
    let mut forwarded = Login {
        capabilities: agreed.server | server_compression.map_or(Capabilities::default(), compression_flag),
        auth_response: Vec::new(),
        auth_plugin: Some(NO_SUCH_PLUGIN.to_vec()),
        zstd_level: server_compression.and_then(zstd_level),
        ..login
    };
    let mut sequence = 1;
    if with_tls {
        forwarded.capabilities.insert(Capabilities::SSL);
        let starting = start_tls(lease, &greeting, listener, &forwarded);
        let started = within(cluster.login_timeout, starting).await;
        (lease, sequence) = started.map_err(|error| failed(format!("TLS: {error}")))?;
    }

    let unread = std::mem::take(&mut client.unread);
    let mut client_side = LoginPeer::new(&mut client.stream, &mut client.sequence, unread);
    let mut server_side = LoginPeer::new(&mut lease.stream, &mut sequence, Vec::new());
    let mut payload = Vec::with_capacity(256);
    forwarded.encode(&mut payload);
    let began = Instant::now();
    let written = within(cluster.login_timeout, server_side.write(&payload)).await;
    written.map_err(|error| failed(error.to_string()))?;
    let answered = answer_in_time(
        &mut client_side,
        &mut server_side,
        listener,
        (agreed, &forwarded.user),
        (&server, control),
        (attempt, true),
    )
    .await;
    let (client_unread, server_unread) = (client_side.into_unread(), server_side.into_unread());
    let (ok, proof) = answered?;
    Ok(LoggedIn {
        status: ok_status(&ok, agreed.server),
        proof,
        lease,
        greeting,
        began,
        user: forwarded.user,
        agreed,
        client_compression,
        server_compression,
        client_unread,
        server_unread,
    })
}

/// The agreed capabilities with [`WATCHED`], so that the server reports what a session does and ends all rows
/// alike; unchanged where the server cannot do that.
fn watched(agreed: Capabilities, greeting: &Greeting) -> Capabilities {
    match greeting.capabilities.contains(WATCHED) {
        true => agreed | WATCHED,
        false => agreed,
    }
}

/// The server's greeting, within `limit`, unless the session is told to end before it comes.
pub(crate) async fn greeted(
    lease: &mut Lease,
    listener: &ListenerState,
    control: &Control,
    limit: Duration,
) -> Result<Greeting, SessionError> {
    tokio::select! {
        biased;
        greeting = read_greeting(lease, &listener.cluster, limit) => greeting,
        signal = control.signalled(true) => {
            give_up::before_greeting(&mut lease.stream).await;
            Err(signal_as_error(signal, lease.server.name(), listener))
        }
    }
}

/// The capabilities that the client and this server both have, and whether to use TLS.
///
/// # Errors
/// The client was offered a capability that changes the layout of packets, and this server does not have it;
/// or the cluster requires TLS and the server has none.
fn agree(client: Capabilities, tls: TlsMode, greeting: &Greeting) -> Result<(Capabilities, bool), String> {
    let with_tls = wants_tls(tls, greeting)?;
    let offered = client & PASSED_ON;
    let missing = offered.without(greeting.capabilities) & Capabilities::LAYOUT;
    if missing == Capabilities::default() {
        let agreed = offered & (greeting.capabilities | Capabilities::LONG_PASSWORD);
        Ok((agreed, with_tls))
    } else {
        Err(format!(
            "it lacks {missing:?}, which other servers of the cluster have"
        ))
    }
}

/// Runs the authentication within the listener's time. If the client does not see it through or the session
/// is told to end, the login is ended at the server in order.
async fn answer_in_time(
    client: &mut LoginPeer<'_>,
    server_side: &mut LoginPeer<'_>,
    listener: &ListenerState,
    (agreed, user): (Agreed, &[u8]),
    (server, control): (&Server, &Control),
    (mut attempt, is_free): (Attempt<'_>, bool),
) -> Result<(Vec<u8>, Proof), SessionError> {
    let limit = listener.config.login_timeout;
    let mut relay = auth_relay(client, (server_side, server), listener, agreed.server);
    let client_owes = Cell::new(false);
    let authenticated = authenticate(
        (client, &client_owes, &mut attempt),
        server_side,
        &mut relay,
        listener,
        (server, user, agreed),
    );
    let mut answered = tokio::select! {
        biased;
        answered = timeout(limit, authenticated) => answered.unwrap_or(Err(SessionError::LoginTimeout(limit))),
        signal = control.signalled(is_free) => Err(signal_as_error(signal, server.name(), listener)),
    };
    // A client that was silent for the whole time has no answer on its way.
    let is_owed = client_owes.get() && !matches!(answered, Ok(_) | Err(SessionError::LoginTimeout(_)));
    if is_owed {
        await_answer(client).await;
    }
    match &mut answered {
        Ok(_) => attempt.succeeded(),
        Err(SessionError::LoginRefused { payload, held }) if is_denial(payload, agreed.server) => {
            *held = attempt.failed();
        }
        // The server has ended the login, or does not answer. A server that does not answer is not suspected:
        // it may be slow with this account alone.
        Err(
            SessionError::LoginRefused { .. }
            | SessionError::ServerGone { .. }
            | SessionError::ServerLogin { .. },
        ) => {}
        Err(error) => {
            // A client that leaves now has learned as much as by a refusal, and has waited for it before.
            if relay.has_told() && !matches!(error, SessionError::TooManyFailures) {
                attempt.failed();
            }
            give_up::in_authentication(server_side, &mut relay).await;
        }
    }
    answered.map(|ok| (ok, relay.take_shown()))
}

/// Whether the server's error is about the password, and nothing else.
fn is_denial(payload: &[u8], capabilities: Capabilities) -> bool {
    ErrPacket::decode(payload, capabilities).is_ok_and(|error| upstream::DENIALS.contains(&error.code))
}

fn ok_status(ok: &[u8], capabilities: Capabilities) -> StatusFlags {
    OkPacket::decode(ok, capabilities)
        .map(|ok| ok.status)
        .unwrap_or_default()
}

async fn read_greeting(
    lease: &mut Lease,
    cluster: &Cluster,
    limit: Duration,
) -> Result<Greeting, SessionError> {
    let server = || lease.server.name().to_owned();
    match upstream::read_greeting(&mut lease.stream, limit).await {
        Ok((greeting, _)) => {
            cluster.note_greeting(&lease.server, &greeting);
            Ok(greeting)
        }
        Err(GreetingError::Refused(packet)) => Err(SessionError::ServerRefused {
            server: server(),
            packet,
        }),
        Err(error) => {
            if !error.is_for_want_of_room(lease.server.profile().as_deref()) {
                cluster.suspect(&lease.server, &error.to_string());
            }
            Err(SessionError::ServerLogin {
                server: server(),
                cause: error.to_string(),
            })
        }
    }
}

fn wants_tls(mode: TlsMode, greeting: &Greeting) -> Result<bool, String> {
    let offered = greeting.capabilities.contains(Capabilities::SSL);
    match mode {
        TlsMode::Off => Ok(false),
        TlsMode::Preferred => Ok(offered),
        TlsMode::Required if offered => Ok(true),
        TlsMode::Required => Err("the cluster requires TLS and the server does not offer it".into()),
    }
}

/// Sends the SSL request and starts TLS. Returns the sequence number that the login packet has.
/// A server that is not trusted is left in order.
async fn start_tls(
    lease: Lease,
    greeting: &Greeting,
    listener: &ListenerState,
    login: &Login,
) -> io::Result<(Lease, u8)> {
    let Lease {
        mut stream,
        server,
        permit,
        failures,
    } = lease;
    let (capabilities, max_packet_size, charset) = (login.capabilities, login.max_packet_size, login.charset);
    let request = SslRequest {
        capabilities,
        max_packet_size,
        charset,
    };
    let mut payload = Vec::with_capacity(SslRequest::LEN);
    request.encode(&mut payload);
    let mut sequence = 1;
    LoginPeer::new(&mut stream, &mut sequence, Vec::new())
        .write(&payload)
        .await?;
    let tls = listener
        .cluster
        .tls()
        .ok_or_else(|| io::Error::other("TLS was switched off by a reload"))?;
    let stream = match tls.connect(stream, server.tls_name()).await {
        Ok(stream) => stream,
        Err(TlsRefusal { error, stream }) => {
            if let Some(mut stream) = stream {
                give_up::after_greeting(&mut stream, greeting, Some(&request)).await;
            }
            return Err(error);
        }
    };
    Ok((
        Lease {
            stream,
            server,
            permit,
            failures,
        },
        sequence,
    ))
}

fn auth_relay<'k>(
    client: &LoginPeer<'_>,
    (server_side, server): (&LoginPeer<'_>, &Server),
    listener: &'k ListenerState,
    capabilities: Capabilities,
) -> AuthRelay<'k> {
    let links = Links {
        client: client.link(),
        server: server_side.link(),
        server_sees_us: matches!(server.address(), ServerAddress::Unix(_)),
        cleartext_allowed: listener.cluster.config().allow_cleartext_passwords,
        trusts_unix_clients: listener.config.trust_unix_clients,
        multi_factor: capabilities.contains(Capabilities::MULTI_FACTOR),
    };
    AuthRelay::new(links, &listener.rsa_key)
}

/// How long an error waits for the answer that the client is just giving.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Waits for an answer that the client may be sending now. An error is numbered as the answer to the client's
/// last packet; a client that has just sent another one would take the lower number for a broken protocol.
async fn await_answer(client: &mut LoginPeer<'_>) {
    // A client that says nothing, or has gone, is told all the same.
    let _ = timeout(ANSWER_WAIT, client.read_next()).await;
}

/// Passes packets between the two until the server has said yes or no.
async fn authenticate(
    (client, client_owes, attempt): (&mut LoginPeer<'_>, &Cell<bool>, &mut Attempt<'_>),
    server: &mut LoginPeer<'_>,
    relay: &mut AuthRelay<'_>,
    listener: &ListenerState,
    (of_server, user, agreed): (&Server, &[u8], Agreed),
) -> Result<Vec<u8>, SessionError> {
    let server_name = of_server.name();
    let gone = || SessionError::ServerGone {
        server: server_name.to_owned(),
        during: During::Login,
    };
    let limit = listener.cluster.config().login_timeout;
    let silent = |_| SessionError::ServerLogin {
        server: server_name.to_owned(),
        cause: format!("no answer to the login within {limit:?}"),
    };
    loop {
        let server_owes = relay.server_owes();
        let answer = async {
            if server_owes {
                timeout(limit, server.read()).await.map_err(silent)
            } else {
                Ok(server.read().await)
            }
        };
        let said = async {
            tokio::select! {
                biased;
                packet = answer => packet.map(Ok),
                packet = client.read_next(), if relay.may_client_speak() => Ok(Err(packet)),
            }
        };
        let said = match server_owes {
            true => said.await?,
            false => attempt.beside(Box::pin(said)).await?,
        };
        let had_told = relay.has_told();
        let step = match said {
            Ok(Ok(packet)) => relay.server_said(packet)?,
            Ok(Err(_)) => return Err(gone()),
            Err(packet) => {
                client_owes.set(false);
                let packet = packet.map_err(client_read)?;
                attempt.take_turn().await?;
                relay.client_said(packet)?
            }
        };
        match step {
            AuthStep::ToClient(payload) => {
                if relay.has_told() && !had_told {
                    sleep(attempt.held_back()).await;
                }
                client.write(&payload).await.map_err(SessionError::ClientFailed)?;
                client_owes.set(true);
            }
            AuthStep::ToServer(payload) => server.write(&payload).await.map_err(|_| gone())?,
            AuthStep::Accepted(payload) => {
                if relay.needs_proof() {
                    prove(listener, of_server, user).await?;
                }
                let said = agreed.ok_for_client(payload.clone());
                client.write(&said).await.map_err(SessionError::ClientFailed)?;
                return Ok(payload);
            }
            AuthStep::Refused(payload) => return Err(refused(payload)),
        }
    }
}

/// The server's refusal. The time that the client has to wait for it is known once the failure is counted.
fn refused(payload: Vec<u8>) -> SessionError {
    let held = Duration::ZERO;
    SessionError::LoginRefused { payload, held }
}

/// Checks that a server which has let the account in over a Unix socket looks at the account's password.
async fn prove(listener: &ListenerState, server: &Server, user: &[u8]) -> Result<(), SessionError> {
    match listener.cluster.looks_at_password(server, user).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(SessionError::PasswordExposed(TAKEN_FOR_THE_GATEWAY.into())),
        Err(reason) => Err(SessionError::PasswordExposed(format!(
            "Access denied: it is not known whether the server looks at the password of this account over its Unix socket: {reason}"
        ))),
    }
}

pub(crate) fn client_read(error: ReadError) -> SessionError {
    match error {
        ReadError::Closed => SessionError::ClientGone,
        ReadError::TooLong(len) => SessionError::PacketTooLong(len),
        ReadError::ProxyHeader => SessionError::ProxyHeaderUnexpected,
        other => SessionError::ClientFailed(other.into_io()),
    }
}
