//! The end of a command: what it leaves behind.

use mysql_wire::{Command, StatusFlags};

use crate::control::Signal;
use crate::engine::next::{Next, Step};
use crate::engine::state::Split;
use crate::engine::{
    again, answer, explain_warning, last, lease, lookup, old_primary, rearm_trackers, rules, told,
};
use crate::error::SessionError;
use crate::finished::{self, End, Ways};
use crate::relay::{self, Exchanged, RelayError, RelayOutcome};

/// A command has come to its end, whichever way.
pub(crate) fn finish(split: &mut Split, command: Command, served: &Result<(), SessionError>) {
    if served.is_ok() {
        lookup::finish(split);
        explain_warning::finish(split);
        rules::finish(split, command);
    }
    if served.is_err() || !split.statement.is_to_come_again() {
        tell(split, command, served.as_ref().copied());
    }
}

/// Tells those who observe that the command is over, where there is one.
pub(crate) fn tell(split: &Split, command: Command, served: Result<(), &SessionError>) {
    let (worker, control) = (&split.context.worker, &split.control);
    finished::tell(&worker.observers, &control.record, command, served, || Ways {
        session: control.id,
        user: control.user(),
        listener: &split.context.listener.config.name,
        server: split.server_name(),
        traffic: &split.streams.traffic,
    });
}

/// What an exchange leaves behind: the session's state, and whose the server connection is now.
pub(crate) fn settle(split: &mut Split, ended: RelayOutcome) -> Step<'_> {
    if ended.client_at_end && ended.result.is_ok() {
        return Step::wait(async { Err(SessionError::ClientGone) });
    }
    match ended.result {
        Ok(Exchanged::Done(outcome)) if split.statement.took_no_writes => {
            split.session.end(&outcome);
            match split.control.of_split.asks_primary.get() {
                true => Step::wait(again::ask_primary(split)),
                false => Step::wait(again::go_elsewhere(split)),
            }
        }
        Ok(Exchanged::Done(outcome)) => {
            let sent = split.statement.copy.take();
            if outcome.has_status {
                split.answer.status = outcome.status;
            } else if outcome.error.is_some() && !split.session.in_transaction() {
                split.answer.status.remove(StatusFlags::IN_TRANS);
            }
            split.control.record.note_outcome(&outcome);
            if let Some(code) = outcome.error {
                split.context.worker.metrics.error_passed_on(code);
                old_primary::note_error(split, code);
            }
            split.session.end(&outcome);
            last::note_answered(split, &outcome);
            split.note_written();
            last::note_made(split, &outcome, sent.as_deref());
            release(split)
        }
        // The session knows of it, and there is no answer that could end it.
        Ok(Exchanged::Sent) => {
            split.control.record.note_end(End::Relayed);
            release(split)
        }
        Ok(Exchanged::Streaming) => Step::wait(stream(split)),
        Err(broken) => {
            // Nobody knows what has become of a write, and nobody waits for a read of a client that has gone.
            let is_awaited = ended.said == 0 && !ended.client_at_end;
            let may_send_again = split.statement.leaves_nothing && ended.request_done && is_awaited;
            let again = split.statement.copy.take().filter(|_| may_send_again);
            Step::wait(lost(
                split,
                broken,
                ended.error_sequence,
                ended.request_done,
                again,
            ))
        }
    }
}

/// Gives the connection back, unless the session needs it on.
fn release(split: &mut Split) -> Step<'_> {
    if last::is_in_doubt(split) {
        return Step::wait(release_once_asked(split));
    }
    rules::overlook_change(split);
    if split.session.has_unseen() || split.session.needs_rearming() {
        return Step::wait(release_once_asked(split));
    }
    give_back_or_keep(split);
    Next::Done.into()
}

/// The same, after the connection was asked what it alone knows.
async fn release_once_asked(split: &mut Split) -> Result<Next, SessionError> {
    if last::is_in_doubt(split) {
        last::learn_insert_id(split).await;
    }
    rules::overlook_change(split);
    if split.session.has_unseen() {
        rearm_trackers::learn_unseen(split).await?;
    }
    if split.session.needs_rearming() {
        rearm_trackers::again(split).await?;
        if split.lease.is_none() {
            return Ok(Next::Done);
        }
    }
    give_back_or_keep(split);
    Ok(Next::Done)
}

fn give_back_or_keep(split: &mut Split) {
    let is_bound =
        split.binding.is_for_good() || split.client.account.user.config.pooling == config::Pooling::Session;
    if is_bound || split.session.is_pinned() {
        keep(split);
    } else {
        lease::give_back(split);
    }
}

/// The connection is kept after a statement: its transaction may be over, and the next one on it is another.
fn note_kept(split: &mut Split) {
    let is_open = split.session.in_transaction();
    if let Some(leased) = &mut split.lease {
        leased.moves_on &= is_open;
        leased.has_refused_write &= is_open;
    }
}

/// The session holds its connection on; said in the metrics where that is news.
pub(crate) fn keep(split: &mut Split) {
    note_kept(split);
    split.control.show_pins(&split.shown_pins());
    split.control.may_leave(told::is_all(split));
    if split.binding.is_own() || !split.binding.count() {
        return;
    }
    split.series().pinned.inc();
    let pins = split.shown_pins();
    pins.iter().for_each(|pin| split.series().pin(pin.reason));
}

/// The connection was lost in the middle of a command, or the session was told to end.
async fn lost(
    split: &mut Split,
    broken: RelayError,
    error_sequence: Option<u8>,
    request_done: bool,
    again: Option<Box<[u8]>>,
) -> Result<Next, SessionError> {
    let is_the_servers = match &broken {
        RelayError::Server | RelayError::ServerProtocol(_) => true,
        RelayError::Signal(signal) => signal.is_about_a_server(),
        RelayError::Client(_) => false,
    };
    let took_too_long = matches!(broken, RelayError::Signal(Signal::StatementTimeout));
    let mut error = split.broken(broken);
    if split.session.lost_answer() && took_too_long {
        // It was not to be interrupted.
        error = lease::lost_with_its_server(split.server_name());
    }
    split.answer.error_sequence = error_sequence;
    if let Some(command) = again.filter(|_| is_the_servers && !took_too_long)
        && again::send_again(split, &command)
    {
        return Ok(Next::Done);
    }
    let nothing_else_is_lost = !split.session.was_pinned() && !split.binding.is_for_good();
    let Some(sequence) = error_sequence else {
        return Err(error);
    };
    if !is_the_servers || !nothing_else_is_lost || !request_done {
        return Err(error);
    }
    split.control.record.note_end(End::Lost);
    // The client has what was between two rows before it gets the error.
    answer::flush(split).await?;
    lease::abandon(split);
    split.answer.status.remove(StatusFlags::IN_TRANS);
    split
        .answer
        .shape
        .reset(split.client.key.capabilities, split.client.capabilities);
    answer::end_with(split, sequence, error)
        .await
        .map(|()| Next::Done)
}

/// The answer has no end: the session is a stream from here on.
async fn stream(split: &mut Split) -> Result<Next, SessionError> {
    let ended = relay::endless(&mut split.streams, &split.control).await;
    split.answer.error_sequence = None;
    Err(match ended {
        Ok(()) => SessionError::ClientGone,
        Err(broken) => split.broken(broken),
    })
}
