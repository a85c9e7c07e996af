//! Which clients keep values of which keys themselves, so that they are told when a row changes
//! (`CLIENT TRACKING`).
//!
//! Workers put in what a client is about to read ([`Tracker::reads`]), the feed takes out what has changed
//! ([`Touched`]), and what is taken out goes into the client's [`mailbox`], which its connection empties
//! behind a reply.
//!
//! # Why no change is missed
//!
//! The reader remembers the key, then reads. The feed makes a change visible (commit, then
//! [`Applied`](crate::coherence::Applied), by which answers of the primary are judged), then takes the key
//! out. Both hold the lock of the key's shard for a moment. If the reader was there first, the feed finds the
//! key, and the client is told. If the feed was there first, the reader reads what the feed made visible
//! before, or something newer. In both cases the client does not end with an older value without being told,
//! because a connection empties its mailbox only between two requests: what was put there during a request is
//! told behind its reply.
//!
//! The same holds for mappings that are closed: the feed takes their keys out, and nothing is remembered of a
//! mapping that is not open. The client is told at once instead.
//!
//! While nobody tracks, the feed notes nothing but that it did not; it looks once a transaction whether
//! somebody does. A client that begins counts itself, and the feed looks at the count again after it has made
//! changes visible, with a fence between the two on either side: so either the feed sees the client, and has
//! it forget everything if it did not note all changes, or the client sees the changes.

mod mailbox;
mod table;
mod touched;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use telemetry::{Samples, Source, catalog};

use crate::mapping::{Decision, Mapping, MappingSet};
use table::{Table, Taken};

pub(crate) use mailbox::{Mail, Mailbox};
pub(crate) use touched::Touched;

/// Clients that track, and the keys that are remembered for them. Shared by all threads.
#[derive(Debug)]
pub struct Tracking {
    /// How many clients track.
    active: AtomicUsize,
    table: Table,
    clients: Mutex<Clients>,
    /// The mappings that are open, by their ids.
    open: Mutex<HashMap<u32, Arc<Mapping>>>,
    told: AtomicU64,
}

#[derive(Debug, Default)]
struct Clients {
    /// The last number that was given.
    last: u64,
    all: HashMap<u64, Client>,
    broadcasts: usize,
}

#[derive(Debug)]
struct Client {
    mailbox: Arc<Mailbox>,
    /// It is told of all keys that begin with one of these, whatever it has read.
    prefixes: Option<Prefixes>,
}

/// A row that has changed.
struct Broadcast<'m> {
    mapping: &'m Mapping,
    /// The key, where there is one text that names it.
    text: Option<Box<[u8]>>,
}

/// Beginnings of keys.
pub(crate) type Prefixes = Arc<[Box<[u8]>]>;

/// A client that tracks, until this is dropped.
#[derive(Debug)]
pub(crate) struct Tracker {
    tracking: Arc<Tracking>,
    number: u64,
    mailbox: Arc<Mailbox>,
}

impl Tracking {
    /// `keys_max`: keys that are remembered at most, those of two clients counted twice.
    #[must_use]
    pub fn new(keys_max: u32) -> Arc<Self> {
        Arc::new(Self {
            active: AtomicUsize::new(0),
            table: Table::new(keys_max as usize),
            clients: Mutex::default(),
            open: Mutex::default(),
            told: AtomicU64::new(0),
        })
    }

    /// A client begins to track. With `prefixes` it is told of these keys, else of those that it says it
    /// [`reads`](Tracker::reads).
    pub(crate) fn begin(self: &Arc<Self>, prefixes: Option<Prefixes>) -> Tracker {
        let mailbox = Arc::<Mailbox>::default();
        let mut clients = self.clients();
        clients.last += 1;
        let number = clients.last;
        clients.broadcasts += usize::from(prefixes.is_some());
        let client = Client {
            mailbox: Arc::clone(&mailbox),
            prefixes,
        };
        clients.all.insert(number, client);
        drop(clients);
        self.active.fetch_add(1, Ordering::Relaxed);
        // See the module: what the client reads from here on is not older than what the feed showed before it
        // saw the count.
        fence(Ordering::SeqCst);
        Tracker {
            tracking: Arc::clone(self),
            number,
            mailbox,
        }
    }

    /// These mappings are open from now on, and no others. To be called after others are not shown any more.
    pub(crate) fn set_open(&self, mappings: &MappingSet) {
        let open: HashMap<_, _> = mappings
            .all()
            .iter()
            .map(|mapping| (mapping.id.0, Arc::clone(mapping)))
            .collect();
        let mut kept = lock(&self.open);
        let closes = kept.keys().any(|id| !open.contains_key(id));
        self.table
            .set_open(|id| open.contains_key(&id), open.keys().copied());
        *kept = open;
        drop(kept);
        if closes {
            self.tell_all();
        }
    }

