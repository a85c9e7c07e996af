//! A server connection for the next statement, with the session's state on it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mysql_wire::{Capabilities, ErrPacket};
use net::Stream;
use session::Carried;
use sql_class::Dialect;
use tokio::time::{Instant, timeout_at};
use upstream::{Cluster, Connection, Credential, LeaseError, Opened, Server, ServerId, Topology};

use crate::control::Waiting;
use crate::error::SessionError;
use crate::split::ask::{self, AskError};
use crate::split::choose::{self, Target};
use crate::split::fresh::{self, Freshness};
use crate::split::lookup;
use crate::split::prepared::OnServer;
use crate::split::series::{AtPrimary, Ran};
use crate::split::state::{Held, Leased, Refused, Split};

/// Servers that are tried for one statement before it is refused.
const TRIES_MAX: usize = 4;

/// Sees to it that the session has a connection on which the statement may run. One that it holds already is kept:
/// whoever pinned it needs that one.
pub(crate) async fn lease(split: &mut Split, target: &Target) -> Result<(), Refused> {
    match at_once(split, target) {
        Now::Leased(leased) => leased,
        // Boxed: every session has room for the usual way only.
        Now::Wait(chosen) => Box::pin(in_time(split, target, chosen)).await,
    }
}

/// What is to be had without waiting.
enum Now {
    Leased(Result<(), Refused>),
    /// Nothing; but a server has been chosen, which is where to wait, and whether it is the primary.
    Wait(Option<(Arc<Server>, bool)>),
}

/// The usual way, which waits for nothing: the connection that is held, or an idle one that looks like the session already.
fn at_once(split: &mut Split, target: &Target) -> Now {
    split.was_pinned = split.lease.is_some();
    if let Some(leased) = &split.lease {
        // In a transaction on a replica the server itself judges what may be done.
        let is_at_home = leased.is_primary || split.session.in_transaction();
        let must_leave = matches!(target, Target::Primary { for_writing: true }) && !is_at_home;
        if !must_leave {
            split.series().ran(Ran::Held);
            return Now::Leased(Ok(()));
        }
        if !may_leave(split) {
            return Now::Leased(Err(pinned_elsewhere(split)));
        }
        give_back(split);
        split.was_pinned = false;
    }
    let Some((server, is_primary)) = usual(split, target) else {
        return Now::Wait(None);
    };
    let want = split.session.carried();
    let own = Some(split.control.id);
    let cost = |held: &Held| match session::cost(want, &held.carried) {
        0 => u32::from(held.last_session != own),
        _ => session::CANNOT,
    };
    match split.pool().lease_at_once(&server, &split.key, cost) {
        Some(mut connection) => {
            connection.state.carried = Rc::clone(want);
            attach(split, connection, is_primary);
            Now::Leased(Ok(()))
        }
        None => Now::Wait(Some((server, is_primary))),
    }
}

/// The server for a statement about which there is nothing unusual, and whether it is the primary.
fn usual(split: &Split, target: &Target) -> Option<(Arc<Server>, bool)> {
    if split.lost_on.is_some() {
        return None;
    }
    let topology = split.pool().topology();
    match target {
        Target::Primary { .. } if topology.refuse_writes.is_none() => {
            let primary = &topology.primary()?.server;
            primary.takes_statements().then(|| (Arc::clone(primary), true))
        }
        Target::Replica => {
            let freshness = fresh::known(split)?;
            let covers = |server: &Server| freshness.covered_by(server);
            let server = choose::replica(split, &topology, &[], None, covers, false)?;
            let is_primary = is_primary(&topology, &server);
            (is_primary || !fresh::is_galera(split)).then_some((server, is_primary))
        }
        Target::Primary { .. } | Target::Group { .. } | Target::Named(_) => None,
    }
}

/// Whether all that the session holds are answers that it may ask for: rather lose those than refuse a statement.
fn may_leave(split: &Split) -> bool {
    let mut pins = split.session.pins().iter();
    !split.keeps_connection && pins.all(|pin| pin.reason.ends_with_next_statement())
}

