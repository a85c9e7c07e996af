//! The thread of a worker: it handles messages, and sweeps the sessions.

use std::rc::Rc;
use std::sync::Arc;

use net::buffer;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use crate::clock::TICK;
use crate::control::{Control, Signal};
use crate::engine::kill;
use crate::error::SessionError;
use crate::frontend::connection;
use crate::frontend::data_plane::Shared;
use crate::frontend::extension::WorkerHandle;
use crate::frontend::message::Message;
use crate::frontend::worker::Worker;
use crate::hand_over::{give, resume};

/// The runtime of a worker, for the current thread.
pub(crate) fn runtime(metrics: Arc<telemetry::Worker>) -> std::io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || metrics.turns.inc())
        .build_local(LocalOptions::default())
}

/// The limits of buffers that the configuration gives each worker.
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
    let worker = Rc::new(Worker::new(index, shared));
    runtime.block_on(async move {
        let sweep = spawn_local(sweep(Rc::clone(&worker)));
        take_messages(&worker, inbox).await;
        sweep.abort();
    });
}

/// Handles messages until one says to stop. Sessions that are left then are cut off with the runtime.
async fn take_messages(worker: &Rc<Worker>, mut inbox: UnboundedReceiver<Message>) {
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Arrived { accepted, listener } => {
                connection::begin(Rc::clone(worker), accepted, listener);
            }
            Message::TakeOver(arriving) => resume::begin(Rc::clone(worker), *arriving),
            Message::GiveAway(giving) => {
                spawn_local(give::wake_all(Rc::clone(worker), giving));
            }
            Message::Staying { reply } => {
                // The asker may have gone.
                let _ = reply.send(worker.sessions.staying());
            }
            Message::Refused {
                accepted,
                listener,
                short_of_memory,
            } => {
                let error = match short_of_memory {
                    true => SessionError::ShortOfMemory,
                    false => SessionError::TooManySessions,
                };
                spawn_local(connection::turn_away(
                    Rc::clone(worker),
                    accepted,
                    listener,
                    error,
                ));
            }
            Message::Raise { id, signal } => {
                if !worker.sessions.raise(id, signal) && signal == Signal::Kill {
                    worker.kill_elsewhere(id);
                }
            }
            Message::KillInPool {
                id,
                query_only,
                cluster,
                reply,
            } => {
                let worker = Rc::clone(worker);
                spawn_local(async move {
                    let killed = match worker.sessions.find(id) {
                        Some(control) if query_only => kill::shoot(control, cluster).await,
                        Some(control) => {
                            kill::end(control, cluster).await;
                            Ok(())
                        }
                        // Nothing is under way in a session that has gone.
                        None if query_only => Ok(()),
                        None => {
                            worker.kill_elsewhere(id);
                            Ok(())
                        }
                    };
                    // The asker may have gone.
                    let _ = reply.send(killed);
                });
            }
            Message::Describe { limit, reply } => {
                // The asker may have gone.
                let _ = reply.send(
                    worker
                        .sessions
                        .describe(worker.index, worker.now_ms(), TICK, limit),
                );
            }
            Message::RaiseOnServer { server, signal } => {
                worker.sessions.on_server(server, |control| control.raise(signal));
            }
            Message::WakeOnServer(server) => worker.sessions.on_server(server, Control::wake),
            Message::WakeSome { server, count } => worker.sessions.wake_some(server, count),
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
