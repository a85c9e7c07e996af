//! Clients write rows on the primary itself, others read them from memory, by Redis and by SQL. What they see
//! is what they would see of rows that are in one place: also while the primary is killed, the gateway is
//! killed, its connections are cut, the binary log is long, and the table gets another definition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use e2e::client::options_at;
use e2e::{Gateway, eventually};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use testkit::lossy_link::Fault;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::history::History;
use crate::redis::{Redis, Reply};
use crate::stage::{ROWS, Stage, stage};

const WRITERS: u32 = 3;
const REDIS_READERS: u32 = 3;
const SQL_READERS: u32 = 3;
/// Kinds of trouble.
const TROUBLES: u64 = 6;
/// A pause between two writes of a client, so that the checker has no more operations than it can do.
const PAUSE: Duration = Duration::from_millis(2);
/// Reads by SQL that count together.
const BATCH: usize = 20;
/// An answer that takes so long is not waited for.
const ANSWER: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Counts {
    writes: AtomicU64,
    redis_reads: AtomicU64,
    sql_reads: AtomicU64,
}

/// Clients on a thread of their own: whoever makes trouble blocks.
struct Crowd {
    history: Arc<History>,
    counts: Arc<Counts>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn seconds() -> u64 {
    inputs::asked("FOREBAY_CACHE_SECONDS").unwrap_or(6)
}

impl Crowd {
    fn gather(stage: &Stage) -> Self {
        let history = Arc::new(History::new());
        let counts = Arc::<Counts>::default();
        let over = Arc::<AtomicBool>::default();
        let client = |number| Client {
            number,
            history: Arc::clone(&history),
            counts: Arc::clone(&counts),
            over: Arc::clone(&over),
        };
        let writers: Vec<_> = (0..WRITERS).map(client).collect();
        let redis_readers: Vec<_> = (0..REDIS_READERS).map(client).collect();
        let sql_readers: Vec<_> = (0..SQL_READERS).map(client).collect();
        let (direct, through, redis) = (stage.server.primary().port(), stage.gateway.port(), stage.redis);
        let admin_port = stage.gateway.admin_port();
        let all = async move {
            let mut tasks = JoinSet::new();
            for client in writers {
                tasks.spawn(client.write(options_at(direct).into()));
            }
            for client in redis_readers {
                tasks.spawn(client.read_by_redis(redis));
            }
            for client in sql_readers {
                tasks.spawn(client.read_by_sql(options_at(through).into(), admin_port));
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap();
            }
        };
        let thread = std::thread::spawn(|| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(all);
        });
        Self {
            history,
            counts,
            over,
            thread,
        }
    }

    /// Waits until so many operations of each kind count.
    async fn has_done(&self, wanted: u64) {
        let Counts {
            writes,
            redis_reads,
            sql_reads,
        } = &*self.counts;
        eventually("enough was written and read", async || {
            [writes, redis_reads, sql_reads]
                .iter()
                .all(|count| count.load(Ordering::Relaxed) >= wanted)
        })
        .await;
    }

    /// Ends the load, and says whether what was seen is linearizable.
    fn disperse(self) -> (bool, String) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let Counts {
            writes,
            redis_reads,
            sql_reads,
        } = &*self.counts;
        let counts = [writes, redis_reads, sql_reads].map(|count| count.load(Ordering::Relaxed));
        let (linearizable, said) = self.history.check();
        (
            linearizable,
            format!("{said} ({counts:?} writes, reads by Redis, by SQL)"),
        )
    }
}

struct Client {
    number: u32,
    history: Arc<History>,
    counts: Arc<Counts>,
    over: Arc<AtomicBool>,
}

impl Client {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    async fn write(self, server: Opts) {
        let mut count = u64::from(self.number);
        while self.goes_on() {
            let Ok(mut session) = Conn::new(server.clone()).await else {
                sleep(PAUSE).await;
                continue;
            };
            let client = self.history.client();
            while self.goes_on() {
                count += 1;
                let key = (count % u64::from(ROWS)) as u32 + 1;
                let value = format!("{client}-{count}");
                let statement = format!("UPDATE item SET v = '{value}' WHERE id = {key}");
                let call = self.history.call(client, key);
                if session.query_drop(statement).await.is_err() {
                    self.history.perhaps_written(call, &value);
                    break;
                }
                self.history.written(call, &value);
                self.counts.writes.fetch_add(1, Ordering::Relaxed);
                sleep(PAUSE).await;
            }
        }
    }

