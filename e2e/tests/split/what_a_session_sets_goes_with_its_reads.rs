//! What a connection lacks of a session's state goes ahead of its reads, in the same write: the server has
//! both before it has answered.

use e2e::link::Link;
use e2e::{Gateway, Setup, client, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{PASSWORD, USER};
use testkit::lossy_link::Fault;

use crate::cluster::{self, ask};

/// One connection for all sessions, over a link.
fn start(schema: &str) -> (Gateway, Link) {
    let rows = "CREATE TABLE held (n INT); INSERT INTO held VALUES (1)";
    cluster::schema(cluster::single(), schema, rows);
    let link = Link::to(cluster::single());
    let address = link.address().to_string();
    let server = format!("{{ address = {address:?}, max_connections = 1, role = \"primary\" }}");
    let gateway = Setup::of_addresses(vec![address])
        .servers([server])
        .mode("split")
        .top("workers = 1")
        .tables(&cluster::user(USER, PASSWORD))
        // A link that stalls for a while is no server that is down.
        .check("interval = \"200ms\"\ntimeout = \"60s\"\nrise = 1")
        .start();
    (gateway, link)
}

#[tokio::test]
async fn before_the_server_has_answered() {
    let (gateway, link) = start("ahead");
    let mut own = cluster::connect_to(&gateway, "ahead").await;
    let mut other = cluster::connect_to(&gateway, "mysql").await;
    own.query_drop("SET NAMES utf8mb4 COLLATE utf8mb4_bin")
        .await
        .unwrap();
    assert_eq!(
        ask(&mut other, "SELECT DATABASE()").await,
        Ok(Some("mysql".to_owned()))
    );
    // Who reads waits for who writes; until then its statement is to be seen there.
    let direct = client::options_at(cluster::single().primary().port());
    let mut direct = Conn::new(direct).await.unwrap();
    direct.query_drop("LOCK TABLES ahead.held WRITE").await.unwrap();
    link.set_to_client(Fault::Stall);
    let question = "SELECT CONCAT(n, REPEAT('x', 200000)) FROM held WHERE 'a' <> 'A'";
    let reading = tokio::spawn(async move { ask(&mut own, question).await });
    eventually("the server has the read", async || {
        let list = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT CONCAT(n%'";
        direct.query_first(list).await.unwrap() == Some(1)
    })
    .await;
    link.set_to_client(Fault::None);
    direct.query_drop("UNLOCK TABLES").await.unwrap();
    let answer = reading.await.unwrap().unwrap().unwrap();
    assert_eq!(answer.trim_end_matches('x'), "1");
    assert_eq!(answer.len(), "1".len() + 200_000);
}

/// An error of the state is the statement's, and nothing of what the server said to the statement is seen.
#[tokio::test]
async fn or_not_at_all_where_the_server_refuses_it() {
    const ER_BAD_DB_ERROR: u16 = 1049;
    let (gateway, _link) = start("ahead_refused");
    let mut own = cluster::connect_to(&gateway, "ahead_refused").await;
    let mut other = cluster::connect_to(&gateway, "mysql").await;
    for _ in 0..3 {
        assert_eq!(
            ask(&mut own, "SELECT n FROM held").await,
            Ok(Some("1".to_owned()))
        );
        assert_eq!(
            ask(&mut other, "SELECT DATABASE()").await,
            Ok(Some("mysql".to_owned()))
        );
        let direct = cluster::single().primary();
        direct.sql("DROP DATABASE ahead_refused").unwrap();
        let answer = ask(&mut own, "SELECT DATABASE()").await;
        assert_eq!(answer, Err(ER_BAD_DB_ERROR));
        assert_eq!(
            ask(&mut other, "SELECT DATABASE()").await,
            Ok(Some("mysql".to_owned()))
        );
        let again = "CREATE DATABASE ahead_refused; CREATE TABLE ahead_refused.held SELECT 1 AS n";
        direct.sql(again).unwrap();
        assert_eq!(
            ask(&mut own, "SELECT DATABASE()").await,
            Ok(Some("ahead_refused".to_owned()))
        );
    }
}
