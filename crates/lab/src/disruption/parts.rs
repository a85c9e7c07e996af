//! The parts: what is done to the servers while the clients go on.

use std::time::Duration;

use indicatif::ProgressBar;
use sandbox::Kind;

use super::{
    gateway::Mode,
    stage::{Act, Plan, Promise, Stage, Sum, three},
};
use crate::cache::Report;

/// How long clients are watched after a server has died.
const AFTER_DEATH: Duration = Duration::from_secs(8);

/// Clients of both modes to which nothing may happen. Those of mode `session` write where every server takes
/// writes.
fn planned(session_writes: bool) -> [Act; 2] {
    let act = |mode, writes| Act {
        mode,
        writes,
        promise: Promise::NoErrors,
    };
    [act(Mode::Split, true), act(Mode::Session, session_writes)]
}

/// Rolling restart of the replicas.
pub(super) fn replicas(
    kind: Kind,
    plan: &Plan,
    progress: &ProgressBar,
    report: &mut Report,
) -> anyhow::Result<Sum> {
    let mut stage = Stage::set(("replicas", three(kind)), &planned(false), plan, progress)?;
    for replica in [1, 2] {
        stage.restart(replica)?;
    }
    stage.conclude(0, report)
}

/// Rolling restart of the nodes, of as many as are asked for.
pub(super) fn galera(
    nodes: usize,
    plan: &Plan,
    progress: &ProgressBar,
    report: &mut Report,
) -> anyhow::Result<Sum> {
    let mut stage = Stage::set(("galera", three(Kind::Galera)), &planned(true), plan, progress)?;
    for node in (0..3).rev().take(nodes) {
        stage.restart(node)?;
    }
    stage.conclude(0, report)
}

/// A replica dies, under a load that reads.
pub(super) fn kill_replica(
    kind: Kind,
    plan: &Plan,
    progress: &ProgressBar,
    report: &mut Report,
) -> anyhow::Result<Sum> {
    let reads = Act {
        mode: Mode::Split,
        writes: false,
        promise: Promise::NoErrors,
    };
    let stage = Stage::set(("kill-replica", three(kind)), &[reads], plan, progress)?;
    stage.servers.node(2).kill9()?;
    stage.watch("db3 is dead", AFTER_DEATH);
    stage.servers.node(2).restart()?;
    stage.wait_until_whole()?;
    stage.conclude(0, report)
}
