//! `forebay ctl`: what an operator does to a running gateway, over the socket of `[admin]`.

mod balance;

use std::io::{IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use config::Config;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

/// As long as the admin server gives a request.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked how a drain goes on: most are over in the first seconds.
fn look_every(so_far: Duration) -> Duration {
    match so_far < Duration::from_secs(3) {
        true => Duration::from_millis(250),
        false => Duration::from_secs(1),
    }
}

/// Where the gateway is, and how to tell what it says.
#[derive(Args)]
pub(crate) struct Ctl {
    /// The gateway's configuration file, which names the socket.
    #[arg(short, long, default_value = "/etc/forebay/forebay.toml")]
    config: PathBuf,
    /// The socket itself (`[admin] socket`).
    #[arg(long)]
    socket: Option<PathBuf>,
    /// For programs: JSON as the gateway gives it.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    act: Act,
}

#[derive(Subcommand)]
enum Act {
    /// Has all leave a server, and waits until it is empty. It goes on draining until `undrain`, also when
    /// this is interrupted. Exit code 2: sessions are left at the deadline.
    Drain {
        /// Its name, as `/status` has it.
        server: String,
        /// Needed where several clusters have a server of that name.
        #[arg(long)]
        cluster: Option<String>,
        /// How long to wait: 30s, 5m.
        #[arg(long, value_parser = duration)]
        deadline: Option<Duration>,
        /// What becomes of sessions that are left at the deadline.
        #[arg(long, value_enum, default_value_t = Then::Keep)]
        then: Then,
        /// Say it and go.
        #[arg(long)]
        no_wait: bool,
    },
    /// Has a server take sessions again.
    Undrain {
        /// Its name.
        server: String,
        /// Needed where several clusters have a server of that name.
        #[arg(long)]
        cluster: Option<String>,
    },
    /// Lists servers that drain, and what holds their sessions.
    Drains,
    /// Has the statements of a cluster wait, but for those of transactions, until `resume`: at most
    /// `pause_timeout` each.
    Pause {
        /// Its name; not needed where there is but one.
        cluster: Option<String>,
    },
    /// Has them go on.
    Resume {
        /// Its name; not needed where there is but one.
        cluster: Option<String>,
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
    /// Has a new process take over, with the program as it is on the disk now. Sessions stay with the old one
    /// until they end, for at most `upgrade_timeout`.
    Upgrade,
    /// Shows how sessions are spread over the servers, and who has moved so that the load evens out.
    Balance {
        /// Only of this one.
        cluster: Option<String>,
    },
    /// Lists sessions.
    Sessions {
        /// Only those that something holds on their server.
        #[arg(long)]
        pinned: bool,
        /// The most of each worker.
        #[arg(long, default_value_t = 1000)]
        limit: usize,
    },
    /// Ends a session, by the number that `sessions` shows.
    Kill {
        /// Its number.
        id: u32,
        /// Only the statement that it has under way.
        #[arg(long)]
        query: bool,
    },
    /// Reads the configuration again.
    Reload,
    /// Listeners, clusters, servers and workers, as JSON.
    Status,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Then {
    /// They stay.
    Keep,
    /// They end with error 1053.
    Close,
}

fn duration(text: &str) -> Result<Duration, String> {
    config::parse_duration(text).ok_or_else(|| "a number with a unit is expected: 30s, 5m, 1h".to_owned())
}

/// Does what is asked, and says what came of it.
pub(crate) fn run(ctl: Ctl) -> Result<ExitCode> {
    let socket = match ctl.socket {
        Some(socket) => socket,
        None => socket_of(&ctl.config)?,
    };
    act(&Gateway { socket }, ctl.act, ctl.json)
}

fn socket_of(config: &Path) -> Result<PathBuf> {
    let loaded = Config::load(config).map_err(|errors| anyhow!("{errors}"))?;
    let socket = loaded.admin.and_then(|admin| admin.socket);
    socket.with_context(|| {
        format!(
            "{} has no `socket` in [admin]: add socket = \"/run/forebay/admin.sock\" and restart the gateway, or name it with --socket",
            config.display()
        )
    })
}

fn act(gateway: &Gateway, act: Act, json: bool) -> Result<ExitCode> {
    match act {
        Act::Drain {
            server,
            cluster,
            deadline,
            then,
            no_wait,
        } => {
            if then == Then::Close && deadline.is_none() {
                bail!("--then close needs a --deadline");
            }
            let mut query = of_server(&server, cluster.as_deref());
            if let Some(deadline) = deadline.filter(|_| then == Then::Close) {
                query = format!("{query}&end_after={}", deadline.as_secs_f64());
            }
            gateway.put(&format!("/drain?{query}"))?;
            match no_wait {
                true => Ok(ExitCode::SUCCESS),
                false => until_empty(gateway, &server, cluster.as_deref(), (deadline, then), json),
            }
        }
        Act::Undrain { server, cluster } => {
            let query = of_server(&server, cluster.as_deref());
            gateway.put(&format!("/undrain?{query}"))?;
            Ok(ExitCode::SUCCESS)
        }
        Act::Pause { cluster } => {
            gateway.put(&format!("/pause{}", of_cluster(cluster.as_deref())))?;
            Ok(ExitCode::SUCCESS)
        }
        Act::Resume { cluster } => {
            gateway.put(&format!("/resume{}", of_cluster(cluster.as_deref())))?;
            Ok(ExitCode::SUCCESS)
        }
        Act::Switchover { cluster, to, check } => {
            let (cluster, to) = (escaped(&cluster), escaped(&to));
            gateway.put(&format!(
                "/switchover?cluster={cluster}&to={to}&check_only={check}"
            ))?;
            until_switched(gateway, &cluster, json)
        }
        Act::Upgrade => upgrade(gateway),
        Act::Drains => {
            let text = gateway.get("/drains")?;
            match json {
                true => print!("{text}"),
                false => drains(&text)?.iter().for_each(|drain| {
                    let by = drain["drained_by"].as_str().unwrap_or_default();
                    println!("{} (drained by: {by})", line(drain));
                }),
            }
            Ok(ExitCode::SUCCESS)
        }
        Act::Balance { cluster } => {
            let cluster = cluster.map(|cluster| format!("?cluster={}", escaped(&cluster)));
            let text = gateway.get(&format!("/balance{}", cluster.unwrap_or_default()))?;
            match json {
                true => print!("{text}"),
                false => print!("{}", balance::table(&text)?),
            }
            Ok(ExitCode::SUCCESS)
        }
        Act::Sessions { pinned, limit } => {
            let text = gateway.get(&format!("/sessions?limit={limit}&pinned={pinned}"))?;
            match json {
                true => print!("{text}"),
                false => sessions(&text)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Act::Kill { id, query } => {
            gateway.put(&format!("/kill?id={id}&query={query}"))?;
            Ok(ExitCode::SUCCESS)
        }
        Act::Reload => {
            print!("{}", gateway.put("/reload")?);
            Ok(ExitCode::SUCCESS)
        }
        Act::Status => {
            println!("{}", gateway.get("/status")?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Waits until nobody is on the server any more.
fn until_empty(
    gateway: &Gateway,
    server: &str,
    cluster: Option<&str>,
    (deadline, then): (Option<Duration>, Then),
    json: bool,
) -> Result<ExitCode> {
    // Sessions that are ended need a moment for it.
    let patience = deadline.map(|deadline| match then {
        Then::Keep => deadline,
        Then::Close => deadline + Duration::from_secs(5),
    });
    let began = Instant::now();
    let progress = progress_bar(json);
    let mut most = 0;
    loop {
        let text = gateway.get("/drains")?;
        let all = drains(&text)?;
        let is_it = |drain: &&Value| {
            drain["server"] == server && cluster.is_none_or(|cluster| drain["cluster"] == cluster)
        };
        let Some(drain) = all.iter().find(is_it) else {
            progress.finish_and_clear();
            bail!("server {server} drains no longer: somebody has said undrain");
        };
        let left = drain["sessions"].as_u64().unwrap_or(0);
        most = most.max(left);
        progress.set_length(most);
        progress.set_position(most - left);
        progress.set_message(line(drain));
        let is_over = patience.is_some_and(|patience| began.elapsed() >= patience);
        if left > 0 && !is_over {
            sleep(look_every(began.elapsed()));
            continue;
        }
        progress.finish_and_clear();
        match json {
            true => println!("{drain}"),
            false => println!("{} after {:.1} s", line(drain), began.elapsed().as_secs_f64()),
        }
        return Ok(match left {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(2),
        });
    }
}

/// Waits until another process answers.
fn upgrade(gateway: &Gateway) -> Result<ExitCode> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_secs(60);
    let look = || -> Result<Value> {
        serde_json::from_str(&gateway.get("/status")?).context("the gateway's answer makes no sense")
    };
    let before = look()?["process_id"].clone();
    gateway.put("/upgrade")?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        sleep(LOOK_EVERY);
        // Whoever was asked may just have left.
        let Ok(status) = look() else { continue };
        if status["process_id"] != before {
            println!("process {} has taken over from {before}", status["process_id"]);
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
        let text = gateway.get("/switchovers")?;
        let all: Vec<Value> = serde_json::from_str(&text).context("the gateway's answer makes no sense")?;
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
            println!("{:8.3} s  {}", at.unwrap_or_default(), what.unwrap_or_default());
        }
        told = steps.len();
        let state = switchover["state"].as_str().unwrap_or_default();
        if state == "running" {
            sleep(LOOK_EVERY);
            continue;
        }
        match json {
            true => println!("{switchover}"),
            false => conclude(switchover, state),
        }
        return Ok(match state {
            "done" => ExitCode::SUCCESS,
            "failed" => ExitCode::from(3),
            _ => ExitCode::from(2),
        });
    }
}

fn conclude(switchover: &Value, state: &str) {
    for warning in switchover["warnings"].as_array().into_iter().flatten() {
        println!("warning: {}", warning.as_str().unwrap_or_default());
    }
    let paused = switchover["paused_seconds"].as_f64();
    let paused = paused.map_or_else(String::new, |seconds| {
        format!("; statements have waited for {seconds:.3} s")
    });
    match switchover["reason"].as_str().unwrap_or_default() {
        "" => println!("{state}{paused}"),
        reason => println!("{state}: {reason}{paused}"),
    }
}

fn progress_bar(json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    let progress = ProgressBar::new(0);
    match style {
        Ok(style) => progress.with_style(style),
        Err(_) => progress,
    }
}

fn drains(text: &str) -> Result<Vec<Value>> {
    serde_json::from_str(text).context("the gateway's answer makes no sense")
}

/// A drain in words.
fn line(drain: &Value) -> String {
    let word = |name: &str| drain[name].as_str().unwrap_or_default().to_owned();
    let (cluster, server, left) = (
        word("cluster"),
        word("server"),
        drain["sessions"].as_u64().unwrap_or(0),
    );
    if left == 0 {
        return format!("{cluster}/{server} is empty");
    }
    let reasons = drain["held_by"].as_object().into_iter().flatten();
    let reasons: Vec<_> = reasons
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let why = match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join(", ")),
    };
    format!("{cluster}/{server} has {left} left{why}")
}

fn sessions(text: &str) -> Result<()> {
    let sessions: Vec<Value> = serde_json::from_str(text).context("the gateway's answer makes no sense")?;
    let columns = [
        "ID",
        "LISTENER",
        "USER",
        "CLIENT",
        "SERVER",
        "WAITS FOR",
        "SECONDS",
        "HELD BY",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    for session in &sessions {
        let word = |name: &str| session[name].as_str().unwrap_or("-").to_owned();
        let pins = session["pins"].as_array().into_iter().flatten();
        let pins: Vec<_> = pins.filter_map(|pin| pin["reason"].as_str()).collect();
        rows.push([
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
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    for row in &rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    Ok(())
}

/// What stands behind the path for a cluster.
fn of_cluster(cluster: Option<&str>) -> String {
    let query = cluster.map(|cluster| format!("?cluster={}", escaped(cluster)));
    query.unwrap_or_default()
}

/// What stands behind the `?` for a server.
fn of_server(server: &str, cluster: Option<&str>) -> String {
    let cluster = cluster.map(|cluster| format!("&cluster={}", escaped(cluster)));
    format!("server={}{}", escaped(server), cluster.unwrap_or_default())
}

/// Everything but plain characters as `%` and two digits.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// The running gateway, by its socket.
struct Gateway {
    socket: PathBuf,
}

impl Gateway {
    fn get(&self, path: &str) -> Result<String> {
        self.ask("GET", path)
    }

    fn put(&self, path: &str) -> Result<String> {
        self.ask("PUT", path)
    }

    fn ask(&self, method: &str, path: &str) -> Result<String> {
        let answer = self.answer(method, path).with_context(|| {
            format!(
                "the gateway was not reached on {}: it runs with this `socket` in [admin]? and you are root, or its system user?",
                self.socket.display()
            )
        })?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        match head.split(' ').nth(1) {
            Some("200") => Ok(body.to_owned()),
            Some(_) => bail!("{}", body.trim_end()),
            None => bail!("the gateway closed the connection without an answer: its log says why"),
        }
    }

    /// The admin server answers one request a connection, and closes it.
    fn answer(&self, method: &str, path: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: forebay\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_query() {
        assert_eq!(
            of_server("db1:3306", Some("a&b c")),
            "server=db1:3306&cluster=a%26b%20c"
        );
    }

    #[test]
    fn a_drain_is_told_with_its_reasons() {
        let drain = serde_json::json!({
            "cluster": "main", "server": "db3", "sessions": 3, "held_by": {"transaction": 1, "moving": 2}
        });
        assert_eq!(line(&drain), "main/db3 has 3 left (moving 2, transaction 1)");
        let empty = serde_json::json!({"cluster": "main", "server": "db3", "sessions": 0});
        assert_eq!(line(&empty), "main/db3 is empty");
    }
}
