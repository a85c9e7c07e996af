//! The session of one client: the state that it holds from its login to its end.

use std::rc::Rc;
use std::sync::Arc;

use mysql_wire::statement::asks_for_cursor;
use mysql_wire::{Capabilities, Command, ResponseTracker, StatusFlags};
use net::Peer;
use telemetry::ServerMetrics;
use upstream::{Permit, Server};

use crate::command_head::CommandHead;
use crate::control::{Control, Signal};
use crate::error::{During, SessionError};
use crate::frontend::listener_state::ListenerState;
use crate::frontend::worker::Worker;
use crate::relay::{RelayError, Streams};
use crate::session_end::{as_error, await_last_command, error_bytes, say_goodbye, signal_as_error};

/// A logged-in session in mode `session`.
pub(crate) struct Session {
    pub(crate) control: Rc<Control>,
    pub(crate) worker: Rc<Worker>,
    pub(crate) listener: Arc<ListenerState>,
    pub(crate) server: Arc<Server>,
    pub(crate) metrics: Arc<ServerMetrics>,
    pub(crate) streams: Streams,
    pub(crate) response: ResponseTracker,
    pub(crate) capabilities: Capabilities,
    /// The status that the server last reported.
    pub(crate) status: StatusFlags,
    /// The user since COM_CHANGE_USER, for the log.
    pub(crate) changed_user: Option<Box<str>>,
    /// The client, behind the load balancer that speaks for it.
    pub(crate) peer: Peer,
    /// The sequence number an error has now, or `None` where the protocol has no place for one.
    pub(crate) error_sequence: Option<u8>,
    /// Holds the place among the server's connections.
    pub(crate) _permit: Permit,
}

impl Session {
    /// Whether the session is outside a transaction: nothing is lost when it ends here, between two commands.
    pub(crate) fn is_free(&self) -> bool {
        !self.status.contains(StatusFlags::IN_TRANS)
    }

    /// Begins the response to the command at the head of the bytes that the client sent.
    #[inline]
    pub(crate) fn begin_response(&mut self, head: CommandHead) {
        let payload = self.streams.up.payload(head.payload_len);
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

    /// The error for the end of the server's connection.
    pub(crate) fn server_gone(&self, during: During) -> SessionError {
        SessionError::ServerGone {
            server: self.server.name().to_owned(),
            during,
        }
    }

    /// The error for an exchange that did not come to its end.
    pub(crate) fn broken(&self, broken: RelayError) -> SessionError {
        as_error(broken, self.server.name(), &self.listener, During::Command)
    }

    /// The error for a signal that ends the session.
    pub(crate) fn signalled(&self, signal: Signal) -> SessionError {
        signal_as_error(signal, self.server.name(), &self.listener)
    }

    /// Tells the client why its session ends, where the protocol has a place for it. Bytes of a response that
    /// were read and may be forwarded go first, so that an error never stands inside a packet.
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

/// Whether a command may load a file of the client's, as far as mode `session` can tell: a statement with
/// `load` or `execute` anywhere in it, an execution, or a command that is too long to be read.
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
