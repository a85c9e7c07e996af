//! Writes TOML that people go on with: sections, comments, one option a line.

use std::fmt::Write as _;

use config::Config;
use config::docs::wrap;

/// The address of the admin server in a configuration that is imported.
pub(crate) const ADMIN: &str = "127.0.0.1:6080";

/// Columns of a comment.
const WIDTH: usize = 110;

/// A text that grows.
#[derive(Debug, Default)]
pub(crate) struct Toml {
    out: String,
}

impl Toml {
    /// A comment, in lines of at most [`WIDTH`] columns but for words that are longer.
    pub(crate) fn comment(&mut self, text: &str) {
        let text = text.replace(|c: char| c.is_control(), " ");
        let words: Vec<&str> = text.split_whitespace().collect();
        if !words.is_empty() {
            wrap(&words.join(" "), "# ", WIDTH, &mut self.out);
        }
    }

    pub(crate) fn blank(&mut self) {
        self.out.push('\n');
    }

    /// A header: `[cluster.main]` or `[[rule]]`, with an empty line before it.
    pub(crate) fn section(&mut self, header: &str) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.blank();
        }
        let _ = writeln!(self.out, "{header}");
    }

    /// An option whose value is TOML already.
    pub(crate) fn option(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.out, "{key} = {value}");
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.option(key, &quote(value));
    }

    /// An option whose value is TOML already, with the line of the other file that it comes from.
    pub(crate) fn taken(&mut self, key: &str, value: &str, line: usize) {
        let option = format!("{key} = {value}");
        let _ = writeln!(self.out, "{option:<48} # line {line}");
    }

    /// A list, of which each element is TOML already and has a line of its own, also in the other file.
    pub(crate) fn open(&mut self, key: &str) {
        let _ = writeln!(self.out, "{key} = [");
    }

    pub(crate) fn element(&mut self, value: &str, line: usize) {
        let _ = writeln!(self.out, "    {value}, # line {line}");
    }

    pub(crate) fn close(&mut self) {
        self.out.push_str("]\n");
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }
}

pub(crate) fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Mistakes that `config` finds in a result.
pub(crate) fn mistakes(toml: &str) -> Vec<String> {
    let errors = Config::parse(toml, "result").err().into_iter();
    let errors = errors.flat_map(|errors| errors.0);
    errors.map(|error| format!("needs a hand: {error}")).collect()
}

/// A list of texts as TOML.
pub(crate) fn list<'v>(values: impl IntoIterator<Item = &'v str>) -> String {
    let values: Vec<String> = values.into_iter().map(quote).collect();
    format!("[{}]", values.join(", "))
}

/// What has no equal, in the order in which it was found; each thing once.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    pub(crate) fn add(&mut self, note: impl Into<String>) {
        // One line each, whatever names and texts of the file are in it.
        let note = note.into().replace(char::is_control, " ");
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    pub(crate) fn finish(self) -> Vec<String> {
        self.0
    }
}
