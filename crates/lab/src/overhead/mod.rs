//! Scenario `overhead`: what a query costs in the process between the client and the server.
//!
//! The load generator and the fake server share one thread on one core, the contender has the other core. All
//! contenders run during the whole scenario and take turns round by round (A B C A B C …), so that whatever disturbs
//! the machine disturbs all of them; ratios are formed within a round, and their median is what counts. The figure
//! of merit is CPU time of the contender's process per query; QPS and latency in a closed loop on one shared machine
//! stand beside it for orientation.

mod check;
mod contender;
mod measure;
mod report;
mod rig;
mod session;
mod workload;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, ensure};

pub use self::{
    check::{Check, Metric},
    contender::Kind,
    report::{Cell, Figures, IdleFigures, Report, Sample, Spread},
    workload::Protocol,
};
use self::{contender::Contender, measure::Bench};
use crate::machine::Machine;

/// What to measure. Everything that is not given comes from the full matrix, or with `quick` from a small one.
#[derive(Clone, Debug, clap::Args)]
pub struct OverheadArgs {
    /// Rows of 120 bytes in a result [default: 1,100,1000].
    #[arg(long, value_delimiter = ',')]
    pub rows: Vec<u32>,
    /// Number of clients, each with one query in flight [default: 1,32,100].
    #[arg(long, value_delimiter = ',')]
    pub clients: Vec<usize>,
    /// Text protocol or prepared statements [default: both].
    #[arg(long, value_delimiter = ',')]
    pub protocol: Vec<Protocol>,
    /// How often every contender is measured in every cell [default: 5].
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Seconds of load a round [default: 2].
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Who is compared.
    #[arg(long, value_delimiter = ',', default_value = "haproxy,tcp,session")]
    pub contenders: Vec<Kind>,
    /// Idle sessions opened to measure the memory of one; 0 leaves that out [default: 5000].
    #[arg(long)]
    pub idle_sessions: Option<usize>,
    /// A small matrix that ends within a minute: 32 clients, 3 rounds of 0.6 seconds, 1000 idle sessions.
    #[arg(long)]
    pub quick: bool,
    /// A ratio that must be met, such as "session/haproxy@cpu,rows=1,clients=32<=0.90"; the metric is cpu, qps, p50, p99 or
    /// idle. May be repeated.
    #[arg(long)]
    pub check: Vec<Check>,
    /// Where the results are written as JSON.
    #[arg(long, default_value = "results.json")]
    pub output: PathBuf,
    /// The HAProxy to compare with.
    #[arg(long, default_value = "haproxy")]
    pub haproxy: PathBuf,
    /// Another configuration for it than the built-in `bench/haproxy.cfg`; it must use BENCH_BIND and BENCH_SERVER.
    #[arg(long)]
    pub haproxy_config: Option<PathBuf>,
    /// The gateway to measure, if not this executable itself.
    #[arg(long)]
    pub forebay: Option<PathBuf>,
    /// Core of the load generator and the fake server. On a machine with one core nothing is pinned.
    #[arg(long, default_value = "0")]
    pub load_core: Option<usize>,
    /// Core of the contender being measured.
    #[arg(long, default_value = "1")]
    pub contender_core: Option<usize>,
}

/// The arguments with every default filled in.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Plan {
    /// Rows of a result.
    pub rows: Vec<u32>,
    /// Concurrent clients.
    pub clients: Vec<usize>,
    /// Protocols.
    pub protocols: Vec<Protocol>,
    /// Rounds of every cell.
    pub rounds: usize,
    /// Load of one round.
    pub seconds: f64,
    /// Who is compared.
    pub contenders: Vec<Kind>,
    /// Sessions in the memory measurement.
    pub idle_sessions: usize,
}