/// The way that may wait: for freshness, for a primary, in line, for a new connection, for its state.
async fn in_time(
    split: &mut Split,
    target: &Target,
    mut chosen: Option<(Arc<Server>, bool)>,
) -> Result<(), Refused> {
    split.control.mark(Waiting::Login);
    let mut tried: Vec<ServerId> = split.lost_on.into_iter().collect();
    loop {
        let (server, is_primary) = match chosen.take() {
            Some(chosen) => chosen,
            // Boxed, as all that a wait in line has no use for.
            None => match Box::pin(server(split, target, &tried)).await? {
                Chosen::Server(server, is_primary) => (server, is_primary),
                // The wait for freshness has ended on a connection that is ready.
                Chosen::Leased => return Ok(()),
            },
        };
        let leased = match connection(split, &server).await {
            Ok(connection) if !is_primary && fresh::is_galera(split) => {
                Box::pin(fresh::synced(split, connection)).await
            }
            leased => leased,
        };
        match leased {
            Ok(connection) => {
                attach(split, connection, is_primary);
                return Ok(());
            }
            Err(Refused(error)) if may_try_another(&error) && tried.len() + 1 < TRIES_MAX => {
                tried.push(server.id());
            }
            Err(refused) => return Err(refused),
        }
    }
}

enum Chosen {
    Server(Arc<Server>, bool),
    Leased,
}

/// Chooses a server, waiting for one where the statement has to.
async fn server(split: &mut Split, target: &Target, tried: &[ServerId]) -> Result<Chosen, Refused> {
    if matches!(target, Target::Replica | Target::Group { .. })
        && let Some(chosen) = fresh_replica(split, target, tried).await?
    {
        return Ok(chosen);
    }
    if let Some(group) = target.group() {
        is_there(split, group, tried)?;
    }
    if let Target::Named(name) = target {
        return named(split, name);
    }
    primary(split, tried)
        .await
        .map(|server| Chosen::Server(server, true))
}

/// Whether a group has a server that could take the statement if only it were as fresh as a read needs it: then the primary has
/// to do.
fn is_there(split: &Split, group: &str, tried: &[ServerId]) -> Result<(), Refused> {
    let topology = split.listener.cluster.topology();
    match choose::replica(split, &topology, tried, Some(group), |_| true, true) {
        Some(_) => Ok(()),
        None => Err(Refused(SessionError::NoServerInGroup(group.into()))),
    }
}

/// A replica, or a server of the group, that has what the read must see. `None`: the primary has to do.
async fn fresh_replica(
    split: &mut Split,
    target: &Target,
    tried: &[ServerId],
) -> Result<Option<Chosen>, Refused> {
    let group = target.group();
    let topology = split.listener.cluster.topology();
    let freshness = match target {
        // What is no read sees what its server has.
        Target::Group { is_read: false, .. } => Freshness::Any,
        _ => fresh::needed(split, &topology).await,
    };
    let covers = |server: &Server| freshness.covered_by(server);
    if let Some(server) = choose::replica(split, &topology, tried, group, covers, false) {
        return Ok(Some(Chosen::Server(
            Arc::clone(&server),
            is_primary(&topology, &server),
        )));
    }
    if let Freshness::Position(position) = &freshness
        && let Some(server) = choose::replica_to_wait_for(split, &topology, tried, group)
        && let Ok(mut connection) = connection(split, &server).await
    {
        match fresh::wait(split, &mut connection, position).await {
            Ok(true) => {
                attach(split, connection, false);
                return Ok(Some(Chosen::Leased));
            }
            Ok(false) => {
                split.series().at_primary(AtPrimary::NotFresh);
                split.pool().give_back(connection);
            }
            // The connection is gone, and with it the way to this replica; the primary has everything.
            Err(_) => {}
        }
        return Ok(None);
    }
    // Nobody but the primary; or, where there is none, a replica that is behind only by the limit of lag.
    split.series().at_primary(match freshness {
        Freshness::Primary => AtPrimary::PositionUnknown,
        Freshness::Any | Freshness::Position(_) => AtPrimary::NoReplica,
    });
    let last_resort = choose::replica(split, &topology, tried, group, covers, true);
    Ok(last_resort.map(|server| {
        let is_primary = is_primary(&topology, &server);
        Chosen::Server(server, is_primary)
    }))
}

fn is_primary(topology: &Topology, server: &Server) -> bool {
    topology
        .primary()
        .is_some_and(|primary| primary.server.id() == server.id())
}

fn named(split: &Split, name: &str) -> Result<Chosen, Refused> {
    let topology = split.listener.cluster.topology();
    let found = topology
        .members
        .iter()
        .find(|member| member.server.name() == name);
    match found {
        Some(member) => Ok(Chosen::Server(
            Arc::clone(&member.server),
            is_primary(&topology, &member.server),
        )),
        None => Err(Refused(SessionError::NoSuchServer(name.into()))),
    }
}

