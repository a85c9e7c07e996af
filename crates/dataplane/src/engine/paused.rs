//! A statement that waits because its cluster is paused (`forebay ctl pause`, a switchover).

use mysql_wire::Command;

use crate::control::Waiting;
use crate::engine::client_session::ClientSession;
use crate::engine::next::Next;
use crate::error::SessionError;

/// Whether the command waits. A transaction comes to its end first, and what has no answer, or one of the
/// gateway's, is no statement.
#[inline]
pub(crate) fn waits(session: &ClientSession, command: Command) -> bool {
    session.context.listener.cluster.is_paused()
        && !session.state.in_transaction()
        && matches!(
            command,
            Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE | Command::STMT_PREPARE
        )
}

/// Waits until the cluster goes on, or for as long as `pause_timeout`.
pub(crate) async fn wait(session: &mut ClientSession) -> Result<Next, SessionError> {
    let cluster = &session.context.listener.cluster;
    let Some(place) = cluster.wait_paused() else {
        return Ok(Next::refuse(SessionError::PauseFull));
    };
    session.control.mark(Waiting::Paused);
    let is_over = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(session.signalled(signal)),
        is_over = place.over() => is_over,
    };
    drop(place);
    Ok(match is_over {
        true => Next::Begin,
        false => Next::refuse(SessionError::PausedTooLong(cluster.config().pause_timeout)),
    })
}
