//! The programs that are compared, each a child process on a core of its own in front of fake servers of its
//! own.

use std::{fmt, fs, net::SocketAddr, ops::Range, path::Path, process::Command};

use anyhow::Context;
use serde::Serialize;

use super::{
    OverheadArgs, Plan, configuration,
    plan::{Scenario, Servers},
    rig::Rig,
};
use crate::child::{self, ListeningChild};

/// Who stands between the clients and the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nobody: what the bench itself can do.
    Direct,
    /// HAProxy in TCP mode, one thread.
    Haproxy,
    /// ProxySQL, one thread: sessions share server connections, reads go to replicas.
    Proxysql,
    /// This program, a listener in mode `tcp`.
    Tcp,
    /// This program, a listener in mode `session`.
    Session,
    /// This program, a listener in mode `session` whose sessions may move.
    Moves,
    /// This program, a listener in mode `split`: sessions share server connections, reads go to replicas.
    Split,
}

impl Kind {
    /// Its sessions share server connections, and it tells servers apart.
    pub fn shares_connections(self) -> bool {
        matches!(self, Self::Proxysql | Self::Split)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::write_name(self, out)
    }
}

/// A running contender; dropping it ends its process.
pub(super) struct Contender {
    pub kind: Kind,
    pub address: SocketAddr,
    /// The places of its servers in the rig, the primary first.
    servers: Range<usize>,
    /// Result sets its replicas had sent when they were last looked at.
    seen: u64,
    process: Option<ListeningChild>,
}

pub(super) struct Start<'a> {
    pub args: &'a OverheadArgs,
    pub scenario: &'a Scenario,
    pub plan: &'a Plan,
    /// Of this program.
    pub workers: usize,
    pub folder: &'a Path,
}

impl Contender {
    /// Starts it with servers of its own, and waits until it accepts connections.
    pub(super) fn start(kind: Kind, start: &Start<'_>, rig: &mut Rig) -> anyhow::Result<Self> {
        let replicas = match kind.shares_connections() {
            true => start.plan.servers.replicas,
            false => 0,
        };
        let (first, primary) = rig.add_server()?;
        let mut servers = vec![primary];
        for _ in 0..replicas {
            servers.push(rig.add_server()?.1);
        }
        let mut contender = Self {
            kind,
            address: primary,
            servers: first..first + servers.len(),
            seen: 0,
            process: None,
        };
        if kind != Kind::Direct {
            let log = start.folder.join(format!("{kind}.log"));
            let started = ListeningChild::start(&log, |[address]| command(kind, start, address, &servers));
            let (process, [address]) = started.with_context(|| format!("starting {kind}"))?;
            contender.address = address;
            contender.process = Some(process);
            contender.close(rig)?; // the connection that showed it accepts
        }
        Ok(contender)
    }

    /// None for the one that has no process.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(ListeningChild::pid)
    }

    /// Closes its sessions, and waits for the end of the server connections that end with them.
    pub(super) fn close(&self, rig: &mut Rig) -> anyhow::Result<()> {
        let servers = match self.kind.shares_connections() {
            true => 0..0,
            false => self.servers.clone(),
        };
        rig.close(servers)
    }

    /// Server connections it has now.
    pub(super) fn server_connections(&self, rig: &Rig) -> usize {
        let servers = rig.servers(self.servers.clone());
        servers.iter().map(|server| server.connections()).sum()
    }

    /// Result sets that its replicas, or the only server, have sent since the last call.
    pub(super) fn reads_served(&mut self, rig: &Rig) -> u64 {
        let servers = rig.servers(self.servers.clone());
        let reading = if servers.len() > 1 { &servers[1..] } else { servers };
        let results = reading.iter().map(|server| server.results()).sum();
        results - std::mem::replace(&mut self.seen, results)
    }
}

fn command(
    kind: Kind,
    start: &Start<'_>,
    address: SocketAddr,
    servers: &[SocketAddr],
) -> anyhow::Result<Command> {
    let Start {
        args,
        scenario,
        plan,
        workers,
        folder,
    } = start;
    let file = folder.join(format!("{kind}.conf"));
    let limits = Servers {
        replicas: servers.len() - 1,
        ..plan.servers
    };
    let place = configuration::ContenderPlace {
        listen: address,
        servers,
        limits: &limits.shares(),
        folder,
    };
    let text = match kind {
        Kind::Haproxy => configuration::haproxy(args.haproxy_config.as_deref())?,
        Kind::Proxysql => configuration::proxysql(scenario.proxysql_config.as_deref(), &place)?,
        _ => configuration::forebay(kind, plan, *workers, &place),
    };
    fs::write(&file, text)?;
    let has_one_thread = *workers == 1 || matches!(kind, Kind::Haproxy | Kind::Proxysql);
    let pinned = |program: &Path| child::pinned(args.contender_core.filter(|_| has_one_thread), program);
    let mut command;
    match kind {
        Kind::Haproxy => {
            command = pinned(&args.haproxy);
            command.args(["-db", "-f"]).arg(file);
        }
        Kind::Proxysql => {
            command = pinned(&scenario.proxysql);
            command
                .args(["--initial", "-f", "-D"])
                .arg(folder)
                .arg("-c")
                .arg(file);
        }
        _ => {
            command = pinned(&child::gateway(args.forebay.as_deref())?);
            command.args(["serve", "--config"]).arg(file);
        }
    }
    command
        .env("BENCH_BIND", address.to_string())
        .env("BENCH_SERVER", servers[0].to_string());
    Ok(command)
}
