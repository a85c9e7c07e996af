//! What becomes of lines that are not taken over: some have no equal, and some need none.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::Line;
use crate::write::Toml;

/// Collects both, by line.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    lacking: BTreeSet<(usize, String)>,
    /// Lines by the reason why they are not needed.
    needless: BTreeMap<&'static str, BTreeSet<usize>>,
}

impl Remarks {
    /// Something that has no equal, or not quite the same meaning.
    pub(super) fn lacks(&mut self, line: usize, what: impl AsRef<str>) {
        // One line each, whatever names and texts of the file are in it.
        let what = what.as_ref().replace(char::is_control, " ");
        self.lacking.insert((line, what));
    }

    /// A line that is of no use here, for a reason that many lines may have.
    pub(super) fn needs_nothing(&mut self, line: usize, why: &'static str) {
        self.needless.entry(why).or_default().insert(line);
    }

    /// A line for which a table says one or the other.
    pub(super) fn of_table(&mut self, line: &Line, equal: Equal) {
        self.of_words(line.number, &line.shown(), equal);
    }

    pub(super) fn of_words(&mut self, line: usize, shown: &str, equal: Equal) {
        match equal {
            Equal::Lacks(why) => self.lacks(line, format!("{shown}: {why}")),
            Equal::NeedsNone(why) => self.needs_nothing(line, why),
        }
    }

    /// Lines that are not needed, as comments.
    pub(super) fn write_needless(&self, toml: &mut Toml) {
        if self.needless.is_empty() {
            return;
        }
        toml.blank();
        toml.comment("Lines that need nothing here:");
        let mut reasons: Vec<_> = self.needless.iter().collect();
        reasons.sort_by_key(|(_, lines)| lines.first().copied());
        for (why, lines) in reasons {
            let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
            toml.comment(&format!("{}: {why}", lines.join(", ")));
        }
    }

    /// One text for each thing without an equal, in the order of the file.
    pub(super) fn finish(self) -> Vec<String> {
        let lacking = self.lacking.into_iter();
        lacking
            .map(|(line, what)| format!("line {line}: {what}"))
            .collect()
    }
}

/// What is said of a word that is known and not taken over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Equal {
    /// It does something that is not done here, or elsewhere.
    Lacks(&'static str),
    /// It is so without saying, or about something that is not here.
    NeedsNone(&'static str),
}
