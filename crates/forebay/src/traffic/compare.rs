//! `forebay traffic compare`.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use traffic::compare::{self, FailOn};
use traffic::{explain, report};

use super::replay::{address, login, runtime};

#[derive(Args)]
pub(super) struct Compare {
    /// The folder that says how it was: a capture, or the replay on the old server.
    a: PathBuf,
    /// The folder that says how it is: a replay, or the results of several replayers (`--index`).
    #[arg(required = true)]
    b: Vec<PathBuf>,
    #[command(flatten)]
    key: super::KeyFile,
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
    /// HOST:PORT of the server of A: both servers are asked (`EXPLAIN`) how they execute the first 20
    /// statements that differ or are slower, those that only read.
    #[arg(long, requires_all = ["explain_b", "user"])]
    explain_a: Option<String>,
    /// HOST:PORT of the server of B.
    #[arg(long, requires = "explain_a")]
    explain_b: Option<String>,
    /// The account of both servers for that.
    #[arg(long, requires = "explain_a")]
    user: Option<String>,
    /// The environment variable with the password of `--user`.
    #[arg(long, requires = "user")]
    password_env: Option<String>,
}

pub(super) fn run(args: &Compare) -> Result<ExitCode> {
    let key = args.key.read()?;
    let mut comparison = compare::compare(&args.a, &args.b, key.as_ref())?;
    if let (Some(a), Some(b), Some(user)) = (&args.explain_a, &args.explain_b, &args.user) {
        let servers = [address(a)?, address(b)?];
        let login = login(user, args.password_env.as_deref())?;
        runtime()?.block_on(explain::explain(
            &mut comparison,
            &args.a,
            key.as_ref(),
            servers,
            &login,
        ))?;
    }
    let mut failures = args.fail_on.failures(&comparison);
    if args.b.len() > 1 && comparison.missing > 0 && args.fail_on.looks_at_results() {
        failures.push(format!(
            "{} commands are in none of the parts",
            comparison.missing
        ));
    }
    if let Some(file) = &args.json {
        let json = serde_json::to_vec_pretty(&comparison)?;
        write(file, &json)?;
    }
    if let Some(file) = &args.html {
        let page = report::html(&comparison, &failures);
        write(file, page.as_bytes())?;
    }
    crate::print(&report::text(&comparison))?;
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    crate::print(&format!("\nfailed: {}\n", failures.join("; ")))?;
    Ok(ExitCode::from(2))
}

/// Statements stand in it, so it is for its owner alone.
fn write(path: &Path, text: &[u8]) -> Result<()> {
    let whole = || -> io::Result<()> {
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(text)
    };
    whole().with_context(|| path.display().to_string())
}
