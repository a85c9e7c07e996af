//! `forebay traffic replay`.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use config::Config;
use serde::Deserialize;
use tokio::runtime::Runtime;
use traffic::record::{Lateness, harmless};
use traffic::replay::{
    self, Before, Closing, LeftOut, Login, Logins, Order, Outcome, Permitted, Selection, Speed, Survey,
};

/// Sessions that have failed and are named.
const FAILURES_TOLD: usize = 20;

#[derive(Args)]
pub(super) struct Replay {
    /// The folder with what was captured.
    folder: PathBuf,
    #[command(flatten)]
    key: super::KeyFile,
    /// HOST:PORT of the server; or the name of a cluster in the file of `--config`: the first of its servers
    /// that answers and is not read_only.
    #[arg(long, value_name = "HOST:PORT|CLUSTER")]
    to: String,
    /// The gateway's configuration, for the cluster of `--to`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The new folder for what comes of it; without it FOLDER-replay-1, or the next that is free.
    #[arg(long)]
    result: Option<PathBuf>,
    /// The account for all sessions but those of `--users`.
    #[arg(long)]
    user: Option<String>,
    /// The environment variable with the password of `--user`.
    #[arg(long, requires = "user")]
    password_env: Option<String>,
    /// A TOML file with a table for each captured user: `[app]`, `user = "other"` (without it the same name),
    /// `password = "…"`.
    #[arg(long)]
    users: Option<PathBuf>,
    /// Another name of a schema on the target, as `shop=shop_copy`; may be given several times. It holds
    /// for where sessions begin and for `USE`, not for names within statements.
    #[arg(long, value_parser = schema)]
    schema: Vec<(String, String)>,
    /// When prepared statements are closed.
    #[arg(long, value_enum, default_value = "as-captured")]
    close: Close,
    /// How many times as fast as it was, from 0.1 to 100, or `max`: each session as fast as the server
    /// answers.
    #[arg(long, default_value = "1", value_parser = speed)]
    speed: Speed,
    /// Which of several replayers this is, as `1/3`: each has other sessions. Start all at once, and give
    /// `compare` all of their results.
    #[arg(long, value_parser = index)]
    index: Option<(u32, u32)>,
    /// Only sessions of this captured user.
    #[arg(long)]
    only_user: Option<String>,
    /// Only commands whose current schema was this, and what sessions set for themselves.
    #[arg(long)]
    only_schema: Option<String>,
    /// Only statements with this digest (16 hexadecimal digits, as `compare --json` has them), and what
    /// sessions set for themselves.
    #[arg(long, value_parser = digest)]
    only_digest: Option<u64>,
    /// Begin so long after the beginning of the capture: `90s`, `30m`, `1h`. Of what came before only what
    /// sessions set for themselves is sent, at once.
    #[arg(long, value_parser = super::capture::seconds)]
    after: Option<f64>,
    /// End so long after the beginning of the capture.
    #[arg(long, value_parser = super::capture::seconds)]
    until: Option<f64>,
    /// Only tell what would be sent and what would be left out; nobody is connected to.
    #[arg(long)]
    dry_run: bool,
    /// Only what reads, and what sessions set for themselves.
    #[arg(long)]
    read_only: bool,
    /// Also KILL, SET GLOBAL, statements about accounts and replication, INTO OUTFILE.
    #[arg(long, conflicts_with = "read_only")]
    all: bool,
    /// Go on with a replay that was killed, whose result is in this folder. What was sent already is not sent
    /// again, but for what sessions set for themselves. Give the same options as before.
    #[arg(long, conflicts_with_all = ["result", "dry_run"])]
    resume: Option<PathBuf>,
    /// What orders statements of different sessions: their times alone, or also the ends of transactions.
    #[arg(long, value_enum, default_value = "times")]
    order: By,
    /// Statements that write or ask for the time get the time that it was (`SET TIMESTAMP`).
    #[arg(long)]
    freeze_time: bool,
    /// Ids that the server has made (AUTO_INCREMENT) and that are others now: send those of now where a
    /// statement names the ones of then.
    #[arg(long, value_enum, default_value = "yes")]
    map_ids: YesOrNo,
    /// The capture goes on meanwhile: replay what comes, until it ends.
    #[arg(long, conflicts_with = "dry_run")]
    follow: bool,
    /// Where more than 1 of 100 commands is sent later than this (`100ms`, `2s`), the times of the replay are
    /// worth nothing: it says so at its end, and `compare` does not judge them.
    #[arg(long, value_parser = lateness)]
    max_lateness: Option<f64>,
    /// Keep the first rows of each result: at most 20, and 4 KiB. `compare` of two such replays shows both
    /// where they differ. They are personal data, and may have secrets.
    #[arg(long)]
    keep_results: bool,
    /// Also to a server that is the source, a replica, or of which nobody knows.
    #[arg(long)]
    even_source: bool,
    /// Also to a server at another GTID position than the primary had when the capture began.
    #[arg(long)]
    any_position: bool,
}

