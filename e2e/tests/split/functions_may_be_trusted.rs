//! A function that is not the server's own may do anything: it binds its session to the primary, unless an option, a rule or a hint says that
//! it only reads.

use std::collections::HashSet;

use e2e::{Gateway, Setup};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::cluster;

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

async fn pins(session: &mut Conn) -> Vec<(String, String)> {
    session.query("FOREBAY SHOW PINS").await.unwrap()
}

#[tokio::test]
async fn but_are_not_by_themselves() {
    let (_gateway, mut session) = start("trusted_by_nobody", cluster::split(cluster::shared())).await;
    for _ in 0..5 {
        let port: Option<u16> = session.query_first(CALL).await.unwrap();
        assert_eq!(port, Some(cluster::shared().primary().port()));
    }
    assert_eq!(pins(&mut session).await[0].0, "unknown-function");
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
    assert_eq!(pins(&mut session).await[0].0, "procedure");
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
