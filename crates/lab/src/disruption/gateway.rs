//! The gateway of a part: this same program, as an operator runs it, with its defaults.

use std::{
    fmt, fs,
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use sandbox::{Kind, Node, PASSWORD, Sandbox, USER};

use crate::{
    child::{ListeningChild, Successor},
    demo::{
        gateway::{scrape, wait_for_roles},
        screen::sum_by_label,
    },
};

/// How long the servers may take until the gateway uses all of them.
const WHOLE_PATIENCE: Duration = Duration::from_secs(60);
pub(super) const SWITCHER: &str = "switcher";
/// Exit code of `forebay ctl drain`: sessions were left at the deadline.
const LEFT: i32 = 2;

/// A listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Split,
    /// With `moves = true`.
    Session,
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Split => "split",
            Self::Session => "session",
        })
    }
}

pub(super) struct Gateway {
    program: PathBuf,
    folder: PathBuf,
    process: ListeningChild,
    /// The process that serves, where it is not the first any more.
    successor: Option<Successor>,
    split: SocketAddr,
    session: SocketAddr,
    admin: SocketAddr,
}

/// What became of the sessions that had to move.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Moves {
    pub moved: f64,
    pub failed: f64,
    /// `behind x 3, no-server x 1`
    pub reasons: String,
}

impl Gateway {
    /// Starts it in front of all servers, and waits until it knows what each of them is.
    pub(super) fn start(program: &Path, servers: &Sandbox) -> anyhow::Result<Self> {
        let folder = servers.folder().to_path_buf();
        let file = folder.join("forebay.toml");
        let started = ListeningChild::start(&folder.join("forebay.log"), |addresses: [SocketAddr; 3]| {
            fs::write(&file, configuration(servers, addresses))?;
            let mut command = Command::new(program);
            // A group of its own: the terminal's Ctrl-C is for the bench, which ends the load first.
            command.args(["serve", "--config"]).arg(&file).process_group(0);
            Ok(command)
        });
        let (process, [split, session, admin]) = started.context("starting the gateway")?;
        let gateway = Self {
            program: program.to_path_buf(),
            folder,
            process,
            successor: None,
            split,
            session,
            admin,
        };
        gateway.wait_until_whole(servers.nodes().len())?;
        Ok(gateway)
    }

    pub(super) fn address(&self, mode: Mode) -> SocketAddr {
        match mode {
            Mode::Split => self.split,
            Mode::Session => self.session,
        }
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("forebay.log")).unwrap_or_default()
    }

    /// Waits until so many servers are up, and one of them is the primary and the others are replicas.
    pub(super) fn wait_until_whole(&self, servers: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + WHOLE_PATIENCE;
        loop {
            let states = sum_by_label(&scrape(self.admin)?, "forebay_server_state", "state");
            if states.get("up") == Some(&(servers as f64)) {
                break;
            }
            ensure!(Instant::now() < deadline, "not all servers are up: {states:?}");
            thread::sleep(Duration::from_millis(50));
        }
        wait_for_roles(self.admin, servers - 1)
    }

    /// `forebay ctl drain`. What it says where sessions are left at the deadline.
    pub(super) fn drain(&self, node: &Node, deadline: Duration) -> anyhow::Result<Option<String>> {
        let deadline = format!("{}s", deadline.as_secs());
        let (code, said) = self.ctl(&["drain", &server_name(node), "--deadline", &deadline])?;
        match code {
            Some(0) => Ok(None),
            Some(LEFT) => Ok(Some(said)),
            _ => bail!("forebay ctl drain: {said}"),
        }
    }

    pub(super) fn undrain(&self, node: &Node) -> anyhow::Result<()> {
        let (code, said) = self.ctl(&["undrain", &server_name(node)])?;
        ensure!(code == Some(0), "forebay ctl undrain: {said}");
        Ok(())
    }

    /// `forebay ctl switchover`. For how long statements have waited.
    pub(super) fn switch_over(&self, to: &Node) -> anyhow::Result<Duration> {
        let (code, said) = self.ctl(&["switchover", "main", "--to", &server_name(to)])?;
        ensure!(
            code == Some(0) && !said.contains("by hand"),
            "forebay ctl switchover: {said}"
        );
        let paused = said.rsplit_once("have waited for ").and_then(|(_, seconds)| {
            let seconds = seconds.split(' ').next()?.parse().ok()?;
            Duration::try_from_secs_f64(seconds).ok()
        });
        paused.with_context(|| {
            format!("forebay ctl switchover does not say how long statements waited: {said}")
        })
    }

    /// `forebay ctl upgrade`, and waits until the process before has ended: all sessions have gone.
    pub(super) fn upgrade(&mut self) -> anyhow::Result<()> {
        let (code, said) = self.ctl(&["upgrade"])?;
        let new = said
            .strip_prefix("process ")
            .and_then(|rest| rest.split(' ').next()?.parse().ok());
        let (Some(0), Some(new)) = (code, new) else {
            bail!("forebay ctl upgrade: {said}");
        };
        let before = self.successor.replace(Successor::new(new));
        let deadline = Instant::now() + WHOLE_PATIENCE;
        while !before
            .as_ref()
            .map_or_else(|| self.process.has_ended(), Successor::has_ended)
        {
            ensure!(
                Instant::now() < deadline,
                "sessions stay with the process that was replaced"
            );
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Its exit code, and what it says.
    fn ctl(&self, words: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        let mut command = Command::new(&self.program);
        command
            .args(["ctl", "--socket"])
            .arg(self.folder.join("admin.sock"))
            .args(words);
        let output = command.output().context("running forebay ctl")?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        Ok((output.status.code(), said))
    }

    pub(super) fn moves(&self) -> anyhow::Result<Moves> {
        Ok(moves(&scrape(self.admin)?))
    }

    /// How long moves took, in seconds: on average, and the median.
    pub(super) fn move_times(&self) -> anyhow::Result<[f64; 2]> {
        move_times(&scrape(self.admin)?).context("no session has moved")
    }

    /// Sessions that hold a connection to the server.
    pub(super) fn sessions_on(&self, node: &Node) -> anyhow::Result<f64> {
        let sessions = sum_by_label(&scrape(self.admin)?, "forebay_server_sessions_active", "server");
        Ok(sessions.get(&server_name(node)).copied().unwrap_or_default())
    }
}

/// The median goes by the gateway's buckets, in each of which moves are taken to be spread evenly.
fn move_times(metrics: &str) -> Option<[f64; 2]> {
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<f64>().ok()
    };
    let count = value("forebay_session_move_duration_seconds_count ").filter(|count| *count > 0.0)?;
    let sum = value("forebay_session_move_duration_seconds_sum ")?;
    let buckets = sum_by_label(metrics, "forebay_session_move_duration_seconds_bucket", "le");
    let mut buckets: Vec<(f64, f64)> = buckets
        .iter()
        .filter_map(|(bound, moves)| Some((bound.parse().ok()?, *moves)))
        .collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let above = buckets.iter().position(|(_, moves)| *moves >= count / 2.0)?;
    let (to, until) = buckets[above];
    let (from, before) = above.checked_sub(1).map_or((0.0, 0.0), |below| buckets[below]);
    let median = from + (to - from) * (count / 2.0 - before) / (until - before);
    Some([sum / count, median])
}

