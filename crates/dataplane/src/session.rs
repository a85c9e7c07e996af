//! One client's session: what it holds from its login to its end.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mysql_wire::statement::asks_for_cursor;
use mysql_wire::{Capabilities, Command, ErrPacket, PacketHeader, ResponseTracker, StatusFlags};
use net::Peer;
use telemetry::ServerSeries;
use tokio::io::AsyncWriteExt;
use upstream::{Permit, Server};

use crate::control::{Control, Signal};
use crate::error::{During, SessionError};
use crate::listener_state::ListenerState;
use crate::relay::{RelayError, Streams};
use crate::worker::Worker;

/// How long a client that ends with an error has to take it.
pub(crate) const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// A logged-in session in mode `session`.
pub(crate) struct Session {
    pub(crate) control: Rc<Control>,
    pub(crate) worker: Rc<Worker>,
    pub(crate) listener: Arc<ListenerState>,
    pub(crate) server: Arc<Server>,
    pub(crate) series: Arc<ServerSeries>,
    pub(crate) streams: Streams,
    pub(crate) response: ResponseTracker,
    pub(crate) capabilities: Capabilities,
    /// As the server last reported it.
    pub(crate) status: StatusFlags,
    /// Since COM_CHANGE_USER, for the log.
    pub(crate) changed_user: Option<Box<str>>,
    /// The client, behind the load balancer that speaks for it.
    pub(crate) peer: Peer,
    pub(crate) commands: u64,
    /// The sequence number an error has now, or `None` where the protocol has no place for one.
    pub(crate) error_sequence: Option<u8>,
    /// Holds the place among the server's connections.
    pub(crate) _permit: Permit,
}

/// The header and first byte of a client's command.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommandHead {
    pub(crate) command: mysql_wire::Command,
    pub(crate) payload_len: usize,
}

impl Session {
    /// Between commands and outside a transaction: nothing is lost when it ends here.
    pub(crate) fn is_free(&self) -> bool {
        !self.status.contains(StatusFlags::IN_TRANS)
    }

    /// The payload of the packet at the head of what the client sent, as far as it was read.
    pub(crate) fn payload(&self, head: CommandHead) -> &[u8] {
        let unseen = self.streams.up.unseen();
        let end = (PacketHeader::LEN + head.payload_len).min(unseen.len());
        unseen.get(PacketHeader::LEN..end).unwrap_or_default()
    }

    /// The next response is to the command at the head of what the client sent.
    #[inline]
    pub(crate) fn begin_response(&mut self, head: CommandHead) {
        let payload = self.payload(head);
        let asks_for_cursor = asks_for_cursor(payload);
        let loads_file =
            self.capabilities.contains(Capabilities::LOCAL_FILES) && may_load_file(head, payload);
        self.response.begin(head.command);
        if asks_for_cursor {
            self.response.allow_cursor();
        }
        if loads_file {
            self.response.allow_infile();
        }
    }

    /// What the end of the server's connection means now.
    pub(crate) fn server_gone(&self, during: During) -> SessionError {
        SessionError::ServerGone {
            server: self.server.name().to_owned(),
            during,
        }
    }

    /// An exchange that did not come to its end, as the end of the session.
    pub(crate) fn broken(&self, broken: RelayError) -> SessionError {
        as_error(broken, self.server.name(), &self.listener, During::Command)
    }

    /// A signal, as the end of the session.
    pub(crate) fn signalled(&self, signal: Signal) -> SessionError {
        signal_as_error(signal, self.server.name(), &self.listener)
    }

    /// Tells the client why its session ends, where the protocol has a place for it. What was already read of
    /// a response and may be forwarded goes first, so that an error never stands inside a packet.
    pub(crate) async fn farewell(&mut self, error: &SessionError) {
        let mut last = Vec::new();
        if self.error_sequence == Some(0) && error.to_packet().is_some() && !self.must_end_now() {
            self.error_sequence = await_last_command(&mut self.streams).await;
        }
        if let (Some(packet), Some(sequence)) = (error.to_packet(), self.error_sequence) {
            self.worker.metrics.error_sent(packet.code, error.fault());
            last = error_bytes(&packet, sequence, self.capabilities);
        }
        say_goodbye(&mut self.streams, &last).await;
    }

    fn must_end_now(&self) -> bool {
        matches!(
            self.control.due(false),
            Some(Signal::DrainNow | Signal::ShutdownNow)
        )
    }
}

