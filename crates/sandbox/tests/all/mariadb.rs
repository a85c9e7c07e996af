//! Real MariaDB servers: they start fast, answer, fail in every way, come back, and leave nothing behind.

use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox::{Kind, PASSWORD, Sandbox, SandboxError, Spec, USER};

fn one_server() -> Sandbox {
    Sandbox::start(Spec::new(Kind::Mariadb)).unwrap()
}

fn process_exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_answers_and_leaves_nothing_behind() {
    let sandbox = one_server();
    let node = sandbox.primary();
    assert_eq!(node.sql("SELECT 1, 'a'; SELECT 2").unwrap(), "1\ta\n2\n");
    assert_eq!(node.sql("SELECT @@port").unwrap().trim(), node.port().to_string());
    TcpStream::connect(node.address()).unwrap();

    let (folder, pid) = (sandbox.folder().to_path_buf(), node.pid().unwrap());
    assert!(process_exists(pid));
    drop(sandbox);
    assert!(!process_exists(pid));
    assert!(!folder.exists());
}

#[test]
fn a_refused_statement_is_an_error_that_names_the_reason() {
    let sandbox = one_server();
    let error = sandbox.primary().sql("SELECT * FROM nothing_here").unwrap_err();
    assert!(matches!(error, SandboxError::Sql { node: 0, .. }), "{error:?}");
    assert!(error.to_string().contains("1146"), "{error}");
}

#[test]
fn a_killed_server_comes_back_on_its_port_with_its_data() {
    let sandbox = one_server();
    let node = sandbox.primary();
    node.sql("CREATE TABLE kept (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO kept VALUES (7)")
        .unwrap();
    let (port, pid) = (node.port(), node.pid().unwrap());

    node.kill9().unwrap();
    assert_eq!(node.pid(), None);
    assert!(!process_exists(pid));
    assert!(TcpStream::connect(node.address()).is_err());

    node.restart().unwrap();
    assert_eq!(node.port(), port);
    assert_eq!(node.sql("SELECT id FROM kept").unwrap(), "7\n");
}

#[test]
fn a_stopped_server_ends_in_order() {
    let sandbox = one_server();
    let node = sandbox.primary();
    node.stop().unwrap();
    assert_eq!(node.pid(), None);
    assert!(node.log().contains("Shutdown complete"), "{}", node.log());
    assert!(matches!(node.freeze(), Err(SandboxError::NotRunning { node: 0 })));
}

#[test]
fn a_frozen_server_answers_only_when_thawed() {
    let sandbox = one_server();
    let node = sandbox.primary();
    node.freeze().unwrap();
    let asked = std::thread::scope(|scope| {
        let answer = scope.spawn(|| node.sql("SELECT 1"));
        assert!(!answer.is_finished());
        node.thaw().unwrap();
        answer.join().unwrap()
    });
    assert_eq!(asked.unwrap(), "1\n");
    node.freeze().unwrap(); // and the end of a frozen one does not take longer
    let begin = Instant::now();
    drop(sandbox);
    // A wait for its end in order takes 90 s.
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn replicas_have_what_the_primary_committed_and_refuse_writes() {
    let sandbox = Sandbox::start(Spec::new(Kind::Mariadb).nodes(3)).unwrap();
    sandbox
        .primary()
        .sql("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
        .unwrap();
    sandbox.sync().unwrap();
    for replica in &sandbox.nodes()[1..] {
        assert_eq!(replica.sql("SELECT COUNT(*) FROM t").unwrap(), "2\n");
        let refused = client(replica.port(), "INSERT INTO test.t VALUES (3)").unwrap_err();
        assert!(refused.contains("1290"), "{refused}");
    }
    client(sandbox.primary().port(), "INSERT INTO test.t VALUES (3)").unwrap();
    // A replica that was away catches up.
    sandbox.node(1).kill9().unwrap();
    sandbox.primary().sql("INSERT INTO t VALUES (4)").unwrap();
    sandbox.node(1).restart().unwrap();
    sandbox.sync().unwrap();
    assert_eq!(sandbox.node(1).sql("SELECT COUNT(*) FROM t").unwrap(), "4\n");
}

#[test]
fn options_of_the_spec_win() {
    let sandbox = Sandbox::start(Spec::new(Kind::Mariadb).option("--max-connections=17")).unwrap();
    assert_eq!(sandbox.primary().sql("SELECT @@max_connections").unwrap(), "17\n");
}

#[test]
fn a_server_that_cannot_start_says_why_and_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let mut spec = Spec::new(Kind::Mariadb).option("--no-such-option=1");
    spec.dir = Some(parent.path().to_path_buf());
    let error = Sandbox::start(spec).unwrap_err().to_string();
    assert!(error.contains("no-such-option"), "{error}");
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn tls_is_offered_with_the_sandbox_s_certificate_or_not_at_all() {
    let status = "SHOW SESSION STATUS LIKE 'Ssl_version'";
    let sandbox = one_server();
    let ca = format!("--ssl-ca={}", sandbox.ca_file().display());
    let encrypted = client_with(
        sandbox.primary().port(),
        &[&ca, "--ssl-verify-server-cert"],
        status,
    )
    .unwrap();
    assert!(encrypted.contains("TLSv1.3"), "{encrypted}");

    let plain = Sandbox::start(Spec::new(Kind::Mariadb).tls(false)).unwrap();
    assert_eq!(plain.primary().sql("SELECT @@have_ssl").unwrap(), "DISABLED\n");
}

/// Runs a statement as the TCP account; the error is what the client printed.
fn client(port: u16, statement: &str) -> Result<String, String> {
    client_with(port, &[], statement)
}

fn client_with(port: u16, options: &[&str], statement: &str) -> Result<String, String> {
    let output = std::process::Command::new("mariadb")
        .args([
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--host=127.0.0.1",
            "--protocol=tcp",
        ])
        .args([
            format!("--port={port}"),
            format!("--user={USER}"),
            format!("--password={PASSWORD}"),
        ])
        .args(options)
        .args(["--execute", statement])
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8(output.stderr).unwrap())
}
