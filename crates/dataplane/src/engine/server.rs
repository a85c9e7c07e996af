//! The choice of the server that a statement goes to, and the waits for one that may have it.

use std::sync::Arc;
use std::time::Duration;

use mysql_wire::gtid::GtidSet;
use tokio::time::{Instant, sleep, timeout_at};
use upstream::{Connection, Released, Server, ServerId, Topology};

use crate::control::Waiting;
use crate::engine::account_backoff;
use crate::engine::anywhere;
use crate::engine::choose;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency::{self, Freshness};
use crate::engine::lease::connection;
use crate::engine::metrics::AtPrimary;
use crate::engine::target::Target;
use crate::error::SessionError;

/// The outcome of looking for a server.
pub(crate) enum Chosen {
    /// This server, and whether it is the primary.
    Server(Arc<Server>, bool),
    /// The wait for freshness has ended on this connection, which is ready.
    Connection(Connection<ConnectionState>),
}

impl Chosen {
    fn of(session: &ClientSession, topology: &Topology, server: Arc<Server>) -> Self {
        let is_primary = session.is_writer(topology, &server);
        Self::Server(server, is_primary)
    }
}

/// Chooses a server, waiting for one where the statement has to.
pub(crate) async fn server(
    session: &mut ClientSession,
    target: &Target,
    tried: &[ServerId],
) -> Result<Chosen, Refused> {
    if matches!(target, Target::Replica | Target::Group { .. })
        && let Some(chosen) = fresh_replica(session, target, tried).await?
    {
        return Ok(chosen);
    }
    if *target == Target::Anywhere
        && let Some((server, is_primary)) =
            anywhere::at_hand(session, &session.context.listener.cluster.topology(), tried)
    {
        return Ok(Chosen::Server(server, is_primary));
    }
    if let Some(group) = target.group() {
        is_there(session, group, tried)?;
    }
    if let Target::Named(name) = target {
        return named(session, name);
    }
    let (server, released) = primary(session).await?;
    if released.is_some() {
        session.context.listener.cluster.count_released();
        session.statement.released = released;
    }
    Ok(Chosen::Server(server, true))
}

/// Whether a group has a server that could take the statement if only it were as fresh as a read needs it:
/// then the primary has to do.
fn is_there(session: &ClientSession, group: &str, tried: &[ServerId]) -> Result<(), Refused> {
    let topology = session.context.listener.cluster.topology();
    match choose::replica(session, &topology, tried, Some(group), |_| true, true) {
        Some(_) => Ok(()),
        None => Err(Refused(SessionError::NoServerInGroup(group.into()))),
    }
}

/// A replica, or a server of the group, that has what the read must see. `None`: the primary has to do.
async fn fresh_replica(
    session: &ClientSession,
    target: &Target,
    tried: &[ServerId],
) -> Result<Option<Chosen>, Refused> {
    let group = target.group();
    let freshness = match target {
        // A statement that is no read sees what its server has.
        Target::Group { is_read: false, .. } => Freshness::Any,
        _ => consistency::needed(session).await?,
    };
    let topology = session.context.listener.cluster.topology();
    let covers = |server: &Server| freshness.covered_by(server);
    if let Some(server) = choose::replica(session, &topology, tried, group, covers, false) {
        return Ok(Some(Chosen::of(session, &topology, server)));
    }
    if let Freshness::Position(position) = &freshness {
        match connection_to_wait_on(session, &topology, tried, group).await {
            Some(Ready::Connection(connection)) => return Ok(wait(session, connection, position).await),
            Some(Ready::InVain) => {
                session.note_at_primary(AtPrimary::NotFresh);
                return Ok(None);
            }
            None => {}
        }
    }
    // Only the primary is left; or, where there is none, a replica that is behind only by the limit of lag.
    session.note_at_primary(match freshness {
        Freshness::Primary => AtPrimary::PositionUnknown,
        _ if account_backoff::are_there(session, &topology) => AtPrimary::AccountRefused,
        Freshness::Any | Freshness::Position(_) => AtPrimary::NoReplica,
    });
    let last_resort = choose::replica(session, &topology, tried, group, covers, true);
    Ok(last_resort.map(|server| Chosen::of(session, &topology, server)))
}

