//! The watch over what the servers are: one task a server, which asks it again and again over one connection.

use std::sync::Arc;
use std::time::Duration;

use mysql_wire::gtid::GtidSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::{Blind, Connection, Meaning};
use super::look::{Finding, look};
use crate::cluster::{Cluster, ServerChange};
use crate::conversation::QueryError;
use crate::error::Seconds;
use crate::server::{Server, Status};

/// Least time between the beginnings of two looks at a server, however much is going on.
const MIN_GAP: Duration = Duration::from_millis(50);

/// Longest time between two while there is no primary.
const SEARCHING_INTERVAL: Duration = Duration::from_millis(100);

/// How often the name is looked up of a server that does not answer.
const NAME_INTERVAL: Duration = Duration::from_secs(1);

/// A connection whose account lacks a right is closed after this time: what is granted is granted to
/// connections that come later.
const DENIED_MAX: Duration = Duration::from_secs(3);

/// "You need (at least one of) the … privilege(s) for this operation."
const ER_SPECIFIC_ACCESS_DENIED_ERROR: u16 = 1227;

/// Looks at `server` until it is removed or the future is dropped.
pub(crate) async fn watch(cluster: Arc<Cluster>, server: Arc<Server>) {
    let mut monitor = Monitor::new(cluster, server);
    while !monitor.server.is_removed() {
        let config = monitor.cluster.config();
        match &config.monitor {
            Some(account) => {
                let begun = Instant::now();
                monitor.look(&config, account).await;
                monitor.wait(&config, account, begun).await;
            }
            None => {
                monitor.rest().await;
                monitor.server.look_now.notified().await;
            }
        }
    }
    monitor.rest().await;
}

/// A server that does not take the good-bye gets none.
async fn close(connection: Connection) {
    let _ = timeout(MIN_GAP, connection.close()).await;
}

struct Monitor {
    cluster: Arc<Cluster>,
    server: Arc<Server>,
    connection: Option<Connection>,
    /// Whose connection it is.
    account: Option<config::Monitor>,
    /// What the server had executed at the last look over this connection.
    applied: Option<GtidSet>,
    failing: bool,
    /// The account lacks a right, on the connection there is.
    denied_since: Option<Instant>,
}

impl Monitor {
    fn new(cluster: Arc<Cluster>, server: Arc<Server>) -> Self {
        Self {
            cluster,
            server,
            connection: None,
            account: None,
            applied: None,
            failing: false,
            denied_since: None,
        }
    }

    async fn look(&mut self, config: &config::Cluster, account: &config::Monitor) {
        let begun = Instant::now();
        if self.account.as_ref() != Some(account) {
            (self.connection, self.account) = (None, Some(account.clone()));
        }
        let server = Arc::clone(&self.server);
        let asked = tokio::select! {
            biased;
            asked = timeout(account.timeout, self.ask(config, account)) => asked.ok(),
            () = server.addresses.moved(NAME_INTERVAL) => {
                server.look_now.notify_one();
                Some(Err(Blind::new("its name has moved to another address, and it had not answered yet")))
            }
        };
        if server.set_silent(asked.is_none()) && asked.is_none() {
            self.cluster.announce(&server, ServerChange::Silent);
        }
        let result = asked.unwrap_or_else(|| {
            let limit = Seconds(account.timeout);
            Err(Blind::new(format!("no answer within {limit}")))
        });
        self.server.looks.total.inc();
        self.tell(&result);
        match &result {
            Ok(finding) => {
                self.note_applied(finding);
                // It answers: its checks need not wait for their turn to find out.
                let state = self.server.state();
                if state.suspect || state.status == Status::Down {
                    self.server.check_now.notify_one();
                }
            }
            Err(blind) => {
                self.server.looks.failed.inc();
                if blind.meaning == Meaning::NobodyThere {
                    self.cluster.suspect_by_monitor(&self.server, &blind.reason);
                }
            }
        }
        self.cluster.follow.note(&self.server, begun.into_std(), result);
    }

    /// Asks over the connection there is; over a new one where there is none, or where it turns out to be
    /// broken.
    async fn ask(&mut self, config: &config::Cluster, account: &config::Monitor) -> Result<Finding, Blind> {
        let kept = self.connection.take();
        if let Some(mut connection) = kept.filter(|kept| !kept.is_elsewhere(&self.server)) {
            match look(&mut connection, config.topology, account).await {
                Ok(finding) => {
                    self.connection = Some(connection);
                    return Ok(finding);
                }
                Err(QueryError::Broken(_)) => {}
                Err(error) => return self.refused(connection, &error).await,
            }
        }
        // It may have been restarted, on other data.
        self.applied = None;
        self.server.forget_applied();
        let (cluster, server) = (&self.cluster, &self.server);
        let mut connection = Connection::open(cluster, server, config, account, account.timeout).await?;
        match look(&mut connection, config.topology, account).await {
            Ok(finding) => {
                self.connection = Some(connection);
                Ok(finding)
            }
            Err(error) => self.refused(connection, &error).await,
        }
    }

