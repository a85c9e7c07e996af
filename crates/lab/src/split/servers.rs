//! `bench split --servers`: how many queries a second clients get through few connections to a real server,
//! beside the server itself and HAProxy.
//!
//! Everything is at its defaults but the number of workers, and `max_connections` of the server where the
//! plan names one. Load, gateways and server share all cores, as they do on a machine that has no more;
//! contenders take turns round by round, and ratios are formed within a round.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use sandbox::{Kind, Sandbox, Spec};

use super::{
    Connections, Script, ServerKind, SplitArgs,
    gateway::{self, Setup},
};
use crate::{
    cache::{Report, Wanted, rig},
    child::{self, ListeningChild},
    client::SANDBOX,
    overhead::Kind as Contender,
    sysbench::{Measured, Sysbench},
};

/// Clients that sysbench and HAProxy's configuration are good for.
const CLIENTS_MAX: usize = 1000;
/// What a server must allow beyond them.
const OTHER_CONNECTIONS: usize = 100;
/// From the beginning of a run on until connections are counted: the pool finds its size first.
const WARM_UP: f64 = 0.4;

/// The arguments with every default filled in.
struct Plan {
    clients: Vec<usize>,
    workers: Vec<usize>,
    connections: Vec<Connections>,
    rounds: usize,
    seconds: f64,
    has_haproxy: bool,
    program: PathBuf,
}

impl Plan {
    fn new(args: &SplitArgs) -> anyhow::Result<Self> {
        let given_or = |given: &[usize], default: &[usize]| -> Vec<usize> {
            if given.is_empty() { default } else { given }.to_vec()
        };
        let load = &args.load;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let quick = load.quick;
        let plan = Self {
            clients: given_or(&load.clients, if quick { &[64] } else { &[64, 200, 500] }),
            workers: given_or(&load.workers, &[1, cores.max(2)]),
            connections: match &args.server_connections[..] {
                [] => vec![Connections::Most(8), Connections::Most(32), Connections::Auto],
                given => given.to_vec(),
            },
            rounds: load.rounds.unwrap_or(if quick { 1 } else { 3 }),
            seconds: load.seconds.unwrap_or(if quick { 1.0 } else { 5.0 }),
            has_haproxy: load.contenders.is_empty() || load.contenders.contains(&Contender::Haproxy),
            program: child::gateway(load.forebay.as_deref())?,
        };
        let counts = plan.clients.iter().chain(&plan.workers);
        ensure!(
            plan.rounds > 0 && counts.clone().all(|&count| count > 0) && plan.seconds > 0.0,
            "nothing to measure"
        );
        ensure!(
            plan.clients.iter().all(|&clients| clients <= CLIENTS_MAX),
            "--clients: at most {CLIENTS_MAX} with --servers"
        );
        Ok(plan)
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Most(count) => write!(out, "{count} connections"),
            Self::Auto => out.write_str("its own size"),
        }
    }
}

impl Script {
    fn file(self) -> &'static str {
        match self {
            Self::PointSelect => "oltp_point_select",
            Self::ReadOnly => "oltp_read_only",
            Self::ReadWrite => "oltp_read_write",
        }
    }
}

impl ServerKind {
    pub(crate) fn of_sandbox(self) -> Kind {
        match self {
            Self::Mariadb => Kind::Mariadb,
            Self::Mysql => Kind::Mysql,
        }
    }
}

