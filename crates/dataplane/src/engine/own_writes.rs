//! The servers that have a session's writes, and the freshness that the session has asked of its reads.

use std::cell::Cell;

use config::ReadConsistency;
use upstream::ServerId;

/// The session's own say in what its reads must see.
#[derive(Default)]
pub(crate) struct OwnWrites {
    /// The server that takes this session's writes, of several that take any.
    writer: Cell<Option<ServerId>>,
    /// The server that has all that this session has written: where it wrote last, or one that has caught up
    /// with that since.
    on: Option<ServerId>,
    /// The freshness of reads, where the session has said it itself.
    said: Option<ReadConsistency>,
}

impl OwnWrites {
    pub(crate) fn writer(&self) -> Option<ServerId> {
        self.writer.get()
    }

    /// Notes that this server takes the session's writes from here on.
    pub(crate) fn go_to(&self, writer: ServerId) {
        self.writer.set(Some(writer));
    }

    /// The server that has all of the session's writes, where there are some.
    pub(crate) fn on(&self) -> Option<ServerId> {
        self.on
    }

    /// Whether a server has all of the session's writes.
    pub(crate) fn are_on(&self, server: ServerId) -> bool {
        self.on.is_none_or(|on| on == server)
    }

    /// Notes that this server has all of the session's writes.
    pub(crate) fn note_on(&mut self, server: ServerId) {
        self.on = Some(server);
    }

    pub(crate) fn said_consistency(&self) -> Option<ReadConsistency> {
        self.said
    }

    /// Sets the freshness that the session asks of its reads. `None`: as rules, accounts and the
    /// configuration have it.
    pub(crate) fn say_consistency(&mut self, said: Option<ReadConsistency>) {
        self.said = said;
    }
}
