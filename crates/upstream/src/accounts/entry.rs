//! What the servers' tables say of an account.
//!
//! | plugin | stored | of use |
//! |---|---|---|
//! | `mysql_native_password` | `*` and 40 digits | yes: the client's answer reveals what a server wants to see |
//! | `caching_sha2_password`, `sha256_password` | [`SlowHash`] | yes, once a client has sent the password itself |
//! | `ed25519` | a public key | yes, likewise: it shows who somebody is, and cannot show it to a server |
//! | `parsec` | a public key, and how to make it | no |
//! | `unix_socket`, `pam`, `authentication_ldap_*` and others | nothing | no |
//!
//! An account without a password is of no use either: on a server it may well be one for `localhost` alone,
//! and nobody has said that it is meant for everybody who reaches the gateway.

use mysql_wire::auth::{self, PublicKey, SlowHash};
use serde_json::Value;

use super::StoredSecret;
use crate::conversation::{Row, Rows};

/// One way in for one account.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Box<[u8]>,
    pub(super) method: Method,
    /// Servers let nobody in by it: it is locked, or its password has expired by `PASSWORD EXPIRE`.
    pub(super) is_closed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Method {
    Secret(StoredSecret),
    /// Why it is none.
    Unusable(String),
}

/// Rows of any of the statements of [`super::watch()`].
pub(super) fn entries(rows: &Rows) -> Vec<Entry> {
    rows.iter().flat_map(of_row).collect()
}

fn of_row(row: Row<'_>) -> Vec<Entry> {
    let Some(name) = row.bytes(&["User"]).filter(|name| !name.is_empty()) else {
        return Vec::new();
    };
    let (methods, is_closed) = match row.bytes(&["Priv"]) {
        Some(text) => of_json(text),
        None => (of_columns(row), is_closed(row)),
    };
    let entry = |method| Entry {
        name: name.into(),
        method,
        is_closed,
    };
    methods.into_iter().map(entry).collect()
}

/// `mysql.user`, and what MySQL keeps of an account beyond its columns: the password before the present one
/// (`RETAIN CURRENT PASSWORD`), further factors.
fn of_columns(row: Row<'_>) -> Vec<Method> {
    let plugin = row.text(&["plugin"]).unwrap_or_default();
    let stored = row.bytes(&["authentication_string"]).unwrap_or_default();
    let attributes = row.bytes(&["User_attributes"]);
    let attributes: Value = attributes.map_or(Value::Null, |text| {
        serde_json::from_slice(text).unwrap_or_default()
    });
    if !attributes["multi_factor_authentication"].is_null() {
        return vec![Method::Unusable("it has more than one factor".to_owned())];
    }
    let mut methods = vec![method(&plugin, stored)];
    if let Some(other) = attributes["additional_password"].as_str() {
        methods.push(method(&plugin, other.as_bytes()));
    }
    methods
}

fn is_closed(row: Row<'_>) -> bool {
    ["account_locked", "password_expired"]
        .iter()
        .any(|column| row.bytes(&[column]) == Some(b"Y"))
}

/// `mysql.global_priv` of MariaDB: one plugin, or several of which one is enough. The empty one among those
/// is the outer one. And whether nobody is let in by it: `PASSWORD EXPIRE` puts the last change to the
/// beginning of time.
fn of_json(text: &[u8]) -> (Vec<Method>, bool) {
    let Ok(account) = serde_json::from_slice::<Value>(text) else {
        let reason = "its entry in mysql.global_priv is not understood".to_owned();
        return (vec![Method::Unusable(reason)], false);
    };
    if account["is_role"].as_bool() == Some(true) {
        return (Vec::new(), false);
    }
    let is_closed = account["account_locked"].as_bool() == Some(true)
        || account["password_last_changed"].as_u64() == Some(0);
    let of = |value: &Value| {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        method(text("plugin"), text("authentication_string").as_bytes())
    };
    let is_outer = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
    let methods = match account["auth_or"].as_array() {
        Some(each) => each
            .iter()
            .map(|value| of(if is_outer(value) { &account } else { value }))
            .collect(),
        None => vec![of(&account)],
    };
    (methods, is_closed)
}

