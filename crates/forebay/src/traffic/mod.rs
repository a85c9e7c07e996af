//! `forebay traffic`: captures what clients say to a running gateway, replays it on another server, and tells
//! what is different there.

mod capture;
mod compare;
mod export;
mod import;
mod replay;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

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
    /// Write a folder as SQL text.
    Export(export::Export),
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
        What::Import(import) => import::run(&import),
        What::Export(export) => export::run(&export),
        What::Replay(replay) => replay::run(*replay),
        What::Compare(compare) => compare::run(&compare),
    }
}
