//! A session leaves the connection that it holds, since its statement goes elsewhere.

use mysql_wire::{Command, ErrPacket, Outcome};
use session::PinReason;
use sql_class::Facts;

use crate::command_head::CommandHead;
use crate::engine::begin::begin;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::leased::says_nothing;
use crate::engine::next::{Execution, Next};
use crate::engine::prepared::reprepare;
use crate::engine::transaction::{commit, is_ended_by, is_ended_by_query};
use crate::engine::{command, keep, last_statement, lease, old_primary};
use crate::error::SessionError;

/// Prepares the connection that is held for a statement that goes elsewhere: the connection tells what it
/// alone knows, or ends what does not go with the statement. `ends`: a transaction that only reads is to end.
async fn before_it_goes(session: &mut ClientSession, facts: &Facts, ends: bool) -> Result<(), Refused> {
    if old_primary::is_left(session, facts) {
        return old_primary::leave(session, facts).await;
    }
    if !ends {
        last_statement::learn_insert_id(session).await;
        return Ok(());
    }
    let ok = commit(session).await?;
    session.state.observe_ok(&ok);
    session.state.cleared(PinReason::Transaction);
    session.answer.status = ok.status;
    says_nothing(&mut session.lease);
    if !session.state.is_pinned() {
        lease::give_back(session);
    }
    Ok(())
}

/// Serves a COM_QUERY before which the connection that is held has something to tell or to end.
pub(crate) async fn query_elsewhere(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Facts,
) -> Result<Next, SessionError> {
    let ends = is_ended_by_query(session, head, &facts);
    let ends_any = ends || old_primary::begins_anew(&facts) && old_primary::is_left(session, &facts);
    let before = match ends_any && facts.statements == 1 {
        true => syntax_error(session, head).await,
        false => Ok(None),
    };
    let before = match before {
        Ok(Some(packet)) => return Ok(refuse_in_transaction(session, head, packet)),
        Ok(None) => before_it_goes(session, &facts, ends).await,
        Err(refused) => Err(refused),
    };
    match before {
        Ok(()) => Ok(Next::route_query(head, facts)),
        Err(refused) => last_statement::give_up(session, refused).await,
    }
}

/// Serves the execution of a prepared statement before which that connection has something to tell or to end.
pub(crate) async fn execution_elsewhere(
    session: &mut ClientSession,
    execution: Execution,
) -> Result<Next, SessionError> {
    let ends = is_ended_by(session, &execution.prepared.facts);
    match before_it_goes(session, &execution.prepared.facts, ends).await {
        Ok(()) => Ok(Next::RouteExecution(Box::new(execution))),
        Err(refused) => last_statement::give_up(session, refused).await,
    }
}

/// The replica's error about a text that it cannot read. The text is prepared there and not executed: a
/// syntax error ends no transaction.
async fn syntax_error(session: &mut ClientSession, head: CommandHead) -> Result<Option<ErrPacket>, Refused> {
    const ER_PARSE_ERROR: u16 = 1064;
    let preparation = [&[Command::STMT_PREPARE.0], command::text_of(session, head)].concat();
    let replies = lease::ask_on_lease(session, &[preparation]).await?;
    let Some(reply) = replies.first() else {
        return Ok(None);
    };
    if let Some(leased) = &mut session.lease {
        let id = reprepare::prepared_ids(reply).map(|(id, _)| id);
        leased.connection.state.statements.note_unused(id);
    }
    let error = reply.error(session.client.key.capabilities);
    Ok(error.filter(|packet| packet.code == ER_PARSE_ERROR))
}

/// Tells the client of a statement that was not executed, in a transaction that goes on.
fn refuse_in_transaction(session: &mut ClientSession, head: CommandHead, packet: ErrPacket) -> Next {
    let failed = Outcome {
        error: Some(packet.code),
        ..Outcome::default()
    };
    begin(session, head, Some(&reprepare::NOTHING));
    session.state.end(&failed);
    keep::keep(session);
    Next::refuse(SessionError::PrepareRefused(packet))
}
