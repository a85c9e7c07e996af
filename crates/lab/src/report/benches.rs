//! Tables whose figures other benches take: they are run as the command line would run them.

use std::thread;

use anyhow::Context;
use clap::{Args, Command};
use sandbox::Kind;

use super::{Plan, Stop, measure, results::Section};
use crate::{
    cache::{self, CacheArgs, Part, Report},
    capture::{self, CaptureArgs},
    disruption::{self, DisruptionArgs},
    overhead::{self, Kind as Contender, OverheadArgs},
};

/// What was done of the updates that reads are beside.
const UPDATES: &str = "updates done";
/// Bytes of the values that are read, and of those that SQL is compared with.
const VALUES: [usize; 3] = [16, 128, 256];
const VALUE_BY_SQL: usize = 128;

/// The arguments of a bench, with its defaults.
fn arguments<A: Args>(words: &[String]) -> anyhow::Result<A> {
    let command = A::augment_args(Command::new("bench"));
    let words = ["bench".to_owned()].into_iter().chain(words.iter().cloned());
    Ok(A::from_arg_matches(&command.try_get_matches_from(words)?)?)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A bench may keep its thread on one core: it has one of its own.
fn apart<T: Send>(bench: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    thread::scope(|scope| crate::joined(scope.spawn(bench), "a bench"))
}

fn of_overhead(plan: &Plan, text: &str) -> anyhow::Result<OverheadArgs> {
    let mut words = words(text);
    words.extend(["--haproxy".to_owned(), plan.haproxy.display().to_string()]);
    words.extend(["--forebay".to_owned(), plan.program.display().to_string()]);
    for option in &plan.forebay_options {
        words.extend(["--forebay-option".to_owned(), option.clone()]);
    }
    arguments(&words)
}

/// How many there are, run by run.
pub(super) fn idle_sessions(quick: bool) -> &'static [usize] {
    if quick { &[5000] } else { &[5000, 10_000, 15_000] }
}

/// Memory of idle sessions.
pub(super) fn idle(plan: &Plan, stop: &Stop, section: &mut Section) -> anyhow::Result<()> {
    let contenders = plan.contenders.iter().filter(|kind| **kind != Contender::Direct);
    let contenders: Vec<String> = contenders.map(ToString::to_string).collect();
    let mut rounds = 0;
    for round in 0..plan.rounds.min(3) {
        for sessions in idle_sessions(plan.quick) {
            stop.check()?;
            if round > 0 && stop.time_left().is_zero() {
                break;
            }
            rounds = round + 1;
            let text = format!(
                "--contenders {} --rows 1 --clients 8 --protocol text --rounds 1 --seconds 0.05 --idle-sessions {sessions}",
                contenders.join(",")
            );
            let args = of_overhead(plan, &text)?;
            let report = apart(|| overhead::overhead(&args))?;
            for idle in report.idle {
                let (parameter, who) = (sessions.to_string(), idle.contender.to_string());
                let at = (&parameter[..], &who[..]);
                section.record(at, "session", "B", idle.rss_bytes);
                section.record(at, "opened", "", idle.sessions as f64);
            }
        }
    }
    for who in contenders.iter().filter(|who| *who != "haproxy") {
        section.compare(who, "haproxy", "session");
    }
    section
        .notes
        .push(format!("rounds: {rounds}; contenders: {}", contenders.join(", ")));
    Ok(())
}

/// Queries that a second of CPU pays for, with two workers and with one.
pub(super) fn workers(plan: &Plan, stop: &Stop, section: &mut Section) -> anyhow::Result<()> {
    let seconds = plan.seconds;
    // A run of one round each time, so that they take turns.
    let text = format!(
        "--contenders session --rows 1 --clients 100 --protocol text --idle-sessions 0 --workers 1,2 --rounds 1 --seconds \
         {seconds}"
    );
    let args = of_overhead(plan, &text)?;
    let mut rounds = measure::Rounds::new(plan, stop, 1);
    while rounds.next()? {
        let report = apart(|| overhead::overhead(&args))?;
        record_workers(report, section);
        rounds.bar.inc(1);
    }
    section.notes.push(format!(
        "rounds: {} of {seconds} s; 100 clients, mode session",
        rounds.done
    ));
    section.compare("2 workers", "1 worker", "queries a CPU second");
    Ok(())
}

