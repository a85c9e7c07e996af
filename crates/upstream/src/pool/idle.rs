//! The idle connections of one worker to one server.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use config::Reuse;
use foldhash::fast::RandomState;

use super::connection::{Baseline, Credential, Idle, Key, Opened};
use super::metrics::{Closed, Member, Metrics};
use crate::server::{Server, now};

/// The cost of a connection that would do but for its login, which is too old for who asks: it is closed, and
/// its permit is that of a new one.
pub const OUTDATED: u32 = u32::MAX - 1;

/// How many of the newest idle connections are looked at for the one that costs least.
const LOOKED_AT: usize = 16;

pub(super) struct IdleConnections<S> {
    server: Arc<Server>,
    metrics: Arc<Metrics>,
    by_key: HashMap<Rc<Key>, IdleOfKey<S>, RandomState>,
    /// Connections that were taken since [`count_taken`](Self::count_taken).
    taken: u32,
}

/// Those of one key.
pub(super) struct IdleOfKey<S> {
    /// The one that was given back last is the last.
    idle: Vec<Idle<S>>,
    /// When one of them was leased or opened last.
    pub(super) used: Instant,
    /// Who opened the last one; kept only where connections are to be opened without a session.
    pub(super) credential: Option<Credential>,
    baseline: Option<Rc<Baseline>>,
}

