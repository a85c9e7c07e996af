//! A session of mode `session` whose server is gone goes on on another one, or on its own once that is back,
//! and its client does not notice.

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::prelude::Queryable;
use sandbox::{PASSWORD, Sandbox, Spec, USER};

use crate::cluster::{self, first, session_on, where_am_i};

fn setup(sandbox: &Sandbox) -> Setup {
    Setup::of_addresses(sandbox.addresses())
        .top("log.level = \"info,dataplane=debug\"")
        .listener("moves = true")
        .tables(&cluster::user(USER, PASSWORD))
}

fn ended(gateway: &Gateway, reason: &str) -> f64 {
    let label = format!("reason={reason:?}");
    gateway.metric("forebay_sessions_ended_with_server_total", &[&label])
}

fn moved(gateway: &Gateway) -> f64 {
    gateway.metric("forebay_sessions_moved_total", &["cause=\"lost\""])
}

const SETTINGS: &str = "SELECT @@sql_mode, @@time_zone, @@group_concat_max_len, @@collation_connection, \
     @@character_set_results, @@lock_wait_timeout, @@div_precision_increment, DATABASE(), CONNECTION_ID(), \
     LAST_INSERT_ID()";

#[tokio::test]
async fn with_all_that_it_has_set() {
    let sandbox = cluster::replicated();
    let dies = sandbox.node(1);
    cluster::schema(
        &sandbox,
        "gone",
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (7)",
    );
    // What the session has without having set it.
    dies.sql("SET GLOBAL div_precision_increment = 6").unwrap();
    let gateway = setup(&sandbox).start();
    let mut session = session_on(&gateway, dies).await;
    session.query_drop("USE gone").await.unwrap();
    session
        .query_drop("SET sql_mode = 'ANSI_QUOTES', time_zone = '+03:00', group_concat_max_len = 77, lock_wait_timeout = 9")
        .await
        .unwrap();
    session
        .query_drop("SET NAMES latin1 COLLATE latin1_bin")
        .await
        .unwrap();
    let statement = session.prep("SELECT v + ? FROM t").await.unwrap();
    let seven: Option<i64> = session.exec_first(&statement, (1,)).await.unwrap();
    assert_eq!(seven, Some(8));
    let had: mysql_async::Row = session.query_first(SETTINGS).await.unwrap().unwrap();
    let mut plain = session_on(&gateway, dies).await;
    plain.query_drop("SET NAMES utf8mb3").await.unwrap();
    plain.query_drop("SET autocommit = 0").await.unwrap();
    let charset = "SELECT @@character_set_client, @@collation_connection";
    let plain_had: (String, String) = plain.query_first(charset).await.unwrap().unwrap();
    let mut was_reset = session_on(&gateway, dies).await;
    was_reset
        .query_drop("SET group_concat_max_len = 88")
        .await
        .unwrap();
    was_reset.reset().await.unwrap();
    let reset_had: (String, u64) = was_reset
        .query_first("SELECT @@sql_mode, @@group_concat_max_len")
        .await
        .unwrap()
        .unwrap();
    let mut open = session_on(&gateway, dies).await;
    open.query_drop("BEGIN").await.unwrap();
    let mut variable = session_on(&gateway, dies).await;
    variable.query_drop("SET @mine = 1").await.unwrap();
    let mut temporary = session_on(&gateway, dies).await;
    temporary
        .query_drop("CREATE TEMPORARY TABLE gone.mine (v INT)")
        .await
        .unwrap();
    let mut elsewhere = session_on(&gateway, sandbox.node(2)).await;

    dies.kill9().unwrap();
    let nine: Option<i64> = session.exec_first(&statement, (2,)).await.unwrap();
    assert_eq!(nine, Some(9));
    let has: mysql_async::Row = session.query_first(SETTINGS).await.unwrap().unwrap();
    assert_eq!(had.unwrap(), has.unwrap());
    assert_ne!(where_am_i(&mut session).await, dies.port());
    let plain_has: (String, String) = plain.query_first(charset).await.unwrap().unwrap();
    assert_eq!(plain_had, plain_has);
    assert_eq!(first::<u8>(&mut plain, "SELECT @@autocommit").await, 0);
    let reset_has: (String, u64) = was_reset
        .query_first("SELECT @@sql_mode, @@group_concat_max_len")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reset_had, reset_has);
    assert_eq!(where_am_i(&mut elsewhere).await, sandbox.node(2).port());
    let reasons = ["transaction", "user-variables", "temporary-table"];
    // A session whose statement comes before its loss is noticed ends for that.
    eventually("the others have ended", async || {
        reasons.iter().all(|reason| ended(&gateway, reason) == 1.0)
    })
    .await;
    for lost in [&mut open, &mut variable, &mut temporary] {
        assert!(lost.query_drop("SELECT 1").await.is_err());
    }
    assert_eq!(moved(&gateway), 3.0, "{}", gateway.log());
}

