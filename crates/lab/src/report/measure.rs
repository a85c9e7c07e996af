//! Tables that are measured here: sysbench through everybody in turns.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;

use super::{
    Plan, Stop,
    beside::Watched,
    catalogue::{Load, ONE_ZONE, Vary, ZONES},
    results::Section,
    stand::{Racer, Stand},
    text::distinct,
};
use crate::{
    client::{Client, Server, Tls},
    overhead::progress_bar,
    sysbench::{Measured, Sysbench},
};

/// Above it the load was not what filled the machine.
const IDLE_MAX: f64 = 0.2;
/// Less of a rate has not been reached.
const REACHED: f64 = 0.95;
/// Clients beside new connections.
const BUSY_CLIENTS: usize = 50;
/// New connections a second.
const CONNECTS: [u32; 3] = [100, 200, 300];
/// Threads that make them.
const CONNECTORS: u32 = 8;
const WITHOUT: &str = "0/s";
const CPU_OF_CONNECTION: &str = "cpu of a connection";
/// The figure of them.
const MADE: &str = "connections made";

/// Takes rounds until there are as many as wanted, or time is up, or somebody wants it to end.
pub(super) struct Rounds<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    pub bar: ProgressBar,
    began: Instant,
    pub done: u32,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(plan: &'a Plan, stop: &'a Stop, steps: usize) -> Self {
        Self {
            plan,
            stop,
            bar: progress_bar((steps * plan.rounds) as u64),
            began: Instant::now(),
            done: 0,
        }
    }

    /// Whether there is to be another one. One there is always.
    pub(super) fn next(&mut self) -> anyhow::Result<bool> {
        self.stop.check()?;
        let spent = self.began.elapsed();
        let fits = self.done == 0 || self.stop.time_left() > spent / self.done;
        let goes_on = (self.done as usize) < self.plan.rounds && fits;
        self.done += u32::from(goes_on);
        if !goes_on {
            self.bar.finish_and_clear();
        }
        Ok(goes_on)
    }

    pub(super) fn tell(&self, parameter: &str, who: &str) -> anyhow::Result<()> {
        self.bar.set_message(format!("{parameter}: {who}"));
        self.stop.check()
    }
}

/// One load, in all its runs, through everybody in turns. What was measured before it broke off is compared
/// all the same.
pub(super) fn sysbench(
    stand: &Stand,
    load: &Load,
    plan: &Plan,
    stop: &Stop,
    section: &mut Section,
) -> anyhow::Result<()> {
    let racers = stand.racers(load.racers);
    ensure!(
        racers.len() >= load.racers.len(),
        "it needs {}: see --contenders",
        load.racers.join(", ")
    );
    let whole = take_turns(stand, load, &racers, plan, stop, section);
    tell_sizes(&racers, plan, section);
    for (of, to) in load.ratios {
        section.compare(of, to, "qps");
        section.compare(of, to, "cpu");
    }
    let foreign = plan.foreign();
    for to in distinct(load.ratios.iter().map(|(_, to)| *to)) {
        for of in &foreign {
            section.compare(of, to, "qps");
        }
    }
    section.compare_with(&foreign, "qps");
    tell_what_was_not_full(section);
    whole
}

fn take_turns(
    stand: &Stand,
    load: &Load,
    racers: &[&Racer],
    plan: &Plan,
    stop: &Stop,
    section: &mut Section,
) -> anyhow::Result<()> {
    let runs = runs(load);
    warm_up(stand, load, plan, racers)?;
    // Whom this process cannot reach would be compared with others that have sessions beside their load.
    let mut watched = Watched::new(plan.foreign());
    let mut rounds = Rounds::new(plan, stop, runs.len() * racers.len());
    let all_reachable = racers.iter().all(|racer| racer.load_on.is_empty());
    while rounds.next()? {
        for run in &runs {
            for racer in racers {
                rounds.tell(&run.parameter, &racer.name)?;
                let server = stand.at(racer.address);
                let load = run.load(load, plan, server, &racer.load_on);
                let measure = || load.measure(&racer.pids, &stand.server_pids());
                let who = (&racer.name[..], server);
                let measured = match all_reachable {
                    true => watched.run(who, measure, || stand.mend(plan), &mut section.notes),
                    false => measure(),
                };
                let measured = measured.with_context(|| format!("{}, {}", run.parameter, racer.name))?;
                record(section, &run.parameter, &racer.name, &measured);
                rounds.bar.inc(1);
            }
        }
    }
    if all_reachable {
        section.notes.push(watched.in_words());
    }
    Ok(())
}

