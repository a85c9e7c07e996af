//! Real servers with sysbench's tables, and those that are compared before them.

use std::{
    iter,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use sandbox::{Certificates, Kind, Sandbox, Spec};

use super::{
    Plan, beside,
    catalogue::{
        BRIDGED, CHAIN, KEEP_20, KEEP_100, LOOPBACK, ONE, ONE_ZONE, TWO_BEHIND_TCP, TWO_WORKERS, ZONES,
    },
    network::{self, Network},
    own::Own,
    relay::Relay,
};
use crate::{
    cache::rig,
    child::{self, ListeningChild},
    client::{Account, SANDBOX, Server},
    overhead::{self, Kind as Contender},
    split::gateway::{Gateway, Setup},
};

/// Clients of a load, connections of gateways, and some more.
const CONNECTIONS: usize = 2000;
const MEMBERS: usize = 3;
/// Microseconds of [`ZONES`].
const ZONE_DELAYS: [u64; 2] = [500, 1000];

/// Who is compared: where clients connect, and the processes whose CPU counts.
pub(super) struct Racer {
    pub name: String,
    pub address: SocketAddr,
    pub pids: Vec<u32>,
    /// The words before a command that is to reach it: on another machine than this, of a kind.
    pub load_on: Vec<String>,
}

/// How a gateway is to run.
struct Way<'a> {
    mode: Contender,
    /// As the configuration has them.
    servers: Vec<String>,
    topology: &'a str,
    workers: usize,
    /// Lines of the top level, and of the cluster.
    top: &'a str,
    cluster: &'a str,
}

impl<'a> Way<'a> {
    fn new(mode: Contender, servers: Vec<String>) -> Self {
        Self {
            mode,
            servers,
            topology: "replication",
            workers: 1,
            top: "",
            cluster: "",
        }
    }

    fn topology(self, topology: &'a str) -> Self {
        Self { topology, ..self }
    }
}

/// What they are is found out.
fn plain(servers: &[SocketAddr]) -> Vec<String> {
    let servers = servers.iter();
    servers
        .map(|address| format!("{{ address = \"{address}\" }}"))
        .collect()
}

/// The primary, and replicas behind it.
fn with_roles(servers: &[SocketAddr]) -> Vec<String> {
    let roles = ["primary"].into_iter().chain(iter::repeat("replica"));
    let servers = servers.iter().zip(roles);
    servers
        .map(|(address, role)| format!("{{ address = \"{address}\", role = \"{role}\" }}"))
        .collect()
}

/// They run until it is dropped.
pub(super) struct Stand {
    racers: Vec<Racer>,
    _gateways: Vec<Gateway>,
    _haproxy: Option<ListeningChild>,
    /// Of listeners, where they offer encryption.
    certificates: Option<Certificates>,
    _relays: Vec<Relay>,
    /// Of the gateways in it.
    _network: Option<Network>,
    /// Where they were started for it, and are not the user's.
    sandbox: Option<Sandbox>,
    /// The primary first.
    servers: Vec<SocketAddr>,
    account: Account,
    version: String,
    _folder: tempfile::TempDir,
}

impl Stand {
    /// One server, or those of the user, and all contenders before it. Only mode `split` has a use for more
    /// than the first.
    pub(super) fn single(plan: &Plan) -> anyhow::Result<Self> {
        let mut stand = match &plan.own {
            Some(own) => Self::own(plan, own)?,
            None => Self::servers(plan, Spec::new(plan.kind))?,
        };
        let all = stand.servers.clone();
        let primary = all[0];
        let certificates = Certificates::make(stand._folder.path())?;
        for &kind in &plan.contenders {
            // The others leave it to the server.
            let encrypts = matches!(kind, Contender::Session | Contender::Moves | Contender::Split);
            stand.certificates = encrypts.then(|| certificates.clone());
            let (address, pids) = match kind {
                Contender::Direct => (primary, Vec::new()),
                Contender::Haproxy => {
                    let (process, address) =
                        rig::start_haproxy(&plan.haproxy, None, &primary.to_string(), stand._folder.path())?;
                    let pid = process.pid();
                    stand._haproxy = Some(process);
                    (address, vec![pid])
                }
                Contender::Split => {
                    let way = match plan.own {
                        Some(_) => Way::new(kind, with_roles(&all)).topology("static"),
                        None => Way::new(kind, plain(&all)),
                    };
                    stand.gateway(plan, &kind.to_string(), &way)?
                }
                _ => stand.gateway(plan, &kind.to_string(), &Way::new(kind, plain(&all[..1])))?,
            };
            stand.race(&kind.to_string(), address, pids);
        }
        stand.certificates = None;
        for (name, address) in plan.own.iter().flat_map(|own| &own.contenders) {
            stand.race(name, *address, Vec::new());
        }
        let session = stand
            .racer("session")
            .map(|racer| (racer.address, racer.pids.clone()));
        if let Some((before, mut pids)) = session {
            let way = Way::new(Contender::Tcp, plain(&[before]));
            let (address, own) = stand.gateway(plan, "chain", &way)?;
            pids.extend(own);
            stand.race(CHAIN, address, pids);
        }
        Ok(stand)
    }

