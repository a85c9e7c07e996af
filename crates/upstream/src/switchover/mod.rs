//! Another server becomes the primary, by an operator's word, and clients notice nothing but a short wait.
//!
//! What can be found out is found out before anything is changed. Then statements wait
//! ([`Cluster::pause`]), the servers change their parts, and statements go on at the new primary. Until the
//! new one is promoted everything can be put back, and is, where a step fails; from there on it only goes
//! forward. One file for each kind of cluster.
//!
//! What it does not do: it repairs nothing, and chooses nobody. A primary that is dead is not switched from.

mod client;
mod galera;
mod group_replication;
mod replication;
mod report;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::client::Client;
pub use self::report::{Report, ReportedProgress, ReportedStep, State};
use crate::cluster::Cluster;
use crate::server::{DrainedBy, Server};
use crate::topology::Signal;

/// Between two looks at whether all is still.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How many sessions the gateway has that are in the middle of something on a server.
pub type UnderWay = Box<dyn Fn(&Arc<Server>) -> Pin<Box<dyn Future<Output = usize>>>>;

/// A switchover that is about to begin.
pub struct Switchover {
    cluster: Arc<Cluster>,
    config: config::Switchover,
    old: Arc<Server>,
    new: Arc<Server>,
    under_way: UnderWay,
    report: Arc<Report>,
}

/// Why a switchover is not done.
enum Failure {
    /// Nothing was changed.
    Refused(String),
    /// What was changed has been put back.
    Undone(String),
    /// The rest is to be done by hand.
    Failed(String),
}

impl Drop for Switchover {
    fn drop(&mut self) {
        self.report.is_left();
    }
}

impl Switchover {
    /// From the present primary to the server of this name.
    ///
    /// # Errors
    /// In words for a person: there is no such server, it is the primary already, or nobody is.
    pub fn new(cluster: &Arc<Cluster>, to: &str, under_way: UnderWay) -> Result<Self, String> {
        let name = cluster.name();
        let config = cluster.config().switchover.clone();
        let config = config.ok_or_else(|| {
            format!("cluster {name} has no [cluster.{name}.switchover] in the configuration, whose account this needs")
        })?;
        let new = cluster.named(to)?;
        let topology = cluster.topology();
        if let Some(reason) = &topology.refuse_writes {
            return Err(format!("nobody can tell who is the primary: {reason}"));
        }
        let old = topology
            .primary()
            .ok_or("there is no primary that could be switched from")?;
        if old.server.id() == new.id() {
            return Err(format!("server {to} is the primary already"));
        }
        match new.drained_by().as_deref() {
            // That it takes no writes is what this is to change.
            None | Some(DrainedBy::Server(Signal::ReadOnly)) => {}
            Some(DrainedBy::Server(signal)) => {
                let words = signal.words();
                return Err(format!("server {to} says itself that it is to be left: {words}"));
            }
            Some(DrainedBy::Operator) => return Err(format!("server {to} drains: say undrain first")),
            Some(DrainedBy::Option) => {
                return Err(format!(
                    "server {to} drains: it is in `drain` of the configuration"
                ));
            }
        }
        let report = Report::new(name, old.server.name(), to);
        Ok(Self {
            cluster: Arc::clone(cluster),
            config,
            old: Arc::clone(&old.server),
            new,
            under_way,
            report: Arc::new(report),
        })
    }

    /// How far it is, from now on.
    #[must_use]
    pub fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report)
    }

    /// Does it, or with `check_only` looks whether it could be done.
    pub async fn run(self, check_only: bool) {
        let kind = self.cluster.config().topology;
        let result = match kind {
            config::Topology::Replication => Box::pin(replication::run(&self, check_only)).await,
            config::Topology::GroupReplication => Box::pin(group_replication::run(&self, check_only)).await,
            config::Topology::Galera => Box::pin(galera::run(&self, check_only)).await,
            config::Topology::Static => Err(Failure::Refused(
                "with `topology = \"static\"` the file says who is the primary".to_owned(),
            )),
            config::Topology::Tidb => Err(Failure::Refused(
                "with `topology = \"tidb\"` all servers take writes".to_owned(),
            )),
        };
        self.report.end(result);
    }

    async fn client(&self, server: &Arc<Server>) -> Result<Client, String> {
        Client::open(&self.cluster, server, &self.config).await
    }

    /// Has statements wait, and waits until none is under way on the old primary.
    ///
    /// # Errors
    /// Some take longer than `transactions_wait`. Statements go on then.
    async fn pause(&self) -> Result<Pause<'_>, String> {
        let began = Instant::now();
        let pause = Pause {
            of: self,
            is_ours: self.cluster.pause(),
            began,
            until: began + self.cluster.config().pause_timeout,
        };
        self.report.step("statements wait".to_owned());
        let until = (began + self.config.transactions_wait).min(pause.until);
        let mut look_again = LOOK_EVERY;
        loop {
            let left = tokio::time::timeout_at(pause.until.into(), (self.under_way)(&self.old)).await;
            let left = left.unwrap_or(usize::MAX);
            if left == 0 {
                return Ok(pause);
            }
            if Instant::now() >= until {
                return Err(format!(
                    "{left} sessions are still in a transaction or a statement on {} after transactions_wait ({:?}): \
                     `forebay ctl sessions` shows them",
                    self.old.name(),
                    self.config.transactions_wait
                ));
            }
            tokio::time::sleep(look_again).await;
            look_again = (2 * look_again).min(10 * LOOK_EVERY);
        }
    }

    /// When a step that begins now has to be done.
    fn step_end(&self) -> Instant {
        Instant::now() + self.config.step_timeout
    }

    /// Waits until the gateway takes the new server for the primary.
    async fn until_followed(&self, until: Instant) -> Result<(), String> {
        loop {
            let topology = self.cluster.topology();
            if topology.primary().map(|primary| primary.server.id()) == Some(self.new.id()) {
                self.report.step(format!("{} is the primary", self.new.name()));
                return Ok(());
            }
            if Instant::now() >= until {
                let member = topology.member(self.new.id());
                let reason = member.map_or("it is no longer in the configuration", |member| &member.reason);
                return Err(format!(
                    "{} is not taken for the primary: it {reason}",
                    self.new.name()
                ));
            }
            self.cluster.look_again();
            let changed = self.cluster.wait_for_topology_change(topology.generation);
            let _ = tokio::time::timeout(LOOK_EVERY, changed).await;
        }
    }
}

/// Statements wait until this is dropped.
struct Pause<'s> {
    of: &'s Switchover,
    /// Nobody else had them wait before.
    is_ours: bool,
    began: Instant,
    /// Statements are refused that have waited until then.
    until: Instant,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.of.report.paused(self.began.elapsed());
        let goes_on = match self.is_ours {
            true => {
                self.of.cluster.resume();
                "statements go on"
            }
            false => "statements wait until `forebay ctl resume`, as they did before",
        };
        self.of.report.step(goes_on.to_owned());
    }
}
