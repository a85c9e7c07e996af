//! Where a session's writes are, and how fresh it has said that its reads must be.

use std::cell::Cell;

use config::ReadConsistency;
use upstream::ServerId;

/// What reads of the session must see, as far as it is its own affair.
#[derive(Default)]
pub(crate) struct OwnWrites {
    /// Of several servers that take writes, the one that takes this session's.
    writer: Cell<Option<ServerId>>,
    /// The server that has all that this session has written: where it wrote last, or one that has caught up
    /// with that since.
    on: Option<ServerId>,
    /// How fresh reads are, where the session has said so itself.
    said: Option<ReadConsistency>,
}

impl OwnWrites {
    pub(crate) fn writer(&self) -> Option<ServerId> {
        self.writer.get()
    }

    /// This server takes the session's writes from here on.
    pub(crate) fn go_to(&self, writer: ServerId) {
        self.writer.set(Some(writer));
    }

    /// The server that has all of them, where there are some.
    pub(crate) fn on(&self) -> Option<ServerId> {
        self.on
    }

    /// Whether a server has all of them.
    pub(crate) fn are_on(&self, server: ServerId) -> bool {
        self.on.is_none_or(|on| on == server)
    }

    /// This server has all of them.
    pub(crate) fn note_on(&mut self, server: ServerId) {
        self.on = Some(server);
    }

    pub(crate) fn said_consistency(&self) -> Option<ReadConsistency> {
        self.said
    }

    /// `None`: as rules, accounts and the configuration have it.
    pub(crate) fn say_consistency(&mut self, said: Option<ReadConsistency>) {
        self.said = said;
    }
}
