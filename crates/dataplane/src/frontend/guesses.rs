//! Failed logins, by client address and account, and the time that they cost later attempts.
//!
//! The first [`FREE`] failures of an account from an address cost nothing: people mistype. Each further one
//! makes the next attempt wait longer, up to `login_delay_max`, and lets one attempt through at a time, so
//! that many connections together are no quicker than one. Until the first failure is known a number of
//! attempts may be under way ([`Bounds::burst`]). Attempts beyond those that wait ([`WAITING_MAX`]) are
//! refused without a look at the password. A quiet time of [`FORGOTTEN_AFTER`] makes up for everything.
//!
//! Strangers lock nobody out. Other addresses count for themselves, and a right password never waits if it
//! comes from an address from which the account has logged in within [`TRUSTED_FOR`]. For such an address
//! only the answer to a wrong password is held back. Clients that stall lock nobody out either: a client that
//! takes long to answer loses its turn ([`Attempt::beside`]).
//!
//! An address counts over all its accounts, too. If the address is known to be one client's (the listener
//! takes PROXY headers, and the client is none of those who send them), attempts from it wait. Any other
//! address may be a balancer's, or a network's, and there the logins of all would wait behind the failures of
//! one client. No attempt waits for such an address, and only answers to wrong passwords are held back.
//!
//! All workers share one [`Guesses`]. A login takes one lock of [`SHARDS`], for as long as a look into a
//! table takes. Names and passwords are kept only as a hash with a random key. Memory is bounded:
//! [`ENTRIES_MAX`] of each kind, and the oldest go first.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::Peer;
use telemetry::{Samples, catalog};
use tokio::time::{Instant, sleep, timeout};

use crate::error::SessionError;
use crate::frontend::user_name::as_servers_read;

/// Failures of an account that cost nothing.
const FREE: u32 = 3;

/// Failures of an address, over all its accounts, that cost nothing.
const FREE_OF_ADDRESS: u32 = 20;

/// Wait that the first failure beyond those costs. Each further one costs twice as much.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// How long an attempt may wait for something else than a look at its password, and keep its turn.
const TURN_MAX: Duration = Duration::from_millis(200);

/// Attempts of one account from one address that may wait for their turn.
const WAITING_MAX: u32 = 8;

/// Time without a failure after which earlier failures are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Time for which an address is trusted after an account has logged in from it.
const TRUSTED_FOR: Duration = Duration::from_secs(24 * 3600);

/// Interval at which attempts that wait for others look whether those are done.
const LOOK: Duration = Duration::from_millis(20);

const SHARDS: usize = 16;

/// Pairs of address and account that are known to fail, and as many that are known to succeed.
const ENTRIES_MAX: usize = 10_000;

/// Least time between two lines in the log, however many addresses and accounts fail.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Guesses {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    started: Instant,
    /// Milliseconds after `started` before which no line is logged.
    next_line: AtomicU64,
    /// Lines that were not logged.
    unsaid: AtomicU64,
    delayed: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct Shard {
    failing: HashMap<u64, Failing>,
    /// The time of the last success of each key.
    trusted: HashMap<u64, Instant>,
}

/// An account or address that has failed lately, or may be about to.
struct Failing {
    failures: u32,
    under_way: u32,
    waiting: u32,
    /// Time before which no attempt may be made.
    next: Instant,
    /// Time of the last failure, or of the first attempt where nothing has failed.
    last: Instant,
}

impl Failing {
    fn failures_at(&self, now: Instant) -> u32 {
        match now.saturating_duration_since(self.last) >= FORGOTTEN_AFTER {
            true => 0,
            false => self.failures,
        }
    }
}

/// Limits up to which attempts do not wait.
#[derive(Clone, Copy)]
struct Bounds {
    free: u32,
    /// Attempts under way at the same time while few have failed.
    burst: u32,
}

const OF_ACCOUNT: Bounds = Bounds {
    free: FREE,
    burst: 32,
};
const OF_ADDRESS: Bounds = Bounds {
    free: FREE_OF_ADDRESS,
    burst: 1000,
};

/// A key whose attempts count together.
#[derive(Clone, Copy)]
struct Counted {
    key: u64,
    bounds: Bounds,
}

/// A client that wants to log in, and how long it may be made to wait.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    client: &'a Peer,
    user: &'a [u8],
    delay_max: Duration,
    /// The address is one client's.
    is_own_address: bool,
}

