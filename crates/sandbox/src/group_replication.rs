//! MySQL Group Replication, single-primary: the first node begins the group, the others join it.

use std::path::Path;

use crate::program::Program;
use crate::{Certificates, Kind, Node, PASSWORD, SandboxError, Spec, USER, free_port, replication};

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
    let ports = (0..spec.nodes)
        .map(|_| free_port())
        .collect::<Result<Vec<_>, _>>()?;
    let seeds: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let mut nodes = Vec::with_capacity(spec.nodes);
    for (index, own) in seeds.iter().enumerate() {
        let options = member_options(own, &seeds.join(","));
        let node = Node::prepare(spec, program, (index, folder), certificates, &options)?;
        node.spawn(&[])?;
        nodes.push(node);
    }
    for node in &nodes {
        node.wait_until_ready()?;
        node.sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_USER='{USER}', SOURCE_PASSWORD='{PASSWORD}'
                 FOR CHANNEL 'group_replication_recovery'"
        ))?;
    }
    for (index, node) in nodes.iter().enumerate() {
        join(node, index == 0)?;
    }
    Ok(nodes)
}

/// Starts Group Replication on a running server and waits until it is a full member.
fn join(node: &Node, first: bool) -> Result<(), SandboxError> {
    let statements = if first {
        "SET GLOBAL group_replication_bootstrap_group=ON;
         START GROUP_REPLICATION;
         SET GLOBAL group_replication_bootstrap_group=OFF;"
    } else {
        "START GROUP_REPLICATION"
    };
    node.sql(statements)?;
    node.wait_for("joining the group", || {
        Ok(node.sql(MEMBER_STATE)?.trim() == "ONLINE")
    })
}

/// What [`Node::restart`] has to do once the server answers again: the others must still be a majority.
pub(crate) fn rejoin(node: &Node) -> Result<(), SandboxError> {
    join(node, false)
}

pub(crate) fn sync(nodes: &[Node]) -> Result<(), SandboxError> {
    replication::sync(Kind::Mysql, nodes)
}

fn member_options(own: &str, seeds: &str) -> Vec<String> {
    vec![
        "--plugin-load-add=group_replication.so".to_owned(),
        "--performance-schema=ON".to_owned(), // the state of the members is to be read nowhere else
        "--report-host=127.0.0.1".to_owned(),
        format!("--loose-group-replication-group-name={GROUP_NAME}"),
        format!("--loose-group-replication-local-address={own}"),
        format!("--loose-group-replication-group-seeds={seeds}"),
        "--loose-group-replication-start-on-boot=OFF".to_owned(),
        "--loose-group-replication-recovery-get-public-key=ON".to_owned(),
        "--loose-group-replication-unreachable-majority-timeout=10".to_owned(),
    ]
}
