//! Galera: what a node says of itself and of its cluster. Only `SHOW`: a node that is not ready refuses
//! `SELECT`.

use mysql_wire::gtid::Flavor;

use super::{Finding, Named, optional};
use crate::conversation::{QueryError, Rows, is_off};
use crate::topology::connection::Connection;
use crate::topology::lag::Reading;
use crate::topology::observation::{Address, Facts, GaleraFacts, HostIdentity, Identity, NodeState};

const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status', \
    'wsrep_local_state', 'wsrep_local_index', 'wsrep_cluster_state_uuid', 'wsrep_cluster_conf_id', \
    'wsrep_cluster_size', 'wsrep_gcomm_uuid', 'wsrep_local_recv_queue', 'wsrep_last_committed', 'wsrep_incoming_addresses')";
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', \
    'offline_mode', 'wsrep_desync', 'wsrep_reject_queries', 'wsrep_gtid_mode', 'pxc_maint_mode')";

pub(super) async fn look(connection: &mut Connection) -> Result<Finding, QueryError> {
    let status = connection.query(STATUS).await?;
    let variables = connection.query(VARIABLES).await?;
    let mut finding = understand(&status, &variables);
    if let Some(applied) = match connection.flavor {
        // Without it every node counts its transactions by itself.
        Flavor::MariaDb if !is_on(&variables, "wsrep_gtid_mode") => None,
        Flavor::MariaDb => Some("SELECT @@global.gtid_current_pos AS applied"),
        Flavor::MySql => Some("SELECT @@global.gtid_executed AS applied"),
    } {
        let rows = optional(connection.query(applied).await)?;
        finding.applied = rows.and_then(|rows| rows.first()?.bytes(&["applied"]).map(<[u8]>::to_vec));
    }
    Ok(finding)
}

fn is_on(variables: &Rows, name: &str) -> bool {
    variables
        .value_of(name)
        .is_some_and(|value| !is_off(value.as_bytes()))
}

fn understand(status: &Rows, variables: &Rows) -> Finding {
    let number = |name: &str| status.value_of(name)?.parse::<u64>().ok();
    let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
    let closed = [("wsrep_reject_queries", "NONE"), ("pxc_maint_mode", "DISABLED")]
        .into_iter()
        .find_map(|(name, open)| {
            let value = variables
                .value_of(name)
                .filter(|value| !value.eq_ignore_ascii_case(open))?;
            Some(format!("{name} = {value}"))
        });
    let addresses = status.value_of("wsrep_incoming_addresses").unwrap_or_default();
    // Nodes of a cluster may have the same `server_id`; this one a node gets when it joins.
    let identity = status
        .value_of("wsrep_gcomm_uuid")
        .filter(|uuid| uuid.bytes().any(|byte| !matches!(byte, b'0' | b'-')));
    Finding {
        offline: is_on(variables, "offline_mode"),
        waiting: number("wsrep_local_recv_queue"),
        lag: match (number("wsrep_last_committed"), number("wsrep_local_recv_queue")) {
            (Some(applied), Some(waiting)) => Reading::Backlog { applied, waiting },
            _ => Reading::Nothing,
        },
        applied: None,
        executed: None,
        without_gtids: false,
        host_identity: identity.clone().map(HostIdentity),
        identity: identity.map(Identity),
        named: addresses.split(',').filter_map(named).collect(),
        facts: Facts::Galera(GaleraFacts {
            ready: is_on(status, "wsrep_ready"),
            in_primary_component: status.value_of("wsrep_cluster_status").as_deref() == Some("Primary"),
            state: small("wsrep_local_state").map_or(NodeState::Other, NodeState::of),
            desynced: is_on(variables, "wsrep_desync"),
            writable: !is_on(variables, "read_only") && !is_on(variables, "super_read_only"),
            closed,
            index: small("wsrep_local_index").unwrap_or(u32::MAX),
            component: (
                status.value_of("wsrep_cluster_state_uuid").unwrap_or_default(),
                number("wsrep_cluster_conf_id").unwrap_or(0),
            ),
            size: small("wsrep_cluster_size").unwrap_or(0),
        }),
    }
}

/// `AUTO` and nothing at all are nodes that do not know how they are reached.
fn named(address: &str) -> Option<Named> {
    let (host, port) = address.trim().rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(Named {
        address: Address {
            host: Some(host).filter(|host| !host.is_empty())?.to_owned(),
            port: port.parse().ok().filter(|port| *port != 0)?,
        },
        identity: None,
        is_present: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(changes: &[(&str, &str)]) -> Finding {
        let mut values = vec![
            ("wsrep_ready", "ON"),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_local_state", "4"),
            ("wsrep_local_index", "1"),
            ("wsrep_cluster_state_uuid", "u"),
            ("wsrep_cluster_conf_id", "7"),
            ("wsrep_cluster_size", "3"),
            ("wsrep_local_recv_queue", "0"),
            ("wsrep_last_committed", "12"),
            ("wsrep_incoming_addresses", "db1:3306,AUTO,,[::1]:3307,10.0.0.9:0"),
            ("read_only", "OFF"),
            ("wsrep_reject_queries", "NONE"),
        ];
        for (name, value) in changes {
            values.retain(|(known, _)| known != name);
            values.push((name, value));
        }
        let rows: Vec<[Option<&str>; 2]> = values
            .iter()
            .map(|(name, value)| [Some(*name), Some(*value)])
            .collect();
        let rows: Vec<&[Option<&str>]> = rows.iter().map(|row| &row[..]).collect();
        let rows = Rows::of(&["Variable_name", "Value"], &rows);
        understand(&rows, &rows)
    }

    fn facts(changes: &[(&str, &str)]) -> GaleraFacts {
        let Facts::Galera(facts) = status(changes).facts else {
            panic!("galera")
        };
        facts
    }

    #[test]
    fn a_node_tells_what_it_is() {
        let well = facts(&[]);
        assert_eq!(
            (well.index, well.size, &well.component),
            (1, 3, &("u".to_owned(), 7))
        );
        assert!(well.ready && well.in_primary_component && well.writable && well.closed.is_none());
        assert_eq!(well.state, NodeState::Synced);
        assert!(!facts(&[("read_only", "ON")]).writable);
        assert!(!facts(&[("wsrep_ready", "OFF")]).ready);
        assert!(!facts(&[("wsrep_cluster_status", "non-Primary")]).in_primary_component);
        let closed = facts(&[("wsrep_reject_queries", "ALL")]).closed;
        assert_eq!(closed.as_deref(), Some("wsrep_reject_queries = ALL"));
        let closed = facts(&[("pxc_maint_mode", "MAINTENANCE")]).closed;
        assert_eq!(closed.as_deref(), Some("pxc_maint_mode = MAINTENANCE"));
    }

    #[test]
    fn addresses_are_those_that_can_be_connected_to() {
        let named: Vec<String> = status(&[])
            .named
            .iter()
            .map(|named| named.address.to_string())
            .collect();
        assert_eq!(named, ["db1:3306", "::1:3307"]);
    }

    #[test]
    fn a_server_without_galera_is_nothing() {
        let Facts::Galera(facts) = understand(&Rows::default(), &Rows::default()).facts else {
            panic!("galera")
        };
        assert!(!facts.ready && !facts.in_primary_component);
    }
}
