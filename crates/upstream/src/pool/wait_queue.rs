//! The line of those who wait for a connection to one server that is full: one line for all workers.
//!
//! A connection belongs to its worker, since its socket does; a permit does not. So what comes free on a
//! worker can go on as a connection to a session there that uses the same [`Key`], at no cost; alive to such
//! a session of another worker, at some cost; or as a permit to anybody, at the cost of a close and a login.
//! Strictly first come, first served would pay these costs all the time where several workers share a full
//! server. Here the first one in line gets every permit that comes free; a *connection* stays with those who
//! can use it as it is while they do not wait much less than the others: see [`WaitQueue::next_for`], and
//! [`Shares`].
//!
//! Who waits because the server takes no more connections of its user ([`Wish::confined`]) has no use for a
//! permit, but for a connection of that user, or the permit of one; and does not hold up the others.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Key;
use super::account_backoff::AccountBackoff;
use super::connect_limiter::ConnectLimiter;
use super::learned_limits::{Ceiling, FullUsers};
use super::shares::{Offer, Shares};
use super::size::{Size, Stall};
use super::travel::Parcel;
use crate::lock::lock;
use crate::permit::Permit;

/// How long one waits before other workers give up their connections for it. A connection of its own worker
/// usually comes back sooner than a new one can be made.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);

/// So often they are asked again for one who still waits.
const CALLED_AGAIN: Duration = Duration::from_millis(20);

/// Of those in line, so many are looked at for one of another worker that can use a connection as it is.
const LOOKED_AT: usize = 256;

/// What ends a wait.
#[derive(Debug)]
pub(crate) enum Grant {
    /// A connection may be opened.
    Permit(Permit),
    /// A connection lies ready on the worker of the one who waited.
    Connection,
    /// The same from another worker.
    Live(Box<Parcel>),
    /// The server takes no sessions any more.
    Gone,
    /// The time for waiting is over.
    Late,
}

/// Those who wait for one server.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// Its length. Sequentially consistent, together with the permits taken: whoever frees a permit sees the
    /// line, or whoever has just joined it sees the permit.
    waiting: AtomicUsize,
    /// Those of them who have a use for a permit. Sequentially consistent likewise.
    seekers: AtomicUsize,
    waiters: Mutex<Waiters>,
    next_number: AtomicU64,
    /// What the server itself has said.
    pub(crate) ceiling: Ceiling,
    pub(crate) full_users: FullUsers,
    /// How many connections are of use.
    pub(crate) size: Size,
    /// Accounts that it has in a form that is of no use.
    pub(super) unfit_accounts: AccountBackoff,
    /// Accounts that it refuses, and others of the cluster let in.
    pub(super) denied_accounts: AccountBackoff,
    /// Accounts of the configuration that it refuses, as the log has said.
    pub(super) refused_accounts: AccountBackoff,
    /// Those who are about to open a connection.
    pub(crate) connect_limiter: ConnectLimiter,
    pub(crate) timeouts: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'k> {
    /// Of its worker.
    pub(crate) pool: u64,
    pub(crate) key: &'k Key,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
    /// Other workers are asked from the beginning.
    pub(crate) called: bool,
    /// The server takes no more connections of its user.
    pub(crate) confined: bool,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    pool: u64,
    key: Key,
    since: Instant,
    until: Instant,
    /// Has waited for [`PATIENCE`]: other workers are asked.
    called: bool,
    confined: bool,
    answer: oneshot::Sender<Grant>,
}

/// All of them, first come first.
#[derive(Debug, Default)]
struct Waiters {
    all: VecDeque<Waiter>,
    /// Those that are confined.
    confined: usize,
    shares: Shares,
    stall: Stall,
    /// When other workers were asked last.
    called: Option<Instant>,
}

/// A connection that has come free on a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Free<'k> {
    pub(crate) pool: u64,
    pub(crate) key: &'k Key,
    /// How long nobody has used it.
    pub(crate) unused: Duration,
    /// Sessions of the worker that have not had to wait since it was asked last.
    pub(crate) at_once: u32,
    /// Its permit may go to somebody who has no use for it as it is.
    pub(crate) may_end: bool,
}

