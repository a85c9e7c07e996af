//! Mode `session`: a command goes to the server that the session is on, and the answer to the client.

use std::time::Instant;

use crate::command_head::CommandHead;
use crate::forwarded::process_list::Translated;
use crate::forwarded::session::Session;
use crate::relay::{Exchange, Exchanged, RelayError};

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

/// Forwards a command whose answer is a list of processes, in which sessions get the numbers that their
/// clients know.
pub(crate) async fn process_list(session: &mut Session, head: CommandHead) -> Result<Exchanged, RelayError> {
    let numbers = {
        let registry = &session.worker.shared.registry;
        registry.numbers_on(session.listener.key(&session.server))
    };
    session.streams.begin_command()?;
    session.begin_response(head);
    session.control.record.note_sent(Instant::now);
    let mut answer = Translated::new(&mut session.response, numbers, session.capabilities);
    let exchange = Exchange::new(&mut answer, &session.control, false);
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
