use std::time::Duration;

use config::Consistency;
use mysql_async::prelude::Queryable;
use mysql_wire::gtid::{Flavor, GtidSet};
use sandbox::Kind;

use crate::served::{hash, on_both, served, spec, value};

on_both! { each_write_is_seen }

fn each_write_is_seen(kind: Kind) {
    let sql = "CREATE TABLE test.t (id INT PRIMARY KEY, v INT); INSERT INTO test.t VALUES (1, 0)";
    served(
        spec(kind),
        sql,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let mapping = served.mapping("t").await;
            let mut client = served.client().await;
            let (flavor, position, future) = match kind {
                Kind::Mysql => (
                    Flavor::MySql,
                    "SELECT @@GLOBAL.gtid_executed",
                    "00000000-0000-0000-0000-000000000001:9",
                ),
                _ => (Flavor::MariaDb, "SELECT @@last_gtid", "0-1-999999"),
            };
            for v in 1..=100 {
                client
                    .query_drop(format!("UPDATE test.t SET v = {v} WHERE id = 1"))
                    .await
                    .unwrap();
                let gtids: String = value(&mut client, position).await;
                let gtids = GtidSet::parse(flavor, gtids.as_bytes()).unwrap();
                served
                    .reader
                    .fresh(Consistency::Session, Some(&gtids))
                    .await
                    .unwrap();
                assert_eq!(served.remembered(&mapping, "1"), Some(Some(format!("1|{v}"))));
            }
            served.reader.fresh(Consistency::Session, None).await.unwrap();
            let never = GtidSet::parse(flavor, future.as_bytes()).unwrap();
            let read = served.reader.fresh(Consistency::Session, Some(&never));
            let pending = tokio::time::timeout(Duration::from_millis(100), read).await;
            assert!(pending.is_err(), "nobody has written that");
        },
    );
}
