//! Prepared statements of the binary protocol, over connections that sessions share.
//!
//! The client's ids are the session's own. A statement is prepared on a server connection when the client
//! prepares it (see `prepare`), and again wherever it is executed and is not known yet. Parameter types,
//! which clients send only once, are put into executions on connections that have not seen them.

use std::rc::Rc;

use mysql_wire::statement::{ExecuteHead, asks_for_cursor};
use mysql_wire::{Capabilities, Command, PacketHeader};
use session::Prepared;
use sql_class::Dialect;

use crate::command_head::CommandHead;
use crate::engine::begin::needs_no_priming;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::exchange::exchange;
use crate::engine::lease::LeaseAttempt;
use crate::engine::leased::LeasedConnection;
use crate::engine::next::{Execution, Next};
use crate::engine::prepared::ServerStatement;
use crate::engine::prepared::known::{
    OF_THE_LAST, begin_prepared, is_kept, is_known_here, unknown_statement,
};
use crate::engine::prepared::prepare_execute::{self, PipelinedExecution};
use crate::engine::prepared::reprepare;
use crate::engine::target::Target;
use crate::engine::{answer, choose, command, last_statement, lease, pipelined_setup};
use crate::error::SessionError;
use crate::relay::Exchanged;
use crate::relay::flow::Flow;

/// MariaDB's clients mean the statement prepared last by this id.
const LAST_PREPARED: u32 = u32::MAX;

/// "This command is not supported in the prepared statement protocol yet".
const ER_UNSUPPORTED_PS: u16 = 1295;

/// The statement that COM_STMT_EXECUTE or MariaDB's bulk execution is about, with its id.
pub(crate) fn requested(session: &mut ClientSession, head: CommandHead) -> Result<(u32, Prepared), Refused> {
    session.statement.asks_for_cursor = asks_for_cursor(command::payload(session, head));
    if head.command == Command::STMT_BULK_EXECUTE && !may_bulk(session, head) {
        return Err(Refused(match session.dialect().is_mariadb() {
            true => SessionError::NotInProtocol,
            false => SessionError::UnknownCommand,
        }));
    }
    let Some((id, mut prepared)) = prepared_of(session, head) else {
        return Err(unknown(session, head));
    };
    if let Some(text) = text_with_figures(session, id) {
        prepared.text = text;
    } else if prepared.long_data
        && held_text(session, &prepared).is_some_and(|held| !Rc::ptr_eq(&held, &prepared.text))
    {
        // The data is with figures of a statement that is no longer the last.
        return Err(Refused(SessionError::StatementChanged));
    }
    // The statement was prepared in a transaction on a replica, which has ended: anywhere else it would say
    // another session's figures.
    if prepared.facts.effects.intersects(OF_THE_LAST)
        && !session.binding.is_for_good()
        && session.lease.is_none()
    {
        return Err(Refused(SessionError::StatementChanged));
    }
    Ok((id, prepared))
}

/// Begins the execution on the connection that is leased, where nothing has to be waited for. False where
/// something has.
pub(crate) fn begin_at_once(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
) -> bool {
    let is_ready = head.command == Command::STMT_EXECUTE
        && needs_no_priming(session, &prepared.facts)
        && is_known_here(session, prepared)
        && address(session, head, id, prepared).is_ok();
    if is_ready {
        begin_prepared(session, head, id, prepared);
    }
    is_ready
}

/// Does what it may take until a prepared statement can be executed.
pub(crate) async fn lease_and_execute(
    session: &mut ClientSession,
    Execution { head, id, prepared }: Execution,
    target: Target,
    now: LeaseAttempt,
) -> Result<Next, SessionError> {
    let facts = &prepared.facts;
    let leaves_nothing = head.command == Command::STMT_EXECUTE && pipelined_setup::leaves_nothing(facts);
    let state_may_wait = leaves_nothing && pipelined_setup::may_wait(session, head);
    if let Err(refused) = lease::resume(session, &target, now, state_may_wait).await {
        return Ok(refused.into());
    }
    if !needs_no_priming(session, facts) {
        let about = Some((id, prepared.digest));
        if let Err(refused) = Box::pin(last_statement::bring_about(session, head, facts, about)).await {
            return Box::pin(last_statement::give_up(session, refused)).await;
        }
    }
    match begin_here(session, head, id, &prepared, &target).await? {
        Next::Exchange if head.command == Command::STMT_BULK_EXECUTE => {
            Ok(Box::pin(exchange_bulk(session, id, &prepared)).await)
        }
        next => Ok(next),
    }
}

