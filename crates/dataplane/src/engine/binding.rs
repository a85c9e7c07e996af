//! What binds a session to its server connection beyond what `session::Session` knows, and whether it is
//! counted among those that hold one.

use std::borrow::Cow;

use session::Pin;

/// Whether the connection is the session's own until it is reset.
#[derive(Default)]
pub(crate) struct Binding {
    /// The session has logged in on it, and never has another one.
    is_own: bool,
    is_for_good: bool,
    /// Why, where the session itself does not know. Boxed: few have one.
    reason: Option<Box<Pin>>,
    is_counted: bool,
}

impl Binding {
    /// Of a session that has a server connection for itself: mode `session`.
    pub(crate) const OWN: Self = Self {
        is_own: true,
        is_for_good: false,
        reason: None,
        is_counted: false,
    };

    /// The session has one connection from its login to its end, on which it has logged in by itself.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    pub(crate) fn is_for_good(&self) -> bool {
        self.is_for_good || self.is_own
    }

    /// Something that only a reset takes off has been done on the connection.
    pub(crate) fn is_bound(&self) -> bool {
        self.is_for_good
    }

    /// The session keeps its connection from here on, for a reason that it knows itself or that nobody asks
    /// for: what it does there (replication) is not understood.
    pub(crate) fn bind(&mut self) {
        self.is_for_good = true;
    }

    /// The same for this reason. The first one counts.
    pub(crate) fn bind_for(&mut self, reason: Pin) {
        self.is_for_good = true;
        self.reason.get_or_insert_with(|| Box::new(reason));
    }

    pub(crate) fn has_reason(&self) -> bool {
        self.reason.is_some()
    }

    /// A reset session keeps nothing.
    pub(crate) fn unbind(&mut self) {
        (self.is_for_good, self.reason) = (false, None);
    }

    /// Why the session holds its connection, for those who look at it. `pins`: the session's own reasons.
    pub(crate) fn reasons<'a>(&self, pins: &'a [Pin]) -> Cow<'a, [Pin]> {
        match &self.reason {
            None => Cow::Borrowed(pins),
            Some(reason) => Cow::Owned([pins, &[**reason]].concat()),
        }
    }

    /// The session holds its connection over the end of a statement. True where that is news.
    pub(crate) fn count(&mut self) -> bool {
        !std::mem::replace(&mut self.is_counted, true)
    }

    /// The session holds none. True where it was counted.
    pub(crate) fn uncount(&mut self) -> bool {
        std::mem::take(&mut self.is_counted)
    }
}
