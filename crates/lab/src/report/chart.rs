//! Charts of a page: SVG whose widths are shares of the page's, so that letters keep their size on any.

use std::fmt::Write as _;

use super::{
    results::{Figure, Section},
    text::{distinct, escaped, number},
};
use crate::overhead::Spread;

/// Pixels.
const LINE: f64 = 20.0;
const GAP: f64 = 10.0;
/// Percents of the width.
const LEFT: f64 = 34.0;
const BARS: f64 = 50.0;
const RATIOS: f64 = 62.0;
/// Letters that there is room for on the left, on a phone.
const LABEL_MAX: usize = 18;

/// A bar for each: the median, with a line from the lowest to the highest round.
pub(super) fn bars(section: &Section, figures: &[&Figure]) -> String {
    let spreads: Vec<(&Figure, Spread)> = figures
        .iter()
        .filter_map(|figure| Some((*figure, figure.spread()?)))
        .collect();
    let most = spreads.iter().map(|(_, spread)| spread.max).fold(0.0, f64::max);
    let scale = if most > 0.0 { BARS / most } else { 0.0 };
    let mut out = String::new();
    let mut y = 0.0;
    for parameter in distinct(spreads.iter().map(|(figure, _)| figure.parameter.as_str())) {
        head(&mut out, &mut y, &section.runs(&[parameter]));
        for (figure, spread) in spreads.iter().filter(|(figure, _)| figure.parameter == parameter) {
            let at = |value: f64| LEFT + value.max(0.0) * scale;
            let middle = y + LINE / 2.0;
            // Writing to a String cannot fail.
            let _ = write!(
                out,
                "<text x=\"{:.1}%\" dx=\"-8\" y=\"{:.0}\" text-anchor=\"end\">{who}</text><rect x=\"{LEFT}%\" y=\"{:.0}\" \
                 width=\"{:.2}%\" height=\"{:.0}\" rx=\"2\" class=\"{}\"/><line x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"{middle}\" \
                 y2=\"{middle}\" class=\"whisker\"/><text class=\"soft\" x=\"{:.2}%\" dx=\"6\" y=\"{:.0}\">{}</text>",
                LEFT,
                middle + 4.0,
                y + 2.0,
                spread.median.max(0.0) * scale,
                LINE - 4.0,
                colour(&figure.who),
                at(spread.min),
                at(spread.max),
                at(spread.max),
                middle + 4.0,
                number(spread.median),
                who = escaped(&figure.who),
            );
            y += LINE;
        }
        y += GAP;
    }
    svg(&out, y)
}

/// A dot for each median in its band, beside the published.
pub(super) fn ratios(section: &Section, metric: &str) -> String {
    let ours: Vec<_> = section
        .ratios
        .iter()
        .filter(|ratio| ratio.metric == metric)
        .collect();
    let theirs: Vec<_> = section
        .published
        .iter()
        .filter(|row| row.metric == metric)
        .collect();
    let band = |ratio: &super::results::Ratio| ratio.band.unwrap_or((ratio.spread.min, ratio.spread.max));
    // A band that says nothing ends at the edge.
    let ends = ours.iter().flat_map(|ratio| match ratio.is_measured {
        true => [band(ratio).0, band(ratio).1],
        false => [ratio.spread.median; 2],
    });
    let ends: Vec<f64> = ends
        .chain(theirs.iter().map(|row| row.ratio))
        .chain([1.0])
        .collect();
    let low = ends.iter().copied().fold(1.0, f64::min);
    let high = ends.iter().copied().fold(1.0, f64::max);
    let room = ((high - low) * 0.05).max(0.05);
    let (low, high) = ((low - room).max(0.0), high + room);
    let x = |value: f64| LEFT + (value.clamp(low, high) - low) / (high - low) * RATIOS;
    let common = common(section, metric);
    let mut out = String::new();
    let mut y = 0.0;
    let parameters = ours.iter().map(|ratio| ratio.parameter.as_str());
    for parameter in distinct(parameters.chain(theirs.iter().map(|row| row.parameter))) {
        head(&mut out, &mut y, &section.runs(&[parameter]));
        for ratio in ours.iter().filter(|ratio| ratio.parameter == parameter) {
            let (from, to) = band(ratio);
            let faint = if ratio.is_measured { "" } else { " faint" };
            let who = match common {
                Some(_) => ratio.of.clone(),
                None => format!("{} ÷ {}", ratio.of, ratio.to),
            };
            let middle = label(&mut out, &mut y, &who, "");
            // Writing to a String cannot fail.
            let _ = write!(
                out,
                "<rect x=\"{:.2}%\" y=\"{:.0}\" width=\"{:.2}%\" height=\"6\" rx=\"3\" class=\"{colour}{faint}\" opacity=\".4\"/>\
                 <circle cx=\"{:.2}%\" cy=\"{middle}\" r=\"5\" class=\"{colour}{faint}\"/>",
                x(from),
                middle - 3.0,
                x(to) - x(from),
                x(ratio.spread.median),
                colour = colour(&ratio.of),
            );
            y += LINE;
        }
        for row in theirs.iter().filter(|row| row.parameter == parameter) {
            let who = match common {
                Some(_) => row.system.to_owned(),
                None => format!("{} ÷ {}", row.system, row.reference),
            };
            let middle = label(&mut out, &mut y, &who, " their");
            let _ = write!(
                out,
                "<svg x=\"{:.2}%\" y=\"{middle}\" overflow=\"visible\"><path d=\"M0-6 6 0 0 6-6 0z\" class=\"their\"/></svg>",
                x(row.ratio)
            );
            y += LINE;
        }
        y += GAP;
    }
    let mut axis = String::new();
    for mark in [low + room, 1.0, high - room] {
        let class = if mark == 1.0 { "one" } else { "axis" };
        let _ = write!(
            axis,
            "<line x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"{y}\" class=\"{class}\"/>",
            at = x(mark)
        );
        // Near the one they would lie on each other.
        if mark == 1.0 || (x(mark) - x(1.0)).abs() > 6.0 {
            let _ = write!(
                axis,
                "<text class=\"soft\" x=\"{:.2}%\" y=\"{}\" text-anchor=\"middle\">{mark:.2}</text>",
                x(mark),
                y + 14.0
            );
        }
    }
    svg(&(axis + &out), y + LINE)
}

