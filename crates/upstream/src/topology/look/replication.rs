//! Asynchronous replication: what a server follows, whether it takes writes, who follows it.

use std::time::Duration;

use mysql_wire::gtid::Flavor;

use super::{Finding, Named, PLACE, heartbeat, host_identity, optional};
use crate::conversation::{QueryError, Row, Rows, is_off};
use crate::topology::connection::Connection;
use crate::topology::lag::Reading;
use crate::topology::observation::{Address, Facts, Identity, Receiving, ReplicationFacts, Source};

const MYSQL: &str = "SELECT @@global.server_uuid AS identity, @@global.read_only AS read_only, \
    @@global.super_read_only AS super_read_only, @@global.offline_mode AS offline_mode, \
    @@global.gtid_executed AS applied, ";
/// The start tells a copy of a machine from the original, which may have everything else in common, its
/// `server_id` too.
const MARIADB: &str = "SELECT @@global.server_id AS identity, @@global.read_only AS read_only, \
    @@global.gtid_current_pos AS applied, UNIX_TIMESTAMP() - (SELECT VARIABLE_VALUE \
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME') AS started, ";

/// Looks for which the list of replicas is good. It is for discovery alone, and servers keep it under a lock.
const REPLICAS_GOOD_FOR: u32 = 8;

pub(super) async fn look(
    connection: &mut Connection,
    monitor: &config::Monitor,
    discover: bool,
) -> Result<Finding, QueryError> {
    let flavor = connection.flavor;
    let own = match flavor {
        Flavor::MySql => MYSQL,
        Flavor::MariaDb => MARIADB,
    };
    let own = connection.query(&format!("{own}{PLACE}")).await?;
    let status = status(connection).await?;
    let heartbeat = heartbeat(connection, monitor).await?;
    if discover {
        renew_replicas(connection).await?;
    }
    Ok(understand(
        flavor,
        &own,
        &status,
        heartbeat,
        &connection.replicas.0,
    ))
}

/// What it replicates from. Without the privilege for it nothing can be said, and so this is an error.
async fn status(connection: &mut Connection) -> Result<Rows, QueryError> {
    match connection.flavor {
        Flavor::MariaDb => connection.query("SHOW ALL SLAVES STATUS").await,
        Flavor::MySql => new_or_old(connection, "SHOW REPLICA STATUS", "SHOW SLAVE STATUS").await,
    }
}

async fn renew_replicas(connection: &mut Connection) -> Result<(), QueryError> {
    if let Some(left) = connection.replicas.1.checked_sub(1) {
        connection.replicas.1 = left;
        return Ok(());
    }
    let rows = match connection.flavor {
        Flavor::MariaDb => connection.query("SHOW SLAVE HOSTS").await,
        Flavor::MySql => new_or_old(connection, "SHOW REPLICAS", "SHOW SLAVE HOSTS").await,
    };
    connection.replicas = (optional(rows)?.unwrap_or_default(), REPLICAS_GOOD_FOR);
    Ok(())
}

/// MySQL has had both words from 8.0.22 to 8.3.
async fn new_or_old(connection: &mut Connection, new: &str, old: &str) -> Result<Rows, QueryError> {
    if !connection.old_words {
        match connection.query(new).await {
            Err(error) if error.is_syntax() => connection.old_words = true,
            result => return result,
        }
    }
    connection.query(old).await
}

fn understand(
    flavor: Flavor,
    own: &Rows,
    status: &Rows,
    heartbeat: Option<Duration>,
    replicas: &Rows,
) -> Finding {
    let own = own.first();
    let is_on = |name: &str| {
        own.and_then(|row| row.bytes(&[name]))
            .is_some_and(|value| !is_off(value))
    };
    let identity = own.and_then(|row| row.text(&["identity"])).map(Identity);
    let sources: Vec<Source> = status.iter().filter_map(|row| source(flavor, row)).collect();
    let named = replicas.iter().filter_map(|row| replica(flavor, row));
    let named = named.chain(sources.iter().map(|source| Named {
        address: source.address.clone(),
        identity: source.identity.clone(),
        is_present: source.receiving == Receiving::Yes,
    }));
    Finding {
        offline: is_on("offline_mode"),
        lag: lag(&sources, status, heartbeat),
        waiting: None,
        applied: own.and_then(|row| row.bytes(&["applied"])).map(<[u8]>::to_vec),
        named: named.collect(),
        host_identity: host_identity(identity.as_ref(), own),
        identity: identity.clone(),
        facts: Facts::Replication(ReplicationFacts {
            identity,
            writable: own.is_some() && !is_on("read_only") && !is_on("super_read_only"),
            sources,
        }),
    }
}

