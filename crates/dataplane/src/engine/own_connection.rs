//! Sessions of mode `session` of which something has to be known, and those of mode `split` that never share
//! connections. Both are served as other sessions of mode `split` are, on a server connection of their own,
//! on which their clients have logged in by themselves. With `moves`, a connection on another server may take
//! its place (`moving`).

use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::Login;
use net::{Peer, Stream};
use session::Baseline;
use upstream::{Adopted, Credential, CredentialSecret, Key, Permit, ServerProfile};

use crate::answer::log_in_anew;
use crate::control::Waiting;
use crate::engine::answer;
use crate::engine::binding::Binding;
use crate::engine::client_session::{ClientSession, Context};
use crate::engine::identity::Identity;
use crate::engine::lease;
use crate::engine::login::{key, without_server};
use crate::engine::lookup::session_lookups::SessionLookups;
use crate::engine::rules::session_rules::SessionRules;
use crate::engine::start::start_of;
use crate::engine::{lost_server, moving};
use crate::error::{During, SessionError};
use crate::frontend::accounts::is_an_alias;
use crate::frontend::authenticate::Authenticated;
use crate::frontend::counted::Counted;
use crate::frontend::handshake::{Agreed, Changed, LoggedIn};
use crate::frontend::users::User;
use crate::relay::Streams;
use crate::session_end::signal_as_error;

/// The introduction of a client.
pub(crate) struct Introduction {
    /// The login, without what proved it.
    pub(crate) login: Login,
    /// The profile that the client was greeted with.
    pub(crate) profile: Arc<ServerProfile>,
    /// The number that [`rights_of_login`](crate::lookups::Lookups::rights_of_login) gave before the login.
    pub(crate) rights: Option<u64>,
}

/// A client that a server has let in.
pub(crate) struct Arrived {
    pub(crate) streams: Streams,
    pub(crate) peer: Peer,
    pub(crate) introduction: Box<Introduction>,
    pub(crate) logged_in: LoggedIn,
}

/// A session on the connection on which its client has logged in. When this returns an error, the client has
/// been told.
pub(crate) async fn adopt(counted: &Counted, arrived: Arrived) -> Result<Box<ClientSession>, SessionError> {
    let (worker, listener) = (&counted.worker, &counted.listener);
    let Arrived {
        mut streams,
        introduction,
        logged_in,
        peer,
    } = arrived;
    let Introduction {
        login,
        profile,
        rights,
    } = *introduction;
    let moves_by_session_states = logged_in.moves_by_session_states(listener);
    let stream = std::mem::replace(&mut streams.server, Stream::Detached);
    let client = logged_in.agreed.client;
    let server = Adopted {
        greeting: logged_in.greeting,
        capabilities: logged_in.agreed.server,
        status: logged_in.status,
        login_began: logged_in.began,
    };
    let name = String::from_utf8_lossy(&login.user);
    let knows_name = matches!(name, std::borrow::Cow::Borrowed(_));
    let account = account(&name)?;
    let mut key = key(&account.credential, client, &profile, login.charset);
    key.capabilities = server.capabilities;
    let key = worker.pools.of(listener, &worker.metrics).share_key(key);
    let identity = Box::new(Identity {
        account,
        host: peer,
        login,
        capabilities: client,
        key,
        profile,
        compression: None,
    });
    let binding = Binding::own(&streams.traffic.server);
    let mut session = without_server(counted, streams, identity, binding);
    session.answer.status = server.status;
    let taken_in = match become_configured(&mut session.client, &session.context) {
        Ok(()) => take_in(&mut session, stream, server, logged_in.lease.permit).await,
        Err(error) => Err(error),
    };
    match taken_in {
        // The server may report something, but nobody needs that: rules see texts.
        Ok(false) => {
            session.binding.is_not_watched();
            if moves_by_session_states && knows_name {
                session.binding.may_move(None);
            }
        }
        Ok(true) if listener.config.shares_never() => {}
        Ok(_) if knows_name => {
            session.lookups = SessionLookups::on_own_connection(worker, listener, rights, session.control.id);
            if listener.config.moves {
                let accounts = &worker.shared.accounts;
                let name = &session.client.login.user;
                let shown = accounts.shown(name, &logged_in.proof, &listener.cluster);
                session.binding.may_move(shown);
                moving::show_what_is_missing(&mut session);
                if let Err(error) = Box::pin(lost_server::remember(&mut session)).await {
                    answer::farewell(&mut session, &error).await;
                    return Err(error);
                }
            }
        }
        Ok(_) => {}
        Err(error) => {
            answer::farewell(&mut session, &error).await;
            return Err(error);
        }
    }
    Ok(session)
}

