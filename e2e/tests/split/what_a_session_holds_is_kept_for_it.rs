//! The rows of "What trackers show and hide" in which a session holds something on its connection: nobody
//! else is given that connection, and what is held is there until it is let go.

use std::sync::Once;

use e2e::{Gateway, eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::Kind;

use crate::cluster::{self, ask, pins};

const SCHEMA: &str = "holdings";

/// Two sessions over two connections, so that what one holds does not keep the other waiting.
async fn sessions() -> (Gateway, Conn, Conn) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        cluster::schema(
            cluster::single(),
            SCHEMA,
            "CREATE TABLE locked (n INT); INSERT INTO locked VALUES (1);
             CREATE TABLE counted (n INT PRIMARY KEY); INSERT INTO counted VALUES (1), (2), (3);
             CREATE TABLE changed (n INT PRIMARY KEY);
             CREATE PROCEDURE takes_lock() DO GET_LOCK('procedure', 0);
             CREATE FUNCTION takes_lock() RETURNS INT NO SQL RETURN GET_LOCK('function', 0);
             CREATE TABLE triggering (n INT);
             CREATE TRIGGER takes BEFORE INSERT ON triggering FOR EACH ROW SET NEW.n = GET_LOCK('trigger', 0);",
        );
    });
    let gateway = cluster::narrow(cluster::single(), 2).start();
    let own = cluster::connect_to(&gateway, SCHEMA).await;
    let mut other = cluster::connect_to(&gateway, SCHEMA).await;
    other
        .query_drop("SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
        .await
        .unwrap();
    (gateway, own, other)
}

fn value(text: &str) -> Result<Option<String>, u16> {
    Ok(Some(text.to_owned()))
}

/// The other session goes through as many statements as it takes to be on every connection that is not held.
async fn work(other: &mut Conn) {
    for _ in 0..4 {
        other.query_drop("SELECT COUNT(*) FROM counted").await.unwrap();
        other.exec_drop("SELECT ? + 1", (1,)).await.unwrap();
    }
}

#[tokio::test]
async fn user_locks() {
    let (_gateway, mut own, mut other) = sessions().await;
    let takers = [
        ("SELECT GET_LOCK('plain', 0)", "plain"),
        ("DO GET_LOCK('done', 0)", "done"),
        (
            "SELECT n FROM counted WHERE n = 1 AND GET_LOCK('filter', 0)",
            "filter",
        ),
        ("CALL takes_lock()", "procedure"),
        ("SELECT takes_lock()", "function"),
        ("INSERT INTO triggering VALUES (0)", "trigger"),
    ];
    for (take, name) in takers {
        let is_free = format!("SELECT IS_FREE_LOCK('{name}')");
        assert_eq!(ask(&mut other, &is_free).await, value("1"), "{take}");
        own.query_drop(take).await.unwrap();
        for _ in 0..3 {
            work(&mut other).await;
            assert_eq!(ask(&mut other, &is_free).await, value("0"), "{take}");
        }
        let release = format!("SELECT RELEASE_LOCK('{name}')");
        assert_eq!(ask(&mut other, &release).await, value("0"), "{take}");
        assert_eq!(ask(&mut own, &release).await, value("1"), "{take}");
        assert_eq!(ask(&mut other, &is_free).await, value("1"), "{take}");
    }
    own.query_drop("DO RELEASE_ALL_LOCKS()").await.unwrap();
}

