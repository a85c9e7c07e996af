//! A load whose result is known whatever fails: transfers that keep the sum of all balances, inserts with
//! numbers that are used once, and reads that know how many rows there are.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use e2e::{Gateway, PATIENCE, client, eventually};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts};
use sandbox::{Lent, Node};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

const ACCOUNTS: u64 = 20;
const BALANCE: u64 = 1000;
const NUMBERS: usize = 500;
/// A worker opens a new session after so many steps, so that a server that is back gets its share.
const STEPS_A_SESSION: usize = 30;
/// Between two steps: the load is to be there all the time, not to be high.
const PAUSE: Duration = Duration::from_millis(3);
/// The pause after an error is longer: as long as no server is there, each login fails at once.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);

/// What a worker was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Connect,
    /// The session is logged in and asks which server it is on.
    AskPort,
    Insert,
    Read,
    Begin,
    /// In a transaction, its end included.
    Transfer,
}

/// An error that a worker was given.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    /// The server of the session, unless it was not yet known.
    pub(crate) port: Option<u16>,
    /// Of the error packet; none where the connection broke without one.
    pub(crate) code: Option<u16>,
    pub(crate) text: String,
}

#[derive(Default)]
struct Ledger {
    stop: AtomicBool,
    next_number: AtomicU64,
    /// Numbers whose insert was acknowledged, and by which server.
    acknowledged: Mutex<HashMap<u16, Vec<u64>>>,
    failures: Mutex<Vec<Failure>>,
}

/// Workers at work. Dropping it ends them. The workers have a thread of their own: a test blocks while a
/// server stops or starts, and clients that answer nothing for so long are given up in their login.
pub(crate) struct Load {
    ledger: Arc<Ledger>,
    /// None once the workers were waited for.
    workers: Option<JoinHandle<()>>,
}

/// Makes the tables, on each of servers that know nothing of one another.
pub(crate) fn prepare(servers: &[Lent]) {
    for server in servers {
        let statements = format!(
            "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL) ENGINE=InnoDB;
             CREATE TABLE events (number BIGINT NOT NULL, KEY (number)) ENGINE=InnoDB;
             CREATE TABLE numbers (n INT PRIMARY KEY, pad CHAR(100) NOT NULL) ENGINE=InnoDB;
             INSERT INTO accounts WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < {ACCOUNTS})
                SELECT n, {BALANCE} FROM r;
             INSERT INTO numbers WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < {NUMBERS})
                SELECT n, REPEAT('x', 100) FROM r;"
        );
        server.primary().sql(&statements).unwrap();
    }
}

impl Load {
    pub(crate) fn start(gateway: &Gateway, workers: usize) -> Self {
        let ledger = Arc::<Ledger>::default();
        let options: Opts = client::options(gateway)
            .max_allowed_packet(Some(1 << 24)) // else each session begins with a question for it
            .wait_timeout(Some(600))
            .into();
        let thread = {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || work_all(&options, &ledger, workers))
        };
        Self {
            ledger,
            workers: Some(thread),
        }
    }

    /// Waits until each of these servers has acknowledged `count` more inserts.
    pub(crate) async fn goes_on(&self, servers: &[&Node], count: usize) {
        let wanted: Vec<_> = servers
            .iter()
            .map(|node| (node.port(), self.acknowledged_by(node.port()) + count))
            .collect();
        eventually("the load goes on", async || {
            let have_ended = self.workers.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!have_ended, "a worker has failed");
            wanted
                .iter()
                .all(|(port, wanted)| self.acknowledged_by(*port) >= *wanted)
        })
        .await;
    }

    /// Waits until so many workers have met an error since the load began.
    pub(crate) async fn has_failed(&self, count: usize) {
        eventually("errors are seen", async || {
            self.ledger.failures.lock().unwrap().len() >= count
        })
        .await;
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.ledger.failures.lock().unwrap().clone()
    }

    fn acknowledged_by(&self, port: u16) -> usize {
        let acknowledged = self.ledger.acknowledged.lock().unwrap();
        acknowledged.get(&port).map_or(0, Vec::len)
    }

    /// Lets the workers finish, audits what the servers have, and returns all errors that were seen.
    ///
    /// # Panics
    /// When a worker got a wrong answer, money appeared or vanished, or an insert was lost or done twice.
    pub(crate) async fn end(mut self, servers: &[Lent]) -> Vec<Failure> {
        self.ledger.stop.store(true, Ordering::Relaxed);
        if let Some(workers) = self.workers.take() {
            workers.join().unwrap();
        }
        for server in servers {
            self.audit(server.primary());
        }
        self.failures()
    }

    fn audit(&self, server: &Node) {
        let sum = server.sql("SELECT SUM(balance) FROM accounts").unwrap();
        assert_eq!(sum.trim(), (ACCOUNTS * BALANCE).to_string(), "money");
        let rows = server.sql("SELECT number FROM events").unwrap();
        let mut there = HashSet::new();
        for number in rows.lines().map(|line| line.parse::<u64>().unwrap()) {
            assert!(there.insert(number), "insert {number} was done twice");
        }
        let acknowledged = self.ledger.acknowledged.lock().unwrap();
        for number in acknowledged.get(&server.port()).into_iter().flatten() {
            assert!(
                there.contains(number),
                "insert {number} was acknowledged and lost"
            );
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ledger.stop.store(true, Ordering::Relaxed);
    }
}