/// `None` for the channels of Group Replication, which name no host.
fn source(flavor: Flavor, row: Row<'_>) -> Option<Source> {
    let address = Address {
        host: row.text(&["Source_Host", "Master_Host"])?,
        port: row.number(&["Source_Port", "Master_Port"])?,
    };
    let receiving = match row.text(&["Replica_IO_Running", "Slave_IO_Running"]).as_deref() {
        Some("Yes") => Receiving::Yes,
        Some("No") | None => Receiving::No,
        Some(_) => Receiving::Connecting,
    };
    let identity = match flavor {
        Flavor::MySql => row.text(&["Source_UUID", "Master_UUID"]),
        Flavor::MariaDb => row.text(&["Master_Server_Id"]).filter(|id| id != "0"),
    };
    Some(Source {
        address,
        identity: identity.map(Identity),
        receiving,
        applying: row.is_on(&["Replica_SQL_Running", "Slave_SQL_Running"]) == Some(true),
        error: row
            .number(&["Last_SQL_Errno"])
            .filter(|number| *number != 0)
            .map(told),
    })
}

/// What stopped a replica, in words of our own: the server's own text (`Last_SQL_Error`) has statements,
/// values of rows and hashes of passwords in it, and this goes to the log and to whoever asks for the status.
fn told(number: u32) -> String {
    let meaning = match number {
        1007 => ", the schema is there already",
        1008 | 1049 => ", there is no such schema",
        1021 | 1114 => ", a disk or a table is full",
        1032 => ", the row to be changed is not there",
        1044 | 1045 | 1142 | 1143 | 1227 => ", the right for it is missing",
        1050 => ", the table is there already",
        1051 | 1146 => ", there is no such table",
        1054 | 1091 => ", there is no such column or index",
        1060 | 1061 => ", the column or index is there already",
        1062 => ", a row with the same key is there already",
        1205 => ", it has waited for a lock for too long",
        1213 => ", a deadlock",
        1216 | 1217 | 1451 | 1452 => ", a foreign key forbids it",
        1290 => ", an option of the server forbids it",
        1396 => ", an account is there already, or is not",
        1594 | 13121 => ", its log cannot be read",
        1677 | 13146 => ", a column has another type",
        1950 => ", GTIDs are out of order",
        _ => "",
    };
    format!("error {number}{meaning} (SHOW REPLICA STATUS on that server has the rest)")
}

/// A replica tells its source its address only where it is configured to (`report_host`); MariaDB puts the
/// name there under which it sees it.
fn replica(flavor: Flavor, row: Row<'_>) -> Option<Named> {
    let address = Address {
        host: row.text(&["Host"])?,
        port: row.number(&["Port"]).filter(|port| *port != 0)?,
    };
    let identity = match flavor {
        Flavor::MySql => row.text(&["Replica_UUID", "Slave_UUID"]),
        Flavor::MariaDb => row.text(&["Server_Id"]),
    };
    Some(Named {
        address,
        identity: identity.map(Identity),
        is_present: true,
    })
}

