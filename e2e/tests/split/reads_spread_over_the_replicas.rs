use mysql_async::prelude::Queryable;

use crate::cluster;

/// A replica that is written to says so with an error; what arrives everywhere was done on the primary.
#[tokio::test]
async fn and_writes_go_to_the_primary() {
    let sandbox = cluster::shared();
    let gateway = cluster::start(cluster::split(sandbox), 2).await;
    cluster::schema(sandbox, "writes", "CREATE TABLE t (id INT PRIMARY KEY, v INT)");
    let mut session = cluster::connect_to(&gateway, "writes").await;
    for id in 0..50 {
        session
            .query_drop(format!("INSERT INTO t VALUES ({id}, 0)"))
            .await
            .unwrap();
        session
            .exec_drop("UPDATE t SET v = v + 1 WHERE id = ?", (id,))
            .await
            .unwrap();
        cluster::where_am_i(&mut session).await;
    }
    session.query_drop("DELETE FROM t WHERE id >= 40").await.unwrap();
    session
        .query_drop("REPLACE INTO t SELECT id, v + 1 FROM t WHERE id < 10")
        .await
        .unwrap();
    sandbox.sync().unwrap();
    for node in sandbox.nodes() {
        let sums = node.sql("SELECT COUNT(*), SUM(v) FROM writes.t").unwrap();
        assert_eq!(sums.trim(), "40\t50", "on {}", node.address());
    }
}
