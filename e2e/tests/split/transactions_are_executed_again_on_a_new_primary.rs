//! With `transaction_replay` a primary that is gone without a word takes no transaction with it but those
//! whose COMMIT was under way: their clients notice nothing, and nothing is lost or done twice.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::{PATIENCE, eventually, kind};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts};
use sandbox::{Sandbox, Spec};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::a_new_primary_is_followed::{follow, promote};
use crate::cluster;

const CLIENTS: u32 = 12;
const BALANCE: u32 = 1000;

/// Between two statements of a transaction: most of them are in the middle of one.
const PAUSE: Duration = Duration::from_millis(4);

#[derive(Default)]
struct Book {
    stop: AtomicBool,
    commits: AtomicUsize,
    acknowledged: Mutex<HashSet<(u32, u32)>>,
    /// Nobody knows whether these were committed.
    unknown: Mutex<HashSet<(u32, u32)>>,
    /// Errors of statements that are no COMMIT.
    failures: Mutex<Vec<String>>,
}

/// Moves money between two accounts of its own, and writes that down.
async fn transfer(conn: &mut Conn, client: u32, number: u32) -> Result<(), Error> {
    // Half of them have no BEGIN.
    if client.is_multiple_of(2) {
        conn.query_drop("START TRANSACTION").await?;
    }
    let balance = format!("SELECT balance FROM accounts WHERE id = {client} FOR UPDATE");
    let _: Option<u32> = conn.query_first(balance).await?;
    sleep(PAUSE).await;
    let take = "UPDATE accounts SET balance = balance - ? WHERE id = ?";
    conn.exec_drop(take, (1, client)).await?;
    sleep(PAUSE).await;
    let give = format!(
        "UPDATE accounts SET balance = balance + 1 WHERE id = {}",
        CLIENTS + client
    );
    conn.query_drop(give).await?;
    conn.query_drop("SAVEPOINT before_the_ledger").await?;
    sleep(PAUSE).await;
    conn.exec_drop("INSERT INTO ledger VALUES (?, ?)", (client, number))
        .await?;
    // One row for all of them.
    conn.query_drop("UPDATE total SET transfers = transfers + 1")
        .await
}

async fn work(options: Opts, book: Arc<Book>, client: u32) {
    let mut number = 0;
    'sessions: while !book.stop.load(Ordering::Relaxed) {
        let Ok(mut conn) = Conn::new(options.clone()).await else {
            sleep(PAUSE).await;
            continue;
        };
        if client % 2 == 1 {
            conn.query_drop("SET autocommit = 0").await.unwrap();
        }
        while !book.stop.load(Ordering::Relaxed) {
            number += 1;
            let done = timeout(PATIENCE, transfer(&mut conn, client, number))
                .await
                .unwrap();
            if let Err(error) = done {
                let what = format!("client {client}, transaction {number}: {error}");
                book.failures.lock().unwrap().push(what);
                continue 'sessions;
            }
            match conn.query_drop("COMMIT").await {
                Ok(()) => {
                    book.acknowledged.lock().unwrap().insert((client, number));
                    book.commits.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    book.unknown.lock().unwrap().insert((client, number));
                    continue 'sessions;
                }
            }
        }
        conn.disconnect().await.unwrap();
    }
}

fn schema(sandbox: &Sandbox) {
    let accounts = 2 * CLIENTS;
    cluster::schema(
        sandbox,
        "replay",
        &format!(
            "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL) ENGINE=InnoDB;
             CREATE TABLE ledger (client INT, number INT, PRIMARY KEY (client, number)) ENGINE=InnoDB;
             CREATE TABLE total (transfers INT NOT NULL) ENGINE=InnoDB;
             INSERT INTO total VALUES (0);
             INSERT INTO accounts WITH RECURSIVE r AS (SELECT 0 n UNION ALL SELECT n + 1 FROM r WHERE n < {accounts} - 1)
                SELECT n, {BALANCE} FROM r;"
        ),
    );
}

#[tokio::test]
async fn after_a_kill() {
    let sandbox = Sandbox::start(Spec::new(kind()).nodes(3).semi_synchronous()).unwrap();
    schema(&sandbox);
    sandbox.replicate_safely().unwrap();
    let setup = cluster::split(&sandbox).cluster("failover_wait = \"50s\"\ntransaction_replay = true");
    let gateway = cluster::start(setup, 2).await;
    let book = Arc::<Book>::default();
    let options: Opts = cluster::options(&gateway).db_name(Some("replay")).into();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(work(options.clone(), Arc::clone(&book), client));
    }
    let more = async |count| {
        let wanted = book.commits.load(Ordering::Relaxed) + count;
        eventually("transactions are committed", async || {
            book.commits.load(Ordering::Relaxed) >= wanted
        })
        .await;
    };
    more(100).await;
    sandbox.primary().kill9().unwrap();
    let replicas = &sandbox.nodes()[1..];
    for replica in replicas {
        replica.apply_received().unwrap();
    }
    // One of them has every transaction that was acknowledged: the one that is further.
    let (new, other) = match replicas[0].has(&replicas[1].position().unwrap()).unwrap() {
        true => (&replicas[0], &replicas[1]),
        false => (&replicas[1], &replicas[0]),
    };
    promote(new);
    follow(other, new, false);
    more(100).await;
    book.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let replays = |result: &str| {
        let result = format!("result={result:?}");
        gateway.metric("forebay_transaction_replays_total", &[&result]) as usize
    };
    let unknown = book.unknown.lock().unwrap();
    println!(
        "{} commits, {} unknown, {} transactions executed again",
        book.acknowledged.lock().unwrap().len(),
        unknown.len(),
        replays("done")
    );
    assert!(replays("done") > 0);
    let others = ["differs", "failed", "behind", "not-replayable"].map(replays);
    let failures = book.failures.lock().unwrap();
    assert!(failures.is_empty(), "{others:?}: {failures:#?}");
    assert_eq!(others, [0; 4]);

    let sum = new.sql("SELECT SUM(balance) FROM replay.accounts").unwrap();
    assert_eq!(sum.trim(), (2 * CLIENTS * BALANCE).to_string(), "money");
    let rows = new.sql("SELECT client, number FROM replay.ledger").unwrap();
    let mut there = HashSet::new();
    for row in rows.lines() {
        let (client, number) = row.split_once('\t').unwrap();
        there.insert((client.parse().unwrap(), number.parse().unwrap()));
    }
    let total = new.sql("SELECT transfers FROM replay.total").unwrap();
    assert_eq!(total.trim(), there.len().to_string(), "each was done once");
    for transfer in book.acknowledged.lock().unwrap().iter() {
        assert!(there.remove(transfer), "{transfer:?} was acknowledged and lost");
    }
    for transfer in there {
        assert!(
            unknown.contains(&transfer),
            "{transfer:?} was refused, and is there"
        );
    }
    assert_eq!(gateway.metric("forebay_transaction_replay_bytes", &[]), 0.0);
}
