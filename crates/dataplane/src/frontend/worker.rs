//! A worker: one thread, one single-threaded runtime, and the sessions that live on it with both of their
//! sockets.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use routing::Draw;
use sql_class::FactsCache;

use crate::clock::{Clock, TICK};
use crate::control::{Sessions, Signal};
use crate::engine::rules::mirror::Mirrors;
use crate::engine::rules::rule_set::WorkerRules;
use crate::engine::worker_cluster::Pools;
use crate::finished::Observers;
use crate::frontend::data_plane::{Home, Shared};
use crate::frontend::extension::WorkerExtension;
use crate::frontend::moves::Moves;
use crate::hand_over::way::Giving;
use crate::lookups::Lookups;

/// State that the sessions of a worker share.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    /// `shared` and `index`, for sessions that know no more of their worker.
    pub(crate) home: Rc<Home>,
    pub(crate) metrics: Arc<telemetry::Worker>,
    pub(crate) sessions: Sessions,
    pub(crate) clock: Rc<Clock>,
    /// Server connections that sessions of mode `split` share.
    pub(crate) pools: Pools,
    pub(crate) rules: WorkerRules,
    pub(crate) mirrors: Mirrors,
    /// Facts about statements that come again and again.
    pub(crate) facts_cache: RefCell<FactsCache<RandomState>>,
    /// The extension, which serves listeners of other protocols.
    pub(crate) extension: OnceCell<Rc<dyn WorkerExtension>>,
    /// Observers that hear of each command that has ended.
    pub(crate) observers: Observers,
    /// Counter for the turns of balancing.
    turns: Cell<u64>,
    /// Sessions that go to other servers.
    pub(crate) moves: Moves,
    /// The way to the process that has taken over.
    pub(crate) giving: RefCell<Option<Arc<Giving>>>,
    /// The signal that all sessions were told last: sessions that come later are told, too.
    pub(crate) told_all: Cell<Option<Signal>>,
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> Self {
        Self {
            index,
            metrics: shared.telemetry.worker(index),
            home: Rc::new(Home {
                shared: Arc::clone(&shared),
                worker: index,
            }),
            shared,
            sessions: Sessions::default(),
            pools: Pools::default(),
            rules: WorkerRules::default(),
            mirrors: Mirrors::default(),
            facts_cache: RefCell::default(),
            extension: OnceCell::new(),
            observers: Observers::default(),
            turns: Cell::new(0),
            clock: Rc::default(),
            moves: Moves::default(),
            giving: RefCell::default(),
            told_all: Cell::new(None),
        }
    }

    /// Passes on the wish to kill a session that is not on this worker any more: it has ended, or gone to the
    /// process that has taken over.
    pub(crate) fn kill_elsewhere(&self, id: u32) {
        if let Some(giving) = &*self.giving.borrow() {
            giving.kill(id);
        }
    }

    /// The lookups for a listener's sessions, if there are any.
    pub(crate) fn lookups(&self, listener: &config::Listener) -> Option<Rc<dyn Lookups>> {
        if !listener.point_lookups {
            return None;
        }
        self.extension.get()?.lookups(listener)
    }

    /// The numbers that the next choice of a server may turn on.
    pub(crate) fn draw(&self, seed: u32) -> Draw {
        let turn = self.turns.get();
        self.turns.set(turn.wrapping_add(1));
        Draw {
            turn,
            // Any bits will do that differ from one choice to the next: an odd factor spreads them (Knuth's).
            seed: (turn ^ u64::from(seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// The zone this gateway is in.
    pub(crate) fn zone(&self) -> Option<Arc<String>> {
        self.shared.zone.load_full()
    }

    /// The time as sessions count it.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::from(self.clock.now()) * TICK.as_millis() as u64
    }
}
