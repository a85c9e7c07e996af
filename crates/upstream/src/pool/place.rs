//! Waiting in line, as the one who waits sees it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::line::{Grant, PATIENCE};
use super::{Found, Key, Pool};
use crate::error::LeaseError;
use crate::server::{Server, ServerId, now};

/// A place in a server's line. Dropping it leaves the line, and gives on what has been given to it.
pub(super) struct Place<'p, S> {
    pool: &'p Pool<S>,
    server: Arc<Server>,
    ticket: u64,
    answer: oneshot::Receiver<Grant>,
    since: Instant,
    limit: Duration,
}

impl<'p, S> Place<'p, S> {
    /// The last place in the line, for one who has waited since `since`.
    pub(super) fn join(
        pool: &'p Pool<S>,
        server: &Arc<Server>,
        key: &Key,
        since: Instant,
    ) -> Result<Self, LeaseError> {
        let config = pool.cluster.config();
        let max = config.queue_max as usize;
        let Some((ticket, answer)) = server.line.join(pool.member.id, key, since, max) else {
            return Err(LeaseError::QueueFull {
                cluster: pool.cluster.name().to_owned(),
                server: Some(server.name().to_owned()),
                queue_max: config.queue_max,
            });
        };
        pool.waiting.set(pool.waiting.get() + 1);
        let place = Self {
            pool,
            server: Arc::clone(server),
            ticket,
            answer,
            since,
            limit: config.queue_timeout,
        };
        // A seat may have become free, or the server may have gone, between the look and the joining.
        pool.cluster.serve_line(server);
        Ok(place)
    }

    pub(super) async fn wait(&mut self) -> Result<Found<S>, LeaseError> {
        let since = tokio::time::Instant::from_std(self.since);
        let deadline = since + self.limit;
        let grant = match timeout_at(deadline.min(since + PATIENCE), &mut self.answer).await {
            Ok(grant) => grant,
            Err(_) => {
                self.server.line.call(self.ticket);
                self.pool.cluster.pools.call();
                match timeout_at(deadline, &mut self.answer).await {
                    Ok(grant) => grant,
                    Err(_) => return Err(self.timed_out()),
                }
            }
        };
        match grant {
            Ok(Grant::Seat(seat)) => Ok(Found::Seat(seat)),
            Ok(Grant::Connection) => {
                let handed = self.pool.handed.borrow_mut().remove(&self.at());
                Ok(handed.map_or(Found::Nothing, Found::Idle))
            }
            Ok(Grant::Gone) | Err(_) => Err(self.pool.unavailable(&self.server)),
        }
    }

    fn timed_out(&self) -> LeaseError {
        self.server.line.timeouts.fetch_add(1, Ordering::Relaxed);
        LeaseError::QueueTimeout {
            cluster: self.pool.cluster.name().to_owned(),
            server: Some(self.server.name().to_owned()),
            waited: self.limit,
        }
    }

    fn at(&self) -> (ServerId, u64) {
        (self.server.id(), self.ticket)
    }
}

impl<S> Drop for Place<'_, S> {
    fn drop(&mut self) {
        self.server.line.leave(self.ticket);
        let now = now();
        let pool = self.pool;
        pool.waiting.set(pool.waiting.get() - 1);
        if let Some(shelf) = pool
            .shelves
            .borrow()
            .iter()
            .find(|shelf| shelf.is_of(&self.server))
        {
            shelf.series().waits.inc();
            shelf
                .series()
                .wait_seconds
                .record(now.saturating_duration_since(self.since));
        }
        let handed = pool.handed.borrow_mut().remove(&self.at());
        if let Some(idle) = handed {
            pool.place(idle, now);
        }
    }
}
