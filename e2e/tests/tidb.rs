//! In front of TiDB: what a client gets is what the server says, in modes `session` and `tcp`, and in mode
//! `split` where no connections are shared; where they are to be it says why that cannot be.
//!
//! `script/lib/tidb` builds a server, which takes minutes: `cargo test -p e2e --test tidb` is not part of
//! `script/test`. Without the server each test fails and says how to get it.

#![allow(clippy::unwrap_used, reason = "code of tests")]

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use e2e::{Gateway, Setup, client, eventually};
use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{Conn, OptsBuilder, QueryResult, Row};
use sandbox::{Etcd, PASSWORD, Tidb, USER};

/// A session each; statements are separated by ` | `, and prepared behind `p:`.
const SCRIPTS: &str = "
SELECT 1, NULL, 'é😀', 1.5, x'00ff' | p:SELECT 1, NULL, 'é😀', 1.5, x'00ff' | SELECT nothing | SELECT FROM | SELECT 2
INSERT INTO t (v) VALUES (1), (2) | SELECT LAST_INSERT_ID(), ROW_COUNT() | p:UPDATE t SET v = v + 1 | SELECT ROW_COUNT() | SELECT v FROM t ORDER BY id
INSERT INTO t (id, v) VALUES (1, 1), (1, 2) | SELECT COUNT(*) FROM t | INSERT IGNORE INTO t (id, v) VALUES (1, 9) | SHOW WARNINGS
BEGIN | INSERT INTO t (v) VALUES (1) | SELECT COUNT(*) FROM t | ROLLBACK | SELECT COUNT(*) FROM t | SELECT @@in_transaction
SET autocommit = 0 | INSERT INTO t (v) VALUES (1) | COMMIT | SELECT @@autocommit, COUNT(*) FROM t | SET autocommit = 1
BEGIN OPTIMISTIC | INSERT INTO t (v) VALUES (4) | COMMIT | START TRANSACTION READ ONLY | SELECT COUNT(*) FROM t | COMMIT
SELECT 1; SELECT 2, 3; INSERT INTO t (v) VALUES (8); SELECT 4 | SELECT 1; SELECT nothing; SELECT 3 | SELECT 5
SET @x = 1, @y = 'two' | SELECT @x, @y | PREPARE s FROM 'SELECT ? + 1' | EXECUTE s USING @x | DEALLOCATE PREPARE s | EXECUTE s USING @x
CREATE TEMPORARY TABLE tt (a INT) | INSERT INTO tt VALUES (3) | SELECT a FROM tt | DROP TABLE tt | SELECT a FROM tt
USE test | SELECT DATABASE() | SELECT COUNT(*) FROM t | USE nowhere | SELECT DATABASE()
SET NAMES latin1 | SELECT @@character_set_client, @@collation_connection | SET sql_mode = 'ANSI_QUOTES' | SELECT \"a\" FROM (SELECT 1 AS a) d
SET time_zone = '+03:00' | SELECT @@time_zone | SET @@tidb_distsql_scan_concurrency = 3 | SELECT @@tidb_distsql_scan_concurrency | SET tidb_nothing = 1
SET SESSION tidb_snapshot = '' | SELECT @@tidb_snapshot, @@tidb_txn_mode, @@tidb_isolation_read_engines | SELECT /*+ MAX_EXECUTION_TIME(1000) */ 1
SELECT TIDB_VERSION() LIKE 'Release Version:%' | ADMIN SHOW DDL JOBS 0 | EXPLAIN FORMAT = 'brief' SELECT 1
SELECT CAST('x' AS SIGNED) | SHOW WARNINGS | SELECT CAST('x' AS SIGNED) | SELECT @@warning_count
SELECT GET_LOCK('a', 0) | SELECT RELEASE_LOCK('a') | LOCK TABLES t WRITE | UNLOCK TABLES | SHOW SLAVE STATUS | SHOW MASTER STATUS | CALL p()
SET session_track_schema = ON, session_track_state_change = ON | USE test | SELECT DATABASE()
SELECT REPEAT('x', 20000000) | p:SELECT REPEAT('y', 17000000), 1 | SELECT 1
SELECT n FROM many ORDER BY n | p:SELECT n, CONCAT('row ', n) FROM many ORDER BY n | SELECT COUNT(*) FROM many
SELECT 1 /* ended */ ; | ; | /* nothing */ | SELECT 'a;b' | SHUTDOWN NOW | KILL
";

