//! A server connection for the next statement, with the session's state on it.

use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::{Capabilities, StatusFlags};
use net::Stream;
use session::{KnownConnection, PinReason, PortableState};
use upstream::{
    Cluster, Connection, Credential, LeaseError, OUTDATED, Opened, Role, Server, ServerId, Topology,
};

use crate::control::Waiting;
use crate::engine::account_backoff;
use crate::engine::anywhere;
use crate::engine::ask;
use crate::engine::choose;
use crate::engine::client_session::{ClientSession, Refused, Wait};
use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency;
use crate::engine::leased::LeasedConnection;
use crate::engine::leased::Left;
use crate::engine::lookup;
use crate::engine::metrics::{AtPrimary, Ran};
use crate::engine::prepared::OnServer;
use crate::engine::rebuild::{may_do_without_schema, rebuild, rebuild_to};
use crate::engine::server::{self, Chosen, server};
use crate::engine::target::Target;
use crate::engine::transaction;
use crate::engine::wait_for_own_writes::caught_up;
use crate::error::{During, SessionError};

/// Servers that are tried for one statement before it is refused.
const TRIES_MAX: usize = 4;

/// Sees to it that the session has a connection on which the statement may run. A connection that it holds
/// already is kept: whatever pinned the session needs that one.
pub(crate) async fn lease(session: &mut ClientSession, target: &Target) -> Result<(), Refused> {
    let now = try_lease(session, target);
    resume(session, target, now, false).await
}

/// Does the rest of a lease after [`try_lease`]. `state_may_wait`: what a connection lacks of the session's
/// state may be sent with the statement; see [`LeasedConnection::lacks_state`].
pub(crate) async fn resume(
    session: &mut ClientSession,
    target: &Target,
    now: LeaseAttempt,
    state_may_wait: bool,
) -> Result<(), Refused> {
    match now {
        LeaseAttempt::Leased => Ok(()),
        LeaseAttempt::Refused => Err(bound_elsewhere(session)),
        LeaseAttempt::Moves => Box::pin(transaction::go_to_primary(session)).await,
        LeaseAttempt::Wait(chosen) => lease_or_wait(session, target, chosen, state_may_wait).await,
    }
}

/// The outcome of a lease that waits for nothing.
pub(crate) enum LeaseAttempt {
    Leased,
    /// A statement for another server in a session that is bound to its connection.
    Refused,
    /// A statement that a transaction on a replica goes on to the primary for.
    Moves,
    /// There is no connection. The server to wait for, if one has been chosen, and whether it is the primary.
    Wait(Option<(Arc<Server>, bool)>),
}

/// Leases in the usual way, which waits for nothing: the connection that is held, or an idle one that looks
/// like the session already.
pub(crate) fn try_lease(session: &mut ClientSession, target: &Target) -> LeaseAttempt {
    session.statement.was_pinned = session.lease.is_some();
    judge_anew(session);
    if session.binding.is_own() {
        return match &session.lease {
            // The server itself judges what may be done in a transaction.
            Some(leased) if !leased.is_demoted || session.state.in_transaction() => LeaseAttempt::Leased,
            _ => LeaseAttempt::Refused,
        };
    }
    if let Some(leased) = &session.lease {
        if leased.moves_on && *target != Target::Held && session.state.in_transaction() {
            return transaction::leaves(session, target);
        }
        // In a transaction the server itself judges what may be done.
        if session.state.in_transaction() || may_stay(session, leased, target) {
            session.metrics().ran(Ran::Held);
            return LeaseAttempt::Leased;
        }
        if !may_leave(session) {
            return LeaseAttempt::Refused;
        }
        give_back(session);
        session.statement.was_pinned = false;
    }
    let Some((server, is_primary)) = usual(session, target) else {
        return LeaseAttempt::Wait(None);
    };
    let want = session.state.carried();
    let own = Some(session.control.id);
    let is_equal =
        |held: &ConnectionState| Rc::ptr_eq(want, &held.carried) || session::cost(want, &held.carried) == 0;
    let oldest_login = session.control.oldest_login.get();
    let cost = |held: &ConnectionState| match held.login_began >= oldest_login && is_equal(held) {
        true => u32::from(held.last_session != own),
        false => session::CANNOT,
    };
    match session.pool().lease_at_once(&server, &session.client.key, cost) {
        Some(mut connection) => {
            connection.state.carried = Rc::clone(want);
            attach(session, connection, is_primary);
            LeaseAttempt::Leased
        }
        None => LeaseAttempt::Wait(Some((server, is_primary))),
    }
}

