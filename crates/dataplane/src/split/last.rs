//! What a statement reads of the one before it: `LAST_INSERT_ID()`, `ROW_COUNT()`, `FOUND_ROWS()`, and `CONNECTION_ID()`.
//!
//! On a connection that was somebody else's in between a server would answer with that session's figures. So the
//! connection is given this session's last insert id, and the figures that cannot be set are written into the statement.

use std::rc::Rc;

use mysql_wire::{Command, OkPacket, Outcome, PacketHeader};
use session::Prepared;
use sql_class::{Effects, Facts, Syntax};

use crate::error::SessionError;
use crate::session::CommandHead;
use crate::split::run::with_statement;
use crate::split::state::{Refused, Split};
use crate::split::{answer, ask, command, lease, lookup};

/// What the connection at hand still says of the session's last statement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    /// Nobody else had it in between.
    pub(crate) is_own: bool,
    /// And nothing else was executed on it, not by the gateway either.
    pub(crate) is_untouched: bool,
}

/// Puts this session's figures into the text of a statement that was to be sent, where it asks for them.
pub(crate) fn put_values(split: &mut Split, head: CommandHead, facts: &Facts, left: Left) {
    let payload = command::payload(split, head);
    if payload.len() != head.payload_len {
        return;
    }
    let Some(text) = command::text(payload, split.capabilities) else {
        return;
    };
    let Some(changed) = with_values(split, text, facts, left) else {
        return;
    };
    let attributes = payload.len() - text.len();
    let changed = [&payload[..attributes], &changed].concat();
    split.wires.up.discard(PacketHeader::LEN + head.payload_len);
    split.say_command(&changed);
}

/// Has the leased connection say of the session's last statement what it may be asked. `prepared`: the id and the digest of the
/// statement that is executed. True where there was something to do; after an error the connection has to be
/// [given up](give_up).
pub(crate) async fn bring_about(
    split: &mut Split,
    head: CommandHead,
    facts: &Facts,
    prepared: Option<(u32, u64)>,
) -> Result<bool, Refused> {
    let mut primed = false;
    while let Some(command) = with_statement(split, head, Some(facts), prepared, |session, statement| {
        session.prime(statement)
    }) {
        prime(split, command).await?;
        primed = true;
    }
    let found = lookup::bring_about(split, facts).await?;
    Ok(found || primed)
}

/// Tells the session where the id that an answer has is certainly one that the server has made. `sent`: the statement.
pub(crate) fn note_made(split: &mut Split, outcome: &Outcome, sent: Option<&[u8]>) {
    let id = outcome.last_insert_id;
    if let Some(sent) = sent.filter(|_| id != 0)
        && !split.session.knows_last_insert_id()
        && !may_give(split, sent, id)
    {
        split.session.insert_id_was_made();
    }
}

/// Whether the session is about to give its connection back after statements whose rows may have ids that they have given themselves:
/// then LAST_INSERT_ID() does not know them.
pub(crate) fn is_in_doubt(split: &Split) -> bool {
    !split.session.knows_last_insert_id() && !split.keeps_connection && !split.session.is_pinned()
}

/// Asks for the id, before the connection is given back.
pub(crate) async fn learn_insert_id(split: &mut Split) {
    let Some(ask) = split.session.ask_last_insert_id() else {
        return;
    };
    if prime(split, ask).await.is_err() {
        lease::abandon(split);
    }
}

/// Whether a statement may have given the id itself: it is there in some form, or comes from somewhere else.
fn may_give(split: &mut Split, packet: &[u8], id: u64) -> bool {
    let payload = packet.get(PacketHeader::LEN..).unwrap_or_default();
    let has = |text: &[u8], part: &[u8]| {
        let mut windows = text.windows(part.len());
        windows.any(|window| window.eq_ignore_ascii_case(part))
    };
    let elsewhere = |text: &[u8]| {
        let mut parts = [&b"select"[..], b"duplicate", b"@"].into_iter();
        parts.any(|part| has(text, part))
    };
    if has(payload, id.to_string().as_bytes()) {
        return true;
    }
    if payload.first() == Some(&Command::QUERY.0) {
        return elsewhere(payload);
    }
    let binary = id.to_le_bytes();
    let len = binary.len() - id.leading_zeros() as usize / 8;
    let statement = payload.get(1..5).and_then(|id| id.try_into().ok());
    let statement = statement.and_then(|id| split.session.statements().get(u32::from_le_bytes(id)));
    let text = statement.map(|prepared| Rc::clone(&prepared.text));
    text.is_none_or(|text| elsewhere(&text) || has(&text, id.to_string().as_bytes()))
        || payload.windows(len).any(|window| *window == binary[..len])
}

