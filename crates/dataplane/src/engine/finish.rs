//! The end of a command: what it leaves behind.

use mysql_wire::{Command, StatusFlags};

use crate::control::Signal;
use crate::engine::client_session::ClientSession;
use crate::engine::next::{Next, Step};
use crate::engine::{
    again, answer, explain_warning, keep, last_statement, lease, lookup, old_primary, rearm_trackers, replay,
    rules,
};
use crate::error::SessionError;
use crate::finished::{self, End, Ways};
use crate::relay::{self, Exchanged, RelayError, RelayOutcome};

/// Finishes a command that has come to its end, whichever way.
pub(crate) fn finish(session: &mut ClientSession, command: Command, served: &Result<(), SessionError>) {
    if !session.statement.is_to_come_again() {
        session.statement.released = None;
    }
    if served.is_ok() {
        lookup::finish(&mut session.lookups);
        explain_warning::finish(session);
        rules::finish(session, command);
    }
    if served.is_err() || !session.statement.is_to_come_again() {
        tell(session, command, served.as_ref().copied());
    }
}

/// Tells those who observe that the command is over, where there is one.
pub(crate) fn tell(session: &ClientSession, command: Command, served: Result<(), &SessionError>) {
    let observers = &session.context.worker.observers;
    finished::tell(observers, &session.control, command, served, || Ways {
        listener: &session.context.listener.config.name,
        server: session.server_name(),
        traffic: &session.streams.traffic,
        schema: session.state.carried().schema(),
        capabilities: session.client.capabilities,
    });
}

/// Takes in what an exchange leaves behind: the session's state, and whose the server connection is now.
pub(crate) fn settle(session: &mut ClientSession, ended: RelayOutcome) -> Step<'_> {
    if ended.client_at_end && ended.result.is_ok() {
        return Step::wait(async { Err(SessionError::ClientGone) });
    }
    match ended.result {
        Ok(Exchanged::Done(outcome)) if session.statement.took_no_writes => {
            session.state.end(&outcome);
            match session.statement.asks_primary {
                true => Step::wait(again::ask_primary(session)),
                false => Step::wait(again::go_elsewhere(session)),
            }
        }
        Ok(Exchanged::Done(outcome)) => {
            let sent = session.statement.copy.take();
            if outcome.has_status {
                session.answer.status = outcome.status;
            } else if outcome.error.is_some() && !session.state.in_transaction() {
                session.answer.status.remove(StatusFlags::IN_TRANS);
            }
            session.control.record.note_outcome(&outcome);
            if let Some(code) = outcome.error {
                session.context.worker.metrics.error_passed_on(code);
                old_primary::note_error(session, code);
            }
            session.state.end(&outcome);
            if session.state.has_counted_rows(&outcome)
                && let Some(leased) = &mut session.lease
            {
                leased.left.has_count = leased.left.is_own;
            }
            if let Some(server) = session.written_on() {
                session.own_writes.note_on(server);
            }
            last_statement::note_made(session, &outcome, sent.as_deref());
            release(session)
        }
        // The session knows of the command, and there is no answer that could end it.
        Ok(Exchanged::Sent) => {
            session.control.record.note_end(End::Relayed);
            release(session)
        }
        Ok(Exchanged::Streaming) => Step::wait(stream(session)),
        Err(broken) => {
            // Nobody knows what has become of a write, and nobody waits for a read of a client that has gone.
            let is_awaited = ended.said == 0 && !ended.client_at_end;
            let may_send_again = session.statement.leaves_nothing && ended.request_done && is_awaited;
            let again = session.statement.copy.take().filter(|_| may_send_again);
            let unseen = ended.request_done && is_awaited && !session.streams.up.is_pending();
            // The rest of a command that its server has not taken is for no other server.
            session.streams.up.drop_outgoing();
            Step::wait(lost(
                session,
                broken,
                ended.error_sequence,
                (ended.request_done, unseen),
                again,
            ))
        }
    }
}

