//! A session of mode `session` goes to another server, because its own drains, and its client does not
//! notice.
//!
//! That is done between two commands, while nothing holds the session where it is. A connection to the other
//! server is opened for it as its account, and made what its own is; only then its own is closed. What fails
//! before that leaves the session where it was.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use mysql_wire::Capabilities;
use session::{MovePlan, Pin, PinReason, UserVariables};
use tracing::debug;
use upstream::{Connection, Credential, Key, LeaseError, Status};

use crate::control::{MOVE_PAUSE, Signal, Waiting};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency::{self, Freshness};
use crate::engine::leased::Left;
use crate::engine::login::OWN_AFFAIR;
use crate::engine::{ask, last, lease, rebuild, wait_for_own_writes};
use crate::error::SessionError;
use crate::handshake::PASSED_ON;

/// What says nothing of packets or of what a statement does: servers heed none of these in a login any more.
const OF_NO_EFFECT: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::ODBC)
    .with(Capabilities::IGNORE_SIGPIPE)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::RESERVED)
    .with(Capabilities::SECURE_CONNECTION);

/// Why a session stays where it is.
struct Stays {
    reason: PinReason,
    cause: String,
}

impl Stays {
    fn new(reason: PinReason, cause: impl ToString) -> Self {
        let cause = cause.to_string();
        Self { reason, cause }
    }

    /// Something that was asked of a server, and came to nothing.
    fn of_question(Refused(error): Refused) -> Self {
        let reason = match &error {
            SessionError::StateRefused { .. } => PinReason::Incompatible,
            SessionError::NotCaughtUp { .. } => PinReason::Behind,
            _ => PinReason::NoServer,
        };
        Self::new(reason, error)
    }
}

/// The session goes to another server, or stays on its own for a while.
pub(crate) async fn leave(session: &mut ClientSession) {
    let began = Instant::now();
    let left = session.server_name().to_owned();
    let result = try_to_leave(session).await;
    session.control.mark_if_new(Waiting::Client);
    let (id, to) = (session.control.id, session.server_name().to_owned());
    match result {
        Ok(()) => {
            session.series().moved.inc();
            let worker = &session.context.worker;
            worker.metrics.move_seconds.record(began.elapsed());
            debug!(session = id, from = left, to, "session moved");
        }
        Err(Stays { reason, cause }) => {
            session.series().move_failed(reason);
            let now_ms = session.context.worker.now_ms();
            let failure = Pin {
                reason,
                digest: 0,
                since_ms: now_ms,
            };
            session
                .binding
                .move_failed(failure, now_ms + MOVE_PAUSE.as_millis() as u64);
            session.control.show_pins(session.shown_pins());
            debug!(
                session = id,
                server = left,
                reason = reason.label(),
                cause,
                "session stays"
            );
        }
    }
}

/// Shows that the session will not leave its server, where that is known from the beginning.
pub(crate) fn show_what_is_missing(session: &mut ClientSession) {
    if credentials(session).is_empty() {
        let now_ms = session.context.worker.now_ms();
        let failure = Pin {
            reason: PinReason::NoCredentials,
            digest: 0,
            since_ms: now_ms,
        };
        session.binding.move_failed(failure, now_ms);
        session.control.show_pins(session.shown_pins());
    }
}

/// With what to log in for the session.
fn credentials(session: &ClientSession) -> Vec<Credential> {
    let accounts = &session.context.worker.shared.accounts;
    let name = session.client.account.user.name.as_bytes();
    accounts.known(name, &session.context.listener.cluster)
}

async fn try_to_leave(session: &mut ClientSession) -> Result<(), Stays> {
    let plan = match session.state.move_plan() {
        Ok(plan) => plan,
        Err(pins) => {
            let reason = pins.first().map_or(PinReason::NotUnderstood, |pin| pin.reason);
            return Err(Stays::new(reason, reason.label()));
        }
    };
    let mut connection = open_elsewhere(session).await?;
    rebuild::rebuild(session, &mut connection)
        .await
        .map_err(Stays::of_question)?;
    catch_up(session, &mut connection).await?;
    // Before anything else is asked there.
    last::learn_before_moving(session)
        .await
        .map_err(Stays::of_question)?;
    become_as_here(session, &plan, &mut connection).await?;
    swap(session, connection);
    Ok(())
}

