//! Where a part takes place: servers with the tables, the gateway in front of them, and clients.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use sandbox::{Kind, Node, Sandbox, Spec};

use super::{
    gateway::{Gateway, Mode, SWITCHER, server_name},
    load::{Ended, Load, Traffic},
    script::{ITEMS, ROWS, Work},
    seen::Doing,
};
use crate::cache::{Report, Wanted, rig};

/// Load before the first disruption and after the last.
const STEADY: Duration = Duration::from_secs(2);

/// How the clients of a part behave.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The gateway, and what runs `forebay ctl`.
    pub program: PathBuf,
    pub clients: u64,
    /// Statements a second of all clients together.
    pub rate: f64,
    /// How long a drain may take.
    pub drain_deadline: Duration,
    /// Beside which the gateway's log is left of a part that did not keep its promise.
    pub output: PathBuf,
}

/// A run as each of its parts gets it.
pub(super) struct Scene<'a> {
    pub plan: &'a Plan,
    pub progress: &'a ProgressBar,
    pub report: &'a mut Report,
}

/// What a part promises of one listener's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// Nothing fails.
    NoErrors,
    /// The same, and nobody waits for longer than this.
    NoWait(Duration),
    /// Only those fail that were under way: a write, or a transaction, one of each client. Replicas have what
    /// was acknowledged.
    WritesUnderWay,
    /// None but that no answer is wrong: the errors are told.
    Told,
}

/// A listener that has clients, what they may do, and what they are promised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act {
    pub mode: Mode,
    pub work: Work,
    pub promise: Promise,
}

pub(super) struct Stage<'a> {
    name: &'static str,
    plan: &'a Plan,
    progress: &'a ProgressBar,
    clients: Vec<(Act, Load)>,
    gateway: Gateway,
    pub servers: Sandbox,
    /// What `ctl drain` said of sessions that it left.
    left: Vec<String>,
    /// Figures of the part itself, in milliseconds.
    times: Vec<(String, Duration)>,
    /// From when to when the gateway was being replaced.
    upgrades: Vec<(Instant, Instant)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub statements: u64,
    pub waited: u64,
    pub errors: u64,
    pub wrong: u64,
    pub longest: Duration,
}