/// As what somebody gets a connection that has come free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// As it is, on its worker.
    Stays,
    /// As it is, on another worker.
    Moves,
    /// Its permit.
    Ends,
}

impl Waiters {
    fn remove(&mut self, position: usize) -> Option<Waiter> {
        let waiter = self.all.remove(position)?;
        self.confined -= usize::from(waiter.confined);
        self.shares.left(waiter.pool);
        Some(waiter)
    }

    /// See [`WaitQueue::next_for`].
    fn next_for(&self, free: &Free<'_>, now: Instant) -> Option<(usize, How)> {
        let near = self
            .all
            .iter()
            .position(|waiter| waiter.pool == free.pool && waiter.key == *free.key);
        let waited = |position: usize| now.saturating_duration_since(self.all[position].since);
        let near_waited = near.map(waited);
        let far = self.far(free, near_waited, now).map(|far| (far, How::Moves));
        let other = match near_waited {
            _ if !free.may_end => None,
            None => self.all.iter().position(|waiter| {
                (waiter.pool == free.pool || waiter.called) && waiter.has_use_for_the_end_of(free.key)
            }),
            Some(near_waited) => {
                let late = |position: &usize| waited(*position) > PATIENCE + 2 * near_waited;
                let mut late = (0..self.all.len()).take_while(late);
                late.find(|&position| self.all[position].has_use_for_the_end_of(free.key))
            }
        };
        let other = other.map(|other| (other, How::Ends));
        let first = far.into_iter().chain(other).min_by_key(|(position, _)| *position);
        first.or_else(|| near.map(|near| (near, How::Stays)))
    }

    /// The first of another worker to whom a connection goes as it is.
    fn far(&self, free: &Free<'_>, near: Option<Duration>, now: Instant) -> Option<usize> {
        let offer = Offer {
            from: free.pool,
            near,
            unused: free.unused,
        };
        let others = self.shares.others_waiting(free.pool);
        let mut seen = Vec::new();
        for (position, waiter) in self.all.iter().enumerate().take(LOOKED_AT) {
            if seen.len() == others {
                break;
            }
            if waiter.pool == free.pool || seen.contains(&waiter.pool) || waiter.key != *free.key {
                continue;
            }
            let waited = now.saturating_duration_since(waiter.since);
            if self.shares.may_go(offer, waiter.pool, waited, now) {
                return Some(position);
            }
            seen.push(waiter.pool);
        }
        None
    }

    /// The size has grown, since nothing moves. See [`Stall`].
    fn has_stalled(&mut self, wait_queue: &WaitQueue, now: Instant) -> bool {
        let Some(first) = self.all.iter().find(|waiter| !waiter.confined) else {
            return false;
        };
        let wanted = u32::try_from(self.all.len() - self.confined).unwrap_or(u32::MAX);
        let is_opening = wait_queue.connect_limiter.are_under_way();
        self.stall
            .look(first.since, wanted, is_opening, &wait_queue.size, now)
    }

    /// What a worker cannot give up yet when somebody calls, it may a little later.
    fn calls_again(&mut self, now: Instant) -> bool {
        let is_long = |waiter: &Waiter| now.saturating_duration_since(waiter.since) >= CALLED_AGAIN;
        let is_due = self.all.front().is_some_and(is_long)
            && self
                .called
                .is_none_or(|called| now.saturating_duration_since(called) >= CALLED_AGAIN);
        if is_due {
            self.called = Some(now);
        }
        is_due
    }

    /// The places of those of one user who are confined, if any is at all.
    fn confined(&self, user: &str) -> impl Iterator<Item = usize> {
        let all = self.all.iter().enumerate().take(match self.confined {
            0 => 0,
            _ => self.all.len(),
        });
        all.filter(move |(_, waiter)| waiter.confined && *waiter.key.user == *user)
            .map(|(position, _)| position)
    }

