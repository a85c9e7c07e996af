//! Takes the figures: rounds of load through each contender in turn, and the growth of memory by idle
//! sessions.

use std::{
    fs,
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    Plan,
    contender::{Contender, Start},
    report::{Cell, Figures, IdleFigures, Sample},
    rig::Rig,
    workload::{Protocol, Workload},
};
use crate::usage::{CpuTime, Memory};

/// Part of a round's duration spent on load that is not measured, before the part that is.
const WARM_UP: f64 = 0.15;
/// Sessions that warm up the allocator before memory is measured.
const WARM_UP_SESSIONS: usize = 64;
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Bench<'a> {
    plan: &'a Plan,
    workers: usize,
    rig: Rig,
    contenders: Vec<Contender>,
    progress: ProgressBar,
}

impl<'a> Bench<'a> {
    /// Starts every contender with its servers.
    pub(super) fn new(start: &Start<'a>) -> anyhow::Result<Self> {
        let plan = start.plan;
        let mut rig = Rig::new(plan.busy_poll)?;
        let contenders: anyhow::Result<Vec<_>> = plan
            .contenders
            .iter()
            .map(|&kind| Contender::start(kind, start, &mut rig))
            .collect();
        let contenders = contenders?;
        let cells = plan.protocols.len() * plan.rows.len() * plan.clients.len();
        let steps = (cells * plan.rounds + usize::from(plan.idle_sessions > 0)) * contenders.len();
        Ok(Self {
            plan,
            workers: start.workers,
            rig,
            contenders,
            progress: progress_bar(steps as u64),
        })
    }

    /// Memory of one idle session in every contender that has a process. Where each session has a server
    /// connection there are as many sessions as `most` says.
    pub(super) fn idle_memory(&mut self, most: usize) -> anyhow::Result<Vec<IdleFigures>> {
        let mut figures = Vec::new();
        if self.plan.idle_sessions == 0 {
            return Ok(figures);
        }
        for at in 0..self.contenders.len() {
            let kind = self.contenders[at].kind;
            let sessions = match kind.shares_connections() {
                true => self.plan.idle_sessions,
                false => self.plan.idle_sessions.min(most),
            };
            self.progress
                .set_message(format!("{kind}: {sessions} idle sessions"));
            let measured = self
                .idle_memory_of(at, sessions)
                .with_context(|| format!("idle sessions of {kind}"));
            figures.extend(measured?);
            self.progress.inc(1);
        }
        Ok(figures)
    }

