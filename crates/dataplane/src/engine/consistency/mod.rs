//! How fresh a replica has to be for a read, and the wait for it.

mod strong;
pub(crate) mod vain;

use std::rc::Rc;
use std::time::Duration;

use config::ReadConsistency;
use mysql_wire::gtid::{Flavor, GtidSet};
use session::PortableState;
use tokio::time::Instant;
use upstream::{Connection, Server};

use crate::control::Waiting;
use crate::engine::ask;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::rebuild::{self, CAUSAL_READS, SYNC_WAIT};
use crate::engine::target::Target;
use crate::error::SessionError;

/// How fresh a read must be: what the account or the listener says. No position of the session tells of a
/// write whose answer was lost, which may be done as late as after the next one: the read then has to see all
/// that the primary has.
pub(crate) fn wanted(session: &ClientSession) -> ReadConsistency {
    let wanted = session.read_consistency();
    let (session, is_one) = (&session.state, session.pool().config().max_writers == 1);
    match session.has_lost_writes() && !session.has_untracked_writes() && is_one {
        true if wanted == ReadConsistency::Session => ReadConsistency::Strong,
        _ => wanted,
    }
}

/// The transactions that a read must see.
#[derive(Debug, Clone)]
pub(crate) enum Freshness {
    /// Nothing in particular.
    Any,
    /// Every transaction of this set.
    Position(Rc<GtidSet>),
    /// Transactions that only the primary has for certain.
    Primary,
}

impl Freshness {
    /// Whether a server is known to have them.
    pub(crate) fn covered_by(&self, server: &Server) -> bool {
        match self {
            Self::Any => true,
            Self::Position(position) => server.applied().is_some_and(|applied| applied.covers(position)),
            Self::Primary => false,
        }
    }
}

/// The freshness of the session's next read, where nobody has to be asked for it.
pub(crate) fn known(session: &ClientSession) -> Option<Freshness> {
    match wanted(session) {
        ReadConsistency::Eventual => Some(Freshness::Any),
        ReadConsistency::Session => Some(own_writes(session)),
        ReadConsistency::Strong => None,
    }
}

/// The freshness of the session's next read.
pub(crate) async fn needed(session: &ClientSession) -> Result<Freshness, Refused> {
    match wanted(session) {
        // Nodes of Galera wait by themselves: see `synced`.
        _ if is_galera(session) => Ok(Freshness::Any),
        ReadConsistency::Eventual => Ok(Freshness::Any),
        ReadConsistency::Session => Ok(not_lost(session, own_writes(session))),
        // A session may have asked for strong reads before several servers took writes.
        ReadConsistency::Strong if session.pool().config().max_writers > 1 => {
            let why = "no strong reads, since several servers take writes (max_writers)".to_owned();
            Err(Refused(SessionError::GatewayStatement(why)))
        }
        // Boxed: few reads need it, and every session would have room for it.
        ReadConsistency::Strong => Box::pin(strong::needed(session)).await,
    }
}

/// The freshness `own`, unless no replica can have it. A transaction that the primary lacks although it has
/// the session's last write was lost with the primary before it, or never was: a number between two writes
/// that no transaction has. All that the primary has does instead, for a session's writes come one after
/// another. The last write has to be one that the primary itself has made: only then is it certain that the
/// primary was looked at later.
fn not_lost(session: &ClientSession, own: Freshness) -> Freshness {
    let Freshness::Position(position) = &own else {
        return own;
    };
    let topology = session.pool().topology();
    let primary = topology.primary();
    let last = session.state.last_gtid().filter(|last| {
        let maker = match position.flavor() {
            Flavor::MySql => last.split(|&byte| byte == b':').next(),
            Flavor::MariaDb => last.split(|&byte| byte == b'-').nth(1),
        };
        let primary = primary.and_then(|primary| primary.identity.as_deref());
        primary.is_some() && maker == primary.map(str::as_bytes)
    });
    let last = last.and_then(|last| GtidSet::parse(position.flavor(), &last).ok());
    let all = primary.and_then(|primary| primary.server.applied());
    match (all, last) {
        (Some(all), Some(last)) if all.covers(&last) && !all.covers(position) => {
            Freshness::Position(Rc::new(GtidSet::clone(&all)))
        }
        _ => own,
    }
}

pub(crate) fn is_galera(session: &ClientSession) -> bool {
    session.pool().config().topology == config::Topology::Galera
}

/// Whether a server that takes writes may have yet to apply what the statement must see. On Galera that is
/// what others have committed, too: a node that has just become the writer has a queue, and nobody knows for
/// how long.
pub(crate) fn must_catch_up(session: &ClientSession, target: &Target, writer: &Server) -> bool {
    let is_read = matches!(target, Target::Replica | Target::Group { is_read: true, .. });
    let is_strong = is_read && wanted(session) == ReadConsistency::Strong;
    !session.has_own_writes(writer) || is_strong && is_galera(session)
}

