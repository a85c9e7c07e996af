//! A Galera cluster: the first node begins it, the others join it; every node takes writes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::Program;
use crate::{Certificates, Node, SandboxError, Spec, free_port};

/// Copies the data of one node to another; see the script.
const TRANSFER_SCRIPT: &str = include_str!("wsrep_sst_forebay");
const LOCAL_STATE: &str = "SELECT variable_value FROM information_schema.global_status
     WHERE variable_name = 'wsrep_local_state_comment'";

pub(crate) fn start(
    spec: &Spec,
    program: &Program,
    folder: &Path,
    certificates: &Certificates,
) -> Result<Vec<Node>, SandboxError> {
    let provider = provider()?;
    install_transfer_script(folder)?;
    let ports = (0..spec.nodes)
        .map(|_| free_port())
        .collect::<Result<Vec<_>, _>>()?;
    let mut nodes = Vec::with_capacity(spec.nodes);
    for index in 0..spec.nodes {
        let options = member_options(&provider, &ports, index)?;
        let node = Node::prepare(spec, program, (index, folder), certificates, &options)?;
        // One after the other: a donor serves one joiner at a time, and lets others wait for seconds.
        let begin = (index == 0).then(|| "--wsrep-new-cluster".to_owned());
        node.launch(begin.as_slice())?;
        wait_until_synced(&node)?;
        nodes.push(node);
    }
    Ok(nodes)
}

/// Makes a stopped or killed node join the others again: with the position that its data have.
pub(crate) fn rejoin(node: &Node) -> Result<(), SandboxError> {
    let output = Command::new(node.program())
        .args(node.arguments())
        .arg("--wsrep-recover")
        .output()
        .map_err(|source| SandboxError::io("run", node.program(), source))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let position = text
        .lines()
        .find_map(|line| Some(line.split_once("Recovered position:")?.1.trim()));
    let options: Vec<String> = position
        .map(|position| format!("--wsrep-start-position={position}"))
        .into_iter()
        .collect();
    node.launch(&options)?;
    wait_until_synced(node)
}

/// Waits until every node has applied what the cluster had committed when it was asked.
pub(crate) fn sync(nodes: &[Node]) -> Result<(), SandboxError> {
    nodes.iter().try_for_each(|node| {
        node.sql("SET SESSION wsrep_sync_wait=1; SELECT 1 FROM DUAL")
            .map(drop)
    })
}

fn wait_until_synced(node: &Node) -> Result<(), SandboxError> {
    // Before it has joined, a node may refuse any statement.
    let synced = || node.sql(LOCAL_STATE).is_ok_and(|state| state.trim() == "Synced");
    node.wait_for("joining the cluster", || Ok(synced()))
}

fn member_options(provider: &Path, ports: &[u16], index: usize) -> Result<Vec<String>, SandboxError> {
    let members: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let own = &members[index];
    let transfer_port = free_port()?;
    Ok(vec![
        "--wsrep-on=ON".to_owned(),
        format!("--wsrep-provider={}", provider.display()),
        format!("--wsrep-cluster-address=gcomm://{}", members.join(",")),
        format!("--wsrep-node-address={own}"),
        format!("--wsrep-node-name=node{index}"),
        format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://{own};ist.recv_addr=127.0.0.1:{transfer_port};\
             gcache.size=32M"
        ),
        "--wsrep-sst-method=forebay".to_owned(),
        "--innodb-autoinc-lock-mode=2".to_owned(),
    ])
}

/// Servers look for it on their PATH, where [`Node`] puts the folder `bin`.
fn install_transfer_script(folder: &Path) -> Result<(), SandboxError> {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).map_err(|source| SandboxError::io("make folder", &bin, source))?;
    let script = bin.join("wsrep_sst_forebay");
    fs::write(&script, TRANSFER_SCRIPT)
        .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
        .map_err(|source| SandboxError::io("write", script, source))
}

fn provider() -> Result<PathBuf, SandboxError> {
    let folders = ["/usr/lib/galera", "/usr/lib64/galera", "/usr/lib64/galera-4"];
    let found = folders
        .iter()
        .map(|folder| Path::new(folder).join("libgalera_smm.so"))
        .find(|path| path.is_file());
    found.ok_or(SandboxError::Missing {
        what: "the Galera library",
        remedy: "apt-get install galera-4",
    })
}
