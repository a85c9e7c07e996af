//! `ARCHITECTURE.md` against the tree: its picture and lists name modules that are there, and all of them.
//!
//! A list is a table whose head names a folder (`module of ...`); its first column names the modules in it.

use std::path::Path;

use anyhow::Context;

use crate::source::{Source, part_of_name};

const PAGE: &str = "ARCHITECTURE.md";

/// A line for every name without a module, and for every module that its list lacks.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    Ok(problems(&page, |path| declared(&root.join(path))))
}

/// The modules that one declares, without those for tests; nothing where it is not there.
fn declared(path: &Path) -> Option<Vec<String>> {
    let texts = ["mod.rs", "lib.rs"].map(|file| std::fs::read_to_string(path.join(file)));
    let source = Source::new(&texts.into_iter().flatten().collect::<String>()).without_tests();
    let module = |line: &str| Some(line.strip_suffix(';')?.rsplit_once("mod ")?.1.to_owned());
    let modules = source.lines().filter_map(|(_, line)| module(line)).collect();
    (path.exists() || path.with_extension("rs").exists()).then_some(modules)
}

fn problems(page: &str, declared: impl Fn(&str) -> Option<Vec<String>>) -> Vec<String> {
    let (mut problems, mut named, mut folder) = (Vec::new(), Vec::new(), None);
    for (line, text) in (1..).zip(page.lines()) {
        let first = text.split('|').nth(1).unwrap_or_default();
        let names = first.split('`').skip(1).step_by(2);
        if first.starts_with(" module of `") {
            folder = names.last();
            named.extend(folder.map(|folder| (line, folder.to_owned(), true)));
        } else if let Some(folder) = folder.filter(|_| text.starts_with('|')) {
            named.extend(names.map(|name| (line, format!("{folder}/{name}"), false)));
        } else {
            folder = None;
        }
    }
    let is_named = |path: &str| named.iter().any(|(_, name, _)| Path::new(name).starts_with(path));
    for (line, path, is_list) in &named {
        let Some(modules) = declared(path) else {
            problems.push(format!("{PAGE}:{line}: there is no `{path}`"));
            continue;
        };
        let paths = modules.iter().map(|module| format!("{path}/{module}"));
        let missing = paths.filter(|path| *is_list && !is_named(path));
        problems.extend(missing.map(|path| format!("{PAGE}:{line}: the list lacks `{path}`")));
    }
    let picture = page.split("```\n").nth(1).unwrap_or_default();
    let words = picture.split_whitespace().filter(|word| !word.ends_with(':'));
    let words = words.map(|word| word.trim_matches(|c| !part_of_name(c)));
    let is_listed = |word: &str| named.iter().any(|(_, name, _)| Path::new(name).ends_with(word));
    let unknown = words.filter(|word| !word.is_empty() && !is_listed(word));
    problems.extend(unknown.map(|word| format!("{PAGE}:1: no list has `{word}` of the picture")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_and_what_is_there_must_agree() {
        let page =
            "```\nrelay ┬ split: run ─┐\n```\n| module of `src` | |\n|---|---|\n| `relay`, `old` | `it` |\n";
        let declared = |path: &str| match path {
            "src" => Some(vec!["relay".to_owned(), "new".to_owned()]),
            "src/relay" => Some(Vec::new()),
            _ => None,
        };
        assert_eq!(
            problems(page, declared),
            [
                "ARCHITECTURE.md:4: the list lacks `src/new`",
                "ARCHITECTURE.md:6: there is no `src/old`",
                "ARCHITECTURE.md:1: no list has `run` of the picture",
            ]
        );
    }
}
