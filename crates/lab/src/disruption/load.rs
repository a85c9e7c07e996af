//! Clients at a fixed rate, an open loop: each statement is due at its time, however long those before it
//! take, and its wait counts from then. A connection that is lost is an error, and so is a login that fails.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use super::{
    script::{Counter, Script, Statement, Template, Work},
    seen::{Doing, Seen},
};
use crate::client::{ACCOUNT, Client, ClientError, Prepared, StatementAnswer};

/// A client of every other pair says goodbye and logs in anew after so many turns, as applications with
/// short-lived connections do.
const TURNS_OF_A_SESSION: u32 = 8;
/// Between two logins that fail.
const BACK_OFF: Duration = Duration::from_millis(250);
/// Clients that do not end within this time after they were told to have no answer.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// What the clients of one listener do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub address: SocketAddr,
    /// The numbers of the clients, each of which has its own rows.
    pub first: u64,
    pub clients: u64,
    /// Statements a second of all of them.
    pub rate: f64,
    pub work: Work,
    pub has_variable: bool,
}

impl Traffic {
    /// When the statement is due that this client sends as its so-manieth. None is reckoned from the one
    /// before: nothing adds up.
    fn due(&self, client: u64, statement: u64) -> Duration {
        Duration::from_secs_f64((statement * self.clients + client) as f64 / self.rate)
    }
}

pub(super) struct Ended {
    pub seen: Seen,
    /// What each client knows of its counter, by its number.
    pub counters: Vec<(u64, Counter)>,
    /// From when all times count.
    pub began: Instant,
}

/// Clients under way.
pub(super) struct Load {
    traffic: Traffic,
    began: Instant,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<(Seen, Counter)>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answers: AtomicU64,
    errors: AtomicU64,
}

impl Load {
    /// Logs all clients in, one after the other, and begins.
    pub(super) fn start(traffic: Traffic) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut scripts = Vec::new();
        for number in 0..traffic.clients {
            let script = Script::new(traffic.first + number, traffic.work, traffic.has_variable);
            let connection = Connection::open(traffic.address, number, &script);
            let connection = connection.with_context(|| format!("client {number} does not get in"))?;
            scripts.push((number, script, connection));
        }
        let began = Instant::now();
        let mut load = Self {
            traffic,
            began,
            shared,
            threads: Vec::new(),
        };
        for (number, script, connection) in scripts {
            let client = OneClient {
                traffic,
                number,
                began,
                script,
                seen: Seen::default(),
                shared: Arc::clone(&load.shared),
            };
            let thread = thread::Builder::new().name(format!("client-{number}"));
            load.threads.push(thread.spawn(move || client.run(connection))?);
        }
        Ok(load)
    }

    /// Answers and errors until now.
    pub(super) fn so_far(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.shared.answers), read(&self.shared.errors))
    }

    /// Lets each client end its turn, and returns what all of them saw.
    pub(super) fn stop(mut self) -> anyhow::Result<Ended> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + END_PATIENCE;
        let mut ended = Ended {
            seen: Seen::default(),
            counters: Vec::new(),
            began: self.began,
        };
        for (number, thread) in (self.traffic.first..).zip(std::mem::take(&mut self.threads)) {
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            ensure!(
                thread.is_finished(),
                "client {number} waits for an answer without an end"
            );
            let joined = thread.join();
            let (seen, counter) = joined.map_err(|_| anyhow::anyhow!("client {number} panicked"))?;
            ended.seen.add(seen);
            ended.counters.push((number, counter));
        }
        Ok(ended)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// A connection with its prepared statements, of those clients that prepare.
struct Connection {
    client: Client,
    prepared: HashMap<&'static str, Prepared>,
}