    /// It may have a permit as anybody may.
    fn release(&mut self, position: usize) {
        if let Some(waiter) = self.all.get_mut(position)
            && std::mem::take(&mut waiter.confined)
        {
            self.confined -= 1;
        }
    }
}

impl Waiter {
    /// Whether the end of a connection with this key is of use.
    fn can_use_the_permit_of(&self, key: &Key) -> bool {
        !self.confined || self.key.user == key.user
    }

    /// The same for one who has no use for the connection itself.
    fn has_use_for_the_end_of(&self, key: &Key) -> bool {
        self.key != *key && self.can_use_the_permit_of(key)
    }
}

/// What has come of a look after those in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LookedAfter {
    /// Somebody has waited for [`PATIENCE`]: wake the other workers.
    pub(crate) has_called: bool,
    /// Somebody may try to open one more of its user: serve the line.
    pub(crate) may_try: bool,
}

/// One who has left the line to be served.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) number: u64,
    /// Of its worker.
    pub(crate) pool: u64,
    pub(crate) how: How,
    answer: oneshot::Sender<Grant>,
}

impl Turn {
    /// `Err` gives back what nobody is there for any more.
    pub(crate) fn serve(self, grant: Grant) -> Result<(), Grant> {
        self.answer.send(grant)
    }
}

