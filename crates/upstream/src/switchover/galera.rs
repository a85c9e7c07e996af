//! Galera: every node takes writes, so only the gateway's choice changes.

use super::{Failure, Switchover};
use crate::topology::Role;

pub(super) async fn run(switchover: &Switchover, check_only: bool) -> Result<(), Failure> {
    let name = switchover.new.name();
    let topology = switchover.cluster.topology();
    match topology.member(switchover.new.id()) {
        Some(member) if member.role == Role::Replica => {}
        member => {
            let reason = member.map_or("it is no longer in the configuration", |member| &member.reason);
            return Err(Failure::Refused(format!(
                "{name} cannot take the writes: it {reason}"
            )));
        }
    }
    let mut node = switchover
        .client(&switchover.new)
        .await
        .map_err(Failure::Refused)?;
    if check_only {
        node.close().await;
        return Ok(());
    }
    let paused = switchover.pause().await.map_err(Failure::Undone)?;
    node.until = Some(paused.until);
    // Writes that it has not applied yet would have those of clients fail.
    let applied = async {
        node.run("SET SESSION wsrep_sync_wait = 1").await?;
        // A statement that reads no table does not wait.
        node.run("SELECT TABLE_NAME FROM information_schema.TABLES LIMIT 1")
            .await
    };
    applied.await.map_err(Failure::Undone)?;
    switchover.report.step(format!("{name} has all writes"));
    switchover.cluster.prefer_primary(switchover.new.id());
    let until = switchover.step_end().min(paused.until);
    let followed = switchover.until_followed(until).await;
    if followed.is_err() {
        switchover.cluster.prefer_primary(switchover.old.id());
    }
    drop(paused);
    node.close().await;
    switchover
        .report
        .warn("other gateways keep the writer that they have".to_owned());
    followed.map_err(Failure::Undone)
}
