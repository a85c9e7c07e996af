//! Whether an account may `KILL` sessions of other users. Its server is asked with the account's own rights when it says `KILL`: rights of the
//! gateway's account are not its rights, and what was read before may have been revoked.

use crate::split::ask::{Reply, values};

/// The statement whose answer [`allowed_by`] reads: the grants of the account and of its active roles.
pub(crate) const QUESTION: &str = "SHOW GRANTS";

/// Whether these grants are the right to end sessions of others. `server_version` is as in the server's greeting.
pub(crate) fn allowed_by(reply: &Reply, server_version: &[u8]) -> bool {
    reply.outcome.error.is_none()
        && values(reply).any(|grant| allows(&String::from_utf8_lossy(&grant), super_counts(server_version)))
}

/// MariaDB 11 has taken from SUPER what other rights are for.
fn super_counts(server_version: &[u8]) -> bool {
    let version = String::from_utf8_lossy(server_version);
    let version = version.strip_prefix("5.5.5-").unwrap_or(&version);
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    !version.contains("MariaDB") || major.is_some_and(|major| major < 11)
}

/// Names are quoted, so a quoted name, which anybody may choose, is never taken for a right.
fn allows(grant: &str, super_counts: bool) -> bool {
    let of_all = grant
        .strip_prefix("GRANT ")
        .and_then(|grant| grant.split_once(" ON *.* TO "));
    let Some((rights, _)) = of_all else { return false };
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'_' | b' ' | b',');
    let is_right = |right: &str| match right {
        "ALL PRIVILEGES" | "CONNECTION ADMIN" | "CONNECTION_ADMIN" => true,
        "SUPER" => super_counts,
        _ => false,
    };
    rights.bytes().all(is_plain) && rights.split(',').map(str::trim).any(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

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
