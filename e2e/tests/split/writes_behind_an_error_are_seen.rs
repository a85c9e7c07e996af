use e2e::{Gateway, client, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Lent, Node};

use crate::cluster::{self, ask};

/// From here on nothing is applied there.
fn stop(replica: &Node) {
    let statement = match kind() {
        Kind::Mysql => "STOP REPLICA SQL_THREAD",
        _ => "STOP SLAVE SQL_THREAD",
    };
    replica.sql(statement).unwrap();
}

/// A session that has written, in front of replicas that have that and get no more.
async fn stage(schema: &str) -> (Lent, Gateway, Conn) {
    let sandbox = cluster::replicated();
    cluster::schema(
        &sandbox,
        schema,
        "CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE a (id INT)",
    );
    let setup = cluster::split(&sandbox)
        .listener("read_consistency = \"session\"")
        .cluster("read_wait = \"30ms\"\nmax_lag = \"60s\"");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, schema).await;
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    sandbox.sync().unwrap();
    sandbox.nodes()[1..].iter().for_each(stop);
    (sandbox, gateway, session)
}

async fn refused(session: &mut Conn, statement: &str, code: u16) {
    let error = session.query_drop(statement).await.unwrap_err();
    assert_eq!(client::code(&error), code, "{statement}: {error}");
}

async fn count(session: &mut Conn) -> String {
    ask(session, "SELECT COUNT(*) FROM t").await.unwrap().unwrap()
}

/// A statement of the schema commits before it fails.
#[tokio::test]
async fn of_a_transaction_that_it_has_committed() {
    let (_sandbox, _gateway, mut session) = stage("committed").await;
    assert_eq!(count(&mut session).await, "1", "the replicas have it");
    for (id, statement, code) in [
        (2, "CREATE TABLE t (id INT)", 1050),
        (3, "DROP VIEW nosuch", 1051),
    ] {
        session.query_drop("BEGIN").await.unwrap();
        session
            .query_drop(format!("INSERT INTO t VALUES ({id})"))
            .await
            .unwrap();
        let code = if id == 3 && kind() != Kind::Mysql {
            4092
        } else {
            code
        };
        refused(&mut session, statement, code).await;
        session.query_drop("ROLLBACK").await.unwrap();
        assert_eq!(cluster::pins(&mut session).await, [""; 0], "{statement}");
        assert_eq!(count(&mut session).await, id.to_string(), "{statement}");
    }
}

/// A procedure that has written, and fails then.
#[tokio::test]
async fn of_a_procedure() {
    let (_sandbox, _gateway, mut session) = stage("called").await;
    let procedure = "CREATE PROCEDURE p() BEGIN INSERT INTO t VALUES (2); INSERT INTO t VALUES (2); END";
    session.query_drop(procedure).await.unwrap();
    refused(&mut session, "CALL p()", 1062).await;
    session.reset().await.unwrap();
    session.query_drop("USE called").await.unwrap();
    assert_eq!(count(&mut session).await, "2");
}

/// MariaDB drops those that are there.
#[tokio::test]
async fn of_a_statement_that_was_done_in_part() {
    let (_sandbox, _gateway, mut session) = stage("partly").await;
    refused(&mut session, "DROP TABLE a, nosuch", 1051).await;
    let found = ask(&mut session, "SELECT COUNT(*) FROM a").await;
    match kind() {
        Kind::Mysql => assert_eq!(found, Ok(Some("0".to_owned()))),
        _ => assert_eq!(found, Err(1146)),
    }
}

/// What a text would have set is not carried to where nobody may set it.
#[tokio::test]
async fn or_not_there_where_it_was_not_executed() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    let mut session = cluster::connect_to(&gateway, sandbox::DATABASE).await;
    refused(
        &mut session,
        "SET time_zone = '+00:00'; SET SESSION max_allowed_packet = 67108864",
        1621,
    )
    .await;
    assert_eq!(
        ask(&mut session, "SELECT @@time_zone").await,
        Ok(Some("+00:00".to_owned()))
    );
    for _ in 0..4 {
        ask(&mut session, cluster::WHERE_AM_I).await.unwrap();
    }
    drop(session);
    for _ in 0..4 {
        let mut other = cluster::connect_to(&gateway, sandbox::DATABASE).await;
        ask(&mut other, cluster::WHERE_AM_I).await.unwrap();
        other.query_drop("DO 1").await.unwrap();
    }
}