impl WaitQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Whether anybody has a use for a permit.
    pub(crate) fn wants_permits(&self) -> bool {
        self.seekers.load(Ordering::SeqCst) > 0
    }

    /// Joins the line, unless `max` are in it. After joining the caller must serve the line once: a permit
    /// may have become free in between. Who joins must [leave](Self::leave).
    pub(crate) fn join(&self, wish: Wish<'_>, max: usize) -> Option<(u64, oneshot::Receiver<Grant>)> {
        let mut waiters = lock(&self.waiters);
        if waiters.all.len() >= max {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        waiters.confined += usize::from(wish.confined);
        waiters.shares.joined(wish.pool);
        waiters.all.push_back(Waiter {
            number,
            pool: wish.pool,
            key: wish.key.clone(),
            since: wish.since,
            until: wish.until,
            called: wish.called,
            confined: wish.confined,
            answer,
        });
        self.publish(&waiters);
        Some((number, receiver))
    }

    /// Looks after those of one worker, every now and then: [`Grant::Late`] to those whose time is over.
    pub(crate) fn look_after(&self, pool: u64, now: Instant) -> LookedAfter {
        let (mut found, mut late, mut index) = (LookedAfter::default(), Vec::new(), 0);
        let mut waiters = lock(&self.waiters);
        while let Some(waiter) = waiters.all.get_mut(index) {
            if waiter.pool != pool {
                index += 1;
                continue;
            }
            if now >= waiter.until {
                late.extend(waiters.remove(index));
                continue;
            }
            if !waiter.called && now.saturating_duration_since(waiter.since) >= PATIENCE {
                (waiter.called, found.has_called) = (true, true);
            }
            if waiter.confined && self.full_users.may_try(&waiter.key.user, now) {
                found.may_try = true;
                waiters.release(index);
            }
            index += 1;
        }
        if !late.is_empty() || found.may_try {
            self.publish(&waiters);
        }
        found.may_try |= waiters.has_stalled(self, now);
        found.has_called |= waiters.calls_again(now);
        drop(waiters);
        for waiter in late {
            // Who is gone need not be told.
            let _ = waiter.answer.send(Grant::Late);
        }
        found
    }

    /// The server has let one of this user in who was to try: two more may. True where there are any; then
    /// the caller serves the line.
    pub(crate) fn let_try(&self, user: &str) -> bool {
        let mut waiters = lock(&self.waiters);
        let next: Vec<usize> = waiters.confined(user).take(2).collect();
        for position in &next {
            waiters.release(*position);
        }
        self.publish(&waiters);
        !next.is_empty()
    }

    pub(crate) fn leave(&self, number: u64) {
        let mut waiters = lock(&self.waiters);
        if let Some(position) = position(&waiters.all, number) {
            waiters.remove(position);
            self.publish(&waiters);
        }
    }

    /// Gives a permit to the first in line who is still there and has a use for it; back when there is
    /// nobody.
    pub(crate) fn give(&self, mut permit: Permit) -> Result<(), Permit> {
        loop {
            // Not sent under the lock: a permit that nobody takes is dropped, and that serves this line.
            let seeker = |waiters: &VecDeque<Waiter>| waiters.iter().position(|waiter| !waiter.confined);
            let Some(waiter) = self.take(seeker) else {
                return Err(permit);
            };
            match waiter.answer.send(Grant::Permit(permit)) {
                Err(Grant::Permit(back)) => permit = back,
                _ => return Ok(()),
            }
        }
    }

    /// Who is next for a connection that has come free; takes it out of the line.
    ///
    /// That is the first of its worker who can use it as it is, unless [`Shares`] say that it goes to another
    /// worker, or somebody who needs another one has waited more than twice as long and [`PATIENCE`]. Where
    /// nobody can use it as it is, its permit is for the first of this worker, or of another one that has
    /// called.
    pub(crate) fn next_for(&self, free: Free<'_>, now: Instant) -> Option<Turn> {
        let mut waiters = lock(&self.waiters);
        waiters.shares.served_at_once(free.pool, free.at_once);
        let (position, how) = waiters.next_for(&free, now)?;
        let waiter = waiters.remove(position)?;
        let waited = now.saturating_duration_since(waiter.since);
        waiters.shares.waited(waiter.pool, waited);
        waiters.stall.moved(waiter.since, now);
        if how == How::Moves {
            waiters.shares.goes(free.pool, waiter.pool, now);
        }
        self.publish(&waiters);
        Some(Turn {
            number: waiter.number,
            pool: waiter.pool,
            how,
            answer: waiter.answer,
        })
    }

    /// A worker has opened a connection.
    pub(crate) fn note_opened(&self, pool: u64) {
        lock(&self.waiters).shares.opened(pool);
    }

    /// One that counts for this worker is closed.
    pub(crate) fn note_closed(&self, pool: u64) {
        lock(&self.waiters).shares.closed(pool);
    }

    /// How many a worker has.
    #[cfg(test)]
    pub(super) fn share(&self, pool: u64) -> u32 {
        lock(&self.waiters).shares.connections(pool)
    }

    /// A connection was not taken over after all.
    pub(crate) fn goes(&self, from: u64, to: u64, now: Instant) {
        lock(&self.waiters).shares.goes(from, to, now);
    }

    /// The server takes no sessions any more: nobody waits for it.
    pub(crate) fn dismiss(&self) {
        let waiters = {
            let mut waiters = lock(&self.waiters);
            let mut all = Vec::with_capacity(waiters.all.len());
            while let Some(waiter) = waiters.remove(0) {
                all.push(waiter);
            }
            self.publish(&waiters);
            all
        };
        for waiter in waiters {
            // Who is gone need not be told.
            let _ = waiter.answer.send(Grant::Gone);
        }
    }

    fn take(&self, choose: impl FnOnce(&VecDeque<Waiter>) -> Option<usize>) -> Option<Waiter> {
        let mut waiters = lock(&self.waiters);
        let position = choose(&waiters.all)?;
        let waiter = waiters.remove(position);
        self.publish(&waiters);
        waiter
    }

    fn publish(&self, waiters: &Waiters) {
        let count = waiters.all.len();
        self.waiting.store(count, Ordering::SeqCst);
        self.seekers.store(count - waiters.confined, Ordering::SeqCst);
    }
}

/// Numbers ascend, and nobody overtakes on joining.
fn position(waiters: &VecDeque<Waiter>, number: u64) -> Option<usize> {
    waiters.binary_search_by_key(&number, |waiter| waiter.number).ok()
}

#[cfg(test)]
mod tests;
