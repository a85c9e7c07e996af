//! `forebay bench compare`: two runs of a report, table by table.
//!
//! Ratios that each run has formed within its own rounds are compared always. Figures are compared only where
//! both runs were made on the same kind of machine: those of different machines do not compare.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use super::{
    catalogue::{self, Name},
    page,
    results::{Figure, Ratio, Results, Section},
};

/// By what everything of B is divided.
const IN_A: &str = "the same in A";

/// Ratios that differ by less, in parts, are the same again.
const ALIKE: f64 = 0.1;

/// What to compare.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareArgs {
    /// `results.json` of the first run, or its folder.
    pub a: PathBuf,
    /// `results.json` of the second run, or its folder.
    pub b: PathBuf,
    /// The folder for the page `index.html`, and for `comparison.json`.
    #[arg(long, default_value = "forebay-comparison")]
    pub output: PathBuf,
}

/// Compares two runs: prints what differs and writes the page.
///
/// # Errors
/// A file is not what `bench report` writes, the runs have no table in common, or the folder cannot be
/// written.
pub fn compare(args: &CompareArgs) -> anyhow::Result<()> {
    let [a, b] = [read(&args.a)?, read(&args.b)?];
    let is_same_machine = machine(&a) == machine(&b);
    let sections = sections(&a, &b, is_same_machine);
    ensure!(
        !sections.is_empty(),
        "{} and {} have no table in common that both have measured",
        args.a.display(),
        args.b.display()
    );
    super::writable(&args.output)?;
    let mut words = words(&a, &b, is_same_machine, &sections);
    let alike = alike(&a, &b);
    words.push(alike.clone());
    let mut brief = words.join("\n") + "\n";
    brief.extend(sections.iter().map(in_brief));
    let json = serde_json::to_string_pretty(&sections)? + "\n";
    let page = page::comparison([&a, &b], &words, &sections);
    for (name, text) in [("comparison.json", json), ("index.html", page)] {
        let path = args.output.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let index = args.output.join("index.html");
    brief += &format!("\nthe page: {}\n{alike}\n", index.display());
    // Whoever reads it may have read enough (`… | head`).
    match io::stdout().write_all(brief.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// How many of the ratios are the same again. Of one with a wide band in either run nothing is concluded.
fn alike(a: &Results, b: &Results) -> String {
    let (mut same, mut measured, mut open) = (0, 0, 0);
    for of in &b.sections {
        let to = a.sections.iter().filter(|to| to.number == of.number);
        for (over, under) in to.flat_map(|to| pairs(of, to)) {
            if !over.is_measured || !under.is_measured {
                open += 1;
                continue;
            }
            measured += 1;
            let quotient = over.spread.median / under.spread.median;
            same += usize::from((quotient - 1.0).abs() < ALIKE);
        }
    }
    format!(
        "{same} of {measured} ratios that both runs have measured differ by less than {:.0} %; {open} were not measured in one or both.",
        ALIKE * 100.0
    )
}

/// What was measured, for the terminal; the page has everything.
fn in_brief(section: &Section) -> String {
    let measured: Vec<&Ratio> = section.ratios.iter().filter(|ratio| ratio.is_measured).collect();
    let mut out = format!(
        "\n{} {}: {} of {} quotients measured\n",
        section.number,
        section.title,
        measured.len(),
        section.ratios.len()
    );
    for ratio in measured {
        let (low, high) = ratio.band.unwrap_or_default();
        let finding = match () {
            () if low > 1.0 => "B has more",
            () if high < 1.0 => "B has less",
            () => "no difference shown",
        };
        out += &format!(
            "  {:<12} {:<22} {:<24} {:<26} {finding}\n",
            ratio.parameter,
            ratio.metric,
            ratio.of,
            ratio.in_words()
        );
    }
    out
}

/// As it was written, with what was published beside it.
pub(super) fn read(path: &Path) -> anyhow::Result<Results> {
    let file = match path.is_dir() {
        true => path.join("results.json"),
        false => path.to_owned(),
    };
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let mut results: Results = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a `results.json` of `bench report`", file.display()))?;
    let tables = catalogue::of(Name::All);
    for section in &mut results.sections {
        let table = tables.iter().find(|table| table.number == section.number);
        section.published = table.map(|table| table.published()).unwrap_or_default();
    }
    Ok(results)
}

/// What has to be alike for figures to be compared.
fn machine(results: &Results) -> (&str, usize, &str) {
    let machine = &results.machine;
    (&machine.cpu, machine.cpus, &machine.kernel)
}

/// What a reader has to know before the figures.
fn words(a: &Results, b: &Results, is_same_machine: bool, sections: &[Section]) -> Vec<String> {
    let mut words = vec![
        "B is divided by A: above 1, B has more. A band is where the quotient of two other runs is to be expected, \
         in nine of ten for each; where it is wider than 30 % nothing was measured."
            .to_owned(),
    ];
    words.push(match is_same_machine {
        true => "Both runs were made on the same kind of machine: figures and ratios are compared.".to_owned(),
        false => "The runs were made on different machines: only ratios are compared that each has formed of its own \
                  figures."
            .to_owned(),
    });
    for (name, run) in [("A", a), ("B", b)] {
        if run.machine.is_busy() {
            words.push(format!(
                "The machine was busy with something else when {name} began (load average {}): take its figures for an \
                 impression.",
                run.machine.load_average
            ));
        }
    }
    for (what, a, b) in [
        ("options", &a.options, &b.options),
        ("programs", &a.programs, &b.programs),
    ] {
        if a != b {
            let list = |all: &[String]| match all {
                [] => "none".to_owned(),
                all => all.join("; "),
            };
            words.push(format!("They differ in {what}: A {}, B {}.", list(a), list(b)));
        }
    }
    let only = |of: &Results, name: &str| {
        let measured = of.sections.iter().filter(|section| !section.figures.is_empty());
        let missing = measured.filter(|section| sections.iter().all(|both| both.number != section.number));
        let missing: Vec<&str> = missing.map(|section| &section.number[..]).collect();
        (!missing.is_empty()).then(|| format!("Only {name} has measured {}.", missing.join(", ")))
    };
    words.extend(only(a, "A"));
    words.extend(only(b, "B"));
    words
}

/// The tables that both have measured.
fn sections(a: &Results, b: &Results, is_same_machine: bool) -> Vec<Section> {
    let compared = b.sections.iter().filter_map(|of| {
        let to = a.sections.iter().find(|to| to.number == of.number)?;
        let mut ratios = quotients_of_ratios(of, to);
        if is_same_machine {
            ratios.extend(quotients_of_figures(of, to));
        }
        (!ratios.is_empty()).then(|| Section {
            ratios,
            figures: Vec::new(),
            published: Vec::new(),
            notes: notes(of, to),
            conclusion: "A difference within the band is none.".to_owned(),
            failed: None,
            broken: Vec::new(),
            ..of.clone()
        })
    });
    compared.collect()
}

/// The ratios of one and the same thing.
fn pairs<'a>(of: &'a Section, to: &'a Section) -> impl Iterator<Item = (&'a Ratio, &'a Ratio)> {
    let same = |one: &Ratio, other: &Ratio| {
        (&one.parameter, &one.metric, &one.of, &one.to)
            == (&other.parameter, &other.metric, &other.of, &other.to)
    };
    of.ratios.iter().filter_map(move |over| {
        let under = to.ratios.iter().find(|under| same(over, under))?;
        Some((over, under))
    })
}

fn quotients_of_ratios(of: &Section, to: &Section) -> Vec<Ratio> {
    let quotients = pairs(of, to).filter_map(|(over, under)| {
        let who = format!("{} ÷ {}", over.of, over.to);
        let labels = [&over.parameter[..], &over.metric, &who, IN_A];
        Ratio::of_runs(labels, (&over.rounds, &under.rounds))
    });
    quotients.collect()
}

fn quotients_of_figures(of: &Section, to: &Section) -> Vec<Ratio> {
    let same = |one: &Figure, other: &Figure| {
        (&one.parameter, &one.metric, &one.who, &one.unit)
            == (&other.parameter, &other.metric, &other.who, &other.unit)
    };
    let quotients = of.figures.iter().filter_map(|over| {
        let under = to.figures.iter().find(|under| same(over, under))?;
        let labels = [&over.parameter[..], &over.metric, &over.who, IN_A];
        Ratio::of_runs(labels, (&over.rounds, &under.rounds))
    });
    quotients.collect()
}

/// What went wrong in either run, and what each has noted.
fn notes(of: &Section, to: &Section) -> Vec<String> {
    let of_run = |name: &'static str, section: &Section| {
        let failed = section
            .failed
            .iter()
            .map(|failed| format!("it did not come to its end: {failed}"));
        let broken = section
            .broken
            .iter()
            .map(|broken| format!("a promise was not kept: {broken}"));
        let all = failed.chain(broken).chain(section.notes.iter().cloned());
        all.map(move |note| format!("{name}: {note}")).collect::<Vec<_>>()
    };
    [of_run("A", to), of_run("B", of)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn run(factor: f64, cpu: &str) -> Results {
        let mut section = Section {
            number: "T1".to_owned(),
            title: "point <select>".to_owned(),
            is_here: true,
            ..Section::default()
        };
        for round in [1.0, 1.01, 0.99, 1.0, 1.005] {
            section.record(("20", "direct"), "cpu", "us", 10.0 * round);
            section.record(("20", "session"), "cpu", "us", 9.0 * factor * round);
        }
        section.compare("session", "direct", "cpu");
        Results {
            report: "all".to_owned(),
            title: "All".to_owned(),
            date: "2026-11-28 04:00 UTC".to_owned(),
            machine: Machine {
                cpu: cpu.to_owned(),
                cpus: 2,
                memory: 1 << 34,
                kernel: "Linux 6".to_owned(),
                load_average: 0.0,
            },
            programs: Vec::new(),
            options: Vec::new(),
            is_done: true,
            is_whole: true,
            left_out: Vec::new(),
            sections: vec![section],
        }
    }

    /// As it comes back from the file.
    fn read_again(results: &Results) -> Results {
        serde_json::from_str(&serde_json::to_string(results).unwrap()).unwrap()
    }

    #[test]
    fn runs_of_one_machine_are_compared_in_figures_and_ratios() {
        let (a, b) = (read_again(&run(1.0, "x")), read_again(&run(1.1, "x")));
        let sections = sections(&a, &b, machine(&a) == machine(&b));
        let [section] = &sections[..] else {
            panic!("one table: {sections:?}");
        };
        let found: Vec<&str> = section.ratios.iter().map(|ratio| &ratio.of[..]).collect();
        assert_eq!(found, ["session ÷ direct", "direct", "session"]);
        assert!(section.ratios.iter().all(|ratio| ratio.to == IN_A));
        for (ratio, expected) in section.ratios.iter().zip([1.1, 1.0, 1.1]) {
            assert!(
                (ratio.spread.median - expected).abs() < 0.001 && ratio.is_measured,
                "{ratio:?}"
            );
        }
        let words = words(&a, &b, true, &sections);
        let page = page::comparison([&a, &b], &words, &sections);
        assert!(
            page.contains("point &lt;select&gt;") && page.contains("<td>1.100<small>"),
            "{page}"
        );
        assert!(page.contains("more at 20") && page.contains("no difference shown at 20"));
        assert!(!page.contains("src=") && !page.contains("http"));
    }

    #[test]
    fn ratios_that_are_the_same_again_are_counted() {
        let count = |factor| alike(&run(1.0, "x"), &run(factor, "y"));
        let all = "1 of 1 ratios that both runs have measured differ by less than 10 %; 0 were not measured in one or both.";
        assert_eq!(count(1.09), all);
        assert!(count(1.11).starts_with("0 of 1 ") && count(0.89).starts_with("0 of 1 "));
        let mut open = run(1.0, "x");
        open.sections[0].ratios[0].is_measured = false;
        assert!(alike(&run(1.0, "x"), &open).ends_with("1 were not measured in one or both."));
        assert!(alike(&open, &run(1.0, "x")).starts_with("0 of 0 "));
    }

    #[test]
    fn runs_of_two_machines_are_compared_in_ratios_only() {
        let (a, b) = (run(1.0, "x"), run(1.0, "y"));
        let is_same = machine(&a) == machine(&b);
        let sections = sections(&a, &b, is_same);
        assert!(!is_same && sections[0].ratios.len() == 1, "{sections:?}");
        assert!(words(&a, &b, is_same, &sections)[1].contains("different machines"));
        let mut busy = run(1.0, "y");
        busy.machine.load_average = 9.0;
        let said = words(&a, &busy, is_same, &sections).join(" ");
        assert!(
            said.contains("when B began (load average 9)") && !said.contains("when A began"),
            "{said}"
        );
    }

    #[test]
    fn a_file_that_is_something_else_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "{\"report\": 3}").unwrap();
        let args = CompareArgs {
            a: path.clone(),
            b: path.clone(),
            output: folder.path().join("out"),
        };
        let error = format!("{:#}", compare(&args).unwrap_err());
        assert!(
            error.contains("a.json is not a `results.json`") && error.contains("line 1"),
            "{error}"
        );
        assert!(!args.output.exists(), "nothing is left");
        fs::write(&path, serde_json::to_string(&run(1.0, "x")).unwrap()).unwrap();
        let mut other = run(1.0, "x");
        other.sections[0].number = "T2".to_owned();
        let second = folder.path().join("b.json");
        fs::write(&second, serde_json::to_string(&other).unwrap()).unwrap();
        let args = CompareArgs { b: second, ..args };
        assert!(
            compare(&args)
                .unwrap_err()
                .to_string()
                .contains("no table in common")
        );
        let args = CompareArgs { b: path, ..args };
        compare(&args).unwrap();
        assert!(args.output.join("index.html").exists() && args.output.join("comparison.json").exists());
    }
}
