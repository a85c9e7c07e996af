//! `transaction_reads = "replica"`: up to its first statement that is no plain read a transaction is on a
//! replica, from there on on the primary, and its client sees nothing of that but where it reads.

use std::sync::Arc;

use e2e::{Gateway, Setup, client, eventually};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use sandbox::Sandbox;

use crate::cluster::{self, WHERE_AM_I, ask};
use crate::delays::Delays;

const OPTION: &str = "transaction_reads = \"replica\"";

fn split(sandbox: &Sandbox) -> Setup {
    cluster::split(sandbox).listener(OPTION)
}

/// A busy machine is no reason to read at the primary what the session has written before.
fn patient(sandbox: &Sandbox) -> Setup {
    split(sandbox).cluster("read_wait = \"30s\"")
}

fn count(gateway: &Gateway, what: &str) -> u64 {
    let name = "forebay_split_transactions_on_replicas_total";
    gateway.metric(name, &[&format!("what=\"{what}\"")]) as u64
}

/// Begins a transaction on a replica, and reads there.
async fn begin(session: &mut Conn, sandbox: &Sandbox) -> u16 {
    session.query_drop("BEGIN").await.unwrap();
    let port = cluster::where_am_i(session).await;
    assert!(cluster::replica_ports(sandbox).contains(&port), "{port}");
    port
}

#[tokio::test]
async fn and_move_to_the_primary_to_write() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(patient(sandbox), 2).await;
    let (primary, replicas) = (sandbox.primary().port(), cluster::replica_ports(sandbox));
    cluster::schema(sandbox, "moving", "CREATE TABLE t (id INT PRIMARY KEY)");
    let mut session = cluster::connect_to(&gateway, "moving").await;
    let mut other = cluster::connect_to(&gateway, "moving").await;
    let beginnings = ["BEGIN", "begin work;", "START TRANSACTION"];
    for (id, begin) in (0..).zip(beginnings) {
        session.query_drop(begin).await.unwrap();
        let first = cluster::where_am_i(&mut session).await;
        assert!(replicas.contains(&first), "{begin}");
        for _ in 0..3 {
            assert_eq!(cluster::where_am_i(&mut session).await, first);
            let prepared: Option<u16> = session.exec_first(WHERE_AM_I, ()).await.unwrap();
            assert_eq!(prepared, Some(first));
        }
        session.ping().await.unwrap();
        assert_eq!(count(&gateway, "moved"), id);
        session
            .exec_drop("INSERT INTO t VALUES (?)", (id,))
            .await
            .unwrap();
        assert_eq!(count(&gateway, "moved"), id + 1);
        for _ in 0..2 {
            assert_eq!(cluster::where_am_i(&mut session).await, primary);
            let prepared: Option<u16> = session.exec_first(WHERE_AM_I, ()).await.unwrap();
            assert_eq!(prepared, Some(primary));
            let mine: Option<u64> = session.exec_first("SELECT COUNT(*) FROM t", ()).await.unwrap();
            assert_eq!(mine, Some(id + 1));
        }
        let rows = "/* forebay: primary */ SELECT COUNT(*) FROM t";
        assert_eq!(
            ask(&mut other, rows).await,
            Ok(Some(id.to_string())),
            "before its commit"
        );
        session.query_drop("COMMIT").await.unwrap();
        assert_eq!(ask(&mut other, rows).await, Ok(Some((id + 1).to_string())));
        assert_ne!(cluster::where_am_i(&mut session).await, primary);
        let mine: Option<u64> = session.query_first("SELECT COUNT(*) FROM t").await.unwrap();
        assert_eq!(mine, Some(id + 1));
    }
    assert_eq!(count(&gateway, "begun"), 3);
    let undone = begin(&mut session, sandbox).await;
    session.query_drop("DELETE FROM t").await.unwrap();
    session.query_drop("SAVEPOINT a").await.unwrap();
    session.query_drop("INSERT INTO t VALUES (7)").await.unwrap();
    session.query_drop("ROLLBACK TO a").await.unwrap();
    assert_eq!(
        ask(&mut session, "SELECT MAX(id) FROM t").await,
        Ok(None),
        "{undone}"
    );
    session.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(
        ask(&mut session, "SELECT MAX(id) FROM t").await,
        Ok(Some("2".to_owned()))
    );
}

