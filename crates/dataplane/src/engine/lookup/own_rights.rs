//! The point in time whose rights a server goes by for a session.
//!
//! A server keeps rights on everything from the login on, and those on a schema from when it was chosen. Two
//! sessions of one user may therefore have different rights, and an answer to one says nothing of the other,
//! until both are known to have their rights as of the same grants.

use crate::clock::TICK;
use crate::lookups::Rights;

#[derive(Debug)]
pub(super) struct SessionRights {
    as_of: Option<u64>,
    is_certain: bool,
    session: u32,
    /// Time since which the server goes by them, in ticks of the worker's clock.
    since: u32,
}

/// Ticks of the worker's clock after which a grant is in the binary log that a server goes by: a second's,
/// and one that had begun.
const LOGGED: u32 = 1000 / TICK.as_millis() as u32 + 1;

impl SessionRights {
    /// The rights from a login on, which was `now`. `as_of`: what
    /// [`rights_of_login`](crate::lookups::Lookups::rights_of_login) said before it.
    pub(super) fn new(session: u32, as_of: Option<u64>, now: u32) -> Self {
        Self {
            as_of,
            is_certain: false,
            session,
            since: now,
        }
    }

    /// Notes a statement that may have the server look at rights again, which are as of `now_as_of`.
    pub(super) fn renew(&mut self, now_as_of: Option<u64>, now: u32) {
        if self.as_of != now_as_of {
            // Some rights are older than others.
            self.as_of = None;
        }
        self.is_certain = false;
        self.since = now;
    }

    /// Whether a lookup that waits makes the rights certain.
    pub(super) fn may_become_certain(&self, definitions: u64, now: u32) -> bool {
        !self.is_certain && self.as_of == Some(definitions) && now.wrapping_sub(self.since) > LOGGED
    }

    /// Notes that all has been seen that the binary log had at `now`, when a statement came, and that
    /// `definitions` counts it.
    pub(super) fn note_fresh(&mut self, definitions: u64, now: u32) {
        self.is_certain |= self.may_become_certain(definitions, now);
    }

    pub(super) fn said(&self) -> Rights {
        Rights::OfLogin {
            as_of: self.as_of,
            is_certain: self.is_certain,
            session: self.session,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged_in(as_of: Option<u64>) -> SessionRights {
        SessionRights {
            as_of,
            is_certain: false,
            session: 9,
            since: 100,
        }
    }

    #[test]
    fn what_was_on_its_way_at_the_login_leaves_doubts() {
        let mut rights = logged_in(Some(5));
        rights.note_fresh(5, 100 + LOGGED);
        assert!(!rights.is_certain, "too early");
        rights.note_fresh(6, 101 + LOGGED);
        assert!(!rights.is_certain, "a grant that may have been before");
        rights.note_fresh(5, 101 + LOGGED);
        assert!(rights.is_certain);
        let mut unsettled = logged_in(None);
        unsettled.note_fresh(5, 1000);
        assert!(!unsettled.is_certain);
    }

    #[test]
    fn what_is_looked_at_again_after_a_grant_is_of_no_one_grant() {
        let mut rights = logged_in(Some(5));
        rights.note_fresh(5, 1000);
        rights.renew(Some(5), 1000);
        assert_eq!((rights.as_of, rights.is_certain), (Some(5), false));
        rights.renew(Some(6), 1000);
        rights.renew(Some(5), 1000);
        assert_eq!(rights.as_of, None);
    }
}
