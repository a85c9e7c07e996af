use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use e2e::{Gateway, Setup, client, eventually, kind};
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Sandbox};

use crate::cluster::{self, WHERE_AM_I, ask};

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

/// The last replica is in a group of its own.
fn grouped(sandbox: &Sandbox, options: &str) -> Setup {
    let server = sandbox.nodes()[2].address();
    cluster::split(sandbox)
        .tables(&format!(
            "[cluster.main.group.reports]\nservers = [{server:?}]\nexclusive = true"
        ))
        .tables(&rule(options))
}

#[tokio::test]
async fn a_group_gets_what_rules_send_to_it_and_nothing_else() {
    let sandbox = cluster::shared();
    let reports = sandbox.nodes()[2].port();
    let setup = grouped(
        sandbox,
        "name = \"reports\"\ntag = [\"report\"]\nroute = \"reports\"",
    );
    let mut gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect(&gateway).await;
    let tagged = format!("/* forebay: tag=report */ {WHERE_AM_I}");
    for _ in 0..20 {
        assert_ne!(cluster::where_am_i(&mut session).await, reports);
        let port: Option<u16> = session.query_first(&tagged).await.unwrap();
        assert_eq!(port, Some(reports));
        let port: Option<u16> = session.exec_first(&tagged, ()).await.unwrap();
        assert_eq!(port, Some(reports));
    }
    assert_eq!(
        gateway.metric("forebay_rule_hits_total", &["rule=\"reports\""]),
        40.0
    );
    // A transaction stays where it began.
    session.query_drop("BEGIN").await.unwrap();
    let port: Option<u16> = session.query_first(&tagged).await.unwrap();
    assert_eq!(port, Some(sandbox.primary().port()));
    session.query_drop("COMMIT").await.unwrap();

    let lines: Vec<(String, String)> = session.query(format!("FOREBAY EXPLAIN {tagged}")).await.unwrap();
    let of = |what: &str| {
        lines
            .iter()
            .find(|(name, _)| name == what)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(of("rule reports"), Some("matches"), "{lines:?}");
    assert_eq!(of("target"), Some("group reports"), "{lines:?}");
    assert_eq!(
        of("server"),
        Some(sandbox.nodes()[2].address().as_str()),
        "{lines:?}"
    );

    // Running sessions see other rules.
    assert!(
        gateway
            .reload(grouped(sandbox, "route = \"primary\"\nclass = [\"read\"]"))
            .await
    );
    eventually("the session goes by the new rules", async || {
        cluster::where_am_i(&mut session).await == sandbox.primary().port()
    })
    .await;
}

#[tokio::test]
async fn statements_wait_for_their_turn_and_are_told_when_it_does_not_come() {
    let gateway = with_rules(&[
        "name = \"one\"\ntag = [\"one\"]\nmax_concurrency = 1",
        "name = \"patient\"\ntag = [\"patient\"]\nmax_concurrency = 1\nlimit_wait = \"1m\"",
        "name = \"slow\"\ntag = [\"slow\"]\nrate = 1\nburst = 2",
    ])
    .await;
    let (mut first, mut second) = (cluster::connect(&gateway).await, cluster::connect(&gateway).await);
    let sleep = |tag: &str| format!("/* forebay: tag={tag} */ SELECT SLEEP(2)");
    let (sleeping, other) = tokio::join!(ask(&mut first, "/* forebay: tag=one */ SELECT SLEEP(2)"), async {
        eventually("the first one is under way", async || {
            gateway.metric("forebay_rule_hits_total", &["rule=\"one\""]) >= 1.0
        })
        .await;
        second
            .query_drop("/* forebay: tag=one */ SELECT 1")
            .await
            .unwrap_err()
    });
    assert_eq!(sleeping, Ok(Some("0".to_owned())));
    assert_eq!(client::code(&other), 1226);
    assert!(
        other.to_string().contains("'max_concurrency' of the rule one"),
        "{other}"
    );
    assert_eq!(
        ask(&mut second, "/* forebay: tag=one */ SELECT 1").await,
        Ok(Some("1".to_owned()))
    );

    let began = Instant::now();
    let patient = sleep("patient");
    let (one, other) = tokio::join!(ask(&mut first, &patient), ask(&mut second, &patient));
    assert_eq!((one.is_ok(), other.is_ok()), (true, true));
    assert!(began.elapsed() >= Duration::from_secs(4), "one after the other");

    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(ask(&mut first, "/* forebay: tag=slow */ SELECT 1").await.is_ok());
    }
    assert_eq!(answers, [true, true, false]);
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
    let slow = "INSERT INTO slowly_written SELECT SLEEP(1.5)";
    assert_eq!(ask(&mut session, slow).await, Err(1158));
    // The session was bound to nothing.
    assert_eq!(ask(&mut session, "SELECT 1").await, Ok(Some("1".to_owned())));
}

