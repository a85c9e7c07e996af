//! sysbench's OLTP workloads through the gateway, in both modes of a listener and with and without prepared
//! statements: none may report an error.
//!
//! Without the test harness, to say what it is doing: it takes minutes.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Instant;

use e2e::{Gateway, Setup};
use sandbox::{DATABASE, Kind, PASSWORD, Sandbox, Spec, USER};

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

fn main() -> ExitCode {
    let sandbox = [Sandbox::start(Spec::new(Kind::Mariadb)).unwrap()];
    let (mut passed, mut failed) = (0, 0);
    for mode in ["session", "tcp"] {
        let gateway = Setup::in_front_of(&sandbox).mode(mode).start();
        if mode == "session" {
            let prepared = sysbench(&gateway, "oltp_read_write", &["prepare".to_owned()]);
            prepared.unwrap_or_else(|output| panic!("sysbench could not fill its tables:\n{output}"));
        }
        for (workload, ps_mode) in WORKLOADS
            .iter()
            .flat_map(|name| [(name, "auto"), (name, "disable")])
        {
            print!("{mode:<8} {workload:<22} --db-ps-mode={ps_mode:<8} ");
            std::io::stdout().flush().unwrap();
            let begin = Instant::now();
            match sysbench(
                &gateway,
                workload,
                &[format!("--db-ps-mode={ps_mode}"), "run".to_owned()],
            ) {
                Ok(output) => {
                    passed += 1;
                    println!(
                        "ok  {:>10} q/s  {:.1} s",
                        queries_per_second(&output),
                        begin.elapsed().as_secs_f64()
                    );
                }
                Err(output) => {
                    failed += 1;
                    println!("FAILED\n{output}\n{}", gateway.log());
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

/// What sysbench printed; as an error where it failed, counted errors, reconnected or did nothing.
fn sysbench(gateway: &Gateway, workload: &str, arguments: &[String]) -> Result<String, String> {
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
    let runs = arguments.iter().any(|argument| argument == "run");
    let clean = !runs
        || (counts_nothing(&text, "ignored errors:")
            && counts_nothing(&text, "reconnects:")
            && !counts_nothing(&text, "transactions:"));
    if output.status.success() && clean && !text.contains("FATAL") {
        Ok(text)
    } else {
        Err(text)
    }
}

/// Whether the line of sysbench's report that begins with `name` counts 0.
fn counts_nothing(report: &str, name: &str) -> bool {
    let line = report.lines().find_map(|line| line.trim().strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next())
        .is_none_or(|count| count == "0")
}

/// `queries:                             123456 (12345.67 per sec.)`
fn queries_per_second(report: &str) -> &str {
    let line = report
        .lines()
        .find_map(|line| line.trim().strip_prefix("queries:"));
    line.and_then(|rest| rest.split_once('(')?.1.split_once(' '))
        .map_or("?", |(figure, _)| figure)
}
