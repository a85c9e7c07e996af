//! The place of each session: by its connection id as clients know it, and by the server thread behind it.
//!
//! A client learns its connection id from our greeting, before a server is chosen, so the id is ours. `KILL`
//! and COM_PROCESS_KILL name such an id, or one that `CONNECTION_ID()` or the process list of a server gave.
//! Ours are from 2^30 on: servers count from one and do not get there, so the two are not taken for one
//! another. (Ids from 2^31 on would not do: some clients keep them in a signed integer, such as MariaDB
//! Connector/J 4.0.)
//!
//! The upper 6 of the 30 bits below are the number of this gateway among several that act as one: by the
//! number the others know whose session it is. The number is 0 where there are no others, or none has been
//! given yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::control::ServerKey;

/// The connection ids that Forebay gives out are from here to twice as much.
const OURS: u32 = 1 << 30;

/// Bits below the number of the gateway.
const OWN_BITS: u32 = 24;

/// The last number that a gateway may have.
const NUMBER_MAX: u32 = 63;

/// Whether an id is one that Forebay gives out.
pub(crate) fn is_ours(id: u32) -> bool {
    id & !(OURS - 1) == OURS
}

/// The place of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionPlace {
    pub(crate) worker: usize,
    /// The cluster's number among all clusters.
    pub(crate) cluster: u32,
    /// The session's server, and the connection id that the server gave. `None` in mode `split`, where both
    /// change with every statement: only the worker knows them.
    pub(crate) server_connection: Option<(ServerKey, u32)>,
    /// The name of the user. The account, where that is known, shares it.
    pub(crate) user: Arc<[u8]>,
    /// Nobody finds the session here: nobody has logged in, or the process before this one may keep it.
    pub(crate) is_hidden: bool,
}

/// All sessions of the process. Touched at begin, login and end, and by `KILL`, never by a query.
pub(crate) struct Registry {
    next: AtomicU32,
    /// The gateway's number, shifted to its place within an id.
    number: AtomicU32,
    places: Mutex<HashMap<u32, SessionPlace>>,
}

impl Default for Registry {
    /// Ids begin anywhere: a `KILL` that comes to another gateway, or after a restart, finds nobody, rather
    /// than somebody else's session.
    fn default() -> Self {
        Self::from(RandomState::new().hash_one(()) as u32)
    }
}

impl Registry {
    fn from(last: u32) -> Self {
        Self {
            next: AtomicU32::new(last),
            number: AtomicU32::new(0),
            places: Mutex::default(),
        }
    }

