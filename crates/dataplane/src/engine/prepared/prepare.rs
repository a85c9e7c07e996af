//! COM_STMT_PREPARE: the client's statement gets an id of the session's own, and is prepared where it will be
//! executed, by this connection or another.

use std::rc::Rc;

use mysql_wire::{Command, PacketHeader};
use net::{Stream, buffer};
use session::{PinReason, Prepared};
use sql_class::{Class, Effects, Facts};

use crate::command_head::CommandHead;
use crate::engine::begin::{begin, let_go};
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::exchange::exchange;
use crate::engine::next::Next;
use crate::engine::prepared::Renaming;
use crate::engine::prepared::known::{NOT_KEPT, OF_THE_LAST};
use crate::engine::prepared::{limit, reprepare};
use crate::engine::target::Target;
use crate::engine::{again, choose, command, last_statement, lease, pipelined_setup};
use crate::error::SessionError;
use crate::relay::{Exchanged, RelayOutcome};

/// Bytes that a session's prepared statements of more than a buffer may have together.
const LONG_TEXTS_MAX: usize = 64 * 1024 * 1024;

/// Notes that a COM_STMT_PREPARE has been received.
pub(crate) fn begin_to_prepare(session: &mut ClientSession) {
    session.last.explain_warning = None;
    // The statement before is not the last any more, whatever comes of this one.
    session.prepared.last_prepared = 0;
}

/// A statement that the client prepares.
struct Wanted {
    facts: Facts,
    /// The text that is kept.
    text: Rc<[u8]>,
    digest: u64,
    is_kept: bool,
}

impl Wanted {
    /// Reads the statement at hand. Returns an entry for the session's table with it.
    fn note(session: &mut ClientSession, head: CommandHead) -> (Self, Prepared) {
        let mut facts = command::facts(session, head);
        let payload = command::payload(session, head);
        let seen_whole = payload.len() == head.payload_len && head.payload_len < PacketHeader::MAX_PAYLOAD;
        let mut text: Rc<[u8]> = payload.get(1..).unwrap_or_default().into();
        let room = match seen_whole {
            true => room_for(session, text.len()),
            false => None,
        };
        let is_kept = room.is_some();
        if !is_kept {
            text = NOT_KEPT.into();
            facts.class = facts.class.max(Class::Write);
            facts.effects = Effects::INCOMPLETE;
        }
        let digest = sql_class::digest(&text, session.state.syntax()).hash;
        let prepared = Prepared::new(Rc::clone(&text), Rc::new(facts.clone()), digest, 0);
        if let Some(Some(reserved)) = room {
            let of_long_texts = session.prepared.long_texts.get_or_insert_default();
            of_long_texts.0.push((Rc::downgrade(&prepared.owner), reserved));
        }
        let wanted = Self {
            facts,
            text,
            digest,
            is_kept,
        };
        (wanted, prepared)
    }
}

/// Serves a COM_STMT_PREPARE. Rules have said all that they have to say.
pub(crate) async fn prepare_as_it_is(
    session: &mut ClientSession,
    head: CommandHead,
) -> Result<Next, SessionError> {
    let (wanted, prepared) = Wanted::note(session, head);
    let id = match session.state.statements().insert(prepared) {
        Ok(id) => id,
        Err(full) => return Ok(Next::refuse(SessionError::TooManyStatements(full.limit))),
    };
    again::keep_to_prepare_again(session, head);
    let unread = match lease_to_prepare(session, head, &wanted.facts, wanted.digest).await {
        Ok(unread) => unread,
        Err(refused) => {
            session.state.statements().remove(id);
            return Ok(refused.into());
        }
    };
    if let Err(why) = reprepare::learn_what_is_late(session).await {
        session.state.statements().remove(id);
        return last_statement::give_up(session, Refused(why.into())).await;
    }
    if unread.is_none()
        && let Err(refused) = close_superfluous(session).await
    {
        session.state.statements().remove(id);
        return last_statement::give_up(session, refused).await;
    }
    begin(session, head, None);
    let text = Rc::clone(&wanted.text);
    let (text, sent) = if let Some(unread) = unread {
        session.statement.take_in(&mut session.streams, head, &unread);
        (Rc::clone(&text), text)
    } else {
        // The text that is right whenever it is executed, with the session's id alone; and the one that is
        // prepared, which is right if it is executed at once.
        let with =
            |left| last_statement::with_values(session, &text, &wanted.facts, left).map(Rc::<[u8]>::from);
        let (lasting, now) = (with(None), with(Some(lease::left(session))));
        if let Some(sent) = &now {
            let command = [&[head.command.0], &**sent].concat();
            session.statement.replace(&mut session.streams.up, head, &command);
        }
        (lasting.unwrap_or_else(|| Rc::clone(&text)), now.unwrap_or(text))
    };
    let context = Rc::clone(session.state.carried());
    let mut renaming = Renaming::new(id);
    let ended = match wanted.is_kept {
        true => exchange_for_room(session, &mut renaming, &sent).await,
        false => exchange(session, head.command, Some(&mut renaming)).await,
    };
    match (renaming.prepared(), &ended.result) {
        (Some((server_id, params)), Ok(Exchanged::Done(_))) => {
            if let Some(prepared) = session.state.statements().get_mut(id) {
                prepared.params = params;
                (prepared.text, prepared.context) = (text.clone(), context);
                if let Some(leased) = &mut session.lease {
                    let statements = &mut leased.connection.state.statements;
                    statements.add(server_id, Rc::clone(&sent), &prepared.owner);
                    if !wanted.is_kept {
                        statements.set_held(&prepared.owner, true);
                    }
                }
            }
            session.prepared.last_prepared = id;
            if !wanted.is_kept {
                session.keep_connection(PinReason::Incomplete, wanted.digest);
            }
            session.prepared.forget_figures(id);
            if sent != text {
                let with_figures = session.prepared.with_figures.get_or_insert_default();
                with_figures.0.push((id, sent));
            }
        }
        _ => {
            session.state.statements().remove(id);
            if let Some(leased) = &mut session.lease {
                leased.connection.state.statements.note_unused(None);
            }
        }
    }
    Ok(Next::settle(ended))
}

