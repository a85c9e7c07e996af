//! The part `updates`: reads beside writers, who change random rows so many times a second, each time in a
//! transaction of its own.

use std::{
    io::Write,
    process::{Child, ChildStdin, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use hdrhistogram::Histogram;
use inputs::Random;
use sandbox::Sandbox;

use super::{
    load::{Target, Traffic},
    paced::{self, Paced},
    parts::{Bench, Sample, TABLE, WARM_UP},
    report::{Report, Wanted},
    rig::Gateway,
};
use crate::usage::MachineTime;

/// Clients that do not bring a core to its limit.
const FEW_CLIENTS: usize = 4;
/// Requests in flight of a client that has several.
const PIPELINE: usize = 16;
/// What reads at a fixed rate are of those that a closed loop reached in the first round, far from overload.
/// They are the same beside all updates.
const SHARE: f64 = 0.1;
const WRITERS: u32 = 8;
/// How often a writer gets its share of statements.
const TICK: Duration = Duration::from_millis(5);

/// What was measured of one contender in one round.
struct Beside<T> {
    what: T,
    /// Updates a second meanwhile.
    written: f64,
    /// Part of the machine's CPU that nobody used meanwhile.
    idle: f64,
}

#[derive(Default)]
struct Rounds {
    single: Closed,
    pipelined: Closed,
    few: Vec<Beside<Sample>>,
    paced_eventual: Vec<Beside<Paced>>,
    paced: Vec<Beside<Paced>>,
}

/// The closed loops of both levels, round by round.
#[derive(Default)]
struct Closed {
    eventual: Vec<Beside<Sample>>,
    strong: Vec<Beside<Sample>>,
}

impl Bench<'_> {
    /// Strong and eventual reads take turns in who is first: the writers run on, and their server warms up.
    pub(super) fn updates(&self, gateway: &Gateway, report: &mut Report) -> anyhow::Result<()> {
        let single = self.traffic();
        let few = Traffic {
            clients: FEW_CLIENTS,
            ..single
        };
        let pipelined = Traffic {
            pipeline: PIPELINE,
            ..single
        };
        let mut reads = self.args.paced;
        for &rate in &self.args.updates {
            let mut rounds = Rounds::default();
            for round in 0..self.args.rounds {
                self.progress.set_message(format!("{rate} updates a second"));
                let _writers = Writers::start(&self.server, TABLE, self.args.rows, rate)?;
                let closed = |target, traffic| self.beside(|| self.round(target, gateway.pid(), traffic));
                for (closed_loop, traffic) in
                    [(&mut rounds.single, single), (&mut rounds.pipelined, pipelined)]
                {
                    let mut order = [&mut closed_loop.eventual, &mut closed_loop.strong];
                    let mut targets = [&gateway.eventual, &gateway.strong];
                    order.rotate_left(round % 2);
                    targets.rotate_left(round % 2);
                    for (samples, target) in order.into_iter().zip(targets) {
                        samples.push(closed(target, traffic)?);
                    }
                }
                rounds.few.push(closed(&gateway.strong, few)?);
                let reached = rounds.single.strong.last().map_or(0.0, |strong| strong.what.ops);
                let reads = *reads.get_or_insert(reached * SHARE);
                let paced = |target| self.beside(|| self.paced(target, reads));
                rounds.paced_eventual.push(paced(&gateway.eventual)?);
                rounds.paced.push(paced(&gateway.strong)?);
            }
            let what = format!("{rate} updates/s");
            report_closed(&what, &rounds.single, report);
            report_closed(&format!("{what}, pipeline {PIPELINE}"), &rounds.pipelined, report);
            let closed = [
                (self.args.clients, &rounds.single.strong),
                (FEW_CLIENTS, &rounds.few),
            ];
            for (clients, samples) in closed {
                report.add(
                    "updates",
                    format!("{what}: strong, p99 of a closed loop, {clients} clients"),
                    "ms",
                    samples.iter().map(|sample| sample.what.p99_ms),
                );
            }
            // What the machine itself takes.
            report_paced(&format!("{what}: eventual"), &rounds.paced_eventual, None, report);
            let wanted = Some(Wanted::AtMost(2.0));
            report_paced(&format!("{what}: strong"), &rounds.paced, wanted, report);
        }
        Ok(())
    }

    /// Reads at a fixed rate.
    fn paced(&self, target: &Target, rate: f64) -> anyhow::Result<Paced> {
        let mut clients = paced::Clients::open(target, self.traffic())?;
        clients.run(rate, self.duration().mul_f64(WARM_UP))?;
        clients.run(rate, self.duration())
    }

    fn beside<T>(&self, measure: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Beside<T>> {
        let (began, written) = (Instant::now(), updates_run(&self.server)?);
        let before = MachineTime::now()?;
        let what = measure()?;
        let idle = MachineTime::now()?.idle_since(before);
        let written = (updates_run(&self.server)? - written) / began.elapsed().as_secs_f64();
        Ok(Beside { what, written, idle })
    }
}

/// The closed loops: how many reads there can be, and what they cost. How long they take is how long the line
/// is.
fn report_closed(what: &str, Closed { eventual, strong }: &Closed, report: &mut Report) {
    for (name, samples) in [("eventual", eventual), ("strong", strong)] {
        report_beside(&format!("{what}: {name}"), samples, report);
        let ops = samples.iter().map(|sample| sample.what.ops);
        report.add("updates", format!("{what}: {name}"), "op/s", ops);
        let cpu = samples.iter().map(|sample| sample.what.cpu_us);
        report.add("updates", format!("{what}: {name}, CPU"), "us/op", cpu);
    }
    let ratio = |of: fn(&Sample) -> f64| {
        let pairs = strong.iter().zip(eventual);
        pairs.map(move |(strong, eventual)| of(&strong.what) / of(&eventual.what))
    };
    report
        .add(
            "updates",
            format!("{what}: strong/eventual, op/s"),
            "",
            ratio(|sample| sample.ops),
        )
        .wanted(Wanted::AtLeast(0.9));
    report.add(
        "updates",
        format!("{what}: strong/eventual, CPU"),
        "",
        ratio(|sample| sample.cpu_us),
    );
}

/// The reads at a fixed rate: how long they take where there is no line. `wanted`: of the slowest in a
/// hundred, in milliseconds.
fn report_paced(what: &str, samples: &[Beside<Paced>], wanted: Option<Wanted>, report: &mut Report) {
    let what = format!("{what}, paced");
    report_beside(&what, samples, report);
    let each = |of: fn(&Paced) -> f64| samples.iter().map(move |sample| of(&sample.what));
    let missed = samples
        .iter()
        .filter(|sample| !sample.what.kept_the_rate())
        .count();
    report.add(
        "updates",
        format!("{what}, wanted"),
        "op/s",
        each(|paced| paced.wanted),
    );
    report.add(
        "updates",
        format!("{what}, done"),
        "op/s",
        each(|paced| paced.done),
    );
    if missed > 0 {
        report.note(format!(
            "the rate was not kept in {missed} of {} rounds",
            samples.len()
        ));
    }
    let ms = |of: &Histogram<u64>, quantile| of.value_at_quantile(quantile) as f64 / 1e6;
    report.add(
        "updates",
        format!("{what}, sent late by the load, p99"),
        "ms",
        samples.iter().map(|sample| ms(&sample.what.lateness, 0.99)),
    );
    // Where there was too much to do it says nothing.
    let wanted = wanted.filter(|_| missed == 0);
    for (name, quantile, wanted) in [("p50", 0.5, None), ("p99", 0.99, wanted)] {
        report
            .add(
                "updates",
                format!("{what}, {name}"),
                "ms",
                samples.iter().map(|sample| ms(&sample.what.latency, quantile)),
            )
            .wanted(wanted);
    }
}

/// What else went on.
fn report_beside<T>(what: &str, samples: &[Beside<T>], report: &mut Report) {
    let written = samples.iter().map(|sample| sample.written);
    report.add("updates", format!("{what}, updates done"), "/s", written);
    let idle = samples.iter().map(|sample| sample.idle * 100.0);
    report.add("updates", format!("{what}, idle CPU of the machine"), "%", idle);
}

/// Running writers; dropping it ends them.
struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    children: Vec<Child>,
}

impl Writers {
    /// Starts writing `rate` updates a second, or as many as the server manages.
    fn start(server: &Sandbox, table: &str, rows: u64, rate: u32) -> anyhow::Result<Self> {
        let mut writers = Self {
            stop: Arc::default(),
            threads: Vec::new(),
            children: Vec::new(),
        };
        if rate == 0 {
            return Ok(writers);
        }
        for seed in 1..=u64::from(WRITERS) {
            let mut command = server.primary().client();
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut child = command.spawn().context("starting the client program")?;
            let input = child.stdin.take().context("a client without input")?;
            let pace = Pace {
                table: table.to_owned(),
                rows,
                each_tick: f64::from(rate) / f64::from(WRITERS) * TICK.as_secs_f64(),
                random: Random::new(seed),
                stop: Arc::clone(&writers.stop),
            };
            writers.children.push(child);
            writers.threads.push(thread::spawn(move || pace.write(input)));
        }
        Ok(writers)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Pace {
    table: String,
    rows: u64,
    each_tick: f64,
    random: Random,
    stop: Arc<AtomicBool>,
}

impl Pace {
    /// A pipe takes some thousand statements more than were run, so one that is behind stays behind by
    /// little.
    fn write(mut self, mut input: ChildStdin) {
        let mut next = Instant::now();
        let mut due = 0.0;
        while !self.stop.load(Ordering::Relaxed) {
            due += self.each_tick;
            let mut statements = String::new();
            while due >= 1.0 {
                due -= 1.0;
                let id = self.random.number() % self.rows + 1;
                statements += &format!("UPDATE sbtest.{} SET k = k + 1 WHERE id = {id};\n", self.table);
            }
            if input.write_all(statements.as_bytes()).is_err() {
                return; // it was killed
            }
            next += TICK;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

fn updates_run(server: &Sandbox) -> anyhow::Result<f64> {
    let text = server.primary().sql("SHOW GLOBAL STATUS LIKE 'Com_update'")?;
    let count = text.split_ascii_whitespace().last().context("no Com_update")?;
    Ok(count.parse()?)
}