impl<'a> Asking<'a> {
    /// `client` is the client as the listener knows it, behind the load balancer that speaks for it.
    pub(crate) fn new(client: &'a Peer, user: &'a [u8], listener: &config::Listener) -> Self {
        let balancers = &listener.accept_proxy_from;
        let is_own_address = client.socket_addr().is_some_and(|address| {
            let ip = address.ip();
            !balancers.is_empty() && !balancers.iter().any(|network| network.contains(&ip))
        });
        Self {
            client,
            user,
            delay_max: listener.login_delay_max,
            is_own_address,
        }
    }
}

/// An attempt to log in: a look at one password. An attempt that is dropped has come to nothing, and nobody
/// knows whether the password was right.
pub(crate) struct Attempt<'g> {
    guesses: &'g Guesses,
    who: Asking<'g>,
    /// The keys whose turn this attempt has to wait for; none where nobody is slowed.
    counted: [Option<Counted>; 2],
    /// How many of those turns the attempt has.
    turns: usize,
    pair: u64,
    address: u64,
    is_trusted: bool,
    /// Time that the client has been kept waiting already: see [`Self::held_back`].
    waited: Duration,
}

impl Default for Guesses {
    fn default() -> Self {
        Self {
            shards: Default::default(),
            hasher: RandomState::new(),
            started: Instant::now(),
            next_line: AtomicU64::new(0),
            unsaid: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

/// Whether an attempt may be made.
enum Turn {
    Now,
    /// The attempt has to wait: for others, or because of failures.
    Wait {
        is_slowed: bool,
    },
}

impl Guesses {
    /// Waits until a password may be looked at. The caller's time limit for the login bounds this wait as
    /// well.
    ///
    /// # Errors
    /// Too many attempts wait already.
    pub(crate) async fn begin<'g>(&'g self, who: Asking<'g>) -> Result<Attempt<'g>, SessionError> {
        let address = origin(who.client);
        let pair = self.hasher.hash_one((address, as_servers_read(who.user, false)));
        let address = self.hasher.hash_one(address);
        let is_trusted = self.shard(pair).is_trusted(pair, Instant::now());
        let waits = !is_trusted && !who.delay_max.is_zero();
        let of = |key, bounds| Counted { key, bounds };
        let mut attempt = Attempt {
            guesses: self,
            who,
            counted: [
                waits.then(|| of(pair, OF_ACCOUNT)),
                (waits && who.is_own_address).then(|| of(address, OF_ADDRESS)),
            ],
            turns: 0,
            pair,
            address,
            is_trusted,
            waited: Duration::ZERO,
        };
        attempt.take_turn().await?;
        Ok(attempt)
    }

    /// Waits for a turn, and takes it.
    async fn wait(&self, counted: Counted, who: Asking<'_>) -> Result<(), SessionError> {
        let mut waiting = None;
        let mut was_slowed = false;
        let until = Instant::now() + who.delay_max;
        loop {
            let is_slowed = match self.turn(counted) {
                Turn::Now => return Ok(()),
                Turn::Wait { is_slowed } => is_slowed,
            };
            if is_slowed && !was_slowed {
                was_slowed = true;
                self.delayed.fetch_add(1, Ordering::Relaxed);
                if !self.join(counted) {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    return Err(SessionError::TooManyFailures);
                }
                waiting = Some(QueuePlace {
                    guesses: self,
                    key: counted.key,
                });
            }
            if waiting.is_some() && Instant::now() >= until {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(SessionError::TooManyFailures);
            }
            sleep(LOOK).await;
        }
    }

    fn turn(&self, counted: Counted) -> Turn {
        let Counted { key, bounds } = counted;
        let now = Instant::now();
        let mut shard = self.shard(key);
        // The first attempt that succeeds lets all go that wait.
        if shard.is_trusted(key, now) {
            shard.failing(key, now).under_way += 1;
            return Turn::Now;
        }
        let failing = shard.failing(key, now);
        failing.failures = failing.failures_at(now);
        let is_slowed = failing.failures >= bounds.free;
        let places = if is_slowed { 1 } else { bounds.burst };
        if failing.under_way >= places || is_slowed && now < failing.next {
            return Turn::Wait { is_slowed };
        }
        failing.under_way += 1;
        Turn::Now
    }

    /// Whether there is room for one more who waits.
    fn join(&self, counted: Counted) -> bool {
        let mut shard = self.shard(counted.key);
        let failing = shard.failing(counted.key, Instant::now());
        let has_room = failing.waiting < WAITING_MAX;
        failing.waiting += u32::from(has_room);
        has_room
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[key as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure. Returns how many there are, and how long the next attempt waits.
    fn note_failure(&self, counted: Counted, delay_max: Duration) -> (u32, Duration) {
        let now = Instant::now();
        let mut shard = self.shard(counted.key);
        let failing = shard.failing(counted.key, now);
        failing.failures = failing.failures_at(now).saturating_add(1);
        let delay = delay(failing.failures, counted.bounds.free, delay_max);
        (failing.last, failing.next) = (now, now + delay);
        (failing.failures, delay)
    }

    fn log(&self, who: Asking<'_>, failures: u32) {
        let now = self.started.elapsed().as_millis() as u64;
        let due = self.next_line.load(Ordering::Relaxed);
        let next = now + LINE_INTERVAL.as_millis() as u64;
        let is_mine = now >= due
            && (self.next_line)
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
            return;
        }
        tracing::warn!(
            client = %who.client,
            user = &*crate::frontend::user_name::shown_user(who.user),
            failures,
            others = self.unsaid.swap(0, Ordering::Relaxed),
            "logins fail again and again, and further ones have to wait"
        );
    }

    pub(crate) fn collect(&self, out: &mut Samples) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        out.counter(&catalog::LOGINS_DELAYED, &[], count(&self.delayed));
        out.counter(&catalog::LOGINS_NOT_TRIED, &[], count(&self.refused));
    }
}

impl Shard {
    fn is_trusted(&self, key: u64, now: Instant) -> bool {
        let known = self.trusted.get(&key);
        known.is_some_and(|at| now.saturating_duration_since(*at) < TRUSTED_FOR)
    }

    /// The entry of this key; the one that has not been used for longest makes room for a new one.
    fn failing(&mut self, key: u64, now: Instant) -> &mut Failing {
        if self.failing.len() >= ENTRIES_MAX / SHARDS && !self.failing.contains_key(&key) {
            let is_idle = |failing: &Failing| failing.under_way == 0 && failing.waiting == 0;
            let idle = self.failing.iter().filter(|(_, failing)| is_idle(failing));
            let oldest = idle.min_by_key(|(_, failing)| failing.last).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                self.failing.remove(&oldest);
            }
        }
        self.failing.entry(key).or_insert(Failing {
            failures: 0,
            under_way: 0,
            waiting: 0,
            next: now,
            last: now,
        })
    }

    fn trust(&mut self, key: u64, now: Instant) {
        if self.trusted.len() >= ENTRIES_MAX / SHARDS && !self.trusted.contains_key(&key) {
            let oldest = self.trusted.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.trusted.remove(&oldest);
            }
        }
        self.trusted.insert(key, now);
    }

    /// Notes that an attempt or a wait is done. An entry that says nothing more is removed.
    fn settle(&mut self, key: u64, done: impl Fn(&mut Failing)) {
        let Some(failing) = self.failing.get_mut(&key) else {
            return;
        };
        done(failing);
        if failing.failures == 0 && failing.under_way == 0 && failing.waiting == 0 {
            self.failing.remove(&key);
        }
    }
}

/// A place among those who wait.
struct QueuePlace<'g> {
    guesses: &'g Guesses,
    key: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut shard = self.guesses.shard(self.key);
        shard.settle(self.key, |failing| {
            failing.waiting = failing.waiting.saturating_sub(1)
        });
    }
}

