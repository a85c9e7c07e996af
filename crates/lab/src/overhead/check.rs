//! A ratio that a run must meet: `session/haproxy@cpu,rows=1,clients=32|100<=0.90`.

use std::{fmt, str::FromStr};

use anyhow::{Context, bail};
use clap::ValueEnum;

use super::{Kind, Protocol, report::Cell};

/// The figure a [`Check`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// CPU time of the contender per query.
    Cpu,
    /// Queries a second.
    Qps,
    /// Median latency.
    P50,
    /// 99th percentile of the latency.
    P99,
    /// Resident memory of an idle session.
    Idle,
}

/// One condition on the command line. It holds when it holds in every cell of the matrix that its filters
/// select, and fails when they select none.
#[derive(Clone, Debug)]
pub struct Check {
    /// As it was written.
    pub text: String,
    /// Whose figure is divided …
    pub contender: Kind,
    /// … by whose; none: the figure itself (in µs, queries a second, or bytes) is compared with the bound.
    pub reference: Option<Kind>,
    pub metric: Metric,
    rows: Vec<u32>,
    clients: Vec<usize>,
    workers: Vec<usize>,
    protocols: Vec<Protocol>,
    at_most: bool,
    bound: f64,
}

impl Check {
    pub fn met_by(&self, value: f64) -> bool {
        if self.at_most {
            value <= self.bound
        } else {
            value >= self.bound
        }
    }

    /// Whether the cell is among those this check is about.
    pub fn selects(&self, cell: &Cell) -> bool {
        let any = |empty: bool, contains: bool| empty || contains;
        any(self.rows.is_empty(), self.rows.contains(&cell.rows))
            && any(self.clients.is_empty(), self.clients.contains(&cell.clients))
            && any(self.workers.is_empty(), self.workers.contains(&cell.workers))
            && any(self.protocols.is_empty(), self.protocols.contains(&cell.protocol))
    }

    fn filter(&mut self, text: &str) -> anyhow::Result<()> {
        let (name, values) = text
            .split_once('=')
            .with_context(|| format!("a filter without `=`: {text}"))?;
        let values = values.split('|');
        match name {
            "rows" => self.rows = values.map(str::parse).collect::<Result<_, _>>()?,
            "clients" => self.clients = values.map(str::parse).collect::<Result<_, _>>()?,
            "workers" => self.workers = values.map(str::parse).collect::<Result<_, _>>()?,
            "protocol" => self.protocols = values.map(named).collect::<Result<_, _>>()?,
            _ => bail!("filters are rows, clients, workers and protocol, not {name}"),
        }
        Ok(())
    }
}

impl FromStr for Check {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (at_most, operator) = if text.contains("<=") {
            (true, "<=")
        } else {
            (false, ">=")
        };
        let (left, bound) = text
            .rsplit_once(operator)
            .context("expected `<=` or `>=` and a number")?;
        let (contenders, rest) = left
            .split_once('@')
            .context("expected `contender/reference@metric`")?;
        let (contender, reference) = match contenders.split_once('/') {
            Some((contender, reference)) => (contender, Some(named(reference)?)),
            None => (contenders, None),
        };
        let mut rest = rest.split(',');
        let mut check = Self {
            text: text.to_owned(),
            contender: named(contender)?,
            reference,
            metric: metric(rest.next().unwrap_or_default())?,
            rows: Vec::new(),
            clients: Vec::new(),
            workers: Vec::new(),
            protocols: Vec::new(),
            at_most,
            bound: bound
                .trim()
                .parse()
                .with_context(|| format!("not a number: {bound}"))?,
        };
        for filter in rest {
            check.filter(filter)?;
        }
        Ok(check)
    }
}

impl fmt::Display for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

fn named<T: ValueEnum>(text: &str) -> anyhow::Result<T> {
    T::from_str(text, false).map_err(|_| {
        let names = T::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        anyhow::anyhow!("{text} is none of {}", names.join(", "))
    })
}

fn metric(text: &str) -> anyhow::Result<Metric> {
    Ok(match text {
        "cpu" => Metric::Cpu,
        "qps" => Metric::Qps,
        "p50" => Metric::P50,
        "p99" => Metric::P99,
        "idle" => Metric::Idle,
        _ => bail!("metrics are cpu, qps, p50, p99 and idle, not {text}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(rows: u32, clients: usize, protocol: Protocol) -> Cell {
        Cell {
            protocol,
            rows,
            clients,
            workers: 1,
            figures: Vec::new(),
        }
    }

    #[test]
    fn a_check_selects_by_its_filters() {
        let check: Check = "session/haproxy@cpu,rows=1|100,clients=32<=0.90".parse().unwrap();
        assert_eq!(
            (check.contender, check.reference),
            (Kind::Session, Some(Kind::Haproxy))
        );
        assert!(check.selects(&cell(100, 32, Protocol::Text)));
        assert!(!check.selects(&cell(1000, 32, Protocol::Text)));
        assert!(!check.selects(&cell(1, 1, Protocol::Prepared)));
        let check: Check = "split/haproxy@cpu,workers=2<=0.90".parse().unwrap();
        assert!(!check.selects(&cell(1, 1, Protocol::Text)));
        assert!(check.met_by(0.9) && !check.met_by(0.91));
    }

    #[test]
    fn a_check_without_reference_is_about_the_figure_itself() {
        let check: Check = "tcp@idle<=4096".parse().unwrap();
        assert_eq!((check.reference, check.metric), (None, Metric::Idle));
        let check: Check = "tcp/direct@qps,protocol=text>=0.5".parse().unwrap();
        assert!(check.met_by(0.6) && !check.met_by(0.4));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("tcp/haproxy@cpu", "`<=`"),
            ("tcp/nginx@cpu<=1", "nginx"),
            ("tcp/haproxy@watts<=1", "watts"),
            ("tcp/haproxy@cpu,columns=1<=1", "columns"),
            ("tcp/haproxy@cpu<=cheap", "cheap"),
        ] {
            let error = format!("{:#}", text.parse::<Check>().unwrap_err());
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
