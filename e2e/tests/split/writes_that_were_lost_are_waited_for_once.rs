//! A primary dies with a transaction that no replica has got. Nobody will ever have it, and the session that wrote it goes on.

use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use sandbox::{Kind, Node};

use crate::a_new_primary_is_followed::{follow, promote};
use crate::cluster::{self, where_am_i};

const SCHEMA: &str = "lost_writes";
/// Far more than a read takes that waits for nothing.
const READ_WAIT: Duration = Duration::from_secs(2);

fn cut_off(replica: &Node) {
    let stop = match e2e::kind() {
        Kind::Mysql => "STOP REPLICA IO_THREAD",
        _ => "STOP SLAVE IO_THREAD",
    };
    replica.sql(stop).unwrap();
}

#[tokio::test]
async fn by_reads_of_its_session() {
    let sandbox = cluster::replicated();
    cluster::schema(&sandbox, SCHEMA, "CREATE TABLE t (id INT PRIMARY KEY)");
    let setup = cluster::split(&sandbox)
        .cluster("failover_wait = \"50s\"")
        .cluster(&format!("read_wait = \"{}s\"", READ_WAIT.as_secs()));
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, SCHEMA).await;
    session.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
    sandbox.sync().unwrap();
    let replicas = &sandbox.nodes()[1..];
    replicas.iter().for_each(cut_off);
    session.query_drop("INSERT INTO t VALUES (2)").await.unwrap();
    sandbox.primary().kill9().unwrap();
    promote(&replicas[0]);
    follow(&replicas[1], &replicas[0], false);
    cluster::knows(&gateway, 1).await;

    let rows = async |session: &mut mysql_async::Conn| {
        let rows: Vec<u32> = session.query("SELECT id FROM t ORDER BY id").await.unwrap();
        rows
    };
    assert_eq!(rows(&mut session).await, [1], "the second is lost");
    let began = Instant::now();
    assert_eq!(where_am_i(&mut session).await, replicas[1].port());
    assert_eq!(rows(&mut session).await, [1]);
    assert!(began.elapsed() < READ_WAIT, "{:?}", began.elapsed());
    assert_eq!(gateway.metric("forebay_split_writes_lost_total", &[]), 1.0);
    // From here on it sees what it writes, as ever.
    for id in 3..9 {
        session
            .query_drop(format!("INSERT INTO t VALUES ({id})"))
            .await
            .unwrap();
        assert_eq!(rows(&mut session).await.last(), Some(&id));
    }
    assert_eq!(gateway.metric("forebay_split_writes_lost_total", &[]), 1.0);
}
