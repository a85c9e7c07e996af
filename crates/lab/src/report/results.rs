//! What a report has found, for programs; the page is made of the same.

use serde::{Deserialize, Serialize};

use super::{catalogue::Table, published::Published, text::number};
use crate::{cache, machine::Machine, overhead::Spread};

/// A band that is wider, in parts of its median, says nothing.
const BAND_MAX: f64 = 0.3;
/// How far the median of another run may be from that of this one, in nine of ten runs, in parts of the
/// distance between the lowest and the highest of so many rounds: 2, 3, and so on. Of normally distributed
/// rounds, by simulation.
const REACH: [f64; 8] = [4.6, 1.4, 0.8, 0.65, 0.5, 0.45, 0.4, 0.35];

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Results {
    pub report: String,
    /// Of the page.
    pub title: String,
    pub date: String,
    pub machine: Machine,
    /// The versions of all programs.
    pub programs: Vec<String>,
    pub options: Vec<String>,
    /// Whether all tables that were asked for have had their turn; otherwise it was broken off, or goes on.
    pub is_done: bool,
    /// Whether these are all tables of the report.
    pub is_whole: bool,
    /// The numbers of those that were not asked for.
    pub left_out: Vec<String>,
    /// The tables, in the order of the report.
    pub sections: Vec<Section>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Section {
    /// `T1`
    pub number: String,
    /// `point-select`
    pub name: String,
    /// Whose table it is.
    pub report: String,
    /// In words.
    pub title: String,
    /// What was run here, or why nothing was.
    pub text: String,
    /// What may be concluded.
    pub conclusion: String,
    /// What runs differ in, where their parameter is a number only: `clients`.
    #[serde(default)]
    pub varied: String,
    /// Whether it is made here at all.
    pub is_here: bool,
    /// Why it has not come to its end.
    pub failed: Option<String>,
    /// Promises that were not kept. It has come to its end all the same.
    pub broken: Vec<String>,
    pub seconds: f64,
    pub figures: Vec<Figure>,
    /// What stands beside the published.
    pub ratios: Vec<Ratio>,
    #[serde(skip_deserializing)]
    pub published: Vec<Published>,
    /// What whoever reads it has to know.
    pub notes: Vec<String>,
}

/// Something that was measured, round by round.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Figure {
    /// Of which run of the table: `20`.
    pub parameter: String,
    /// Of whom.
    pub who: String,
    /// `qps`, `cpu`, and so on, or in words.
    pub metric: String,
    /// Of the values.
    pub unit: String,
    /// In the order of the rounds.
    pub rounds: Vec<f64>,
}

impl Figure {
    /// Median, lowest and highest.
    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(self.rounds.iter().copied())
    }
}

/// A quotient that was formed within each round.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Ratio {
    /// As in the figures.
    pub parameter: String,
    /// As in the figures.
    pub metric: String,
    /// Whose figure.
    pub of: String,
    /// By whose it is divided.
    pub to: String,
    /// In the order of the rounds.
    pub rounds: Vec<f64>,
    /// Median, lowest and highest of the rounds.
    pub spread: Spread,
    /// Where the median of another run is to be expected, in nine of ten; nothing of a single round.
    pub band: Option<(f64, f64)>,
    /// The band says something.
    pub is_measured: bool,
}

impl Ratio {
    /// Of two runs, whose rounds are no pairs: the medians are divided, and the ends of their bands.
    pub(super) fn of_runs(labels: [&str; 4], (of, to): (&[f64], &[f64])) -> Option<Self> {
        let spread_of = |rounds: &[f64]| Spread::of(rounds.iter().copied());
        let (over, under) = (spread_of(of)?, spread_of(to)?);
        let quotient = |over: f64, under: f64| (under > 0.0).then(|| over / under);
        let spread = Spread {
            median: quotient(over.median, under.median)?,
            min: quotient(over.min, under.max)?,
            max: quotient(over.max, under.min)?,
        };
        let bands = band(over, of.len()).zip(band(under, to.len()));
        let band =
            bands.and_then(|(over, under)| Some((quotient(over.0, under.1)?, quotient(over.1, under.0)?)));
        Some(Self::new(labels, Vec::new(), spread, band))
    }

    /// The quotients of the rounds are there already; nothing where there were no rounds.
    pub(super) fn formed(labels: [&str; 4], rounds: Vec<f64>) -> Option<Self> {
        let spread = Spread::of(rounds.iter().copied())?;
        let band = band(spread, rounds.len());
        Some(Self::new(labels, rounds, spread, band))
    }

    fn new(labels: [&str; 4], rounds: Vec<f64>, spread: Spread, band: Option<(f64, f64)>) -> Self {
        let [parameter, metric, of, to] = labels.map(str::to_owned);
        let width = band.map(|(low, high)| (high - low) / spread.median);
        Self {
            parameter,
            metric,
            of,
            to,
            rounds,
            spread,
            band,
            is_measured: width.is_some_and(|width| width <= BAND_MAX),
        }
    }
}

