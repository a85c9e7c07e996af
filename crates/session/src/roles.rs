//! The roles of a session, as its server says them, and the statement by which another one gives it the same.

use sql_class::Dialect;

/// Since this version MySQL has roles.
const MYSQL_WITH_ROLES: u32 = 80_000;

/// What to ask for: on MariaDB the one role, or NULL; on MySQL `NONE`, or a list of quoted accounts.
pub(crate) fn question(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::MySql { version } if version < MYSQL_WITH_ROLES => "NULL",
        _ => "CURRENT_ROLE()",
    }
}

/// The statement by which a session has the roles that a server has answered with. None where that is not
/// plain ASCII, which would depend on charsets, or not what a server says.
pub(crate) fn set(roles: Option<&[u8]>, dialect: Dialect) -> Option<String> {
    let Some(roles) = roles else {
        return Some("SET ROLE NONE".to_owned());
    };
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
    let roles = str::from_utf8(roles).ok()?;
    if roles.is_empty() || !roles.bytes().all(|byte| is_plain(&byte)) {
        return None;
    }
    let list = match dialect {
        Dialect::MariaDb { .. } => quoted(roles),
        Dialect::MySql { .. } if roles == "NONE" => roles.to_owned(),
        Dialect::MySql { .. } => accounts(roles)?,
    };
    Some(format!("SET ROLE {list}"))
}

/// A list of accounts, each part of them quoted as `sql_mode` and `sql_quote_show_create` have it.
fn accounts(mut text: &str) -> Option<String> {
    let mut accounts = Vec::new();
    loop {
        let (name, rest) = name(text)?;
        let (host, rest) = self::name(rest.strip_prefix('@')?)?;
        accounts.push(format!("{}@{}", quoted(&name), quoted(&host)));
        match rest.strip_prefix(',') {
            Some(more) => text = more,
            None => return rest.is_empty().then(|| accounts.join(", ")),
        }
    }
}

/// One name at the beginning, and what is behind it.
fn name(text: &str) -> Option<(String, &str)> {
    let Some(quote) = text.chars().next().filter(|first| matches!(first, '`' | '"')) else {
        let is_bare = |byte: char| byte.is_ascii_alphanumeric() || matches!(byte, '_' | '$');
        let end = text.find(|byte| !is_bare(byte)).unwrap_or(text.len());
        let (name, rest) = text.split_at_checked(end)?;
        return (!name.is_empty()).then(|| (name.to_owned(), rest));
    };
    let mut name = String::new();
    let mut rest = text.strip_prefix(quote)?;
    loop {
        let (part, behind) = rest.split_once(quote)?;
        name.push_str(part);
        match behind.strip_prefix(quote) {
            Some(behind) => {
                name.push(quote);
                rest = behind;
            }
            None => return Some((name, behind)),
        }
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_taken_on_as_they_were_shown() {
        let mariadb = Dialect::MariaDb { version: 101_119 };
        let mysql = Dialect::MySql { version: 90_704 };
        for (dialect, shown, expected) in [
            (mariadb, None, Some("SET ROLE NONE")),
            (mariadb, Some("r`\"b"), Some("SET ROLE `r``\"b`")),
            (mariadb, Some("é"), None),
            (mysql, Some("NONE"), Some("SET ROLE NONE")),
            (mysql, Some("`ra`@`%`"), Some("SET ROLE `ra`@`%`")),
            (
                mysql,
                Some("`r``\"b`@`%`,`ra`@`%`"),
                Some("SET ROLE `r``\"b`@`%`, `ra`@`%`"),
            ),
            (
                mysql,
                Some("\"r`\"\"b\"@\"%\",ra@\"%\""),
                Some("SET ROLE `r``\"b`@`%`, `ra`@`%`"),
            ),
            (mysql, Some("`ra`@`%`; DROP TABLE t"), None),
            (mysql, Some("`ra`@`%"), None),
            (mysql, Some("`a\\b`@`%`"), None),
            (mysql, Some(""), None),
        ] {
            let set = set(shown.map(str::as_bytes), dialect);
            assert_eq!(set.as_deref(), expected, "{shown:?}");
        }
    }
}