impl Connection {
    fn open(address: SocketAddr, number: u64, script: &Script) -> Result<Self, ClientError> {
        let mut client = Client::connect(address, ACCOUNT)?;
        if let Some(opening) = script.opening() {
            client.query(&opening)?;
        }
        let mut prepared = HashMap::new();
        if number % 2 == 1 {
            for template in Template::ALL
                .into_iter()
                .filter(|template| template.is_prepared())
            {
                prepared.insert(template.sql(), client.prepare(template.sql())?);
            }
        }
        Ok(Self { client, prepared })
    }

    fn run(&mut self, statement: &Statement) -> Result<StatementAnswer, ClientError> {
        match self.prepared.get(statement.template.sql()) {
            Some(prepared) => self.client.execute(*prepared, &statement.parameters),
            None => self.client.query(&statement.text()),
        }
    }
}

struct OneClient {
    traffic: Traffic,
    number: u64,
    began: Instant,
    script: Script,
    seen: Seen,
    shared: Arc<Shared>,
}

impl OneClient {
    fn run(mut self, connection: Connection) -> (Seen, Counter) {
        let mut connection = Some(connection);
        let mut turns = 0;
        for statement in 0.. {
            if self.script.is_between_turns() {
                if self.is_told_to_stop() {
                    break;
                }
                turns += 1;
                if self.number / 2 % 2 == 1 && turns % TURNS_OF_A_SESSION == 0 {
                    connection.take().into_iter().for_each(|open| open.client.quit());
                }
            }
            let due = self.traffic.due(self.number, statement);
            thread::sleep(due.saturating_sub(self.began.elapsed()));
            let Some(open) = self.connected(&mut connection) else {
                break;
            };
            let statement = self.script.next();
            let result = open.run(&statement);
            if let Err(ClientError::Lost(_)) = result {
                connection = None;
            }
            self.take_note(due, &statement, &result);
        }
        (self.seen, self.script.counter)
    }

    /// The connection, or another one where it was ended or lost; none where the load ends meanwhile.
    fn connected<'a>(&mut self, connection: &'a mut Option<Connection>) -> Option<&'a mut Connection> {
        while connection.is_none() {
            match Connection::open(self.traffic.address, self.number, &self.script) {
                Ok(opened) => *connection = Some(opened),
                Err(error) => self.error(&error, Doing::Login, "login"),
            }
            if connection.is_none() {
                if self.is_told_to_stop() {
                    return None;
                }
                thread::sleep(BACK_OFF);
            }
        }
        connection.as_mut()
    }

    fn take_note(
        &mut self,
        due: Duration,
        statement: &Statement,
        result: &Result<StatementAnswer, ClientError>,
    ) {
        let wrong = self.script.answered(statement, result);
        match result {
            Ok(_) => {
                self.seen.answer(due, self.began.elapsed());
                self.shared.answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.error(error, statement.doing, &statement.text()),
        }
        if let Some(words) = wrong {
            self.shared.errors.fetch_add(1, Ordering::Relaxed);
            self.seen.wrong(self.at(&words));
        }
    }

    fn error(&mut self, error: &ClientError, doing: Doing, what: &str) {
        self.shared.errors.fetch_add(1, Ordering::Relaxed);
        let words = self.at(&format!("{what}: {error}"));
        self.seen.error(error.code(), doing, words);
    }

    /// With the client's number and the time.
    fn at(&self, words: &str) -> String {
        let (number, seconds) = (
            self.traffic.first + self.number,
            self.began.elapsed().as_secs_f64(),
        );
        format!("client {number} after {seconds:.2} s: {words}")
    }

    fn is_told_to_stop(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_due_at_equal_distances_whoever_sends_them() {
        let traffic = Traffic {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            first: 8,
            clients: 4,
            rate: 400.0,
            work: Work::Reads,
            has_variable: false,
        };
        let due = |client, statement| traffic.due(client, statement).as_micros();
        assert_eq!(
            [due(0, 0), due(1, 0), due(3, 0), due(0, 1)],
            [0, 2500, 7500, 10_000]
        );
        assert_eq!(due(0, 1_000_000), 10_000_000_000, "nothing adds up");
    }
}
