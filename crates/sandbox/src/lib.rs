//! Real MySQL-compatible servers on loopback: for the demo, the end-to-end tests, the lab, and for anybody
//! who wants to try Forebay (`forebay sandbox up`).
//!
//! [`Sandbox::start`] brings up one server or a cluster of them in a folder of its own, on free ports of
//! 127.0.0.1, and returns when all of them answer and, where there is replication, when it runs. Dropping the
//! sandbox kills the servers and removes the folder; so does the death of this process, however it comes
//! (see `watchdog`). [`Sandbox::detach`] leaves them running.
//!
//! Accounts: `root` without a password over the Unix socket of a node ([`Node::sql`] uses it), and
//! [`USER`]/[`PASSWORD`] with all privileges from anywhere, with the server's default authentication plugin:
//! `mysql_native_password` on MariaDB, `caching_sha2_password` on MySQL. There is an empty database `test`.
//!
//! The programs come from the machine: MariaDB from the distribution, MySQL from `script/lib/mysql9`, or
//! where `FOREBAY_MARIADBD` and `FOREBAY_MYSQLD` point. The interface blocks; call it from a thread that may.
//!
//! Not for production: servers flush lazily, so a crash of the machine (not of a server) loses data.

mod batch;
mod certificates;
pub mod cli;
mod disk;
mod error;
mod etcd;
mod failover;
mod galera;
mod group_replication;
mod lent;
mod node;
mod port;
mod process;
mod program;
mod replication;
mod template;
mod tidb;
mod watchdog;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use certificates::Certificates;
pub use error::SandboxError;
pub use etcd::Etcd;
pub use lent::Lent;
pub use node::Node;
pub use port::free_port;
pub use process::stands;
pub use program::{Kind, mariadb_11, mysql_8, mysql_program};
pub use tidb::Tidb;

use program::{Flavour, Program};
use watchdog::Watchdog;

/// The account with all privileges that every server of a sandbox has, from any host. On MariaDB it does not
/// have READ ONLY ADMIN, so that a replica refuses its writes.
pub const USER: &str = "forebay";
pub const PASSWORD: &str = "forebay";
/// The empty database that every server of a sandbox starts with.
pub const DATABASE: &str = "test";

/// How long a server may take to start or to stop, and replication to begin. Far above what either needs,
/// since a busy machine is no failure.
const PATIENCE: Duration = Duration::from_secs(90);
/// Most nodes that one sandbox starts: what Group Replication allows.
const NODES_MAX: usize = 9;
/// How often ports are chosen anew when another program took one in between.
const PORT_ATTEMPTS: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub kind: Kind,
    /// 1 to 9. With several, [`Kind::Mariadb`] and [`Kind::Mysql`] replicate by GTID from the first to the
    /// others, which are read-only.
    pub nodes: usize,
    /// Server options given to every node after the sandbox's own, so that they win: `--max-connections=10`.
    pub options: Vec<String>,
    /// Whether the servers offer TLS (they never require it). Default: yes.
    pub tls: bool,
    /// The server program, where it is not the one that [`Kind`] finds.
    pub program: Option<PathBuf>,
    /// The folder in which the sandbox makes its own; the system's folder for temporary files by default.
    pub dir: Option<PathBuf>,
}

impl Spec {
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            nodes: 1,
            options: Vec::new(),
            tls: true,
            program: None,
            dir: None,
        }
    }

    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Adds a server option, with its dashes, for all nodes.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }
}

/// Running servers. Dropping it ends them and removes all they wrote.
#[derive(Debug)]
pub struct Sandbox {
    kind: Kind,
    flavour: Flavour,
    version: String,
    release: [u32; 3],
    // Declared, and so dropped, in the order in which they must go: servers, then the watchdog that would end
    // them, then the folder.
    nodes: Vec<Node>,
    watchdog: Watchdog,
    certificates: Certificates,
    folder: tempfile::TempDir,
}

impl Sandbox {
    /// Starts what `spec` says and waits until all of it works.
    ///
    /// # Errors
    /// A program is missing (the message says how to get it), or a server did not start (the message ends
    /// with the last lines of its log). Nothing is left behind.
    pub fn start(spec: Spec) -> Result<Self, SandboxError> {
        let sandbox = Self::start_apart(&spec)?;
        sandbox.replicate()?;
        Ok(sandbox)
    }