/// Each of these moves the transaction, and is executed in it. The others are with the tests of the data
/// plane.
#[tokio::test]
async fn whatever_is_not_certainly_a_plain_read_moves_them() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(split(sandbox), 2).await;
    let primary = sandbox.primary().port();
    cluster::schema(
        sandbox,
        "movers",
        "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1);
         CREATE FUNCTION give_one() RETURNS INT DETERMINISTIC RETURN 1;",
    );
    for (moved, statement) in (1..).zip([
        "SELECT id FROM t FOR UPDATE",
        "SELECT give_one()",
        "SELECT 1; DELETE FROM t WHERE id = 3",
        "ROLLBACK AND CHAIN",
    ]) {
        let mut session = cluster::connect_to(&gateway, "movers").await;
        begin(&mut session, sandbox).await;
        session
            .query_drop(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        assert_eq!(cluster::where_am_i(&mut session).await, primary, "{statement}");
        assert_eq!(count(&gateway, "moved"), moved, "{statement}");
        // It is in a transaction there.
        session.query_drop("INSERT INTO t VALUES (9)").await.unwrap();
        session.query_drop("ROLLBACK").await.unwrap();
        let nines = "/* forebay: primary */ SELECT COUNT(*) FROM t WHERE id = 9";
        assert_eq!(
            ask(&mut session, nines).await,
            Ok(Some("0".to_owned())),
            "{statement}"
        );
        session.disconnect().await.unwrap();
    }
    // DDL, which ends it.
    let mut session = cluster::connect_to(&gateway, "movers").await;
    begin(&mut session, sandbox).await;
    session.query_drop("CREATE TABLE made (id INT)").await.unwrap();
    session.query_drop("INSERT INTO made VALUES (1)").await.unwrap();
    session.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(
        ask(&mut session, "SELECT COUNT(*) FROM made").await,
        Ok(Some("1".to_owned()))
    );
}

#[tokio::test]
async fn but_not_where_it_is_in_doubt() {
    let sandbox = cluster::shared();
    let user = "[[user]]\nname = \"strong\"\npassword = \"s\"\nread_consistency = \"strong\"\n\
                [[user]]\nname = \"plain\"\npassword = \"s\"\ntransaction_reads = \"primary\"\n";
    let gateway = cluster::start(split(sandbox).tables(user), 2).await;
    let primary = sandbox.primary().port();
    for name in ["strong", "plain"] {
        let grant =
            format!("CREATE USER {name}@'%' IDENTIFIED BY 's'; GRANT SELECT ON test.* TO {name}@'%';");
        sandbox.primary().sql(&grant).unwrap();
    }
    sandbox.sync().unwrap();
    for (before, begin) in [
        ("DO 1", "START TRANSACTION READ WRITE"),
        ("DO 1", "START TRANSACTION WITH CONSISTENT SNAPSHOT"),
        ("DO 1", "/* forebay: primary */ BEGIN"),
        ("DO 1", "BEGIN; SELECT 1"),
        ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "BEGIN"),
        ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "BEGIN"),
        ("SET @x = 1", "BEGIN"),
        ("SET autocommit = 0", "BEGIN"),
        ("CREATE TEMPORARY TABLE tt (id INT)", "BEGIN"),
    ] {
        let mut session = cluster::connect(&gateway).await;
        session.query_drop(before).await.unwrap();
        session.query_drop(begin).await.unwrap();
        assert_eq!(
            cluster::where_am_i(&mut session).await,
            primary,
            "{before}; {begin}"
        );
        session.disconnect().await.unwrap();
    }
    for name in ["strong", "plain"] {
        let options = cluster::options(&gateway).user(Some(name)).pass(Some("s"));
        let mut session = Conn::new(options).await.unwrap();
        session.query_drop("BEGIN").await.unwrap();
        assert_eq!(cluster::where_am_i(&mut session).await, primary, "{name}");
    }
    assert_eq!(count(&gateway, "begun"), 0);
    let mut session = cluster::connect(&gateway).await;
    let explained: Vec<(String, String)> = session.query("FOREBAY EXPLAIN BEGIN").await.unwrap();
    assert!(
        explained.contains(&("target".to_owned(), "replica".to_owned())),
        "{explained:?}"
    );
    begin(&mut session, sandbox).await;
    for (statement, target) in [(WHERE_AM_I, "held"), ("DELETE FROM t", "primary")] {
        let explained: Vec<(String, String)> = session
            .query(format!("FOREBAY EXPLAIN {statement}"))
            .await
            .unwrap();
        assert!(
            explained.contains(&("target".to_owned(), target.to_owned())),
            "{explained:?}"
        );
    }
    assert_eq!(count(&gateway, "moved"), 0);
}

