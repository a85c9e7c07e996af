//! The figures of a run: medians, spread, ratios to HAProxy; as a table for people and as JSON for programs.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{
    Kind, Plan, Protocol,
    check::{Check, Metric},
};
use crate::machine::Machine;

/// A load average above which other programs are likely to disturb the figures.
const BUSY: f64 = 0.7;

/// What one round of one contender gave.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// CPU time of the contender per query, in microseconds.
    pub cpu_us: f64,
    /// The part of it outside the kernel.
    pub user_us: f64,
    /// The part of it inside the kernel.
    pub system_us: f64,
    /// Queries a second.
    pub qps: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Sample {
    fn metric(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Cpu => self.cpu_us,
            Metric::Qps => self.qps,
            Metric::P50 => self.p50_us,
            Metric::P99 => self.p99_us,
            Metric::Idle => f64::NAN,
        }
    }
}

/// A median and how far the rounds lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spread {
    /// The middle value; of an even number of values the mean of the middle two.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(Self { median, min, max })
    }
}

/// One contender in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub contender: Kind,
    /// One sample a round, in the order of the rounds.
    pub rounds: Vec<Sample>,
}

impl Figures {
    /// The part of the CPU time spent outside the kernel: over all rounds, since clock ticks are too few in
    /// one.
    fn user_share(&self) -> f64 {
        let sum = |figure: fn(&Sample) -> f64| self.rounds.iter().map(figure).sum::<f64>();
        sum(|sample| sample.user_us) / sum(|sample| sample.cpu_us)
    }

    fn spread(&self, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }
}

/// One combination of protocol, rows and clients.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// How the statement is run.
    pub protocol: Protocol,
    /// Rows of a result.
    pub rows: u32,
    pub clients: usize,
    pub workers: usize,
    /// Every contender, in the order given.
    pub figures: Vec<Figures>,
}

impl Cell {
    /// One contender's metric, divided round by round by that of another where one is named.
    pub fn compare(&self, contender: Kind, reference: Option<Kind>, metric: Metric) -> Option<Spread> {
        let find = |kind| self.figures.iter().find(|figures| figures.contender == kind);
        let contender = find(contender)?;
        let Some(reference) = reference else {
            return contender.spread(|sample| sample.metric(metric));
        };
        let pairs = contender.rounds.iter().zip(&find(reference)?.rounds);
        Spread::of(pairs.map(|(own, other)| own.metric(metric) / other.metric(metric)))
    }
}

/// Memory of an idle session in one contender.
#[derive(Clone, Debug, Serialize)]
pub struct IdleFigures {
    pub contender: Kind,
    pub sessions: usize,
    /// Server connections it had then.
    pub server_connections: usize,
    /// Growth of resident memory for each of them, in bytes.
    pub rss_bytes: f64,
    /// Growth of the proportional set size for each, in bytes.
    pub pss_bytes: f64,
}

/// Everything a run of the scenario has found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// "overhead" or "split".
    pub scenario: &'static str,
    pub machine: Machine,
    /// What was measured, and for how long.
    pub plan: Plan,
    pub cells: Vec<Cell>,
    /// Memory of idle sessions; empty when it was left out.
    pub idle: Vec<IdleFigures>,
}

impl Report {
    pub fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }

    /// What is wrong with each check that is not met, one line each.
    pub fn failed_checks(&self, checks: &[Check]) -> Vec<String> {
        checks.iter().flat_map(|check| self.failures_of(check)).collect()
    }

    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut out);
        out
    }

    fn failures_of(&self, check: &Check) -> Vec<String> {
        let values: Vec<(String, Option<f64>)> = if check.metric == Metric::Idle {
            vec![(
                "idle session".to_owned(),
                self.idle_ratio(check.contender, check.reference),
            )]
        } else {
            let cells = self.cells.iter().filter(|cell| check.selects(cell));
            cells
                .map(|cell| {
                    let value = cell.compare(check.contender, check.reference, check.metric);
                    let place = format!(
                        "{}, rows {}, clients {}, workers {}",
                        cell.protocol, cell.rows, cell.clients, cell.workers
                    );
                    (place, value.map(|spread| spread.median))
                })
                .collect()
        };
        if values.is_empty() {
            return vec![format!("{check}: selects nothing that was measured")];
        }
        let failed = values.into_iter().filter_map(|(place, value)| match value {
            Some(value) if check.met_by(value) => None,
            Some(value) => Some(format!("{check}: {value:.3} ({place})")),
            None => Some(format!("{check}: was not measured ({place})")),
        });
        failed.collect()
    }

    fn idle_ratio(&self, contender: Kind, reference: Option<Kind>) -> Option<f64> {
        let of = |kind| {
            Some(
                self.idle
                    .iter()
                    .find(|figures| figures.contender == kind)?
                    .rss_bytes,
            )
        };
        match reference {
            Some(reference) => Some(of(contender)? / of(reference)?),
            None => of(contender),
        }
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let Machine {
            cpu,
            cpus,
            kernel,
            load_average,
            ..
        } = &self.machine;
        writeln!(
            out,
            "{cpu}, {cpus} cores, {kernel}, load average before the run {load_average}"
        )?;
        if *load_average > BUSY {
            writeln!(
                out,
                "the machine is busy with something else: take these figures for an impression"
            )?;
        }
        writeln!(
            out,
            "medians of {} rounds of {} s; /haproxy: ratio within a round, median and (lowest to highest)\n",
            self.plan.rounds, self.plan.seconds
        )?;
        writeln!(
            out,
            "{:<8} {:>5} {:>7} {:>7}  {:<9} {:>9} {:>7} {:>7} {:>15}  {:<22} {:>8} {:>8} {:>8}",
            "protocol",
            "rows",
            "clients",
            "workers",
            "contender",
            "CPU µs/q",
            "user",
            "system",
            "low to high",
            "CPU /haproxy",
            "QPS",
            "p50 µs",
            "p99 µs"
        )?;
        for cell in &self.cells {
            for figures in &cell.figures {
                write_line(out, cell, figures)?;
            }
        }
        if !self.idle.is_empty() {
            writeln!(
                out,
                "\nidle session  sessions  server connections  RSS bytes  PSS bytes   /haproxy"
            )?;
        }
        for idle in &self.idle {
            let ratio = self.idle_ratio(idle.contender, Some(Kind::Haproxy));
            let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let IdleFigures {
                contender,
                sessions,
                server_connections,
                rss_bytes,
                pss_bytes,
            } = idle;
            writeln!(
                out,
                "{contender:<12} {sessions:>9} {server_connections:>19} {rss_bytes:>10.0} {pss_bytes:>10.0} {ratio:>10}"
            )?;
        }
        Ok(())
    }
}

