//! What the gateway answers by itself, and what a server says unasked.

use std::future::poll_fn;
use std::task::{Context, Poll};

use mysql_wire::{OkPacket, PacketHeader, write_packet};
use session::PinReason;

use crate::answer::{Unasked, unasked};
use crate::control::{Signal, Waiting};
use crate::engine::answered::Answered;
use crate::engine::lease;
use crate::engine::state::Split;
use crate::error::{During, SessionError};
use crate::relay::Traffic;
use crate::session::{await_last_command, error_bytes, say_goodbye};

impl Traffic {
    /// What no server gets to see.
    pub(crate) fn add_from_client(&mut self, n: usize) {
        self.from_client += n as u64;
        self.listener.bytes_from_clients.add(n as u64);
    }

    /// What no server has said.
    pub(crate) fn add_to_client(&mut self, n: usize) {
        self.to_client += n as u64;
        self.listener.bytes_to_clients.add(n as u64);
    }
}

/// Takes the command off what the client sent, to its last byte, without executing it. Returns its last
/// sequence number.
pub(crate) async fn discard(split: &mut Split) -> Result<u8, SessionError> {
    loop {
        let header = next_header(split).await?;
        let mut rest = PacketHeader::LEN + header.payload_len;
        while rest > 0 {
            let there = split.streams.up.unseen().len().min(rest);
            if there == 0 {
                read(split).await?;
            }
            split.streams.up.discard(there);
            split.streams.traffic.add_from_client(there);
            rest -= there;
        }
        if !header.is_continued() {
            return Ok(header.sequence);
        }
    }
}

async fn next_header(split: &mut Split) -> Result<PacketHeader, SessionError> {
    loop {
        if let Some(header) = PacketHeader::parse(split.streams.up.unseen()) {
            return Ok(header);
        }
        read(split).await?;
    }
}

async fn read(split: &mut Split) -> Result<(), SessionError> {
    split.control.mark(Waiting::Request);
    let streams = &mut split.streams;
    let read = poll_fn(|cx| streams.up.poll_read(cx, &mut streams.client));
    let read = tokio::select! {
        biased;
        signal = split.control.signalled(false) => return Err(signal_only(signal, &split.context.listener)),
        read = read => read,
    };
    match read {
        Ok(0) => Err(SessionError::ClientGone),
        Ok(_) => Ok(()),
        Err(error) => Err(SessionError::ClientFailed(error)),
    }
}

fn signal_only(signal: Signal, listener: &crate::listener_state::ListenerState) -> SessionError {
    crate::session::signal_as_error(signal, "", listener)
}

/// Answers the command with an OK of our own.
pub(crate) async fn ok(split: &mut Split) -> Result<(), SessionError> {
    let sequence = discard(split).await?.wrapping_add(1);
    let ok = OkPacket {
        status: split.lasting_status(),
        ..OkPacket::default()
    };
    say_ok(split, ok, sequence).await
}

/// Says an OK.
pub(crate) async fn say_ok(split: &mut Split, ok: OkPacket, mut sequence: u8) -> Result<(), SessionError> {
    let mut payload = Vec::with_capacity(16);
    ok.encode(&mut payload, split.client.capabilities);
    let mut packet = Vec::with_capacity(24);
    write_packet(&mut packet, &mut sequence, &payload);
    say(split, &packet).await
}

/// Tells the client why its command was not executed. The session goes on, unless it is the session that has
/// to end.
pub(crate) async fn refuse(split: &mut Split, error: SessionError) -> Result<(), SessionError> {
    if error.ends_session() {
        split.answer.error_sequence = Some(discard(split).await?.wrapping_add(1));
        return Err(error);
    }
    let sequence = discard(split).await?.wrapping_add(1);
    tell(split, sequence, error).await
}

/// Writes an error in the place of an answer.
pub(crate) async fn tell(split: &mut Split, sequence: u8, error: SessionError) -> Result<(), SessionError> {
    begin(split)?;
    end_with(split, sequence, error).await
}

/// Writes an error as the end of an answer that has begun, or was awaited.
pub(crate) async fn end_with(
    split: &mut Split,
    sequence: u8,
    error: SessionError,
) -> Result<(), SessionError> {
    let Some(packet) = error.to_packet() else {
        return Err(error);
    };
    split
        .context
        .worker
        .metrics
        .error_sent(packet.code, error.fault());
    split.control.record.note_error(packet.code);
    split.control.of_split.answered.set(Answered::Gateway);
    let bytes = error_bytes(&packet, sequence, split.client.capabilities);
    put(split, &bytes).await
}

