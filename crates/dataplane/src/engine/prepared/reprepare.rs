//! A statement that the leased connection does not have is prepared there, on the way to its execution.
//!
//! The session may be in the middle of a transaction: nothing is sent here that a transaction takes notice
//! of, and where the server refuses, all that the session holds on the connection stays.

use std::rc::Rc;

use mysql_wire::{Command, OkPacket, Outcome};
use session::{Excursion, PinReason, PortableState, Prepared};
use sql_class::{Class, Effects, Facts};

use crate::command_head::CommandHead;
use crate::engine::begin::with_statement;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::next::Next;
use crate::engine::prepared::known::{is_kept, unknown_statement};
use crate::engine::prepared::limit;
use crate::engine::{ask, keep, last_statement, lease};
use crate::error::SessionError;

/// Why a statement was not prepared.
pub(crate) enum NotPrepared {
    /// The statement cannot be prepared. The connection is as it was.
    Refused(SessionError),
    /// Nobody knows what has become of the connection.
    Lost(SessionError),
}

impl From<NotPrepared> for SessionError {
    fn from(not_prepared: NotPrepared) -> Self {
        match not_prepared {
            NotPrepared::Refused(error) | NotPrepared::Lost(error) => error,
        }
    }
}

/// The conversation on the leased connection was broken.
impl From<Refused> for NotPrepared {
    fn from(Refused(error): Refused) -> Self {
        Self::Lost(error)
    }
}

/// Number of tries: more than it takes to make room on a server that others fill, too.
const TRIES_MAX: usize = 8;

/// Prepares a statement on the connection that was leased, so that it means what it has meant when the client
/// prepared it.
pub(crate) async fn prepare_here(
    session: &mut ClientSession,
    id: u32,
    prepared: &Prepared,
) -> Result<(), NotPrepared> {
    for _ in 1..TRIES_MAX {
        match try_to_prepare(session, id, prepared).await {
            Err(NotPrepared::Refused(SessionError::PrepareRefused(packet)))
                if packet.code == limit::NO_ROOM && limit::make(session).await => {}
            done => return done,
        }
    }
    try_to_prepare(session, id, prepared).await
}

async fn try_to_prepare(
    session: &mut ClientSession,
    id: u32,
    prepared: &Prepared,
) -> Result<(), NotPrepared> {
    if !is_kept(prepared) {
        return Err(NotPrepared::Refused(SessionError::StatementChanged));
    }
    learn_meaning(session).await?;
    let has_changed = !session.state.carried().means_the_same(&prepared.context);
    if has_changed && session.statement.was_pinned {
        learn_what_comes_late(session).await?;
    }
    let (there, back) = match has_changed {
        true => excursion(session, &prepared.context)
            .ok_or(NotPrepared::Refused(SessionError::StatementChanged))?,
        false => (Vec::new(), Vec::new()),
    };
    let text = last_statement::without_schema(session, prepared);
    let mut command = vec![Command::STMT_PREPARE.0];
    command.extend_from_slice(text.as_deref().unwrap_or(&prepared.text));
    let closing = match &mut session.lease {
        Some(leased) => leased.connection.state.statements.take_closing(),
        None => Vec::new(),
    };
    let (unanswered, at) = (closing.len(), there.len());
    let commands = closing.into_iter().chain(there).chain([command]).chain(back);
    let commands: Vec<_> = commands.collect();
    let mut replies = lease::ask_on_lease(session, &commands).await?;
    replies.drain(..unanswered.min(replies.len()));
    for (_, reply) in replies.iter().enumerate().filter(|(index, _)| *index != at) {
        if let Some(ok) = ok(session, reply) {
            session.state.observe_excursion(&ok);
        }
    }
    let error_in = |replies: &[ask::Reply]| {
        let mut errors = replies.iter();
        errors.find_map(|reply| reply.error(session.client.key.capabilities))
    };
    let (until, back) = replies.split_at(replies.len().min(at + 1));
    if let Some(packet) = error_in(back) {
        return Err(session.state_refused(packet).into());
    }
    let refused = error_in(until).map(SessionError::PrepareRefused);
    let ids = until.get(at).and_then(prepared_ids);
    match (refused, ids) {
        (None, Some((server_id, params))) if params == prepared.params => {
            session.context.worker.metrics.reprepares.inc();
            if let Some(leased) = &mut session.lease {
                let statements = &mut leased.connection.state.statements;
                statements.add(server_id, Rc::clone(&prepared.text), &prepared.owner);
            }
            Ok(())
        }
        (None, None) => Err(NotPrepared::Lost(unknown_statement(id, Command::STMT_EXECUTE))),
        (refused, ids) => {
            if let Some(leased) = &mut session.lease {
                let id = ids.map(|(id, _)| id);
                leased.connection.state.statements.note_unused(id);
            }
            Err(NotPrepared::Refused(
                refused.unwrap_or(SessionError::StatementChanged),
            ))
        }
    }
}

