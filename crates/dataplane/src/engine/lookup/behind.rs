//! FOUND_ROWS() after a lookup from memory, of which no connection knows.
//!
//! Statements that ask for it are given it as a figure (`last_statement`). Nobody sees what a stored function
//! or a procedure asks for: before those a connection executes a SELECT that leaves the same behind.

use mysql_wire::{Command, PacketHeader};
use sql_class::text::begins_with;
use sql_class::{Class, Effects, Facts};

use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::{ask, lease};

/// The answer of FOUND_ROWS(), where that is of a lookup, of which no connection knows.
pub(crate) fn found_rows(session: &ClientSession) -> Option<u64> {
    session.lookups.as_ref()?.rows
}

/// Whether a command that is about to be sent, of which the session knows, ends what FOUND_ROWS() says.
#[cold]
pub(super) fn forgets_rows(session: &ClientSession, command: Command) -> bool {
    let (class, effects) = session.state.statement();
    let payload = session
        .streams
        .up
        .unseen()
        .get(PacketHeader::LEN + 1..)
        .unwrap_or_default();
    let keeps = match class {
        Class::Session | Class::Begin | Class::BeginReadOnly | Class::Transaction => true,
        Class::Write => session.state.dialect().is_mariadb(),
        // `SHOW WARNINGS` and the like, in plain words.
        Class::Read => effects.contains(Effects::READS_DIAGNOSTICS) && begins_with(payload, "SHOW"),
        _ => false,
    };
    let runs_sql = matches!(
        command,
        Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE
    );
    runs_sql && !keeps
}

/// Effects of statements that may ask without anybody seeing it.
const MAY_ASK: Effects = Effects::UNKNOWN_FUNCTION
    .with(Effects::CALLS_PROCEDURE)
    .with(Effects::INCOMPLETE);

/// Has the leased connection find as many rows as the lookup before, where the statement to come may ask how
/// many those were.
pub(crate) async fn bring_about(session: &mut ClientSession, facts: &Facts) -> Result<(), Refused> {
    let may_ask = facts.effects.intersects(MAY_ASK) || facts.class == Class::Unknown;
    match may_ask && found_rows(session).is_some() {
        true => find_as_many(session).await,
        false => Ok(()),
    }
}

/// Has the leased connection find as many rows as the lookup before.
pub(super) async fn find_as_many(session: &mut ClientSession) -> Result<(), Refused> {
    let rows = found_rows(session).unwrap_or(0);
    // MariaDB forgets warnings of before only where there is a table.
    let text = match rows {
        0 => "SELECT 1 FROM (SELECT 1 AS one) AS t WHERE FALSE",
        _ => "SELECT 1 FROM (SELECT 1 AS one) AS t",
    };
    let capabilities = session.client.key.capabilities;
    let replies = lease::ask_on_lease(session, &[ask::query(capabilities, text)]).await?;
    let reply = replies.first();
    if let Some(packet) = reply.and_then(|reply| reply.error(capabilities)) {
        return Err(session.state_refused(packet));
    }
    if let Some(ok) = reply.and_then(|reply| ask::end_ok(reply, capabilities)) {
        session.state.observe_ok(&ok);
    }
    Ok(())
}
