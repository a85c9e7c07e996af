//! A read after a write waits for a replica once. While none can come that far in time the reads behind it go
//! to the primary at once, until a replica is seen to have caught up.

use std::time::{Duration, Instant};

use e2e::eventually;
use mysql_async::prelude::Queryable;

use crate::cluster;
use crate::replicas_are_chosen_as_options_say::delay;

/// `read_wait`.
const WAIT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn while_all_replicas_are_behind() {
    let sandbox = cluster::replicated();
    cluster::schema(
        &sandbox,
        "vain",
        "CREATE TABLE t (v INT); INSERT INTO t VALUES (0)",
    );
    let setup = cluster::split(&sandbox)
        .top("workers = 1")
        .cluster("read_wait = \"1s\"\nmax_lag = \"0s\"");
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, "vain").await;
    for replica in sandbox.nodes().iter().skip(1) {
        delay(replica, 3600);
    }
    let mut reads = Vec::new();
    for v in 1..=6 {
        session.query_drop(format!("UPDATE t SET v = {v}")).await.unwrap();
        let begun = Instant::now();
        let seen: Option<i32> = session.query_first("SELECT v FROM t").await.unwrap();
        assert_eq!(seen, Some(v));
        reads.push(begun.elapsed());
    }
    // Each of the two may be waited for once.
    let waited = reads.iter().filter(|took| **took >= WAIT).count();
    assert!((1..=2).contains(&waited), "{reads:?}");
    assert!(reads[2..].iter().all(|took| *took < WAIT / 2), "{reads:?}");
    let not_fresh = gateway.metric("forebay_split_reads_at_primary_total", &["why=\"not_fresh\""]);
    assert_eq!(not_fresh, 6.0);
    for replica in sandbox.nodes().iter().skip(1) {
        delay(replica, 0);
    }
    let replicas = cluster::replica_ports(&sandbox);
    eventually("replicas are read from again", async || {
        session.query_drop("UPDATE t SET v = v + 1").await.unwrap();
        replicas.contains(&cluster::where_am_i(&mut session).await)
    })
    .await;
}
