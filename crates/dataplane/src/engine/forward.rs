//! Commands that are no statements.

use mysql_wire::Command;

use crate::command_head::CommandHead;
use crate::engine::begin::{begin, let_go};
use crate::engine::client_session::ClientSession;
use crate::engine::exchange::exchange;
use crate::engine::next::Next;
use crate::engine::target::Target;
use crate::engine::{again, anywhere, lease};
use crate::error::SessionError;
use crate::relay::Exchanged;

/// Sends the command to the primary, or to where the session is.
pub(crate) async fn forward(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    let_go(session, head, None, None);
    let target = anywhere::target_of_command(session, head);
    if target.is_some() {
        again::keep_for_any(session, head);
    }
    let target = target.unwrap_or(Target::Primary { for_writing: false });
    if let Err(refused) = lease::lease(session, &target).await {
        return Ok(refused.into());
    }
    begin(session, head, None);
    let ended = exchange(session, head.command, None).await;
    // A refused command has left nothing behind, or its server closes the connection.
    let is_refused = matches!(&ended.result, Ok(Exchanged::Done(outcome)) if outcome.error.is_some());
    if is_replication(head.command) && !is_refused {
        session.binding.bind();
    }
    Ok(Next::settle(ended))
}

/// Commands by which a replica or a reader of the binary log begins: they belong together on one connection.
fn is_replication(command: Command) -> bool {
    command.starts_stream() || command == Command::REGISTER_SLAVE
}
