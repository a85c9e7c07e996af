//! Whether an account may `KILL` sessions of other users. When the account says `KILL`, its server is asked
//! with the account's own rights: the gateway's account has other rights, and rights that were read earlier
//! may have been revoked.

use crate::engine::ask::{Reply, values};

/// The statement whose answer [`allowed_by`] reads: the grants of the account and of its active roles.
pub(crate) const QUESTION: &str = "SHOW GRANTS";

/// Whether these grants are the right to end sessions of others. `server_version` is as in the server's
/// greeting.
///
/// MySQL lets only a `SYSTEM_USER` end a session of a `SYSTEM_USER`. Whether the other account is one, by
/// whatever role, is not known here, so it is taken for one: the gateway's account, which ends the session,
/// has more rights than either.
pub(crate) fn allowed_by(reply: &Reply, server_version: &[u8]) -> bool {
    let grants: Vec<_> = values(reply)
        .map(|grant| String::from_utf8_lossy(&grant).into_owned())
        .collect();
    reply.outcome.error.is_none() && allow(&grants, server_version)
}

fn allow(grants: &[String], server_version: &[u8]) -> bool {
    let super_counts = super_counts(server_version);
    let kills = |right: &str| match right {
        "ALL PRIVILEGES" | "CONNECTION ADMIN" | "CONNECTION_ADMIN" => true,
        "SUPER" => super_counts,
        _ => false,
    };
    let has = |is_right: &dyn Fn(&str) -> bool| grants.iter().any(|grant| rights(grant).any(is_right));
    has(&kills) && (!has_system_users(server_version) || has(&|right| right == "SYSTEM_USER"))
}

/// Whether servers of this version have the right `SYSTEM_USER`: MySQL from 8.0.16 on.
fn has_system_users(server_version: &[u8]) -> bool {
    let version = String::from_utf8_lossy(server_version);
    let mut numbers = version
        .split(|byte: char| !byte.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or_default());
    let numbers = [(); 3].map(|()| numbers.next().unwrap_or_default());
    !version.contains("MariaDB") && numbers >= [8, 0, 16]
}

/// Whether SUPER includes the right to kill. MariaDB 11 has taken from SUPER what other rights are for.
fn super_counts(server_version: &[u8]) -> bool {
    let version = String::from_utf8_lossy(server_version);
    let version = version.strip_prefix("5.5.5-").unwrap_or(&version);
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    !version.contains("MariaDB") || major.is_some_and(|major| major < 11)
}

/// The rights on everything that this grant gives. Names are quoted, so a quoted name, which anybody may
/// choose, is never taken for a right.
fn rights(grant: &str) -> impl Iterator<Item = &str> {
    let of_all = grant
        .strip_prefix("GRANT ")
        .and_then(|grant| grant.split_once(" ON *.* TO "));
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'_' | b' ' | b',');
    let rights = of_all.map(|(rights, _)| rights);
    let rights = rights.filter(|rights| rights.bytes().all(is_plain));
    rights
        .into_iter()
        .flat_map(|rights| rights.split(',').map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(grant: &str, super_counts: bool) -> bool {
        let version: &[u8] = match super_counts {
            true => b"10.11.6-MariaDB",
            false => b"11.8.2-MariaDB",
        };
        allow(&[grant.to_owned()], version)
    }

    #[test]
    fn rights_on_everything_count_and_names_do_not() {
        for grant in [
            "GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION",
            "GRANT SELECT, SUPER ON *.* TO `a`@`%`",
            "GRANT CONNECTION_ADMIN,ROLE_ADMIN ON *.* TO `a`@`%`",
            "GRANT PROCESS, CONNECTION ADMIN ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*X'",
        ] {
            assert!(allows(grant, true), "{grant}");
        }
        for grant in [
            "GRANT USAGE ON *.* TO `a`@`%`",
            "GRANT ALL PRIVILEGES ON `test`.* TO `a`@`%`",
            "GRANT SELECT (`x, SUPER ON *.* TO y`) ON `test`.`t` TO `a`@`%`",
            "GRANT `x`,SUPER ON *.* TO `a`@`%`",
            "REVOKE SUPER ON *.* FROM `a`@`%`",
            "GRANT SELECT ON *.* TO `SUPER`@`%`",
        ] {
            assert!(!allows(grant, true), "{grant}");
        }
        assert!(!allows("GRANT SUPER ON *.* TO `a`@`%`", false));
    }

    #[test]
    fn mysql_asks_for_one_right_more() {
        let chief = [
            "GRANT SUPER ON *.* TO `a`@`%`".to_owned(),
            "GRANT CONNECTION_ADMIN ON *.* TO `a`@`%`".to_owned(),
        ];
        let system = "GRANT AUDIT_ADMIN,SYSTEM_USER ON *.* TO `a`@`%`".to_owned();
        let of_system = [chief.as_slice(), std::slice::from_ref(&system)].concat();
        for (version, has_it) in [
            ("8.0.16", true),
            ("8.0.33-25", true),
            ("9.7.0", true),
            ("8.0.15", false),
            ("5.7.44-log", false),
            ("8.0.11-TiDB-v8.5.0", false),
            ("5.5.5-10.11.6-MariaDB-1", false),
        ] {
            assert_eq!(allow(&chief, version.as_bytes()), !has_it, "{version}");
            assert!(allow(&of_system, version.as_bytes()), "{version}");
            assert!(
                !allow(std::slice::from_ref(&system), version.as_bytes()),
                "{version}"
            );
        }
    }

    #[test]
    fn super_is_enough_but_on_new_mariadb() {
        for (version, counts) in [
            ("8.0.33", true),
            ("9.7.0", true),
            ("5.5.5-10.11.6-MariaDB-1", true),
            ("10.4.1-MariaDB", true),
            ("11.8.2-MariaDB", false),
        ] {
            assert_eq!(super_counts(version.as_bytes()), counts, "{version}");
        }
    }
}