fn speed(text: &str) -> Result<Speed, String> {
    let wrong = || "from 0.1 to 100, or max".to_owned();
    match text {
        "max" => Ok(Speed::Max),
        _ => {
            let times: f64 = text.parse().map_err(|_| wrong())?;
            match (0.1..=100.0).contains(&times) {
                true => Ok(Speed::Times(times)),
                false => Err(wrong()),
            }
        }
    }
}

/// `100ms`, or as other times.
fn lateness(text: &str) -> Result<f64, String> {
    match text.strip_suffix("ms") {
        Some(number) => {
            let number: Option<f64> = number.parse().ok();
            let number = number.filter(|number| *number > 0.0 && number.is_finite());
            number
                .map(|number| number / 1e3)
                .ok_or_else(|| "a time like 100ms or 2s".to_owned())
        }
        None => super::capture::seconds(text),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Close {
    /// When their clients have closed them
    AsCaptured,
    /// Behind each execution, and prepared again in front of the next one
    Always,
    /// When their session ends
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Their times alone
    Times,
    /// A transaction begins once those have ended that had ended before it, or after ten seconds
    Commits,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum YesOrNo {
    Yes,
    No,
}

/// `shop=shop_copy`.
fn schema(text: &str) -> Result<(String, String), String> {
    let names = text
        .split_once('=')
        .filter(|(from, to)| !from.is_empty() && !to.is_empty());
    let (from, to) = names.ok_or_else(|| "CAPTURED=TARGET".to_owned())?;
    Ok((from.to_owned(), to.to_owned()))
}

/// `1/3`.
fn index(text: &str) -> Result<(u32, u32), String> {
    let parts = text
        .split_once('/')
        .and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    parts
        .filter(|(index, count)| (1..=*count).contains(index))
        .ok_or_else(|| "which of how many, as 1/3".to_owned())
}

fn digest(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| "hexadecimal digits".to_owned())
}

/// An account of the target, in the file of `--users`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetUser {
    user: Option<String>,
    #[serde(default)]
    password: String,
}

pub(super) fn run(args: Replay) -> Result<ExitCode> {
    let permitted = Permitted {
        read_only: args.read_only,
        all: args.all,
    };
    let micros = |seconds: f64| (seconds * 1e6) as u64;
    let selection = Selection {
        index: args.index,
        user: args.only_user.clone(),
        schema: args.only_schema.clone(),
        digest: args.only_digest,
        from_us: args.after.map_or(0, micros),
        until_us: args.until.map(micros),
    };
    if args.max_lateness.is_some() && args.speed == Speed::Max {
        bail!("--max-lateness: with --speed max nothing is ever late");
    }
    let max_lateness = args
        .max_lateness
        .map(Duration::try_from_secs_f64)
        .transpose()
        .context("--max-lateness")?;
    let key = args.key.read()?;
    let before = args
        .resume
        .as_deref()
        .map(|result| Before::read(result, key.as_ref()))
        .transpose()?;
    if args.follow {
        replay::wait_for_capture(&args.folder, key.as_ref())?;
    }
    let survey = replay::survey(&args.folder, key.as_ref(), permitted, &selection, before.as_ref())?;
    // Where it is written still it ends somewhere.
    for stop in survey.stops.iter().filter(|_| !args.follow) {
        eprintln!("forebay: {stop}");
    }
    if args.dry_run {
        crate::print(&plan(&survey))?;
        return Ok(ExitCode::SUCCESS);
    }
    let logins = logins(&args)?;
    let order = Order {
        target: target(&args, &logins)?,
        result: match args.resume.as_ref().or(args.result.as_ref()) {
            Some(result) => result.clone(),
            None => free_name(&args.folder)?,
        },
        logins,
        from: args.folder,
        key,
        speed: args.speed,
        permitted,
        selection,
        schemas: args.schema.iter().cloned().collect(),
        closing: match args.close {
            Close::AsCaptured => Closing::AsCaptured,
            Close::Always => Closing::Always,
            Close::Never => Closing::Never,
        },
        even_source: args.even_source,
        any_position: args.any_position,
        orders_commits: args.order == By::Commits,
        freezes_time: args.freeze_time,
        follow: args.follow,
        maps_ids: args.map_ids == YesOrNo::Yes,
        max_lateness,
        keeps_results: args.keep_results,
    };
    let result = order.result.clone();
    let style = "{bar:40} {pos}/{len} commands, {per_sec}, {eta} left  {msg}";
    let bar = super::bar(survey.commands, style)?;
    let shown = bar.clone();
    let tell = move |progress: &replay::Progress| {
        shown.set_length(progress.total);
        shown.set_position(progress.done);
        shown.set_message(format!(
            "{} other errors, {:.0} ms late",
            progress.errors_differ,
            progress.late.as_secs_f64() * 1e3
        ));
    };
    let replayed = runtime()?.block_on(replay::replay(
        order,
        &survey,
        before,
        env!("CARGO_PKG_VERSION"),
        tell,
    ));
    bar.finish_and_clear();
    let outcome = replayed?;
    crate::print(&in_words(&outcome))?;
    if survey.done_before > 0 {
        say!("{} commands were done before", survey.done_before)?;
    }
    say!("result: {}", result.display())?;
    say!("compare: forebay traffic compare CAPTURE {}", result.display())?;
    Ok(match outcome.no_login.is_none() && outcome.failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(2),
    })
}

pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn target(args: &Replay, logins: &Logins) -> Result<SocketAddr> {
    if args.to.contains(':') {
        return address(&args.to);
    }
    let servers = servers(&args.to, args.config.as_deref())?;
    Ok(runtime()?.block_on(replay::primary_of(&servers, logins))?)
}

fn servers(cluster: &str, config: Option<&Path>) -> Result<Vec<SocketAddr>> {
    let file = config.with_context(|| {
        format!("--to {cluster} has no port: HOST:PORT, or the name of a cluster and --config FILE")
    })?;
    addresses(&crate::load(file)?, cluster)
}

/// The addresses of a cluster's servers, in their order.
fn addresses(config: &Config, cluster: &str) -> Result<Vec<SocketAddr>> {
    let known = config.clusters.get(cluster);
    let known = known.with_context(|| format!("the configuration has no cluster {cluster}"))?;
    let mut servers = Vec::new();
    for server in &known.servers {
        match address(&server.address.to_string()) {
            Ok(address) => servers.push(address),
            // Another server may be the primary.
            Err(error) => eprintln!("forebay: {error:#}"),
        }
    }
    ensure!(
        !servers.is_empty(),
        "`servers` of the cluster {cluster} has no address that can be used: --to HOST:PORT"
    );
    Ok(servers)
}

/// Of HOST:PORT.
pub(super) fn address(text: &str) -> Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .with_context(|| format!("{text}: HOST:PORT"))?;
    found.next().with_context(|| format!("{text} has no address"))
}

