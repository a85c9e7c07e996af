//! Links between the pages of this repository: the file is there, and so is the heading behind `#`. Links to
//! other sites are not followed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use anyhow::Context;

/// A line for every link that leads nowhere. `pages`: relative to the root.
pub(crate) fn check(root: &Path, pages: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut texts = BTreeMap::new();
    for page in pages {
        let text = std::fs::read_to_string(root.join(page)).with_context(|| page.display().to_string())?;
        texts.insert(page.clone(), text);
    }
    Ok(broken(&texts, |path| root.join(path).exists()))
}

fn broken(texts: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let anchors: HashMap<&Path, HashSet<String>> = texts
        .iter()
        .map(|(page, text)| (page.as_path(), anchors(text)))
        .collect();
    let mut problems = Vec::new();
    for (page, text) in texts {
        for (number, link) in links(text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => beside(page, file),
            };
            let is_there = match anchors.get(target.as_path()) {
                Some(known) => anchor.is_empty() || known.contains(anchor),
                None => exists(&target),
            };
            if !is_there {
                problems.push(format!("{}:{number}: `{link}` leads nowhere", page.display()));
            }
        }
    }
    problems
}

/// The path that a link on this page names, relative to the root.
fn beside(page: &Path, file: &str) -> PathBuf {
    let mut path = page.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// Every line that is in no block of code, with its number, from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// Links to pages of ours, each with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let links = line
            .split("](")
            .skip(1)
            .filter_map(|behind| behind.split_once(')'));
        let is_ours =
            |link: &str| !link.contains("://") && !link.starts_with("mailto:") && !link.contains(' ');
        found.extend(
            links
                .filter(|(link, _)| is_ours(link))
                .map(|(link, _)| (number, link)),
        );
    }
    found
}

/// The headings of a page as GitHub calls them, and names that are given by hand. Headings with the same
/// words have a number, but for the first.
fn anchors(text: &str) -> HashSet<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut found = HashSet::new();
    for (_, line) in prose(text) {
        let named = line.split("<a id=\"").skip(1);
        found.extend(named.filter_map(|behind| Some(behind.split_once('"')?.0.to_owned())));
        if let Some(slug) = heading(line).map(slug) {
            let before = counts.entry(slug.clone()).or_default();
            found.insert(match *before {
                0 => slug,
                before => format!("{slug}-{before}"),
            });
            *before += 1;
        }
    }
    found
}

fn heading(line: &str) -> Option<&str> {
    let words = line.trim_start_matches('#');
    match line.len() - words.len() {
        1..=6 => words.strip_prefix(' '),
        _ => None,
    }
}

/// Letters and figures, in lower case, and `-` for blanks. A link counts with its words.
fn slug(heading: &str) -> String {
    let mut words = String::new();
    let mut rest = heading;
    while let Some((before, behind)) = rest.split_once("](") {
        words.push_str(before);
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    words.push_str(rest);
    let kept = words.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c => (c.is_alphanumeric() || c == '-' || c == '_').then_some(c),
    });
    kept.collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_called_as_github_calls_them() {
        for (heading, expected) in [
            ("KILL", "kill"),
            ("`[cluster.NAME]`", "clustername"),
            (
                "How servers are checked, and how often",
                "how-servers-are-checked-and-how-often",
            ),
            (
                "What [the cache](cache.md#rows) has: `point_lookups`",
                "what-the-cache-has-point_lookups",
            ),
            ("Größe – und mehr", "größe--und-mehr"),
        ] {
            assert_eq!(slug(heading), expected);
        }
        let text = "# A\n## B\n```sh\n# no heading\n```\n## B\n#hash\n<a id=\"c\"></a>C\n";
        let expected = ["a", "b", "b-1", "c"].map(str::to_owned);
        assert_eq!(anchors(text), HashSet::from(expected));
    }

    #[test]
    fn links_that_lead_nowhere_are_told() {
        let pages = [
            (
                "README.md",
                "[a](docs/a.md#one) [b](docs/b.md) [c](docs/a.md#two)\n[d](LICENSE) [e](https://example.com/a.md#x)\n",
            ),
            (
                "docs/a.md",
                "# One\n[f](#one) [g](../README.md#one)\n```\n[h](none.md)\n```\n[i](../none.md)\n",
            ),
        ];
        let texts = BTreeMap::from(pages.map(|(page, text)| (PathBuf::from(page), text.to_owned())));
        assert_eq!(
            broken(&texts, |path| path == Path::new("LICENSE")),
            [
                "README.md:1: `docs/b.md` leads nowhere",
                "README.md:1: `docs/a.md#two` leads nowhere",
                "docs/a.md:2: `../README.md#one` leads nowhere",
                "docs/a.md:6: `../none.md` leads nowhere",
            ]
        );
    }
}