impl<'a> Stage<'a> {
    /// Starts servers, gateway and clients, and lets the clients be for a moment.
    pub(super) fn set(
        (name, spec): (&'static str, Spec),
        acts: &[Act],
        scene: &Scene<'a>,
    ) -> anyhow::Result<Self> {
        let (plan, progress) = (scene.plan, scene.progress);
        progress.set_message(format!("{name}: starting {} servers ({})", spec.nodes, spec.kind));
        let servers = Sandbox::start(spec).context("starting the servers")?;
        fill(&servers, plan.clients).context("filling the tables")?;
        if acts.iter().any(|act| act.promise == Promise::WritesUnderWay) {
            // Before there is a load: a commit under way meanwhile may wait for ever.
            servers.replicate_safely()?;
        }
        let gateway = Gateway::start(&plan.program, &servers)?;
        let mut stage = Self {
            name,
            plan,
            progress,
            clients: Vec::new(),
            gateway,
            servers,
            left: Vec::new(),
            times: Vec::new(),
            upgrades: Vec::new(),
        };
        let each = plan.clients / acts.len() as u64;
        for (act, number) in acts.iter().zip(0..) {
            let traffic = Traffic {
                address: stage.gateway.address(act.mode),
                first: number * each,
                clients: each,
                rate: plan.rate / acts.len() as f64,
                work: act.work,
                has_variable: act.mode == Mode::Session,
            };
            stage.clients.push((*act, Load::start(traffic)?));
        }
        stage.say("load without a disruption");
        thread::sleep(STEADY);
        Ok(stage)
    }

    /// Shows what is being done, and what the clients have seen by now.
    pub(super) fn say(&self, what: &str) {
        let (mut answers, mut errors) = (0, 0);
        for (_, load) in &self.clients {
            let so_far = load.so_far();
            (answers, errors) = (answers + so_far.0, errors + so_far.1);
        }
        let name = self.name;
        self.progress
            .set_message(format!("{name}: {what} ({answers} answers, {errors} errors)"));
    }

    /// Makes another server the primary as an operator does.
    pub(super) fn switch_over(&mut self, to: usize) -> anyhow::Result<()> {
        let server = server_name(self.servers.node(to));
        self.say(&format!("{server} becomes the primary"));
        let paused = self.gateway.switch_over(self.servers.node(to))?;
        self.took(
            &format!("statements paused until {server} was the primary"),
            paused,
        );
        self.wait_until_whole()
    }

    /// Replaces the gateway as an operator does.
    pub(super) fn upgrade(&mut self) -> anyhow::Result<()> {
        self.say("another process becomes the gateway");
        let began = Instant::now();
        self.gateway.upgrade()?;
        self.took("until the process that was replaced has ended", began.elapsed());
        self.wait_until_whole()?;
        self.upgrades.push((began, Instant::now()));
        Ok(())
    }

    /// Restarts a server as an operator does.
    pub(super) fn restart(&mut self, index: usize) -> anyhow::Result<()> {
        self.restart_while_primary_is(index, 0)
    }

    /// The same where another server is the primary than the first.
    pub(super) fn restart_while_primary_is(&mut self, index: usize, primary: usize) -> anyhow::Result<()> {
        let server = server_name(self.servers.node(index));
        self.say(&format!("{server} drains"));
        let left = self
            .gateway
            .drain(self.servers.node(index), self.plan.drain_deadline)?;
        self.left.extend(left);
        self.say(&format!("{server} restarts"));
        let node = self.servers.node(index);
        node.stop()?;
        node.restart()?;
        self.say(&format!("{server} catches up"));
        self.catch_up(index, primary)?;
        self.gateway.undrain(self.servers.node(index))?;
        self.wait_until_whole()
    }

    /// Waits until a server that was restarted has what the primary has.
    fn catch_up(&self, index: usize, primary: usize) -> anyhow::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        if primary == 0 {
            return Ok(self.servers.sync()?);
        }
        let position = self.servers.node(primary).position()?;
        let began = Instant::now();
        while !self.servers.node(index).has(&position)? {
            ensure!(
                began.elapsed() < PATIENCE,
                "{} does not catch up",
                server_name(self.servers.node(index))
            );
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits until the gateway uses all servers again.
    pub(super) fn wait_until_whole(&self) -> anyhow::Result<()> {
        self.gateway.wait_until_whole(self.servers.nodes().len())?;
        thread::sleep(STEADY);
        Ok(())
    }

    /// Lets the clients be for a while.
    pub(super) fn watch(&self, what: &str, duration: Duration) {
        self.say(what);
        thread::sleep(duration);
    }

    /// A time that the part has taken itself.
    pub(super) fn took(&mut self, what: &str, time: Duration) {
        self.times.push((what.to_owned(), time));
    }

    /// Ends the load, looks whether the primary has what clients know of, and tells the figures.
    pub(super) fn conclude(mut self, primary: usize, report: &mut Report) -> anyhow::Result<Sum> {
        self.say("the clients end");
        let moves = self.gateway.moves()?;
        let program = format!("{} {}", self.servers.kind(), self.servers.version());
        if !report.programs.contains(&program) {
            report.programs.push(program);
        }
        let mut sum = Sum::default();
        let before = report.not_met().len();
        for (Act { mode, promise, .. }, load) in std::mem::take(&mut self.clients) {
            let mut ended = load.stop()?;
            look_at_counters(self.servers.node(primary), &mut ended)?;
            let part = format!("{}, {}, {mode}", self.name, self.servers.kind());
            tell(&part, promise, &ended, report);
            if let Promise::NoWait(limit) = promise {
                self.tell_waits(&part, limit, &ended, report);
            }
            if mode == Mode::Session {
                report.add(&part, "sessions moved", "", [moves.moved]);
                report.add(
                    &part,
                    "moves that failed, and were tried again",
                    "",
                    [moves.failed],
                );
                report.note(&*moves.reasons);
            }
            sum.add(&ended);
        }
        let part = format!("{}, {}", self.name, self.servers.kind());
        let left = self.left.len() as f64;
        report
            .add(&part, "drains that left sessions", "", [left])
            .wanted(Wanted::AtMost(0.0));
        report.note(self.left.join("; "));
        for (what, time) in &self.times {
            report.add(&part, what.as_str(), "ms", [ms(*time)]);
        }
        if report.not_met().len() > before {
            self.keep_log()?;
        }
        Ok(sum)
    }

    /// How long statements waited that were due while the gateway was replaced, and the others: that is the
    /// machine's own.
    fn tell_waits(&self, part: &str, limit: Duration, ended: &Ended, report: &mut Report) {
        let is_meanwhile = |due: Duration| {
            let at = ended.began + due;
            self.upgrades.iter().any(|(from, to)| (*from..*to).contains(&at))
        };
        let meanwhile = ended.seen.longest_where(is_meanwhile);
        let apart = ended.seen.longest_where(|due| !is_meanwhile(due));
        let wanted = Some(Wanted::AtMost(ms(limit)));
        report
            .add(
                part,
                "longest of those due while it was replaced",
                "ms",
                [ms(meanwhile)],
            )
            .wanted(wanted);
        report.add(part, "longest of the others", "ms", [ms(apart)]);
    }

    fn keep_log(&self) -> anyhow::Result<()> {
        let name = format!("{}-{}.log", self.name, self.servers.kind());
        let file = self.plan.output.with_file_name(name);
        fs::write(&file, self.gateway.log()).with_context(|| format!("writing {}", file.display()))?;
        self.progress
            .suspend(|| say!("the gateway's log of part {}: {}", self.name, file.display()));
        Ok(())
    }
}

impl Sum {
    fn add(&mut self, ended: &Ended) {
        let seen = &ended.seen;
        self.merge(&Self {
            statements: seen.statements,
            waited: seen.waited,
            errors: seen.failed(|_| true),
            wrong: seen.wrong,
            longest: seen.longest.0,
        });
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.statements += other.statements;
        self.waited += other.waited;
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.longest = self.longest.max(other.longest);
    }
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn tell(part: &str, promise: Promise, ended: &Ended, report: &mut Report) {
    let seen = &ended.seen;
    let (longest, due) = seen.longest;
    report.add(part, "longest time from due to answered", "ms", [ms(longest)]);
    report.note(format!("due after {:.1} s", due.as_secs_f64()));
    report.add(
        part,
        "longest time without any answer",
        "ms",
        [ms(seen.longest_silence())],
    );
    report.add(part, "statements", "", [seen.statements as f64]);
    report.add(part, "waited for more than 100 ms", "", [seen.waited as f64]);
    let none = Some(Wanted::AtMost(0.0));
    let of_all = matches!(promise, Promise::NoErrors | Promise::NoWait(_)).then_some(Wanted::AtMost(0.0));
    report
        .add(part, "errors", "", [seen.failed(|_| true) as f64])
        .wanted(of_all);
    report.note(seen.errors_in_words());
    if promise == Promise::WritesUnderWay {
        let others = seen.failed(|doing| matches!(doing, Doing::Read | Doing::Login));
        report
            .add(part, "errors of reads and logins", "", [others as f64])
            .wanted(none);
        let most = seen.most_of_a_client as f64;
        report
            .add(part, "most errors of one client", "", [most])
            .wanted(Wanted::AtMost(1.0));
    }
    report
        .add(part, "wrong answers", "", [seen.wrong as f64])
        .wanted(none);
    if !seen.words.is_empty() {
        report.note(format!(
            "the first errors and wrong answers: {}",
            seen.words.join("; ")
        ));
    }
}

/// What was acknowledged is on the primary, and nothing twice.
fn look_at_counters(primary: &Node, ended: &mut Ended) -> anyhow::Result<()> {
    let rows = primary.sql("SELECT client, n FROM sbtest.counter ORDER BY client")?;
    for (client, counter) in &ended.counters {
        let row = rows.lines().find_map(|line| {
            let (number, value) = line.split_once('\t')?;
            (number.parse() == Ok(*client)).then(|| value.parse::<u64>().ok())?
        });
        let value = row.with_context(|| format!("client {client} has no counter any more"))?;
        if !(counter.least..=counter.most).contains(&value) {
            let (least, most) = (counter.least, counter.most);
            ended.seen.wrong(format!(
                "in the end the counter of client {client} is {value} in place of {least} to {most}"
            ));
        }
    }
    Ok(())
}

/// Makes the tables that the clients use, with the rows of each.
pub(super) fn fill(servers: &Sandbox, clients: u64) -> anyhow::Result<()> {
    ensure!(clients > 0, "no clients");
    servers.let_switch_over(SWITCHER)?;
    rig::fill_first_table(servers, ROWS)?;
    let counters: Vec<_> = (0..clients).map(|client| format!("({client}, 0)")).collect();
    let items = (0..clients).flat_map(|client| (0..ITEMS).map(move |slot| format!("({client}, {slot}, 0)")));
    servers.primary().sql(&format!(
        "CREATE TABLE sbtest.counter (client INT PRIMARY KEY, n BIGINT NOT NULL);
         CREATE TABLE sbtest.item (client INT, slot INT, v INT NOT NULL, PRIMARY KEY (client, slot));
         INSERT INTO sbtest.counter VALUES {};
         INSERT INTO sbtest.item VALUES {};",
        counters.join(","),
        items.collect::<Vec<_>>().join(",")
    ))?;
    Ok(servers.sync()?)
}

pub(super) fn three(kind: Kind) -> Spec {
    Spec::new(kind).nodes(3)
}
