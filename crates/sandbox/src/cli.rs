//! `forebay sandbox up|down|status`: servers that stay until they are told to go.
//!
//! What runs is noted in a file below `$XDG_RUNTIME_DIR`, or `/tmp/forebay-sandbox-UID` where there is none.
//! Several sandboxes may be up at once; `down` ends all of them, or the one that has a server at an address.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde::{Deserialize, Serialize};

use crate::program::from_environment;
use crate::{Kind, PASSWORD, Sandbox, SandboxError, Spec, USER};

/// Prints a line. Not `println!`, which panics when whoever reads has gone: servers would be left half noted.
macro_rules! say {
    ($($line:tt)*) => {{
        let _ = writeln!(io::stdout(), $($line)*);
    }};
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Command {
    Up { kind: Kind, nodes: usize },
    Down { address: Option<String> },
    Status,
}

/// How long a server may take to be gone after SIGKILL.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// One sandbox that was left running.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    kind: Kind,
    version: String,
    folder: PathBuf,
    nodes: Vec<NodeEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct NodeEntry {
    pid: u32,
    port: u16,
    socket: PathBuf,
}

/// Runs a command; prints to standard output what a person wants to know.
pub fn run(command: Command) -> Result<(), SandboxError> {
    let state = StateFile::open()?;
    match command {
        Command::Up { kind, nodes } => up(&state, kind, nodes),
        Command::Down { address } => down(&state, address.as_deref()),
        Command::Status => status(&state),
    }
}

fn up(state: &StateFile, kind: Kind, nodes: usize) -> Result<(), SandboxError> {
    say!(
        "Starting {nodes} {kind} server{} ...",
        if nodes == 1 { "" } else { "s" }
    );
    let sandbox = Sandbox::start(Spec::new(kind).nodes(nodes))?;
    let entry = Entry {
        kind,
        version: sandbox.version().to_owned(),
        folder: sandbox.folder().to_path_buf(),
        nodes: sandbox.nodes().iter().filter_map(NodeEntry::of).collect(),
    };
    let mut entries = state.read()?;
    entries.push(entry);
    state.write(&entries)?; // before the servers are let go: a failure here ends them
    let folder = sandbox.detach();

    let begun = &entries[entries.len() - 1..];
    print_table(begun);
    let nodes = &begun[0].nodes;
    let servers: Vec<String> = nodes
        .iter()
        .map(|node| format!("\"127.0.0.1:{}\"", node.port))
        .collect();
    let port = nodes[0].port;
    say!();
    say!(
        "Connect:    mariadb --skip-ssl --host=127.0.0.1 --port={port} --user={USER} --password={PASSWORD} test"
    );
    say!(
        "As root:    mariadb --socket={} --user=root    (others: node1, ...; on MariaDB {USER} may not change read_only)",
        nodes[0].socket.display()
    );
    say!("For Forebay: servers = [{}]", servers.join(", "));
    say!(
        "Files:      {} (certificates: ca.pem; logs: node*/log)",
        folder.display()
    );
    say!("Stop:       forebay sandbox down 127.0.0.1:{port}    (without the address: all that are up)");
    Ok(())
}

fn down(state: &StateFile, address: Option<&str>) -> Result<(), SandboxError> {
    let meant = |entry: &Entry| address.is_none_or(|address| entry.has(address));
    let (entries, others): (Vec<Entry>, Vec<Entry>) = state.read()?.into_iter().partition(meant);
    match address {
        Some(address) if entries.is_empty() => {
            return Err(SandboxError::State(format!(
                "no sandbox has a server at {address}; `forebay sandbox status` lists them"
            )));
        }
        None if entries.is_empty() => say!("No sandbox is up."),
        _ => {}
    }
    for entry in &entries {
        let running: Vec<&NodeEntry> = entry
            .nodes
            .iter()
            .filter(|node| node.runs_in(&entry.folder))
            .collect();
        running.iter().for_each(|node| node.kill());
        running.iter().try_for_each(|node| wait_until_gone(node.pid))?;
        if entry.folder.exists() {
            fs::remove_dir_all(&entry.folder)
                .map_err(|source| SandboxError::io("remove", &entry.folder, source))?;
        }
        say!("Stopped {} {} server(s).", entry.nodes.len(), entry.kind);
    }
    match others.as_slice() {
        [] => state.remove(),
        others => state.write(others),
    }
}

fn status(state: &StateFile) -> Result<(), SandboxError> {
    let entries = state.read()?;
    if entries.is_empty() {
        say!("No sandbox is up. Start one: forebay sandbox up --kind mariadb --nodes 3");
    } else {
        print_table(&entries);
    }
    Ok(())
}

fn print_table(entries: &[Entry]) {
    say!(
        "{:<18} {:<30} {:>4}  {:<22} {:>8}  STATE",
        "KIND",
        "VERSION",
        "NODE",
        "ADDRESS",
        "PID"
    );
    for entry in entries {
        for (index, node) in entry.nodes.iter().enumerate() {
            let address = format!("127.0.0.1:{}", node.port);
            let state = if node.runs_in(&entry.folder) {
                "running"
            } else {
                "gone"
            };
            let (kind, version) = (entry.kind.name(), &entry.version);
            say!(
                "{kind:<18} {version:<30} {index:>4}  {address:<22} {:>8}  {state}",
                node.pid
            );
        }
    }
}

fn wait_until_gone(pid: u32) -> Result<(), SandboxError> {
    let begin = Instant::now();
    while !is_gone(pid) {
        if begin.elapsed() > KILL_PATIENCE {
            return Err(SandboxError::State(format!(
                "the server with process id {pid} does not end"
            )));
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whether a killed process has let go of all it had: it is not there, or is one thread that waits for its
/// parent.
fn is_gone(pid: u32) -> bool {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let Ok(status) = fs::read_to_string(folder.join("stat")) else {
        return true;
    };
    let waits = status
        .rsplit_once(')')
        .is_some_and(|(_, state)| state.trim_start().starts_with('Z'));
    waits && fs::read_dir(folder.join("task")).map_or(0, Iterator::count) <= 1
}

impl Entry {
    /// Whether one of its servers is at this address.
    fn has(&self, address: &str) -> bool {
        let mut addresses = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        addresses.any(|own| own == address)
    }
}

impl NodeEntry {
    fn of(node: &crate::Node) -> Option<Self> {
        Some(Self {
            pid: node.pid()?,
            port: node.port(),
            socket: node.socket().to_path_buf(),
        })
    }

    /// Whether the process is still that server: its id may have passed to another one since.
    fn runs_in(&self, folder: &Path) -> bool {
        let arguments = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let wanted = format!("--datadir={}/", folder.display());
        arguments
            .split(|byte| *byte == 0)
            .any(|argument| argument.starts_with(wanted.as_bytes()))
    }

    fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.pid.cast_signed()) {
            // Gone already is as good; anything else shows in the wait that follows.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The list of what is up. Locked while a command runs, so that two at a time do not lose an entry.
struct StateFile {
    path: PathBuf,
    _lock: fs::File,
}

impl StateFile {
    fn open() -> Result<Self, SandboxError> {
        let folder = runtime_folder()?;
        let lock_path = folder.join("sandbox.lock");
        let lock =
            fs::File::create(&lock_path).map_err(|error| SandboxError::io("create", &lock_path, error))?;
        lock.lock()
            .map_err(|error| SandboxError::io("lock", &lock_path, error))?;
        Ok(Self {
            path: folder.join("sandbox.json"),
            _lock: lock,
        })
    }

    fn read(&self) -> Result<Vec<Entry>, SandboxError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(SandboxError::io("read", &self.path, error)),
        };
        serde_json::from_str(&text).map_err(|error| SandboxError::io("understand", &self.path, error.into()))
    }

    fn write(&self, entries: &[Entry]) -> Result<(), SandboxError> {
        let text = serde_json::to_string_pretty(entries);
        let text = text.map_err(|error| SandboxError::io("write", &self.path, error.into()))?;
        let unfinished = self.path.with_extension("new");
        fs::write(&unfinished, text).map_err(|error| SandboxError::io("write", &unfinished, error))?;
        fs::rename(&unfinished, &self.path).map_err(|error| SandboxError::io("write", &self.path, error))
    }

    fn remove(&self) -> Result<(), SandboxError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SandboxError::io("remove", &self.path, error))
            }
            _ => Ok(()),
        }
    }
}

/// A folder that belongs to this user alone. The one in `/tmp` has a name that others can foresee, so its
/// owner is looked at.
fn runtime_folder() -> Result<PathBuf, SandboxError> {
    let user = geteuid().as_raw();
    let folder = match from_environment("XDG_RUNTIME_DIR") {
        Some(folder) => folder.join("forebay"),
        None => PathBuf::from(format!("/tmp/forebay-sandbox-{user}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(SandboxError::io("make folder", &folder, error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&folder).map_err(|error| SandboxError::io("look at", &folder, error))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        let reason = "it does not belong to this user alone";
        return Err(SandboxError::io("use", &folder, io::Error::other(reason)));
    }
    Ok(folder)
}
