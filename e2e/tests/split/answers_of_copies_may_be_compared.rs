//! `mirror_compare`: what clients are answered beside what copies of their statements are answered.

use std::time::{Duration, Instant};

use e2e::{Gateway, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Lent, Sandbox};

use crate::cluster;

/// A gateway in front of the shared server that sends copies of all statements to another one, and compares
/// this share of them. Both have the schema, made by these statements.
async fn mirrored(copies: &Sandbox, share: &str, schema: &'static str, statements: &str) -> (Gateway, Conn) {
    for server in [cluster::single().primary(), copies.primary()] {
        let create = format!("CREATE DATABASE {schema}; USE {schema}; {statements}");
        server.sql(&create).unwrap();
    }
    let setup = cluster::narrow(cluster::single(), 8)
        .tables(&format!(
            "[cluster.copies]\nqueue_timeout = \"50s\"\nservers = [{{ address = {:?}, role = \"primary\" }}]",
            copies.primary().address()
        ))
        .tables(&format!(
            "[[rule]]\nmirror = \"copies\"\nmirror_compare = {share}"
        ));
    let gateway = setup.start_unready();
    eventually("the gateway is ready", async || gateway.get("/readyz").0 == 200).await;
    let mut session = cluster::connect_to(&gateway, schema).await;
    // The role of the other server may not be known at once.
    let mirrored = |result: &str| gateway.metric("forebay_mirrored_total", &[&format!("result=\"{result}")]);
    let mut asked = 0.0;
    eventually("copies arrive", async || {
        asked += 1.0;
        session.query_drop("SELECT 1").await.unwrap();
        mirrored("sent") > 0.0
    })
    .await;
    eventually("the outcome of each is known", async || {
        let known = compared(&gateway, "") + skipped(&gateway, "");
        mirrored("") == asked && (share != "1" || known == asked)
    })
    .await;
    (gateway, session)
}

fn another() -> Lent {
    e2e::servers(1).remove(0)
}

/// How many have this result; all where none is said.
fn compared(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("forebay_mirror_compared_total", &[&format!("result=\"{result}")])
}

fn skipped(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("forebay_mirror_skipped_total", &[&format!("reason=\"{reason}")])
}

/// Sends the statement, whatever is answered, and waits until this count alone has grown by one.
async fn counts(gateway: &Gateway, session: &mut Conn, statement: &str, word: &str) {
    let of = |word: &str| compared(gateway, word) + skipped(gateway, word);
    let (before, all) = (of(word), of(""));
    let _ = session.query_drop(statement).await;
    eventually(&format!("{statement} counts as {word}"), async || of("") > all).await;
    assert_eq!(
        (of(word) - before, of("") - all),
        (1.0, 1.0),
        "{statement}: {word}\n{}",
        cluster::ctl(gateway, &["mirrors"]).1
    );
}

#[tokio::test]
async fn what_differs_is_counted_by_its_kind() {
    let copies = another();
    let (gateway, mut session) = mirrored(
        &copies,
        "1",
        "compared",
        "CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(20), weight DOUBLE); \
         INSERT INTO t VALUES (1, 'one', 0.1), (2, 'two', 0.2), (3, 'three', 0.3); \
         CREATE TABLE long_one (id INT PRIMARY KEY); INSERT INTO long_one VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9); \
         INSERT INTO long_one SELECT 10 + a.id * 1000 + b.id * 100 + c.id * 10 + d.id \
         FROM long_one a, long_one b, long_one c, long_one d",
    )
    .await;
    let many = "SELECT id FROM long_one";
    let counted = async |session: &mut Conn, statement: &str, word: &str| {
        counts(&gateway, session, statement, word).await;
    };
    for equal in [
        "SELECT * FROM t",
        "SELECT * FROM t WHERE id > 3",
        "SELECT nothing FROM t",
        "UPDATE t SET weight = 0.25 WHERE id = 2",
        many,
    ] {
        counted(&mut session, equal, "equal").await;
    }
    counted(&mut session, "SELECT word, NOW(6) FROM t", "masked").await;
    copies
        .primary()
        .sql("UPDATE compared.t SET word = 'zwei' WHERE id = 2; DELETE FROM compared.t WHERE id = 3; DELETE FROM compared.long_one WHERE id = 7; INSERT INTO compared.long_one VALUES (-7)")
        .unwrap();
    counted(&mut session, "SELECT * FROM t", "rows").await;
    counted(&mut session, "SELECT word FROM t WHERE id < 3", "values").await;
    counted(&mut session, "SELECT id FROM t WHERE id < 3", "equal").await;
    counted(&mut session, many, "values").await;
    counted(
        &mut session,
        "UPDATE t SET weight = 5 WHERE id > 1",
        "affected_rows",
    )
    .await;
    counted(&mut session, "INSERT INTO t VALUES (3, 'tres', 3)", "errors").await;
    copies.primary().sql("DROP TABLE compared.long_one").unwrap();
    counted(&mut session, many, "errors").await;
    counted(&mut session, "CREATE TABLE long_one (id INT)", "errors").await;

    // What operators see of it has no values.
    let (code, told) = cluster::ctl(&gateway, &["mirrors"]);
    assert_eq!(code, Some(0), "{told}");
    let line = |statement: &str| {
        let line = told.lines().find(|line| line.ends_with(statement));
        line.unwrap_or_else(|| panic!("{statement}: {told}"))
    };
    assert!(
        line("  SELECT `id` FROM `long_one`").contains("errors 1, values 1"),
        "{told}"
    );
    assert!(
        line("  SELECT `id` FROM `long_one`").contains("error none → 1146"),
        "{told}"
    );
    let updated = line("  UPDATE `t` SET `weight` = ? WHERE `id` > ?");
    assert!(updated.contains("2 → 1 affected rows"), "{told}");
    assert!(
        !told.contains("tres") && told.starts_with("copies: affected_rows 1, equal "),
        "{told}"
    );
    // Texts are for those who may act.
    assert_eq!(gateway.get("/mirrors").0, 403);
    eventually("the log says so", async || {
        gateway.log().contains("answered differently")
    })
    .await;
    let log = gateway.log();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("answered differently"))
        .collect();
    assert_eq!(lines.len(), 1, "one a minute: {lines:?}");
    assert!(
        !lines[0].contains("SELECT") && lines[0].contains("rows"),
        "{lines:?}"
    );
    assert!(gateway.metric("forebay_mirror_duration_seconds_count", &["side=\"copy\""]) > 5.0);
}

