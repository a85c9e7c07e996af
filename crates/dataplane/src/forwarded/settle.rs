//! The effects of a command: the session's status, its counters, or its end.

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
    session.streams.traffic.commands += 1;
    session.worker.metrics.commands[usize::from(head.command.0)].inc();
    match exchanged {
        Ok(Exchanged::Done(outcome)) => {
            session.control.record.note_outcome(&outcome);
            if outcome.has_status {
                session.status = outcome.status;
            }
            if let Some(code) = outcome.error {
                session.worker.metrics.error_passed_on(code);
            }
            Ok(())
        }
        Ok(Exchanged::Sent | Exchanged::Streaming) => {
            session.control.record.note_end(End::Relayed);
            Ok(())
        }
        Err(broken) => {
            session.control.record.note_end(End::Lost);
            Err(session.broken(broken))
        }
    }
}
