//! Switchovers of the running gateway: what the steps in `upstream` need to know of sessions, and how
//! operators see them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use admin::{SwitchoverOrder, SwitchoverStatus, SwitchoverStep};
use dataplane::{Gateway, SessionStatus};
use tokio::task::spawn_local;
use upstream::switchover::{Report, State, Switchover};
use upstream::{Cluster, Server};

/// The last switchover of each cluster, by its name.
#[derive(Default)]
pub(crate) struct Switchovers(Mutex<BTreeMap<String, Arc<Report>>>);

impl Switchovers {
    /// Begins one. `listeners` are those of the configuration.
    pub(crate) fn begin(
        &self,
        gateway: &Arc<Gateway>,
        cluster: &Arc<Cluster>,
        listeners: &[config::Listener],
        order: &SwitchoverOrder,
    ) -> Result<(), String> {
        if self.is_under_way(cluster) {
            return Err("another switchover of this cluster is under way".to_owned());
        }
        let of_cluster = listeners
            .iter()
            .filter(|listener| listener.cluster == cluster.name());
        let names: Vec<String> = of_cluster.map(|listener| listener.name.clone()).collect();
        let gateway = Arc::clone(gateway);
        let under_way = move |server: &Arc<Server>| {
            let (gateway, names, server) = (Arc::clone(&gateway), names.clone(), Arc::clone(server));
            let count = async move {
                let sessions = gateway.describe_sessions(usize::MAX).await;
                let of_cluster = sessions
                    .iter()
                    .filter(|session| names.contains(&session.listener));
                of_cluster.filter(|session| is_busy(session, &server)).count()
            };
            Box::pin(count) as Pin<Box<dyn Future<Output = usize>>>
        };
        let switchover = Switchover::new(cluster, &order.to, Box::new(under_way))?;
        let report = switchover.report();
        for words in not_paused(cluster, listeners) {
            report.warn(words);
        }
        let mut last = crate::lock(&self.0);
        last.insert(cluster.name().to_owned(), report);
        spawn_local(switchover.run(order.check_only));
        Ok(())
    }

    pub(crate) fn is_under_way(&self, cluster: &Cluster) -> bool {
        let last = crate::lock(&self.0);
        let of_cluster = last.get(cluster.name());
        of_cluster.is_some_and(|report| report.told().state == State::Running)
    }

    /// Of any cluster.
    pub(crate) fn are_under_way(&self) -> bool {
        let last = crate::lock(&self.0);
        last.values().any(|report| report.told().state == State::Running)
    }

    pub(crate) fn status(&self) -> Vec<SwitchoverStatus> {
        let last = crate::lock(&self.0);
        last.values().map(|report| status(report)).collect()
    }
}

/// What a pause cannot hold: nobody knows there where a statement begins.
pub(crate) fn not_paused(cluster: &Cluster, listeners: &[config::Listener]) -> Vec<String> {
    let is_plain = |listener: &&config::Listener| {
        listener.cluster == cluster.name()
            && listener.protocol == config::Protocol::Mysql
            && listener.mode != config::Mode::Split
            && !listener.moves
    };
    let told = |listener: &config::Listener| {
        let (name, mode) = (&listener.name, listener.mode.word());
        format!("sessions of listener {name} do not wait, since its mode is {mode}")
    };
    listeners.iter().filter(is_plain).map(told).collect()
}

/// What has to come to its end before a server is left.
const HELD: [&str; 2] = ["transaction", "table-locks"];

/// In a transaction, or in a statement, on this server or about to be.
fn is_busy(session: &SessionStatus, server: &Server) -> bool {
    let is_there = session.server.as_deref() == Some(server.name());
    match session.waits_for {
        "server" | "position" => is_there,
        "seat" => is_there || session.server.is_none(),
        "client" => is_there && session.pins.iter().any(|pin| HELD.contains(&pin.reason)),
        _ => false,
    }
}

fn status(report: &Report) -> SwitchoverStatus {
    let told = report.told();
    let step = |step: upstream::switchover::ReportedStep| SwitchoverStep {
        what: step.what,
        at_seconds: step.at.as_secs_f64(),
    };
    SwitchoverStatus {
        cluster: report.cluster.clone(),
        from: report.from.clone(),
        to: report.to.clone(),
        state: told.state.label().to_owned(),
        steps: told.steps.into_iter().map(step).collect(),
        warnings: told.warnings,
        reason: told.reason,
        paused_seconds: told.paused.map(|paused| paused.as_secs_f64()),
    }
}
