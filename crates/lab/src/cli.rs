//! The subcommand `bench`, as the binary mounts it.

use crate::{
    overhead::{self, OverheadArgs, Report},
    split::{self, SplitArgs},
};

/// Measures what the gateway costs on this machine.
#[derive(Clone, Debug, clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Scenario {
    /// CPU per query and memory per idle session, compared with HAProxy, in front of a server that costs nothing.
    Overhead(Box<OverheadArgs>),
    /// The same with a primary and replicas: what it costs to send reads to replicas and to share few server connections.
    Split(Box<SplitArgs>),
}

impl Bench {
    /// Runs the scenario, prints its table, writes its results. An error when a check is not met.
    pub fn run(self) -> anyhow::Result<()> {
        match self.scenario {
            Scenario::Overhead(args) => conclude(&args, &overhead::overhead(&args)?),
            Scenario::Split(args) => conclude(&args.load, &split::split(&args)?),
        }
    }
}

fn conclude(args: &OverheadArgs, report: &Report) -> anyhow::Result<()> {
    print!("{}", report.table());
    report.write_json(&args.output)?;
    println!("\nall figures: {}", args.output.display());
    let failed = report.failed_checks(&args.check);
    anyhow::ensure!(failed.is_empty(), "checks not met:\n  {}", failed.join("\n  "));
    Ok(())
}
