//! A login on a server by which a password is tried: within the server's limits, in line with those who want
//! a connection of the pools.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use config::Secret;
use mysql_wire::Capabilities;
use tokio::time::{sleep_until, timeout_at};

use super::eviction_budget::{Eviction, EvictionBudget};
use crate::cluster::Cluster;
use crate::direct::{Direct, DirectError};
use crate::error::LeaseError;
use crate::login::{Account, LoginError};
use crate::permit::Permit;
use crate::pool::{Grant, Key, Wish};
use crate::server::{Availability, Server, now};

/// A number that no pool has.
const NO_POOL: u64 = u64::MAX;

/// How often those who wait look whether a refusal is long enough ago: where no pool has been used yet nobody
/// else does.
const LOOK: Duration = Duration::from_millis(100);

/// Where a login is tried.
pub(super) struct Trying<'t> {
    pub(super) cluster: &'t Arc<Cluster>,
    pub(super) server: &'t Arc<Server>,
    /// What it may cost the pools; `None` is without a bound.
    pub(super) eviction_budget: Option<&'t EvictionBudget>,
}

/// Logs in, and leaves again. Waits for as long as `patience` where the server is full, or has enough of this
/// user: idle connections make room.
///
/// # Errors
/// The server could not be asked, or it refuses the account.
pub(super) async fn try_login(
    trying: &Trying<'_>,
    name: &str,
    password: &Secret,
    patience: Duration,
) -> Result<(), LeaseError> {
    let Trying { cluster, server, .. } = *trying;
    let until = now() + patience;
    // All that is of interest is whose it is.
    let key = Key {
        user: name.into(),
        account: 0,
        capabilities: Capabilities::default(),
        collation: 0,
    };
    let mut refusal = None;
    loop {
        let permit = trying.permit(&key, until).await;
        let (permit, eviction) = permit.map_err(|error| refusal.take().unwrap_or(error))?;
        let tried = log_in(cluster, server, name, password).await;
        if let (Err(_), Some(eviction)) = (&tried, eviction) {
            eviction.was_in_vain();
        }
        let (others, now) = (server.sessions().saturating_sub(1), now());
        // Before the permit goes, or it would go to the next who is refused.
        match tried {
            Ok(()) => {
                server.wait_queue.ceiling.raise(others + 1, now);
            }
            Err(error) if error.is_full() => {
                server.wait_queue.ceiling.lower(others, now);
                refusal = Some(error);
                continue;
            }
            Err(error) if error.is_user_full() => {
                server.wait_queue.full_users.note(&key.user, now);
                refusal = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        }
        drop(permit);
        return Ok(());
    }
}

impl<'t> Trying<'t> {
    /// A permit on the server, at once or in line, and what it may have cost.
    async fn permit(&self, key: &Key, until: Instant) -> Result<(Permit, Option<Eviction<'t>>), LeaseError> {
        let (cluster, server, since) = (self.cluster, self.server, now());
        let wait_queue = &server.wait_queue;
        let (permit, eviction) = self.free_or_allowed(key, until).await?;
        if let Some(permit) = permit {
            return Ok((permit, None));
        }
        let wish = Wish {
            pool: NO_POOL,
            key,
            since,
            until,
            called: true,
            confined: wait_queue.full_users.contains(&key.user, now()),
        };
        let config = cluster.config();
        let Some((number, mut answer)) = wait_queue.join(wish, config.queue_max as usize) else {
            return Err(cluster.queue_full(server, &config));
        };
        let _ticket = Ticket { server, number };
        // A permit may have become free between the look and the joining; and pools may keep connections that
        // they do not use.
        cluster.serve_wait_queue(server);
        cluster.pools.call();
        loop {
            match timeout_at(until.min(now() + LOOK).into(), &mut answer).await {
                Ok(Ok(Grant::Permit(permit))) => return Ok((permit, eviction)),
                Ok(Ok(Grant::Late)) => return Err(self.timed_out(since, until)),
                Ok(_) => return Err(cluster.unavailable(server)),
                Err(_) if now() >= until => return Err(self.timed_out(since, until)),
                Err(_) => look_after(cluster, server),
            }
        }
    }

    /// A permit that nobody needs; or the right to have somebody make room, which may have to be waited for.
    async fn free_or_allowed(
        &self,
        key: &Key,
        until: Instant,
    ) -> Result<(Option<Permit>, Option<Eviction<'t>>), LeaseError> {
        let (server, since) = (self.server, now());
        let wait_queue = &server.wait_queue;
        loop {
            let now = now();
            if server.availability() == Availability::No {
                return Err(self.cluster.unavailable(self.server));
            }
            if wait_queue.ceiling.lift(server.sessions(), true, now) {
                self.cluster.serve_wait_queue(server);
            }
            let is_free = !wait_queue.full_users.contains(&key.user, now)
                && !wait_queue.wants_permits()
                && !wait_queue.ceiling.is_reached(server.sessions());
            if is_free && let Some(permit) = Permit::take(self.cluster, server) {
                return Ok((Some(permit), None));
            }
            let Some(eviction_budget) = self.eviction_budget else {
                return Ok((None, None));
            };
            if let Some(eviction) = eviction_budget.allow(now) {
                return Ok((None, Some(eviction)));
            }
            if now >= until {
                return Err(self.timed_out(since, until));
            }
            sleep_until(until.min(now + LOOK).into()).await;
        }
    }

    fn timed_out(&self, since: Instant, until: Instant) -> LeaseError {
        self.server.wait_queue.timeouts.fetch_add(1, Ordering::Relaxed);
        self.cluster
            .queue_timeout(self.server, until.saturating_duration_since(since))
    }
}

/// What pools do for theirs.
fn look_after(cluster: &Arc<Cluster>, server: &Arc<Server>) {
    let (wait_queue, now) = (&server.wait_queue, now());
    let has_room = wait_queue
        .ceiling
        .lift(server.sessions(), wait_queue.wants_permits(), now);
    if wait_queue.look_after(NO_POOL, now).may_try || has_room {
        cluster.serve_wait_queue(server);
    }
}

/// A place in line, which it leaves when it is dropped.
struct Ticket<'s> {
    server: &'s Server,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.server.wait_queue.leave(self.number);
    }
}

