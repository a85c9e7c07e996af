//! The line of those who wait for a connection to one server that is full: one line for all workers.
//!
//! A connection belongs to its worker, since its socket does; a seat does not. So what comes free on a worker can go on
//! as a connection to a session there that uses the same [`Key`], at no cost, or as a seat to anybody, at the cost of a
//! close and a login. Strictly first come, first served would pay that cost all the time where several workers share a full server.
//! Here the first one in line gets every seat that comes free; a *connection* stays with those who can use it as it is while they do not wait
//! much less than the others: see [`Line::next_for`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Key;
use crate::seat::Seat;

/// How long one waits before other workers give up their connections for it. A connection of its own worker usually
/// comes back sooner than a new one can be made.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);

/// How long a server is believed that it is full: it may be because of others, who go away without our knowing.
const FULL_FOR: Duration = Duration::from_secs(1);

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
    waiters: Mutex<VecDeque<Waiter>>,
    tickets: AtomicU64,
    /// Connections at which the server itself said that it was full, 0 while it has not; and since when that counts.
    ceiling: AtomicU32,
    ceiling_since: Mutex<Option<Instant>>,
    pub(crate) timeouts: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    /// Of its worker.
    pool: u64,
    key: Key,
    since: Instant,
    until: Instant,
    /// Has waited for [`PATIENCE`]: other workers are asked.
    called: bool,
    answer: oneshot::Sender<Grant>,
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

    /// The server itself has refused a connection for being full, with so many others of ours.
    pub(crate) fn hold(&self, others: u32, now: Instant) {
        // With none of ours nothing would come free by itself.
        if others > 0 {
            let mut since = self.ceiling_since.lock().unwrap_or_else(PoisonError::into_inner);
            *since = Some(now);
            self.ceiling.store(others, Ordering::SeqCst);
        }
    }

    /// Whether the server itself has said that it has no room for more than so many connections.
    pub(crate) fn is_held(&self, sessions: u32) -> bool {
        let ceiling = self.ceiling.load(Ordering::SeqCst);
        ceiling > 0 && sessions >= ceiling
    }

    /// Believes it no longer after a while. True when that is now; then the caller serves the line.
    pub(crate) fn lift(&self, now: Instant) -> bool {
        if self.ceiling.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut since = self.ceiling_since.lock().unwrap_or_else(PoisonError::into_inner);
        let over = since.is_none_or(|since| now.saturating_duration_since(since) >= FULL_FOR);
        if over {
            *since = None;
            self.ceiling.store(0, Ordering::SeqCst);
        }
        over
    }

    /// Joins the line, unless `max` are in it. After joining the caller must serve the line once: a seat may have become
    /// free in between. Who joins must [leave](Self::leave).
    pub(crate) fn join(
        &self,
        pool: u64,
        key: &Key,
        since: Instant,
        until: Instant,
        max: usize,
    ) -> Option<(u64, oneshot::Receiver<Grant>)> {
        let mut waiters = self.lock();
        if waiters.len() >= max {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        waiters.push_back(Waiter {
            ticket,
            pool,
            key: key.clone(),
            since,
            until,
            called: false,
            answer,
        });
        self.publish(&waiters);
        Some((ticket, receiver))
    }

    /// Looks after those of one worker, every now and then: [`Grant::Late`] to those whose time is over. True where somebody has
    /// waited for [`PATIENCE`] since the last look; then the caller wakes the other workers.
    pub(crate) fn look_after(&self, pool: u64, now: Instant) -> bool {
        let (mut has_called, mut late, mut index) = (false, Vec::new(), 0);
        let mut waiters = self.lock();
        while let Some(waiter) = waiters.get_mut(index) {
            let is_own = waiter.pool == pool;
            if is_own && now >= waiter.until {
                late.extend(waiters.remove(index));
                continue;
            }
            if is_own && !waiter.called && now.saturating_duration_since(waiter.since) >= PATIENCE {
                (waiter.called, has_called) = (true, true);
            }
            index += 1;
        }
        if !late.is_empty() {
            self.publish(&waiters);
        }
        drop(waiters);
        for waiter in late {
            // Who is gone need not be told.
            let _ = waiter.answer.send(Grant::Late);
        }
        has_called
    }

    pub(crate) fn leave(&self, ticket: u64) {
        let mut waiters = self.lock();
        if let Some(position) = position(&waiters, ticket) {
            waiters.remove(position);
            self.publish(&waiters);
        }
    }

    /// Gives a seat to the first in line who is still there; back when there is nobody.
    pub(crate) fn give(&self, mut seat: Seat) -> Result<(), Seat> {
        loop {
            // Not sent under the lock: a seat that nobody takes is dropped, and that serves this line.
            let Some(waiter) = self.take(|_| Some(0)) else {
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
            let Some(first_same) = waiters.iter().position(is_same) else {
                return waiters
                    .iter()
                    .position(|waiter| waiter.pool == pool || waiter.called);
            };
            same = true;
            let waited = |position: usize| now.saturating_duration_since(waiters[position].since);
            if first_same > 0 && waited(0) > PATIENCE + 2 * waited(first_same) {
                same = false;
                return Some(0);
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
            all
        };
        for waiter in waiters {
            // Who is gone need not be told.
            let _ = waiter.answer.send(Grant::Gone);
        }
    }

    fn take(&self, choose: impl FnOnce(&VecDeque<Waiter>) -> Option<usize>) -> Option<Waiter> {
        let mut waiters = self.lock();
        let position = choose(&waiters)?;
        let waiter = waiters.remove(position);
        self.publish(&waiters);
        waiter
    }

    fn publish(&self, waiters: &VecDeque<Waiter>) {
        self.waiting.store(waiters.len(), Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiter>> {
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
            let until = self.at(ms + 1000);
            let joined = self.line.join(pool, &key(user), self.at(ms), until, 9);
            let (ticket, answer) = joined.unwrap();
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
        assert!(play.line.look_after(ELSEWHERE, play.at(5)));
        assert!(
            !play.line.look_after(ELSEWHERE, play.at(5)),
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
        assert!(
            play.line
                .join(HERE, &key("u"), play.at(0), play.at(9), 1)
                .is_none()
        );
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
                        let joined = server.line.join(pool, &key("u"), now, now, 9);
                        let (_, answer) = joined.unwrap();
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
