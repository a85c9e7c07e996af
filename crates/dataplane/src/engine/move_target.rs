//! A connection to another server, for a session that leaves its own: why it goes there, why it stays, and
//! how it goes on there.

use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::Capabilities;
use net::Peer;
use routing::rebalance::Factor;
use session::PinReason;
use upstream::{Connection, ForSession, Key, LeaseError, Permit, Status, Ticket};

use crate::control::Signal;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::do_without::credentials;
use crate::engine::login::OWN_AFFAIR;
use crate::engine::metrics::Moved;
use crate::engine::{account_backoff, ask, lease, rebuild};
use crate::error::SessionError;
use crate::frontend::handshake::PASSED_ON;

/// Capabilities that say nothing of packets or of what a statement does: servers heed none of these in a
/// login any more.
const OF_NO_EFFECT: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::ODBC)
    .with(Capabilities::IGNORE_SIGPIPE)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::RESERVED)
    .with(Capabilities::SECURE_CONNECTION);

/// Why a session stays where it is.
pub(super) struct Stays {
    pub(super) reason: PinReason,
    pub(super) cause: String,
    /// A question on the session's own connection did not come to its end: that connection is of no use any
    /// more.
    pub(super) own_is_broken: bool,
    /// The other server says that it ends, or takes nobody.
    pub(super) server_leaves: bool,
}

impl Stays {
    pub(super) fn new(reason: PinReason, cause: impl ToString) -> Self {
        Self {
            reason,
            cause: cause.to_string(),
            own_is_broken: false,
            server_leaves: false,
        }
    }

    /// The other server cannot be made what the session's own is.
    pub(super) fn incompatible(cause: impl ToString) -> Self {
        Self::new(PinReason::Incompatible, cause)
    }

    /// The reason for a server that has refused the account, or cannot be used.
    pub(super) fn of_login(error: &LeaseError) -> Self {
        const ER_SERVER_SHUTDOWN: u16 = 1053;
        const ER_SERVER_OFFLINE_MODE: u16 = 3032;
        let code = match error {
            LeaseError::Refused { packet, .. } => packet.code,
            _ => 0,
        };
        Self {
            server_leaves: [ER_SERVER_SHUTDOWN, ER_SERVER_OFFLINE_MODE].contains(&code),
            ..Self::new(PinReason::LoginRefused, error)
        }
    }

    pub(super) fn of_own_connection(Refused(error): Refused) -> Self {
        Self {
            // An error is an answer.
            own_is_broken: !matches!(error, SessionError::StateRefused { .. }),
            ..Self::new(PinReason::NoServer, error)
        }
    }
}

/// The reason for something that was asked of the other server, and came to nothing.
impl From<Refused> for Stays {
    fn from(Refused(error): Refused) -> Self {
        let reason = match &error {
            SessionError::StateRefused { .. } => PinReason::Incompatible,
            SessionError::NotCaughtUp { .. } => PinReason::Behind,
            _ => PinReason::NoServer,
        };
        Self::new(reason, error)
    }
}

/// Why a session goes to another server.
#[derive(Clone, Copy)]
pub(super) enum Cause {
    /// The session's server takes no sessions any more.
    ServerLeaves,
    /// The session's server has too many sessions.
    Balance(Ticket),
    /// Other servers have the label of the session's listener.
    Label,
}

impl Cause {
    /// `None` where the cause that was there a moment ago is gone: others have taken the last ticket.
    pub(super) fn of(session: &ClientSession) -> Option<Self> {
        let server = &session.lease.as_ref()?.connection.server;
        let is_raised = || session.control.due(session.is_free()).is_some();
        if server.is_draining() || server.state().status == Status::Removed || is_raised() {
            return Some(Self::ServerLeaves);
        }
        if session.is_elsewhere(server) {
            let cluster = &session.context.listener.cluster;
            return cluster.take_label_turn().then_some(Self::Label);
        }
        server.take_ticket().map(Self::Balance)
    }

    /// Whether the move would take the session from servers with its listener's label to one without.
    pub(super) fn undoes_label(self, session: &ClientSession) -> bool {
        let (Self::Balance(ticket), Some(leased)) = (self, &session.lease) else {
            return false;
        };
        // A session that has to leave its server leaves it.
        if matches!(ticket.factor, Factor::Health | Factor::Memory) {
            return false;
        }
        let listener = &session.context.listener;
        let label = listener.config.label.as_deref();
        label.is_some_and(|label| {
            leased.connection.server.has_label(label) && !listener.cluster.bears(ticket.to, label)
        })
    }

    pub(super) fn counted(self) -> Moved {
        match self {
            Self::ServerLeaves => Moved::Left,
            Self::Balance(ticket) => Moved::For(ticket.factor),
            Self::Label => Moved::Label,
        }
    }
}

