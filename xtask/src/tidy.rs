//! The rules of this repository that no other tool checks. Each is one function here, and its failure one
//! line with a place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::architecture;
use crate::docs;
use crate::features;
use crate::figures;
use crate::layers::{self, Metadata, Table};
use crate::links;
use crate::source::Source;

/// Folders with code of ours.
const CODE: [&str; 4] = ["crates", "e2e", "fuzz", "xtask"];

/// Folders inside them that are made, not written.
const MADE: [&str; 5] = ["build", "target", "corpus", "artifacts", "node_modules"];

/// Longest file, in lines. The aim is 200 to 400.
const FILE_LINES_MAX: usize = 600;

/// Longest function, in lines of code. The same figure as in clippy.toml, which also sees through macros.
const FUNCTION_LINES_MAX: usize = 70;

/// Widest comment, in columns: as wide as rustfmt makes code.
const COMMENT_WIDTH_MAX: usize = 110;

/// Most packages of others in the lock file: those with a source. Our own crates cost nothing but what they
/// bring in.
///
/// The design wanted 250. 211 build the gateway itself on Linux (`cargo tree -p forebay -e normal,build`);
/// the others are for tests, which have real clients as oracles, and for platforms of others. The limit is
/// today's figure: a new one takes the place of another. The 286th is `simple-dns`, which brings nothing in:
/// the system's resolver cannot ask for SRV records. The last two are `mimalloc` and its C sources: a tenth
/// of what a query costs in `split` (docs/design/2026-11-20-split.md). Two more, `clap_mangen` and `roff`,
/// make the pages of the manual from the command line's own description. 28 are `object_store` and what it
/// stands on, for captures that go to S3, Google and Azure: signatures and protocols of three vendors are not
/// our job. It comes without its own HTTP client: we have one, and its TLS. 17 are built on Linux, the others
/// are for other systems, and none is built without the feature `object-stores`.
const PACKAGES_MAX: usize = 318;

/// Tests that one kind of server is enough for: a module, or a test as `module::test`, and the reason.
const LEFT_OUT: &str = "e2e/left_out_on_mysql.txt";

/// Names that say nothing about what a module is for.
const EMPTY_NAMES: [&str; 8] = [
    "common", "helper", "helpers", "manager", "misc", "shared", "util", "utils",
];

/// Applies every rule; a line for every failure.
pub(crate) fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    let table = Table::read(root)?;
    let mut problems = layers::check(&table, &Metadata::ask(root)?);
    let crates = figures::read(root)?;
    problems.extend(layers::check_mutual(&table, &figures::mutual_pairs(&crates)));
    problems.extend(layers::check_cycles(&table, &figures::cycles(&crates)));
    problems.extend(layers::check_folders(&table, &figures::folders(&crates)));
    problems.extend(lock_file(root)?);
    problems.extend(features::check(root)?);
    problems.extend(docs::check(root));
    problems.extend(architecture::check(root)?);
    problems.extend(links::check(root, &files(root, &["."], ".md")?)?);
    let files = files(root, &CODE, ".rs")?;
    let mut tests = BTreeMap::<String, String>::new();
    let targets = files.iter().filter(|path| path.starts_with("fuzz/fuzz_targets"));
    let mut unused_targets: Vec<_> = targets.collect();
    for path in &files {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| path.display().to_string())?;
        let source = Source::new(&text);
        let file = path.display().to_string();
        problems.extend(names(path, &file, &source));
        problems.extend(opening(path, &file, &text));
        problems.extend(wide_comments(&file, &text, &source));
        for length in lengths(&file, &text, &source) {
            println!("tidy: {length} (a hint, no fault)");
        }
        problems.extend(ignored_tests(&file, &source));
        unused_targets.retain(|target| !replays(&text, target));
        if let Some(module) = path.file_stem().filter(|_| path.starts_with("e2e/tests")) {
            *tests.entry(module.to_string_lossy().into_owned()).or_default() += &text;
        }
    }
    let list = std::fs::read_to_string(root.join(LEFT_OUT)).context(LEFT_OUT)?;
    problems.extend(left_out(&list, &tests));
    problems.extend(
        unused_targets
            .iter()
            .map(|target| format!("{}: no test replays its corpus", target.display())),
    );
    println!("tidy: {} files", files.len());
    Ok(problems)
}

