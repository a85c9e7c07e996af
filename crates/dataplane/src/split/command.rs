//! Waiting for a client's command, and its statement.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use mysql_wire::query::Query;
use mysql_wire::{Capabilities, Command, PacketHeader};
use sql_class::{Class, Effects, Facts};

use crate::classify::{Kill, Need, classify};
use crate::control::Waiting;
use crate::error::SessionError;
use crate::flow::Flow;
use crate::session::CommandHead;
use crate::split::state::Split;
use crate::split::{answer, last, lookup, told};

/// Waits for the next command, as much of it as fits into a buffer: a statement is looked at before it is sent. What comes
/// in the meantime for the session (a drain, a kill) ends it here.
pub(crate) async fn accept(split: &mut Split) -> Result<CommandHead, SessionError> {
    split.control.mark(Waiting::Client);
    split.error_sequence = Some(0);
    lookup::next_command(split);
    loop {
        match poll_fn(|cx| poll_accept(cx, split)).await? {
            Some(head) => return Ok(head),
            None => Box::pin(told::put_away(split)).await,
        }
    }
}

/// `None` where nothing has come for a while, of a client whose session may do without its connection.
fn poll_accept(cx: &mut Context<'_>, split: &mut Split) -> Poll<Result<Option<CommandHead>, SessionError>> {
    loop {
        if split.wires.down.is_pending() {
            ready!(answer::poll_rest(cx, split))?;
        }
        if let Some(signal) = split.control.due(split.is_free()) {
            return Poll::Ready(Err(split.signalled(signal)));
        }
        if let Some(head) = whole(split) {
            return Poll::Ready(Ok(Some(head)));
        }
        match lookup::poll_read(cx, split) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(SessionError::ClientGone)),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(SessionError::ClientFailed(error))),
            Poll::Pending if split.control.is_to_leave() => return Poll::Ready(Ok(None)),
            // A session that holds a connection hears when the server ends it.
            Poll::Pending if split.lease.is_some() => return answer::poll_last_words(cx, split).map(Err),
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// The head of the command that was read, once it is there as far as it fits.
fn whole(split: &Split) -> Option<CommandHead> {
    let bytes = split.wires.up.unseen();
    let header = PacketHeader::parse(bytes)?;
    if bytes.len() < PacketHeader::LEN + header.payload_len && !split.wires.up.is_full() {
        return None;
    }
    let command = bytes
        .get(PacketHeader::LEN)
        .filter(|_| header.payload_len > 0)
        .map_or(Command::SLEEP, |byte| Command(*byte));
    Some(CommandHead {
        command,
        payload_len: header.payload_len,
    })
}

/// The payload of the command at the head of what the client sent, as far as it was read.
pub(crate) fn payload(split: &Split, head: CommandHead) -> &[u8] {
    payload_of(&split.wires.up, head)
}

/// The same, for those who hold other parts of the session.
pub(crate) fn payload_of(up: &Flow, head: CommandHead) -> &[u8] {
    let unseen = up.unseen();
    let end = (PacketHeader::LEN + head.payload_len).min(unseen.len());
    unseen.get(PacketHeader::LEN..end).unwrap_or_default()
}

/// The text of COM_QUERY or COM_STMT_PREPARE; `None` where query attributes in front of it make no sense.
pub(crate) fn text(payload: &[u8], capabilities: Capabilities) -> Option<&[u8]> {
    let command = Command(*payload.first()?);
    let rest = &payload[1..];
    if command != Command::QUERY || !capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        return Some(rest);
    }
    if let Some(text) = rest.strip_prefix(&[0, 1]) {
        return Some(text);
    }
    Query::decode(payload, capabilities).ok().map(|query| query.text)
}

/// A `KILL` of a single statement, whose id may have to be changed.
pub(crate) fn kill(split: &Split, head: CommandHead) -> Option<Kill> {
    let payload = payload(split, head);
    match classify(head.command, payload, head.payload_len, split.capabilities) {
        Need::Kill(kill) => Some(kill),
        _ => None,
    }
}

/// Whether the command at hand means the same in any schema: it goes to another one, or makes or drops one by name.
pub(crate) fn needs_no_schema(split: &Split) -> bool {
    let Some(head) = whole(split) else { return false };
    match head.command {
        Command::INIT_DB => true,
        Command::QUERY => {
            let facts = facts(split, head);
            let text = text(payload(split, head), split.capabilities).unwrap_or_default();
            facts.statements == 1
                && (facts.effects == Effects::CHANGES_DATABASE
                    || facts.class == Class::Ddl
                        && !facts.effects.contains(Effects::INCOMPLETE)
                        && names_schema(text))
        }
        _ => false,
    }
}

/// `CREATE DATABASE` or `DROP DATABASE`.
fn names_schema(text: &[u8]) -> bool {
    let is_one_of = |word: Option<&[u8]>, known: [&str; 2]| {
        word.is_some_and(|word| {
            known
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
        })
    };
    let mut words = text
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    is_one_of(words.next(), ["CREATE", "DROP"]) && is_one_of(words.next(), ["DATABASE", "SCHEMA"])
}

/// In a schema about the server a table is that without saying so, and may have what belongs to the session.
pub(crate) fn note_schema(split: &Split, text: &[u8], facts: &mut Facts) {
    const OF_TABLES: Effects = Effects::READS_SERVER.with(Effects::READS_LAST_INSERT_ID);
    let schema = split.session.carried().schema();
    if schema.is_some_and(sql_class::is_about_server)
        && [&b"FROM"[..], b"TABLE"].iter().any(|word| last::has(text, word))
    {
        facts.effects = facts.effects.with(OF_TABLES);
    }
}

/// What is known of a statement. One that was not seen to its end may do anything.
pub(crate) fn facts(split: &Split, head: CommandHead) -> Facts {
    let payload = payload(split, head);
    let seen_whole = payload.len() == head.payload_len && head.payload_len < PacketHeader::MAX_PAYLOAD;
    match text(payload, split.capabilities) {
        Some(text) if seen_whole => {
            let mut known = split.worker.known_facts.borrow_mut();
            let mut facts = known.facts(text, split.session.syntax());
            note_schema(split, text, &mut facts);
            facts
        }
        Some(text) => {
            let mut facts = sql_class::facts(text, split.session.syntax());
            facts.class = facts.class.max(Class::Write);
            facts.effects = facts.effects.with(Effects::INCOMPLETE);
            facts
        }
        None => Facts {
            class: Class::Unknown,
            effects: Effects::INCOMPLETE,
            statements: 1,
            hint: None,
        },
    }
}
