//! Many sessions write and read at once what they wrote, or what another session wrote, while the replicas
//! are behind. A read that is answered with less than what was acknowledged before it began is stale.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use e2e::Gateway;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use sandbox::Lent;
use tokio::task::JoinSet;

use crate::cluster;
use crate::delays::Delays;

const SESSIONS: usize = 40;

/// How long a read waits for a replica that is behind: longer than the second replica stands still. After a
/// shorter wait in vain most reads would go to the primary, where they prove nothing.
const READ_WAIT: &str = "200ms";

/// Reads of each test.
fn operations() -> usize {
    inputs::asked("FOREBAY_SPLIT_OPERATIONS").map_or(6_000, |operations| operations as usize)
}

/// What was seen.
#[derive(Default)]
struct Seen {
    reads: AtomicUsize,
    stale: AtomicUsize,
    on_replicas: AtomicUsize,
    /// A read that was stale.
    example: OnceLock<String>,
}

struct Stage {
    /// Dropped first: its thread has the servers, too, and does not know whether the test has failed.
    _delays: Delays,
    gateway: Gateway,
    sandbox: Arc<Lent>,
    rounds: AtomicU64,
}

impl Stage {
    /// Where the numbers of one more round begin: above those of the rounds before, or what is stale would
    /// look new.
    fn numbers_of_a_round(&self) -> u64 {
        self.rounds.fetch_add(1, Ordering::Relaxed) * 1_000_000
    }
}

async fn stage(consistency: &str) -> Stage {
    let sandbox = Arc::new(cluster::replicated());
    cluster::schema(
        &sandbox,
        "fresh",
        "CREATE TABLE cells (id INT PRIMARY KEY, v BIGINT); CREATE TABLE log (id INT, v BIGINT, KEY (id, v));",
    );
    let setup = cluster::split(&sandbox)
        .listener(&format!("read_consistency = {consistency:?}"))
        .cluster(&format!("read_wait = {READ_WAIT:?}\nmax_lag = \"60s\""));
    let gateway = cluster::start(setup, 2).await;
    let mut session = cluster::connect_to(&gateway, "fresh").await;
    for id in 0..SESSIONS {
        session
            .query_drop(format!("INSERT INTO cells VALUES ({id}, 0)"))
            .await
            .unwrap();
    }
    sandbox.sync().unwrap();
    Stage {
        _delays: Delays::begin(&sandbox),
        gateway,
        sandbox,
        rounds: AtomicU64::new(0),
    }
}

/// Writes a number in one of the ways in which numbers are written.
async fn write(session: &mut Conn, id: usize, v: u64) {
    let update = "UPDATE cells SET v = ? WHERE id = ?";
    match v % 4 {
        0 => {
            let text = format!("UPDATE cells SET v = {v} WHERE id = {id}");
            session.query_drop(text).await.unwrap();
        }
        1 => session.exec_drop(update, (v, id)).await.unwrap(),
        2 => {
            let mut transaction = session.start_transaction(TxOpts::new()).await.unwrap();
            transaction.exec_drop(update, (v, id)).await.unwrap();
            transaction
                .exec_drop("INSERT INTO log VALUES (?, ?)", (id, v))
                .await
                .unwrap();
            transaction.commit().await.unwrap();
        }
        _ => {
            let several = format!("UPDATE cells SET v = {v} WHERE id = {id}; SELECT 1");
            session.query_drop(several).await.unwrap();
        }
    }
}

impl Seen {
    /// Reads the number back; it must not be older than what was written.
    async fn read(&self, session: &mut Conn, primary: u16, id: usize, written: u64) {
        let text = "SELECT c.id, c.v, w.port FROM fresh.cells c, test.where_am_i w WHERE c.id = ";
        let row: Option<(usize, u64, u16)> = if written.is_multiple_of(2) {
            session.query_first(format!("{text}{id}")).await.unwrap()
        } else {
            session.exec_first(format!("{text}?"), (id,)).await.unwrap()
        };
        let (read, v, port) = row.unwrap();
        assert_eq!(read, id);
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.on_replicas
            .fetch_add((port != primary).into(), Ordering::Relaxed);
        self.stale.fetch_add((v < written).into(), Ordering::Relaxed);
        if v < written {
            let example = || format!("{v} in the place of {written} on port {port}");
            self.example.get_or_init(example);
        }
    }

