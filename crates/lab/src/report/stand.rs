//! Real servers with sysbench's tables, and those that are compared before them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context;
use sandbox::{Kind, PASSWORD, Sandbox, Spec, USER};

use super::{
    Plan,
    catalogue::{CHAIN, KEEP_20, KEEP_100, ONE, TWO_BEHIND_TCP, TWO_WORKERS},
};
use crate::{
    cache::rig,
    child::{self, ListeningChild},
    overhead::{self, Kind as Contender},
    split::gateway::{Gateway, Setup},
};

/// Clients of a load, connections of gateways, and some more.
const CONNECTIONS: usize = 2000;
const MEMBERS: usize = 3;

/// Who is compared: where clients connect, and the processes whose CPU counts.
pub(super) struct Racer {
    pub name: String,
    pub address: SocketAddr,
    pub pids: Vec<u32>,
}

/// They run until it is dropped.
pub(super) struct Stand {
    racers: Vec<Racer>,
    _gateways: Vec<Gateway>,
    _haproxy: Option<ListeningChild>,
    servers: Sandbox,
    _folder: tempfile::TempDir,
}

impl Stand {
    /// One server, and all contenders before it.
    pub(super) fn single(plan: &Plan) -> anyhow::Result<Self> {
        let mut stand = Self::servers(plan, Spec::new(plan.kind))?;
        let primary = stand.servers.primary().address();
        for &kind in &plan.contenders {
            let (address, pids) = match kind {
                Contender::Direct => (primary.parse()?, Vec::new()),
                Contender::Haproxy => {
                    let (process, address) =
                        rig::start_haproxy(&plan.haproxy, None, &stand.servers, stand._folder.path())?;
                    let pid = process.pid();
                    stand._haproxy = Some(process);
                    (address, vec![pid])
                }
                _ => stand.gateway(plan, &kind.to_string(), kind, &[&primary], (1, ""))?,
            };
            stand.race(&kind.to_string(), address, pids);
        }
        let session = stand
            .racer("session")
            .map(|racer| (racer.address, racer.pids.clone()));
        if let Some((before, mut pids)) = session {
            let before = before.to_string();
            let (address, own) = stand.gateway(plan, "chain", Contender::Tcp, &[&before], (1, ""))?;
            pids.extend(own);
            stand.race(CHAIN, address, pids);
        }
        Ok(stand)
    }

    /// A group of three, and gateways in mode `split` before it.
    pub(super) fn group(plan: &Plan) -> anyhow::Result<Self> {
        let spec = Spec::new(Kind::GroupReplication).nodes(MEMBERS);
        let mut stand = Self::servers(plan, spec)?;
        let members = stand.servers.addresses();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        stand.race("direct", members[0].parse()?, Vec::new());
        for (name, workers, cluster) in [
            (ONE, 1, ""),
            (TWO_WORKERS, 2, ""),
            (KEEP_20, 1, "pool = { prepared_max = 20 }\n"),
            (KEEP_100, 1, "pool = { prepared_max = 100 }\n"),
        ] {
            let (address, pids) =
                stand.gateway(plan, name, Contender::Split, &members, (workers, cluster))?;
            stand.race(name, address, pids);
        }
        let (one, mut pids) = stand.gateway(plan, "behind-1", Contender::Split, &members, (1, ""))?;
        let (other, of_other) = stand.gateway(plan, "behind-2", Contender::Split, &members, (1, ""))?;
        let both = [one.to_string(), other.to_string()];
        let (address, before) =
            stand.gateway(plan, "before", Contender::Tcp, &[&both[0], &both[1]], (1, ""))?;
        pids.extend(of_other.into_iter().chain(before));
        stand.race(TWO_BEHIND_TCP, address, pids);
        Ok(stand)
    }

    /// Those of these names that there are; all contenders where none is named.
    pub(super) fn racers(&self, names: &[&str]) -> Vec<&Racer> {
        let wanted = |racer: &&Racer| match names {
            [] => racer.name != CHAIN,
            names => names.contains(&racer.name.as_str()),
        };
        self.racers.iter().filter(wanted).collect()
    }

