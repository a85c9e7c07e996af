//! The parts of a run, one method each.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use sandbox::Sandbox;

use super::{
    CacheArgs, Part,
    load::{Clients, Load, Request, Target, Traffic},
    report::{Report, Wanted},
    rig::{self, Gateway, Redis},
};
use crate::{
    child::ListeningChild,
    client::SANDBOX,
    sysbench::Sysbench,
    usage::{CpuTime, Memory},
};

/// Part of a round's duration spent on load that is not measured, before the part that is.
pub(super) const WARM_UP: f64 = 0.15;
/// Rows changed by one transaction, where the binary log is to be read as fast as it can be.
const TRANSACTION: u64 = 10_000;
pub(super) const TABLE: &str = "sbtest1";

/// The server with its rows, and what every part needs.
pub(super) struct Bench<'a> {
    pub(super) args: &'a CacheArgs,
    folder: &'a Path,
    pub(super) progress: &'a ProgressBar,
    pub(super) server: Sandbox,
}

/// The rounds of the server itself, of HAProxy, and of memory at `strong` and at `session`.
type Contenders = [Vec<f64>; 4];

/// One round of one contender.
pub(super) struct Sample {
    pub(super) cpu_us: f64,
    pub(super) ops: f64,
    pub(super) p99_ms: f64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        args: &'a CacheArgs,
        folder: &'a Path,
        progress: &'a ProgressBar,
        report: &mut Report,
    ) -> anyhow::Result<Self> {
        progress.set_message(format!("a server with {} rows", args.rows));
        let server = rig::start_server(args)?;
        rig::fill_table(
            &mut rig::on(&server),
            &format!("sbtest.{TABLE}"),
            args.rows,
            args.value_bytes,
        )?;
        if report.programs.is_empty() {
            let redis = Command::new(args.redis()?).arg("--version").output()?;
            let redis = String::from_utf8_lossy(&redis.stdout);
            report.programs = vec![server.version().to_owned(), redis.trim().to_owned()];
        }
        Ok(Self {
            args,
            folder,
            progress,
            server,
        })
    }

    /// Those in which all share all cores.
    pub(super) fn run_on_all_cores(&self, report: &mut Report) -> anyhow::Result<()> {
        if self.args.parts.contains(&Part::Updates) {
            self.updates(&self.gateway(self.args, false)?, report)?;
        }
        if self.args.parts.contains(&Part::Sql) {
            self.point_selects(report)?;
        }
        Ok(())
    }

    /// The parts in which the contender has a core of its own.
    pub(super) fn run(&self, report: &mut Report) -> anyhow::Result<()> {
        let wants = |part| self.args.parts.contains(&part);
        if wants(Part::Copy) {
            self.copy(report)?;
        }
        if wants(Part::Operations) || wants(Part::Hits) {
            let gateway = self.gateway(self.args, true)?;
            if wants(Part::Operations) {
                self.operations(&gateway, report)?;
            }
            if wants(Part::Hits) {
                self.hits(&gateway, report)?;
            }
        }
        if wants(Part::Memory) {
            self.memory(report)?;
        }
        Ok(())
    }

    /// A gateway that has all rows.
    fn gateway(&self, args: &CacheArgs, hashes: bool) -> anyhow::Result<Gateway> {
        self.progress.set_message("the gateway copies the rows");
        let gateway = Gateway::start(args, &self.server, TABLE, hashes, self.folder)?;
        gateway.wait_for("row@1", &rig::value(1, self.args.value_bytes))?;
        Ok(gateway)
    }

    fn operations(&self, gateway: &Gateway, report: &mut Report) -> anyhow::Result<()> {
        self.progress.set_message("Redis gets the rows");
        let redis = Redis::start(self.args, self.folder)?;
        redis.fill(self.args.rows, self.args.value_bytes, true)?;
        let contenders = [
            ("redis", &redis.target, redis.pid()),
            ("strong", &gateway.strong, gateway.pid()),
            ("eventual", &gateway.eventual, gateway.pid()),
        ];
        for (request, pipeline) in [
            (Request::Get, 1),
            (Request::Hget, 1),
            (Request::Get, 16),
            (Request::Hget, 16),
        ] {
            let traffic = Traffic {
                request,
                pipeline,
                ..self.traffic()
            };
            let mut rounds: [Vec<Sample>; 3] = Default::default();
            for _ in 0..self.args.rounds {
                for ((name, target, pid), samples) in contenders.iter().zip(&mut rounds) {
                    self.progress
                        .set_message(format!("{name}: {request}, pipeline {pipeline}"));
                    samples.push(self.round(target, *pid, traffic)?);
                }
            }
            let what = format!("{request}, pipeline {pipeline}, {} clients", traffic.clients);
            let bound = if pipeline == 1 { 1.0 } else { 1.2 };
            let redis = &rounds[0];
            for ((name, ..), samples) in contenders.iter().zip(&rounds) {
                let cpu = samples.iter().map(|sample| sample.cpu_us);
                report.add("operations", format!("{what}: {name}, CPU"), "us/op", cpu);
                let ops = samples.iter().map(|sample| sample.ops);
                report.add("operations", format!("{what}: {name}"), "op/s", ops);
                if *name != "redis" {
                    let ratio = samples
                        .iter()
                        .zip(redis)
                        .map(|(own, redis)| own.cpu_us / redis.cpu_us);
                    let wanted = Some(Wanted::AtMost(bound));
                    report
                        .add("operations", format!("{what}: {name}/redis, CPU"), "", ratio)
                        .wanted(wanted);
                }
            }
        }
        Ok(())
    }

    fn hits(&self, gateway: &Gateway, report: &mut Report) -> anyhow::Result<()> {
        let ratios = [0, 50, 75, 100];
        let mut rounds: [Vec<f64>; 4] = Default::default();
        for _ in 0..self.args.rounds {
            for (&hits, rates) in ratios.iter().zip(&mut rounds) {
                self.progress.set_message(format!("{hits} % of the rows exist"));
                let traffic = Traffic {
                    hits,
                    ..self.traffic()
                };
                rates.push(self.round(&gateway.strong, gateway.pid(), traffic)?.ops);
            }
        }
        for (hits, rates) in ratios.iter().zip(&rounds) {
            report.add(
                "hits",
                format!("GET strong, {hits} % exist"),
                "op/s",
                rates.iter().copied(),
            );
        }
        let ratio = rounds[0].iter().zip(&rounds[3]).map(|(none, all)| none / all);
        report
            .add("hits", "GET strong, 0 %/100 %, op/s", "", ratio)
            .wanted(Wanted::AtLeast(0.95));
        Ok(())
    }

    fn copy(&self, report: &mut Report) -> anyhow::Result<()> {
        let rows = self.args.rows as f64;
        self.progress.set_message("the server's own SELECT");
        let mut select = self.server.primary().client();
        let statement = format!("--execute=SELECT id, c FROM sbtest.{TABLE}");
        select.args(["--quick", &statement]).stdout(Stdio::null());
        let began = Instant::now();
        ensure!(select.status()?.success(), "the SELECT failed");
        report.add(
            "copy",
            "the server's SELECT of all rows",
            "rows/s",
            [rows / began.elapsed().as_secs_f64()],
        );
        let began = Instant::now();
        let gateway = self.gateway(self.args, false)?;
        let wanted = Some(Wanted::AtLeast(200_000.0));
        report
            .add(
                "copy",
                "start to first strong read",
                "rows/s",
                [rows / began.elapsed().as_secs_f64()],
            )
            .wanted(wanted);
        self.catch_up(&gateway, report)
    }

    /// The gateway stands still while the table is changed, and then reads what it has missed.
    fn catch_up(&self, gateway: &Gateway, report: &mut Report) -> anyhow::Result<()> {
        self.progress.set_message("the gateway reads the binary log");
        let changed = (self.args.rows / 2).max(1);
        signal(gateway.pid(), "STOP")?;
        for first in (1..=changed).step_by(TRANSACTION as usize) {
            let last = (first + TRANSACTION - 1).min(changed);
            let statement =
                format!("UPDATE sbtest.{TABLE} SET c = CONCAT('x', id) WHERE id BETWEEN {first} AND {last}");
            self.server.primary().sql(&statement)?;
        }
        signal(gateway.pid(), "CONT")?;
        let began = Instant::now();
        gateway.wait_for(&format!("row@{changed}"), &format!("x{changed}"))?;
        let rate = changed as f64 / began.elapsed().as_secs_f64();
        report
            .add("copy", "binary log", "rows/s", [rate])
            .wanted(Wanted::AtLeast(50_000.0));
        let length = self.args.value_bytes;
        let statement =
            format!("UPDATE sbtest.{TABLE} SET c = REPEAT('1', {length}) WHERE id BETWEEN 2 AND {changed}");
        self.server.primary().sql(&statement)?;
        let first = rig::value(1, length);
        self.server
            .primary()
            .sql(&format!("UPDATE sbtest.{TABLE} SET c = '{first}' WHERE id = 1"))?;
        Ok(())
    }

    /// Point selects by sysbench: to the server, through HAProxy, and from memory.
    pub(super) fn point_selects(&self, report: &mut Report) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let args = CacheArgs {
            workers: cores,
            ..self.args.clone()
        };
        let gateway = self.gateway(&args, false)?;
        let (haproxy, through) = rig::start_haproxy(
            &args.haproxy,
            args.contender_core,
            &self.server.primary().address(),
            self.folder,
        )?;
        let direct = self.server.primary().address().parse()?;
        let server = self.server.primary().pid().context("the server is gone")?;
        let mut measured = PointSelects::default();
        for _ in 0..self.args.rounds {
            let contenders = [
                ("the server", direct, server),
                ("HAProxy", through, ListeningChild::pid(&haproxy)),
                ("memory", gateway.sql, gateway.pid()),
                ("memory, `session`", gateway.sql_own, gateway.pid()),
            ];
            for (at, (name, address, pid)) in contenders.into_iter().enumerate() {
                self.progress.set_message(format!("sysbench: {name}"));
                let (before, of_server) = (CpuTime::of(pid)?, CpuTime::of(server)?);
                let done = Sysbench {
                    on: &[],
                    script: "oltp_point_select",
                    address,
                    account: SANDBOX,
                    is_text: false,
                    tables: 1,
                    rows: self.args.rows,
                    threads: self.args.threads,
                    seconds: self.args.seconds,
                    options: &[],
                }
                .run()?;
                let (used, of_server) = (CpuTime::of(pid)? - before, CpuTime::of(server)? - of_server);
                let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / done.queries;
                measured.rates[at].push(done.rate);
                measured.costs[at].push(each(used.total));
                measured.of_server[at].push(each(of_server.total));
                measured.of_load[at].push(each(done.cpu));
            }
        }
        measured.report(report);
        Ok(())
    }

    fn memory(&self, report: &mut Report) -> anyhow::Result<()> {
        let rows = self.args.rows;
        rig::fill_table(&mut rig::on(&self.server), "sbtest.empty", 1, 16)?;
        let (gateway_empty, redis_empty) = self.memory_of("empty", 1, 16)?;
        for length in [16, 128, 256] {
            self.progress
                .set_message(format!("memory of {rows} rows of {length} bytes"));
            let table = format!("m{length}");
            rig::fill_table(
                &mut rig::on(&self.server),
                &format!("sbtest.{table}"),
                rows,
                length,
            )?;
            let (gateway, redis) = self.memory_of(&table, rows, length)?;
            let each = |full: f64, empty: f64| (full - empty) / rows as f64;
            let (own, other) = (each(gateway, gateway_empty), each(redis, redis_empty));
            report.add("memory", format!("a row of {length} bytes: redis"), "B", [other]);
            report
                .add("memory", format!("a row of {length} bytes: forebay"), "B", [own])
                .wanted(Wanted::AtMost(other.round()));
        }
        Ok(())
    }

    /// Resident bytes of the gateway and of Redis with these rows.
    fn memory_of(&self, table: &str, rows: u64, length: usize) -> anyhow::Result<(f64, f64)> {
        let gateway = Gateway::start(self.args, &self.server, table, false, self.folder)?;
        gateway.wait_for(&format!("row@{rows}"), &rig::value(rows, length))?;
        let own = Memory::of(gateway.pid())?.rss as f64;
        drop(gateway);
        let redis = Redis::start(self.args, self.folder)?;
        redis.fill(rows, length, false)?;
        Ok((own, Memory::of(redis.pid())?.rss as f64))
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            request: Request::Get,
            clients: self.args.clients,
            pipeline: 1,
            rows: self.args.rows,
            hits: 100,
        }
    }

    /// As long as a round is.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.args.seconds)
    }

    pub(super) fn round(&self, target: &Target, pid: u32, traffic: Traffic) -> anyhow::Result<Sample> {
        let round = self.duration();
        let mut clients = Clients::open(target, traffic)?;
        clients.run(round.mul_f64(WARM_UP))?;
        let before = CpuTime::of(pid)?;
        let Load {
            operations,
            elapsed,
            latency,
        } = clients.run(round)?;
        let used = CpuTime::of(pid)? - before;
        Ok(Sample {
            cpu_us: used.total.as_secs_f64() * 1e6 / operations as f64,
            ops: operations as f64 / elapsed.as_secs_f64(),
            p99_ms: latency.value_at_quantile(0.99) as f64 / 1e6,
        })
    }
}