fn record_workers(report: overhead::Report, section: &mut Section) {
    for cell in report.cells {
        let who = match cell.workers {
            1 => "1 worker".to_owned(),
            more => format!("{more} workers"),
        };
        for round in cell.figures.iter().flat_map(|figures| &figures.rounds) {
            let at = ("2 to 1", &who[..]);
            section.record(at, "queries a CPU second", "1/s", 1e6 / round.cpu_us);
            section.record(at, "qps", "query/s", round.qps);
        }
    }
}

/// The capture off and on.
pub(super) fn capture(plan: &Plan, section: &mut Section) -> anyhow::Result<()> {
    let program = plan.program.display();
    let seconds = if plan.quick { 3.0 } else { plan.seconds.max(3.0) };
    let rounds = if plan.quick {
        plan.rounds.min(3)
    } else {
        plan.rounds
    };
    let servers = plan.kind;
    let text = format!(
        "--threads 20,50,100 --rounds {rounds} --seconds {seconds} --servers {servers} --forebay {program}"
    );
    let args: CaptureArgs = arguments(&words(&text))?;
    let mut report = Report::new(Vec::new());
    let cost = capture::cost(&args, &mut report);
    for figure in &report.figures {
        // "mariadb, oltp_read_write, 20 clients"
        let clients = figure
            .part
            .rsplit(", ")
            .next()
            .and_then(|text| text.split(' ').next());
        let Some(parameter) = clients else { continue };
        let (who, metric) = match figure.name.as_str() {
            "capture off" => ("off", "qps"),
            "capture on" => ("on", "qps"),
            "capture off, lowest second" => ("off", "min_qps"),
            "capture on, lowest second" => ("on", "min_qps"),
            "capture off, CPU of the gateway a query" => ("off", "cpu"),
            "capture on, CPU of the gateway a query" => ("on", "cpu"),
            "a captured command on the disk" => ("on", "a command on the disk"),
            "sessions that were left out" => ("on", "sessions left out"),
            _ => continue,
        };
        section.take((parameter, who), metric, figure);
    }
    section.notes.push(format!(
        "a table of {} rows; rounds: {rounds} of {} s",
        capture::ROWS,
        seconds.ceil()
    ));
    for metric in ["qps", "min_qps", "cpu"] {
        section.compare("on", "off", metric);
    }
    cost
}

/// A part of the bench of rows from memory.
pub(super) fn cache(part: Part, plan: &Plan, stop: &Stop, section: &mut Section) -> anyhow::Result<()> {
    let whole = match part {
        Part::Operations => VALUES.into_iter().try_for_each(|bytes| {
            stop.check()?;
            let sql = if bytes == VALUE_BY_SQL { ",sql" } else { "" };
            run_cache(
                part,
                &format!("operations{sql} --value-bytes {bytes}"),
                plan,
                section,
            )
        }),
        Part::Hits => run_cache(part, "hits", plan, section),
        _ => run_cache(part, "updates --updates 1000,2000,4000,8000", plan, section),
    };
    match part {
        Part::Operations => {
            for who in ["strong", "eventual"] {
                section.compare(who, "redis", "qps");
                section.compare(who, "redis", "cpu");
            }
            section.compare("memory", "the server", "qps");
        }
        Part::Hits => section.compare_runs("100 %", "at 100 %", "qps"),
        _ => {
            section.compare("strong", "eventual", "qps");
            section.compare("strong", "eventual", "cpu");
            measure::tell_what_was_not_reached(section, UPDATES);
            measure::tell_what_was_not_full(section);
        }
    }
    whole
}

