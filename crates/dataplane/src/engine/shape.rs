//! The form in which a client gets the packets of servers.

use mysql_wire::{Capabilities, Command, Reshaper, ResponseTracker, StatusFlags};

/// The change that packets of a server need on their way to this client.
pub(crate) enum Shape {
    /// Packets are in the form that the client knows.
    Same(ResponseTracker),
    /// The client lacks DEPRECATE_EOF or SESSION_TRACK.
    Older(Box<Reshaper>),
}

impl Shape {
    /// `server`: the capabilities that the session's server connections are opened with.
    pub(crate) fn new(server: Capabilities, client: Capabilities) -> Self {
        if client.contains(Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK) {
            let mut tracker = ResponseTracker::new(server);
            tracker.inspect_state(true);
            Self::Same(tracker)
        } else {
            Self::Older(Box::new(Reshaper::new(server, client)))
        }
    }

    /// Begins an answer. `status`: the session's, which older clients are told before the server has said it.
    pub(crate) fn begin(&mut self, command: Command, status: StatusFlags) {
        match self {
            Self::Same(tracker) => tracker.begin(command),
            Self::Older(reshaper) => {
                reshaper.note_status(status);
                reshaper.begin(command);
            }
        }
    }

    /// Says what the command may lead to: see [`ResponseTracker::allow_cursor`] and
    /// [`ResponseTracker::allow_infile`].
    pub(crate) fn allow(&mut self, cursor: bool, infile: bool) {
        match self {
            Self::Same(tracker) => {
                cursor.then(|| tracker.allow_cursor());
                infile.then(|| tracker.allow_infile());
            }
            Self::Older(reshaper) => {
                cursor.then(|| reshaper.allow_cursor());
                infile.then(|| reshaper.allow_infile());
            }
        }
    }

    /// Says that the command executes a `CALL`: see [`Reshaper::expect_more`].
    pub(crate) fn expect_more(&mut self) {
        if let Self::Older(reshaper) = self {
            reshaper.expect_more();
        }
    }
}
