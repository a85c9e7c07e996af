//! `forebay traffic export`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use traffic::export::{self, By, Wanted};
use traffic::replay::Permitted;
use traffic::seal::private_file;

#[derive(Args)]
pub(super) struct Export {
    /// The folder: a capture, an import or a replay.
    folder: PathBuf,
    #[command(flatten)]
    key: super::KeyFile,
    /// As what.
    #[arg(long = "as", value_enum, default_value = "sql")]
    form: Form,
    /// A new file, for this user alone; without it the text is printed.
    #[arg(long)]
    output: Option<PathBuf>,
    /// One session after the other (all of the text is in memory then), or all as they have ended.
    #[arg(long, value_enum, default_value = "session")]
    by: Order,
    /// Only this session.
    #[arg(long)]
    session: Option<u32>,
    /// Only what reads, and what sessions set for themselves.
    #[arg(long)]
    read_only: bool,
    /// Also KILL, SET GLOBAL, statements about accounts and replication, INTO OUTFILE.
    #[arg(long, conflicts_with = "read_only")]
    all: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// Text for the command line clients of MySQL and MariaDB
    Sql,
}

#[derive(Clone, Copy, ValueEnum)]
enum Order {
    Session,
    Time,
}

pub(super) fn run(args: &Export) -> Result<ExitCode> {
    let Form::Sql = args.form;
    let key = args.key.read()?;
    let wanted = Wanted {
        by: match args.by {
            Order::Session => By::Session,
            Order::Time => By::Time,
        },
        session: args.session,
        permitted: Permitted {
            read_only: args.read_only,
            all: args.all,
        },
    };
    let mut out: Box<dyn Write> = match &args.output {
        None => Box::new(io::stdout().lock()),
        Some(path) => {
            let file = private_file(path);
            Box::new(file.with_context(|| path.display().to_string())?)
        }
    };
    let exported = export::export(&args.folder, key.as_ref(), wanted, &mut BufWriter::new(&mut out))?;
    eprintln!(
        "{} statements, {} left out, which comments name; it is personal data",
        exported.statements, exported.left_out
    );
    Ok(ExitCode::SUCCESS)
}
