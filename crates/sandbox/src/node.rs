//! One server: started, watched until it answers, asked over its socket, and ended in every way a server
//! ends.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::batch;
use crate::process::{go_on_waiting, send, stands};
use crate::program::{Flavour, Program};
use crate::template;
use crate::{Certificates, Kind, SandboxError, Spec, free_port, galera, group_replication};

/// Shortest and longest pause between two looks at a condition. The pause grows with the time of a look.
const POLL: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(100);
/// Longest path of a Unix socket on Linux, without the closing zero.
const SOCKET_PATH_MAX: usize = 107;
const LOG_LINES: usize = 40;

/// A server of the sandbox. It is ended by force when dropped.
#[derive(Debug)]
pub struct Node {
    kind: Kind,
    index: usize,
    port: u16,
    folder: PathBuf,
    socket: PathBuf,
    program: PathBuf,
    client: PathBuf,
    arguments: Vec<String>,
    /// None while the server is stopped.
    process: Mutex<Option<Child>>,
    /// Set once something was done to its process.
    harmed: AtomicBool,
}

impl Node {
    /// Makes the folder of node `index` with fresh data. `cluster_options` are what the kind of sandbox
    /// needs, before the options of the spec.
    pub(crate) fn prepare(
        spec: &Spec,
        program: &Program,
        (index, folder): (usize, &Path),
        certificates: &Certificates,
        cluster_options: &[String],
    ) -> Result<Self, SandboxError> {
        let folder = folder.join(format!("node{index}"));
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|source| SandboxError::io("remove", &folder, source))?;
        }
        fs::create_dir(&folder).map_err(|source| SandboxError::io("make folder", &folder, source))?;
        let socket = folder.join("socket");
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            let reason = "the path is too long for a socket; set TMPDIR to a shorter folder";
            return Err(SandboxError::io("use", &socket, std::io::Error::other(reason)));
        }
        template::copy_to(program, &folder.join("data"))?;
        let port = free_port()?;
        let mut arguments = vec![
            "--no-defaults".to_owned(), // must be the first
            format!("--datadir={}", folder.join("data").display()),
            format!("--socket={}", socket.display()),
            format!("--pid-file={}", folder.join("pid").display()),
            // At its start a server deletes what looks like its temporary tables, were they another server's.
            format!("--tmpdir={}", folder.display()),
            format!("--port={port}"),
            format!("--server-id={}", index + 1),
        ];
        arguments.extend(usual_options(program.flavour).map(str::to_owned));
        arguments.extend(template::user_option().map(str::to_owned));
        match (spec.tls, program.flavour) {
            (true, _) => arguments.extend(certificates.server_options()),
            (false, Flavour::Mariadb) => arguments.push("--skip-ssl".to_owned()),
            (false, Flavour::Mysql) => arguments.push("--tls-version=".to_owned()),
        }
        arguments.extend_from_slice(cluster_options);
        arguments.extend_from_slice(&spec.options);
        let (program, client) = (program.path.clone(), program.client()?);
        Ok(Self {
            kind: spec.kind,
            index,
            port,
            folder,
            socket,
            program,
            client,
            arguments,
            process: Mutex::new(None),
            harmed: AtomicBool::new(false),
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Position in the sandbox, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// `127.0.0.1:PORT`
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The Unix socket on which the server listens, too.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    #[must_use]
    pub fn data_folder(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Process id; None while the server is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Child::id)
    }

    /// The server's error log, all of it.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// Runs statements as root over the Unix socket, in the database `test`, and returns the rows: columns
    /// separated by tabs, no header, special characters escaped as the `mariadb --batch` client does.
    ///
    /// # Errors
    /// The server refused one (those before it are done), or did not answer.
    pub fn sql(&self, statements: &str) -> Result<String, SandboxError> {
        batch::run(self.client(), statements, self.index)
    }

    /// What [`sql`](Self::sql) returns on each other server of the sandbox that answers.
    pub(crate) fn ask_others(&self, statements: &str) -> Vec<String> {
        let sandbox = self.folder.parent().into_iter().flat_map(fs::read_dir).flatten();
        let folders = sandbox.flatten().map(|entry| entry.path());
        let others = folders.filter(|folder| *folder != self.folder && folder.join("socket").exists());
        others
            .filter_map(|folder| {
                let mut client = batch::client(&self.client, &folder.join("socket"));
                client.arg("--connect-timeout=2");
                batch::run(client, statements, self.index).ok()
            })
            .collect()
    }

    /// The client program as [`Node::sql`] runs it, for those who want to write statements over a longer
    /// time.
    #[must_use]
    pub fn client(&self) -> Command {
        batch::client(&self.client, &self.socket)
    }

    /// Ends the server at once, as a crash would (SIGKILL), and waits until it is gone. Does nothing when it
    /// is not running.
    pub fn kill9(&self) -> Result<(), SandboxError> {
        self.harmed.store(true, Ordering::Relaxed);
        let mut process = self.process();
        if let Some(child) = process.as_mut() {
            child
                .kill()
                .and_then(|()| child.wait())
                .map_err(|source| SandboxError::Signal {
                    node: self.index,
                    signal: "SIGKILL",
                    source,
                })?;
            *process = None;
        }
        Ok(())
    }

    /// Lets the server end in order (SIGTERM) and waits for it. Does nothing when it is not running.
    ///
    /// # Errors
    /// It did not end within 90 s; it still runs then.
    pub fn stop(&self) -> Result<(), SandboxError> {
        if self.pid().is_none() {
            return Ok(());
        }
        self.thaw()?;
        self.signal(Signal::TERM, "SIGTERM")?;
        self.wait_for("stopping", || Ok(self.ended()?.is_some()))?;
        *self.process() = None;
        Ok(())
    }

    /// Starts a server that was stopped or killed, on the same port with the same data; stops it before,
    /// where it runs. Returns when it answers and, in Galera and Group Replication, is a full member again.
    pub fn restart(&self) -> Result<(), SandboxError> {
        self.stop()?;
        match self.kind {
            Kind::Mariadb | Kind::Mysql => self.launch(&[]),
            Kind::Galera => galera::rejoin(self),
            Kind::GroupReplication => group_replication::rejoin(self),
        }
    }

    /// Stops the process where it is (SIGSTOP) and waits until it stands: connections stay open and nothing
    /// answers.
    pub fn freeze(&self) -> Result<(), SandboxError> {
        self.signal(Signal::STOP, "SIGSTOP")?;
        // A thread that runs on another core goes on for a moment, long enough to answer a query.
        self.wait_for("freezing", || Ok(self.pid().is_some_and(stands)))
    }

    /// Lets a frozen server go on (SIGCONT).
    pub fn thaw(&self) -> Result<(), SandboxError> {
        self.signal(Signal::CONT, "SIGCONT")
    }

    /// Adds options to those of every start.
    pub(crate) fn add_options(&mut self, options: impl IntoIterator<Item = String>) {
        self.arguments.extend(options);
    }

    /// Starts the process with `options` after all others and waits until it answers on its socket.
    pub(crate) fn launch(&self, options: &[String]) -> Result<(), SandboxError> {
        self.spawn(options)?;
        self.wait_until_ready()
    }

    /// Starts the process and does not wait.
    pub(crate) fn spawn(&self, options: &[String]) -> Result<(), SandboxError> {
        let path = self.log_file();
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(|source| SandboxError::io("write", &path, source))?;
        let copy = log
            .try_clone()
            .map_err(|source| SandboxError::io("write", &path, source))?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .args(options)
            .current_dir(&self.folder)
            .env("PATH", self.search_path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            .process_group(0) // Ctrl-C in the terminal is not for it
            .spawn()
            .map_err(|source| SandboxError::io("run", &self.program, source))?;
        *self.process() = Some(child);
        Ok(())
    }

    pub(crate) fn wait_until_ready(&self) -> Result<(), SandboxError> {
        self.wait_for("starting", || Ok(batch::greets(&self.socket)))
    }

    /// Looks at `condition` until it holds; fails when the server ends by itself or after 90 s.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Result<bool, SandboxError>,
    ) -> Result<(), SandboxError> {
        let begin = Instant::now();
        loop {
            let look = Instant::now();
            if condition()? {
                return Ok(());
            }
            let ended = self.ended()?;
            if ended.is_some() {
                *self.process() = None;
            }
            go_on_waiting(self.index, what, begin, ended, || self.log_end())?;
            // Some looks start a client: the machine is there for others twice as long.
            sleep((look.elapsed() * 2).clamp(POLL, POLL_MAX));
        }
    }

    /// Forgets the process without ending it.
    pub(crate) fn detach(self) {
        *self.process() = None;
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The sandbox's folder `bin` first: Galera looks there for its transfer script.
    fn search_path(&self) -> OsString {
        let mut path = self.folder.with_file_name("bin").into_os_string();
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        path
    }

    /// Whether it was stopped, killed or frozen, or is gone.
    pub(crate) fn was_harmed(&self) -> bool {
        self.harmed.load(Ordering::Relaxed) || !matches!(self.ended(), Ok(None))
    }

    pub(crate) fn empty_log(&self) -> Result<(), SandboxError> {
        let path = self.log_file();
        let emptied = File::options()
            .write(true)
            .open(&path)
            .and_then(|log| log.set_len(0));
        emptied.map_err(|source| SandboxError::io("empty", &path, source))
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Whether the process ended by itself.
    fn ended(&self) -> Result<Option<ExitStatus>, SandboxError> {
        let mut process = self.process();
        let Some(child) = process.as_mut() else {
            return Err(SandboxError::NotRunning { node: self.index });
        };
        child
            .try_wait()
            .map_err(|source| SandboxError::io("wait for", &self.program, source))
    }

    fn signal(&self, signal: Signal, name: &'static str) -> Result<(), SandboxError> {
        self.harmed.store(true, Ordering::Relaxed);
        send(self.process().as_ref(), self.index, signal, name)
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // What is still there after this, the watchdog ends.
        let _ = self.kill9();
    }
}

/// Small, quick to start, reachable from this machine only, and able to do what clients of all kinds do.
fn usual_options(flavour: Flavour) -> impl Iterator<Item = &'static str> {
    const BOTH: &[&str] = &[
        "--bind-address=127.0.0.1",
        "--log-bin=binlog",
        "--relay-log=relay",
        "--binlog-format=ROW",
        "--sync-binlog=0",
        "--innodb-flush-log-at-trx-commit=2", // a killed server loses nothing, a crashed machine may
        "--max-connections=1000",
        "--max-allowed-packet=256M",
        "--local-infile=ON",
    ];
    const MARIADB: &[&str] = &[
        "--log-slave-updates=ON",
        "--performance-schema=OFF",
        "--loose-feedback=OFF",
    ];
    const MYSQL: &[&str] = &[
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--mysqlx=OFF",
        "--performance-schema=OFF",
        "--innodb-log-buffer-size=4M",
        // The disk need not be waited for: a start takes half the time.
        "--innodb-flush-method=nosync",
    ];
    let (own, storage) = match flavour {
        Flavour::Mariadb => (MARIADB, template::MARIADB_STORAGE),
        Flavour::Mysql => (MYSQL, template::MYSQL_STORAGE),
    };
    BOTH.iter().chain(own).chain(storage).copied()
}