async fn write(split: &mut Split) -> Result<std::io::Result<()>, SessionError> {
    let (streams, control) = (&mut split.streams, &split.control);
    let written = poll_fn(|cx| {
        let written = streams.down.poll_write(cx, &mut streams.client);
        if written.is_pending() {
            control.mark(Waiting::Reader);
        }
        written
    });
    tokio::select! {
        biased;
        signal = control.signalled(false) => Err(signal_only(signal, &split.context.listener)),
        written = written => Ok(written),
    }
}

/// Writes what may go to the client of what has come from the server.
pub(crate) async fn flush(split: &mut Split) -> Result<(), SessionError> {
    if !split.streams.down.is_pending() {
        return Ok(());
    }
    let written = write(split).await?;
    written.map_err(SessionError::ClientFailed)
}

/// Tells the client why its session ends, where the protocol has a place for it.
pub(crate) async fn farewell(split: &mut Split, error: &SessionError) {
    let (capabilities, control) = (split.client.capabilities, &split.control);
    let must_end_now = matches!(control.due(false), Some(Signal::DrainNow | Signal::ShutdownNow));
    if split.answer.error_sequence == Some(0) && error.to_packet().is_some() && !must_end_now {
        split.answer.error_sequence = await_last_command(&mut split.streams).await;
    }
    let mut last = Vec::new();
    if let (Some(packet), Some(sequence)) = (error.to_packet(), split.answer.error_sequence) {
        split
            .context
            .worker
            .metrics
            .error_sent(packet.code, error.fault());
        last = error_bytes(&packet, sequence, capabilities);
    }
    say_goodbye(&mut split.streams, &last).await;
}

/// Writes packets of our own to the client, as an answer.
pub(crate) async fn say(split: &mut Split, packets: &[u8]) -> Result<(), SessionError> {
    begin(split)?;
    put(split, packets).await
}

fn begin(split: &mut Split) -> Result<(), SessionError> {
    let begun = split.streams.client.begin_command();
    begun.map_err(SessionError::ClientFailed)
}

async fn put(split: &mut Split, packets: &[u8]) -> Result<(), SessionError> {
    split.streams.down.say(packets);
    let written = write(split).await?;
    split.streams.traffic.add_to_client(packets.len());
    written.map_err(SessionError::ClientFailed)
}

/// Writes what was said to the command before and is still on its way.
pub(crate) fn poll_rest(cx: &mut Context<'_>, split: &mut Split) -> Poll<Result<(), SessionError>> {
    let streams = &mut split.streams;
    let written = streams.down.poll_write(cx, &mut streams.client);
    match split.control.due(false) {
        Some(signal) if written.is_pending() => {
            Poll::Ready(Err(signal_only(signal, &split.context.listener)))
        }
        _ => written.map_err(SessionError::ClientFailed),
    }
}

/// Between two commands of a session that holds a connection its server has nothing to say but why it ends
/// it. The session has lost what was on the connection, so it ends, too.
pub(crate) fn poll_last_words(cx: &mut Context<'_>, split: &mut Split) -> Poll<SessionError> {
    loop {
        let streams = &mut split.streams;
        match unasked(streams.down.unseen()) {
            Unasked::Error(len) => {
                streams.down.approve(len);
                split.answer.error_sequence = None;
                break;
            }
            Unasked::Nonsense => {
                streams.down.clear();
                break;
            }
            Unasked::Unfinished => match streams.down.poll_read(cx, &mut streams.server) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => {
                    streams.down.clear();
                    break;
                }
                Poll::Pending => return Poll::Pending,
            },
        }
    }
    // What a session holds only for the sake of a question that it may ask next is no reason to end it.
    let holds_only_answers = split
        .session
        .pins()
        .iter()
        .all(|pin| matches!(pin.reason, PinReason::Diagnostics | PinReason::FoundRows));
    if holds_only_answers && !split.binding.is_for_good() {
        lease::abandon(split);
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    let during = if split.is_free() {
        During::Idle
    } else {
        During::Transaction
    };
    Poll::Ready(SessionError::ServerGone {
        server: split.server_name().to_owned(),
        during,
    })
}
