//! The reference of options, made from the table in `schema`: [`options`] as data, [`text`] for a terminal,
//! [`markdown`] for the guide.

use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::option::OptionDoc;
use crate::schema::Config;
use crate::value::Value;

/// Every option there is: section after section, those of the top level first, as a file has to be written.
pub fn options() -> &'static [OptionDoc] {
    static OPTIONS: LazyLock<Vec<OptionDoc>> = LazyLock::new(|| {
        let mut options: Vec<OptionDoc> = Vec::new();
        Config::list_options("", &mut options);
        // TOML takes what follows a table's header for part of that table, so sections must not be
        // interleaved.
        let mut sections: Vec<String> = Vec::new();
        for option in &options {
            if !sections.iter().any(|section| section == option.section()) {
                sections.push(option.section().to_owned());
            }
        }
        options.sort_by_key(|option| sections.iter().position(|section| section == option.section()));
        options
    });
    &OPTIONS
}

/// Columns of the terminal form.
const WIDTH: usize = 100;

impl OptionDoc {
    /// The path of the section; empty for the top level.
    fn section(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// The section of the option as its header is written, and the option's own key. Empty for the top level.
    fn header_and_key(&self) -> (String, &str) {
        let (section, key) = self.path.rsplit_once('.').unwrap_or(("", &self.path));
        let header = match section {
            "" => String::new(),
            "listener" | "user" | "rule" | "cache.mapping" => format!("[[{section}]]"),
            "cluster.NAME.servers" => "servers = [{ … }]".to_owned(),
            section => format!("[{section}]"),
        };
        (header, key)
    }

    /// `required`, or the default with what a number counts.
    fn default_words(&self) -> String {
        match &self.default {
            None => "required".to_owned(),
            Some(default) if self.unit.is_empty() => default.clone(),
            Some(default) => format!("{default} ({})", self.unit),
        }
    }

    /// The type with its bounds.
    fn type_words(&self) -> String {
        match &self.range {
            Some(range) => format!("{}, {range}", self.kind),
            None => self.kind.clone(),
        }
    }
}

/// The whole reference as plain text, as `forebay docs options` prints it: lines of at most 100 columns but
/// for words that are longer.
pub fn text() -> String {
    let mut out = String::new();
    let mut current = None;
    for option in options() {
        let (header, key) = option.header_and_key();
        if current.as_ref() != Some(&header) {
            let title = if header.is_empty() { "top level" } else { &header };
            let _ = writeln!(out, "{}{title}", if current.is_some() { "\n" } else { "" });
            current = Some(header);
        }
        let _ = writeln!(out, "\n  {key}");
        for words in [
            option.doc.clone(),
            format!("type:    {}", option.type_words()),
            format!("default: {}", option.default_words()),
            format!("reload:  {}", option.reload),
        ] {
            wrap(&words, "      ", WIDTH, &mut out);
        }
    }
    out
}

/// Writes `words` in lines that begin with `indent` and have at most `width` columns, but for longer words.
pub fn wrap(words: &str, indent: &str, width: usize, out: &mut String) {
    let mut column = 0;
    for word in words.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        }
        out.push_str(if column == 0 { indent } else { " " });
        column += length + if column == 0 { indent.len() } else { 1 };
        out.push_str(word);
    }
    out.push('\n');
}

const INTRODUCTION: &str = "\
# Options

<!-- Generated from the table of options in crates/config by `cargo xtask gen-docs`. Do not edit. -->

`forebay check --config FILE` reads a file and lists every mistake in it, each with its place. `forebay docs options`
prints this page.

Durations are a whole number and a unit (`ms`, `s`, `m`, `h`, `d`) in quotes. Relative paths start at the folder of the
configuration file. A changed file is read again by itself (`watch`) or on SIGHUP; the last column says what the change of
an option takes then: *live* is at once and for everything, *new sessions* is for those that begin afterwards, *restart*
is at the next start, and the reload says so in the log.
";

/// The whole reference as Markdown: `docs/guide/options.md`.
pub fn markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    let mut current = None;
    for option in options() {
        let (header, key) = option.header_and_key();
        if current.as_ref() != Some(&header) {
            let title = if header.is_empty() {
                "Top level".to_owned()
            } else {
                format!("`{header}`")
            };
            let _ = write!(
                out,
                "\n## {title}\n\n| option | type | default | reload | what it does |\n|---|---|---|---|---|\n"
            );
            current = Some(header);
        }
        let (kind, default) = (cell(&option.type_words()), cell(&option.default_words()));
        let _ = writeln!(
            out,
            "| `{key}` | {kind} | {default} | {} | {} |",
            option.reload,
            cell(&option.doc)
        );
    }
    out
}

/// Text inside a table: a `|` would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_option_is_listed_once_and_explained() {
        let paths: BTreeSet<_> = options().iter().map(|option| &option.path).collect();
        assert_eq!(paths.len(), options().len());
        for option in options() {
            assert!(
                option.doc.ends_with('.') && !option.doc.contains("  "),
                "{option:?}"
            );
        }
        for path in [
            "workers",
            "listener.tls.mode",
            "cluster.NAME.servers",
            "cluster.NAME.servers.weight",
            "admin.bind",
        ] {
            assert!(paths.contains(&path.to_owned()), "{path}");
        }
        assert!(
            !paths.contains(&"cluster.NAME.name".to_owned()),
            "the name is the table's key"
        );
    }

    #[test]
    fn the_text_fits_a_terminal() {
        let text = text();
        assert!(text.starts_with("top level\n\n  workers\n"));
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn the_reference_says_what_a_machine_cannot_change() {
        let workers = &options()[0];
        assert_eq!(workers.default.as_deref(), Some("one per core"));
        assert_eq!(workers.range.as_deref(), Some("from 1 to 1024"));
    }

    #[test]
    fn sections_of_the_guide_appear_once() {
        let markdown = markdown();
        let titles: Vec<_> = markdown.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(
            titles.len(),
            titles.iter().collect::<BTreeSet<_>>().len(),
            "{titles:?}"
        );
    }
}
