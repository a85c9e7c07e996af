//! The steps until a statement of text can be sent. Some of them go ahead of a command of the client's, with
//! it in one write, so that they cost no round trip: the state that a connection lacks, and (see
//! `prepared::prepare_execute`) the preparation of what is executed.
//!
//! State goes ahead of plain reads, preparations and beginnings of transactions alone. If the server refuses
//! a part of the state, these were executed under another one; but they have left nothing behind, nobody has
//! seen the answer, and all is dropped with the connection. Anything else waits for the answers: a write must
//! not be executed in the schema of somebody else.

use mysql_wire::{PacketHeader, WireError, command_packet};
use session::Session;
use sql_class::{Class, Effects, Facts};

use crate::command_head::CommandHead;
use crate::control::{Signal, Waiting};
use crate::engine::ask::{self, Broken, Reply};
use crate::engine::begin::{begin, needs_no_priming};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::lease::{self, LeaseAttempt};
use crate::engine::leased::{LeasedConnection, Left};
use crate::engine::next::Next;
use crate::engine::target::Target;
use crate::engine::{last_statement, rebuild};
use crate::error::SessionError;
use crate::relay::RelayError;

/// The longest command that is sent behind others: sockets between us and the server take it although the
/// server reads nothing, as it may while it writes answers that nobody reads yet.
const LONGEST: usize = 16 * 1024;

/// Leases a connection and does all else that it may take until a statement of text can be sent.
pub(crate) async fn lease_and_begin(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Facts,
    target: Target,
    now: LeaseAttempt,
) -> Result<Next, SessionError> {
    let state_may_wait = leaves_nothing(&facts) && may_wait(session, head);
    let leased = lease::resume(session, &target, now, state_may_wait).await;
    let ready = match leased {
        Ok(()) if lacks_state(session) => Box::pin(send_whole(session, head, &target)).await,
        leased => leased.map(|()| None),
    };
    let unread = match ready {
        Ok(unread) => unread,
        Err(refused) => return Ok(refused.into()),
    };
    if !needs_no_priming(session, &facts)
        && let Err(refused) = Box::pin(last_statement::bring_about(session, head, &facts, None)).await
    {
        return Box::pin(last_statement::give_up(session, refused)).await;
    }
    begin(session, head, Some(&facts));
    if let Some(unread) = unread {
        session.statement.take_in(&mut session.streams, head, &unread);
    }
    Ok(Next::Exchange)
}

/// Whether nothing is left of the statement when its connection is dropped.
pub(crate) fn leaves_nothing(facts: &Facts) -> bool {
    matches!(facts.class, Class::Read | Class::Begin | Class::BeginReadOnly)
        && facts.effects == Effects::NONE
        && facts.statements == 1
}

/// Whether the state of a connection yet to be leased may wait for the command, to be sent with it.
pub(crate) fn may_wait(session: &ClientSession, head: CommandHead) -> bool {
    // Packets of a compressed connection are numbered command by command.
    let is_compressed = session.pool().config().compression != config::ServerCompression::Off;
    // A transaction that moves is begun on its new connection first.
    session.lease.is_none() && !is_compressed && whole(session, head).is_some()
}

/// The payload of the command that the client has sent, where it can go behind others: whole, short, and
/// numbered as it should be.
pub(crate) fn whole(session: &ClientSession, head: CommandHead) -> Option<&[u8]> {
    let unseen = session.streams.up.unseen();
    let header = PacketHeader::parse(unseen)?;
    // Clients under compression number packets as they like; a server without ends the connection for it.
    let is_first = header.sequence == 0 || session.streams.client.is_compressed();
    let payload = unseen.get(PacketHeader::LEN..PacketHeader::LEN + head.payload_len)?;
    (is_first && payload.len() <= LONGEST).then_some(payload)
}

/// Whether the leased connection has not got the session's state yet.
pub(crate) fn lacks_state(session: &ClientSession) -> bool {
    session.lease.as_ref().is_some_and(|leased| leased.lacks_state)
}

/// The commands by which the leased connection gets what it lacks of the session's state, if anything. The
/// connection is taken to have the state from here on: a caller that does not send them, or has them refused,
/// drops it.
pub(crate) fn take_state(leased: Option<&mut LeasedConnection>, of: &Session) -> Vec<Vec<u8>> {
    let Some(leased) = leased.filter(|leased| leased.lacks_state) else {
        return Vec::new();
    };
    leased.lacks_state = false;
    let (want, state) = (of.carried(), &mut leased.connection.state);
    let mut commands = session::rebuild(want, &state.carried, &state.baseline);
    rebuild::note_carried(state, want);
    if !commands.is_empty() {
        // Warnings to the gateway are not for the session to see.
        commands.push(session::clear_diagnostics());
        leased.left = Left::default();
    }
    ask::framed(leased.connection.opened.capabilities, commands)
}

/// Sends commands, and the packet behind them. Returns the answers to the commands, and what has been read of
/// the answer to the packet.
pub(crate) async fn send(
    session: &mut ClientSession,
    commands: &[Vec<u8>],
    packet: &[u8],
) -> Result<(Vec<Reply>, Vec<u8>), RelayError> {
    let capabilities = session.client.key.capabilities;
    session.control.mark(Waiting::Server);
    let asking = ask::ask_ahead(&mut session.streams.server, capabilities, commands, packet);
    let asked = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(RelayError::Signal(signal)),
        asked = asking => asked,
    };
    asked.map_err(broken)
}

/// The error for a conversation that did not come to its end, as an exchange has it.
pub(crate) fn broken(error: Broken) -> RelayError {
    match error {
        Broken::Io(_) | Broken::Closed => RelayError::Server,
        Broken::Wire(error) => RelayError::ServerProtocol(error),
        Broken::Unexpected(_) | Broken::TooLong(_) => RelayError::ServerProtocol(WireError::NotAsked),
    }
}

pub(crate) fn are_done(replies: &[Reply]) -> bool {
    replies.iter().all(|reply| reply.outcome.error.is_none())
}

/// Sends the state and the command as it is. Returns what has been read of the command's answer; `None` where
/// the command was not sent, and the connection has the state.
pub(crate) async fn send_whole(
    session: &mut ClientSession,
    head: CommandHead,
    target: &Target,
) -> Result<Option<Vec<u8>>, Refused> {
    let packet = whole(session, head).map(command_packet);
    let state = take_state(session.lease.as_mut(), &session.state);
    if state.is_empty() {
        return Ok(None);
    }
    let is_replica = session.lease.as_ref().is_some_and(|leased| !leased.is_primary);
    session.control.can_move(is_replica);
    let sent = send(session, &state, packet.as_deref().unwrap_or_default()).await;
    session.control.can_move(false);
    match sent {
        Err(RelayError::Signal(signal)) if signal != Signal::ServerSilent => {
            let error = session.signalled(signal);
            lease::abandon(session);
            Err(Refused(error))
        }
        Ok((replies, unread)) if are_done(&replies) => Ok(packet.map(|_| unread)),
        // On another connection, step by step, the error says what is wrong.
        _ => {
            lease::abandon(session);
            lease::lease(session, target).await.map(|()| None)
        }
    }
}
