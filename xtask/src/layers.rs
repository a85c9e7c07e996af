//! The table of layers against the dependencies that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::modules::Folders;

/// `layers.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    pure: Pure,
    crates: BTreeMap<String, Layer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pure {
    forbidden: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    group: Group,
    uses: BTreeSet<String>,
    #[serde(default)]
    tests: BTreeSet<String>,
    /// Pairs of its modules that import each other.
    #[serde(default)]
    mutual: usize,
    /// How much of its production lines may be in its largest cycle of modules, in percent; nothing is said
    /// of most.
    cycle: Option<usize>,
    /// Folders of its modules, and which others each must not import.
    #[serde(default)]
    apart: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Group {
    Pure,
    Ground,
    Path,
    Feature,
    Operators,
    Assembly,
    Dev,
}

/// The part of `cargo metadata` that is of interest here.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// A line for every crate with more pairs of modules that import each other than the table has, or fewer.
/// `found`: the pairs of each crate.
pub(crate) fn check_mutual(table: &Table, found: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, pairs) in found {
        let allowed = table.crates.get(name).map_or(0, |layer| layer.mutual);
        if pairs.len() != allowed {
            problems.push(format!(
                "layers.toml: `{name}` has {} pairs of modules that import each other, and `mutual = {allowed}` \
                 here: {}",
                pairs.len(),
                pairs.join(", ")
            ));
        }
    }
    problems
}

/// A line for every crate whose largest cycle of modules has a larger share of it than the table allows.
/// `found`: that share of each crate, in percent.
pub(crate) fn check_cycles(table: &Table, found: &BTreeMap<String, usize>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, share) in found {
        let allowed = table.crates.get(name).and_then(|layer| layer.cycle);
        if let Some(allowed) = allowed.filter(|allowed| share > allowed) {
            problems.push(format!(
                "layers.toml: {share} % of `{name}` are in one cycle of modules, and `cycle = {allowed}` here"
            ));
        }
    }
    problems
}

/// A line for every folder that imports another one which it must not know. `found`: which folders import
/// which in each crate, with a module that does.
pub(crate) fn check_folders(table: &Table, found: &BTreeMap<String, Folders>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, imports) in found {
        let Some(layer) = table.crates.get(name) else {
            continue;
        };
        for ((from, to), module) in imports {
            if layer.apart.get(from).is_some_and(|apart| apart.contains(to)) {
                problems.push(format!(
                    "layers.toml: in `{name}`, `{from}` must not know `{to}`, and `{module}` imports it"
                ));
            }
        }
    }
    problems
}

impl Table {
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(root.join("layers.toml")).context("reading layers.toml")?;
        toml::from_str(&text).context("layers.toml")
    }

    fn may_use(&self, from: &str, to: &str, in_tests: bool) -> bool {
        let Some(layer) = self.crates.get(from) else {
            return false;
        };
        let listed = |list: &BTreeSet<String>| list.contains("*") || list.contains(to);
        listed(&layer.uses) || (in_tests && listed(&layer.tests))
    }
}

