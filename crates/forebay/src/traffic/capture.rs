//! `forebay traffic capture`: acts on a running gateway, and looks at folders.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::Value;
use traffic::Folder;
use traffic::objects::Location;
use traffic::offline::{self, Summary};
use traffic::record::{Record, digest_of, harmless};

use super::KeyFile;
use crate::ctl::{self, Gateway, GatewayPlace, date, escaped};

#[derive(Subcommand)]
pub(super) enum Act {
    /// Begins. The folder is made on the gateway's machine, for its system user alone.
    Start(Box<Start>),
    /// Ends that, and waits until everything is written.
    Stop {
        #[command(flatten)]
        place: GatewayPlace,
    },
    /// Tells how the present capture is, or how the last one was, as JSON.
    Status {
        #[command(flatten)]
        place: GatewayPlace,
    },
    /// Lists the folders with captured or replayed traffic in a folder.
    List {
        /// The folder in which they are.
        #[arg(default_value = ".")]
        folder: PathBuf,
        #[command(flatten)]
        key: KeyFile,
    },
    /// Reads all of a folder, and says what it has. Exit code 2: not all of it can be read.
    Verify {
        /// The folder.
        folder: PathBuf,
        #[command(flatten)]
        key: KeyFile,
    },
    /// Prints what a folder has, one line a command.
    Show {
        /// The folder.
        folder: PathBuf,
        #[command(flatten)]
        key: KeyFile,
        /// Only this session.
        #[arg(long)]
        session: Option<u32>,
        /// Only commands that ended with an error.
        #[arg(long)]
        errors: bool,
        /// The most lines.
        #[arg(long, default_value_t = 1000)]
        limit: u64,
    },
}

#[derive(Args)]
pub(super) struct Start {
    #[command(flatten)]
    place: GatewayPlace,
    /// The new folder, as an absolute path on the gateway's machine; or `s3://BUCKET/PREFIX`,
    /// `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, with the account in the gateway's environment.
    #[arg(long, value_name = "DIR|URL")]
    to: PathBuf,
    /// With a URL: the new folder, as an absolute path on the gateway's machine, in which files wait until
    /// the store has them.
    #[arg(long)]
    spool: Option<PathBuf>,
    /// It ends after so long: `90`, `90s`, `30m`, `1h`.
    #[arg(long, value_parser = seconds)]
    duration: Option<f64>,
    /// It ends once its files have so many bytes: `500MiB`, `20GiB`, or a number.
    #[arg(long, value_parser = bytes)]
    max_size: Option<u64>,
    /// It ends once less of the disk is free, in percent.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=100))]
    free_disk: u8,
    /// The share of sessions that is captured, from 0 to 1.
    #[arg(long)]
    sample: Option<f64>,
    /// Only sessions of this account.
    #[arg(long)]
    user: Option<String>,
    /// Only commands whose current schema is this, and what sessions set for themselves.
    #[arg(long)]
    schema: Option<String>,
    /// Only sessions that came by this listener.
    #[arg(long)]
    listener: Option<String>,
    /// Only statements with this digest (16 hexadecimal digits, as `compare --json` has them), and what
    /// sessions set for themselves.
    #[arg(long, value_name = "HEX", value_parser = digest)]
    digest: Option<String>,
    /// Also the files that clients send for `LOAD DATA LOCAL INFILE`, up to so many bytes for a statement:
    /// `500KiB`, at most `32MiB`; `16MiB` where none is said. Longer ones are left out whole.
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "16MiB", value_parser = bytes)]
    load_data: Option<u64>,
    /// Where the disk does not keep up the capture ends, instead of leaving sessions out from there on.
    #[arg(long)]
    end_when_full: bool,
    /// Encrypt the files with the key in this file on the gateway's machine, by its absolute path; see
    /// `forebay traffic key`.
    #[arg(long)]
    key_file: Option<PathBuf>,
}

/// `90`, `90s`, `30m`, `1h`, in seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        _ => (text, 1.0),
    };
    let number: Option<f64> = number.parse().ok().filter(|number| *number > 0.0);
    let number = number.filter(|number| number.is_finite());
    number
        .map(|number| number * unit)
        .ok_or_else(|| "a time like 90s, 30m or 1h".to_owned())
}

fn digest(text: &str) -> Result<String, String> {
    digest_of(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "16 hexadecimal digits".to_owned())
}

/// `500MiB`, `20GiB`, or a number.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let unit = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1));
    let number: Option<u64> = number.trim().parse().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "a size like 500MiB or 20GiB".to_owned())
}

