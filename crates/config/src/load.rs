//! From a file or a text to a [`Config`].

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ConfigError, ConfigErrors};
use crate::report::Report;
use crate::schema::Config;
use crate::value::Value;
use crate::{congestion, derive, files, users_file, validate};

impl Config {
    /// Reads and checks the file, the files it names, the secrets it refers to, and the congestion controls
    /// that it wants of the kernel. Relative paths in it start at its own folder, and are absolute in the
    /// result where the path given here is. Accounts of the users file stand in [`Config::users`] after those
    /// of the file itself.
    ///
    /// # Errors
    /// Every mistake with its place, or the reason why the file cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = files::read(path).map_err(|error| unreadable(&file, &error))?;
        read(&text, &file, path.parent())
    }

    /// Reads and checks a text without looking at anything else: files it names need not exist, and a
    /// password that comes from a file or the environment stays `None`.
    ///
    /// # Errors
    /// Every mistake with its place; `file_name` is the file in these messages.
    pub fn parse(text: &str, file_name: &str) -> Result<Config, ConfigErrors> {
        read(text, file_name, None)
    }
}

/// All steps. What lies outside the text is looked at only where there is a folder to start from.
fn read(text: &str, file: &str, folder: Option<&Path>) -> Result<Config, ConfigErrors> {
    let mut report = Report::new(file, text);
    let Some(root) = root(text, &mut report) else {
        return report.finish().map(|()| Config::stand_in());
    };
    let mut config = Config::read(&root, "", &mut report).unwrap_or_else(Config::stand_in);
    derive::fill(&mut config, &report);
    validate::validate(&config, &mut report);
    let mut elsewhere = Ok((Vec::new(), Vec::new()));
    if let Some(folder) = folder {
        files::resolve(&mut config, folder, &mut report);
        congestion::settle(&mut config, &mut report);
        elsewhere = users_file::read(&config, folder, &mut report);
    }
    derive::inherit(&mut config);
    config.renamed = report.take_renamed();
    match (report.finish(), elsewhere) {
        (Ok(()), Ok((users, renamed))) => {
            config.users.extend(users);
            config.renamed.extend(renamed);
            Ok(config)
        }
        (Err(ConfigErrors(mut errors)), Err(ConfigErrors(more))) => {
            errors.extend(more);
            Err(ConfigErrors(errors))
        }
        (Err(errors), Ok(_)) | (Ok(()), Err(errors)) => Err(errors),
    }
}

/// The text as TOML; `None` after its mistakes were told. What a parser makes of the rest of a broken text is
/// a guess, and mistakes in a guess mislead.
pub(crate) fn root<'t>(text: &'t str, report: &mut Report<'_>) -> Option<Spanned<DeValue<'t>>> {
    let (root, broken) = DeTable::parse_recoverable(text);
    // Behind a bracket that is not closed everything is wrong, down to the end of the file.
    let begins = |words: [&'static str; 3]| {
        move |error: &toml::de::Error| words.iter().any(|word| error.message().starts_with(word))
    };
    let is_open = broken.iter().any(begins([
        "unclosed array,",
        "unclosed inline table",
        "missing key for inline table",
    ]));
    let first = broken.iter().position(begins([
        "unclosed",
        "missing comma",
        "missing key for inline table",
    ]));
    let last = first.filter(|_| is_open).unwrap_or(broken.len());
    for (index, error) in broken.iter().enumerate().take(last.saturating_add(1)) {
        let span = error.span().unwrap_or(0..0);
        let found = match (error.message(), text.get(span.clone())) {
            ("duplicate key", Some(key)) => format!("`{key}` a second time"),
            (message, _) if message.starts_with("string values must be quoted") => {
                "a text without quotes, or no value at all".to_owned()
            }
            (message, _) => message.to_owned(),
        };
        let hint = match index == last {
            true => bracket_hint(text, span.start),
            false => syntax_hint(error.message(), text, span.start),
        };
        report.wrong_at(span, "", "", found).hint(hint);
    }
    let span = root.span();
    broken
        .is_empty()
        .then(|| Spanned::new(span, DeValue::Table(root.into_inner())))
}

/// Where the bracket stands that has no counterpart, as far as that can be told by looking back for the last
/// one.
fn bracket_hint(text: &str, at: usize) -> Option<String> {
    let before = text.get(..at)?;
    let bracket = before.rfind(['[', '{'])?;
    let line = before[..bracket].matches('\n').count() + 1;
    Some(format!(
        "the `{}` in line {line} may not be closed",
        &before[bracket..=bracket]
    ))
}

/// What is probably meant, where the parser's words leave whoever reads them alone. Never the value, which
/// may be a password.
fn syntax_hint(message: &str, text: &str, at: usize) -> Option<String> {
    let before = text.get(..at).unwrap_or_default();
    let begin = before.rfind(['\n', '=', '[', ',']).map_or(0, |place| place + 1);
    let rest = text.get(begin..).unwrap_or_default();
    let value = rest
        .split([',', ']', '}', '#', '\n'])
        .next()
        .unwrap_or_default()
        .trim();
    let hint = match message.split(',').next().unwrap_or_default() {
        _ if matches!(
            value.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off"
        ) =>
        {
            "write true or false, in small letters"
        }
        "invalid basic string" if message.ends_with("expected `\"`") => "the quote at its end is missing",
        // Another language, mostly, or a colon.
        "key with no value" | "invalid unquoted key" | "unquoted keys cannot be empty" => {
            "an option is written NAME = VALUE, a section [NAME]"
        }
        "missing escaped value" => "a backslash stands for itself in single quotes: '\\d+'",
        "string values must be quoted" => "text goes in quotes: \"...\"",
        // An address or a duration that begins like a number.
        "invalid float" | "invalid integer" | "unexpected leading zero" => {
            "what is no plain number goes in quotes: \"...\""
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn unreadable(file: &str, error: &std::io::Error) -> ConfigErrors {
    ConfigErrors(vec![ConfigError {
        file: file.to_owned(),
        place: None,
        key: String::new(),
        expected: "a readable configuration file".to_owned(),
        found: error.to_string(),
        hint: None,
    }])
}