    /// A group of three, and gateways in mode `split` before it.
    pub(super) fn group(plan: &Plan) -> anyhow::Result<Self> {
        let spec = Spec::new(Kind::GroupReplication).nodes(MEMBERS);
        let mut stand = Self::servers(plan, spec)?;
        let members = stand.servers.clone();
        stand.race("direct", members[0], Vec::new());
        let way = || Way::new(Contender::Split, plain(&members)).topology("group-replication");
        for (name, workers, cluster) in [
            (ONE, 1, ""),
            (TWO_WORKERS, 2, ""),
            (KEEP_20, 1, "pool = { prepared_max = 20 }\n"),
            (KEEP_100, 1, "pool = { prepared_max = 100 }\n"),
        ] {
            let way = Way {
                workers,
                cluster,
                ..way()
            };
            let (address, pids) = stand.gateway(plan, name, &way)?;
            stand.race(name, address, pids);
        }
        let (one, mut pids) = stand.gateway(plan, "behind-1", &way())?;
        let (other, of_other) = stand.gateway(plan, "behind-2", &way())?;
        let both = Way::new(Contender::Tcp, plain(&[one, other]));
        let (address, before) = stand.gateway(plan, "before", &both)?;
        pids.extend(of_other.into_iter().chain(before));
        stand.race(TWO_BEHIND_TCP, address, pids);
        Ok(stand)
    }

    /// Three servers in mode `split`: all near; and with relays before the primary and one replica, in zones
    /// that the gateway does not know of, and in zones that it prefers.
    pub(super) fn zones(plan: &Plan) -> anyhow::Result<Self> {
        let mut stand = Self::servers(plan, Spec::new(plan.kind).nodes(MEMBERS))?;
        let near = stand.servers.clone();
        let way = |servers| Way::new(Contender::Split, servers).topology("static");
        let (address, pids) = stand.gateway(plan, ONE_ZONE, &way(with_roles(&near)))?;
        stand.race(ONE_ZONE, address, pids);
        for ((delay, without, with), micros) in ZONES.into_iter().zip(ZONE_DELAYS) {
            let mut far = near.clone();
            for server in &mut far[..2] {
                let relay = Relay::start(*server, Duration::from_micros(micros)).context(delay)?;
                *server = relay.address;
                stand._relays.push(relay);
            }
            let mut servers = with_roles(&far);
            let (address, pids) = stand.gateway(plan, without, &way(servers.clone()))?;
            stand.race(without, address, pids);
            for (server, zone) in servers.iter_mut().zip(["far", "farther", "near"]) {
                *server = server.replace(" }", &format!(", zone = \"{zone}\" }}"));
            }
            let way = Way {
                top: "zone = \"near\"\n",
                ..way(servers)
            };
            let (address, pids) = stand.gateway(plan, with, &way)?;
            stand.race(with, address, pids);
        }
        Ok(stand)
    }

    /// One server over its Unix socket, and before it a gateway to which clients come over loopback, and one
    /// to which they come from another network namespace.
    pub(super) fn bridge(plan: &Plan, network: Network) -> anyhow::Result<Self> {
        let mut stand = Self::servers(plan, Spec::new(plan.kind))?;
        let socket = stand.sandbox.as_ref().map(|servers| servers.primary().socket());
        let socket = socket.context("no server")?.display();
        let server = vec![format!("{{ address = \"{socket}\" }}")];
        let way = Way::new(Contender::Session, server);
        let (address, pids) = stand.gateway(plan, LOOPBACK, &way)?;
        stand.race(LOOPBACK, address, pids);
        let setup = stand.setup(plan, &way);
        let gateway = Gateway::start_on(
            &Network::on("gateway"),
            network::GATEWAY,
            &setup,
            stand._folder.path(),
        )
        .context(BRIDGED)?;
        stand.racers.push(Racer {
            name: BRIDGED.to_owned(),
            address: gateway.clients,
            pids: vec![gateway.pid()],
            load_on: Network::on("client"),
        });
        stand._gateways.push(gateway);
        stand._network = Some(network);
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
        let nodes = self.sandbox.iter().flat_map(Sandbox::nodes);
        nodes.filter_map(sandbox::Node::pid).collect()
    }

