//! The tests are built once: every package has the same features with the package `e2e` and without it, or
//! else all that stands on one that has others is built twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The features that a package is built with, each way it is built.
type Features<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let (with, without) = (tree(root, &[])?, tree(root, &["--exclude", "e2e"])?);
    Ok(compare(&read(&with), &read(&without)))
}

/// Lines of a package and its features.
fn tree(root: &Path, which: &[&str]) -> anyhow::Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["tree", "--workspace", "--locked", "--prefix", "none"])
        .args(["--edges", "normal,build,dev", "--format", "{p}|{f}"])
        .args(which)
        .output()
        .context("running cargo tree")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree: {error}");
    String::from_utf8(output.stdout).context("reading what cargo tree prints")
}

fn read(tree: &str) -> Features<'_> {
    let mut features = Features::new();
    for (package, of_it) in tree.lines().filter_map(|line| line.split_once('|')) {
        // So marked is what the tree has shown before.
        let of_it = of_it.trim_end_matches(" (*)");
        features.entry(package).or_default().insert(of_it);
    }
    features
}

fn compare(with: &Features<'_>, without: &Features<'_>) -> Vec<String> {
    let differ = |(package, of_it): (&&str, &BTreeSet<&str>)| {
        let more = with.get(package).filter(|more| *more != of_it)?;
        Some(format!(
            "{package} has the features {more:?} with the package e2e and {of_it:?} without it, so that the tests are \
             built twice: let [workspace.dependencies] name them"
        ))
    };
    without.iter().filter_map(differ).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_e2e_wants_more_of_are_told() {
        let without = read("ours v1|\nrustix v1|fs,net\nserde v1| (*)\nserde v1|std\n");
        assert_eq!(compare(&without, &without), [""; 0]);
        let with =
            read("e2e v1|\nonly-e2e v1|std\nours v1|\nrustix v1|fs,net,thread\nserde v1|std\nserde v1|\n");
        let found = compare(&with, &without);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("rustix v1 has the features {\"fs,net,thread\"}"),
            "{found:?}"
        );
    }
}