struct Run {
    parameter: String,
    threads: usize,
    options: Vec<String>,
}

fn runs(load: &Load) -> Vec<Run> {
    let run = |parameter: String, threads, of_run: Option<String>| {
        let options = load.options.iter().map(|option| (*option).to_owned());
        Run {
            parameter,
            threads,
            options: options.chain(of_run).collect(),
        }
    };
    match load.vary {
        Vary::Threads(threads) => threads
            .iter()
            .map(|&threads| run(threads.to_string(), threads, None))
            .collect(),
        Vary::Range(threads, sizes) => sizes
            .iter()
            .map(|size| run(size.to_string(), threads, Some(format!("--range-size={size}"))))
            .collect(),
    }
}

impl Run {
    fn load<'a>(&'a self, load: &Load, plan: &Plan, server: Server, on: &'a [String]) -> Sysbench<'a> {
        Sysbench {
            on,
            script: load.script,
            address: server.address,
            account: server.account,
            is_text: false,
            tables: plan.tables,
            rows: plan.rows,
            threads: self.threads,
            seconds: plan.seconds,
            options: &self.options,
        }
    }
}

/// What comes first finds cold caches, and pools without connections.
fn warm_up(stand: &Stand, load: &Load, plan: &Plan, racers: &[&Racer]) -> anyhow::Result<()> {
    let Some(run) = runs(load).into_iter().next() else {
        return Ok(());
    };
    for racer in racers {
        let load = Sysbench {
            seconds: 1.0,
            ..run.load(load, plan, stand.at(racer.address), &racer.load_on)
        };
        load.measure(&racer.pids, &stand.server_pids())?;
    }
    Ok(())
}

fn record(section: &mut Section, parameter: &str, who: &str, measured: &Measured) {
    let at = (parameter, who);
    section.record(at, "qps", "query/s", measured.done.rate);
    if let Some(own) = measured.own_us {
        section.record(at, "cpu", "us", own);
    }
    section.record(at, "p99", "ms", measured.done.p99_ms);
    if let Some(of_servers) = measured.server_us {
        section.record(at, "server cpu", "us", of_servers);
    }
    let of_load = measured.done.cpu.as_secs_f64() * 1e6 / measured.done.queries.max(1.0);
    section.record(at, "load cpu", "us", of_load);
    section.record(at, "idle", "", measured.idle);
}

pub(super) fn tell_what_was_not_full(section: &mut Section) {
    let idle = section.figures.iter().filter(|figure| figure.metric == "idle");
    let not_full = idle.filter_map(|figure| {
        let idle = figure.spread()?.median;
        (idle > IDLE_MAX).then(|| {
            format!(
                "{}, {}: {:.0} % of the machine's CPU was idle, so that queries a second tell how long things wait",
                figure.parameter,
                figure.who,
                idle * 100.0
            )
        })
    });
    let notes: Vec<String> = not_full.collect();
    section.notes.extend(notes);
}

/// What is lost by far servers, and how much of it comes back with zones.
pub(super) fn tell_what_zones_won(section: &mut Section) {
    for (delay, without, with) in ZONES {
        let of = |who: &str, parameter: &str| {
            let mut figures = section.figures.iter();
            figures
                .find(|figure| figure.who == who && figure.parameter == parameter && figure.metric == "qps")
                .map_or(&[][..], |figure| &figure.rounds)
        };
        let all = section.figures.iter();
        let parameters = all.filter(|figure| figure.who == ONE_ZONE && figure.metric == "qps");
        let mut found = Vec::new();
        for parameter in parameters.map(|figure| figure.parameter.clone()) {
            let rounds = of(ONE_ZONE, &parameter).iter().zip(of(without, &parameter));
            for ((one, off), on) in rounds.zip(of(with, &parameter)) {
                // Of a loss within the noise nothing can be said.
                if off / one < REACHED {
                    found.push((parameter.clone(), on - off, one - off));
                }
            }
        }
        let (won, lost) = (format!("won back, {delay}"), format!("lost, {delay}"));
        for (parameter, of_won, of_lost) in found {
            section.record((&parameter, &won), "loss", "query/s", of_won);
            section.record((&parameter, &lost), "loss", "query/s", of_lost);
        }
        section.compare(&won, &lost, "loss");
    }
}

