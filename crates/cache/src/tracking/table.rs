//! The keys that are remembered, with the clients that have read them.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use foldhash::quality::RandomState;

use super::lock;

/// Parts of the table that are locked one by one. One makes room at once: all clients of its keys are told.
const SHARDS: usize = 64;
/// Where keys are whose comparison only the server knows.
const BY_SERVER: usize = 0;
/// Bytes of a key beyond which it counts for several.
const KEY_BYTES: usize = 256;
/// Texts that name one row (`Ada`, `ADA`, `ada `) and are remembered at the same time.
const TEXTS_MAX: usize = 16;

pub(super) type Taken = Vec<Text>;

#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    hashes: RandomState,
    /// How much a shard takes.
    room: usize,
    evicted: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// Of the mappings that are open.
    mappings: HashMap<u32, Keys>,
    used: usize,
}

#[derive(Debug, Default)]
struct Keys {
    /// By the bytes by which memory finds them.
    in_memory: TextsByKey,
    /// By their texts.
    by_server: TextsByKey,
}

type TextsByKey = HashMap<Box<[u8]>, Texts, RandomState>;
type Texts = Vec<Text>;

/// A key as a client calls it.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: Box<[u8]>,
    /// Their numbers, sorted.
    pub(super) clients: Vec<u64>,
}

impl Keys {
    fn texts(&mut self, by_server: bool) -> &mut TextsByKey {
        if by_server {
            &mut self.by_server
        } else {
            &mut self.in_memory
        }
    }
}

impl Table {
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashes: RandomState::default(),
            room: keys_max.div_ceil(SHARDS).max(1),
            evicted: AtomicU64::new(0),
        }
    }

    /// Remembers a key for a client, and returns what makes room for it. `None` where its mapping is not
    /// open.
    pub(super) fn remember(
        &self,
        mapping: u32,
        key: &[u8],
        by_server: bool,
        text: &[u8],
        client: u64,
    ) -> Option<Taken> {
        let at = if by_server {
            BY_SERVER
        } else {
            self.shard_of(mapping, key)
        };
        let mut shard = self.shard(at);
        let key = if by_server { text } else { key };
        let map = shard.mappings.get_mut(&mapping)?.texts(by_server);
        let texts = map.get(key).map_or(&[][..], Vec::as_slice);
        let known = texts.iter().find(|known| *known.text == *text);
        if known.is_some_and(|known| known.clients.binary_search(&client).is_ok()) {
            return Some(Taken::new());
        }
        let mut taken = Taken::new();
        if known.is_none() && texts.len() >= TEXTS_MAX {
            taken = map.remove(key).unwrap_or_default();
            shard.used -= weights(&taken);
        }
        if shard.used + weight(text) > self.room {
            taken.extend(empty(&mut shard));
            self.evicted.fetch_add(taken.len() as u64, Ordering::Relaxed);
        }
        shard.used += weight(text);
        if let Some(keys) = shard.mappings.get_mut(&mapping) {
            add(entry(keys.texts(by_server), key), text, client);
        }
        Some(taken)
    }

    /// Takes a key out whose row has changed.
    pub(super) fn take(&self, mapping: u32, key: &[u8], taken: &mut Taken) {
        let mut shard = self.shard(self.shard_of(mapping, key));
        let keys = shard.mappings.get_mut(&mapping);
        if let Some(texts) = keys.and_then(|keys| keys.in_memory.remove(key)) {
            shard.used -= weights(&texts);
            taken.extend(texts);
        }
    }

    /// Takes those of a mapping out that only the server can compare.
    pub(super) fn take_by_server(&self, mapping: u32, taken: &mut Taken) {
        let mut shard = self.shard(BY_SERVER);
        if let Some(keys) = shard.mappings.get_mut(&mapping) {
            let by_server = Keys {
                by_server: std::mem::take(&mut keys.by_server),
                in_memory: HashMap::default(),
            };
            taken.extend(forget(&mut shard, by_server));
        }
    }

    /// Takes all keys of a mapping out.
    pub(super) fn take_mapping(&self, mapping: u32, taken: &mut Taken) {
        for at in 0..SHARDS {
            let mut shard = self.shard(at);
            if let Some(keys) = shard.mappings.get_mut(&mapping).map(std::mem::take) {
                taken.extend(forget(&mut shard, keys));
            }
        }
    }

    /// Keys of others are forgotten, and no more of them are remembered.
    pub(super) fn set_open(&self, is_open: impl Fn(u32) -> bool, open: impl Iterator<Item = u32> + Clone) {
        for at in 0..SHARDS {
            let mut shard = self.shard(at);
            let closed: Vec<Keys> = shard
                .mappings
                .extract_if(|&id, _| !is_open(id))
                .map(|(_, keys)| keys)
                .collect();
            for keys in closed {
                forget(&mut shard, keys);
            }
            for id in open.clone() {
                shard.mappings.entry(id).or_default();
            }
        }
    }

    /// Forgets all keys.
    pub(super) fn clear(&self) {
        for at in 0..SHARDS {
            empty(&mut self.shard(at));
        }
    }

    /// Takes a part of all keys out: one of [`SHARDS`].
    pub(super) fn take_part(&self, part: usize) -> Taken {
        empty(&mut self.shard(part % SHARDS))
    }

    /// How much is remembered.
    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|at| self.shard(at).used).sum()
    }

    /// Keys that made room for others.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn shard_of(&self, mapping: u32, key: &[u8]) -> usize {
        self.hashes.hash_one((mapping, key)) as usize % SHARDS
    }

    fn shard(&self, at: usize) -> MutexGuard<'_, Shard> {
        lock(&self.shards[at])
    }
}

fn empty(shard: &mut Shard) -> Taken {
    let all: Vec<Keys> = shard.mappings.values_mut().map(std::mem::take).collect();
    all.into_iter().flat_map(|keys| forget(shard, keys)).collect()
}

fn forget(shard: &mut Shard, keys: Keys) -> Taken {
    let all = keys.in_memory.into_values().chain(keys.by_server.into_values());
    let taken: Taken = all.flatten().collect();
    shard.used -= weights(&taken);
    taken
}

fn entry<'m>(map: &'m mut TextsByKey, key: &[u8]) -> &'m mut Texts {
    map.entry(key.into()).or_insert_with(|| Vec::with_capacity(1))
}

fn add(texts: &mut Texts, text: &[u8], client: u64) {
    if let Some(known) = texts.iter_mut().find(|known| *known.text == *text) {
        if let Err(at) = known.clients.binary_search(&client) {
            known.clients.insert(at, client);
        }
        return;
    }
    texts.push(Text {
        text: text.into(),
        clients: vec![client],
    });
}

/// How much a key counts for one client.
fn weight(text: &[u8]) -> usize {
    1 + text.len() / KEY_BYTES
}

fn weights(texts: &[Text]) -> usize {
    texts
        .iter()
        .map(|text| weight(&text.text) * text.clients.len())
        .sum()
}