/// The primary, for which is waited where there is none: `failover_wait`.
async fn primary(split: &Split, tried: &[ServerId]) -> Result<Arc<Server>, Refused> {
    let cluster = &split.listener.cluster;
    let mut topology = cluster.topology();
    let mut deadline = None;
    loop {
        if let Some(reason) = &topology.refuse_writes {
            return Err(Refused(SessionError::WritesRefused(reason.clone())));
        }
        if let Some(primary) = topology.primary()
            && primary.server.takes_statements()
            && !tried.contains(&primary.server.id())
        {
            return Ok(Arc::clone(&primary.server));
        }
        let wait = cluster.config().failover_wait;
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + wait);
        let changed = next_topology(split, &topology, deadline);
        match changed.await {
            Ok(next) => topology = next,
            Err(error) => return Err(Refused(error.unwrap_or(SessionError::NoPrimary(wait)))),
        }
    }
}

/// Waits until another server than this one is the primary, or this one takes writes after all.
pub(crate) async fn other_primary(split: &Split, refusing: &Server) -> Result<(), Refused> {
    let before = split.listener.cluster.topology();
    let deadline = Instant::now() + split.listener.cluster.config().failover_wait;
    let mut topology = before.clone();
    loop {
        let is_another = topology
            .primary()
            .is_some_and(|primary| primary.server.id() != refusing.id());
        let has_come_back = topology.generation != before.generation && topology.primary().is_some();
        if is_another || has_come_back {
            return Ok(());
        }
        topology = match next_topology(split, &topology, deadline).await {
            Ok(next) => next,
            Err(error) => {
                let wait = split.listener.cluster.config().failover_wait;
                return Err(Refused(error.unwrap_or(SessionError::NoPrimary(wait))));
            }
        };
    }
}

/// Waits for the cluster to change, or for a server of it to be taken again.
async fn next_topology(
    split: &Split,
    topology: &Topology,
    deadline: Instant,
) -> Result<Arc<Topology>, Option<SessionError>> {
    const LOOK_AGAIN: Duration = Duration::from_millis(50);
    let until = deadline.min(Instant::now() + LOOK_AGAIN);
    let change = split
        .listener
        .cluster
        .wait_for_topology_change(topology.generation);
    tokio::select! {
        biased;
        signal = split.control.signalled(false) => Err(Some(split.signalled(signal))),
        changed = timeout_at(until, change) => match changed {
            Ok(changed) => Ok(changed),
            Err(_) if Instant::now() < deadline => Ok(split.listener.cluster.topology()),
            Err(_) => Err(None),
        },
    }
}

/// A connection from the pool, with the session's state on it.
pub(crate) async fn connection(split: &Split, server: &Arc<Server>) -> Result<Connection<Held>, Refused> {
    let mut connection = bare_connection(split, server).await?;
    if !Rc::ptr_eq(split.session.carried(), &connection.state.carried) {
        Box::pin(rebuild(split, &mut connection)).await?;
    }
    Ok(connection)
}

/// A connection from the pool, as it is.
pub(crate) async fn bare_connection(
    split: &Split,
    server: &Arc<Server>,
) -> Result<Connection<Held>, Refused> {
    loop {
        let connection = any_connection(split, server).await?;
        // One that a session has handed over in line may be one that cannot be made to fit: its seat does.
        if session::cost(split.session.carried(), &connection.state.carried) != session::CANNOT {
            return Ok(connection);
        }
    }
}

async fn any_connection(split: &Split, server: &Arc<Server>) -> Result<Connection<Held>, Refused> {
    let refused = match lease_as(split, server, &split.account.credential).await {
        Err(Refused(SessionError::NoServer(error))) if is_denied(&error) => error,
        leased => return leased,
    };
    // What is known of the servers' accounts may be out of date.
    split.listener.cluster.want_accounts();
    match &split.account.other_credential {
        Some(other) => Box::pin(lease_as(split, server, other)).await,
        None => Err(Refused(SessionError::NoServer(refused))),
    }
}

/// The server has refused the account, as it does where it has another password.
fn is_denied(error: &LeaseError) -> bool {
    const ER_ACCESS_DENIED_ERROR: u16 = 1045;
    matches!(error, LeaseError::Refused { packet, .. } if packet.code == ER_ACCESS_DENIED_ERROR)
}

