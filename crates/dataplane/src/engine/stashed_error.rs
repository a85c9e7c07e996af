//! The error that the session was told last, for which it may ask: `SHOW WARNINGS`, `SHOW ERRORS`,
//! `GET DIAGNOSTICS`, `@@error_count`.
//!
//! The connection that has told the error knows it, and the session keeps that connection for it. While its
//! client is silent and others wait for connections, the gateway keeps the error instead, if that is all that
//! the server has to show. When the client does ask, the error is raised again on the connection at hand, by
//! `SIGNAL`, and the server answers.

use mysql_wire::{Command, ErrPacket};
use session::{PinReason, Session};
use sql_class::{Effects, Facts};

use crate::command_head::CommandHead;
use crate::engine::begin::{needs_no_priming, with_statement};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::last_error::{LastError, may_be_raised};
use crate::engine::leased::Left;
use crate::engine::next::Next;
use crate::engine::prepared::execute;
use crate::engine::target::Target;
use crate::engine::{ask, command, keep, last_statement, lease};
use crate::error::SessionError;
use crate::relay::{Exchanged, RelayOutcome};

/// Notes that a command was answered. The error that its client was told may be asked for from here on.
pub(crate) fn renew(
    last: &mut Option<Box<LastError>>,
    session: &Session,
    ended: &RelayOutcome,
    error: Option<Box<LastError>>,
) {
    if last.is_none() {
        *last = error;
        return;
    }
    let has_failed = matches!(&ended.result, Ok(Exchanged::Done(outcome)) if outcome.error.is_some());
    LastError::renew(
        last,
        error,
        !has_failed && session.has_pin(PinReason::Diagnostics),
    );
}

/// The statement by which a server says this error again.
fn signal(error: &ErrPacket) -> Option<String> {
    may_be_raised(error).then(|| {
        format!(
            "SIGNAL SQLSTATE '{}' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = '{}'",
            String::from_utf8_lossy(&error.sql_state),
            error.code,
            String::from_utf8_lossy(&error.message).replace('\'', "''")
        )
    })
}

/// Gives the connection of a silent client back where others want it, if the error is all that is on it.
pub(crate) async fn stash(session: &mut ClientSession) {
    if !keep::is_for_an_error_alone(session) || !keep::is_wanted(session) {
        return;
    }
    if session.last.error.is_none() {
        if !session.state.knows_last_insert_id() {
            last_statement::learn_insert_id(session).await;
        }
        if session.lease.is_some() {
            lease::give_back(session);
        }
        return;
    }
    // `max_error_count` may leave only one of many.
    let questions = ["SHOW WARNINGS LIMIT 2", "SHOW COUNT(*) WARNINGS"];
    let questions = questions.map(|text| ask::query(session.client.key.capabilities, text));
    let Ok(replies) = lease::ask_on_lease(session, &questions).await else {
        return lease::abandon(session);
    };
    if let Some(leased) = &mut session.lease {
        // The count of rows is that of what was shown.
        leased.left.has_count = false;
    }
    let Some(last) = &session.last.error else { return };
    let code = last.error.code.to_string();
    let expected = [&b"Error"[..], code.as_bytes(), &last.error.message].map(Some);
    let is_alone = match &replies[..] {
        [shown, count] => shown.row() == Some(expected) && count.row() == Some([Some(&b"1"[..])]),
        _ => false,
    };
    if !is_alone {
        // The connection has more to show than can be shown again.
        session.last.error = None;
        return;
    }
    if !session.state.knows_last_insert_id() {
        last_statement::learn_insert_id(session).await;
    }
    let digest = session.state.pins().first().map_or(0, |pin| pin.digest);
    if let Some(last) = &mut session.last.error {
        last.stashed = Some(digest);
    }
    if session.lease.is_some() {
        lease::give_back(session);
    }
}

/// Serves a command of a session whose error was put away. Raises the error again where the command may ask
/// for it, or leaves it where it is.
pub(crate) async fn restore(session: &mut ClientSession, head: CommandHead) -> Result<Next, SessionError> {
    let Some(digest) = session.last.error.as_ref().and_then(|last| last.stashed) else {
        return Ok(Next::Begin);
    };
    let is_mariadb = session.dialect().is_mariadb();
    let (facts, about) = about(session, head);
    let is_of_no_server = [
        Command::PING,
        Command::STMT_CLOSE,
        Command::STMT_SEND_LONG_DATA,
        Command::STATISTICS,
    ];
    let is_kept = match head.command {
        command if is_of_no_server.contains(&command) => return Ok(Next::Begin),
        Command::QUERY if facts.as_ref().is_some_and(is_the_gateways) => return Ok(Next::Begin),
        Command::QUERY | Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
            facts.is_some()
                && with_statement(session, head, facts.as_ref(), about, |session, statement| {
                    session.keeps_diagnostics(statement)
                })
        }
        // MySQL forgets what was said before when it prepares.
        Command::STMT_PREPARE => is_mariadb,
        Command::RESET_CONNECTION | Command::CHANGE_USER | Command::STMT_FETCH | Command::QUIT => false,
        _ => true,
    };
    let Some(mut last) = session.last.error.take().filter(|_| is_kept) else {
        return Ok(Next::Begin);
    };
    let target = where_to_raise(session);
    if let Err(refused) = lease::lease(session, &target).await {
        if !facts.as_ref().is_some_and(asks) {
            // Nobody has asked yet: the error is rather lost than in the way of a command that may do without
            // the primary.
            return Ok(Next::Begin);
        }
        session.last.error = Some(last);
        return Ok(refused.into());
    }
    let brought = raise_behind_figures(session, head, facts.as_ref(), about, &last.error).await;
    if let Err(refused) = brought {
        return last_statement::give_up(session, refused).await;
    }
    session
        .state
        .has_diagnostics_again(digest, session.context.worker.now_ms());
    last.stashed = None;
    session.last.error = Some(last);
    Ok(Next::Begin)
}