/// In mode `split` the configuration may say something of the account, although its server has let it in.
///
/// # Errors
/// The account has as many sessions as it may, or its server takes its name for another one: rules and limits
/// would not find it.
fn become_configured(client: &mut Identity, context: &Context) -> Result<(), SessionError> {
    if !context.listener.config.shares_never() {
        return Ok(());
    }
    let user = &client.account.user;
    let name = user.name.as_bytes();
    if is_an_alias(name, &context.listener.cluster) {
        return Err(SessionError::AccessDenied {
            user: user.name.to_string(),
            host: client.host.to_string(),
            with_password: true,
        });
    }
    if let Some(configured) = context.worker.shared.accounts.configured(name) {
        let begun = configured.begin_session();
        client.account.user = begun.map_err(|limit| SessionError::TooManyUserSessions {
            user: user.name.to_string(),
            limit,
        })?;
    }
    Ok(())
}

/// An account of which a server knows all and the gateway nothing.
fn account(name: &str) -> Result<Authenticated, SessionError> {
    let user = Arc::new(User::passing(name, None));
    let credential = Credential {
        user: Arc::clone(&user.name),
        account: 0,
        secret: CredentialSecret::Password(config::Secret::new("")),
    };
    let user = user.begin_session().map_err(|_| SessionError::TooManySessions)?;
    Ok(Authenticated {
        user,
        credential,
        other_credential: None,
    })
}

/// Takes in the connection and its server. Returns whether the server reports what the session does.
async fn take_in(
    session: &mut ClientSession,
    stream: Stream,
    server: Adopted,
    permit: Permit,
) -> Result<bool, SessionError> {
    if !session.streams.down.is_empty() {
        return Err(SessionError::ServerGone {
            server: permit.server().name().to_owned(),
            during: During::Login,
        });
    }
    let pool = Rc::clone(session.pool());
    let (key, credential) = (
        Rc::clone(&session.client.key),
        session.client.account.credential.clone(),
    );
    let adopting = Box::pin(pool.adopt(stream, (&key, &credential), server, permit));
    let adopted = tokio::select! {
        biased;
        adopted = adopting => adopted,
        signal = session.control.signalled(true) => return Err(signal_as_error(signal, "", &session.context.listener)),
    };
    let (connection, is_watched) = adopted.map_err(SessionError::NoServer)?;
    let topology = pool.topology();
    let is_primary = session.is_writer(&topology, &connection.server);
    let baseline = Rc::clone(&connection.state.baseline);
    lease::attach(session, connection, is_primary);
    let listener = &session.context.listener;
    let is_of_primary = listener.config.shares_never() && listener.cluster.config().uses_roles;
    if let Some(leased) = &mut session.lease {
        // Another server may have become the primary while the client waited and logged in.
        leased.is_demoted = is_of_primary && !is_primary && topology.primary().is_some();
    }
    let start = start_of(session, baseline);
    session.state.change_user(start);
    session.state.begins(session.context.worker.now_ms());
    Ok(is_watched)
}

/// Notes that COM_RESET_CONNECTION was executed.
pub(super) async fn was_reset(session: &mut ClientSession) -> Result<(), SessionError> {
    let baseline = watch_again(session).await?;
    session.state.reset_on_own_connection(baseline);
    session.state.rearmed();
    lost_server::remember(session).await
}

