//! Group Replication: a member's own view of its group, and what it has still to apply.

use super::{Finding, Named, PLACE, heartbeat, host_identity, optional};
use crate::conversation::{QueryError, Rows};
use crate::topology::connection::Connection;
use crate::topology::lag::Reading;
use crate::topology::observation::{Address, Facts, GroupFacts, GroupMember, Identity, MemberState};

const OWN: &str = "SELECT @@global.server_uuid AS uuid, @@global.read_only AS read_only, \
    @@global.super_read_only AS super_read_only, @@global.offline_mode AS offline_mode, \
    @@global.gtid_executed AS applied, ";
const MEMBERS: &str = "SELECT MEMBER_ID, MEMBER_HOST, MEMBER_PORT, MEMBER_STATE, MEMBER_ROLE \
    FROM performance_schema.replication_group_members";
const STATS: &str = "SELECT COUNT_TRANSACTIONS_IN_QUEUE + COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE AS waiting, \
    COUNT_TRANSACTIONS_REMOTE_APPLIED AS applied \
    FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@global.server_uuid";
/// Unknown where the plugin is not there.
const MODE: &str = "SELECT @@global.group_replication_single_primary_mode AS single_primary";

pub(super) async fn look(
    connection: &mut Connection,
    monitor: &config::Monitor,
) -> Result<Finding, QueryError> {
    let own = connection.query(&format!("{OWN}{PLACE}")).await?;
    let members = connection.query(MEMBERS).await?;
    let stats = connection.query(STATS).await?;
    let mode = optional(connection.query(MODE).await)?.unwrap_or_default();
    let heartbeat = heartbeat(connection, monitor).await?;
    let mut finding = understand(&own, &members, &stats, &mode);
    if let Some(heartbeat) = heartbeat {
        finding.lag = Reading::Heartbeat(heartbeat);
    }
    Ok(finding)
}

fn understand(own: &Rows, members: &Rows, stats: &Rows, mode: &Rows) -> Finding {
    let own = own.first();
    let uuid = own.and_then(|row| row.text(&["uuid"])).unwrap_or_default();
    let is_off = |name: &str| own.and_then(|row| row.is_on(&[name])) == Some(false);
    let view = members.iter().filter_map(|row| {
        Some(GroupMember {
            uuid: row.text(&["MEMBER_ID"])?,
            state: MemberState::parse(&row.text(&["MEMBER_STATE"])?),
            is_primary: row.text(&["MEMBER_ROLE"]).as_deref() == Some("PRIMARY"),
        })
    });
    let named = members.iter().filter_map(|row| {
        let identity = row.text(&["MEMBER_ID"]).filter(|id| *id != uuid)?;
        Some(Named {
            address: Address {
                host: row.text(&["MEMBER_HOST"])?,
                port: row.number(&["MEMBER_PORT"]).filter(|port| *port != 0)?,
            },
            identity: Some(Identity(identity)),
            is_present: row.text(&["MEMBER_STATE"]).as_deref() == Some("ONLINE"),
        })
    });
    let waiting = stats.first().and_then(|row| row.number(&["waiting"]));
    let lag = stats.first().and_then(|row| {
        Some(Reading::Backlog {
            applied: row.number(&["applied"])?,
            waiting: waiting?,
        })
    });
    let identity = Some(Identity(uuid.clone())).filter(|identity| !identity.0.is_empty());
    let view: Vec<GroupMember> = view.collect();
    let primaries = view.iter().filter(|member| member.is_primary).count();
    Finding {
        offline: own.and_then(|row| row.is_on(&["offline_mode"])) == Some(true),
        lag: lag.unwrap_or(Reading::Nothing),
        waiting,
        applied: own.and_then(|row| row.bytes(&["applied"])).map(<[u8]>::to_vec),
        executed: None,
        // No group is without.
        without_gtids: false,
        host_identity: host_identity(identity.as_ref(), own),
        identity,
        named: named.collect(),
        facts: Facts::Group(GroupFacts {
            uuid,
            writable: is_off("read_only") && is_off("super_read_only"),
            single_primary: mode
                .first()
                .and_then(|row| row.is_on(&["single_primary"]))
                .unwrap_or(primaries <= 1),
            view,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_tells_its_view() {
        let own = Rows::of(
            &["uuid", "read_only", "super_read_only", "applied"],
            &[&[Some("b"), Some("1"), Some("1"), Some("g:1-7")]],
        );
        let columns = &[
            "MEMBER_ID",
            "MEMBER_HOST",
            "MEMBER_PORT",
            "MEMBER_STATE",
            "MEMBER_ROLE",
        ];
        let members = Rows::of(
            columns,
            &[
                &[
                    Some("a"),
                    Some("db1"),
                    Some("3306"),
                    Some("ONLINE"),
                    Some("PRIMARY"),
                ],
                &[
                    Some("b"),
                    Some("db2"),
                    Some("3306"),
                    Some("ONLINE"),
                    Some("SECONDARY"),
                ],
                &[
                    Some("c"),
                    Some("db3"),
                    Some("3306"),
                    Some("UNREACHABLE"),
                    Some("SECONDARY"),
                ],
            ],
        );
        let stats = Rows::of(&["waiting", "applied"], &[&[Some("3"), Some("40")]]);
        let mode = Rows::of(&["single_primary"], &[&[Some("1")]]);
        let finding = understand(&own, &members, &stats, &mode);
        assert_eq!(
            finding.lag,
            Reading::Backlog {
                applied: 40,
                waiting: 3
            }
        );
        assert_eq!(finding.waiting, Some(3));
        let named: Vec<String> = finding
            .named
            .iter()
            .map(|named| named.address.to_string())
            .collect();
        assert_eq!(named, ["db1:3306", "db3:3306"], "the others");
        let Facts::Group(facts) = finding.facts else {
            panic!("a group")
        };
        assert!(!facts.writable && facts.single_primary && facts.view[0].is_primary);
        assert_eq!(facts.view[2].state, MemberState::Unreachable);
    }

    #[test]
    fn a_server_in_no_group_has_no_view() {
        let own = Rows::of(
            &["uuid", "read_only", "super_read_only"],
            &[&[Some("b"), Some("0"), Some("0")]],
        );
        // What the table shows where the plugin is loaded and was never started.
        let columns = &[
            "MEMBER_ID",
            "MEMBER_HOST",
            "MEMBER_PORT",
            "MEMBER_STATE",
            "MEMBER_ROLE",
        ];
        let members = Rows::of(columns, &[&[Some(""), Some(""), None, Some("OFFLINE"), Some("")]]);
        let finding = understand(&own, &members, &Rows::default(), &Rows::default());
        let Facts::Group(facts) = finding.facts else {
            panic!("a group")
        };
        assert_eq!((facts.view.len(), finding.named.len()), (0, 0));
        assert_eq!(finding.lag, Reading::Nothing);
    }
}
