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
    @@global.gtid_executed AS applied, @@global.gtid_mode AS gtid_mode, ";
/// The start tells a copy of a machine from the original, which may have everything else in common, its
/// `server_id` too.
const MARIADB: &str = "SELECT @@global.server_id AS identity, @@global.read_only AS read_only, \
    @@global.gtid_current_pos AS applied, @@global.gtid_slave_pos AS replicated, \
    (SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES \
    WHERE VARIABLE_NAME = 'WSREP_ON') AS wsrep_on, \
    UNIX_TIMESTAMP() - (SELECT VARIABLE_VALUE \
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
    let mode = own.and_then(|row| row.bytes(&["gtid_mode"]));
    let identity = own.and_then(|row| row.text(&["identity"])).map(Identity);
    let sources: Vec<Source> = status.iter().filter_map(|row| source(flavor, row)).collect();
    let named = replicas.iter().filter_map(|row| replica(flavor, row));
    let named = named.chain(sources.iter().map(|source| Named {
        address: source.address.clone(),
        identity: source.identity.clone(),
        is_present: source.receiving == Receiving::Yes,
    }));
    let writable = own.is_some() && !is_on("read_only") && !is_on("super_read_only");
    // A promoted server may keep a source that it follows no more.
    let follows = sources.iter().any(Source::is_on) || !writable && !sources.is_empty();
    // Nodes of Galera, whose kind nobody has told, may count their transactions each by itself.
    let numbers_alone = is_on("wsrep_on");
    let executed = own.and_then(|row| row.bytes(&["applied"]));
    let executed = executed.filter(|_| !numbers_alone);
    let replicated = own.and_then(|row| row.bytes(&["replicated"])).filter(|_| follows);
    Finding {
        offline: is_on("offline_mode"),
        lag: lag(&sources, status, heartbeat),
        waiting: None,
        applied: match (executed, replicated) {
            (Some(executed), Some(replicated)) => Some(of_others(executed, replicated)),
            (executed, _) => executed.map(<[u8]>::to_vec),
        },
        executed: replicated.and(executed).map(<[u8]>::to_vec),
        // MariaDB has none.
        without_gtids: mode.is_some_and(|mode| !mode.eq_ignore_ascii_case(b"ON")),
        named: named.collect(),
        host_identity: host_identity(identity.as_ref(), own),
        identity: identity.clone(),
        facts: Facts::Replication(ReplicationFacts {
            identity,
            writable,
            sources,
        }),
    }
}

/// The part of `executed` that a MariaDB follower has from its source. What the follower has written
/// itself has the next number of the domain, too, and says nothing of those of others that have it or come
/// before: they may have yet to arrive. A domain of which nothing was replicated is its own.
fn of_others(executed: &[u8], replicated: &[u8]) -> Vec<u8> {
    fn gtids(text: &[u8]) -> impl Iterator<Item = &[u8]> {
        let gtids = text.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        gtids.filter(|gtid| !gtid.is_empty())
    }
    fn domain(gtid: &[u8]) -> Option<&[u8]> {
        gtid.split(|&byte| byte == b'-').next()
    }
    let is_replicated = |gtid: &[u8]| gtids(replicated).any(|known| domain(known) == domain(gtid));
    let own = gtids(executed).filter(|gtid| !is_replicated(gtid));
    let all: Vec<&[u8]> = gtids(replicated).chain(own).collect();
    all.join(&b","[..])
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
        return Reading::Heartbeat(heartbeat);
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
            Reading::Heartbeat(Duration::from_millis(20)),
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

    /// MariaDB gives what is written on a replica the next number of the domain: the primary's transaction of
    /// that number may have yet to come.
    #[test]
    fn what_a_replica_has_written_itself_is_none_of_its_primarys() {
        let columns = &["identity", "read_only", "applied", "replicated"];
        let follows = replicates("Yes", "Yes", Some("4"));
        let stopped = replicates("No", "No", None);
        let cases: [(_, _, _, &[&[Option<&str>]], _); 6] = [
            ("1", "0-3-151", "0-1-150", &[&follows], "0-1-150"),
            ("0", "0-3-151", "0-1-150", &[&follows], "0-1-150"),
            ("1", "0-3-151", "0-1-150", &[&stopped], "0-1-150"),
            (
                "1",
                "0-3-9,1-3-7",
                "0-1-8,2-1-4",
                &[&follows],
                "0-1-8,2-1-4,1-3-7",
            ),
            ("0", "0-3-151", "0-1-150", &[&stopped], "0-3-151"),
            ("0", "0-3-151", "0-1-150", &[], "0-3-151"),
        ];
        for (read_only, executed, replicated, status, applied) in cases {
            let row = [Some("3"), Some(read_only), Some(executed), Some(replicated)];
            let own = Rows::of(columns, &[&row]);
            let status = Rows::of(MARIADB_STATUS, status);
            let found = understand(Flavor::MariaDb, &own, &status, None, &Rows::default());
            assert_eq!(found.applied.as_deref(), Some(applied.as_bytes()));
            let is_left_out = applied != executed;
            assert_eq!(found.executed.is_some(), is_left_out);
            assert!(found.executed.is_none_or(|all| all == executed.as_bytes()));
        }
    }

    #[test]
    fn nodes_of_galera_are_not_compared_by_their_numbers() {
        for (wsrep_on, applied) in [
            (Some("ON"), None),
            (Some("OFF"), Some("0-1-900")),
            (None, Some("0-1-900")),
        ] {
            let columns = &["identity", "applied", "replicated", "wsrep_on"];
            let row = [Some("1"), Some("0-1-900"), Some(""), wsrep_on];
            let own = Rows::of(columns, &[&row]);
            let found = understand(Flavor::MariaDb, &own, &Rows::default(), None, &Rows::default());
            assert_eq!(found.applied.as_deref(), applied.map(str::as_bytes));
            assert_eq!(found.executed, None);
        }
    }

    #[test]
    fn with_any_other_mode_than_on_some_transactions_have_no_gtid() {
        for (mode, without_gtids) in [
            ("ON", false),
            ("ON_PERMISSIVE", true),
            ("OFF_PERMISSIVE", true),
            ("OFF", true),
        ] {
            let own = Rows::of(&["identity", "gtid_mode"], &[&[Some("u1"), Some(mode)]]);
            let found = understand(Flavor::MySql, &own, &Rows::default(), None, &Rows::default());
            assert_eq!(found.without_gtids, without_gtids, "{mode}");
        }
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
        assert!(!found.without_gtids, "it does not say");
        assert_eq!(found.lag, Reading::Nothing);
        assert_eq!(found.named[0].identity, Some(Identity("u1".to_owned())));
    }
}