fn excursion(session: &ClientSession, context: &PortableState) -> Option<Excursion> {
    let baseline = &session.lease.as_ref()?.connection.state.baseline;
    let (there, back) = session.state.excursion(context, baseline)?;
    let framed = |commands| ask::framed(session.client.key.capabilities, commands);
    Some((framed(there), framed(back)))
}

/// Learns, before a statement is prepared, what the last statement has set and is yet to be reported: the
/// answer to a preparation reports nothing.
pub(crate) async fn learn_what_is_late(session: &mut ClientSession) -> Result<(), NotPrepared> {
    if session.state.has_pin(PinReason::Unsettled) || session.state.has_pin(PinReason::SetStatement) {
        learn_what_comes_late(session).await?;
    }
    learn_meaning(session).await
}

/// Asks the server for what gives texts their meaning, where that may be set and nothing reports it.
async fn learn_meaning(session: &mut ClientSession) -> Result<(), NotPrepared> {
    if session.state.ask_meaning().is_none() {
        return Ok(());
    }
    learn_what_comes_late(session).await?;
    let Some(question) = session.state.ask_meaning() else {
        return Ok(());
    };
    let question = ask::framed(session.client.key.capabilities, vec![question]);
    let replies = lease::ask_on_lease(session, &question).await?;
    if let Some(ok) = replies.first().and_then(|reply| ok(session, reply)) {
        session.state.learn_meaning(&ok);
    }
    Ok(())
}

/// Asks for an OK: the settings of the session's last statement may be reported with the next one only, which
/// must be none of an excursion's.
async fn learn_what_comes_late(session: &mut ClientSession) -> Result<(), NotPrepared> {
    let replies = lease::ask_on_lease(session, &[vec![Command::PING.0]]).await?;
    if let Some(ok) = replies.first().and_then(|reply| ok(session, reply)) {
        session.state.observe_ok(&ok);
    }
    Ok(())
}

fn ok(session: &ClientSession, reply: &ask::Reply) -> Option<OkPacket> {
    ask::ok(reply, session.client.key.capabilities)
}

/// The id and the count of parameters in the answer to COM_STMT_PREPARE.
pub(crate) fn prepared_ids(reply: &ask::Reply) -> Option<(u32, u16)> {
    match *reply.packet(0)?.first_chunk::<9>()? {
        [0, a, b, c, d, _, _, p0, p1] => {
            Some((u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([p0, p1])))
        }
        _ => None,
    }
}

/// The facts of a statement that was refused before it was executed.
pub(crate) const NOTHING: Facts = Facts {
    class: Class::Read,
    effects: Effects::NONE,
    statements: 1,
    hint: None,
};

/// Ends an execution whose statement the server has not prepared: to the session it has failed. If the
/// connection is lost, so is what bound the session to it.
pub(crate) async fn not_prepared(
    session: &mut ClientSession,
    head: CommandHead,
    id: u32,
    prepared: &Prepared,
    not_prepared: NotPrepared,
) -> Result<Next, SessionError> {
    let error = match not_prepared {
        NotPrepared::Refused(error) => error,
        NotPrepared::Lost(error) => return last_statement::give_up(session, Refused(error)).await,
    };
    let failed = Outcome {
        error: error.to_packet().map(|packet| packet.code),
        ..Outcome::default()
    };
    let about = Some((id, prepared.digest));
    with_statement(session, head, Some(&NOTHING), about, |session, statement| {
        session.begin(statement);
    });
    session.state.end(&failed);
    lease::release_unused(session);
    if session.lease.is_some() {
        keep::keep(session);
    }
    Ok(Next::refuse(error))
}
