//! Commands that are no statements.

use mysql_wire::Command;

use crate::engine::begin::{begin, let_go};
use crate::engine::exchange::exchange;
use crate::engine::next::Next;
use crate::engine::state::Split;
use crate::engine::target::Target;
use crate::engine::{again, anywhere, lease};
use crate::error::SessionError;
use crate::relay::Exchanged;
use crate::session::CommandHead;

/// Sends the command to the primary, or to where the session is.
pub(crate) async fn forward(split: &mut Split, head: CommandHead) -> Result<Next, SessionError> {
    let_go(split, head, None, None);
    let target = anywhere::target_of_command(split, head);
    if target.is_some() {
        again::keep_for_any(split, head);
    }
    let target = target.unwrap_or(Target::Primary { for_writing: false });
    if let Err(refused) = lease::lease(split, &target).await {
        return Ok(refused.into());
    }
    begin(split, head, None);
    let ended = exchange(split, head.command, None).await;
    // A refused one has left nothing behind, or its server closes the connection.
    let is_refused = matches!(&ended.result, Ok(Exchanged::Done(outcome)) if outcome.error.is_some());
    if is_replication(head.command) && !is_refused {
        split.binding.bind();
    }
    Ok(Next::settle(ended))
}

/// Commands by which a replica or a reader of the binary log begins: they belong together on one connection.
fn is_replication(command: Command) -> bool {
    command.starts_stream() || command == Command::REGISTER_SLAVE
}
