//! Answers of the gateway's own, and packets that a server sends unasked.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use mysql_wire::{OkPacket, PacketHeader, write_packet};
use session::PinReason;

use crate::control::{Signal, Waiting};
use crate::engine::answered::Answered;
use crate::engine::client_session::ClientSession;
use crate::engine::next::Next;
use crate::engine::replay::without;
use crate::engine::rows::result_set;
use crate::engine::{do_without, lease};
use crate::error::{During, SessionError};
use crate::relay::unasked::{Unasked, poll_unasked};
use crate::session_end::{await_last_command, error_bytes, say_goodbye};

/// Takes the command off what the client sent, to its last byte, without executing it. Returns the sequence
/// number of the answer.
pub(crate) async fn discard(session: &mut ClientSession) -> Result<u8, SessionError> {
    loop {
        let header = loop {
            match PacketHeader::parse(session.streams.up.unseen()) {
                Some(header) => break header,
                None => read(session).await?,
            }
        };
        let mut rest = PacketHeader::LEN + header.payload_len;
        while rest > 0 {
            let there = session.streams.up.unseen().len().min(rest);
            if there == 0 {
                read(session).await?;
            }
            session.streams.up.discard(there);
            session.streams.traffic.add_from_client(there);
            rest -= there;
        }
        if !header.is_continued() {
            return Ok(header.sequence.wrapping_add(1));
        }
    }
}

async fn read(session: &mut ClientSession) -> Result<(), SessionError> {
    session.control.mark(Waiting::Request);
    let streams = &mut session.streams;
    let read = poll_fn(|cx| streams.up.poll_read(cx, &mut streams.client));
    let read = tokio::select! {
        biased;
        signal = session.control.signalled(false) => return Err(signal_only(signal, &session.context.listener)),
        read = read => read,
    };
    match read {
        Ok(0) => Err(SessionError::ClientGone),
        Ok(_) => Ok(()),
        Err(error) => Err(SessionError::ClientFailed(error)),
    }
}

fn signal_only(signal: Signal, listener: &crate::frontend::listener_state::ListenerState) -> SessionError {
    crate::session_end::signal_as_error(signal, "", listener)
}

/// Answers the command with an OK of our own.
pub(crate) async fn ok(session: &mut ClientSession) -> Result<Next, SessionError> {
    let sequence = discard(session).await?;
    let ok = OkPacket {
        status: session.lasting_status(),
        ..OkPacket::default()
    };
    say_ok(session, ok, sequence).await.map(|()| Next::Done)
}

pub(crate) async fn say_ok(
    session: &mut ClientSession,
    ok: OkPacket,
    mut sequence: u8,
) -> Result<(), SessionError> {
    let mut payload = Vec::with_capacity(16);
    ok.encode(&mut payload, session.client.capabilities);
    let mut packet = Vec::with_capacity(24);
    write_packet(&mut packet, &mut sequence, &payload);
    say(session, &packet).await
}

/// Tells the client why its command was not executed. The session goes on, unless it is the session that has
/// to end.
pub(crate) async fn refuse(session: &mut ClientSession, error: SessionError) -> Result<Next, SessionError> {
    let sequence = discard(session).await?;
    if error.ends_session() {
        session.answer.error_sequence = Some(sequence);
        return Err(error);
    }
    tell(session, sequence, error).await.map(|()| Next::Done)
}

/// Answers the command with rows of our own.
pub(crate) async fn rows(
    session: &mut ClientSession,
    columns: &[&str],
    rows: &[Vec<String>],
) -> Result<Next, SessionError> {
    let sequence = discard(session).await?;
    let (capabilities, status) = (session.client.capabilities, session.lasting_status());
    let packets = result_set(columns, rows, capabilities, status, sequence);
    say(session, &packets).await.map(|()| Next::Done)
}

/// Writes an error in the place of an answer.
pub(crate) async fn tell(
    session: &mut ClientSession,
    sequence: u8,
    error: SessionError,
) -> Result<(), SessionError> {
    let begun = session.streams.client.begin_command();
    begun.map_err(SessionError::ClientFailed)?;
    end_with(session, sequence, error).await
}

/// Writes an error as the end of an answer that has begun, or was awaited.
pub(crate) async fn end_with(
    session: &mut ClientSession,
    sequence: u8,
    error: SessionError,
) -> Result<(), SessionError> {
    let Some(packet) = error.to_packet() else {
        return Err(error);
    };
    let metrics = &session.context.worker.metrics;
    metrics.error_sent(packet.code, error.fault());
    session.control.record.note_error(packet.code);
    session.control.of_split.answered.set(Answered::Gateway);
    let bytes = error_bytes(&packet, sequence, session.client.capabilities);
    put(session, &bytes).await
}

