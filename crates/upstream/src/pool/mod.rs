//! Server connections that sessions share: one [`Pool`] a worker and cluster.
//!
//! Everything here is of one thread and takes no lock, but for one thing: a server's `max_connections` holds
//! for all workers together, so that who finds a server full joins a [line](mod@wait_queue) that all workers
//! serve.
//!
//! A lease is, in this order: an idle connection of the same [`Key`], of the newest ones that whose state
//! costs least to change (or else the oldest: [`config::Reuse`]); a new one, where the server has a permit;
//! the permit of an idle connection of another key; a place in line. What a connection's state is and what it
//! costs is the owner's business (`S`); that nothing is left to read, too.
//!
//! A server that says itself that it is full, or has enough of one user, is taken at its word for a while
//! ([learned_limits]): sessions wait for what the others give back, where the operator has set no limit or
//! too high a one.
//!
//! A connection that is dropped is closed, whoever held it, and its permit is free for the next in line. So
//! futures and connections can be dropped anywhere.

mod account_backoff;
mod connect_limiter;
mod connection;
mod housekeeping;
mod idle;
mod learned_limits;
mod metrics;
mod open;
mod packed;
mod setup;
mod shares;
mod size;
mod ticket;
mod travel;
mod wait_queue;

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use net::Stream;
use tokio::sync::Notify;

pub(crate) use self::connection::is_mariadb;
pub use self::connection::{Baseline, Connection, Credential, CredentialSecret, Key, Opened};
use self::connection::{Idle, Life, Origin, Parts, lifetime};
pub use self::idle::OUTDATED;
use self::idle::{IdleConnections, misfit, suits};
pub(crate) use self::metrics::Pools;
use self::metrics::{Closed, Member, Metrics};
use self::open::Opening;
pub use self::open::{Adopted, ForSession};
pub use self::packed::PackedConnection;
pub(crate) use self::setup::Tracked;
use self::ticket::Ticket;
pub use self::travel::Travel;
use self::wait_queue::How;
pub(crate) use self::wait_queue::{Grant, WaitQueue, Wish};
use crate::cluster::Cluster;
use crate::error::LeaseError;
use crate::permit::Permit;
use crate::server::{Availability, Server, ServerId, now};
use crate::topology::Topology;

/// Time for the answer to a ping, where the login may take longer.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// The connections of one worker to the servers of one cluster.
///
/// Its owner runs [`run`](Self::run) beside it.
pub struct Pool<S> {
    cluster: Arc<Cluster>,
    member: Arc<Member>,
    /// One a server, of which there are few.
    idle_by_server: RefCell<Vec<IdleConnections<S>>>,
    /// Connections on their way to those who have waited for them, by their tickets.
    handed: RefCell<HashMap<(ServerId, u64), Idle<S>, RandomState>>,
    /// What the owner keeps with a connection that was just opened.
    fresh: Box<dyn Fn(&Opened) -> S>,
    waiting: Cell<usize>,
    /// The first has joined a line.
    somebody_waits: Notify,
    terms: RefCell<Terms>,
    topology: RefCell<Seen>,
}

/// What a configuration asks of connections. Its number is in each of them, so that those opened on other
/// terms are told apart.
struct Terms {
    config: Arc<config::Cluster>,
    /// See [`Cluster::config_number`].
    of_config: u64,
    number: u64,
}

/// The topology as this worker has seen it last.
struct Seen {
    topology: Arc<Topology>,
    number: u64,
}

/// What a lease has found.
enum Found<S> {
    Idle(Idle<S>),
    Permit(Permit),
    Nothing,
}