/// All rows as they are shown, and how many rows were changed; or the error.
async fn rows(session: &mut Conn, statement: &str) -> Result<(Vec<String>, u64, u16), u16> {
    let mut answer = session
        .query_iter(statement)
        .await
        .map_err(|error| client::code(&error))?;
    let (affected, warnings) = (answer.affected_rows(), answer.warnings());
    let rows: Vec<Row> = answer.collect().await.unwrap();
    let rows = rows.iter().map(|row| format!("{row:?}")).collect();
    Ok((rows, affected, warnings))
}

/// What a statement leaves for the next is the same as on one server.
#[tokio::test]
async fn what_statements_leave_is_as_on_one_server() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(patient(sandbox), 2).await;
    for schema in ["leaving_directly", "leaving"] {
        cluster::schema(
            sandbox,
            schema,
            "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT);
             CREATE TABLE u (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 500;
             INSERT INTO t (v) VALUES (1), (2), (3);",
        );
    }
    let direct = client::options_at(sandbox.primary().port()).db_name(Some("leaving_directly"));
    let mut direct = Conn::new(direct).await.unwrap();
    let mut own = cluster::connect_to(&gateway, "leaving").await;
    let script = [
        "INSERT INTO u (v) VALUES (1)",
        "BEGIN",
        "SELECT id FROM t ORDER BY id LIMIT 1 OFFSET 1",
        "SELECT FOUND_ROWS()",
        "SELECT id FROM t ORDER BY id LIMIT 2",
        "SELECT ROW_COUNT()",
        "SELECT LAST_INSERT_ID()",
        "SELECT CAST('x' AS SIGNED)",
        "SHOW WARNINGS",
        "SELECT @@warning_count",
        "INSERT INTO t (v) VALUES (4)",
        "SHOW WARNINGS",
        "SELECT ROW_COUNT()",
        "SELECT LAST_INSERT_ID()",
        "SELECT SQL_CALC_FOUND_ROWS id FROM t ORDER BY id LIMIT 1",
        "SELECT FOUND_ROWS()",
        "ROLLBACK",
        "SELECT COUNT(*) FROM t",
        "BEGIN",
        "SELECT nothing",
        "SHOW ERRORS",
        "UPDATE t SET v = v + 1 WHERE id <= 2",
        "SELECT ROW_COUNT()",
        "COMMIT",
        "SELECT SUM(v) FROM t",
        "BEGIN",
        "SELECT SUM(v) FROM t",
        "SET SESSION div_precision_increment = 2",
        "SELECT 1 / 3",
        "UPDATE t SET v = v - 1 WHERE id <= 2",
        "COMMIT",
        "SELECT 1 / 3",
        "BEGIN",
        "SELECT 1 / 3",
        "ROLLBACK",
        "SELECT SUM(v) FROM t",
    ];
    for turn in 0..2 {
        for statement in script {
            let expected = rows(&mut direct, statement).await;
            let answered = rows(&mut own, statement).await;
            assert_eq!(answered, expected, "{statement}, turn {turn}");
        }
    }
    assert!(count(&gateway, "moved") >= 4);
}

