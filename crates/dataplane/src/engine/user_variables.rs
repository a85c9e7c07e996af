//! A session that holds its connection for its user variables alone leaves it while its client is silent and
//! others want one, and has them set again before its next statement.
//!
//! The session's own connection is asked for the names and the values of the variables each time, after what
//! it alone knows of the last statement: no server reports all that sets a variable. The connection is reset
//! before anybody else has it. Statements that need no variables are not told apart: a trigger, or a function
//! behind a view, may read any. The first command that a server hears of therefore brings them back, on a
//! connection to the primary, and the session holds that on as it did before.

use std::slice::from_ref;

use mysql_wire::Command;
use session::{Leave, UserVariables};
use sql_class::Effects;

use crate::command_head::CommandHead;
use crate::control::{MOVE_PAUSE, Waiting};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::kept_variables::KeptVariables;
use crate::engine::leased::says_nothing;
use crate::engine::metrics::VariablesStay;
use crate::engine::next::Next;
use crate::engine::target::Target;
use crate::engine::{answer, ask, command, keep, last_statement, lease};
use crate::error::{During, SessionError};

/// User variables with more bytes than this are not carried, nor are those that take a longer command to set:
/// the command is kept for each session that has left its connection.
const BYTES_MAX: usize = 16 * 1024;

/// Connections that are tried for one command.
const TRIES_MAX: usize = 3;

/// `ER_QUERY_INTERRUPTED`: a KILL QUERY has met the gateway's statement.
const INTERRUPTED: u16 = 1317;

/// Why a session cannot leave its connection.
enum Stays {
    For(VariablesStay),
    /// Something else holds the session there, or its state has changed meanwhile.
    Otherwise,
    /// The session's connection is lost.
    Lost(Refused),
}

impl From<Refused> for Stays {
    fn from(refused: Refused) -> Self {
        match refused {
            // An error is an answer.
            Refused(SessionError::StateRefused { .. }) => Self::Otherwise,
            refused => Self::Lost(refused),
        }
    }
}

/// Has the session, whose client is silent, leave its connection where others want one. An error is of the
/// connection, and ends the session: its user variables are lost.
pub(crate) async fn leave(session: &mut ClientSession) -> Result<(), SessionError> {
    let now_ms = session.context.worker.now_ms();
    let leaves_from = &session.control.of_split.leaves_from;
    let may = keep::is_for_user_variables_alone(session) && now_ms >= leaves_from.get();
    if !may || !keep::is_wanted(session) {
        return Ok(());
    }
    let waited = session.control.wait_so_far();
    session.control.mark(Waiting::Server);
    let left = match try_to_leave(session).await {
        Ok(()) => {
            session.metrics().user_variables_left.inc();
            Ok(())
        }
        Err(Stays::Lost(refused)) => Err(refused),
        Err(stays) => {
            if let Stays::For(why) = stays {
                session.metrics().user_variables_stay(why);
            }
            let next_try = now_ms + MOVE_PAUSE.as_millis() as u64;
            session.control.of_split.leaves_from.set(next_try);
            // Traces of the questions are not for the session to see.
            asked(session, vec![session::clear_diagnostics()]).await.map(drop)
        }
    };
    session.control.goes_on_waiting(waited);
    match left {
        Ok(()) => Ok(()),
        Err(Refused(SessionError::ServerLogin { server, .. })) => {
            session.answer.error_sequence = None;
            let during = During::Idle;
            Err(SessionError::ServerGone { server, during })
        }
        Err(Refused(error)) => Err(error),
    }
}

async fn try_to_leave(session: &mut ClientSession) -> Result<(), Stays> {
    last_statement::learn_before_moving(session).await?;
    let set = ask_what_they_are(session).await?.map(Vec::into_boxed_slice);
    let pin = match session.state.is_held_by_user_variables() {
        true => session.state.leaves_user_variables(),
        false => None,
    };
    let pin = pin.ok_or(Stays::Otherwise)?;
    session.last.kept_variables = Some(Box::new(KeptVariables { set, pin }));
    // Nobody else sees what the session leaves there: the connection is reset, or closed where that fails.
    drop(session.state.leave());
    if let Err(cause) = lease::give_back_as_new(session).await {
        tracing::debug!(
            session = session.control.id,
            cause,
            "connection not reset: closed"
        );
    }
    Ok(())
}

