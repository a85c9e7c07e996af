//! Commands that are kept to be sent again: to another server where theirs is lost before it answers, or
//! takes no writes.

use std::sync::Arc;

use mysql_wire::PacketHeader;
use sql_class::{Class, Effects, Facts};

use crate::engine::next::Next;
use crate::engine::state::{Refused, Split};
use crate::engine::{answer, lease, rules, server};
use crate::error::SessionError;
use crate::session::CommandHead;

/// Servers that may refuse one write because they take none, before that is its answer.
const REFUSALS_MAX: u8 = 4;

/// A file of the client's has been read once it is sent.
const NOT_AGAIN: Effects = Effects::LOADS_DATA.with(Effects::INCOMPLETE);

/// Has a read that was lost before anything of its answer came executed anew, on another server: the loop
/// takes it up again as if the client had just sent it.
pub(crate) fn send_again(split: &mut Split, command: &[u8]) -> bool {
    let lost_on = split.lease.as_ref().map(|leased| leased.connection.server.id());
    // Once, and not for ever from server to server, unless a rule says how often.
    let is_second = split.statement.attempts.lost_on.take().is_some();
    if !rules::may_send_again(split, is_second) || !take_up(split, command) {
        return false;
    }
    lease::abandon(split);
    split
        .answer
        .shape
        .reset(split.client.key.capabilities, split.client.capabilities);
    split.statement.attempts.lost_on = lost_on;
    split.series().retried.inc();
    true
}

/// A server has refused a write because it is the primary no more: the statement waits for the new one, where
/// the loop takes it up again as if the client had just sent it. Nothing was executed.
pub(crate) async fn go_elsewhere(split: &mut Split) -> Result<Next, SessionError> {
    let refusing = split
        .lease
        .as_ref()
        .map(|leased| Arc::clone(&leased.connection.server));
    lease::abandon(split);
    split.context.listener.cluster.look_again();
    split.statement.attempts.refusals += 1;
    let Some((copy, server)) = split
        .statement
        .copy
        .take()
        .zip(refusing)
        .filter(|_| split.statement.attempts.refusals <= REFUSALS_MAX)
    else {
        return answer::tell(split, 1, SessionError::NoServerInRole)
            .await
            .map(|()| Next::Done);
    };
    let words = split.context.cluster.refusal.take();
    if let Err(Refused(error)) = server::other_primary(split, &server, &words).await {
        return answer::tell(split, 1, error).await.map(|()| Next::Done);
    }
    once_more(split, Some(copy)).await
}

/// A replica has refused it: the loop takes it up again for the primary, as if the client had just sent it.
pub(crate) async fn ask_primary(split: &mut Split) -> Result<Next, SessionError> {
    lease::abandon(split);
    split.statement.attempts.refusals += 1;
    let copy = split.statement.copy.take();
    once_more(split, copy).await
}

/// Has the loop take up this command again; where it cannot, the client hears that no server takes it.
async fn once_more(split: &mut Split, command: Option<Box<[u8]>>) -> Result<Next, SessionError> {
    if command.is_some_and(|command| take_up(split, &command)) {
        return Ok(Next::Done);
    }
    let told = answer::tell(split, 1, SessionError::NoServerInRole).await;
    told.map(|()| Next::Done)
}

/// Puts the command back, as if the client had just sent it. False where there is no room for it.
fn take_up(split: &mut Split, command: &[u8]) -> bool {
    let has_room = split.streams.up.put_back(command);
    if has_room {
        split.statement.comes_again();
        rules::sent_again(split);
    }
    has_room
}

/// Keeps a command that may be sent again, or looked at when it is answered. A read, where its server is lost
/// before it answers: one that leaves nothing behind. A write, where the server refuses it because it takes
/// none: a single statement. Neither is sent again in a transaction, nor kept where it is long.
pub(crate) fn keep_to_send_again(split: &mut Split, head: CommandHead, facts: &Facts) {
    const LONGEST: usize = 16 * 1024;
    let is_plain = facts.effects == Effects::NONE && facts.class == Class::Read;
    let is_write = facts.statements == 1
        && matches!(facts.class, Class::Write | Class::Ddl)
        && !facts.effects.intersects(NOT_AGAIN);
    let is_single_write = is_write && split.session.autocommit();
    split.statement.may_go_elsewhere =
        is_single_write && !rules::routes(split) && split.lease.is_none() && head.payload_len <= LONGEST;
    let is_kept = is_write || is_plain && split.lease.is_none();
    if is_kept && head.payload_len <= LONGEST {
        keep_command(split, head, is_plain);
    }
}

/// Keeps a command that any server can execute: it leaves nothing but what it sets, which is gone with the
/// connection.
pub(crate) fn keep_for_any(split: &mut Split, head: CommandHead) {
    keep_command(split, head, true);
    split
        .control
        .of_split
        .asks_primary
        .set(split.statement.copy.is_some());
}

fn keep_command(split: &mut Split, head: CommandHead, leaves_nothing: bool) {
    let packet = split.streams.up.unseen();
    let packet = packet.get(..PacketHeader::LEN + head.payload_len);
    split.statement.copy = packet.map(Into::into);
    split.statement.leaves_nothing = leaves_nothing;
}
