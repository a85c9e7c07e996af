//! A session of mode `session` leaves a server that drains, and its client does not notice.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node, PASSWORD, Sandbox, USER};

use crate::cluster::{self, first, session_on, where_am_i};

/// A gateway's setup whose sessions move, in which these servers drain.
fn setup(sandbox: &Sandbox, drained: &[&Node]) -> Setup {
    let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
    Setup::of_addresses(sandbox.addresses())
        .top("log.level = \"info,dataplane=debug\"")
        .listener("moves = true")
        .cluster(&format!("drain = {names:?}"))
        .tables(&cluster::user(USER, PASSWORD))
        .check(cluster::PATIENT_CHECKS)
}

/// Sessions of the gateway on this server.
fn sessions_on(gateway: &Gateway, server: &Node) -> f64 {
    let label = format!("server={:?}", server.address());
    gateway.metric("forebay_server_sessions_active", &[&label])
}

#[tokio::test]
async fn with_all_that_it_has_set() {
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    cluster::schema(
        sandbox,
        "moves",
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (7)",
    );
    let mut gateway = setup(sandbox, &[]).start();
    let mut session = session_on(&gateway, leaves).await;
    session.query_drop("USE moves").await.unwrap();
    session
        .query_drop(
            "SET sql_mode = 'ANSI_QUOTES', time_zone = '+03:00', autocommit = 0, group_concat_max_len = 77",
        )
        .await
        .unwrap();
    session
        .query_drop("SET NAMES latin1 COLLATE latin1_bin")
        .await
        .unwrap();
    session
        .query_drop(
            "SET @number = 7, @big = CAST(18446744073709551615 AS UNSIGNED), @real = 0.1e0 + 0.2e0, @exact = 1.50, \
             @text = _latin1 0xE4, @bytes = x'00FF', @nothing = NULL",
        )
        .await
        .unwrap();
    let user = "SELECT @number + 1, @big, @real, @exact * 2, HEX(@text), COLLATION(@text), HEX(@bytes), @nothing, @unset";
    let had: mysql_async::Row = session.query_first(user).await.unwrap().unwrap();
    let statement = session.prep("SELECT v + ? FROM t").await.unwrap();
    let seven: Option<i64> = session.exec_first(&statement, (1,)).await.unwrap();
    assert_eq!(seven, Some(8));
    session.query_drop("COMMIT").await.unwrap();
    let id = first::<u64>(&mut session, "SELECT CONNECTION_ID()").await;
    session.query_drop("COMMIT").await.unwrap();
    assert_eq!(sessions_on(&gateway, leaves), 1.0);

    assert!(gateway.reload(setup(sandbox, &[leaves])).await);
    // Its client says nothing meanwhile.
    eventually("the session has left", async || {
        let moved = gateway.metric("forebay_sessions_moved_total", &[]);
        (sessions_on(&gateway, leaves), moved) == (0.0, 1.0)
    })
    .await;

    let eight: Option<i64> = session.exec_first(&statement, (2,)).await.unwrap();
    assert_eq!(eight, Some(9));
    let set: (String, String, u8, u64, String) = session
        .query_first(
            "SELECT @@sql_mode, @@time_zone, @@autocommit, @@group_concat_max_len, @@collation_connection",
        )
        .await
        .unwrap()
        .unwrap();
    let expected = ("ANSI_QUOTES", "+03:00", 0, 77, "latin1_bin");
    assert_eq!(
        (set.0.as_str(), set.1.as_str(), set.2, set.3, set.4.as_str()),
        expected
    );
    let has: mysql_async::Row = session.query_first(user).await.unwrap().unwrap();
    assert_eq!(had.clone().unwrap(), has.clone().unwrap());
    let types = |row: &mysql_async::Row| {
        row.columns_ref()
            .iter()
            .map(|of| (of.column_type(), of.flags()))
            .collect::<Vec<_>>()
    };
    assert_eq!(types(&had), types(&has));
    assert_eq!(first::<String>(&mut session, "SELECT DATABASE()").await, "moves");
    assert_eq!(first::<u64>(&mut session, "SELECT CONNECTION_ID()").await, id);
    assert_ne!(where_am_i(&mut session).await, leaves.port());
}