/// A connection for the session alone, to one of the other servers.
async fn open_elsewhere(session: &ClientSession) -> Result<Connection<ConnectionState>, Stays> {
    let Some(leased) = &session.lease else {
        return Err(Stays::new(PinReason::NoServer, "its connection is gone"));
    };
    let present = leased.connection.server.id();
    let cluster = Arc::clone(&session.context.listener.cluster);
    let mut last = Stays::new(PinReason::NoCredentials, "no password is known for its account");
    for credential in credentials(session) {
        let Some(permit) = cluster.permit_beside(present) else {
            return Err(Stays::new(PinReason::NoServer, "no other server has room"));
        };
        let key = Rc::new(Key {
            user: Arc::clone(&credential.user),
            account: credential.account,
            capabilities: session.client.key.capabilities.without(OWN_AFFAIR),
            collation: session.client.key.collation,
        });
        let attributes = session.client.login.attributes.as_deref();
        let opening = session.pool().open_for(permit, (&key, &credential), attributes);
        let opened = tokio::select! {
            biased;
            signal = session.control.signalled(false) => {
                return Err(Stays::of_question(Refused(session.signalled(signal))));
            }
            opened = opening => opened,
        };
        match opened {
            Ok(connection) => return fits(session, connection),
            Err(error @ (LeaseError::Refused { .. } | LeaseError::Unusable { .. })) => {
                last = Stays::new(PinReason::LoginRefused, error);
            }
            Err(error) => return Err(Stays::new(PinReason::NoServer, error)),
        }
    }
    Err(last)
}

/// Packets have to look the same on both, and statements to be read the same way.
fn fits(
    session: &ClientSession,
    connection: Connection<ConnectionState>,
) -> Result<Connection<ConnectionState>, Stays> {
    let (here, there) = (session.client.key.capabilities, connection.capabilities);
    let of_effect = |all: Capabilities| (all & PASSED_ON).without(OWN_AFFAIR).without(OF_NO_EFFECT);
    if of_effect(here) != of_effect(there) {
        let what = format!("other capabilities: {here:?} here, {there:?} there");
        return Err(Stays::new(PinReason::Incompatible, what));
    }
    match connection.is_mariadb() == session.dialect().is_mariadb() {
        true => Ok(connection),
        false => Err(Stays::new(
            PinReason::Incompatible,
            "MariaDB on one side, MySQL on the other",
        )),
    }
}

/// Makes the connection what the session's own is, beyond what the session has set by its statements: values
/// of the server's configuration, and user variables.
async fn become_as_here(
    session: &mut ClientSession,
    plan: &MovePlan,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    let questions = [plan.question()].into_iter().chain(plan.user_variables());
    let questions = ask::framed(session.client.key.capabilities, questions.collect());
    let here = lease::ask_on_lease(session, &questions).await;
    // The questions were statements of their own, with rows.
    session.binding.is_to_be_primed();
    if let Some(leased) = &mut session.lease {
        leased.left = Left::default();
    }
    let had = Values::of(session, plan, &here.map_err(Stays::of_question)?)?;
    let asked = rebuild::asked_in_time(session, connection, &questions).await;
    let has = Values::of(session, plan, &asked.map_err(Stays::of_question)?)?;
    let set = had.to_be_set(plan, &has)?;
    if set.is_empty() {
        return Ok(());
    }
    let count = set.len();
    let commands = [ask::framed(connection.capabilities, set), questions].concat();
    let asked = rebuild::asked_in_time(session, connection, &commands).await;
    let replies = asked.map_err(Stays::of_question)?;
    if let Some(packet) = replies
        .iter()
        .find_map(|reply| reply.error(connection.capabilities))
    {
        let refused = rebuild::state_refused(&connection.server, packet);
        return Err(Stays::new(PinReason::Incompatible, refused));
    }
    let has = Values::of(session, plan, replies.get(count..).unwrap_or_default())?;
    match had.to_be_set(plan, &has)?.is_empty() {
        true => Ok(()),
        false => Err(Stays::new(
            PinReason::Incompatible,
            "a variable is not what it was set to",
        )),
    }
}