/// By whose figures all ratios of a metric divide, ours and the published, where it is one.
pub(super) fn common<'a>(section: &'a Section, metric: &str) -> Option<&'a str> {
    let ratios = section.ratios.iter().filter(|ratio| ratio.metric == metric);
    let [to] = distinct(ratios.map(|ratio| ratio.to.as_str()))[..] else {
        return None;
    };
    let mut theirs = section.published.iter().filter(|row| row.metric == metric);
    theirs
        .all(|row| row.reference.eq_ignore_ascii_case(to))
        .then_some(to)
}

/// What the lines below have in common.
fn head(out: &mut String, y: &mut f64, parameter: &str) {
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<text class=\"soft\" x=\"0\" y=\"{:.0}\">{}</text>",
        *y + 14.0,
        escaped(parameter)
    );
    *y += LINE;
}

fn label(out: &mut String, y: &mut f64, text: &str, class: &str) -> f64 {
    // On a phone a long one has no room on the left: it has a line of its own, the full width.
    let (at, dx, anchor) = match text.chars().count() > LABEL_MAX {
        true => (0.0, 0, "start"),
        false => (LEFT, -8, "end"),
    };
    let middle = *y + LINE / 2.0;
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<text class=\"label{class}\" x=\"{at}%\" dx=\"{dx}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>",
        middle + 4.0,
        escaped(text)
    );
    if anchor == "end" {
        return middle;
    }
    *y += LINE;
    middle + LINE
}

fn colour(who: &str) -> &'static str {
    // Of a quotient, such as `session ÷ haproxy`, the dividend.
    match who.split(" ÷ ").next().unwrap_or_default() {
        "direct" | "off" => "c0",
        "haproxy" | "redis" | "1 worker" => "c1",
        "tcp" | "eventual" => "c2",
        "session" | "strong" | "on" | "one gateway" | "2 workers" => "c3",
        "split" => "c4",
        "moves" | "20 kept" => "c5",
        _ => "c6",
    }
}

fn svg(inside: &str, height: f64) -> String {
    format!("<svg class=\"chart\" height=\"{height:.0}\" role=\"img\">{inside}</svg>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::catalogue::{self, Name};

    fn section(number: &str, ours: (&str, &str)) -> Section {
        let tables = catalogue::of(Name::All);
        let table = tables.into_iter().find(|table| table.number == number).unwrap();
        let mut section = Section::new(table);
        for who in [ours.0, ours.1] {
            section.record(("20", who), "qps", "", 1.0);
        }
        section.compare(ours.0, ours.1, "qps");
        section
    }

    #[test]
    fn a_published_ratio_to_somebody_else_says_to_whom() {
        for (number, ours, theirs) in [
            (
                "P5",
                ("two behind tcp", "one gateway"),
                "ProxySQL ÷ direct to readers",
            ),
            ("T9", ("on", "off"), "TiProxy on ÷ TiProxy off"),
            ("C1", ("strong", "redis"), "Tair node strong ÷ SQL node"),
        ] {
            let section = section(number, ours);
            assert_eq!(common(&section, "qps"), None, "{number}");
            let chart = ratios(&section, "qps");
            assert!(chart.contains(&format!(">{theirs}<")), "{chart}");
            assert!(chart.contains(&format!(">{} ÷ {}<", ours.0, ours.1)), "{chart}");
        }
        let section = section("T1", ("session", "haproxy"));
        assert_eq!(common(&section, "qps"), Some("haproxy"));
        assert!(ratios(&section, "qps").contains(">TiProxy<"));
    }
}