/// MariaDB tells everybody which user variables there are.
#[tokio::test]
async fn with_what_no_text_has_named() {
    if kind() != Kind::Mariadb {
        return;
    }
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    let statements = "CREATE FUNCTION sets() RETURNS INT READS SQL DATA \
                      BEGIN SELECT 7 INTO @hidden; RETURN 1; END$$ CREATE VIEW v AS SELECT sets() AS one";
    cluster::schema(
        sandbox,
        "moves_hidden",
        &format!("\nDELIMITER $$\n{statements}$$\nDELIMITER ;"),
    );
    let mut gateway = setup(sandbox, &[]).start();
    let mut session = session_on(&gateway, leaves).await;
    session.query_drop("SET @x = 1").await.unwrap();
    session.query_drop("SELECT * FROM moves_hidden.v").await.unwrap();
    assert!(gateway.reload(setup(sandbox, &[leaves])).await);
    eventually("the session has left", async || {
        sessions_on(&gateway, leaves) == 0.0
    })
    .await;
    let both: Option<(u32, u32)> = session.query_first("SELECT @x, @hidden").await.unwrap();
    assert_eq!(both, Some((1, 7)));
}

/// Another server may not let a session have the role that it has taken on: then it stays.
#[tokio::test]
async fn with_their_roles_and_what_is_said_of_the_next_transaction() {
    let sandbox = cluster::shared();
    let [leaves, takes] = [1, 2].map(|index| sandbox.node(index));
    cluster::schema(
        sandbox,
        "moves_roles",
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (7)",
    );
    let to = match kind() {
        Kind::Mysql => "TO",
        _ => "FOR",
    };
    let create = format!(
        "CREATE ROLE moves_usual; CREATE ROLE moves_reader; GRANT SELECT ON moves_roles.* TO moves_reader;
         CREATE USER moves_roles IDENTIFIED BY 'what it has';
         GRANT SELECT ON test.* TO moves_roles;
         GRANT moves_usual TO moves_roles; GRANT moves_reader TO moves_roles;
         SET DEFAULT ROLE moves_usual {to} moves_roles;"
    );
    sandbox.primary().sql(&create).unwrap();
    sandbox.sync().unwrap();
    let of = |drained: &[&Node]| {
        setup(sandbox, drained)
            .tables(&cluster::user("moves_roles", "what it has"))
            .cluster_tls("mode = \"required\"\nverify = \"off\"")
    };
    let mut gateway = of(&[sandbox.primary()]).start();
    let mut has_role = session_of(&gateway, leaves, "moves_roles", "what it has").await;
    let mut usual = session_of(&gateway, leaves, "moves_roles", "what it has").await;
    let mut announces = session_on(&gateway, leaves).await;
    has_role.query_drop("SET ROLE moves_reader").await.unwrap();
    // By the rights of that role.
    has_role.query_drop("USE moves_roles").await.unwrap();
    announces
        .query_drop("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")
        .await
        .unwrap();
    let change = format!("SET DEFAULT ROLE NONE {to} moves_roles");
    sandbox.primary().sql(&change).unwrap();
    sandbox.sync().unwrap();
    let only_there = |statement| format!("SET sql_log_bin = 0; {statement} moves_roles;");
    cluster::write_at(takes, &only_there("REVOKE moves_reader FROM"));

    assert!(gateway.reload(of(&[sandbox.primary(), leaves])).await);
    let refused = ["reason=\"incompatible\""];
    eventually("one was tried, and two have left", async || {
        gateway.metric("forebay_session_moves_failed_total", &refused) >= 1.0
            && sessions_on(&gateway, leaves) == 1.0
    })
    .await;
    let role = async |session: &mut Conn| first::<String>(session, "SELECT CURRENT_ROLE()").await;
    assert!(role(&mut has_role).await.contains("moves_reader"));
    assert_eq!(where_am_i(&mut has_role).await, leaves.port());
    assert!(role(&mut usual).await.contains("moves_usual"));
    assert_eq!(where_am_i(&mut usual).await, takes.port());
    // Reads of a serializable transaction lock what they read, and only the first transaction is one.
    if kind() == Kind::Mysql {
        takes.sql("SET GLOBAL super_read_only = OFF").unwrap();
    }
    for is_serializable in [true, false] {
        announces.query_drop("START TRANSACTION").await.unwrap();
        assert_eq!(
            first::<u32>(&mut announces, "SELECT v FROM moves_roles.t").await,
            7
        );
        assert_eq!(where_am_i(&mut announces).await, takes.port());
        let other = takes.sql("SELECT v FROM moves_roles.t FOR UPDATE NOWAIT");
        assert_eq!(other.is_err(), is_serializable, "{other:?}");
        announces.query_drop("COMMIT").await.unwrap();
    }
    if kind() == Kind::Mysql {
        takes.sql("SET GLOBAL super_read_only = ON").unwrap();
    }

    cluster::write_at(takes, &only_there("GRANT moves_reader TO"));
    eventually("all have left", async || sessions_on(&gateway, leaves) == 0.0).await;
    assert!(role(&mut has_role).await.contains("moves_reader"));
    assert_eq!(first::<u32>(&mut has_role, "SELECT v FROM t").await, 7);
}

