//! Everything that one worker thread counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error_table::ErrorTable;
use crate::{
    CacheMetrics, Counter, EndReason, Fault, Gauge, Histogram, ListenerMetrics, MirrorMetrics, OTHER,
    Samples, ServerMetrics, catalog,
};

/// Listeners that a worker tells apart from start to end of the process; sessions of further ones are counted
/// under [`OTHER`]. Series of removed listeners stay, so that their counts are not lost between two scrapes.
const MAX_LISTENERS: usize = 256;
/// The same for servers, over all clusters. A server costs about 2 KiB a worker.
const MAX_SERVERS: usize = 1024;

/// The same for rules: twice as many as a configuration may have.
const MAX_RULES: usize = 2000;
/// The same for clusters that get copies of statements.
const MAX_MIRRORS: usize = 64;

/// What sessions wait for.
const WAITING: [&str; 8] = [
    "login", "seat", "primary", "position", "pause", "client", "server", "stream",
];

/// The series of one worker. Fields and handles are written by that worker's thread only; see [`Counter`].
#[derive(Debug)]
pub struct Worker {
    /// Commands received from clients, by command byte.
    pub commands: [Counter; 256],
    pub sessions: Gauge,
    /// Turns of the event loop.
    pub turns: Counter,
    /// Buffers that sessions hold now.
    pub buffers_in_use: Gauge,
    /// Buffers kept in the worker's pool for reuse.
    pub buffers_free: Gauge,
    waiting: [Gauge; WAITING.len()],
    /// Statements prepared again, on a connection that did not know them.
    pub reprepares: Counter,
    /// Those closed because a server had as many as it takes.
    pub evicted_statements: Counter,
    /// Waits of reads for a replica to have what they must see.
    pub read_wait_seconds: Histogram,
    pub move_seconds: Histogram,
    /// Reads of rows in memory.
    pub cache: CacheMetrics,
    label: String,
    errors: ErrorTable,
    server_errors: ErrorTable,
    listeners: Mutex<HashMap<String, Arc<ListenerMetrics>>>,
    servers: Mutex<HashMap<(String, String), Arc<ServerMetrics>>>,
    rules: Mutex<HashMap<String, Arc<Counter>>>,
    mirrors: Mutex<HashMap<String, Arc<MirrorMetrics>>>,
    overflow: Counter,
}

