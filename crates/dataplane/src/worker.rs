//! A worker: one thread, one single-threaded runtime, and the sessions that live on it with both of their
//! sockets.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use net::{Accepted, buffer};
use routing::Draw;
use sql_class::FactsCache;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use upstream::Cluster;

use crate::clock::{Clock, TICK};
use crate::connection;
use crate::control::{ServerKey, Sessions, Signal};
use crate::extension::{Extension, WorkerExtension, WorkerHandle};
use crate::finished::Observers;
use crate::listener_state::ListenerState;
use crate::shared::Shared;
use crate::split::{self, ConfiguredRules, Mirrors, Pools, WorkerRules};
use crate::status::SessionStatus;

/// What a worker is told. The queue has no bound of its own: it holds at most one message a client
/// connection, whose number is bounded where they are accepted, and a few for each change of the cluster.
pub(crate) enum Message {
    /// A client connection that was accepted for this worker.
    Arrived {
        accepted: Accepted,
        listener: Arc<ListenerState>,
    },
    /// One that is over a limit, to be told so.
    Refused {
        accepted: Accepted,
        listener: Arc<ListenerState>,
    },
    Raise {
        id: u32,
        signal: Signal,
    },
    /// Kills a session of mode `split`, or the statement that it has under way.
    KillInPool {
        id: u32,
        query_only: bool,
        cluster: Arc<Cluster>,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Says what its sessions are doing, at most so many of them.
    Describe {
        limit: usize,
        reply: oneshot::Sender<Vec<(SessionStatus, Option<ServerKey>)>>,
    },
    RaiseOnServer {
        server: ServerKey,
        signal: Signal,
    },
    RaiseAll(Signal),
    /// Comes before the first connection, if at all.
    Extend(Arc<dyn Extension>),
    /// Other rules from here on.
    Rules(Arc<ConfiguredRules>),
    /// A cluster is no longer in the configuration, and its sessions have had their time.
    Forget {
        cluster_serial: u32,
    },
    /// Go home, whatever is still running.
    Stop,
}

/// What the sessions of a worker share.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Arc<telemetry::Worker>,
    pub(crate) sessions: Sessions,
    pub(crate) clock: Rc<Clock>,
    /// Server connections that sessions of mode `split` share.
    pub(crate) pools: Pools,
    pub(crate) rules: WorkerRules,
    pub(crate) mirrors: Mirrors,
    /// What statements are that come again and again.
    pub(crate) facts_cache: RefCell<FactsCache<RandomState>>,
    /// Who serves listeners of other protocols.
    pub(crate) extension: OnceCell<Rc<dyn WorkerExtension>>,
    /// Who hears of each command that has ended.
    pub(crate) observers: Observers,
    /// For the turns of balancing.
    turns: Cell<u64>,
    /// What all sessions were told last: those that come later are told so, too.
    pub(crate) told_all: Cell<Option<Signal>>,
}

impl Worker {
    /// What the next choice of a server may turn on.
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

/// The runtime of a worker, for the current thread.
pub(crate) fn runtime(metrics: Arc<telemetry::Worker>) -> std::io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || metrics.turns.inc())
        .build_local(LocalOptions::default())
}

/// What the configuration gives each worker.
pub(crate) fn buffer_limits(config: &config::Config) -> buffer::Limits {
    buffer::Limits {
        free: config.buffer_pool_max,
        grown: usize::try_from(config.statement_memory_max.0).unwrap_or(usize::MAX),
    }
}

/// Runs a worker on the current thread until it is told to stop.
pub(crate) fn run(
    runtime: &LocalRuntime,
    index: usize,
    shared: Arc<Shared>,
    inbox: UnboundedReceiver<Message>,
) {
    buffer::set_limit(shared.buffers.free);
    buffer::set_grown_limit(shared.buffers.grown);
    let metrics = shared.telemetry.worker(index);
    let worker = Rc::new(Worker {
        index,
        metrics,
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
        told_all: Cell::new(None),
    });
    runtime.block_on(async move {
        let sweep = spawn_local(sweep(Rc::clone(&worker)));
        take_messages(&worker, inbox).await;
        sweep.abort();
    });
}

/// Does what it is told until it is told to stop. Sessions that are left then are cut off with the runtime.
async fn take_messages(worker: &Rc<Worker>, mut inbox: UnboundedReceiver<Message>) {
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Arrived { accepted, listener } => {
                connection::begin(Rc::clone(worker), accepted, listener);
            }
            Message::Refused { accepted, listener } => {
                spawn_local(connection::turn_away(Rc::clone(worker), accepted, listener));
            }
            Message::Raise { id, signal } => worker.sessions.raise(id, signal),
            Message::KillInPool {
                id,
                query_only,
                cluster,
                reply,
            } => {
                let control = worker.sessions.find(id);
                spawn_local(async move {
                    let killed = match control {
                        Some(control) if query_only => split::shoot(control, cluster).await,
                        Some(control) => split::end(control, cluster).await,
                        None => Ok(()),
                    };
                    // Whoever asked may have gone.
                    let _ = reply.send(killed);
                });
            }
            Message::Describe { limit, reply } => {
                // Whoever asked may have gone.
                let _ = reply.send(
                    worker
                        .sessions
                        .describe(worker.index, worker.now_ms(), TICK, limit),
                );
            }
            Message::RaiseOnServer { server, signal } => worker.sessions.raise_on_server(server, signal),
            Message::RaiseAll(signal) => {
                worker.told_all.set(Some(signal));
                worker.sessions.raise_all(signal);
            }
            Message::Extend(extension) => {
                let handle = WorkerHandle {
                    index: worker.index,
                    metrics: Arc::clone(&worker.metrics),
                };
                let extension = worker.extension.get_or_init(|| extension.on_worker(&handle));
                worker.observers.set(extension.observers());
            }
            Message::Rules(rules) => worker.rules.replace(rules, |name| worker.metrics.rule(name)),
            Message::Forget { cluster_serial } => worker.pools.forget(cluster_serial),
            Message::Stop => return,
        }
    }
}

/// Moves the coarse clock on, raises the timeouts that have passed and publishes what only this thread knows.
async fn sweep(worker: Rc<Worker>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        worker.clock.advance();
        worker.sessions.check_idle();
        for (label, count) in worker.sessions.count_waiting() {
            worker.metrics.waiting(label, count);
        }
        worker.metrics.buffers_in_use.set(buffer::in_use_count() as i64);
        worker.metrics.buffers_free.set(buffer::free_count() as i64);
    }
}
