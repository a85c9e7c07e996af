//! From an accepted connection to a session of mode `split`: the gateway itself checks the password, and a
//! server shows that the account and its schema are right.

use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::session_state::Change;
use mysql_wire::{Capabilities, ChangeUser, OkPacket, StatusFlags};
use net::{Accepted, Stream, Toward};
use session::Session;
use upstream::{Credential, Key, LeaseError, ServerProfile};

use crate::answer::change_user_packet_fits;
use crate::command_head::CommandHead;
use crate::control::Waiting;
use crate::engine::binding::Binding;
use crate::engine::client_session::{AnswerState, ClientSession, Context, LastStatement};
use crate::engine::identity::Identity;
use crate::engine::lookup::session_lookups::SessionLookups;
use crate::engine::own_writes::OwnWrites;
use crate::engine::prepared::client_statements::ClientStatements;
use crate::engine::replay::kept::Replay;
use crate::engine::rules::session_rules::SessionRules;
use crate::engine::shape::Shape;
use crate::engine::start::start;
use crate::engine::statement::Statement;
use crate::engine::{admission, answer, client_limits, lease, lookup, own_connection};
use crate::error::SessionError;
use crate::frontend::authenticate::{self, Authenticated};
use crate::frontend::connection;
use crate::frontend::counted::Counted;
use crate::frontend::handshake::{self, Client, PASSED_ON, WATCHED, client_read};
use crate::frontend::packet_io::{LoginPeer, malformed};
use crate::frontend::proxy_header;
use crate::frontend::session_summary::SessionSummary;
use crate::relay::{Streams, Traffic};
use crate::session_end::signal_as_error;

/// Capabilities of a client that are between it and the gateway, or that every server connection has.
pub(super) const OWN_AFFAIR: Capabilities = Capabilities::CONNECT_WITH_DB
    .with(Capabilities::CONNECT_ATTRS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::MULTI_FACTOR)
    .with(Capabilities::INTERACTIVE)
    .with(Capabilities::REMEMBER_OPTIONS)
    .with(Capabilities::CAN_HANDLE_EXPIRED_PASSWORDS);

/// Capabilities that every server connection is opened with.
const ALWAYS: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::SESSION_TRACK)
    .with(Capabilities::DEPRECATE_EOF)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS);