/// What was really done: there may have been time for fewer rounds than were wanted.
fn tell_sizes(racers: &[&Racer], plan: &Plan, section: &mut Section) {
    let rounds = section.figures.iter().map(|figure| figure.rounds.len()).max();
    let who: Vec<&str> = racers.iter().map(|racer| racer.name.as_str()).collect();
    section.notes.push(format!(
        "tables: {} of {} rows; rounds: {} of {} s; contenders: {}",
        plan.tables,
        plan.rows,
        rounds.unwrap_or_default(),
        plan.whole_seconds(),
        who.join(", ")
    ));
}

/// `metric`: what was done of the rate that is part of the parameter, such as `100/s`.
pub(super) fn tell_what_was_not_reached(section: &mut Section, metric: &str) {
    let figures = section.figures.iter().filter(|figure| figure.metric == metric);
    let missed = figures.filter_map(|figure| {
        let mut words = figure.parameter.split([' ', ',']);
        let rate: f64 = words.find_map(|word| word.strip_suffix("/s")?.parse().ok())?;
        let done = figure.spread()?.median;
        (done < REACHED * rate).then(|| {
            format!(
                "{}, {}: the rate was not reached: {metric} {done:.0}/s",
                figure.parameter, figure.who
            )
        })
    });
    let notes: Vec<String> = missed.collect();
    section.notes.extend(notes);
}

/// Point selects with none, and with more and more new connections beside them.
pub(super) fn connects(stand: &Stand, plan: &Plan, stop: &Stop, section: &mut Section) -> anyhow::Result<()> {
    const LOAD: Load = Load {
        script: "oltp_point_select",
        options: &[],
        vary: Vary::Threads(&[BUSY_CLIENTS]),
        racers: &[],
        ratios: &[],
    };
    let racers = stand.racers(LOAD.racers);
    let whole = connect_beside(stand, &LOAD, &racers, plan, stop, section);
    tell_sizes(&racers, plan, section);
    section.compare_runs(WITHOUT, "at 0/s", "qps");
    for metric in ["qps", CPU_OF_CONNECTION] {
        section.compare("split", "session", metric);
    }
    section.compare_with(&plan.foreign(), "qps");
    tell_what_was_not_reached(section, MADE);
    whole
}

fn connect_beside(
    stand: &Stand,
    load: &Load,
    racers: &[&Racer],
    plan: &Plan,
    stop: &Stop,
    section: &mut Section,
) -> anyhow::Result<()> {
    warm_up(stand, load, plan, racers)?;
    let connects = CONNECTS.into_iter();
    let plain = [0]
        .into_iter()
        .chain(connects.clone())
        .map(|rate| (rate, Tls::Off));
    let rates: Vec<(u32, Tls)> = plain.chain(connects.map(|rate| (rate, Tls::Required))).collect();
    let mut without_tls = Vec::new();
    for racer in racers {
        let server = stand.at(racer.address);
        if let Err(error) = Client::connect_by(server.address, server.account, Tls::Required) {
            section.notes.push(format!(
                "{}, TLS: left out, as it is not offered: {error}",
                racer.name
            ));
            without_tls.push(&racer.name);
        }
    }
    let mut rounds = Rounds::new(plan, stop, rates.len() * racers.len());
    while rounds.next()? {
        for racer in racers {
            let mut alone = None;
            for &(rate, tls) in &rates {
                let parameter = match (rate, tls) {
                    (0, _) => WITHOUT.to_owned(),
                    (rate, Tls::Off) => format!("{rate}/s"),
                    (rate, _) => format!("{rate}/s with TLS"),
                };
                if tls != Tls::Off && without_tls.contains(&&racer.name) {
                    continue;
                }
                rounds.tell(&parameter, &racer.name)?;
                let (measured, made, elapsed) = beside_connects(stand, load, plan, racer, (rate, tls))?;
                let at = (&parameter[..], &racer.name[..]);
                section.record(at, "qps", "query/s", measured.done.rate);
                section.record(at, "p99", "ms", measured.done.p99_ms);
                let used = measured.own_us.map(|own| own * measured.done.queries);
                match (rate, used) {
                    (0, Some(used)) => alone = Some(used / measured.done.queries),
                    (_, Some(used)) if made > 0 => {
                        let queries = alone.unwrap_or_default() * measured.done.queries;
                        section.record(at, CPU_OF_CONNECTION, "us", (used - queries) / made as f64);
                    }
                    _ => {}
                }
                section.record(at, MADE, "1/s", made as f64 / elapsed.as_secs_f64());
                rounds.bar.inc(1);
            }
        }
    }
    Ok(())
}

