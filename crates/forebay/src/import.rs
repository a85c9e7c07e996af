//! `forebay import`: reads a file of another gateway, prints ours, and says on standard error what has no
//! equal.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use import::{ImportError, Imported};

/// Longest file, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// The exit code of `--strict` where something has no equal.
const NOT_ALL: u8 = 3;

#[derive(Subcommand)]
pub(crate) enum Import {
    /// The SQL text of ProxySQL's admin tables (`sqlite3 proxysql.db .dump`, or mysqldump of the admin
    /// interface), or its proxysql.cnf. The configuration goes to standard output, passwords included; what
    /// has no equal goes to standard error.
    Proxysql {
        #[command(flatten)]
        source: Source,
    },
    /// HAProxy's haproxy.cfg, as far as it is in front of MySQL. The configuration goes to standard output,
    /// with the line that each option comes from; what has no equal goes to standard error, line by line.
    Haproxy {
        #[command(flatten)]
        source: Source,
    },
}

#[derive(Args)]
pub(crate) struct Source {
    /// The file; `-` is standard input.
    file: PathBuf,
    /// Exit with 3 when anything has no equal.
    #[arg(long)]
    strict: bool,
}

/// Converts, and answers with the exit code.
pub(crate) fn run(import: &Import) -> anyhow::Result<ExitCode> {
    type Convert = fn(&str) -> Result<Imported, ImportError>;
    let (source, convert): (_, Convert) = match import {
        Import::Proxysql { source } => (source, import::proxysql),
        Import::Haproxy { source } => (source, import::haproxy),
    };
    let Source { file, strict } = source;
    let text = read(file).with_context(|| file.display().to_string())?;
    let imported = convert(&text).with_context(|| file.display().to_string())?;
    crate::print(&imported.toml)?;
    for note in &imported.without_equal {
        eprintln!("{note}");
    }
    let is_all = imported.without_equal.is_empty() || !strict;
    Ok(if is_all {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NOT_ALL)
    })
}

/// Dumps of databases may hold bytes that are no UTF-8 where binary hashes are; the rest of them is still of
/// use.
fn read(path: &Path) -> anyhow::Result<String> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path)?)
    };
    let mut bytes = Vec::new();
    source.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= FILE_MAX, "more than {FILE_MAX} bytes");
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
