//! A worker: one thread, one single-threaded runtime, and the sessions that live on it with both of their sockets.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::{Accepted, buffer};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use crate::arrival;
use crate::control::{Clock, ServerKey, Sessions, Signal};
use crate::gateway::{ListenerState, Shared};

/// How often the coarse clock ticks and idle sessions are looked for.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// What a worker is told. The queue has no bound of its own: it holds at most one message a client connection, whose
/// number is bounded where they are accepted, and a few for each change of the cluster.
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
    RaiseOnServer {
        server: ServerKey,
        signal: Signal,
    },
    RaiseAll(Signal),
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
    /// What all sessions were told last: those that come later are told so, too.
    pub(crate) told_all: Cell<Option<Signal>>,
}

/// The runtime of a worker, for the current thread.
pub(crate) fn runtime(metrics: Arc<telemetry::Worker>) -> std::io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || metrics.turns.inc())
        .build_local(LocalOptions::default())
}

/// Runs a worker on the current thread until it is told to stop.
pub(crate) fn run(
    runtime: &LocalRuntime,
    index: usize,
    shared: Arc<Shared>,
    inbox: UnboundedReceiver<Message>,
) {
    buffer::set_limit(shared.buffer_pool_max);
    let metrics = shared.telemetry.worker(index);
    let worker = Rc::new(Worker {
        index,
        metrics,
        shared,
        sessions: Sessions::default(),
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
                spawn_local(arrival::run(Rc::clone(worker), accepted, listener));
            }
            Message::Refused { accepted, listener } => {
                spawn_local(arrival::turn_away(Rc::clone(worker), accepted, listener));
            }
            Message::Raise { id, signal } => worker.sessions.raise(id, signal),
            Message::RaiseOnServer { server, signal } => worker.sessions.raise_on_server(server, signal),
            Message::RaiseAll(signal) => {
                worker.told_all.set(Some(signal));
                worker.sessions.raise_all(signal);
            }
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
        worker.metrics.buffers_in_use.set(buffer::in_use_count() as i64);
        worker.metrics.buffers_free.set(buffer::free_count() as i64);
    }
}
