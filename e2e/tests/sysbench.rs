//! sysbench's OLTP workloads through the gateway, on MariaDB and MySQL, with and without prepared statements:
//! none may report an error that the server did not make. In mode `split` there are replicas, and they take
//! the reads.
//!
//! Both kinds of server side by side, or the one that `FOREBAY_E2E_SERVER` names.
//!
//! Without the test harness, to say what it is doing: it takes minutes.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use e2e::{Gateway, PATIENCE, Setup};
use sandbox::{DATABASE, Kind, Node, PASSWORD, Sandbox, Spec, USER};

const WORKLOADS: [&str; 6] = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_write_only",
    "oltp_read_write",
    "oltp_update_index",
    "oltp_update_non_index",
];
/// Mode `tcp` looks at nothing, so that one kind of server is enough for it.
const CASES: [(Kind, &[&str]); 2] = [
    (Kind::Mariadb, &["session", "tcp", "split"]),
    (Kind::Mysql, &["session", "split"]),
];
/// Seconds of a run; `FOREBAY_SYSBENCH_SECONDS` asks for more.
const SECONDS: u64 = 1;
/// Seconds of a run whose reads have to spread: replicas of a busy machine have no turn for a second.
const SECONDS_TO_SPREAD: u64 = 2;
const THREADS: u32 = 16;
/// Of mode `split`: a primary and two replicas, each with fewer connections than there are threads.
const NODES: usize = 3;
const CONNECTIONS: u32 = 6;
const LOG_LINES: usize = 20;
/// Runs at most until reads have spread.
const TRIES: usize = 3;

fn main() -> ExitCode {
    let only = std::env::var_os("FOREBAY_E2E_SERVER").map(|_| e2e::kind());
    let cases = CASES
        .iter()
        .filter(|(kind, _)| only.is_none_or(|only| only == *kind));
    let (passed, total) = std::thread::scope(|scope| {
        let running: Vec<_> = cases
            .map(|(kind, modes)| {
                (
                    scope.spawn(|| run_kind(*kind, modes)),
                    modes.iter().map(|mode| ps_modes(mode).len()).sum::<usize>() * WORKLOADS.len(),
                )
            })
            .collect();
        running.into_iter().fold((0, 0), |(passed, all), (kind, total)| {
            (passed + kind.join().unwrap_or(0), all + total)
        })
    });
    let failed = total - passed;
    println!("{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// To mode `tcp` a statement is as good as another.
fn ps_modes(mode: &str) -> &'static [&'static str] {
    match mode {
        "tcp" => &["auto"],
        _ => &["auto", "disable"],
    }
}

/// How many of the workloads went well.
fn run_kind(kind: Kind, modes: &[&str]) -> usize {
    let single = [Sandbox::lend(Spec::new(kind)).unwrap()];
    let replicated = Sandbox::start(Spec::new(kind).nodes(NODES)).unwrap();
    let mut passed = 0;
    for mode in modes {
        let (gateway, nodes) = match *mode {
            "split" => (split(&replicated), replicated.nodes()),
            _ => (Setup::in_front_of(&single).mode(mode).start(), single[0].nodes()),
        };
        if *mode != "tcp" {
            let prepared = sysbench(&gateway, "oltp_read_write", &["prepare"]);
            prepared.unwrap_or_else(|output| panic!("sysbench could not fill its tables:\n{output}"));
            replicated.sync().unwrap();
        }
        let bench = Bench {
            kind,
            mode,
            gateway,
            nodes,
        };
        passed += bench.run_all();
    }
    passed
}

/// Fewer server connections than there are sessions.
fn split(sandbox: &Sandbox) -> Gateway {
    let account = format!("user = {USER:?}, password = {PASSWORD:?}");
    let servers = sandbox
        .addresses()
        .into_iter()
        .map(|address| format!("{{ address = {address:?}, max_connections = {CONNECTIONS} }}"));
    let gateway = Setup::of_addresses([])
        .servers(servers)
        .mode("split")
        .tables(&format!("[[user]]\nname = {USER:?}\npassword = {PASSWORD:?}\n"))
        // Statements are to wait for a connection as long as a busy machine lets them.
        .cluster(&format!(
            "topology = \"replication\"\nqueue_timeout = \"60s\"\nmonitor = {{ {account} }}"
        ))
        .start();
    let replicas = || gateway.metric("forebay_server_role", &["role=\"replica\""]) as usize;
    let begin = Instant::now();
    while replicas() != NODES - 1 {
        assert!(begin.elapsed() < PATIENCE, "the replicas are not found");
        std::thread::sleep(Duration::from_millis(50));
    }
    gateway
}

/// A gateway in front of servers whose tables are filled.
struct Bench<'s> {
    kind: Kind,
    mode: &'s str,
    gateway: Gateway,
    nodes: &'s [Node],
}

