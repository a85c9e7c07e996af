//! A single server, or a primary with read-only replicas that follow it by GTID.

use std::path::Path;

use crate::program::{Flavour, Program};
use crate::{Certificates, Node, PASSWORD, Sandbox, SandboxError, Spec, USER};

/// Starts the servers, none of which follows another.
pub(crate) fn start(
    spec: &Spec,
    program: &Program,
    folder: &Path,
    certificates: &Certificates,
) -> Result<Vec<Node>, SandboxError> {
    let prepare = |index| Node::prepare(spec, program, (index, folder), certificates, &[]);
    let nodes = (0..spec.nodes).map(prepare).collect::<Result<Vec<_>, _>>()?;
    nodes.iter().try_for_each(|node| node.spawn(&[]))?;
    nodes.iter().try_for_each(Node::wait_until_ready)?;
    Ok(nodes)
}

/// Has all others follow the first server, and waits until they do.
pub(crate) fn begin(sandbox: &Sandbox) -> Result<(), SandboxError> {
    let replicas = || sandbox.nodes().iter().skip(1);
    replicas().try_for_each(|replica| follow(sandbox, replica))?;
    replicas().try_for_each(|replica| replica.wait_for("replication", || runs(sandbox, replica)))
}

/// MySQL has no newer words for it before this.
const NEW_WORDS: [u32; 3] = [8, 0, 23];

fn follow(sandbox: &Sandbox, replica: &Node) -> Result<(), SandboxError> {
    let port = sandbox.primary().port();
    let statements = match sandbox.flavour() {
        Flavour::Mysql if sandbox.release() < NEW_WORDS => format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{USER}',
                 MASTER_PASSWORD='{PASSWORD}', MASTER_CONNECT_RETRY=1, MASTER_AUTO_POSITION=1, GET_MASTER_PUBLIC_KEY=1;
             START SLAVE;
             SET GLOBAL super_read_only=ON;"
        ),
        Flavour::Mariadb => format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{USER}',
                 MASTER_PASSWORD='{PASSWORD}', MASTER_CONNECT_RETRY=1, MASTER_DELAY=0, MASTER_USE_GTID=slave_pos;
             START SLAVE;
             SET GLOBAL read_only=ON;"
        ),
        Flavour::Mysql => format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='{USER}',
                 SOURCE_PASSWORD='{PASSWORD}', SOURCE_CONNECT_RETRY=1, SOURCE_DELAY=0,
                 SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1;
             START REPLICA;
             SET GLOBAL super_read_only=ON;"
        ),
    };
    replica.sql(&statements).map(drop)
}

/// Whether both threads of the replica run: the columns `Slave_IO_Running` and `Slave_SQL_Running`, which
/// MySQL has renamed and not moved.
fn runs(sandbox: &Sandbox, replica: &Node) -> Result<bool, SandboxError> {
    const RUNNING_COLUMNS: usize = 10;
    let status = match sandbox.flavour() {
        Flavour::Mysql if sandbox.release() >= NEW_WORDS => replica.sql("SHOW REPLICA STATUS")?,
        _ => replica.sql("SHOW SLAVE STATUS")?,
    };
    let running: Vec<&str> = status.split('\t').skip(RUNNING_COLUMNS).take(2).collect();
    Ok(running == ["Yes", "Yes"])
}

/// Waits until all replicas have applied what the primary has in its binary log now.
pub(crate) fn sync(nodes: &[Node]) -> Result<(), SandboxError> {
    let Some((primary, replicas)) = nodes.split_first() else {
        return Ok(());
    };
    let position = primary.position()?;
    replicas
        .iter()
        .try_for_each(|replica| replica.wait_until_applied("catching up", &position))
}
