//! What a statement reads of the one before it: `LAST_INSERT_ID()`, `ROW_COUNT()`, `FOUND_ROWS()`, and `CONNECTION_ID()`.
//!
//! On a connection that was somebody else's in between a server would answer with that session's figures. So the
//! connection is given this session's last insert id, and the figures that cannot be set are written into the statement.

use mysql_wire::{OkPacket, PacketHeader};
use sql_class::{Effects, Facts};

use crate::error::SessionError;
use crate::session::CommandHead;
use crate::split::state::{Refused, Split};
use crate::split::{ask, command, lease, lookup};

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

/// Has the leased connection say of the session's last statement what it may be asked. `command`: the one by which it gets the
/// session's last insert id. True where there was something to do; a connection that refuses is given up.
pub(crate) async fn bring_about(
    split: &mut Split,
    command: Option<Vec<u8>>,
    facts: &Facts,
) -> Result<bool, Refused> {
    let primed = match command {
        Some(command) => prime(split, command).await.map(|()| true),
        None => Ok(false),
    };
    let done = match primed {
        Ok(primed) => lookup::bring_about(split, facts)
            .await
            .map(|found| found || primed),
        Err(refused) => Err(refused),
    };
    if done.is_err() {
        lease::abandon(split);
    }
    done
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
    let syntax = split.session.syntax();
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