/// Waits on a replica. `None`: the primary has to do.
async fn wait(
    session: &ClientSession,
    mut connection: Connection<ConnectionState>,
    position: &GtidSet,
) -> Option<Chosen> {
    let server = connection.server.id();
    let waited = consistency::wait(session, &mut connection, position).await;
    if let Ok(is_there) = waited {
        let vain_waits = &session.context.cluster.vain_waits;
        vain_waits.note(server, position, !is_there);
    }
    match waited {
        Ok(true) => Some(Chosen::Connection(connection)),
        Ok(false) => {
            session.note_at_primary(AtPrimary::NotFresh);
            session.pool().give_back(connection);
            None
        }
        // The connection is gone, and with it the way to this replica; the primary has everything.
        Err(_) => None,
    }
}

/// The means by which to wait.
enum Ready {
    Connection(Connection<ConnectionState>),
    /// Replicas on which a wait would be in vain.
    InVain,
}

/// A connection to the replica on which to wait. A replica that refuses the account is not asked each time.
async fn connection_to_wait_on(
    session: &ClientSession,
    topology: &Topology,
    tried: &[ServerId],
    group: Option<&str>,
) -> Option<Ready> {
    let mut tried = tried.to_vec();
    let mut in_vain = None;
    loop {
        let Some(server) = choose::replica_to_wait_for(session, topology, &tried, group) else {
            return in_vain;
        };
        if session.context.cluster.vain_waits.has(&server) {
            in_vain = Some(Ready::InVain);
            tried.push(server.id());
            continue;
        }
        match connection(session, &server).await {
            Ok(connection) => return Some(Ready::Connection(connection)),
            Err(Refused(error)) if account_backoff::is_refused(&error) => {
                account_backoff::note(session, &server, &error);
                tried.push(server.id());
            }
            Err(_) => return None,
        }
    }
}

fn named(session: &ClientSession, name: &str) -> Result<Chosen, Refused> {
    let topology = session.context.listener.cluster.topology();
    let found = topology
        .members
        .iter()
        .find(|member| member.server.name() == name);
    match found {
        Some(member) => Ok(Chosen::of(session, &topology, Arc::clone(&member.server))),
        None => Err(Refused(SessionError::NoSuchServer(name.into()))),
    }
}

/// The primary. If there is none, one is waited for, up to `failover_wait`. A primary that was tried may have
/// come back; as long as it has not, it is suspected, and takes no statements. Sessions that have waited are
/// let through a few at a time, and then look anew who is the primary.
async fn primary(session: &ClientSession) -> Result<(Arc<Server>, Option<Released>), Refused> {
    let cluster = &session.context.listener.cluster;
    let mut topology = cluster.topology();
    let (mut deadline, mut released) = (None, None);
    loop {
        if let Some(reason) = &topology.refuse_writes {
            return Err(Refused(SessionError::WritesRefused(reason.clone())));
        }
        if let Some(primary) = session.writer(&topology)
            && primary.server.takes_statements()
        {
            let has_place = released.is_some() || session.statement.released.is_some();
            let Some(deadline) = deadline.filter(|_| !has_place) else {
                return Ok((Arc::clone(&primary.server), released));
            };
            released = Some(release(session, deadline).await?);
            topology = cluster.topology();
            continue;
        }
        // No session is to wait for the place of one that waits.
        released = None;
        let wait = cluster.config().failover_wait;
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + wait);
        let changed = next_topology(session, &topology, deadline);
        match changed.await {
            Ok(next) => topology = next,
            Err(error) => return Err(Refused(error.unwrap_or(SessionError::NoPrimary(wait)))),
        }
    }
}

