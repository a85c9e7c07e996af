//! COM_STMT_PREPARE: the client's statement gets an id of the session's own, and is prepared where it will be
//! executed, by this connection or another.

use std::rc::Rc;

use mysql_wire::{Command, PacketHeader};
use net::buffer;
use session::{PinReason, Prepared};
use sql_class::{Class, Effects, Facts};

use crate::engine::begin::{begin, let_go};
use crate::engine::exchange::exchange;
use crate::engine::next::Next;
use crate::engine::prepared::known::{NOT_KEPT, OF_THE_LAST, forget_figures};
use crate::engine::prepared::{Renaming, close_packets};
use crate::engine::prepared::{limit, reprepare};
use crate::engine::state::{Refused, Split};
use crate::engine::target::Target;
use crate::engine::{choose, command, last, lease, pipelined_setup};
use crate::error::SessionError;
use crate::relay::{Exchanged, RelayOutcome};
use crate::session::CommandHead;

/// Bytes that a session's prepared statements of more than a buffer may have together.
const LONG_TEXTS_MAX: usize = 64 * 1024 * 1024;

/// COM_STMT_PREPARE has been received.
pub(crate) fn begin_to_prepare(split: &mut Split) {
    split.last.explain_warning = None;
    // Whatever comes of it: the one before is no longer the last.
    split.prepared.last_prepared = 0;
}

/// A statement that the client prepares.
struct Wanted {
    facts: Facts,
    /// What is kept of it.
    text: Rc<[u8]>,
    digest: u64,
    is_kept: bool,
}

