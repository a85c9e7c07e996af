//! sysbench, with its own scripts.

use std::{fs, net::SocketAddr, process::Command, time::Duration};

use anyhow::{Context, bail, ensure};

use crate::{
    child,
    client::Account,
    usage::{CpuTime, MachineTime},
};

/// One run of one script against one address, with the tables that sysbench makes.
pub(crate) struct Sysbench<'a> {
    /// The words before its command, where it is to run somewhere else.
    pub on: &'a [String],
    /// The script's name: `oltp_point_select`.
    pub script: &'a str,
    pub address: SocketAddr,
    pub account: Account,
    /// Statements are sent as text; otherwise they are prepared.
    pub is_text: bool,
    /// `sbtest1` and so on.
    pub tables: usize,
    /// Rows of each.
    pub rows: u64,
    pub threads: usize,
    /// sysbench takes whole seconds.
    pub seconds: f64,
    /// Options of the script: `--range-size=100`.
    pub options: &'a [String],
}

pub(crate) struct Done {
    pub queries: f64,
    /// Queries a second.
    pub rate: f64,
    /// The same in its lowest second; of a run of three seconds and more.
    pub lowest: Option<f64>,
    /// The 99th percentile of the time for one event of the script, in milliseconds.
    pub p99_ms: f64,
    /// CPU that sysbench itself has used.
    pub cpu: Duration,
}

/// What a run has done, and what it has cost.
pub(crate) struct Measured {
    pub done: Done,
    /// CPU for a query, in microseconds, of what stands before the servers.
    pub own_us: Option<f64>,
    /// The same of the servers, where they are on this machine.
    pub server_us: Option<f64>,
    /// Part of the machine's CPU that nobody used meanwhile.
    pub idle: f64,
}

impl Sysbench<'_> {
    /// Runs it to its end. `own`: the processes that it goes through, none where it goes to the servers.
    pub(crate) fn measure(&self, own: &[u32], servers: &[u32]) -> anyhow::Result<Measured> {
        let of = |pids: &[u32]| {
            pids.iter()
                .map(|&pid| CpuTime::of(pid))
                .collect::<anyhow::Result<Vec<_>>>()
        };
        let since = |pids: &[u32], before: Vec<CpuTime>| {
            let pairs = pids.iter().zip(before);
            pairs
                .map(|(&pid, before)| Ok(CpuTime::of(pid)? - before))
                .collect::<anyhow::Result<Vec<_>>>()
        };
        let (of_own, of_servers, machine) = (of(own)?, of(servers)?, MachineTime::now()?);
        let done = self.run()?;
        let idle = MachineTime::now()?.idle_since(machine);
        let (of_own, of_servers) = (since(own, of_own)?, since(servers, of_servers)?);
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / done.queries.max(1.0);
        Ok(Measured {
            own_us: (!own.is_empty()).then(|| each(of_own.iter().map(|cpu| cpu.total).sum())),
            // A server has a thread for each connection, which has ended meanwhile.
            server_us: (!servers.is_empty()).then(|| each(of_servers.iter().map(CpuTime::in_ticks).sum())),
            idle,
            done,
        })
    }

    pub(crate) fn run(&self) -> anyhow::Result<Done> {
        let seconds = self.seconds.ceil().max(1.0);
        let before = CpuTime::of_ended_children()?;
        // Everybody may read the words of a command.
        let folder = child::folder()?;
        let password = folder.path().join("password");
        fs::write(
            &password,
            format!("mysql-password={}\n", quoted(self.account.password)?),
        )?;
        let mut words = self.on.iter().map(String::as_str).chain(["sysbench"]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .arg(self.script)
            .arg(format!("--mysql-host={}", self.address.ip()))
            .arg(format!("--mysql-port={}", self.address.port()))
            .arg(format!("--mysql-user={}", self.account.user))
            .arg(format!("--config-file={}", password.display()))
            .arg(format!("--mysql-db={}", self.account.database))
            .args(["--percentile=99", "--report-interval=1"])
            .args(self.is_text.then_some("--db-ps-mode=disable"))
            .args(self.options)
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows))
            .arg(format!("--threads={}", self.threads))
            .arg(format!("--time={seconds}"))
            .arg("run");
        let output = child::output(command).context("running sysbench (apt-get install sysbench)")?;
        let cpu = CpuTime::of_ended_children()? - before;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "sysbench: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let (queries, rate) = queries(&text).with_context(|| format!("sysbench says no queries: {text}"))?;
        let p99_ms = p99_ms(&text).with_context(|| format!("sysbench says no percentile: {text}"))?;
        Ok(Done {
            queries,
            rate,
            lowest: lowest(&text),
            p99_ms,
            cpu,
        })
    }
}