pub(super) fn band(spread: Spread, rounds: usize) -> Option<(f64, f64)> {
    let reach = match rounds.checked_sub(2)? {
        at if at < REACH.len() => REACH[at],
        _ => REACH[REACH.len() - 1],
    };
    let reach = reach * (spread.max - spread.min);
    // The rounds themselves are never outside.
    let low = (spread.median - reach).min(spread.min);
    let high = (spread.median + reach).max(spread.max);
    Some((low.max(0.0), high))
}

impl Section {
    pub(super) fn new(table: &Table) -> Self {
        Self {
            number: table.number.to_owned(),
            name: table.name.to_owned(),
            report: table.report.to_string(),
            title: table.title.to_owned(),
            text: table.text.to_owned(),
            conclusion: table.conclusion.to_owned(),
            varied: table.how.varied().to_owned(),
            is_here: table.how.is_here(),
            published: table.published(),
            ..Self::default()
        }
    }

    /// The runs of these parameters, for people: `20, 50 clients`.
    pub(super) fn runs(&self, parameters: &[&str]) -> String {
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let listed = parameters.join(", ");
        match parameters.iter().all(is_number) && !self.varied.is_empty() {
            true => format!("{listed} {}", self.varied),
            false => listed,
        }
    }

    /// It is not made after all.
    pub(super) fn leave_out(&mut self, reason: &str) {
        self.is_here = false;
        reason.clone_into(&mut self.text);
        self.conclusion.clear();
    }

    /// Adds one round's value. `at`: of which run, of whom.
    pub(super) fn record(&mut self, at: (&str, &str), metric: &str, unit: &str, value: f64) {
        let (parameter, who) = at;
        let found = self
            .figures
            .iter_mut()
            .find(|figure| figure.parameter == parameter && figure.who == who && figure.metric == metric);
        match found {
            Some(figure) => figure.rounds.push(value),
            None => self.figures.push(Figure {
                parameter: parameter.to_owned(),
                who: who.to_owned(),
                metric: metric.to_owned(),
                unit: unit.to_owned(),
                rounds: vec![value],
            }),
        }
    }

    /// Adds all rounds of a figure of another bench's.
    pub(super) fn take(&mut self, at: (&str, &str), metric: &str, figure: &cache::Figure) {
        for value in &figure.rounds {
            self.record(at, metric, figure.unit, *value);
        }
        let note = figure.note.iter();
        self.notes
            .extend(note.map(|note| format!("{}, {}: {note}", figure.part, figure.name)));
    }

    /// Divides one's figures by another's, wherever both have some.
    pub(super) fn compare(&mut self, of: &str, to: &str, metric: &str) {
        let all = self.figures.iter();
        let found = all
            .clone()
            .filter(|figure| figure.who == of && figure.metric == metric);
        let ratios = found.filter_map(|figure| {
            let other = all.clone().find(|other| {
                other.who == to && other.metric == metric && other.parameter == figure.parameter
            })?;
            let pairs = figure.rounds.iter().zip(&other.rounds);
            let labels: [&str; 4] = [&figure.parameter, &figure.metric, of, to];
            Ratio::formed(labels, pairs.map(|(of, to)| of / to).collect())
        });
        let ratios: Vec<Ratio> = ratios.collect();
        self.ratios.extend(ratios);
    }

    /// Divides the figures of each run by those of one of them.
    pub(super) fn compare_runs(&mut self, to: &str, label: &str, metric: &str) {
        let all = self.figures.iter();
        let found = all
            .clone()
            .filter(|figure| figure.metric == metric && figure.parameter != to);
        let ratios = found.filter_map(|figure| {
            let other = all
                .clone()
                .find(|other| other.who == figure.who && other.metric == metric && other.parameter == to)?;
            let pairs = figure.rounds.iter().zip(&other.rounds);
            let labels: [&str; 4] = [&figure.parameter, &figure.metric, &figure.who, label];
            Ratio::formed(labels, pairs.map(|(of, to)| of / to).collect())
        });
        let ratios: Vec<Ratio> = ratios.collect();
        self.ratios.extend(ratios);
    }