/// Whether a command may load a file of the client's, as far as mode `session` knows it: a statement in which
/// a word begins or ends like one that does, an execution, or what is too long to be read.
fn may_load_file(head: CommandHead, payload: &[u8]) -> bool {
    const READ_MAX: usize = 4096;
    const WORDS: [&[u8]; 2] = [b"load", b"execute"];
    let has = |word: &&[u8]| {
        payload
            .windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    let is_unread = payload.len() > READ_MAX || payload.len() < head.payload_len;
    head.command == Command::STMT_EXECUTE || is_unread || WORDS.iter().any(has)
}

/// Writes what may still be forwarded to the client, then `last`, and ends the connection.
pub(crate) async fn say_goodbye(streams: &mut Streams, last: &[u8]) {
    if last.is_empty() && !streams.down.is_pending() {
        return;
    }
    let write = async {
        poll_fn(|cx| streams.down.poll_write(cx, &mut streams.client)).await?;
        streams.client.write_all(last).await?;
        streams.client.shutdown().await
    };
    // A client that does not take it in time, or is gone, does without.
    let _: Result<std::io::Result<()>, _> = tokio::time::timeout(FAREWELL_LIMIT, write).await;
}

/// How long a session that ends between two commands waits for the next one, to answer it with the error.
const LAST_COMMAND_WAIT: Duration = Duration::from_secs(1);

/// An error between two commands has sequence number 0, and a client that has just sent the next command
/// takes that for a broken protocol. Busy clients are always just sending the next one, so it is awaited for
/// a moment, and refused. Returns the sequence number that the error has then; `None` where the client has
/// gone.
pub(crate) async fn await_last_command(streams: &mut Streams) -> Option<u8> {
    let next = async {
        loop {
            if let Some(header) = PacketHeader::parse(streams.up.unseen()) {
                streams.client.begin_command().ok()?;
                return Some(header.sequence.wrapping_add(1));
            }
            match poll_fn(|cx| streams.up.poll_read(cx, &mut streams.client)).await {
                Ok(n) if n > 0 => {}
                Ok(_) | Err(_) => return None,
            }
        }
    };
    tokio::time::timeout(LAST_COMMAND_WAIT, next)
        .await
        .unwrap_or(Some(0))
}

/// An error packet with its header.
pub(crate) fn error_bytes(packet: &ErrPacket, mut sequence: u8, capabilities: Capabilities) -> Vec<u8> {
    let mut payload = Vec::with_capacity(128);
    packet.encode(&mut payload, capabilities);
    let mut bytes = Vec::with_capacity(payload.len() + PacketHeader::LEN);
    mysql_wire::write_packet(&mut bytes, &mut sequence, &payload);
    bytes
}

/// The end of a connection whose bytes were only forwarded.
pub(crate) fn end_of_stream(
    ended: Result<(), RelayError>,
    server: &Server,
    listener: &ListenerState,
) -> SessionError {
    match ended {
        // Both sides have said goodbye.
        Ok(()) => SessionError::ClientGone,
        Err(broken) => as_error(broken, server.name(), listener, During::Stream),
    }
}

/// An exchange that did not come to its end, with the server of that name.
pub(crate) fn as_error(
    broken: RelayError,
    server: &str,
    listener: &ListenerState,
    during: During,
) -> SessionError {
    match broken {
        RelayError::Client(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            SessionError::ClientGone
        }
        RelayError::Client(error) => SessionError::ClientFailed(error),
        RelayError::Server => SessionError::ServerGone {
            server: server.to_owned(),
            during,
        },
        RelayError::ServerProtocol(cause) => SessionError::ServerProtocol {
            server: server.to_owned(),
            cause,
        },
        RelayError::Signal(signal) => signal_as_error(signal, server, listener),
    }
}

/// A signal, as the end of a session on the server of that name.
pub(crate) fn signal_as_error(signal: Signal, server: &str, listener: &ListenerState) -> SessionError {
    let name = || server.to_owned();
    match signal {
        Signal::Drain | Signal::DrainNow => SessionError::Drained,
        Signal::Shutdown | Signal::ShutdownNow => SessionError::Shutdown,
        Signal::ClientIdle => SessionError::ClientIdle,
        Signal::RequestStalled => SessionError::RequestStalled,
        Signal::ReaderStalled => SessionError::ReaderStalled,
        Signal::ServerTimeout => SessionError::ServerTimeout {
            server: name(),
            timeout: listener.cluster.config().server_idle_timeout,
        },
        Signal::StatementTimeout => SessionError::StatementTimeout { mariadb: false },
        Signal::ServerDown | Signal::ServerSilent => SessionError::ServerDown { server: name() },
        Signal::Kill => SessionError::Killed,
    }
}