/// How many connections were made meanwhile, and in what time: that of sysbench's whole process.
fn beside_connects(
    stand: &Stand,
    load: &Load,
    plan: &Plan,
    racer: &Racer,
    (rate, tls): (u32, Tls),
) -> anyhow::Result<(Measured, usize, Duration)> {
    let run = runs(load).into_iter().next().context("there is no load")?;
    let (ended, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        let connectors: Vec<_> = (0..CONNECTORS.min(rate))
            .map(|_| scope.spawn(|| connect(stand.at(racer.address), (rate, tls), &ended, &made)))
            .collect();
        let load = run.load(load, plan, stand.at(racer.address), &racer.load_on);
        let measured = load.measure(&racer.pids, &stand.server_pids());
        let (made, elapsed) = (made.load(Ordering::Relaxed), began.elapsed());
        ended.store(true, Ordering::Relaxed);
        for connector in connectors {
            crate::joined(connector, "a thread that connects")?;
        }
        Ok((measured?, made, elapsed))
    })
}

/// Connects and leaves, at its share of the rate: each is due at its time, and what is late is made up for.
fn connect(
    server: Server,
    (rate, tls): (u32, Tls),
    ended: &AtomicBool,
    made: &AtomicUsize,
) -> anyhow::Result<()> {
    let every = Duration::from_secs(1) * CONNECTORS / rate;
    let mut due = Instant::now();
    while !ended.load(Ordering::Relaxed) {
        Client::connect_by(server.address, server.account, tls)?.quit();
        made.fetch_add(1, Ordering::Relaxed);
        due += every;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_a_loss_that_zones_win_back_is_told() {
        let mut section = Section::default();
        for (who, rate) in [
            (ONE_ZONE, 1000.0),
            (ZONES[0].1, 600.0),
            (ZONES[0].2, 900.0),
            (ZONES[1].1, 990.0),
        ] {
            section.record(("50", who), "qps", "query/s", rate);
        }
        tell_what_zones_won(&mut section);
        let [ratio] = &section.ratios[..] else {
            panic!("{:?}", section.ratios);
        };
        assert_eq!((&ratio.of[..], ratio.spread.median), ("won back, 0.5 ms", 0.75));
    }

    #[test]
    fn a_rate_that_was_not_reached_is_told() {
        let mut section = Section::default();
        for (parameter, done) in [
            (WITHOUT, 0.0),
            ("100/s", 95.0),
            ("200/s", 150.0),
            ("119 bytes 8000/s (16 at a time)", 7000.0),
            ("119 bytes 1000/s", 999.0),
        ] {
            section.record((parameter, "session"), MADE, "1/s", done);
        }
        tell_what_was_not_reached(&mut section, MADE);
        assert_eq!(
            section.notes,
            [
                "200/s, session: the rate was not reached: connections made 150/s",
                "119 bytes 8000/s (16 at a time), session: the rate was not reached: connections made 7000/s"
            ]
        );
    }
}
