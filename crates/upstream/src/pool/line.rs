//! The line of those who wait for a connection to one server that is full: one line for all workers.
//!
//! A connection belongs to its worker, since its socket does; a seat does not. So what comes free on a worker can go on
//! as a connection to a session there that uses the same [`Key`], at no cost, or as a seat to anybody, at the cost of a
//! close and a login. Strictly first come, first served would pay that cost all the time where several workers share a full server.
//! Here the first one in line gets every seat that comes free; a *connection* stays with those who can use it as it is while they do not wait
//! much less than the others: see [`Line::next_for`].
//!
//! Who waits because the server takes no more connections of its user ([`Wish::confined`]) has no use for a seat, but for a connection
//! of that user, or the seat of one; and does not hold up the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Key;
use super::misfits::Misfits;
use super::openings::Openings;
use super::refusals::{Ceiling, FullUsers};
use crate::seat::Seat;

/// How long one waits before other workers give up their connections for it. A connection of its own worker usually
/// comes back sooner than a new one can be made.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);

/// What ends a wait.
#[derive(Debug)]
pub(crate) enum Grant {
    /// A connection may be opened.
    Seat(Seat),
    /// A connection lies ready on the worker of the one who waited.
    Connection,
    /// The server takes no sessions any more.
    Gone,
    /// The time for waiting is over.
    Late,
}

/// Those who wait for one server.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Its length. Sequentially consistent, together with the seats taken: whoever frees a seat sees the line, or whoever
    /// has just joined it sees the seat.
    waiting: AtomicUsize,
    /// Those of them who have a use for a seat. Sequentially consistent likewise.
    seekers: AtomicUsize,
    waiters: Mutex<Waiters>,
    tickets: AtomicU64,
    /// What the server itself has said.
    pub(crate) ceiling: Ceiling,
    pub(crate) full_users: FullUsers,
    /// Accounts that it has in a form that is of no use.
    pub(super) misfits: Misfits,
    /// Accounts that it refuses, and others of the cluster let in.
    pub(super) denied: Misfits,
    /// Those who are about to open a connection.
    pub(crate) openings: Openings,
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
    ticket: u64,
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
}