fn run_cache(part: Part, part_name: &str, plan: &Plan, section: &mut Section) -> anyhow::Result<()> {
    let size = match (plan.quick, part) {
        // Three sizes of values are to fit.
        (true, Part::Operations) => {
            let (rows, rounds) = (plan.rows.min(50_000), plan.rounds.min(2));
            format!("--rows {rows} --rounds {rounds} --seconds 0.3")
        }
        (true, _) => "--rows 100000 --rounds 3 --seconds 0.4".to_owned(),
        (false, _) => format!("--rounds {} --seconds {}", plan.rounds, plan.seconds),
    };
    let haproxy = plan.haproxy.display();
    let program = plan.program.display();
    let mysql = if plan.kind == Kind::Mysql { "--mysql" } else { "" };
    let clients = if plan.quick { "" } else { "--clients 96" };
    let text =
        format!("--parts {part_name} {size} {clients} {mysql} --haproxy {haproxy} --forebay {program}");
    let args: CacheArgs = arguments(&words(&text))?;
    let mut report = Report::new(Vec::new());
    let whole = apart(|| cache::cache(&args, &mut report));
    section.notes.extend(report.programs.iter().cloned());
    section.notes.push(format!(
        "a table of {} rows with values of {} bytes; rounds: {} of {} s, {} clients",
        args.rows, args.value_bytes, args.rounds, args.seconds, args.clients
    ));
    if args.parts.contains(&Part::Sql) {
        section.notes.push(format!(
            "point selects: sysbench with {} threads, in whole seconds; the gateway has a worker for each core",
            args.threads
        ));
    }
    for figure in &report.figures {
        let (name, what) = figure.name.rsplit_once(": ").unwrap_or((&figure.name, ""));
        match part {
            Part::Operations if name == "point select" => by_sql(what, figure, section),
            Part::Operations => operation(args.value_bytes, name, what, figure, section),
            Part::Hits => {
                // "GET strong, 50 % exist"
                let share = name
                    .strip_prefix("GET strong, ")
                    .and_then(|name| name.strip_suffix(" exist"));
                if let Some(share) = share {
                    section.take((share, "strong"), "qps", figure);
                }
            }
            _ => update(name, what, figure, section),
        }
    }
    whole
}

fn at_a_time(name: &str) -> &'static str {
    match name.contains("pipeline 16") {
        true => " (16 at a time)",
        false => "",
    }
}

/// "GET, pipeline 1, 50 clients: strong, CPU"
fn operation(bytes: usize, name: &str, what: &str, figure: &cache::Figure, section: &mut Section) {
    let (who, metric) = match what.split_once(", ") {
        Some((who, "CPU")) => (who, "cpu"),
        None => (what, "qps"),
        Some(_) => return,
    };
    if who.contains('/') {
        return;
    }
    let kind = if name.starts_with("HGET") {
        "hash"
    } else {
        "string"
    };
    let pipeline = at_a_time(name);
    section.take((&format!("{kind} {bytes}{pipeline}"), who), metric, figure);
}

/// "point select: memory", of which CPU is told for other processes than those of `operation`.
fn by_sql(what: &str, figure: &cache::Figure, section: &mut Section) {
    if matches!(what, "memory" | "the server" | "HAProxy") {
        section.take(("point select", what), "qps", figure);
    }
}

/// "1000 updates/s, pipeline 16: strong, CPU"
fn update(name: &str, what: &str, figure: &cache::Figure, section: &mut Section) {
    let (who, metric) = what.split_once(", ").unwrap_or((what, ""));
    let metric = match metric {
        // A ratio of the bench's own.
        _ if who.contains('/') => return,
        "" => "qps",
        "CPU" => "cpu",
        "updates done" => UPDATES,
        "idle CPU of the machine" => "idle",
        _ => return,
    };
    let rate = name.split(' ').next().unwrap_or_default();
    let pipeline = at_a_time(name);
    let parameter = format!("119 bytes {rate}/s{pipeline}");
    if metric == "idle" {
        // There in percent.
        for value in &figure.rounds {
            section.record((&parameter, who), metric, "", value / 100.0);
        }
        return;
    }
    section.take((&parameter, who), metric, figure);
}