    pub(super) fn primary(&self) -> Server {
        self.at(self.servers[0])
    }

    /// The account's login at an address: a server's, or a gateway's.
    pub(super) fn at(&self, address: SocketAddr) -> Server {
        let account = self.account;
        Server { address, account }
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    fn new(servers: Vec<SocketAddr>, account: Account, version: String) -> anyhow::Result<Self> {
        Ok(Self {
            racers: Vec::new(),
            _gateways: Vec::new(),
            _haproxy: None,
            certificates: None,
            _relays: Vec::new(),
            _network: None,
            sandbox: None,
            servers,
            account,
            version,
            _folder: child::folder()?,
        })
    }

    fn own(plan: &Plan, own: &Own) -> anyhow::Result<Self> {
        let stand = Self::new(own.servers.clone(), own.account, own.version.clone())?;
        stand.fill(plan)?;
        own.wait_for_all_rows()?;
        Ok(stand)
    }

    /// Makes the tables anew.
    fn fill(&self, plan: &Plan) -> anyhow::Result<()> {
        let mut client = self.primary().connect()?;
        let mut run = |statement: &str| {
            client.query(statement)?;
            Ok(())
        };
        for table in 1..=plan.tables {
            run(&format!("DROP TABLE IF EXISTS sbtest{table}"))?;
        }
        rig::fill_table(&mut run, "sbtest1", plan.rows, rig::VALUE)?;
        for table in 2..=plan.tables {
            run(&format!("CREATE TABLE sbtest{table} LIKE sbtest1"))?;
            run(&format!("INSERT INTO sbtest{table} SELECT * FROM sbtest1"))?;
        }
        beside::create(&mut run)
    }

    /// What sessions beside a load look at is right again, on all servers.
    pub(super) fn mend(&self, plan: &Plan) -> anyhow::Result<()> {
        let mut client = self.primary().connect()?;
        beside::mend(&mut |statement| {
            client.query(statement)?;
            Ok(())
        })?;
        plan.own.iter().try_for_each(Own::wait_for_all_rows)
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
        // Our client knows the short way of `caching_sha2_password` only: somebody has to log in before it.
        let mut login = servers.primary().client();
        login.args([
            format!("--user={}", SANDBOX.user),
            format!("--password={}", SANDBOX.password),
            "--execute=DO 1".to_owned(),
        ]);
        let output = login.output().context("logging in")?;
        anyhow::ensure!(
            output.status.success(),
            "logging in: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let addresses = servers.addresses();
        let parsed: Result<Vec<SocketAddr>, _> = addresses.iter().map(|address| address.parse()).collect();
        let version = format!("{} {}", servers.kind(), servers.version());
        let stand = Self {
            sandbox: Some(servers),
            ..Self::new(parsed?, SANDBOX, version)?
        };
        stand.fill(plan)?;
        if let Some(servers) = &stand.sandbox {
            servers.sync()?;
        }
        Ok(stand)
    }

    fn setup<'a>(&self, plan: &'a Plan, way: &'a Way<'_>) -> Setup<'a> {
        let [top, mut listener, cluster] = overhead::options(&plan.forebay_options);
        if let (Some(files), false) = (&self.certificates, listener.contains("tls")) {
            listener += &format!(
                "tls = {{ mode = \"preferred\", cert = \"{}\", key = \"{}\" }}\n",
                files.server_cert.display(),
                files.server_key.display()
            );
        }
        Setup {
            program: &plan.program,
            mode: way.mode,
            account: self.account,
            topology: way.topology,
            servers: &way.servers,
            workers: way.workers,
            options: [
                format!("{}{top}", way.top),
                listener,
                format!("{}{cluster}", way.cluster),
            ],
        }
    }

    fn gateway(&mut self, plan: &Plan, name: &str, way: &Way<'_>) -> anyhow::Result<(SocketAddr, Vec<u32>)> {
        let setup = self.setup(plan, way);
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
            load_on: Vec::new(),
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
