//! `forebay ctl`: what an operator does to a running gateway, over the socket of `[admin]` or its address.

mod balance;
mod drain;
mod fleet;
mod gateway;
mod mirrors;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use config::{Config, Secret};
use mysql_wire::binlog::Date;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use self::gateway::Gateway;
use crate::token;
pub(crate) use ::fleet::escaped;

/// `HOST:PORT` where neither `--address` nor `--socket` says where the gateway is.
const ADDRESS: &str = "FOREBAY_ADDRESS";
/// What names the socket where nobody says anything.
const CONFIG: &str = "/etc/forebay/forebay.toml";
/// The file where `--token-file` names none.
const TOKEN_FILE: &str = "FOREBAY_TOKEN_FILE";
/// Seconds since 1970 that are no date any more.
const LAST_SECOND: u64 = 253_402_300_799;

/// Where the gateway is, and how to tell what it says.
#[derive(Args)]
pub(crate) struct Ctl {
    #[command(flatten)]
    place: GatewayPlace,
    /// For programs: JSON as the gateway gives it.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    act: Act,
}

/// Where the gateway is.
#[derive(Args)]
pub(crate) struct GatewayPlace {
    /// The gateway's configuration file, which names the socket; FOREBAY_ADDRESS does not count then. Without
    /// either it is /etc/forebay/forebay.toml.
    #[arg(short, long)]
    config: Option<PathBuf>,
    /// The socket itself (`[admin] socket`).
    #[arg(long)]
    socket: Option<PathBuf>,
    /// HOST:PORT of its admin server (`[admin] bind`) instead of the socket; acts need the token. Also by the
    /// environment variable FOREBAY_ADDRESS.
    #[arg(long, conflicts_with = "socket")]
    address: Option<String>,
    /// The file with the token (`[admin] token_file`), for `--address`. Also by FOREBAY_TOKEN_FILE.
    #[arg(long)]
    token_file: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Act {
    /// Has all leave servers, and waits until they are empty. They go on draining until `undrain`, also when
    /// this is interrupted. Exit code 2: sessions are left at the deadline.
    Drain(drain::Order),
    /// Has a server take sessions again.
    Undrain {
        /// Its name.
        server: String,
        /// Needed where several clusters have a server of that name.
        #[arg(long)]
        cluster: Option<String>,
        /// Of several gateways with one configuration only this one.
        #[arg(long)]
        here: bool,
    },
    /// Lists servers that drain, and what holds their sessions.
    Drains,
    /// Has the statements of a cluster wait, but for those of transactions, until `resume`: at most
    /// `pause_timeout` each.
    Pause {
        /// Its name; not needed where there is but one.
        cluster: Option<String>,
        /// Of several gateways with one configuration only this one.
        #[arg(long)]
        here: bool,
    },
    /// Has them go on.
    Resume {
        /// Its name; not needed where there is but one.
        cluster: Option<String>,
        /// Of several gateways with one configuration only this one.
        #[arg(long)]
        here: bool,
    },
    /// Makes another server the primary: statements wait meanwhile. Exit code 2: nothing has changed, 3: in
    /// the middle.
    Switchover {
        /// The cluster.
        cluster: String,
        /// The server that is to be the primary.
        #[arg(long)]
        to: String,
        /// Only look whether it could be done.
        #[arg(long)]
        check: bool,
    },
    /// Has a new process take over, with the program as it is on the disk now. Sessions go there between two
    /// commands; those that cannot (TLS, compression) stay with the old one until they end, for at most
    /// `upgrade_timeout`.
    Upgrade,
    /// Shows how sessions are spread over the servers, and who has moved so that the load evens out.
    Balance {
        /// Only of this one.
        cluster: Option<String>,
    },
    /// Shows how answers to copies of statements compare with the clients' own (`mirror_compare` of rules),
    /// and which statements are answered differently.
    Mirrors,
    /// Lists sessions.
    Sessions {
        /// Only those that something holds on their server.
        #[arg(long)]
        pinned: bool,
        /// The most of each worker.
        #[arg(long, default_value_t = 1000)]
        limit: usize,
        /// Of all gateways of the fleet, each asked at the address of its admin server. Exit code 1: some
        /// were not reached.
        #[arg(long)]
        all: bool,
    },
    /// Ends a session, by the number that `sessions` shows.
    Kill {
        /// Its number.
        id: u32,
        /// Only the statement that it has under way.
        #[arg(long)]
        query: bool,
        /// The gateway of the fleet that it is on, which is asked at the address of its admin server, with
        /// the token.
        #[arg(long = "gateway")]
        of: Option<String>,
    },
    /// Has `/readyz` say 503, so that balancers in front send no more clients. Sessions go on, and whoever
    /// comes all the same is served. It is forgotten at a restart or an upgrade.
    Unready {
        /// Why, for those who read `/readyz`.
        #[arg(long)]
        reason: Option<String>,
        /// After which it ends by itself: 90s, 10m. Without it only `ready` ends it.
        #[arg(long = "for", value_name = "DURATION", value_parser = drain::duration)]
        limit: Option<Duration>,
    },
    /// Ends that.
    Ready,
    /// Reads the configuration again.
    Reload,
    /// Shows what is logged, or changes it until the next such change, or a reload that changes `log.level`.
    Log {
        /// A level for all parts (`debug`), PART=LEVEL, or `configured` for what the configuration says.
        level: Option<String>,
    },
    /// Reads mapping tables again, and tries again what cannot be served from memory.
    FlushCache,
    /// Listeners, clusters, servers and workers, as JSON.
    Status,
    #[command(flatten)]
    Fleet(fleet::Act),
}

/// Does what is asked, and says what came of it.
pub(crate) fn run(ctl: Ctl) -> Result<ExitCode> {
    let token_file = ctl.place.token_file.clone();
    // The token is for the other gateway then.
    let is_elsewhere = matches!(ctl.act, Act::Kill { of: Some(_), .. });
    act(
        &gateway_or_other(ctl.place, is_elsewhere)?,
        ctl.act,
        ctl.json,
        token_file,
    )
}

/// The gateway that is meant.
pub(crate) fn gateway(place: GatewayPlace) -> Result<Gateway> {
    gateway_or_other(place, false)
}

fn gateway_or_other(place: GatewayPlace, is_elsewhere: bool) -> Result<Gateway> {
    // What is said on the command line counts before the environment.
    let of_environment = || {
        let address = std::env::var(ADDRESS).ok()?;
        (place.config.is_none() && place.socket.is_none() && !address.is_empty()).then_some(address)
    };
    Ok(match (place.address.or_else(of_environment), place.socket) {
        (Some(address), _) => Gateway::Address(address, token_in(place.token_file)?),
        (None, _) if place.token_file.is_some() && !is_elsewhere => {
            bail!(
                "--token-file is for an address: --address HOST:PORT or {ADDRESS}; the socket needs no token"
            )
        }
        (None, Some(socket)) => Gateway::Socket(socket),
        (None, None) => Gateway::Socket(socket_of(place.config.as_deref().unwrap_or(Path::new(CONFIG)))?),
    })
}

/// The token of this file, or of the one that the environment names.
fn token_in(file: Option<PathBuf>) -> Result<Option<Secret>> {
    let of_environment = || std::env::var_os(TOKEN_FILE).filter(|file| !file.is_empty());
    let file = file.or_else(|| of_environment().map(PathBuf::from));
    let token = file.map(|file| token::read(&file)).transpose()?;
    Ok(token.map(|(token, _)| token))
}

/// The part of a configuration that names the socket.
#[derive(Deserialize)]
struct Named {
    admin: Option<NamedAdmin>,
}

#[derive(Deserialize)]
struct NamedAdmin {
    socket: Option<PathBuf>,
}

/// The socket that a configuration names. Mistakes elsewhere in it, and secrets and files that only the
/// gateway has, keep nobody from a gateway that runs.
fn socket_of(config: &Path) -> Result<PathBuf> {
    let name = config.display().to_string();
    let text = std::fs::read_to_string(config).with_context(|| name.clone())?;
    let socket = match toml::from_str::<Named>(&text) {
        Ok(named) => named.admin.and_then(|admin| admin.socket),
        // The words of `check` have the place, and no line of the file in them.
        Err(_) => {
            let parsed = Config::parse(&text, &name).map_err(|errors| anyhow!("{errors}"))?;
            parsed.admin.and_then(|admin| admin.socket)
        }
    };
    let folder = config.parent().unwrap_or(Path::new(""));
    let socket = socket.map(|socket| folder.join(socket));
    socket.with_context(|| {
        format!(
            "{} has no `socket` in [admin]: add socket = \"/run/forebay/admin.sock\" and restart the gateway, \
             or name it with --socket, or the admin server with --address",
            config.display()
        )
    })
}

fn act(gateway: &Gateway, act: Act, json: bool, token: Option<PathBuf>) -> Result<ExitCode> {
    match act {
        Act::Fleet(act) => return fleet::run(gateway, &act, json),
        Act::Drain(order) => return drain::run(gateway, &order, json),
        Act::Undrain {
            server,
            cluster,
            here,
        } => {
            let query = of_server(&server, cluster.as_deref());
            gateway.put(&format!("/undrain?{query}&here={here}"))?;
        }
        Act::Pause { cluster, here } => {
            gateway.put(&format!("/pause?here={here}{}", of_cluster(cluster.as_deref())))?;
        }
        Act::Resume { cluster, here } => {
            gateway.put(&format!("/resume?here={here}{}", of_cluster(cluster.as_deref())))?;
        }
        Act::Switchover { cluster, to, check } => {
            let (cluster, to) = (escaped(&cluster), escaped(&to));
            gateway.put(&format!(
                "/switchover?cluster={cluster}&to={to}&check_only={check}"
            ))?;
            return until_switched(gateway, &cluster, json);
        }
        Act::Upgrade => return upgrade(gateway),
        Act::Drains => show(&gateway.get("/drains")?, json, drain::list)?,
        Act::Balance { cluster } => {
            let cluster = cluster.map(|cluster| format!("?cluster={}", escaped(&cluster)));
            let text = gateway.get(&format!("/balance{}", cluster.unwrap_or_default()))?;
            show(&text, json, balance::table)?;
        }
        Act::Mirrors => show(&(gateway.get("/mirrors")? + "\n"), json, mirrors::table)?,
        Act::Sessions { pinned, limit, all } => {
            let page = format!("/sessions?limit={limit}&pinned={pinned}");
            let (text, are_all_there) = match all {
                true => fleet::of_all(gateway, &page)?,
                false => (gateway.get(&page)?, true),
            };
            show(&text, json, sessions)?;
            return Ok(ExitCode::from(u8::from(!are_all_there)));
        }
        Act::Kill { id, query, of } => {
            let page = format!("/kill?id={id}&query={query}");
            match of {
                Some(name) => fleet::other(gateway, &name, token)?.put(&page)?,
                None => gateway.put(&page)?,
            };
        }
        Act::Unready { reason, limit } => {
            let reason = reason.map(|reason| format!("&reason={}", escaped(&reason)));
            let limit = limit.map(|limit| format!("&for={}", limit.as_secs_f64()));
            gateway.put(&format!(
                "/readyz?ready=false{}{}",
                reason.unwrap_or_default(),
                limit.unwrap_or_default()
            ))?;
        }
        Act::Ready => {
            gateway.put("/readyz?ready=true")?;
        }
        Act::Reload => crate::print(&gateway.put("/reload")?)?,
        Act::Log { level } => {
            let said = match level {
                Some(level) => gateway.put(&format!("/log?level={}", escaped(&level)))?,
                None => gateway.get("/log")?,
            };
            crate::print(&said)?;
        }
        Act::FlushCache => {
            gateway.put("/cache/flush")?;
        }
        Act::Status => say!("{}", gateway.get("/status")?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints an answer: for programs as it is, for people as a table.
fn show(answer: &str, json: bool, table: fn(&str) -> Result<String>) -> Result<()> {
    match json {
        true => crate::print(answer),
        false => crate::print(&table(answer)?),
    }
}

/// Reads an answer of the gateway in JSON.
pub(crate) fn parsed<T: DeserializeOwned>(answer: &str) -> Result<T> {
    serde_json::from_str(answer).context("the gateway's answer makes no sense")
}

/// Waits until another process answers.
fn upgrade(gateway: &Gateway) -> Result<ExitCode> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_secs(60);
    let look = || -> Result<Value> { parsed(&gateway.get("/status")?) };
    let before = look()?["process_id"].clone();
    gateway.put("/upgrade")?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        sleep(LOOK_EVERY);
        // Whoever was asked may just have left.
        let Ok(status) = look() else { continue };
        if status["process_id"] != before {
            say!("process {} has taken over from {before}", status["process_id"])?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(why) = status["failed_upgrade"].as_str() {
            bail!("no upgrade: {why}");
        }
    }
    bail!("no other process has answered within {PATIENCE:?}: the log says why")
}

/// Tells each step as it comes, until the last.
fn until_switched(gateway: &Gateway, cluster: &str, json: bool) -> Result<ExitCode> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let mut told = 0;
    loop {
        let all: Vec<Value> = parsed(&gateway.get("/switchovers")?)?;
        let is_it = |switchover: &&Value| {
            let name = switchover["cluster"].as_str();
            name.is_some_and(|name| escaped(name) == cluster)
        };
        let Some(switchover) = all.iter().find(is_it) else {
            bail!("the gateway knows nothing of the switchover: it was restarted?");
        };
        let steps = switchover["steps"].as_array().map_or(&[][..], Vec::as_slice);
        for step in steps.iter().skip(told).filter(|_| !json) {
            let (at, what) = (step["at_seconds"].as_f64(), step["what"].as_str());
            say!("{:8.3} s  {}", at.unwrap_or_default(), what.unwrap_or_default())?;
        }
        told = steps.len();
        let state = switchover["state"].as_str().unwrap_or_default();
        if state == "running" {
            sleep(LOOK_EVERY);
            continue;
        }
        match json {
            true => say!("{switchover}")?,
            false => conclude(switchover, state)?,
        }
        return Ok(match state {
            "done" => ExitCode::SUCCESS,
            "failed" => ExitCode::from(3),
            _ => ExitCode::from(2),
        });
    }
}

fn conclude(switchover: &Value, state: &str) -> Result<()> {
    for warning in switchover["warnings"].as_array().into_iter().flatten() {
        say!("warning: {}", warning.as_str().unwrap_or_default())?;
    }
    let paused = switchover["paused_seconds"].as_f64();
    let paused = paused.map_or_else(String::new, |seconds| {
        format!("; statements have waited for {seconds:.3} s")
    });
    match switchover["reason"].as_str().unwrap_or_default() {
        "" => say!("{state}{paused}"),
        reason => say!("{state}: {reason}{paused}"),
    }
}

fn sessions(text: &str) -> Result<String> {
    let sessions: Vec<Value> = parsed(text)?;
    // Only of all gateways it is said which.
    let is_of_all = sessions.iter().any(|session| session["gateway"].is_string());
    let columns = [
        if is_of_all { "GATEWAY" } else { "" },
        "ID",
        "LISTENER",
        "USER",
        "CLIENT",
        "SERVER",
        "WAITS FOR",
        "SECONDS",
        "HELD BY",
    ];
    let mut rows = Vec::new();
    for session in &sessions {
        let word = |name: &str| session[name].as_str().unwrap_or("-").to_owned();
        let pins = session["pins"].as_array().into_iter().flatten();
        let pins: Vec<_> = pins.filter_map(|pin| pin["reason"].as_str()).collect();
        rows.push([
            session["gateway"].as_str().unwrap_or_default().to_owned(),
            session["id"].to_string(),
            word("listener"),
            word("user"),
            word("client"),
            word("server"),
            word("waits_for"),
            session["waiting_seconds"].to_string(),
            pins.join(","),
        ]);
    }
    let table = table(columns, rows);
    // Without the empty column.
    let bare = |line: &str| format!("{}\n", line.trim_start_matches(' '));
    Ok(match is_of_all {
        true => table,
        false => table.lines().map(bare).collect(),
    })
}

/// Columns as wide as what is in them, the last one as it comes. Names in them are what clients have said:
/// nothing of it is for the terminal.
pub(crate) fn table<const N: usize>(columns: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut all = vec![columns.map(str::to_owned)];
    let plain = |cell: String| cell.replace(char::is_control, " ");
    all.extend(rows.into_iter().map(|row| row.map(plain)));
    let width = |column: usize| {
        let cells = all.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    all.iter().map(line).collect()
}

/// What stands behind a query for a cluster.
fn of_cluster(cluster: Option<&str>) -> String {
    let query = cluster.map(|cluster| format!("&cluster={}", escaped(cluster)));
    query.unwrap_or_default()
}

/// What stands behind the `?` for a server.
fn of_server(server: &str, cluster: Option<&str>) -> String {
    format!("server={}{}", escaped(server), of_cluster(cluster))
}

/// `2026-11-27 19:30:00`, of seconds since 1970.
pub(crate) fn date(seconds: u64) -> String {
    let seconds = seconds.min(LAST_SECOND);
    let Date { year, month, day } = Date::from_days((seconds / 86_400).cast_signed());
    let of_day = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_795_807_800, "2026-11-27 19:30:00"),
            (u64::MAX, "9999-12-31 23:59:59"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn a_table_has_nothing_that_a_terminal_obeys() {
        let rows = vec![["a\x1b[2Jb".to_owned(), "one\ntwo".to_owned()]];
        assert_eq!(
            table(["USER", "HELD BY"], rows),
            "USER    HELD BY\na [2Jb  one two\n"
        );
    }

    #[test]
    fn names_survive_a_query() {
        assert_eq!(
            of_server("db1:3306", Some("a&b c")),
            "server=db1:3306&cluster=a%26b%20c"
        );
    }
}