fn write_line(out: &mut String, cell: &Cell, figures: &Figures) -> std::fmt::Result {
    let median = |figure: fn(&Sample) -> f64| figures.spread(figure).map_or(f64::NAN, |spread| spread.median);
    let cpu = figures.spread(|sample| sample.cpu_us);
    let (low, high) = cpu.map_or((f64::NAN, f64::NAN), |spread| (spread.min, spread.max));
    let cpu_us = median(|sample| sample.cpu_us);
    let user = figures.user_share();
    let ratio = cell.compare(figures.contender, Some(Kind::Haproxy), Metric::Cpu);
    let ratio = match ratio {
        Some(Spread { median, min, max }) if figures.contender != Kind::Haproxy => {
            format!("{median:.3} ({min:.3} to {max:.3})")
        }
        _ => String::new(),
    };
    writeln!(
        out,
        "{:<8} {:>5} {:>7} {:>7}  {:<9} {:>9.2} {:>7.2} {:>7.2} {:>15}  {:<22} {:>8.0} {:>8.0} {:>8.0}",
        cell.protocol,
        cell.rows,
        cell.clients,
        cell.workers,
        figures.contender,
        cpu_us,
        cpu_us * user,
        cpu_us * (1.0 - user),
        format!("{low:.2} to {high:.2}"),
        ratio,
        median(|sample| sample.qps),
        median(|sample| sample.p50_us),
        median(|sample| sample.p99_us),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overhead::Servers;

    fn figures(contender: Kind, cpu: &[f64]) -> Figures {
        let sample = |&cpu_us: &f64| Sample {
            cpu_us,
            user_us: 1.0,
            system_us: cpu_us - 1.0,
            qps: 1e6 / cpu_us,
            p50_us: 10.0,
            p99_us: 20.0,
        };
        let rounds = cpu.iter().map(sample).collect();
        Figures { contender, rounds }
    }

    fn report() -> Report {
        let cell = Cell {
            protocol: Protocol::Text,
            rows: 1,
            clients: 32,
            workers: 1,
            figures: vec![
                figures(Kind::Haproxy, &[10.0, 20.0, 10.0]),
                figures(Kind::Session, &[9.0, 16.0, 9.5]),
            ],
        };
        let idle = |contender, rss_bytes| IdleFigures {
            contender,
            sessions: 10,
            server_connections: 10,
            rss_bytes,
            pss_bytes: rss_bytes,
        };
        let plan = Plan {
            rows: vec![1],
            clients: vec![32],
            workers: vec![1],
            protocols: vec![Protocol::Text],
            rounds: 3,
            seconds: 1.0,
            contenders: vec![Kind::Haproxy, Kind::Session],
            idle_sessions: 10,
            older_clients: false,
            busy_poll: false,
            forebay_options: Vec::new(),
            servers: Servers {
                replicas: 0,
                connections: 100,
            },
        };
        Report {
            scenario: "overhead",
            machine: Machine::describe(),
            plan,
            cells: vec![cell],
            idle: vec![idle(Kind::Haproxy, 4000.0), idle(Kind::Session, 5000.0)],
        }
    }

    #[test]
    fn ratios_are_formed_within_a_round() {
        let ratio = report().cells[0].compare(Kind::Session, Some(Kind::Haproxy), Metric::Cpu);
        assert_eq!(
            ratio,
            Some(Spread {
                median: 0.9,
                min: 0.8,
                max: 0.95
            })
        );
    }

    #[test]
    fn a_check_fails_when_its_ratio_is_missed_or_was_not_measured() {
        let failed = |text: &str| report().failed_checks(&[text.parse().unwrap()]);
        assert!(failed("session/haproxy@cpu,rows=1<=0.90").is_empty());
        assert!(failed("session/haproxy@idle<=1.25").is_empty());
        assert_eq!(failed("session/haproxy@cpu<=0.89").len(), 1);
        assert!(failed("session/haproxy@cpu,rows=7<=1")[0].contains("selects nothing"));
        assert!(failed("tcp/haproxy@cpu<=1")[0].contains("not measured"));
    }

    #[test]
    fn the_table_shows_every_contender_and_its_ratio() {
        let table = report().table();
        assert!(table.contains("0.900 (0.800 to 0.950)"), "{table}");
        assert!(
            table.lines().filter(|line| line.starts_with("text")).count() == 2,
            "{table}"
        );
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }
}
