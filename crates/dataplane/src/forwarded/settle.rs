//! What a command leaves behind: the session's status, its counters, or its end.

use crate::command_head::CommandHead;
use crate::error::SessionError;
use crate::finished::End;
use crate::forwarded::session::Session;
use crate::relay::{Exchanged, RelayError};

/// After a command: takes over what its response said, or ends the session where there was no whole response.
#[inline]
pub(crate) fn command(
    session: &mut Session,
    head: CommandHead,
    exchanged: Result<Exchanged, RelayError>,
) -> Result<(), SessionError> {
    let record = &session.control.record;
    match &exchanged {
        Ok(Exchanged::Done(outcome)) => record.note_outcome(outcome),
        Ok(_) => record.note_end(End::Relayed),
        Err(_) => record.note_end(End::Lost),
    }
    session.streams.traffic.commands += 1;
    session.worker.metrics.commands[usize::from(head.command.0)].inc();
    match exchanged {
        Ok(Exchanged::Done(outcome)) => {
            if outcome.has_status {
                session.status = outcome.status;
            }
            if let Some(code) = outcome.error {
                session.worker.metrics.error_passed_on(code);
            }
            Ok(())
        }
        Ok(Exchanged::Sent | Exchanged::Streaming) => Ok(()),
        Err(broken) => Err(session.broken(broken)),
    }
}

/// After COM_QUIT: the session is over, whatever became of it.
pub(crate) fn quit(exchanged: Result<Exchanged, RelayError>) -> SessionError {
    drop(exchanged);
    SessionError::ClientQuit
}

/// After an answer without end: both sides are done, or one failed.
pub(crate) fn stream(session: &mut Session, ended: Result<(), RelayError>) -> SessionError {
    session.error_sequence = None;
    match ended {
        Ok(()) => SessionError::ClientGone,
        Err(broken) => session.broken(broken),
    }
}