async fn exchange_bulk(session: &mut ClientSession, id: u32, prepared: &Prepared) -> Next {
    let ended = exchange(session, Command::STMT_BULK_EXECUTE, None).await;
    if matches!(&ended.result, Ok(Exchanged::Done(outcome)) if outcome.error == Some(ER_UNSUPPORTED_PS)) {
        // The server has not looked at the types: the statement has those from before, and is prepared anew
        // where it is executed next.
        if let Some(known) = session.state.statements().get_mut(id) {
            known.types.clone_from(&prepared.types);
        }
        if let Some(leased) = &mut session.lease {
            leased.connection.state.statements.close(&prepared.owner);
        }
    }
    Next::settle(ended)
}

/// Whether the client has agreed on bulk executions, and on the form of their results that it asks for.
/// MariaDB from 11.5 on ignores the form where the client has not agreed on it.
fn may_bulk(session: &ClientSession, head: CommandHead) -> bool {
    const UNIT_RESULTS: u8 = 64;
    const IGNORES_IT: u32 = 110_500;
    let flags = command::payload(session, head).get(5).copied().unwrap_or(0);
    let capabilities = session.client.capabilities;
    let ignores_it = matches!(session.dialect(), Dialect::MariaDb { version } if version >= IGNORES_IT);
    capabilities.contains(Capabilities::MARIADB_STMT_BULK)
        && (flags & UNIT_RESULTS == 0
            || ignores_it
            || capabilities.contains(Capabilities::MARIADB_BULK_UNIT_RESULTS))
}

/// Makes the leased connection ready for the execution, or sends it with what that takes.
async fn begin_here(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
    target: &Target,
) -> Result<Next, SessionError> {
    if pipelined_setup::lacks_state(session) || !is_known_here(session, prepared) {
        match Box::pin(prepare_execute::prepare_and_execute(
            session, head, id, prepared, target,
        ))
        .await?
        {
            PipelinedExecution::Sent => return Ok(Next::Exchange),
            PipelinedExecution::Ended(next) => return Ok(next),
            PipelinedExecution::Apart => {}
        }
    }
    if lacks_types(session, head, prepared) {
        // The next step says so if the command is too long for that.
        command::read_whole(session, head).await?;
    }
    if let Err(error) = address(session, head, id, prepared) {
        lease::release_unused(session);
        return Ok(Next::refuse(error));
    }
    begin_prepared(session, head, id, prepared);
    Ok(Next::Exchange)
}

/// Puts the server's id into the command, and the parameter types where the server has others or none.
/// Statements of which the connection has too many are closed on the way.
fn address(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
) -> Result<(), SessionError> {
    // Packets of a compressed connection are numbered command by command: what is to be closed there waits
    // for a preparation.
    let closes = !session.streams.server.is_compressed();
    let Some(leased) = &mut session.lease else {
        return Err(unknown_statement(id, head.command));
    };
    let statements = &mut leased.connection.state.statements;
    let Some(on_server) = statements.find(prepared) else {
        return Err(unknown_statement(id, head.command));
    };
    let unseen = session.streams.up.unseen_mut();
    let end = (PacketHeader::LEN + head.payload_len).min(unseen.len());
    let payload = &mut unseen[PacketHeader::LEN..end];
    if let Some(place) = payload.get_mut(1..5) {
        place.copy_from_slice(&on_server.id.to_le_bytes());
    }
    let parsed = ExecuteHead::decode(payload, prepared.params, session.client.key.capabilities)
        .map_err(SessionError::ClientProtocol)?;
    let mut changed = None;
    match (parsed.types(), &prepared.types) {
        (Some(types), Some(known)) if types == &**known => on_server.types = Some(Rc::clone(known)),
        (Some(types), _) => {
            let types: Rc<[u8]> = types.into();
            on_server.types = Some(Rc::clone(&types));
            if let Some(prepared) = session.state.statements().get_mut(id) {
                prepared.types = Some(types);
            }
        }
        // The client means the types that it sent last.
        (None, Some(types)) if parsed.needs_types() => {
            changed = with_types(on_server, &parsed, payload, head.payload_len, types)?;
        }
        (None, _) => {}
    }
    // Servers remember that data in pieces was wrong, until they are told to forget it.
    let is_held = parsed.opens_cursor || prepared.long_data || !is_kept(prepared);
    statements.set_held(&prepared.owner, is_held);
    let up = &mut session.streams.up;
    if changed.is_some() {
        up.discard(end);
    }
    if closes {
        up.say(&statements.take_closing_packets());
    }
    if let Some(changed) = changed {
        session.statement.say(up, &changed);
    }
    Ok(())
}

