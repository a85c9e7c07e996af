//! From a file or a text to a [`Config`].

use std::fs;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::derive;
use crate::error::{ConfigError, ConfigErrors};
use crate::report::Report;
use crate::schema::Config;
use crate::value::Value;

impl Config {
    /// Reads and checks the file, the files it names, and the secrets it refers to.
    ///
    /// # Errors
    /// Every mistake with its place, or the reason why the file cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| unreadable(&file, &error))?;
        Self::parse(&text, &file)
    }

    /// Reads and checks a text without looking at anything else.
    ///
    /// # Errors
    /// Every mistake with its place; `file_name` is the file in these messages.
    pub fn parse(text: &str, file_name: &str) -> Result<Config, ConfigErrors> {
        let mut report = Report::new(file_name, text);
        let (root, broken) = DeTable::parse_recoverable(text);
        if !broken.is_empty() {
            for error in &broken {
                report
                    .wrong_at(error.span().unwrap_or(0..0), "", "", error.message())
                    .hint(None);
            }
        }
        let root = Spanned::new(root.span(), DeValue::Table(root.into_inner()));
        let mut config = Config::read(&root, "", &mut report).unwrap_or_else(Config::stand_in);
        derive::fill(&mut config, &report);
        report.finish().map(|()| config)
    }
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