/// What ends a session of a worker.
struct Broken(Step, Error);

/// Returns when all workers have ended; panics when one has.
fn work_all(options: &Opts, ledger: &Arc<Ledger>, workers: usize) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..workers {
            tasks.spawn(work(options.clone(), Arc::clone(ledger), number));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    });
}

async fn work(options: Opts, ledger: Arc<Ledger>, worker: usize) {
    while !ledger.stop.load(Ordering::Relaxed) {
        let mut port = None;
        let session = session(&options, &ledger, worker, &mut port);
        let ended = timeout(PATIENCE, session).await;
        let ended = ended.unwrap_or_else(|_| panic!("a session on {port:?} gets no answer and no error"));
        if let Err(Broken(step, error)) = ended {
            let code = match &error {
                Error::Server(error) => Some(error.code),
                _ => None,
            };
            let text = error.to_string();
            ledger.failures.lock().unwrap().push(Failure {
                step,
                port,
                code,
                text,
            });
            tokio::time::sleep(PAUSE_AFTER_ERROR).await;
        }
    }
}

async fn session(
    options: &Opts,
    ledger: &Ledger,
    worker: usize,
    port: &mut Option<u16>,
) -> Result<(), Broken> {
    let at = |step| move |error| Broken(step, error);
    let mut conn = Conn::new(options.clone()).await.map_err(at(Step::Connect))?;
    let own_port: Option<u16> = conn
        .query_first("SELECT @@port")
        .await
        .map_err(at(Step::AskPort))?;
    let own_port = own_port.expect("a row");
    *port = Some(own_port);
    for turn in worker..worker + STEPS_A_SESSION {
        if ledger.stop.load(Ordering::Relaxed) {
            break;
        }
        match turn % 3 {
            0 => {
                let number = ledger.next_number.fetch_add(1, Ordering::Relaxed);
                let insert = conn.query_drop(format!("INSERT INTO events VALUES ({number})"));
                insert.await.map_err(at(Step::Insert))?;
                let mut acknowledged = ledger.acknowledged.lock().unwrap();
                acknowledged.entry(own_port).or_default().push(number);
            }
            1 => read(&mut conn, turn).await.map_err(at(Step::Read))?,
            _ => {
                conn.query_drop("START TRANSACTION")
                    .await
                    .map_err(at(Step::Begin))?;
                transfer(&mut conn, turn).await.map_err(at(Step::Transfer))?;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    // A goodbye may find nobody any more.
    let _ = conn.disconnect().await;
    Ok(())
}

/// Text and binary protocol in turns. All rows or an error: never fewer rows.
async fn read(conn: &mut Conn, turn: usize) -> Result<(), Error> {
    let rows: Vec<(u32, String)> = if turn.is_multiple_of(2) {
        conn.query("SELECT n, pad FROM numbers").await?
    } else {
        conn.exec("SELECT n, pad FROM numbers WHERE n <= ?", (NUMBERS,))
            .await?
    };
    assert_eq!(rows.len(), NUMBERS, "a part of a result was taken for all of it");
    assert!(rows.iter().all(|(_, pad)| pad.len() == 100));
    Ok(())
}

async fn transfer(conn: &mut Conn, turn: usize) -> Result<(), Error> {
    // In the order of their ids: no deadlocks.
    let from = turn as u64 % (ACCOUNTS - 1) + 1;
    for (id, change) in [(from, -7), (from + 1, 7)] {
        conn.query_drop(format!(
            "UPDATE accounts SET balance = balance + {change} WHERE id = {id}"
        ))
        .await?;
        tokio::time::sleep(PAUSE).await;
    }
    conn.query_drop("COMMIT").await
}

/// Errors must be those that the gateway words, or a connection that ended where the protocol has no place
/// for one; each on a session of the failed server or in a login.
#[track_caller]
pub(crate) fn assert_only_on(failed: &Node, failures: &[Failure]) {
    for failure in failures {
        assert!(
            failure.port.is_none_or(|port| port == failed.port()),
            "a session elsewhere failed: {failure:?}"
        );
        assert_right_words(failure);
    }
}

#[track_caller]
pub(crate) fn assert_right_words(failure: &Failure) {
    let words = match failure.code {
        Some(1158) => "Lost connection to MySQL server: ",
        Some(1429) => "Can't connect to a MySQL server: ",
        // A login ends with an error packet in any case.
        None if failure.step != Step::Connect => return,
        _ => panic!("not an error of a lost server: {failure:?}"),
    };
    assert!(failure.text.contains(words), "{failure:?}");
}