async fn log_in(cluster: &Cluster, server: &Server, name: &str, password: &Secret) -> Result<(), LeaseError> {
    let opened = Direct::open(cluster, server, Account::of(name, Some(password))).await;
    let direct = opened.map_err(|error| {
        let (reason, server_name) = (error.to_string(), server.name().to_owned());
        match error {
            DirectError::Refused(packet) => LeaseError::Refused {
                server: server_name,
                packet,
            },
            DirectError::Connect(_)
            | DirectError::Login {
                error: LoginError::Io(_) | LoginError::Closed,
                ..
            } => cluster.connect_failed(server, reason),
            DirectError::Login { .. } => LeaseError::Unusable {
                server: server_name,
                reason,
            },
        }
    })?;
    direct.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_in_line_are_served_by_a_login_that_may_not_try_itself() {
        let address = config::ServerAddress::Host {
            host: "db".to_owned(),
            port: 3306,
        };
        let config = config::Cluster::new("main", vec![config::Server::new(address)]);
        let cluster = Cluster::new(config).unwrap();
        let server = Arc::clone(&cluster.servers()[0]);
        let key = Key {
            user: "app".into(),
            account: 0,
            capabilities: Capabilities::default(),
            collation: 0,
        };
        let wish = Wish {
            pool: NO_POOL,
            key: &key,
            since: now(),
            until: now() + Duration::from_secs(10),
            called: true,
            confined: false,
        };
        let (_, mut waits) = server.wait_queue.join(wish, 1).unwrap();
        server.wait_queue.ceiling.lower(0, now());
        advance(Duration::from_secs(1)).await;
        let eviction_budget = EvictionBudget::default();
        while let Some(eviction) = eviction_budget.allow(now()) {
            eviction.was_in_vain();
        }
        let trying = Trying {
            cluster: &cluster,
            server: &server,
            eviction_budget: Some(&eviction_budget),
        };
        assert!(trying.permit(&key, now()).await.is_err());
        assert!(matches!(waits.try_recv(), Ok(Grant::Permit(_))));
    }
}
