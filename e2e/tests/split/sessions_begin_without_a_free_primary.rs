//! What drivers say at the beginning of a session is executed by whoever can: while the primary is gone or
//! stands still, a replica answers, and at once. One that is full is with the tests of the data plane, of
//! the same name.

use std::time::{Duration, Instant};

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use mysql_wire::{Capabilities, Command};
use sandbox::{DATABASE, Kind, Node, PASSWORD, Sandbox, USER};

use crate::cluster::{self, ask, user};

/// More than a busy machine needs, and far below `failover_wait`, `queue_timeout`, and the time after which a
/// server counts as down that stands still: a session that takes longer has waited for one of them.
const AT_ONCE: Duration = Duration::from_secs(30);

/// Of Connector/J, the `mysql` client, PyMySQL, Rails.
const OPENINGS: [&str; 9] = [
    "SELECT @@session.auto_increment_increment AS auto_increment_increment, @@character_set_client AS \
     character_set_client, @@collation_server AS collation_server, @@init_connect AS init_connect, \
     @@interactive_timeout AS interactive_timeout, @@license AS license, @@lower_case_table_names AS \
     lower_case_table_names, @@max_allowed_packet AS max_allowed_packet, @@net_write_timeout AS \
     net_write_timeout, @@sql_mode AS sql_mode, @@system_time_zone AS system_time_zone, @@time_zone AS \
     time_zone, @@wait_timeout AS wait_timeout",
    "SELECT @@version_comment LIMIT 1",
    "SET NAMES utf8mb4",
    "SET AUTOCOMMIT = 0",
    "SET autocommit = 1",
    "SET time_zone = '+03:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET @@SESSION.sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), SESSION wait_timeout = 2147",
    "USE test",
];

/// The first server has room for two connections of the gateway's.
fn narrow(sandbox: &Sandbox) -> Setup {
    let server = |node: &Node| {
        let max = if node.index() == 0 { 2 } else { 20 };
        format!("{{ address = {:?}, max_connections = {max} }}", node.address())
    };
    Setup::of_addresses([])
        .servers(sandbox.nodes().iter().map(server))
        .mode("split")
        .top("workers = 1")
        .tables(&user(USER, PASSWORD))
        .cluster("topology = \"replication\"\nqueue_timeout = \"100s\"")
        .cluster(&format!(
            "monitor = {{ user = {USER:?}, password = {PASSWORD:?}, interval = \"100ms\", timeout = \"3s\" }}"
        ))
}

/// One that waits long for a primary.
fn patient(sandbox: &Sandbox) -> Setup {
    narrow(sandbox).cluster("failover_wait = \"100s\"")
}

/// A session says all this, one after the other, and has it.
async fn begins(gateway: &Gateway) -> Conn {
    let begun = Instant::now();
    let mut session = cluster::connect_to(gateway, DATABASE).await;
    for statement in OPENINGS {
        session.query_drop(statement).await.expect(statement);
    }
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    let has = "SELECT CONCAT_WS(' ', @@autocommit + 0, @@time_zone, @@wait_timeout, @@character_set_client)";
    assert_eq!(
        ask(&mut session, has).await,
        Ok(Some("1 +03:00 2147 utf8mb4".to_owned()))
    );
    session
}

#[tokio::test]
async fn while_it_is_gone() {
    let sandbox = cluster::replicated();
    let gateway = cluster::start(patient(&sandbox), 2).await;
    sandbox.primary().kill9().unwrap();
    eventually("the primary is lost", async || {
        gateway.metric("forebay_server_role", &["role=\"primary\""]) == 0.0
    })
    .await;
    let mut session = begins(&gateway).await;
    let mut raw = cluster::connect_raw(&gateway.address(), DATABASE, Capabilities::default());
    let begun = Instant::now();
    raw.send_payload(0, &[&[Command::INIT_DB.0][..], b"test"].concat())
        .unwrap();
    assert_eq!(raw.packet().unwrap().payload[0], 0);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    // What a replica refuses is asked of the primary, once there is one.
    let asks = tokio::spawn(async move {
        let set = session.query_drop("SET there_is_no_such_variable = 1").await;
        (session, set)
    });
    sandbox.primary().restart().unwrap();
    let (mut session, set) = asks.await.unwrap();
    assert_eq!(client::code(&set.unwrap_err()), 1193);
    let has = "SELECT CONCAT_WS(' ', @@autocommit + 0, @@time_zone, @@wait_timeout)";
    assert_eq!(ask(&mut session, has).await, Ok(Some("1 +03:00 2147".to_owned())));
}

/// The replicas have yet to learn of a schema, and the monitor has not seen yet that they are behind: what
/// they refuse the primary does.
#[tokio::test]
async fn in_a_schema_that_replicas_do_not_have_yet() {
    let sandbox = cluster::replicated();
    // On a busy machine the first look must not fail: the next one comes late.
    let seldom = format!(
        "monitor = {{ user = {USER:?}, password = {PASSWORD:?}, interval = \"1m\", timeout = \"30s\" }}"
    );
    let setup = Setup::of_addresses([])
        .servers(sandbox.nodes().iter().map(|node| format!("{:?}", node.address())))
        .mode("split")
        .tables(&user(USER, PASSWORD))
        .cluster(&format!("topology = \"replication\"\n{seldom}"));
    let gateway = cluster::start(setup, 2).await;
    for node in sandbox.nodes().iter().skip(1) {
        node.sql(stop_applying()).unwrap();
    }
    sandbox.primary().sql("CREATE DATABASE only_there").unwrap();
    let mut session = cluster::connect(&gateway).await;
    session.query_drop("USE only_there").await.unwrap();
    for _ in 0..3 {
        let schema = ask(&mut session, "SELECT DATABASE()").await;
        assert_eq!(schema, Ok(Some("only_there".to_owned())));
        let schema: Option<String> = session.exec_first("SELECT DATABASE()", ()).await.unwrap();
        assert_eq!(schema.as_deref(), Some("only_there"));
    }
}

fn stop_applying() -> &'static str {
    match kind() {
        Kind::Mariadb => "STOP SLAVE SQL_THREAD",
        _ => "STOP REPLICA SQL_THREAD",
    }
}

#[tokio::test]
async fn while_it_stands_still() {
    let sandbox = cluster::replicated();
    let setup = patient(&sandbox).check("interval = \"60s\"\ntimeout = \"20s\"");
    let gateway = cluster::start(setup, 2).await;
    let mut writer = cluster::connect(&gateway).await;
    writer
        .query_drop("UPDATE where_am_i SET port = port")
        .await
        .unwrap();
    sandbox.primary().freeze().unwrap();
    // By the first one nothing is known yet: it is under way on the primary when that is found to be silent.
    begins(&gateway).await;
    begins(&gateway).await;
    sandbox.primary().thaw().unwrap();
}
