//! `forebay traffic compare`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use traffic::compare::{self, FailOn};
use traffic::report;

#[derive(Args)]
pub(super) struct Compare {
    /// The folder that says how it was: a capture, or the replay on the old server.
    a: PathBuf,
    /// The folder that says how it is: a replay, or the results of several replayers (`--index`).
    #[arg(required = true)]
    b: Vec<PathBuf>,
    /// What makes the exit code 2: `errors`, `rows` (rows, affected rows, values), `warnings`, `missing`
    /// (commands that B lacks), `p50=N`, `p95=N`, `p99=N` (how many times as slow all commands together may
    /// be), `none`.
    #[arg(long, default_value = "errors,rows", value_parser = FailOn::parse)]
    fail_on: FailOn,
    /// Writes all of it as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Writes a page for a browser that needs nothing else.
    #[arg(long)]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &Compare) -> Result<ExitCode> {
    let comparison = compare::compare(&args.a, &args.b)?;
    let failures = args.fail_on.failures(&comparison);
    if let Some(file) = &args.json {
        let json = serde_json::to_vec_pretty(&comparison)?;
        fs::write(file, json).with_context(|| file.display().to_string())?;
    }
    if let Some(file) = &args.html {
        let page = report::html(&comparison, &failures);
        fs::write(file, page).with_context(|| file.display().to_string())?;
    }
    crate::print(&report::text(&comparison))?;
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    crate::print(&format!("\nfailed: {}\n", failures.join("; ")))?;
    Ok(ExitCode::from(2))
}
