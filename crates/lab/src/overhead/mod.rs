//! Scenario `overhead`: what a query costs in the process between the client and the server.
//!
//! The load generator and the fake servers share one thread on one core, the contender has the other core.
//! All contenders run during the whole scenario and take turns round by round (A B C A B C …), so that
//! whatever disturbs the machine disturbs all of them; ratios are formed within a round, and their median is
//! what counts. The figure of merit is CPU time of the contender's process per query; QPS and latency in a
//! closed loop on one shared machine stand beside it for orientation.
//!
//! Scenario `split` is the same measurement with replicas behind the contenders that can tell servers apart:
//! see [`crate::split`].

mod check;
mod configuration;
mod contender;
mod measure;
mod plan;
mod report;
mod rig;
mod session;
mod workload;

use std::path::PathBuf;

use anyhow::{Context, ensure};

pub use self::{
    check::{Check, Metric},
    contender::Kind,
    plan::{Plan, Servers},
    report::{Cell, Figures, IdleFigures, Report, Sample, Spread},
    workload::Protocol,
};
pub(crate) use self::{
    configuration::options,
    measure::{pin_this_thread, progress_bar},
    plan::Scenario,
};
use self::{contender::Start, measure::Bench};
use crate::{child, machine::Machine};

/// Sessions that contenders without pools are asked to hold at the same time at the most: what their
/// configuration allows.
const SESSIONS_MAX: usize = configuration::SESSIONS - 200;
/// Descriptors for everything but idle sessions.
const OTHER_FILES: usize = 200;

