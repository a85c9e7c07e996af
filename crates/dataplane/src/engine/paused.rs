//! A statement that waits because its cluster is paused (`forebay ctl pause`, a switchover).

use mysql_wire::Command;
use session::{Pin, PinReason};
use sql_class::Effects;

use crate::command_head::CommandHead;
use crate::control::Waiting;
use crate::engine::client_session::ClientSession;
use crate::engine::command;
use crate::engine::next::Next;
use crate::engine::prepared::prepare;
use crate::error::SessionError;

/// Whether the command waits. A transaction comes to its end first, and so does a session that holds a lock
/// for which others may wait. A command that has no answer, or ends a statement of another session, does not
/// wait.
#[inline]
pub(crate) fn waits(session: &ClientSession, head: CommandHead) -> bool {
    session.context.listener.cluster.is_paused() && has_to_wait(session, head)
}

#[cold]
fn has_to_wait(session: &ClientSession, head: CommandHead) -> bool {
    let holds_lock = |pin: &Pin| matches!(pin.reason, PinReason::TableLocks | PinReason::UserLock);
    let ends_something = || {
        let facts = command::facts(session, head);
        facts.effects.intersects(Effects::KILL.with(Effects::GATEWAY))
    };
    let is_statement = match head.command {
        Command::QUERY => !ends_something(),
        Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE | Command::STMT_PREPARE => true,
        _ => false,
    };
    is_statement && !session.state.in_transaction() && !session.state.pins().iter().any(holds_lock)
}

/// Waits until the cluster goes on, or for as long as `pause_timeout`. The statement of a client that goes
/// meanwhile is not executed: the client may have sent it anew.
pub(crate) async fn wait(session: &mut ClientSession, command: Command) -> Result<Next, SessionError> {
    if command == Command::STMT_PREPARE {
        // This is also done where the preparation is refused: an execution behind it is not meant for the
        // statement before.
        prepare::begin_to_prepare(session);
    }
    let cluster = &session.context.listener.cluster;
    let Some(place) = cluster.wait_paused() else {
        return Ok(Next::refuse(SessionError::PauseFull));
    };
    session.control.mark(Waiting::Paused);
    let is_over = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(session.signalled(signal)),
        is_over = place.over() => is_over,
        () = session.streams.client.closed() => return Err(SessionError::ClientGone),
    };
    drop(place);
    Ok(match is_over {
        true => Next::Begin,
        false => Next::refuse(SessionError::PausedTooLong(cluster.config().pause_timeout)),
    })
}