    /// How many reads were stale, and how many were on replicas.
    fn report(&self, what: &str) -> (usize, usize) {
        let [reads, stale, on_replicas] =
            [&self.reads, &self.stale, &self.on_replicas].map(|count| count.load(Ordering::Relaxed));
        println!("{what}: {reads} reads, {stale} of them stale, {on_replicas} of them on replicas");
        if let Some(example) = self.example.get() {
            println!("{what}: {example}");
        }
        (stale, on_replicas)
    }
}

/// Every session reads what it wrote itself.
async fn read_own_writes(stage: &Stage) -> Arc<Seen> {
    let before = stage.numbers_of_a_round();
    let seen = Arc::<Seen>::default();
    let primary = stage.sandbox.primary().port();
    let mut sessions = JoinSet::new();
    for id in 0..SESSIONS {
        let mut session = cluster::connect_to(&stage.gateway, "fresh").await;
        let seen = Arc::clone(&seen);
        sessions.spawn(async move {
            for turn in 1..=(operations() / SESSIONS).div_ceil(2) as u64 {
                write(&mut session, id, before + turn).await;
                for _ in 0..2 {
                    seen.read(&mut session, primary, id, before + turn).await;
                }
            }
        });
    }
    sessions.join_all().await;
    seen
}

/// Writers write all the time; readers on other sessions read what was last acknowledged to any of them.
async fn read_others_writes(stage: &Stage) -> Arc<Seen> {
    let before = stage.numbers_of_a_round();
    let seen = Arc::<Seen>::default();
    let primary = stage.sandbox.primary().port();
    let mut sessions = JoinSet::new();
    let pairs = SESSIONS / 2;
    let wanted = operations() / pairs;
    for id in 0..pairs {
        let acknowledged = Arc::<AtomicU64>::default();
        let mut writer = cluster::connect_to(&stage.gateway, "fresh").await;
        let mut reader = cluster::connect_to(&stage.gateway, "fresh").await;
        let seen = Arc::clone(&seen);
        sessions.spawn(async move {
            let all_read = Arc::<AtomicBool>::default();
            let writing = {
                let (acknowledged, all_read) = (Arc::clone(&acknowledged), Arc::clone(&all_read));
                tokio::spawn(async move {
                    for v in (before + 1..).take_while(|_| !all_read.load(Ordering::Relaxed)) {
                        write(&mut writer, id, v).await;
                        acknowledged.store(v, Ordering::SeqCst);
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    }
                })
            };
            for _ in 0..wanted {
                let written = acknowledged.load(Ordering::SeqCst);
                seen.read(&mut reader, primary, id, written).await;
            }
            // A writer that is cut off may leave a write that is executed behind those of the next round.
            all_read.store(true, Ordering::Relaxed);
            writing.await.unwrap();
        });
    }
    sessions.join_all().await;
    seen
}

impl Stage {
    /// Runs `reads` until a replica has answered one, ten times at most, each time with replicas that have
    /// caught up: those of a busy machine may be behind all the time. No read is stale.
    async fn none_is_stale<Reads: Future<Output = Arc<Seen>>>(
        &self,
        what: &str,
        mut reads: impl FnMut() -> Reads,
    ) {
        for _ in 0..10 {
            let (stale, on_replicas) = reads().await.report(what);
            assert_eq!(stale, 0);
            if on_replicas > 0 {
                return;
            }
            self.sandbox.sync().unwrap();
        }
        panic!("no read was answered by a replica");
    }
}

#[tokio::test]
async fn a_session_sees_its_own_writes() {
    let stage = stage("session").await;
    stage
        .none_is_stale("session, own writes", || read_own_writes(&stage))
        .await;
}

#[tokio::test]
async fn strong_reads_see_the_writes_of_all() {
    let stage = stage("strong").await;
    stage
        .none_is_stale("strong, writes of others", || read_others_writes(&stage))
        .await;
    stage
        .none_is_stale("strong, own writes", || read_own_writes(&stage))
        .await;
}

/// The counting of stale reads is right: where they are allowed there are some, of both kinds.
#[tokio::test]
async fn and_eventual_ones_are_not() {
    let stage = stage("eventual").await;
    let (stale, on_replicas) = read_own_writes(&stage).await.report("eventual, own writes");
    assert!(stale > 0);
    assert!(on_replicas > operations() / 2);
    let (stale, _) = read_others_writes(&stage)
        .await
        .report("eventual, writes of others");
    assert!(stale > 0);
}
