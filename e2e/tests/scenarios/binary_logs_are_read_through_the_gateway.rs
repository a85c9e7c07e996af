use std::process::Stdio;

use e2e::{Setup, client, eventually, kind, servers};
use sandbox::{Kind, Sandbox, Spec};

/// What a replica does: register, then COM_BINLOG_DUMP, an answer that never ends by itself.
#[tokio::test]
async fn as_from_the_server() {
    let servers = servers(1);
    let primary = servers[0].primary();
    primary
        .sql("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT); INSERT INTO t VALUES (1, REPEAT('x', 100000))")
        .unwrap();
    primary
        .sql("FLUSH BINARY LOGS; INSERT INTO t VALUES (2, 'y')")
        .unwrap();
    let gateway = Setup::in_front_of(&servers).start();
    let read = |port: u16| {
        let mut tool = client::tool("mariadb-binlog", "mysqlbinlog");
        tool.args(["--no-defaults", "--read-from-remote-server", "--to-last-log"]);
        let output = client::login(&mut tool, port)
            .arg("binlog.000001")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        output.stdout
    };
    // MariaDB writes an event of its own (Binlog_checkpoint) a moment after the flush: only a log
    // that read the same before and after was the same meanwhile.
    let (direct, through) = (0..20)
        .find_map(|_| {
            let (before, through) = (read(primary.port()), read(gateway.port()));
            (before == read(primary.port())).then_some((before, through))
        })
        .expect("a log to which nothing is added");
    assert!(direct.len() > 100_000, "{} bytes", direct.len());
    assert!(direct == through, "the same events come through the gateway");
}

#[tokio::test]
async fn for_longer_than_a_client_may_be_idle() {
    let servers = servers(1);
    let primary = servers[0].primary();
    primary.sql("CREATE TABLE t (id INT PRIMARY KEY)").unwrap();
    let gateway = Setup::in_front_of(&servers)
        .listener("client_idle_timeout = \"3s\"")
        .start();
    let mut tool = client::tool("mariadb-binlog", "mysqlbinlog");
    tool.args(["--no-defaults", "--read-from-remote-server", "--stop-never"]);
    let mut reader = client::login(&mut tool, gateway.port())
        .arg("binlog.000001")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let streams = || gateway.get("/sessions").1.matches("\"stream\"").count();
    eventually("the log is being read", async || streams() == 1).await;

    let _idle = client::connect(&gateway).await;
    let ended = || gateway.metric("forebay_sessions_ended_total", &["reason=\"client_idle\""]);
    eventually("a client that came later was idle for too long", async || {
        ended() >= 1.0
    })
    .await;
    assert_eq!((ended(), streams()), (1.0, 1));
    let sent = || gateway.metric("forebay_client_sent_bytes_total", &[]);
    let sent_before = sent();
    primary.sql("INSERT INTO t VALUES (1)").unwrap();
    eventually("the reader gets what is written now", async || {
        sent() > sent_before
    })
    .await;
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[tokio::test]
async fn by_a_replica() {
    let pair = Sandbox::start(Spec::new(kind()).nodes(2)).unwrap();
    let [primary, replica] = pair.nodes() else {
        panic!("two servers were started");
    };
    // Replicas of MySQL 9 want TLS unless they are told otherwise.
    let certificates = pair.certificates();
    let (cert, key) = (&certificates.server_cert, &certificates.server_key);
    let gateway = Setup::of_addresses([primary.address()])
        .listener_tls(&format!("mode = \"preferred\"\ncert = {cert:?}\nkey = {key:?}"))
        .start();
    let port = gateway.port();
    let moves = match kind() {
        Kind::Mysql => {
            format!("STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_PORT={port}; START REPLICA")
        }
        _ => format!("STOP SLAVE; CHANGE MASTER TO MASTER_PORT={port}; START SLAVE"),
    };
    replica.sql(&moves).unwrap();
    eventually("it reads through the gateway", async || {
        gateway.metric("forebay_commands_total", &["command=\"register_slave\""]) == 1.0
            && gateway.get("/sessions").1.matches("\"stream\"").count() == 1
    })
    .await;
    primary
        .sql(
            "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT); INSERT INTO t VALUES (1, REPEAT('x', 5000000))",
        )
        .unwrap();
    pair.sync().unwrap();
    assert_eq!(replica.sql("SELECT SUM(LENGTH(v)) FROM t").unwrap(), "5000000\n");
}
