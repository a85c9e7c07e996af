//! The lab measures what a gateway costs and gives, on real processes, and shows it working.
//!
//! [`overhead`] compares this program with HAProxy in front of a server that costs almost nothing, and
//! [`split`] in front of a primary and replicas, on connections that sessions share. [`cache`] compares rows
//! from memory with Redis. [`capture`] measures what capturing traffic costs, and whether a replay tells a
//! changed row. [`disruption`] restarts servers under load and tells what clients saw. [`report`]
//! repeats published reports with these and makes a page of them. [`demo`] runs the gateway in front of three
//! real servers. [`cli`] is how the binary mounts them. Nothing here is on the
//! path of a query.

// `println!` panics where whoever reads has read enough, and figures were long in the making.
#![deny(clippy::print_stdout)]

/// Writes a line to standard output, whether somebody reads it or not.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

pub mod cache;
pub mod capture;
mod child;
pub mod cli;
mod client;
pub mod demo;
pub mod disruption;
pub mod machine;
pub mod overhead;
pub mod report;
pub mod split;
mod sysbench;
mod tpcc;
pub mod usage;

/// Tells in a line that changes what is being done.
fn spinner() -> indicatif::ProgressBar {
    let progress = indicatif::ProgressBar::new_spinner();
    progress.enable_steady_tick(std::time::Duration::from_millis(200));
    progress
}

/// Waits for a thread of a load. `who`: the one that has panicked, if it has.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>, who: &str) -> anyhow::Result<T> {
    let ended = thread.join();
    ended.unwrap_or_else(|_| anyhow::bail!("{who} has panicked"))
}

/// Writes the name that a value has on the command line.
fn write_name(value: &impl clap::ValueEnum, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    let name = value.to_possible_value();
    out.pad(name.as_ref().map_or("", |name| name.get_name()))
}
