//! THE LOOP of a logged-in session: one command after the other, each through the stages named below.
//!
//! All branching of the command phase is here; the stages are straight work.

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use mysql_wire::statement::CURSOR_FLAGS_END;
use mysql_wire::{Command, PacketHeader, WireError};

use crate::answer;
use crate::command_head::CommandHead;
use crate::control::Waiting;
use crate::error::{During, SessionError};
use crate::finished::{self, Ways};
use crate::forwarded::classify::{KILL_MAX, Need, classify};
use crate::forwarded::forward;
use crate::forwarded::session::Session;
use crate::forwarded::settle;
use crate::hand_over::forwarded;
use crate::relay::unasked::{Unasked, poll_unasked};
use crate::relay::{self, Exchanged, RelayError};

/// Serves commands until the session ends, and says why it ended.
///
/// Rare work is boxed: this future lives as long as the session, and is as large as the largest future it
/// awaits.
pub(crate) async fn serve(session: &mut Session) -> Result<Infallible, SessionError> {
    let mut waits_since = None;
    loop {
        let Some(head) = accept(session, waits_since.take()).await? else {
            let waited = session.control.wait_so_far();
            Box::pin(forwarded::go(session)).await?;
            waits_since = Some(waited);
            continue;
        };
        finished::begin(
            &session.worker.observers,
            &session.control,
            &session.streams,
            head,
            true,
        );
        let served = match classify(
            head.command,
            session.streams.up.payload(head.payload_len),
            head.payload_len,
            session.capabilities,
        ) {
            Need::Forward => {
                let exchanged = forward::forward(session, head).await;
                settle::command(session, head, exchanged)
            }
            Need::ProcessList => {
                let exchanged = Box::pin(forward::process_list(session, head)).await;
                settle::command(session, head, exchanged)
            }
            Need::Kill(kill) => {
                let exchanged = Box::pin(answer::kill(session, head, kill)).await;
                settle::command(session, head, exchanged)
            }
            Need::ChangeUser => Box::pin(answer::change_user(session, head)).await,
            Need::Quit => {
                // The session is over, whatever becomes of it.
                drop(forward::forward(session, head).await);
                Err(SessionError::ClientQuit)
            }
            Need::Stream => Box::pin(stream(session, head)).await,
        };
        finish(session, head, served.as_ref().copied());
        served?;
    }
}

/// A command whose answer has no end; a refusal is an answer like any other.
async fn stream(session: &mut Session, head: CommandHead) -> Result<(), SessionError> {
    let exchanged = forward::forward(session, head).await;
    let has_begun = matches!(exchanged, Ok(Exchanged::Streaming));
    settle::command(session, head, exchanged)?;
    if !has_begun {
        return Ok(());
    }
    let ended = relay::endless(&mut session.streams, &session.control).await;
    session.error_sequence = None;
    Err(match ended {
        Ok(()) => SessionError::ClientGone,
        Err(broken) => session.broken(broken),
    })
}

/// The command is over. An error has ended the session.
fn finish(session: &Session, head: CommandHead, served: Result<(), &SessionError>) {
    let observers = &session.worker.observers;
    finished::tell(observers, &session.control, head.command, served, || Ways {
        listener: &session.listener.config.name,
        server: session.server.name(),
        traffic: &session.streams.traffic,
        schema: None,
        capabilities: session.capabilities,
    });
}

/// Waits for the head of the next command, or for an event that ends the session at this free moment. `None`:
/// the session is to go to the process that has taken over. `since`: the session has waited since then
/// already, was to go, and stays.
async fn accept(
    session: &mut Session,
    since: Option<(Waiting, u32)>,
) -> Result<Option<CommandHead>, SessionError> {
    match since {
        Some(since) => session.control.goes_on_waiting(since),
        None => session.control.mark(Waiting::Client),
    }
    session.error_sequence = Some(0);
    poll_fn(|cx| poll_accept(cx, session)).await
}

