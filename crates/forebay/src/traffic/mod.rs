//! `forebay traffic`: captures what clients say to a running gateway, replays it on another server, and tells
//! what is different there.

mod anonymise;
mod capture;
mod compare;
mod export;
mod import;
mod objects;
mod replay;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use traffic::Key;

/// What is to be done with traffic.
#[derive(Args)]
pub(crate) struct Traffic {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Capture traffic of a running gateway, and look at what was captured. It is personal data.
    Capture {
        #[command(subcommand)]
        act: capture::Act,
    },
    /// Make a folder as of a capture out of logs of servers. It is personal data. Exit code 2: not all
    /// could be read.
    Import(import::Import),
    /// Make a random key with which captures are encrypted (`--key-file`), in a new file for this user alone.
    Key {
        /// The new file.
        file: PathBuf,
    },
    /// Make a folder of another with pseudonyms for values and names. Exit code 2: not all could be read.
    Anonymise(anonymise::Anonymise),
    /// Write a folder as SQL text.
    Export(export::Export),
    /// Bring a folder from an object store to this machine. Exit code 2: not all of it is there.
    Fetch(objects::Fetch),
    /// Bring a folder of this machine to an object store: what a capture has left in its spool, or any
    /// other that nobody writes. Exit code 2: not all of it is there.
    Push(objects::Push),
    /// Send captured statements to another server, and write what came of them into a folder.
    Replay(Box<replay::Replay>),
    /// Compare two folders: a capture and its replay, or two replays. Exit code 2: what `--fail-on` names
    /// differs.
    Compare(compare::Compare),
}

/// Does it, and says what came of it.
pub(crate) fn run(traffic: Traffic) -> Result<ExitCode> {
    match traffic.what {
        What::Capture { act } => capture::run(act),
        What::Key { file } => {
            Key::make(&file)?;
            say!("{}: without it what is encrypted with it is lost", file.display())?;
            Ok(ExitCode::SUCCESS)
        }
        What::Anonymise(anonymise) => anonymise::run(&anonymise),
        What::Import(import) => import::run(&import),
        What::Export(export) => export::run(&export),
        What::Fetch(fetch) => objects::fetch(&fetch),
        What::Push(push) => objects::push(&push),
        What::Replay(replay) => replay::run(*replay),
        What::Compare(compare) => compare::run(&compare),
    }
}

/// A bar of so many steps, which goes once all is done.
fn bar(length: u64, style: &str) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template(style)?;
    Ok(ProgressBar::new(length).with_style(style))
}

/// Says what is missing; exit code 2 then.
fn whole(missing: &[String]) -> Result<ExitCode> {
    for what in missing {
        say!("{what}")?;
    }
    Ok(match missing.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(2),
    })
}

/// The key of a folder that is encrypted.
#[derive(Args)]
struct KeyFile {
    /// A file with the key of folders that are encrypted: 32 bytes, or 64 hexadecimal digits, for its owner
    /// alone.
    #[arg(long)]
    key_file: Option<PathBuf>,
}

impl KeyFile {
    fn read(&self) -> Result<Option<Key>> {
        Ok(self.key_file.as_deref().map(Key::read).transpose()?)
    }
}