/// No primary: the statement is refused, and the transaction is what it was.
#[tokio::test]
async fn a_move_that_fails_leaves_them_as_they_were() {
    let sandbox = cluster::replicated();
    cluster::schema(&sandbox, "kept", "CREATE TABLE t (id INT PRIMARY KEY)");
    let setup = split(&sandbox).cluster("failover_wait = \"200ms\"\nmax_lag = \"60s\"");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, "kept").await;
    let port = begin(&mut session, &sandbox).await;
    sandbox.primary().kill9().unwrap();
    for _ in 0..2 {
        let refused = session.query_drop("INSERT INTO t VALUES (1)").await.unwrap_err();
        assert!([1290, 1429].contains(&client::code(&refused)), "{refused}");
        assert_eq!(cluster::where_am_i(&mut session).await, port);
    }
    sandbox.primary().restart().unwrap();
    eventually("the primary takes writes again", async || {
        session.query_drop("INSERT INTO t VALUES (1)").await.is_ok()
    })
    .await;
    assert_eq!(count(&gateway, "moved"), 1);
    session.query_drop("ROLLBACK").await.unwrap();
    let rows = sandbox.primary().sql("SELECT COUNT(*) FROM kept.t").unwrap();
    assert_eq!(rows.trim(), "0");
    sandbox.sync().unwrap();
    begin(&mut session, &sandbox).await;
    eventually("a write moves", async || {
        session.query_drop("INSERT INTO t VALUES (1)").await.is_ok()
    })
    .await;
    session.query_drop("COMMIT").await.unwrap();
    let rows = sandbox.primary().sql("SELECT COUNT(*) FROM kept.t").unwrap();
    assert_eq!(rows.trim(), "1");
}

/// A transaction sees what its session has written before, however far behind the replicas are.
#[tokio::test]
async fn and_see_what_their_session_has_written() {
    let sandbox = Arc::new(cluster::replicated());
    cluster::schema(
        &sandbox,
        "own",
        "CREATE TABLE cells (id INT PRIMARY KEY, v INT); INSERT INTO cells VALUES (1, 0), (2, 0), (3, 0), (4, 0)",
    );
    // Longer than a replica stands still: on a busy machine none would be read after a shorter wait.
    let setup = split(&sandbox).cluster("read_wait = \"200ms\"\nmax_lag = \"60s\"");
    let gateway = cluster::start(setup, 2).await;
    let _delays = Delays::begin(&sandbox);
    let primary = sandbox.primary().port();
    let mut tasks = Vec::new();
    for id in 1..=4 {
        let mut session = cluster::connect_to(&gateway, "own").await;
        tasks.push(tokio::spawn(async move {
            let mut on_replicas = 0;
            let read = format!("SELECT c.v, w.port FROM own.cells c, test.where_am_i w WHERE c.id = {id}");
            for v in 1..=150 {
                session.query_drop("BEGIN").await.unwrap();
                let (before, port): (u64, u16) = session.query_first(&read).await.unwrap().unwrap();
                assert_eq!(before, v - 1, "on {port}");
                on_replicas += u64::from(port != primary);
                session
                    .exec_drop("UPDATE cells SET v = v + 1 WHERE id = ?", (id,))
                    .await
                    .unwrap();
                let (after, port): (u64, u16) = session.query_first(&read).await.unwrap().unwrap();
                assert_eq!((after, port), (v, primary));
                session.query_drop("COMMIT").await.unwrap();
            }
            on_replicas
        }));
    }
    let mut on_replicas = 0;
    for task in tasks {
        on_replicas += task.await.unwrap();
    }
    assert!(on_replicas > 0);
    assert_eq!(count(&gateway, "moved"), on_replicas);
}

/// A statement that its server will not prepare fails, and its transaction goes on.
#[tokio::test]
async fn a_statement_that_cannot_be_prepared_ends_no_transaction() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(split(sandbox), 2).await;
    for (schema, first) in [
        ("unprepared", "INSERT INTO t VALUES (1)"),
        ("unprepared_too", WHERE_AM_I),
    ] {
        cluster::schema(
            sandbox,
            schema,
            "CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE gone (id INT)",
        );
        let mut session = cluster::connect_to(&gateway, schema).await;
        let statement = session.prep("SELECT id FROM gone").await.unwrap();
        sandbox
            .primary()
            .sql(&format!("DROP TABLE {schema}.gone"))
            .unwrap();
        sandbox.sync().unwrap();
        // On connections that have not prepared it.
        let mut others = Vec::new();
        for _ in 0..6 {
            let mut other = cluster::connect_to(&gateway, schema).await;
            begin(&mut other, sandbox).await;
            others.push(other);
        }
        session.query_drop("BEGIN").await.unwrap();
        session.query_drop(first).await.unwrap();
        let refused = session.exec_drop(&statement, ()).await.unwrap_err();
        assert_eq!(client::code(&refused), 1146);
        let errors: Vec<(String, u16, String)> = session.query("SHOW WARNINGS").await.unwrap();
        assert_eq!(errors.first().map(|error| error.1), Some(1146), "{errors:?}");
        session.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
        session.query_drop("ROLLBACK").await.unwrap();
        let rows = "/* forebay: primary */ SELECT COUNT(*) FROM t";
        assert_eq!(ask(&mut session, rows).await, Ok(Some("0".to_owned())), "{first}");
    }
}

