//! How many of the connections to a full server each worker has, and when one of them goes to another worker.
//!
//! A worker's share is what it happens to have opened. A live connection costs little to move, but what moves
//! all the time serves nobody better: sessions of all workers wait under load, now these for a little longer,
//! now those. So shares change
//! - at once, where a worker has none and its sessions wait: with fewer connections than workers those go
//!   round;
//! - slowly, where sessions of one worker usually wait more than twice as long as those of another;
//! - where a worker has one that nobody there has used for a while.
//!
//! The last one of a worker that uses it stays, unless somebody without any has waited much longer than those
//! who are there.

use std::time::{Duration, Instant};

use super::wait_queue::PATIENCE;

/// A connection that nobody has used for so long is not needed where it is, be it the last.
const UNUSED: Duration = Duration::from_millis(100);

/// Usual waits that differ by less are taken for the same.
const TELLING: Duration = Duration::from_millis(2);

/// Time between two changes of shares, for waits to show what the one before has done.
const SETTLES: Duration = Duration::from_millis(10);

/// A wait so much longer than three times the usual one is looked at by itself: where all that a worker has
/// is held for long.
const LONG: Duration = Duration::from_millis(20);

/// The usual wait moves by this part towards each new one.
const WEIGHT: f64 = 1.0 / 8.0;

/// Those of one server.
#[derive(Debug, Default)]
pub(super) struct Shares {
    all: Vec<Share>,
    /// The last change that could have waited.
    changed: Option<Instant>,
}

/// That of one worker.
#[derive(Debug)]
struct Share {
    pool: u64,
    connections: u32,
    /// Its sessions in line.
    waiting: u32,
    /// The usual wait for a connection, in seconds; those who do not wait count.
    wait: f64,
}

/// A connection that has come free.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) from: u64,
    /// How long the first session of that worker has waited that can use it; `None`: there is none.
    pub(super) near: Option<Duration>,
    /// How long nobody has used it.
    pub(super) unused: Duration,
}

impl Shares {
    pub(super) fn opened(&mut self, pool: u64) {
        self.of(pool).connections += 1;
    }

    pub(super) fn closed(&mut self, pool: u64) {
        let share = self.of(pool);
        share.connections = share.connections.saturating_sub(1);
        self.forget_nobody();
    }

    pub(super) fn joined(&mut self, pool: u64) {
        self.of(pool).waiting += 1;
    }

    pub(super) fn left(&mut self, pool: u64) {
        let share = self.of(pool);
        share.waiting = share.waiting.saturating_sub(1);
        self.forget_nobody();
    }

    /// A session of this worker has waited, and so many others have not had to.
    pub(super) fn waited(&mut self, pool: u64, waited: Duration) {
        let share = self.of(pool);
        share.wait += (waited.as_secs_f64() - share.wait) * WEIGHT;
    }

    pub(super) fn served_at_once(&mut self, pool: u64, sessions: u32) {
        // Beyond these nothing is left of a wait.
        let sessions = sessions.min(1000) as i32;
        self.of(pool).wait *= (1.0 - WEIGHT).powi(sessions);
    }

    /// Workers other than this one whose sessions wait.
    pub(super) fn others_waiting(&self, pool: u64) -> usize {
        let others = self.all.iter().filter(|share| share.pool != pool);
        others.filter(|share| share.waiting > 0).count()
    }

    /// Whether the offered connection goes to the worker `to`, whose first session that can use it has waited
    /// for `waited`.
    pub(super) fn may_go(&self, offer: Offer, to: u64, waited: Duration, now: Instant) -> bool {
        let (from, to) = (self.get(offer.from), self.get(to));
        let near = offer.near.unwrap_or_default();
        if to.connections == 0 {
            return match from.connections > 1 {
                true => offer.near.is_none() || waited > near,
                false => waited > PATIENCE + near,
            };
        }
        // Where the newest are used again, what lies about is more than is needed.
        let is_spare = offer.near.is_none() && offer.unused >= PATIENCE && waited >= PATIENCE;
        let usual = Duration::from_secs_f64(from.wait);
        let is_late = self.has_settled(now) && waited > LONG + 3 * near.max(usual);
        if from.connections < 2 {
            return is_late || is_spare && offer.unused >= UNUSED;
        }
        is_late || is_spare || self.has_settled(now) && waited > near && to.lacks_what_has(&from)
    }

    /// A connection goes from one to another.
    pub(super) fn goes(&mut self, from: u64, to: u64, now: Instant) {
        if self.get(to).connections > 0 {
            self.changed = Some(now);
        }
        self.opened(to);
        self.closed(from);
    }

    fn has_settled(&self, now: Instant) -> bool {
        self.changed
            .is_none_or(|changed| now.saturating_duration_since(changed) >= SETTLES)
    }

    fn of(&mut self, pool: u64) -> &mut Share {
        match self.all.iter().position(|share| share.pool == pool) {
            Some(at) => &mut self.all[at],
            None => self.all.push_mut(Share::of(pool)),
        }
    }

    fn get(&self, pool: u64) -> Share {
        let found = self.all.iter().find(|share| share.pool == pool);
        found.map_or(Share::of(pool), |share| Share { ..*share })
    }

    /// A worker with neither connections nor sessions that wait counts for nothing.
    fn forget_nobody(&mut self) {
        self.all
            .retain(|share| share.connections > 0 || share.waiting > 0);
    }

    #[cfg(test)]
    pub(super) fn connections(&self, pool: u64) -> u32 {
        self.get(pool).connections
    }
}

impl Share {
    /// Whether sessions usually wait much longer than those of `other`, and still do with one connection more
    /// here and one less there: a wait goes with the connections.
    fn lacks_what_has(&self, other: &Self) -> bool {
        let (here, there) = (f64::from(self.connections), f64::from(other.connections));
        self.wait > TELLING.as_secs_f64() + 2.0 * other.wait
            && self.wait * here / (here + 1.0) > other.wait * there / (there - 1.0)
    }

    const fn of(pool: u64) -> Self {
        Self {
            pool,
            connections: 0,
            waiting: 0,
            wait: 0.0,
        }
    }
}