    async fn refused(&mut self, connection: Connection, error: &QueryError) -> Result<Finding, Blind> {
        let is_denied =
            matches!(error, QueryError::Refused(packet) if packet.code == ER_SPECIFIC_ACCESS_DENIED_ERROR);
        let since = *self.denied_since.get_or_insert_with(Instant::now);
        if !is_denied {
            self.denied_since = None;
        }
        if is_denied && since.elapsed() >= DENIED_MAX {
            self.denied_since = None;
            close(connection).await;
        } else if error.is_refusal() {
            self.connection = Some(connection);
        }
        Err(Blind::new(format!("does not tell its role: {error}")))
    }

    /// What sessions have seen the server execute stays known, unless it has fewer than at the last look:
    /// then it was told to forget them (`RESET BINARY LOGS AND GTIDS`, `RESET MASTER`).
    fn note_applied(&mut self, finding: &Finding) {
        let flavor = self.connection.as_ref().map(|connection| connection.flavor);
        let read = |text: Option<&[u8]>| {
            let said = flavor.zip(text);
            said.and_then(|(flavor, text)| GtidSet::parse(flavor, text).ok())
        };
        let position = read(finding.applied.as_deref());
        let grows = match (&self.applied, &position) {
            (Some(before), Some(position)) => position.covers(before),
            (before, _) => before.is_none(),
        };
        match &position {
            Some(position) if grows => self.server.note_applied(position),
            _ if grows => {}
            _ => self.server.set_applied(position.clone()),
        }
        self.server.set_without_gtids(finding.without_gtids);
        self.server.answers(read(finding.executed.as_deref()));
        self.applied = position;
    }

    /// Ends the looks, and forgets what the last ones have shown: that would count for good.
    async fn rest(&mut self) {
        if self.account.take().is_none() {
            return;
        }
        if let Some(connection) = self.connection.take() {
            close(connection).await;
        }
        (self.applied, self.failing, self.denied_since) = (None, false, None);
        self.server.forget_applied();
        self.server.set_silent(false);
        self.cluster.follow.forget(&self.server);
    }

    /// Until the next look is due.
    async fn wait(&mut self, config: &config::Cluster, account: &config::Monitor, begun: Instant) {
        let searching = config.topology.has_primary() && self.cluster.follow.is_searching();
        let interval = match searching {
            true => account.interval.min(SEARCHING_INTERVAL),
            false => account.interval,
        };
        let ended = async {
            match &mut self.connection {
                Some(connection) => connection.ended().await,
                None => std::future::pending().await,
            }
        };
        let broken = tokio::select! {
            () = sleep_until(begun + interval) => return,
            () = self.server.look_now.notified() => false,
            () = ended => true,
        };
        if broken {
            self.connection = None;
        }
        sleep_until(begun + MIN_GAP).await;
    }

    /// Logs when looks begin to fail, and when they succeed again.
    fn tell(&mut self, result: &Result<Finding, Blind>) {
        let was_failing = std::mem::replace(&mut self.failing, result.is_err());
        let (cluster, server) = (self.cluster.name(), self.server.name());
        match result {
            Err(Blind { reason, .. }) if !was_failing => {
                tracing::warn!(cluster, server, reason, "server cannot be asked for its role");
            }
            Ok(_) if was_failing => tracing::info!(cluster, server, "server can be asked for its role again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use config::{Role, ServerAddress};
    use routing::rebalance::Attempts;

    use super::*;

    /// A monitor of a server that is not there, the primary of its cluster by its configuration. No program
    /// is given its port by chance.
    fn monitor() -> Monitor {
        let address = ServerAddress::Host {
            host: "127.0.0.1".to_owned(),
            port: 1,
        };
        let server = config::Server {
            role: Some(Role::Primary),
            ..config::Server::new(address)
        };
        let mut config = config::Cluster::new("main", vec![server]);
        config.monitor = Some(config::Monitor::new("watch"));
        let cluster = Cluster::new(config).unwrap();
        let server = Arc::clone(&cluster.servers()[0]);
        Monitor::new(cluster, server)
    }

    async fn look(monitor: &mut Monitor) {
        let config = monitor.cluster.config();
        monitor.look(&config, config.monitor.as_ref().unwrap()).await;
        monitor.cluster.renew_topology();
    }

    /// Sessions leave a server most of whose connections fail, and come back only once they do not.
    #[tokio::test]
    async fn a_look_in_vain_is_no_failed_connection_of_a_session() {
        let mut monitor = monitor();
        look(&mut monitor).await;
        assert!(monitor.server.state().suspect);
        assert_eq!(monitor.server.attempts(), Attempts::default());
    }

    /// A silent server whose monitor rests is silent for nobody: its checks say whether it is there.
    #[tokio::test]
    async fn what_a_monitor_has_seen_goes_with_it() {
        let mut monitor = monitor();
        look(&mut monitor).await;
        monitor.server.set_silent(true);
        let cluster = Arc::clone(&monitor.cluster);
        assert_eq!(cluster.topology().primary, None);
        let without = config::Cluster {
            monitor: None,
            ..(*cluster.config()).clone()
        };
        cluster.reload(without).unwrap();
        monitor.rest().await;
        cluster.renew_topology();
        assert_eq!(cluster.topology().primary, Some(0));
        assert!(!monitor.server.is_silent());
    }
}