/// The room for another text of this length, which the session needs to prepare it elsewhere; `None` where
/// there is none. A long text has memory of the worker's, of which one session does not get all.
fn room_for(session: &ClientSession, len: usize) -> Option<Option<buffer::Reserved>> {
    if len <= buffer::CAPACITY {
        return Some(None);
    }
    let kept = session.prepared.long_texts.iter().flat_map(|texts| &texts.0);
    let kept: usize = kept.map(|(_, reserved)| reserved.bytes()).sum();
    let reserved = (kept + len <= LONG_TEXTS_MAX).then(|| buffer::reserve(len))?;
    reserved.map(Some)
}

/// Relays the answer. An answer that says that the server has as many statements as it takes is kept from the
/// client as long as there is room to be made.
async fn exchange_for_room(
    session: &mut ClientSession,
    renaming: &mut Renaming,
    sent: &[u8],
) -> RelayOutcome {
    session.statement.may_go_elsewhere = true;
    loop {
        let ended = exchange(session, Command::STMT_PREPARE, Some(renaming)).await;
        if !std::mem::take(&mut session.statement.took_no_writes) {
            return ended;
        }
        renaming.begin_anew();
        if let Some(leased) = &mut session.lease {
            leased.connection.state.statements.note_unused(None);
        }
        // The client is told once there is none to be made.
        session.statement.may_go_elsewhere = limit::make(session).await;
        if close_superfluous(session).await.is_err() {
            // The next round finds out that the connection is lost, and what the session held there with it.
            session.streams.server = Stream::Detached;
        }
        let command = [&[Command::STMT_PREPARE.0], sent].concat();
        session.statement.say(&mut session.streams.up, &command);
    }
}

/// Leases a connection on which the statement can be prepared: where it will be executed, or one that can be
/// read from only. Returns what has been read of the answer, where the command was sent behind the session's
/// state.
async fn lease_to_prepare(
    session: &mut ClientSession,
    head: CommandHead,
    facts: &Facts,
    digest: u64,
) -> Result<Option<Vec<u8>>, Refused> {
    let_go(session, head, None, None);
    let keeps = facts.effects.intersects(OF_THE_LAST);
    if keeps && lease::may_leave_replica(session) {
        last_statement::learn_count(session).await;
        lease::give_back(session);
    }
    // Any server can prepare what only the primary can execute.
    let target = match choose::target(session, facts) {
        Target::Primary { .. } => Target::Primary { for_writing: false },
        target => target,
    };
    // Figures are written into some texts.
    let is_plain = facts.effects == Effects::NONE && session.state.ask_meaning().is_none();
    let state_may_wait = is_plain && !session.state.is_pinned() && pipelined_setup::may_wait(session, head);
    let now = lease::try_lease(session, &target);
    lease::resume(session, &target, now, state_may_wait).await?;
    let unread = match pipelined_setup::lacks_state(session) {
        true => pipelined_setup::send_whole(session, head, &target).await?,
        false => None,
    };
    // A read-only transaction on a replica holds the connection as long as that has to be.
    let is_primary = session.lease.as_ref().is_some_and(|leased| leased.is_primary);
    if keeps && (is_primary || session.binding.is_own()) {
        session.keep_connection(PinReason::PreparedFigures, digest);
    }
    Ok(unread)
}

/// Closes, ahead of the command that is about to be sent, statements of which the connection has too many.
async fn close_superfluous(session: &mut ClientSession) -> Result<(), Refused> {
    let is_compressed = session.streams.server.is_compressed();
    let Some(leased) = &mut session.lease else {
        return Ok(());
    };
    let statements = &mut leased.connection.state.statements;
    if statements.to_close.is_empty() {
        return Ok(());
    }
    if is_compressed {
        // Packets of a compressed connection are numbered command by command.
        let closing = statements.take_closing();
        return lease::ask_on_lease(session, &closing).await.map(drop);
    }
    session.streams.up.say(&statements.take_closing_packets());
    Ok(())
}
