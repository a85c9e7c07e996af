//! A load that knows what it has done: transfers that keep the sum of all balances, inserts of numbers that
//! are used once. Every session reads its own writes. What was acknowledged must be there in the end, what
//! was refused must not, and nothing twice.
//!
//! The sessions have a thread of their own: a server may have to wait for them while a test waits for the
//! server.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::{Gateway, PATIENCE, eventually};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts};
use sandbox::{Node, Sandbox};
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster;

const SCHEMA: &str = "ledger";
const ACCOUNTS: u64 = 20;
const BALANCE: u64 = 1000;
const PAUSE: Duration = Duration::from_millis(2);

/// What the load has met.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The statement in question.
    #[allow(dead_code, reason = "shown where a test fails")]
    pub(crate) statement: &'static str,
    /// Of the error packet; none where the connection ended without one.
    pub(crate) code: Option<u16>,
    #[allow(dead_code, reason = "shown where a test fails")]
    pub(crate) text: String,
}

#[derive(Default)]
struct Book {
    stop: AtomicBool,
    next: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
    /// Numbers of which nobody knows whether they were inserted.
    unknown: Mutex<HashSet<u64>>,
    failures: Mutex<Vec<Failure>>,
    /// The longest time that one statement took, in milliseconds.
    longest: AtomicU64,
}

/// Sessions at work.
pub(crate) struct Load {
    book: Arc<Book>,
    sessions: JoinHandle<()>,
}

/// Makes the tables.
pub(crate) fn prepare(sandbox: &Sandbox) {
    cluster::schema(
        sandbox,
        SCHEMA,
        &format!(
            "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL) ENGINE=InnoDB;
             CREATE TABLE events (id BIGINT AUTO_INCREMENT PRIMARY KEY, number BIGINT NOT NULL, KEY (number)) ENGINE=InnoDB;
             INSERT INTO accounts WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < {ACCOUNTS})
                SELECT n, {BALANCE} FROM r;"
        ),
    );
}

impl Load {
    pub(crate) fn start(gateway: &Gateway, sessions: usize) -> Self {
        let book = Arc::<Book>::default();
        let options: Opts = cluster::options(gateway).db_name(Some(SCHEMA)).into();
        let thread = {
            let book = Arc::clone(&book);
            std::thread::spawn(move || run_all(&options, &book, sessions))
        };
        Self {
            book,
            sessions: thread,
        }
    }

    /// Waits until `count` more inserts were acknowledged.
    pub(crate) async fn goes_on(&self, count: usize) {
        let acknowledged = || self.book.acknowledged.lock().unwrap().len();
        let wanted = acknowledged() + count;
        eventually("the load goes on", async || {
            assert!(!self.sessions.is_finished(), "a session has failed");
            acknowledged() >= wanted
        })
        .await;
    }

    /// Lets the sessions finish, and looks into the books of a server.
    pub(crate) fn end(self, server: &Node) -> Vec<Failure> {
        self.book.stop.store(true, Ordering::Relaxed);
        self.sessions.join().unwrap();
        self.book.audit(server);
        self.book.failures.lock().unwrap().clone()
    }
}

/// Returns when all sessions have ended; panics when one has.
fn run_all(options: &Opts, book: &Arc<Book>, sessions: usize) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for session in 0..sessions {
            tasks.spawn(work(options.clone(), Arc::clone(book), session));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    });
}

impl Book {
    fn audit(&self, server: &Node) {
        let sum = server.sql("SELECT SUM(balance) FROM ledger.accounts").unwrap();
        assert_eq!(sum.trim(), (ACCOUNTS * BALANCE).to_string(), "money");
        let rows = server.sql("SELECT number FROM ledger.events").unwrap();
        let mut there = HashSet::new();
        for number in rows.lines().map(|line| line.parse::<u64>().unwrap()) {
            assert!(there.insert(number), "insert {number} was done twice");
        }
        let acknowledged = self.acknowledged.lock().unwrap();
        let unknown = self.unknown.lock().unwrap();
        for number in acknowledged.iter() {
            assert!(there.remove(number), "insert {number} was acknowledged and lost");
        }
        for number in there {
            assert!(
                unknown.contains(&number),
                "insert {number} was refused, and is there"
            );
        }
        println!(
            "{} inserts acknowledged, {} unknown, {} errors, longest statement {} ms",
            acknowledged.len(),
            unknown.len(),
            self.failures.lock().unwrap().len(),
            self.longest.load(Ordering::Relaxed)
        );
    }

    fn failed(&self, statement: &'static str, error: &Error) {
        let code = match error {
            Error::Server(error) => Some(error.code),
            _ => None,
        };
        self.failures.lock().unwrap().push(Failure {
            statement,
            code,
            text: error.to_string(),
        });
    }

    /// Runs a statement and notes how long it took, and its error.
    async fn run(&self, conn: &mut Conn, name: &'static str, statement: &str) -> Result<(), Error> {
        let begin = Instant::now();
        let done = timeout(PATIENCE, conn.query_drop(statement))
            .await
            .unwrap_or_else(|_| panic!("{statement} gets no answer"));
        let took = u64::try_from(begin.elapsed().as_millis()).unwrap();
        self.longest.fetch_max(took, Ordering::Relaxed);
        done.inspect_err(|error| self.failed(name, error))
    }
}

/// Whether an error leaves it open what has become of the statement. A refusal says so: nothing was executed.
fn is_unknown(error: &Error) -> bool {
    match error {
        Error::Server(error) => error.message.contains("not known whether") || error.code == 1053,
        _ => true,
    }
}

async fn work(options: Opts, book: Arc<Book>, session: usize) {
    let mut turn = session;
    'sessions: while !book.stop.load(Ordering::Relaxed) {
        let mut conn = match Conn::new(options.clone()).await {
            Ok(conn) => conn,
            Err(error) => {
                book.failed("login", &error);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        while !book.stop.load(Ordering::Relaxed) {
            turn += 1;
            let done = match turn % 3 {
                0 => transfer(&mut conn, &book, turn).await,
                _ => insert(&mut conn, &book).await,
            };
            // A session that an error has not ended goes on.
            if done.is_err() && conn.query_drop("ROLLBACK").await.is_err() {
                let _ = conn.disconnect().await;
                continue 'sessions;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let _ = conn.disconnect().await;
    }
}

/// Inserts a number and reads it back.
async fn insert(conn: &mut Conn, book: &Book) -> Result<(), Error> {
    let number = book.next.fetch_add(1, Ordering::Relaxed);
    let insert = format!("INSERT INTO events (number) VALUES ({number})");
    if let Err(error) = book.run(conn, "insert", &insert).await {
        if is_unknown(&error) {
            book.unknown.lock().unwrap().insert(number);
        }
        return Err(error);
    }
    book.acknowledged.lock().unwrap().push(number);
    let read: Option<u64> = conn
        .query_first(format!("SELECT number FROM events WHERE number = {number}"))
        .await
        .inspect_err(|error| book.failed("read", error))?;
    assert_eq!(read, Some(number), "a session does not see its own write");
    Ok(())
}

async fn transfer(conn: &mut Conn, book: &Book, turn: usize) -> Result<(), Error> {
    // In the order of their ids: no deadlocks.
    let from = turn as u64 % (ACCOUNTS - 1) + 1;
    let change = |id, change| format!("UPDATE accounts SET balance = balance + {change} WHERE id = {id}");
    book.run(conn, "begin", "START TRANSACTION").await?;
    book.run(conn, "update", &change(from, -7)).await?;
    book.run(conn, "update", &change(from + 1, 7)).await?;
    book.run(conn, "commit", "COMMIT").await
}