pub(super) fn run(act: Act) -> Result<ExitCode> {
    match act {
        Act::Start(start) => begin(*start)?,
        Act::Stop { place } => stop(&ctl::gateway(place)?)?,
        Act::Status { place } => say!("{}", ctl::gateway(place)?.get("/traffic/capture")?)?,
        Act::List { folder, key } => {
            let key = key.read()?;
            for folder in offline::folders(&folder)? {
                match Folder::open_one_of_several(&folder, key.as_ref()) {
                    Ok(read) => say!(
                        "{}  {}  {}",
                        folder.display(),
                        harmless(&read.head().kind),
                        utc(read.head().began_unix_us)
                    )?,
                    Err(error) => say!("{error}")?,
                }
            }
        }
        Act::Verify { folder, key } => {
            let summary = offline::summary(&folder, key.read()?.as_ref())?;
            crate::print(&in_words(&summary))?;
            // One that runs still, or was killed, has no end.
            if !summary.stops.is_empty() || summary.end.is_none() {
                return Ok(ExitCode::from(2));
            }
        }
        Act::Show {
            folder,
            key,
            session,
            errors,
            limit,
        } => show(
            Folder::open(&folder, key.read()?.as_ref())?,
            session,
            errors,
            limit,
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

fn begin(start: Start) -> Result<()> {
    let to = start.to.to_str().context("the name of the folder is no text")?;
    let is_remote = Location::is_meant(to);
    if is_remote {
        to.parse::<Location>()?;
        ensure!(
            start.spool.is_some(),
            "name a folder with --spool, too: files wait there, on the gateway's machine, until the store has them"
        );
    } else {
        ensure!(
            start.spool.is_none(),
            "--spool is for a capture that goes to an object store"
        );
    }
    for folder in start.spool.iter().chain(Some(&start.to).filter(|_| !is_remote)) {
        ensure!(
            folder.is_absolute(),
            "{}: name the folder by an absolute path: it is made on the gateway's machine",
            folder.display()
        );
    }
    let mut path = format!(
        "/traffic/capture?to={}&free_disk={}",
        escaped(to),
        start.free_disk
    );
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            path += &format!("&{name}={}", escaped(&value));
        }
    };
    if let Some(spool) = &start.spool {
        let name = spool.to_str().context("the name of the folder is no text")?;
        add("spool", Some(name.to_owned()));
    }
    add("duration", start.duration.map(|seconds| seconds.to_string()));
    add("max_size", start.max_size.map(|bytes| bytes.to_string()));
    add("sample", start.sample.map(|share| share.to_string()));
    add("user", start.user);
    add("schema", start.schema);
    add("listener", start.listener);
    add("digest", start.digest);
    add("load_data", start.load_data.map(|bytes| bytes.to_string()));
    add("end_when_full", start.end_when_full.then(|| "true".to_owned()));
    if let Some(file) = &start.key_file {
        let name = file.to_str().context("the name of the key file is no text")?;
        path += &format!("&key_file={}", escaped(name));
    }
    ctl::gateway(start.place)?.put(&path)?;
    say!("captured to {to}, which is personal data; forebay traffic capture stop ends it")
}

/// Waits until the last record is written, and until the store has all, where it goes to one.
fn stop(gateway: &Gateway) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    const PATIENCE: Duration = Duration::from_secs(60);
    gateway.put("/traffic/capture/stop")?;
    let (mut changed, mut seen) = (Instant::now(), None);
    loop {
        let status: Value = ctl::parsed(&gateway.get("/traffic/capture")?)?;
        let upload = &status["upload"];
        if status["state"] == "ended" && upload["state"] != "running" {
            let to = if upload.is_null() {
                &status["folder"]
            } else {
                &upload["to"]
            };
            say!(
                "{}: {} commands of {} sessions, {} bytes",
                to.as_str().unwrap_or_default(),
                status["commands"],
                status["sessions"],
                status["bytes"]
            )?;
            ensure!(upload["state"] != "given-up", left(&status));
            return Ok(());
        }
        // As long as files get there, they may take as long as they take.
        let now = Some((status["state"].clone(), upload["files"].clone()));
        if seen != now {
            (changed, seen) = (Instant::now(), now);
        }
        if changed.elapsed() >= PATIENCE {
            ensure!(
                status["state"] == "ended",
                "it has not ended within {PATIENCE:?}: the gateway's log says why"
            );
            bail!(
                "{}\nthe gateway goes on trying for ten minutes; forebay traffic capture stop gives it up now",
                left(&status)
            );
        }
        sleep(LOOK_EVERY);
    }
}