fn moves(metrics: &str) -> Moves {
    let sum = |name, label| sum_by_label(metrics, name, label);
    let reasons = sum("forebay_session_moves_failed_total", "reason");
    let failed = reasons.iter().filter(|(_, count)| **count > 0.0);
    let words: Vec<_> = failed
        .map(|(reason, count)| format!("{reason} x {count}"))
        .collect();
    Moves {
        moved: sum("forebay_sessions_moved_total", "listener").values().sum(),
        failed: reasons.values().sum(),
        reasons: words.join(", "),
    }
}

/// The name by which the gateway knows a server.
pub(super) fn server_name(node: &Node) -> String {
    format!("db{}", node.index() + 1)
}

fn configuration(servers: &Sandbox, [split, session, admin]: [SocketAddr; 3]) -> String {
    let topology = match servers.kind() {
        Kind::Mariadb | Kind::Mysql => "replication",
        Kind::Galera => "galera",
        Kind::GroupReplication => "group-replication",
    };
    let server = |node: &Node| {
        let (address, name) = (node.address(), server_name(node));
        format!("    {{ address = \"{address}\", name = \"{name}\" }},\n")
    };
    let list: String = servers.nodes().iter().map(server).collect();
    format!(
        r#"[[listener]]
name = "split"
bind = "{split}"
mode = "split"
cluster = "main"

[[listener]]
name = "session"
bind = "{session}"
mode = "session"
moves = true
cluster = "main"

[cluster.main]
topology = "{topology}"
monitor = {{ user = "{USER}", password = "{PASSWORD}" }}
switchover = {{ user = "{SWITCHER}", password = "{PASSWORD}" }}
servers = [
{list}]

[[user]]
name = "{USER}"
password = "{PASSWORD}"

[admin]
bind = "{admin}"
socket = "admin.sock"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_moves_is_within_its_bucket() {
        let metrics = "forebay_session_move_duration_seconds_bucket{le=\"0.002\"} 1\n\
             forebay_session_move_duration_seconds_bucket{le=\"0.004\"} 3\n\
             forebay_session_move_duration_seconds_bucket{le=\"+Inf\"} 4\n\
             forebay_session_move_duration_seconds_sum 0.02\n\
             forebay_session_move_duration_seconds_count 4\n";
        assert_eq!(move_times(metrics), Some([0.005, 0.003]));
        assert_eq!(
            move_times("forebay_session_move_duration_seconds_count 0\n"),
            None
        );
    }

    #[test]
    fn moves_are_told_with_the_reasons_of_those_that_failed() {
        let metrics = "forebay_sessions_moved_total{cluster=\"main\",listener=\"session\"} 7\n\
             forebay_session_moves_failed_total{cluster=\"main\",listener=\"session\",reason=\"behind\"} 2\n\
             forebay_session_moves_failed_total{cluster=\"main\",listener=\"session\",reason=\"no-server\"} 0\n";
        let told = moves(metrics);
        assert_eq!(
            (told.moved, told.failed, told.reasons.as_str()),
            (7.0, 2.0, "behind x 2")
        );
        assert_eq!(moves(""), Moves::default());
    }
}