    /// All clients have to forget everything.
    pub(crate) fn invalidate_all(&self) {
        if self.is_active() {
            self.table.clear();
            self.tell_all();
        }
    }

    /// Clients that track now.
    pub(crate) fn clients_count(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Keys that are remembered now.
    pub(crate) fn keys_count(&self) -> usize {
        self.table.len()
    }

    /// Whether somebody tracks who may not see what was made visible before.
    fn is_active(&self) -> bool {
        fence(Ordering::SeqCst);
        self.clients_count() > 0
    }

    fn tell_all(&self) {
        let clients = self.clients();
        self.told.fetch_add(clients.all.len() as u64, Ordering::Relaxed);
        clients.all.values().for_each(|client| client.mailbox.put_all());
    }

    /// Tells the clients of keys that were taken out: each of all its keys at once.
    fn tell(&self, taken: &Taken) {
        let mut keys: Vec<(u64, &[u8])> = Vec::new();
        for text in taken {
            keys.extend(text.clients.iter().map(|&number| (number, &*text.text)));
        }
        // In the order in which they changed.
        keys.sort_by_key(|(number, _)| *number);
        let clients = if keys.is_empty() { return } else { self.clients() };
        for of_client in keys.chunk_by(|(one, _), (other, _)| one == other) {
            if let Some(client) = clients.all.get(&of_client[0].0) {
                client.mailbox.put(of_client.iter().map(|(_, key)| *key));
                self.told.fetch_add(of_client.len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Tells the clients that want to know of all keys of some kind.
    fn broadcast(&self, changed: &[Broadcast<'_>]) {
        let clients = self.clients();
        let all = clients.all.values();
        for (client, prefixes) in all.filter_map(|client| Some((client, client.prefixes.as_ref()?))) {
            let has = |key: &[u8]| prefixes.iter().any(|prefix| key.starts_with(prefix));
            let may_have = |mapping: &Mapping| prefixes.iter().any(|prefix| mapping.keys_may_begin(prefix));
            let keys: Vec<&[u8]> = changed
                .iter()
                .filter_map(|changed| changed.text.as_deref())
                .filter(|key| has(key))
                .collect();
            let mut nameless = changed.iter().filter(|changed| changed.text.is_none());
            if nameless.any(|changed| may_have(changed.mapping)) {
                client.mailbox.put_all();
                self.told.fetch_add(1, Ordering::Relaxed);
            } else {
                self.told.fetch_add(keys.len() as u64, Ordering::Relaxed);
                client.mailbox.put(keys);
            }
        }
    }

    fn has_broadcasts(&self) -> bool {
        self.clients().broadcasts > 0
    }

    /// A lock that outlives a panic on another thread: what it guards is whole after every call.
    fn clients(&self) -> MutexGuard<'_, Clients> {
        lock(&self.clients)
    }
}

impl Tracker {
    /// The client is about to read a key, which it calls `text`. To be called before it is read.
    pub(crate) fn reads(&self, mapping: &Mapping, key: &[u8], decision: Decision, text: &[u8]) {
        let by_server = match decision {
            Decision::Memory => false,
            Decision::Server => true,
            // No change will ever give it a row.
            Decision::Nowhere => return,
        };
        let table = &self.tracking.table;
        match table.remember(mapping.id.0, key, by_server, text, self.number) {
            Some(taken) => self.tracking.tell(&taken),
            None => self.mailbox.put([text]),
        }
    }

    /// What the client has to be told. Wakes when there is something.
    pub(crate) fn poll_mail(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.mailbox.poll(cx)
    }

    /// Tells this client that anything may have changed.
    pub(crate) fn tell_all(&self) {
        self.mailbox.put_all();
    }

    pub(crate) fn take_mail(&self) -> Option<Mail> {
        self.mailbox.take()
    }
}

impl Drop for Tracker {
    /// Its keys stay until they change or make room: nobody is told then.
    fn drop(&mut self) {
        let mut clients = self.tracking.clients();
        let client = clients.all.remove(&self.number);
        clients.broadcasts -= usize::from(client.is_some_and(|client| client.prefixes.is_some()));
        drop(clients);
        self.tracking.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Source for Tracking {
    fn collect(&self, out: &mut Samples) {
        out.gauge(&catalog::REDIS_TRACKING_CLIENTS, &[], self.clients_count());
        out.gauge(&catalog::REDIS_TRACKING_KEYS, &[], self.keys_count());
        out.counter(&catalog::REDIS_TRACKING_EVICTED, &[], self.table.evicted());
        let told = self.told.load(Ordering::Relaxed);
        out.counter(&catalog::REDIS_INVALIDATIONS, &[], told);
    }
}

/// A lock that outlives a panic on another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
