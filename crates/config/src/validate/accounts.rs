//! Accounts: those of clients, in the configuration and in the users file, and that of the monitor.

use std::collections::BTreeMap;

use super::{at_most_one, names_differ, needs, passwords};
use crate::report::Report;
use crate::schema::{AccountsFrom, Cluster, Config, Listener, Monitor, Protocol, Switchover, Topology, User};
use crate::secret::Secret;
use crate::stored;

/// Longest part of `schema.table`, in characters.
const IDENTIFIER_MAX: usize = 64;

pub(crate) fn users(users: &[User], report: &mut Report<'_>) {
    let names = users.iter().map(|user| user.name.as_str());
    names_differ(names, |index| format!("user[{index}]"), report);
    for (index, user) in users.iter().enumerate() {
        let path = format!("user[{index}]");
        secrets(user, &path, report);
        for (option, hash, form) in hashes(user) {
            if let Some(hash) = hash
                && !form.fits(hash)
            {
                form.complain(hash, &format!("{path}.{option}"), report);
            }
        }
    }
}

/// An account of the users file may not stand in the configuration as well, which `main` is about.
pub(crate) fn users_differ(users: &[User], report: &mut Report<'_>, earlier: &[User], main: &Report<'_>) {
    let earlier: BTreeMap<&str, usize> = (earlier.iter().enumerate())
        .map(|(index, user)| (user.name.as_str(), index))
        .collect();
    for (index, user) in users.iter().enumerate() {
        let path = format!("user[{index}].name");
        let Some(first) = earlier
            .get(user.name.as_str())
            .filter(|_| !report.is_wrong(&path))
        else {
            continue;
        };
        let line = main.line(&format!("user[{first}].name"));
        let found = format!(
            "{:?} a second time, first in line {line} of {}",
            user.name,
            main.file()
        );
        report
            .wrong(&path, "a name of its own", found)
            .hint("leave one of the two out".to_owned());
    }
}

/// A listener that checks passwords itself must know some.
pub(super) fn some_user(listener: &Listener, config: &Config, path: &str, report: &mut Report<'_>) {
    let cluster = config.clusters.get(&listener.cluster);
    let of_servers = cluster.is_some_and(|cluster| cluster.accounts.from != AccountsFrom::Configured);
    let known = !config.users.is_empty() || config.users_file.is_some() || of_servers;
    let broken = report.is_wrong("user") || report.is_wrong("users_file");
    let checks = listener.shares() && listener.protocol == Protocol::Mysql;
    if checks && !known && !broken {
        let hint = format!(
            "add [[user]] with `name` and `password`, or `accounts = \"servers\"` to [cluster.{}]",
            listener.cluster
        );
        report
            .wrong(
                &format!("{path}.mode"),
                "accounts in [[user]] or `users_file`, since it is \"split\"",
                "none",
            )
            .hint(hint);
    }
}

/// Accounts of servers are read by somebody.
pub(super) fn of_servers(cluster: &Cluster, path: &str, report: &mut Report<'_>) {
    if cluster.accounts.from == AccountsFrom::Servers {
        let need = "an account, since `accounts` is \"servers\"";
        needs("monitor", cluster.monitor.is_some(), need, path, report);
    }
}

/// The accounts that make another server the primary.
pub(super) fn switchover(switchover: &Switchover, topology: Topology, path: &str, report: &mut Report<'_>) {
    at_most_one("the password", &passwords!(switchover), path, report);
    if !topology.has_primary() && !report.is_wrong(path) {
        let found = match topology {
            Topology::Tidb => "it with `topology = \"tidb\"`, where all servers take writes",
            _ => "it with `topology = \"static\"`, where the file says who is the primary",
        };
        report.wrong(path, "a `topology` that finds out who is the primary", found);
    }
    if let Some(account) = &switchover.replication {
        let path = format!("{path}.replication");
        at_most_one("the password", &passwords!(account), &path, report);
    }
}

/// The account that watches servers.
pub(super) fn monitor(monitor: &Monitor, path: &str, report: &mut Report<'_>) {
    at_most_one("the password", &passwords!(monitor), path, report);
    named(&monitor.user, path, report);
    if let Some(name) = &monitor.heartbeat_table {
        qualified(name, &format!("{path}.heartbeat_table"), report);
    }
}

/// An account has a name.
pub(super) fn named(user: &str, path: &str, report: &mut Report<'_>) {
    let path = format!("{path}.user");
    if user.is_empty() && !report.is_wrong(&path) {
        report.wrong(&path, "a user name", "none");
    }
}