/// Point selects of sysbench, round by round.
#[derive(Default)]
struct PointSelects {
    /// Queries a second.
    rates: Contenders,
    /// Microseconds of CPU for a query, of whoever answers it; of the server meanwhile; and of sysbench.
    costs: Contenders,
    of_server: Contenders,
    of_load: Contenders,
}

impl PointSelects {
    fn report(&self, report: &mut Report) {
        let Self {
            rates,
            costs,
            of_server,
            of_load,
        } = self;
        for (at, name) in ["the server", "HAProxy", "memory", "memory, `session`"]
            .into_iter()
            .enumerate()
        {
            let figures = [
                ("", "query/s", &rates[at]),
                (", CPU", "us/q", &costs[at]),
                (", CPU of the server", "us/q", &of_server[at]),
                (", CPU of sysbench", "us/q", &of_load[at]),
            ];
            for (what, unit, rounds) in figures {
                let what = format!("point select: {name}{what}");
                report.add("sql", what, unit, rounds.iter().copied());
            }
        }
        let each = |of: &[f64], to: &[f64], what: fn(f64, f64) -> f64| -> Vec<f64> {
            of.iter().zip(to).map(|(of, to)| what(*of, *to)).collect()
        };
        let ratio = |of: &[f64], to: &[f64]| each(of, to, |of, to| of / to);
        let sum = |of: &[f64], to: &[f64]| each(of, to, |of, to| of + to);
        // The load has the same cores: where an answer costs nothing, there are as many as sysbench alone can
        // ask for. Where it has others, they are as many as what answers, and what the server has to say for
        // it, leave room for.
        let if_free = ratio(&sum(&costs[0], &of_load[0]), &of_load[0]);
        let of_memory = sum(&costs[2], &of_server[2]);
        let ratios = [
            (
                "memory/server, query/s",
                ratio(&rates[2], &rates[0]),
                Some(Wanted::AtLeast(3.0)),
            ),
            ("memory/server, query/s, if memory took no CPU", if_free, None),
            (
                "memory/server, query/s, if sysbench took no CPU",
                ratio(&costs[0], &of_memory),
                Some(Wanted::AtLeast(3.0)),
            ),
            (
                "memory/HAProxy, CPU",
                ratio(&costs[2], &costs[1]),
                Some(Wanted::AtMost(0.6)),
            ),
            // What nobody has to wait for: the session has written nothing.
            (
                "memory, `session`/server, query/s",
                ratio(&rates[3], &rates[0]),
                None,
            ),
            (
                "memory, `session`/HAProxy, CPU",
                ratio(&costs[3], &costs[1]),
                None,
            ),
        ];
        for (what, rounds, wanted) in ratios {
            report.add("sql", what, "", rounds).wanted(wanted);
        }
    }
}

fn signal(pid: u32, name: &str) -> anyhow::Result<()> {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()?;
    ensure!(status.success(), "cannot send SIG{name} to process {pid}");
    Ok(())
}
