//! The modules of a crate, and which of them import which.
//!
//! A module is a file, and what stands in inline modules is part of it. Modules for tests are left out: those
//! declared under `#[cfg(test)]`, with all below them.
//!
//! An import is a path that begins with `crate`, `self`, `super` or the name of a module declared in the same
//! file, in a `use` or anywhere else in code, macros included. It is an import of the deepest module on it:
//! `crate::a::b::f` of `a::b`, and `use super::f` of the module above, also where that only passes on what is
//! in another one. That a module is declared (`mod b;`) is no import.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::source::{Source, part_of_name};

/// A path within the crate; the crate itself is the empty one.
pub(crate) type Name = Vec<String>;

/// Which folders of a crate import which, each with a module that does.
pub(crate) type Folders = BTreeMap<(String, String), String>;

/// The modules of one crate, or of some made-up files.
pub(crate) struct Modules {
    modules: BTreeMap<Name, Module>,
    /// What is there for tests only: files, and items of other files.
    pub(crate) tests: Vec<Test>,
}

/// Code of tests.
pub(crate) struct Test {
    pub(crate) source: Source,
    pub(crate) lines: usize,
}

impl Test {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            source: Source::new(text),
            lines: text.lines().count(),
        }
    }
}

/// A module that is not for tests only.
pub(crate) struct Module {
    /// Its code without tests.
    pub(crate) source: Source,
    /// Its lines without tests, with comments and blank ones.
    pub(crate) lines: usize,
    imports: BTreeSet<Name>,
}

impl Modules {
    /// Those in the folder, which is a `src`.
    pub(crate) fn read(folder: &Path, files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut texts = BTreeMap::new();
        for path in files {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let twice = texts.insert(name_of(path.strip_prefix(folder)?), text);
            ensure!(
                twice.is_none(),
                "{}: another file is the same module",
                path.display()
            );
        }
        Ok(Self::new(&texts))
    }