#[tokio::test]
async fn transactions_and_long_results_are_not_compared() {
    let copies = another();
    let (gateway, mut session) = mirrored(
        &copies,
        "1",
        "not_compared",
        "CREATE TABLE t (id INT PRIMARY KEY, text LONGTEXT); INSERT INTO t VALUES (1, REPEAT('x', 2000000)), (2, 'y')",
    )
    .await;
    let long = "SELECT text FROM t WHERE id = 1";
    counts(&gateway, &mut session, long, "too_long").await;
    // What is known without its values is compared all the same.
    copies
        .primary()
        .sql("DELETE FROM not_compared.t WHERE id = 1")
        .unwrap();
    counts(&gateway, &mut session, long, "rows").await;
    for begin in ["BEGIN", "SET autocommit = 0"] {
        session.query_drop(begin).await.unwrap();
        if begin != "BEGIN" {
            // The first statement begins the transaction.
            counts(&gateway, &mut session, "SELECT id FROM t WHERE id = 2", "equal").await;
        }
        counts(&gateway, &mut session, "SELECT id FROM t", "transaction").await;
        session.query_drop("ROLLBACK").await.unwrap();
    }
    session.query_drop("SET autocommit = 1").await.unwrap();
    counts(&gateway, &mut session, "SELECT id FROM t WHERE id = 2", "equal").await;
    copies.primary().stop().unwrap();
    counts(&gateway, &mut session, "SELECT id FROM t", "copy_failed").await;
}

#[tokio::test]
async fn a_share_of_the_copies_is_compared() {
    let copies = another();
    let (gateway, mut session) = mirrored(&copies, "0.1", "some_compared", "CREATE TABLE t (id INT)").await;
    let mirrored = |result: &str| gateway.metric("forebay_mirrored_total", &[&format!("result=\"{result}")]);
    let before = mirrored("sent");
    for _ in 0..100 {
        session.query_drop("SELECT id FROM t").await.unwrap();
    }
    eventually("all copies are sent", async || mirrored("sent") == before + 100.0).await;
    // The copies before these count as well: they may be compared only now. Shares are spread so evenly that
    // they are off by two at most.
    let expected = (mirrored("sent") + mirrored("failed")) / 10.0;
    eventually("their share is compared", async || {
        let known = compared(&gateway, "") + skipped(&gateway, "");
        (known - expected).abs() <= 2.0 && compared(&gateway, "equal") >= 9.0
    })
    .await;
}

/// Nobody waits for a cluster that stands still, and what waits for its answers has a bound.
#[tokio::test]
async fn a_cluster_that_stands_still_delays_no_client() {
    let copies = another();
    let (gateway, mut session) = mirrored(&copies, "1", "stands_still", "CREATE TABLE t (id INT)").await;
    copies.primary().freeze().unwrap();
    let equal = compared(&gateway, "equal");
    let began = Instant::now();
    for id in 0..200 {
        let answer: Option<u32> = session.query_first(format!("SELECT {id}")).await.unwrap();
        assert_eq!(answer, Some(id));
    }
    // A client that waited for a copy would wait for a minute.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let mirrored = |result: &str| gateway.metric("forebay_mirrored_total", &[&format!("result=\"{result}")]);
    assert!(mirrored("dropped") + mirrored("failed") >= 200.0 - 128.0);
    copies.primary().thaw().unwrap();
    copies.primary().thaw().unwrap();
    eventually("answers are compared again", async || {
        session.query_drop("SELECT 1").await.unwrap();
        compared(&gateway, "equal") > equal
    })
    .await;
}

/// Both answers have their own form, and the client's is what it has agreed on.
#[tokio::test]
async fn answers_of_all_types_are_read() {
    let json = if kind() == Kind::Mysql { "JSON" } else { "LONGTEXT" };
    let copies = another();
    let (gateway, mut session) = mirrored(
        &copies,
        "1",
        "types_compared",
        &format!(
            "CREATE TABLE t (a TINYINT, b BIGINT UNSIGNED, c DECIMAL(20, 5), d FLOAT, e DOUBLE, f DATE, g DATETIME(6), h TIME, \
             i YEAR, j BLOB, k {json}, l ENUM('x', 'y'), m BIT(9)); \
             INSERT INTO t VALUES (-1, 18446744073709551615, 1.5, 0.1, 1e100, '2026-01-02', '2026-01-02 03:04:05.6', '-1:2:3', \
             2026, 'blob', '{{}}', 'x', 511), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
        ),
    )
    .await;
    counts(&gateway, &mut session, "SELECT * FROM t", "equal").await;
    counts(&gateway, &mut session, "SELECT * FROM t ORDER BY a", "equal").await;
    let column = "abcdefghijklm".chars();
    for column in column {
        let change = format!("UPDATE types_compared.t SET {column} = NULL");
        copies.primary().sql(&change).unwrap();
        let read = format!("SELECT {column} FROM t");
        counts(&gateway, &mut session, &read, "values").await;
    }
}
