//! The usual pair of rules, `^SELECT` to the replicas and all else to the primary. Some of these reads bind
//! their session to its connection: were it a replica's, the session could not write any more.

use mysql_async::prelude::Queryable;

use crate::cluster;

const SCHEMA: &str = "all_reads";

/// Reads, and whether they are for replicas all the same.
const READS: [(&str, bool); 8] = [
    ("SELECT port FROM test.where_am_i", true),
    ("SELECT SQL_CALC_FOUND_ROWS port FROM test.where_am_i", true),
    ("SELECT port + 0 * CAST('x' AS SIGNED) FROM test.where_am_i", true),
    (
        "SELECT port FROM test.where_am_i WHERE LAST_INSERT_ID() >= 0",
        true,
    ),
    (
        "SELECT port FROM test.where_am_i WHERE GET_LOCK('all_reads', 0) >= 0",
        false,
    ),
    (
        "SELECT port FROM test.where_am_i WHERE (@all_reads := 1) = 1",
        false,
    ),
    ("SELECT port FROM test.where_am_i WHERE twice(1) = 2", false),
    ("SELECT port FROM test.where_am_i FOR UPDATE", false),
];

#[tokio::test]
async fn whatever_they_do() {
    let sandbox = cluster::shared();
    cluster::schema(
        sandbox,
        SCHEMA,
        "CREATE TABLE t (v INT);
         CREATE FUNCTION twice(n INT) RETURNS INT DETERMINISTIC NO SQL RETURN 2 * n;",
    );
    let rules = "[[rule]]\ndigest_text = 'FOR UPDATE$'\nroute = \"primary\"\n\
                 [[rule]]\ndigest_text = '^SELECT'\nroute = \"replicas\"";
    let setup = cluster::split(sandbox).listener("read_consistency = \"eventual\"");
    let gateway = cluster::start(setup.tables(rules), 2).await;
    let replicas = cluster::replica_ports(sandbox);
    for (read, is_for_replicas) in READS {
        let mut session = cluster::connect_to(&gateway, SCHEMA).await;
        for prepared in [false, true] {
            let port: Option<u16> = if prepared {
                session.exec_first(read, ()).await.unwrap()
            } else {
                session.query_first(read).await.unwrap()
            };
            assert_eq!(
                replicas.contains(&port.unwrap()),
                is_for_replicas,
                "{read}, prepared: {prepared}"
            );
            session
                .query_drop("INSERT INTO t VALUES (1)")
                .await
                .unwrap_or_else(|error| panic!("after {read}, prepared {prepared}: {error}"));
        }
    }
}
