//! A prepared statement that the leased connection does not have is prepared and executed there in one write;
//! with the session's state ahead, where the connection lacks that, too.
//!
//! The execution names the statement by the id that its preparation is about to be given, which is a guess.
//! The guess can do no harm: ids of a connection grow, each answer to COM_STMT_PREPARE was seen, and the
//! guess is greater than them all. The execution therefore names the statement that goes ahead of it, or
//! none: then the server refuses it (1243) and has done nothing, and all goes on step by step. Any other
//! answer is a fault, which ends the connection. (MariaDB's word for "the one prepared last" does not do:
//! where it has as many statements as it takes it leaves the one before in that place.)
//!
//! Three kinds of statements go step by step: one that means something else now than when it was prepared,
//! whose way there and back may fail between the two; one that asks for what the statement before has left;
//! one that servers may read in different ways.

use std::rc::Rc;
use std::time::Duration;

use mysql_wire::statement::{ExecuteHead, replace_id};
use mysql_wire::{Command, ErrPacket, WireError, command_packet};
use session::Prepared;
use sql_class::Effects;

use crate::command_head::CommandHead;
use crate::engine::ask::{self, Reply};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::last_error::LastError;
use crate::engine::leased::says_nothing;
use crate::engine::metrics::Apart;
use crate::engine::next::Next;
use crate::engine::prepared::known::{begin_prepared, is_known_here};
use crate::engine::prepared::reprepare;
use crate::engine::prepared::reprepare::{NotPrepared, prepared_ids};
use crate::engine::target::Target;
use crate::engine::{last_statement, lease, pipelined_setup, stashed_error};
use crate::error::SessionError;
use crate::relay::{RelayError, RelayOutcome};

/// ER_UNKNOWN_STMT_HANDLER.
const UNKNOWN_STATEMENT: u16 = 1243;

/// Questions about the last statement, whose answers an execution that is refused would change.
const OF_THE_LAST: Effects = Effects::READS_DIAGNOSTICS
    .with(Effects::READS_ROW_COUNT)
    .with(Effects::READS_FOUND_ROWS);

/// The outcome of an execution.
pub(crate) enum PipelinedExecution {
    /// The execution has been sent, and its answer comes next.
    Sent,
    /// The execution was sent and lost, or is refused.
    Ended(Next),
    /// Nothing was executed. The leased connection has the session's state.
    Apart,
}

/// The commands that are sent behind the session's state.
struct Plan {
    /// The id of the statement, or the one that it will have.
    server_id: u32,
    /// The command that prepares it, where the connection does not have it.
    preparation: Option<Vec<u8>>,
    execution: Vec<u8>,
    /// The parameter types that are in it.
    types: Option<Rc<[u8]>>,
    opens_cursor: bool,
}

/// Sends the execution behind all that it needs on the leased connection, or makes the connection ready for
/// it. `target`: where the statement may be executed.
pub(crate) async fn prepare_and_execute(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
    target: &Target,
) -> Result<PipelinedExecution, SessionError> {
    let done = execute(session, head, id, prepared, target).await?;
    if matches!(done, PipelinedExecution::Apart)
        && !is_known_here(session, prepared)
        && let Err(why) = Box::pin(reprepare::prepare_here(session, id, prepared)).await
    {
        let ended = reprepare::not_prepared(session, head, id, prepared, why).await;
        return ended.map(PipelinedExecution::Ended);
    }
    Ok(done)
}

async fn execute(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
    target: &Target,
) -> Result<PipelinedExecution, SessionError> {
    let lacks_state = pipelined_setup::lacks_state(session);
    let is_known = is_known_here(session, prepared);
    if is_known && !lacks_state {
        return Ok(PipelinedExecution::Apart);
    }
    let plan = match plan(session, head, prepared) {
        Ok(plan) => plan,
        Err(why) => {
            session.metrics().prepared_apart(why);
            return set_state(session, target).await;
        }
    };
    let state = pipelined_setup::take_state(session.lease.as_mut(), &session.state);
    if is_known && state.is_empty() {
        return Ok(PipelinedExecution::Apart);
    }
    let ahead_of_it = state.len();
    let mut commands = state;
    if let Some(leased) = &mut session.lease {
        commands.extend(leased.connection.state.statements.take_closing());
    }
    let at = commands.len();
    commands.extend(plan.preparation.iter().cloned());
    let (replies, unread) = match pipelined_setup::send(session, &commands, &plan.execution).await {
        Ok(answered) => answered,
        Err(broken) => return lost(session, head, id, prepared, broken),
    };
    if !pipelined_setup::are_done(replies.get(..ahead_of_it).unwrap_or_default()) {
        // The commands have left nothing behind. Step by step the error says what is wrong.
        lease::abandon(session);
        return match lease::lease(session, target).await {
            Ok(()) => Ok(PipelinedExecution::Apart),
            Err(refused) => Ok(PipelinedExecution::Ended(refused.into())),
        };
    }
    let preparation = replies.get(at);
    if plan.preparation.is_some() && !is_prepared(session, preparation, &plan, prepared) {
        let refused = preparation.and_then(|reply| reply.error(session.client.key.capabilities));
        return was_not_executed(session, head, id, prepared, unread, refused).await;
    }
    note_executed(session, id, prepared, plan);
    begin_prepared(session, head, id, prepared);
    session.statement.take_in(&mut session.streams, head, &unread);
    Ok(PipelinedExecution::Sent)
}

