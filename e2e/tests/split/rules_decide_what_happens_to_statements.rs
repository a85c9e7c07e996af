use std::time::{Duration, Instant};

use e2e::{Gateway, client, eventually, kind};
use mysql_async::prelude::Queryable;
use sandbox::Kind;

use crate::cluster::{self, ask};

fn rule(options: &str) -> String {
    format!("[[rule]]\n{options}\n")
}

/// A gateway in front of one server, with rules.
async fn with_rules(rules: &[&str]) -> Gateway {
    let setup = cluster::narrow(cluster::single(), 8).cluster(&cluster::monitor());
    let setup = rules
        .iter()
        .fold(setup, |setup, options| setup.tables(&rule(options)));
    setup.start()
}

#[tokio::test]
async fn a_statement_over_its_time_is_killed() {
    let gateway = with_rules(&["digest_text = 'COLLATIONS'\ntimeout = \"2s\""]).await;
    let mut session = cluster::connect(&gateway).await;
    let too_long = if kind() == Kind::Mysql { 3024 } else { 1969 };
    // Five times itself: 10^11 rows and more.
    let all = ["a", "b", "c", "d", "e"].map(|alias| format!("information_schema.COLLATIONS {alias}"));
    let endless = &format!(
        "SELECT COUNT(*) FROM {} WHERE a.ID + b.ID + c.ID + d.ID + e.ID < 0",
        all.join(", ")
    );
    assert_eq!(ask(&mut session, endless).await, Err(too_long));
    let error = session.exec_drop(endless, ()).await.unwrap_err();
    assert_eq!(client::code(&error), too_long);
    // In a transaction as well, which goes on.
    session.query_drop("BEGIN").await.unwrap();
    assert_eq!(ask(&mut session, endless).await, Err(too_long));
    for _ in 0..10 {
        assert_eq!(ask(&mut session, "SELECT 1").await, Ok(Some("1".to_owned())));
    }
    session.query_drop("COMMIT").await.unwrap();
    assert_eq!(
        ask(
            &mut session,
            "SELECT COUNT(*) FROM information_schema.COLLATIONS WHERE ID < 0"
        )
        .await,
        Ok(Some("0".to_owned()))
    );
}

/// The account that watches may not kill it, and so nobody knows what becomes of it.
#[tokio::test]
async fn a_write_over_its_time_that_cannot_be_killed_may_be_done() {
    let sandbox = cluster::single();
    let weak = "CREATE USER weak IDENTIFIED BY 'weak'; CREATE TABLE test.slowly_written (n INT)";
    sandbox.primary().sql(weak).unwrap();
    let gateway = cluster::narrow(sandbox, 2)
        .cluster("monitor = { user = \"weak\", password = \"weak\" }")
        .tables(&rule("class = [\"write\"]\ntimeout = \"200ms\""))
        .start();
    let mut session = cluster::connect(&gateway).await;
    // The kill is to be refused before the write has come to its end, however busy the machine is.
    let slow = "INSERT INTO slowly_written SELECT SLEEP(30)";
    assert_eq!(ask(&mut session, slow).await, Err(1158));
    // The session was bound to nothing.
    assert_eq!(ask(&mut session, "SELECT 1").await, Ok(Some("1".to_owned())));
}

/// What a copy is warned of is for nobody.
#[tokio::test]
async fn copies_leave_nothing_behind() {
    let setup = cluster::narrow(cluster::single(), 2);
    let gateway = setup.tables(&rule("text = 'copied'\nmirror = \"main\"")).start();
    let mut session = cluster::connect(&gateway).await;
    for read in ["SELECT CAST('copied' AS SIGNED)", "SELECT * FROM copied"] {
        let before = gateway.metric("forebay_mirrored_total", &["result=\"sent\""]);
        // It holds its own connection, for its warnings, so that the copy has the other.
        let _ = session.query_drop(read).await;
        eventually("the copy is done", async || {
            gateway.metric("forebay_mirrored_total", &["result=\"sent\""]) > before
        })
        .await;
        let mut other = cluster::connect(&gateway).await;
        let warnings: Vec<(String, u16, String)> = other.query("SHOW WARNINGS").await.unwrap();
        assert!(warnings.is_empty(), "{read}: {warnings:?}");
    }
}

#[tokio::test]
async fn statements_are_logged_and_held_back() {
    let gateway = with_rules(&["name = \"watched\"\ntext = 'watched'\nlog = true\ndelay = \"200ms\""]).await;
    let mut session = cluster::connect(&gateway).await;
    let began = Instant::now();
    session.query_drop("SELECT 'watched', 4711").await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
    let said = "statement of a rule";
    eventually("it is in the log", async || gateway.log().contains(said)).await;
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains(said)).unwrap();
    assert!(line.contains("SELECT ?, ...") && !line.contains("4711"), "{line}");
}

/// What the gateway answers itself costs the network as much.
#[tokio::test]
async fn and_what_no_server_sees_is_counted_too() {
    let gateway = with_rules(&["text = 'please'\nrefuse = \"no\""]).await;
    let mut session = cluster::connect(&gateway).await;
    let bytes = |what: &str| gateway.metric(&format!("forebay_client_{what}_bytes_total"), &[]);
    for statement in ["FOREBAY EXPLAIN SELECT 1", "SELECT 'please'"] {
        let before = (bytes("received"), bytes("sent"));
        for _ in 0..10 {
            let _ = session.query_drop(statement).await;
        }
        let sent = (statement.len() * 10) as f64;
        assert!(bytes("received") - before.0 >= sent, "{statement}");
        assert!(bytes("sent") - before.1 >= 100.0, "{statement}");
    }
    session.disconnect().await.unwrap();
    eventually("the end of the session is in the log", async || {
        let log = gateway.log();
        let line = log.lines().find(|line| line.contains("session ended"));
        line.is_some_and(|line| !line.contains("bytes_from_client=0 ") && !line.contains("bytes_to_client=0"))
    })
    .await;
}
