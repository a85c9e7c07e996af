use e2e::{client, eventually, kind};
use mysql_async::prelude::Queryable;
use sandbox::Kind;

use crate::a_new_primary_is_followed::{follow, promote};
use crate::cluster::{self, ask};

/// A replica was promoted, another follows it, and the old primary was left as it was.
#[tokio::test]
async fn until_there_is_one() {
    let sandbox = cluster::replicated();
    cluster::schema(&sandbox, "twice", "CREATE TABLE t (id INT PRIMARY KEY)");
    let gateway = cluster::start(cluster::split(&sandbox).cluster("failover_wait = \"30s\""), 2).await;
    let mut session = cluster::connect_to(&gateway, "twice").await;
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    sandbox.sync().unwrap();
    promote(sandbox.node(1));
    follow(sandbox.node(2), sandbox.node(1), false);
    eventually("writes are refused", async || {
        gateway.metric("forebay_writes_refused", &[]) == 1.0
    })
    .await;
    for statement in ["INSERT INTO t VALUES (2)", "BEGIN"] {
        let error = session.query_drop(statement).await.unwrap_err();
        assert_eq!(client::code(&error), 1290, "{error}");
        let text = error.to_string();
        assert!(text.contains("writes are refused"), "{text}");
        for node in [sandbox.node(0), sandbox.node(1)] {
            assert!(text.contains(&node.address()), "{text}");
        }
    }
    eventually("the log says so", async || gateway.log().contains("take writes")).await;
    // Reads go on, and so do new sessions, once the replica is seen to follow again.
    eventually("sessions are served", async || gateway.get("/readyz").0 == 200).await;
    let (_, ready) = gateway.get("/readyz");
    let said = ready.strip_prefix("ok\ncluster main: writes are refused: ");
    assert!(said.is_some_and(|said| said.lines().count() == 1), "{ready}");

    let read_only = match kind() {
        Kind::Mysql => "SET GLOBAL super_read_only = ON",
        _ => "SET GLOBAL read_only = ON",
    };
    sandbox.node(0).sql(read_only).unwrap();
    eventually("writes are no longer refused", async || {
        gateway.metric("forebay_writes_refused", &[]) == 0.0
    })
    .await;
    assert_eq!(gateway.get("/readyz"), (200, "ok\n".to_owned()));
    session.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    let rows = ask(&mut session, "SELECT COUNT(*) FROM t").await;
    assert_eq!(rows, Ok(Some("2".to_owned())));
    let rows = |node: &sandbox::Node| node.sql("SELECT COUNT(*) FROM twice.t").unwrap();
    assert_eq!(
        (rows(sandbox.node(0)).trim(), rows(sandbox.node(1)).trim()),
        ("1", "2")
    );
}