/// Shut down in order, and frozen: the one says so, and the other is found out by its checks.
#[tokio::test]
async fn however_it_went() {
    let sandbox = cluster::replicated();
    let [stops, freezes] = [1, 2].map(|index| sandbox.node(index));
    let gateway = setup(&sandbox).start();
    let mut sessions = Vec::new();
    for (server, length) in [(stops, 77), (stops, 78), (freezes, 79)] {
        let mut session = session_on(&gateway, server).await;
        let set = format!("SET group_concat_max_len = {length}");
        session.query_drop(set).await.unwrap();
        sessions.push((session, length));
    }
    stops.stop().unwrap();
    freezes.freeze().unwrap();
    // All of their clients are silent. Some go to the one that is found out later first.
    let there = format!("server={:?}", sandbox.primary().address());
    eventually("they have moved", async || {
        gateway.metric("forebay_server_sessions_active", &[&there]) == 3.0
    })
    .await;
    for (session, length) in &mut sessions {
        assert_eq!(where_am_i(session).await, sandbox.primary().port());
        assert_eq!(
            first::<u64>(session, "SELECT @@group_concat_max_len").await,
            *length
        );
    }
    freezes.thaw().unwrap();
}

/// Whoever ends a connection of a server that is there means the session.
#[tokio::test]
async fn but_not_when_somebody_has_ended_its_connection() {
    let sandbox = cluster::shared();
    let server = sandbox.node(1);
    let gateway = setup(sandbox).start();
    let mut session = session_on(&gateway, server).await;
    let ids = || -> Vec<String> {
        let (_, page) = gateway.get("/sessions");
        let rest = page.split("\"server_connection_id\":").skip(1);
        rest.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect())
            .collect()
    };
    eventually("it is the only one", async || ids().len() == 1).await;
    server.sql(&format!("KILL {}", ids()[0])).unwrap();
    assert!(session.query_drop("SELECT 1").await.is_err());
    assert_eq!(moved(&gateway), 0.0);
}

/// A read that was under way, of whose answer nothing has come.
#[tokio::test]
async fn and_a_read_is_executed_there() {
    let sandbox = cluster::replicated();
    let dies = sandbox.node(1);
    let gateway = setup(&sandbox).start();
    let mut session = session_on(&gateway, dies).await;
    let mut open = session_on(&gateway, dies).await;
    open.query_drop("BEGIN").await.unwrap();
    let slow = "SELECT port, SLEEP(50) FROM test.where_am_i";
    let reading = tokio::spawn(async move { session.query_first::<(u16, u8), _>(slow).await });
    let in_transaction = tokio::spawn(async move { open.query_drop("DO SLEEP(60)").await });
    let running = "SELECT COUNT(*) FROM information_schema.processlist \
                   WHERE info LIKE 'SELECT port, SL%' OR info LIKE 'DO SLEEP%'";
    eventually("both are under way", async || {
        dies.sql(running).unwrap().trim() == "2"
    })
    .await;
    dies.kill9().unwrap();
    let others = [sandbox.node(0), sandbox.node(2)];
    let stop = "SELECT GROUP_CONCAT('KILL QUERY ', id) FROM information_schema.processlist WHERE info LIKE 'SELECT port, SL%'";
    eventually("it is under way elsewhere", async || {
        others.iter().any(|other| {
            let kill = other.sql(stop).unwrap();
            kill.contains("KILL") && other.sql(kill.trim()).is_ok()
        })
    })
    .await;
    // That one was interrupted, or has come to its end.
    let error = reading.await.unwrap().err().map(|error| client::code(&error));
    assert!(matches!(error, None | Some(1317)), "{error:?}");
    assert_eq!(client::code(&in_transaction.await.unwrap().unwrap_err()), 1158);
    assert_eq!(moved(&gateway), 1.0);
}