/// Runs it in front of real servers; all figures, up to what failed, are in `report` then.
pub fn split_on_servers(args: &SplitArgs, report: &mut Report) -> anyhow::Result<()> {
    let plan = Plan::new(args)?;
    net::limits::raise_nofile().context("raising the limit of open files")?;
    let progress = crate::spinner();
    for kind in &args.servers {
        let bench = Bench::new(*kind, args, &plan, &progress)?;
        report.programs.push(bench.server.version().to_owned());
        for script in &args.sysbench {
            for clients in &plan.clients {
                bench.measure(*script, *clients, report)?;
            }
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// One real server and all that stands in front of it.
struct Bench<'a> {
    plan: &'a Plan,
    rows: u64,
    progress: &'a ProgressBar,
    gateways: Vec<Gateway>,
    haproxy: Option<(ListeningChild, SocketAddr)>,
    server: Sandbox,
    _folder: tempfile::TempDir,
}

/// This program in mode `split`.
struct Gateway {
    workers: usize,
    connections: Connections,
    running: gateway::Gateway,
}

/// The rounds of one contender.
#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    p99_ms: Vec<f64>,
    /// CPU for a query, in microseconds: the contender's, and the server's.
    own_cpu: Vec<f64>,
    server_cpu: Vec<f64>,
    /// Server connections opened a second, once the load was steady.
    opened: Vec<f64>,
    /// Server connections at the end.
    size: Vec<f64>,
}

impl<'a> Bench<'a> {
    fn new(
        kind: ServerKind,
        args: &SplitArgs,
        plan: &'a Plan,
        progress: &'a ProgressBar,
    ) -> anyhow::Result<Self> {
        let kind = kind.of_sandbox();
        progress.set_message(format!("{kind} with {} rows", args.table_size));
        let most = CLIENTS_MAX + OTHER_CONNECTIONS;
        let spec = Spec::new(kind)
            .option("--innodb-buffer-pool-size=1G")
            .option(format!("--max-connections={most}"))
            .option("--max-prepared-stmt-count=1000000");
        let server = Sandbox::start(spec).context("starting the server")?;
        rig::fill_first_table(&server, args.table_size)?;
        let folder = child::folder()?;
        let haproxy = match plan.has_haproxy {
            true => Some(rig::start_haproxy(
                &args.load.haproxy,
                None,
                &server.primary().address(),
                folder.path(),
            )?),
            false => None,
        };
        let mut gateways = Vec::new();
        for &connections in &plan.connections {
            for &workers in &plan.workers {
                let options = &args.load.forebay_option;
                gateways.push(Gateway::start(
                    plan,
                    &server,
                    (workers, connections),
                    options,
                    folder.path(),
                )?);
            }
        }
        Ok(Self {
            plan,
            rows: args.table_size,
            progress,
            gateways,
            haproxy,
            server,
            _folder: folder,
        })
    }

    /// All rounds of all contenders with so many clients.
    fn measure(&self, script: Script, clients: usize, report: &mut Report) -> anyhow::Result<()> {
        let mut direct = Rounds::default();
        let mut haproxy = Rounds::default();
        let mut split: Vec<Rounds> = self.gateways.iter().map(|_| Rounds::default()).collect();
        for round in 0..self.plan.rounds {
            let tell = |who: &dyn fmt::Display| {
                let (kind, script) = (self.server.kind(), script.file());
                let round = round + 1;
                let text = format!("{kind}, {script}, {clients} clients, round {round}: {who}");
                self.progress.set_message(text);
            };
            tell(&"the server itself");
            let address = self.server.primary().address().parse()?;
            self.round(script, clients, address, None, &mut direct)?;
            if let Some((process, address)) = &self.haproxy {
                tell(&"HAProxy");
                self.round(script, clients, *address, Some(process.pid()), &mut haproxy)?;
            }
            for (gateway, rounds) in self.gateways.iter().zip(&mut split) {
                tell(gateway);
                self.round_through(gateway, script, clients, rounds)?;
            }
        }
        let part = format!("{}, {}, {clients} clients", self.server.kind(), script.file());
        direct.tell(&part, "server", report);
        haproxy.tell(&part, "HAProxy", report);
        for (gateway, rounds) in self.gateways.iter().zip(&split) {
            rounds.tell(&part, &gateway.to_string(), report);
        }
        self.tell_ratios(&part, (script, clients), &direct, &split, report);
        Ok(())
    }

    fn tell_ratios(
        &self,
        part: &str,
        (script, clients): (Script, usize),
        direct: &Rounds,
        split: &[Rounds],
        report: &mut Report,
    ) {
        let ratios =
            |of: &Rounds, to: &Rounds| of.rates.iter().zip(&to.rates).map(|(of, to)| of / to).collect();
        let fixed = |gateway: &Gateway| gateway.connections != Connections::Auto;
        for (gateway, rounds) in self.gateways.iter().zip(split) {
            // sysbench's own transactions keep a connection each: what the server alone does is no measure
            // for them.
            let wanted = match (script, clients) {
                (Script::PointSelect, 200..) if fixed(gateway) => Some(Wanted::AtLeast(1.1)),
                (Script::PointSelect, 64..) if fixed(gateway) => Some(Wanted::AtLeast(1.0)),
                _ => None,
            };
            let ratio: Vec<f64> = ratios(rounds, direct);
            report
                .add(part, format!("{gateway} / server, query/s"), "", ratio)
                .wanted(wanted);
            let fewest = self.gateways.iter().zip(split).find(|(other, _)| {
                other.connections == gateway.connections && other.workers < gateway.workers
            });
            if let Some((fewer, of_fewer)) = fewest {
                let name = format!("{gateway} / {} worker(s), query/s", fewer.workers);
                let ratio: Vec<f64> = ratios(rounds, of_fewer);
                report.add(part, name, "", ratio).wanted(Wanted::AtLeast(0.95));
            }
            let rivals = self
                .gateways
                .iter()
                .zip(split)
                .filter(|(other, _)| !fixed(gateway) && fixed(other) && other.workers == gateway.workers);
            let best = rivals.max_by(|(_, one), (_, other)| one.median().total_cmp(&other.median()));
            if let Some((rival, best)) = best {
                let name = format!("{gateway} / best fixed size ({}), query/s", rival.connections);
                let ratio: Vec<f64> = ratios(rounds, best);
                report.add(part, name, "", ratio).wanted(Wanted::AtLeast(0.9));
            }
        }
    }

    /// One run of sysbench against an address.
    fn round(
        &self,
        script: Script,
        clients: usize,
        address: SocketAddr,
        pid: Option<u32>,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let server = self.server.primary().pid().context("the server is gone")?;
        let load = Sysbench {
            on: &[],
            script: script.file(),
            address,
            account: SANDBOX,
            is_text: false,
            tables: 1,
            rows: self.rows,
            threads: clients,
            seconds: self.plan.seconds,
            options: &[],
        };
        rounds.add(&load.measure(pid.as_slice(), &[server])?);
        Ok(())
    }

    /// The same through a gateway, whose new server connections are counted once the load is steady.
    fn round_through(
        &self,
        gateway: &Gateway,
        script: Script,
        clients: usize,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let seconds = self.plan.seconds.ceil().max(1.0);
        let (begin, end) = (seconds * WARM_UP, seconds * 0.9);
        let counting = thread::scope(|scope| {
            let counting = scope.spawn(|| -> anyhow::Result<(f64, f64)> {
                thread::sleep(Duration::from_secs_f64(begin));
                let before = gateway.running.opened_and_size()?.0;
                thread::sleep(Duration::from_secs_f64(end - begin));
                let (after, size) = gateway.running.opened_and_size()?;
                Ok(((after - before) / (end - begin), size))
            });
            self.round(
                script,
                clients,
                gateway.running.clients,
                Some(gateway.running.pid()),
                rounds,
            )?;
            crate::joined(counting, "a counting thread")
        });
        let (opened, size) = counting?;
        rounds.opened.push(opened);
        rounds.size.push(size);
        Ok(())
    }
}

impl Gateway {
    /// Starts it and waits until it knows its primary.
    fn start(
        plan: &Plan,
        server: &Sandbox,
        (workers, connections): (usize, Connections),
        options: &[String],
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let name = format!("forebay-{workers}-{connections}").replace(' ', "-");
        let (limit, size) = match connections {
            Connections::Most(count) => (
                format!(", max_connections = {count}"),
                "pool = { adaptive = false }\n",
            ),
            Connections::Auto => Default::default(),
        };
        let [top, listener, cluster] = crate::overhead::options(options);
        let setup = Setup {
            program: &plan.program,
            mode: Contender::Split,
            account: SANDBOX,
            topology: "replication",
            servers: &[format!(
                "{{ address = \"{}\"{limit} }}",
                server.primary().address()
            )],
            workers,
            options: [top, listener, format!("{size}{cluster}")],
        };
        Ok(Self {
            workers,
            connections,
            running: gateway::Gateway::start(&name, &setup, folder)?,
        })
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workers, connections, ..
        } = self;
        write!(out, "split, {workers} worker(s), {connections}")
    }
}

