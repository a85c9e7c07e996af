//! At consistency `session` a session sees what it has written, however late the binary log arrives: SQL
//! sessions by themselves, Redis clients by the GTIDs that they are given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use e2e::client::{connect, options_at};
use e2e::{eventually, kind};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::Kind;
use testkit::lossy_link::Fault;
use tokio::runtime::Builder;

use crate::reads_are_linearizable::trouble;
use crate::redis::{Redis, Reply};
use crate::stage::{Stage, stage};

const WRITES: u32 = 60;
const LATE: Duration = Duration::from_millis(15);

#[tokio::test]
async fn by_sql_in_mode_split() {
    by_sql("split").await;
}

#[tokio::test]
async fn by_sql_in_mode_session() {
    by_sql("session").await;
}

async fn by_sql(mode: &str) {
    let stage = stage(mode, "session").await;
    let mut session = reading_session(&stage, "SELECT v FROM item WHERE id = 2").await;
    stage.link.set_to_client(Fault::Delay(LATE));
    let before = stage.answered();
    for count in 0..WRITES {
        let value = format!("by-sql-{count}");
        let update = format!("UPDATE item SET v = '{value}' WHERE id = 2");
        match count % 3 {
            0 => session.query_drop(update).await.unwrap(),
            1 => session
                .exec_drop("UPDATE item SET v = ? WHERE id = 2", (&value,))
                .await
                .unwrap(),
            _ => {
                for statement in ["BEGIN", &update, "COMMIT"] {
                    session.query_drop(statement).await.unwrap();
                }
            }
        }
        let seen: Option<String> = session
            .query_first("SELECT v FROM item WHERE id = 2")
            .await
            .unwrap();
        assert_eq!(seen, Some(value));
    }
    let by_memory = stage.answered() - before;
    assert!(
        by_memory >= f64::from(WRITES * 3 / 4),
        "{by_memory} were answered from memory"
    );
}

/// In mode `session`, too, whose servers say what was written.
#[tokio::test]
async fn who_only_reads_waits_for_nobody() {
    let stage = stage("session", "session").await;
    let lookup = "SELECT v FROM item WHERE id = 2";
    let mut session = reading_session(&stage, lookup).await;
    let reads = |level: &str| stage.gateway.metric("forebay_cache_reads_total", &[level]);
    let (strong, own) = (reads("strong"), reads("session"));
    for _ in 0..50 {
        session.query_drop(lookup).await.unwrap();
        session.query_drop("SELECT COUNT(*) FROM item").await.unwrap();
    }
    // One makes rights certain, if it is time.
    let waited = reads("strong") - strong;
    assert!(waited <= 1.0, "{waited} have waited");
    assert_eq!(waited + reads("session") - own, 50.0);
    let strong = reads("strong");
    session
        .query_drop("UPDATE item SET v = 'once' WHERE id = 2")
        .await
        .unwrap();
    for _ in 0..3 {
        let v: Option<String> = session.query_first(lookup).await.unwrap();
        assert_eq!(v.as_deref(), Some("once"));
    }
    let waited = reads("strong") - strong;
    assert!(waited <= 1.0, "{waited} have waited");
}

/// One whose lookup is answered from memory. The grants of the accounts are just made, so it may take a
/// moment.
async fn reading_session(stage: &Stage, lookup: &str) -> Conn {
    let mut session = connect(&stage.gateway).await;
    let before = stage.answered();
    while stage.answered() == before {
        session.query_drop(lookup).await.unwrap();
    }
    session
}