    async fn read_by_redis(self, port: u16) {
        let mut count = u64::from(self.number);
        while self.goes_on() {
            let Ok(mut redis) = Redis::connect(port).await else {
                sleep(PAUSE).await;
                continue;
            };
            let client = self.history.client();
            while self.goes_on() {
                count += 1;
                let key = (count % u64::from(ROWS)) as u32 + 1;
                let name = format!("item@{key}");
                let call = self.history.call(client, key);
                match timeout(ANSWER, redis.ask(&["GET", &name])).await {
                    Ok(Ok(Reply::Bulk(value))) => {
                        self.history.read(call, &String::from_utf8(value).unwrap());
                        self.counts.redis_reads.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(Ok(Reply::Error(_))) => sleep(PAUSE).await,
                    Ok(Ok(other)) => panic!("GET {name}: {other:?}"),
                    Ok(Err(_)) | Err(_) => break,
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads that go to the server are no part of the history: the server may show a transaction later than
    /// memory does, while it is not acknowledged yet. So reads count in batches in which none was left to the
    /// server.
    async fn read_by_sql(self, gateway: Opts, admin_port: u16) {
        let mut count = u64::from(self.number);
        while self.goes_on() {
            let Ok(mut session) = Conn::new(gateway.clone()).await else {
                sleep(PAUSE).await;
                continue;
            };
            let client = self.history.client();
            while self.goes_on() {
                let before = left_to_server(admin_port).await;
                let mut batch = Vec::new();
                for _ in 0..BATCH {
                    count += 1;
                    let key = (count % u64::from(ROWS)) as u32 + 1;
                    let call = self.history.call(client, key);
                    let answer: Result<Option<String>, _> = match count % 2 {
                        0 => {
                            session
                                .query_first(format!("SELECT v FROM item WHERE id = {key}"))
                                .await
                        }
                        _ => {
                            session
                                .exec_first("SELECT v FROM item WHERE id = ?", (key,))
                                .await
                        }
                    };
                    let Ok(value) = answer else { break };
                    batch.push((call, self.history.now(), value.expect("the row is there")));
                }
                if batch.len() < BATCH {
                    break;
                }
                if before.is_some() && left_to_server(admin_port).await == before {
                    self.counts.sql_reads.fetch_add(BATCH as u64, Ordering::Relaxed);
                    for (call, end, value) in batch {
                        self.history.read_until(call, end, &value);
                    }
                }
            }
        }
    }
}

/// Point lookups that were not answered from memory.
async fn left_to_server(admin_port: u16) -> Option<String> {
    let page = move || Gateway::page(admin_port, "/metrics");
    let (_, metrics) = spawn_blocking(page).await.unwrap()?;
    let left = metrics
        .lines()
        .filter(|line| line.starts_with("forebay_lookups_left_total"));
    Some(left.collect::<Vec<_>>().join("\n"))
}

/// Makes one kind of trouble, and waits until it is over.
pub(crate) async fn trouble(stage: &mut Stage, round: u64) {
    match round % TROUBLES {
        0 => {
            let statement = "UPDATE item SET n = n + 1 WHERE id > 10";
            for _ in 0..5 {
                let _ = stage.server.primary().sql(statement);
            }
        }
        1 => {
            let dumps = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
            for id in stage.server.primary().sql(dumps).unwrap().split_whitespace() {
                let _ = stage.server.primary().sql(&format!("KILL {id}"));
            }
        }
        2 => {
            stage.server.primary().kill9().unwrap();
            stage.server.primary().restart().unwrap();
        }
        3 => {
            stage.gateway.kill9();
            stage.gateway.restart().await;
        }
        4 => {
            for change in ["ADD COLUMN w INT FIRST", "DROP COLUMN w"] {
                let sql = format!("ALTER TABLE item {change}");
                stage.server.primary().sql(&sql).unwrap();
            }
        }
        _ => {
            stage.link.set_to_client(Fault::Delay(Duration::from_millis(20)));
            sleep(Duration::from_millis(300)).await;
            stage.link.set_to_client(Fault::None);
        }
    }
    stage.serves().await;
}

async fn under_trouble(mode: &str) {
    let mut stage = stage(mode, "strong").await;
    let crowd = Crowd::gather(&stage);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds());
    let mut round = 0;
    while round < TROUBLES || tokio::time::Instant::now() < deadline {
        trouble(&mut stage, round).await;
        sleep(Duration::from_millis(300)).await;
        round += 1;
    }
    crowd.has_done(100).await;
    eventually(
        "the gateway, which was killed once, has answered enough from memory",
        async || stage.answered() > 100.0,
    )
    .await;
    let (linearizable, said) = crowd.disperse();
    assert!(linearizable, "{said}");
    eprintln!("{mode}: {said}");
}

#[tokio::test]
async fn in_mode_session_whatever_fails() {
    under_trouble("session").await;
}

#[tokio::test]
async fn in_mode_split_whatever_fails() {
    under_trouble("split").await;
}

/// What makes them linearizable is the wait: without it, and with a binary log that arrives later than the
/// acknowledgement of a write, the checker sees it.
#[tokio::test]
async fn and_without_the_wait_they_are_not() {
    let stage = stage("session", "eventual").await;
    stage.link.set_to_client(Fault::Delay(Duration::from_millis(30)));
    let crowd = Crowd::gather(&stage);
    crowd.has_done(400).await;
    let (linearizable, said) = crowd.disperse();
    assert!(!linearizable, "{said}");
}
