//! Scenario `capture`: what it costs to capture traffic, and whether what was captured tells two servers
//! apart.
//!
//! sysbench's `oltp_read_write` runs through the gateway with the capture off and on in turns. Then a short
//! load is captured, whose clients have a schema each, so that nothing depends on the order between them; it
//! is replayed on a copy of the server as it was before, where nothing may differ; and on one in which a
//! single row was changed, which has to be found.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use sandbox::{PASSWORD, Sandbox, Spec, USER};

use crate::{
    cache::{Report, Wanted, rig},
    child::{self, ListeningChild},
    client::{Account, SANDBOX},
    split::ServerKind,
    sysbench::{Done, Sysbench},
    usage::CpuTime,
};

pub(crate) const ROWS: u64 = 20_000;
/// Clients of the load that is replayed, each with its schema.
const CLIENTS: usize = 4;
/// Half of them send text, the others prepared statements.
const TEXT_CLIENTS: usize = 2;

/// What to do.
#[derive(Clone, Debug, clap::Args)]
pub struct CaptureArgs {
    /// The servers.
    #[arg(long, value_enum, default_value = "mariadb")]
    pub servers: ServerKind,
    /// Clients at a time [default: 20,50,100; with `--quick` 20].
    #[arg(long, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Rounds of each, off and on in turns [default: 3; with `--quick` 2].
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Seconds of a round [default: 8; with `--quick` 4].
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Also with encrypted files, with a key that is made for this run. What is replayed is encrypted then.
    #[arg(long)]
    pub encrypt: bool,
    /// Within a minute.
    #[arg(long)]
    pub quick: bool,
    /// The gateway, if not this executable itself.
    #[arg(long)]
    pub forebay: Option<PathBuf>,
    /// Where the results are written as JSON.
    #[arg(long, default_value = "results.json")]
    pub output: PathBuf,
}

/// What TiProxy 1.3 has published of its own capture: on ÷ off of the average and of the lowest second.
fn published(threads: usize) -> Option<(f64, f64)> {
    match threads {
        20 => Some((0.995, 0.997)),
        50 => Some((0.969, 0.926)),
        100 => Some((0.938, 0.824)),
        _ => None,
    }
}

/// Runs it. The figures are in `report` then; what comes back is the sum in words.
///
/// # Errors
/// It could not be run to its end, or a copy was told apart where it was faithful, or was not where it had
/// another row.
pub fn capture(args: &CaptureArgs, report: &mut Report) -> anyhow::Result<String> {
    let progress = crate::spinner();
    let bench = Bench::start(args, &progress)?;
    bench.measure_all(report)?;
    let sum = bench.tell_apart(report)?;
    progress.finish_and_clear();
    Ok(sum)
}

pub(crate) fn cost(args: &CaptureArgs, report: &mut Report) -> anyhow::Result<()> {
    let progress = crate::spinner();
    let measured = Bench::start(args, &progress)?.measure_all(report);
    progress.finish_and_clear();
    measured
}

struct Bench<'a> {
    args: &'a CaptureArgs,
    progress: &'a ProgressBar,
    program: PathBuf,
    server: Sandbox,
    copy: Sandbox,
    gateway: ListeningChild,
    address: SocketAddr,
    folder: tempfile::TempDir,
    /// A file with the key of encrypted captures.
    key: Option<PathBuf>,
}

/// What is measured beside each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Capturing {
    Off,
    On,
    Encrypted,
}

impl Capturing {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Encrypted => "encrypted",
        }
    }
}

/// The rounds with the capture off, or on.
#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    /// A load of less than three seconds has none.
    lowest: Vec<Option<f64>>,
    /// Microseconds of the gateway for a query.
    cpu: Vec<f64>,
    /// Bytes of a captured command.
    bytes: Vec<f64>,
    thinned: u64,
}