impl Plan {
    fn new(args: &OverheadArgs) -> anyhow::Result<Self> {
        let or = |given: &[usize], full: &[usize], quick: &[usize]| match given {
            [] if args.quick => quick.to_vec(),
            [] => full.to_vec(),
            _ => given.to_vec(),
        };
        let plan = Self {
            rows: if args.rows.is_empty() {
                vec![1, 100, 1000]
            } else {
                args.rows.clone()
            },
            clients: or(&args.clients, &[1, 32, 100], &[32]),
            protocols: match args.protocol.as_slice() {
                [] => vec![Protocol::Text, Protocol::Prepared],
                given => given.to_vec(),
            },
            rounds: args.rounds.unwrap_or(if args.quick { 3 } else { 5 }),
            seconds: args.seconds.unwrap_or(if args.quick { 0.6 } else { 2.0 }),
            contenders: args.contenders.clone(),
            idle_sessions: args.idle_sessions.unwrap_or(if args.quick { 1000 } else { 5000 }),
        };
        ensure!(
            plan.rounds > 0 && plan.clients.iter().all(|&clients| clients > 0),
            "nothing to measure"
        );
        ensure!(
            (0.01..=3600.0).contains(&plan.seconds),
            "--seconds must be between 0.01 and 3600"
        );
        Ok(plan)
    }

    fn round(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Runs the scenario and returns all figures. Checks are not looked at; see [`Report::failed_checks`].
pub fn overhead(args: &OverheadArgs) -> anyhow::Result<Report> {
    let plan = Plan::new(args)?;
    let machine = Machine::describe();
    let mut args = args.clone();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        (args.load_core, args.contender_core) = (None, None);
    }
    // Two descriptors a session here, for the client's and the fake server's end, and two in the contender.
    let files = net::limits::raise_nofile().context("raising the limit of open files")?;
    let needed = 2 * plan.idle_sessions as u64 + 200;
    ensure!(
        files >= needed,
        "{} idle sessions need {needed} open files and the limit is {files}: use fewer with --idle-sessions",
        plan.idle_sessions
    );
    measure::pin_this_thread(args.load_core)?;
    let folder = tempfile::Builder::new().prefix("forebay-bench-").tempdir()?;
    let mut bench = Bench::new(&args, &plan, folder.path())?;
    let idle = bench.idle_memory()?;
    let cells = bench.matrix()?;
    drop(bench);
    Ok(Report::new(plan, machine, cells, idle))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: OverheadArgs,
    }

    fn parse(words: &str) -> OverheadArgs {
        Cli::try_parse_from(["bench"].into_iter().chain(words.split(' ')))
            .unwrap()
            .args
    }

    #[test]
    fn quick_fills_in_a_small_matrix_and_keeps_what_is_given() {
        let plan = Plan::new(&parse("--quick --rounds 7")).unwrap();
        assert_eq!((plan.rounds, plan.idle_sessions), (7, 1000));
        assert_eq!((plan.clients, plan.rows), (vec![32], vec![1, 100, 1000]));
        assert!(Plan::new(&parse("--seconds 0")).is_err());
        assert!(Plan::new(&parse("--clients 0")).is_err());
    }

    /// The rig against itself: logins, prepares, proof of the first result, load, figures.
    #[test]
    fn measures_every_cell_of_the_matrix() {
        let mut args = parse("--contenders direct --rows 1,1000 --clients 3 --rounds 2 --seconds 0.02");
        (args.load_core, args.contender_core) = (None, None);
        args.idle_sessions = Some(0);
        let report = overhead(&args).unwrap();
        assert_eq!(report.cells.len(), 4);
        for cell in &report.cells {
            let [direct] = cell.figures.as_slice() else {
                panic!("one contender was asked for: {cell:?}");
            };
            assert_eq!(direct.rounds.len(), 2);
            assert!(
                direct
                    .rounds
                    .iter()
                    .all(|round| round.qps > 0.0 && round.p99_us >= round.p50_us)
            );
        }
        let check = |text: &str| report.failed_checks(&[text.parse().unwrap()]);
        assert!(check("direct@qps,rows=1>=1").is_empty());
        assert_eq!(check("session/haproxy@cpu<=1").len(), 4);
    }
}