/// Gives the connection back, unless the session needs it on.
fn release(session: &mut ClientSession) -> Step<'_> {
    if session.binding.is_unwatched() {
        // There is nothing to be learned, and the connection is the session's own.
        keep::keep(session);
        return Next::Done.into();
    }
    if last_statement::is_in_doubt(session) {
        return Step::wait(release_once_asked(session));
    }
    session.rules.overlook_change(&mut session.state);
    if session.state.has_unseen() || session.state.needs_rearming() {
        return Step::wait(release_once_asked(session));
    }
    give_back_or_keep(session);
    Next::Done.into()
}

/// Gives the connection back, unless the session needs it on, after asking it what it alone knows.
async fn release_once_asked(session: &mut ClientSession) -> Result<Next, SessionError> {
    if last_statement::is_in_doubt(session) {
        last_statement::learn_insert_id(session).await;
    }
    session.rules.overlook_change(&mut session.state);
    if session.state.has_unseen() {
        rearm_trackers::learn_unseen(session).await?;
    }
    if session.state.needs_rearming() {
        rearm_trackers::again(session).await?;
        if session.lease.is_none() {
            return Ok(Next::Done);
        }
    }
    give_back_or_keep(session);
    Ok(Next::Done)
}

fn give_back_or_keep(session: &mut ClientSession) {
    let is_bound = session.binding.is_for_good()
        || session.client.account.user.config.pooling == config::Pooling::Session;
    if is_bound || session.state.is_pinned() {
        keep::keep(session);
    } else {
        lease::give_back(session);
    }
}

/// Ends a command whose connection was lost in the middle, or whose session was told to end.
async fn lost(
    session: &mut ClientSession,
    broken: RelayError,
    error_sequence: Option<u8>,
    (request_done, unseen): (bool, bool),
    again: Option<Box<[u8]>>,
) -> Result<Next, SessionError> {
    let is_the_servers = match &broken {
        RelayError::Server | RelayError::ServerProtocol(_) => true,
        RelayError::Signal(signal) => signal.is_about_a_server(),
        RelayError::Client(_) => false,
    };
    // A session with a connection of its own goes on where its server is gone, and ends where that is slow.
    let is_gone = matches!(
        broken,
        RelayError::Server | RelayError::Signal(Signal::ServerDown)
    );
    let may_go_on = is_gone || !session.binding.is_own();
    let took_too_long = matches!(broken, RelayError::Signal(Signal::StatementTimeout));
    let was_ended = matches!(
        broken,
        RelayError::Signal(Signal::Kill | Signal::DrainNow | Signal::ShutdownNow)
    );
    let mut error = session.broken(broken);
    if session.replay.is_some()
        && is_gone
        && let Some(next) = Box::pin(replay::go_on_behind(session, unseen)).await
    {
        return next;
    }
    // The server may execute the statement all the same.
    if session.state.lost_answer() {
        if took_too_long {
            error = lease::lost_with_its_server(session.server_name());
        } else if was_ended {
            error = SessionError::EndedInWrite(Box::new(error));
        }
    }
    session.answer.error_sequence = error_sequence;
    if let Some(command) = again.filter(|_| is_the_servers && !took_too_long && may_go_on)
        && again::send_again(session, &command)
    {
        return Ok(Next::Done);
    }
    let nothing_else_is_lost = !session.state.was_pinned() && !session.binding.is_for_good();
    let Some(sequence) = error_sequence else {
        return Err(error);
    };
    if !is_the_servers || !nothing_else_is_lost || !request_done {
        return Err(error);
    }
    session.control.record.note_end(End::Lost);
    // The client has what was between two rows before it gets the error.
    answer::flush(session).await?;
    lease::abandon(session);
    session.answer.status.remove(StatusFlags::IN_TRANS);
    session.answer.begin_anew(&session.client);
    answer::end_with(session, sequence, error)
        .await
        .map(|()| Next::Done)
}

/// Relays an answer that has no end: the session is a stream from here on.
async fn stream(session: &mut ClientSession) -> Result<Next, SessionError> {
    session.statement.released = None;
    let ended = relay::endless(&mut session.streams, &session.control).await;
    session.answer.error_sequence = None;
    Err(match ended {
        Ok(()) => SessionError::ClientGone,
        Err(broken) => session.broken(broken),
    })
}