/// The account that `--user` and `--password-env` name.
pub(super) fn login(user: &str, password_env: Option<&str>) -> Result<Login> {
    let password = match password_env {
        Some(name) => std::env::var(name).with_context(|| format!("--password-env {name}"))?,
        None => String::new(),
    };
    Ok(Login {
        user: user.to_owned(),
        password,
    })
}

/// The accounts of a file of `--users`. The parser's own words about a mistake would have the line in them,
/// and a password with it.
fn target_users(text: &str) -> Result<HashMap<String, TargetUser>> {
    toml::from_str(text).map_err(|error| {
        let begin = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(begin).filter(|byte| *byte == b'\n').count() + 1;
        anyhow!("line {line}: expected tables [CAPTURED-USER] with `user` and `password`, both in quotes")
    })
}

fn logins(args: &Replay) -> Result<Logins> {
    let mut logins = Logins::default();
    if let Some(user) = &args.user {
        logins.others = Some(login(user, args.password_env.as_deref())?);
    }
    if let Some(file) = &args.users {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        for (captured, target) in target_users(&text).with_context(|| file.display().to_string())? {
            let login = Login {
                user: target.user.unwrap_or_else(|| captured.clone()),
                password: target.password,
            };
            logins.by_user.insert(captured, login);
        }
    }
    if logins.others.is_none() && logins.by_user.is_empty() {
        bail!("nobody to log in as: --user with --password-env, or --users FILE");
    }
    Ok(logins)
}

/// The next name beside the capture that nobody has.
fn free_name(folder: &Path) -> Result<PathBuf> {
    let folder = folder
        .canonicalize()
        .with_context(|| folder.display().to_string())?;
    (1..10_000)
        .map(|number| {
            let mut name = folder.clone().into_os_string();
            name.push(format!("-replay-{number}"));
            PathBuf::from(name)
        })
        .find(|path| !path.exists())
        .context("no name for the result is free: --result DIR")
}

fn plan(survey: &Survey) -> String {
    let left_out: u64 = survey.left_out.values().sum();
    let mut text = format!(
        "{} commands of {:.3} s: {} would be sent, {left_out} not\n",
        survey.commands,
        survey.length.as_secs_f64(),
        survey.commands - left_out
    );
    text += &reasons(&survey.left_out);
    for (user, sessions) in &survey.users {
        text += &format!("user {user}: {sessions} sessions\n");
    }
    text += &of_open(survey.was_open);
    harmless(&text)
}

fn in_words(outcome: &Outcome) -> String {
    let left_out: u64 = outcome.left_out.values().sum();
    let mut text = format!(
        "{} commands of {} sessions sent in {:.3} s, {left_out} left out\n",
        outcome.sent,
        outcome.sessions,
        outcome.took.as_secs_f64()
    );
    text += &reasons(&outcome.left_out);
    text += &of_open(outcome.was_open);
    if let Some([median, high, most]) = outcome.late_us {
        let ms = |us: u64| us as f64 / 1e3;
        text += &format!(
            "late: median {:.3} ms, 99 % {:.3} ms, most {:.3} ms\n",
            ms(median),
            ms(high),
            ms(most)
        );
    }
    if let Some(verdict) = outcome.lateness.as_ref().and_then(Lateness::verdict) {
        text += &format!("{verdict}\n");
    }
    if let Some((count, why)) = &outcome.no_login {
        text += &format!("{count} times there was no connection: {why}\n");
    }
    text += &failures(&outcome.failed);
    for (count, what) in [
        (
            outcome.out_of_order,
            "transactions had to begin before all had ended that should have",
        ),
        (outcome.not_frozen, "times the target has refused another time"),
        (
            outcome.ids.others,
            "ids that the target has made are others than they were",
        ),
        (outcome.ids.mapped, "values were sent as ids of now"),
        (
            outcome.ids.left,
            "values that may be ids of then were sent as they were: nobody can tell, or their type has no room",
        ),
        (
            outcome.ids.not_kept,
            "ids could not be kept: of tables that were not there at the beginning, or too many",
        ),
    ] {
        if count > 0 {
            text += &format!("{count} {what}\n");
        }
    }
    for stop in &outcome.stops {
        text += &format!("{stop}\n");
    }
    harmless(&text)
}

