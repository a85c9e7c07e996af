//! What a server is asked, and how its answers are understood: one file for each kind of cluster.

mod galera;
mod group_replication;
mod replication;

use std::time::Duration;

use super::connection::Connection;
use super::lag::Reading;
use super::observation::{Address, Facts, HostIdentity, Identity};
use crate::conversation::{QueryError, Row, Rows};

/// How far ahead of a server's clock the one may be that has written the newest row of its heartbeat table.
const AHEAD_MAX_US: i64 = 1_000_000;

/// What one look at a server has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) facts: Facts,
    /// `offline_mode`: it serves those alone who may administer it.
    pub(super) offline: bool,
    pub(super) lag: Reading,
    /// Transactions that it has received and not yet applied, where it counts them.
    pub(super) waiting: Option<u64>,
    /// What it has executed, as GTIDs; `None` where it does not say, or where they would not mean the same
    /// elsewhere. Of MariaDB that follows another server without what it has written itself.
    pub(super) applied: Option<Vec<u8>>,
    /// All that a follower of MariaDB has executed, its own writes with it, where `applied` leaves those out.
    pub(super) executed: Option<Vec<u8>>,
    /// Not every transaction gets a GTID there.
    pub(super) without_gtids: bool,
    /// Who it is, where that tells servers apart.
    pub(super) identity: Option<Identity>,
    /// Which process it is: no two have the same, whatever they say of their identity. `None` where it does
    /// not tell.
    pub(super) host_identity: Option<HostIdentity>,
    /// Other members that it names.
    pub(super) named: Vec<Named>,
}

/// A member as another one names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) address: Address,
    pub(super) identity: Option<Identity>,
    /// It is there now, under this address: who it is was not only so at some time.
    pub(super) is_present: bool,
}

/// Asks everything. An answer that is missing for want of a privilege is left out where it can be done
/// without.
pub(super) async fn look(
    connection: &mut Connection,
    kind: config::Topology,
    monitor: &config::Monitor,
) -> Result<Finding, QueryError> {
    match kind {
        // Only for the lag.
        config::Topology::Static | config::Topology::Tidb => {
            replication::look(connection, monitor, false).await
        }
        config::Topology::Replication => replication::look(connection, monitor, monitor.discover).await,
        config::Topology::GroupReplication => group_replication::look(connection, monitor).await,
        config::Topology::Galera => galera::look(connection).await,
    }
}

/// What tells processes apart, as a column of a SELECT: copies of a machine have the same identity, and two
/// addresses of one server lead to the same folder.
const PLACE: &str = "CONCAT_WS(':', @@global.hostname, @@global.port, @@global.datadir) AS place";

/// Who answers, and where it runs.
fn host_identity(identity: Option<&Identity>, own: Option<Row<'_>>) -> Option<HostIdentity> {
    let place = own?.text(&["place"])?;
    let started = own?.text(&["started"]).unwrap_or_default();
    Some(HostIdentity(format!("{} {place} {started}", identity?.0)))
}

/// A statement that one can do without.
fn optional<T>(result: Result<T, QueryError>) -> Result<Option<T>, QueryError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(QueryError::Refused(error)) => {
            let message = String::from_utf8_lossy(&error.message);
            tracing::debug!(code = error.code, %message, "a statement of the monitor was refused");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The age of the newest row in the heartbeat table, by the server's own clock. Where there is none, that is
/// told once a connection.
async fn heartbeat(
    connection: &mut Connection,
    monitor: &config::Monitor,
) -> Result<Option<Duration>, QueryError> {
    let Some(table) = &monitor.heartbeat_table else {
        return Ok(None);
    };
    let quoted: Vec<String> = table
        .split('.')
        .map(|part| format!("`{}`", part.replace('`', "``")))
        .collect();
    let statement = format!(
        "SELECT TIMESTAMPDIFF(MICROSECOND, MAX(ts), NOW(6)) AS age FROM {}",
        quoted.join(".")
    );
    let (age, reason) = match connection.query(&statement).await {
        Ok(rows) => match age(&rows) {
            Ok(age) => (Some(age), String::new()),
            Err(reason) => (None, reason.to_owned()),
        },
        Err(error) if error.is_refusal() => (None, error.to_string()),
        Err(error) => return Err(error),
    };
    let was_missed = std::mem::replace(&mut connection.heartbeat_is_missed, age.is_none());
    if age.is_none() && !was_missed {
        let (cluster, server) = (&connection.cluster, &connection.server);
        tracing::warn!(
            cluster,
            server,
            table,
            reason,
            "heartbeat table tells nothing: the lag is what the server says itself"
        );
    }
    Ok(age)
}

/// How old the newest row of the heartbeat table is. One of the future was written by another clock, or in
/// another time zone (`pt-heartbeat --utc`), and tells nothing: it would make every replica look up to date.
fn age(rows: &Rows) -> Result<Duration, &'static str> {
    let age = rows.first().and_then(|row| row.number::<i64>(&["age"]));
    match age {
        None => Err("it has no time in its column `ts`"),
        Some(age) if age < -AHEAD_MAX_US => {
            Err("its newest time is in the future: another clock, or another time zone")
        }
        Some(age) => Ok(Duration::from_micros(age.max(0).unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_of_the_future_tells_nothing() {
        let of = |value: Option<&str>| age(&Rows::of(&["age"], &[&[value]]));
        assert_eq!(of(Some("1500000")), Ok(Duration::from_millis(1500)));
        assert_eq!(of(Some("-20000")), Ok(Duration::ZERO), "clocks differ a little");
        assert!(of(Some("-18000000000")).unwrap_err().contains("time zone"));
        assert!(of(None).is_err());
    }
}
