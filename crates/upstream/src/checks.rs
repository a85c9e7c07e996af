//! The watch over the servers of a cluster: one task a server, checks in time, what they change.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::accounts;
use crate::cluster::{Cluster, ServerChange};
use crate::endpoint_slices;
use crate::exporter;
use crate::health::Change;
use crate::probe::probe;
use crate::server::{Server, ServerId};
use crate::srv;
use crate::tidb;
use crate::topology;

/// Least time between the beginnings of two checks of a server, however often traffic suspects it.
const MIN_GAP: Duration = Duration::from_millis(100);

/// How old the addresses of a server that fails may be.
const FAILING_DNS_AGE: Duration = Duration::from_secs(1);

impl Cluster {
    /// Checks all servers, and asks them what they are, until the future is dropped. To be run once, on the
    /// control thread's runtime.
    pub async fn run_checks(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut watched: HashMap<ServerId, [AbortHandle; 4]> = HashMap::new();
        let phases = RandomState::new();
        tasks.spawn(topology::discover(Arc::clone(&self)));
        tasks.spawn(accounts::watch(Arc::clone(&self)));
        tasks.spawn(srv::watch(Arc::clone(&self)));
        tasks.spawn(tidb::follow_pd(Arc::clone(&self)));
        tasks.spawn(endpoint_slices::follow(Arc::clone(&self)));
        loop {
            let servers = self.servers();
            watched.retain(|id, all| {
                let kept = servers.iter().any(|server| server.id() == *id);
                if !kept {
                    all.iter().for_each(AbortHandle::abort);
                }
                kept
            });
            for server in servers.iter() {
                watched.entry(server.id()).or_insert_with(|| {
                    let phase = phases.hash_one(server.id()) as u32;
                    let checks = Watch::new(Arc::clone(&self), Arc::clone(server), phase);
                    let looks = topology::watch(Arc::clone(&self), Arc::clone(server));
                    let statuses = tidb::watch_status(Arc::clone(&self), Arc::clone(server));
                    [
                        tasks.spawn(checks.run()),
                        tasks.spawn(looks),
                        tasks.spawn(statuses),
                        tasks.spawn(exporter::watch(Arc::clone(&self), Arc::clone(server))),
                    ]
                });
            }
            drop(servers);
            while tasks.try_join_next().is_some() {}
            tokio::select! {
                () = self.servers_changed.notified() => {}
                () = self.follow.news.notified() => {
                    self.renew_topology();
                    self.heed_signals();
                }
            }
        }
    }
}

/// The watch over one server.
struct Watch {
    cluster: Arc<Cluster>,
    server: Arc<Server>,
    rhythm: Rhythm,
    /// The last check failed.
    failing: bool,
    /// The last lookup of its name failed.
    unresolved: bool,
}

/// When checks are due: once an interval, at a point of the interval that is this server's own, so that many
/// servers are not checked at the same moment for ever.
#[derive(Clone, Copy, Debug)]
struct Rhythm {
    origin: Instant,
    /// Any bits.
    phase: u32,
}

impl Rhythm {
    /// When the check after one that began at `begun` is due: half an interval to one and a half later, and
    /// exactly an interval later after one that was in time.
    fn next(self, begun: Instant, interval: Duration) -> Instant {
        let interval = interval.max(Duration::from_millis(1));
        let point = interval.mul_f64(f64::from(self.phase) / f64::from(u32::MAX));
        let earliest = begun.saturating_duration_since(self.origin) + interval / 2;
        let beats = earliest
            .saturating_sub(point)
            .as_nanos()
            .div_ceil(interval.as_nanos());
        self.origin + point + interval * u32::try_from(beats).unwrap_or(u32::MAX)
    }
}

impl Watch {
    fn new(cluster: Arc<Cluster>, server: Arc<Server>, phase: u32) -> Self {
        let rhythm = Rhythm {
            origin: Instant::now(),
            phase,
        };
        Self {
            cluster,
            server,
            rhythm,
            failing: false,
            unresolved: false,
        }
    }