fn plan(session: &ClientSession, head: CommandHead, prepared: &Prepared) -> Result<Plan, Apart> {
    if session.streams.server.is_compressed() {
        // Packets of a compressed connection are numbered command by command.
        return Err(Apart::Command);
    }
    let mut payload = pipelined_setup::whole(session, head)
        .ok_or(Apart::Command)?
        .to_vec();
    let parsed = ExecuteHead::decode(&payload, prepared.params, session.client.key.capabilities);
    let parsed = parsed.map_err(|_| Apart::Command)?;
    if prepared.long_data {
        return Err(Apart::Command);
    }
    // State of the session that is not known is asked for on the other way.
    let is_known_state = session.state.ask_meaning().is_none();
    let means_the_same = is_known_state && session.state.carried().means_the_same(&prepared.context);
    let leased = session.lease.as_ref().ok_or(Apart::Command)?;
    let statements = &leased.connection.state.statements;
    let known = statements.known(prepared);
    let (server_id, known_types) = match known {
        Some(known) => (known.id, known.types.clone()),
        None if !means_the_same => return Err(Apart::Meaning),
        None if prepared.facts.effects.intersects(OF_THE_LAST) => return Err(Apart::Last),
        None if has_version_comment(&prepared.text) => return Err(Apart::Versions),
        None => (statements.next_id().ok_or(Apart::Id)?, None),
    };
    let mut types = parsed.types().map(Rc::from);
    if let Some(wanted) = prepared.types.as_ref().filter(|_| parsed.needs_types())
        && known_types.as_ref() != Some(wanted)
    {
        if !parsed.inject_types(&mut payload, wanted) {
            return Err(Apart::Command);
        }
        types = Some(Rc::clone(wanted));
    }
    let preparation = known
        .is_none()
        .then(|| [&[Command::STMT_PREPARE.0], &*prepared.text].concat());
    if !replace_id(&mut payload, server_id) {
        return Err(Apart::Command);
    }
    Ok(Plan {
        server_id,
        preparation,
        execution: command_packet(&payload),
        types,
        opens_cursor: parsed.opens_cursor,
    })
}

/// Whether there is a comment for some versions. Other servers know nothing of what is in it, parameters too.
fn has_version_comment(text: &[u8]) -> bool {
    text.windows(3).any(|part| part == b"/*!" || part == b"/*M")
}

/// Takes in the answer to the preparation. True where it says what was guessed.
fn is_prepared(session: &mut ClientSession, reply: Option<&Reply>, plan: &Plan, prepared: &Prepared) -> bool {
    let ids = reply.and_then(prepared_ids);
    let Some(leased) = &mut session.lease else {
        return false;
    };
    let statements = &mut leased.connection.state.statements;
    match ids {
        Some((given, params)) if params == prepared.params => {
            let was_right = given == plan.server_id;
            statements.note_guess(was_right);
            session.context.worker.metrics.reprepares.inc();
            statements.add(given, Rc::clone(&prepared.text), &prepared.owner);
            was_right
        }
        ids => {
            statements.note_unused(ids.map(|(id, _)| id));
            false
        }
    }
}

/// Notes what the server knows of the statement from here on.
fn note_executed(session: &mut ClientSession, id: u32, prepared: &Prepared, plan: Plan) {
    let Some(leased) = &mut session.lease else { return };
    let state = &mut leased.connection.state;
    state.statements.set_held(&prepared.owner, plan.opens_cursor);
    if let Some(on_server) = state.statements.find(prepared)
        && plan.types.is_some()
    {
        on_server.types.clone_from(&plan.types);
    }
    if plan.types.is_some()
        && plan.types != prepared.types
        && let Some(known) = session.state.statements().get_mut(id)
    {
        known.types = plan.types;
    }
}

