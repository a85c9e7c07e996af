//! `forebay ctl drain`: all leave servers, together or one after the other.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::gateway::Gateway;
use super::{of_server, parsed};

/// Who is to be left, and how.
#[derive(Args)]
pub(super) struct Order {
    /// Their names, as `/status` has them.
    #[arg(required = true)]
    servers: Vec<String>,
    /// Needed where several clusters have a server of that name.
    #[arg(long)]
    cluster: Option<String>,
    /// Of several gateways with one configuration only this one.
    #[arg(long)]
    here: bool,
    /// How long to wait, for each server: 30s, 5m.
    #[arg(long, value_parser = duration)]
    deadline: Option<Duration>,
    /// What becomes of sessions that are left at the deadline.
    #[arg(long, value_enum, default_value_t = Then::Keep)]
    then: Then,
    /// Say it and go.
    #[arg(long)]
    no_wait: bool,
    /// The next server only when the one before is back: its drain was taken back (`undrain`), and it is up,
    /// of use and not too far behind.
    #[arg(long, conflicts_with = "no_wait")]
    one_at_a_time: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Then {
    /// They stay.
    Keep,
    /// They end with error 1053.
    Close,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    config::parse_duration(text).ok_or_else(|| "a number with a unit is expected: 30s, 5m, 1h".to_owned())
}

impl Order {
    /// Whether this drain is the one of that server.
    fn is(&self, drain: &Value, server: &str) -> bool {
        let cluster = self.cluster.as_deref();
        drain["server"] == server && cluster.is_none_or(|cluster| drain["cluster"] == cluster)
    }
}

pub(super) fn run(gateway: &Gateway, order: &Order, json: bool) -> Result<ExitCode> {
    if order.then == Then::Close && order.deadline.is_none() {
        bail!("--then close needs a --deadline");
    }
    match order.one_at_a_time {
        true => one_at_a_time(gateway, order, json),
        false => together(gateway, order, json),
    }
}

fn together(gateway: &Gateway, order: &Order, json: bool) -> Result<ExitCode> {
    for (at, server) in order.servers.iter().enumerate() {
        begin(gateway, server, order).with_context(|| match &order.servers[..at] {
            [] => server.clone(),
            draining => format!("{server} (and {} drains now, until undrain)", draining.join(", ")),
        })?;
    }
    let began = Instant::now();
    let mut are_empty = true;
    for server in order.servers.iter().filter(|_| !order.no_wait) {
        are_empty &= until_empty(gateway, server, order, began, json)?;
    }
    Ok(code(are_empty))
}

fn one_at_a_time(gateway: &Gateway, order: &Order, json: bool) -> Result<ExitCode> {
    let of_cluster = order
        .cluster
        .as_ref()
        .map(|cluster| format!(" --cluster {cluster}"));
    let of_cluster = of_cluster.unwrap_or_default();
    for (at, server) in order.servers.iter().enumerate() {
        let before = status(gateway)?;
        begin(gateway, server, order).with_context(|| server.clone())?;
        if !until_empty(gateway, server, order, Instant::now(), json)? {
            if let rest @ [_, ..] = &order.servers[at + 1..] {
                eprintln!("not begun: {}", rest.join(", "));
            }
            return Ok(code(false));
        }
        if let Some(next) = order.servers.get(at + 1) {
            tell(&format!(
                "do to {server} what is to be done, then: forebay ctl undrain {server}{of_cluster}; {next} is next"
            ));
            until_back(gateway, server, order, before)?;
        } else {
            tell(&format!(
                "{server} is the last one, and drains until: forebay ctl undrain {server}{of_cluster}"
            ));
        }
    }
    Ok(code(true))
}

/// Whoever started this may no longer read what it says.
fn tell(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn code(are_empty: bool) -> ExitCode {
    match are_empty {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(2),
    }
}

fn begin(gateway: &Gateway, server: &str, order: &Order) -> Result<()> {
    let mut query = of_server(server, order.cluster.as_deref());
    if let Some(deadline) = order.deadline.filter(|_| order.then == Then::Close) {
        query = format!("{query}&end_after={}", deadline.as_secs_f64());
    }
    gateway
        .put(&format!("/drain?{query}&here={}", order.here))
        .map(drop)
}

/// Waits until the server takes sessions again. How long somebody needs for what is to be done nobody knows.
fn until_back(gateway: &Gateway, server: &str, order: &Order, mut before: Value) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(500);
    loop {
        let now = status(gateway)?;
        if is_another_process(&before, &now) {
            bail!(
                "the gateway has forgotten the drain of {server} (it was upgraded or restarted); nothing more is drained"
            );
        }
        if is_back(&now, server, order.cluster.as_deref())? {
            return Ok(());
        }
        before = now;
        sleep(LOOK_EVERY);
    }
}

fn status(gateway: &Gateway) -> Result<Value> {
    parsed(&gateway.get("/status")?)
}

/// In a container each process has the same number: the new one has run for a shorter time.
fn is_another_process(before: &Value, now: &Value) -> bool {
    let uptime = |status: &Value| status["uptime_seconds"].as_u64();
    now["process_id"] != before["process_id"] || uptime(now) < uptime(before)
}

/// Whether it can do its part, so that another one can be spared.
fn is_back(status: &Value, server: &str, cluster: Option<&str>) -> Result<bool> {
    let clusters = status["clusters"].as_array().into_iter().flatten();
    let of_order = clusters.filter(|of| cluster.is_none_or(|cluster| of["name"] == cluster));
    let mut servers = of_order.flat_map(|cluster| cluster["servers"].as_array().into_iter().flatten());
    let Some(found) = servers.find(|found| found["name"] == server) else {
        bail!("there is no server {server} any more");
    };
    Ok(found["state"] == "up"
        && found["draining"] == false
        && found["role"] != "unusable"
        && found["too_far_behind"] != true)
}

/// How often it is looked how a drain goes on: most are over in the first seconds.
fn look_every(so_far: Duration) -> Duration {
    match so_far < Duration::from_secs(3) {
        true => Duration::from_millis(250),
        false => Duration::from_secs(1),
    }
}

/// Waits until nobody is on the server any more. False where the deadline comes before that.
fn until_empty(gateway: &Gateway, server: &str, order: &Order, began: Instant, json: bool) -> Result<bool> {
    // Sessions that are ended need a moment for it.
    let patience = order.deadline.map(|deadline| match order.then {
        Then::Keep => deadline,
        Then::Close => deadline.saturating_add(Duration::from_secs(5)),
    });
    let progress = progress_bar(json);
    let mut most = 0;
    loop {
        let all: Vec<Value> = parsed(&gateway.get("/drains")?)?;
        let Some(drain) = all.iter().find(|drain| order.is(drain, server)) else {
            progress.finish_and_clear();
            bail!(
                "server {server} drains no longer: somebody has said undrain, or the gateway is a new process"
            );
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
            true => say!("{drain}")?,
            false => say!("{} after {:.1} s", line(drain), began.elapsed().as_secs_f64())?,
        }
        return Ok(left == 0);
    }
}

fn progress_bar(json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Servers that drain, a line each.
pub(super) fn list(text: &str) -> Result<String> {
    let tell = |drain: &Value| {
        let by = drain["drained_by"].as_str().unwrap_or_default();
        format!("{} (drained by: {by})\n", line(drain))
    };
    let drains: Vec<Value> = parsed(text)?;
    Ok(drains.iter().map(tell).collect())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_told_with_its_reasons() {
        let drain = serde_json::json!({
            "cluster": "main", "server": "db3", "sessions": 3, "held_by": {"transaction": 1, "moving": 2}
        });
        assert_eq!(line(&drain), "main/db3 has 3 left (moving 2, transaction 1)");
        let empty = serde_json::json!({"cluster": "main", "server": "db3", "sessions": 0});
        assert_eq!(line(&empty), "main/db3 is empty");
    }

    #[test]
    fn a_server_is_back_once_it_can_do_its_part() {
        let with = |field: &str, value: Value| {
            let mut server = serde_json::json!({
                "name": "db2", "state": "up", "role": "replica", "draining": false, "too_far_behind": false
            });
            server[field] = value;
            let status = serde_json::json!({"clusters": [{"name": "main", "servers": [server]}]});
            is_back(&status, "db2", Some("main")).unwrap()
        };
        assert!(with("role", "replica".into()) && with("role", "primary".into()));
        let not_yet: [(&str, Value); 4] = [
            ("state", "down".into()),
            ("draining", true.into()),
            ("role", "unusable".into()),
            ("too_far_behind", true.into()),
        ];
        for (field, value) in not_yet {
            assert!(!with(field, value), "{field}");
        }
    }

    #[test]
    fn another_process_is_known_also_by_the_same_number() {
        let status = |id: u32, uptime: u64| serde_json::json!({"process_id": id, "uptime_seconds": uptime});
        assert!(!is_another_process(&status(1, 60), &status(1, 60)));
        assert!(!is_another_process(&status(1, 60), &status(1, 61)));
        assert!(is_another_process(&status(1, 60), &status(1, 0)));
        assert!(is_another_process(&status(7, 60), &status(8, 61)));
    }
}
