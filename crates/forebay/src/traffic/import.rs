//! `forebay traffic import`.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use traffic::import::{From, Importer};

#[derive(Args)]
pub(super) struct Import {
    /// What the files are.
    #[arg(long, value_enum)]
    from: Kind,
    /// The files, in their order: sessions go on from one to the next.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The new folder.
    #[arg(long)]
    to: PathBuf,
    #[command(flatten)]
    key: super::KeyFile,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// The slow query log of MySQL or MariaDB, best with `long_query_time = 0`: order, texts, times, counts
    /// of rows; of MariaDB affected rows; of MySQL with `log_slow_extra` the codes of errors
    SlowLog,
    /// The general query log of MySQL or MariaDB: order and texts alone, so compare two replays of it
    GeneralLog,
    /// What TiProxy has captured (traffic-1.log, also .gz): order, texts, parameters, times of the starts,
    /// no users
    Tiproxy,
    /// Packets of a network, as tcpdump (pcap) and Wireshark (pcapng) write them: all that a capture has, of
    /// connections from their beginning on without TLS and compression
    Pcap,
}

impl std::convert::From<Kind> for From {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::SlowLog => Self::SlowLog,
            Kind::GeneralLog => Self::GeneralLog,
            Kind::Tiproxy => Self::Tiproxy,
            Kind::Pcap => Self::Pcap,
        }
    }
}

pub(super) fn run(args: &Import) -> Result<ExitCode> {
    let mut files = Vec::new();
    let mut bytes = 0;
    for path in &args.files {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        bytes += file.metadata().map_or(0, |metadata| metadata.len());
        files.push((path, file));
    }
    let bar = super::bar(
        bytes,
        "{bar:40} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
    )?;
    let mut importer = Importer::new(
        args.from.into(),
        &args.to,
        args.key.read()?,
        env!("CARGO_PKG_VERSION"),
    );
    for (path, file) in files {
        importer.file(path, bar.wrap_read(file))?;
    }
    bar.finish_and_clear();
    let imported = importer.finish()?;
    say!(
        "{}: {} commands of {} sessions, {} of them as a digest alone; it is personal data",
        args.to.display(),
        imported.commands,
        imported.sessions,
        imported.withheld
    )?;
    for (why, count) in &imported.left_out {
        say!("{count:>10}  left out: {why}")?;
    }
    super::whole(&imported.stops)
}
