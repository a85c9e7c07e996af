//! The text that several gateways have in common: one value of the store, which each of them reads together
//! with its own file.
//!
//! Whoever may read the store is not to have passwords by that, and whoever may write it is not to have the
//! files of the machines read. So the text has no secret in clear, and the files it names are in one folder.

use std::path::{Component, Path};

use toml::de::DeValue;

use crate::error::{ConfigError, ConfigErrors};
use crate::report::Report;
use crate::schema::Config;
use crate::validate::OF_GATEWAY;
use crate::value::{Found, Value};
use crate::{congestion, derive, files, load, syntax, users_file, validate};

/// Keys whose value is a secret in clear.
const SECRETS: [&str; 3] = ["password", "previous_password", "other_password"];

/// Keys that name a file, or a folder of files, and do not end with `_file`.
const FILES: [&str; 2] = ["rsa_key", "account_dir"];

/// Keys of tables of TLS that name files.
const TLS_FILES: [&str; 4] = ["cert", "key", "ca", "client_ca"];

impl Config {
    /// The configuration of a gateway whose own file is `path` and which has the rest, `text`, in common with
    /// others. It is checked with the gateway's own files. `name` is the text in messages.
    ///
    /// # Errors
    /// Every mistake in one of them, with its place.
    pub fn load_common(path: impl AsRef<Path>, text: &str, name: &str) -> Result<Config, ConfigErrors> {
        let own = Config::load(path)?;
        let Some(store) = &own.store else {
            return Err(ConfigErrors(vec![ConfigError {
                file: name.to_owned(),
                place: None,
                key: String::new(),
                expected: "a [store] in the gateway's own file".to_owned(),
                found: "none".to_owned(),
                hint: None,
            }]));
        };
        let folder = store.secrets_dir.clone();
        let mut report = Report::new(name, text);
        let Some(root) = syntax::root(text, &mut report) else {
            return report.finish().map(|()| Config::stand_in());
        };
        let mut config = Config::read(&root, "", &mut report).unwrap_or_else(Config::stand_in);
        only_common(&mut report);
        if !look_at(&root, "", &folder, &mut report) {
            // What is refused is not looked at, either.
            return report.finish().map(|()| Config::stand_in());
        }
        config.zone.clone_from(&own.zone);
        take_either(&mut config, &own, &report);
        derive::fill(&mut config, &report);
        validate::validate(&config, &mut report);
        files::resolve(&mut config, &folder, &mut report);
        congestion::settle(&mut config, &mut report);
        let elsewhere = users_file::read(&config, &folder, &mut report);
        derive::inherit(&mut config);
        config.renamed = report.take_renamed();
        config.workers = own.workers;
        config.zone_file = own.zone_file;
        config.zone_env = own.zone_env;
        config.admin = own.admin;
        config.watch = own.watch;
        config.store = own.store;
        config.vip = own.vip;
        load::finish(config, report, elsewhere)
    }
}

fn take_either(config: &mut Config, own: &Config, report: &Report<'_>) {
    if !report.is_written("log") {
        config.log = own.log.clone();
    }
    if !report.is_written("max_connections") {
        config.max_connections = own.max_connections;
    }
    if !report.is_written("buffer_pool_max") {
        config.buffer_pool_max = own.buffer_pool_max;
    }
    if !report.is_written("statement_memory_max") {
        config.statement_memory_max = own.statement_memory_max;
    }
    if !report.is_written("memory_max") {
        config.memory_max = own.memory_max;
    }
}

fn only_common(report: &mut Report<'_>) {
    for key in OF_GATEWAY
        .into_iter()
        .filter(|key| report.is_written(key))
        .collect::<Vec<_>>()
    {
        let expected = "what is one for all gateways";
        report
            .wrong_key(key, expected, format!("`{key}`"))
            .hint("it stands in the file of each gateway, beside [store]".to_owned());
    }
}

/// Secrets and paths, wherever they are. False where there are some that may not be.
fn look_at(found: &Found<'_>, path: &str, folder: &Path, report: &mut Report<'_>) -> bool {
    let mut is_right = true;
    match found.get_ref() {
        DeValue::Table(table) => {
            for (key, value) in table {
                let key = key.get_ref().as_ref();
                let inner = match path {
                    "" => key.to_owned(),
                    path => format!("{path}.{key}"),
                };
                if let Some(text) = value.get_ref().as_str()
                    && let Some((expected, is, hint)) = refused(key, text, &inner, folder)
                {
                    is_right = false;
                    report.wrong_at(value.span(), &inner, expected, is).hint(hint);
                }
                is_right &= look_at(value, &inner, folder, report);
            }
        }
        DeValue::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                is_right &= look_at(value, &format!("{path}[{index}]"), folder, report);
            }
        }
        _ => {}
    }
    is_right
}

/// What is expected in the place of this text, what was found, and a hint.
fn refused(key: &str, text: &str, path: &str, folder: &Path) -> Option<(String, String, Option<String>)> {
    if SECRETS.contains(&key) && !text.is_empty() {
        let hint = "password_file below `secrets_dir`, password_env, or a hash";
        let expected = "no password in clear in the store";
        return Some((expected.to_owned(), "one".to_owned(), Some(hint.to_owned())));
    }
    let is_of_tls = TLS_FILES.contains(&key) && path.ends_with(&format!("tls.{key}"));
    let is_file = key.ends_with("_file") || FILES.contains(&key) || is_of_tls;
    (is_file && !is_below(Path::new(text), folder)).then(|| {
        let expected = format!(
            "a path below `secrets_dir` of each gateway (here {})",
            folder.display()
        );
        (expected, format!("{text:?}"), None)
    })
}

fn is_below(path: &Path, folder: &Path) -> bool {
    let inner = match path.is_absolute() {
        true => path.strip_prefix(folder).ok(),
        false => Some(path),
    };
    inner.is_some_and(|inner| {
        inner
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
    })
}
