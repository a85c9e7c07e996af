//! This program before real servers, as one of those that are compared.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    child::ListeningChild,
    client::Account,
    demo::{gateway::scrape, screen::sum_by_label},
    overhead::Kind,
};
use anyhow::{Context, ensure};

/// The gateway finds its primary meanwhile.
const UP_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Setup<'a> {
    pub program: &'a Path,
    /// One of this program's.
    pub mode: Kind,
    /// Of the servers.
    pub account: Account,
    /// As the configuration has it; only mode `split` asks.
    pub topology: &'a str,
    /// Each as the configuration has it: `{ address = "127.0.0.1:3306" }`.
    pub servers: &'a [String],
    pub workers: usize,
    /// Lines of the top level, the listener and the cluster.
    pub options: [String; 3],
}

/// It runs until it is dropped.
pub(crate) struct Gateway {
    process: ListeningChild,
    pub clients: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    /// Starts it, with its files in `folder`, and waits until it knows its primary.
    pub(crate) fn start(name: &str, setup: &Setup<'_>, folder: &Path) -> anyhow::Result<Self> {
        let (file, log) = (
            folder.join(format!("{name}.toml")),
            folder.join(format!("{name}.log")),
        );
        let started = ListeningChild::start(&log, |[clients, admin]| {
            fs::write(&file, setup.configuration(clients, admin))?;
            let mut command = Command::new(setup.program);
            command.args(["serve", "--config"]).arg(&file);
            Ok(command)
        });
        let (process, [clients, admin]) = started.context("starting the gateway")?;
        let gateway = Self {
            process,
            clients,
            admin,
        };
        if setup.mode == Kind::Split {
            gateway.wait_for_primary(&log)?;
        }
        Ok(gateway)
    }

    /// Starts it on another machine, of a kind: `on` are the words before its command there. It listens at
    /// this address and on a Unix socket, by which it is seen to be up.
    pub(crate) fn start_on(
        on: &[String],
        address: Ipv4Addr,
        setup: &Setup<'_>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let (file, log, socket) = (
            folder.join("away.toml"),
            folder.join("away.log"),
            folder.join("away"),
        );
        let [clients, admin] = [3306, 9090].map(|port| SocketAddr::from((address, port)));
        let text = setup.configuration(clients, admin);
        let seen = format!(
            "\n[[listener]]\nbind = \"{}\"\nmode = \"{}\"\ncluster = \"main\"\n",
            socket.display(),
            setup.mode
        );
        fs::write(&file, text + &seen)?;
        let (first, others) = on.split_first().context("nowhere")?;
        let mut command = Command::new(first);
        command
            .args(others)
            .arg(setup.program)
            .args(["serve", "--config"])
            .arg(&file);
        let process = ListeningChild::start_at(&log, command, &socket)?;
        Ok(Self {
            process,
            clients,
            admin,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Server connections it has opened since its start, and those it has.
    pub(crate) fn opened_and_size(&self) -> anyhow::Result<(f64, f64)> {
        let metrics = scrape(self.admin)?;
        let sum = |name| sum_by_label(&metrics, name, "server").values().sum::<f64>();
        let size = sum("forebay_pool_idle") + sum("forebay_pool_busy");
        Ok((sum("forebay_pool_opened_total"), size))
    }

    fn wait_for_primary(&self, log: &Path) -> anyhow::Result<()> {
        let deadline = Instant::now() + UP_TIMEOUT;
        while sum_by_label(&scrape(self.admin)?, "forebay_server_role", "role").get("primary") != Some(&1.0) {
            ensure!(
                Instant::now() < deadline,
                "the gateway does not find its primary: {}",
                fs::read_to_string(log).unwrap_or_default()
            );
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// As TOML has it, which JSON has as well.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Setup<'_> {
    pub(crate) fn configuration(&self, clients: SocketAddr, admin: SocketAddr) -> String {
        let [top, listener, cluster] = &self.options;
        let (mode, moves) = match self.mode {
            Kind::Moves => (Kind::Session, "moves = true\n"),
            mode => (mode, ""),
        };
        let [user, password] = [self.account.user, self.account.password].map(quoted);
        let topology = match self.mode {
            // Its roles are written.
            Kind::Split if self.topology == "static" => String::new(),
            Kind::Split => format!(
                "topology = \"{}\"\nmonitor = {{ user = {user}, password = {password} }}\n",
                self.topology
            ),
            _ => String::new(),
        };
        let users = match self.mode {
            Kind::Split | Kind::Moves => format!("[[user]]\nname = {user}\npassword = {password}\n\n"),
            _ => String::new(),
        };
        format!(
            "workers = {}\n{top}\n[log]\nlevel = \"warn\"\n\n[[listener]]\nbind = \"{clients}\"\nmode = \"{mode}\"\n\
             cluster = \"main\"\n{moves}{listener}\n[cluster.main]\n{topology}servers = [{}]\n{cluster}\n\
             {users}[admin]\nbind = \"{admin}\"\n",
            self.workers,
            self.servers.join(", "),
        )
    }
}
