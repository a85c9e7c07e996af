//! A session that has written on one server comes to another that takes its writes now: the other server may
//! have yet to apply them.
//!
//! The question comes once, before the first statement there, be it a read or a write. From then on the
//! server has all that the session has written.

use config::Topology;
use mysql_wire::gtid::{Flavor, GtidSet};
use tracing::warn;
use upstream::Connection;

use crate::control::Waiting;
use crate::engine::client_session::{ClientSession, Refused};
use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency::{self, Freshness};
use crate::engine::{ask, rebuild};
use crate::error::SessionError;

/// Waits on a connection to the session's writer until that has the session's writes.
pub(crate) async fn caught_up(
    session: &mut ClientSession,
    mut connection: Connection<ConnectionState>,
) -> Result<Connection<ConnectionState>, Refused> {
    if consistency::is_galera(session) {
        sync(session, &mut connection).await?;
    } else if let Some(kept) = wait(session, &mut connection).await? {
        session.state.keep_gtids(kept.as_bytes());
    }
    session.own_writes.note_on(connection.server.id());
    Ok(connection)
}

/// Waits by GTIDs. In a group no write is lost that was acknowledged, so the wait ends. Asynchronous
/// replication may have lost a write with its server, and then nobody will ever have it. Returns the GTIDs
/// that are kept then.
async fn wait(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
) -> Result<Option<String>, Refused> {
    let freshness = consistency::own_position(session);
    let Freshness::Position(position) = &freshness else {
        return Ok(None);
    };
    if freshness.covered_by(&connection.server) {
        return Ok(None);
    }
    let config = session.context.listener.cluster.config();
    let (in_group, limit) = match config.topology {
        Topology::GroupReplication => (true, config.failover_wait.max(config.read_wait)),
        _ => (false, config.read_wait),
    };
    let is_there = consistency::wait_for(session, connection, position, limit).await?;
    match in_group {
        _ if is_there => Ok(None),
        true => Err(Refused(SessionError::NotCaughtUp {
            server: connection.server.name().to_owned(),
            limit,
        })),
        // A session that does not wait has not found out anything.
        false if limit.is_zero() => Ok(None),
        // Another server that takes writes has them, and this one will.
        false if session.pool().topology().writers.len() > 1 => Ok(None),
        false => kept_of_lost(session, connection, position).await,
    }
}

/// The new primary lacks some of the session's writes, and follows nobody who could have them: a read that
/// waited for those would always wait in vain. Returns the GTIDs that are kept, where some are lost.
async fn kept_of_lost(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    position: &GtidSet,
) -> Result<Option<String>, Refused> {
    let executed = executed(session, connection, position.flavor()).await?;
    let Some(executed) = executed.filter(|executed| !executed.covers(position)) else {
        return Ok(None);
    };
    let kept = position.common(&executed).to_string();
    warn!(
        session = session.control.id,
        cluster = session.context.listener.cluster.name(),
        server = connection.server.name(),
        user = &*session.client.account.user.name,
        written = %position,
        kept,
        "what a session has written was lost with the former primary"
    );
    session.metrics().lost_writes.inc();
    Ok(Some(kept))
}

/// The GTIDs that the server has executed, as far as it says. MariaDB waits for what it has replicated, and
/// not for what it has written itself.
async fn executed(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    flavor: Flavor,
) -> Result<Option<GtidSet>, Refused> {
    let executed = match flavor {
        Flavor::MySql => "SELECT @@GLOBAL.gtid_executed LIMIT 1",
        Flavor::MariaDb => "SELECT @@GLOBAL.gtid_current_pos LIMIT 1",
    };
    let command = ask::query(connection.capabilities, executed);
    let replies = rebuild::asked_in_time(session, connection, &[command]).await?;
    let executed = replies.first().and_then(|reply| ask::plain(reply.value()));
    Ok(executed.and_then(|text| GtidSet::parse(flavor, &text).ok()))
}

/// Whether the server has all these GTIDs, as far as it says. Servers of MariaDB give the transactions of a
/// domain their numbers by one count: a server that lacks some of these may have given the same numbers to
/// its own.
pub(super) async fn has(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    position: &GtidSet,
) -> Result<bool, Refused> {
    let executed = executed(session, connection, position.flavor()).await?;
    if !executed.is_some_and(|executed| executed.covers(position)) {
        return Ok(false);
    }
    let GtidSet::MariaDb(written) = position else {
        return Ok(true);
    };
    let questions = [
        "SELECT @@GLOBAL.gtid_binlog_state LIMIT 1",
        "SELECT @@GLOBAL.gtid_slave_pos LIMIT 1",
    ];
    let commands = questions.map(|question| ask::query(connection.capabilities, question));
    let replies = rebuild::asked_in_time(session, connection, &commands).await?;
    let value = |at: usize| replies.get(at).and_then(|reply| ask::plain(reply.value()));
    let lacks = value(0).is_some_and(|logged| written.is_beyond(&logged).unwrap_or(false));
    // A server need not have logged what it has replicated (`log_slave_updates`).
    let replicated = value(1).and_then(|text| GtidSet::parse(Flavor::MariaDb, &text).ok());
    Ok(!lacks || replicated.is_some_and(|replicated| replicated.covers(position)))
}

/// Whether the server has all these GTIDs, be it after a wait.
pub(super) async fn comes_to_have(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
    position: &GtidSet,
) -> Result<bool, Refused> {
    match has(session, connection, position).await? {
        true => Ok(true),
        false => consistency::wait(session, connection, position).await,
    }
}

/// Galera: has the node apply all that the cluster has committed so far.
pub(super) async fn sync(
    session: &ClientSession,
    connection: &mut Connection<ConnectionState>,
) -> Result<(), Refused> {
    session.control.mark_if_new(Waiting::Position);
    let capabilities = connection.capabilities;
    let set = |wanted| {
        ask::query(
            capabilities,
            &consistency::sync_wait(session.state.carried(), wanted),
        )
    };
    let read = ask::query(capabilities, "SELECT 1");
    let commands = [set(true), read, set(connection.state.syncs_reads)];
    // A node waits for as long as `repl.causal_read_timeout` says, which nobody else knows.
    let limit = {
        let config = session.pool().config();
        config
            .failover_wait
            .max(config.read_wait)
            .max(config.login_timeout)
    };
    let replies = rebuild::asked_within(session, connection, &commands, limit).await?;
    match replies.iter().find_map(|reply| reply.error(capabilities)) {
        None => Ok(()),
        Some(packet) => Err(Refused(rebuild::state_refused(&connection.server, packet))),
    }
}