/// Rows of the table of big results.
const ROWS: u32 = 1 << 15;

fn tidb(configuration: &str) -> Tidb {
    Tidb::start(configuration).unwrap_or_else(|error| panic!("{error}"))
}

/// A gateway whose checks log in.
fn in_front_of(servers: &[&Tidb]) -> Setup {
    let check = format!("user = {USER:?}\npassword = {PASSWORD:?}\ninterval = \"200ms\"\nrise = 1\nfall = 2");
    Setup::of_addresses(servers.iter().map(|server| server.address())).check(&check)
}

/// Mode `split`, each session with a connection of its own, before servers whose status ports are known.
fn own(servers: &[&Tidb]) -> Setup {
    let known = servers.iter().map(|server| {
        let (address, status_port) = (server.address(), server.status_port());
        format!("{{ address = {address:?}, status_port = {status_port} }}")
    });
    in_front_of(servers)
        .servers(known)
        .mode("split")
        .listener("sharing = \"never\"")
        .cluster("topology = \"tidb\"")
}

async fn connect(gateway: &Gateway) -> Conn {
    Conn::new(client::options(gateway)).await.unwrap()
}

/// What is told of a statement: all results, their columns and rows, or the error.
async fn told<P: Protocol>(result: mysql_async::Result<QueryResult<'_, '_, P>>) -> String {
    let mut result = match result {
        Ok(result) => result,
        Err(error) => return error.to_string(),
    };
    let mut words = Vec::new();
    while !result.is_empty() {
        let columns = result.columns_ref().iter();
        let names: Vec<_> = columns
            .map(|column| format!("{} {:?}", column.name_str(), column.column_type()))
            .collect();
        let rows: mysql_async::Result<Vec<Row>> = result.collect().await;
        match rows {
            Ok(rows) => words.push(format!(
                "{names:?} {rows:?}, {} affected, id {:?}, {} warnings, {}",
                result.affected_rows(),
                result.last_insert_id(),
                result.warnings(),
                result.info()
            )),
            Err(error) => {
                words.push(error.to_string());
                break;
            }
        }
    }
    words.join("; ")
}

async fn play(session: &mut Conn, statement: &str) -> String {
    match statement.strip_prefix("p:") {
        Some(text) => told(session.exec_iter(text, ()).await).await,
        None => told(session.query_iter(statement).await).await,
    }
}

/// The tables of the scripts, as at the beginning.
fn prepare(server: &Tidb) {
    let mut statements =
        "DROP TABLE IF EXISTS t, many; CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT);
        CREATE TABLE many (n INT AUTO_INCREMENT PRIMARY KEY, v INT); INSERT INTO many (v) VALUES (0);"
            .to_owned();
    for _ in 0..ROWS.ilog2() {
        statements += "INSERT INTO many (v) SELECT v FROM many;";
    }
    server.sql(&statements).unwrap();
}

