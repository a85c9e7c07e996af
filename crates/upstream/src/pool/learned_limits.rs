//! What a server has said itself of how many connections it takes, by refusing one: of all together
//! ([`Ceiling`]), or of one user ([`FullUsers`]). Its limits may be lower than the operator's, and others
//! share them.
//!
//! A refusal is believed for a while. Then one more may try, and after each that is let in two more: a server
//! that has room again fills quickly, and one that has none is not stormed by everybody who waits.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// How long a refusal is believed: who else uses the server may go away without our knowing.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// How many connections a server takes at most.
#[derive(Debug, Default)]
pub(crate) struct Ceiling {
    /// One more than that; 0 where no limit is known.
    bound: AtomicU32,
    since: Mutex<Since>,
}

/// Since when a bound counts.
#[derive(Debug, Default)]
struct Since {
    at: Option<Instant>,
    /// It is no refusal, but how many may try.
    is_trial: bool,
}

impl Ceiling {
    /// The server has refused one, with so many others of ours.
    pub(crate) fn lower(&self, others: u32, now: Instant) {
        let mut since = lock(&self.since);
        self.set(&mut since, others, now, false);
    }

    /// Whether the server is known to have no room for more than so many.
    #[inline]
    pub(crate) fn is_reached(&self, sessions: u32) -> bool {
        let bound = self.bound.load(Ordering::SeqCst);
        bound > 0 && sessions >= bound - 1
    }

    /// The server has let one in, and there are so many of ours now. True where more may try; then the caller
    /// serves the line.
    pub(crate) fn raise(&self, sessions: u32, now: Instant) -> bool {
        if !self.is_reached(sessions) {
            return false;
        }
        let mut since = lock(&self.since);
        // Where nothing was tried it was one in another's place.
        let may = since.is_trial;
        if may {
            self.set(&mut since, sessions.saturating_add(2), now, true);
        }
        may
    }

    /// Where a refusal is long ago: one more than `sessions` may try if somebody wants to, else it is
    /// forgotten. True where one may; then the caller serves the line.
    pub(crate) fn lift(&self, sessions: u32, is_wanted: bool, now: Instant) -> bool {
        if self.bound.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut since = lock(&self.since);
        if since
            .at
            .is_some_and(|at| now.saturating_duration_since(at) < BELIEVED_FOR)
        {
            return false;
        }
        if is_wanted {
            self.set(&mut since, sessions.saturating_add(1), now, true);
        } else {
            self.bound.store(0, Ordering::SeqCst);
        }
        is_wanted
    }

    fn set(&self, since: &mut Since, most: u32, now: Instant, is_trial: bool) {
        *since = Since {
            at: Some(now),
            is_trial,
        };
        self.bound.store(most.saturating_add(1), Ordering::SeqCst);
    }
}

/// How soon one more of a user may try, from the last one on. Those of one user are few, and leave without
/// our knowing when others use the account, too; and a server notices a little late that one has gone.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Users of whom a server takes no more connections at the moment.
#[derive(Debug, Default)]
pub(crate) struct FullUsers {
    /// There are any: usually not, and nothing has to be locked to know it.
    any: AtomicBool,
    all: Mutex<Vec<Full>>,
}

#[derive(Debug)]
struct Full {
    user: Arc<str>,
    /// When one was refused.
    refused: Instant,
    /// When one was refused, or was let try.
    tried: Instant,
    /// One was let try since it was refused.
    is_trial: bool,
}

impl FullUsers {
    /// The server has refused another one of this user.
    pub(crate) fn note(&self, user: &Arc<str>, now: Instant) {
        let mut all = lock(&self.all);
        all.retain(|full| full.user != *user && full.is_believed(now));
        all.push(Full {
            user: Arc::clone(user),
            refused: now,
            tried: now,
            is_trial: false,
        });
        self.any.store(true, Ordering::SeqCst);
    }

    /// Whether there may be any such user.
    pub(super) fn is_any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Whether it would not take another one of this user.
    pub(crate) fn contains(&self, user: &str, now: Instant) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut all = lock(&self.all);
        all.retain(|full| full.is_believed(now));
        self.any.store(!all.is_empty(), Ordering::SeqCst);
        all.iter().any(|full| *full.user == *user)
    }

    /// Whether one of this user who waits may try now, and so the next one may not.
    pub(crate) fn may_try(&self, user: &str, now: Instant) -> bool {
        let mut all = lock(&self.all);
        let Some(full) = all.iter_mut().find(|full| *full.user == *user) else {
            return true;
        };
        let may = now.saturating_duration_since(full.tried) >= RETRY_AFTER;
        if may {
            (full.tried, full.is_trial) = (now, true);
        }
        may
    }

    /// The server has let one of this user in. True where it was to try: then others may, too.
    pub(crate) fn let_in(&self, user: &str) -> bool {
        self.any.load(Ordering::SeqCst) && {
            let all = lock(&self.all);
            all.iter().any(|full| *full.user == *user && full.is_trial)
        }
    }
}

impl Full {
    fn is_believed(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.refused) < BELIEVED_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_believed_for_a_while_and_then_one_may_try() {
        let (ceiling, start) = (Ceiling::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!ceiling.is_reached(u32::MAX), "no limit is known");
        ceiling.lower(3, at(0));
        assert_eq!(
            [2, 3, 4].map(|sessions| ceiling.is_reached(sessions)),
            [false, true, true]
        );
        assert!(!ceiling.raise(3, at(1)), "one has taken another's place");
        assert!(!ceiling.lift(3, true, at(999)));
        assert!(ceiling.lift(3, true, at(1000)));
        assert_eq!([3, 4].map(|sessions| ceiling.is_reached(sessions)), [false, true]);
        assert!(!ceiling.lift(4, true, at(1001)), "one, and not one a worker");
        // It was let in, and those after it.
        assert!(ceiling.raise(4, at(1002)));
        assert_eq!([5, 6].map(|sessions| ceiling.is_reached(sessions)), [false, true]);
        assert!(!ceiling.raise(5, at(1003)), "the other one is still under way");
        assert!(ceiling.raise(6, at(1004)));
        ceiling.lower(6, at(1005));
        assert!(ceiling.is_reached(6) && !ceiling.raise(6, at(1006)));
        assert!(!ceiling.lift(6, false, at(3000)));
        assert!(!ceiling.is_reached(u32::MAX), "forgotten, since nobody waits");
    }

    #[test]
    fn a_server_without_any_of_ours_may_be_full() {
        let (ceiling, now) = (Ceiling::default(), Instant::now());
        ceiling.lower(0, now);
        assert!(ceiling.is_reached(0));
        assert!(ceiling.lift(0, true, now + BELIEVED_FOR));
        assert!(!ceiling.is_reached(0) && ceiling.is_reached(1));
    }

    #[test]
    fn a_user_is_full_for_a_while_in_which_one_at_a_time_may_try() {
        let (users, start) = (FullUsers::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!users.contains("app", start) && !users.let_in("app"));
        users.note(&"app".into(), start);
        assert!(users.contains("app", at(999)) && !users.contains("other", start));
        assert!(!users.let_in("app"), "one has taken another's place");
        assert!(!users.may_try("app", at(99)) && users.may_try("app", at(100)));
        assert!(!users.may_try("app", at(101)), "another one is trying");
        assert!(users.let_in("app"));
        users.note(&"app".into(), at(200));
        assert!(!users.let_in("app") && users.contains("app", at(1199)));
        assert!(!users.contains("app", at(1200)));
        assert!(users.may_try("app", at(1200)), "nothing is known of it any more");
    }
}