    /// An id that no session of this process has, for a session that nobody finds yet. The id is taken until
    /// it is removed.
    pub(crate) fn new_id(&self, worker: usize, cluster: u32) -> u32 {
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            let id = OURS | self.number.load(Ordering::Relaxed) | next & ((1 << OWN_BITS) - 1);
            let place = SessionPlace {
                worker,
                cluster,
                server_connection: None,
                user: Arc::default(),
                is_hidden: true,
            };
            if id != OURS && self.insert_new(id, place) {
                return id;
            }
        }
    }

    /// Ids that are given from here on have this number of the gateway.
    pub(crate) fn take_number(&self, number: u32) {
        let number = number.min(NUMBER_MAX);
        self.number.store(number << OWN_BITS, Ordering::Relaxed);
    }

    /// Whether the id has the number of another gateway.
    pub(crate) fn is_of_another(&self, id: u32) -> bool {
        let number = id & (NUMBER_MAX << OWN_BITS);
        is_ours(id) && number != 0 && number != self.number.load(Ordering::Relaxed)
    }

    /// Inserts a session whose id may be another's. False where another session has that id.
    pub(crate) fn insert_new(&self, id: u32, place: SessionPlace) -> bool {
        match self.places().entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(place);
                true
            }
        }
    }

    /// The id that was given last.
    pub(crate) fn last_id(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Has ids given that are as far as can be from those that another process has given, up to `last`.
    pub(crate) fn keep_off(&self, last: u32) {
        self.next
            .store(last.wrapping_add(1 << (OWN_BITS - 1)), Ordering::Relaxed);
    }

    pub(crate) fn insert(&self, id: u32, place: SessionPlace) {
        self.places().insert(id, place);
    }

    pub(crate) fn remove(&self, id: u32) {
        self.places().remove(&id);
    }

    /// The session goes on as another user (COM_CHANGE_USER).
    pub(crate) fn rename(&self, id: u32, user: Arc<[u8]>) {
        if let Some(place) = self.places().get_mut(&id) {
            place.user = user;
        }
    }

    /// The session goes on on another server.
    pub(crate) fn set_server_connection(&self, id: u32, server_connection: (ServerKey, u32)) {
        if let Some(place) = self.places().get_mut(&id) {
            place.server_connection = Some(server_connection);
        }
    }

    /// The sessions on this server: the id that the client knows, by the id that the server gave.
    pub(crate) fn numbers_on(&self, server: ServerKey) -> HashMap<u32, u32> {
        let places = self.places();
        let on_it = places.iter().filter_map(|(id, place)| {
            let (on, thread_id) = place.server_connection?;
            (on == server).then_some((thread_id, *id))
        });
        on_it.collect()
    }

    /// Finds a session by the id its client knows.
    pub(crate) fn find(&self, id: u32) -> Option<SessionPlace> {
        self.places().get(&id).filter(|place| !place.is_hidden).cloned()
    }

    /// The worker of a session, also of one that nobody finds.
    pub(crate) fn worker_of(&self, id: u32) -> Option<usize> {
        self.places().get(&id).map(|place| place.worker)
    }

    /// Notes that the session has become this process's.
    pub(crate) fn has_arrived(&self, id: u32) {
        if let Some(place) = self.places().get_mut(&id) {
            place.is_hidden = false;
        }
    }

    /// A lock that outlives a panic in another worker: the map is whole after every call.
    fn places(&self) -> MutexGuard<'_, HashMap<u32, SessionPlace>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ours_and_skip_those_in_use_after_a_wrap() {
        let registry = Registry::from(0);
        let first = registry.new_id(0, 1);
        assert_eq!(first, OURS | 1);
        assert!(is_ours(first) && is_ours(2 * OURS - 1) && !is_ours(2 * OURS) && !is_ours(OURS - 1));
        let place = SessionPlace {
            worker: 0,
            cluster: 1,
            server_connection: None,
            user: (*b"app").into(),
            is_hidden: false,
        };
        registry.insert(first, place.clone());
        registry.next.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(registry.new_id(0, 1), OURS | 2, "neither 0 nor the id in use");
        assert_eq!(registry.find(first), Some(place));
        registry.next.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(registry.new_id(0, 1), OURS | 3, "nor one that is only given");
        assert_eq!(registry.find(OURS | 2), None);
        registry.remove(first);
        assert_eq!(registry.find(first), None);
    }

    #[test]
    fn sessions_of_another_process_keep_their_numbers_and_nobody_else_gets_those() {
        let (old, new) = (Registry::from(u32::MAX - 5), Registry::from(u32::MAX - 5));
        let id = old.new_id(0, 1);
        new.keep_off(old.last_id());
        let own = |id: u32| id & ((1 << OWN_BITS) - 1);
        assert!(own(new.new_id(0, 1)).abs_diff(own(id)) > 1 << (OWN_BITS - 2));
        let place = SessionPlace {
            worker: 0,
            cluster: 1,
            server_connection: None,
            user: (*b"app").into(),
            is_hidden: true,
        };
        assert!(new.insert_new(id, place.clone()));
        assert!(!new.insert_new(id, place));
        assert_eq!((new.find(id), new.worker_of(id)), (None, Some(0)));
        new.has_arrived(id);
        assert!(new.find(id).is_some());
    }

    #[test]
    fn ids_have_the_number_of_their_gateway() {
        let registry = Registry::from(u32::MAX - 1);
        registry.take_number(63);
        let ids = [(); 2].map(|()| registry.new_id(0, 1));
        assert_eq!(ids, [0x7fff_ffff, 0x7f00_0000]);
        assert!(ids.iter().all(|id| is_ours(*id) && !registry.is_of_another(*id)));
        registry.take_number(1);
        assert_eq!(registry.new_id(0, 1), 0x4100_0001);
        assert!(registry.is_of_another(ids[0]) && !registry.is_of_another(0x4000_0001));
        assert!(!registry.is_of_another(7), "that is a server's");
    }

    #[test]
    fn two_gateways_do_not_give_the_same_ids() {
        let [one, other] = [Registry::default(), Registry::default()];
        assert_ne!(one.new_id(0, 1), other.new_id(0, 1));
    }
}
