//! The users file: accounts that are kept apart from the rest of the configuration.
//!
//! The same `[[user]]` tables under the same rules, and nothing else. Its mistakes are told with its own name
//! and lines.

use std::path::Path;

use crate::error::ConfigErrors;
use crate::report::Report;
use crate::schema::{Config, User, UsersFile};
use crate::value::Value;
use crate::{files, syntax, validate};

/// Reads the users file that `config` names, where it names one: the accounts, and what is to be said of
/// options under names of earlier versions. That it cannot be read is a mistake of the option in `report`.
///
/// # Errors
/// Every mistake in it, with its place.
pub(crate) fn read(
    config: &Config,
    folder: &Path,
    report: &mut Report<'_>,
) -> Result<(Vec<User>, Vec<String>), ConfigErrors> {
    let Some(path) = &config.users_file else {
        return Ok((Vec::new(), Vec::new()));
    };
    let path = folder.join(path);
    let text = match files::read(&path) {
        Ok(text) => text,
        Err(error) => {
            let found = format!("{}: {error}", path.display());
            report.wrong("users_file", "a file with [[user]] tables", found);
            return Ok((Vec::new(), Vec::new()));
        }
    };
    let file = path.display().to_string();
    let mut inside = Report::new(&file, &text);
    let mut users = Vec::new();
    if let Some(root) = syntax::root(&text, &mut inside) {
        users = UsersFile::read(&root, "", &mut inside).map_or_else(Vec::new, |file| file.users);
        validate::users(&users, &mut inside);
        validate::strong_users(&users, config, &mut inside);
        validate::users_differ(&users, &mut inside, &config.users, report);
        files::user_secrets(&mut users, path.parent().unwrap_or(folder), &mut inside);
    }
    let renamed = inside.take_renamed();
    inside.finish().map(|()| (users, renamed))
}
