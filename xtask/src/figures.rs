//! The figures by which the shape of this code is judged, computed from its text. Nothing here is a limit:
//! `tidy` fails on none of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::modules::{Folders, Modules, Name, Test};
use crate::source::{Source, part_of_name};

/// The crate of what happens to a command.
const DATA_PLANE: &str = "dataplane";

/// The session's struct, in that crate.
const SESSION: &str = "ClientSession";

/// What these figures began with, on 2026-11-23.
const LINES_BEFORE: usize = 103_500;

const COUNTED: &str = "\
Lines of production are those of crates/*/src, with comments and blank ones, without what is under #[cfg(test)].
Lines of tests are those under #[cfg(test)] and in the crate's folder tests, as far as their file starts no server.
A module is a file; it imports what the paths in its code lead to. A module and one inside it are no pair.";

/// The crate that starts real servers: a file of tests that names it needs one.
const SERVERS: &str = "sandbox";

/// A crate of ours.
pub(crate) struct Crate {
    name: String,
    modules: Modules,
    /// The files in its folder `tests`.
    tests: Vec<Test>,
}

/// One line of the table.
struct Row {
    what: String,
    now: String,
    aim: String,
}

/// Prints the table, before it the pairs where those are asked for.
pub(crate) fn run(root: &Path, with_pairs: bool) -> anyhow::Result<()> {
    let crates = read(root)?;
    if with_pairs {
        for (name, pairs) in mutual_pairs(&crates) {
            pairs.iter().for_each(|pair| println!("{name}: {pair}"));
        }
    }
    print!("{}", table(&rows(&crates)?));
    println!();
    println!("{COUNTED}");
    Ok(())
}

/// How much of each crate's production lines is in its largest cycle of modules, in percent, rounded up.
pub(crate) fn cycles(crates: &[Crate]) -> BTreeMap<String, usize> {
    let share = |of: &Crate| {
        let lines = of.modules.lines_of(&of.modules.largest_cycle());
        (100 * lines).div_ceil(of.modules.lines().max(1))
    };
    crates.iter().map(|of| (of.name.clone(), share(of))).collect()
}

/// Which folders import which, by crate.
pub(crate) fn folders(crates: &[Crate]) -> BTreeMap<String, Folders> {
    let folders = |of: &Crate| (of.name.clone(), of.modules.folders());
    crates.iter().map(folders).collect()
}

/// The pairs of modules that import each other, by crate.
pub(crate) fn mutual_pairs(crates: &[Crate]) -> BTreeMap<String, Vec<String>> {
    let pair = |(one, other): (&Name, &Name)| format!("{} and {}", one.join("::"), other.join("::"));
    let pairs = |of: &Crate| of.modules.mutual().into_iter().map(pair).collect();
    crates.iter().map(|of| (of.name.clone(), pairs(of))).collect()
}

/// The crates in the folder `crates`.
pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<Crate>> {
    let folder = root.join("crates");
    let mut crates = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let sources = path.join("src");
        if !sources.is_dir() {
            continue;
        }
        let mut tests = Vec::new();
        for file in rust_files(&path.join("tests"))? {
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            tests.push(Test::new(&text));
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let modules = Modules::read(&sources, &rust_files(&sources)?)?;
        crates.push(Crate { name, modules, tests });
    }
    crates.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(crates)
}