impl Rounds {
    fn add(&mut self, done: &Done, cpu: CpuTime) {
        self.rates.push(done.rate);
        self.lowest.push(done.lowest);
        self.cpu
            .push(cpu.total.as_secs_f64() * 1e6 / done.queries.max(1.0));
    }
}

impl<'a> Bench<'a> {
    fn start(args: &'a CaptureArgs, progress: &'a ProgressBar) -> anyhow::Result<Self> {
        let kind = args.servers.of_sandbox();
        progress.set_message(format!("{kind}: two servers of {ROWS} rows"));
        net::limits::raise_nofile()?;
        let spec = |id: u32| {
            Spec::new(kind)
                .option("--innodb-buffer-pool-size=512M")
                .option("--innodb-flush-log-at-trx-commit=2")
                .option("--max-prepared-stmt-count=1000000")
                .option(format!("--server-id={id}"))
        };
        let server = Sandbox::start(spec(8101)).context("starting the server")?;
        let copy = Sandbox::start(spec(8102)).context("starting the copy")?;
        for server in [&server, &copy] {
            rig::fill_first_table(server, ROWS)?;
            fill(server)?;
        }
        let program = child::gateway(args.forebay.as_deref())?;
        let folder = child::folder()?;
        let file = folder.path().join("forebay.toml");
        let started = ListeningChild::start(
            &folder.path().join("forebay.log"),
            |[clients, admin]: [SocketAddr; 2]| {
                fs::write(&file, configuration(&server, clients, admin))?;
                let mut command = Command::new(&program);
                command.args(["serve", "--config"]).arg(&file);
                Ok(command)
            },
        );
        let (gateway, [address, _]) = started.context("starting the gateway")?;
        let key = args.encrypt.then(|| folder.path().join("key"));
        if let Some(key) = &key {
            let mut command = Command::new(&program);
            succeeded(command.args(["traffic", "key"]).arg(key).output()?, "traffic key")?;
        }
        Ok(Self {
            args,
            progress,
            program,
            server,
            copy,
            gateway,
            address,
            folder,
            key,
        })
    }

    fn measure_all(&self, report: &mut Report) -> anyhow::Result<()> {
        report.programs.push(self.server.version().to_owned());
        let threads = match (&self.args.threads[..], self.args.quick) {
            ([], true) => vec![20],
            ([], false) => vec![20, 50, 100],
            (given, _) => given.to_vec(),
        };
        threads
            .into_iter()
            .try_for_each(|threads| self.measure(threads, report))
    }

    /// Capture off and on in turns.
    fn measure(&self, threads: usize, report: &mut Report) -> anyhow::Result<()> {
        let quick = self.args.quick;
        let rounds = self.args.rounds.unwrap_or(if quick { 2 } else { 3 });
        let seconds = self.args.seconds.unwrap_or(if quick { 4.0 } else { 8.0 });
        let mut off = Rounds::default();
        let mut others = vec![(Capturing::On, Rounds::default())];
        if self.args.encrypt {
            others.push((Capturing::Encrypted, Rounds::default()));
        }
        // What comes first finds cold caches.
        self.load(threads, 1.0)?;
        for round in 1..=rounds {
            let tell = |what: Capturing| {
                let what = what.name();
                self.progress
                    .set_message(format!("{threads} clients, round {round}: capture {what}"))
            };
            tell(Capturing::Off);
            self.round(threads, seconds, &mut off)?;
            for (capturing, of) in &mut others {
                tell(*capturing);
                let name = format!("cost-{threads}-{round}-{}", capturing.name());
                let folder = self.folder.path().join(name);
                let key = self.key.as_deref().filter(|_| *capturing == Capturing::Encrypted);
                self.begin(&folder, key)?;
                self.round(threads, seconds, of)?;
                let ended = self.end()?;
                of.bytes.push(ended["bytes"] / ended["commands"].max(1.0));
                of.thinned += ended["thinned_sessions"] as u64;
                fs::remove_dir_all(&folder)?;
            }
        }
        let part = format!("{}, oltp_read_write, {threads} clients", self.server.kind());
        add_figures(report, &part, Capturing::Off, &off);
        for (capturing, of) in &others {
            add_figures(report, &part, *capturing, of);
        }
        for (capturing, of) in &others {
            add_ratios(report, &part, *capturing, of, &off, published(threads));
        }
        Ok(())
    }