impl<S: Travel> Pool<S> {
    /// An empty pool. `fresh` gives a new connection its state.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>, fresh: impl Fn(&Opened) -> S + 'static) -> Rc<Self> {
        let member = cluster.pools.enter();
        // The numbers before what they are of: what is newer than its number is looked at again.
        let (of_config, number) = (cluster.config_number(), cluster.follow.number());
        let (config, topology) = (cluster.config(), cluster.topology());
        for server in cluster.servers().iter() {
            server.wait_queue.size.switch(config.pool.adaptive);
        }
        Rc::new(Self {
            cluster,
            member,
            idle_by_server: RefCell::default(),
            handed: RefCell::default(),
            fresh: Box::new(fresh),
            waiting: Cell::new(0),
            somebody_waits: Notify::new(),
            terms: RefCell::new(Terms {
                config,
                of_config,
                number: 0,
            }),
            topology: RefCell::new(Seen { topology, number }),
        })
    }

    /// Whose connections these are.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Its cluster's configuration as it is now, without a count that all workers share: for the path of
    /// queries. Whoever holds it keeps the pool from seeing a newer one.
    #[inline]
    pub fn config(&self) -> Ref<'_, config::Cluster> {
        Ref::map(self.terms(), |terms| &*terms.config)
    }

    /// Its cluster's topology as it is now, likewise.
    #[inline]
    pub fn topology(&self) -> Ref<'_, Arc<Topology>> {
        let number = self.cluster.follow.number();
        if self.topology.borrow().number != number
            && let Ok(mut seen) = self.topology.try_borrow_mut()
        {
            let topology = self.cluster.topology();
            *seen = Seen { topology, number };
        }
        Ref::map(self.topology.borrow(), |seen| &seen.topology)
    }

    /// Connections that nobody uses.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.member.sum(|metrics| metrics.idle.get())
    }

    /// Connections that sessions use.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.member.sum(|metrics| metrics.busy.get())
    }

    /// Connections to one server that nobody uses, and those that sessions of this worker use.
    #[must_use]
    pub fn idle_and_busy(&self, server: ServerId) -> (u32, u32) {
        let idle_by_server = self.idle_by_server.borrow();
        let count = |gauge: i64| u32::try_from(gauge).unwrap_or(0);
        let idle_connections = idle_by_server
            .iter()
            .find(|idle_connections| idle_connections.server().id() == server);
        idle_connections.map_or((0, 0), |idle_connections| {
            (
                count(idle_connections.metrics().idle.get()),
                count(idle_connections.metrics().busy.get()),
            )
        })
    }

    /// Sessions of this worker that wait in line.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// A connection to `server` for `key`. `credential` is for a new one; `cost` says what one that others
    /// have used would cost to use, 0 being the best and `u32::MAX` none that will do, [`OUTDATED`] none that
    /// is to be kept. Where the server is full, by the operator's limit or its own, there is a wait in line
    /// for `queue_timeout`, which ends with the future `line` ([`LeaseError::Left`]); without one that is an
    /// error at once. Dropping the lease gives everything back.
    ///
    /// # Errors
    /// See [`LeaseError`]; nothing has been sent for the session then. Where the server says itself that it
    /// is full ([`LeaseError::is_full`]) and no connection of ours is there that could come free, the first
    /// to hear it is told at once: another server may have room, and to ask again is to wait in line.
    pub async fn lease(
        &self,
        server: &Arc<Server>,
        key: &Rc<Key>,
        credential: &Credential,
        cost: impl Fn(&S) -> u32,
        line: Option<impl Future<Output = ()>>,
    ) -> Result<Connection<S>, LeaseError> {
        let mut line = pin!(line);
        let mut since = None;
        let mut of_user: Option<Box<LeaseError>> = None;
        loop {
            let waiting = self.wait_for(server, key, &cost, &mut since, line.as_mut());
            let permit = match waiting.await {
                Ok(Ok((idle, now))) => return Ok(begin(idle, now)),
                Ok(Err(permit)) => permit,
                Err(LeaseError::Left) => return Err(LeaseError::Left),
                // What the server has said is more to the point.
                Err(error) => return Err(of_user.map_or(error, |refusal| *refusal)),
            };
            // Boxed: every session has room for a lease, and few ever open a connection.
            match Box::pin(self.open_in_turn(server, key, credential, permit, &cost)).await {
                Ok(connection) => return Ok(connection),
                // The server's own limits: what others of us have comes free in time.
                Err(error) if error.is_user_full() => of_user = Some(Box::new(error)),
                Err(error) if error.is_full() && (since.is_some() || server.sessions() > 0) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A connection to `server` for `key` that is there and needs nothing done; `cost` is as for
    /// [`lease`](Self::lease). `None` where one would have to be waited for, opened or tried first: then ask
    /// for a lease.
    pub fn lease_at_once(
        &self,
        server: &Arc<Server>,
        key: &Rc<Key>,
        cost: impl Fn(&S) -> u32,
    ) -> Option<Connection<S>> {
        if server.wait_queue.wants_permits() || self.check_available(server).is_err() {
            return None;
        }
        let now = now();
        let (reuse, ping_after) = {
            let pool = &self.terms().config.pool;
            (pool.reuse, pool.ping_after)
        };
        let mut idle = self.with_idle(server, |idle_connections| {
            idle_connections.take(key, now, reuse, cost)
        })?;
        if let Some(reason) = self.unfit(&mut idle, now) {
            drop(idle.close(reason));
            return None;
        }
        let unused = now.saturating_duration_since(idle.life.since);
        let doubtful = idle.life.doubts != idle.opened.server.doubts();
        if doubtful || !ping_after.is_zero() && unused > ping_after {
            self.with_idle(server, |idle_connections| idle_connections.put(idle));
            return None;
        }
        Some(begin(idle, now))
    }

    /// The idle connection to `server` that has most of what `count` counts, whatever its key. `None` where
    /// there is none that has any. Those that are of no use any more are closed.
    pub fn take_idle(&self, server: &Arc<Server>, count: impl Fn(&S) -> usize) -> Option<Connection<S>> {
        let now = now();
        loop {
            let mut idle = self.with_idle(server, |idle_connections| idle_connections.take_most(&count))?;
            match self.unfit(&mut idle, now) {
                Some(reason) => drop(idle.close(reason)),
                None => return Some(begin(idle, now)),
            }
        }
    }

    /// A connection and the time now, or else the permit for a new one. `since` is when the session first got
    /// in line.
    async fn wait_for(
        &self,
        server: &Arc<Server>,
        key: &Rc<Key>,
        cost: impl Fn(&S) -> u32,
        since: &mut Option<Instant>,
        mut line: Pin<&mut Option<impl Future<Output = ()>>>,
    ) -> Result<Result<(Idle<S>, Instant), Permit>, LeaseError> {
        let mut ticket: Option<Ticket<'_, S>> = None;
        loop {
            self.check_available(server)?;
            let (found, now) = match &mut ticket {
                None => {
                    let now = now();
                    (self.find(server, key, now, &cost), now)
                }
                Some(ticket) => match ticket.wait(line.as_mut()).await {
                    Ok(found) => found,
                    Err(error) => return self.permit_instead(server, error).map(Err),
                },
            };
            match found {
                // Whoever gave it back could not know. Its permit does.
                Found::Idle(idle) if !suits(&idle, &cost) => {
                    let reason = misfit(&idle, &cost);
                    match idle.close(reason) {
                        Some(permit) => return Ok(Err(permit)),
                        None => ticket = None,
                    }
                }
                Found::Idle(idle) => match self.tried(idle, now).await {
                    Ok(idle) => return Ok(Ok((idle, now))),
                    // Its permit does for another one, without a second wait.
                    Err(Some(permit)) => return Ok(Err(permit)),
                    Err(None) => ticket = None,
                },
                Found::Permit(permit) => return Ok(Err(permit)),
                Found::Nothing if line.is_none() => {
                    return Err(self.cluster.queue_timeout(server, Duration::ZERO));
                }
                Found::Nothing => {
                    let since = *since.get_or_insert(now);
                    ticket = match Ticket::join(self, server, key, since, now) {
                        Ok(ticket) => Some(ticket),
                        Err(error) => return self.permit_instead(server, error).map(Err),
                    };
                }
            }
        }
    }

    /// What a line that is too long or too slow is answered with where the server itself takes one more.
    fn permit_instead(&self, server: &Arc<Server>, error: LeaseError) -> Result<Permit, LeaseError> {
        let is_of_line = matches!(
            error,
            LeaseError::QueueFull { .. } | LeaseError::QueueTimeout { .. }
        );
        if !is_of_line || server.is_at_its_limit() || server.wait_queue.full_users.is_any() {
            return Err(error);
        }
        Permit::take(&self.cluster, server).ok_or(error)
    }

    /// Takes a connection back, with nothing left to read and nothing under way on it, for the next who needs
    /// it. It is closed where nobody should.
    pub fn give_back(&self, connection: Connection<S>) {
        let now = now();
        let mut idle = connection.into_idle();
        idle.life.end_lease(now);
        match self.unfit(&mut idle, now) {
            Some(reason) => drop(idle.close(reason)),
            None => self.place(idle, now),
        }
    }

    /// An idle connection, a permit, or nothing, without waiting.
    fn find(&self, server: &Arc<Server>, key: &Rc<Key>, now: Instant, cost: impl Fn(&S) -> u32) -> Found<S> {
        let reuse = self.terms().config.pool.reuse;
        self.with_idle(server, |idle_connections| {
            if let Some(idle) = idle_connections.take(key, now, reuse, &cost) {
                return Found::Idle(idle);
            }
            // Closed by the caller, who needs the permit.
            if let Some(idle) = idle_connections.take_outdated(key, &cost) {
                return Found::Idle(idle);
            }
            let is_user_full = server.wait_queue.full_users.contains(&key.user, now);
            // Those who are in line already come first.
            if !is_user_full
                && !server.wait_queue.wants_permits()
                && !server.is_full()
                && let Some(permit) = Permit::take(&self.cluster, server)
            {
                return Found::Permit(permit);
            }
            // Not one of the newest; but better than none.
            if let Some(idle) = idle_connections.take(key, now, config::Reuse::Oldest, &cost) {
                return Found::Idle(idle);
            }
            let evicted = match is_user_full {
                true => idle_connections.evict_of(&key.user),
                // Where the server takes more of them nobody's connection is closed for the size alone.
                false if !server.is_at_its_limit() && !server.wait_queue.wants_permits() => None,
                false => idle_connections.evict(key),
            };
            match evicted.and_then(|idle| idle.close(Closed::Handover)) {
                Some(permit) => Found::Permit(permit),
                None => Found::Nothing,
            }
        })
    }

    /// The connection if it still is one, or else the permit it had.
    async fn tried(&self, mut idle: Idle<S>, now: Instant) -> Result<Idle<S>, Option<Permit>> {
        if let Some(reason) = self.unfit(&mut idle, now) {
            let permit = idle.close(reason);
            return Err(permit.filter(|_| reason != Closed::Limit));
        }
        let (ping_after, limit) = {
            let config = &self.terms().config;
            (config.pool.ping_after, config.login_timeout.min(PING_LIMIT))
        };
        let unused = now.saturating_duration_since(idle.life.since);
        // It may have been half a connection since then: an address that has moved to another machine, say.
        let doubts = idle.opened.server.doubts();
        let due = idle.life.doubts != doubts || !ping_after.is_zero() && unused > ping_after;
        if due && !Box::pin(idle.answers(limit)).await {
            return Err(idle.close(Closed::Ping));
        }
        idle.life.doubts = doubts;
        Ok(idle)
    }

    /// A new connection, where many are being opened after some of them; or one that has come free in the
    /// meantime.
    async fn open_in_turn(
        &self,
        server: &Arc<Server>,
        key: &Rc<Key>,
        credential: &Credential,
        permit: Permit,
        cost: impl Fn(&S) -> u32,
    ) -> Result<Connection<S>, LeaseError> {
        let turns = &server.wait_queue.connect_limiter;
        let metrics = self.with_idle(server, |idle_connections| Arc::clone(idle_connections.metrics()));
        let _counted = CountedIn::new(&metrics);
        let mut turn = turns.at_once();
        let since = now();
        while turn.is_none() {
            turn = turns.wait().await;
            let waited = now().saturating_duration_since(since);
            self.check_available(server)?;
            let free = self.lease_at_once(server, key, &cost);
            if free.is_some() || turn.is_some() || waited >= connect_limiter::PATIENCE {
                self.with_idle(server, |idle_connections| {
                    idle_connections.metrics().waited(waited)
                });
                match free {
                    Some(connection) => return Ok(connection),
                    None => break,
                }
            }
        }
        let opened = self.open(server, key, credential, (permit, None)).await;
        drop(turn);
        opened.map(|idle| begin(idle, now()))
    }

    /// Takes in a connection on which a client has logged in by itself. It is that session's alone and never
    /// given back, but counted like those that are. False comes with it where its server reports nothing of
    /// the session.
    ///
    /// # Errors
    /// The connection has failed.
    pub async fn adopt(
        &self,
        mut stream: Stream,
        (key, credential): (&Rc<Key>, &Credential),
        adopted: Adopted,
        permit: Permit,
    ) -> Result<(Connection<S>, bool), LeaseError> {
        let server = Arc::clone(permit.server());
        let (config, origin) = self.origin(&server);
        let opening = Opening {
            cluster: &self.cluster,
            config: &config,
            server: &server,
            key,
            credential,
            session: None,
        };
        let (opened, is_watched) = opening.adopt(&mut stream, adopted).await?;
        let metrics = self.with_idle(&server, |idle_connections| Arc::clone(idle_connections.metrics()));
        let idle = Idle(Box::new(Parts {
            stream,
            state: (self.fresh)(&opened),
            opened,
            life: Life::new(metrics, permit, now(), origin),
        }));
        Ok((begin(idle, now()), is_watched))
    }

    /// A new connection for one session alone, which leaves its own for it. Many who do so at once take
    /// turns. Its baseline is empty: what it is like is for the caller to ask. Never given back.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn open_for(
        &self,
        permit: Permit,
        (key, credential): (&Rc<Key>, &Credential),
        session: ForSession<'_>,
    ) -> Result<Connection<S>, LeaseError> {
        let server = Arc::clone(permit.server());
        let turns = &server.wait_queue.connect_limiter;
        let mut turn = turns.at_once();
        let since = now();
        while turn.is_none() && now().saturating_duration_since(since) < connect_limiter::PATIENCE {
            turn = turns.wait().await;
            self.check_available(&server)?;
        }
        let opening = self.open(&server, key, credential, (permit, Some(session)));
        opening.await.map(|idle| begin(idle, now()))
    }

    /// As what a connection is opened now, and by which configuration.
    fn origin(&self, server: &Server) -> (Arc<config::Cluster>, Origin) {
        let terms = self.terms();
        let origin = Origin {
            terms: terms.number,
            generation: server.generation(),
            peer: None,
            moves: server.addresses.moves(),
        };
        (Arc::clone(&terms.config), origin)
    }

    async fn open(
        &self,
        server: &Arc<Server>,
        key: &Rc<Key>,
        credential: &Credential,
        (permit, session): (Permit, Option<ForSession<'_>>),
    ) -> Result<Idle<S>, LeaseError> {
        // Before anything is known of the server: what happens to it from here on counts.
        let (config, origin) = self.origin(server);
        let (metrics, known) = self.with_idle(server, |idle_connections| {
            (
                Arc::clone(idle_connections.metrics()),
                idle_connections.baseline(key),
            )
        });
        let opening = Opening {
            cluster: &self.cluster,
            config: &config,
            server,
            key,
            credential,
            session,
        };
        let opened = opening.open(known.as_ref()).await;
        let now = now();
        let (stream, opened) = opened.inspect_err(|error| {
            metrics.open_failures.inc();
            // Before the permit goes, or it would go to the next who is refused.
            if error.is_full() {
                server
                    .wait_queue
                    .ceiling
                    .lower(server.sessions().saturating_sub(1), now);
            } else if error.is_user_full() {
                server.wait_queue.full_users.note(&key.user, now);
            }
        })?;
        if session.is_none() {
            let kept = (config.pool.min_idle > 0).then_some(credential);
            self.with_idle(server, |idle_connections| idle_connections.note(&opened, kept));
        }
        let others_may = server.wait_queue.ceiling.raise(server.sessions(), now);
        if server.wait_queue.full_users.let_in(&key.user) && server.wait_queue.let_try(&key.user)
            || others_may
        {
            self.cluster.serve_wait_queue(server);
        }
        let peer = peer_of(&stream);
        Ok(Idle(Box::new(Parts {
            stream,
            state: (self.fresh)(&opened),
            opened,
            life: Life::new(metrics, permit, now, Origin { peer, ..origin }),
        })))
    }

    /// Why a connection is of no use any more; `None` when it is.
    fn unfit(&self, idle: &mut Idle<S>, now: Instant) -> Option<Closed> {
        let server = &idle.opened.server;
        let origin = idle.life.origin;
        if origin.generation != server.generation() {
            return Some(Closed::Server);
        }
        let moves = server.addresses.moves();
        if origin.moves != moves && server.has_left(origin.peer) {
            return Some(Closed::Moved);
        }
        let terms = self.terms();
        if origin.terms != terms.number {
            return Some(Closed::Config);
        }
        let max_age = lifetime(terms.config.pool.max_age, idle.opened.thread_id);
        if !max_age.is_zero() && now.saturating_duration_since(idle.life.born) > max_age {
            return Some(Closed::MaxAge);
        }
        let max = server.max_connections();
        if max > 0 && server.sessions() > max {
            return Some(Closed::Limit);
        }
        idle.life.origin.moves = moves;
        idle.stream.has_news().then_some(Closed::Broken)
    }

    /// Gives a connection to whoever waits for it, or its permit, or keeps it.
    fn place(&self, mut idle: Idle<S>, now: Instant) {
        // Not a count that all workers share.
        let opened = Rc::clone(&idle.opened);
        let server = &opened.server;
        if server.wait_queue.size.is_surplus(server.sessions()) {
            drop(idle.close(Closed::Size));
            return;
        }
        let mut may_end = true;
        while !server.wait_queue.is_empty() {
            let Some(turn) = self.next_for(server, &idle.opened.key, Duration::ZERO, may_end, now) else {
                break;
            };
            // One permit beside it is what its coming back makes room for.
            may_end &= turn.how != How::Ends;
            match self.deliver(turn, idle, now) {
                Some(back) => idle = back,
                None => return,
            }
        }
        if self.is_wanted_elsewhere(server) {
            drop(idle.close(Closed::Handover));
        } else {
            self.with_idle(server, |idle_connections| idle_connections.put(idle));
        }
    }

    /// Whether sessions that want a connection of their own, for which there is a line for the whole cluster,
    /// wait for a permit on this server among others.
    fn is_wanted_elsewhere(&self, server: &Server) -> bool {
        !self.cluster.queue().is_empty() && server.max_connections() > 0 && server.weight() > 0
    }

    fn with_idle<T>(&self, server: &Arc<Server>, then: impl FnOnce(&mut IdleConnections<S>) -> T) -> T {
        let mut idle_by_server = self.idle_by_server.borrow_mut();
        if let Some(idle_connections) = idle_by_server
            .iter_mut()
            .find(|idle_connections| idle_connections.is_of(server))
        {
            return then(idle_connections);
        }
        then(idle_by_server.push_mut(IdleConnections::new(server, &self.member)))
    }

    fn check_available(&self, server: &Server) -> Result<(), LeaseError> {
        match server.availability() {
            Availability::Yes | Availability::Unknown => Ok(()),
            Availability::No => Err(self.cluster.unavailable(server)),
        }
    }

    /// The terms as they are now.
    fn terms(&self) -> Ref<'_, Terms> {
        let of_config = self.cluster.config_number();
        if self.terms.borrow().of_config != of_config
            && let Ok(mut terms) = self.terms.try_borrow_mut()
        {
            let config = self.cluster.config();
            let are_others = terms_of(&config) != terms_of(&terms.config);
            terms.number += u64::from(are_others);
            (terms.config, terms.of_config) = (config, of_config);
        }
        self.terms.borrow()
    }
}

impl<S> Drop for Pool<S> {
    fn drop(&mut self) {
        self.cluster.pools.leave(&self.member);
        for idle_connections in self.idle_by_server.get_mut() {
            idle_connections.close_if(|_| Some(Closed::Shutdown));
        }
    }
}

impl<S: Travel> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("cluster", &self.cluster.name())
            .field("idle", &self.idle())
            .field("busy", &self.busy())
            .field("waiting", &self.waiting())
            .finish()
    }
}

/// One that is being opened.
struct CountedIn<'s>(&'s Metrics);

impl<'s> CountedIn<'s> {
    fn new(metrics: &'s Metrics) -> Self {
        metrics.opening.inc();
        Self(metrics)
    }
}

impl Drop for CountedIn<'_> {
    fn drop(&mut self) {
        self.0.opening.dec();
    }
}

/// Where its server is; `None` for a Unix socket.
fn peer_of(stream: &Stream) -> Option<SocketAddr> {
    stream.peer().ok()?.socket_addr()
}

/// In use from now on.
fn begin<S>(mut idle: Idle<S>, now: Instant) -> Connection<S> {
    idle.life.begin_lease(now);
    Connection(idle.0)
}

/// Connections opened by one configuration are as good as those opened by another where these are equal.
fn terms_of(config: &config::Cluster) -> impl PartialEq + fmt::Debug + use<'_> {
    (
        &config.tls,
        config.compression,
        config.send_proxy,
        &config.pool.init,
    )
}

/// The same in words, for another process: where they are equal, connections are as good there as here.
#[must_use]
pub fn terms_in_words(config: &config::Cluster) -> String {
    format!("{:?}", terms_of(config))
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