    /// Those of the texts.
    pub(crate) fn new(texts: &BTreeMap<Name, String>) -> Self {
        let sources: BTreeMap<&Name, Source> = texts
            .iter()
            .map(|(name, text)| (name, Source::new(text)))
            .collect();
        let for_tests = modules_for_tests(&sources);
        let is_test = |name: &Name| (1..=name.len()).any(|length| for_tests.contains(&name[..length]));
        let mut modules = BTreeMap::new();
        let mut tests = Vec::new();
        for (name, text) in texts {
            let source = &sources[name];
            if is_test(name) {
                tests.push(Test::new(text));
                continue;
            }
            let items = source.test_items().into_iter().map(|item| Test {
                lines: source.lines_of(&item),
                source: Source::new(&source.code()[item]),
            });
            let begin = tests.len();
            tests.extend(items);
            let of_tests: usize = tests[begin..].iter().map(|test| test.lines).sum();
            let module = Module {
                source: source.without_tests(),
                lines: text.lines().count() - of_tests,
                imports: BTreeSet::new(),
            };
            modules.insert(name.clone(), module);
        }
        let names: BTreeSet<Name> = modules.keys().cloned().collect();
        for (name, module) in &mut modules {
            let paths = Paths::of(name, module.source.code());
            let deepest = |path: Name| {
                let found = (0..=path.len())
                    .rev()
                    .find(|&length| names.contains(&path[..length]))?;
                Some(path[..found].to_vec())
            };
            module.imports = paths.into_iter().filter_map(deepest).collect();
            module.imports.remove(name);
        }
        Self { modules, tests }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    /// Lines without tests.
    pub(crate) fn lines(&self) -> usize {
        self.iter().map(|module| module.lines).sum()
    }

    /// Pairs of modules that import each other. A module and one inside it are none: a folder passes on what
    /// is in it, and what is in it stands on the folder's own types.
    pub(crate) fn mutual(&self) -> Vec<(&Name, &Name)> {
        let imports = |from: &Name, to: &Name| self.modules[from].imports.contains(to);
        self.imports()
            .filter(|(from, to)| from < to && !to.starts_with(from) && imports(to, from))
            .collect()
    }

    pub(crate) fn folders(&self) -> Folders {
        let folder = |name: &Name| name.first().cloned().unwrap_or_default();
        self.imports()
            .map(|(from, to)| ((folder(from), folder(to)), from.join("::")))
            .collect()
    }

    /// Which module imports which.
    fn imports(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.modules
            .iter()
            .flat_map(|(from, module)| module.imports.iter().map(move |to| (from, to)))
    }

    /// The most modules of which each imports every other, directly or through others; empty where there is
    /// no cycle. Here a module and one inside it count as any two.
    pub(crate) fn largest_cycle(&self) -> Vec<&Name> {
        let reached: BTreeMap<&Name, BTreeSet<&Name>> = self
            .modules
            .keys()
            .map(|name| (name, self.reached_from(name)))
            .collect();
        let cycles = reached.iter().map(|(name, names)| {
            let back = names.iter().filter(|other| reached[**other].contains(name));
            back.copied().collect::<Vec<_>>()
        });
        // Of two that are equal the first.
        cycles.rev().max_by_key(Vec::len).unwrap_or_default()
    }

    /// Lines of these modules without tests.
    pub(crate) fn lines_of(&self, names: &[&Name]) -> usize {
        names.iter().map(|name| self.modules[*name].lines).sum()
    }

    fn reached_from(&self, name: &Name) -> BTreeSet<&Name> {
        let mut reached = BTreeSet::new();
        let mut open = vec![name];
        while let Some(from) = open.pop() {
            for to in &self.modules[from].imports {
                if reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached
    }
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`; `lib.rs` or `main.rs` is the crate.
fn name_of(path: &Path) -> Name {
    let mut name: Name = path
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if name.last().is_some_and(|last| last == "mod") || name == ["lib"] || name == ["main"] {
        name.pop();
    }
    name
}

/// Names of modules whose declaration is under `#[cfg(test)]`.
fn modules_for_tests(sources: &BTreeMap<&Name, Source>) -> BTreeSet<Name> {
    let mut names = BTreeSet::new();
    for (parent, source) in sources {
        for item in source.test_items() {
            let item = Source::new(&source.code()[item]);
            let declared = item.modules().map(|(_, name)| name.to_owned());
            names.extend(declared.map(|name| parent.iter().cloned().chain([name]).collect()));
        }
    }
    names
}

/// Finds the paths in the code of one module that lead to places of its crate.
struct Paths<'s> {
    tokens: Vec<&'s str>,
    at: usize,
    found: Vec<Name>,
}

impl<'s> Paths<'s> {
    fn of(module: &Name, code: &'s str) -> Vec<Name> {
        let tokens = tokens(code);
        let children: BTreeSet<&str> = tokens
            .windows(2)
            .filter(|pair| pair[0] == "mod")
            .map(|pair| pair[1])
            .collect();
        let mut paths = Self {
            tokens,
            at: 0,
            found: Vec::new(),
        };
        // Where `super` leads from: the module and the inline modules in it. A brace that opens none is
        // `false`.
        let mut here = module.clone();
        let mut braces = Vec::new();
        while let Some(&token) = paths.tokens.get(paths.at) {
            let (before, next) = (paths.before(1), paths.token(1));
            let begins = next == "::" && before != "::" && !(before == "in" && paths.before(2) == "(");
            match token {
                "{" => {
                    let inline = paths.before(2) == "mod";
                    if inline {
                        here.push(before.to_owned());
                    }
                    braces.push(inline);
                }
                "}" if braces.pop() == Some(true) => {
                    here.pop();
                }
                "crate" if begins => paths.follow(Vec::new()),
                "self" if begins => paths.follow(here.clone()),
                "super" if begins => {
                    let mut above = here.clone();
                    above.pop();
                    while paths.token(1) == "::" && paths.token(2) == "super" {
                        above.pop();
                        paths.at += 2;
                    }
                    paths.follow(above);
                }
                child if begins && children.contains(child) => {
                    let below = here.iter().cloned().chain([child.to_owned()]).collect();
                    paths.follow(below);
                }
                _ => {}
            }
            paths.at += 1;
        }
        paths.found
    }

    fn token(&self, ahead: usize) -> &'s str {
        self.tokens.get(self.at + ahead).copied().unwrap_or_default()
    }

    fn before(&self, back: usize) -> &'s str {
        let at = self.at.checked_sub(back);
        at.map_or("", |at| self.tokens[at])
    }

    /// Goes on from a token that leads to `path`, and stays on the last one of it.
    fn follow(&mut self, mut path: Name) {
        while self.token(1) == "::" {
            let next = self.token(2);
            if next == "{" {
                self.at += 2;
                self.list(&path);
                return;
            }
            if !next.starts_with(part_of_name) {
                break;
            }
            path.push(next.to_owned());
            self.at += 2;
        }
        self.found.push(path);
    }

    /// What is between the braces of a `use`, from the opening one to the closing one.
    fn list(&mut self, path: &Name) {
        self.at += 1;
        while !matches!(self.token(0), "}" | "") {
            match self.token(0) {
                // The end of a path that was followed, or the name that it gets here.
                _ if !matches!(self.before(1), "{" | ",") => {}
                "self" | "*" => self.found.push(path.clone()),
                name => self.follow(path.iter().cloned().chain([name.to_owned()]).collect()),
            }
            self.at += 1;
        }
    }
}

/// Names, `::`, and every other character that is no space.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if part_of_name(first) {
            rest.find(|c| !part_of_name(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.split("::")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn modules(files: &[(&str, &str)]) -> Modules {
        Modules::new(
            &files
                .iter()
                .map(|(path, text)| (name(path), (*text).to_owned()))
                .collect(),
        )
    }

    fn imported(module: &str, code: &str) -> Vec<String> {
        let source = Source::new(code).without_tests();
        let paths = Paths::of(&name(module), source.code());
        paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn files_have_the_names_of_modules() {
        assert_eq!(name_of(Path::new("lib.rs")), name(""));
        assert_eq!(name_of(Path::new("a.rs")), name("a"));
        assert_eq!(name_of(Path::new("a/mod.rs")), name("a"));
        assert_eq!(name_of(Path::new("a/b.rs")), name("a::b"));
    }

    #[test]
    fn paths_are_followed_from_where_they_stand() {
        assert_eq!(
            imported("a::b", "use crate::c::{self, d::D, e::{F, G as H}, *};"),
            ["c", "c::d::D", "c::e::F", "c::e::G", "c"]
        );
        assert_eq!(
            imported("a::b", "use super::c; use super::super::d; use self::e::f;"),
            ["a::c", "d", "a::b::e::f"]
        );
        assert_eq!(
            imported("a::b", "fn f() { debug!(crate::c::D, super::e::<u8>()) }"),
            ["c::D", "a::e"]
        );
        assert_eq!(
            imported("a", "mod b; pub(crate) use b::C; mod d { use super::e; }"),
            ["a::b::C", "a::e"]
        );
        assert_eq!(imported("", "mod a { mod b {} } use super::c;"), ["c"]);
    }

    #[test]
    fn what_is_no_import_is_none() {
        assert_eq!(
            imported(
                "a",
                "pub(crate) mod b; pub(in crate::c) fn f() { tokio::b::c(); self.d() }"
            ),
            Vec::<String>::new()
        );
        assert_eq!(
            imported("a", "// use crate::b;\nlet text = \"crate::c\";"),
            Vec::<String>::new()
        );
        assert_eq!(
            imported("a", "#[cfg(test)]\nmod tests {\n use crate::b;\n}\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn modules_that_import_each_other_are_found() {
        let modules = modules(&[
            ("", "mod a; mod b; mod c; mod d; use a::A;"),
            ("a", "use crate::A; use crate::b::f;\nuse crate::c::Deep;"),
            ("b", "fn f() { crate::a::g() }\n\n// text"),
            ("c", "use crate::d::x;"),
            ("d", "use crate::a;"),
        ]);
        assert_eq!(modules.mutual(), [(&name("a"), &name("b"))]);
        let cycle = modules.largest_cycle();
        assert_eq!(cycle, [&name(""), &name("a"), &name("b"), &name("c"), &name("d")]);
        assert_eq!((modules.lines_of(&cycle), modules.lines()), (8, 8));
    }

    #[test]
    fn folders_import_what_is_in_others() {
        let modules = modules(&[
            ("", "mod a; mod c;"),
            ("a::b", "use crate::c::d::f;"),
            ("c::d", ""),
        ]);
        let found: Vec<_> = modules.folders().into_iter().collect();
        assert_eq!(found, [(("a".into(), "c".into()), "a::b".into())]);
    }

    #[test]
    fn without_cycles_there_is_no_largest() {
        let modules = modules(&[("", "mod a; mod b;"), ("a", "use crate::b::f;"), ("b", "")]);
        assert!(modules.largest_cycle().is_empty());
    }

    #[test]
    fn tests_are_no_modules() {
        let modules = modules(&[
            ("", "mod a;\n#[cfg(test)]\nmod tests;\n"),
            (
                "a",
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::tests;\n}\n",
            ),
            ("tests", "mod deep;\nuse crate::a;\n"),
            ("tests::deep", "use crate::a;\n"),
        ]);
        assert_eq!(modules.iter().count(), 2);
        let of_tests: usize = modules.tests.iter().map(|test| test.lines).sum();
        assert_eq!((modules.lines(), of_tests), (2, 9));
    }
}