impl Worker {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            commands: [const { Counter::new() }; 256],
            sessions: Gauge::new(),
            turns: Counter::new(),
            buffers_in_use: Gauge::new(),
            buffers_free: Gauge::new(),
            waiting: std::array::from_fn(|_| Gauge::new()),
            reprepares: Counter::new(),
            evicted_statements: Counter::new(),
            read_wait_seconds: Histogram::default(),
            move_seconds: Histogram::default(),
            cache: CacheMetrics::default(),
            label: index.to_string(),
            errors: ErrorTable::default(),
            server_errors: ErrorTable::default(),
            listeners: Mutex::default(),
            servers: Mutex::default(),
            rules: Mutex::default(),
            mirrors: Mutex::default(),
            overflow: Counter::new(),
        }
    }

    /// The series of a listener. Looked up once per session (a lock and a hash), then free.
    pub fn listener(&self, name: &str) -> Arc<ListenerMetrics> {
        self.of_name(&self.listeners, MAX_LISTENERS, name)
    }

    /// The series of a server. Looked up once per connection to it (a lock and a hash), then free.
    pub fn server(&self, cluster: &str, server: &str) -> Arc<ServerMetrics> {
        let mut servers = lock(&self.servers);
        let key = (cluster.to_owned(), server.to_owned());
        if let Some(found) = servers.get(&key) {
            return Arc::clone(found);
        }
        let server = self.within(servers.len(), MAX_SERVERS, server);
        let cluster = if server == OTHER { OTHER } else { cluster };
        Arc::clone(
            servers
                .entry((cluster.to_owned(), server.to_owned()))
                .or_default(),
        )
    }

    /// Statements that met a rule. Looked up once per rule and reload.
    pub fn rule(&self, name: &str) -> Arc<Counter> {
        self.of_name(&self.rules, MAX_RULES, name)
    }

    /// The series of the copies that a cluster gets.
    pub fn mirror(&self, cluster: &str) -> Arc<MirrorMetrics> {
        self.of_name(&self.mirrors, MAX_MIRRORS, cluster)
    }

    /// Says how many sessions wait for this now.
    pub fn waiting(&self, label: &str, count: i64) {
        let place = WAITING.iter().position(|known| *known == label);
        debug_assert!(place.is_some(), "{label} is in no series");
        if let Some(place) = place {
            self.waiting[place].set(count);
        }
    }

    /// Counts the end of a session, for those who hold no [`ListenerMetrics`].
    pub fn session_ended(&self, listener: &str, reason: EndReason) {
        self.listener(listener).session_ended(reason);
    }

    /// Counts one error packet that was made here and sent to a client.
    pub fn error_sent(&self, code: u16, fault: Fault) {
        self.errors.record(code, fault);
    }

    /// Counts one error packet of a server that was passed on.
    pub fn error_passed_on(&self, code: u16) {
        self.server_errors.record(code, Fault::Server);
    }

    pub(crate) fn collect(&self, command_name: fn(u8) -> &'static str, out: &mut Samples) {
        let labels = &[self.label.as_str()];
        out.gauge(&catalog::WORKER_SESSIONS, labels, self.sessions.get());
        out.counter(&catalog::WORKER_TURNS, labels, self.turns.get());
        out.gauge(&catalog::BUFFERS_IN_USE, labels, self.buffers_in_use.get());
        out.gauge(&catalog::BUFFERS_FREE, labels, self.buffers_free.get());
        for (label, count) in WAITING.iter().zip(&self.waiting) {
            out.gauge(&catalog::SESSIONS_WAITING, &[label], count.get());
        }
        out.counter(&catalog::REPREPARES, &[], self.reprepares.get());
        out.counter(&catalog::EVICTED_STATEMENTS, &[], self.evicted_statements.get());
        out.histogram(&catalog::READ_WAIT_DURATION, &[], &self.read_wait_seconds);
        out.histogram(&catalog::MOVE_DURATION, &[], &self.move_seconds);
        self.cache.collect(out);
        out.counter(&catalog::SERIES_OVERFLOW, &[], self.overflow.get());
        for (command, count) in (0..=u8::MAX).zip(&self.commands) {
            out.counter(&catalog::COMMANDS, &[command_name(command)], count.get());
        }
        let word = |code: Option<u16>| code.map_or_else(|| OTHER.to_owned(), |code| code.to_string());
        self.errors.each(|code, fault, count| {
            out.counter(&catalog::ERRORS, &[&word(code), fault.label()], count);
        });
        self.server_errors.each(|code, _, count| {
            out.counter(&catalog::SERVER_ERRORS, &[&word(code)], count);
        });
        for (name, metrics) in lock(&self.listeners).iter() {
            metrics.collect(name, out);
        }
        for (name, hits) in lock(&self.rules).iter() {
            out.counter(&catalog::RULE_HITS, &[name], hits.get());
        }
        for (cluster, metrics) in lock(&self.mirrors).iter() {
            metrics.collect(cluster, out);
        }
        for ((cluster, server), metrics) in lock(&self.servers).iter() {
            metrics.collect(cluster, server, out);
        }
    }

    /// The series of a name, which are made where there are none yet.
    fn of_name<S: Default>(&self, all: &Mutex<HashMap<String, Arc<S>>>, limit: usize, name: &str) -> Arc<S> {
        let mut all = lock(all);
        if let Some(found) = all.get(name) {
            return Arc::clone(found);
        }
        let name = self.within(all.len(), limit, name);
        Arc::clone(all.entry(name.to_owned()).or_default())
    }

    /// `name`, or [`OTHER`] where a table holds `limit` entries already.
    fn within<'a>(&self, len: usize, limit: usize, name: &'a str) -> &'a str {
        if len < limit {
            return name;
        }
        self.overflow.inc();
        OTHER
    }
}

/// Nothing panics while one of these is held, and the maps are whole at every step: poison says nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_gives_the_same_series() {
        let worker = Worker::new(0);
        assert!(Arc::ptr_eq(&worker.listener("a"), &worker.listener("a")));
        assert!(!Arc::ptr_eq(&worker.listener("a"), &worker.listener("b")));
        assert!(Arc::ptr_eq(&worker.server("c", "s"), &worker.server("c", "s")));
        assert!(!Arc::ptr_eq(&worker.server("c", "s"), &worker.server("d", "s")));
    }

    #[test]
    fn names_without_end_are_counted_together() {
        let worker = Worker::new(0);
        for i in 0..10_000 {
            worker.listener(&format!("listener-{i}")).accepted.inc();
            worker.server("main", &format!("server-{i}")).connects.inc();
        }
        assert_eq!(lock(&worker.listeners).len(), MAX_LISTENERS + 1);
        assert_eq!(lock(&worker.servers).len(), MAX_SERVERS + 1);
        assert_eq!(
            worker.listener(OTHER).accepted.get(),
            10_000 - MAX_LISTENERS as u64
        );
        assert_eq!(
            worker.server(OTHER, OTHER).connects.get(),
            10_000 - MAX_SERVERS as u64
        );
        assert_eq!(
            worker.overflow.get(),
            20_000 - (MAX_LISTENERS + MAX_SERVERS) as u64
        );
    }
}