impl Waiters {
    fn remove(&mut self, position: usize) -> Option<Waiter> {
        let waiter = self.all.remove(position)?;
        self.confined -= usize::from(waiter.confined);
        Some(waiter)
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

    /// It may have a seat as anybody may.
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
    fn can_use_the_seat_of(&self, key: &Key) -> bool {
        !self.confined || self.key.user == key.user
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
    pub(crate) ticket: u64,
    /// It can use the connection as it is.
    pub(crate) same: bool,
    answer: oneshot::Sender<Grant>,
}

impl Turn {
    /// `Err` gives back what nobody is there for any more.
    pub(crate) fn serve(self, grant: Grant) -> Result<(), Grant> {
        self.answer.send(grant)
    }
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Whether anybody has a use for a seat.
    pub(crate) fn wants_seats(&self) -> bool {
        self.seekers.load(Ordering::SeqCst) > 0
    }

    /// Joins the line, unless `max` are in it. After joining the caller must serve the line once: a seat may have become
    /// free in between. Who joins must [leave](Self::leave).
    pub(crate) fn join(&self, wish: Wish<'_>, max: usize) -> Option<(u64, oneshot::Receiver<Grant>)> {
        let mut waiters = self.lock();
        if waiters.all.len() >= max {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        waiters.confined += usize::from(wish.confined);
        waiters.all.push_back(Waiter {
            ticket,
            pool: wish.pool,
            key: wish.key.clone(),
            since: wish.since,
            until: wish.until,
            called: wish.called,
            confined: wish.confined,
            answer,
        });
        self.publish(&waiters);
        Some((ticket, receiver))
    }

    /// Looks after those of one worker, every now and then: [`Grant::Late`] to those whose time is over.
    pub(crate) fn look_after(&self, pool: u64, now: Instant) -> LookedAfter {
        let (mut found, mut late, mut index) = (LookedAfter::default(), Vec::new(), 0);
        let mut waiters = self.lock();
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
        drop(waiters);
        for waiter in late {
            // Who is gone need not be told.
            let _ = waiter.answer.send(Grant::Late);
        }
        found
    }

    /// The server has let one of this user in who was to try: two more may. True where there are any; then the caller serves
    /// the line.
    pub(crate) fn let_try(&self, user: &str) -> bool {
        let mut waiters = self.lock();
        let next: Vec<usize> = waiters.confined(user).take(2).collect();
        for position in &next {
            waiters.release(*position);
        }
        self.publish(&waiters);
        !next.is_empty()
    }

    pub(crate) fn leave(&self, ticket: u64) {
        let mut waiters = self.lock();
        if let Some(position) = position(&waiters.all, ticket) {
            waiters.remove(position);
            self.publish(&waiters);
        }
    }

    /// Gives a seat to the first in line who is still there and has a use for it; back when there is nobody.
    pub(crate) fn give(&self, mut seat: Seat) -> Result<(), Seat> {
        loop {
            // Not sent under the lock: a seat that nobody takes is dropped, and that serves this line.
            let seeker = |waiters: &VecDeque<Waiter>| waiters.iter().position(|waiter| !waiter.confined);
            let Some(waiter) = self.take(seeker) else {
                return Err(seat);
            };
            match waiter.answer.send(Grant::Seat(seat)) {
                Err(Grant::Seat(back)) => seat = back,
                _ => return Ok(()),
            }
        }
    }

    /// Who is next for a connection with `key` that has come free on the worker of `pool`; takes it out of the line.
    ///
    /// That is the first who can use it as it is, unless somebody has waited more than twice as long and [`PATIENCE`].
    /// Where nobody can use it as it is, it is the first of this worker, or of another one that has called.
    pub(crate) fn next_for(&self, pool: u64, key: &Key, now: Instant) -> Option<Turn> {
        let is_same = |waiter: &Waiter| waiter.pool == pool && waiter.key == *key;
        let mut same = false;
        let waiter = self.take(|waiters| {
            let mut others = waiters.iter();
            let Some(first_same) = waiters.iter().position(is_same) else {
                return others.position(|waiter| {
                    (waiter.pool == pool || waiter.called) && waiter.can_use_the_seat_of(key)
                });
            };
            same = true;
            let waited = |position: usize| now.saturating_duration_since(waiters[position].since);
            let first = others.position(|waiter| waiter.can_use_the_seat_of(key))?;
            if first < first_same && waited(first) > PATIENCE + 2 * waited(first_same) {
                same = false;
                return Some(first);
            }
            Some(first_same)
        })?;
        Some(Turn {
            ticket: waiter.ticket,
            same,
            answer: waiter.answer,
        })
    }

    /// The server takes no sessions any more: nobody waits for it.
    pub(crate) fn dismiss(&self) {
        let waiters = {
            let mut waiters = self.lock();
            let all = std::mem::take(&mut *waiters);
            self.publish(&waiters);
            all.all
        };
        for waiter in waiters {
            // Who is gone need not be told.
            let _ = waiter.answer.send(Grant::Gone);
        }
    }

    fn take(&self, choose: impl FnOnce(&VecDeque<Waiter>) -> Option<usize>) -> Option<Waiter> {
        let mut waiters = self.lock();
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

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tickets ascend, and nobody overtakes on joining.
fn position(waiters: &VecDeque<Waiter>, ticket: u64) -> Option<usize> {
    waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::Cluster;

    const HERE: u64 = 1;
    const ELSEWHERE: u64 = 2;

    fn key(user: &str) -> Key {
        Key {
            user: user.into(),
            account: 0,
            capabilities: mysql_wire::Capabilities(0),
            collation: 45,
        }
    }

    /// Joins after `ms` milliseconds.
    struct Play {
        line: Line,
        begun: Instant,
        /// Those who leave are not told.
        present: Vec<oneshot::Receiver<Grant>>,
    }

    impl Play {
        fn new() -> Self {
            Self {
                line: Line::default(),
                begun: Instant::now(),
                present: Vec::new(),
            }
        }

        fn at(&self, ms: u64) -> Instant {
            self.begun + Duration::from_millis(ms)
        }

        fn joins(&mut self, ms: u64, pool: u64, user: &str) -> u64 {
            self.joins_as(ms, pool, &key(user), false)
        }

        fn joins_as(&mut self, ms: u64, pool: u64, key: &Key, confined: bool) -> u64 {
            let wish = Wish {
                pool,
                key,
                since: self.at(ms),
                until: self.at(ms + 1000),
                called: false,
                confined,
            };
            let (ticket, answer) = self.line.join(wish, 9).unwrap();
            self.present.push(answer);
            ticket
        }

        /// Who gets a connection of user `u` that comes free here: ticket, and whether as it is.
        fn next(&self, ms: u64) -> Option<(u64, bool)> {
            let turn = self.line.next_for(HERE, &key("u"), self.at(ms))?;
            Some((turn.ticket, turn.same))
        }
    }

    #[test]
    fn those_who_can_use_a_connection_as_it_is_get_it_in_order() {
        let mut play = Play::new();
        let first = play.joins(0, HERE, "u");
        let second = play.joins(1, HERE, "u");
        assert_eq!(play.next(2), Some((first, true)));
        assert_eq!(play.next(2), Some((second, true)));
        assert_eq!(play.next(2), None);
        assert!(play.line.is_empty());
    }

    #[test]
    fn one_who_cannot_gets_the_seat_where_nobody_else_can_use_the_connection() {
        let mut play = Play::new();
        let far = play.joins(0, ELSEWHERE, "u");
        assert_eq!(
            play.next(100),
            None,
            "it has not called, and may be served over there"
        );
        assert!(play.line.look_after(ELSEWHERE, play.at(5)).has_called);
        assert!(
            !play.line.look_after(ELSEWHERE, play.at(5)).has_called,
            "it has called already"
        );
        let other = play.joins(1, HERE, "v");
        assert_eq!(play.next(100), Some((far, false)));
        assert_eq!(play.next(100), Some((other, false)));
    }

    #[test]
    fn nobody_waits_much_longer_than_those_who_are_easily_served() {
        let mut play = Play::new();
        let far = play.joins(0, ELSEWHERE, "u");
        let near = play.joins(20, HERE, "u");
        // They have waited for 35 and 15 ms.
        let turn = play.next(35);
        assert_eq!(turn, Some((near, true)));
        let near = play.joins(30, HERE, "u");
        // 36 ms, which is more than 5 and twice 6.
        assert_eq!(play.next(36), Some((far, false)));
        assert_eq!(play.next(36), Some((near, true)));
    }

    #[test]
    fn who_leaves_and_who_is_too_many_is_not_in_line() {
        let mut play = Play::new();
        let first = play.joins(0, HERE, "u");
        let second = play.joins(0, HERE, "u");
        play.line.leave(first);
        assert_eq!(play.line.len(), 1);
        let one_too_many = Wish {
            pool: HERE,
            key: &key("u"),
            since: play.at(0),
            until: play.at(9),
            called: false,
            confined: false,
        };
        assert!(play.line.join(one_too_many, 1).is_none());
        assert_eq!(play.line.rejected.load(Ordering::Relaxed), 1);
        assert_eq!(play.next(0), Some((second, true)));
    }

    #[test]
    fn all_are_told_when_the_server_goes() {
        let mut play = Play::new();
        play.joins(0, HERE, "u");
        play.joins(0, ELSEWHERE, "v");
        play.line.dismiss();
        assert!(play.line.is_empty());
        for mut answer in play.present {
            assert!(matches!(answer.try_recv(), Ok(Grant::Gone)));
        }
    }

    #[test]
    fn who_has_waited_for_too_long_is_told_and_leaves_the_line() {
        let mut play = Play::new();
        play.joins(0, HERE, "u");
        let far = play.joins(0, ELSEWHERE, "u");
        let second = play.joins(1, HERE, "v");
        play.line.look_after(HERE, play.at(1000));
        assert_eq!(play.line.len(), 2, "everybody is told by the own worker");
        let answers: Vec<_> = play.present.iter_mut().map(|answer| answer.try_recv()).collect();
        assert!(
            matches!(answers.as_slice(), [Ok(Grant::Late), Err(_), Err(_)]),
            "{answers:?}"
        );
        assert_eq!(play.next(1000), Some((second, false)));
        play.line.look_after(ELSEWHERE, play.at(5));
        assert_eq!(play.next(1000), Some((far, false)));
    }

    #[test]
    fn who_is_confined_gets_what_was_of_its_user_and_holds_up_nobody() {
        let mut play = Play::new();
        let other = Key {
            collation: 8,
            ..key("u")
        };
        let confined = play.joins_as(0, HERE, &key("v"), true);
        let of_same_user = play.joins_as(0, HERE, &other, true);
        assert!(!play.line.wants_seats() && play.line.len() == 2);
        let seeker = play.joins(90, HERE, "w");
        assert!(play.line.wants_seats());
        assert_eq!(
            play.next(100),
            Some((of_same_user, false)),
            "of another key, and its own user"
        );
        assert_eq!(play.next(100), Some((seeker, false)));
        assert_eq!(play.next(100), None);
        // Others need not be there for long to be served first.
        let near = play.joins(100, HERE, "u");
        assert_eq!(play.next(101), Some((near, true)));
        play.line.leave(confined);
        assert!(play.line.is_empty() && !play.line.wants_seats());
    }

    #[test]
    fn who_is_confined_may_try_now_and_then_and_more_where_that_helps() {
        let mut play = Play::new();
        for ms in 0..4 {
            play.joins_as(ms, HERE, &key("u"), true);
        }
        play.line.full_users.note(&"u".into(), play.at(0));
        assert!(!play.line.look_after(HERE, play.at(99)).may_try);
        assert!(
            !play.line.look_after(ELSEWHERE, play.at(100)).may_try,
            "everybody by the own worker"
        );
        assert!(play.line.look_after(HERE, play.at(100)).may_try);
        assert_eq!(play.line.lock().confined, 3, "one");
        assert!(!play.line.let_try("v") && play.line.let_try("u"));
        assert_eq!(play.line.lock().confined, 1, "and two");
        play.line.dismiss();
        assert!(!play.line.wants_seats() && !play.line.let_try("u"));
    }

    /// Two who each take the only seat, or wait for it, and let it go: without anything else that could wake them.
    #[test]
    fn no_wakeup_is_lost() {
        let mut server = config::Server::new(config::ServerAddress::Unix("/nowhere".into()));
        server.max_connections = 1;
        let cluster = Cluster::new(config::Cluster::new("main", vec![server])).unwrap();
        let (done, finished) = std::sync::mpsc::channel();
        for pool in 0..2 {
            let (cluster, done) = (Arc::clone(&cluster), done.clone());
            std::thread::spawn(move || {
                let server = Arc::clone(&cluster.servers()[0]);
                for _ in 0..50_000 {
                    let free = server.line.is_empty().then(|| Seat::take(&cluster, &server));
                    let seat = free.flatten().unwrap_or_else(|| {
                        let now = Instant::now();
                        let wish = Wish {
                            pool,
                            key: &key("u"),
                            since: now,
                            until: now,
                            called: false,
                            confined: false,
                        };
                        let (_, answer) = server.line.join(wish, 9).unwrap();
                        cluster.serve_line(&server);
                        match answer.blocking_recv() {
                            Ok(Grant::Seat(seat)) => seat,
                            other => panic!("{other:?}"),
                        }
                    });
                    assert_eq!(server.sessions(), 1);
                    drop(seat);
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..2 {
            finished.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert_eq!(cluster.servers()[0].sessions(), 0);
    }
}
