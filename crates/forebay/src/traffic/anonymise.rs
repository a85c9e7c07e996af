//! `forebay traffic anonymise`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use traffic::Key;
use traffic::anonymise::{self, Wanted};

#[derive(Args)]
pub(super) struct Anonymise {
    /// The folder: a capture, an import or a replay.
    folder: PathBuf,
    #[command(flatten)]
    key: super::KeyFile,
    /// The new folder.
    #[arg(long)]
    to: PathBuf,
    /// Names of users stay.
    #[arg(long)]
    keep_users: bool,
    /// Names of schemas stay. Those within statements stay in any case.
    #[arg(long)]
    keep_schemas: bool,
    /// A file with a key (`forebay traffic key`) by which pseudonyms are made: the same in all folders that
    /// are made with it. Without one they are made by a random one that nobody keeps.
    #[arg(long)]
    pseudonym_key: Option<PathBuf>,
}

pub(super) fn run(args: &Anonymise) -> Result<ExitCode> {
    let wanted = Wanted {
        keeps_users: args.keep_users,
        keeps_schemas: args.keep_schemas,
        secret: args.pseudonym_key.as_deref().map(Key::read).transpose()?,
    };
    let done = anonymise::anonymise(&args.folder, &args.to, args.key.read()?.as_ref(), wanted)?;
    say!(
        "{}: {} commands, {} of them as a digest alone; names of tables, columns and variables are as they were",
        args.to.display(),
        done.commands,
        done.withheld
    )?;
    super::whole(&done.stops)
}
