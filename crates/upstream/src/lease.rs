//! Choose a server, take a permit, connect; and if that fails, the next one.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::{Peer, Stream};
use tokio::time::{Instant, timeout_at};

use crate::cluster::{Cluster, reason};
use crate::connect::{self, For};
use crate::error::{ConnectFailure, LeaseError};
use crate::permit::Permit;
use crate::server::{Server, ServerId};

/// A fresh connection to a server, for one session. Nothing has been read from it yet.
///
/// The parts may be used apart; `permit` must live as long as the connection.
#[derive(Debug)]
pub struct Lease {
    /// The connection. The server speaks first.
    pub stream: Stream,
    /// The server at its other end.
    pub server: Arc<Server>,
    /// Counts the session on the server. Dropping it lets another one in.
    pub permit: Permit,
    /// Servers that were tried before in vain, for the counters of whoever asked. Usually empty.
    pub failures: Vec<ConnectFailure>,
}

impl Cluster {
    /// A connection for the session of `client`, who connected to `local`: chosen by the balancing method,
    /// within `max_connections`, made within `connect_timeout`. When all servers are full, waits in line for
    /// `queue_timeout`, or until `left` ends the wait: see [`LeaseError::Left`].
    ///
    /// The connection is to a server with this label if one of them takes it, and to none of `failures`,
    /// which took the connection and no session. They stay the first among the failures of the answer.
    ///
    /// A server that cannot be connected to is suspected (see [`suspect`](Self::suspect)) and another one is
    /// tried, each at most once. Runs on the caller's runtime. Dropping the future gives everything back.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn lease(
        self: &Arc<Self>,
        client: &Peer,
        local: &Peer,
        label: Option<&str>,
        mut failures: Vec<ConnectFailure>,
        left: impl Future<Output = ()>,
    ) -> Result<Lease, LeaseError> {
        let mut left = pin!(left);
        let config = self.config();
        let mut queue_time = QueueTime::new(config.queue_timeout);
        loop {
            let permit = self.permit(&config, label, &failures, &mut queue_time, left.as_mut());
            let permit = permit.await?;
            let server = Arc::clone(permit.server());
            server.note_attempt();
            match connect::connect(
                &server,
                &config,
                For::Client { client, local },
                config.connect_timeout,
            )
            .await
            {
                Ok(stream) => {
                    return Ok(Lease {
                        stream,
                        server,
                        permit,
                        failures,
                    });
                }
                Err(error) => {
                    if error.servers_fault {
                        self.suspect(&server, &error.reason);
                    } else {
                        let (cluster, server) = (self.name(), server.name());
                        // The session's own error tells of it; out of descriptors, every session would log
                        // it.
                        tracing::debug!(
                            cluster,
                            server,
                            reason = error.reason,
                            "cannot connect from this machine"
                        );
                    }
                    failures.push(failure(&server, error.reason));
                }
            }
        }
    }

    /// A permit on a server that has not failed this session yet.
    async fn permit(
        self: &Arc<Self>,
        config: &config::Cluster,
        label: Option<&str>,
        failures: &[ConnectFailure],
        queue_time: &mut QueueTime,
        left: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Permit, LeaseError> {
        let tried: Vec<ServerId> = failures.iter().map(|failure| failure.id).collect();
        // Those who are in line already come first; who comes back from a server that did not take it was
        // there before.
        let permit = if self.queue().is_empty() || !tried.is_empty() {
            match label.and_then(|label| self.permit_with_label(label, &tried)) {
                Some(permit) => Ok(Some(permit)),
                None => self.try_permit(&tried),
            }
        } else {
            Ok(None)
        };
        let none = match permit {
            Ok(Some(permit)) => return Ok(permit),
            Ok(None) => {
                let Some(mut place) = self.queue().join(tried, config.queue_max as usize) else {
                    return Err(LeaseError::QueueFull {
                        cluster: self.name().to_owned(),
                        server: None,
                        queue_max: config.queue_max,
                    });
                };
                // A permit may have become free between the look and the joining.
                self.serve_queue();
                // Pools may keep permits that they do not use.
                self.pools.call();
                let granted = tokio::select! {
                    biased;
                    granted = timeout_at(queue_time.deadline(), &mut place.answer) => granted,
                    () = left => return Err(LeaseError::Left),
                };
                match granted {
                    Ok(Ok(Ok(permit))) => return Ok(permit),
                    Ok(Ok(Err(none))) => Some(none),
                    Ok(Err(_)) | Err(_) => None,
                }
            }
            Err(none) => Some(none),
        };
        Err(match none {
            None => {
                self.queue().timeouts.fetch_add(1, Ordering::Relaxed);
                LeaseError::QueueTimeout {
                    cluster: self.name().to_owned(),
                    server: None,
                    waited: queue_time.limit,
                }
            }
            Some(_) if failures.is_empty() => LeaseError::NoServerAvailable {
                cluster: self.name().to_owned(),
                servers: self.reasons(),
            },
            Some(_) => LeaseError::ConnectFailed {
                cluster: self.name().to_owned(),
                failures: failures.to_vec(),
            },
        })
    }
}

/// Why a session that has to be on one server is not.
impl Cluster {
    pub(crate) fn unavailable(&self, server: &Server) -> LeaseError {
        LeaseError::NoServerAvailable {
            cluster: self.name().to_owned(),
            servers: vec![reason(server)],
        }
    }

    pub(crate) fn queue_full(&self, server: &Server, config: &config::Cluster) -> LeaseError {
        LeaseError::QueueFull {
            cluster: self.name().to_owned(),
            server: Some(server.name().to_owned()),
            queue_max: config.queue_max,
        }
    }

    pub(crate) fn queue_timeout(&self, server: &Server, waited: Duration) -> LeaseError {
        LeaseError::QueueTimeout {
            cluster: self.name().to_owned(),
            server: Some(server.name().to_owned()),
            waited,
        }
    }

    pub(crate) fn connect_failed(&self, server: &Server, reason: String) -> LeaseError {
        LeaseError::ConnectFailed {
            cluster: self.name().to_owned(),
            failures: vec![failure(server, reason)],
        }
    }
}

fn failure(server: &Server, reason: String) -> ConnectFailure {
    ConnectFailure {
        id: server.id(),
        server: server.name().to_owned(),
        reason,
    }
}

/// How long a session may wait in line, all its waits together. The clock is not read before the first.
struct QueueTime {
    limit: Duration,
    deadline: Option<Instant>,
}

impl QueueTime {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            deadline: None,
        }
    }

    fn deadline(&mut self) -> Instant {
        *self.deadline.get_or_insert_with(|| Instant::now() + self.limit)
    }
}