impl Rounds {
    fn add(&mut self, measured: &Measured) {
        self.rates.push(measured.done.rate);
        self.p99_ms.push(measured.done.p99_ms);
        self.own_cpu.extend(measured.own_us);
        self.server_cpu.extend(measured.server_us);
    }

    fn median(&self) -> f64 {
        crate::overhead::Spread::of(self.rates.iter().copied()).map_or(0.0, |spread| spread.median)
    }

    fn tell(&self, part: &str, name: &str, report: &mut Report) {
        let steady = Some(Wanted::AtMost(1.0));
        let figures = [
            ("", "query/s", &self.rates, None),
            (", p99", "ms", &self.p99_ms, None),
            (", CPU", "us/q", &self.own_cpu, None),
            (", CPU of the server", "us/q", &self.server_cpu, None),
            (", connections opened", "1/s", &self.opened, steady),
            (", connections", "", &self.size, None),
        ];
        for (what, unit, rounds, wanted) in figures {
            report
                .add(part, format!("{name}{what}"), unit, rounds.iter().copied())
                .wanted(wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SplitArgs,
    }

    #[test]
    fn what_is_not_said_is_filled_in() {
        let plan = |words: &str| {
            let words = ["bench"].into_iter().chain(words.split(' '));
            Plan::new(&Cli::try_parse_from(words).unwrap().args)
        };
        let whole = plan("--servers mariadb,mysql").unwrap();
        assert_eq!(whole.clients, [64, 200, 500]);
        assert_eq!(whole.connections.len(), 3);
        assert!(whole.workers.len() == 2 && whole.has_haproxy);
        let quick = plan("--servers mysql --quick --workers 2 --contenders split").unwrap();
        assert_eq!(
            (quick.clients, quick.workers, quick.rounds),
            (vec![64], vec![2], 1)
        );
        assert!(!quick.has_haproxy);
        assert!(plan("--servers mysql --clients 1001").is_err());
        assert!(plan("--servers mysql --rounds 0").is_err());
    }
}