/// A value for its file, which it splits at blanks and commas.
fn quoted(value: &str) -> anyhow::Result<String> {
    const LONGEST: usize = 200;
    let quote = ['"', '\''].into_iter().find(|quote| !value.contains(*quote));
    match quote.filter(|_| value.len() <= LONGEST && !value.contains('\n')) {
        Some(quote) if !value.is_empty() => Ok(format!("{quote}{value}{quote}")),
        Some(_) => Ok(String::new()),
        None => bail!(
            "sysbench takes no password with both kinds of quotes, a line break, or more than {LONGEST} bytes"
        ),
    }
}

/// How many, and how many a second: `    queries:                             123456 (61728.00 per sec.)`.
fn queries(text: &str) -> Option<(f64, f64)> {
    let mut words = words_behind(text, "queries:")?;
    let count = words.next()?.parse().ok()?;
    let rate = words.next()?.trim_start_matches('(').parse().ok()?;
    Some((count, rate))
}

/// Of lines like `[ 3s ] thds: 4 tps: 99.98 qps: 2000.53 (r/w/o: …`, but for the first and the last, which
/// are no whole seconds of the load.
fn lowest(text: &str) -> Option<f64> {
    let seconds = text.lines().filter(|line| line.starts_with("[ "));
    let rates = seconds.filter_map(|line| {
        let (_, behind) = line.split_once(" qps: ")?;
        behind.split(' ').next()?.parse::<f64>().ok()
    });
    let rates: Vec<f64> = rates.collect();
    let whole = rates.get(1..rates.len().checked_sub(1)?)?;
    whole.iter().copied().min_by(f64::total_cmp)
}

/// `         99th percentile:                        1.23`.
fn p99_ms(text: &str) -> Option<f64> {
    words_behind(text, "99th percentile:")?.next()?.parse().ok()
}

fn words_behind<'t>(text: &'t str, begin: &str) -> Option<impl Iterator<Item = &'t str>> {
    let mut lines = text.lines().map(str::trim_start);
    lines
        .find_map(|line| line.strip_prefix(begin))
        .map(str::split_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_one_value() {
        assert_eq!(quoted("a, b#").unwrap(), "\"a, b#\"");
        assert_eq!(quoted("a\"b").unwrap(), "'a\"b'");
        assert_eq!(quoted("").unwrap(), "");
        for wrong in ["a\"b'c", "a\nb", &"a".repeat(300)] {
            assert!(quoted(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn its_report_is_read() {
        let text = "    queries performed:\n        total:   9\n    queries:        123456 (61728.00 per sec.)\n\
                    Latency (ms):\n         99th percentile:       1.23\n";
        assert_eq!(queries(text), Some((123_456.0, 61_728.0)));
        assert_eq!(p99_ms(text), Some(1.23));
        assert_eq!(queries("queries performed:"), None);
        let text = "[ 1s ] thds: 4 tps: 1.00 qps: 5.00 (r/w/o: 1/2/3)\n[ 2s ] thds: 4 tps: 1.00 qps: 30.50 (r\n\
                    [ 3s ] thds: 4 tps: 1.00 qps: 20.25 (r\n[ 4s ] thds: 4 tps: 1.00 qps: 1.00 (r\n";
        assert_eq!(lowest(text), Some(20.25));
        assert_eq!(lowest("[ 1s ] thds: 4 tps: 1.00 qps: 5.00 (r"), None);
    }
}
