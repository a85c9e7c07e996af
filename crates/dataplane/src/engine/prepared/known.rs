//! Facts of a client's prepared statement, and whether the leased connection has it.

use mysql_wire::Command;
use session::Prepared;
use sql_class::Effects;
use sql_class::text::begins_with;

use crate::command_head::CommandHead;
use crate::engine::begin::with_statement;
use crate::engine::client_session::ClientSession;
use crate::engine::command;
use crate::engine::replay::note::note;
use crate::error::SessionError;

/// The text of a statement that nobody has room for, which no server prepares: the client's goes to the
/// server as it comes, and the session is bound to that connection.
pub(super) const NOT_KEPT: &[u8] = b"";

/// Whether a statement can be prepared on another connection than the one on which its client has prepared
/// it.
pub(crate) fn is_kept(prepared: &Prepared) -> bool {
    *prepared.text != *NOT_KEPT
}

/// Figures that cannot be written into a prepared statement: they are right only on the connection of the
/// statement before.
pub(crate) const OF_THE_LAST: Effects = Effects::READS_ROW_COUNT
    .with(Effects::READS_FOUND_ROWS)
    .with(Effects::READS_LAST_GTID);

/// Whether the leased connection has the statement.
pub(crate) fn is_known_here(session: &ClientSession, prepared: &Prepared) -> bool {
    let leased = session.lease.as_ref();
    leased.is_some_and(|leased| leased.connection.state.statements.known(prepared).is_some())
}

/// Tells the session that the statement is about to be executed.
pub(crate) fn begin_prepared(session: &mut ClientSession, head: CommandHead, id: u32, prepared: &Prepared) {
    session.statement.may_load_file = command::may_load_file(session, &prepared.facts);
    session.statement.executes_call = is_call(prepared);
    let (facts, about) = (Some(&*prepared.facts), Some((id, prepared.digest)));
    with_statement(session, head, facts, about, |session, statement| {
        session.begin(statement);
    });
    if let Some(mut replay) = session.replay.take() {
        note(session, &mut replay, head, facts, Some((id, prepared)));
        session.replay = Some(replay);
    }
}

/// Whether the statement is a `CALL` and nothing else, as far as its first word says so.
fn is_call(prepared: &Prepared) -> bool {
    let calls = prepared.facts.effects.contains(Effects::CALLS_PROCEDURE) && prepared.facts.statements == 1;
    calls && begins_with(&prepared.text, "CALL")
}

/// The error for a statement that is not known, in the words of servers, which say the same of a bulk
/// execution as of a plain one.
pub(crate) fn unknown_statement(id: u32, command: Command) -> SessionError {
    let command = match command {
        Command::STMT_BULK_EXECUTE => Command::STMT_EXECUTE,
        command => command,
    };
    SessionError::UnknownStatement {
        id,
        command: command.name(),
    }
}