/// The leased connection has failed before the client's command was sent. A session that held something there ends with it: its
/// client must not go on as if that were still so.
pub(crate) async fn give_up(split: &mut Split, refused: Refused) -> Result<(), SessionError> {
    if lease::holds_state(split) {
        split.error_sequence = Some(answer::discard(split).await?.wrapping_add(1));
        return Err(refused.0);
    }
    lease::abandon(split);
    answer::refuse(split, refused).await
}

/// Gives a connection that was just leased the session's last insert id, by the command that the session has made.
async fn prime(split: &mut Split, command: Vec<u8>) -> Result<(), Refused> {
    let capabilities = split.key.capabilities;
    let replies = lease::ask_on_lease(split, &ask::framed(capabilities, vec![command])).await?;
    let reply = replies.first();
    if let Some(packet) = reply.and_then(|reply| reply.error(capabilities)) {
        return Err(Refused(SessionError::StateRefused {
            server: split.server_name().to_owned(),
            packet,
        }));
    }
    // MariaDB says with this OK what the statement before has restored.
    let ok = reply.and_then(|reply| OkPacket::decode(reply.packet(0)?, capabilities).ok());
    if let Some(ok) = ok {
        split.session.observe_ok(&ok);
    }
    Ok(())
}

/// Puts the session's own id into a statement that was to be prepared, and is right whenever it is executed. The text that is
/// prepared then; `None` where it is the client's.
pub(crate) fn put_own_id(split: &mut Split, head: CommandHead, facts: &Facts) -> Option<Vec<u8>> {
    const ID_ALONE: Left = Left {
        is_own: true,
        is_untouched: true,
    };
    let (command, text) = command::payload(split, head).split_first()?;
    let (command, changed) = (*command, with_values(split, text, facts, ID_ALONE)?);
    split.wires.up.discard(PacketHeader::LEN + head.payload_len);
    split.say_command(&[&[command], changed.as_slice()].concat());
    Some(changed)
}

/// The text with this session's figures in the place of the functions that a server would answer with another's. `None` where
/// it is right as it is.
pub(crate) fn with_values(split: &Split, text: &[u8], facts: &Facts, left: Left) -> Option<Vec<u8>> {
    let mut values: Vec<(&str, String)> = Vec::new();
    // Among a server's own processes and threads its own id is the right one.
    let reads_server = facts.effects.contains(Effects::READS_SERVER);
    if facts.effects.contains(Effects::READS_CONNECTION_ID) && !reads_server {
        let id = format!("CAST({} AS UNSIGNED)", split.control.id);
        values.push(("CONNECTION_ID", id));
    }
    if !left.is_untouched && facts.effects.contains(Effects::READS_ROW_COUNT) {
        values.push(("ROW_COUNT", split.session.row_count().to_string()));
    }
    // What the gateway itself executes leaves them as they are. None is better than another session's.
    if !left.is_own && facts.effects.contains(Effects::READS_FOUND_ROWS) {
        let rows = lookup::found_rows(split)
            .or(split.session.found_rows())
            .unwrap_or(0);
        values.push(("FOUND_ROWS", rows.to_string()));
    }
    if values.is_empty() {
        return None;
    }
    with_calls(text, split.session.syntax(), &values)
}

/// The text of a statement that was prepared without a schema, for a connection that has one: what it asks for the schema it is answered
/// as on its own. `None` where it is right as it is.
pub(crate) fn without_schema(split: &Split, prepared: &Prepared) -> Option<Vec<u8>> {
    let is_needed = prepared.context.schema().is_none() && split.session.carried().schema().is_some();
    let values = ["DATABASE", "SCHEMA"].map(|function| (function, "NULL".to_owned()));
    is_needed.then(|| with_calls(&prepared.text, split.session.syntax(), &values))?
}

/// The text with values in the place of calls of functions without arguments. `None` where there are no such calls.
fn with_calls(text: &[u8], syntax: Syntax, values: &[(&str, String)]) -> Option<Vec<u8>> {
    let mut places: Vec<_> = values
        .iter()
        .flat_map(|(function, value)| {
            sql_class::calls(text, syntax, function)
                .into_iter()
                // The column's type and length are the function's, which an argument gives that is never looked at.
                .map(move |call| (call, format!("IF(TRUE,{value},{function}())")))
        })
        .collect();
    places.sort_by_key(|(call, _)| call.range.start);
    let mut changed = Vec::with_capacity(text.len() + 32);
    let mut at = 0;
    for (call, value) in places {
        changed.extend_from_slice(&text[at..call.range.start]);
        changed.extend_from_slice(value.as_bytes());
        // A column without a name of its own bears the text of its expression.
        if call.is_bare_item {
            changed.extend_from_slice(b" AS `");
            changed.extend_from_slice(&text[call.range.clone()]);
            changed.push(b'`');
        }
        at = call.range.end;
    }
    changed.extend_from_slice(&text[at..]);
    (at > 0).then_some(changed)
}