/// Reads the answer to an execution by an id that no statement has: the server has to have refused it. The
/// refusal is not for the session to see.
async fn was_not_executed(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
    unread: Vec<u8>,
    refused: Option<ErrPacket>,
) -> Result<PipelinedExecution, SessionError> {
    let capabilities = session.client.key.capabilities;
    let reading = ask::rest(&mut session.streams.server, capabilities, head.command, unread);
    let read = tokio::select! {
        biased;
        signal = session.control.signalled(false) => Err(RelayError::Signal(signal)),
        read = reading => read.map_err(pipelined_setup::broken),
    };
    match read {
        Ok(reply) if reply.outcome.error == Some(UNKNOWN_STATEMENT) => {
            session.metrics().prepared_apart(Apart::Refused);
            if let Some(packet) = refused.filter(is_of_the_moment) {
                if let Err(refused) = show(session, &packet).await {
                    return last_statement::give_up(session, refused)
                        .await
                        .map(PipelinedExecution::Ended);
                }
                let why = NotPrepared::Refused(SessionError::PrepareRefused(packet));
                let ended = reprepare::not_prepared(session, head, id, prepared, why).await;
                return ended.map(PipelinedExecution::Ended);
            }
            if session.dialect().is_mariadb() {
                // MariaDB keeps the refusal over statements that use no tables.
                let clear = ask::framed(capabilities, vec![session::clear_diagnostics()]);
                if let Err(refused) = lease::ask_on_lease(session, &clear).await {
                    return last_statement::give_up(session, refused)
                        .await
                        .map(PipelinedExecution::Ended);
                }
                // The command counts rows of its own.
                says_nothing(&mut session.lease);
            }
            Ok(PipelinedExecution::Apart)
        }
        Ok(_) => lost(
            session,
            head,
            id,
            prepared,
            RelayError::ServerProtocol(WireError::NotAsked),
        ),
        Err(broken) => lost(session, head, id, prepared, broken),
    }
}

/// Whether the client has to know of an error of a preparation: the server may have rolled back the
/// transaction (1213) or have been told to stop (1317), and would prepare the statement now. An error of the
/// statement alone (SQLSTATE 42) comes again.
fn is_of_the_moment(refused: &ErrPacket) -> bool {
    !refused.sql_state.starts_with(b"42")
}

/// Has the connection show this error instead of what it has said of the execution; or nothing, where that
/// cannot be.
async fn show(session: &mut ClientSession, packet: &ErrPacket) -> Result<(), Refused> {
    if stashed_error::raise(session, packet).await?.is_ok() {
        session.last.error = LastError::new(packet.clone());
        return Ok(());
    }
    let clear = ask::framed(
        session.client.key.capabilities,
        vec![session::clear_diagnostics()],
    );
    lease::ask_on_lease(session, &clear).await.map(drop)
}

/// Ends an execution of which nobody knows what has become, as of any that was lost with its connection.
fn lost(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
    broken: RelayError,
) -> Result<PipelinedExecution, SessionError> {
    begin_prepared(session, head, id, prepared);
    session.statement.take_in(&mut session.streams, head, &[]);
    let begun = session.streams.client.begin_command();
    begun.map_err(SessionError::ClientFailed)?;
    let ended = RelayOutcome {
        result: Err(broken),
        error_sequence: Some(1),
        request_done: true,
        said: 0,
        client_at_end: false,
        took: Duration::ZERO,
    };
    Ok(PipelinedExecution::Ended(Next::settle(ended)))
}

/// Gives the connection the state that it lacks, by itself.
async fn set_state(session: &mut ClientSession, target: &Target) -> Result<PipelinedExecution, SessionError> {
    let state = pipelined_setup::take_state(session.lease.as_mut(), &session.state);
    if state.is_empty() {
        return Ok(PipelinedExecution::Apart);
    }
    let ready = match lease::ask_on_lease(session, &state).await {
        Ok(replies) if pipelined_setup::are_done(&replies) => return Ok(PipelinedExecution::Apart),
        Err(refused) if refused.0.ends_session() => Err(refused),
        _ => Ok(()),
    };
    lease::abandon(session);
    let leased = match ready {
        Ok(()) => lease::lease(session, target).await,
        refused => refused,
    };
    match leased {
        Ok(()) => Ok(PipelinedExecution::Apart),
        Err(refused) => Ok(PipelinedExecution::Ended(refused.into())),
    }
}