    fn round(&self, threads: usize, seconds: f64, of: &mut Rounds) -> anyhow::Result<()> {
        let before = CpuTime::of(self.gateway.pid())?;
        let done = self.load(threads, seconds)?;
        of.add(&done, CpuTime::of(self.gateway.pid())? - before);
        Ok(())
    }

    fn load(&self, threads: usize, seconds: f64) -> anyhow::Result<Done> {
        let load = Sysbench {
            on: &[],
            script: "oltp_read_write",
            address: self.address,
            account: SANDBOX,
            is_text: false,
            tables: 1,
            rows: ROWS,
            threads,
            seconds,
            options: &[],
        };
        load.run()
    }

    /// What was captured is the same on a faithful copy, and is not on one with another row.
    fn tell_apart(&self, report: &mut Report) -> anyhow::Result<String> {
        self.progress.set_message("a load that is captured");
        let captured = self.folder.path().join("captured");
        self.begin(&captured, self.key.as_deref())?;
        let seconds = if self.args.quick { 3.0 } else { 10.0 };
        let address = self.address;
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| scope.spawn(move || client_load(address, client, seconds)))
                .collect();
            clients
                .into_iter()
                .try_for_each(|client| crate::joined(client, "a client").map(drop))
        })?;
        let ended = self.end()?;
        self.progress.set_message("its replay on a faithful copy");
        let part = format!("{}, replay", self.server.kind());
        report.add(&part, "captured commands", "", [ended["commands"]]);
        let (code, said) = self.replay_and_compare(&captured, "faithful")?;
        report
            .add(&part, "faithful copy: exit code", "", [f64::from(code)])
            .wanted(Wanted::AtMost(0.0));
        ensure!(code == 0, "a faithful copy was told apart:\n{said}");
        self.progress.set_message("its replay on a copy with another row");
        fill(&self.copy)?;
        let id = self.first_row_read(&captured)?;
        self.copy
            .primary()
            .sql(&format!("UPDATE sb1.sbtest1 SET c = 'another' WHERE id = {id}"))?;
        let (code, said) = self.replay_and_compare(&captured, "another-row")?;
        report
            .add(&part, "another row: exit code", "", [f64::from(code)])
            .wanted(Wanted::AtLeast(2.0));
        ensure!(code == 2, "row {id} was changed, and nothing was found:\n{said}");
        ensure!(
            said.contains("other values"),
            "row {id} was changed, and this was found:\n{said}"
        );
        Ok(format!(
            "a faithful copy without a difference, and a changed row found, in {} commands",
            ended["commands"]
        ))
    }

    /// A row that the first client reads before anybody can have changed it.
    fn first_row_read(&self, captured: &Path) -> anyhow::Result<u64> {
        let show = ["traffic", "capture", "show", "--limit", "4000"];
        let output = self.forebay(&show, &[captured], self.key.as_deref())?;
        let output = succeeded(output, "traffic capture show")?;
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let read = shown.lines().find_map(|line| {
            let (line, id) = line.split_once("SELECT c FROM sbtest1 WHERE id=")?;
            // What is prepared has a question mark there.
            Some((line, id.parse::<u64>().ok()?))
        });
        let (line, id) = read.context("the capture shows no point select")?;
        // Both clients with text look alike; the row is changed in the schema of the one whose session it is.
        let session = line.split_whitespace().nth(1).unwrap_or_default();
        let of_session = format!(" {session} session of ");
        let schema = shown
            .lines()
            .find(|line| line.contains(&of_session))
            .unwrap_or_default();
        ensure!(
            schema.contains("schema sb"),
            "the capture does not say in which schema session {session} is: {schema}"
        );
        if !schema.contains("schema sb1") {
            self.copy
                .primary()
                .sql(&format!("UPDATE sb2.sbtest1 SET c = 'another' WHERE id = {id}"))?;
        }
        Ok(id)
    }

    fn replay_and_compare(&self, captured: &Path, name: &str) -> anyhow::Result<(i32, String)> {
        let result = self.folder.path().join(name);
        let target = self.copy.primary().address();
        let replay = [
            "traffic",
            "replay",
            "--speed",
            "max",
            "--even-source",
            "--any-position",
            "--to",
            target.as_str(),
            "--user",
            USER,
            "--password-env",
            "FOREBAY_BENCH_PASSWORD",
            "--result",
        ];
        let key = self.key.as_deref();
        let output = self.forebay(&replay, &[&result, captured], key)?;
        succeeded(output, "traffic replay")?;
        let compare = ["traffic", "compare", "--fail-on", "errors,rows,missing"];
        let output = self.forebay(&compare, &[captured, &result], key)?;
        let code = output
            .status
            .code()
            .context("forebay traffic compare was killed")?;
        Ok((code, said(&output)))
    }

    fn begin(&self, folder: &Path, key: Option<&Path>) -> anyhow::Result<()> {
        let socket = self.folder.path().join("admin.sock");
        let start = ["traffic", "capture", "start", "--free-disk", "1", "--to"];
        let output = self.forebay(&start, &[folder, Path::new("--socket"), &socket], key)?;
        succeeded(output, "traffic capture start").map(drop)
    }

    /// Ends the capture; its status.
    fn end(&self) -> anyhow::Result<std::collections::HashMap<&'static str, f64>> {
        let socket = self.folder.path().join("admin.sock");
        let output = self.forebay(&["traffic", "capture", "stop", "--socket"], &[&socket], None)?;
        succeeded(output, "traffic capture stop")?;
        let output = self.forebay(&["traffic", "capture", "status", "--socket"], &[&socket], None)?;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        ["bytes", "commands", "thinned_sessions"]
            .into_iter()
            .map(|name| {
                let value = status[name].as_f64();
                Ok((name, value.with_context(|| format!("no {name} in {status}"))?))
            })
            .collect()
    }

    /// The last of the arguments may want a path behind it. `key`: of a folder that is encrypted.
    fn forebay(&self, arguments: &[&str], paths: &[&Path], key: Option<&Path>) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .args(paths)
            .env("FOREBAY_BENCH_PASSWORD", PASSWORD);
        if let Some(key) = key {
            command.arg("--key-file").arg(key);
        }
        command.output().context("running forebay")
    }
}

