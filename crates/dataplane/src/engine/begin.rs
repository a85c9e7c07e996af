//! What the session is asked and told about a statement before it is sent.

use mysql_wire::Command;
use session::{Pin, PinReason, Request};
use sql_class::{Class, Effects, Facts};

use crate::engine::state::Split;
use crate::engine::{command, lease, rules};
use crate::session::CommandHead;

/// Nothing has to be so on the connection before the statement.
pub(crate) fn needs_no_priming(split: &Split, facts: &Facts) -> bool {
    let is_plain = facts.effects == Effects::NONE && facts.class != Class::Unknown;
    let several = facts.statements > 1 && facts.class >= Class::Write;
    let one_more = facts.class == Class::Write && split.session.has_many_insert_ids();
    is_plain && !several && !one_more
}

/// Gives back a connection that is held only for warnings that nobody asks for. True where it is to be
/// asked (`last::learn_insert_id`) first.
pub(crate) fn let_go(
    split: &mut Split,
    head: CommandHead,
    facts: Option<&Facts>,
    prepared: Option<(u32, u64)>,
) -> bool {
    if split.lease.is_none() || split.binding.is_for_good() || !split.session.is_pinned() {
        return false;
    }
    let needs = with_statement(split, head, facts, prepared, |session, statement| {
        session.needs_its_connection(statement)
    });
    let is_to_be_asked = !needs && !split.session.knows_last_insert_id();
    let leaves = needs && lease::may_leave_replica(split);
    let leaves = leaves && facts.is_some_and(|facts| rules::binds_for_long(split, facts));
    let is_to_be_asked = is_to_be_asked || leaves && has_count_alone(split);
    if !is_to_be_asked && (!needs || leaves) {
        lease::give_back(split);
    }
    is_to_be_asked
}

/// The connection alone can say how many rows the session's last statement has found.
pub(crate) fn has_count_alone(split: &Split) -> bool {
    let has_counted = |pin: &Pin| pin.reason == PinReason::FoundRows;
    split.session.pins().iter().any(has_counted) && split.session.found_rows().is_none()
}

/// Tells the session what is about to be sent.
pub(crate) fn begin(split: &mut Split, head: CommandHead, facts: Option<&Facts>) {
    split.statement.may_load_file = facts.is_some_and(|facts| command::may_load_file(split, facts));
    with_statement(split, head, facts, None, |session, statement| {
        session.begin(statement)
    });
}

/// Asks or tells the session something about a command. `prepared`: the id and the digest of the statement
/// that it executes.
pub(crate) fn with_statement<T>(
    split: &mut Split,
    head: CommandHead,
    facts: Option<&Facts>,
    prepared: Option<(u32, u64)>,
    tell: impl FnOnce(&mut session::Session, &Request<'_>) -> T,
) -> T {
    let overlooked = facts.and_then(|facts| rules::overlooked(split, facts));
    let facts = overlooked.as_ref().or(facts);
    let syntax = split.session.syntax();
    let payload = command::payload_of(&split.streams.up, head);
    let text = match head.command {
        Command::QUERY => command::text(payload, split.client.capabilities).unwrap_or_default(),
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
        now_ms: split.context.worker.now_ms(),
    };
    tell(&mut split.session, &statement)
}