/// The first sessions that have failed, and how many others.
fn failures(failed: &BTreeMap<u32, String>) -> String {
    let first = failed.iter().take(FAILURES_TOLD);
    let line = |(session, why): (&u32, &String)| {
        format!("session {session} has failed, by a fault of this program: {why}\n")
    };
    let mut text: String = first.map(line).collect();
    if failed.len() > FAILURES_TOLD {
        text += &format!("{} others have failed as well\n", failed.len() - FAILURES_TOLD);
    }
    text
}

fn reasons(left_out: &BTreeMap<LeftOut, u64>) -> String {
    let line = |(why, count): (&LeftOut, &u64)| format!("{count:>10}  {why}\n");
    left_out.iter().map(line).collect()
}

fn of_open(count: u64) -> String {
    match count {
        0 => String::new(),
        _ => format!(
            "{count} sessions were there before the capture: what they had set, prepared and locked is missing, but for \
             user and schema\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replayer_is_one_of_some() {
        assert_eq!((index("1/1"), index("3/3")), (Ok((1, 1)), Ok((3, 3))));
        for wrong in ["0/3", "4/3", "1", "a/b", ""] {
            assert!(index(wrong).is_err(), "{wrong}");
        }
        assert!(digest("00ff") == Ok(255) && digest("x").is_err());
    }

    #[test]
    fn a_mistake_in_the_file_of_accounts_shows_no_password() {
        let right = target_users("[app]\npassword = \"hunter2\"\n").unwrap();
        assert_eq!(right["app"].password, "hunter2");
        for wrong in [
            "password = hunter2",
            "password = \"hunter2",
            "passwort = \"hunter2\"",
        ] {
            let error = target_users(&format!("[app]\n{wrong}\n")).err().unwrap();
            let error = format!("{error:#}");
            assert!(
                error.starts_with("line 2: ") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_cluster_is_one_of_the_configuration() {
        let error = servers("main", None).unwrap_err().to_string();
        assert!(error.contains("--config FILE"), "{error}");
        let text = "[[listener]]\nbind = \"127.0.0.1:6033\"\ncluster = \"main\"\n\
                    [cluster.main]\nservers = [\"127.0.0.1:3307\", \"127.0.0.1\"]\n";
        let config = Config::parse(text, "f.toml").unwrap();
        let ports = addresses(&config, "main").unwrap();
        let ports: Vec<_> = ports.iter().map(SocketAddr::port).collect();
        assert_eq!(ports, [3307, 3306]);
        let error = addresses(&config, "other").unwrap_err().to_string();
        assert!(error.contains("no cluster other"), "{error}");
    }

    #[test]
    fn sessions_that_have_failed_are_named() {
        let said = |count: u32| {
            let failed = (1..=count).map(|session| (session, "a fault".to_owned()));
            in_words(&Outcome {
                failed: failed.collect(),
                ..Outcome::default()
            })
        };
        assert!(!said(0).contains("failed"));
        assert!(said(2).contains("session 2 has failed, by a fault of this program: a fault\n"));
        assert!(said(2).ends_with("a fault\n") && said(25).ends_with("5 others have failed as well\n"));
    }

    #[test]
    fn a_replay_that_was_too_late_says_that_its_times_are_worth_nothing() {
        assert_eq!((lateness("100ms"), lateness("2s")), (Ok(0.1), Ok(2.0)));
        assert!(lateness("0ms").is_err() && lateness("late").is_err());
        let said = |limit_us| {
            in_words(&Outcome {
                lateness: Some(Lateness {
                    p99_us: 2_000,
                    limit_us,
                    ..Lateness::default()
                }),
                ..Outcome::default()
            })
        };
        assert!(said(Some(1_000)).contains("worth nothing"));
        assert!(!said(Some(2_000)).contains("worth nothing") && !said(None).contains("worth nothing"));
    }
}
