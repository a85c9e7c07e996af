use std::cell::Cell;
use std::rc::Rc;

use config::Consistency;
use mysql_async::prelude::Queryable;
use sandbox::{Kind, Spec};

use crate::served::{hash, on_both, served, spec, value};

on_both! { one_reader_at_a_time many_readers_share_probes probes_are_prepared_statements }

const SQL: &str =
    "CREATE TABLE test.t (id INT PRIMARY KEY, v INT NOT NULL); INSERT INTO test.t VALUES (1, 0)";

fn one_reader_at_a_time(kind: Kind) {
    every_write_is_seen(spec(kind));
}

fn probes_are_prepared_statements(kind: Kind) {
    served(
        spec(kind),
        SQL,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            served.mapping("t").await;
            for _ in 0..5 {
                served.reader.fresh(Consistency::Strong, None).await.unwrap();
            }
            let mut client = served.client().await;
            let executed: Option<(String, u64)> = client
                .query_first("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'")
                .await
                .unwrap();
            assert!(executed.unwrap().1 >= 10, "two for each probe");
        },
    );
}

/// Positions are GTIDs then.
#[test]
fn in_gtid_strict_mode() {
    every_write_is_seen(spec(Kind::Mariadb).option("--gtid-strict-mode=1"));
}

/// Numbers may come again then.
#[test]
fn in_gtid_strict_mode_until_it_is_switched_off() {
    served(
        spec(Kind::Mariadb).option("--gtid-strict-mode=1"),
        SQL,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            served.mapping("t").await;
            let mut client = served.client().await;
            served.reader.fresh(Consistency::Strong, None).await.unwrap();
            let last = value(&mut client, "SELECT @@GLOBAL.gtid_binlog_pos").await;
            let number = last.rsplit('-').next().unwrap();
            client
                .query_drop("SET GLOBAL gtid_strict_mode = 0")
                .await
                .unwrap();
            for v in 1..=100 {
                let sql = format!("SET SESSION gtid_seq_no = {number}");
                client.query_drop(sql).await.unwrap();
                let sql = format!("UPDATE test.t SET v = {v} WHERE id = 1");
                client.query_drop(sql).await.unwrap();
                served.reader.fresh(Consistency::Strong, None).await.unwrap();
                let mapping = served.mapping("t").await;
                assert_eq!(served.remembered(&mapping, "1"), Some(Some(format!("1|{v}"))));
            }
        },
    );
}

/// Its positions are smaller than those that were applied. MariaDB does not begin it anew while somebody
/// follows it.
#[test]
fn in_a_log_that_begins_anew() {
    served(
        spec(Kind::Mysql),
        SQL,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            served.mapping("t").await;
            let mut client = served.client().await;
            for v in 1..=50 {
                let sql = format!("UPDATE test.t SET v = {v} WHERE id = 1");
                client.query_drop(sql).await.unwrap();
            }
            served.reader.fresh(Consistency::Strong, None).await.unwrap();
            let reset = match served.sandbox.release() < [8, 2, 0] {
                true => "RESET MASTER",
                false => "RESET BINARY LOGS AND GTIDS",
            };
            client.query_drop(reset).await.unwrap();
            client.query_drop("UPDATE test.t SET v = 51").await.unwrap();
            let begun = std::time::Instant::now();
            loop {
                let fresh = served.reader.fresh(Consistency::Strong, None).await;
                let mappings = served.reader.mappings();
                if let (Ok(()), Some(mapping)) = (fresh, mappings.by_name(b"t")) {
                    assert_eq!(served.remembered(mapping, "1"), Some(Some("1|51".to_owned())));
                    return;
                }
                assert!(begun.elapsed().as_secs() < 60, "it is served again");
                tokio::task::yield_now().await;
            }
        },
    );
}

fn every_write_is_seen(spec: Spec) {
    served(
        spec,
        SQL,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let mapping = served.mapping("t").await;
            let mut client = served.client().await;
            for v in 1..=300 {
                if v % 50 == 0 {
                    // What changes no row has a place in the log, too.
                    client.query_drop("FLUSH BINARY LOGS").await.unwrap();
                    served.reader.fresh(Consistency::Strong, None).await.unwrap();
                    client
                        .query_drop("CREATE USER IF NOT EXISTS nobody")
                        .await
                        .unwrap();
                    served.reader.fresh(Consistency::Strong, None).await.unwrap();
                }
                client
                    .query_drop(format!("UPDATE test.t SET v = {v} WHERE id = 1"))
                    .await
                    .unwrap();
                served.reader.fresh(Consistency::Strong, None).await.unwrap();
                assert_eq!(served.remembered(&mapping, "1"), Some(Some(format!("1|{v}"))));
            }
        },
    );
}

fn many_readers_share_probes(kind: Kind) {
    served(
        spec(kind),
        SQL,
        |_| (),
        vec![hash("t", "test.t", &["id"])],
        |served| async move {
            let served = Rc::new(served);
            let mapping = served.mapping("t").await;
            let acknowledged = Rc::new(Cell::new(0));
            let done = Rc::new(Cell::new(false));
            let readers: Vec<_> = (0..20)
                .map(|_| {
                    let (served, mapping) = (Rc::clone(&served), mapping.clone());
                    let (acknowledged, done) = (Rc::clone(&acknowledged), Rc::clone(&done));
                    tokio::task::spawn_local(async move {
                        let mut reads = 0_u64;
                        while !done.get() {
                            let least: i32 = acknowledged.get();
                            served.reader.fresh(Consistency::Strong, None).await.unwrap();
                            let row = served.remembered(&mapping, "1").unwrap().unwrap();
                            let seen: i32 = row.strip_prefix("1|").unwrap().parse().unwrap();
                            assert!(seen >= least, "{seen} after {least} was acknowledged");
                            reads += 1;
                        }
                        reads
                    })
                })
                .collect();
            let mut client = served.client().await;
            for v in 1..=500 {
                client
                    .query_drop(format!("UPDATE test.t SET v = {v} WHERE id = 1"))
                    .await
                    .unwrap();
                acknowledged.set(v);
            }
            done.set(true);
            let mut reads = 0;
            for reader in readers {
                reads += reader.await.unwrap();
            }
            let cache = &served.metrics.cache;
            assert_eq!(cache.strong.get(), reads);
            assert_eq!((cache.not_fresh.get(), cache.probes_failed.get()), (0, 0));
            let probes = cache.probes.get();
            assert!(
                probes * 5 < reads,
                "{probes} probes for {reads} reads of 20 readers"
            );
        },
    );
}