/// Serves COM_CHANGE_USER: the server checks the password.
pub(super) async fn change_user(session: &mut ClientSession) -> Result<(), SessionError> {
    session.control.mark(Waiting::Login);
    session.binding.unbind();
    session.last.turn = session.last.turn.wrapping_add(1);
    session
        .streams
        .begin_command()
        .map_err(|broken| session.broken(broken))?;
    let Some(leased) = &session.lease else {
        return Err(lease::lost_with_its_server(session.server_name()));
    };
    let server = Arc::clone(&leased.connection.server);
    let agreed = Agreed {
        client: session.client.capabilities,
        server: session.client.key.capabilities,
    };
    let (changed, sequence) = log_in_anew(
        &mut session.streams,
        &session.context.listener,
        agreed,
        (&server, &session.control),
        (
            &session.context.worker.shared.accounts.guesses,
            &session.client.host,
        ),
    )
    .await;
    session.answer.error_sequence = Some(sequence);
    // The session's lookups were those of the user that it began with.
    session.lookups = None;
    match changed? {
        Changed::To(request, status, proof) => {
            let accounts = &session.context.worker.shared.accounts;
            let cluster = &session.context.listener.cluster;
            let shown = accounts.shown(&request.user, &proof, cluster);
            session.binding.has_shown(shown);
            session.client.account = account(&String::from_utf8_lossy(&request.user))?;
            become_configured(&mut session.client, &session.context)?;
            session.rules = SessionRules::new(&session.context.worker);
            let user = Arc::clone(&session.client.account.user.name);
            session.control.name_user(&user);
            // The low byte of a collation above 255 is noted, as at the login.
            let collation = request.charset.map(|charset| charset as u8);
            session.control.name_login(Some(&request.database), collation);
            let registry = &session.context.worker.shared.registry;
            registry.rename(session.control.id, request.user.into());
            session.client.login.database = Some(request.database);
            if let Some(collation) = request.charset.and_then(|charset| u8::try_from(charset).ok()) {
                session.client.key = Rc::new(Key {
                    collation,
                    ..Key::clone(&session.client.key)
                });
            }
            session.answer.status = status;
            let baseline = watch_again(session).await?;
            let start = start_of(session, baseline);
            session.state.change_user_on_own_connection(start);
            session.state.begins(session.context.worker.now_ms());
            lost_server::remember(session).await?;
        }
        // The client has the server's error, and the server decides whether the connection goes on. The facts
        // that are known of the session are not needed any more.
        Changed::Refused { is_denied, .. } => {
            if is_denied
                && session.control.login_failed() >= session.context.listener.config.login_failures_max
            {
                session.answer.error_sequence = None;
                return Err(SessionError::LoginsRefused);
            }
            if let Some(leased) = &mut session.lease {
                leased.forget_statements();
            }
            session.state.change_user_refused();
            session.state.rearmed();
            // The server reports nothing any more.
            session.binding.stays();
        }
    }
    Ok(())
}

/// Has the server report again, and asks for the values of variables: after a reset or a login within the
/// session the server reports nothing, and variables have other values.
async fn watch_again(session: &mut ClientSession) -> Result<Rc<Baseline>, SessionError> {
    let limit = session.context.listener.cluster.config().login_timeout;
    let is_unwatched = session.binding.is_unwatched();
    let Some(leased) = &mut session.lease else {
        return Err(lease::lost_with_its_server(session.server_name()));
    };
    leased.forget_statements();
    let connection = &mut leased.connection;
    if is_unwatched {
        return Ok(Rc::clone(&connection.state.baseline));
    }
    std::mem::swap(&mut connection.stream, &mut session.streams.server);
    let watching = connection.watch(limit);
    let watched = tokio::select! {
        biased;
        watched = watching => Ok(watched),
        signal = session.control.signalled(false) => Err(signal),
    };
    std::mem::swap(&mut connection.stream, &mut session.streams.server);
    let watched = watched
        .map_err(|signal| signal_as_error(signal, connection.server.name(), &session.context.listener))?;
    let baseline = watched.map_err(|cause| SessionError::ServerLogin {
        server: connection.server.name().to_owned(),
        cause,
    })?;
    let baseline = Rc::new(Baseline::from_iter(baseline));
    connection.state.baseline = Rc::clone(&baseline);
    Ok(baseline)
}