impl Attempt<'_> {
    /// The password was right.
    pub(crate) fn succeeded(mut self) {
        self.guesses.shard(self.pair).trust(self.pair, Instant::now());
        self.end();
    }

    /// Does `work` that is no look at the password, such as a wait for the client. If that takes long,
    /// others have their turn in the meantime, so that clients that do not answer keep nobody waiting: see
    /// [`Self::take_turn`].
    ///
    /// The caller boxes `work`: the login of every session has room for this future, and without the box
    /// twice.
    pub(crate) async fn beside<T>(&mut self, mut work: impl Future<Output = T> + Unpin) -> T {
        match timeout(TURN_MAX, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                self.end();
                work.await
            }
        }
    }

    /// Waits for the attempt's turn, where the attempt has none yet or has lost it.
    ///
    /// # Errors
    /// Too many attempts wait already.
    pub(crate) async fn take_turn(&mut self) -> Result<(), SessionError> {
        let (guesses, who, counted) = (self.guesses, self.who, self.counted);
        for counted in counted.into_iter().flatten().skip(self.turns) {
            guesses.wait(counted, who).await?;
            self.turns += 1;
        }
        Ok(())
    }

    /// The time that a client has to wait before it may be told that its answer is wrong: as long as
    /// [`Self::failed`] would say, which says that much less afterwards.
    pub(crate) fn held_back(&mut self) -> Duration {
        let delay_max = self.who.delay_max;
        let of_next = |key, free| {
            let now = Instant::now();
            let shard = self.guesses.shard(key);
            let failures = shard
                .failing
                .get(&key)
                .map_or(0, |failing| failing.failures_at(now));
            delay(failures + 1, free, delay_max)
        };
        self.waited = self.held(
            || of_next(self.pair, FREE),
            || of_next(self.address, FREE_OF_ADDRESS),
        );
        self.waited
    }

    /// Notes how long this client has been kept waiting by the attempt before.
    pub(crate) fn has_waited(&mut self, waited: Duration) {
        self.waited = waited;
    }

    /// The time to hold the answer back: the longest delay of the keys whose next attempt does not wait.
    fn held(&self, of_pair: impl Fn() -> Duration, of_address: impl Fn() -> Duration) -> Duration {
        let of_pair = self.is_trusted.then(of_pair).unwrap_or_default();
        let of_address = (!self.who.is_own_address || self.is_trusted)
            .then(of_address)
            .unwrap_or_default();
        of_pair.max(of_address)
    }

    /// The password was wrong. Returns how long the answer is to be held back.
    pub(crate) fn failed(mut self) -> Duration {
        let delay_max = self.who.delay_max;
        if delay_max.is_zero() {
            return Duration::ZERO;
        }
        let count = |key, bounds| self.guesses.note_failure(Counted { key, bounds }, delay_max);
        let (failures, of_pair) = count(self.pair, OF_ACCOUNT);
        let (_, of_address) = count(self.address, OF_ADDRESS);
        if failures > FREE {
            self.guesses.log(self.who, failures);
        }
        self.end();
        self.held(|| of_pair, || of_address).saturating_sub(self.waited)
    }

    fn end(&mut self) {
        let turns = std::mem::take(&mut self.turns);
        for counted in self.counted.iter().flatten().take(turns) {
            let mut shard = self.guesses.shard(counted.key);
            shard.settle(counted.key, |failing| {
                failing.under_way = failing.under_way.saturating_sub(1);
            });
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The address that counts as one client: for IPv6 the network that one customer has. All clients on Unix
/// sockets count as one.
fn origin(client: &Peer) -> Option<IpAddr> {
    let ip = client.socket_addr()?.ip().to_canonical();
    Some(match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
    })
}

fn delay(failures: u32, free: u32, delay_max: Duration) -> Duration {
    match failures.checked_sub(free) {
        None => Duration::ZERO,
        Some(more) => (FIRST_DELAY * (1 << more.min(16))).min(delay_max),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::from(format!("{address}:1000").parse::<SocketAddr>().unwrap())
    }

    fn asking<'a>(client: &'a Peer, user: &'a str) -> Asking<'a> {
        Asking {
            client,
            user: user.as_bytes(),
            delay_max: Duration::from_millis(400),
            is_own_address: false,
        }
    }

    async fn fail(guesses: &Guesses, who: Asking<'_>, times: u32) {
        for _ in 0..times {
            guesses.begin(who).await.unwrap().failed();
        }
    }

    fn waits(guesses: &Guesses, who: Asking<'_>) -> bool {
        let begun = Box::pin(guesses.begin(who));
        let mut begun = begun;
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        begun.as_mut().poll(&mut context).is_pending()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_make_the_next_attempt_wait_and_those_of_others_do_not() {
        let guesses = Guesses::default();
        let (here, there) = (peer("192.0.2.1"), peer("192.0.2.2"));
        fail(&guesses, asking(&here, "app"), FREE).await;
        assert!(waits(&guesses, asking(&here, "app")));
        // An attempt waits under any name that servers take for this one.
        assert!(waits(&guesses, asking(&here, "'app'")) && waits(&guesses, asking(&here, "app\0x")));
        assert!(!waits(&guesses, asking(&here, "other")));
        assert!(!waits(&guesses, asking(&there, "app")));
        let begun = Instant::now();
        fail(&guesses, asking(&here, "app"), 2).await;
        assert!(begun.elapsed() >= 3 * FIRST_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_password_from_where_it_was_right_before_never_waits() {
        let guesses = Guesses::default();
        let here = peer("192.0.2.1");
        guesses.begin(asking(&here, "app")).await.unwrap().succeeded();
        let mut held = Vec::new();
        for _ in 0..20 {
            held.push(guesses.begin(asking(&here, "app")).await.unwrap().failed());
        }
        assert_eq!(held[0], Duration::ZERO);
        assert_eq!(held[19], Duration::from_millis(400));
        assert!(!waits(&guesses, asking(&here, "app")));
    }

    #[tokio::test(start_paused = true)]
    async fn many_at_once_are_no_quicker() {
        let guesses = Guesses::default();
        let here = peer("192.0.2.1");
        let mut under_way = Vec::new();
        for _ in 0..OF_ACCOUNT.burst {
            under_way.push(guesses.begin(asking(&here, "app")).await.unwrap());
        }
        assert!(waits(&guesses, asking(&here, "app")));
        // A success speaks for all.
        under_way.pop().unwrap().succeeded();
        assert!(!waits(&guesses, asking(&here, "app")));

        let there = peer("192.0.2.2");
        fail(&guesses, asking(&there, "app"), FREE).await;
        let many = (0..3 * WAITING_MAX).map(|_| guesses.begin(asking(&there, "app")));
        let mut begun: Vec<_> = many.map(Box::pin).collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let ready = begun
            .iter_mut()
            .filter_map(|begun| match begun.as_mut().poll(&mut context) {
                std::task::Poll::Ready(result) => Some(result.is_err()),
                std::task::Poll::Pending => None,
            });
        let refused: Vec<bool> = ready.collect();
        assert_eq!(refused, vec![true; 2 * WAITING_MAX as usize]);
    }

    /// A client of this address is slowed by the failures of others only if its own login fails, too.
    #[tokio::test(start_paused = true)]
    async fn an_address_of_many_has_wrong_answers_held_back_and_nobody_wait() {
        let guesses = Guesses::default();
        let shared = peer("192.0.2.1");
        for number in 0..=FREE_OF_ADDRESS {
            let user = format!("user{number}");
            let held = guesses.begin(asking(&shared, &user)).await.unwrap().failed();
            let is_free = number < FREE_OF_ADDRESS - 1;
            assert_eq!(held.is_zero(), is_free, "{number}: {held:?}");
        }
        assert!(!waits(&guesses, asking(&shared, "another")));
        let mut attempt = guesses.begin(asking(&shared, "another")).await.unwrap();
        assert!(attempt.held_back() >= 2 * FIRST_DELAY);
        assert_eq!(
            attempt.failed(),
            Duration::ZERO,
            "it has been kept waiting before"
        );
        let other = peer("192.0.2.2");
        let mut attempt = guesses.begin(asking(&other, "another")).await.unwrap();
        assert_eq!(attempt.held_back(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn who_stalls_keeps_nobody_waiting() {
        let guesses = Guesses::default();
        let here = peer("192.0.2.1");
        fail(&guesses, asking(&here, "app"), FREE).await;
        let mut stalled = Vec::new();
        for _ in 0..2 {
            let mut attempt = guesses.begin(asking(&here, "app")).await.unwrap();
            assert!(attempt.beside(Box::pin(async { 1 })).await == 1);
            assert!(waits(&guesses, asking(&here, "app")), "one at a time");
            attempt.beside(Box::pin(sleep(2 * TURN_MAX))).await;
            stalled.push(attempt);
        }
        let attempt = guesses.begin(asking(&here, "app")).await.unwrap();
        // Clients that answer late are no quicker than others.
        let [late, _] = stalled.as_mut_slice() else {
            panic!("two have stalled")
        };
        let mut late = Box::pin(late.take_turn());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(late.as_mut().poll(&mut context).is_pending());
        attempt.succeeded();
        late.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_counts_over_all_accounts_where_it_is_a_client_s_own() {
        let guesses = Guesses::default();
        let (shared, own) = (peer("192.0.2.1"), peer("192.0.2.2"));
        for number in 0..FREE_OF_ADDRESS {
            let user = format!("user{number}");
            fail(&guesses, asking(&shared, &user), 1).await;
            let own = Asking {
                is_own_address: true,
                ..asking(&own, &user)
            };
            fail(&guesses, own, 1).await;
        }
        assert!(!waits(&guesses, asking(&shared, "another")));
        assert!(waits(
            &guesses,
            Asking {
                is_own_address: true,
                ..asking(&own, "another")
            }
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let guesses = Guesses::default();
        let here = peer("[2001:db8::1]");
        for number in 0..2 * ENTRIES_MAX {
            let user = format!("user{number}");
            fail(&guesses, asking(&here, &user), 1).await;
            guesses.begin(asking(&here, &user)).await.unwrap().succeeded();
        }
        let of = |count: fn(&Shard) -> usize| {
            (0..SHARDS as u64)
                .map(|key| count(&guesses.shard(key)))
                .sum::<usize>()
        };
        assert!(of(|shard| shard.failing.len()) <= ENTRIES_MAX);
        assert!(of(|shard| shard.trusted.len()) <= ENTRIES_MAX);
    }
}