    /// Starts the servers; those that replicate are not told to yet.
    fn start_apart(spec: &Spec) -> Result<Self, SandboxError> {
        if spec.nodes == 0 || spec.nodes > NODES_MAX {
            return Err(SandboxError::Nodes {
                asked: spec.nodes,
                max: NODES_MAX,
            });
        }
        let program = match &spec.program {
            Some(path) => Program::inspect(path)?,
            None => Program::find(spec.kind)?,
        };
        let folder = make_folder(spec.dir.as_deref())?;
        let watchdog = Watchdog::start(folder.path())?;
        let certificates = Certificates::make(folder.path())?;
        let nodes = start_nodes(spec, &program, folder.path(), &certificates)?;
        Ok(Self {
            kind: spec.kind,
            flavour: program.flavour,
            release: program.release(),
            version: program.version,
            nodes,
            watchdog,
            certificates,
            folder,
        })
    }

    /// Has the replicas follow the primary. Nodes of Galera and of Group Replication have found together when
    /// they are started.
    fn replicate(&self) -> Result<(), SandboxError> {
        match self.kind {
            Kind::Mariadb | Kind::Mysql => replication::begin(self),
            Kind::Galera | Kind::GroupReplication => Ok(()),
        }
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Version of the server program as it prints it: `10.11.19-MariaDB-0+deb12u1`, `9.7.4-2`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The numbers of the version: `[10, 11, 19]`, `[8, 0, 33]`.
    #[must_use]
    pub fn release(&self) -> [u32; 3] {
        self.release
    }

    /// All nodes; the first is the primary where there is one.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// # Panics
    /// When there is no such node: the caller wrote the number of nodes in the [`Spec`].
    #[must_use]
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// The first node: where writes go.
    #[must_use]
    pub fn primary(&self) -> &Node {
        &self.nodes[0]
    }

    /// `127.0.0.1:PORT` of every node, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(Node::address).collect()
    }

    /// The folder with everything of this sandbox. Callers may put files there; they go with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The CA that signed the servers' certificates, a server certificate and a client certificate.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// PEM file of the CA that signed the servers' certificates.
    #[must_use]
    pub fn ca_file(&self) -> &Path {
        &self.certificates.ca
    }

    /// Waits until all replicas have what the primary has committed by now.
    ///
    /// # Errors
    /// A node does not answer, or a replica is further behind than 90 s.
    pub fn sync(&self) -> Result<(), SandboxError> {
        match self.kind {
            Kind::Mariadb | Kind::Mysql | Kind::GroupReplication => replication::sync(&self.nodes),
            Kind::Galera => galera::sync(&self.nodes),
        }
    }

    /// Leaves the servers running after this process ends, and returns their folder. Whoever calls this has
    /// to see to their end, as [`cli`] does.
    #[must_use]
    pub fn detach(self) -> PathBuf {
        let Self {
            nodes,
            watchdog,
            folder,
            ..
        } = self;
        nodes.into_iter().for_each(Node::detach);
        watchdog.dismiss();
        folder.keep()
    }
}

fn start_nodes(
    spec: &Spec,
    program: &Program,
    folder: &Path,
    certificates: &Certificates,
) -> Result<Vec<Node>, SandboxError> {
    let start = match spec.kind {
        Kind::Mariadb | Kind::Mysql => replication::start,
        Kind::Galera => galera::start,
        Kind::GroupReplication => group_replication::start,
    };
    again_where_ports_are_taken(|| start(spec, program, folder, certificates))
}

/// Begins anew, on other ports, when another program took one between its choice and its use.
fn again_where_ports_are_taken<T>(start: impl Fn() -> Result<T, SandboxError>) -> Result<T, SandboxError> {
    let mut attempt = 1;
    loop {
        match start() {
            Err(error) if error.is_taken_port() && attempt < PORT_ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

fn make_folder(parent: Option<&Path>) -> Result<tempfile::TempDir, SandboxError> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
    tempfile::Builder::new()
        .prefix("forebay-")
        .permissions(Permissions::from_mode(0o700)) // root has no password on the sockets in it
        .tempdir_in(&parent)
        .map_err(|source| SandboxError::io("make a folder in", &parent, source))
}
