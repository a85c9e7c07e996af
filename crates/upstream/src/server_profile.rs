//! What servers said of themselves in their greetings: the gateway's own greeting to clients is made of this.

use mysql_wire::{Capabilities, Greeting, StatusFlags};
use serde::{Deserialize, Serialize};

/// The profile of one server, or of a cluster: what every server seen can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerProfile {
    /// Version as sent, e.g. `9.7.4` or `5.5.5-10.11.19-MariaDB`. Of a cluster: the configured one, or else
    /// the lowest seen, since clients switch features on by it.
    pub server_version: Vec<u8>,
    /// Of a cluster: those that all servers seen have.
    pub capabilities: Capabilities,
    /// Default collation.
    pub charset: u8,
    /// Default authentication plugin.
    pub auth_plugin: Vec<u8>,
    /// Status flags at greeting time, usually just autocommit.
    pub status: StatusFlags,
}

impl ServerProfile {
    #[must_use]
    pub fn of(greeting: &Greeting) -> Self {
        Self {
            server_version: greeting.server_version.clone(),
            capabilities: greeting.capabilities,
            charset: greeting.charset,
            auth_plugin: greeting.auth_plugin.clone(),
            status: greeting.status,
        }
    }

    /// TiDB, unless it was told to call itself something else (`server-version`): `5.7.25-TiDB-v6.1.0`,
    /// `8.0.11-TiDB-v8.5.0`.
    #[must_use]
    pub fn is_tidb(&self) -> bool {
        let name = b"-TiDB-";
        self.server_version.windows(name.len()).any(|part| part == name)
    }

    /// Whether it says so (4031) when it ends a session that is silent for longer than its `wait_timeout`:
    /// MySQL since 8.0.24. MariaDB and TiDB close the connection without a word.
    #[must_use]
    pub fn tells_silent_clients(&self) -> bool {
        let name = b"MariaDB";
        let is_mariadb = self.server_version.windows(name.len()).any(|part| part == name);
        !is_mariadb && release(&self.server_version) >= [8, 0, 24]
    }

    /// Whether `greeting` says what is known already; spares the copy, since every session sees a greeting.
    pub(crate) fn matches(&self, greeting: &Greeting) -> bool {
        self.server_version == greeting.server_version
            && self.capabilities == greeting.capabilities
            && self.charset == greeting.charset
            && self.auth_plugin == greeting.auth_plugin
            && self.status == greeting.status
    }
}

/// The profile of a cluster from those of its servers; `None` while none is known.
pub(crate) fn combine<'a>(
    servers: impl Iterator<Item = &'a ServerProfile>,
    version: Option<&str>,
) -> Option<ServerProfile> {
    let mut combined = servers.cloned().reduce(|a, b| {
        let capabilities = a.capabilities & b.capabilities;
        let lower = if release(&b.server_version) < release(&a.server_version) {
            b
        } else {
            a
        };
        ServerProfile {
            capabilities,
            ..lower
        }
    })?;
    if let Some(version) = version {
        combined.server_version = version.as_bytes().to_vec();
    }
    Some(combined)
}

/// The numbers of a version. MariaDB puts `5.5.5-` in front of its own, for replicas that take 10 for less
/// than 5.
fn release(version: &[u8]) -> [u32; 3] {
    let version = version.strip_prefix(b"5.5.5-").unwrap_or(version);
    let mut numbers = [0_u32; 3];
    let mut parts = version.split(|byte| *byte == b'.');
    for number in &mut numbers {
        let Some(part) = parts.next() else { break };
        let digits = part.iter().take_while(|byte| byte.is_ascii_digit());
        *number = digits.fold(0, |n: u32, digit| {
            n.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
        });
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: &str, capabilities: u64) -> ServerProfile {
        ServerProfile {
            server_version: version.as_bytes().to_vec(),
            capabilities: Capabilities(capabilities),
            charset: 45,
            auth_plugin: b"mysql_native_password".to_vec(),
            status: StatusFlags(2),
        }
    }

    #[test]
    fn silent_clients_hear_of_their_end_from_mysql_alone() {
        for (version, is_told) in [
            ("8.0.33", true),
            ("9.7.4-2", true),
            ("8.0.23", false),
            ("5.7.44-log", false),
            ("8.0.11-TiDB-v8.5.0", false),
            ("5.5.5-10.11.19-MariaDB-log", false),
            ("11.8.9-MariaDB-4 from Debian", false),
        ] {
            assert_eq!(server(version, 0).tells_silent_clients(), is_told, "{version}");
        }
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(release(b"8.4.3") < release(b"9.7.4-2"));
        assert!(release(b"10.5.29-MariaDB") < release(b"5.5.5-10.11.19-MariaDB-0+deb12u1"));
        assert_eq!(release(b"5.5.5-10.11.19-MariaDB"), [10, 11, 19]);
        assert_eq!(release(b""), [0, 0, 0]);
        assert_eq!(release(b"99999999999.1"), [u32::MAX, 1, 0]);
    }

    #[test]
    fn tidb_is_known_by_its_version() {
        assert!(server("5.7.25-TiDB-v6.1.0", 0).is_tidb());
        assert!(server("8.0.11-TiDB-v8.5.0", 0).is_tidb());
        assert!(!server("9.7.4", 0).is_tidb());
    }

    #[test]
    fn a_cluster_can_what_all_its_servers_can() {
        assert_eq!(combine([].iter(), Some("8.0.0")), None);
        let combined = combine([server("9.1.0", 0b0111), server("8.4.0", 0b1110)].iter(), None);
        assert_eq!(combined, Some(server("8.4.0", 0b0110)));
        let renamed = combine([server("9.1.0", 1)].iter(), Some("8.0.11-proxy"));
        assert_eq!(renamed, Some(server("8.0.11-proxy", 1)));
    }
}
