//! From a file or a text to a [`Config`].

use std::path::Path;

use crate::error::{ConfigError, ConfigErrors};
use crate::report::Report;
use crate::schema::{Config, User};
use crate::value::Value;
use crate::{congestion, derive, files, syntax, users_file, validate};

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
    let Some(root) = syntax::root(text, &mut report) else {
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
    finish(config, report, elsewhere)
}

/// The configuration with the accounts and the renamed keys of its users file, or all mistakes of both.
pub(crate) fn finish(
    mut config: Config,
    report: Report<'_>,
    elsewhere: Result<(Vec<User>, Vec<String>), ConfigErrors>,
) -> Result<Config, ConfigErrors> {
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