impl Metadata {
    /// Asks cargo. The lock file must be current: what is checked is what is built.
    pub(crate) fn ask(root: &Path) -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(root)
            .output()
            .context("running cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).context("cargo metadata")
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Names of everything that ends up in the crate, without what only builds or tests it.
    fn closure(&self, id: &str) -> BTreeSet<&str> {
        let nodes: BTreeMap<&str, &Node> = self
            .resolve
            .nodes
            .iter()
            .map(|node| (node.id.as_str(), node))
            .collect();
        let mut reached = BTreeSet::from([id]);
        let mut open = vec![id];
        while let Some(node) = open.pop().and_then(|id| nodes.get(id)) {
            for dependency in &node.deps {
                let linked = dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
                if linked && reached.insert(&dependency.pkg) {
                    open.push(&dependency.pkg);
                }
            }
        }
        let named = self
            .packages
            .iter()
            .filter(|package| package.id != id && reached.contains(package.id.as_str()));
        named.map(|package| package.name.as_str()).collect()
    }
}

/// A line for every difference.
pub(crate) fn check(table: &Table, metadata: &Metadata) -> Vec<String> {
    let members: BTreeSet<&str> = metadata.members().map(|package| package.name.as_str()).collect();
    let mut problems = table_itself(table, &members);
    for package in metadata.members() {
        let Some(layer) = table.crates.get(&package.name) else {
            problems.push(format!("layers.toml: crate `{}` is missing", package.name));
            continue;
        };
        problems.extend(edges(table, package, &members));
        if layer.group == Group::Pure {
            let forbidden = metadata
                .closure(&package.id)
                .into_iter()
                .filter(|name| table.pure.forbidden.contains(*name));
            problems.extend(
                forbidden
                    .map(|name| format!("layers.toml: `{}` is pure, but depends on `{name}`", package.name)),
            );
        }
    }
    problems
}

/// Words of the table that name nothing, and what the table itself must not allow.
fn table_itself(table: &Table, members: &BTreeSet<&str>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, layer) in &table.crates {
        let named = layer.uses.iter().chain(&layer.tests).chain([name]);
        let unknown = named.filter(|name| *name != "*" && !members.contains(name.as_str()));
        problems.extend(
            unknown.map(|unknown| format!("layers.toml: `{unknown}` (at `{name}`) is no crate of ours")),
        );
        let is_feature = |name: &String| {
            table
                .crates
                .get(name)
                .is_some_and(|layer| layer.group == Group::Feature)
        };
        if layer.group == Group::Feature {
            let known = layer.uses.iter().filter(|name| is_feature(name));
            problems.extend(
                known.map(|other| format!("layers.toml: feature `{name}` must not know feature `{other}`")),
            );
        }
    }
    problems
}