/// Does everything up to the first command. When this returns an error, the client has been told.
pub(super) async fn log_in(
    counted: &Counted,
    accepted: Accepted,
    summary: &mut SessionSummary,
) -> Result<Box<ClientSession>, SessionError> {
    let mut client = None;
    let proved = tokio::select! {
        biased;
        proved = prove(counted, &mut client, accepted, summary) => proved,
        signal = counted.control.signalled(true) => Err(signal_as_error(signal, "", &counted.listener)),
    };
    let opened = match (proved, client.take()) {
        (Ok(proved), Some(client)) => open(counted, client, proved),
        (Ok(_), None) => return Err(SessionError::ClientGone),
        (Err(error), Some(mut client)) => {
            let (sequence, capabilities) = (client.sequence, client.capabilities);
            let worker = &counted.worker;
            connection::refuse(worker, &mut client.stream, sequence, capabilities, &error).await;
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    let (mut session, sequence) = opened?;
    session.answer.error_sequence = Some(sequence);
    match admit(&mut session, sequence).await {
        Ok(()) => Ok(session),
        Err(error) => {
            answer::farewell(&mut session, &error).await;
            Err(error)
        }
    }
}

/// Greets the client and checks its login, within the listener's time.
async fn prove(
    counted: &Counted,
    client: &mut Option<Client>,
    accepted: Accepted,
    summary: &mut SessionSummary,
) -> Result<Box<Identity>, SessionError> {
    let (worker, listener) = (&counted.worker, &counted.listener);
    let limit = listener.config.login_timeout;
    let proved = async {
        let introduced = connection::introduce(client, accepted, counted, summary).await?;
        let client = client.as_mut().ok_or(SessionError::ClientGone)?;
        let (login, greeting) = (introduced.login, &introduced.greeting);
        let host = summary.client;
        let accounts = &worker.shared.accounts;
        let account = authenticate::authenticate(client, &login, greeting, &host, accounts, listener).await?;
        let profile = introduced.profile;
        let key = key(&account.credential, client.capabilities, &profile, login.charset);
        let compression = handshake::agreed_compression(client.capabilities, login.zstd_level)
            .filter(|_| listener.config.compression);
        Ok(Box::new(Identity {
            account,
            host,
            login,
            capabilities: client.capabilities & PASSED_ON,
            key: worker.pools.of(listener, &worker.metrics).share_key(key),
            profile,
            compression,
        }))
    };
    let proved = tokio::time::timeout(limit, proved).await;
    proved.unwrap_or_else(|_| Err(proxy_header::too_late(client.is_some(), limit)))
}

/// A session without a server. Returns it with the sequence number of the packet that ends the login.
fn open(
    counted: &Counted,
    client: Client,
    identity: Box<Identity>,
) -> Result<(Box<ClientSession>, u8), SessionError> {
    let (worker, control, listener) = (&counted.worker, &counted.control, &counted.listener);
    let nowhere = worker.metrics.server(listener.cluster.name(), telemetry::OTHER);
    let traffic = Traffic::new(Arc::clone(&counted.metrics), nowhere);
    control.set_limits(listener.idle_limits());
    counted.list(None, Arc::clone(&identity.account.user.name).into(), false);
    let mut streams = Streams::new(client.stream, Stream::Detached, traffic);
    streams.up.fill(&client.unread);
    let mut session = without_server(counted, streams, identity, Binding::default());
    session.lookups = SessionLookups::new(worker, listener);
    session.answer.error_sequence = Some(client.sequence);
    client_limits::renew(&session);
    Ok((session, client.sequence))
}

/// A session before its first command, and before it has got a server connection.
pub(super) fn without_server(
    counted: &Counted,
    streams: Streams,
    identity: Box<Identity>,
    binding: Binding,
) -> Box<ClientSession> {
    let (worker, listener) = (&counted.worker, &counted.listener);
    let all_metrics = &worker.shared.split_series[worker.index];
    let metrics = all_metrics.of(listener.cluster.name(), &listener.config.name);
    let cluster = worker.pools.of(listener, &worker.metrics);
    let config = listener.cluster.config();
    let replays = config.transaction_replay && !binding.is_own();
    let replay = replays.then(|| Box::new(Replay::new(&config, &cluster.replay_memory, &metrics)));
    Box::new(ClientSession {
        control: Rc::clone(&counted.control),
        context: Context {
            worker: Rc::clone(worker),
            listener: Arc::clone(listener),
            cluster,
            metrics,
        },
        streams,
        lease: None,
        binding,
        state: Session::new(start(
            &identity.account,
            &identity.login,
            &identity.profile,
            listener,
            Rc::default(),
        )),
        own_writes: OwnWrites::default(),
        prepared: ClientStatements::default(),
        rules: SessionRules::new(worker),
        lookups: None,
        replay,
        statement: Statement::default(),
        last: LastStatement::default(),
        answer: AnswerState {
            status: StatusFlags::AUTOCOMMIT,
            error_sequence: Some(0),
            shape: Shape::new(identity.key.capabilities, identity.capabilities),
        },
        client: identity,
    })
}

/// The properties that the session's server connections share with those of others.
pub(super) fn key(
    credential: &Credential,
    client: Capabilities,
    profile: &ServerProfile,
    charset: u8,
) -> Key {
    let wanted = (client & PASSED_ON).without(OWN_AFFAIR) | ALWAYS;
    // A server without WATCHED is of no use, and servers beside it report all the same.
    let had = profile.capabilities | Capabilities::LONG_PASSWORD | WATCHED;
    Key {
        user: Arc::clone(&credential.user),
        account: credential.account,
        capabilities: wanted & had,
        collation: charset,
    }
}

/// Lets the client in once a server has let the account in, and knows its schema.
async fn admit(session: &mut ClientSession, sequence: u8) -> Result<(), SessionError> {
    session.control.mark(Waiting::Login);
    let admitted = Box::pin(admission::admit(session)).await;
    let connection = admitted.map_err(|error| not_admitted(session, error))?;
    session.answer.status = connection.opened.status;
    session.pool().give_back(connection);
    // Thousands of idle sessions keep their logins, for what comes after them.
    (
        session.client.login.auth_response,
        session.client.login.auth_plugin,
    ) = (Vec::new(), None);

    let mut ok = OkPacket {
        status: session.answer.status,
        ..OkPacket::default()
    };
    // Servers tell clients that track their session the schema it begins with.
    if session.client.capabilities.contains(Capabilities::SESSION_TRACK)
        && let Some(schema) = session.state.carried().schema()
    {
        Change::Schema(schema).encode(&mut ok.session_state);
        ok.status.insert(StatusFlags::SESSION_STATE_CHANGED);
    }
    answer::say_ok(session, ok, sequence).await?;
    // Compression begins after the OK.
    let client = std::mem::replace(&mut session.streams.client, Stream::Detached);
    let unread = session.streams.up.take_unseen();
    let compression = session.client.compression;
    (session.streams.client, session.streams.up) =
        handshake::compressed(client, compression, Toward::Client, &unread)
            .map_err(SessionError::ClientFailed)?;
    Ok(())
}

/// Refusals of a login that are about the client or its account, and not about how the gateway logs in for
/// it: a character set that no client may have, a password that must be changed, an account that is locked,
/// for ever or for a while.
const OF_THE_CLIENT: [u16; 5] = [1231, 1862, 3118, 3955, 4151];

/// The error for a client whose account the server does not take. If only servers know the account, its
/// password has changed. Words about the account are the server's.
fn not_admitted(session: &ClientSession, error: SessionError) -> SessionError {
    let passed =
        session.client.account.credential.account != 0 && session.context.listener.cluster.passes_accounts();
    match error {
        SessionError::NoServer(refused) if passed && lease::is_denied(&refused) => {
            authenticate::access_denied(
                session.client.account.user.name.as_bytes(),
                &session.client.host,
                true,
            )
        }
        SessionError::NoServer(LeaseError::Refused { server, packet })
            if OF_THE_CLIENT.contains(&packet.code) =>
        {
            SessionError::NotAdmitted { server, packet }
        }
        // A schema that is not there, or not for this account.
        SessionError::StateRefused { server, packet } if packet.sql_state.starts_with(b"42") => {
            SessionError::NotAdmitted { server, packet }
        }
        _ => error,
    }
}

/// Serves COM_CHANGE_USER: another account, and nothing of the session before.
pub(crate) async fn change_user(session: &mut ClientSession, head: CommandHead) -> Result<(), SessionError> {
    if !change_user_packet_fits(head.payload_len) {
        session.answer.error_sequence = Some(1);
        return Err(SessionError::PacketTooLong(head.payload_len));
    }
    if session.binding.is_own() {
        return own_connection::change_user(session).await;
    }
    session.binding.unbind();
    session.last.turn = session.last.turn.wrapping_add(1);
    session.prepared.with_figures = None;
    if session.lease.is_some() {
        lease::abandon(session);
    }
    session.control.mark(Waiting::Login);
    session
        .streams
        .begin_command()
        .map_err(|broken| session.broken(broken))?;
    let unread = session.streams.up.take_unseen();
    let is_mariadb = session.dialect().is_mariadb();
    let mut sequence = 0;
    let mut side = LoginPeer::new(&mut session.streams.client, &mut sequence, unread);
    let changed = async {
        let request = side.read().await.map_err(client_read)?;
        let request = ChangeUser::decode(&request, session.client.capabilities).map_err(malformed)?;
        let charset = match request.charset {
            Some(charset) => u8::try_from(charset).map_err(|_| SessionError::UnknownCollation(charset))?,
            None => session.client.login.charset,
        };
        // The accounts of today count, not those of when the session came.
        let (accounts, listener) = (&session.context.worker.shared.accounts, &session.context.listener);
        let present = is_mariadb.then_some(&session.client.account.user);
        let account = authenticate::reauthenticate(
            &mut side,
            &request,
            (&session.client.host, present),
            accounts,
            listener,
        )
        .await?;
        Ok((request, charset, account))
    };
    let changed = tokio::select! {
        biased;
        changed = changed => changed,
        signal = session.control.signalled(false) => Err(signal_as_error(signal, "", &session.context.listener)),
    };
    session.streams.up.fill(&side.into_unread());
    session.answer.error_sequence = Some(sequence);
    match changed {
        Ok((request, charset, account)) => become_user(session, request, charset, account, sequence).await,
        Err(error) => {
            session.state.change_user_refused();
            stay_user(session, error, sequence).await
        }
    }
}

/// Takes over the account that the client has proved to be, if a server lets it in.
async fn become_user(
    session: &mut ClientSession,
    request: ChangeUser,
    charset: u8,
    account: Authenticated,
    sequence: u8,
) -> Result<(), SessionError> {
    let new_key = key(
        &account.credential,
        session.client.capabilities,
        &session.client.profile,
        charset,
    );
    let new_key = session.context.cluster.share_key(new_key);
    let old_key = std::mem::replace(&mut session.client.key, new_key);
    let old_account = std::mem::replace(&mut session.client.account, account);
    let old_schema = session.client.login.database.replace(request.database);
    let mut old_session = session.state.clone();
    let compression = session.client.compression.take();
    let admitted = admit(session, sequence).await;
    session.client.compression = compression;
    match admitted {
        Ok(()) => {
            let user = Arc::clone(&session.client.account.user.name);
            session.control.name_user(&user);
            let schema = session.client.login.database.as_deref();
            session.control.name_login(schema, Some(charset));
            let registry = &session.context.worker.shared.registry;
            registry.rename(session.control.id, user.into());
            session.rules = SessionRules::new(&session.context.worker);
            session.own_writes.say_consistency(None);
            lookup::set_level(&mut session.lookups, &session.context.listener, None);
            session.answer.begin_anew(&session.client);
            Ok(())
        }
        Err(error) => {
            (
                session.client.key,
                session.client.account,
                session.client.login.database,
            ) = (old_key, old_account, old_schema);
            old_session.change_user_refused();
            session.state = old_session;
            stay_user(session, error, sequence).await
        }
    }
}

/// MariaDB has reset the session when it refuses a COM_CHANGE_USER, and goes on with the old account. MySQL
/// closes the connection.
async fn stay_user(
    session: &mut ClientSession,
    error: SessionError,
    sequence: u8,
) -> Result<(), SessionError> {
    let is_of_password = matches!(
        error,
        SessionError::AccessDenied { .. } | SessionError::TooManyFailures
    );
    let is_last = is_of_password
        && session.control.login_failed() >= session.context.listener.config.login_failures_max;
    if is_last || error.ends_session() || !session.dialect().is_mariadb() {
        return Err(error);
    }
    session.state.rearmed();
    session.answer.status = session.state.status_at_rest();
    answer::tell(session, sequence, error).await
}

#[cfg(test)]
mod tests {
    use upstream::CredentialSecret;

    use super::*;

    #[test]
    fn sessions_are_watched_beside_a_server_that_cannot_report() {
        let credential = Credential {
            user: "app".into(),
            account: 0,
            secret: CredentialSecret::Password(config::Secret::new("")),
        };
        let profile = ServerProfile {
            server_version: b"5.6.51".to_vec(),
            capabilities: PASSED_ON.without(WATCHED).without(Capabilities::QUERY_ATTRIBUTES),
            charset: 45,
            auth_plugin: Vec::new(),
            status: StatusFlags::default(),
        };
        let of = |client| key(&credential, client, &profile, 45).capabilities;
        for client in [PASSED_ON, Capabilities::PROTOCOL_41] {
            assert!(of(client).contains(WATCHED), "{client:?}");
        }
        assert!(!of(PASSED_ON).contains(Capabilities::QUERY_ATTRIBUTES));
    }
}