async fn lease_as(
    split: &Split,
    server: &Arc<Server>,
    credential: &Credential,
) -> Result<Connection<Held>, Refused> {
    let want = split.session.carried();
    let own = Some(split.control.id);
    // Of equals, the one that this session had last: what its statement left is still there.
    let cost = |held: &Held| match session::cost(want, &held.carried) {
        session::CANNOT => session::CANNOT,
        cost => cost.saturating_mul(2) + u32::from(held.last_session != own),
    };
    let leased = split.pool().lease(server, &split.key, credential, cost);
    let leased = tokio::select! {
        biased;
        signal = split.control.signalled(false) => return Err(Refused(split.signalled(signal))),
        leased = leased => leased,
    };
    leased.map_err(|error| Refused(SessionError::NoServer(error)))
}

/// What is known of a connection that was just opened.
pub(crate) fn held(metrics: &telemetry::Worker, cluster: &Cluster, opened: &Opened) -> Held {
    let multi_statements = opened.key.capabilities.contains(Capabilities::MULTI_STATEMENTS);
    Held {
        carried: Rc::new(Carried::fresh(None, multi_statements)),
        baseline: Rc::new(opened.baseline.iter().cloned().collect()),
        statements: OnServer::new(cluster.config().pool.prepared_max),
        to_close: Vec::new(),
        last_session: None,
        syncs_reads: false,
        series: metrics.server(cluster.name(), opened.server.name()),
    }
}

/// Sets on the connection what the session has set and it has not, and the reverse.
pub(crate) async fn rebuild(split: &Split, connection: &mut Connection<Held>) -> Result<(), Refused> {
    let want = split.session.carried();
    if Rc::ptr_eq(want, &connection.state.carried) {
        return Ok(());
    }
    let commands = session::rebuild(
        want,
        &connection.state.carried,
        &connection.state.baseline,
        dialect(split),
    );
    if !commands.is_empty() && set_state(split, connection, commands).await? {
        // What the gateway is warned of is not for the session to see.
        set_state(split, connection, vec![session::clear_diagnostics()]).await?;
    }
    connection.state.carried = Rc::clone(want);
    Ok(())
}

/// True where the server has warned.
async fn set_state(
    split: &Split,
    connection: &mut Connection<Held>,
    commands: Vec<Vec<u8>>,
) -> Result<bool, Refused> {
    let capabilities = connection.opened.capabilities;
    let replies = asked(split, connection, &ask::framed(capabilities, commands)).await?;
    match replies.iter().find_map(|reply| reply.error(capabilities)) {
        None => Ok(replies.iter().any(|reply| reply.outcome.warnings > 0)),
        // The connection is dropped with whatever of the state is on it.
        Some(error) => Err(Refused(state_refused(&connection.server, error))),
    }
}

fn state_refused(server: &Server, packet: ErrPacket) -> SessionError {
    SessionError::StateRefused {
        server: server.name().to_owned(),
        packet,
    }
}

/// Asks something on a connection that nobody else uses.
pub(crate) async fn asked(
    split: &Split,
    connection: &mut Connection<Held>,
    commands: &[Vec<u8>],
) -> Result<Vec<ask::Reply>, Refused> {
    connection.state.last_session = None;
    let capabilities = connection.opened.capabilities;
    let asking = ask::ask(&mut connection.stream, capabilities, commands);
    let asked = tokio::select! {
        biased;
        signal = split.control.signalled(false) => return Err(Refused(split.signalled(signal))),
        asked = asking => asked,
    };
    asked.map_err(|error| Refused(not_asked(&connection.server, error)))
}

pub(crate) fn not_asked(server: &Server, error: AskError) -> SessionError {
    SessionError::ServerLogin {
        server: server.name().to_owned(),
        cause: error.to_string(),
    }
}

/// Whether the last statement on the leased connection was this session's, and nothing came in between.
pub(crate) fn is_as_it_was_left(split: &Split) -> bool {
    let last = split
        .lease
        .as_ref()
        .map(|leased| leased.connection.state.last_session);
    split.was_pinned || last == Some(Some(split.control.id)) && !lookup::is_news(split)
}

/// Hands the connection to the session: its stream goes into the session's wires.
pub(crate) fn attach(split: &mut Split, mut connection: Connection<Held>, is_primary: bool) {
    debug_assert!(split.lease.is_none());
    split.wires.server = std::mem::replace(&mut connection.stream, Stream::Detached);
    split.wires.traffic.server = Arc::clone(&connection.state.series);
    split
        .control
        .attach_connection(split.listener.key(&connection.server), connection.thread_id);
    split.last_server = Some(Arc::clone(&connection.server));
    split
        .series()
        .ran(if is_primary { Ran::Primary } else { Ran::Replica });
    split.lease = Some(Leased {
        connection,
        is_primary,
    });
}