/// Waits for one of the places of those that are let through after a failover.
pub(crate) async fn release(session: &ClientSession, until: Instant) -> Result<Released, Refused> {
    let cluster = &session.context.listener.cluster;
    tokio::select! {
        biased;
        signal = session.control.signalled(false) => Err(Refused(session.signalled(signal))),
        released = cluster.release(until.into_std()) => Ok(released),
        () = session.streams.client.closed() => Err(Refused(SessionError::ClientGone)),
    }
}

/// Waits until another server than this one is the primary, or this one takes writes after all. `words`:
/// those with which this one refused a write.
pub(crate) async fn other_primary(
    session: &ClientSession,
    refusing: &Server,
    words: &str,
) -> Result<(), Refused> {
    let before = session.context.listener.cluster.topology();
    let deadline = Instant::now() + session.context.listener.cluster.config().failover_wait;
    let mut topology = before.clone();
    loop {
        let another = topology
            .writers()
            .find(|writer| writer.server.id() != refusing.id());
        if let Some(another) = another {
            session.own_writes.go_to(another.server.id());
        }
        let has_come_back = topology.generation != before.generation && topology.primary().is_some();
        if another.is_some() || has_come_back {
            return Ok(());
        }
        topology = match next_topology(session, &topology, deadline).await {
            Ok(next) => next,
            Err(error) => {
                return Err(Refused(
                    error.unwrap_or_else(|| no_other(session, refusing, words)),
                ));
            }
        };
    }
}

/// The error where only a server that takes no writes is the primary. If the configuration says who is the
/// primary, somebody has to be told.
fn no_other(session: &ClientSession, refusing: &Server, words: &str) -> SessionError {
    const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60);
    let cluster = &session.context.listener.cluster;
    let (now, said) = (Instant::now(), &session.context.cluster.refusal_said);
    if said
        .get()
        .is_none_or(|at| now.duration_since(at) >= SAID_AGAIN_AFTER)
    {
        said.set(Some(now));
        tracing::warn!(
            cluster = cluster.name(),
            server = refusing.name(),
            reason = words,
            "the primary takes no writes, and there is no other"
        );
    }
    SessionError::NoOtherPrimary {
        server: refusing.name().to_owned(),
        limit: cluster.config().failover_wait,
        words: words.to_owned(),
    }
}

/// The outcome of waiting for a server, unless the server turns out to stand still: there are others that may
/// have the statement.
pub(crate) async fn unless_silent<T>(
    server: &Server,
    lease: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    const LOOK_AGAIN: Duration = Duration::from_millis(50);
    let was_silent = server.is_silent();
    let goes_silent = async {
        loop {
            sleep(LOOK_AGAIN).await;
            if server.is_silent() && !was_silent {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        leased = lease => leased,
        () = goes_silent => Err(Refused(SessionError::ServerLogin {
            server: server.name().to_owned(),
            cause: "it does not answer the monitor".to_owned(),
        })),
    }
}

/// Waits for the cluster to change, or for a server of it to be taken again.
pub(crate) async fn next_topology(
    session: &ClientSession,
    topology: &Topology,
    deadline: Instant,
) -> Result<Arc<Topology>, Option<SessionError>> {
    const LOOK_AGAIN: Duration = Duration::from_millis(50);
    session.control.mark_if_new(Waiting::Primary);
    let until = deadline.min(Instant::now() + LOOK_AGAIN);
    let change = session
        .context
        .listener
        .cluster
        .wait_for_topology_change(topology.generation);
    tokio::select! {
        biased;
        signal = session.control.signalled(false) => Err(Some(session.signalled(signal))),
        changed = timeout_at(until, change) => match changed {
            Ok(changed) => Ok(changed),
            Err(_) if Instant::now() < deadline => Ok(session.context.listener.cluster.topology()),
            Err(_) => Err(None),
        },
        () = session.streams.client.closed() => Err(Some(SessionError::ClientGone)),
    }
}
