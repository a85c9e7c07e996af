//! What goes wrong on the servers' side, in words for the person who looks after them.

use std::fmt;
use std::time::Duration;

use mysql_wire::ErrPacket;

use crate::server::ServerId;

/// "Too many connections": the server is alive, but full.
pub(crate) const ER_CON_COUNT_ERROR: u16 = 1040;

/// A cluster that cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Its certificates or keys cannot be used.
    #[error("cluster {cluster}: {source}")]
    Tls {
        cluster: String,
        /// What is wrong with which file.
        source: net::NetError,
    },
}

/// Why a session got no server connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// No server takes sessions now, and none was tried.
    #[error("no server of cluster {cluster} is available: {}", List(servers))]
    NoServerAvailable {
        cluster: String,
        /// Why not, server by server.
        servers: Vec<ServerReason>,
    },
    /// All servers have as many sessions as they may have, and so has the queue.
    #[error(
        "{} full, and so is the queue (queue_max = {queue_max})",
        Full(cluster, server, "is", "are")
    )]
    QueueFull {
        cluster: String,
        /// The only server that would do, where it had to be that one.
        server: Option<String>,
        /// Limit of the queue, in sessions.
        queue_max: u32,
    },
    /// No server had room within `queue_timeout`.
    #[error("{} full for {} (queue_timeout)", Full(cluster, server, "was", "were"), Seconds(*waited))]
    QueueTimeout {
        cluster: String,
        /// The only server that would do, where it had to be that one.
        server: Option<String>,
        waited: Duration,
    },
    /// The client has gone while its session waited in line.
    #[error("the client has gone while its session waited in line")]
    Left,
    /// Servers were tried, and none could be connected to.
    #[error("cannot connect to any server of cluster {cluster}: {}", List(failures))]
    ConnectFailed {
        cluster: String,
        /// What happened, in the order of the attempts; one a server.
        failures: Vec<ConnectFailure>,
    },
    /// The server said no, to the connection or to the account. What it said may be shown to the client.
    #[error("server {server} refused: {} (error {})", String::from_utf8_lossy(&.packet.message), .packet.code)]
    Refused { server: String, packet: ErrPacket },
    /// The connection was made, and is of no use: the login failed for another reason than the server's no,
    /// or a statement that every connection begins with.
    #[error("server {server} cannot be used: {reason}")]
    Unusable {
        server: String,
        /// In words for a person.
        reason: String,
    },
}

impl LeaseError {
    /// Whether the server itself has refused a connection for having too many.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Refused { packet, .. } if packet.code == ER_CON_COUNT_ERROR)
    }

    /// Whether there may be a connection later, for all that the server itself or we know of.
    #[must_use]
    pub fn has_no_room(&self) -> bool {
        let in_line = matches!(self, Self::QueueFull { .. } | Self::QueueTimeout { .. });
        in_line || self.is_full() || self.is_user_full()
    }

    /// Whether it has for having too many of this user. The resource is named so in any language.
    pub(crate) fn is_user_full(&self) -> bool {
        /// "User already has more than 'max_user_connections' active connections".
        const ER_TOO_MANY_USER_CONNECTIONS: u16 = 1203;
        /// "User has exceeded the '...' resource", of which there are several.
        const ER_USER_LIMIT_REACHED: u16 = 1226;
        const RESOURCE: &[u8] = b"max_user_connections";
        let Self::Refused { packet, .. } = self else {
            return false;
        };
        let mut words = packet.message.windows(RESOURCE.len());
        packet.code == ER_TOO_MANY_USER_CONNECTIONS
            || packet.code == ER_USER_LIMIT_REACHED && words.any(|words| words == RESOURCE)
    }
}

/// Why a server takes no sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReason {
    /// Name of the server.
    pub server: String,
    /// E.g. `is down (connection refused by 10.0.0.1:3306)`.
    pub reason: String,
}

/// A server that could not be connected to for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectFailure {
    pub id: ServerId,
    /// Name of the server.
    pub server: String,
    /// E.g. `connection refused by 10.0.0.1:3306`.
    pub reason: String,
}

impl fmt::Display for ServerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.server, self.reason)
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.server, self.reason)
    }
}

/// Who is full: cluster, server, and the verb for one and for many.
struct Full<'a>(&'a str, &'a Option<String>, &'a str, &'a str);

impl fmt::Display for Full<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(cluster, Some(server), is, _) => write!(f, "server {server} of cluster {cluster} {is}"),
            Self(cluster, None, _, are) => write!(f, "all servers of cluster {cluster} {are}"),
        }
    }
}

/// A list that stays short enough for an error packet (MySQL clients keep 511 bytes).
struct List<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        if self.0.is_empty() {
            return f.write_str("it has no servers");
        }
        for (index, item) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{item}", if index == 0 { "" } else { "; " })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// A duration as people write it: `5s`, `0.25s`.
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1000) {
            write!(f, "{}s", millis / 1000)
        } else {
            write!(f, "{millis}ms")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_what_happened_to_whom() {
        let reason = |server: &str, reason: &str| ServerReason {
            server: server.into(),
            reason: reason.into(),
        };
        let error = LeaseError::NoServerAvailable {
            cluster: "main".into(),
            servers: vec![
                reason("db1", "is down (connection refused by 10.0.0.1:3306)"),
                reason("db2", "has weight 0"),
            ],
        };
        assert_eq!(
            error.to_string(),
            "no server of cluster main is available: db1 is down (connection refused by 10.0.0.1:3306); db2 has weight 0"
        );
        let error = LeaseError::QueueTimeout {
            cluster: "main".into(),
            server: None,
            waited: Duration::from_millis(2500),
        };
        assert_eq!(
            error.to_string(),
            "all servers of cluster main were full for 2500ms (queue_timeout)"
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let failures = (0..9)
            .map(|n| ConnectFailure {
                id: ServerId(n),
                server: format!("db{n}"),
                reason: "no".into(),
            })
            .collect();
        let error = LeaseError::ConnectFailed {
            cluster: "main".into(),
            failures,
        };
        assert!(error.to_string().ends_with("db3: no; and 5 more"), "{error}");
    }
}
