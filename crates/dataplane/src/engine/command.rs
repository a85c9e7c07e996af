//! The wait for a client's command, and its statement.
//!
//! A statement is read whole, up to a packet of 16 MiB, into a buffer that grows. A longer statement, or one
//! that finds no memory among those of other sessions, is forwarded while it comes.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use mysql_wire::query::{Query, plain_text};
use mysql_wire::{Capabilities, Command, PacketHeader};
use sql_class::text::{self, Kill};
use sql_class::{Class, Effects, Facts};

use crate::command_head::CommandHead;
use crate::control::{Signal, Waiting};
use crate::engine::answer::Bereft;
use crate::engine::client_session::ClientSession;
use crate::engine::replay::without::{can_do_without, note_lost};
use crate::engine::{answer, client_limits, do_without, lease};
use crate::error::SessionError;
use crate::forwarded::classify::{Need, classify};
use crate::read_gate;
use crate::relay::flow::Flow;

/// Bytes that are read of an execution before it is forwarded: 65535 parameters have as many types of two
/// bytes.
const HEAD_OF_EXECUTION: usize = 256 * 1024;

pub(crate) fn begin_to_wait(session: &mut ClientSession) {
    client_limits::renew(session);
    session.control.mark(Waiting::Client);
    session.control.shown.state(session.state.carried());
    session.answer.error_sequence = Some(0);
    if let Some(lookups) = &mut session.lookups {
        lookups.gating.next_command();
    }
    session.prepared.forget_long_texts();
}

/// The end of a wait for a command.
pub(crate) enum Accepted {
    Command(CommandHead),
    /// Nothing has come for a while, of a client whose session may do without its connection.
    Silence,
    /// The session is to go to another server, whether a command has come or not.
    Leave,
    /// The session is to go to the process that has taken over.
    GoAway,
    /// The session's connection is lost, and it may go on on another server.
    Lost,
}

impl From<Bereft> for Result<Accepted, SessionError> {
    fn from(bereft: Bereft) -> Self {
        match bereft {
            Bereft::Ends(error) => Err(error),
            Bereft::CanDoWithout => Ok(Accepted::Lost),
        }
    }
}

/// Waits for the next command, as much of it as fits into a buffer: a statement is looked at before it is
/// sent. A signal in the meantime (a drain, a kill) ends the session here.
pub(crate) async fn accept(session: &mut ClientSession) -> Result<Accepted, SessionError> {
    poll_fn(|cx| poll_accept(cx, session)).await
}

