//! Scenario `cache`: what a row from memory costs, beside Redis with the same rows, the server itself, and
//! HAProxy.
//!
//! Everything is real: a server with a million rows as sysbench makes them, Redis or Valkey with the same
//! rows, this program over the server. Contenders take turns round by round, and ratios are formed within a
//! round, as in [`overhead`](crate::overhead). The load generator shares one core with the server, the
//! contender has the other.

mod load;
mod paced;
mod parts;
mod report;
pub(crate) mod rig;
mod updates;

use std::path::PathBuf;

use anyhow::{Context, ensure};

use self::parts::Bench;
pub use self::report::{Figure, Report, Wanted};
use crate::{child, overhead::pin_this_thread};

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct CacheArgs {
    /// Parts of the run.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "operations,updates,hits,copy,sql,memory"
    )]
    pub parts: Vec<Part>,
    /// Rows of the table.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: u64,
    /// Bytes of a row's value, but in the part `memory`, which has its own.
    #[arg(long, default_value_t = rig::VALUE)]
    pub value_bytes: usize,
    /// Redis clients, each with one pipeline in flight.
    #[arg(long, default_value_t = 50)]
    pub clients: usize,
    /// How often every contender is measured.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of load a round.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Updates a second beside the reads, in the part `updates`; 0 is none.
    #[arg(long, value_delimiter = ',', default_value = "0,1000,2000,4000,8000")]
    pub updates: Vec<u32>,
    /// Reads a second of the load at a fixed rate, in the part `updates` [default: a tenth of what the closed
    /// loop reached in the first round].
    #[arg(long)]
    pub paced: Option<f64>,
    /// Threads of sysbench, in the part `sql`.
    #[arg(long, default_value_t = 16)]
    pub threads: usize,
    /// A small run that ends within some minutes: 100 000 rows, 3 rounds of half a second.
    #[arg(long)]
    pub quick: bool,
    /// MySQL instead of MariaDB.
    #[arg(long)]
    pub mysql: bool,
    /// The Redis or Valkey to compare with [default: `valkey-server` or `redis-server`, whichever is on the
    /// PATH].
    #[arg(long)]
    pub redis: Option<PathBuf>,
    /// The HAProxy to compare with.
    #[arg(long, default_value = "haproxy")]
    pub haproxy: PathBuf,
    /// The gateway to measure, if not this executable itself.
    #[arg(long)]
    pub forebay: Option<PathBuf>,
    /// Worker threads of the gateway. In the part `sql` there are as many as cores.
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
    /// Core of the load generator and the server, but in the parts `updates` and `sql`, in which all share
    /// all cores. On a machine with one core nothing is pinned.
    #[arg(long, default_value = "0")]
    pub load_core: Option<usize>,
    /// Core of the contender being measured.
    #[arg(long, default_value = "1")]
    pub contender_core: Option<usize>,
    /// Where the results are written as JSON.
    #[arg(long, default_value = "results.json")]
    pub output: PathBuf,
    /// Fail when a figure is not as wanted.
    #[arg(long)]
    pub strict: bool,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// CPU per GET and HGET, one at a time and 16 in a pipeline, beside Redis.
    Operations,
    /// Strong and eventual reads while the table is written: as many as there can be, and at a fixed rate.
    Updates,
    /// Reads of rows that do not exist.
    Hits,
    /// The first copy, and the binary log.
    Copy,
    /// Point selects over SQL, by sysbench.
    Sql,
    /// Bytes a row, beside Redis.
    Memory,
}

impl Part {
    /// The load, the server and what is measured share all cores: they wait for each other.
    fn has_all_cores(self) -> bool {
        matches!(self, Self::Updates | Self::Sql)
    }
}

impl CacheArgs {
    fn redis(&self) -> anyhow::Result<PathBuf> {
        self.redis
            .clone()
            .or_else(|| rig::find_program(&["valkey-server", "redis-server"]))
            .context("neither valkey-server nor redis-server is on the PATH: install one (apt-get install redis-server), or name it with --redis")
    }
}

/// Runs the scenario; all figures, up to what failed, are in `report` then.
pub fn cache(args: &CacheArgs, report: &mut Report) -> anyhow::Result<()> {
    let mut args = args.clone();
    if args.quick {
        (args.rows, args.rounds, args.seconds) = (100_000, 3, 0.5);
    }
    ensure!(args.rows > 0 && args.rounds > 0, "there must be rows, and rounds");
    ensure!(args.value_bytes > 0, "--value-bytes: at least 1");
    ensure!(args.seconds > 0.0, "a round must take some time");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        (args.load_core, args.contender_core) = (None, None);
    }
    args.redis()?;
    let folder = child::folder()?;
    let progress = crate::spinner();
    // Before the pinning, which the server inherits.
    if args.parts.iter().any(|part| part.has_all_cores()) {
        let free = CacheArgs {
            contender_core: None,
            ..args.clone()
        };
        Bench::new(&free, folder.path(), &progress, report)?.run_on_all_cores(report)?;
    }
    if args.parts.iter().any(|part| !part.has_all_cores()) {
        pin_this_thread(args.load_core)?;
        let bench = Bench::new(&args, folder.path(), &progress, report)?;
        bench.run(report)?;
    }
    progress.finish_and_clear();
    Ok(())
}
