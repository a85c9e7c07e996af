//! sysbench's OLTP workloads through the gateway, in both modes of a listener and with and without prepared
//! statements: none may report an error that the server did not make.
//!
//! Without the test harness, to say what it is doing: it takes minutes.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Instant;

use e2e::{Gateway, Setup};
use sandbox::{DATABASE, Kind, Node, PASSWORD, Sandbox, Spec, USER};

const WORKLOADS: [&str; 6] = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_write_only",
    "oltp_read_write",
    "oltp_update_index",
    "oltp_update_non_index",
];
const SECONDS: u32 = 4;
const THREADS: u32 = 16;
const LOG_LINES: usize = 20;
/// Transactions that the server rolled back to end a deadlock.
const DEADLOCKS: &str = "SELECT variable_value FROM information_schema.global_status
     WHERE variable_name = 'Innodb_deadlocks'";

fn main() -> ExitCode {
    let sandbox = [Sandbox::start(Spec::new(Kind::Mariadb)).unwrap()];
    let (mut passed, mut failed) = (0, 0);
    for mode in ["session", "tcp"] {
        let gateway = Setup::in_front_of(&sandbox).mode(mode).start();
        if mode == "session" {
            let prepared = sysbench(&gateway, "oltp_read_write", &["prepare"]);
            prepared.unwrap_or_else(|output| panic!("sysbench could not fill its tables:\n{output}"));
        }
        for (workload, ps_mode) in WORKLOADS
            .iter()
            .flat_map(|name| [(name, "auto"), (name, "disable")])
        {
            print!("{mode:<8} {workload:<22} --db-ps-mode={ps_mode:<8} ");
            std::io::stdout().flush().unwrap();
            let begin = Instant::now();
            match run(&gateway, sandbox[0].primary(), workload, ps_mode) {
                Ok(figure) => {
                    passed += 1;
                    println!("ok  {figure:>10} q/s  {:.1} s", begin.elapsed().as_secs_f64());
                }
                Err(output) => {
                    failed += 1;
                    println!(
                        "FAILED\n{output}\nThe end of the gateway's log:\n{}",
                        end_of(&gateway.log())
                    );
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Queries per second of a clean run. sysbench goes on after deadlocks, which its writing workloads bring about, and
/// counts them: they must be those that the server counted.
fn run(gateway: &Gateway, server: &Node, workload: &str, ps_mode: &str) -> Result<String, String> {
    let deadlocks = || server.sql(DEADLOCKS).unwrap().trim().parse::<u64>().unwrap();
    let before = deadlocks();
    let report = sysbench(gateway, workload, &[&format!("--db-ps-mode={ps_mode}"), "run"])?;
    let of_server = deadlocks() - before;
    let clean = figure(&report, "ignored errors:") == Some(of_server)
        && figure(&report, "reconnects:") == Some(0)
        && figure(&report, "transactions:").is_some_and(|count| count > 0);
    if clean {
        Ok(queries_per_second(&report))
    } else {
        Err(report)
    }
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
        .args([format!("--time={SECONDS}"), format!("--threads={THREADS}")])
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