    pub(super) fn matrix(&mut self) -> anyhow::Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for &protocol in &self.plan.protocols {
            for &rows in &self.plan.rows {
                for &clients in &self.plan.clients {
                    cells.push(self.cell(protocol, rows, clients)?);
                }
            }
        }
        self.progress.finish_and_clear();
        Ok(cells)
    }

    fn cell(&mut self, protocol: Protocol, rows: u32, clients: usize) -> anyhow::Result<Cell> {
        let workload = Workload::new(protocol, rows, self.plan.older_clients);
        let mut samples = vec![Vec::new(); self.contenders.len()];
        for _ in 0..self.plan.rounds {
            for (at, samples) in samples.iter_mut().enumerate() {
                let kind = self.contenders[at].kind;
                self.progress.set_message(format!(
                    "{kind}: {protocol}, rows {rows}, clients {clients}, workers {}",
                    self.workers
                ));
                let sample = self.round(at, clients, &workload).with_context(|| {
                    format!("{kind} with {clients} clients, {protocol} protocol, {rows} rows")
                });
                samples.push(sample?);
                self.progress.inc(1);
            }
        }
        let figures = self.contenders.iter().zip(samples);
        let figures = figures
            .map(|(contender, rounds)| Figures {
                contender: contender.kind,
                rounds,
            })
            .collect();
        Ok(Cell {
            protocol,
            rows,
            clients,
            workers: self.workers,
            figures,
        })
    }

    fn round(&mut self, at: usize, clients: usize, workload: &Workload) -> anyhow::Result<Sample> {
        let Self {
            rig,
            contenders,
            plan,
            ..
        } = self;
        let contender = &mut contenders[at];
        // Without a process of its own the bench's is taken: what is measured then is the bench.
        let pid = contender.pid().unwrap_or_else(process::id);
        rig.open(contender.address, clients, workload)?;
        rig.run(plan.round().mul_f64(WARM_UP))?;
        contender.reads_served(rig);
        let before = CpuTime::of(pid)?;
        let load = rig.run(plan.round())?;
        let used = CpuTime::of(pid)? - before;
        routes_as_told(contender, rig, plan, load.queries)?;
        contender.close(rig)?;

        let cpu_us = used.total.as_secs_f64() * 1e6 / load.queries as f64;
        let microseconds = |quantile| load.latency.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Sample {
            cpu_us,
            user_us: cpu_us * used.user_share(),
            system_us: cpu_us * (1.0 - used.user_share()),
            qps: load.queries as f64 / load.elapsed.as_secs_f64(),
            p50_us: microseconds(0.5),
            p99_us: microseconds(0.99),
        })
    }

    fn idle_memory_of(&mut self, at: usize, sessions: usize) -> anyhow::Result<Option<IdleFigures>> {
        let Self {
            rig,
            contenders,
            plan,
            ..
        } = self;
        let contender = &contenders[at];
        let Some(pid) = contender.pid() else {
            return Ok(None);
        };
        let workload = Workload::new(Protocol::Text, 1, plan.older_clients);
        rig.open(contender.address, WARM_UP_SESSIONS, &workload)?;
        rig.run(Duration::from_millis(200))?;
        let before = settled_memory(pid)?;
        rig.open(contender.address, sessions, &workload)?;
        let after = settled_memory(pid)?;
        let server_connections = contender.server_connections(rig);
        contender.close(rig)?;
        let each = |after: u64, before: u64| (after as f64 - before as f64) / sessions as f64;
        Ok(Some(IdleFigures {
            contender: contender.kind,
            sessions,
            server_connections,
            rss_bytes: each(after.rss, before.rss),
            pss_bytes: each(after.pss, before.pss),
        }))
    }
}

/// A figure is worth nothing when it was had by doing less: whoever is to spread reads over replicas, and to
/// share few connections, has done so.
fn routes_as_told(contender: &mut Contender, rig: &Rig, plan: &Plan, queries: u64) -> anyhow::Result<()> {
    let served = contender.reads_served(rig);
    // A read whose server is lost is served once more.
    ensure!(
        served >= queries,
        "{queries} reads were answered, and {served} of them by replicas"
    );
    if contender.kind.shares_connections() {
        let (open, most) = (contender.server_connections(rig), plan.servers.connections);
        ensure!(open <= most, "{open} server connections, and {most} are allowed");
    }
    Ok(())
}

/// Keeps the calling thread, and what it starts from now on, on one core.
pub(crate) fn pin_this_thread(core: Option<usize>) -> anyhow::Result<()> {
    let Some(core) = core else { return Ok(()) };
    let thread = fs::read_link("/proc/thread-self")?;
    let id = thread.file_name().context("/proc/thread-self has no thread id")?;
    let output = Command::new("taskset")
        .args(["-p", "-c", &core.to_string()])
        .arg(id)
        .output();
    let output = output.context("running taskset, which comes with util-linux")?;
    ensure!(
        output.status.success(),
        "taskset: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// The memory of a process once it has stopped changing: two equal readings 100 ms apart, or the last one
/// after some seconds.
fn settled_memory(pid: u32) -> anyhow::Result<Memory> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    let mut last = Memory::of(pid)?;
    loop {
        thread::sleep(Duration::from_millis(100));
        let now = Memory::of(pid)?;
        if now.rss == last.rss || Instant::now() > deadline {
            return Ok(now);
        }
        last = now;
    }
}

/// How far a run has come, and how long it will take.
pub(crate) fn progress_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta:>5}  {msg}") {
        bar.set_style(style);
    }
    bar
}
