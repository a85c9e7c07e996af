//! A list of servers with roles says who the primary is, whether it takes writes or not.

use e2e::{client, eventually, kind};
use mysql_async::prelude::Queryable;
use sandbox::Kind;

use crate::accounts::{account, log_in, sql};
use crate::cluster::{self, user};

#[tokio::test]
async fn with_its_own_words() {
    let sandbox = &e2e::servers(1)[0];
    account(sandbox, "writer");
    sql(sandbox, "CREATE TABLE test.t (n INT)");
    sql(
        sandbox,
        match kind() {
            Kind::Mysql => "SET GLOBAL super_read_only = ON",
            _ => "SET GLOBAL read_only = ON",
        },
    );
    let gateway = cluster::narrow(sandbox, 4)
        .cluster("failover_wait = \"300ms\"")
        .tables(&user("writer", "hunter2"))
        .start();
    let mut session = log_in(&gateway, "writer", "hunter2").await.unwrap();
    for _ in 0..3 {
        let refused = session.query_drop("INSERT INTO t VALUES (1)").await.unwrap_err();
        assert_eq!(client::code(&refused), 1290, "{refused}");
        let refused = refused.to_string();
        for part in ["failover_wait", &sandbox.primary().address(), "--read-only"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
    let said = || gateway.log().matches("the primary takes no writes").count();
    eventually("it is in the log", async || said() > 0).await;
    assert_eq!(said(), 1, "{}", gateway.log());
}