fn edges(table: &Table, package: &Package, members: &BTreeSet<&str>) -> Vec<String> {
    let ours = package
        .dependencies
        .iter()
        .filter(|dependency| members.contains(dependency.name.as_str()));
    let broken = ours.filter(|dependency| {
        let in_tests = dependency.kind.as_deref() == Some("dev");
        !table.may_use(&package.name, &dependency.name, in_tests)
    });
    broken
        .map(|dependency| {
            let list = if dependency.kind.is_some() {
                "`tests`"
            } else {
                "`uses`"
            };
            format!(
                "layers.toml: `{}` depends on `{}`, which is not in its {list}",
                package.name, dependency.name
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = r#"
        [pure]
        forbidden = ["tokio"]
        [crates.wire]
        group = "pure"
        uses = []
        [crates.net]
        group = "ground"
        uses = ["wire"]
        tests = ["kit"]
        [crates.kit]
        group = "dev"
        uses = ["*"]
    "#;

    /// Packages are `name: dependency dependency/kind`; those of the workspace are in `members`.
    fn problems(table: &str, packages: &[&str], members: &[&str]) -> Vec<String> {
        let mut metadata =
            json!({ "workspace_members": members, "packages": [], "resolve": { "nodes": [] } });
        for line in packages {
            let (name, dependencies) = line.split_once(':').unwrap();
            let (mut declared, mut resolved) = (Vec::new(), Vec::new());
            for word in dependencies.split_whitespace() {
                let (name, kind) = word
                    .split_once('/')
                    .map_or((word, None), |(name, kind)| (name, Some(kind)));
                declared.push(json!({ "name": name, "kind": kind }));
                resolved.push(json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] }));
            }
            let package = json!({ "id": name, "name": name, "dependencies": declared });
            let node = json!({ "id": name, "deps": resolved });
            metadata["packages"].as_array_mut().unwrap().push(package);
            metadata["resolve"]["nodes"].as_array_mut().unwrap().push(node);
        }
        check(
            &toml::from_str(table).unwrap(),
            &serde_json::from_value(metadata).unwrap(),
        )
    }

    #[test]
    fn edges_of_the_table_are_fine() {
        let packages = [
            "wire: sha1 tokio/dev",
            "net: wire tokio kit/dev",
            "kit: net wire",
            "sha1:",
            "tokio:",
        ];
        assert_eq!(
            problems(TABLE, &packages, &["wire", "net", "kit"]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_told() {
        let packages = ["wire: net", "net: kit", "kit:"];
        assert_eq!(
            problems(TABLE, &packages, &["wire", "net", "kit"]),
            [
                "layers.toml: `wire` depends on `net`, which is not in its `uses`",
                "layers.toml: `net` depends on `kit`, which is not in its `uses`",
            ]
        );
    }

    #[test]
    fn purity_is_checked_through_others() {
        let packages = ["wire: sha1", "net:", "kit:", "sha1: tokio", "tokio:"];
        assert_eq!(
            problems(TABLE, &packages, &["wire", "net", "kit"]),
            ["layers.toml: `wire` is pure, but depends on `tokio`"]
        );
    }

    #[test]
    fn crates_and_table_must_agree() {
        assert_eq!(
            problems(TABLE, &["wire:", "net:", "new:"], &["wire", "net", "new"]),
            [
                "layers.toml: `kit` (at `kit`) is no crate of ours",
                "layers.toml: `kit` (at `net`) is no crate of ours",
                "layers.toml: crate `new` is missing",
            ]
        );
    }

    #[test]
    fn features_do_not_know_one_another() {
        let table = "[pure]\nforbidden = []\n[crates.a]\ngroup = \"feature\"\nuses = [\"b\"]\n\
                     [crates.b]\ngroup = \"feature\"\nuses = []\n";
        assert_eq!(
            problems(table, &["a: b", "b:"], &["a", "b"]),
            ["layers.toml: feature `a` must not know feature `b`"]
        );
    }

    #[test]
    fn a_pair_more_or_fewer_than_the_table_has_is_told() {
        let table: Table = toml::from_str(&TABLE.replace("tests = [\"kit\"]", "mutual = 1")).unwrap();
        let found = |wire: &[&str], net: &[&str]| {
            let owned = |pairs: &[&str]| pairs.iter().map(ToString::to_string).collect();
            check_mutual(
                &table,
                &[("wire".into(), owned(wire)), ("net".into(), owned(net))].into(),
            )
        };
        assert!(found(&[], &["a and b"]).is_empty());
        let too_many = "`wire` has 1 pairs of modules that import each other, and `mutual = 0` here: a and b";
        assert_eq!(
            found(&["a and b"], &["a and b"]),
            [format!("layers.toml: {too_many}")]
        );
        assert_eq!(found(&[], &[]).len(), 1, "it is to go down");
    }

    #[test]
    fn folders_that_are_apart_stay_so() {
        let table = TABLE.replace("tests = [\"kit\"]", "apart = { a = [\"b\"] }");
        let table: Table = toml::from_str(&table).unwrap();
        let found = |from: &str, to: &str| {
            let imports = [((from.to_owned(), to.to_owned()), format!("{from}::x"))];
            check_folders(&table, &[("net".into(), imports.into())].into())
        };
        assert!(found("b", "a").is_empty());
        let told = "layers.toml: in `net`, `a` must not know `b`, and `a::x` imports it";
        assert_eq!(found("a", "b"), [told]);
    }

    #[test]
    fn a_cycle_that_is_too_large_is_told() {
        let table: Table = toml::from_str(&TABLE.replace("tests = [\"kit\"]", "cycle = 25")).unwrap();
        let found = |share| check_cycles(&table, &[("net".into(), share), ("wire".into(), 90)].into());
        assert!(found(25).is_empty());
        let too_large = "layers.toml: 26 % of `net` are in one cycle of modules, and `cycle = 25` here";
        assert_eq!(found(26), [too_large]);
    }
}
