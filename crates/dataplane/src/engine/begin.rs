//! Questions and notes to the session about a statement before it is sent.

use mysql_wire::Command;
use session::{PinReason, Request};
use sql_class::{Class, Effects, Facts};

use crate::command_head::CommandHead;
use crate::engine::client_session::ClientSession;
use crate::engine::replay::note::note;
use crate::engine::{command, lease, rules};
use crate::forwarded::classify;

/// Whether nothing has to be brought about on the connection before the statement.
pub(crate) fn needs_no_priming(session: &ClientSession, facts: &Facts) -> bool {
    let is_plain = facts.effects == Effects::NONE && facts.class != Class::Unknown;
    let several = facts.statements > 1 && facts.class >= Class::Write;
    let one_more = facts.class == Class::Write && session.state.has_many_insert_ids();
    is_plain && !several && !one_more
}

/// Gives back a connection that is held only for warnings that nobody asks for. True where the connection is
/// to be asked (`last_statement::learn_insert_id`) first.
pub(crate) fn let_go(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Option<&Facts>,
    prepared: Option<(u32, u64)>,
) -> bool {
    if session.lease.is_none() || session.binding.is_for_good() || !session.state.is_pinned() {
        return false;
    }
    let needs = with_statement(session, head, facts, prepared, |session, statement| {
        session.needs_its_connection(statement)
    });
    let is_to_be_asked = !needs && !session.state.knows_last_insert_id();
    let leaves = needs && lease::may_leave_replica(session);
    let leaves = leaves && facts.is_some_and(|facts| rules::binds_for_long(session, facts));
    let is_to_be_asked = is_to_be_asked || leaves && has_count_alone(session);
    if !is_to_be_asked && (!needs || leaves) {
        lease::give_back(session);
    }
    is_to_be_asked
}

/// Whether the connection alone can say how many rows the session's last statement has found.
pub(crate) fn has_count_alone(session: &ClientSession) -> bool {
    session.state.has_pin(PinReason::FoundRows) && session.state.found_rows().is_none()
}

/// Tells the session what is about to be sent.
pub(crate) fn begin(session: &mut ClientSession, head: CommandHead, facts: Option<&Facts>) {
    session.statement.may_load_file = facts.is_some_and(|facts| command::may_load_file(session, facts));
    session.statement.lists_processes = lists_processes(session, head, facts);
    with_statement(session, head, facts, None, |session, statement| {
        session.begin(statement)
    });
    if let Some(mut replay) = session.replay.take() {
        note(session, &mut replay, head, facts, None);
        session.replay = Some(replay);
    }
}

fn lists_processes(session: &ClientSession, head: CommandHead, facts: Option<&Facts>) -> bool {
    let may = facts.map_or(head.command == Command::PROCESS_INFO, |facts| {
        facts.effects.contains(Effects::READS_SERVER)
    });
    may && classify::lists_processes(head.command, command::text_of(session, head))
}

/// Asks or tells the session something about a command. `prepared`: the id and the digest of the statement
/// that the command executes.
pub(crate) fn with_statement<T>(
    session: &mut ClientSession,
    head: CommandHead,
    facts: Option<&Facts>,
    prepared: Option<(u32, u64)>,
    tell: impl FnOnce(&mut session::Session, &Request<'_>) -> T,
) -> T {
    let overlooked = facts.and_then(|facts| rules::overlooked(session, facts));
    let facts = overlooked.as_ref().or(facts);
    let syntax = session.state.syntax();
    let payload = session.streams.up.payload(head.payload_len);
    let text = match head.command {
        Command::QUERY => command::text(payload, session.client.capabilities).unwrap_or_default(),
        _ => &[],
    };
    let (argument, digest) = prepared.unwrap_or_else(|| {
        let option = match (head.command, payload) {
            (Command::SET_OPTION, [_, low, high, ..]) => u32::from(u16::from_le_bytes([*low, *high])),
            // MariaDB finds a zero behind the end of the packet.
            (Command::SET_OPTION, [_, low]) => u32::from(*low),
            _ => 0,
        };
        // A plain read pins nothing: no digest is made of it.
        let plain = facts.is_none_or(|facts| facts.effects == Effects::NONE && facts.class == Class::Read);
        let digest = if plain {
            0
        } else {
            sql_class::digest(text, syntax).hash
        };
        (option, digest)
    });
    let statement = Request {
        command: head.command,
        facts,
        argument,
        digest,
        text,
        now_ms: session.context.worker.now_ms(),
    };
    tell(&mut session.state, &statement)
}