fn add_figures(report: &mut Report, part: &str, capturing: Capturing, rounds: &Rounds) {
    let name = format!("capture {}", capturing.name());
    let lowest: Vec<f64> = rounds.lowest.iter().copied().flatten().collect();
    report.add(part, name.clone(), "q/s", rounds.rates.clone());
    report.add(part, format!("{name}, lowest second"), "q/s", lowest);
    report.add(
        part,
        format!("{name}, CPU of the gateway a query"),
        "us",
        rounds.cpu.clone(),
    );
}

/// `theirs`: what is published of TiProxy, which does not encrypt. Nor are there aims for what does.
fn add_ratios(
    report: &mut Report,
    part: &str,
    capturing: Capturing,
    on: &Rounds,
    off: &Rounds,
    theirs: Option<(f64, f64)>,
) {
    let is_plain = capturing == Capturing::On;
    let name = capturing.name();
    let theirs = theirs.filter(|_| is_plain);
    let aim = |wanted: Wanted| is_plain.then_some(wanted);
    let ratios = |of: &[f64], to: &[f64]| of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>();
    let rates = ratios(&on.rates, &off.rates);
    report
        .add(part, format!("{name} / off, query/s"), "", rates)
        .wanted(aim(Wanted::AtLeast(0.99)));
    note(report, theirs.map(|(average, _)| average));
    let (off_lowest, on_lowest) = both(&off.lowest, &on.lowest);
    let lowest = ratios(&on_lowest, &off_lowest);
    report
        .add(part, format!("{name} / off, lowest second"), "", lowest)
        .wanted(aim(Wanted::AtLeast(0.98)));
    note(report, theirs.map(|(_, lowest)| lowest));
    let cpu = ratios(&on.cpu, &off.cpu);
    report
        .add(part, format!("{name} / off, CPU of the gateway a query"), "", cpu)
        .wanted(aim(Wanted::AtMost(1.10)));
    let which = if is_plain { "" } else { ", encrypted" };
    report.add(
        part,
        format!("a captured command on the disk{which}"),
        "B",
        on.bytes.clone(),
    );
    report
        .add(
            part,
            format!("sessions that were left out{which}"),
            "",
            [on.thinned as f64],
        )
        .wanted(Wanted::AtMost(0.0));
}

