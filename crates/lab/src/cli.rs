//! The subcommand `bench`, as the binary mounts it.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    cache::{self, CacheArgs},
    capture::{self, CaptureArgs},
    disruption::{self, DisruptionArgs},
    overhead::{self, OverheadArgs, Report},
    report::{self, CompareArgs, ReportArgs},
    split::{self, SplitArgs},
};

/// Measures what the gateway costs on this machine.
#[derive(Clone, Debug, clap::Args)]
pub struct Bench {
    /// A folder for a page `index.html` of the figures, and for a `results.json` that `bench compare` takes.
    /// `report` and `compare` have `--output` for theirs.
    #[arg(long, global = true, value_name = "DIR")]
    page: Option<PathBuf>,
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Scenario {
    /// CPU per query and memory per idle session, compared with HAProxy, in front of a server that costs
    /// nothing.
    Overhead(Box<OverheadArgs>),
    /// The same with a primary and replicas: what it costs to send reads to replicas and to share few server
    /// connections. With `--servers` queries a second through few connections to real servers.
    Split(Box<SplitArgs>),
    /// Rows from memory beside Redis, the server and HAProxy, over real servers with a million rows.
    Cache(Box<CacheArgs>),
    /// What it costs to capture traffic, and whether its replay tells a faithful copy from one with another
    /// row.
    Capture(Box<CaptureArgs>),
    /// What clients see of servers that are restarted as planned, or die: real servers under a load at a
    /// fixed rate.
    Disruption(Box<DisruptionArgs>),
    /// A published report, repeated on this machine, with a page to look at.
    Report(Box<ReportArgs>),
    /// Two runs of `report`, table by table: of two builds, two machines, two configurations.
    Compare(CompareArgs),
}

impl Bench {
    /// Runs the scenario, prints its table, writes its results. An error when a check is not met.
    pub fn run(self) -> anyhow::Result<()> {
        let page = self.page.as_deref();
        if let Some(folder) = page {
            let has_own = matches!(self.scenario, Scenario::Report(_) | Scenario::Compare(_));
            anyhow::ensure!(
                !has_own,
                "`report` and `compare` make a page without --page: --output is its folder"
            );
            // What cannot be written is told before anything starts.
            report::writable(folder)?;
        }
        match self.scenario {
            Scenario::Overhead(args) => conclude(&args, page, &overhead::overhead(&args)?),
            Scenario::Split(args) if args.servers.is_empty() => {
                conclude(&args.load, page, &split::split(&args)?)
            }
            Scenario::Split(args) => {
                let mut report = cache::Report::new(Vec::new());
                let whole = split::split_on_servers(&args, &mut report);
                let concluded = conclude_figures(("split", &report), page, &args.load.output, args.strict);
                whole.and(concluded)
            }
            Scenario::Cache(args) => {
                let mut report = cache::Report::new(Vec::new());
                let whole = cache::cache(&args, &mut report);
                // What was measured before something failed was long in the making.
                let concluded = conclude_figures(("cache", &report), page, &args.output, args.strict);
                whole.and(concluded)
            }
            Scenario::Capture(args) => {
                let mut report = cache::Report::new(Vec::new());
                let whole = capture::capture(&args, &mut report);
                let concluded = conclude_figures(("capture", &report), page, &args.output, false);
                let sum = whole.map(|sum| say!("{sum}"));
                concluded?;
                sum
            }
            Scenario::Disruption(args) => {
                let mut report = cache::Report::new(Vec::new());
                let whole = disruption::disruption(&args, &mut report);
                let concluded = conclude_figures(("disruption", &report), page, &args.output, false);
                let sum = whole.map(|sum| say!("{sum}"));
                concluded?;
                sum?;
                let broken = disruption::broken(&report);
                anyhow::ensure!(broken.is_empty(), "promises not kept: {}", broken.join(", "));
                Ok(())
            }
            Scenario::Report(args) => report::report(&args),
            Scenario::Compare(args) => report::compare(&args),
        }
    }
}

fn conclude(args: &OverheadArgs, page: Option<&Path>, report: &Report) -> anyhow::Result<()> {
    say!("{}", report.table().trim_end());
    report.write_json(&args.output)?;
    say!("\nall figures: {}", args.output.display());
    if let Some(folder) = page {
        report::write_matrix(folder, options(), report)?;
        tell_page(folder);
    }
    let failed = report.failed_checks(&args.check);
    anyhow::ensure!(failed.is_empty(), "checks not met:\n  {}", failed.join("\n  "));
    Ok(())
}

fn conclude_figures(
    (bench, report): (&str, &cache::Report),
    page: Option<&Path>,
    output: &Path,
    strict: bool,
) -> anyhow::Result<()> {
    say!("{}", report.table().trim_end());
    report.write_json(output)?;
    say!("\nall figures: {}", output.display());
    if let Some(folder) = page {
        report::write_figures(folder, bench, options(), report)?;
        tell_page(folder);
    }
    let not_met = report.not_met();
    anyhow::ensure!(
        !strict || not_met.is_empty(),
        "{} figures are not as wanted",
        not_met.len()
    );
    Ok(())
}

/// As they were given, behind `bench`.
fn options() -> Vec<String> {
    env::args().skip(2).collect()
}

fn tell_page(folder: &Path) {
    say!("the page: {}", folder.join("index.html").display());
}
