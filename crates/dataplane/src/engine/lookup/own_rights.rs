//! As of when the server has the rights of a session.
//!
//! A server keeps rights on everything from the login on, and those on a schema from when it was chosen. So
//! two sessions of one user may have different rights, and what one was told says nothing of the other, until
//! both are known to have theirs as of the same grants.

use crate::clock::TICK;
use crate::lookups::Rights;

#[derive(Debug)]
pub(super) struct SessionRights {
    as_of: Option<u64>,
    is_certain: bool,
    session: u32,
    /// In ticks of the worker's clock.
    since: u32,
}

/// After so many ticks of the worker's clock a grant is in the binary log by which a server went before: a
/// second, and one that had begun.
const LOGGED: u32 = 1000 / TICK.as_millis() as u32 + 1;

impl SessionRights {
    /// `as_of`: what [`rights_of_login`](crate::lookups::Lookups::rights_of_login) said before the login,
    /// which was `now`.
    pub(super) fn new(session: u32, as_of: Option<u64>, now: u32) -> Self {
        Self {
            as_of,
            is_certain: false,
            session,
            since: now,
        }
    }

    /// A statement may have the server look at rights again, which are now as of `now_as_of`.
    pub(super) fn renew(&mut self, now_as_of: Option<u64>, now: u32) {
        if self.as_of != now_as_of {
            // Some are older than others.
            self.as_of = None;
        }
        self.is_certain = false;
        self.since = now;
    }

    /// Whether a lookup that waits makes them certain.
    pub(super) fn may_become_certain(&self, definitions: u64, now: u32) -> bool {
        !self.is_certain && self.as_of == Some(definitions) && now.wrapping_sub(self.since) > LOGGED
    }

    /// What the binary log had when a statement came, which was now, has been seen, and `definitions` counts
    /// it.
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