/// One client's load, in its own schema.
fn client_load(address: SocketAddr, client: usize, seconds: f64) -> anyhow::Result<Done> {
    let load = Sysbench {
        on: &[],
        script: "oltp_read_write",
        address,
        account: Account {
            // There are few of them.
            database: format!("sb{}", client + 1).leak(),
            ..SANDBOX
        },
        is_text: client < TEXT_CLIENTS,
        tables: 1,
        rows: ROWS,
        threads: 1,
        seconds,
        options: &[],
    };
    load.run()
}

/// The output of the command `what` of forebay; an error where it has failed.
fn succeeded(output: Output, what: &str) -> anyhow::Result<Output> {
    ensure!(output.status.success(), "forebay {what}: {}", said(&output));
    Ok(output)
}

fn said(output: &Output) -> String {
    let said = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&said).trim().to_owned()
}

/// The rounds in which both have a value: a ratio is formed within a round.
fn both(one: &[Option<f64>], other: &[Option<f64>]) -> (Vec<f64>, Vec<f64>) {
    let pairs = one.iter().zip(other);
    pairs.filter_map(|(one, other)| one.zip(*other)).unzip()
}

fn note(report: &mut Report, theirs: Option<f64>) {
    if let Some(theirs) = theirs {
        report.note(format!("TiProxy, as published: {theirs}"));
    }
}

/// A schema for each client, as it is before the load.
fn fill(server: &Sandbox) -> anyhow::Result<()> {
    for client in 1..=CLIENTS {
        server.primary().sql(&format!(
            "DROP DATABASE IF EXISTS sb{client}; CREATE DATABASE sb{client};
             CREATE TABLE sb{client}.sbtest1 LIKE sbtest.sbtest1;
             INSERT INTO sb{client}.sbtest1 SELECT * FROM sbtest.sbtest1 WHERE id <= {ROWS} AND pad = 'pad' ORDER BY id;"
        ))?;
    }
    Ok(())
}

fn configuration(server: &Sandbox, clients: SocketAddr, admin: SocketAddr) -> String {
    let address = server.primary().address();
    format!(
        r#"[[listener]]
name = "clients"
bind = "{clients}"
mode = "session"
cluster = "main"

[cluster.main]
servers = ["{address}"]

[admin]
bind = "{admin}"
socket = "admin.sock"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_in_which_one_has_no_value_is_left_out_of_both() {
        let (off, on) = both(
            &[Some(1.0), None, Some(3.0), Some(4.0)],
            &[Some(2.0), Some(9.0), None, Some(8.0)],
        );
        assert_eq!((off, on), (vec![1.0, 4.0], vec![2.0, 8.0]));
    }
}