#[tokio::test]
async fn answers_through_the_gateway_are_the_servers() {
    let servers = [tidb(""), tidb("")];
    let modes = [
        in_front_of(&[&servers[1]]).start(),
        in_front_of(&[&servers[1]])
            .cluster_tls("mode = \"required\"\nverify = \"off\"")
            .start(),
        in_front_of(&[&servers[1]]).mode("tcp").start(),
        own(&[&servers[1]]).start(),
        own(&[&servers[1]])
            .tables("[[rule]]\nname = \"all\"\ntext = \".\"\ntimeout = \"5m\"")
            .start(),
    ];
    // Without the questions that the library asks at the start of a session.
    let options = |port| {
        client::options_at(port)
            .max_allowed_packet(Some(1 << 26))
            .wait_timeout(Some(600))
    };
    for gateway in &modes {
        servers.iter().for_each(prepare);
        let mut wrong = Vec::new();
        for script in SCRIPTS.lines().filter(|line| !line.is_empty()) {
            let mut direct = Conn::new(options(servers[0].port())).await.unwrap();
            let mut through = Conn::new(options(gateway.port())).await.unwrap();
            for statement in script.split(" | ") {
                let (there, here) = (
                    play(&mut direct, statement).await,
                    play(&mut through, statement).await,
                );
                if there != here {
                    let [there, here] =
                        [there, here].map(|words| words.chars().take(300).collect::<String>());
                    wrong.push(format!(
                        "{script}\n  {statement}\n    there {there}\n    here  {here}"
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// LOAD DATA LOCAL, and COM_STMT_SEND_LONG_DATA, COM_RESET_CONNECTION, COM_INIT_DB, cursors, as the command
/// line client and a library use them.
#[test]
fn files_of_the_client_are_loaded() {
    let server = tidb("");
    server
        .sql("CREATE TABLE loaded (id INT PRIMARY KEY, label VARCHAR(20)); SET GLOBAL local_infile = ON")
        .unwrap();
    for gateway in [in_front_of(&[&server]).start(), own(&[&server]).start()] {
        let file = gateway.folder().join("rows");
        let rows: String = (0..20_000).map(|id| format!("{id}\trow {id}\n")).collect();
        std::fs::write(&file, rows).unwrap();
        let load = |file: &str| {
            let statements = format!(
                "TRUNCATE loaded; LOAD DATA LOCAL INFILE '{file}' INTO TABLE loaded; SELECT COUNT(*), SUM(id) FROM loaded"
            );
            client::command_line(gateway.port(), &["--local-infile=1", "--force"], &statements)
        };
        assert_eq!(load(&file.display().to_string()).unwrap(), "20000\t199990000\n");
        load("/nowhere").unwrap_err();
    }
}

#[tokio::test]
async fn accounts_log_in_as_at_the_server() {
    let server = tidb("");
    server
        .sql(
            "CREATE USER nopass; CREATE USER native IDENTIFIED WITH mysql_native_password BY 'native secret';
             CREATE USER sha2 IDENTIFIED WITH caching_sha2_password BY 'sha2 secret'",
        )
        .unwrap();
    // TiDB takes the password of caching_sha2_password inside TLS only.
    let tls = format!("mode = \"required\"\nca = {:?}", server.ca_file());
    for setup in [in_front_of(&[&server]), own(&[&server])] {
        let gateway = setup.cluster_tls(&tls).start();
        let as_user = |user: &'static str, password: &'static str| {
            client::options(&gateway).user(Some(user)).pass(Some(password))
        };
        for (user, password) in [
            ("nopass", ""),
            ("native", "native secret"),
            ("sha2", "sha2 secret"),
        ] {
            let options: OptsBuilder = as_user(user, password).db_name(None::<&str>);
            let mut session = Conn::new(options).await.unwrap();
            let name: String = session.query_first("SELECT USER()").await.unwrap().unwrap();
            assert!(name.starts_with(user), "{name}");
            session.reset().await.unwrap();
            session.query_drop("SELECT 1").await.unwrap();
        }
        for (user, password) in [("native", "wrong"), ("sha2", "wrong"), ("nobody", "")] {
            let error = Conn::new(as_user(user, password)).await.unwrap_err();
            assert_eq!(client::code(&error), 1045, "{error}");
        }
    }
    // The gateway takes it over a plain link of its own (RSA), and passes nothing readable on: TiDB without
    // TLS refuses it.
    let plain = in_front_of(&[&server]).cluster_tls("mode = \"off\"").start();
    let options = client::options(&plain)
        .user(Some("sha2"))
        .pass(Some("sha2 secret"));
    Conn::new(options).await.unwrap_err();
}

/// The id in the greeting is the gateway's, and stands for one session of one server: TiDB's reason to do
/// nothing for a plain `KILL` behind a balancer is none here.
#[tokio::test]
async fn a_statement_is_killed_on_whichever_server_it_is() {
    let servers = [tidb(""), tidb("")];
    let both = [&servers[0], &servers[1]];
    statements_are_killed(&servers, &in_front_of(&both).start()).await;
    statements_are_killed(&servers, &own(&both).start()).await;
}

async fn statements_are_killed(servers: &[Tidb; 2], gateway: &Gateway) {
    let mut killers = [connect(gateway).await, connect(gateway).await];
    let mut ports = Vec::new();
    for killer in &mut killers {
        ports.push(client::server_port(killer).await);
    }
    assert_ne!(ports[0], ports[1]);
    for (number, form) in ["KILL QUERY", "KILL TIDB QUERY", "KILL", "KILL TIDB"]
        .into_iter()
        .enumerate()
    {
        for (place, killer) in killers.iter_mut().enumerate() {
            let mut victim = connect(gateway).await;
            let at = client::server_port(&mut victim).await;
            let server = servers.iter().find(|server| server.port() == at).unwrap();
            let (id, seconds) = (victim.id(), 120 + 2 * number + place);
            let waiting = tokio::spawn(async move {
                let result = victim
                    .query_first::<u8, _>(format!("SELECT SLEEP({seconds})"))
                    .await;
                (result, victim)
            });
            let runs = format!(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP({seconds})'"
            );
            eventually("the statement runs", async || {
                server.sql(&runs).unwrap().trim() == "1"
            })
            .await;
            killer.query_drop(format!("{form} {id}")).await.unwrap();
            let (_, mut victim) = waiting.await.unwrap();
            let lives = victim.query_drop("SELECT 1").await.is_ok();
            assert_eq!(lives, form.ends_with("QUERY"), "{form}");
        }
    }
}

/// TiDB says nothing to those who come over its `max-server-connections`: it closes. The sessions that fill
/// it go on.
#[tokio::test]
async fn a_full_server_keeps_its_sessions() {
    let (full, other) = (tidb("max-server-connections = 4"), tidb(""));
    let gateway = in_front_of(&[&full, &other]).start();
    let mut sessions = [connect(&gateway).await, connect(&gateway).await];
    let mut others = Vec::new();
    while let Ok(other) = Conn::new(client::options_at(full.port())).await {
        others.push(other);
    }
    // More than it takes to be down, and sessions go elsewhere meanwhile.
    let checks = || gateway.metric("forebay_checks_total", &[&full.address()]);
    let begin = checks();
    eventually("it was checked again", async || checks() > begin + 5.0).await;
    assert_eq!(gateway.servers_up(), 2);
    for _ in 0..3 {
        let mut session = connect(&gateway).await;
        assert_eq!(client::server_port(&mut session).await, other.port());
    }
    assert!(!gateway.log().contains("server suspected"), "{}", gateway.log());
    let mut ports = Vec::new();
    for session in &mut sessions {
        ports.push(client::server_port(session).await);
    }
    assert!(ports.contains(&full.port()));
}

/// It does not tell what statements do to a session, so that nobody else could have its connection.
#[tokio::test]
async fn mode_split_says_why_it_cannot_be() {
    let server = tidb("");
    let user = format!("[[user]]\nname = {USER:?}\npassword = {PASSWORD:?}");
    let gateway = in_front_of(&[&server])
        .mode("split")
        .tables(&user)
        .start_unready();
    Conn::new(client::options(&gateway)).await.unwrap_err();
    assert!(gateway.log().contains("SESSION_TRACK"), "{}", gateway.log());
    let monitor =
        format!("topology = \"replication\"\nmonitor = {{ user = {USER:?}, password = {PASSWORD:?} }}");
    let gateway = in_front_of(&[&server])
        .mode("split")
        .cluster(&monitor)
        .tables(&user)
        .start_unready();
    Conn::new(client::options(&gateway)).await.unwrap_err();
    eventually("the log says why", async || {
        gateway.log().contains("SESSION_TRACK")
    })
    .await;
}

#[tokio::test]
async fn rules_are_for_sessions_with_connections_of_their_own() {
    let servers = [tidb(""), tidb("")];
    let gateway = own(&[&servers[0], &servers[1]])
        .tables(
            "[[rule]]\nname = \"no\"\ntext = \"forbidden\"\nrefuse = \"not here\"
             [[rule]]\nname = \"new\"\ntext = \"SELECT 'old'\"\nrewrite = \"SELECT 'new'\"
             [[rule]]\nname = \"slow\"\ntext = \"SLEEP\"\ntimeout = \"300ms\"",
        )
        .start();
    let mut sessions = [connect(&gateway).await, connect(&gateway).await];
    let mut ports = Vec::new();
    for session in &mut sessions {
        ports.push(client::server_port(session).await);
        session.query_drop("SET @mine = 7").await.unwrap();
        session.query_drop("USE test").await.unwrap();
        for _ in 0..2 {
            let refused = session.query_drop("SELECT 'forbidden'").await.unwrap_err();
            assert!(refused.to_string().contains("not here"), "{refused}");
            let refused = session.exec_drop("SELECT 'forbidden'", ()).await.unwrap_err();
            assert!(refused.to_string().contains("not here"), "{refused}");
            let new: Option<String> = session.query_first("SELECT 'old'").await.unwrap();
            assert_eq!(new.as_deref(), Some("new"));
            let new: Option<String> = session.exec_first("SELECT 'old'", ()).await.unwrap();
            assert_eq!(new.as_deref(), Some("new"));
        }
        // What SLEEP says when it is interrupted.
        let slow: Option<u8> = session.query_first("SELECT SLEEP(60)").await.unwrap();
        assert_eq!(slow, Some(1));
        let mine: Option<u8> = session.query_first("SELECT @mine").await.unwrap();
        assert_eq!(mine, Some(7), "the session is still the same");
        session.reset().await.unwrap();
        let mine: Option<Option<u8>> = session.query_first("SELECT @mine").await.unwrap();
        assert_eq!(mine, Some(None));
    }
    assert_ne!(ports[0], ports[1], "all servers are alike");
}

/// PD's etcd names them; one that is told to end says so at its status port until it does.
#[tokio::test]
async fn who_is_about_to_end_is_left() {
    let patient = "graceful-wait-before-shutdown = 600";
    let (ends, stays) = (tidb(patient), tidb(patient));
    let etcd = Etcd::start().unwrap();
    for server in [&ends, &stays] {
        let info = format!(
            "{{\"version\":\"5.7.25-TiDB-v5.5.0-alpha\",\"status_port\":{}}}",
            server.status_port()
        );
        assert!(etcd.register_tidb(&server.address(), &info));
    }
    let gateway = in_front_of(&[])
        .cluster(&format!("topology = \"tidb\"\npd = [{:?}]", etcd.address()))
        .start_unready();
    eventually("both are up", async || gateway.servers_up() == 2).await;
    let mut sessions = [connect(&gateway).await, connect(&gateway).await];
    let draining = || gateway.metric("forebay_server_draining", &[&ends.address()]);
    assert_eq!(draining(), 0.0);
    ends.terminate().unwrap();
    eventually("it drains", async || draining() == 1.0).await;
    eventually("the log says why", async || {
        gateway.log().contains("is about to end, by its status port")
    })
    .await;
    for _ in 0..4 {
        let port = client::server_port(&mut connect(&gateway).await).await;
        assert_eq!(port, stays.port());
    }
    for session in &mut sessions {
        session.query_drop("SELECT 1").await.unwrap();
    }
}

#[tokio::test]
async fn rows_in_memory_say_why_there_are_none() {
    let server = tidb("");
    server
        .sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 7)")
        .unwrap();
    let cache = format!(
        "[cache]\ncluster = \"main\"\naccount = {{ user = {USER:?}, password = {PASSWORD:?} }}\n\
         [[cache.mapping]]\nname = \"t\"\nkind = \"string\"\ntable = \"test.t\"\nkey = [\"id\"]\nvalue = [\"v\"]"
    );
    let way = Way::to(server.port());
    let gateway = Setup::of_addresses([way.address.clone()])
        // Once, so that whoever connects later is the one who reads logs.
        .check("interval = \"1h\"\nrise = 1\nfall = 2")
        .listener("point_lookups = true")
        .tables(&cache)
        .start();
    eventually("its page says so", async || {
        gateway
            .get("/cache")
            .1
            .contains("it is TiDB, which has no binary log")
    })
    .await;
    let mut session = connect(&gateway).await;
    let row: Option<u32> = session.query_first("SELECT v FROM t WHERE id = 1").await.unwrap();
    assert_eq!(row, Some(7));
    let told = || gateway.log().matches("it is TiDB").count();
    eventually("its log says so", async || told() > 0).await;
    let tries = way.connections();
    eventually("it has been tried again and again", async || {
        way.connections() > tries + 3
    })
    .await;
    assert_eq!(told(), 1, "once, and not with each attempt");
}

/// A way to a server that counts who takes it.
struct Way {
    address: String,
    connections: Arc<AtomicUsize>,
}

impl Way {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", port))) else {
                    return;
                };
                count.fetch_add(1, Ordering::SeqCst);
                let both = [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server, client),
                ];
                for (mut from, mut to) in both {
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}