/// The largest of all sources that are on. Unknown where it is of one of them: a server that waits for its
/// source says nothing, or zero. The heartbeat table knows better than the server, as long as something
/// arrives.
fn lag(sources: &[Source], status: &Rows, heartbeat: Option<Duration>) -> Reading {
    let on: Vec<bool> = sources.iter().map(Source::is_on).collect();
    if !on.contains(&true) {
        return Reading::Nothing;
    }
    let receives = |source: &Source| source.receiving == Receiving::Yes && source.applying;
    if !sources.iter().filter(|source| source.is_on()).all(receives) {
        return Reading::Nothing;
    }
    if let Some(heartbeat) = heartbeat {
        return Reading::Behind(heartbeat);
    }
    let rows = status
        .iter()
        .filter(|row| row.text(&["Source_Host", "Master_Host"]).is_some());
    let seconds = rows
        .zip(on)
        .filter(|(_, on)| *on)
        .map(|(row, _)| row.number::<u64>(&["Seconds_Behind_Source", "Seconds_Behind_Master"]));
    match seconds
        .collect::<Option<Vec<u64>>>()
        .map(|seconds| seconds.into_iter().max())
    {
        Some(Some(seconds)) => Reading::Behind(Duration::from_secs(seconds)),
        _ => Reading::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB_STATUS: &[&str] = &[
        "Master_Host",
        "Master_Port",
        "Slave_IO_Running",
        "Slave_SQL_Running",
        "Seconds_Behind_Master",
        "Master_Server_Id",
        "Last_SQL_Errno",
        "Last_SQL_Error",
    ];

    fn finding(status: &Rows, heartbeat: Option<Duration>) -> (Reading, Vec<Source>) {
        let own = Rows::of(
            &["identity", "read_only", "applied"],
            &[&[Some("2"), Some("1"), Some("0-1-7")]],
        );
        let finding = understand(Flavor::MariaDb, &own, status, heartbeat, &Rows::default());
        assert_eq!(finding.applied.as_deref(), Some(&b"0-1-7"[..]));
        let Facts::Replication(facts) = finding.facts else {
            panic!("replication")
        };
        assert!(!facts.writable);
        (finding.lag, facts.sources)
    }

    fn replicates<'a>(io: &'a str, sql: &'a str, behind: Option<&'a str>) -> [Option<&'a str>; 8] {
        [
            Some("db1"),
            Some("3306"),
            Some(io),
            Some(sql),
            behind,
            Some("1"),
            Some("0"),
            Some(""),
        ]
    }

    /// It has statements, rows and hashes in it.
    #[test]
    fn what_stopped_a_replica_is_not_told_in_the_servers_words() {
        let mut stopped = replicates("Yes", "No", None);
        stopped[7] = Some("Error 'Operation ALTER USER failed' on query. Query: 'SET PASSWORD FOR a=*F33A'");
        for (number, said) in [
            ("1396", Some("error 1396, an account is there already, or is not")),
            ("4711", Some("error 4711 (SHOW REPLICA STATUS")),
            ("0", None),
        ] {
            stopped[6] = Some(number);
            let (_, sources) = finding(&Rows::of(MARIADB_STATUS, &[&stopped]), None);
            let error = sources[0].error.as_deref();
            assert_eq!(error.is_some(), said.is_some());
            for (error, said) in error.into_iter().zip(said) {
                assert!(error.starts_with(said) && !error.contains("F33A"), "{error}");
            }
        }
    }

    #[test]
    fn a_replica_that_runs_says_how_far_it_is_behind() {
        let status = Rows::of(MARIADB_STATUS, &[&replicates("Yes", "Yes", Some("4"))]);
        let (lag, sources) = finding(&status, None);
        assert_eq!(lag, Reading::Behind(Duration::from_secs(4)));
        assert_eq!(sources[0].identity, Some(Identity("1".to_owned())));
        assert_eq!(sources[0].address.to_string(), "db1:3306");
        let (lag, _) = finding(&status, Some(Duration::from_millis(20)));
        assert_eq!(
            lag,
            Reading::Behind(Duration::from_millis(20)),
            "the heartbeat knows better"
        );
    }

    #[test]
    fn of_several_sources_the_slowest_counts_and_an_unknown_one_makes_all_unknown() {
        let rows = |second: [Option<&str>; 8]| {
            Rows::of(MARIADB_STATUS, &[&replicates("Yes", "Yes", Some("4")), &second])
        };
        assert_eq!(
            finding(&rows(replicates("Yes", "Yes", Some("9"))), None).0,
            Reading::Behind(Duration::from_secs(9))
        );
        let connecting = rows(replicates("Connecting", "Yes", None));
        assert_eq!(finding(&connecting, Some(Duration::ZERO)).0, Reading::Nothing);
        let off = rows(replicates("No", "No", None));
        assert_eq!(
            finding(&off, None).0,
            Reading::Behind(Duration::from_secs(4)),
            "one that is off is none"
        );
    }

    #[test]
    fn newer_words_and_channels_without_a_host() {
        let columns = &[
            "Source_Host",
            "Source_Port",
            "Replica_IO_Running",
            "Replica_SQL_Running",
            "Source_UUID",
        ];
        let status = Rows::of(
            columns,
            &[
                &[Some("db1"), Some("3306"), Some("Yes"), Some("No"), Some("u1")],
                &[Some(""), Some("0"), Some("Yes"), Some("Yes"), Some("")],
            ],
        );
        let own = Rows::of(
            &["identity", "read_only", "super_read_only", "applied"],
            &[&[Some("u2"), Some("0"), Some("1"), Some("")]],
        );
        let found = understand(Flavor::MySql, &own, &status, None, &Rows::default());
        let Facts::Replication(facts) = found.facts else {
            panic!("replication")
        };
        assert_eq!(facts.sources.len(), 1);
        assert!(!facts.writable, "super_read_only counts, too");
        assert_eq!(found.lag, Reading::Nothing);
        assert_eq!(found.named[0].identity, Some(Identity("u1".to_owned())));
    }
}
