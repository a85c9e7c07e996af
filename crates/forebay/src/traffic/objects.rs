//! `forebay traffic fetch` and `push`: folders from and to object stores.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use traffic::objects::{self, Location, ObjectsError};

#[derive(Args)]
pub(super) struct Fetch {
    /// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`; the account is in the
    /// environment, as for the vendor's own tools.
    #[arg(value_parser = location)]
    url: Location,
    /// A new folder, or an empty one; it is for this user alone.
    folder: PathBuf,
}

#[derive(Args)]
pub(super) struct Push {
    /// The folder, which stays as it is.
    folder: PathBuf,
    /// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`; the account is in the
    /// environment, as for the vendor's own tools.
    #[arg(value_parser = location)]
    url: Location,
}

fn location(text: &str) -> Result<Location, ObjectsError> {
    text.parse()
}

pub(super) fn fetch(args: &Fetch) -> Result<ExitCode> {
    let bar = super::bar(0, "{bar:40} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left")?;
    let fetched = objects::fetch(&args.url, &args.folder, &mut |bytes, all| {
        bar.set_length(all);
        bar.set_position(bytes);
    })?;
    bar.finish_and_clear();
    say!(
        "{}: {} bytes in {} files; it is personal data",
        args.folder.display(),
        fetched.bytes,
        fetched.files
    )?;
    super::whole(&fetched.missing)
}

pub(super) fn push(args: &Push) -> Result<ExitCode> {
    let bar = super::bar(0, "{bar:40} {pos}/{len} files, {eta} left")?;
    let pushed = objects::push(&args.folder, &args.url, &mut |files, all| {
        bar.set_length(all as u64);
        bar.set_position(files as u64);
    })?;
    bar.finish_and_clear();
    say!(
        "{}: {} bytes in {} files; {} is still here",
        args.url,
        pushed.bytes,
        pushed.files,
        args.folder.display()
    )?;
    super::whole(&pushed.missing)
}