async fn write(session: &mut ClientSession) -> Result<std::io::Result<()>, SessionError> {
    let (streams, control) = (&mut session.streams, &session.control);
    let written = poll_fn(|cx| {
        let written = streams.down.poll_write(cx, &mut streams.client);
        if written.is_pending() {
            control.mark(Waiting::Reader);
        }
        written
    });
    tokio::select! {
        biased;
        signal = control.signalled(false) => Err(signal_only(signal, &session.context.listener)),
        written = written => Ok(written),
    }
}

/// Writes the bytes from the server that may go to the client.
pub(crate) async fn flush(session: &mut ClientSession) -> Result<(), SessionError> {
    if !session.streams.down.is_pending() {
        return Ok(());
    }
    let written = write(session).await?;
    written.map_err(SessionError::ClientFailed)
}

/// Tells the client why its session ends, where the protocol has a place for it.
pub(crate) async fn farewell(session: &mut ClientSession, error: &SessionError) {
    let (capabilities, control) = (session.client.capabilities, &session.control);
    let must_end_now = matches!(control.due(false), Some(Signal::DrainNow | Signal::ShutdownNow));
    // A server does not wait for a last command after `wait_timeout`, either.
    let awaits = !must_end_now && !matches!(error, SessionError::WaitTimeout { .. });
    if session.answer.error_sequence == Some(0) && error.to_packet().is_some() && awaits {
        session.answer.error_sequence = await_last_command(&mut session.streams).await;
    }
    let mut last = Vec::new();
    if let (Some(packet), Some(sequence)) = (error.to_packet(), session.answer.error_sequence) {
        let metrics = &session.context.worker.metrics;
        metrics.error_sent(packet.code, error.fault());
        last = error_bytes(&packet, sequence, capabilities);
    }
    say_goodbye(&mut session.streams, &last).await;
}

/// Writes packets of our own to the client, as an answer.
pub(crate) async fn say(session: &mut ClientSession, packets: &[u8]) -> Result<(), SessionError> {
    let begun = session.streams.client.begin_command();
    begun.map_err(SessionError::ClientFailed)?;
    put(session, packets).await
}

async fn put(session: &mut ClientSession, packets: &[u8]) -> Result<(), SessionError> {
    session.control.record.note_said(packets);
    session.streams.down.say(packets);
    let written = write(session).await?;
    session.streams.traffic.add_to_client(packets.len());
    written.map_err(SessionError::ClientFailed)
}

/// Writes the rest of the answer to the command before.
pub(crate) fn poll_rest(cx: &mut Context<'_>, session: &mut ClientSession) -> Poll<Result<(), SessionError>> {
    let streams = &mut session.streams;
    let written = streams.down.poll_write(cx, &mut streams.client);
    match session.control.due(false) {
        Some(signal) if written.is_pending() => {
            Poll::Ready(Err(signal_only(signal, &session.context.listener)))
        }
        _ => written.map_err(SessionError::ClientFailed),
    }
}

/// The fate of a session whose connection was ended between two commands.
pub(crate) enum Bereft {
    Ends(SessionError),
    CanDoWithout,
}

/// Waits for the last words of the server whose connection the session holds: between two commands a server
/// has nothing to say but why it ends the connection. The session has lost what was on the connection, so it
/// ends, too, unless it can do without.
pub(crate) fn poll_last_words(cx: &mut Context<'_>, session: &mut ClientSession) -> Poll<Bereft> {
    let can_do_without = without::can_do_without(session);
    match ready!(poll_unasked(cx, &mut session.streams)) {
        // The client hears the error only if the session ends.
        Unasked::Error(_) if can_do_without => {}
        Unasked::Error(len) => {
            session.streams.down.approve(len);
            session.answer.error_sequence = None;
        }
        Unasked::Nonsense | Unasked::Unfinished => session.streams.down.clear(),
    }
    if can_do_without {
        return Poll::Ready(Bereft::CanDoWithout);
    }
    do_without::note_end(session);
    without::note_lost(session);
    // A connection that is held only for the sake of a question that the client may ask next is no reason to
    // end the session.
    let holds_only_answers = session
        .state
        .pins()
        .iter()
        .all(|pin| matches!(pin.reason, PinReason::Diagnostics | PinReason::FoundRows));
    if holds_only_answers && !session.binding.is_for_good() {
        lease::abandon(session);
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    let during = if session.is_free() {
        During::Idle
    } else {
        During::IdleInTransaction
    };
    Poll::Ready(Bereft::Ends(session.server_gone(during)))
}
