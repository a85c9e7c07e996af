//! A server that lets the account of a login in, and knows its schema: the primary if that can be had, or
//! else the next one that can. Reads need no primary, and so their sessions do not.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use upstream::{ConnectFailure, Connection, LeaseError, Role, Server};

use crate::engine::client_limits;
use crate::engine::client_session::{ClientSession, Refused, Wait};
use crate::engine::connection_state::ConnectionState;
use crate::engine::lease;
use crate::engine::rebuild;
use crate::engine::server;
use crate::engine::start;
use crate::error::SessionError;
use crate::frontend::handshake::Patience;

/// A connection to a server on which the session may begin, with its state on it.
pub(super) async fn admit(session: &mut ClientSession) -> Result<Connection<ConnectionState>, SessionError> {
    let oldest_login = session.context.listener.cluster.oldest_login();
    session.control.oldest_login.set(oldest_login);
    let candidates = candidates(session)?;
    if let [only] = &*candidates {
        return wait_on(session, &only.server).await;
    }
    let limit = session.context.listener.cluster.config().login_timeout;
    let mut patience = Patience::new(limit);
    let mut tried = Tried::default();
    for (at, candidate) in candidates.iter().enumerate() {
        let began = Instant::now();
        let time = patience.next(candidates.len() - at);
        let attempt = on_server(session, &candidate.server, Wait::NotInLine);
        let admitted = match time < limit {
            // The limits of a connection that is opened are for one server each.
            true => timeout(time, attempt)
                .await
                .unwrap_or_else(|_| Err(too_slow(&candidate.server, time))),
            false => attempt.await,
        };
        match admitted {
            Ok(connection) => return Ok(connection),
            Err(error) => tried.note(candidate, error)?,
        }
        patience.waited(began.elapsed());
    }
    match tried.full.first().map(Arc::clone) {
        Some(full) => wait_on(session, &full)
            .await
            .map_err(|error| tried.in_vain(session, Some((&full, error)))),
        None => Err(tried.in_vain(session, None)),
    }
}

struct Candidate {
    server: Arc<Server>,
    is_primary: bool,
}

/// Servers to try the account on: the primary before those that can be read from.
fn candidates(session: &ClientSession) -> Result<Vec<Candidate>, SessionError> {
    let cluster = &session.context.listener.cluster;
    let topology = cluster.topology();
    if let Err(servers) = topology.entrance() {
        return Err(SessionError::NoServer(LeaseError::NoServerAvailable {
            cluster: cluster.name().to_owned(),
            servers,
        }));
    }
    let usable = topology
        .members
        .iter()
        .filter(|member| member.role != Role::Unusable && member.server.takes_statements());
    let mut candidates: Vec<Candidate> = usable
        .map(|member| Candidate {
            server: Arc::clone(&member.server),
            is_primary: member.role == Role::Primary,
        })
        .collect();
    let rank = |candidate: &Candidate| {
        let server = &candidate.server;
        (server.is_silent(), !candidate.is_primary, server.sessions())
    };
    candidates.sort_by_key(rank);
    Ok(candidates)
}

/// Begins on this server, also where that takes a wait in line.
async fn wait_on(
    session: &mut ClientSession,
    server: &Arc<Server>,
) -> Result<Connection<ConnectionState>, SessionError> {
    match on_server(session, server, Wait::InLine).await {
        // To ask again is to wait in line.
        Err(SessionError::NoServer(error)) if error.is_full() => {
            on_server(session, server, Wait::InLine).await
        }
        admitted => admitted,
    }
}

async fn on_server(
    session: &mut ClientSession,
    server: &Arc<Server>,
    wait: Wait,
) -> Result<Connection<ConnectionState>, SessionError> {
    // The session's needs of a connection are known before there is one; the variables on it, after. Ids of
    // statements go on, so that an id from before COM_CHANGE_USER means none.
    let without_baseline = start::start_of(session, Rc::default());
    session.state.change_user(without_baseline);
    let lease = lease::bare_connection(session, server, wait);
    let connection = match wait {
        Wait::InLine => lease.await,
        Wait::NotInLine => server::unless_silent(server, lease).await,
    };
    let mut connection = connection.map_err(|Refused(error)| error)?;
    let start = start::start_of(session, Rc::clone(&connection.state.baseline));
    session.state.change_user(start);
    session.state.begins(session.context.worker.now_ms());
    let common = Rc::clone(&session.context.cluster);
    common.share(&mut session.state);
    client_limits::set(session);
    let rebuilt = rebuild::rebuild(session, &mut connection).await;
    rebuilt.map_err(|Refused(error)| error)?;
    Ok(connection)
}

