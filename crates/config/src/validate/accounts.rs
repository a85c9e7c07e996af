//! Accounts: those of clients, in the configuration and in the users file, and that of the monitor.

use std::collections::BTreeMap;

use super::{at_most_one, names_differ, needs};
use crate::report::Report;
use crate::schema::{AccountsFrom, Cluster, Config, Listener, Mode, Monitor, Protocol, User};
use crate::secret::Secret;

/// Hexadecimal digits of a SHA-1.
const SHA1_DIGITS: usize = 40;

/// Longest part of `schema.table`, in characters.
const IDENTIFIER_MAX: usize = 64;

/// Accounts of one file.
pub(crate) fn users(users: &[User], report: &mut Report<'_>) {
    let names = users.iter().map(|user| user.name.as_str());
    names_differ(names, |index| format!("user[{index}]"), report);
    for (index, user) in users.iter().enumerate() {
        let path = format!("user[{index}]");
        secrets(user, &path, report);
        hash(&user.native_hash, &format!("{path}.native_hash"), report);
        hash(
            &user.other_native_hash,
            &format!("{path}.other_native_hash"),
            report,
        );
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
    let checks = listener.mode == Mode::Split && listener.protocol == Protocol::Mysql;
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

/// The account that watches servers.
pub(super) fn monitor(monitor: &Monitor, path: &str, report: &mut Report<'_>) {
    let ways = [
        ("password", monitor.password.is_some()),
        ("password_file", monitor.password_file.is_some()),
        ("password_env", monitor.password_env.is_some()),
    ];
    at_most_one("the password", &ways, path, report);
    let user = format!("{path}.user");
    if monitor.user.is_empty() && !report.is_wrong(&user) {
        report.wrong(&user, "a user name", "none").hint(None);
    }
    let table = format!("{path}.heartbeat_table");
    if let Some(name) = monitor
        .heartbeat_table
        .as_deref()
        .filter(|name| !is_qualified(name))
    {
        let hint = (!name.contains('.')).then(|| format!("say its schema, too: \"SCHEMA.{name}\""));
        report
            .wrong(&table, "a table as \"schema.table\"", format!("{name:?}"))
            .hint(hint.filter(|_| !name.is_empty() && !name.contains('`')));
    }
}

/// The form `schema.table`, without quotes.
pub(super) fn is_qualified(name: &str) -> bool {
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
    ];
    at_most_one("the password", &ways, path, report);
    let written = |(option, _): &(&str, bool)| report.is_written(&format!("{path}.{option}"));
    if !ways.iter().any(written) {
        let expected =
            "a password, or one of `password_file`, `password_env` and `native_hash` (\"\" is no password)";
        needs("password", false, expected, path, report);
    }
    let others = [
        ("other_password", user.other_password.is_some()),
        ("other_native_hash", user.other_native_hash.is_some()),
    ];
    at_most_one("the other password", &others, path, report);
}

/// What `mysql.user` has for an account of `mysql_native_password`. The message says nothing of what stands there.
fn hash(hash: &Option<Secret>, path: &str, report: &mut Report<'_>) {
    let Some(hash) = hash else { return };
    let text = hash.reveal();
    let is_hex =
        |digits: &str| digits.len() == SHA1_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.strip_prefix('*').is_some_and(is_hex) {
        return;
    }
    let hint = if is_hex(text) {
        Some("put `*` in front".to_owned())
    } else if text.starts_with("$A$") {
        Some("that is a hash of `caching_sha2_password`, which no login can be checked with: give the password".to_owned())
    } else {
        None
    };
    let found = format!("another text of {} bytes", text.len());
    report
        .wrong(path, "`*` and 40 hexadecimal digits, as in `mysql.user`", found)
        .hint(hint);
}
