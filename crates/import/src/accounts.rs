//! From `mysql_users` to `[[user]]`.

use config::{Secret, is_native_hash, sha2_hash};

use crate::clusters::Uses;
use crate::dump::{Dump, ImportError, Row};
use crate::write::{Notes, Toml};

/// What ProxySQL allows every user where nothing is said, which is no limit to speak of.
const USUAL_CONNECTIONS: u64 = 10_000;

/// An account of clients.
#[derive(Debug)]
pub(crate) struct User<'d> {
    pub(crate) name: &'d str,
    pub(crate) hostgroup: u64,
    row: &'d Row,
}

/// The accounts that clients can use.
pub(crate) fn users<'d>(dump: &'d Dump, notes: &mut Notes) -> Result<Vec<User<'d>>, ImportError> {
    let mut users: Vec<User<'_>> = Vec::new();
    for row in dump.rows("mysql_users") {
        let name = row
            .text("username")
            .ok_or_else(|| ImportError::new(row.line, "username is missing"))?;
        let why_not = if !row.flag("active", true)? {
            "is not active"
        } else if !row.flag("frontend", true)? {
            "is for servers only; accounts are the same on both sides here"
        } else if row.number("max_connections")? == Some(0) {
            "has max_connections = 0, with which nobody logs in there; here 0 is no limit"
        } else if name.is_empty() {
            "has no name"
        } else if users.iter().any(|user| user.name == name) {
            "stands there twice"
        } else {
            let hostgroup = row.number("default_hostgroup")?.unwrap_or(0);
            users.push(User { name, hostgroup, row });
            continue;
        };
        notes.add(format!("user {name}: {why_not}; left out"));
    }
    Ok(users)
}

pub(crate) fn count(users: &[User<'_>], uses: &mut Uses) {
    for user in users {
        *uses.defaults.entry(user.hostgroup).or_default() += 1;
    }
}

pub(crate) fn write(
    users: &[User<'_>],
    dump: &Dump,
    toml: &mut Toml,
    notes: &mut Notes,
) -> Result<(), ImportError> {
    let keeps_connections = dump.flag("mysql-multiplexing") == Some(false);
    for user in users {
        toml.section("[[user]]");
        toml.comment(user.row.filled("comment").unwrap_or_default());
        toml.text("name", user.name);
        password(user, toml, notes);
        if keeps_connections {
            toml.text("pooling", "session");
        }
        let limit = user.row.number("max_connections")?;
        if let Some(limit) = limit.filter(|limit| *limit != USUAL_CONNECTIONS) {
            toml.option("max_connections", &limit.to_string());
        }
        columns(user, notes)?;
    }
    if users.is_empty() {
        notes.add("there are no users: the one that is written is an example");
        toml.section("[[user]]");
        toml.text("name", "app");
        toml.text("password_env", "FOREBAY_PASSWORD_APP");
    }
    Ok(())
}

fn password(user: &User<'_>, toml: &mut Toml, notes: &mut Notes) {
    let password = user.row.text("password").unwrap_or_default();
    if is_native_hash(password) {
        toml.text("native_hash", password);
    } else if let Some(hash) = sha2_hash(&Secret::new(password)) {
        // Its salt may be anything.
        let is_text = hash.iter().all(|byte| byte.is_ascii_graphic());
        let digits = || hash.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        match is_text {
            true => toml.text("sha2_hash", password),
            false => toml.text("sha2_hash", &format!("0x{}", digits())),
        }
        notes.add(format!(
            "user {}: of its password only a hash of caching_sha2_password is known: clients send the password itself when they first \
             log in, over TLS or encrypted with the listener's RSA key",
            user.name
        ));
    } else if password.starts_with("$A$") || password.contains(char::REPLACEMENT_CHARACTER) {
        let word: String = user
            .name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect();
        let variable = format!("FOREBAY_PASSWORD_{word}");
        let why = if password.starts_with("$A$") {
            "its hash (caching_sha2_password) is not whole"
        } else {
            "its password is no text in UTF-8"
        };
        notes.add(format!(
            "user {}: {why}; give the password in the environment variable {variable}",
            user.name
        ));
        toml.text("password_env", &variable);
    } else {
        toml.text("password", password);
    }
}

/// Columns of an account without an equal.
fn columns(user: &User<'_>, notes: &mut Notes) -> Result<(), ImportError> {
    let (name, row) = (user.name, user.row);
    if row.flag("use_ssl", false)? {
        notes.add(format!("user {name}: use_ssl: whether clients must use TLS is said for a listener, `mode` in [listener.tls]"));
    }
    if let Some(schema) = row.filled("default_schema") {
        notes.add(format!(
            "user {name}: default_schema = {schema:?} has no equal; clients name their schema"
        ));
    }
    if row.flag("schema_locked", false)? {
        notes.add(format!(
            "user {name}: schema_locked has no equal; the servers' privileges do that"
        ));
    }
    if !row.flag("transaction_persistent", true)? {
        notes.add(format!(
            "user {name}: transaction_persistent = 0: a transaction stays on its server here"
        ));
    }
    if row.flag("fast_forward", false)? {
        notes.add(format!(
            "user {name}: fast_forward: a listener of `mode = \"session\"` does that"
        ));
    }
    if let Some(attributes) = row.filled("attributes").filter(|attributes| *attributes != "{}") {
        notes.add(format!("user {name}: attributes {attributes} have no equal"));
    }
    Ok(())
}
