//! What the demo shows: a few lines that are drawn over each other on a terminal, and one line a second
//! elsewhere.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

/// The live figures of one second.
pub(super) struct Figures {
    pub seconds: u64,
    pub qps: f64,
    pub p95_ms: f64,
    /// Since the start.
    pub failures: u64,
    pub sessions: f64,
    pub servers: Vec<Server>,
}

/// One server's part of it.
pub(super) struct Server {
    pub name: String,
    /// Statements a second.
    pub rate: f64,
    /// Sessions that were on it at a time, in the mean: none is on a server between two statements.
    pub sessions: f64,
    /// Server connections, which all sessions share.
    pub connections: f64,
}

/// What has run on each server so far.
#[derive(Default)]
pub(super) struct Uses {
    /// A statement is one use of a connection, and so is a transaction.
    pub statements: BTreeMap<String, f64>,
    /// For how long sessions had one.
    seconds: BTreeMap<String, f64>,
}

impl Uses {
    pub(super) fn of(metrics: &str) -> Self {
        let sum = |what| {
            let name = format!("forebay_pool_lease_duration_seconds_{what}");
            sum_by_label(metrics, &name, "server")
        };
        Self {
            statements: sum("count"),
            seconds: sum("sum"),
        }
    }
}

/// Client sessions that are open.
pub(super) fn sessions(metrics: &str) -> f64 {
    let by_listener = sum_by_label(metrics, "forebay_sessions_active", "listener");
    by_listener.values().sum()
}

/// The servers' parts of the last `seconds`, before which there was `before`.
pub(super) fn servers(metrics: &str, now: &Uses, before: &Uses, seconds: f64) -> Vec<Server> {
    let count = |name| sum_by_label(metrics, name, "server");
    let (idle, busy) = (count("forebay_pool_idle"), count("forebay_pool_busy"));
    let of = |counts: &BTreeMap<String, f64>, name: &str| counts.get(name).copied().unwrap_or(0.0);
    now.statements
        .iter()
        .map(|(name, count)| Server {
            name: name.clone(),
            rate: (count - of(&before.statements, name)) / seconds,
            sessions: (of(&now.seconds, name) - of(&before.seconds, name)) / seconds,
            connections: of(&idle, name) + of(&busy, name),
        })
        .collect()
}

#[derive(Default)]
pub(super) struct Screen {
    lines_drawn: usize,
}

impl Screen {
    pub(super) fn draw(&mut self, figures: &Figures) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !out.is_terminal() {
            return writeln!(out, "{}", one_line(figures));
        }
        if self.lines_drawn > 0 {
            // To the first of the lines drawn before, and clear from there.
            write!(out, "\x1b[{}F\x1b[J", self.lines_drawn)?;
        }
        let text = several_lines(figures);
        self.lines_drawn = text.lines().count();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

fn one_line(figures: &Figures) -> String {
    let Figures {
        seconds,
        qps,
        p95_ms,
        failures,
        sessions,
        servers,
    } = figures;
    let servers: Vec<String> = servers
        .iter()
        .map(|server| {
            let Server {
                name,
                rate,
                sessions,
                connections,
            } = server;
            format!("{name} {sessions:.1} ({rate:.0}/s, {connections} connections)")
        })
        .collect();
    format!(
        "{seconds:>4} s  {qps:>7.0} queries/s  p95 {p95_ms:>6.2} ms  failed {failures}  {sessions} sessions, at a time on \
         {}",
        servers.join(", ")
    )
}

fn several_lines(figures: &Figures) -> String {
    let Figures {
        seconds,
        qps,
        p95_ms,
        failures,
        sessions,
        servers,
    } = figures;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "  running {seconds} s    {qps:.0} queries/s    p95 {p95_ms:.2} ms    failed {failures}    {sessions} sessions\n"
    );
    for server in servers {
        let Server {
            name,
            rate,
            sessions,
            connections,
        } = server;
        let bar = "#".repeat((rate / 100.0).clamp(0.0, 40.0) as usize);
        let _ = writeln!(
            out,
            "  {name:<12} {rate:>7.0} statements/s  {sessions:>4.1} sessions at a time on {connections} connections  {bar}"
        );
    }
    out
}

/// Sums a metric of Prometheus' text format over all its series, by the value of one label.
pub(crate) fn sum_by_label(metrics: &str, name: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in metrics.lines() {
        let Some((labels, value)) = line
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('{'))
            .and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        let key = labels
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == label);
        let value = value
            .split(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok());
        if let (Some((_, server)), Some(value)) = (key, value) {
            *sums.entry(server.trim_matches('"').to_owned()).or_insert(0.0) += value;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_summed_by_label() {
        let metrics = "# TYPE s gauge\ns{cluster=\"all\",server=\"a\"} 3\ns{cluster=\"one\",server=\"a\"} 2\n\
                       s{cluster=\"all\",server=\"b\"} 4\ns_other{server=\"b\"} 9\n";
        let sums = sum_by_label(metrics, "s", "server");
        assert_eq!(
            sums.into_iter().collect::<Vec<_>>(),
            [("a".to_owned(), 5.0), ("b".to_owned(), 4.0)]
        );
    }

    #[test]
    fn figures_fit_one_line() {
        let count =
            |name, count| format!("forebay_pool_{name}{{cluster=\"main\",server=\"primary\"}} {count}\n");
        let metrics = [
            count("lease_duration_seconds_count", 700),
            count("lease_duration_seconds_sum", 5),
            count("idle", 2),
            count("busy", 1),
        ]
        .concat();
        let before = Uses {
            statements: BTreeMap::from([("primary".to_owned(), 300.0)]),
            seconds: BTreeMap::from([("primary".to_owned(), 4.0)]),
        };
        let figures = Figures {
            seconds: 3,
            qps: 4711.2,
            p95_ms: 0.8,
            failures: 0,
            sessions: 14.0,
            servers: servers(&metrics, &Uses::of(&metrics), &before, 2.0),
        };
        let line = one_line(&figures);
        assert!(
            line.contains("4711 queries/s")
                && line.contains("14 sessions")
                && line.ends_with("on primary 0.5 (200/s, 3 connections)"),
            "{line}"
        );
        assert_eq!(several_lines(&figures).lines().count(), 3);
    }
}