/// Galera: has the node wait, before each read on this connection, until it has applied what the cluster has
/// committed so far.
/// <https://galeracluster.com/library/documentation/mysql-wsrep-options.html#wsrep-sync-wait>.
pub(crate) async fn synced(
    session: &ClientSession,
    mut connection: Connection<ConnectionState>,
) -> Result<Connection<ConnectionState>, Refused> {
    let wanted = is_galera(session) && wanted(session) != ReadConsistency::Eventual;
    if connection.state.syncs_reads == wanted || !is_galera(session) {
        return Ok(connection);
    }
    let statement = sync_wait(session.state.carried(), wanted);
    let command = ask::query(connection.capabilities, &statement);
    let replies = rebuild::asked_in_time(session, &mut connection, std::slice::from_ref(&command)).await?;
    if let Some(packet) = replies
        .first()
        .and_then(|reply| reply.error(connection.capabilities))
    {
        return Err(Refused(rebuild::state_refused(&connection.server, packet)));
    }
    connection.state.syncs_reads = wanted;
    Ok(connection)
}

/// The statement that sets the session's value of `wsrep_sync_wait`, or else the server's own, with the
/// gateway's bit.
pub(crate) fn sync_wait(carried: &PortableState, wanted: bool) -> String {
    let own = carried.variable(SYNC_WAIT);
    let own = own.and_then(|value| str::from_utf8(value).ok()?.parse::<u32>().ok());
    let own = own.map_or("@@GLOBAL.wsrep_sync_wait".to_owned(), |bits| bits.to_string());
    let is_causal = matches!(carried.variable(CAUSAL_READS), Some(b"ON" | b"1"));
    format!(
        "SET SESSION wsrep_sync_wait={own} | {}",
        u8::from(wanted || is_causal)
    )
}

/// Notes the state in which a session leaves a connection. If that is another one than it came with, be it
/// equal, something was set on it.
pub(crate) fn leave(state: &mut ConnectionState, carried: Rc<PortableState>) {
    state.syncs_reads &= Rc::ptr_eq(&state.carried, &carried);
    state.carried = carried;
}

/// The freshness that has all that the session has written.
pub(crate) fn own_writes(session: &ClientSession) -> Freshness {
    match has_untold_writes(session) {
        true => Freshness::Primary,
        false => own_position(session),
    }
}

/// Whether the session has written what its position does not tell of, or may have.
pub(crate) fn has_untold_writes(session: &ClientSession) -> bool {
    let state = &session.state;
    let is_untold = state.has_untracked_writes() || state.has_lost_writes();
    is_untold || state.gtid().is_some() && writes_have_no_gtids(session)
}

/// Whether GTIDs were switched off, as far as the monitor has seen. A server that has told one is taken to
/// tell all.
fn writes_have_no_gtids(session: &ClientSession) -> bool {
    let topology = session.pool().topology();
    topology
        .primary()
        .is_some_and(|primary| primary.server.is_without_gtids())
}

/// The freshness that has all that the session has written, as far as a position tells of it.
pub(crate) fn own_position(session: &ClientSession) -> Freshness {
    match session.state.written() {
        Ok(None) => Freshness::Any,
        Ok(Some(position)) => Freshness::Position(Rc::clone(position)),
        Err(_) => Freshness::Primary,
    }
}

/// Waits on a replica until it has the position; false where it has not within `read_wait`.
pub(crate) async fn wait(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    position: &GtidSet,
) -> Result<bool, Refused> {
    let limit = session.context.listener.cluster.config().read_wait;
    wait_for(session, connection, position, limit).await
}

/// Waits on a server until it has the position; false where it has not within `limit`.
pub(crate) async fn wait_for(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    position: &GtidSet,
    limit: Duration,
) -> Result<bool, Refused> {
    if limit.is_zero() {
        return Ok(false);
    }
    session.control.mark_if_new(Waiting::Position);
    let seconds = limit.as_secs_f64();
    let statement = match position {
        GtidSet::MySql(_) => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{position}', {seconds})"),
        GtidSet::MariaDb(_) => format!("SELECT MASTER_GTID_WAIT('{position}', {seconds})"),
    };
    let command = ask::query(connection.capabilities, &statement);
    let began = Instant::now();
    // The server keeps to the limit; this is for one that does not answer at all.
    let commands = std::slice::from_ref(&command);
    let replies = rebuild::asked_within(session, connection, commands, limit * 2).await?;
    let waited = replies.first().is_some_and(|reply| reply.value() == Some(b"0"));
    let metrics = &session.context.worker.metrics;
    metrics.read_wait_seconds.record(began.elapsed());
    if waited {
        connection.server.note_applied(position);
    }
    Ok(waited)
}