/// Judges anew whether the server of the connection that is held is the primary. Roles that nobody knows for
/// certain are not news: the server is out of sight for a moment, or claims to be the primary, as another
/// does.
pub(crate) fn judge_anew(session: &mut ClientSession) {
    let Some(leased) = &session.lease else { return };
    let topology = session.pool().topology();
    if leased.generation == topology.generation {
        return;
    }
    let server = &leased.connection.server;
    let is_primary = session.is_writer(&topology, server);
    let role = topology.member(server.id()).map(|member| member.role);
    let is_certain = is_primary || topology.primary.is_some() || role == Some(Role::Replica);
    let generation = topology.generation;
    drop(topology);
    let stays = session.binding.is_own() && !session.context.listener.config.shares_never();
    if let Some(leased) = &mut session.lease {
        leased.generation = generation;
        if is_certain {
            leased.is_demoted = !stays && !is_primary && (leased.is_demoted || leased.is_primary);
            leased.is_primary = is_primary;
        }
    }
}

/// Whether a statement that is in no transaction may run on the connection that is held.
fn may_stay(session: &ClientSession, leased: &LeasedConnection, target: &Target) -> bool {
    match target {
        Target::Named(name) if **name == *leased.connection.server.name() => true,
        _ if leased.is_demoted => false,
        Target::Primary { for_writing: true } => {
            leased.is_primary && session.pool().topology().refuse_writes.is_none()
        }
        _ => true,
    }
}

/// The server for a statement about which there is nothing unusual, and whether it is the primary.
fn usual(session: &ClientSession, target: &Target) -> Option<(Arc<Server>, bool)> {
    if session.statement.attempts.lost_on.is_some() {
        return None;
    }
    let topology = session.pool().topology();
    match target {
        Target::Primary { .. } if topology.refuse_writes.is_none() => usual_primary(session, &topology),
        Target::Replica => {
            let freshness = consistency::known(session)?;
            if topology.members.len() == 1 {
                session.note_at_primary(AtPrimary::NoReplica);
                return usual_primary(session, &topology);
            }
            let covers = |server: &Server| freshness.covered_by(server);
            let server = choose::replica(session, &topology, &[], None, covers, false)?;
            let is_primary = session.is_writer(&topology, &server);
            (is_primary || !consistency::is_galera(session)).then_some((server, is_primary))
        }
        Target::Anywhere => {
            let at_hand = anywhere::at_hand(session, &topology, &[]);
            at_hand.filter(|(_, is_primary)| *is_primary || !consistency::is_galera(session))
        }
        Target::Primary { .. } | Target::Group { .. } | Target::Named(_) | Target::Held => None,
    }
}

fn usual_primary(session: &ClientSession, topology: &Topology) -> Option<(Arc<Server>, bool)> {
    let primary = &session.writer(topology)?.server;
    let is_ready = primary.takes_statements() && session.has_own_writes(primary);
    is_ready.then(|| (Arc::clone(primary), true))
}

/// Whether all that the session holds are answers that it may ask for: rather lose those than refuse a
/// statement.
fn may_leave(session: &ClientSession) -> bool {
    let mut pins = session.state.pins().iter();
    !session.binding.is_for_good() && pins.all(|pin| pin.reason.ends_with_next_statement())
}

/// Whether what binds a session to its connection is over with the transaction that is open, or with the next
/// statement.
pub(crate) fn ends_with_transaction(reason: PinReason) -> bool {
    matches!(reason, PinReason::Transaction | PinReason::Unsettled) || reason.ends_with_next_statement()
}

/// Whether something of the session is on its connection that is lost with it.
pub(crate) fn holds_state(session: &ClientSession) -> bool {
    let is_lost =
        |reason: PinReason| !reason.ends_with_next_statement() && reason != PinReason::SessionPooling;
    session.binding.is_for_good() || session.state.pins().iter().any(|pin| is_lost(pin.reason))
}

/// Whether the session holds a connection to a replica for answers alone: a connection that is kept for
/// longer has to take writes.
pub(crate) fn may_leave_replica(session: &ClientSession) -> bool {
    let is_replica = session.lease.as_ref().is_some_and(|leased| !leased.is_primary);
    is_replica && !session.state.in_transaction() && may_leave(session)
}

pub(crate) fn is_demoted(session: &ClientSession) -> bool {
    session.lease.as_ref().is_some_and(|leased| leased.is_demoted)
}

