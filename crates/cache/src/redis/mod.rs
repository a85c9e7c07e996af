//! Redis clients: their connections, and the commands that are served.
//!
//! A key is `mapping@key`: the name of a mapping, and the values of its key columns. Commands that read are
//! served from the store; those that write are refused, because rows change by SQL.
//!
//! ```text
//! input → connection → command ┬→ reads, scan   rows from memory (rows)
//!                              ├→ client, login what belongs to the connection (session, clients, tracking)
//!                              ├→ flush         mappings are read again
//!                              ├→ transaction   MULTI … EXEC, at one position
//!                              └→ server, info  what the server says of itself
//! ```
//!
//! All requests that one read of the socket brought are executed one after the other, wait once until the
//! store is fresh enough for them, and are answered with one write. Whatever that takes belongs to the worker
//! and is lent to the connection: an idle connection holds no buffer. Connections that send one strong read
//! after the other wait before they read them (`dataplane`'s `Gating`), so they hold none while they wait,
//! either.

mod ahead;
mod batch;
mod client;
mod clients;
mod command;
mod connection;
mod execute;
mod flush;
mod glob;
mod info;
mod input;
mod login;
mod output;
mod reads;
mod refusal;
mod rights;
mod rows;
mod scan;
mod server;
mod session;
mod subscribe;
mod tracking;
mod transaction;
mod wait;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use dataplane::extension::{Gate, Gated, ProtocolConnection, ProtocolEnd};
use mysql_wire::binlog::Zone;
use resp_wire::Parser;
use telemetry::{Counter, Samples, Source, catalog};

use self::refusal::{Bound, Refusal};
use crate::mapping::MappingSet;
use crate::reader::{NotFetched, Reader, Want};
use crate::store::Store;
use crate::tracking::Tracking;

/// Scratches that a worker keeps.
const SCRATCHES_MAX: usize = 64;
/// The largest memory of a scratch that is kept, in bytes.
const SCRATCH_KEPT: usize = 512 * 1024;

/// What Redis clients of all workers share.
#[derive(Debug)]
pub struct Shared {
    clients: Arc<clients::Clients>,
    started: Instant,
    counts: Mutex<Vec<Arc<Counts>>>,
    settings: server::Settings,
    /// How long a read waits at most.
    wait: Duration,
    /// In which TIMESTAMP values are shown.
    zone: Zone,
}

#[derive(Debug, Default)]
struct Counts {
    connections: Counter,
    commands: Counter,
    errors: Counter,
    /// Refusals by [`Bound`].
    too_large: [Counter; Bound::LABELS.len()],
    asked_server: Counter,
}

impl Counts {
    /// A client is told why its command is not executed.
    fn refuses(&self, refusal: &Refusal) {
        self.errors.inc();
        if let Some(bound) = refusal.bound() {
            self.too_large[bound as usize].inc();
        }
    }
}

/// The Redis clients of one worker.
pub struct Service {
    reader: Rc<Reader>,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    rights: rights::Rights,
    pace: ahead::Pace,
    mappings: RefCell<Rc<MappingSnapshot>>,
    #[expect(clippy::vec_box, reason = "scratches are lent and come back as they are")]
    scratches: RefCell<Vec<Box<Scratch>>>,
}

/// The mappings of a moment, for the connections of one worker.
struct MappingSnapshot(Arc<MappingSet>);

/// What a connection needs while it executes requests.
#[derive(Default)]
struct Scratch {
    parser: Parser,
    out: Vec<u8>,
    space: rows::Space,
}

impl Shared {
    /// `config` is that of the cache.
    pub fn new(config: &config::Cache) -> Arc<Self> {
        Arc::new(Self {
            clients: Arc::default(),
            started: Instant::now(),
            counts: Mutex::default(),
            wait: config.strong_wait,
            // The feed refuses to start with any other.
            zone: Zone::parse(&config.time_zone.to_string()).unwrap_or(Zone::UTC),
            settings: server::Settings {
                memory_max: config.memory_max.0,
                is_bounded: config.mode == config::CacheMode::Bounded,
            },
        })
    }

    /// A count of all workers together.
    fn total(&self, counter: impl Fn(&Counts) -> &Counter) -> u64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|worker| counter(worker).get()).sum()
    }
}

impl Source for Shared {
    fn collect(&self, out: &mut Samples) {
        let commands = self.total(|worker| &worker.commands);
        out.counter(&catalog::REDIS_COMMANDS, &[], commands);
        out.counter(&catalog::REDIS_ERRORS, &[], self.total(|worker| &worker.errors));
        for (bound, label) in Bound::LABELS.iter().enumerate() {
            let count = self.total(|worker| &worker.too_large[bound]);
            out.counter(&catalog::REDIS_TOO_LARGE, &[label], count);
        }
    }
}

impl Service {
    /// Called once a worker.
    pub fn new(reader: Rc<Reader>, shared: Arc<Shared>) -> Self {
        let counts = Arc::<Counts>::default();
        let mut all = shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counts));
        drop(all);
        Self {
            mappings: RefCell::new(Rc::new(MappingSnapshot(reader.mappings()))),
            reader,
            shared,
            counts,
            rights: rights::Rights::default(),
            pace: ahead::Pace::default(),
            scratches: RefCell::default(),
        }
    }

    /// Serves a connection until it ends.
    pub async fn serve(&self, connection: ProtocolConnection) -> ProtocolEnd {
        self.counts.connections.inc();
        connection::run(self, connection).await
    }

    fn tracking(&self) -> &Arc<Tracking> {
        self.reader.feed_status().tracking()
    }

    fn store(&self) -> &Store {
        self.reader.store()
    }

    /// The mappings of this moment, without a count that other workers touch.
    fn mappings(&self) -> Rc<MappingSnapshot> {
        let mut kept = self.mappings.borrow_mut();
        let present = self.reader.feed_status().peek_mappings();
        if !Arc::ptr_eq(&present, &kept.0) {
            *kept = Rc::new(MappingSnapshot(Arc::clone(&present)));
        }
        Rc::clone(&kept)
    }

    /// The rows of keys, in their order, from the server, if they take no more than `bytes_max` of memory.
    async fn fetch(
        &self,
        wanted: &[rows::Wanted],
        bytes_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, NotFetched> {
        let wants: Vec<Want<'_>> = wanted.iter().map(rows::Wanted::want).collect();
        self.reader.fetch_within(&wants, bytes_max).await
    }

    fn take_scratch(&self) -> Box<Scratch> {
        self.scratches.borrow_mut().pop().unwrap_or_default()
    }

    fn give_back(&self, scratch: Box<Scratch>) {
        let mut scratches = self.scratches.borrow_mut();
        if scratches.len() < SCRATCHES_MAX && scratch.capacity() <= SCRATCH_KEPT {
            scratches.push(scratch);
        }
    }
}

impl Gated<()> for Service {
    fn gate(&self, task: &Waker) -> Option<Box<dyn Gate>> {
        Some(Box::new(self.reader.gate(task)))
    }

    fn now(&self) -> (u64, ()) {
        (self.reader.feed_status().definitions(), ())
    }
}

impl Scratch {
    fn capacity(&self) -> usize {
        self.parser.capacity() + self.out.capacity() + self.space.capacity()
    }
}