/// Whether the types have to be put into a command that is not there whole.
fn lacks_types(session: &ClientSession, head: CommandHead, prepared: &Prepared) -> bool {
    let payload = command::payload(session, head);
    let needs_types = payload.len() < head.payload_len
        && ExecuteHead::decode(payload, prepared.params, session.client.key.capabilities)
            .is_ok_and(|parsed| parsed.needs_types());
    let leased = session.lease.as_ref().filter(|_| needs_types);
    leased
        .and_then(|leased| leased.connection.state.statements.known(prepared))
        .is_some_and(|on_server| on_server.types != prepared.types)
}

/// The command with the types, where the server has others. The command has to be there whole then.
fn with_types(
    on_server: &mut ServerStatement,
    head: &ExecuteHead,
    payload: &[u8],
    payload_len: usize,
    types: &Rc<[u8]>,
) -> Result<Option<Vec<u8>>, SessionError> {
    if on_server.types.as_ref() == Some(types) {
        return Ok(None);
    }
    let mut changed = payload.to_vec();
    if payload.len() != payload_len || !head.inject_types(&mut changed, types) {
        return Err(SessionError::StatementTooLong(payload_len));
    }
    on_server.types = Some(Rc::clone(types));
    Ok(Some(changed))
}

/// Serves COM_STMT_FETCH and COM_STMT_SEND_LONG_DATA, on the connection where the cursor or the data is.
pub(crate) async fn go_on(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    let Some((id, mut prepared)) = prepared_of(session, head) else {
        if !head.command.has_response() {
            return answer::discard(session).await.map(|_| Next::Done);
        }
        return Ok(unknown(session, head).into());
    };
    let text = match head.command {
        Command::STMT_FETCH => match held_text(session, &prepared) {
            None => {
                forget_diagnostics(session);
                return Ok(Next::refuse(SessionError::NoCursor(id)));
            }
            held => held,
        },
        _ => text_with_figures(session, id),
    };
    prepared.text = text.unwrap_or(prepared.text);
    let target = choose::target_of_execution(session, head, &prepared.facts);
    if let Err(refused) = lease::lease(session, &target).await {
        return match head.command {
            Command::STMT_FETCH => Ok(refused.into()),
            // There is no answer to long data, and the statement must not be executed without it.
            _ => Err(refused.0),
        };
    }
    if !is_known_here(session, &prepared)
        && let Err(why) = reprepare::prepare_here(session, id, &prepared).await
    {
        lease::abandon(session);
        return Err(why.into());
    }
    if let Some(leased) = &mut session.lease {
        leased.connection.state.statements.set_held(&prepared.owner, true);
    }
    name_here(session.lease.as_mut(), &mut session.streams.up, &prepared);
    begin_prepared(session, head, id, &prepared);
    Ok(Next::Exchange)
}

/// Serves COM_STMT_RESET: there is nothing to be done where the server holds nothing for the statement.
pub(crate) async fn reset(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    let Some((id, prepared)) = prepared_of(session, head) else {
        return Ok(unknown(session, head).into());
    };
    if !name_here(session.lease.as_mut(), &mut session.streams.up, &prepared) {
        return answer::ok(session).await;
    }
    if let Some(leased) = &mut session.lease {
        leased
            .connection
            .state
            .statements
            .set_held(&prepared.owner, !is_kept(&prepared));
    }
    begin_prepared(session, head, id, &prepared);
    Ok(Next::Exchange)
}

