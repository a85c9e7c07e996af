//! `FOREBAY SET read_consistency`: a session's own word goes before that of its account and its listener.

use e2e::{Gateway, client, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Sandbox};

use crate::cluster::{self, ask};

/// Replicas that apply nothing from here on.
fn stop_applying(sandbox: &Sandbox) {
    for replica in &sandbox.nodes()[1..] {
        let statement = match kind() {
            Kind::Mysql => "STOP REPLICA SQL_THREAD",
            _ => "STOP SLAVE SQL_THREAD",
        };
        replica.sql(statement).unwrap();
    }
}

async fn says(session: &mut Conn, value: &str) {
    session
        .query_drop(format!("FOREBAY SET read_consistency = {value}"))
        .await
        .unwrap();
}

/// By the configuration's word the replicas may be used although they apply nothing any more.
async fn start(sandbox: &Sandbox) -> Gateway {
    let server = |(index, address): (usize, String)| {
        let role = if index == 0 { "primary" } else { "replica" };
        format!("{{ address = {address:?}, role = {role:?} }}")
    };
    let setup = e2e::Setup::of_addresses([])
        .servers(sandbox.addresses().into_iter().enumerate().map(server))
        .mode("split")
        .tables(&cluster::user(sandbox::USER, sandbox::PASSWORD))
        .listener("read_consistency = \"eventual\"")
        .cluster("read_wait = \"100ms\"")
        .cluster(&cluster::monitor());
    cluster::start(setup, 2).await
}

#[tokio::test]
async fn until_it_is_reset() {
    let sandbox = cluster::replicated();
    cluster::schema(
        &sandbox,
        "said",
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (1)",
    );
    let gateway = start(&sandbox).await;
    let mut session = cluster::connect_to(&gateway, "said").await;
    let mut other = cluster::connect_to(&gateway, "said").await;
    stop_applying(&sandbox);
    session.query_drop("UPDATE t SET v = 2").await.unwrap();

    let value = |text: &str| Ok(Some(text.to_owned()));
    for (said, own, of_another) in [
        ("session", "2", "1"),
        ("'strong'", "2", "2"),
        ("eventual", "1", "1"),
        ("strong", "2", "2"),
        ("DEFAULT", "1", "1"),
    ] {
        says(&mut session, said).await;
        says(&mut other, said).await;
        for _ in 0..3 {
            assert_eq!(ask(&mut session, "SELECT v FROM t").await, value(own), "{said}");
            assert_eq!(
                ask(&mut other, "SELECT v FROM t").await,
                value(of_another),
                "{said}"
            );
            let prepared: Option<u32> = other.exec_first("SELECT v FROM t", ()).await.unwrap();
            assert_eq!(
                prepared.map(|v| v.to_string()).as_deref(),
                Some(of_another),
                "{said}"
            );
        }
    }

    says(&mut session, "strong").await;
    assert_eq!(ask(&mut session, "SELECT v FROM t").await, value("2"));
    assert!(session.reset().await.unwrap());
    session.query_drop("USE said").await.unwrap();
    assert_eq!(
        ask(&mut session, "SELECT v FROM t").await,
        value("1"),
        "it was reset"
    );

    let explained: Vec<(String, String)> = {
        says(&mut session, "session").await;
        session.query("FOREBAY EXPLAIN SELECT v FROM t").await.unwrap()
    };
    let row = ("read_consistency".to_owned(), "session".to_owned());
    assert!(explained.contains(&row), "{explained:?}");

    let wrong = session.query_drop("FOREBAY SET read_consistency = fresh").await;
    assert_eq!(client::code(&wrong.unwrap_err()), 1064);
    assert_eq!(ask(&mut session, "SELECT 1").await, value("1"));
}