#[tokio::test]
async fn by_redis() {
    let stage = stage("session", "eventual").await;
    stage.link.set_to_client(Fault::Delay(LATE));
    let mut writer = Conn::new(options_at(stage.server.primary().port()))
        .await
        .unwrap();
    let mut redis = Redis::connect(stage.redis).await.unwrap();
    let last = last_gtids();
    for count in 0..WRITES {
        let value = format!("by-redis-{count}");
        writer
            .query_drop(format!("UPDATE item SET v = '{value}' WHERE id = 2"))
            .await
            .unwrap();
        let gtids: String = writer.query_first(last).await.unwrap().unwrap();
        let reply = redis
            .ask(&["CLIENT", "CONSISTENCY", "SESSION", &gtids])
            .await
            .unwrap();
        assert_eq!(reply, Reply::Line("OK".to_owned()));
        // On a busy machine a read may fail because the log comes too late.
        let mut seen = Reply::Nil;
        eventually("there is a row", async || {
            seen = redis.ask(&["GET", "item@2"]).await.unwrap();
            !matches!(seen, Reply::Error(_))
        })
        .await;
        assert_eq!(seen, Reply::Bulk(value.into_bytes()));
    }
}

/// A read may fail while something has failed, but it never shows less.
#[tokio::test]
async fn whatever_fails() {
    let mut stage = stage("split", "session").await;
    // The stream, the primary, the gateway, the link.
    for round in [1, 2, 3, 5] {
        let value = format!("trouble-{round}");
        let mut writer = Conn::new(options_at(stage.server.primary().port()))
            .await
            .unwrap();
        writer
            .query_drop(format!("UPDATE item SET v = '{value}' WHERE id = 3"))
            .await
            .unwrap();
        let gtids: String = writer.query_first(last_gtids()).await.unwrap().unwrap();
        drop(writer);
        let over = Arc::<AtomicBool>::default();
        let reader = std::thread::spawn({
            let (redis, over) = (stage.redis, Arc::clone(&over));
            move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(read_until(redis, &gtids, &value, &over));
            }
        });
        trouble(&mut stage, round).await;
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    }
}

/// Reads the row until it is over, and once more.
async fn read_until(redis: u16, gtids: &str, expected: &str, over: &AtomicBool) {
    let mut is_last = false;
    eventually("the write is seen when all is over", async || {
        is_last |= over.load(Ordering::Relaxed);
        let mut seen = read_by_redis(redis, gtids).await;
        while let Some(Reply::Bulk(row)) = &seen {
            assert_eq!(row, expected.as_bytes());
            if is_last {
                return true;
            }
            is_last = over.load(Ordering::Relaxed);
            seen = read_by_redis(redis, gtids).await;
        }
        false
    })
    .await;
}

/// The row that was written, on a new connection; `None` where there is no answer.
async fn read_by_redis(port: u16, gtids: &str) -> Option<Reply> {
    let mut redis = Redis::connect(port).await.ok()?;
    redis
        .ask(&["CLIENT", "CONSISTENCY", "SESSION", gtids])
        .await
        .ok()?;
    redis.ask(&["GET", "item@3"]).await.ok()
}

fn last_gtids() -> &'static str {
    match kind() {
        Kind::Mysql => "SELECT @@gtid_executed",
        _ => "SELECT @@last_gtid",
    }
}

/// Without the GTIDs it does not, or these tests would show nothing.
#[tokio::test]
async fn and_without_gtids_the_log_is_late() {
    let stage = stage("session", "eventual").await;
    // Later than a busy machine comes to the read.
    stage.link.set_to_client(Fault::Delay(LATE * 10));
    let mut writer = Conn::new(options_at(stage.server.primary().port()))
        .await
        .unwrap();
    let mut redis = Redis::connect(stage.redis).await.unwrap();
    let mut late = 0;
    for count in 0..WRITES {
        let value = format!("late-{count}");
        writer
            .query_drop(format!("UPDATE item SET v = '{value}' WHERE id = 2"))
            .await
            .unwrap();
        let seen = redis.ask(&["GET", "item@2"]).await.unwrap();
        late += u32::from(seen != Reply::Bulk(value.into_bytes()));
    }
    assert!(late > 0, "every write was seen at once");
}