impl Bench<'_> {
    /// How many of the workloads went well.
    fn run_all(&self) -> usize {
        let ps_modes = ps_modes(self.mode).iter();
        let kinds = WORKLOADS
            .iter()
            .flat_map(|name| ps_modes.clone().map(move |ps_mode| (name, ps_mode)));
        kinds
            .filter(|(workload, ps_mode)| {
                let (kind, mode) = (self.kind.name(), self.mode);
                let what = format!("{kind:<8} {mode:<8} {workload:<22} --db-ps-mode={ps_mode:<8}");
                let begin = Instant::now();
                let result = self.run(workload, ps_mode);
                match &result {
                    Ok(figure) => println!(
                        "{what} ok  {figure:>10} q/s  {:.1} s",
                        begin.elapsed().as_secs_f64()
                    ),
                    Err(output) => println!(
                        "{what} FAILED\n{output}\nThe end of the gateway's log:\n{}",
                        end_of(&self.gateway.log())
                    ),
                }
                result.is_ok()
            })
            .count()
    }

    /// Queries per second of a clean run. Reads may have to spread a few times: on a busy machine a replica
    /// that has no turn for a second gets few of two.
    fn run(&self, workload: &str, ps_mode: &str) -> Result<String, String> {
        for _ in 1..TRIES {
            if let Ok(figure) = self.run_once(workload, ps_mode)? {
                return Ok(figure);
            }
        }
        self.run_once(workload, ps_mode)?
    }

    /// One run of sysbench, which has to be clean. Tells whether its reads spread. sysbench goes on after
    /// deadlocks, which its writing workloads bring about, and counts them: they must be those that the
    /// primary counted. Replicas take part in what only reads.
    fn run_once(&self, workload: &str, ps_mode: &str) -> Result<Result<String, String>, String> {
        let reads = || -> Vec<u64> { self.nodes.iter().map(count_reads).collect() };
        let (deadlocks_before, reads_before) = (self.deadlocks(), reads());
        let ps_mode = format!("--db-ps-mode={ps_mode}");
        let only_reads = ["oltp_point_select", "oltp_read_only"].contains(&workload);
        let spread = only_reads && self.nodes.len() > 1;
        let usual = if spread { SECONDS_TO_SPREAD } else { SECONDS };
        let seconds = inputs::asked("FOREBAY_SYSBENCH_SECONDS").unwrap_or(usual);
        let time = format!("--time={seconds}");
        let mut arguments = vec![ps_mode.as_str(), time.as_str(), "run"];
        if spread {
            arguments.push("--skip-trx=on");
        }
        let report = sysbench(&self.gateway, workload, &arguments)?;
        let of_server = self.deadlocks() - deadlocks_before;
        let clean = figure(&report, "ignored errors:") == Some(of_server)
            && figure(&report, "reconnects:") == Some(0)
            && figure(&report, "transactions:").is_some_and(|count| count > 0);
        if !clean {
            return Err(format!("{report}\nthe server counted {of_server} deadlocks"));
        }
        let reads: Vec<u64> = reads()
            .iter()
            .zip(reads_before)
            .map(|(now, before)| now - before)
            .collect();
        let total: u64 = reads.iter().sum();
        if spread && reads[1..].iter().any(|of_replica| of_replica * 4 < total) {
            return Ok(Err(format!(
                "{report}\nreads do not spread: the servers executed {reads:?}"
            )));
        }
        Ok(Ok(queries_per_second(&report)))
    }

    /// Transactions that the primary rolled back to end a deadlock.
    fn deadlocks(&self) -> u64 {
        count(
            &self.nodes[0],
            match self.kind {
                Kind::Mysql => {
                    "SELECT name, count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
                }
                _ => "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'",
            },
        )
    }
}

/// SELECTs that a server has executed, as text and prepared.
fn count_reads(node: &Node) -> u64 {
    count(node, "SHOW GLOBAL STATUS LIKE 'Com_select'")
}

/// The number behind a name.
fn count(node: &Node, statement: &str) -> u64 {
    let row = node.sql(statement).unwrap();
    row.split_whitespace().last().unwrap().parse().unwrap()
}

/// What sysbench printed; as an error where it failed.
fn sysbench(gateway: &Gateway, workload: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("sysbench")
        .arg(workload)
        .args([
            "--db-driver=mysql",
            "--mysql-host=127.0.0.1",
            "--tables=4",
            "--table-size=10000",
        ])
        .args([
            format!("--mysql-port={}", gateway.port()),
            format!("--mysql-db={DATABASE}"),
        ])
        .args([
            format!("--mysql-user={USER}"),
            format!("--mysql-password={PASSWORD}"),
        ])
        .arg(format!("--threads={THREADS}"))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() && !text.contains("FATAL") {
        Ok(text)
    } else {
        Err(text)
    }
}

/// The number behind `name` in sysbench's report.
fn figure(report: &str, name: &str) -> Option<u64> {
    let rest = report.lines().find_map(|line| line.trim().strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// `queries:                             123456 (12345.67 per sec.)`
fn queries_per_second(report: &str) -> String {
    let line = report
        .lines()
        .find_map(|line| line.trim().strip_prefix("queries:"));
    let figure = line.and_then(|rest| Some(rest.split_once('(')?.1.split_once(' ')?.0));
    figure.unwrap_or("?").to_owned()
}

fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