/// Leases in the way that may wait: for freshness, for a primary, in line, for a new connection, for its
/// state. `state_may_wait` as in [`resume`].
pub(crate) async fn lease_or_wait(
    session: &mut ClientSession,
    target: &Target,
    mut chosen: Option<(Arc<Server>, bool)>,
    state_may_wait: bool,
) -> Result<(), Refused> {
    session.control.mark(Waiting::Seat);
    let mut tried: Vec<ServerId> = session.statement.attempts.lost_on.into_iter().collect();
    let (mut was_full, mut was_gone) = (false, false);
    loop {
        was_gone |= session
            .statement
            .attempts
            .lost_on
            .is_some_and(|lost| !takes_statements(session, lost));
        let (server, is_primary) = match chosen.take() {
            Some(chosen) => chosen,
            // Boxed: a wait in line has no use for it.
            None => match Box::pin(server(session, target, &tried)).await? {
                Chosen::Server(server, is_primary) => (server, is_primary),
                Chosen::Connection(connection) => {
                    attach(session, connection, false);
                    return Ok(());
                }
            },
        };
        session.control.mark_if_new(Waiting::Seat);
        let catches_up = is_primary && consistency::must_catch_up(session, target, &server);
        let syncs = catches_up || !is_primary && consistency::is_galera(session);
        let is_bare = state_may_wait && !syncs;
        let lease = async {
            match is_bare {
                true => bare_connection(session, &server, Wait::InLine).await,
                false => connection(session, &server).await,
            }
        };
        let found = match target {
            Target::Replica | Target::Anywhere => server::unless_silent(&server, lease).await,
            _ => lease.await,
        };
        let leased = match found {
            Ok(connection) if catches_up => Box::pin(caught_up(session, connection)).await,
            Ok(connection) if !is_primary && consistency::is_galera(session) => {
                Box::pin(consistency::synced(session, connection)).await
            }
            leased => leased,
        };
        match leased {
            // The server was there all the time: somebody has ended the connection, and so the statement.
            Ok(connection) if session.statement.attempts.lost_on == Some(server.id()) && !was_gone => {
                session.pool().give_back(connection);
                return Err(Refused(lost_with_its_server(server.name())));
            }
            Ok(connection) if is_primary && is_replaced(session, &server) => {
                session.pool().give_back(connection);
            }
            Ok(connection) => {
                let lacks_state = is_bare && !Rc::ptr_eq(session.state.carried(), &connection.state.carried);
                attach(session, connection, is_primary);
                if let Some(leased) = &mut session.lease {
                    leased.lacks_state = lacks_state;
                }
                return Ok(());
            }
            // Another server may have room; else to ask again is to wait in line.
            Err(Refused(SessionError::NoServer(error))) if error.is_full() && !was_full => was_full = true,
            Err(Refused(error))
                if tried.len() + 1 < TRIES_MAX
                    && (may_try_another(&error)
                        || !is_primary && *target == Target::Anywhere && !error.ends_session()
                        || !is_primary && *target == Target::Replica && is_the_replicas_alone(&error)) =>
            {
                was_gone |= session.statement.attempts.lost_on == Some(server.id());
                account_backoff::note(session, &server, &error);
                tried.push(server.id());
            }
            Err(refused) => return Err(refused),
        }
    }
}

/// Whether another server may do what a replica does not: it refuses the account, or lacks what the session
/// has set, such as a schema that it has yet to learn of.
fn is_the_replicas_alone(error: &SessionError) -> bool {
    account_backoff::is_refused(error) || matches!(error, SessionError::StateRefused { .. })
}

/// Whether a server that was the primary when it was chosen is it no more: to wait for a connection may take
/// longer than a failover.
fn is_replaced(session: &ClientSession, server: &Server) -> bool {
    !session.is_writer(&session.context.listener.cluster.topology(), server)
}

fn takes_statements(session: &ClientSession, server: ServerId) -> bool {
    let topology = session.pool().topology();
    topology
        .member(server)
        .is_some_and(|member| member.server.takes_statements())
}

/// The error for a statement that was lost with its connection.
pub(crate) fn lost_with_its_server(server: &str) -> SessionError {
    SessionError::ServerGone {
        server: server.to_owned(),
        during: During::Command,
    }
}

/// The error for a held connection that has failed before the client's command was sent: such a connection
/// has logged in long ago.
pub(crate) fn lost_before(session: &ClientSession, error: SessionError) -> SessionError {
    match session.state.in_transaction() {
        true => gone(error, During::Transaction),
        false => gone(error, During::BeforeCommand),
    }
}

