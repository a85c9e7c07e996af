//! `forebay bench … --page DIR`: the figures of another bench in the form of a report's, so that they have
//! the same page, and `bench compare` takes them.

use std::path::Path;

use super::{
    now, page,
    results::{Ratio, Results, Section},
    text::distinct,
    write_with,
};
use crate::{
    cache,
    machine::Machine,
    overhead::{self, Kind},
};

/// What was measured for every contender, with its unit.
type Metric = (&'static str, &'static str, fn(&overhead::Sample) -> f64);

/// Of a round.
const METRICS: [Metric; 4] = [
    ("cpu", "us", |sample| sample.cpu_us),
    ("qps", "query/s", |sample| sample.qps),
    ("p50", "us", |sample| sample.p50_us),
    ("p99", "us", |sample| sample.p99_us),
];

/// Writes the page of `bench overhead` or `bench split`.
pub fn write_matrix(folder: &Path, options: Vec<String>, report: &overhead::Report) -> anyhow::Result<()> {
    let mut queries = section(report.scenario, "queries", "One query");
    for cell in &report.cells {
        let workers = match cell.workers {
            1 => String::new(),
            many => format!(", {many} workers"),
        };
        let parameter = format!(
            "{}, rows: {}, clients: {}{workers}",
            cell.protocol, cell.rows, cell.clients
        );
        for figures in &cell.figures {
            let who = figures.contender.to_string();
            for (metric, unit, of) in METRICS {
                for sample in &figures.rounds {
                    queries.record((&parameter, &who), metric, unit, of(sample));
                }
            }
        }
    }
    let mut idle = section(report.scenario, "idle", "An idle session");
    for figures in &report.idle {
        let at = (&*figures.sessions.to_string(), &*figures.contender.to_string());
        idle.record(at, "session", "B", figures.rss_bytes);
    }
    for section in [&mut queries, &mut idle] {
        divide_by_haproxy(section);
    }
    let sections = [queries, idle].into_iter();
    let sections = sections.filter(|section| !section.figures.is_empty()).collect();
    write(folder, report.scenario, (&report.machine, &[]), options, sections)
}

fn divide_by_haproxy(section: &mut Section) {
    let haproxy = Kind::Haproxy.to_string();
    let whose = section.figures.iter().map(|figure| figure.who.clone());
    for who in distinct(whose).iter().filter(|who| **who != haproxy) {
        for metric in ["cpu", "qps", "p99", "session"] {
            section.compare(who, &haproxy, metric);
        }
    }
}

/// Writes the page of the bench `bench`, a section for each part.
pub fn write_figures(
    folder: &Path,
    bench: &str,
    options: Vec<String>,
    report: &cache::Report,
) -> anyhow::Result<()> {
    let parts = distinct(report.figures.iter().map(|figure| &*figure.part));
    let sections = parts.into_iter().map(|part| {
        let mut section = section(bench, part, part);
        for figure in report.figures.iter().filter(|figure| figure.part == part) {
            take(figure, &mut section);
        }
        section
    });
    let sections = sections.collect();
    write(
        folder,
        bench,
        (&report.machine, &report.programs),
        options,
        sections,
    )
}

/// Figures are called `GET, 50 clients: strong, CPU`, and quotients `GET, 50 clients: strong/redis, CPU`.
fn take(figure: &cache::Figure, section: &mut Section) {
    let (parameter, what) = figure.name.rsplit_once(": ").unwrap_or(("", &figure.name));
    let (who, metric) = match what.split_once(", ") {
        _ if parameter.is_empty() => ("", what),
        Some((who, "CPU")) => (who, "cpu"),
        Some((who, "op/s")) => (who, "qps"),
        Some((who, metric)) => (who, metric),
        None if figure.unit.is_empty() || figure.unit.ends_with("/s") => (what, "qps"),
        None => (what, figure.unit),
    };
    match who.split_once('/') {
        Some((of, to)) => {
            let rounds = figure.rounds.clone();
            section
                .ratios
                .extend(Ratio::formed([parameter, metric, of, to], rounds));
        }
        None => section.take((parameter, who), metric, figure),
    }
    if let Some(wanted) = figure.wanted.filter(|_| !figure.met()) {
        section
            .notes
            .push(format!("{}: wanted {wanted}, not met", figure.name));
    }
}

fn section(bench: &str, name: &str, title: &str) -> Section {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric();
    let words = name
        .split(|letter| !is_plain(letter))
        .filter(|word| !word.is_empty());
    Section {
        number: words.collect::<Vec<_>>().join("-"),
        name: name.to_owned(),
        report: format!("bench {bench}"),
        title: title.to_owned(),
        is_here: true,
        ..Section::default()
    }
}

fn write(
    folder: &Path,
    bench: &str,
    (machine, programs): (&Machine, &[String]),
    options: Vec<String>,
    sections: Vec<Section>,
) -> anyhow::Result<()> {
    let results = Results {
        report: format!("bench {bench}"),
        title: format!("forebay bench {bench}"),
        date: now(),
        machine: machine.clone(),
        programs: programs.to_vec(),
        options,
        is_done: true,
        is_whole: true,
        left_out: Vec::new(),
        sections,
    };
    write_with(page::of_bench, &results, folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Report, Wanted};

    #[test]
    fn figures_and_quotients_find_their_places() {
        let mut report = Report::new(vec!["redis 7".to_owned()]);
        for (part, name, unit) in [
            ("operations", "GET, 50 clients: strong", "op/s"),
            ("operations", "GET, 50 clients: strong, CPU", "us/op"),
            ("operations", "GET, 50 clients: strong/redis, CPU", ""),
            ("replicas, mariadb", "longest time without any answer", "ms"),
        ] {
            report
                .add(part, name, unit, [2.0, 2.0, 2.1])
                .wanted(Wanted::AtMost(2.0));
        }
        report
            .add("operations", "GET, 50 clients: redis", "op/s", [9.0])
            .wanted(Wanted::AtMost(2.0));
        let folder = tempfile::tempdir().unwrap();
        write_figures(folder.path(), "cache", vec!["--quick".to_owned()], &report).unwrap();
        let results = crate::report::compare::read(folder.path()).unwrap();
        let [operations, replicas] = &results.sections[..] else {
            panic!("{:?}", results.sections);
        };
        let figures: Vec<_> = operations.figures.iter().map(places).collect();
        let of = |who, metric| ("GET, 50 clients", who, metric);
        assert_eq!(
            figures,
            [of("strong", "qps"), of("strong", "cpu"), of("redis", "qps")]
        );
        let [ratio] = &operations.ratios[..] else {
            panic!("{:?}", operations.ratios);
        };
        assert_eq!(
            (&*ratio.of, &*ratio.to, &*ratio.metric),
            ("strong", "redis", "cpu")
        );
        assert!(ratio.is_measured && ratio.spread.median == 2.0);
        assert_eq!(operations.notes, ["GET, 50 clients: redis: wanted <= 2, not met"]);
        assert_eq!(replicas.number, "replicas-mariadb");
        assert_eq!(
            places(&replicas.figures[0]),
            ("", "", "longest time without any answer")
        );
        let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
        assert!(
            page.contains("<section id=\"replicas-mariadb\">") && page.contains("redis 7"),
            "{page}"
        );
        assert!(!page.contains("table of the report"), "{page}");
    }

    fn places(figure: &crate::report::results::Figure) -> (&str, &str, &str) {
        (&figure.parameter, &figure.who, &figure.metric)
    }
}
