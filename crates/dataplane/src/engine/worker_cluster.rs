//! State of a cluster that the sessions of one worker share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::PeakEwma;
use session::{ClientTrackers, PortableState};
use tokio::task::{AbortHandle, spawn_local};
use upstream::{Key, Pool, ServerId};

use crate::engine::connection_state::ConnectionState;
use crate::engine::consistency::vain::VainWaits;
use crate::engine::generated_ids::GeneratedIds;
use crate::engine::lease;
use crate::engine::leavers::Leavers;
use crate::engine::pipeline::pipelines::Pipelines;
use crate::engine::replay::kept::Memory;
use crate::frontend::listener_state::{ListenerState, NumberedCluster};

pub(crate) struct WorkerCluster {
    pub(crate) pool: Rc<Pool<ConnectionState>>,
    pub(crate) pipelines: Pipelines,
    pub(crate) generated_ids: GeneratedIds,
    pub(crate) vain_waits: VainWaits,
    pub(crate) leavers: Leavers,
    /// Memory of transactions that are kept to be executed again.
    pub(crate) replay_memory: Rc<Memory>,
    /// Held by whoever asks a server whether an account may `KILL`.
    pub(crate) kill_question: tokio::sync::Mutex<()>,
    /// Times that servers take to answer, where reads are balanced by them; times are counted from `born`.
    answers: RefCell<HashMap<ServerId, PeakEwma>>,
    born: Instant,
    /// Whether answers are to be timed, as of the last choice.
    pub(crate) by_latency: Cell<bool>,
    /// For each server: when it was last asked since when it is up, and its answer.
    pub(crate) up_since: RefCell<HashMap<ServerId, (tokio::time::Instant, tokio::time::Instant)>>,
    /// The words with which a server has refused a write last.
    pub(crate) refusal: RefCell<Box<str>>,
    /// Time at which it was last said that the primary takes no writes.
    pub(crate) refusal_said: Cell<Option<tokio::time::Instant>>,
    /// States that sessions begin with, of which there are few: one allocation each.
    common: RefCell<Vec<Rc<PortableState>>>,
    common_trackers: RefCell<Vec<Rc<ClientTrackers>>>,
    common_keys: RefCell<Vec<Rc<Key>>>,
    common_values: RefCell<Vec<Rc<FirstValues>>>,
    housekeeping: AbortHandle,
}

/// The values of a session's variables that a server has told; `None` is NULL.
pub(crate) type FirstValues = Vec<Option<Vec<u8>>>;

/// Beginnings of sessions that are kept in common; a schema each, as a rule.
const COMMON_MAX: usize = 64;

impl WorkerCluster {
    pub(crate) fn note_answer(&self, server: ServerId, took: Duration) {
        let now = self.now_us();
        self.answers
            .borrow_mut()
            .entry(server)
            .or_default()
            .note(took, now);
    }

    /// How long each server is expected to take now, in microseconds; 0 where that is not known.
    pub(crate) fn expected_us(&self, server: ServerId) -> u64 {
        let answers = self.answers.borrow();
        answers
            .get(&server)
            .map_or(0, |answers| answers.expected_us(self.now_us()))
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Has a session that has just begun share its state with others that begin so.
    pub(crate) fn share(&self, session: &mut session::Session) {
        let carried = in_common(&self.common, Rc::clone(session.carried()));
        session.share_carried(&carried);
        let trackers = in_common(&self.common_trackers, Rc::clone(session.initial_trackers()));
        session.share_trackers(&trackers);
    }

    /// The key, shared with others that have an equal one.
    pub(crate) fn share_key(&self, key: Key) -> Rc<Key> {
        in_common(&self.common_keys, Rc::new(key))
    }

    /// The values, shared with others that have equal ones.
    pub(crate) fn share_values(&self, values: FirstValues) -> Rc<FirstValues> {
        in_common(&self.common_values, Rc::new(values))
    }
}

/// An equal value that was there before, or this one, which is kept for those who come later.
fn in_common<T: PartialEq>(common: &RefCell<Vec<Rc<T>>>, own: Rc<T>) -> Rc<T> {
    let mut common = common.borrow_mut();
    if let Some(known) = common.iter().find(|known| **known == own) {
        return Rc::clone(known);
    }
    if common.len() < COMMON_MAX {
        common.push(Rc::clone(&own));
    }
    own
}

impl Drop for WorkerCluster {
    fn drop(&mut self) {
        self.housekeeping.abort();
    }
}

/// The pools of one worker, one a cluster.
#[derive(Default)]
pub(crate) struct Pools {
    by_cluster: RefCell<HashMap<u32, Rc<WorkerCluster>>>,
}

impl Pools {
    /// The state of a listener's cluster, made at its first use.
    pub(crate) fn of(&self, listener: &ListenerState, metrics: &Arc<telemetry::Worker>) -> Rc<WorkerCluster> {
        self.of_cluster(&(listener.cluster_serial, Arc::clone(&listener.cluster)), metrics)
    }

    /// The state of any cluster, made at its first use.
    pub(crate) fn of_cluster(
        &self,
        (serial, cluster): &NumberedCluster,
        metrics: &Arc<telemetry::Worker>,
    ) -> Rc<WorkerCluster> {
        let mut by_cluster = self.by_cluster.borrow_mut();
        let shared = by_cluster.entry(*serial).or_insert_with(|| {
            let (metrics, of) = (Arc::clone(metrics), Arc::clone(cluster));
            let pool = Pool::new(Arc::clone(cluster), move |opened| {
                lease::held(&metrics, &of, opened)
            });
            let housekeeping = spawn_local(Rc::clone(&pool).run()).abort_handle();
            Rc::new(WorkerCluster {
                pool,
                pipelines: Pipelines::default(),
                generated_ids: GeneratedIds::default(),
                vain_waits: VainWaits::default(),
                leavers: Leavers::default(),
                replay_memory: Rc::default(),
                kill_question: tokio::sync::Mutex::default(),
                answers: RefCell::default(),
                born: Instant::now(),
                by_latency: Cell::new(false),
                refusal: RefCell::default(),
                refusal_said: Cell::new(None),
                up_since: RefCell::default(),
                common: RefCell::default(),
                common_trackers: RefCell::default(),
                common_keys: RefCell::default(),
                common_values: RefCell::default(),
                housekeeping,
            })
        });
        Rc::clone(shared)
    }

    /// Forgets a cluster that is no longer in the configuration, once its last session is gone.
    pub(crate) fn forget(&self, cluster_serial: u32) {
        self.by_cluster.borrow_mut().remove(&cluster_serial);
    }
}