/// The error for a held connection that has failed once the client has the whole answer to its command.
pub(crate) fn lost_behind(session: &ClientSession, error: SessionError) -> SessionError {
    match session.state.in_transaction() {
        true => gone(error, During::IdleInTransaction),
        false => gone(error, During::Idle),
    }
}

/// The error for a conversation on a held connection that has come to nothing.
pub(crate) fn gone(error: SessionError, during: During) -> SessionError {
    match error {
        SessionError::ServerLogin { server, .. } => SessionError::ServerGone { server, during },
        other => other,
    }
}

/// A connection from the pool, with the session's state on it.
pub(crate) async fn connection(
    session: &ClientSession,
    server: &Arc<Server>,
) -> Result<Connection<ConnectionState>, Refused> {
    let mut connection = bare_connection(session, server, Wait::InLine).await?;
    if Rc::ptr_eq(session.state.carried(), &connection.state.carried) {
        return Ok(connection);
    }
    let rebuilt = Box::pin(rebuild(session, &mut connection)).await;
    match rebuilt {
        Ok(()) => Ok(connection),
        Err(Refused(error)) if may_do_without_schema(session, &error) => {
            drop(connection);
            Box::pin(without_schema(session, server)).await
        }
        Err(refused) => Err(refused),
    }
}

/// A connection in no schema with everything else that the session has set, where a server has its schema no
/// more. In somebody else's schema a statement might find tables that are not meant.
async fn without_schema(
    session: &ClientSession,
    server: &Arc<Server>,
) -> Result<Connection<ConnectionState>, Refused> {
    let want = Rc::new(session.state.carried().without_schema());
    let mut connection = fitting(session, server, &want, Wait::InLine).await?;
    rebuild_to(session, &want, &mut connection).await?;
    connection.state.lacks_schema = true;
    Ok(connection)
}

/// A connection from the pool, as it is.
pub(crate) async fn bare_connection(
    session: &ClientSession,
    server: &Arc<Server>,
    wait: Wait,
) -> Result<Connection<ConnectionState>, Refused> {
    fitting(session, server, session.state.carried(), wait).await
}

/// A connection that can be made to fit what is wanted.
async fn fitting(
    session: &ClientSession,
    server: &Arc<Server>,
    want: &Rc<PortableState>,
    wait: Wait,
) -> Result<Connection<ConnectionState>, Refused> {
    loop {
        let connection = any_connection(session, server, want, wait).await?;
        // A connection that a session has handed over in line may not be made to fit: its permit does.
        let have = &connection.state.carried;
        if Rc::ptr_eq(want, have) || session::cost(want, have) != session::CANNOT {
            return Ok(connection);
        }
    }
}

async fn any_connection(
    session: &ClientSession,
    server: &Arc<Server>,
    want: &Rc<PortableState>,
    wait: Wait,
) -> Result<Connection<ConnectionState>, Refused> {
    let refused = match lease_as(session, server, &session.client.account.credential, want, wait).await {
        Err(Refused(SessionError::NoServer(error))) if is_denied(&error) => error,
        leased => return leased,
    };
    // The servers' accounts, as they are known, may be out of date.
    let cluster = &session.context.listener.cluster;
    let used = &session.client.account.credential;
    cluster.want_accounts();
    cluster.forget_passed(&used.user, used.account);
    match &session.client.account.other_credential {
        Some(other) => Box::pin(lease_as(session, server, other, want, wait)).await,
        None => Err(Refused(SessionError::NoServer(refused))),
    }
}

/// Whether the server has refused the account, as it does where the account has another password there.
pub(crate) fn is_denied(error: &LeaseError) -> bool {
    const ER_ACCESS_DENIED_ERROR: u16 = 1045;
    matches!(error, LeaseError::Refused { packet, .. } if packet.code == ER_ACCESS_DENIED_ERROR)
}

