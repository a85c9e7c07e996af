//! COM_RESET_CONNECTION.

use crate::command_head::CommandHead;
use crate::engine::begin::begin;
use crate::engine::client_session::ClientSession;
use crate::engine::exchange::exchange;
use crate::engine::next::Next;
use crate::engine::{answer, last_statement, lease, lookup, own_connection};
use crate::error::SessionError;
use crate::relay::Exchanged;

/// Resets the session, on the connection that it holds, or on none, which is as good.
pub(crate) async fn connection(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    session.binding.unbind();
    // The session's count of rows outlives the reset.
    Box::pin(last_statement::learn_count(session)).await;
    // No connection knows of a statement before the reset, nor does anything that was prepared.
    session.last.turn = session.last.turn.wrapping_add(1);
    session.prepared.with_figures = None;
    if session.lease.is_none() {
        session.own_writes.say_consistency(None);
        lookup::set_level(&mut session.lookups, &session.context.listener, None);
        session.state.reset();
        session.state.rearmed();
        session.answer.status = session.state.status_at_rest();
        return answer::ok(session).await;
    }
    begin(session, head, None);
    let ended = exchange(session, head.command, None).await;
    let outcome = match ended.result {
        Ok(Exchanged::Done(outcome)) if outcome.error.is_none() => outcome,
        _ => return Ok(Next::settle(ended)),
    };
    session.own_writes.say_consistency(None);
    lookup::set_level(&mut session.lookups, &session.context.listener, None);
    session.control.record.note_outcome(&outcome);
    if outcome.has_status {
        session.answer.status = outcome.status;
    }
    if session.binding.is_own() {
        own_connection::was_reset(session).await?;
        return Ok(Next::Done);
    }
    session.state.reset();
    session.state.rearmed();
    // State left on the connection is not worth finding out: the next one is as clean.
    lease::abandon_unused(session);
    Ok(Next::Done)
}
