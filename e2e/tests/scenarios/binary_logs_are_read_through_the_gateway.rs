use e2e::{Setup, client, servers};

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
    let (direct, through) = (read(primary.port()), read(gateway.port()));
    assert!(direct.len() > 100_000, "{} bytes", direct.len());
    assert!(direct == through, "the same events come through the gateway");
}