fn poll_accept(
    cx: &mut Context<'_>,
    session: &mut Session,
) -> Poll<Result<Option<CommandHead>, SessionError>> {
    loop {
        if session.streams.down.is_pending() {
            ready!(poll_answer(cx, session))?;
        }
        if let Some(signal) = session.control.due(session.is_free()) {
            return Poll::Ready(Err(session.signalled(signal)));
        }
        if !session.streams.down.is_empty() {
            return poll_last_words(cx, session).map(Err);
        }
        if session.control.is_to_go() && forwarded::is_at_rest(session) {
            return Poll::Ready(Ok(None));
        }
        if let Some(head) = head(session.streams.up.unseen()) {
            return Poll::Ready(Ok(Some(head)));
        }
        let streams = &mut session.streams;
        match streams.up.poll_read(cx, &mut streams.client) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(SessionError::ClientGone)),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(SessionError::ClientFailed(error))),
            Poll::Pending => return poll_last_words(cx, session).map(Err),
        }
    }
}

/// Writes an answer of the gateway's own to the command before.
fn poll_answer(cx: &mut Context<'_>, session: &mut Session) -> Poll<Result<(), SessionError>> {
    let streams = &mut session.streams;
    let written = streams.down.poll_write(cx, &mut streams.client);
    match session.control.due(false) {
        Some(signal) if written.is_pending() => Poll::Ready(Err(session.signalled(signal))),
        _ => written.map_err(SessionError::ClientFailed),
    }
}

/// The head of a command once enough of it is there: its first byte, or all of it where [`classify`] looks
/// further. An execution is enough once it says whether it asks for a cursor.
#[inline]
fn head(bytes: &[u8]) -> Option<CommandHead> {
    let payload_len = PacketHeader::parse(bytes)?.payload_len;
    let payload = &bytes[PacketHeader::LEN..];
    let needed = match payload.first() {
        _ if payload_len <= KILL_MAX => payload_len,
        Some(&first) if Command(first) == Command::STMT_EXECUTE => CURSOR_FLAGS_END,
        _ => 1,
    };
    if payload.len() < needed {
        return None;
    }
    // Servers take a packet without a payload for COM_SLEEP, and refuse it.
    let command = if payload_len == 0 {
        Command::SLEEP
    } else {
        Command(payload[0])
    };
    Some(CommandHead { command, payload_len })
}

/// Waits for the only thing that a server has to say between commands: an error, mostly why it ends the
/// connection (shutdown, kill, idle too long). The error is passed on, and the session ends with it: a
/// command that came meanwhile is not sent, since the error would be taken for its answer.
fn poll_last_words(cx: &mut Context<'_>, session: &mut Session) -> Poll<SessionError> {
    match ready!(poll_unasked(cx, &mut session.streams)) {
        Unasked::Error(len) => {
            session.streams.down.approve(len);
            session.error_sequence = None;
        }
        Unasked::Nonsense => {
            session.streams.down.clear();
            return Poll::Ready(session.broken(RelayError::ServerProtocol(WireError::NotAsked)));
        }
        Unasked::Unfinished => session.streams.down.clear(),
    }
    let during = if session.is_free() {
        During::Idle
    } else {
        During::IdleInTransaction
    };
    Poll::Ready(session.server_gone(during))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_up_at_its_first_byte_unless_it_is_short() {
        assert!(head(b"").is_none());
        assert!(head(b"\x05\0\0\0").is_none());
        assert!(head(b"\x05\0\0\0\x03KIL").is_none(), "short: all of it");
        assert!(head(b"\x05\0\0\0\x03KILL").is_some());
        let long = head(b"\0\0\x01\0\x03").unwrap();
        assert_eq!((long.command, long.payload_len), (Command::QUERY, 0x1_0000));
        assert_eq!(head(b"\0\0\0\0").unwrap().command, Command::SLEEP);
        assert!(
            head(b"\0\0\x01\0\x17\x01\0\0\0").is_none(),
            "it may ask for a cursor"
        );
        assert!(head(b"\0\0\x01\0\x17\x01\0\0\0\x01").is_some());
    }
}