/// Whether a test runs the body of a fuzz target on its corpus: CI does not build the targets.
fn replays(text: &str, target: &Path) -> bool {
    let name = target.file_stem().unwrap_or_default().to_string_lossy();
    text.contains(&format!("replay(\"{name}\""))
}

/// Every file of ours in these folders whose name ends so, relative to the root, in order.
fn files(root: &Path, folders: &[&str], ending: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = folders
        .iter()
        .map(|folder| root.join(folder))
        .filter(|path| path.is_dir())
        .collect();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if entry.file_type()?.is_dir() {
                if !MADE.contains(&name.as_str()) && !name.starts_with('.') {
                    open.push(path);
                }
            } else if name.ends_with(ending) {
                files.push(path.strip_prefix(root)?.to_path_buf());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The number is printed where it is fine, too: a dependency is a decision.
fn lock_file(root: &Path) -> anyhow::Result<Option<String>> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    let count = packages_of_others(&lock);
    println!("tidy: {count} packages of others in Cargo.lock, at most {PACKAGES_MAX}");
    Ok((count > PACKAGES_MAX)
        .then(|| format!("Cargo.lock: {count} packages of others, at most {PACKAGES_MAX}")))
}

/// Packages of the workspace have no source.
fn packages_of_others(lock: &str) -> usize {
    lock.lines().filter(|line| line.starts_with("source = ")).count()
}

/// Modules have names that say what they are for: files, folders and inline ones.
fn names(path: &Path, file: &str, source: &Source) -> Vec<String> {
    let empty = |name: &str| EMPTY_NAMES.contains(&name);
    let say =
        |line: usize, name: &str| format!("{file}:{line}: `{name}` does not say what the module is for");
    let in_path = path.with_extension("");
    let in_path = in_path
        .components()
        .filter_map(|part| part.as_os_str().to_str().filter(|part| empty(part)));
    let inline = source.modules().filter(|(_, name)| empty(name));
    in_path
        .map(|name| say(1, name))
        .chain(inline.map(|(line, name)| say(line, name)))
        .collect()
}

/// A crate says first what it is.
fn opening(path: &Path, file: &str, text: &str) -> Option<String> {
    let is_crate = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    (is_crate && !text.starts_with("//!"))
        .then(|| format!("{file}:1: begin with `//!`: what the crate is, and what not"))
}

/// Comments are read beside code. Rows of tables cannot be wrapped, nor can a single long word, such as an
/// address.
fn wide_comments(file: &str, text: &str, source: &Source) -> Vec<String> {
    let can_be_wrapped = |line: &str| {
        let words = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        !words.starts_with('|') && words.contains(' ')
    };
    let lines = source.comment_lines(text).into_iter();
    let wide = lines
        .map(|(number, line)| (number, line, line.chars().count()))
        .filter(|(_, line, width)| *width > COMMENT_WIDTH_MAX && can_be_wrapped(line));
    wide.map(|(number, _, width)| {
        format!("{file}:{number}: a comment of {width} columns, at most {COMMENT_WIDTH_MAX}")
    })
    .collect()
}

fn lengths(file: &str, text: &str, source: &Source) -> Vec<String> {
    let lines = text.lines().count();
    let long_file =
        (lines > FILE_LINES_MAX).then(|| format!("{file}:1: {lines} lines, at most {FILE_LINES_MAX}"));
    let long_functions = source
        .functions()
        .filter(|function| function.length > FUNCTION_LINES_MAX)
        .map(|function| {
            let (line, name, length) = (function.line, function.name, function.length);
            format!("{file}:{line}: fn {name} has {length} lines, at most {FUNCTION_LINES_MAX}")
        });
    long_file.into_iter().chain(long_functions).collect()
}

/// A test that is not run proves nothing, and looks as if it did.
fn ignored_tests(file: &str, source: &Source) -> Vec<String> {
    let ignored = source.lines().filter(|(_, line)| line.contains("#[ignore"));
    ignored
        .map(|(line, _)| format!("{file}:{line}: a test that is not run; mend it or remove it"))
        .collect()
}

/// A name that no test has leaves out nothing, and nobody hears of it. `tests` are modules and their code.
fn left_out(list: &str, tests: &BTreeMap<String, String>) -> Vec<String> {
    let is_test = |name: &str| {
        let (module, test) = name.split_once("::").unwrap_or((name, ""));
        let code = tests.get(module);
        code.is_some_and(|code| test.is_empty() || code.contains(&format!("fn {test}(")))
    };
    let is_right = |line: &str| line.split_once(": ").is_some_and(|(name, _)| is_test(name));
    let lines = list.lines().zip(1..);
    let wrong = lines.filter(|(line, _)| !line.starts_with('#') && !is_right(line));
    wrong
        .map(|(line, number)| format!("{LEFT_OUT}:{number}: no test and its reason: {line}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, text: &str) -> Vec<String> {
        names(Path::new(path), path, &Source::new(text))
    }

    #[test]
    fn a_target_is_replayed_by_its_name() {
        let target = Path::new("fuzz/fuzz_targets/gtid.rs");
        assert!(replays("inputs::replay(\"gtid\", fuzzing::gtid);", target));
        assert!(!replays("inputs::replay(\"gtids\", fuzzing::gtid);", target));
    }

    #[test]
    fn empty_names_are_found_in_paths_and_in_code() {
        assert_eq!(
            named("crates/net/src/stream.rs", "mod tests {}"),
            Vec::<String>::new()
        );
        assert_eq!(named("crates/net/tests/common/mod.rs", "").len(), 1);
        assert_eq!(named("crates/net/src/utils.rs", "").len(), 1);
        assert_eq!(
            named("crates/net/src/lib.rs", "//! x\n\nmod helper {\n}\n"),
            ["crates/net/src/lib.rs:3: `helper` does not say what the module is for"]
        );
    }

    #[test]
    fn our_own_crates_are_no_dependencies() {
        let lock = "[[package]]\nname = \"ours\"\ndependencies = [\n \"theirs\",\n]\n\n[[package]]\nname = \"theirs\"\n\
                    source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
        assert_eq!(packages_of_others(lock), 1);
    }

    #[test]
    fn crates_say_what_they_are() {
        assert!(opening(Path::new("crates/net/src/lib.rs"), "f", "mod a;").is_some());
        assert!(opening(Path::new("crates/net/src/lib.rs"), "f", "//! Sockets.").is_none());
        assert!(opening(Path::new("crates/net/src/stream.rs"), "f", "mod a;").is_none());
    }

    #[test]
    fn long_files_and_functions_are_told() {
        let text = format!("fn long() {{\n{}}}\n", "    work();\n".repeat(71));
        assert_eq!(
            lengths("f.rs", &text, &Source::new(&text)),
            ["f.rs:1: fn long has 71 lines, at most 70"]
        );
        let text = "\n".repeat(601);
        assert_eq!(
            lengths("f.rs", &text, &Source::new(&text)),
            ["f.rs:1: 601 lines, at most 600"]
        );
    }

    #[test]
    fn wide_comments_are_told() {
        let found = |text: &str| wide_comments("f.rs", text, &Source::new(text));
        let comment = |begin: &str, width: usize| {
            let begin = format!("{begin} → ");
            begin.clone() + &"a".repeat(width - begin.chars().count())
        };
        for mark in ["//", "///", "//!", "    //"] {
            assert_eq!(found(&comment(mark, 110)), Vec::<String>::new());
            let text = format!("mod a;\n{}\n", comment(mark, 111));
            assert_eq!(found(&text), ["f.rs:2: a comment of 111 columns, at most 110"]);
        }
        for fine in [
            comment("//! |", 120),
            format!("/// <{}>", "a".repeat(120)),
            format!("let text = \"\n{}\";", comment("//", 120)),
            comment("let a = 1; //", 120),
        ] {
            assert_eq!(found(&fine), Vec::<String>::new(), "{fine}");
        }
    }

    #[test]
    fn ignored_tests_are_told() {
        let text = format!("// #[ignore]\n#[{}]\nfn a() {{}}\n", "ignore = \"slow\"");
        assert_eq!(ignored_tests("f.rs", &Source::new(&text)).len(), 1);
    }

    #[test]
    fn tests_that_are_left_out_are_there() {
        let code = "#[test]\nfn rain() {}\n".to_owned();
        let tests = BTreeMap::from([("weather".to_owned(), code)]);
        let found = |line: &str| left_out(&format!("# Tests.\n{line}\n"), &tests).len();
        for right in ["weather: the sky", "weather::rain: the sky: it is one"] {
            assert_eq!(found(right), 0, "{right}");
        }
        for wrong in [
            "weather",
            "wether: the sky",
            "weather::rai: the sky",
            "rain: the sky",
        ] {
            assert_eq!(found(wrong), 1, "{wrong}");
        }
    }
}
