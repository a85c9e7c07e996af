//! A light load: some threads that read and a few that write, all through one port.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use inputs::Random;

use crate::client::Server;

/// Rows of the table `account`.
pub(super) const ACCOUNTS: u64 = 1000;
pub(super) const READERS: u64 = 12;
pub(super) const WRITERS: u64 = 2;
/// Between two statements of a thread: the demo shows that it works, not how fast it is.
const PAUSE: Duration = Duration::from_millis(2);
/// A thread logs in anew after so many statements, as applications with short-lived connections do.
const STATEMENTS_PER_SESSION: usize = 1500;
/// After a failure, before the next login.
const BACK_OFF: Duration = Duration::from_millis(200);

/// What happened since the last look.
pub(super) struct Tally {
    pub queries: u64,
    pub failures: u64,
    pub last_failure: Option<String>,
    /// In microseconds.
    latency: Histogram<u64>,
}

impl Tally {
    fn new() -> anyhow::Result<Self> {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3)?;
        Ok(Self {
            queries: 0,
            failures: 0,
            last_failure: None,
            latency,
        })
    }

    /// In milliseconds.
    pub(super) fn p95_ms(&self) -> f64 {
        self.latency.value_at_quantile(0.95) as f64 / 1e3
    }

    pub(super) fn add(&mut self, later: Self) {
        self.queries += later.queries;
        self.failures += later.failures;
        self.last_failure = later.last_failure.or_else(|| self.last_failure.take());
        // Both have the same bounds.
        let _ = self.latency.add(&later.latency);
    }
}

pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    tally: Mutex<Tally>,
}

impl Load {
    pub(super) fn start(target: Server) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            tally: Mutex::new(Tally::new()?),
        });
        let mut load = Self {
            shared,
            threads: Vec::new(),
        };
        for number in 0..READERS + WRITERS {
            let shared = Arc::clone(&load.shared);
            let name = format!("load-{number}");
            load.threads.push(
                thread::Builder::new()
                    .name(name)
                    .spawn(move || shared.run(target, number))?,
            );
        }
        Ok(load)
    }

    /// What happened since the last call.
    pub(super) fn take(&self) -> anyhow::Result<Tally> {
        Ok(std::mem::replace(&mut *self.shared.tally(), Tally::new()?))
    }

    /// Waits until every thread has its last answer.
    pub(super) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run(&self, target: Server, number: u64) {
        let mut random = Random::new(number);
        while !self.stopped() {
            if let Err(error) = self.session(target, number, &mut random) {
                let mut tally = self.tally();
                tally.failures += 1;
                tally.last_failure = Some(format!("{error:#}"));
                drop(tally);
                thread::sleep(BACK_OFF);
            }
        }
    }

    fn session(&self, target: Server, number: u64, random: &mut Random) -> anyhow::Result<()> {
        let writes = number >= READERS;
        let mut client = target.connect()?;
        for _ in 0..STATEMENTS_PER_SESSION {
            if self.stopped() {
                break;
            }
            let statement = statement(writes, random);
            let start = Instant::now();
            client.query(&statement)?;
            let latency = start.elapsed().as_micros() as u64;
            let mut tally = self.tally();
            tally.queries += 1;
            tally.latency.saturating_record(latency);
            drop(tally);
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

fn statement(writes: bool, random: &mut Random) -> String {
    let id = 1 + random.below(ACCOUNTS);
    match (writes, random.below(10)) {
        (true, _) => format!("UPDATE account SET balance = balance + 1 WHERE id = {id}"),
        (false, 0) => format!("SELECT id, owner, balance FROM account WHERE id BETWEEN {id} AND {id} + 99"),
        (false, _) => format!("SELECT owner, balance FROM account WHERE id = {id}"),
    }
}
