//! One TiDB server with its data in a folder of its own (`unistore`): no cluster, since nobody else may open
//! that folder.
//!
//! Not a [`Kind`](crate::Kind): no release of it comes with a distribution, it takes minutes to build, and it
//! has neither replication nor what else a sandbox of servers is about. `script/lib/tidb` builds it,
//! `FOREBAY_TIDB` names another one.
//!
//! Accounts as everywhere: `root` without a password over the socket, [`USER`]/[`PASSWORD`] with all
//! privileges from anywhere, by `mysql_native_password`. There is an empty database `test`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::batch;
use crate::process::{go_on_waiting, send};
use crate::program::{client_of_machine, fetched, from_environment};
use crate::watchdog::Watchdog;
use crate::{
    Certificates, PASSWORD, SandboxError, USER, again_where_ports_are_taken, free_port, make_folder,
};

/// How often it is looked whether it greets.
const POLL: Duration = Duration::from_millis(10);

/// A running server. Dropping it ends it and removes what it wrote.
#[derive(Debug)]
pub struct Tidb {
    process: Child,
    port: u16,
    status_port: u16,
    socket: PathBuf,
    client: PathBuf,
    certificates: Certificates,
    // Dropped after the server, in this order.
    _watchdog: Watchdog,
    folder: tempfile::TempDir,
}

impl Tidb {
    /// Starts a server with these lines in front of its configuration file, and waits until it greets. It
    /// offers TLS.
    ///
    /// # Errors
    /// It was not built (the message says how to), or did not start (the message ends with its log).
    pub fn start(configuration: &str) -> Result<Self, SandboxError> {
        let program = program()?;
        again_where_ports_are_taken(|| {
            let mut server = Self::launch(&program, configuration)?;
            server.wait_until_ready()?;
            server.make_accounts()?;
            Ok(server)
        })
    }

    fn launch(program: &Path, configuration: &str) -> Result<Self, SandboxError> {
        let folder = make_folder(None)?;
        let watchdog = Watchdog::start(folder.path())?;
        let certificates = Certificates::make(folder.path())?;
        let (port, status_port) = (free_port()?, free_port()?);
        let socket = folder.path().join("socket");
        let file = folder.path().join("tidb.toml");
        let text = format!(
            "{configuration}\noom-use-tmp-storage = false\n[log]\nlevel = \"warn\"\n\
             [security]\nssl-ca = {:?}\nssl-cert = {:?}\nssl-key = {:?}\n",
            certificates.ca, certificates.server_cert, certificates.server_key
        );
        fs::write(&file, text).map_err(|source| SandboxError::io("write", &file, source))?;
        let path = folder.path().join("log");
        let log = File::create(&path).map_err(|source| SandboxError::io("write", &path, source))?;
        let copy = log
            .try_clone()
            .map_err(|source| SandboxError::io("write", &path, source))?;
        let process = Command::new(program)
            .arg(format!("--config={}", file.display()))
            .arg("--store=unistore")
            .arg(format!("--path={}", folder.path().join("data").display()))
            .arg(format!("--socket={}", socket.display()))
            .args(["--host=127.0.0.1", "--status-host=127.0.0.1", "--lease=0"])
            .arg(format!("-P={port}"))
            .arg(format!("--status={status_port}"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            .process_group(0) // Ctrl-C in the terminal is not for it
            .spawn()
            .map_err(|source| SandboxError::io("run", program, source))?;
        Ok(Self {
            process,
            port,
            status_port,
            socket,
            client: client_of_machine(["mariadb", "mysql"])?,
            certificates,
            _watchdog: watchdog,
            folder,
        })
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

    /// Where it says how it is, by HTTP.
    #[must_use]
    pub fn status_port(&self) -> u16 {
        self.status_port
    }

    /// PEM file of the CA that signed the server's certificate.
    #[must_use]
    pub fn ca_file(&self) -> &Path {
        &self.certificates.ca
    }

    /// Runs statements as root over the Unix socket, in the database `test`: rows with their columns
    /// separated by tabs, no header.
    ///
    /// # Errors
    /// The server refused one (those before it are done), or did not answer.
    pub fn sql(&self, statements: &str) -> Result<String, SandboxError> {
        batch::run(batch::client(&self.client, &self.socket), statements, 0)
    }

    /// Asks it to end (SIGTERM) and does not wait: it takes no new connections from then on, and ends when
    /// nothing runs any more.
    pub fn terminate(&self) -> Result<(), SandboxError> {
        send(Some(&self.process), 0, Signal::TERM, "SIGTERM")
    }

    fn wait_until_ready(&mut self) -> Result<(), SandboxError> {
        let begin = Instant::now();
        while !batch::greets(&self.socket) {
            let ended = self.process.try_wait();
            let ended = ended.map_err(|source| SandboxError::io("wait for", "tidb-server", source))?;
            go_on_waiting(0, "starting", begin, ended, || self.log())?;
            sleep(POLL);
        }
        Ok(())
    }

    fn make_accounts(&self) -> Result<(), SandboxError> {
        let accounts = format!(
            "CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
             GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;"
        );
        self.sql(&accounts).map(drop)
    }

    fn log(&self) -> String {
        fs::read(self.folder.path().join("log"))
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for Tidb {
    fn drop(&mut self) {
        // What is still there after this, the watchdog ends.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> Result<PathBuf, SandboxError> {
    from_environment("FOREBAY_TIDB")
        .or_else(|| fetched("tidb/bin/tidb-server"))
        .ok_or(SandboxError::Missing {
            what: "a TiDB server",
            remedy: "run script/lib/tidb (builds it into build/tidb), or set FOREBAY_TIDB to the program",
        })
}