/// With its only server the session waits until that is back.
#[tokio::test]
async fn once_its_server_is_back() {
    let sandbox = Sandbox::start(Spec::new(kind())).unwrap();
    cluster::tell_ports(&sandbox);
    let server = sandbox.primary();
    server
        .sql("CREATE TABLE test.t (id INT AUTO_INCREMENT PRIMARY KEY)")
        .unwrap();
    let gateway = setup(&sandbox).cluster("failover_wait = \"50s\"").start();
    let mut session = session_on(&gateway, server).await;
    session.query_drop("SET time_zone = '+01:00'").await.unwrap();
    session.query_drop("INSERT INTO test.t VALUES ()").await.unwrap();
    let mut asks = session_on(&gateway, server).await;
    asks.query_drop("INSERT INTO test.t VALUES ()").await.unwrap();
    server.kill9().unwrap();
    let waiting = tokio::spawn(async move {
        let zone = first::<String>(&mut session, "SELECT @@time_zone").await;
        (zone, session)
    });
    eventually("nobody is there", async || gateway.servers_up() == 0).await;
    server.restart().unwrap();
    let (zone, mut session) = waiting.await.unwrap();
    assert_eq!(zone, "+01:00");
    session.query_drop("INSERT INTO test.t VALUES ()").await.unwrap();
    let id = first::<u64>(&mut session, "SELECT MAX(id) FROM test.t").await;
    assert_eq!(first::<u64>(&mut session, "SELECT LAST_INSERT_ID()").await, id);
    // What that was nobody knows any more.
    assert_eq!(first::<u64>(&mut asks, "SELECT 1").await, 1);
    let error = asks.query_drop("SELECT LAST_INSERT_ID()").await.unwrap_err();
    assert_eq!(client::code(&error), 1158, "{error}");
    assert_eq!(moved(&gateway), 2.0);
}

/// And ends at once where its client does not wait any more, whether it has asked for something or not.
#[tokio::test]
async fn while_its_client_is_there() {
    let sandbox = Sandbox::start(Spec::new(kind())).unwrap();
    cluster::tell_ports(&sandbox);
    let server = sandbox.primary();
    let gateway = setup(&sandbox).cluster("failover_wait = \"10m\"").start();
    let silent = session_on(&gateway, server).await;
    let mut asks = session_on(&gateway, server).await;
    server.kill9().unwrap();
    let asking = tokio::spawn(async move { asks.query_drop("SELECT 1").await });
    eventually("both wait", async || {
        gateway.metric("forebay_sessions_waiting", &["waits_for=\"primary\""]) == 2.0
    })
    .await;
    asking.abort();
    drop(silent);
    eventually("nobody is left", async || {
        gateway.metric("forebay_sessions_active", &[]) == 0.0
    })
    .await;
}