/// Room on one of the other servers.
pub(super) fn permit(session: &ClientSession, cause: Cause) -> Option<Permit> {
    let present = session.lease.as_ref()?.connection.server.id();
    let listener = &session.context.listener;
    let cluster = &listener.cluster;
    match cause {
        Cause::ServerLeaves => cluster.permit_beside(&[present]),
        Cause::Label => cluster.permit_by_label(listener.config.label.as_deref()?),
        Cause::Balance(ticket) => cluster.permit_on(ticket.to),
    }
}

/// A connection for the session alone, by this permit. `permit` is asked for each credential that there is.
pub(super) async fn open(
    session: &ClientSession,
    permit: impl Fn() -> Option<Permit>,
) -> Result<Connection<ConnectionState>, Stays> {
    let mut last = Stays::new(PinReason::NoCredentials, "no password is known for its account");
    for credential in credentials(session) {
        let Some(permit) = permit() else {
            return Err(Stays::new(PinReason::NoServer, "no other server has room"));
        };
        let server = Arc::clone(permit.server());
        if session.pool().is_denied(&server, &credential) {
            // Servers count failures, and some lock the account then.
            let cause = format!("server {} has refused the account lately", server.name());
            last = Stays::new(PinReason::LoginRefused, cause);
            continue;
        }
        let key = Rc::new(Key {
            user: Arc::clone(&credential.user),
            account: credential.account,
            capabilities: session.client.key.capabilities.without(OWN_AFFAIR),
            collation: session.client.key.collation,
        });
        let local = session.streams.client.local().unwrap_or(Peer::Unix);
        let client = ForSession {
            client: &session.client.host,
            local: &local,
            attributes: session.client.login.attributes.as_deref(),
            token: None,
        };
        let opening = session.pool().open_for(permit, (&key, &credential), client);
        let opened = tokio::select! {
            biased;
            signal = session.control.signalled(false) => {
                return Err(Refused(session.signalled(signal)).into());
            }
            opened = opening => opened,
        };
        match opened {
            Ok(mut connection) => {
                // The login was the same. Differences that there are all the same are found and set later.
                connection.state.baseline = Rc::clone(session.state.baseline());
                return fits(session, connection);
            }
            Err(error @ (LeaseError::Refused { .. } | LeaseError::Unusable { .. })) => {
                account_backoff::note_as(session, &server, &credential, &error);
                last = Stays::of_login(&error);
            }
            Err(error) => return Err(Stays::new(PinReason::NoServer, error)),
        }
    }
    Err(last)
}

/// Checks that packets look the same on both connections, and that statements are read the same way.
pub(super) fn fits(
    session: &ClientSession,
    connection: Connection<ConnectionState>,
) -> Result<Connection<ConnectionState>, Stays> {
    let (here, there) = (session.client.key.capabilities, connection.capabilities);
    let of_effect = |all: Capabilities| (all & PASSED_ON).without(OWN_AFFAIR).without(OF_NO_EFFECT);
    if of_effect(here) != of_effect(there) {
        let what = format!("other capabilities: {here:?} here, {there:?} there");
        return Err(Stays::incompatible(what));
    }
    match connection.is_mariadb() == session.dialect().is_mariadb() {
        true => Ok(connection),
        false => Err(Stays::incompatible("MariaDB on one side, MySQL on the other")),
    }
}

/// Checks that the other server has refused none of these.
pub(super) fn is_done(connection: &Connection<ConnectionState>, replies: &[ask::Reply]) -> Result<(), Stays> {
    let mut errors = replies
        .iter()
        .filter_map(|reply| reply.error(connection.capabilities));
    match errors.next() {
        None => Ok(()),
        Some(packet) => Err(Stays::incompatible(rebuild::state_refused(
            &connection.server,
            packet,
        ))),
    }
}

/// Has the session, which has left its own connection, go on on this one. `has`: the session's values there,
/// where they are known.
pub(super) fn go_on(
    session: &mut ClientSession,
    mut connection: Connection<ConnectionState>,
    has: Option<Vec<Option<Vec<u8>>>>,
) {
    // The lookups go by what the account may read, which the old server has said.
    session.lookups = None;
    let has = has.map(|has| session.context.cluster.share_values(has));
    session.binding.remember(has);
    connection.state.carried = Rc::clone(session.state.carried());
    session.client.key = Rc::new(Key {
        capabilities: connection.capabilities & PASSED_ON,
        ..Key::clone(&session.client.key)
    });
    session.own_writes.note_on(connection.server.id());
    let is_primary = session.is_writer(&session.pool().topology(), &connection.server);
    let (server, thread_id) = (Arc::clone(&connection.server), connection.thread_id);
    lease::attach(session, connection, is_primary);
    session.binding.moved(&session.streams.traffic.server);
    let server_connection = (session.context.listener.key(&server), thread_id);
    let registry = &session.context.worker.shared.registry;
    registry.set_server_connection(session.control.id, server_connection);
    if server.state().status == Status::Removed {
        session.control.raise(Signal::Drain);
    }
}