fn method(plugin: &str, stored: &[u8]) -> Method {
    let secret = match plugin {
        "" | "mysql_native_password" => {
            let text = std::str::from_utf8(stored).ok();
            text.and_then(auth::native_stage2_from_hash)
                .map(StoredSecret::Native)
        }
        "caching_sha2_password" | "sha256_password" => SlowHash::parse(stored).map(StoredSecret::Slow),
        "ed25519" => PublicKey::parse(stored).map(StoredSecret::PublicKey),
        _ => {
            return Method::Unusable(format!(
                "its plugin {plugin} does not show what the gateway could log in on servers with"
            ));
        }
    };
    match secret {
        Some(secret) => Method::Secret(secret),
        None if stored.is_empty() => Method::Unusable("it has no password".to_owned()),
        None => Method::Unusable(format!("its hash is none that {plugin} has")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";
    const SLOW: &str = "$A$005$THISISACOMBINATIONOFINVALIDSALTANDPASSWORDTHATMUSTNEVERBRBEUSED";

    fn native() -> Method {
        Method::Secret(StoredSecret::Native(auth::native_stage2_from_hash(HASH).unwrap()))
    }

    fn slow() -> Method {
        Method::Secret(StoredSecret::Slow(SlowHash::parse(SLOW.as_bytes()).unwrap()))
    }

    fn methods(rows: &Rows) -> Vec<Method> {
        let entries = entries(rows).into_iter();
        entries
            .inspect(|entry| assert_eq!(&*entry.name, b"app"))
            .map(|entry| entry.method)
            .collect()
    }

    fn mariadb(json: &str) -> Vec<Method> {
        methods(&Rows::of(&["User", "Priv"], &[&[Some("app"), Some(json)]]))
    }

    fn mysql(plugin: &str, stored: &str, attributes: Option<&str>) -> Vec<Method> {
        let columns = ["User", "plugin", "authentication_string", "User_attributes"];
        methods(&Rows::of(
            &columns,
            &[&[Some("app"), Some(plugin), Some(stored), attributes]],
        ))
    }

    fn is_unusable(methods: &[Method], reason: &str) -> bool {
        matches!(methods, [Method::Unusable(why)] if why.contains(reason))
    }

    #[test]
    fn mysql_accounts_are_read() {
        assert_eq!(mysql("mysql_native_password", HASH, None), [native()]);
        assert_eq!(mysql("caching_sha2_password", SLOW, Some("{}")), [slow()]);
        let retained = format!(r#"{{"additional_password": "{SLOW}"}}"#);
        let other = SLOW.replace("005", "006");
        let both = mysql("caching_sha2_password", &other, Some(&retained));
        assert!(both.len() == 2 && both[0] != slow() && both[1] == slow());
        assert!(is_unusable(
            &mysql("caching_sha2_password", "", None),
            "no password"
        ));
        assert!(is_unusable(
            &mysql("caching_sha2_password", HASH, None),
            "none that"
        ));
        assert!(is_unusable(&mysql("auth_socket", "", None), "auth_socket"));
        let factors = r#"{"multi_factor_authentication": [{"plugin": "x"}]}"#;
        assert!(is_unusable(
            &mysql("caching_sha2_password", SLOW, Some(factors)),
            "factor"
        ));
    }

    #[test]
    fn mariadb_accounts_are_read() {
        let plain =
            format!(r#"{{"access":1,"plugin":"mysql_native_password","authentication_string":"{HASH}"}}"#);
        assert_eq!(mariadb(&plain), [native()]);
        let several = format!(
            r#"{{"plugin":"mysql_native_password","authentication_string":"{HASH}",
                 "auth_or":[{{"plugin":"ed25519","authentication_string":"ZIgUREUg"}},{{}},{{"plugin":"unix_socket"}}]}}"#
        );
        let several = mariadb(&several);
        assert!(several.len() == 3 && several[1] == native());
        assert!(is_unusable(&several[..1], "ed25519") && is_unusable(&several[2..], "unix_socket"));
        let key = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY";
        let signs = mariadb(&format!(
            r#"{{"plugin":"ed25519","authentication_string":"{key}"}}"#
        ));
        assert!(
            matches!(&signs[..], [Method::Secret(StoredSecret::PublicKey(key))] if key.verify(b"secret"))
        );
        let invalid = r#"{"plugin":"mysql_native_password","authentication_string":"invalid"}"#;
        assert!(is_unusable(&mariadb(invalid), "none that"));
        assert!(is_unusable(&mariadb(r#"{"access":0}"#), "no password"));
        assert!(is_unusable(&mariadb("nonsense"), "not understood"));
        assert_eq!(mariadb(r#"{"is_role":true}"#), []);
    }

    #[test]
    fn accounts_that_are_locked_are_told() {
        let json = |rest: &str| {
            let text =
                format!(r#"{{"plugin":"mysql_native_password","authentication_string":"{HASH}"{rest}}}"#);
            let rows = Rows::of(&["User", "Priv"], &[&[Some("app"), Some(&text)]]);
            entries(&rows)[0].is_closed
        };
        assert!(!json("") && !json(r#","account_locked":false,"password_last_changed":1"#));
        assert!(json(r#","account_locked":true"#) && json(r#","password_last_changed":0"#));
        let columns = [
            "User",
            "plugin",
            "authentication_string",
            "account_locked",
            "password_expired",
        ];
        let row = |locked, expired| {
            let rows = Rows::of(
                &columns,
                &[&[Some("app"), Some(""), Some(HASH), Some(locked), Some(expired)]],
            );
            entries(&rows)[0].is_closed
        };
        assert_eq!([row("N", "N"), row("Y", "N"), row("N", "Y")], [false, true, true]);
    }

    #[test]
    fn accounts_without_a_name_are_left_out() {
        let rows = Rows::of(
            &["User", "plugin", "authentication_string"],
            &[&[Some(""), Some(""), Some(HASH)]],
        );
        assert_eq!(entries(&rows), []);
    }
}