    pub(super) fn server_pids(&self) -> Vec<u32> {
        self.servers
            .nodes()
            .iter()
            .filter_map(sandbox::Node::pid)
            .collect()
    }

    pub(super) fn primary(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.servers.primary().address().parse()?)
    }

    pub(super) fn version(&self) -> String {
        format!("{} {}", self.servers.kind(), self.servers.version())
    }

    fn servers(plan: &Plan, spec: Spec) -> anyhow::Result<Self> {
        let memory = if spec.nodes > 1 { "512M" } else { "1G" };
        let spec = spec
            .option(format!("--innodb-buffer-pool-size={memory}"))
            .option("--innodb-flush-log-at-trx-commit=2")
            .option(format!("--max-connections={CONNECTIONS}"))
            .option("--max-prepared-stmt-count=1000000");
        let servers = Sandbox::start(spec).context("starting the servers")?;
        servers.primary().sql("CREATE DATABASE sbtest")?;
        rig::fill_table(&servers, "sbtest1", plan.rows, rig::VALUE)?;
        for table in 2..=plan.tables {
            servers.primary().sql(&format!(
                "CREATE TABLE sbtest.sbtest{table} LIKE sbtest.sbtest1;
                 INSERT INTO sbtest.sbtest{table} SELECT * FROM sbtest.sbtest1"
            ))?;
        }
        servers.sync()?;
        // Our client knows the short way of `caching_sha2_password` only: somebody has to log in before it.
        let mut login = servers.primary().client();
        login.args([
            format!("--user={USER}"),
            format!("--password={PASSWORD}"),
            "--execute=DO 1".to_owned(),
        ]);
        let output = login.output().context("logging in")?;
        anyhow::ensure!(
            output.status.success(),
            "logging in: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Self {
            racers: Vec::new(),
            _gateways: Vec::new(),
            _haproxy: None,
            servers,
            _folder: child::folder()?,
        })
    }

    fn gateway(
        &mut self,
        plan: &Plan,
        name: &str,
        mode: Contender,
        servers: &[&str],
        (workers, lines): (usize, &str),
    ) -> anyhow::Result<(SocketAddr, Vec<u32>)> {
        let [top, listener, cluster] = overhead::options(&plan.forebay_options);
        let servers: Vec<String> = servers
            .iter()
            .map(|address| format!("{{ address = \"{address}\" }}"))
            .collect();
        let setup = Setup {
            program: &plan.program,
            mode,
            topology: match self.servers.kind() {
                Kind::GroupReplication => "group-replication",
                _ => "replication",
            },
            servers: &servers,
            workers,
            options: [top, listener, format!("{lines}{cluster}")],
        };
        let file = name.replace([' ', ','], "-");
        let gateway = Gateway::start(&file, &setup, self._folder.path()).context(name.to_owned())?;
        let started = (gateway.clients, vec![gateway.pid()]);
        self._gateways.push(gateway);
        Ok(started)
    }

    fn race(&mut self, name: &str, address: SocketAddr, pids: Vec<u32>) {
        self.racers.push(Racer {
            name: name.to_owned(),
            address,
            pids,
        });
    }

    fn racer(&self, name: &str) -> Option<&Racer> {
        self.racers.iter().find(|racer| racer.name == name)
    }
}

/// Where the programs are that the tables need, or how to get them.
pub(super) fn find(name: &str, given: Option<&Path>, how_to_get: &str) -> anyhow::Result<PathBuf> {
    if let Some(given) = given.filter(|given| given.components().count() > 1) {
        anyhow::ensure!(given.is_file(), "{} is no file", given.display());
        return Ok(given.to_path_buf());
    }
    let name = given.and_then(Path::to_str).unwrap_or(name);
    rig::find_program(&[name]).with_context(|| format!("{name} is not on the PATH: {how_to_get}"))
}
