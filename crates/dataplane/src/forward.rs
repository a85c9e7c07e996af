//! Mode `session`: a command goes to the server that the session is on, and the answer to the client.

use std::time::Instant;

use crate::command_head::CommandHead;
use crate::relay::{Exchange, Exchanged, RelayError};
use crate::session::Session;

/// Forwards the command at the head of what the client sent, and its response.
pub(crate) async fn forward(session: &mut Session, head: CommandHead) -> Result<Exchanged, RelayError> {
    session.streams.begin_command()?;
    session.begin_response(head);
    session.control.record.note_sent(Instant::now);
    let exchange = Exchange::new(&mut session.response, &session.control, false);
    let outcome = exchange.run(&mut session.streams).await;
    session.error_sequence = outcome.error_sequence;
    outcome.result
}

/// Forwards the response to a command of one packet that was sent to the server already.
pub(crate) async fn response(session: &mut Session) -> Result<Exchanged, RelayError> {
    let exchange = Exchange::new(&mut session.response, &session.control, true);
    let outcome = exchange.run(&mut session.streams).await;
    session.error_sequence = outcome.error_sequence;
    outcome.result
}
