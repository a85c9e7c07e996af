//! The record of a command that is about to be sent, if it is one of a transaction's.

use std::rc::Rc;

use mysql_wire::statement::{ExecuteHead, replace_id};
use mysql_wire::{Command, PacketHeader};
use session::{PinReason, Prepared};
use sql_class::{Class, Facts};

use crate::command_head::CommandHead;
use crate::engine::client_session::ClientSession;
use crate::engine::command;
use crate::engine::replay::kept::{Command as Kept, Replay, UnderWay};
use crate::engine::replay::why::{Part, Why, part};

/// Keeps the command that is about to be sent, if it is one of a transaction's. `prepared`: the statement
/// that it executes, and the client's id of that.
pub(crate) fn note(
    session: &ClientSession,
    replay: &mut Replay,
    head: CommandHead,
    facts: Option<&Facts>,
    prepared: Option<(u32, &Prepared)>,
) {
    replay.is_sent(UnderWay::Nothing);
    let is_about_nothing = matches!(
        head.command,
        Command::PING
            | Command::STATISTICS
            | Command::STMT_PREPARE
            | Command::STMT_CLOSE
            | Command::STMT_RESET
    );
    if is_about_nothing {
        return;
    }
    let is_open = session.state.in_transaction();
    if !is_open && !session.state.was_pinned() && !session.binding.is_bound() {
        replay.forget();
        if !begins(session, facts) {
            return;
        }
        replay.begin(session.state.carried(), session.state.last_insert_id());
        if !session.state.knows_last_insert_id() {
            replay.leave(Why::Pin(PinReason::LastInsertId));
        }
    }
    if !replay.is_kept() {
        if is_open && replay.why_not().is_none() {
            replay.leave(Why::Held);
        }
        return;
    }
    let has_room = replay.has_room(head.payload_len);
    let command = match has_room.and_then(|()| keep_command(session, head, prepared)) {
        Ok(command) => command,
        Err(why) => return replay.leave(why),
    };
    let text = match (&command, prepared) {
        (Kept::Text(payload), _) => command::text(payload, session.client.capabilities),
        (_, Some((_, prepared))) => Some(&*prepared.text),
        _ => None,
    };
    let facts = facts.filter(|_| text.is_some());
    let trusts_functions = session.state.trusts_functions();
    let part = facts.map(|facts| part(facts, text.unwrap_or_default(), is_open, trusts_functions));
    match part {
        Some(Part::End) => replay.is_sent(UnderWay::End),
        // The statement is a transaction of its own.
        Some(Part::Statement { changes_rows: true }) if session.state.autocommit() && !is_open => {
            replay.leave(Why::Commits);
        }
        Some(Part::Statement { .. }) if session.statement.lists_processes => {
            replay.leave(Why::ServerState);
        }
        Some(Part::Statement { changes_rows }) => {
            replay.is_sent(UnderWay::Statement {
                command,
                changes_rows,
            });
        }
        Some(Part::Not(why)) => replay.leave(why),
        None => replay.leave(Why::NotUnderstood),
    }
}

/// Whether a transaction may begin with the statement.
fn begins(session: &ClientSession, facts: Option<&Facts>) -> bool {
    facts.is_some_and(|facts| {
        !session.state.autocommit()
            || matches!(facts.class, Class::Begin | Class::BeginReadOnly)
            || facts.effects.contains(sql_class::Effects::NEXT_TRANSACTION)
    })
}

/// The command, so that it can be sent to another server.
fn keep_command(
    session: &ClientSession,
    head: CommandHead,
    prepared: Option<(u32, &Prepared)>,
) -> Result<Kept, Why> {
    let payload = match session.statement.is_ours {
        // The payload was put in the place of the client's.
        true => last_packet(session.streams.up.outgoing()[0]),
        false => {
            let payload = command::payload(session, head);
            let is_whole = payload.len() == head.payload_len && head.payload_len < PacketHeader::MAX_PAYLOAD;
            is_whole.then_some(payload)
        }
    };
    match (head.command, prepared) {
        (Command::STMT_EXECUTE | Command::QUERY, _) if payload.is_none() => Err(Why::TooLarge),
        (Command::QUERY, None) => Ok(Kept::Text(payload.unwrap_or_default().into())),
        (Command::STMT_EXECUTE, Some((id, prepared))) => {
            let payload = payload.unwrap_or_default().to_vec();
            keep_execution(session, payload, id, prepared)
        }
        (Command::STMT_BULK_EXECUTE, _) => Err(Why::Bulk),
        (Command::STMT_FETCH, _) => Err(Why::Pin(PinReason::Cursor)),
        (Command::STMT_SEND_LONG_DATA, _) => Err(Why::Pin(PinReason::LongData)),
        (Command::INIT_DB | Command::SET_OPTION, _) => Err(Why::SessionState),
        (Command::PROCESS_INFO, _) => Err(Why::ServerState),
        _ => Err(Why::NotUnderstood),
    }
}

/// The payload of the last of these packets.
fn last_packet(packets: &[u8]) -> Option<&[u8]> {
    let header = PacketHeader::parse(packets)?;
    let (payload, rest) = packets[PacketHeader::LEN..].split_at_checked(header.payload_len)?;
    match rest.is_empty() {
        true => (!header.is_continued()).then_some(payload),
        false => last_packet(rest),
    }
}

fn keep_execution(
    session: &ClientSession,
    mut payload: Vec<u8>,
    id: u32,
    prepared: &Prepared,
) -> Result<Kept, Why> {
    let parsed = ExecuteHead::decode(&payload, prepared.params, session.client.key.capabilities);
    let parsed = parsed.map_err(|_| Why::NotUnderstood)?;
    if parsed.opens_cursor || prepared.cursor {
        return Err(Why::Pin(PinReason::Cursor));
    }
    if prepared.long_data {
        return Err(Why::Pin(PinReason::LongData));
    }
    let is_known_state = session.state.ask_meaning().is_none();
    // An empty text is one that nobody has kept.
    if prepared.text.is_empty()
        || !is_known_state
        || !session.state.carried().means_the_same(&prepared.context)
    {
        return Err(Why::SessionState);
    }
    if parsed.needs_types() {
        // The client has sent the types with an execution before.
        let known = prepared.types.as_ref();
        known
            .filter(|types| parsed.inject_types(&mut payload, types))
            .ok_or(Why::NotUnderstood)?;
    }
    if !replace_id(&mut payload, id) {
        return Err(Why::NotUnderstood);
    }
    Ok(Kept::Execution {
        text: Rc::clone(&prepared.text),
        payload: payload.into(),
        id,
    })
}
