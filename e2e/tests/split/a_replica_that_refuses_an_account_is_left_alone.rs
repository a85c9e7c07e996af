//! An account that only the primary knows has its reads there, and nobody asks the replicas each time.

use e2e::eventually;
use mysql_async::prelude::Queryable;
use sandbox::Sandbox;

use crate::accounts::log_in;
use crate::cluster::{self, user, where_am_i};

/// Makes the account on some servers, each by itself.
fn known_to(sandbox: &Sandbox, servers: std::ops::Range<usize>) {
    let statements = "SET sql_log_bin = 0; CREATE USER known_here@'%' IDENTIFIED BY 'hunter2';
                      GRANT ALL ON test.* TO known_here@'%';";
    for node in &sandbox.nodes()[servers] {
        cluster::write_at(node, statements);
    }
}

#[tokio::test]
async fn for_a_while() {
    let sandbox = cluster::shared();
    known_to(sandbox, 0..1);
    let setup = cluster::split(sandbox)
        .top("workers = 1")
        .tables(&user("known_here", "hunter2"));
    let gateway = cluster::start(setup, 2).await;
    let mut session = log_in(&gateway, "known_here", "hunter2").await.unwrap();
    for _ in 0..50 {
        assert_eq!(where_am_i(&mut session).await, sandbox.primary().port());
    }
    let failures = gateway.metric("forebay_pool_open_failures_total", &[]);
    assert!(failures <= 4.0, "{failures}");
    let why = "why=\"account_refused\"";
    let refused = gateway.metric("forebay_split_reads_at_primary_total", &[why]);
    assert!(refused >= 49.0, "{refused}");
    let explained = cluster::why(&mut session).await;
    for port in cluster::replica_ports(sandbox) {
        let name = format!("candidate 127.0.0.1:{port}");
        let (_, reason) = explained.iter().find(|(what, _)| *what == name).unwrap();
        assert!(reason.contains("refuses the account"), "{explained:?}");
    }
    let said = || gateway.log().matches("account is refused by a replica").count();
    eventually("it is in the log", async || said() > 0).await;
    assert!(said() <= 4, "{}", gateway.log());

    known_to(sandbox, 1..3);
    eventually("the replicas are asked again", async || {
        where_am_i(&mut session).await != sandbox.primary().port()
    })
    .await;
    session.query_drop("DO 1").await.unwrap();
}