/// A session that writes waits for the new primary, and for what it has written.
#[tokio::test]
async fn on_the_new_primary() {
    let sandbox = Sandbox::start(Spec::new(kind()).nodes(3).semi_synchronous()).unwrap();
    cluster::tell_ports(&sandbox);
    cluster::schema(&sandbox, "gone", "CREATE TABLE t (v INT)");
    sandbox.replicate_safely().unwrap();
    let split = setup(&sandbox)
        .cluster("topology = \"replication\"\nfailover_wait = \"50s\"")
        .cluster(&cluster::monitor());
    let gateway = cluster::start(split, 2).await;
    let old = sandbox.primary();
    let mut session = session_on(&gateway, old).await;
    session.query_drop("INSERT INTO gone.t VALUES (1)").await.unwrap();
    old.kill9().unwrap();
    let waiting = tokio::spawn(async move {
        session.query_drop("INSERT INTO gone.t VALUES (2)").await.unwrap();
        session
    });
    for replica in &sandbox.nodes()[1..] {
        replica.apply_received().unwrap();
    }
    let further = sandbox.node(1).has(&sandbox.node(2).position().unwrap()).unwrap();
    let (new, other) = match further {
        true => (sandbox.node(1), sandbox.node(2)),
        false => (sandbox.node(2), sandbox.node(1)),
    };
    new.promote().unwrap();
    other.follow(new, false).unwrap();
    let mut session = waiting.await.unwrap();
    assert_eq!(where_am_i(&mut session).await, new.port());
    let rows: Vec<u32> = session.query("SELECT v FROM gone.t ORDER BY v").await.unwrap();
    assert_eq!(rows, [1, 2]);
    assert_eq!(moved(&gateway), 1.0, "{}", gateway.log());
}

/// What it has written is nowhere: it is told, and not served what was before.
#[tokio::test]
async fn unless_what_it_has_written_is_lost() {
    let sandbox = cluster::replicated();
    cluster::schema(&sandbox, "gone", "CREATE TABLE t (v INT)");
    // Long enough for a busy machine to have a new primary, which lacks it.
    let split = setup(&sandbox)
        .cluster("topology = \"replication\"\nfailover_wait = \"15s\"")
        .cluster(&cluster::monitor());
    let gateway = cluster::start(split, 2).await;
    let old = sandbox.primary();
    let mut session = session_on(&gateway, old).await;
    let replicas = &sandbox.nodes()[1..];
    replicas.iter().for_each(cluster::cut_off);
    session.query_drop("INSERT INTO gone.t VALUES (1)").await.unwrap();
    old.kill9().unwrap();
    replicas[0].promote().unwrap();
    let error = session.query_drop("SELECT v FROM gone.t").await.unwrap_err();
    assert_eq!(client::code(&error), 1158, "{error}");
    assert!(error.to_string().contains("failover_wait"), "{error}");
    eventually("it is counted", async || ended(&gateway, "behind") == 1.0).await;
}

/// Nor what it may have seen on a primary whose looks have failed before the loss was noticed.
#[tokio::test]
async fn or_what_it_may_have_seen_on_one_that_stands_still() {
    let sandbox = cluster::replicated();
    cluster::schema(&sandbox, "gone", "CREATE TABLE t (v INT)");
    let split = setup(&sandbox)
        .cluster("topology = \"replication\"\nfailover_wait = \"5s\"")
        .cluster(&cluster::monitor().replace("10s", "2s"));
    let gateway = cluster::start(split, 2).await;
    let old = sandbox.primary();
    let mut session = session_on(&gateway, old).await;
    let replicas = &sandbox.nodes()[1..];
    replicas.iter().for_each(cluster::cut_off);
    old.sql("INSERT INTO gone.t VALUES (1)").unwrap();
    assert_eq!(first::<u32>(&mut session, "SELECT v FROM gone.t").await, 1);
    let there = format!("server={:?}", old.address());
    let looks = || gateway.metric("forebay_looks_total", &[&there]);
    let before = looks();
    eventually("it was looked at since", async || looks() >= before + 2.0).await;
    old.freeze().unwrap();
    replicas[0].promote().unwrap();
    let error = session.query_drop("SELECT v FROM gone.t").await.unwrap_err();
    assert_eq!(client::code(&error), 1158, "{error}");
    eventually("it is counted", async || ended(&gateway, "behind") == 1.0).await;
    old.thaw().unwrap();
}