/// See [`accept`].
fn poll_accept(cx: &mut Context<'_>, session: &mut ClientSession) -> Poll<Result<Accepted, SessionError>> {
    loop {
        if session.streams.down.is_pending() {
            session.control.mark(Waiting::Reader);
            ready!(answer::poll_rest(cx, session))?;
            session.control.mark(Waiting::Client);
        }
        if let Some(signal) = session.control.due(session.is_free()) {
            return Poll::Ready(match signal {
                signal if session.may_move_instead(signal) => Ok(Accepted::Leave),
                Signal::ServerDown if can_do_without(session) => Ok(Accepted::Lost),
                signal => {
                    if signal == Signal::ServerDown {
                        do_without::note_end(session);
                        note_lost(session);
                    }
                    Err(session.signalled(signal))
                }
            });
        }
        if session.binding.is_lost() {
            return Poll::Ready(Ok(Accepted::Lost));
        }
        if session.lease.is_some() && !session.streams.down.is_empty() {
            return answer::poll_last_words(cx, session).map(Bereft::into);
        }
        if session.is_to_move() {
            return Poll::Ready(Ok(Accepted::Leave));
        }
        if session.binding.is_own() && session.lease.is_none() {
            return Poll::Ready(Err(lease::lost_with_its_server(session.server_name())));
        }
        if session.control.is_to_go() && session.is_at_rest() {
            return Poll::Ready(Ok(Accepted::GoAway));
        }
        make_room(&mut session.streams.up);
        if let Some(head) = whole(session) {
            // A command that is not sent can go elsewhere.
            if head.command != Command::QUIT
                && can_do_without(session)
                && let Poll::Ready(lost) = answer::poll_last_words(cx, session)
            {
                return Poll::Ready(lost.into());
            }
            session.control.mark_if_new(Waiting::Client);
            return Poll::Ready(Ok(Accepted::Command(head)));
        }
        let (streams, now) = (&mut session.streams, session.context.worker.clock.now());
        let read = match &mut session.lookups {
            Some(of) => read_gate::poll_read(cx, &mut of.gating, &*of.lookups, streams, now),
            None => streams.up.poll_read(cx, &mut streams.client),
        };
        match read {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(SessionError::ClientGone)),
            Poll::Ready(Ok(_)) if whole(session).is_none() => session.control.mark(Waiting::Request),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(SessionError::ClientFailed(error))),
            Poll::Pending if session.control.is_to_leave() => return Poll::Ready(Ok(Accepted::Silence)),
            // A session that holds a connection hears when the server ends it.
            Poll::Pending if session.lease.is_some() => {
                return answer::poll_last_words(cx, session).map(Bereft::into);
            }
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Lets the buffer grow that is full of a command which has to be there whole, or its beginning.
#[inline]
fn make_room(up: &mut Flow) {
    if up.is_full()
        && let Some(header) = PacketHeader::parse(up.unseen())
    {
        let command = up.unseen().get(PacketHeader::LEN).copied();
        let wanted = match command.map(Command) {
            Some(Command::QUERY | Command::STMT_PREPARE) => header.payload_len,
            Some(Command::STMT_EXECUTE | Command::STMT_BULK_EXECUTE) => {
                header.payload_len.min(HEAD_OF_EXECUTION)
            }
            _ => 0,
        };
        grow(up, header.payload_len, wanted);
    }
}

/// Lets the buffer grow for `wanted` bytes of a command. False where no more of the command is read than is
/// there.
fn grow(up: &mut Flow, payload_len: usize, wanted: usize) -> bool {
    // The packets of a longer command have heads between them.
    let is_one_packet = payload_len < PacketHeader::MAX_PAYLOAD;
    let wanted = PacketHeader::LEN + wanted;
    is_one_packet && up.unseen().len() < wanted && up.grow(wanted)
}

/// Reads the rest of a command that is there in part only. False where the command is too long.
pub(crate) async fn read_whole(session: &mut ClientSession, head: CommandHead) -> Result<bool, SessionError> {
    poll_fn(|cx| {
        loop {
            if session.streams.up.unseen().len() >= PacketHeader::LEN + head.payload_len {
                return Poll::Ready(Ok(true));
            }
            if let Some(signal) = session.control.due(false) {
                return Poll::Ready(Err(session.signalled(signal)));
            }
            let up = &mut session.streams.up;
            if up.is_full() && !grow(up, head.payload_len, head.payload_len) {
                return Poll::Ready(Ok(false));
            }
            session.control.mark_if_new(Waiting::Request);
            let streams = &mut session.streams;
            match ready!(streams.up.poll_read(cx, &mut streams.client)) {
                Ok(0) => return Poll::Ready(Err(SessionError::ClientGone)),
                Ok(_) => session.control.mark(Waiting::Request),
                Err(error) => return Poll::Ready(Err(SessionError::ClientFailed(error))),
            }
        }
    })
    .await
}

/// Whether a command has been read, as far as it fits.
pub(crate) fn is_there(session: &ClientSession) -> bool {
    whole(session).is_some()
}

/// The head of the command that was read, once it is there as far as it fits.
fn whole(session: &ClientSession) -> Option<CommandHead> {
    let bytes = session.streams.up.unseen();
    let header = PacketHeader::parse(bytes)?;
    if bytes.len() < PacketHeader::LEN + header.payload_len && !session.streams.up.is_full() {
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

/// Whether the statement may load a file of the client's, who has said that it sends some.
pub(crate) fn may_load_file(session: &ClientSession, facts: &Facts) -> bool {
    let may = Effects::LOADS_DATA
        .with(Effects::TEXT_PREPARE)
        .with(Effects::INCOMPLETE);
    session.client.capabilities.contains(Capabilities::LOCAL_FILES)
        && (facts.effects.intersects(may) || facts.class == Class::Unknown)
}

/// The payload of the command at the head of what the client sent, as far as it was read.
pub(crate) fn payload(session: &ClientSession, head: CommandHead) -> &[u8] {
    session.streams.up.payload(head.payload_len)
}

/// The text of the COM_QUERY at the head of what the client sent; empty where it makes no sense.
pub(crate) fn text_of(session: &ClientSession, head: CommandHead) -> &[u8] {
    text(payload(session, head), session.client.capabilities).unwrap_or_default()
}

/// The text of COM_QUERY or COM_STMT_PREPARE; `None` where query attributes in front of it make no sense.
pub(crate) fn text(payload: &[u8], capabilities: Capabilities) -> Option<&[u8]> {
    if *payload.first()? != Command::QUERY.0 {
        return payload.get(1..);
    }
    let with_attributes = || Some(Query::decode(payload, capabilities).ok()?.text);
    plain_text(payload, capabilities).or_else(with_attributes)
}

/// The `KILL`, if the command is one and nothing else. The id may have to be changed.
pub(crate) fn kill(session: &ClientSession, head: CommandHead) -> Option<Kill> {
    let payload = payload(session, head);
    match classify(
        head.command,
        payload,
        head.payload_len,
        session.client.capabilities,
    ) {
        Need::Kill(kill) => Some(kill),
        _ => None,
    }
}

/// Whether the command at hand means the same in any schema: it goes to another one, or makes or drops one by
/// name.
pub(crate) fn needs_no_schema(session: &ClientSession) -> bool {
    let Some(head) = whole(session) else { return false };
    match head.command {
        Command::INIT_DB => true,
        Command::QUERY => {
            let facts = facts(session, head);
            facts.statements == 1
                && (facts.effects == Effects::CHANGES_DATABASE
                    || facts.class == Class::Ddl
                        && !facts.effects.contains(Effects::INCOMPLETE)
                        && text::makes_or_drops_database(text_of(session, head)))
        }
        _ => false,
    }
}

/// Notes that a statement on tables reads about the server, in a schema about it: its text need not say so.
/// Such a table may also have what belongs to the session.
pub(crate) fn note_schema(session: &ClientSession, text: &[u8], facts: &mut Facts) {
    const OF_TABLES: Effects = Effects::READS_SERVER.with(Effects::READS_LAST_INSERT_ID);
    let schema = session.state.carried().schema();
    if schema.is_some_and(sql_class::is_about_server)
        && [&b"FROM"[..], b"TABLE"].iter().any(|word| text::has(text, word))
    {
        facts.effects = facts.effects.with(OF_TABLES);
    }
}

/// Whether a COM_QUERY may ask why it went where it went: it has attributes, or comes after one that had.
#[inline]
pub(crate) fn may_ask_why(session: &ClientSession, head: CommandHead) -> bool {
    session.last.explain_warning.is_some()
        || (session
            .client
            .capabilities
            .contains(Capabilities::QUERY_ATTRIBUTES)
            && payload(session, head).get(1) != Some(&0))
}

/// Tells those who observe what statement this is.
#[inline]
pub(crate) fn note(session: &ClientSession, head: CommandHead, facts: &Facts) {
    let record = &session.control.record;
    if record.is_wanted() {
        let digest = sql_class::digest(text_of(session, head), session.state.syntax());
        record.note_statement(facts.class, digest.hash);
    }
}

/// The facts of a statement. A statement that was not seen to its end may do anything.
pub(crate) fn facts(session: &ClientSession, head: CommandHead) -> Facts {
    let payload = payload(session, head);
    let seen_whole = payload.len() == head.payload_len && head.payload_len < PacketHeader::MAX_PAYLOAD;
    match text(payload, session.client.capabilities) {
        Some(text) if seen_whole => {
            let mut known = session.context.worker.facts_cache.borrow_mut();
            let mut facts = known.facts(text, session.state.syntax());
            note_schema(session, text, &mut facts);
            facts
        }
        Some(text) => {
            let mut facts = sql_class::facts(text, session.state.syntax());
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
