//! Which part a gateway takes of the limits that all have together: one of as many as there are gateways.
//!
//! What a gateway tells is a promise: it takes no more than one of so many parts. A smaller part is taken at
//! once, and told when that is so; a larger one is told first, and taken once all others have told that they
//! leave room for it. So the parts of those who see the store are never more than the whole: whoever comes
//! later finds the promise that counts.

use std::time::Duration;

/// No part yet: one of each limit.
pub(crate) const NONE: u32 = u32::MAX;

/// Fewer gateways are fewer only after this time: a restart is shorter.
const FEWER_AFTER: Duration = Duration::from_secs(10);

/// A gateway that has not reached the store since its start takes what it had last after this time.
const ALONE_AFTER: Duration = Duration::from_secs(5);

/// A part that could not be taken is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Share {
    /// It takes one of so many parts.
    has: u32,
    told: u32,
    /// What it had last, before this start.
    before: Option<u32>,
    /// Since when there are so few others.
    fewer: Option<(u32, Duration)>,
    again: Duration,
}

/// What is seen of the others.
pub(crate) struct Others {
    /// Gateways that live, with this one.
    pub(crate) live: u32,
    /// The smallest promise of the others; those that do not share promise nothing, and do not count.
    pub(crate) promised: u32,
    /// What this gateway has told, as the store has it; `None` while it is none of the fleet.
    pub(crate) told: Option<u32>,
}

impl Share {
    pub(crate) fn new(before: Option<u32>) -> Self {
        Self {
            has: NONE,
            told: NONE,
            before,
            fewer: None,
            again: Duration::ZERO,
        }
    }

    pub(crate) fn has(&self) -> u32 {
        self.has
    }

    pub(crate) fn told(&self) -> u32 {
        self.told
    }

    /// Whether it has to be known if the gateway is within its part by now.
    pub(crate) fn asks(&self) -> bool {
        self.told < self.has
    }

    /// The gateway has no more than its part. Where it takes a larger one soon that is not told any more.
    pub(crate) fn is_within(&mut self) {
        if self.fewer.is_none() {
            self.told = self.has;
        }
    }

    /// It takes one of so many parts now, or could not.
    pub(crate) fn taken(&mut self, parts: u32, is_done: bool, now: Duration) {
        match is_done {
            true => {
                self.has = parts;
                self.told = self.told.min(parts);
            }
            false => self.again = now + TRY_AGAIN,
        }
    }

    /// The part to take now, if another one.
    pub(crate) fn next(&mut self, others: &Others, now: Duration) -> Option<u32> {
        if others.told.is_some() {
            // The store was reached: what counts is what there is now.
            self.before = None;
        }
        let live = others.live.max(1);
        if live >= self.has {
            self.fewer = None;
            return (live > self.has && now >= self.again).then_some(live);
        }
        let since = match self.fewer {
            Some((of, since)) if of == live => since,
            _ => now,
        };
        self.fewer = Some((live, since));
        let is_time = self.has == NONE || now.saturating_sub(since) >= FEWER_AFTER;
        if !is_time || others.told.is_none() {
            return None;
        }
        self.told = live;
        let may = others.told == Some(live) && others.promised >= live && now >= self.again;
        may.then_some(live)
    }

    /// The same while nobody can be asked.
    pub(crate) fn offline(&self, now: Duration) -> Option<u32> {
        let is_alone = self.has == NONE && now >= ALONE_AFTER.max(self.again);
        self.before.filter(|_| is_alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn others(live: u32, promised: u32, told: u32) -> Others {
        Others {
            live,
            promised,
            told: Some(told),
        }
    }

    #[test]
    fn a_larger_part_is_told_first_and_taken_when_others_leave_room() {
        let mut share = Share::new(None);
        assert_eq!(share.next(&others(2, 1, NONE), secs(0)), None);
        assert_eq!(share.told(), 2);
        assert_eq!(share.next(&others(2, 1, 2), secs(0)), None, "the other has all");
        assert_eq!(share.next(&others(2, 2, 2), secs(0)), Some(2));
        share.taken(2, true, secs(0));
        assert_eq!(share.next(&others(2, 2, 2), secs(0)), None);
    }

    #[test]
    fn a_smaller_part_is_taken_at_once_and_told_when_that_is_so() {
        let mut share = Share::new(None);
        share.taken(1, true, secs(0));
        assert_eq!(share.next(&others(2, NONE, 1), secs(0)), Some(2));
        share.taken(2, true, secs(0));
        assert_eq!(share.next(&others(2, NONE, 1), secs(0)), None);
        assert_eq!((share.told(), share.asks()), (1, true));
        share.is_within();
        assert_eq!((share.told(), share.asks()), (2, false));
    }

    #[test]
    fn the_part_of_one_that_is_gone_is_taken_after_a_while() {
        let mut share = Share::new(None);
        share.taken(3, true, secs(0));
        share.is_within();
        assert_eq!(share.next(&others(2, 3, 3), secs(1)), None);
        assert_eq!(share.next(&others(2, 3, 3), secs(10)), None);
        assert_eq!(share.told(), 3);
        // It was told, and another one has come meanwhile.
        assert_eq!(share.next(&others(2, 3, 3), secs(11)), None);
        assert_eq!(share.told(), 2);
        assert_eq!(share.next(&others(3, 3, 2), secs(11)), None);
        share.is_within();
        assert_eq!(share.told(), 3);
        // It has gone again.
        assert_eq!(share.next(&others(2, 3, 3), secs(20)), None);
        assert_eq!(share.next(&others(2, 3, 3), secs(30)), None);
        assert_eq!(share.next(&others(2, 3, 2), secs(30)), Some(2));
    }

    #[test]
    fn without_the_store_what_it_had_last_counts() {
        assert_eq!(Share::new(None).offline(secs(60)), None);
        let mut share = Share::new(Some(4));
        assert_eq!((share.offline(secs(1)), share.offline(secs(5))), (None, Some(4)));
        share.taken(4, true, secs(5));
        assert_eq!(share.offline(secs(60)), None);
    }
}