impl Wanted {
    /// What is known of the statement at hand, and an entry for it in the session's table.
    fn note(split: &mut Split, head: CommandHead) -> (Self, Prepared) {
        let mut facts = command::facts(split, head);
        let payload = command::payload(split, head);
        let seen_whole = payload.len() == head.payload_len && head.payload_len < PacketHeader::MAX_PAYLOAD;
        let mut text: Rc<[u8]> = payload.get(1..).unwrap_or_default().into();
        let room = match seen_whole {
            true => room_for(split, text.len()),
            false => None,
        };
        let is_kept = room.is_some();
        if !is_kept {
            text = NOT_KEPT.into();
            facts.class = facts.class.max(Class::Write);
            facts.effects = Effects::INCOMPLETE;
        }
        let digest = sql_class::digest(&text, split.session.syntax()).hash;
        let prepared = Prepared::new(Rc::clone(&text), Rc::new(facts.clone()), digest, 0);
        if let Some(Some(reserved)) = room {
            let of_long_texts = split.prepared.long_texts.get_or_insert_default();
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

/// COM_STMT_PREPARE, about which everything is said that rules have to say.
pub(crate) async fn prepare_as_it_is(split: &mut Split, head: CommandHead) -> Result<Next, SessionError> {
    let (wanted, prepared) = Wanted::note(split, head);
    let id = match split.session.statements().insert(prepared) {
        Ok(id) => id,
        Err(full) => return Ok(Next::refuse(SessionError::TooManyStatements(full.limit))),
    };
    let unread = match lease_to_prepare(split, head, &wanted.facts, wanted.digest).await {
        Ok(unread) => unread,
        Err(refused) => {
            split.session.statements().remove(id);
            return Ok(refused.into());
        }
    };
    if let Err(why) = reprepare::learn_what_is_late(split).await {
        split.session.statements().remove(id);
        return last::give_up(split, Refused(why.into())).await;
    }
    if unread.is_none()
        && let Err(refused) = close_superfluous(split).await
    {
        split.session.statements().remove(id);
        return last::give_up(split, refused).await;
    }
    begin(split, head, None);
    let text = Rc::clone(&wanted.text);
    let (text, sent) = if let Some(unread) = unread {
        pipelined_setup::take_in(split, head, &unread);
        (Rc::clone(&text), text)
    } else {
        last::put_own_figures(split, head, &wanted.facts, text)
    };
    let context = Rc::clone(split.session.carried());
    let mut renaming = Renaming::new(id);
    let ended = match wanted.is_kept {
        true => exchange_for_room(split, &mut renaming, &sent).await,
        false => exchange(split, head.command, Some(&mut renaming)).await,
    };
    match (renaming.prepared(), &ended.result) {
        (Some((server_id, params)), Ok(Exchanged::Done(_))) => {
            if let Some(prepared) = split.session.statements().get_mut(id) {
                prepared.params = params;
                (prepared.text, prepared.context) = (text.clone(), context);
                if let Some(leased) = &mut split.lease {
                    let state = &mut leased.connection.state;
                    let closed = state.statements.add(server_id, Rc::clone(&sent), &prepared.owner);
                    state.to_close.extend(closed);
                    if !wanted.is_kept {
                        state.statements.set_held(&prepared.owner, true);
                    }
                }
            }
            split.prepared.last_prepared = id;
            if !wanted.is_kept {
                split.keep_connection(PinReason::Incomplete, wanted.digest);
            }
            forget_figures(split, id);
            if sent != text {
                let with_figures = split.prepared.with_figures.get_or_insert_default();
                with_figures.0.push((id, sent));
            }
        }
        _ => {
            split.session.statements().remove(id);
            if let Some(leased) = &mut split.lease {
                leased.connection.state.note_unused(None);
            }
        }
    }
    Ok(Next::settle(ended))
}

/// Whether the session may keep another text of this length, which it needs to prepare it elsewhere; and
/// where it is long the memory of the worker's that it has, of which one session does not get all.
fn room_for(split: &Split, len: usize) -> Option<Option<buffer::Reserved>> {
    if len <= buffer::CAPACITY {
        return Some(None);
    }
    let kept = split.prepared.long_texts.iter().flat_map(|texts| &texts.0);
    let kept: usize = kept.map(|(_, reserved)| reserved.bytes()).sum();
    let reserved = (kept + len <= LONG_TEXTS_MAX).then(|| buffer::reserve(len))?;
    reserved.map(Some)
}

/// Relays the answer. One that says that the server has as many statements as it takes is kept from the
/// client as long as there is room to be made.
async fn exchange_for_room(split: &mut Split, renaming: &mut Renaming, sent: &[u8]) -> RelayOutcome {
    split.statement.may_go_elsewhere = true;
    loop {
        let ended = exchange(split, Command::STMT_PREPARE, Some(renaming)).await;
        if !std::mem::take(&mut split.statement.took_no_writes) {
            return ended;
        }
        renaming.begin_anew();
        if let Some(leased) = &mut split.lease {
            leased.connection.state.note_unused(None);
        }
        // Once there is none to be made the client is told.
        split.statement.may_go_elsewhere = limit::make(split).await;
        if close_superfluous(split).await.is_err() {
            // The connection is lost, which the next round finds out.
            lease::abandon(split);
        }
        split.say_command(&[&[Command::STMT_PREPARE.0], sent].concat());
    }
}

/// A connection on which the statement can be prepared: where it will be executed, or what can be read from
/// only. What has been read of the answer, where it was sent behind the session's state.
async fn lease_to_prepare(
    split: &mut Split,
    head: CommandHead,
    facts: &Facts,
    digest: u64,
) -> Result<Option<Vec<u8>>, Refused> {
    let_go(split, head, None, None);
    let keeps = facts.effects.intersects(OF_THE_LAST);
    if keeps && lease::may_leave_replica(split) {
        last::learn_count(split).await;
        lease::give_back(split);
    }
    // Any server can prepare what only the primary can execute.
    let target = match choose::target(split, facts) {
        Target::Primary { .. } => Target::Primary { for_writing: false },
        target => target,
    };
    // Figures are written into some.
    let is_plain = facts.effects == Effects::NONE && split.session.ask_meaning().is_none();
    split.statement.state_may_wait =
        is_plain && !split.session.is_pinned() && pipelined_setup::may_wait(split, head);
    let leased = lease::lease(split, &target).await;
    split.statement.state_may_wait = false;
    leased?;
    let unread = match pipelined_setup::lacks_state(split) {
        true => pipelined_setup::send_whole(split, head, &target).await?,
        false => None,
    };
    // A read-only transaction on a replica holds the connection as long as that has to be.
    if keeps && split.lease.as_ref().is_some_and(|leased| leased.is_primary) {
        split.keep_connection(PinReason::PreparedFigures, digest);
    }
    Ok(unread)
}

/// Closes, ahead of the command that is about to be sent, statements of which the connection has too many.
async fn close_superfluous(split: &mut Split) -> Result<(), Refused> {
    let is_compressed = split.streams.server.is_compressed();
    let Some(leased) = &mut split.lease else {
        return Ok(());
    };
    let state = &mut leased.connection.state;
    if state.to_close.is_empty() {
        return Ok(());
    }
    if is_compressed {
        // Packets of a compressed connection are numbered command by command.
        let closing = state.take_closing();
        return lease::ask_on_lease(split, &closing).await.map(drop);
    }
    let closing = close_packets(&mut state.to_close);
    split.streams.up.say(&closing);
    Ok(())
}
