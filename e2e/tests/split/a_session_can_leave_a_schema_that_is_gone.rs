//! A session whose schema somebody has dropped goes to another one, or makes it again, as on one server. No
//! statement of it is executed in the schema that somebody else's connection happens to be in.

use e2e::{Gateway, client};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use mysql_wire::Capabilities;

use crate::cluster::{self, ask};

const COM_INIT_DB: u8 = 2;

/// Drops the schema of the others, and takes their only connection elsewhere.
async fn drop_schema(gateway: &Gateway, name: &str) {
    cluster::single()
        .primary()
        .sql(&format!("DROP DATABASE {name}"))
        .unwrap();
    let mut other = cluster::connect_to(gateway, "schema_that_stays").await;
    other.query_drop("UPDATE t SET v = v").await.unwrap();
    other.disconnect().await.unwrap();
}

async fn stuck(gateway: &Gateway) -> Conn {
    cluster::single()
        .primary()
        .sql("CREATE DATABASE schema_that_goes")
        .unwrap();
    let mut session = cluster::connect_to(gateway, "schema_that_goes").await;
    session
        .query_drop("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        .await
        .unwrap();
    drop_schema(gateway, "schema_that_goes").await;
    session
}

#[tokio::test]
async fn or_make_it_again() {
    let statements = "CREATE DATABASE schema_that_stays; USE schema_that_stays;
        CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1);";
    cluster::single().primary().sql(statements).unwrap();
    let gateway = cluster::narrow(cluster::single(), 1).start();
    let value = "SELECT v FROM schema_that_stays.t";

    let mut session = stuck(&gateway).await;
    let refused = session.query_drop("UPDATE t SET v = 2").await.unwrap_err();
    assert_eq!(client::code(&refused), 1049, "{refused}");
    let refused = session.query_drop("USE nowhere").await.unwrap_err();
    assert_eq!(client::code(&refused), 1049, "{refused}");
    let refused = session.query_drop("UPDATE t SET v = 2").await.unwrap_err();
    assert!([1046, 1049].contains(&client::code(&refused)), "{refused}");
    session.query_drop("USE schema_that_stays").await.unwrap();
    assert_eq!(
        ask(&mut session, "SELECT DATABASE()").await,
        Ok(Some("schema_that_stays".to_owned()))
    );
    assert_eq!(ask(&mut session, value).await, Ok(Some("1".to_owned())));
    session.query_drop("UPDATE t SET v = 2").await.unwrap();
    session.disconnect().await.unwrap();

    let mut session = stuck(&gateway).await;
    session
        .query_drop("CREATE DATABASE schema_that_goes")
        .await
        .unwrap();
    session.query_drop("CREATE TABLE made (id INT)").await.unwrap();
    assert_eq!(
        ask(&mut session, "SELECT COUNT(*) FROM schema_that_goes.made").await,
        Ok(Some("0".to_owned()))
    );
    assert_eq!(ask(&mut session, value).await, Ok(Some("2".to_owned())));
    session.disconnect().await.unwrap();

    let address = gateway.address();
    let mut raw = cluster::connect_raw(&address, "schema_that_goes", Capabilities::default());
    drop_schema(&gateway, "schema_that_goes").await;
    raw.send_payload(0, &[&[COM_INIT_DB], &b"schema_that_stays"[..]].concat())
        .unwrap();
    let answer = raw.packet().unwrap().payload;
    assert_eq!(answer[0], 0, "{}", answer.escape_ascii());
}
