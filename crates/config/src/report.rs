//! What is learnt while a file is read: where each option stands, and every mistake.
//!
//! An option is named by its path into the file (`listener[0].tls.cert`, `cluster.main.servers[1]`), the same
//! words that the operator sees.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::{ConfigError, ConfigErrors, Place};

/// More mistakes than anybody reads: a file that is something else altogether ends here.
const ERRORS_MAX: usize = 100;

/// A part of the text, in bytes.
pub(crate) type Span = Range<usize>;

/// Where an option stands.
struct Written {
    key: Span,
    value: Span,
}

/// Collects places and mistakes of one file.
pub(crate) struct Report<'t> {
    file: &'t str,
    text: &'t str,
    written: BTreeMap<String, Written>,
    /// Options with a mistake: checks between options leave them alone, one mistake is told once.
    wrong: BTreeSet<String>,
    errors: Vec<(usize, ConfigError)>,
    /// Options under names of earlier versions, in words.
    renamed: Vec<String>,
}

impl<'t> Report<'t> {
    pub(crate) fn new(file: &'t str, text: &'t str) -> Self {
        Self {
            file,
            text,
            written: BTreeMap::new(),
            wrong: BTreeSet::new(),
            errors: Vec::new(),
            renamed: Vec::new(),
        }
    }

    /// Remembers that the option `path` is written under the name of an earlier version.
    pub(crate) fn renamed(&mut self, key: Span, path: &str, new: &str) {
        let Place { line, column } = self.place(key.start);
        let file = self.file;
        let notice = format!(
            "{file}:{line}:{column}: {path} is called `{new}` now; the former name is still understood, and will not always be"
        );
        self.renamed.push(notice);
    }

    /// What is to be said of options under names of earlier versions.
    pub(crate) fn take_renamed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.renamed)
    }

    /// The file as it was named by the caller.
    pub(crate) fn file(&self) -> &'t str {
        self.file
    }

    /// Remembers that the option `path` is written, and where.
    pub(crate) fn note(&mut self, path: &str, key: Span, value: Span) {
        self.written.insert(path.to_owned(), Written { key, value });
    }

    /// Whether the option stands in the file, right or wrong.
    pub(crate) fn is_written(&self, path: &str) -> bool {
        self.written.contains_key(path)
    }

    /// The options that stand in the file's top level.
    pub(crate) fn written_at_top(&self) -> impl Iterator<Item = String> {
        let paths = self.written.keys();
        paths.filter(|path| !path.contains(['.', '['])).cloned()
    }

    /// Whether a mistake was found in the option itself.
    pub(crate) fn is_wrong(&self, path: &str) -> bool {
        self.wrong.contains(path)
    }

    /// A mistake in the value of `path`, at the value.
    pub(crate) fn wrong(
        &mut self,
        path: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Added<'_> {
        let span = self.nearest(path).map_or(0..0, |written| written.value.clone());
        self.wrong_at(span, path, expected, found)
    }

    /// A mistake in the key of `path`, at the key.
    pub(crate) fn wrong_key(
        &mut self,
        path: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Added<'_> {
        let span = self.nearest(path).map_or(0..0, |written| written.key.clone());
        self.wrong_at(span, path, expected, found)
    }

    /// A mistake at a part of the text; `path` may be empty (a syntax error).
    pub(crate) fn wrong_at(
        &mut self,
        span: Span,
        path: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Added<'_> {
        self.wrong.insert(path.to_owned());
        let error = ConfigError {
            file: self.file.to_owned(),
            place: Some(self.place(span.start)),
            key: path.to_owned(),
            expected: expected.into(),
            found: found.into(),
            hint: None,
        };
        self.errors.push((span.start, error));
        Added(self.errors.last_mut().map(|(_, error)| error))
    }

    /// Says more exactly what the option told last would have to be.
    pub(crate) fn expect_instead(&mut self, path: &str, expected: String) {
        if let Some((_, error)) = self.errors.last_mut().filter(|(_, error)| error.key == path) {
            error.expected = expected;
        }
    }

    /// The line where an option stands, to point from one place to another.
    pub(crate) fn line(&self, path: &str) -> usize {
        self.place(self.nearest(path).map_or(0, |written| written.value.start))
            .line
    }

    /// `Ok` where nothing is wrong, else all mistakes in the order of the file.
    pub(crate) fn finish(mut self) -> Result<(), ConfigErrors> {
        if self.errors.is_empty() {
            return Ok(());
        }
        self.errors.sort_by_key(|(start, _)| *start);
        self.errors.truncate(ERRORS_MAX);
        Err(ConfigErrors(
            self.errors.into_iter().map(|(_, error)| error).collect(),
        ))
    }

    /// The option if it is written, else the nearest table around it that is.
    fn nearest(&self, path: &str) -> Option<&Written> {
        let mut path = path;
        loop {
            if let Some(written) = self.written.get(path) {
                return Some(written);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    fn place(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// A mistake just added, to give it a hint.
pub(crate) struct Added<'r>(Option<&'r mut ConfigError>);

impl Added<'_> {
    /// The likely next step, if there is one.
    pub(crate) fn hint(self, hint: impl Into<Option<String>>) {
        if let Some(error) = self.0 {
            error.hint = hint.into();
        }
    }
}