/// Restarts and failures.
pub(super) fn disruption(plan: &Plan, section: &mut Section) -> anyhow::Result<()> {
    let output = plan.output.join("disruption.json");
    let quick = if plan.quick { "--quick" } else { "" };
    let mut words = words(&format!("{quick} --servers {}", plan.kind));
    words.extend(["--forebay".to_owned(), plan.program.display().to_string()]);
    words.extend(["--output".to_owned(), output.display().to_string()]);
    let args: DisruptionArgs = arguments(&words)?;
    let mut report = Report::new(Vec::new());
    let parts = match args.quick {
        true => "; two of the parts, --quick",
        false => "",
    };
    section.notes.push(format!(
        "{} clients, {} statements a second{parts}",
        args.clients, args.rate
    ));
    let sum = disruption::disruption(&args, &mut report);
    for figure in &report.figures {
        section.take((&figure.part, ""), &figure.name, figure);
    }
    section.broken = disruption::broken(&report);
    section.notes.push(sum.context("disruption")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benches_know_the_words() {
        let args: CaptureArgs = arguments(&words("--threads 20,50 --seconds 3")).unwrap();
        assert_eq!((args.threads, args.seconds), (vec![20, 50], Some(3.0)));
        assert!(arguments::<CaptureArgs>(&words("--no-such-option")).is_err());
    }

    #[test]
    fn figures_of_the_cache_find_their_places() {
        let mut report = Report::new(Vec::new());
        for name in [
            "GET, pipeline 1, 50 clients: strong",
            "GET, pipeline 1, 50 clients: strong, CPU",
            "GET, pipeline 1, 50 clients: strong/redis, CPU",
            "HGET, pipeline 16, 50 clients: redis",
        ] {
            report.add("operations", name, "", [1.0]);
        }
        let mut section = Section::default();
        for figure in &report.figures {
            let (name, what) = figure.name.rsplit_once(": ").unwrap();
            operation(119, name, what, figure, &mut section);
        }
        assert_eq!(
            places(&section),
            [
                "string 119 strong qps",
                "string 119 strong cpu",
                "hash 119 (16 at a time) redis qps"
            ]
        );
    }

    fn places(section: &Section) -> Vec<String> {
        let figures = section.figures.iter();
        figures
            .map(|figure| format!("{} {} {}", figure.parameter, figure.who, figure.metric))
            .collect()
    }

    #[test]
    fn reads_beside_updates_have_what_else_went_on() {
        let mut report = Report::new(Vec::new());
        for (name, value) in [
            ("1000 updates/s: strong", 5.0),
            ("1000 updates/s: strong, CPU", 5.0),
            ("1000 updates/s: strong, updates done", 700.0),
            (
                "1000 updates/s, pipeline 16: eventual, idle CPU of the machine",
                50.0,
            ),
            ("1000 updates/s: strong, paced, updates done", 9.0),
            ("1000 updates/s: strong/eventual, CPU", 9.0),
        ] {
            report.add("updates", name, "", [value]);
        }
        let mut section = Section::default();
        for figure in &report.figures {
            let (name, what) = figure.name.rsplit_once(": ").unwrap();
            update(name, what, figure, &mut section);
        }
        assert_eq!(
            places(&section),
            [
                "119 bytes 1000/s strong qps",
                "119 bytes 1000/s strong cpu",
                "119 bytes 1000/s strong updates done",
                "119 bytes 1000/s (16 at a time) eventual idle"
            ]
        );
        assert_eq!(section.figures[3].rounds, [0.5]);
        measure::tell_what_was_not_reached(&mut section, UPDATES);
        measure::tell_what_was_not_full(&mut section);
        assert_eq!(section.notes.len(), 2, "{:?}", section.notes);
    }
}