/// Takes the connection out of the session's hands.
fn detach(split: &mut Split) -> Option<Connection<Held>> {
    let mut leased = split.lease.take()?;
    if std::mem::take(&mut split.counted_as_pinned) {
        split.series().pinned.dec();
    }
    leased.connection.stream = std::mem::replace(&mut split.wires.server, Stream::Detached);
    split.control.detach();
    Some(leased.connection)
}

/// Gives the connection back to the pool, for the next session.
pub(crate) fn give_back(split: &mut Split) {
    debug_assert!(split.wires.down.is_empty() && !split.wires.down.is_pending());
    if let Some(mut connection) = detach(split) {
        connection.state.carried = split.session.leave();
        connection.state.last_session = Some(split.control.id);
        connection.state.statements.let_go();
        if split.control.is_aimed_at() {
            return;
        }
        split.pool().give_back(connection);
    }
}

/// Gives back a connection on which nothing was done after all, unless the session is bound to it.
pub(crate) fn release_unused(split: &mut Split) {
    let keeps = split.keeps_connection || split.session.is_pinned();
    if !keeps {
        give_back(split);
    }
}

/// Asks something on the connection that the session holds.
pub(crate) async fn ask_on_lease(
    split: &mut Split,
    commands: &[Vec<u8>],
) -> Result<Vec<ask::Reply>, Refused> {
    let capabilities = split.key.capabilities;
    let asking = ask::ask(&mut split.wires.server, capabilities, commands);
    let asked = tokio::select! {
        biased;
        signal = split.control.signalled(false) => Err(signal),
        asked = asking => Ok(asked),
    };
    match asked {
        Ok(asked) => asked.map_err(|error| {
            Refused(SessionError::ServerLogin {
                server: split.server_name().to_owned(),
                cause: error.to_string(),
            })
        }),
        Err(signal) => Err(Refused(split.signalled(signal))),
    }
}

/// The commands that put the leased connection into another state than the session's, and those that put it back.
pub(crate) fn excursion(split: &Split, context: &Rc<Carried>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let here = split.session.carried();
    let Some(leased) = split.lease.as_ref().filter(|_| !Rc::ptr_eq(here, context)) else {
        return (Vec::new(), Vec::new());
    };
    let baseline = &leased.connection.state.baseline;
    let from = |have, want| {
        let commands = session::rebuild(want, have, baseline, dialect(split));
        ask::framed(split.key.capabilities, commands)
    };
    (from(here, context), from(context, here))
}

/// Makes the leased connection what it was when it was opened, and gives it back.
pub(crate) async fn give_back_as_new(split: &mut Split) -> Result<(), String> {
    let limit = split.listener.cluster.config().login_timeout;
    let Some(mut connection) = detach(split) else {
        return Ok(());
    };
    connection.reset(limit).await?;
    // The schema is all that a reset keeps.
    let schema = split.session.carried().schema();
    let multi_statements = split.session.carried().multi_statements();
    connection.state.carried = Rc::new(Carried::fresh(schema, multi_statements));
    connection.state.statements.clear();
    connection.state.to_close.clear();
    connection.state.last_session = None;
    connection.state.syncs_reads = false;
    split.pool().give_back(connection);
    Ok(())
}

/// Whose SQL the cluster speaks.
pub(crate) fn dialect(split: &Split) -> Dialect {
    split.session.syntax().dialect
}

/// Closes the connection: what is on it is not known, or it is lost.
pub(crate) fn abandon(split: &mut Split) {
    split.wires.down.clear();
    drop(detach(split));
    split.session.lost();
}

/// Whether another server may do what this one did not: nothing of the statement was sent yet.
fn may_try_another(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::NoServer(LeaseError::ConnectFailed { .. } | LeaseError::NoServerAvailable { .. })
            | SessionError::ServerLogin { .. }
            | SessionError::ServerRefused { .. }
    )
}

/// A statement for the primary in a session that is bound to a replica's connection.
fn pinned_elsewhere(split: &Split) -> Refused {
    let reasons = split.session.pins().iter().map(|pin| pin.reason.label());
    Refused(SessionError::PinnedToReplica {
        server: split.server_name().to_owned(),
        reasons: reasons.collect::<Vec<_>>().join(", "),
    })
}