/// What an object store does not have, and how it gets there.
fn left(status: &Value) -> String {
    let (folder, upload) = (&status["folder"], &status["upload"]);
    let (folder, to) = (
        folder.as_str().unwrap_or_default(),
        upload["to"].as_str().unwrap_or_default(),
    );
    format!(
        "{to} does not have {} files with {} bytes, which stay in {folder} on the gateway's machine\n\
         the store says: {}\n\
         forebay traffic push {folder} {to} sends them from there",
        upload["waiting_files"],
        upload["waiting_bytes"],
        upload["error"].as_str().unwrap_or_default()
    )
}

fn show(mut folder: Folder, session: Option<u32>, errors: bool, limit: u64) -> Result<()> {
    let mut lines = 0;
    while let Some(record) = folder.next_record()? {
        let line = match record {
            Record::Command(command) => {
                if errors && command.error == 0 || session.is_some_and(|wanted| wanted != command.session) {
                    continue;
                }
                command.line()
            }
            Record::Session(one) if !errors && session.is_none_or(|wanted| wanted == one.id) => format!(
                "{:>12.6} {:>8} session of {} by {}, schema {}{}",
                one.at_us as f64 / 1e6,
                one.id,
                one.user,
                one.listener,
                String::from_utf8_lossy(&one.schema),
                if one.was_open { ", open before" } else { "" }
            ),
            Record::Thinned { session } => {
                format!("{session:>21} not captured any further: the queue was full")
            }
            _ => continue,
        };
        if lines == limit {
            crate::print("…\n")?;
            break;
        }
        lines += 1;
        crate::print(&format!("{line}\n"))?;
    }
    Ok(())
}

fn in_words(summary: &Summary) -> String {
    let head = &summary.head;
    let mut text = format!(
        "{} of forebay {}, begun {}\n{} commands of {} sessions in {:.3} s, {} bytes in {} files\n",
        head.kind,
        head.forebay,
        utc(head.began_unix_us),
        summary.commands,
        summary.sessions,
        summary.length.as_secs_f64(),
        summary.bytes,
        summary.files
    );
    for server in &head.servers {
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
        text += &format!(
            "server {} ({}, {}): version {}, server_uuid {}, server_id {}, GTIDs {}\n",
            server.name,
            server.cluster,
            server.role,
            known(&server.version),
            known(&server.server_uuid),
            known(&server.server_id),
            known(&server.gtid_position)
        );
        if let Some(missing) = &server.missing {
            text += &format!("  not asked: {missing}\n");
        }
    }
    if head.is_anonymised {
        text += "anonymised: values are pseudonyms\n";
    }
    for (user, commands) in &summary.users {
        text += &format!("user {user}: {commands} commands\n");
    }
    if summary.withheld > 0 {
        text += &format!("{} commands as a digest alone\n", summary.withheld);
    }
    if summary.thinned > 0 {
        text += &format!("{} sessions only in part: the queue was full\n", summary.thinned);
    }
    match &summary.end {
        Some(end) if end.words.is_empty() => text += &format!("ended: {}\n", end.reason),
        Some(end) => text += &format!("ended: {} ({})\n", end.reason, end.words),
        None => text += "no end: it is written still, or whoever wrote it was killed\n",
    }
    for stop in &summary.stops {
        text += &format!("{stop}\n");
    }
    harmless(&text)
}

/// The day and time in UTC.
fn utc(unix_us: u64) -> String {
    format!("{} UTC", date(unix_us / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(seconds("90"), Ok(90.0));
        assert_eq!(seconds("1.5m"), Ok(90.0));
        assert_eq!(seconds("1h"), Ok(3600.0));
        assert!(seconds("soon").is_err() && seconds("-1").is_err() && seconds("").is_err());
        assert_eq!(bytes("2KiB"), Ok(2048));
        assert_eq!(bytes("7"), Ok(7));
        assert!(bytes("7 GB").is_err() && bytes("0").is_err());
    }

    #[test]
    fn a_digest_has_sixteen_digits() {
        assert!(digest("00ff00ff00ff00ff").is_ok());
        for wrong in ["00ff", "+0ff00ff00ff00ff", "00ff00ff00ff00fg", ""] {
            assert!(digest(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_moment_is_told_by_its_date() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(1_709_210_096_000_000), "2024-02-29 12:34:56 UTC");
        assert_eq!(utc(1_798_761_599_000_000), "2026-12-31 23:59:59 UTC");
    }
}
