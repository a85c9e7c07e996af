//! What goes wrong on the servers' side, in words for the person who looks after them.

use std::fmt;
use std::time::Duration;

use crate::server::ServerId;

/// A cluster that cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Its certificates or keys cannot be used.
    #[error("cluster {cluster}: {source}")]
    Tls {
        /// Name of the cluster.
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
        /// Name of the cluster.
        cluster: String,
        /// Why not, server by server.
        servers: Vec<ServerReason>,
    },
    /// All servers have as many sessions as they may have, and so has the queue.
    #[error("all servers of cluster {cluster} are full, and so is the queue (queue_max = {queue_max})")]
    QueueFull {
        /// Name of the cluster.
        cluster: String,
        /// Limit of the queue, in sessions.
        queue_max: u32,
    },
    /// No server had room within `queue_timeout`.
    #[error("all servers of cluster {cluster} were full for {} (queue_timeout)", Seconds(*waited))]
    QueueTimeout {
        /// Name of the cluster.
        cluster: String,
        /// How long the session waited.
        waited: Duration,
    },
    /// Servers were tried, and none could be connected to.
    #[error("cannot connect to any server of cluster {cluster}: {}", List(failures))]
    ConnectFailed {
        /// Name of the cluster.
        cluster: String,
        /// What happened, in the order of the attempts; one a server.
        failures: Vec<ConnectFailure>,
    },
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
    /// Number of the server.
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