#[tokio::test]
async fn until_it_has_gone() {
    let (gateway, mut own, mut other) = sessions().await;
    own.query_drop("SELECT GET_LOCK('left', 0)").await.unwrap();
    own.query_drop("BEGIN").await.unwrap();
    own.query_drop("INSERT INTO changed VALUES (100)").await.unwrap();
    own.query_drop("CREATE TEMPORARY TABLE left_behind (n INT)")
        .await
        .unwrap();
    assert_eq!(ask(&mut other, "SELECT IS_FREE_LOCK('left')").await, value("0"));
    own.disconnect().await.unwrap();
    eventually("the lock is free", async || {
        ask(&mut other, "SELECT IS_FREE_LOCK('left')").await == value("1")
    })
    .await;
    let mut later = cluster::connect_to(&gateway, SCHEMA).await;
    for session in [&mut other, &mut later] {
        session.query_drop("BEGIN").await.unwrap();
        assert_eq!(
            ask(session, "SELECT COUNT(*) FROM changed WHERE n = 100").await,
            value("0")
        );
        assert_eq!(ask(session, "SELECT * FROM left_behind").await, Err(1146));
    }
}

#[tokio::test]
async fn table_locks() {
    let (_gateway, mut own, mut other) = sessions().await;
    own.query_drop("LOCK TABLES locked WRITE").await.unwrap();
    work(&mut other).await;
    assert_eq!(ask(&mut other, "SELECT n FROM locked").await, Err(1205));
    assert_eq!(ask(&mut own, "SELECT n FROM locked").await, value("1"));
    // The others' tables are not locked, and so not for whoever locks.
    assert_eq!(ask(&mut own, "SELECT COUNT(*) FROM counted").await, Err(1100));
    own.query_drop("UNLOCK TABLES").await.unwrap();
    assert_eq!(ask(&mut other, "SELECT n FROM locked").await, value("1"));
    assert_eq!(ask(&mut own, "SELECT COUNT(*) FROM counted").await, value("3"));
    assert_eq!(pins(&mut own).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_read_lock_of_all_tables() {
    // A server of its own: nobody can write.
    let sandbox = &e2e::servers(1)[0];
    let gateway = cluster::narrow(sandbox, 2).start();
    let mut own = cluster::connect(&gateway).await;
    let mut other = cluster::connect(&gateway).await;
    other.query_drop("SET lock_wait_timeout = 1").await.unwrap();
    other.query_drop("CREATE TABLE t (n INT)").await.unwrap();
    own.query_drop("FLUSH TABLES WITH READ LOCK").await.unwrap();
    for _ in 0..3 {
        other.query_drop("SELECT COUNT(*) FROM t").await.unwrap();
    }
    assert_eq!(ask(&mut other, "INSERT INTO t VALUES (1)").await, Err(1205));
    assert_eq!(pins(&mut own).await, ["global-lock"]);
    own.query_drop("UNLOCK TABLES").await.unwrap();
    other.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
}

#[tokio::test]
async fn handlers() {
    let (_gateway, mut own, mut other) = sessions().await;
    own.query_drop("HANDLER counted OPEN AS h").await.unwrap();
    assert_eq!(ask(&mut own, "HANDLER h READ FIRST").await, value("1"));
    for expected in ["2", "3"] {
        work(&mut other).await;
        assert_eq!(ask(&mut other, "HANDLER h READ NEXT").await, Err(1109));
        assert_eq!(ask(&mut own, "HANDLER h READ NEXT").await, value(expected));
    }
    own.query_drop("HANDLER h CLOSE").await.unwrap();
}

#[tokio::test]
async fn transactions() {
    let (_gateway, mut own, mut other) = sessions().await;
    for (number, begin) in ["BEGIN", "START TRANSACTION", "SET autocommit = 0"]
        .iter()
        .enumerate()
    {
        let row = format!("SELECT COUNT(*) FROM changed WHERE n = {number}");
        own.query_drop(*begin).await.unwrap();
        own.query_drop(format!("INSERT INTO changed VALUES ({number})"))
            .await
            .unwrap();
        work(&mut other).await;
        assert_eq!(ask(&mut other, &row).await, value("0"));
        assert_eq!(ask(&mut own, &row).await, value("1"));
        own.query_drop("SAVEPOINT here").await.unwrap();
        assert_eq!(
            ask(&mut own, &format!("DELETE FROM changed WHERE n = {number}")).await,
            Ok(None)
        );
        work(&mut other).await;
        own.query_drop("ROLLBACK TO here").await.unwrap();
        own.query_drop("COMMIT").await.unwrap();
        assert_eq!(ask(&mut other, &row).await, value("1"));
    }
    // A read begins a transaction where there is no autocommit, and sees what it saw.
    assert_eq!(
        ask(&mut own, "SELECT COUNT(*) FROM changed WHERE n = 50").await,
        value("0")
    );
    other.query_drop("INSERT INTO changed VALUES (50)").await.unwrap();
    assert_eq!(
        ask(&mut own, "SELECT COUNT(*) FROM changed WHERE n = 50").await,
        value("0")
    );
    own.query_drop("COMMIT").await.unwrap();
    assert_eq!(
        ask(&mut own, "SELECT COUNT(*) FROM changed WHERE n = 50").await,
        value("1")
    );
    // A transaction that follows at once on the one before.
    own.query_drop("COMMIT; SET autocommit = 1; BEGIN").await.unwrap();
    own.query_drop("INSERT INTO changed VALUES (51)").await.unwrap();
    own.query_drop("COMMIT AND CHAIN").await.unwrap();
    own.query_drop("INSERT INTO changed VALUES (52)").await.unwrap();
    work(&mut other).await;
    own.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(
        ask(&mut other, "SELECT SUM(n) FROM changed WHERE n IN (51, 52)").await,
        value("51")
    );
}

#[tokio::test]
async fn distributed_transactions() {
    let (_gateway, mut own, mut other) = sessions().await;
    let row = "SELECT COUNT(*) FROM changed WHERE n = 200";
    own.query_drop("XA START 'branch'").await.unwrap();
    own.query_drop("INSERT INTO changed VALUES (200)").await.unwrap();
    work(&mut other).await;
    assert_eq!(ask(&mut other, row).await, value("0"));
    own.query_drop("XA END 'branch'").await.unwrap();
    own.query_drop("XA PREPARE 'branch'").await.unwrap();
    work(&mut other).await;
    assert_eq!(ask(&mut other, row).await, value("0"));
    own.query_drop("XA COMMIT 'branch'").await.unwrap();
    assert_eq!(ask(&mut other, row).await, value("1"));
}

/// Statements of one session do not run for another under the same number, and each finds its own again.
#[tokio::test]
async fn prepared_statements() {
    // A server of its own: statements are counted that others prepare there, too.
    let sandbox = &e2e::servers(1)[0];
    let gateway = cluster::narrow(sandbox, 2).start();
    let mut own = cluster::connect(&gateway).await;
    let mut other = cluster::connect(&gateway).await;
    let mut third = cluster::connect(&gateway).await;
    let ours = own.prep("SELECT CONCAT('own', ?)").await.unwrap();
    let others = other.prep("SELECT CONCAT('other', ?, ?)").await.unwrap();
    let thirds = third.prep("SELECT CONCAT('own', ?)").await.unwrap();
    for turn in 0..20 {
        let answer: Option<String> = own.exec_first(&ours, (turn,)).await.unwrap();
        assert_eq!(answer, Some(format!("own{turn}")));
        let answer: Option<String> = other.exec_first(&others, (turn, "x")).await.unwrap();
        assert_eq!(answer, Some(format!("other{turn}x")));
        // The same text with parameters of another type.
        let answer: Option<String> = third
            .exec_first(&thirds, (format!("text {turn}"),))
            .await
            .unwrap();
        assert_eq!(answer, Some(format!("owntext {turn}")));
    }
    third.close(thirds).await.unwrap();
    let answer: Option<String> = own.exec_first(&ours, (0.5,)).await.unwrap();
    assert_eq!(answer, Some("own0.5".to_owned()));
    let status = sandbox
        .primary()
        .sql("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")
        .unwrap();
    let count: u32 = status.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(count < 20, "prepared once a connection: {status}");
}

/// A table that changes its columns makes servers prepare anew.
#[tokio::test]
async fn prepared_statements_of_tables_that_change() {
    let (_gateway, mut own, mut other) = sessions().await;
    own.query_drop("CREATE TABLE altered (a INT); INSERT INTO altered VALUES (1)")
        .await
        .unwrap();
    let statement = own.prep("SELECT * FROM altered").await.unwrap();
    let before: Option<(u8,)> = own.exec_first(&statement, ()).await.unwrap();
    assert_eq!(before, Some((1,)));
    other
        .query_drop("ALTER TABLE altered ADD COLUMN b INT DEFAULT 2")
        .await
        .unwrap();
    work(&mut other).await;
    let after: Option<(u8, u8)> = own.exec_first(&statement, ()).await.unwrap();
    assert_eq!(after, Some((1, 2)));
}

/// What a session is bound by is told, and it is nothing as soon as there is nothing.
#[tokio::test]
async fn and_the_reasons_can_be_asked_for() {
    let (gateway, mut own, _other) = sessions().await;
    let rows: &[(&str, &str, &str)] = &[
        ("BEGIN", "transaction", "COMMIT"),
        ("LOCK TABLES locked READ", "table-locks", "UNLOCK TABLES"),
        ("HANDLER counted OPEN", "handler", "HANDLER counted CLOSE"),
        (
            "SELECT GET_LOCK('reason', 0)",
            "user-lock",
            "DO RELEASE_ALL_LOCKS()",
        ),
    ];
    for (bind, reason, release) in rows {
        own.query_drop(*bind).await.unwrap();
        let reasons = pins(&mut own).await;
        assert!(reasons.iter().any(|seen| seen == reason), "{bind}: {reasons:?}");
        own.query_drop(*release).await.unwrap();
        own.query_drop("SELECT 1").await.unwrap();
        let reasons = pins(&mut own).await;
        assert!(reasons.is_empty(), "after {release}: {reasons:?}");
    }
    let busy = || gateway.metric("forebay_pool_busy", &[]);
    eventually("no connection is held", async || busy() == 0.0).await;
    // What such variables were before is not known for certain: the session keeps the connection even when it
    // sets them back.
    let (_gateway, mut apart, _other) = sessions().await;
    apart.query_drop("SET sql_log_bin = 0").await.unwrap();
    assert!(pins(&mut apart).await.contains(&"binlog-off".to_owned()));
    if kind() == Kind::Mariadb {
        own.query_drop("SET STATEMENT sort_buffer_size = 131072 FOR SELECT 1")
            .await
            .unwrap();
        own.query_drop("SELECT 1").await.unwrap();
        assert!(pins(&mut own).await.is_empty());
    }
}

/// A branch that was prepared is nobody's, unless its session has it so.
#[tokio::test]
async fn a_branch_that_is_not_detached() {
    if kind() != Kind::Mysql {
        return;
    }
    let (_gateway, mut own, mut other) = sessions().await;
    own.query_drop("SET SESSION xa_detach_on_prepare = OFF")
        .await
        .unwrap();
    for end in ["XA COMMIT 'attached'", "XA ROLLBACK 'attached'"] {
        own.query_drop("XA START 'attached'").await.unwrap();
        own.query_drop("INSERT INTO changed VALUES (77)").await.unwrap();
        own.query_drop("XA END 'attached'").await.unwrap();
        own.query_drop("XA PREPARE 'attached'").await.unwrap();
        let pins = pins(&mut own).await;
        assert!(!pins.is_empty());
        for _ in 0..4 {
            other
                .query_drop("DELETE FROM changed WHERE n = 78")
                .await
                .unwrap();
        }
        own.query_drop(end).await.unwrap();
        own.query_drop("DELETE FROM changed WHERE n = 77").await.unwrap();
    }
}