async fn lease_as(
    session: &ClientSession,
    server: &Arc<Server>,
    credential: &Credential,
    want: &Rc<PortableState>,
    wait: Wait,
) -> Result<Connection<ConnectionState>, Refused> {
    let own = Some(session.control.id);
    // Among equals, the connection that this session had last: what its statement left is still there.
    let cost = |held: &ConnectionState| match held.cost(want, session.control.oldest_login.get()) {
        cost @ OUTDATED.. => cost,
        cost => (2 * cost + u32::from(held.last_session != own)).min(OUTDATED - 1),
    };
    let waits = wait == Wait::InLine;
    if waits {
        session.context.cluster.leavers.ask_one(session.pool(), server);
    }
    let line = waits.then(|| session.streams.client.closed());
    let leased = session
        .pool()
        .lease(server, &session.client.key, credential, cost, line);
    let leased = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(Refused(session.signalled(signal))),
        leased = leased => leased,
    };
    let mut connection = leased.map_err(|error| Refused(error.into()))?;
    // The pool may have sent it a ping, behind which ROW_COUNT() is 0.
    connection.state.is_untouched = false;
    Ok(connection)
}

/// The state of a connection that was just opened.
pub(crate) fn held(metrics: &telemetry::Worker, cluster: &Cluster, opened: &Opened) -> ConnectionState {
    let multi_statements = opened.key.capabilities.contains(Capabilities::MULTI_STATEMENTS);
    ConnectionState {
        carried: Rc::new(PortableState::fresh(None, multi_statements)),
        baseline: Rc::new(opened.baseline.iter().cloned().collect()),
        statements: OnServer::new(cluster.config().pool.prepared_max),
        last_session: None,
        last_turn: 0,
        is_untouched: false,
        has_count: false,
        known: KnownConnection::FRESH,
        syncs_reads: false,
        lacks_schema: false,
        login_began: opened.login_began,
        metrics: metrics.server(cluster.name(), opened.server.name()),
    }
}

/// The facts that the leased connection still tells of the session's last statement.
pub(crate) fn left(session: &ClientSession) -> Left {
    let leased = session.lease.as_ref();
    let leased = leased.filter(|_| lookup::found_rows(session).is_none());
    leased.map_or(Left::default(), |leased| leased.left)
}

/// Hands the connection to the session: its stream goes into the session's streams.
pub(crate) fn attach(
    session: &mut ClientSession,
    mut connection: Connection<ConnectionState>,
    is_primary: bool,
) {
    debug_assert!(session.lease.is_none());
    session.control.record.note_leased();
    session.streams.server = std::mem::replace(&mut connection.stream, Stream::Detached);
    session.streams.traffic.server = Arc::clone(&connection.state.metrics);
    session.control.attach_connection(
        session.context.listener.key(&connection.server),
        connection.thread_id,
    );
    session.last.server = Some(Arc::clone(&connection.server));
    session
        .metrics()
        .ran(if is_primary { Ran::Primary } else { Ran::Replica });
    let state = &connection.state;
    session.state.note_connection(state.known);
    let is_own = state.last_session == Some(session.control.id) && state.last_turn == session.last.turn;
    let left = Left {
        is_own,
        is_untouched: is_own && state.is_untouched,
        has_count: is_own && state.has_count,
    };
    session.lease = Some(LeasedConnection::new(connection, is_primary, left));
}

/// Takes the connection out of the session's hands.
pub(crate) fn detach(session: &mut ClientSession) -> Option<Connection<ConnectionState>> {
    let mut leased = session.lease.take()?;
    if session.binding.uncount() {
        session.metrics().pinned.dec();
    }
    leased.connection.stream = std::mem::replace(&mut session.streams.server, Stream::Detached);
    let state = &mut leased.connection.state;
    let left = leased.left;
    state.last_session = left.is_own.then_some(session.control.id);
    (state.last_turn, state.is_untouched, state.has_count) =
        (session.last.turn, left.is_untouched, left.has_count);
    session.control.detach();
    Some(leased.connection)
}

/// Gives the connection back to the pool, for the next session.
pub(crate) fn give_back(session: &mut ClientSession) {
    debug_assert!(!session.streams.down.is_pending());
    debug_assert!(!session.binding.is_own());
    if session.binding.is_own() {
        // The client has logged in on the connection by itself: it is nobody else's, whatever has led here.
        return;
    }
    let is_silent = session.streams.down.is_empty();
    if let Some(mut connection) = detach(session) {
        if !is_silent {
            session.streams.down.clear();
            return close_as_broken(connection);
        }
        connection.state.known = session.state.connection_left(connection.state.known);
        consistency::leave(&mut connection.state, session.state.leave());
        connection.state.statements.let_go();
        if connection.state.lacks_schema || session.control.is_aimed_at() {
            return;
        }
        session.pool().give_back(connection);
    }
}

/// Closes a connection whose server has said something behind its answer. The next session would get that for
/// an answer.
fn close_as_broken(connection: Connection<ConnectionState>) {
    let server = connection.server.name();
    tracing::warn!(server, "server said something unasked: connection closed");
    connection.close_as_broken();
}

