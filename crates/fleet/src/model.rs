//! What a store does, as plain data: keys with leases, and changes that count only where guards hold. The
//! folder keeps one of these in a file; the simulator has one in memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use upstream::etcd::{Change, Entry, Guard, Op, Range, Snapshot, Transaction};

/// Changes that are remembered for those who watch; who is further behind has to read all again.
const REMEMBERED: usize = 1000;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Model {
    revision: i64,
    keys: BTreeMap<String, Kept>,
    /// When each ends, in milliseconds of whoever drives this.
    leases: BTreeMap<i64, Lease>,
    last_lease: i64,
    changes: Vec<(i64, String)>,
    /// Changes up to this one are forgotten.
    compacted: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    value: Vec<u8>,
    lease: i64,
    created: i64,
    modified: i64,
    version: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lease {
    lasts: u64,
    ends: u64,
}

impl Model {
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    /// Whether something has come to its end that is still there.
    pub(crate) fn is_late(&self, now: u64) -> bool {
        self.leases.values().any(|lease| lease.ends <= now)
    }

    /// Takes away what has come to its end.
    pub(crate) fn pass(&mut self, now: u64) {
        let over = |(id, lease): (&i64, &Lease)| (lease.ends <= now).then_some(*id);
        let over: Vec<i64> = self.leases.iter().filter_map(over).collect();
        over.into_iter().for_each(|lease| self.end(lease));
    }

    pub(crate) fn end(&mut self, lease: i64) {
        self.leases.remove(&lease);
        let of_lease = self.keys.iter().filter(|(_, kept)| kept.lease == lease);
        let gone: Vec<String> = of_lease.map(|(key, _)| key.clone()).collect();
        if gone.is_empty() {
            return;
        }
        self.revision += 1;
        gone.into_iter().for_each(|key| self.delete(key));
        self.forget();
    }

    pub(crate) fn grant(&mut self, lasts: u64, now: u64) -> i64 {
        self.last_lease += 1;
        let ends = now + lasts;
        self.leases.insert(self.last_lease, Lease { lasts, ends });
        self.last_lease
    }

    pub(crate) fn renew(&mut self, lease: i64, now: u64) -> bool {
        self.pass(now);
        match self.leases.get_mut(&lease) {
            Some(lease) => {
                lease.ends = now + lease.lasts;
                true
            }
            None => false,
        }
    }

    pub(crate) fn read(&self, range: &Range) -> Snapshot {
        let inside = self.keys.iter().filter(|(key, _)| range.holds(key));
        Snapshot {
            revision: self.revision,
            entries: inside.map(|(key, kept)| entry(key, kept)).collect(),
        }
    }

    /// What has changed behind that moment; `None` where that is forgotten. A key that has changed several
    /// times is told once.
    pub(crate) fn changes(&self, range: &Range, behind: i64) -> Option<Vec<Change>> {
        if behind < self.compacted {
            return None;
        }
        let new = self
            .changes
            .iter()
            .filter(|(at, key)| *at > behind && range.holds(key));
        let change = |(at, key): &(i64, String)| match self.keys.get(key) {
            Some(kept) => Change::Put(entry(key, kept)),
            None => Change::Deleted {
                key: key.clone(),
                modified: *at,
            },
        };
        Some(new.map(change).collect())
    }

    /// Whether it was made.
    pub(crate) fn change(&mut self, transaction: &Transaction) -> bool {
        let leases = transaction.ops.iter().filter_map(|op| match op {
            Op::Put(_, _, lease) => Some(*lease),
            Op::Delete(_) => None,
        });
        let have_leases = leases
            .filter(|lease| *lease != 0)
            .all(|lease| self.leases.contains_key(&lease));
        if !have_leases || !transaction.guards.iter().all(|guard| self.holds(guard)) {
            return false;
        }
        self.revision += 1;
        for op in &transaction.ops {
            match op {
                Op::Put(key, value, lease) => self.put(key, value, *lease),
                Op::Delete(key) if self.keys.contains_key(key) => self.delete(key.clone()),
                Op::Delete(_) => {}
            }
        }
        self.forget();
        true
    }

    fn holds(&self, guard: &Guard) -> bool {
        let number = |key: &String, of: fn(&Kept) -> i64| self.keys.get(key).map_or(0, of);
        match guard {
            Guard::Version(key, version) => number(key, |kept| kept.version) == *version,
            Guard::Modified(key, modified) => number(key, |kept| kept.modified) == *modified,
            Guard::Lease(key, lease) => number(key, |kept| kept.lease) == *lease,
            Guard::NoneCreatedAfter(range, moment) => self
                .keys
                .iter()
                .filter(|(key, _)| range.holds(key))
                .all(|(_, kept)| kept.created <= *moment),
        }
    }

    fn put(&mut self, key: &str, value: &[u8], lease: i64) {
        let revision = self.revision;
        let kept = self.keys.entry(key.to_owned()).or_insert_with(|| Kept {
            value: Vec::new(),
            lease: 0,
            created: revision,
            modified: 0,
            version: 0,
        });
        kept.value = value.to_vec();
        kept.lease = lease;
        kept.modified = revision;
        kept.version += 1;
        self.changes.push((revision, key.to_owned()));
    }

    fn delete(&mut self, key: String) {
        self.keys.remove(&key);
        self.changes.push((self.revision, key));
    }

    fn forget(&mut self) {
        let too_many = self.changes.len().saturating_sub(REMEMBERED);
        // A change of several keys is forgotten as a whole.
        if let Some(compacted) = too_many.checked_sub(1).map(|last| self.changes[last].0) {
            self.compacted = compacted;
            self.changes.retain(|(at, _)| *at > compacted);
        }
    }
}

fn entry(key: &str, kept: &Kept) -> Entry {
    Entry {
        key: key.to_owned(),
        value: kept.value.clone(),
        lease: kept.lease,
        created: kept.created,
        modified: kept.modified,
        version: kept.version,
    }
}