/// A session of this account that is on this server.
async fn session_of(gateway: &Gateway, server: &Node, user: &str, password: &str) -> Conn {
    let mut others = Vec::new();
    loop {
        let options = client::options(gateway).user(Some(user)).pass(Some(password));
        let mut session = Conn::new(options).await.unwrap();
        if where_am_i(&mut session).await == server.port() {
            return session;
        }
        others.push(session);
    }
}

/// Reads of every kind, each with an answer that only this session can have.
async fn read(mut session: Conn, number: u32, turns: Arc<AtomicU32>, stop: Arc<AtomicBool>) -> HashSet<u16> {
    let mut ports = HashSet::new();
    let statement = session.prep("SELECT ? + v FROM moves_busy.t").await.unwrap();
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let expected = number * 1000 + turn % 1000;
        let text = format!("SELECT {expected}");
        assert_eq!(first::<u32>(&mut session, &text).await, expected);
        let sum: Option<u32> = session.exec_first(&statement, (expected,)).await.unwrap();
        assert_eq!(sum, Some(expected + 7));
        session.query_drop("START TRANSACTION READ ONLY").await.unwrap();
        let before = where_am_i(&mut session).await;
        assert_eq!(where_am_i(&mut session).await, before, "in one transaction");
        session.query_drop("COMMIT").await.unwrap();
        let lock = format!("SELECT IS_USED_LOCK('busy{number}')");
        assert_eq!(
            session.query_first::<Option<u64>, _>(&lock).await.unwrap(),
            Some(None)
        );
        session
            .query_drop(format!("SET group_concat_max_len = {}", 100 + turn % 100))
            .await
            .unwrap();
        let length: u32 = first(&mut session, "SELECT @@group_concat_max_len").await;
        assert_eq!(length, 100 + turn % 100);
        ports.insert(before);
        turns.fetch_add(1, Ordering::Relaxed);
    }
    ports
}

#[tokio::test]
async fn while_they_are_busy() {
    let sandbox = cluster::shared();
    cluster::schema(
        sandbox,
        "moves_busy",
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (7)",
    );
    let replicas = [sandbox.node(1), sandbox.node(2)];
    // The primary drains all the time.
    let without = |index: usize| setup(sandbox, &[sandbox.primary(), replicas[index]]);
    let mut gateway = without(0).start();
    let stop = Arc::new(AtomicBool::new(false));
    let turns: [Arc<AtomicU32>; 12] = Default::default();
    let mut readers = Vec::new();
    for (number, turns) in (0..).zip(&turns) {
        let session = client::connect(&gateway).await;
        readers.push(tokio::spawn(read(
            session,
            number,
            Arc::clone(turns),
            Arc::clone(&stop),
        )));
    }
    for turn in 1..7 {
        let before = turns.each_ref().map(|turns| turns.load(Ordering::Relaxed));
        eventually("each has read where it is", async || {
            let read = |(turns, before): (&Arc<AtomicU32>, &u32)| turns.load(Ordering::Relaxed) > before + 1;
            turns.iter().zip(&before).all(read)
        })
        .await;
        assert!(gateway.reload(without(turn % 2)).await);
        let left = replicas[turn % 2];
        eventually("all have left", async || sessions_on(&gateway, left) == 0.0).await;
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        let ports = reader.await.unwrap();
        assert_eq!(ports.len(), 2, "{ports:?}");
    }
    // Each is counted as moved a moment after it is there.
    eventually("all moves are counted", async || {
        gateway.metric("forebay_sessions_moved_total", &[]) >= 12.0 * 6.0
    })
    .await;
    let failures = gateway.metric("forebay_session_moves_failed_total", &[]);
    assert_eq!(failures, 0.0, "{}", gateway.log());
}

/// Waits until these reasons are told. While a try to move is under way others are.
async fn told(gateway: &Gateway, reasons: &str) {
    eventually(&format!("told: {reasons:?}"), async || pins(gateway) == reasons).await;
}

/// The reasons that hold any session where it is, as operators see them.
fn pins(gateway: &Gateway) -> String {
    let (status, page) = gateway.get("/sessions");
    assert_eq!(status, 200);
    let reasons = page.split("\"reason\":\"").skip(1);
    let reasons: Vec<_> = reasons.filter_map(|rest| rest.split('"').next()).collect();
    reasons.join(" ")
}

