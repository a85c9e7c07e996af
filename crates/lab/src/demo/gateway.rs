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
use sandbox::Sandbox;

use super::screen::sum_by_label;
use crate::child::ListeningChild;

const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);
const UP_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Gateway {
    process: ListeningChild,
    /// New sessions are spread over all servers.
    pub reads: SocketAddr,
    /// The primary alone.
    pub writes: SocketAddr,
    pub admin: SocketAddr,
}

impl Gateway {
    pub(super) fn start(servers: &Sandbox) -> anyhow::Result<Self> {
        let folder = servers.folder();
        let file = folder.join("forebay.toml");
        let started = ListeningChild::start(&folder.join("forebay.log"), |[reads, writes, admin]| {
            fs::write(&file, configuration(servers, reads, writes, admin)?)?;
            let mut command = Command::new(std::env::current_exe()?);
            // A group of its own: the terminal's Ctrl-C is for the demo, which ends the load first.
            command.args(["serve", "--config"]).arg(&file).process_group(0);
            Ok(command)
        });
        let (process, [reads, writes, admin]) = started.context("starting the gateway")?;
        let gateway = Self {
            process,
            reads,
            writes,
            admin,
        };
        // The primary is in both clusters.
        gateway.wait_until_up(servers.nodes().len() as i64 + 1)?;
        Ok(gateway)
    }

    /// Sessions that come before all servers have passed a check go to those that have.
    fn wait_until_up(&self, servers: i64) -> anyhow::Result<()> {
        let deadline = Instant::now() + UP_TIMEOUT;
        loop {
            let states = sum_by_label(&self.metrics()?, "forebay_server_state", "state");
            if states.get("up") == Some(&servers) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "not all servers are up for the gateway: {states:?}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Its metrics, in Prometheus' text format.
    pub(super) fn metrics(&self) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.admin, SCRAPE_TIMEOUT)?;
        stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.admin
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Where its log is, for whoever wants to know what went wrong.
    pub(super) fn log(folder: &Path) -> String {
        fs::read_to_string(folder.join("forebay.log")).unwrap_or_default()
    }
}

fn configuration(
    servers: &Sandbox,
    reads: SocketAddr,
    writes: SocketAddr,
    admin: SocketAddr,
) -> anyhow::Result<String> {
    let mut out = String::new();
    for (bind, cluster) in [(reads, "all"), (writes, "primary")] {
        writeln!(
            out,
            "[[listener]]\nbind = \"{bind}\"\nmode = \"session\"\ncluster = \"{cluster}\"\n"
        )?;
    }
    for (cluster, first) in [("all", servers.nodes().len()), ("primary", 1)] {
        writeln!(out, "[cluster.{cluster}]\nservers = [")?;
        for node in &servers.nodes()[..first] {
            let name = server_name(node.index());
            writeln!(
                out,
                "    {{ address = \"{}\", name = \"{name}\" }},",
                node.address()
            )?;
        }
        writeln!(out, "]\n")?;
    }
    writeln!(out, "[admin]\nbind = \"{admin}\"")?;
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
