//! The address stays, and the machine behind it changes, as with a proxy or a service of Kubernetes.
//! Connections that are there go on.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::mapping::Mapping;
use cache::reader::Want;
use config::Consistency;
use sandbox::{Kind, Lent, Sandbox};
use testkit::redirected_link::RedirectedLink;

use crate::served::{Served, hash, key, on_both, served_at, spec};

on_both! {
    the_feed_leaves_a_machine_that_was_demoted
    readers_leave_a_machine_that_the_feed_has_left
    readers_leave_it_with_all_their_connections
}

const SQL: &str =
    "CREATE TABLE test.t (id INT PRIMARY KEY, v INT NOT NULL); INSERT INTO test.t VALUES (1, 0)";

/// Far above what anything here needs: a busy machine is no failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn short(config: &mut config::Cache) {
    config.strong_wait = Duration::from_millis(500);
}

/// Waits until strong reads find this row.
async fn until_read(served: &Served, expected: &str) {
    let begun = Instant::now();
    loop {
        let fresh = served.reader.fresh(Consistency::Strong, None).await;
        let mappings = served.reader.mappings();
        if let (Ok(()), Some(mapping)) = (&fresh, mappings.by_name(b"t")) {
            let row = served.remembered(mapping, "1");
            assert_eq!(row, Some(Some(expected.to_owned())));
            return;
        }
        let stream = served.feed.status().stream();
        assert!(begun.elapsed() < PATIENCE, "{stream}: {fresh:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the primary answers in time, which has to be with this row.
async fn until_fetched(served: &Served, mapping: &Mapping, expected: &str) {
    let begun = Instant::now();
    let rows = loop {
        match served.fetched(mapping, &["1"]).await {
            Ok(rows) => break rows,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(rows, [Some(expected.to_owned())]);
}

fn the_feed_leaves_a_machine_that_was_demoted(kind: Kind) {
    let mut spec = spec(kind).nodes(2).option("--log-slave-updates=ON");
    if kind == Kind::Mariadb {
        spec = spec.option("--gtid-strict-mode=ON");
    }
    let sandbox = Sandbox::lend(spec).unwrap();
    sandbox.primary().sql(SQL).unwrap();
    let proxy = RedirectedLink::start(sandbox.primary().port()).unwrap();
    let mappings = vec![hash("t", "test.t", &["id"])];
    served_at(&[proxy.port], sandbox, short, mappings, |served| async move {
        served.mapping("t").await;
        until_read(&served, "1|0").await;
        served.sql("SET GLOBAL read_only = 1");
        served.sandbox.sync().unwrap();
        let promoted = served.sandbox.node(1);
        let promote = match kind {
            Kind::Mysql => {
                "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL super_read_only = 0; SET GLOBAL read_only = 0"
            }
            _ => "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0",
        };
        promoted.sql(promote).unwrap();
        proxy.lead_to(promoted.port());
        promoted.sql("UPDATE test.t SET v = 1").unwrap();
        until_read(&served, "1|1").await;
        let feed_status = served.feed.status();
        assert_eq!(
            (feed_status.streams(), feed_status.copies()),
            (2, 1),
            "it has all that the other had"
        );
    });
}

/// Two that take writes and answer as the primary does: in one the row is 0, in the other one 7.
fn two(kind: Kind) -> [Lent; 2] {
    [SQL.to_owned(), SQL.replace("(1, 0)", "(1, 7)")].map(|sql| {
        let sandbox = Sandbox::lend(spec(kind)).unwrap();
        sandbox.primary().sql(&sql).unwrap();
        sandbox
    })
}

/// Ends the connections that send the binary log.
fn cut(served: &Served) {
    let dumps = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
    for id in served.sql(dumps).lines() {
        // It may be gone already.
        let _ = served.sandbox.primary().sql(&format!("KILL {id}"));
    }
}

fn readers_leave_a_machine_that_the_feed_has_left(kind: Kind) {
    let [sandbox, other] = two(kind);
    let proxy = RedirectedLink::start(sandbox.primary().port()).unwrap();
    let mappings = vec![hash("t", "test.t", &["id"])];
    served_at(&[proxy.port], sandbox, short, mappings, |served| async move {
        let mapping = served.mapping("t").await;
        until_read(&served, "1|0").await;
        until_fetched(&served, &mapping, "1|0").await;
        proxy.lead_to(other.primary().port());
        cut(&served);
        let copies = || served.feed.status().copies() == 2;
        served.until("the other one is followed", copies).await;
        until_read(&served, "1|7").await;
        let mapping = served.mapping("t").await;
        until_fetched(&served, &mapping, "1|7").await;
    });
}

/// Asks for the row on as many connections as there may be.
async fn ask_on_all(served: &Served) {
    let mapping = served.mapping("t").await;
    let questions = (0..8).map(|_| {
        let (reader, mapping) = (Rc::clone(&served.reader), Arc::clone(&mapping));
        tokio::task::spawn_local(async move {
            let key = key(&mapping, "1");
            let wants = [Want {
                mapping: &mapping,
                key: &key,
            }];
            reader.fetch(&wants).await.map(drop)
        })
    });
    for question in questions.collect::<Vec<_>>() {
        question.await.unwrap().unwrap();
    }
}

/// Each of them leads to the machine that the feed has left, and would be given up more slowly than the one
/// before.
fn readers_leave_it_with_all_their_connections(kind: Kind) {
    let [sandbox, other] = two(kind);
    let proxy = RedirectedLink::start(sandbox.primary().port()).unwrap();
    let mappings = vec![hash("t", "test.t", &["id"])];
    let bounded = |config: &mut config::Cache| config.mode = config::CacheMode::Bounded;
    served_at(&[proxy.port], sandbox, bounded, mappings, |served| async move {
        let connections = || -> u32 {
            let sql = format!(
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{}'",
                sandbox::USER
            );
            served.sql(&sql).trim().parse().unwrap()
        };
        let begun = Instant::now();
        while connections() < 9 {
            assert!(begun.elapsed() < PATIENCE, "{} connections", connections());
            ask_on_all(&served).await;
        }
        // With pauses that grow it takes 5.15 s, and what this machine needs for as many connections.
        let bound = Duration::from_secs(4).max(begun.elapsed() * 5);
        proxy.lead_to(other.primary().port());
        cut(&served);
        let copies = || served.feed.status().copies() == 2;
        served.until("the other one is followed", copies).await;
        let begun = Instant::now();
        while connections() > 0 {
            ask_on_all(&served).await;
            let took = begun.elapsed();
            assert!(took < bound, "{took:?} instead of {bound:?} at most");
        }
    });
}
