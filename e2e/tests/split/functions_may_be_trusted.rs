//! A function that is not the server's own may do anything: it binds its session to the primary, unless an
//! option, a rule or a hint says that it only reads.

use std::collections::HashSet;

use e2e::{Gateway, Setup};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::cluster::{self, ask, pins};

const SCHEMA: &str = "trusted";
const RULE: &str = "[[rule]]\nname = \"known\"\nclass = [\"read\"]\ndigest_text = '\\btwice \\('\nroute = \"replicas\"\npin = \"never\"";
const CALL: &str = "SELECT port FROM test.where_am_i WHERE twice(port) = 2 * port";

async fn start(schema: &str, setup: Setup) -> (Gateway, Conn) {
    cluster::schema(
        cluster::shared(),
        schema,
        "CREATE TABLE t (v INT);
         CREATE FUNCTION twice(n INT) RETURNS INT DETERMINISTIC NO SQL RETURN 2 * n;
         CREATE PROCEDURE nothing() DO 1;",
    );
    let gateway = cluster::start(setup, 2).await;
    let session = cluster::connect_to(&gateway, schema).await;
    (gateway, session)
}

#[tokio::test]
async fn but_are_not_by_themselves() {
    let (_gateway, mut session) = start("trusted_by_nobody", cluster::split(cluster::shared())).await;
    for _ in 0..5 {
        let port: Option<u16> = session.query_first(CALL).await.unwrap();
        assert_eq!(port, Some(cluster::shared().primary().port()));
    }
    assert_eq!(pins(&mut session).await, ["unknown-function"]);
}

#[tokio::test]
async fn by_a_rule() {
    let (_gateway, mut session) = start(SCHEMA, cluster::split(cluster::shared()).tables(RULE)).await;
    let replicas: HashSet<u16> = cluster::replica_ports(cluster::shared()).into_iter().collect();
    for prepared in [false, true] {
        let mut ports = HashSet::new();
        for _ in 0..40 {
            let port: Option<u16> = if prepared {
                session.exec_first(CALL, ()).await.unwrap()
            } else {
                session.query_first(CALL).await.unwrap()
            };
            ports.insert(port.unwrap());
        }
        assert_eq!(ports, replicas, "prepared: {prepared}");
        assert!(pins(&mut session).await.is_empty());
    }
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
}

#[tokio::test]
async fn by_an_option() {
    let setup = cluster::split(cluster::shared()).cluster("trust_functions = true");
    let (_gateway, mut session) = start("trusted_by_option", setup).await;
    let mut ports = HashSet::new();
    for _ in 0..40 {
        let port: Option<u16> = session.query_first(CALL).await.unwrap();
        ports.insert(port.unwrap());
        let port: Option<u16> = session.exec_first(CALL, ()).await.unwrap();
        ports.insert(port.unwrap());
        assert!(pins(&mut session).await.is_empty());
    }
    let replicas: HashSet<u16> = cluster::replica_ports(cluster::shared()).into_iter().collect();
    assert_eq!(ports, replicas);
    session
        .query_drop("INSERT INTO t VALUES (twice(1))")
        .await
        .unwrap();
    assert!(pins(&mut session).await.is_empty());
    session.query_drop("CALL nothing()").await.unwrap();
    assert_eq!(pins(&mut session).await[0], "procedure");
}

/// What it may read of its session is that of its session.
#[tokio::test]
async fn to_read_the_id_that_was_made_last() {
    let setup = cluster::split(cluster::shared()).cluster("trust_functions = true");
    let (gateway, mut session) = start("trusted_to_read", setup).await;
    for statement in [
        "CREATE TABLE numbered (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 70",
        "CREATE FUNCTION made_last() RETURNS BIGINT DETERMINISTIC NO SQL RETURN LAST_INSERT_ID()",
    ] {
        session.query_drop(statement).await.unwrap();
    }
    let mut other = cluster::connect_to(&gateway, "trusted_to_read").await;
    let mut none = cluster::connect_to(&gateway, "trusted_to_read").await;
    for hint in ["", "/* forebay: replica */ "] {
        let question = format!("{hint}SELECT made_last()");
        for _ in 0..3 {
            for session in [&mut session, &mut other] {
                session
                    .query_drop("INSERT INTO numbered (v) VALUES (1)")
                    .await
                    .unwrap();
            }
            for _ in 0..4 {
                for session in [&mut session, &mut other, &mut none] {
                    let made = session.last_insert_id();
                    let expected = ask(session, "SELECT LAST_INSERT_ID()").await;
                    assert!(
                        made.is_none_or(|made| expected == Ok(Some(made.to_string()))),
                        "{made:?}"
                    );
                    assert_eq!(ask(session, &question).await, expected);
                    let prepared: Option<u64> = session.exec_first(&question, ()).await.unwrap();
                    assert_eq!(prepared.map(|id| id.to_string()), expected.unwrap());
                }
            }
        }
    }
    assert_eq!(
        ask(&mut none, "SELECT made_last()").await,
        Ok(Some("0".to_owned()))
    );
}

#[tokio::test]
async fn by_a_hint() {
    let (_gateway, mut session) = start("trusted_by_hint", cluster::split(cluster::shared())).await;
    let replicas = cluster::replica_ports(cluster::shared());
    let hinted = format!("/* forebay: replica */ {CALL}");
    for _ in 0..5 {
        let port: Option<u16> = session.query_first(&hinted).await.unwrap();
        assert!(replicas.contains(&port.unwrap()), "{port:?}");
        // It is no reason to stay there.
        session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
        let port: Option<u16> = session.exec_first(&hinted, ()).await.unwrap();
        assert!(replicas.contains(&port.unwrap()), "{port:?}");
        session.exec_drop("INSERT INTO t VALUES (?)", (2,)).await.unwrap();
    }
}
