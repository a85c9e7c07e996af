//! Without `max_connections` many clients share as few connections as are of use; what holds a connection
//! never waits for that.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::Gateway;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sandbox::Sandbox;
use tokio::task::JoinSet;

use crate::cluster;

const SESSIONS: usize = 100;
const QUERIES: usize = 100;

/// Far below `queue_timeout`, and far above what it takes longer where all connections are held.
const SOON: Duration = Duration::from_secs(4);

/// Where nobody is answered for so long the connections are rightly taken to be held.
const STANDS_STILL: Duration = Duration::from_millis(50);
/// So often all begins anew where that was so.
const TRIES: usize = 10;

/// When the last answer came, and the longest time in which none did.
struct Answers(Mutex<(Instant, Duration)>);

impl Answers {
    fn note(&self) {
        let (now, mut times) = (Instant::now(), self.0.lock().unwrap());
        let (last, longest) = *times;
        *times = (now, longest.max(now.saturating_duration_since(last)));
    }
}

/// Sessions that have had their statements executed over few connections, and their gateway.
async fn over_few_connections(sandbox: &Sandbox) -> (Gateway, Vec<Conn>) {
    for _ in 0..TRIES {
        let setup = cluster::narrow(sandbox, 0).top("max_connections = 1000");
        let gateway = cluster::start(setup, 0).await;
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(cluster::connect(&gateway).await);
        }
        let answers = Arc::new(Answers(Mutex::new((Instant::now(), Duration::ZERO))));
        let mut running = JoinSet::new();
        for mut session in sessions {
            let answers = Arc::clone(&answers);
            running.spawn(async move {
                for number in 0..QUERIES {
                    let answer: Option<usize> = session.exec_first("SELECT ? + 1", (number,)).await.unwrap();
                    assert_eq!(answer, Some(number + 1));
                    answers.note();
                }
                session
            });
        }
        let sessions = running.join_all().await;
        let opened = gateway.metric("forebay_pool_opened_total", &[]) as usize;
        if opened <= SESSIONS / 2 {
            return (gateway, sessions);
        }
        let (_, longest) = *answers.0.lock().unwrap();
        assert!(longest > STANDS_STILL, "{opened} connections, {longest:?}");
    }
    panic!("the machine stood still each time");
}

#[tokio::test]
async fn by_what_its_statements_need() {
    let sandbox = cluster::single();
    let (gateway, mut sessions) = over_few_connections(sandbox).await;
    // Transactions that stay open: one after the other has a connection of its own.
    let took = begin_all(&mut sessions).await;
    assert_eq!(gateway.metric("forebay_pool_busy", &[]) as usize, SESSIONS);
    drop((sessions, gateway));

    // A pool without a size of its own opens a connection for each at once. The search takes as much longer
    // as a line has to stand still until it is taken to be held, which is 50 ms at most, and some for a look.
    const PAUSE: Duration = Duration::from_millis(60);
    let setup = cluster::narrow(sandbox, 0).cluster("pool.adaptive = false");
    let gateway = cluster::start(setup, 0).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(cluster::connect(&gateway).await);
    }
    let least = begin_all(&mut sessions).await;
    assert!(took < 3 * least + PAUSE * SESSIONS as u32, "{took:?}, {least:?}");
}

/// How long it takes until all sessions are in a transaction.
async fn begin_all(sessions: &mut [Conn]) -> Duration {
    let begun = Instant::now();
    for session in sessions {
        session.query_drop("BEGIN").await.unwrap();
    }
    begun.elapsed()
}

/// All at once, and of several workers.
#[tokio::test]
async fn and_grows_at_once_where_all_are_held() {
    let took = hold_all("").await;
    // The time that a machine busy with something else needs for as many connections.
    let least = hold_all("pool.adaptive = false").await;
    assert!(took < least + SOON, "{took:?}, {least:?}");
}

/// How long it takes until all sessions have slept, each on a connection of its own.
async fn hold_all(option: &str) -> Duration {
    let setup = cluster::narrow_over(cluster::single(), 0, 2).cluster(option);
    let gateway = cluster::start(setup, 0).await;
    let mut sessions = Vec::new();
    for _ in 0..60 {
        sessions.push(cluster::connect(&gateway).await);
    }
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for mut session in sessions {
        running.spawn(async move { session.query_drop("DO SLEEP(3)").await.unwrap() });
    }
    running.join_all().await;
    begun.elapsed()
}