/// Gives back a connection on which nothing was done after all, unless the session is bound to it.
pub(crate) fn release_unused(session: &mut ClientSession) {
    let keeps = session.binding.is_for_good() || session.state.is_pinned();
    if !keeps {
        give_back(session);
    }
}

/// Asks something on the connection that the session holds. The session waits for its server until the
/// answers are there, and then again for what it was waiting for.
pub(crate) async fn ask_on_lease(
    session: &mut ClientSession,
    commands: &[Vec<u8>],
) -> Result<Vec<ask::Reply>, Refused> {
    ask_on_lease_within(session, commands, ask::ANSWER_MAX).await
}

/// Asks something on the connection that the session holds, with answers of up to `answer_max` bytes each.
pub(crate) async fn ask_on_lease_within(
    session: &mut ClientSession,
    commands: &[Vec<u8>],
    answer_max: usize,
) -> Result<Vec<ask::Reply>, Refused> {
    let capabilities = session.client.key.capabilities;
    if let Some(leased) = &mut session.lease {
        leased.left.is_untouched = false;
    }
    let waited = session.control.wait_so_far();
    session.control.mark(Waiting::Server);
    let asking = ask::ask_within(&mut session.streams.server, capabilities, commands, answer_max);
    let asked = tokio::select! {
        biased;
        signal = session.control.signalled(false) => Err(signal),
        asked = asking => Ok(asked),
    };
    session.control.goes_on_waiting(waited);
    match asked {
        Ok(asked) => asked.map_err(|broken| session.not_answered(ask::cause(broken))),
        Err(signal) => Err(Refused(session.signalled(signal))),
    }
}

/// Makes the leased connection what it was when it was opened, and gives it back.
pub(crate) async fn give_back_as_new(session: &mut ClientSession) -> Result<(), String> {
    let limit = session.context.listener.cluster.config().login_timeout;
    let is_silent = session.streams.down.is_empty();
    let Some(mut connection) = detach(session) else {
        return Ok(());
    };
    if !is_silent {
        session.streams.down.clear();
        close_as_broken(connection);
        return Ok(());
    }
    // The `KILL` would hit the statement of the next session.
    if connection.state.lacks_schema || session.control.is_aimed_at() {
        return Ok(());
    }
    connection.reset(limit).await?;
    // The schema is all that a reset keeps.
    let schema = session.state.carried().schema();
    let multi_statements = session.state.carried().multi_statements();
    connection.state.carried = Rc::new(PortableState::fresh(schema, multi_statements));
    connection.state.statements.clear();
    connection.state.last_session = None;
    connection.state.known = KnownConnection::UNKNOWN;
    connection.state.syncs_reads = false;
    session.pool().give_back(connection);
    Ok(())
}

/// Closes the connection: what is on it is not known, or it is lost.
pub(crate) fn abandon(session: &mut ClientSession) {
    session.streams.down.clear();
    drop(detach(session));
    session.state.lost();
    session.answer.status.remove(StatusFlags::IN_TRANS);
}

/// Drops the connection of a session whose last statement left nothing there: FOUND_ROWS() is what it was.
pub(crate) fn abandon_unused(session: &mut ClientSession) {
    let found_rows = session.state.found_rows();
    abandon(session);
    if let Some(rows) = found_rows {
        session.state.learn_found_rows(rows);
    }
}

/// Whether another server may do what this one did not: nothing of the statement was sent yet.
pub(crate) fn may_try_another(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::NoServer(LeaseError::ConnectFailed { .. } | LeaseError::NoServerAvailable { .. })
            | SessionError::ServerLogin { .. }
            | SessionError::ServerRefused { .. }
    )
}

/// The refusal of a statement for another server in a session that is bound to its connection.
pub(crate) fn bound_elsewhere(session: &ClientSession) -> Refused {
    let reasons: Vec<_> = match session.binding.is_own() {
        true => vec!["sharing = never"],
        false => session.shown_pins().map(|pin| pin.reason.label()).collect(),
    };
    let (server, reasons) = (session.server_name().to_owned(), reasons.join(", "));
    if is_demoted(session) {
        return Refused(SessionError::Demoted { server, reasons });
    }
    match &session.pool().topology().refuse_writes {
        Some(reason) => Refused(SessionError::WritesRefused(reason.clone())),
        None => Refused(SessionError::PinnedToReplica { server, reasons }),
    }
}