/// The command that gives another connection the same user variables, where that is certain; `None` where
/// none is set. Variables that were tried out under other names are left on the connection, which is reset
/// whoever gives it back.
async fn ask_what_they_are(session: &mut ClientSession) -> Result<Option<Vec<u8>>, Stays> {
    let list = session::list_user_variables(session.dialect());
    let replies = asked(session, vec![list]).await?;
    // Definitions of columns come along.
    let rows = replies.first().into_iter().flat_map(ask::values);
    let rows: Vec<Vec<u8>> = rows.filter(|row| row != b"def").collect();
    let differ = || Stays::For(VariablesStay::Values);
    if rows.iter().any(|row| Leave::is_tried(row)) {
        return Err(differ()); // what was tried out before cannot be told from what is unset
    }
    let which = Leave::of(rows.into_iter()).ok_or(Stays::For(VariablesStay::Names))?;
    if which.is_empty() {
        return Ok(None);
    }
    let replies = asked(session, fitting(&which, vec![which.length()])?).await?;
    let length = replies.first().and_then(|reply| ask::plain(reply.value()));
    let length = length.and_then(|length| str::from_utf8(&length).ok()?.parse().ok());
    if length.is_none_or(|length| length > BYTES_MAX || !which.fits(length)) {
        return Err(Stays::For(VariablesStay::Long));
    }
    let replies = asked(session, fitting(&which, which.questions())?).await?;
    let [has, unset] = replies.as_slice() else {
        return Err(differ());
    };
    let (has, unset) = told(&which, has).zip(told(&which, unset)).ok_or_else(differ)?;
    let Some((set, trial)) = which.set(&has, &unset).zip(which.trial(&has, &unset)) else {
        return Ok(None);
    };
    if set.len() > BYTES_MAX || !which.fit(from_ref(&set)) {
        return Err(Stays::For(VariablesStay::Long));
    }
    let trial = fitting(&which, vec![trial, which.question_of_trial()])?;
    let replies = asked(session, trial).await?;
    let tried = replies.last().and_then(|reply| told(&which, reply));
    match tried.as_ref() == Some(&has) {
        true => Ok(Some(set)),
        false => Err(differ()),
    }
}

/// Returns the commands if the server takes commands of their length.
fn fitting(which: &Leave, commands: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Stays> {
    match which.fit(&commands) {
        true => Ok(commands),
        false => Err(Stays::For(VariablesStay::Long)),
    }
}

/// Asks something on the session's connection of which its client knows nothing. The answer is empty where
/// any of the commands is refused.
async fn asked(session: &mut ClientSession, commands: Vec<Vec<u8>>) -> Result<Vec<ask::Reply>, Refused> {
    let capabilities = session.client.key.capabilities;
    let replies = lease::ask_on_lease(session, &ask::framed(capabilities, commands)).await?;
    // The questions were statements of their own, with rows.
    says_nothing(&mut session.lease);
    match replies.iter().any(|reply| reply.error(capabilities).is_some()) {
        true => Ok(Vec::new()),
        false => Ok(replies),
    }
}

fn told(which: &Leave, reply: &ask::Reply) -> Option<UserVariables> {
    let definitions = reply.packets().skip(1).take(which.columns());
    UserVariables::new(definitions, reply.plain_row(which.columns())?)
}

/// Serves a command of a session whose user variables are on no connection. Sets the variables on one that
/// the session holds from here on; or leaves them where they are, if no server hears of the command.
pub(crate) async fn restore(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    if session.last.kept_variables.is_none() || is_of_no_server(session, head) {
        return Ok(Next::Begin);
    }
    let Some(kept) = session.last.kept_variables.take() else {
        return Ok(Next::Begin);
    };
    if matches!(head.command, Command::RESET_CONNECTION | Command::CHANGE_USER) {
        return Ok(Next::Begin);
    }
    let mut tries = 1;
    loop {
        let leased = lease::lease(session, &Target::Primary { for_writing: false }).await;
        let is_leased = leased.is_ok();
        let set = match leased {
            Ok(()) => set(session, kept.set.as_deref()).await,
            refused => refused,
        };
        let Err(Refused(error)) = set else { break };
        let is_lost = is_leased && matches!(error, SessionError::ServerLogin { .. });
        let is_refused = is_leased
            && matches!(&error, SessionError::StateRefused { packet, .. } if packet.code != INTERRUPTED);
        if is_lost && tries < TRIES_MAX {
            tries += 1;
            continue;
        }
        if !is_lost && !is_refused && head.command.has_response() {
            session.last.kept_variables = Some(kept);
            return Ok(Next::refuse(error));
        }
        // No server takes the variables, and the session must not go on as if it had them; or the statement
        // to come must not be executed without what was to be sent now.
        if head.command.has_response() {
            session.answer.error_sequence = Some(answer::discard(session).await?);
        }
        return Err(error);
    }
    session.state.has_user_variables_again(kept.pin);
    keep::keep(session);
    Ok(Next::Begin)
}

/// Whether the gateway answers the command itself, or the command has no answer and nothing to be done.
fn is_of_no_server(session: &ClientSession, head: CommandHead) -> bool {
    match head.command {
        Command::PING | Command::STMT_CLOSE | Command::QUIT => true,
        Command::QUERY => command::facts(session, head).effects.contains(Effects::GATEWAY),
        _ => false,
    }
}

/// Has the leased connection set the variables. The connection is closed after an error.
async fn set(session: &mut ClientSession, command: Option<&[u8]>) -> Result<(), Refused> {
    let Some(command) = command else {
        return Ok(());
    };
    let capabilities = session.client.key.capabilities;
    // Warnings to the gateway are not for the session to see.
    let commands = vec![command.to_vec(), session::clear_diagnostics()];
    let replies = lease::ask_on_lease(session, &ask::framed(capabilities, commands)).await;
    says_nothing(&mut session.lease);
    let refused = match replies {
        Ok(replies) => match replies.iter().find_map(|reply| reply.error(capabilities)) {
            None => return Ok(()),
            Some(packet) => session.state_refused(packet),
        },
        Err(refused) => refused,
    };
    // Nothing of the session is on the connection but some of these variables.
    session.streams.down.clear();
    drop(session.state.leave());
    drop(lease::detach(session));
    Err(refused)
}
