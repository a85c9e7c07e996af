//! COM_RESET_CONNECTION.

use crate::engine::begin::begin;
use crate::engine::exchange::exchange;
use crate::engine::next::Next;
use crate::engine::state::Split;
use crate::engine::{answer, last, lease, lookup, own_connection};
use crate::error::SessionError;
use crate::relay::Exchanged;
use crate::session::CommandHead;

/// On the connection that the session holds, or on none, which is as good.
pub(crate) async fn connection(split: &mut Split, head: CommandHead) -> Result<Next, SessionError> {
    split.binding.unbind();
    // What it has counted outlives it.
    Box::pin(last::learn_count(split)).await;
    // No connection knows of a statement before.
    split.last.turn = split.last.turn.wrapping_add(1);
    if split.lease.is_none() {
        split.own_writes.say_consistency(None);
        lookup::set_level(split, None);
        split.session.reset();
        split.session.rearmed();
        split.answer.status = split.session.status_at_rest();
        return answer::ok(split).await.map(|()| Next::Done);
    }
    begin(split, head, None);
    let ended = exchange(split, head.command, None).await;
    if matches!(&ended.result, Ok(Exchanged::Done(outcome)) if outcome.error.is_none()) {
        split.own_writes.say_consistency(None);
        lookup::set_level(split, None);
        if let Ok(Exchanged::Done(outcome)) = &ended.result {
            split.control.record.note_outcome(outcome);
            if outcome.has_status {
                split.answer.status = outcome.status;
            }
        }
        if split.binding.is_own() {
            own_connection::was_reset(split).await?;
            return Ok(Next::Done);
        }
        split.session.reset();
        split.session.rearmed();
        let count = split.session.found_rows();
        // What is left on the connection is not worth finding out: the next one is as clean.
        lease::abandon(split);
        count
            .into_iter()
            .for_each(|rows| split.session.learn_found_rows(rows));
        return Ok(Next::Done);
    }
    Ok(Next::settle(ended))
}
