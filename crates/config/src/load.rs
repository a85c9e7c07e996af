//! From a file or a text to a [`Config`].

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ConfigError, ConfigErrors};
use crate::report::Report;
use crate::schema::Config;
use crate::value::Value;
use crate::{derive, files, validate};

impl Config {
    /// Reads and checks the file, the files it names, and the secrets it refers to. Relative paths in it start at its
    /// own folder, and are absolute in the result where the path given here is.
    ///
    /// # Errors
    /// Every mistake with its place, or the reason why the file cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = files::read(path).map_err(|error| unreadable(&file, &error))?;
        read(&text, &file, path.parent())
    }

    /// Reads and checks a text without looking at anything else: files it names need not exist, and a password that
    /// comes from a file or the environment stays `None`.
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
    let (root, broken) = DeTable::parse_recoverable(text);
    for error in &broken {
        let span = error.span().unwrap_or(0..0);
        let found = match (error.message(), text.get(span.clone())) {
            ("duplicate key", Some(key)) => format!("`{key}` a second time"),
            (message, _) => message.to_owned(),
        };
        report.wrong_at(span, "", "", found).hint(None);
    }
    if !broken.is_empty() {
        // What a parser makes of the rest of a broken text is a guess; mistakes in a guess mislead.
        return report.finish().map(|()| Config::stand_in());
    }
    let root = Spanned::new(root.span(), DeValue::Table(root.into_inner()));
    let mut config = Config::read(&root, "", &mut report).unwrap_or_else(Config::stand_in);
    derive::fill(&mut config, &report);
    validate::validate(&config, &mut report);
    if let Some(folder) = folder {
        files::resolve(&mut config, folder, &mut report);
    }
    report.finish().map(|()| config)
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
