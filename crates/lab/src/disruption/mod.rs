//! Scenario `disruption`: what clients see while servers are restarted as planned, and when one dies.
//!
//! Everything is real: MariaDB, MySQL, Galera and Group Replication on this machine, the gateway with its
//! defaults, and `forebay ctl` as an operator runs it. The load is an open loop at a fixed rate, whose
//! clients know what they must be answered ([`script`]) and never connect again in silence ([`load`]). It
//! touches no server that it has not started.
//!
//! A new part is a function in [`parts`] (or a module, as [`leave`]), a [`Part`], and a line in
//! [`Part::run`].

mod gateway;
mod leave;
mod load;
mod parts;
mod script;
mod seen;
mod stage;

use std::{fmt, path::PathBuf, time::Duration};

use anyhow::ensure;

use self::stage::{Plan, Scene, Sum};
use crate::{cache::Report, child, split::ServerKind};

/// How long an operator waits for a server to be empty.
const DRAIN_DEADLINE: Duration = Duration::from_secs(20);

/// What to do.
#[derive(Clone, Debug, clap::Args)]
pub struct DisruptionArgs {
    /// Parts of the run [default: all; with `--quick` replicas and galera].
    #[arg(long, value_delimiter = ',')]
    pub parts: Vec<Part>,
    /// The servers of the parts with asynchronous replication.
    #[arg(long, value_enum, default_value = "mariadb")]
    pub servers: ServerKind,
    /// Clients of a part, which its listeners share.
    #[arg(long, default_value_t = 32)]
    pub clients: u64,
    /// Statements a second of all clients together.
    #[arg(long, default_value_t = 400.0)]
    pub rate: f64,
    /// Within a minute: the parts replicas and galera, of which one node restarts.
    #[arg(long)]
    pub quick: bool,
    /// The gateway, if not this executable itself.
    #[arg(long)]
    pub forebay: Option<PathBuf>,
    /// Where the results are written as JSON. The gateway's log is left beside it where a part did not keep
    /// its promise.
    #[arg(long, default_value = "results.json")]
    pub output: PathBuf,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Both replicas are restarted, one after the other.
    Replicas,
    /// The nodes of a Galera cluster are restarted, one after the other.
    Galera,
    /// The members of a group are restarted, one after the other.
    GroupReplication,
    /// Another server is made the primary, and the one before restarts; twice.
    Switchover,
    /// The gateway is replaced by a new process, three times, under 200 clients at least.
    Upgrade,
    /// A server drains on which a thousand silent sessions are.
    Leave,
    /// Replicas are killed, one at a time.
    KillReplica,
    /// The primary is killed, and a replica promoted.
    KillPrimary,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Replicas,
        Self::Galera,
        Self::GroupReplication,
        Self::Switchover,
        Self::Upgrade,
        Self::Leave,
        Self::KillReplica,
        Self::KillPrimary,
    ];
    const QUICK: [Self; 2] = [Self::Replicas, Self::Galera];

    fn run(self, args: &DisruptionArgs, scene: Scene<'_>) -> anyhow::Result<Sum> {
        let kind = args.servers.of_sandbox();
        match self {
            Self::Replicas => parts::replicas(kind, scene),
            Self::Galera => parts::galera(if args.quick { 1 } else { 3 }, scene),
            Self::GroupReplication => parts::group_replication(scene),
            Self::Switchover => parts::switchover(kind, scene),
            Self::Upgrade => parts::upgrade(kind, scene),
            Self::Leave => leave::leave(kind, scene),
            Self::KillReplica => parts::kill_replica(kind, scene),
            Self::KillPrimary => parts::kill_primary(kind, scene),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::write_name(self, out)
    }
}

/// Runs the parts, one after the other. All figures are in `report` then, those of a part up to which it came
/// included; what comes back is the sum in words.
///
/// # Errors
/// Parts could not be run to their end. The others were run all the same.
pub fn disruption(args: &DisruptionArgs, report: &mut Report) -> anyhow::Result<String> {
    let parts = match (&args.parts[..], args.quick) {
        ([], true) => Part::QUICK.to_vec(),
        ([], false) => Part::ALL.to_vec(),
        (given, _) => given.to_vec(),
    };
    ensure!(
        args.clients >= 2 && args.rate > 0.0,
        "no load: --clients from 2 on, --rate above 0"
    );
    net::limits::raise_nofile()?;
    let plan = Plan {
        program: child::gateway(args.forebay.as_deref())?,
        clients: args.clients,
        rate: args.rate,
        drain_deadline: DRAIN_DEADLINE,
        output: args.output.clone(),
    };
    let progress = crate::spinner();
    let (mut sum, mut failed) = (Sum::default(), Vec::new());
    for part in &parts {
        let scene = Scene {
            plan: &plan,
            progress: &progress,
            report: &mut *report,
        };
        match part.run(args, scene) {
            Ok(of_part) => sum.merge(&of_part),
            Err(error) => failed.push(format!("{part}: {error:#}")),
        }
    }
    progress.finish_and_clear();
    ensure!(
        failed.is_empty(),
        "parts that were not run to their end:\n  {}",
        failed.join("\n  ")
    );
    Ok(in_words(&sum, parts.len()))
}

fn in_words(sum: &Sum, parts: usize) -> String {
    let Sum {
        statements,
        waited,
        errors,
        wrong,
        longest,
    } = sum;
    format!(
        "{parts} part(s): {statements} statements, {errors} errors, {wrong} wrong answers, {waited} waited for more than \
         100 ms, the longest for {} ms",
        longest.as_millis()
    )
}

/// The parts that did not keep their promise, with what was not as it should be.
pub fn broken(report: &Report) -> Vec<String> {
    let figures = report.not_met().into_iter();
    figures
        .map(|figure| format!("{} ({}: {})", figure.part, figure.name, figure.spread.median))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Wanted;

    #[test]
    fn what_did_not_keep_its_promise_is_named() {
        let mut report = Report::new(Vec::new());
        report
            .add("replicas, mariadb, split", "errors", "", [2.0])
            .wanted(Wanted::AtMost(0.0));
        report.add("replicas, mariadb, split", "statements", "", [9.0]);
        assert_eq!(broken(&report), ["replicas, mariadb, split (errors: 2)"]);
    }

    #[test]
    fn parts_have_the_names_of_the_command_line() {
        assert_eq!(Part::KillReplica.to_string(), "kill-replica");
    }
}
