//! A thousand silent sessions leave a server, each with variables and prepared statements, all of which it
//! has on the other one.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sandbox::{Kind, Sandbox, Spec};

use super::{
    gateway::{Gateway, Mode},
    stage::{Scene, Sum, fill, ms},
};
use crate::{
    cache::{Wanted, rig},
    client::{ACCOUNT, Client, ClientError, Prepared},
};

const SESSIONS: u64 = 1000;
const STATEMENTS: u64 = 10;
/// All of them have left by then.
const ALL_WITHIN: Duration = Duration::from_secs(2);
/// A move takes no longer, half of the time.
const MEDIAN: Duration = Duration::from_millis(5);

/// A session with what it has set and prepared.
struct Loaded {
    number: u64,
    client: Client,
    prepared: Vec<Prepared>,
}

impl Loaded {
    fn open(gateway: &Gateway, number: u64) -> Result<Self, ClientError> {
        let mut client = Client::connect(gateway.address(Mode::Session), ACCOUNT)?;
        client.query("SET NAMES utf8mb4")?;
        client.query("SET sql_mode = 'ANSI_QUOTES'")?;
        client.query("SET time_zone = '+02:00'")?;
        client.query(&format!("SET @number = {number}, @name = 'client {number}'"))?;
        let prepare = |limit| {
            client.prepare(&format!(
                "SELECT c FROM sbtest.sbtest1 WHERE id = ? LIMIT {limit}"
            ))
        };
        let prepared = (1..=STATEMENTS).map(prepare).collect::<Result<_, _>>()?;
        Ok(Self {
            number,
            client,
            prepared,
        })
    }

    /// Whether it has all that it had.
    fn is_whole(&mut self) -> Result<bool, ClientError> {
        let asked = "SELECT @@sql_mode, @@time_zone, @number, @name";
        let number = self.number.to_string();
        let name = format!("client {number}");
        let values = ["ANSI_QUOTES", "+02:00", &number, &name].map(|value| Some(value.to_owned()));
        let mut is_whole = self.client.query(asked)?.rows == [values.to_vec()];
        let row = [vec![Some(rig::value(1 + self.number, rig::VALUE))]];
        for prepared in &self.prepared {
            is_whole &= self.client.execute(*prepared, &[1 + self.number])?.rows == row;
        }
        Ok(is_whole)
    }
}

pub(super) fn leave(kind: Kind, scene: Scene<'_>) -> anyhow::Result<Sum> {
    let (plan, progress, report) = (scene.plan, scene.progress, scene.report);
    progress.set_message(format!("leave: starting 2 servers ({kind})"));
    let spec = Spec::new(kind).nodes(2).option("--max-connections=2000");
    let servers = Sandbox::start(spec).context("starting the servers")?;
    fill(&servers, 1).context("filling the tables")?;
    let gateway = Gateway::start(&plan.program, &servers)?;
    let [other, server] = [0, 1].map(|index| servers.node(index));
    // All of them log in on one server.
    gateway.drain(other, plan.drain_deadline)?;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        if number % 100 == 0 {
            progress.set_message(format!("leave: {number} sessions"));
        }
        let session = Loaded::open(&gateway, number);
        sessions.push(session.with_context(|| format!("client {number} does not get in"))?);
    }
    gateway.undrain(other)?;
    let there = gateway.sessions_on(server)?;
    ensure!(
        there == SESSIONS as f64,
        "{there} sessions are on the server that is to be left"
    );

    progress.set_message(format!("leave: {SESSIONS} sessions leave a server"));
    let began = Instant::now();
    let left = gateway.drain(server, plan.drain_deadline)?;
    let took = began.elapsed();
    let moves = gateway.moves()?;
    let [mean, median] = gateway.move_times()?;

    progress.set_message("leave: each session is asked for what it had");
    let mut sum = Sum::default();
    let mut words = String::new();
    for session in &mut sessions {
        sum.statements += 1 + STATEMENTS;
        match session.is_whole() {
            Ok(is_whole) => sum.wrong += u64::from(!is_whole),
            Err(error) => {
                sum.errors += 1;
                words = format!("the last one: {error}");
            }
        }
    }
    let program = format!("{} {}", servers.kind(), servers.version());
    if !report.programs.contains(&program) {
        report.programs.push(program);
    }
    let part = format!("leave, {kind}, session");
    let none = Some(Wanted::AtMost(0.0));
    report
        .add(&part, "until no session was on the server", "ms", [ms(took)])
        .wanted(Wanted::AtMost(ms(ALL_WITHIN)));
    report
        .add(&part, "a move, median", "ms", [median * 1e3])
        .wanted(Wanted::AtMost(ms(MEDIAN)));
    report.add(&part, "a move, mean", "ms", [mean * 1e3]);
    report
        .add(&part, "sessions moved", "", [moves.moved])
        .wanted(Wanted::AtLeast(SESSIONS as f64));
    report
        .add(
            &part,
            "drains that left sessions",
            "",
            [f64::from(u8::from(left.is_some()))],
        )
        .wanted(none);
    report.add(
        &part,
        "moves that failed, and were tried again",
        "",
        [moves.failed],
    );
    report.note(moves.reasons);
    report.add(&part, "errors", "", [sum.errors as f64]).wanted(none);
    report.note(words);
    report
        .add(&part, "sessions that lost something", "", [sum.wrong as f64])
        .wanted(none);
    Ok(sum)
}
