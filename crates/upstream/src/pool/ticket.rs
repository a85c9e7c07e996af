//! Waiting in line, as the one who waits sees it.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::wait_queue::{Grant, Wish};
use super::{Found, Key, Pool, Travel};
use crate::error::LeaseError;
use crate::server::{Server, ServerId, now};

/// A place in a server's line. Dropping it leaves the line, and gives on what has been given to it.
pub(super) struct Ticket<'p, S: Travel> {
    pool: &'p Pool<S>,
    server: Arc<Server>,
    number: u64,
    answer: oneshot::Receiver<Grant>,
    since: Instant,
    limit: Duration,
    /// The wait is over: nothing is left in the line, and nothing on its way.
    is_over: bool,
}

impl<'p, S: Travel> Ticket<'p, S> {
    /// The last place in the line at `now`, for one who has waited since `since`.
    pub(super) fn join(
        pool: &'p Pool<S>,
        server: &Arc<Server>,
        key: &Key,
        since: Instant,
        now: Instant,
    ) -> Result<Self, LeaseError> {
        let config = Arc::clone(&pool.terms().config);
        let max = config.queue_max as usize;
        let limit = config.queue_timeout;
        let wish = Wish {
            pool: pool.member.id,
            key,
            since,
            until: since + limit,
            called: false,
            confined: server.wait_queue.full_users.contains(&key.user, now),
        };
        let Some((number, answer)) = server.wait_queue.join(wish, max) else {
            return Err(pool.cluster.queue_full(server, &config));
        };
        if pool.waiting.replace(pool.waiting.get() + 1) == 0 {
            pool.somebody_waits.notify_one();
        }
        let ticket = Self {
            pool,
            server: Arc::clone(server),
            number,
            answer,
            since,
            limit,
            is_over: false,
        };
        // A permit may have become free, or the server may have gone, between the look and the joining.
        pool.cluster.serve_wait_queue(server);
        Ok(ticket)
    }

    /// Waits in line; returns what that has brought, and when. The future `left`, where there is one, ends
    /// the wait ([`LeaseError::Left`]). No timer is taken: the pool looks after the line, see [`Pool::run`].
    pub(super) async fn wait(
        &mut self,
        left: Pin<&mut Option<impl Future<Output = ()>>>,
    ) -> Result<(Found<S>, Instant), LeaseError> {
        let left = async {
            match left.as_pin_mut() {
                Some(left) => left.await,
                None => pending().await,
            }
        };
        let grant = tokio::select! {
            biased;
            grant = &mut self.answer => grant,
            () = left => return Err(LeaseError::Left),
        };
        let now = now();
        let found = match grant {
            Ok(Grant::Permit(permit)) => Found::Permit(permit),
            Ok(Grant::Connection) => {
                let handed = self.pool.handed.borrow_mut().remove(&self.at());
                handed.map_or(Found::Nothing, Found::Idle)
            }
            Ok(Grant::Live(parcel)) => match self.pool.receive(*parcel) {
                Ok(idle) => Found::Idle(idle),
                Err(Some(permit)) => Found::Permit(permit),
                Err(None) => Found::Nothing,
            },
            Ok(Grant::Late) => return Err(self.timed_out()),
            Ok(Grant::Gone) | Err(_) => return Err(self.pool.cluster.unavailable(&self.server)),
        };
        self.is_over = true;
        self.end(now);
        Ok((found, now))
    }

    fn end(&self, now: Instant) {
        let pool = self.pool;
        pool.waiting.set(pool.waiting.get() - 1);
        if let Some(idle_connections) = pool
            .idle_by_server
            .borrow()
            .iter()
            .find(|idle_connections| idle_connections.is_of(&self.server))
        {
            idle_connections
                .metrics()
                .waited(now.saturating_duration_since(self.since));
        }
    }

    fn timed_out(&self) -> LeaseError {
        self.server.wait_queue.timeouts.fetch_add(1, Ordering::Relaxed);
        self.pool.cluster.queue_timeout(&self.server, self.limit)
    }

    fn at(&self) -> (ServerId, u64) {
        (self.server.id(), self.number)
    }
}

impl<S: Travel> Drop for Ticket<'_, S> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.server.wait_queue.leave(self.number);
        let now = now();
        self.end(now);
        let handed = self.pool.handed.borrow_mut().remove(&self.at());
        // What is sent from here on goes back to its sender.
        self.answer.close();
        let idle = match self.answer.try_recv() {
            Ok(Grant::Live(parcel)) => self.pool.receive(*parcel).ok(),
            _ => handed,
        };
        if let Some(idle) = idle {
            self.pool.place(idle, now);
        }
    }
}