fn too_slow(server: &Server, time: Duration) -> SessionError {
    SessionError::ServerLogin {
        server: server.name().to_owned(),
        cause: format!("not finished within {time:.1?}"),
    }
}

/// The outcomes on servers that were tried.
#[derive(Default)]
struct Tried {
    /// Servers that may have room later.
    full: Vec<Arc<Server>>,
    /// Servers to which there was no way.
    failures: Vec<ConnectFailure>,
    /// Servers that may have yet to learn of the account or the schema, which the primary would know.
    refusals: Vec<ConnectFailure>,
    first_refusal: Option<SessionError>,
}

impl Tried {
    /// Notes an error of this server, or passes it on where no other server would say anything else.
    fn note(&mut self, candidate: &Candidate, error: SessionError) -> Result<(), SessionError> {
        let server = &candidate.server;
        let failure = |reason| ConnectFailure {
            id: server.id(),
            server: server.name().to_owned(),
            reason,
        };
        match error {
            SessionError::NoServer(error) if error.has_no_room() => self.full.push(Arc::clone(server)),
            SessionError::NoServer(LeaseError::ConnectFailed { failures, .. }) => {
                self.failures.extend(failures);
            }
            SessionError::NoServer(LeaseError::NoServerAvailable { servers, .. }) => {
                let reasons = servers.into_iter().map(|server| failure(server.reason));
                self.failures.extend(reasons);
            }
            SessionError::NoServer(LeaseError::Refused { packet, .. }) if is_of_server(packet.code) => {
                let words = String::from_utf8_lossy(&packet.message);
                self.failures
                    .push(failure(format!("{words} (error {})", packet.code)));
            }
            SessionError::ServerLogin { cause, .. } => self.failures.push(failure(cause)),
            error @ (SessionError::NoServer(_) | SessionError::StateRefused { .. })
                if !candidate.is_primary =>
            {
                self.refusals.push(failure(error.to_string()));
                self.first_refusal.get_or_insert(error);
            }
            error => return Err(error),
        }
        Ok(())
    }

    /// The error that says why there is no server. `waited`: a server that was full, and the error of the
    /// wait for it.
    fn in_vain(
        mut self,
        session: &ClientSession,
        waited: Option<(&Arc<Server>, SessionError)>,
    ) -> SessionError {
        let is_full_only = self.failures.is_empty() && self.refusals.is_empty();
        match waited {
            Some((_, mut error)) if is_full_only => {
                if let SessionError::NoServer(
                    LeaseError::QueueTimeout { server, .. } | LeaseError::QueueFull { server, .. },
                ) = &mut error
                {
                    *server = self.names_of_full(session);
                }
                return error;
            }
            Some((server, SessionError::NoServer(error))) if error.has_no_room() => {
                let full = self.full.iter().map(|full| ConnectFailure {
                    id: full.id(),
                    server: full.name().to_owned(),
                    reason: match full.id() == server.id() {
                        true => error.to_string(),
                        false => "full".to_owned(),
                    },
                });
                self.failures.extend(full);
            }
            Some((_, error)) => return error,
            None => {}
        }
        match self.first_refusal {
            Some(refusal) if self.failures.is_empty() => refusal,
            _ => {
                self.failures.extend(self.refusals);
                SessionError::NoServer(LeaseError::ConnectFailed {
                    cluster: session.context.listener.cluster.name().to_owned(),
                    failures: self.failures,
                })
            }
        }
    }

    /// The names of the servers that were full; `None` where those are all.
    fn names_of_full(&self, session: &ClientSession) -> Option<String> {
        if self.full.len() == session.context.listener.cluster.servers().len() {
            return None;
        }
        let names: Vec<&str> = self.full.iter().map(|server| server.name()).collect();
        Some(names.join(", "))
    }
}

/// Whether a refusal is about the server or this host, whatever the account: "Server shutdown in progress",
/// "Host is blocked", "Host is not allowed to connect", "The server is currently in offline mode".
fn is_of_server(code: u16) -> bool {
    [1053, 1129, 1130, 3032].contains(&code)
}