/// What a server has said of a session's variables.
struct Values {
    of_server: Vec<Option<Vec<u8>>>,
    of_user: Option<UserVariables>,
}

impl Values {
    fn of(session: &ClientSession, plan: &MovePlan, replies: &[ask::Reply]) -> Result<Self, Stays> {
        let capabilities = session.client.key.capabilities;
        if let Some(packet) = replies.iter().find_map(|reply| reply.error(capabilities)) {
            let said = String::from_utf8_lossy(&packet.message);
            return Err(Stays::new(PinReason::Incompatible, said));
        }
        let row = |at: usize, columns| replies.get(at)?.plain_row(columns);
        let unexpected = || {
            Stays::new(
                PinReason::Incompatible,
                ask::unexpected("a question about variables"),
            )
        };
        let columns = plan.user_variables_len();
        let definitions = replies
            .get(1)
            .into_iter()
            .flat_map(|reply| reply.packets().skip(1));
        let of_user = || UserVariables::new(definitions.take(columns), row(1, columns)?);
        Ok(Self {
            of_server: row(0, plan.len()).ok_or_else(unexpected)?,
            of_user: match columns {
                0 => None,
                _ => Some(of_user().ok_or_else(unexpected)?),
            },
        })
    }

    /// The commands that make the other server's what these are.
    fn to_be_set(&self, plan: &MovePlan, has: &Self) -> Result<Vec<Vec<u8>>, Stays> {
        let of_server = difference(plan, &self.of_server, &has.of_server)?;
        let of_user = self.of_user.as_ref().zip(has.of_user.as_ref());
        let of_user = of_user.and_then(|(had, has)| plan.set_user_variables(had, has));
        Ok(of_server.into_iter().chain(of_user).collect())
    }
}

fn difference(
    plan: &MovePlan,
    had: &[Option<Vec<u8>>],
    has: &[Option<Vec<u8>>],
) -> Result<Option<Vec<u8>>, Stays> {
    plan.difference(had, has).map_err(|difference| {
        let reason = match difference.is_of_account() {
            true => PinReason::LoginRefused,
            false => PinReason::Incompatible,
        };
        let (what, had, has) = (difference.what, difference.had, difference.has);
        Stays::new(reason, format!("{what} is {had} here and {has} there"))
    })
}

/// Waits until the other server has what the session has written.
async fn catch_up(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Stays> {
    if consistency::is_galera(session) {
        return wait_for_own_writes::sync(session, connection)
            .await
            .map_err(Stays::of_question);
    }
    let is_there = match consistency::own_writes(session) {
        Freshness::Any => true,
        Freshness::Primary => false,
        freshness @ Freshness::Position(_) if freshness.covered_by(&connection.server) => true,
        Freshness::Position(position) => consistency::wait(session, connection, &position)
            .await
            .map_err(Stays::of_question)?,
    };
    match is_there {
        true => Ok(()),
        false => Err(Stays::new(
            PinReason::Behind,
            "it lacks what the session has written",
        )),
    }
}

/// The session goes on on this connection, and its own is closed.
fn swap(session: &mut ClientSession, mut connection: Connection<ConnectionState>) {
    let Some(old) = lease::detach(session) else { return };
    session.state.move_on();
    connection.state.carried = Rc::clone(session.state.carried());
    connection.state.baseline = Rc::clone(session.state.baseline());
    session.client.key = Rc::new(Key {
        capabilities: connection.capabilities & PASSED_ON,
        ..Key::clone(&session.client.key)
    });
    session.own_writes.note_on(connection.server.id());
    let is_primary = session.is_writer(&session.pool().topology(), &connection.server);
    let (server, thread_id) = (Arc::clone(&connection.server), connection.thread_id);
    lease::attach(session, connection, is_primary);
    session.binding.moved(&session.streams.traffic.server);
    let seat = (session.context.listener.key(&server), thread_id);
    let registry = &session.context.worker.shared.registry;
    registry.reseat(session.control.id, seat);
    if server.state().status == Status::Removed {
        session.control.raise(Signal::Drain);
    }
    old.quit();
}