/// Who says that reads have to be fresher says so of the next one, too.
#[tokio::test]
async fn and_leave_it_when_their_session_wants_fresher_reads() {
    let sandbox = cluster::shared();
    let setup = cluster::split(sandbox).listener(&format!("{OPTION}\nread_consistency = \"eventual\""));
    let gateway = cluster::start(setup, 2).await;
    cluster::schema(sandbox, "fresher", "CREATE TABLE t (id INT PRIMARY KEY)");
    let primary = sandbox.primary().port();
    let mut session = cluster::connect_to(&gateway, "fresher").await;
    for (moved, before, wanted) in [
        (1, "eventual", "session"),
        (2, "session", "strong"),
        (3, "DEFAULT", "strong"),
    ] {
        session
            .query_drop(format!("FOREBAY SET read_consistency = {before}"))
            .await
            .unwrap();
        let port = begin(&mut session, sandbox).await;
        for same in [before, "eventual"] {
            session
                .query_drop(format!("FOREBAY SET read_consistency = {same}"))
                .await
                .unwrap();
            assert_eq!(cluster::where_am_i(&mut session).await, port, "{same}");
        }
        session
            .query_drop(format!("FOREBAY SET read_consistency = {wanted}"))
            .await
            .unwrap();
        assert_eq!(count(&gateway, "moved"), moved, "{wanted}");
        assert_eq!(cluster::pins(&mut session).await, ["transaction"]);
        assert_eq!(cluster::where_am_i(&mut session).await, primary, "{wanted}");
        session.query_drop("INSERT INTO t VALUES (9)").await.unwrap();
        session.query_drop("ROLLBACK").await.unwrap();
        let rows = "/* forebay: primary */ SELECT COUNT(*) FROM t";
        assert_eq!(ask(&mut session, rows).await, Ok(Some("0".to_owned())));
    }
    // Where something binds it to its replica it is told that it cannot have them.
    session
        .query_drop("FOREBAY SET read_consistency = DEFAULT")
        .await
        .unwrap();
    let port = begin(&mut session, sandbox).await;
    session.query_drop("SELECT CAST('x' AS SIGNED)").await.unwrap();
    session.query_drop("GET DIAGNOSTICS @n = NUMBER").await.unwrap();
    let refused = ask(&mut session, "FOREBAY SET read_consistency = strong").await;
    assert_eq!(refused, Err(1290));
    assert_eq!(cluster::where_am_i(&mut session).await, port);
}

/// `GET DIAGNOSTICS` binds a session to the connection that has them: it cannot write, but is told so.
#[tokio::test]
async fn what_binds_a_session_to_the_replica_keeps_it_there() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(split(sandbox), 2).await;
    let mut session = cluster::connect(&gateway).await;
    let port = begin(&mut session, sandbox).await;
    session.query_drop("SELECT CAST('x' AS SIGNED)").await.unwrap();
    session.query_drop("GET DIAGNOSTICS @n = NUMBER").await.unwrap();
    assert_eq!(ask(&mut session, "SELECT @n").await, Ok(Some("1".to_owned())));
    assert_eq!(ask(&mut session, "CREATE TABLE never (id INT)").await, Err(1290));
    assert_eq!(cluster::where_am_i(&mut session).await, port);
    session.query_drop("COMMIT").await.unwrap();
    assert_eq!(count(&gateway, "moved"), 0);
}