impl<S> IdleConnections<S> {
    pub(super) fn new(server: &Arc<Server>, member: &Member) -> Self {
        Self {
            server: Arc::clone(server),
            metrics: member.metrics(server),
            by_key: HashMap::default(),
            taken: 0,
        }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(super) fn is_of(&self, server: &Server) -> bool {
        self.server.id() == server.id()
    }

    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Of the newest ones the one that costs least, the newest of equals; or the oldest. None that costs
    /// [`OUTDATED`] or more.
    pub(super) fn take(
        &mut self,
        key: &Rc<Key>,
        now: Instant,
        reuse: Reuse,
        cost: impl Fn(&S) -> u32,
    ) -> Option<Idle<S>> {
        let of_key = self.by_key.get_mut(key)?;
        let cost = |idle: &Idle<S>| cost(&idle.state);
        let index = match reuse {
            Reuse::Newest => of_key.cheapest(cost),
            Reuse::Oldest => of_key.idle.iter().position(|idle| cost(idle) < OUTDATED),
        }?;
        of_key.used = now;
        self.taken = self.taken.saturating_add(1);
        Some(of_key.idle.remove(index))
    }

    /// How many connections were taken since this was asked last.
    pub(super) fn count_taken(&mut self) -> u32 {
        std::mem::take(&mut self.taken)
    }

    /// The one that nobody has used for longest, of those whose login is too old by this [`cost`](OUTDATED).
    pub(super) fn take_outdated(&mut self, key: &Rc<Key>, cost: impl Fn(&S) -> u32) -> Option<Idle<S>> {
        let of_key = self.by_key.get_mut(key)?;
        let index = of_key
            .idle
            .iter()
            .position(|idle| cost(&idle.state) == OUTDATED)?;
        Some(of_key.idle.remove(index))
    }

    pub(super) fn put(&mut self, idle: Idle<S>) {
        let now = idle.life.since;
        self.of_key(&Rc::clone(&idle.opened.key), now).idle.push(idle);
    }

    /// The one that nobody has used for longest, of another key if there is one.
    pub(super) fn evict(&mut self, key: &Key) -> Option<Idle<S>> {
        let oldest = |of_key: &IdleOfKey<S>| of_key.idle.first().map(|idle| idle.life.since);
        let (_, of_key) = self
            .by_key
            .iter_mut()
            .filter(|(_, of_key)| !of_key.idle.is_empty())
            .min_by_key(|(other, of_key)| (***other == *key, oldest(of_key)))?;
        Some(of_key.idle.remove(0))
    }

    /// The one of a user that nobody has used for longest.
    pub(super) fn evict_of(&mut self, user: &str) -> Option<Idle<S>> {
        let (_, of_key) = self
            .by_key
            .iter_mut()
            .filter(|(key, of_key)| *key.user == *user && !of_key.idle.is_empty())
            .min_by_key(|(_, of_key)| of_key.idle.first().map(|idle| idle.life.since))?;
        Some(of_key.idle.remove(0))
    }

    /// The keys there are connections of, those first of which nobody has used one for longest, and since
    /// when.
    pub(super) fn oldest(&self) -> Vec<(Instant, Rc<Key>)> {
        let idle = self
            .by_key
            .iter()
            .filter_map(|(key, of_key)| Some((of_key.idle.first()?.life.since, Rc::clone(key))));
        let mut keys: Vec<_> = idle.collect();
        keys.sort_by_key(|(since, _)| *since);
        keys
    }

    /// The one of this key that nobody has used for longest.
    pub(super) fn take_oldest(&mut self, key: &Key) -> Option<Idle<S>> {
        let of_key = self.by_key.get_mut(key)?;
        (!of_key.idle.is_empty()).then(|| of_key.idle.remove(0))
    }

    /// The one that has most of what `count` counts, if any has.
    pub(super) fn take_most(&mut self, count: impl Fn(&S) -> usize) -> Option<Idle<S>> {
        let counted = self.by_key.values_mut().filter_map(|of_key| {
            let counts = of_key.idle.iter().map(|idle| count(&idle.state)).enumerate();
            let (index, most) = counts.max_by_key(|(_, count)| *count)?;
            Some((most, index, of_key))
        });
        let (_, index, of_key) = counted
            .filter(|(most, ..)| *most > 0)
            .max_by_key(|(most, ..)| *most)?;
        Some(of_key.idle.remove(index))
    }

    pub(super) fn idle(&self) -> usize {
        self.by_key.values().map(|of_key| of_key.idle.len()).sum()
    }

    /// Those that nobody has used since then.
    pub(super) fn unused(&self, since: Option<Instant>) -> usize {
        let idle = self.by_key.values().flat_map(|of_key| &of_key.idle);
        idle.filter(|idle| since.is_some_and(|since| idle.life.since < since))
            .count()
    }

    /// What connections of this key are like, when the last one was opened.
    pub(super) fn baseline(&self, key: &Key) -> Option<Rc<Baseline>> {
        self.by_key.get(key)?.baseline.clone()
    }

    /// One has been opened.
    pub(super) fn note(&mut self, opened: &Opened, credential: Option<&Credential>) {
        let of_key = self.of_key(&opened.key, now());
        of_key.used = now();
        of_key.credential = credential.cloned();
        of_key.baseline = Some(Rc::clone(&opened.baseline));
    }

    /// No connection is opened for nobody by this key's account, until a session has opened one.
    pub(super) fn forget_credential(&mut self, key: &Rc<Key>) {
        if let Some(of_key) = self.by_key.get_mut(key) {
            of_key.credential = None;
        }
    }

    /// Closes those for which there is a reason.
    pub(super) fn close_if(&mut self, mut reason: impl FnMut(&mut Idle<S>) -> Option<Closed>) {
        for of_key in self.by_key.values_mut() {
            let mut index = 0;
            while let Some(idle) = of_key.idle.get_mut(index) {
                match reason(idle) {
                    Some(reason) => drop(of_key.idle.remove(index).close(reason)),
                    None => index += 1,
                }
            }
        }
    }

    /// Forgets keys that nobody has used since `since`; true when nothing is left.
    pub(super) fn forget(&mut self, since: Instant) -> bool {
        self.by_key
            .retain(|_, of_key| !of_key.idle.is_empty() || of_key.used >= since);
        self.by_key.is_empty()
    }

    /// The key that was used last, and who opened connections for it.
    pub(super) fn latest(&self) -> Option<(Rc<Key>, Credential)> {
        self.by_key
            .iter()
            .filter_map(|(key, of_key)| Some((key, of_key.credential.as_ref()?, of_key.used)))
            .max_by_key(|(_, _, used)| *used)
            .map(|(key, credential, _)| (Rc::clone(key), credential.clone()))
    }

    fn of_key(&mut self, key: &Rc<Key>, now: Instant) -> &mut IdleOfKey<S> {
        self.by_key.entry(Rc::clone(key)).or_insert_with(|| IdleOfKey {
            idle: Vec::new(),
            used: now,
            credential: None,
            baseline: None,
        })
    }
}

/// Whether a connection that has been handed over is of use.
pub(super) fn suits<S>(idle: &Idle<S>, cost: impl Fn(&S) -> u32) -> bool {
    cost(&idle.state) < OUTDATED
}

/// Why one that is of none is closed.
pub(super) fn misfit<S>(idle: &Idle<S>, cost: impl Fn(&S) -> u32) -> Closed {
    match cost(&idle.state) {
        OUTDATED => Closed::Login,
        _ => Closed::Handover,
    }
}

impl<S> IdleOfKey<S> {
    /// The place of the one that costs least, of the newest.
    fn cheapest(&self, cost: impl Fn(&Idle<S>) -> u32) -> Option<usize> {
        let mut best: Option<(usize, u32)> = None;
        for (index, idle) in self.idle.iter().enumerate().rev().take(LOOKED_AT) {
            let cost = cost(idle);
            if cost < best.map_or(OUTDATED, |(_, least)| least) {
                best = Some((index, cost));
            }
            if cost == 0 {
                break;
            }
        }
        best.map(|(index, _)| index)
    }
}
