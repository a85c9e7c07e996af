//! What it may take until a statement of text can be sent; and the state that a connection lacks, which goes ahead of a plain read,
//! with it in one write, so that it costs no round trip.
//!
//! Of plain reads alone: where the server refuses something of the state, the read was executed under another one. It has left nothing
//! behind, nobody has seen its answer, and both are dropped with the connection. Anything else waits for the answers: a write must
//! not be executed in the schema of somebody else.

use std::rc::Rc;

use sql_class::{Class, Effects, Facts};

use crate::error::SessionError;
use crate::session::CommandHead;
use crate::split::choose::Target;
use crate::split::lease::{self, Now};
use crate::split::run::{begin, needs_no_priming};
use crate::split::state::{Refused, Split};
use crate::split::{answer, ask, fresh, last};

/// What it may take until a statement of text can be sent. False where it has come to its end.
pub(crate) async fn lease_and_begin(
    split: &mut Split,
    head: CommandHead,
    facts: Facts,
    target: Target,
    now: Now,
) -> Result<bool, SessionError> {
    split.state_may_wait = may_wait(split, &facts);
    let leased = lease::go_on(split, &target, now).await;
    split.state_may_wait = false;
    let ready = match leased {
        Ok(()) if split.lease.as_ref().is_some_and(|leased| leased.lacks_state) => {
            Box::pin(send(split, &target)).await
        }
        leased => leased,
    };
    if let Err(refused) = ready {
        return Box::pin(answer::refuse(split, refused)).await.map(|()| false);
    }
    if !needs_no_priming(split, &facts)
        && let Err(refused) = Box::pin(last::bring_about(split, head, &facts, None)).await
    {
        return Box::pin(last::give_up(split, refused)).await.map(|()| false);
    }
    begin(split, head, Some(&facts));
    Ok(true)
}

/// Whether the state may wait for the statement, to be sent with it.
fn may_wait(split: &Split, facts: &Facts) -> bool {
    let is_plain = facts.effects == Effects::NONE && facts.class == Class::Read && facts.statements == 1;
    // Packets of a compressed connection are numbered command by command.
    let is_compressed = split.pool().config().compression != config::ServerCompression::Off;
    is_plain && split.leaves_nothing && !is_compressed && statement(split).is_some()
}

/// The packet of the statement, numbered from 0.
fn statement(split: &Split) -> Option<Vec<u8>> {
    const NUMBER: usize = 3;
    let mut packet = split.again.as_ref()?.to_vec();
    // Clients under compression number packets as they like; a server without ends the connection for it.
    match packet.get_mut(NUMBER)? {
        0 => {}
        number if split.wires.client.is_compressed() => *number = 0,
        _ => return None,
    }
    Some(packet)
}

/// Sends both, and takes in what the server says of the state. The answer to the statement comes after that.
async fn send(split: &mut Split, target: &Target) -> Result<(), Refused> {
    let want = Rc::clone(split.session.carried());
    let dialect = lease::dialect(split);
    let packet = statement(split);
    let (Some(leased), Some(packet)) = (&mut split.lease, packet) else {
        return Ok(());
    };
    leased.lacks_state = false;
    let state = &mut leased.connection.state;
    let mut commands = session::rebuild(&want, &state.carried, &state.baseline, dialect);
    state.syncs_reads &= fresh::keeps_sync_wait(&state.carried, &want);
    state.carried = want;
    if commands.is_empty() {
        return Ok(());
    }
    // What the gateway is warned of is not for the session to see.
    commands.push(session::clear_diagnostics());
    let capabilities = leased.connection.opened.capabilities;
    let commands = ask::framed(capabilities, commands);
    let asking = ask::ask_ahead(&mut split.wires.server, capabilities, &commands, &packet);
    let asked = tokio::select! {
        biased;
        signal = split.control.signalled(false) => Err(signal),
        asked = asking => Ok(asked),
    };
    let is_done = |reply: &ask::Reply| reply.outcome.error.is_none();
    match asked {
        Err(signal) => {
            let error = split.signalled(signal);
            lease::abandon(split);
            Err(Refused(error))
        }
        Ok(Ok((replies, unread))) if replies.iter().all(is_done) => {
            split.wires.up.discard(packet.len());
            split.wires.traffic.add_up(packet.len());
            split.wires.down.fill(&unread);
            split.says_it_itself = true;
            Ok(())
        }
        // Step by step, on another connection, it is known what is wrong.
        _ => {
            lease::abandon(split);
            lease::lease(split, target).await
        }
    }
}