    /// Checks at once, then in the rhythm, and when traffic or a reload asks for it.
    async fn run(mut self) {
        loop {
            let begun = Instant::now();
            self.check(begun).await;
            let due = self.rhythm.next(begun, self.cluster.config().check.interval);
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.server.check_now.notified() => sleep_until(begun + MIN_GAP).await,
            }
            if self.server.is_removed() {
                return;
            }
        }
    }

    async fn check(&mut self, begun: Instant) {
        let config = self.cluster.config();
        self.resolve(&config).await;
        let probe = || probe(&self.cluster, &self.server, &config);
        let names = config.dns_interval.min(FAILING_DNS_AGE);
        let result = tokio::select! {
            biased;
            result = probe() => result,
            // Whoever does not answer may be the server no more.
            () = self.server.addresses.moved(names) => probe().await,
        };
        let metrics = &self.server.checks;
        metrics.total.inc();
        metrics.seconds.record(begun.elapsed());
        self.failing = result.is_err();
        match result {
            Ok(finding) => self.passed(&finding),
            Err(reason) => {
                metrics.failed.inc();
                self.failed(&reason);
            }
        }
        self.cluster.news.notify_waiters();
    }

    /// Looks the server's name up again when that is due. Failing to is no failed check: the addresses known
    /// may do.
    async fn resolve(&mut self, config: &config::Cluster) {
        let failing = self.failing || self.server.state().suspect;
        let max_age = if failing {
            config.dns_interval.min(FAILING_DNS_AGE)
        } else {
            config.dns_interval
        };
        let reason = match timeout(config.check.timeout, self.server.addresses.refresh(max_age)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer from the name server".to_owned()),
        };
        let was_unresolved = std::mem::replace(&mut self.unresolved, reason.is_some());
        if let Some(reason) = reason
            && !was_unresolved
        {
            let (cluster, server) = (self.cluster.name(), self.server.name());
            tracing::warn!(
                cluster,
                server,
                reason,
                "server's name cannot be resolved; addresses that are known of it stay in use"
            );
        }
    }

    fn passed(&self, finding: &str) {
        let (cluster, server) = (self.cluster.name(), self.server.name());
        match self.server.passed(self.cluster.rules(), finding) {
            Some(Change::CameUp) => {
                tracing::info!(cluster, server, finding, "server is up");
                self.cluster.announce(&self.server, ServerChange::Up);
            }
            Some(Change::Cleared) => {
                tracing::info!(cluster, server, finding, "server is no longer suspected")
            }
            Some(Change::WentDown { .. }) | None => return,
        }
        self.cluster.heed_signals();
        self.cluster.serve_queue();
    }

    fn failed(&self, reason: &str) {
        let (cluster, server) = (self.cluster.name(), self.server.name());
        match self.server.failed(self.cluster.rules(), reason) {
            Some(Change::WentDown { failures }) => {
                tracing::warn!(cluster, server, reason, failures, "server is down");
                self.cluster.announce(
                    &self.server,
                    ServerChange::Down {
                        reason: reason.into(),
                    },
                );
                // Another one may take sessions in spite of what it says, before those in line are told that
                // none does.
                self.cluster.heed_signals();
                self.cluster.serve_queue();
            }
            _ => tracing::debug!(cluster, server, reason, "check failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn checks_fall_into_their_rhythm(phase: u32, late_ms in 0..100_000_u64, interval_ms in 50..10_000_u64) {
            let origin = Instant::now();
            let rhythm = Rhythm { origin, phase };
            let interval = Duration::from_millis(interval_ms);
            let begun = origin + Duration::from_millis(late_ms);
            let due = rhythm.next(begun, interval);
            prop_assert!(due >= begun + interval / 2 && due <= begun + interval * 3 / 2);
            // From then on exactly an interval, even when each check begins a little late.
            let little = Duration::from_millis(interval_ms / 10);
            prop_assert_eq!(rhythm.next(due + little, interval), due + interval);
            prop_assert_eq!(rhythm.next(due + interval + little, interval), due + interval * 2);
        }
    }
}