#[tokio::test]
async fn once_nothing_holds_them_where_they_are() {
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    let mut gateway = setup(sandbox, &[]).start();
    let mut session = session_on(&gateway, leaves).await;
    session.query_drop("DO GET_LOCK('moves_hold', 1)").await.unwrap();
    session.query_drop("START TRANSACTION READ ONLY").await.unwrap();
    assert!(gateway.reload(setup(sandbox, &[leaves])).await);
    assert_eq!(where_am_i(&mut session).await, leaves.port());
    session.query_drop("COMMIT").await.unwrap();
    assert_eq!(where_am_i(&mut session).await, leaves.port());
    told(&gateway, "user-lock").await;
    session.query_drop("DO RELEASE_ALL_LOCKS()").await.unwrap();
    assert_ne!(where_am_i(&mut session).await, leaves.port());
    told(&gateway, "").await;
    // Whoever kills it by its number finds it where it is now.
    let id = first::<u64>(&mut session, "SELECT CONNECTION_ID()").await;
    let mut other = client::connect(&gateway).await;
    other.query_drop(format!("KILL {id}")).await.unwrap();
    assert!(session.query_drop("SELECT 1").await.is_err());
}

#[tokio::test]
async fn where_the_gateway_can_log_in_for_them() {
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    for (users, reason) in [
        (String::new(), "no-credentials"),
        (cluster::user(USER, "another password"), "login-refused"),
    ] {
        let names = |drained: &[&Node]| drained.iter().map(|node| node.address()).collect::<Vec<_>>();
        let of = |drained: &[&Node]| {
            Setup::of_addresses(sandbox.addresses())
                .listener("moves = true")
                .cluster(&format!(
                    "drain = {:?}\naccounts = {{ keep_passwords = false }}",
                    names(drained)
                ))
                .tables(&users)
                .check(cluster::PATIENT_CHECKS)
        };
        let mut gateway = of(&[]).start();
        let mut session = session_on(&gateway, leaves).await;
        assert!(gateway.reload(of(&[leaves])).await);
        let label = format!("reason={reason:?}");
        eventually("it was tried", async || {
            gateway.metric("forebay_session_moves_failed_total", &[&label]) >= 1.0
        })
        .await;
        assert_eq!(
            where_am_i(&mut session).await,
            leaves.port(),
            "it goes on where it is"
        );
        told(&gateway, reason).await;
    }
}

/// What a client has sent in its login is as good as the password: the password itself, or what the stored
/// hash of its account makes of its answer.
#[tokio::test]
async fn by_what_their_clients_have_shown() {
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    let create = "CREATE USER shows IDENTIFIED BY 'what it has'; GRANT SELECT ON test.* TO shows;";
    sandbox.primary().sql(create).unwrap();
    sandbox.sync().unwrap();
    let of = |drained: &[&Node]| {
        let names: Vec<_> = drained.iter().map(|node| node.address()).collect();
        Setup::of_addresses(sandbox.addresses())
            .listener("moves = true")
            .cluster(&format!("drain = {names:?}"))
            .cluster("topology = \"replication\"\naccounts = \"servers\"")
            .cluster(&cluster::monitor())
            .check(cluster::PATIENT_CHECKS)
            // A client that asks for a key to encrypt its password with gets the gateway's.
            .cluster_tls("mode = \"required\"\nverify = \"off\"")
    };
    let mut gateway = cluster::start(of(&[]), 2).await;
    let mut session = session_of(&gateway, leaves, "shows", "what it has").await;
    assert!(gateway.reload(of(&[leaves])).await);
    eventually("it has left", async || {
        gateway.metric("forebay_sessions_moved_total", &[]) >= 1.0
    })
    .await;
    assert_ne!(where_am_i(&mut session).await, leaves.port());
    assert!(
        first::<String>(&mut session, "SELECT CURRENT_USER()")
            .await
            .starts_with("shows@")
    );
}

/// A session that may write where it is would be refused its writes on a replica.
#[tokio::test]
async fn and_never_to_one_that_is_less() {
    let sandbox = cluster::shared();
    let primary = sandbox.primary();
    cluster::schema(sandbox, "moves_writes", "CREATE TABLE t (v INT)");
    let mut gateway = setup(sandbox, &[]).start();
    let mut session = session_on(&gateway, primary).await;
    assert!(gateway.reload(setup(sandbox, &[primary])).await);
    let incompatible = ["reason=\"incompatible\""];
    eventually("it was tried", async || {
        gateway.metric("forebay_session_moves_failed_total", &incompatible) >= 1.0
    })
    .await;
    session
        .query_drop("INSERT INTO moves_writes.t VALUES (1)")
        .await
        .unwrap();
    assert_eq!(where_am_i(&mut session).await, primary.port());
}

#[tokio::test]
async fn when_theirs_is_removed() {
    let sandbox = cluster::shared();
    let leaves = sandbox.node(1);
    let mut gateway = setup(sandbox, &[]).start();
    let mut session = session_on(&gateway, leaves).await;
    let others = sandbox.nodes().iter().filter(|node| node.port() != leaves.port());
    let others = others.map(|node| format!("{:?}", node.address()));
    assert!(gateway.reload(setup(sandbox, &[]).servers(others)).await);
    assert_ne!(where_am_i(&mut session).await, leaves.port());
}
