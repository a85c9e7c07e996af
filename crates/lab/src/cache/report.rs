//! The figures, each with what is wanted of it.

use std::{fmt, fs, path::Path};

use anyhow::Context;
use serde::Serialize;

use crate::{machine::Machine, overhead::Spread};

/// A bound that a median must keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// This much or less.
    AtMost(f64),
    /// This much or more.
    AtLeast(f64),
}

impl Wanted {
    fn met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(out, "<= {bound}"),
            Self::AtLeast(bound) => write!(out, ">= {bound}"),
        }
    }
}

/// One figure of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub part: String,
    /// What was measured, of whom.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// Median, lowest and highest of the rounds.
    pub spread: Spread,
    pub rounds: Vec<f64>,
    /// What is aimed at.
    pub wanted: Option<Wanted>,
    /// What whoever reads it has to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Figure {
    /// Whether it is as wanted, where something is wanted.
    pub fn met(&self) -> bool {
        self.wanted.is_none_or(|wanted| wanted.met_by(self.spread.median))
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub machine: Machine,
    /// The server's version, and Redis's.
    pub programs: Vec<String>,
    /// In the order in which they were taken.
    pub figures: Vec<Figure>,
}

/// A figure that was added, if there were rounds.
pub(crate) struct Added<'r>(Option<&'r mut Figure>);

impl Added<'_> {
    /// The bound that its median must keep, if there is one.
    pub(crate) fn wanted(self, wanted: impl Into<Option<Wanted>>) {
        if let Some(figure) = self.0 {
            figure.wanted = wanted.into();
        }
    }
}

impl Report {
    /// Without figures yet. `programs`: as in the field.
    #[must_use]
    pub fn new(programs: Vec<String>) -> Self {
        Self {
            machine: Machine::describe(),
            programs,
            figures: Vec::new(),
        }
    }

    /// Adds a figure; nothing where there were no rounds.
    pub(crate) fn add(
        &mut self,
        part: &str,
        name: impl Into<String>,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
    ) -> Added<'_> {
        let rounds: Vec<f64> = values.into_iter().collect();
        let figure = Spread::of(rounds.iter().copied()).map(|spread| Figure {
            part: part.to_owned(),
            name: name.into(),
            unit,
            spread,
            rounds,
            wanted: None,
            note: None,
        });
        Added(figure.map(|figure| self.figures.push_mut(figure)))
    }

    /// Says this of the last figure, if it is anything.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if let Some(figure) = self.figures.last_mut().filter(|_| !note.is_empty()) {
            figure.note = Some(note);
        }
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut out = format!("{} on {}\n", self.programs.join(", "), self.machine.cpu);
        let mut part = "";
        for figure in &self.figures {
            if figure.part != part {
                part = &figure.part;
                out += &format!("\n{part}\n");
            }
            let Spread { median, min, max } = figure.spread;
            let digits = if median.abs() < 10.0 { 3 } else { 0 };
            let mut verdict = match figure.wanted {
                None => String::new(),
                Some(wanted) if figure.met() => format!("   wanted {wanted}: met"),
                Some(wanted) => format!("   wanted {wanted}: NOT MET"),
            };
            verdict.extend(figure.note.iter().map(|note| format!("   {note}")));
            out += &format!(
                "  {:<58} {median:>10.digits$} {:<6} ({min:.digits$} to {max:.digits$}){verdict}\n",
                figure.name, figure.unit
            );
        }
        out
    }

    /// For programs.
    pub fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    pub fn not_met(&self) -> Vec<&Figure> {
        self.figures.iter().filter(|figure| !figure.met()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_is_not_met() {
        let mut report = Report::new(vec!["server".to_owned()]);
        report
            .add("operations", "GET", "", [0.9, 1.2, 1.1])
            .wanted(Wanted::AtMost(1.0));
        report
            .add("operations", "GET", "", [0.9])
            .wanted(Wanted::AtMost(1.0));
        report.note("as it happened".to_owned());
        report.add("memory", "none", "B", []);
        assert_eq!(report.figures.len(), 2);
        assert_eq!(report.not_met().len(), 1);
        let table = report.table();
        assert!(
            table.contains("1.100")
                && table.contains("NOT MET")
                && table.contains(": met   as it happened\n"),
            "{table}"
        );
    }
}
