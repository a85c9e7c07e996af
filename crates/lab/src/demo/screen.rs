//! What the demo shows: a few lines that are drawn over each other on a terminal, and one line a second elsewhere.

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
    /// Sessions by server name.
    pub sessions: BTreeMap<String, i64>,
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
    } = figures;
    let sessions: Vec<String> = sessions
        .iter()
        .map(|(server, count)| format!("{server} {count}"))
        .collect();
    format!(
        "{seconds:>4} s  {qps:>7.0} queries/s  p95 {p95_ms:>6.2} ms  failed {failures}  sessions: {}",
        sessions.join(", ")
    )
}

fn several_lines(figures: &Figures) -> String {
    let Figures {
        seconds,
        qps,
        p95_ms,
        failures,
        sessions,
    } = figures;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "  running {seconds} s    {qps:.0} queries/s    p95 {p95_ms:.2} ms    failed {failures}\n"
    );
    for (server, count) in sessions {
        let bar = "#".repeat((*count).clamp(0, 60) as usize);
        let _ = writeln!(out, "  {server:<12} {count:>4} sessions  {bar}");
    }
    out
}

/// Sums a gauge of Prometheus' text format over all its series, by the value of one label.
pub(super) fn sum_by_label(metrics: &str, name: &str, label: &str) -> BTreeMap<String, i64> {
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
            *sums.entry(server.trim_matches('"').to_owned()).or_insert(0) += value as i64;
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
            [("a".to_owned(), 5), ("b".to_owned(), 4)]
        );
    }

    #[test]
    fn figures_fit_one_line() {
        let sessions = BTreeMap::from([("primary".to_owned(), 6), ("replica-1".to_owned(), 4)]);
        let figures = Figures {
            seconds: 3,
            qps: 4711.2,
            p95_ms: 0.8,
            failures: 0,
            sessions,
        };
        let line = one_line(&figures);
        assert!(
            line.contains("4711 queries/s") && line.ends_with("primary 6, replica-1 4"),
            "{line}"
        );
        assert_eq!(several_lines(&figures).lines().count(), 4);
    }
}
