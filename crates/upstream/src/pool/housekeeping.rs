//! What happens to idle connections while nobody looks.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep};

use super::metrics::Closed;
use super::wait_queue::PATIENCE;
use super::{Credential, Key, Pool, Travel};
use crate::accounts::NO_VERDICTS;
use crate::error::LeaseError;
use crate::permit::Permit;
use crate::server::{Availability, Server, ServerId, now};

/// How often idle connections are looked at.
const TICK: Duration = Duration::from_millis(100);

impl<S: Travel + 'static> Pool<S> {
    /// Keeps the pool in order until the future is dropped: closes what is too old, broken or of no use any
    /// more, gives up connections for those who wait on other workers, tells those who have waited for too
    /// long, and opens `pool.min_idle`. To be run where [`spawn_local`](tokio::task::spawn_local) works.
    pub async fn run(self: Rc<Self>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut events = self.cluster.subscribe();
        let mut warming = Warming::default();
        let mut patience = std::pin::pin!(sleep(PATIENCE));
        let mut somebody_waits = false;
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    self.look_at_sizes();
                    self.tidy();
                    self.warm_up(&mut warming);
                }
                () = self.member.called.notified() => self.give_up(),
                () = self.somebody_waits.notified(), if !somebody_waits => {
                    somebody_waits = true;
                    patience.as_mut().reset(Instant::now() + PATIENCE);
                }
                () = &mut patience, if somebody_waits => {
                    self.look_after_lines();
                    somebody_waits = self.waiting.get() > 0;
                    patience.as_mut().reset(Instant::now() + PATIENCE);
                }
                // Which one it was does not matter; whoever sends them outlives this.
                _ = events.recv() => self.tidy(),
                Some(done) = warming.tasks.join_next() => {
                    // One after the other; after a failure the next tick is soon enough.
                    if warming.ended(done.ok()) {
                        self.warm_up(&mut warming);
                    }
                }
            }
        }
    }

    /// Closes what should not stay.
    fn tidy(&self) {
        let now = now();
        let (idle_timeout, min_idle) = {
            let pool = &self.terms().config.pool;
            (pool.idle_timeout, pool.min_idle as usize)
        };
        self.idle_by_server.borrow_mut().retain_mut(|idle_connections| {
            let mut spare = idle_connections.idle().saturating_sub(min_idle);
            idle_connections.close_if(|idle| {
                let unused = now.saturating_duration_since(idle.life.since);
                let timed_out = spare > 0 && unused > idle_timeout;
                let reason = self
                    .unfit(idle, now)
                    .or(timed_out.then_some(Closed::IdleTimeout))?;
                spare = spare.saturating_sub(1);
                Some(reason)
            });
            let empty = idle_connections.forget(now.checked_sub(idle_timeout).unwrap_or(now));
            let gone = empty && idle_connections.server().is_removed();
            if gone {
                self.member.forget(idle_connections.metrics());
            }
            !gone
        });
        self.give_up();
    }

    /// How many connections are of use: this worker's part, and where it is its turn that of all.
    fn look_at_sizes(&self) {
        let since = now().checked_sub(TICK);
        for idle_connections in self.idle_by_server.borrow().iter() {
            idle_connections.metrics().look(idle_connections.unused(since));
        }
        let is_on = self.terms().config.pool.adaptive;
        for server in self.cluster.pools.look_at_sizes(is_on, now()) {
            self.cluster.serve_wait_queue(&server);
        }
    }

    /// Looks after the sessions of this worker that wait: one timer for all of them.
    fn look_after_lines(&self) {
        let (now, mut has_called) = (now(), false);
        let mut may_try = Vec::new();
        for idle_connections in self.idle_by_server.borrow().iter() {
            let wait_queue = &idle_connections.server().wait_queue;
            if !wait_queue.is_empty() {
                let found = wait_queue.look_after(self.member.id, now);
                has_called |= found.has_called;
                may_try.extend(found.may_try.then(|| Arc::clone(idle_connections.server())));
            }
        }
        may_try
            .iter()
            .for_each(|server| self.cluster.serve_wait_queue(server));
        if has_called {
            self.cluster.pools.call();
        }
    }

    /// Gives idle connections, or their permits, to those who wait.
    fn give_up(&self) {
        let now = now();
        let servers: Vec<_> = {
            let idle_by_server = self.idle_by_server.borrow();
            idle_by_server
                .iter()
                .map(|idle_connections| Arc::clone(idle_connections.server()))
                .collect()
        };
        for server in servers {
            let wait_queue = &server.wait_queue;
            if wait_queue
                .ceiling
                .lift(server.sessions(), wait_queue.wants_permits(), now)
            {
                self.cluster.serve_wait_queue(&server);
            }
            while self.give_up_one(&server, now) {}
        }
    }

    /// Gives an idle connection to `server`, or its permit, to one who waits; false where nobody does, or has
    /// no use for any.
    fn give_up_one(&self, server: &Arc<Server>, now: std::time::Instant) -> bool {
        let is_wanted_elsewhere = self.is_wanted_elsewhere(server);
        if server.wait_queue.is_empty() && !is_wanted_elsewhere {
            return false;
        }
        let keys = self.with_idle(server, |idle_connections| idle_connections.oldest());
        let may_end = server.is_at_its_limit();
        let mut turns = keys.iter().filter_map(|(since, key)| {
            let unused = now.saturating_duration_since(*since);
            Some((key, self.next_for(server, key, unused, may_end, now)?))
        });
        let (key, turn) = match (turns.next(), keys.first()) {
            (Some((key, turn)), _) => (key, Some(turn)),
            (None, Some((_, oldest))) if is_wanted_elsewhere => (oldest, None),
            (None, _) => return false,
        };
        let Some(idle) = self.with_idle(server, |idle_connections| idle_connections.take_oldest(key)) else {
            return false;
        };
        match turn {
            Some(turn) => {
                if let Some(back) = self.deliver(turn, idle, now) {
                    self.place(back, now);
                }
            }
            None => drop(idle.close(Closed::Handover)),
        }
        true
    }

    /// Opens one connection to each server that lacks some, for the account that was used last.
    fn warm_up(self: &Rc<Self>, warming: &mut Warming) {
        let min_idle = self.terms().config.pool.min_idle as usize;
        if min_idle == 0 || !self.cluster.queue().is_empty() {
            return;
        }
        let wanted: Vec<_> = {
            let idle_by_server = self.idle_by_server.borrow();
            let lacking = idle_by_server.iter().filter(|idle_connections| {
                let server = idle_connections.server();
                idle_connections.idle() < min_idle
                    && server.availability() == Availability::Yes
                    && server.wait_queue.is_empty()
                    && !warming.servers.contains(&server.id())
            });
            lacking
                .filter_map(|idle_connections| {
                    Some((Arc::clone(idle_connections.server()), idle_connections.latest()?))
                })
                .collect()
        };
        for (server, (key, credential)) in wanted {
            if !server.wait_queue.ceiling.is_reached(server.sessions())
                && !server.wait_queue.full_users.contains(&key.user, now())
                && let Some(permit) = Permit::take(&self.cluster, &server)
            {
                warming.servers.push(server.id());
                let pool = Rc::clone(self);
                warming
                    .tasks
                    .spawn_local(pool.warm(server, key, credential, permit));
            }
        }
    }

    async fn warm(
        self: Rc<Self>,
        server: Arc<Server>,
        key: Rc<Key>,
        credential: Credential,
        permit: Permit,
    ) -> Warmed {
        // Those whom a session waits for come first.
        let Some(turn) = server.wait_queue.connect_limiter.at_once() else {
            return Warmed {
                server: server.id(),
                success: false,
            };
        };
        // An error has been counted, and a suspicion raised where there is reason to.
        let opened = self.open(&server, &key, &credential, (permit, None)).await;
        drop(turn);
        let success = opened.is_ok();
        match opened {
            Ok(idle) => self.place(idle, now()),
            Err(error) if speaks_against_account(&error) => {
                self.with_idle(&server, |idle_connections| {
                    idle_connections.forget_credential(&key)
                });
            }
            Err(_) => {}
        }
        Warmed {
            server: server.id(),
            success,
        }
    }
}

/// Whether the same login would fail again: with a password that was changed, say. Servers lock accounts of
/// which that happens too often, so it is left to the next session to try.
fn speaks_against_account(error: &LeaseError) -> bool {
    match error {
        LeaseError::Refused { packet, .. } => !NO_VERDICTS.contains(&packet.code),
        LeaseError::Unusable { .. } => true,
        _ => false,
    }
}

/// Connections being opened for nobody yet, at most one a server.
#[derive(Default)]
struct Warming {
    tasks: JoinSet<Warmed>,
    servers: Vec<ServerId>,
}

/// What came of one of them.
struct Warmed {
    server: ServerId,
    success: bool,
}

impl Warming {
    /// One has come to its end. True when it was a good one.
    fn ended(&mut self, warmed: Option<Warmed>) -> bool {
        let Some(warmed) = warmed else {
            // It panicked, and cannot say which it was.
            self.servers.clear();
            return false;
        };
        self.servers.retain(|server| *server != warmed.server);
        warmed.success
    }
}
