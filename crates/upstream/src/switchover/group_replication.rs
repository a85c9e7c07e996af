//! Group Replication: the group itself changes its primary.

use super::{Failure, Switchover};

const STATE: &str = "SELECT m.MEMBER_STATE AS state, m.MEMBER_ROLE AS role, @@global.server_uuid AS uuid, \
    @@global.group_replication_single_primary_mode AS single_primary \
    FROM performance_schema.replication_group_members m WHERE m.MEMBER_ID = @@global.server_uuid";

pub(super) async fn run(switchover: &Switchover, check_only: bool) -> Result<(), Failure> {
    let name = switchover.new.name();
    let mut member = switchover
        .client(&switchover.new)
        .await
        .map_err(Failure::Refused)?;
    let state = member.rows(STATE).await.map_err(Failure::Refused)?;
    let uuid = state.first().and_then(|row| {
        let is_secondary = row.text(&["state"])? == "ONLINE" && row.text(&["role"])? == "SECONDARY";
        let uuid = row.text(&["uuid"])?;
        (is_secondary && row.is_on(&["single_primary"])?).then_some(uuid)
    });
    let uuid = uuid.ok_or_else(|| {
        Failure::Refused(format!(
            "{name} is no secondary that is online in a group with one primary"
        ))
    })?;
    if check_only {
        member.close().await;
        return Ok(());
    }
    let paused = switchover.pause().await.map_err(Failure::Undone)?;
    let become_primary = format!("SELECT group_replication_set_as_primary('{uuid}')");
    member.until = Some(paused.until);
    let told = member.run(&become_primary).await;
    member.until = None;
    if let Err(error) = told {
        // A group that has begun goes on with it.
        let state = member.rows(STATE).await;
        let is_primary = state.is_ok_and(|state| {
            let role = state.first().and_then(|row| row.text(&["role"]));
            role.as_deref() == Some("PRIMARY")
        });
        if !is_primary {
            return Err(Failure::Failed(format!(
                "{error}; the group may still change its primary later: performance_schema.replication_group_members tells"
            )));
        }
    }
    switchover
        .report
        .step(format!("the group has made {name} its primary"));
    let followed = switchover.until_followed(switchover.step_end()).await;
    drop(paused);
    member.close().await;
    followed.map_err(Failure::Failed)
}