/// A table is named with its schema.
pub(super) fn qualified(name: &str, path: &str, report: &mut Report<'_>) {
    if report.is_wrong(path) || is_qualified(name) {
        return;
    }
    let hint = (!name.contains(['.', '`']) && !name.is_empty())
        .then(|| format!("say its schema, too: \"SCHEMA.{name}\""));
    report
        .wrong(path, "a table as \"schema.table\"", format!("{name:?}"))
        .hint(hint);
}

/// The form `schema.table`, without quotes.
fn is_qualified(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    let plain = |part: &&str| {
        (1..=IDENTIFIER_MAX).contains(&part.chars().count())
            && !part
                .chars()
                .any(|c| c.is_control() || c.is_whitespace() || c == '`')
    };
    parts.len() == 2 && parts.iter().all(plain)
}

/// One present secret, and at most one other. An account without a password must be meant.
fn secrets(user: &User, path: &str, report: &mut Report<'_>) {
    let ways = [
        ("password", user.password.is_some()),
        ("password_file", user.password_file.is_some()),
        ("password_env", user.password_env.is_some()),
        ("native_hash", user.native_hash.is_some()),
        ("sha2_hash", user.sha2_hash.is_some()),
        ("ed25519_key", user.ed25519_key.is_some()),
    ];
    at_most_one("the password", &ways, path, report);
    let written = |(option, _): &(&str, bool)| report.is_written(&format!("{path}.{option}"));
    if !ways.iter().any(written) {
        let expected = "a password, or one of `password_file`, `password_env`, `native_hash`, `sha2_hash` and `ed25519_key` (\"\" is no password)";
        needs("password", false, expected, path, report);
    }
    let others = [
        ("previous_password", user.previous_password.is_some()),
        ("previous_native_hash", user.previous_native_hash.is_some()),
        ("previous_sha2_hash", user.previous_sha2_hash.is_some()),
        ("previous_ed25519_key", user.previous_ed25519_key.is_some()),
    ];
    at_most_one("the previous password", &others, path, report);
}

/// What stands in the place of a password.
fn hashes(user: &User) -> [(&'static str, &Option<Secret>, Form); 6] {
    [
        ("native_hash", &user.native_hash, Form::Native),
        ("previous_native_hash", &user.previous_native_hash, Form::Native),
        ("sha2_hash", &user.sha2_hash, Form::Sha2),
        ("previous_sha2_hash", &user.previous_sha2_hash, Form::Sha2),
        ("ed25519_key", &user.ed25519_key, Form::Ed25519),
        ("previous_ed25519_key", &user.previous_ed25519_key, Form::Ed25519),
    ]
}

/// What a server stores for an account of one plugin.
#[derive(Clone, Copy)]
enum Form {
    Native,
    Sha2,
    Ed25519,
}

impl Form {
    fn fits(self, secret: &Secret) -> bool {
        match self {
            Self::Native => stored::is_native_hash(secret.reveal()),
            Self::Sha2 => stored::sha2_hash(secret).is_some(),
            Self::Ed25519 => stored::is_ed25519_key(secret.reveal()),
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Native => "`*` and 40 hexadecimal digits, as in `mysql.user`",
            Self::Sha2 => {
                "a hash of `caching_sha2_password` as in `mysql.user` (`$A$005$` and 63 bytes), or all of it in hexadecimal behind `0x`"
            }
            Self::Ed25519 => "the 43 characters that MariaDB has for an account of `ed25519`",
        }
    }

    /// The message says nothing of what stands there.
    fn complain(self, secret: &Secret, path: &str, report: &mut Report<'_>) {
        let other = if secret.reveal().is_empty() {
            None
        } else if stored::is_native_hash(secret.reveal()) {
            Some("native_hash")
        } else if stored::sha2_hash(secret).is_some() {
            Some("sha2_hash")
        } else if stored::is_ed25519_key(secret.reveal()) {
            Some("ed25519_key")
        } else {
            None
        };
        let hint = match (self, other) {
            (_, Some(option)) => Some(format!("that is one for `{option}`")),
            (Self::Native, _) if stored::is_sha1(secret.reveal()) => Some("put `*` in front".to_owned()),
            (Self::Native, _) if secret.reveal().starts_with("$A$") => {
                Some("a hash of `caching_sha2_password` is one for `sha2_hash`".to_owned())
            }
            (Self::Sha2, _) if secret.reveal().starts_with("$") => Some(
                "take it in hexadecimal, for its salt may hold bytes that get lost: SELECT HEX(authentication_string) FROM mysql.user"
                    .to_owned(),
            ),
            (Self::Sha2, _) if secret.reveal().starts_with("24") => Some("put `0x` in front".to_owned()),
            _ => None,
        };
        let found = format!("another text of {} bytes", secret.reveal().len());
        report.wrong(path, self.expected(), found).hint(hint);
    }
}