/// Every `.rs` file below the folder; none where there is no such folder.
fn rust_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop().filter(|folder| folder.is_dir()) {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn rows(crates: &[Crate]) -> anyhow::Result<Vec<Row>> {
    let data_plane = crates.iter().find(|one| one.name == DATA_PLANE);
    let data_plane = data_plane.with_context(|| format!("there is no crate {DATA_PLANE}"))?;
    let row = |what: String, now: String, aim: &str| Row {
        what,
        now,
        aim: aim.to_owned(),
    };

    let lines: usize = crates.iter().map(|one| one.modules.lines()).sum();
    let lines_aim = LINES_BEFORE - LINES_BEFORE * 6 / 100;
    let pairs = |of: &Crate| of.modules.mutual().len();
    let all_pairs: usize = crates.iter().map(pairs).sum();
    let cycle = data_plane.modules.largest_cycle();
    let (fields, functions) = session(data_plane)?;
    let production = data_plane.modules.lines();
    Ok(vec![
        row(
            "production lines, all crates".into(),
            grouped(lines),
            &format!("<= {}", grouped(lines_aim)),
        ),
        row(format!("production lines, {DATA_PLANE}"), grouped(production), ""),
        row(
            format!("pairs of modules that import each other, {DATA_PLANE}"),
            pairs(data_plane).to_string(),
            "<= 5",
        ),
        row(
            "pairs of modules that import each other, all crates".into(),
            all_pairs.to_string(),
            "<= 39",
        ),
        row(
            format!("largest cycle of modules, {DATA_PLANE}"),
            format!("{} of {}", cycle.len(), data_plane.modules.iter().count()),
            "",
        ),
        row(
            "  its share of the production lines".into(),
            percent(data_plane.modules.lines_of(&cycle), production),
            "<= 25 %",
        ),
        row(
            format!("fields of the session's struct, {SESSION}"),
            fields.to_string(),
            "<= 15",
        ),
        row(
            format!("functions that take &mut {SESSION}, methods included"),
            functions.to_string(),
            "<= 40",
        ),
        row(
            format!("tests without a server, part of the production lines, {DATA_PLANE}"),
            percent(without_server(data_plane), production),
            ">= 40 %",
        ),
    ])
}

/// Lines of tests that start no server.
fn without_server(of: &Crate) -> usize {
    let tests = of.modules.tests.iter().chain(&of.tests);
    tests
        .filter(|test| !test.source.names(SERVERS))
        .map(|test| test.lines)
        .sum()
}

/// Fields of the session's struct, and functions that may change all of it.
fn session(of: &Crate) -> anyhow::Result<(usize, usize)> {
    let sources = || of.modules.iter().map(|module| &module.source);
    let fields = sources()
        .find_map(|source| source.fields(SESSION))
        .with_context(|| format!("there is no struct {SESSION}: it is named in xtask/src/figures.rs"))?;
    let functions = sources().map(|source| takers(source, SESSION)).sum();
    Ok((fields.len(), functions))
}

/// How many functions have an argument `&mut NAME`, or are methods of NAME with `&mut self`.
fn takers(source: &Source, name: &str) -> usize {
    let own: Vec<_> = source.impls(name).collect();
    let takes = |head: &str, at: usize| {
        let is_method = own.iter().any(|body| body.contains(&at));
        head.match_indices("mut ").any(|(place, word)| {
            let before = head[..place].trim_end();
            let lifetime = before.trim_end_matches(part_of_name).ends_with("&'");
            let rest = head[place + word.len()..].trim_start();
            let path = &rest[..rest.find(|c| !part_of_name(c) && c != ':').unwrap_or(rest.len())];
            let last = path.trim_end_matches(':').rsplit("::").next();
            (before.ends_with('&') || lifetime)
                && (last == Some(name) || (is_method && path.trim_end_matches(':') == "self"))
        })
    };
    source
        .functions()
        .filter(|function| takes(function.head, function.at))
        .count()
}

/// Thousands apart.
fn grouped(number: usize) -> String {
    if number < 1000 {
        return number.to_string();
    }
    format!("{} {:03}", grouped(number / 1000), number % 1000)
}

fn percent(part: usize, whole: usize) -> String {
    let tenths = part * 1000 / whole.max(1);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Columns below one another.
fn table(rows: &[Row]) -> String {
    let heading = Row {
        what: "figure".into(),
        now: "now".into(),
        aim: "aim".into(),
    };
    let width = |column: fn(&Row) -> &str| {
        let cells = rows.iter().chain([&heading]).map(|row| column(row).len());
        cells.max().unwrap_or_default()
    };
    let (what, now, aim) = (
        width(|row| &row.what),
        width(|row| &row.now),
        width(|row| &row.aim),
    );
    let line = |row: &Row| {
        let line = format!("{:what$}  {:>now$}  {:>aim$}", row.what, row.now, row.aim);
        line.trim_end().to_owned() + "\n"
    };
    let rule = format!("{}  {}  {}\n", "-".repeat(what), "-".repeat(now), "-".repeat(aim));
    [line(&heading), rule]
        .into_iter()
        .chain(rows.iter().map(line))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const STATE: &str = "\
//! What a session holds.
pub(crate) struct ClientSession {
    a: u8,
    b: Map<u8, u8>,
}

impl ClientSession {
    fn new() -> Self { ClientSession }
    fn read(&self) {}
    fn change(&mut self) { crate::run::run(self) }
}
";
    const RUN: &str = "\
use crate::state::ClientSession;
pub(crate) async fn run(split: &mut ClientSession) {}
fn other<'a>(one: u8, split: &'a mut super::state::ClientSession) {}
fn reads(split: &ClientSession, splits: &mut Splits, mut split: ClientSession) {}
#[cfg(test)]
mod tests {
    fn test(split: &mut ClientSession) {}
}
";

    fn made_up(name: &str, files: &[(&str, &str)], tests: &[&str]) -> Crate {
        let texts: BTreeMap<_, _> = files
            .iter()
            .map(|(name, text)| {
                let name = name.split_terminator("::").map(str::to_owned);
                (name.collect(), (*text).to_owned())
            })
            .collect();
        Crate {
            name: name.to_owned(),
            modules: Modules::new(&texts),
            tests: tests.iter().map(|text| Test::new(text)).collect(),
        }
    }

    #[test]
    fn figures_are_those_of_the_code() {
        let crates = [
            made_up(
                "dataplane",
                &[("", "mod state;\nmod run;\n"), ("state", STATE), ("run", RUN)],
                &[
                    "use dataplane::run;\n\nfn a() {}\n\n// text\n",
                    "use sandbox::Sandbox;\n",
                ],
            ),
            made_up(
                "net",
                &[
                    ("", "mod a;\nmod b;\n"),
                    ("a", "use crate::b::B;\n"),
                    ("b", "use crate::a::A;\n"),
                ],
                &[],
            ),
        ];
        let now: Vec<_> = rows(&crates).unwrap().into_iter().map(|row| row.now).collect();
        assert_eq!(
            now,
            ["21", "17", "1", "2", "2 of 3", "88.2 %", "2", "3", "52.9 %"]
        );
    }

    #[test]
    fn a_session_that_is_named_otherwise_is_told() {
        let crates = [made_up("dataplane", &[("", "struct Another { a: u8 }")], &[])];
        let error = rows(&crates).err().unwrap().to_string();
        assert!(error.contains("no struct ClientSession"), "{error}");
    }

    #[test]
    fn columns_stand_below_one_another() {
        let row = Row {
            what: "lines".into(),
            now: grouped(1_103_500),
            aim: percent(1, 3),
        };
        let expected = "figure        now     aim\n------  ---------  ------\nlines   1 103 500  33.3 %\n";
        assert_eq!(table(&[row]), expected);
    }
}