    pub(super) fn summary(&self) -> String {
        let mut out = format!(
            "\n{} {} ({}, {:.0} s)\n",
            self.number, self.title, self.report, self.seconds
        );
        if !self.is_here {
            return out + "  not run: " + &self.text + "\n";
        }
        for ratio in &self.ratios {
            let Ratio {
                parameter,
                metric,
                of,
                to,
                ..
            } = ratio;
            let theirs = self.published.iter();
            let theirs = theirs.filter(|row| row.parameter == parameter && row.metric == metric);
            let theirs: Vec<String> = theirs
                .map(|row| format!("{}/{} {}", row.system, row.reference, row.ratio))
                .collect();
            out += &format!(
                "  {parameter:<22} {metric:<8} {:<28} {:<30} {}\n",
                format!("{of}/{to}"),
                ratio.in_words(),
                theirs.join(", ")
            );
        }
        // Where nothing is divided, and where the bytes themselves tell more.
        let shown = |figure: &&Figure| self.ratios.is_empty() || figure.metric == "session";
        for figure in self.figures.iter().filter(shown) {
            let Some(spread) = figure.spread() else { continue };
            out += &format!(
                "  {:<28} {:<36} {:<10} {} {}\n",
                figure.parameter,
                figure.metric,
                figure.who,
                number(spread.median),
                figure.unit
            );
        }
        for broken in &self.broken {
            out += &format!("  PROMISE NOT KEPT: {broken}\n");
        }
        if let Some(failed) = &self.failed {
            out += &format!("  FAILED: {failed}\n");
        }
        out
    }
}

impl Ratio {
    /// `0.921 (0.900 to 0.950)`
    pub(super) fn in_words(&self) -> String {
        let median = self.spread.median;
        match self.band {
            None => format!("{median:.3} (one round)"),
            Some((low, high)) if self.is_measured => format!("{median:.3} ({low:.3} to {high:.3})"),
            Some((low, high)) => format!("not measured ({low:.2} to {high:.2})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_formed_within_a_round_and_bands_tell_what_is_measured() {
        let mut section = Section::default();
        for (own, other) in [(9.0, 10.0), (18.0, 20.0), (9.1, 10.0)] {
            section.record(("20", "session"), "cpu", "us", own);
            section.record(("20", "haproxy"), "cpu", "us", other);
        }
        section.record(("50", "session"), "cpu", "us", 1.0);
        section.compare("session", "haproxy", "cpu");
        let [ratio] = &section.ratios[..] else {
            panic!("HAProxy has no figures at 50: {:?}", section.ratios);
        };
        assert_eq!(ratio.spread.median, 0.9);
        let (low, high) = ratio.band.unwrap();
        assert!(ratio.is_measured && low < 0.9 && high >= 0.91, "{ratio:?}");
    }

    #[test]
    fn a_wide_band_is_no_measurement_and_neither_is_a_single_round() {
        let ratio = |rounds: &[f64]| {
            let mut section = Section::default();
            for value in rounds {
                section.record(("x", "a"), "qps", "", *value);
                section.record(("x", "b"), "qps", "", 1.0);
            }
            section.compare("a", "b", "qps");
            section.ratios.remove(0)
        };
        assert!(!ratio(&[0.5, 1.0, 1.5]).is_measured);
        assert!(ratio(&[0.5, 1.0, 1.5]).in_words().starts_with("not measured"));
        assert_eq!(ratio(&[1.0]).band, None);
        assert!(!ratio(&[1.0]).is_measured);
        assert!(ratio(&[1.0, 1.0]).is_measured);
        assert!(!ratio(&[0.9, 1.1]).is_measured, "two rounds say little");
    }

    #[test]
    fn runs_are_compared_with_one_of_them() {
        let mut section = Section::default();
        section.record(("none", "session"), "qps", "", 10.0);
        section.record(("100/s", "session"), "qps", "", 9.0);
        section.compare_runs("none", "without", "qps");
        assert_eq!(section.ratios.len(), 1);
        let ratio = &section.ratios[0];
        assert_eq!(
            (&ratio.parameter[..], &ratio.to[..], ratio.spread.median),
            ("100/s", "without", 0.9)
        );
    }

    #[test]
    fn a_table_without_ratios_has_a_summary_of_its_figures_and_of_what_was_not_kept() {
        let mut report = cache::Report::new(Vec::new());
        report.add("replicas, mariadb, split", "errors", "", [3.0]);
        report.note("1105 x 3".to_owned());
        let mut section = Section {
            is_here: true,
            broken: vec!["replicas, mariadb, split (errors: 3)".to_owned()],
            ..Section::default()
        };
        let figure = &report.figures[0];
        section.take((&figure.part, ""), &figure.name, figure);
        assert_eq!(section.notes, ["replicas, mariadb, split, errors: 1105 x 3"]);
        let summary = section.summary();
        assert!(
            summary.contains("errors") && summary.contains("3.000"),
            "{summary}"
        );
        assert!(summary.contains("PROMISE NOT KEPT: replicas"), "{summary}");
        section.record(("5000", "session"), "session", "B", 1234.0);
        section.record(("5000", "haproxy"), "session", "B", 2468.0);
        section.compare("session", "haproxy", "session");
        let summary = section.summary();
        assert!(
            summary.contains("1234 B") && !summary.contains("3.000"),
            "{summary}"
        );
    }
}
