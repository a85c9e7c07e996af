//! sysbench's OLTP workloads through the gateway, in all modes of a listener and with and without prepared
//! statements: none may report an error that the server did not make. In mode `split` there are replicas, and they take the
//! reads.
//!
//! Without the test harness, to say what it is doing: it takes minutes.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
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
const SECONDS: u32 = 4;
const THREADS: u32 = 16;
/// Of mode `split`: a primary and two replicas, each with fewer connections than there are threads.
const NODES: usize = 3;
const CONNECTIONS: u32 = 6;
const LOG_LINES: usize = 20;
/// Transactions that the server rolled back to end a deadlock.
const DEADLOCKS: &str = "SELECT variable_value FROM information_schema.global_status
     WHERE variable_name = 'Innodb_deadlocks'";
const ROWS_SENT: &str =
    "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Rows_sent'";

fn main() -> ExitCode {
    let single = [Sandbox::start(Spec::new(Kind::Mariadb)).unwrap()];
    let replicated = Sandbox::start(Spec::new(Kind::Mariadb).nodes(NODES)).unwrap();
    let (mut passed, mut failed) = (0, 0);
    for mode in ["session", "tcp", "split"] {
        let (gateway, nodes) = match mode {
            "split" => (split(&replicated), replicated.nodes()),
            _ => (Setup::in_front_of(&single).mode(mode).start(), single[0].nodes()),
        };
        if mode != "tcp" {
            let prepared = sysbench(&gateway, "oltp_read_write", &["prepare"]);
            prepared.unwrap_or_else(|output| panic!("sysbench could not fill its tables:\n{output}"));
            replicated.sync().unwrap();
        }
        for (workload, ps_mode) in WORKLOADS
            .iter()
            .flat_map(|name| [(name, "auto"), (name, "disable")])
        {
            print!("{mode:<8} {workload:<22} --db-ps-mode={ps_mode:<8} ");
            std::io::stdout().flush().unwrap();
            let begin = Instant::now();
            match run(&gateway, nodes, workload, ps_mode) {
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
        .cluster(&format!("topology = \"replication\"\nmonitor = {{ {account} }}"))
        .start();
    let replicas = || gateway.metric("forebay_server_role", &["role=\"replica\""]) as usize;
    let begin = Instant::now();
    while replicas() != NODES - 1 {
        assert!(begin.elapsed() < PATIENCE, "the replicas are not found");
        std::thread::sleep(Duration::from_millis(50));
    }
    gateway
}

/// Queries per second of a clean run. sysbench goes on after deadlocks, which its writing workloads bring about, and
/// counts them: they must be those that the primary counted. Replicas take part in what only reads.
fn run(gateway: &Gateway, nodes: &[Node], workload: &str, ps_mode: &str) -> Result<String, String> {
    let deadlocks = || count(&nodes[0], DEADLOCKS);
    let rows = || -> Vec<u64> { nodes.iter().map(|node| count(node, ROWS_SENT)).collect() };
    let (deadlocks_before, rows_before) = (deadlocks(), rows());
    let ps_mode = format!("--db-ps-mode={ps_mode}");
    let mut arguments = vec![ps_mode.as_str(), "run"];
    let reads = ["oltp_point_select", "oltp_read_only"].contains(&workload);
    let spread = reads && nodes.len() > 1;
    if spread {
        arguments.push("--skip-trx=on");
    }
    let report = sysbench(gateway, workload, &arguments)?;
    let of_server = deadlocks() - deadlocks_before;
    let clean = figure(&report, "ignored errors:") == Some(of_server)
        && figure(&report, "reconnects:") == Some(0)
        && figure(&report, "transactions:").is_some_and(|count| count > 0);
    if !clean {
        return Err(report);
    }
    let sent: Vec<u64> = rows()
        .iter()
        .zip(rows_before)
        .map(|(now, before)| now - before)
        .collect();
    let total: u64 = sent.iter().sum();
    if spread && sent[1..].iter().any(|of_replica| of_replica * 4 < total) {
        return Err(format!(
            "{report}\nreads do not spread: the servers sent {sent:?} rows"
        ));
    }
    Ok(queries_per_second(&report))
}

fn count(node: &Node, statement: &str) -> u64 {
    node.sql(statement).unwrap().trim().parse().unwrap()
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