/// The target on which to raise the error, which any server can do. The primary is best for statements that
/// may follow; where there is none, nobody has to wait for one.
fn where_to_raise(session: &ClientSession) -> Target {
    let topology = session.pool().topology();
    let writer = session.writer(&topology);
    let has_primary = writer.is_some_and(|writer| writer.server.takes_statements());
    match has_primary && topology.refuse_writes.is_none() {
        true => Target::Primary { for_writing: false },
        false => Target::Replica,
    }
}

fn asks(facts: &Facts) -> bool {
    facts.effects.contains(Effects::READS_DIAGNOSTICS)
}

fn is_the_gateways(facts: &Facts) -> bool {
    facts.effects.contains(Effects::GATEWAY)
}

/// The facts of the statement of a command, and the id and the digest of one that was prepared.
fn about(session: &ClientSession, head: CommandHead) -> (Option<Facts>, Option<(u32, u64)>) {
    match head.command {
        Command::QUERY => (Some(command::facts(session, head)), None),
        Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE => {
            let known = execute::prepared_of(session, head);
            let about = known.as_ref().map(|(id, prepared)| (*id, prepared.digest));
            (known.map(|(_, prepared)| (*prepared.facts).clone()), about)
        }
        _ => (None, None),
    }
}

async fn raise_behind_figures(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Option<&Facts>,
    about: Option<(u32, u64)>,
    error: &ErrPacket,
) -> Result<(), Refused> {
    // A question that is asked after the error is raised would end it.
    if let Some(facts) = facts.filter(|facts| !needs_no_priming(session, facts)) {
        last_statement::bring_about(session, head, facts, about).await?;
    }
    match raise(session, error).await? {
        Ok(()) => Ok(()),
        Err(packet) => Err(session.state_refused(packet)),
    }
}

/// Has the leased connection say this error, in the place of what it has said last. The inner error is what
/// it says instead, if it does.
pub(crate) async fn raise(
    session: &mut ClientSession,
    error: &ErrPacket,
) -> Result<Result<(), ErrPacket>, Refused> {
    let capabilities = session.client.key.capabilities;
    let Some(signal) = signal(error) else {
        return Ok(Err(error.clone()));
    };
    let replies = lease::ask_on_lease(session, &[ask::query(capabilities, &signal)]).await?;
    if let Some(leased) = &mut session.lease {
        // The connection is as after a statement that has failed.
        leased.left = Left {
            has_count: false,
            ..Left::ALL
        };
    }
    let said = replies.first().and_then(|reply| reply.error(capabilities));
    Ok(match said {
        Some(said) if said == *error => Ok(()),
        said => Err(said.unwrap_or_else(|| error.clone())),
    })
}

#[cfg(test)]
mod tests {
    use mysql_wire::{Capabilities, write_packet};

    use super::*;
    use crate::engine::last_error::MESSAGE_MAX;

    fn error(code: u16, sql_state: &[u8; 5], message: &str) -> ErrPacket {
        ErrPacket {
            code,
            sql_state: *sql_state,
            message: message.into(),
        }
    }

    #[test]
    fn an_error_is_found_at_the_end_of_an_answer() {
        let last = error(1054, b"42S22", "Unknown column 'a' in 'SELECT'");
        let (mut payload, mut packet) = (Vec::new(), Vec::new());
        last.encode(&mut payload, Capabilities::PROTOCOL_41);
        write_packet(&mut packet, &mut 3, &payload);
        for rows in [&b""[..], b"\x05\0\0\x06\x04rows", &[0xff; 2000]] {
            let answer = [rows, &packet].concat();
            let found = LastError::at_end_of(&answer, 1054).unwrap();
            assert_eq!((found.error, found.stashed), (last.clone(), None));
            assert!(LastError::at_end_of(&answer, 1064).is_none());
            assert!(LastError::at_end_of(&answer[..answer.len() - 1], 1054).is_none());
        }
        assert!(LastError::at_end_of(b"", 1054).is_none());
    }

    #[test]
    fn what_was_put_away_outlives_commands_that_tell_nothing() {
        let mut last = LastError::new(error(1054, b"42S22", "no"));
        let mut stashed = LastError::new(error(1054, b"42S22", "no"));
        if let Some(last) = &mut stashed {
            last.stashed = Some(1);
        }
        LastError::renew(&mut last, None, true);
        assert!(last.is_some());
        LastError::renew(&mut last, None, false);
        LastError::renew(&mut stashed, None, false);
        assert!(last.is_none() && stashed.is_some());
        LastError::renew(&mut stashed, LastError::new(error(1146, b"42S02", "no")), false);
        assert!(stashed.is_some_and(|last| last.error.code == 1146 && last.stashed.is_none()));
    }

    #[test]
    fn only_what_is_plain_is_raised_again() {
        let of = |code, state, message: &str| signal(&error(code, state, message));
        assert_eq!(
            of(1062, b"23000", "it's so").unwrap(),
            "SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'it''s so'"
        );
        let longest = "x".repeat(MESSAGE_MAX);
        assert!(of(1062, b"23000", &longest).is_some());
        for message in ["a\\b", "ä", "a\0b", "a\nb", &format!("{longest}x")] {
            assert_eq!(of(1062, b"23000", message), None, "{message}");
        }
        for state in [b"00000", b"01000", b"02000", b"42'00"] {
            assert_eq!(of(1062, state, "x"), None);
        }
        assert_eq!(of(0, b"23000", "x"), None);
    }
}
