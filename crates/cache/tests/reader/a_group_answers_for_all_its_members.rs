use std::time::{Duration, Instant};

use config::Consistency;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Spec};

use crate::served::{hash, served};

const SQL: &str =
    "CREATE TABLE test.t (id INT PRIMARY KEY, v INT NOT NULL); INSERT INTO test.t VALUES (1, 0)";

/// What was acknowledged by another node is seen, although the probe asks the one that the feed follows.
#[test]
fn galera() {
    let spec = Spec::new(Kind::Galera)
        .nodes(2)
        .option("--log-bin=binlog")
        .option("--log-slave-updates=ON");
    served(
        spec,
        SQL,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let mapping = served.mapping("t").await;
            let mut clients = [served.client_of(1).await, served.client_of(0).await];
            for v in 1..=200 {
                let client = &mut clients[usize::from(v % 4 == 0)];
                // A node that has not applied the other's write yet says that there is a deadlock.
                let update = format!("UPDATE test.t SET v = {v} WHERE id = 1");
                while let Err(error) = client.query_drop(&update).await {
                    assert!(error.to_string().contains("1213"), "{error}");
                }
                assert_eq!(client.affected_rows(), 1, "{v}");
                served.reader.fresh(Consistency::Strong, None).await.unwrap();
                assert_eq!(served.remembered(&mapping, "1"), Some(Some(format!("1|{v}"))));
            }
        },
    );
}

#[test]
fn group_replication_over_a_failover() {
    let spec = Spec::new(Kind::GroupReplication).nodes(3);
    served(
        spec,
        SQL,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let mapping = served.mapping("t").await;
            let mut client = served.client().await;
            for v in 1..=30 {
                client
                    .query_drop(format!("UPDATE test.t SET v = {v} WHERE id = 1"))
                    .await
                    .unwrap();
                served.reader.fresh(Consistency::Strong, None).await.unwrap();
                assert_eq!(served.remembered(&mapping, "1"), Some(Some(format!("1|{v}"))));
            }
            served.sandbox.primary().kill9().unwrap();
            let begun = Instant::now();
            let update = "UPDATE test.t SET v = 1000 WHERE id = 1";
            while ![1, 2]
                .iter()
                .any(|&node| served.sandbox.node(node).sql(update).is_ok())
            {
                assert!(begun.elapsed() < Duration::from_secs(90), "no new primary");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            while served.reader.fresh(Consistency::Strong, None).await.is_err() {
                assert!(
                    begun.elapsed() < Duration::from_secs(150),
                    "the new primary is followed"
                );
            }
            assert_eq!(served.remembered(&mapping, "1"), Some(Some("1|1000".to_owned())));
        },
    );
}