/// What to measure. Everything that is not given comes from the scenario's full matrix, or with `quick` from
/// a small one.
#[derive(Clone, Debug, clap::Args)]
pub struct OverheadArgs {
    /// Rows of 120 bytes in a result [default: 1,100,1000; split: 1].
    #[arg(long, value_delimiter = ',')]
    pub rows: Vec<u32>,
    /// Number of clients, each with one query in flight [default: 1,32,100; split: 100].
    #[arg(long, value_delimiter = ',')]
    pub clients: Vec<usize>,
    /// Workers of this program, one after the other; with more than one it has all cores [default: 1].
    #[arg(long, value_delimiter = ',')]
    pub workers: Vec<usize>,
    /// Text protocol or prepared statements [default: both].
    #[arg(long, value_delimiter = ',')]
    pub protocol: Vec<Protocol>,
    /// How often every contender is measured in every cell [default: 5].
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Seconds of load a round [default: 2].
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Who is compared [default: haproxy,tcp,session; split: those, split, and proxysql where it is
    /// installed].
    #[arg(long, value_delimiter = ',')]
    pub contenders: Vec<Kind>,
    /// Idle sessions opened to measure the memory of one; 0 leaves that out [default: 5000]. Contenders in
    /// which each has a server connection are measured with as many as there are file descriptors for.
    #[arg(long)]
    pub idle_sessions: Option<usize>,
    /// Clients that know neither DEPRECATE_EOF nor SESSION_TRACK, as go-sql-driver and PyMySQL are; otherwise
    /// they are as those on libmysqlclient and Connector/J are.
    #[arg(long)]
    pub older_clients: bool,
    /// The load generator and the servers never sleep. On one machine a contender pays for waking them up
    /// whenever it sends to a side that sleeps, the more so the fewer queries are in flight; across a network
    /// it does not.
    #[arg(long)]
    pub busy_poll: bool,
    /// A small matrix that ends within a minute: 32 clients, 3 rounds of 0.6 seconds, 1000 idle sessions.
    #[arg(long)]
    pub quick: bool,
    /// A ratio that must be met, such as "session/haproxy@cpu,rows=1,clients=32<=0.90"; the metric is cpu,
    /// qps, p50, p99 or idle. May be repeated.
    #[arg(long)]
    pub check: Vec<Check>,
    /// Where the results are written as JSON.
    #[arg(long, default_value = "results.json")]
    pub output: PathBuf,
    /// The HAProxy to compare with.
    #[arg(long, default_value = "haproxy")]
    pub haproxy: PathBuf,
    /// Another configuration for it than the built-in `bench/haproxy.cfg`; it must use BENCH_BIND and
    /// BENCH_SERVER.
    #[arg(long)]
    pub haproxy_config: Option<PathBuf>,
    /// The gateway to measure, if not this executable itself.
    #[arg(long)]
    pub forebay: Option<PathBuf>,
    /// An option for it, such as 'listener.congestion = "system"' or 'cluster.congestion = "system"'; without
    /// `listener.` or `cluster.` one of the top level. May be repeated.
    #[arg(long)]
    pub forebay_option: Vec<String>,
    /// Core of the load generator and the fake servers. On a machine with one core nothing is pinned.
    #[arg(long, default_value = "0")]
    pub load_core: Option<usize>,
    /// Core of the contender being measured.
    #[arg(long, default_value = "1")]
    pub contender_core: Option<usize>,
}

/// Runs the scenario `overhead` and returns all figures. Checks are not looked at; see
/// [`Report::failed_checks`].
pub fn overhead(args: &OverheadArgs) -> anyhow::Result<Report> {
    run(args, &scenario())
}

fn scenario() -> Scenario {
    Scenario {
        name: "overhead",
        contenders: vec![Kind::Haproxy, Kind::Tcp, Kind::Session],
        rows: vec![1, 100, 1000],
        clients: vec![1, 32, 100],
        idle_sessions: 5000,
        servers: Servers {
            replicas: 0,
            connections: 100,
        },
        proxysql: "proxysql".into(),
        proxysql_config: None,
    }
}

pub(crate) fn run(args: &OverheadArgs, scenario: &Scenario) -> anyhow::Result<Report> {
    let plan = Plan::new(args, scenario)?;
    let machine = Machine::describe();
    let mut args = args.clone();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        (args.load_core, args.contender_core) = (None, None);
    }
    let most = sessions_without_pool(&plan)?;
    measure::pin_this_thread(args.load_core)?;
    let folder = child::folder()?;
    let (mut idle, mut cells) = (Vec::new(), Vec::new());
    for (at, &workers) in plan.workers.iter().enumerate() {
        let mut bench = Bench::new(&Start {
            args: &args,
            scenario,
            plan: &plan,
            workers,
            folder: folder.path(),
        })?;
        if at == 0 {
            idle = bench.idle_memory(most)?;
        }
        cells.extend(bench.matrix()?);
    }
    Ok(Report {
        scenario: scenario.name,
        machine,
        plan,
        cells,
        idle,
    })
}

/// How many idle sessions there can be whose server connections end here, too.
fn sessions_without_pool(plan: &Plan) -> anyhow::Result<usize> {
    let files = net::limits::raise_nofile().context("raising the limit of open files")?;
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let needed = files_for(plan.idle_sessions, &plan.contenders);
    ensure!(
        files >= needed,
        "{} idle sessions need {needed} open files and the limit is {files}: use fewer with --idle-sessions",
        plan.idle_sessions
    );
    let possible = files.saturating_sub(OTHER_FILES) / 2;
    Ok(possible.min(SESSIONS_MAX))
}

/// Open files that so many idle sessions need. One takes two descriptors of ours where its server connection
/// ends here, too, for the client's and the fake server's end, and two of the contender's. Where some of the
/// contenders share connections, the others are measured with fewer sessions.
pub(crate) fn files_for(sessions: usize, contenders: &[Kind]) -> usize {
    let some_pooled = contenders.iter().any(|kind| kind.shares_connections());
    sessions * if some_pooled { 1 } else { 2 } + OTHER_FILES
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
        let plan = Plan::new(&parse("--quick --rounds 7"), &scenario()).unwrap();
        assert_eq!((plan.rounds, plan.idle_sessions), (7, 1000));
        assert_eq!((plan.clients, plan.rows), (vec![32], vec![1, 100, 1000]));
        assert!(Plan::new(&parse("--seconds 0"), &scenario()).is_err());
        assert!(Plan::new(&parse("--clients 0"), &scenario()).is_err());
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
