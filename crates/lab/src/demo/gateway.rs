//! The demo's gateway: this same program, as a child process with a configuration of its own.

use std::{
    fmt::Write as _,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use sandbox::{PASSWORD, Sandbox, USER};

use super::screen::sum_by_label;
use crate::child::ListeningChild;

const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);
/// Of each server: fewer than there are sessions.
const CONNECTIONS: u32 = 6;
const UP_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Gateway {
    process: ListeningChild,
    /// The one port for reads and writes.
    pub clients: SocketAddr,
    pub admin: SocketAddr,
}

impl Gateway {
    pub(super) fn start(servers: &Sandbox) -> anyhow::Result<Self> {
        let folder = servers.folder();
        let file = folder.join("forebay.toml");
        let started = ListeningChild::start(&folder.join("forebay.log"), |[clients, admin]| {
            fs::write(&file, configuration(servers, clients, admin)?)?;
            let mut command = Command::new(std::env::current_exe()?);
            // A group of its own: the terminal's Ctrl-C is for the demo, which ends the load first.
            command.args(["serve", "--config"]).arg(&file).process_group(0);
            Ok(command)
        });
        let (process, [clients, admin]) = started.context("starting the gateway")?;
        let gateway = Self {
            process,
            clients,
            admin,
        };
        wait_for_roles(admin, servers.nodes().len() - 1)?;
        Ok(gateway)
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Its metrics, in Prometheus' text format.
    pub(super) fn metrics(&self) -> anyhow::Result<String> {
        scrape(self.admin)
    }

    /// Where its log is, for whoever wants to know what went wrong.
    pub(super) fn log(folder: &Path) -> String {
        fs::read_to_string(folder.join("forebay.log")).unwrap_or_default()
    }
}

/// The metrics of a gateway whose `[admin]` is at this address, in Prometheus' text format.
pub(crate) fn scrape(admin: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, SCRAPE_TIMEOUT)?;
    stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Waits until the gateway knows its primary and so many replicas. Reads that come before go to the primary.
pub(crate) fn wait_for_roles(admin: SocketAddr, replicas: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + UP_TIMEOUT;
    loop {
        let roles = sum_by_label(&scrape(admin)?, "forebay_server_role", "role");
        let count = |role| roles.get(role).copied().unwrap_or(0.0) as usize;
        if (count("primary"), count("replica")) == (1, replicas) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the gateway does not find a primary and {replicas} replicas: {roles:?}"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn configuration(servers: &Sandbox, clients: SocketAddr, admin: SocketAddr) -> anyhow::Result<String> {
    let mut out = format!("[[listener]]\nbind = \"{clients}\"\nmode = \"split\"\ncluster = \"main\"\n\n");
    writeln!(
        out,
        "[cluster.main]\ntopology = \"replication\"\nmonitor = {{ user = \"{USER}\", password = \"{PASSWORD}\" }}\n\
         servers = ["
    )?;
    for node in servers.nodes() {
        let name = server_name(node.index());
        writeln!(
            out,
            "    {{ address = \"{}\", name = \"{name}\", max_connections = {CONNECTIONS} }},",
            node.address()
        )?;
    }
    writeln!(
        out,
        "]\n\n[[user]]\nname = \"{USER}\"\npassword = \"{PASSWORD}\"\n\n[admin]\nbind = \"{admin}\""
    )?;
    Ok(out)
}

/// Names a server of the sandbox: the first is the primary.
pub(super) fn server_name(index: usize) -> String {
    if index == 0 {
        "primary".to_owned()
    } else {
        format!("replica-{index}")
    }
}