#[tokio::test]
async fn copies_go_to_another_cluster() {
    let copies = cluster::replicated();
    let mirror = copies.primary();
    for server in [cluster::single().primary(), mirror] {
        server
            .sql("CREATE DATABASE mirrored; CREATE TABLE mirrored.t (id INT)")
            .unwrap();
    }
    let setup = cluster::narrow(cluster::single(), 8)
        .tables(&format!(
            "[cluster.copies]\nservers = [{{ address = {:?}, role = \"primary\" }}]",
            mirror.address()
        ))
        .tables(&rule("class = [\"write\"]\nmirror = \"copies\""));
    let gateway = setup.start_unready();
    eventually("the gateway is ready", async || gateway.get("/readyz").0 == 200).await;
    let mut session = cluster::connect_to(&gateway, "mirrored").await;
    let mirrored = |result: &str| gateway.metric("forebay_mirrored_total", &[&format!("result={result:?}")]);
    // The mirror's role may not be known at once.
    let mut sent = BTreeSet::new();
    eventually("a copy arrives", async || {
        let id = sent.len();
        sent.insert(id);
        session
            .query_drop(format!("INSERT INTO t VALUES ({id})"))
            .await
            .unwrap();
        mirrored("sent") > 0.0
    })
    .await;
    eventually("all copies are counted", async || {
        mirrored("sent") + mirrored("failed") + mirrored("dropped") == sent.len() as f64
    })
    .await;
    let rows = mirror.sql("SELECT COUNT(*) FROM mirrored.t").unwrap();
    assert_eq!(rows.trim().parse::<f64>().unwrap(), mirrored("sent"));
    session
        .query_drop("INSERT INTO t VALUES (@nothing)")
        .await
        .unwrap();
    assert_eq!(mirrored("left_out"), 1.0);
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
    eventually("it is in the log", async || gateway.log().contains("watched")).await;
    let log = gateway.log();
    let line = log
        .lines()
        .find(|line| line.contains("statement of a rule"))
        .unwrap();
    assert!(line.contains("SELECT ?, ...") && !line.contains("4711"), "{line}");
}

/// Whoever writes a rule copies the text from there.
#[tokio::test]
async fn and_what_is_explained_is_what_rules_see() {
    let explain = "FOREBAY EXPLAIN SELECT COUNT(*) FROM information_schema.`collations` WHERE id = 5";
    let gateway = with_rules(&["log = true"]).await;
    let mut session = cluster::connect(&gateway).await;
    let lines: Vec<(String, String)> = session.query(explain).await.unwrap();
    let (_, text) = lines.iter().find(|(name, _)| name == "digest_text").unwrap();
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '(' | ')' | '*' | '?' => format!("\\{c}"),
            c => c.to_string(),
        })
        .collect();
    let gateway = with_rules(&[&format!(
        "name = \"copied\"\ndigest_text = '^{escaped}$'\nlog = true"
    )])
    .await;
    let mut session = cluster::connect(&gateway).await;
    let lines: Vec<(String, String)> = session.query(explain).await.unwrap();
    let copied = ("rule copied".to_owned(), "matches".to_owned());
    assert!(lines.contains(&copied), "{lines:?}");
    session
        .query_drop("SELECT COUNT(*) FROM information_schema.`collations` WHERE id = 6")
        .await
        .unwrap();
    eventually("it is in the log", async || {
        gateway.log().contains(&format!("statement={text:?}"))
    })
    .await;
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
