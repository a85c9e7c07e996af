//! MySQL Group Replication, single-primary: the first node begins the group, the others join it.

use std::path::Path;

use crate::program::Program;
use crate::{Certificates, Node, PASSWORD, SandboxError, Spec, USER};

/// Any valid UUID; groups of different sandboxes never meet.
const GROUP_NAME: &str = "f0bebae0-0000-4000-8000-000000000001";
const MEMBER_STATE: &str = "SELECT member_state FROM performance_schema.replication_group_members
     WHERE member_id = @@server_uuid";

pub(crate) fn start(
    spec: &Spec,
    program: &Program,
    folder: &Path,
    certificates: &Certificates,
) -> Result<Vec<Node>, SandboxError> {
    let prepare = |index| Node::prepare(spec, program, (index, folder), certificates, &member_options());
    let mut nodes = (0..spec.nodes).map(prepare).collect::<Result<Vec<_>, _>>()?;
    let seeds = nodes.iter().map(Node::address).collect::<Vec<_>>().join(",");
    for node in &mut nodes {
        let address = format!("--loose-group-replication-local-address={}", node.address());
        node.add_options([address, format!("--loose-group-replication-group-seeds={seeds}")]);
        node.spawn(&[])?;
    }
    for (index, node) in nodes.iter().enumerate() {
        node.wait_until_ready()?;
        node.sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_USER='{USER}', SOURCE_PASSWORD='{PASSWORD}'
                 FOR CHANNEL 'group_replication_recovery'"
        ))?;
        join(node, index == 0)?;
    }
    Ok(nodes)
}

/// Starts a stopped or killed node, which joins the others again; they must still be a majority.
pub(crate) fn rejoin(node: &Node) -> Result<(), SandboxError> {
    node.launch(&[])?;
    // Its attempts to join would look to the others like signs of life of the member that it was.
    let its_state = format!(
        "SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = '{}'",
        node.sql("SELECT @@server_uuid")?.trim()
    );
    node.wait_for("the group to expel the member that it was", || {
        Ok(node.ask_others(&its_state).iter().all(String::is_empty))
    })?;
    join(node, false)
}

/// Starts Group Replication on a running server and waits until it is a full member. A group that is just
/// about to expel the member's former life refuses it, and takes it a moment later.
fn join(node: &Node, first: bool) -> Result<(), SandboxError> {
    let start = if first {
        "SET GLOBAL group_replication_bootstrap_group=ON;
         START GROUP_REPLICATION;
         SET GLOBAL group_replication_bootstrap_group=OFF;"
    } else {
        "START GROUP_REPLICATION"
    };
    let mut refused = None;
    let started = node.wait_for("starting Group Replication", || match node.sql(start) {
        Err(error @ SandboxError::Sql { .. }) => {
            refused = Some(error);
            Ok(false)
        }
        done => done.map(|_| true),
    });
    started.map_err(|error| refused.unwrap_or(error))?;
    node.wait_for("joining the group", || {
        Ok(node.sql(MEMBER_STATE)?.trim() == "ONLINE")
    })
}

/// Members speak over the servers' own ports (communication stack MYSQL), so that no further one can be
/// taken. A dead one is expelled as soon as it is unreachable, which takes 5 s. With the server's own setting
/// of 5 s more it takes 20: it looks for members whose time is over four times a minute.
fn member_options() -> Vec<String> {
    [
        "--plugin-load-add=group_replication.so",
        "--performance-schema=ON", // the state of the members is to be read nowhere else
        "--report-host=127.0.0.1",
        "--loose-group-replication-communication-stack=MYSQL",
        "--loose-group-replication-member-expel-timeout=0",
        "--loose-group-replication-start-on-boot=OFF",
        "--loose-group-replication-recovery-get-public-key=ON",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([format!("--loose-group-replication-group-name={GROUP_NAME}")])
    .collect()
}
