//! The session's state on a connection that it does not hold yet, and whatever else is asked there.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use mysql_wire::ErrPacket;
use session::PortableState;
use tokio::time::timeout;
use upstream::{Connection, Server};

use crate::engine::ask::{self, Broken};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::command;
use crate::engine::connection_state::ConnectionState;
use crate::error::SessionError;

/// Sets on the connection what the session has set and the connection has not, and the reverse.
pub(crate) async fn rebuild(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Refused> {
    rebuild_to(session, session.state.carried(), connection).await
}

/// Sets on the connection what is wanted and the connection has not, and the reverse.
pub(crate) async fn rebuild_to(
    session: &ClientSession,
    want: &Rc<PortableState>,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Refused> {
    if Rc::ptr_eq(want, &connection.state.carried) {
        return Ok(());
    }
    let commands = session::rebuild(want, &connection.state.carried, &connection.state.baseline);
    if !commands.is_empty() && set_state(session, connection, commands).await? {
        // Warnings to the gateway are not for the session to see.
        set_state(session, connection, vec![session::clear_diagnostics()]).await?;
    }
    note_carried(&mut connection.state, want);
    Ok(())
}

/// Does what [`rebuild_to`] does, where no session waits for it. `clears`: the session that has the
/// connection next is not to see warnings to the gateway. `None` where this comes to nothing.
pub(crate) async fn rebuild_alone(
    connection: &mut Connection<ConnectionState>,
    want: &Rc<PortableState>,
    clears: bool,
) -> Option<()> {
    let state = &connection.state;
    if Rc::ptr_eq(want, &state.carried) {
        return Some(());
    }
    if session::cost(want, &state.carried) == session::CANNOT {
        return None;
    }
    let mut commands = session::rebuild(want, &state.carried, &state.baseline);
    if clears && !commands.is_empty() {
        commands.push(session::clear_diagnostics());
    }
    if !commands.is_empty() {
        done_alone(connection, commands).await?;
    }
    note_carried(&mut connection.state, want);
    Some(())
}

/// Has the server execute these commands. `None` where it refuses any of them.
pub(crate) async fn done_alone(
    connection: &mut Connection<ConnectionState>,
    commands: Vec<Vec<u8>>,
) -> Option<()> {
    let capabilities = connection.opened.capabilities;
    let commands = ask::framed(capabilities, commands);
    let asking = ask::ask(&mut connection.stream, capabilities, &commands);
    let replies = asking.await.ok()?;
    let is_done = replies.iter().all(|reply| reply.outcome.error.is_none());
    is_done.then_some(())
}

/// Whether the session's schema is gone, and the command at hand does without: a session must not be bound to
/// a lost schema for ever.
pub(crate) fn may_do_without_schema(session: &ClientSession, error: &SessionError) -> bool {
    const ER_BAD_DB_ERROR: u16 = 1049;
    let is_gone =
        matches!(error, SessionError::StateRefused { packet, .. } if packet.code == ER_BAD_DB_ERROR);
    is_gone && command::needs_no_schema(session)
}

/// Sets a state. True where the server has warned.
async fn set_state(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    commands: Vec<Vec<u8>>,
) -> Result<bool, Refused> {
    let capabilities = connection.opened.capabilities;
    let replies = asked_in_time(session, connection, &ask::framed(capabilities, commands)).await?;
    match replies.iter().find_map(|reply| reply.error(capabilities)) {
        None => Ok(replies.iter().any(|reply| reply.outcome.warnings > 0)),
        // The connection is dropped with whatever part of the state is on it.
        Some(error) => Err(Refused(state_refused(&connection.server, error))),
    }
}

pub(crate) fn state_refused(server: &Server, packet: ErrPacket) -> SessionError {
    SessionError::StateRefused {
        server: server.name().to_owned(),
        packet,
    }
}

/// Asks something on a connection that nobody else uses.
pub(crate) async fn asked(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    commands: &[Vec<u8>],
) -> Result<Vec<ask::Reply>, Refused> {
    connection.state.last_session = None;
    let capabilities = connection.opened.capabilities;
    let asking = ask::ask(&mut connection.stream, capabilities, commands);
    let asked = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(Refused(session.signalled(signal))),
        asked = asking => asked,
    };
    asked.map_err(|error| Refused(not_asked(&connection.server, error)))
}

/// Asks something that a server answers at once, if it answers at all. A session that holds no connection yet
/// hears neither of a server that is down nor of `server_idle_timeout`.
pub(crate) async fn asked_in_time(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    commands: &[Vec<u8>],
) -> Result<Vec<ask::Reply>, Refused> {
    let limit = session.pool().config().login_timeout;
    asked_within(session, connection, commands, limit).await
}

/// Asks something on a connection that nobody else uses, within this time.
pub(crate) async fn asked_within(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    commands: &[Vec<u8>],
    limit: Duration,
) -> Result<Vec<ask::Reply>, Refused> {
    let asked = timeout(limit, Box::pin(asked(session, connection, commands))).await;
    asked.unwrap_or_else(|_| {
        let error = Broken::Io(ErrorKind::TimedOut.into());
        Err(Refused(not_asked(&connection.server, error)))
    })
}

fn not_asked(server: &Server, broken: Broken) -> SessionError {
    SessionError::ServerLogin {
        server: server.name().to_owned(),
        cause: ask::cause(broken),
    }
}

pub(super) const SYNC_WAIT: &[u8] = b"wsrep_sync_wait";
/// The older name of the first bit of the variable above.
pub(super) const CAUSAL_READS: &[u8] = b"wsrep_causal_reads";

/// Notes the state that a connection has now. The connection's reads go on waiting for other nodes if that
/// state leaves the variables alone by which the gateway has them wait.
pub(crate) fn note_carried(state: &mut ConnectionState, now: &Rc<PortableState>) {
    let mut names = [SYNC_WAIT, CAUSAL_READS].iter();
    state.syncs_reads &= names.all(|name| state.carried.variable(name) == now.variable(name));
    state.carried = Rc::clone(now);
}