/// Serves COM_STMT_CLOSE, which has no answer. The server hears of it with the next command for a statement
/// on the connection, wherever that is.
pub(crate) async fn close(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    let Some((id, prepared)) = prepared_of(session, head) else {
        return answer::discard(session).await.map(|_| Next::Done);
    };
    session.prepared.forget_figures(id);
    if held_text(session, &prepared).is_none() {
        answer::discard(session).await?;
        if let Some(leased) = &mut session.lease {
            leased.connection.state.statements.close(&prepared.owner);
        }
        session.state.statements().remove(id);
        return Ok(Next::Done);
    }
    name_here(session.lease.as_mut(), &mut session.streams.up, &prepared);
    if let Some(leased) = &mut session.lease {
        leased.connection.state.statements.remove(&prepared.owner);
    }
    begin_prepared(session, head, id, &prepared);
    let ended = exchange(session, head.command, None).await;
    session.state.statements().remove(id);
    Ok(Next::settle(ended))
}

/// The text of the server's statement that has a cursor or long data of this one, on the connection that the
/// session holds.
fn held_text(session: &ClientSession, prepared: &Prepared) -> Option<Rc<[u8]>> {
    let leased = session.lease.as_ref()?;
    let held = leased.connection.state.statements.held(&prepared.owner)?;
    Some(Rc::clone(&held.text))
}

/// The text that has the figures of the last statement, where that is not the statement's own.
fn text_with_figures(session: &ClientSession, id: u32) -> Option<Rc<[u8]>> {
    let mut all = session.prepared.with_figures.as_ref()?.0.iter();
    all.find(|of| of.0 == id).map(|of| Rc::clone(&of.1))
}

/// Puts the server's id into a command for what the connection at hand has prepared. False where that is
/// nothing.
fn name_here(leased: Option<&mut LeasedConnection>, up: &mut Flow, prepared: &Prepared) -> bool {
    let on_server = leased.and_then(|leased| leased.connection.state.statements.of(&prepared.owner));
    let Some(on_server) = on_server else {
        return false;
    };
    let server_id = on_server.id.to_le_bytes();
    match up.unseen_mut().get_mut(5..9) {
        Some(place) => place.copy_from_slice(&server_id),
        None => return false,
    }
    true
}

/// The statement that a command names by its first four bytes.
pub(crate) fn prepared_of(session: &ClientSession, head: CommandHead) -> Option<(u32, Prepared)> {
    let id = command::payload(session, head).get(1..5)?.try_into().ok()?;
    let id = match u32::from_le_bytes(id) {
        LAST_PREPARED if session.dialect().is_mariadb() => session.prepared.last_prepared,
        id => id,
    };
    Some((id, session.state.prepared(id)?.clone()))
}

/// Has the errors of the statement before forgotten: the next one is the gateway's own, and they are not to
/// be shown for it.
fn forget_diagnostics(session: &mut ClientSession) {
    let mut pins = session.state.pins().iter();
    let holds_them_alone = pins.all(|pin| pin.reason.ends_with_next_statement());
    let knows = session.state.knows_last_insert_id();
    if session.lease.is_some() && holds_them_alone && knows && !session.binding.is_for_good() {
        lease::give_back(session);
    }
}

/// The refusal of a command that names a statement which the client has not prepared.
fn unknown(session: &mut ClientSession, head: CommandHead) -> Refused {
    let id = command::payload(session, head)
        .get(1..5)
        .and_then(|id| id.try_into().ok())
        .map_or(0, u32::from_le_bytes);
    forget_diagnostics(session);
    let least = match head.command {
        Command::STMT_EXECUTE => 10,
        Command::STMT_FETCH => 9,
        _ => 5,
    };
    // MariaDB reads on behind the end of a packet.
    if head.payload_len < least && !session.dialect().is_mariadb() {
        return Refused(SessionError::Malformed);
    }
    Refused(unknown_statement(id, head.command))
}
