//! Commands that are kept to be sent again: to another server where theirs is lost before it answers, or
//! takes no writes.

use std::sync::Arc;

use mysql_wire::{Command, PacketHeader, command_packet};
use sql_class::{Class, Effects, Facts};
use tokio::time::Instant;

use crate::command_head::CommandHead;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::next::Next;
use crate::engine::{answer, do_without, lease, rules, server};
use crate::error::SessionError;

/// How many servers may refuse a write because they take none, before that is the write's answer.
const REFUSALS_MAX: u8 = 4;

/// The longest command that is kept.
const LONGEST: usize = 16 * 1024;

/// Effects of statements that are not sent again: a file of the client's has been read once it is sent.
const NOT_AGAIN: Effects = Effects::LOADS_DATA.with(Effects::INCOMPLETE);

/// Has a read that was lost before anything of its answer came executed anew, on another server: the loop
/// takes the command up again as if the client had just sent it. A session with a connection of its own goes
/// on without that connection, or ends.
pub(crate) fn send_again(session: &mut ClientSession, command: &[u8]) -> bool {
    let lost_on = session.lease.as_ref().map(|leased| leased.connection.server.id());
    // A read is sent again once, and not for ever from server to server, unless a rule says how often.
    let is_second = session.statement.attempts.lost_on.take().is_some();
    let is_own = session.binding.is_own();
    let may = match is_own {
        true => !is_second && do_without::can_do_without(session),
        false => session.rules.may_send_again(is_second),
    };
    if !may || !take_up(session, command) {
        return false;
    }
    match is_own {
        true => {
            session.streams.down.clear();
            session.binding.note_lost();
        }
        false => lease::abandon(session),
    }
    session.answer.begin_anew(&session.client);
    session.statement.attempts.lost_on = lost_on;
    session.metrics().retried.inc();
    true
}

/// Has a write executed elsewhere that a server has refused because it is the primary no more. The statement
/// waits for the new primary, where the loop takes it up again as if the client had just sent it. Nothing was
/// executed.
pub(crate) async fn go_elsewhere(session: &mut ClientSession) -> Result<Next, SessionError> {
    // The statement waits for a place anew.
    session.statement.released = None;
    let refusing = session
        .lease
        .as_ref()
        .map(|leased| Arc::clone(&leased.connection.server));
    lease::abandon_unused(session);
    session.context.listener.cluster.look_again();
    session.statement.attempts.refusals += 1;
    let Some((copy, server)) = session
        .statement
        .copy
        .take()
        .zip(refusing)
        .filter(|_| session.statement.attempts.refusals <= REFUSALS_MAX)
    else {
        return once_more(session, None).await;
    };
    let words = session.context.cluster.refusal.take();
    let deadline = Instant::now() + session.context.listener.cluster.config().failover_wait;
    let found = match server::other_primary(session, &server, &words).await {
        Ok(()) => server::release(session, deadline).await,
        Err(refused) => Err(refused),
    };
    match found {
        Ok(released) => {
            session.context.listener.cluster.count_released();
            session.statement.released = Some(released);
            once_more(session, Some(copy)).await
        }
        Err(Refused(error)) => answer::tell(session, 1, error).await.map(|()| Next::Done),
    }
}

/// Has the primary asked, since a replica has refused the command: the loop takes the command up again, as if
/// the client had just sent it.
pub(crate) async fn ask_primary(session: &mut ClientSession) -> Result<Next, SessionError> {
    lease::abandon_unused(session);
    session.statement.attempts.refusals += 1;
    let copy = session.statement.copy.take();
    once_more(session, copy).await
}

/// Has the loop take up this command again; where it cannot, the client hears that no server takes it.
async fn once_more(session: &mut ClientSession, command: Option<Box<[u8]>>) -> Result<Next, SessionError> {
    if command.is_some_and(|command| take_up(session, &command)) {
        return Ok(Next::Done);
    }
    let told = answer::tell(session, 1, SessionError::NoServerInRole).await;
    told.map(|()| Next::Done)
}

/// Puts the command back, as if the client had just sent it. False where there is no room for it.
pub(crate) fn take_up(session: &mut ClientSession, command: &[u8]) -> bool {
    let has_room = session.streams.up.put_back(command);
    if has_room {
        leave_in_place(session);
    }
    has_room
}

/// Has the loop take up a command again of which nothing was taken out of the flow yet.
pub(crate) fn leave_in_place(session: &mut ClientSession) {
    session.statement.comes_again();
    session.control.record.note_sent_again();
    session.rules.sent_again();
}

/// Keeps a command that may be sent again, or looked at when it is answered. A read that leaves nothing
/// behind is sent again if its server is lost before it answers. A write of a single statement is sent again
/// if the server refuses it because the server takes no writes. A bulk execution is not: some of its rows may
/// be there when the server begins to refuse writes. No command is sent again in a transaction, nor kept
/// where it is long.
pub(crate) fn keep_to_send_again(session: &mut ClientSession, head: CommandHead, facts: &Facts) {
    let is_plain = facts.effects == Effects::NONE && facts.class == Class::Read;
    let is_write = facts.statements == 1
        && matches!(facts.class, Class::Write | Class::Ddl)
        && !facts.effects.intersects(NOT_AGAIN);
    let is_single_write =
        is_write && head.command != Command::STMT_BULK_EXECUTE && session.state.autocommit();
    session.statement.may_go_elsewhere =
        is_single_write && !rules::routes(session) && session.lease.is_none() && head.payload_len <= LONGEST;
    let may_read_elsewhere = session.lease.is_none() || do_without::can_do_without(session);
    let is_kept = is_write || is_plain && may_read_elsewhere;
    if is_kept && head.payload_len <= LONGEST {
        keep_copy(session, head, is_plain);
    }
}

/// Keeps a command that any server can execute: the command leaves nothing but what it sets, which is gone
/// with the connection.
pub(crate) fn keep_for_any(session: &mut ClientSession, head: CommandHead) {
    keep_copy(session, head, true);
    session.statement.asks_primary = session.statement.copy.is_some();
}

/// Keeps a statement that is prepared: nothing is executed, so that another server can do it instead of one
/// that is lost. Rules have their say anew then, about the text that the client has sent.
pub(crate) fn keep_to_prepare_again(session: &mut ClientSession, head: CommandHead) {
    if session.lease.is_some() || head.payload_len > LONGEST {
        return;
    }
    keep_copy(session, head, true);
    if let Some(text) = &session.statement.original {
        let payload = [&[head.command.0], &**text].concat();
        session.statement.copy = Some(command_packet(&payload).into());
    }
}

/// `leaves_nothing`: however often the command is executed.
fn keep_copy(session: &mut ClientSession, head: CommandHead, leaves_nothing: bool) {
    let packet = session
        .streams
        .up
        .unseen()
        .get(..PacketHeader::LEN + head.payload_len);
    session.statement.copy = packet.map(Into::into);
    session.statement.leaves_nothing = leaves_nothing;
}
