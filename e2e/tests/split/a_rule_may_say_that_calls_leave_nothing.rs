//! `pin = "never"` for what nobody understands: its session shares its connection on, and still knows what
//! the statement has done.

use e2e::{Gateway, client, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::Kind;

use crate::cluster::{self, ask, pins};

const TABLES: [&str; 6] = [
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 500",
    "CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 70000",
    "CREATE PROCEDURE inserts() INSERT INTO t (v) VALUES (1), (2)",
    "CREATE PROCEDURE shows() BEGIN SELECT 1 UNION SELECT 2 UNION SELECT 3; SELECT 4; END",
    "CREATE PROCEDURE nothing() BEGIN END",
    "CREATE PROCEDURE fails() BEGIN START TRANSACTION; INSERT INTO t (v) VALUES (7); SIGNAL SQLSTATE '45000'; END",
];

async fn directly(schema: &str) -> Conn {
    let mut direct = Conn::new(client::options_at(cluster::single().primary().port()))
        .await
        .unwrap();
    for statement in [format!("CREATE DATABASE {schema}"), format!("USE {schema}")] {
        direct.query_drop(statement).await.unwrap();
    }
    for statement in TABLES {
        direct.query_drop(statement).await.unwrap();
    }
    direct
}

/// Over one connection: whoever keeps it keeps it from all others.
fn gateway() -> Gateway {
    let rule = "[[rule]]\ndigest_text = '^(CALL|EXECUTE) '\npin = \"never\"";
    cluster::narrow(cluster::single(), 1)
        .cluster("queue_timeout = \"50s\"")
        .tables(rule)
        .start()
}

/// Somebody else on the same connection.
async fn noise(other: &mut Conn) {
    for statement in [
        "INSERT INTO n (v) VALUES (1), (2), (3)",
        "SELECT v FROM n LIMIT 7",
    ] {
        other.query_drop(statement).await.unwrap();
    }
}

#[tokio::test]
async fn and_their_session_shares_on() {
    let mut direct = directly("calls_there").await;
    directly("calls_here").await;
    let gateway = gateway();
    let mut own = cluster::connect_to(&gateway, "calls_here").await;
    let mut other = cluster::connect_to(&gateway, "calls_here").await;
    let calls = [
        "CALL inserts()",
        "CALL shows()",
        "CALL nothing()",
        "CALL inserts()",
    ];
    let immediate = ["EXECUTE IMMEDIATE 'INSERT INTO t (v) VALUES (4)'"];
    let of_mariadb = immediate.iter().filter(|_| kind() != Kind::Mysql);
    for call in calls.iter().chain(of_mariadb) {
        for figure in ["LAST_INSERT_ID()", "ROW_COUNT()"] {
            for is_prepared in [false, !call.starts_with("EXECUTE")] {
                for session in [&mut direct, &mut own] {
                    session.query_drop("INSERT INTO t (v) VALUES (3)").await.unwrap();
                    session.query_drop("SELECT v FROM t LIMIT 2").await.unwrap();
                }
                noise(&mut other).await;
                for session in [&mut direct, &mut own] {
                    match is_prepared {
                        true => session.exec_drop(*call, ()).await.unwrap(),
                        false => session.query_drop(*call).await.unwrap(),
                    }
                }
                assert_eq!(pins(&mut own).await, [""; 0], "{call}");
                noise(&mut other).await;
                let ask_figure = format!("SELECT {figure}");
                let (there, here) = (
                    ask(&mut direct, &ask_figure).await,
                    ask(&mut own, &ask_figure).await,
                );
                assert_eq!(here, there, "{figure} after {call}, prepared: {is_prepared}");
            }
        }
    }
}

/// An error does not say whether a transaction is open.
#[tokio::test]
async fn but_a_transaction_stays_together() {
    directly("calls_open").await;
    let gateway = gateway();
    let mut own = cluster::connect_to(&gateway, "calls_open").await;
    own.query_drop("CALL fails()").await.unwrap_err();
    assert!(pins(&mut own).await.contains(&"unsettled".to_owned()));
    own.query_drop("INSERT INTO t (v) VALUES (8)").await.unwrap();
    assert!(pins(&mut own).await.contains(&"transaction".to_owned()));
    own.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(
        ask(&mut own, "SELECT COUNT(*) FROM t").await,
        Ok(Some("0".to_owned()))
    );
    assert_eq!(pins(&mut own).await, [""; 0]);
}
