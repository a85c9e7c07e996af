//! State that all threads of the data plane share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use telemetry::Telemetry;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use upstream::Cluster;

use crate::control::Signal;
use crate::elsewhere::Elsewhere;
use crate::engine::metrics::WorkerSplitMetrics;
use crate::frontend::accounts::Accounts;
use crate::frontend::message::Message;
use crate::frontend::registry::Registry;
use crate::hand_over::arriving::Taken;
use crate::lookups::LookupMetrics;

pub(crate) struct Shared {
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) registry: Registry,
    /// The way to other gateways, where there are others.
    pub(crate) elsewhere: OnceLock<Arc<dyn Elsewhere>>,
    /// Sessions on each worker, from the moment they are accepted.
    pub(crate) sessions_on: Box<[AtomicUsize]>,
    pub(crate) max_connections: AtomicU32,
    /// True while memory is short: no session begins then.
    pub(crate) short_of_memory: AtomicBool,
    pub(crate) buffers: net::buffer::Limits,
    /// The metrics of each worker in mode `split`.
    pub(crate) split_series: Box<[WorkerSplitMetrics]>,
    pub(crate) lookup_metrics: Box<[LookupMetrics]>,
    /// Sessions that the process before this one has given, and those that it keeps.
    pub(crate) taken: Taken,
    /// The accounts that may log in, in mode `split`.
    pub(crate) accounts: Accounts,
    /// The start of the data plane: the clock of the rules' limits, which all workers share, counts from it.
    pub(crate) started: Instant,
    /// The zone this gateway is in.
    pub(crate) zone: ArcSwapOption<String>,
    pub(crate) workers: Box<[UnboundedSender<Message>]>,
}

/// The worker that a session lives on, and the shared state. All sessions of a worker share one.
pub(crate) struct Home {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: usize,
}

impl Shared {
    /// The two places to look for a session: other gateways, and the registry of this one.
    pub(crate) fn sessions_anywhere(&self) -> (Option<&Arc<dyn Elsewhere>>, &Registry) {
        (self.elsewhere.get(), &self.registry)
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions_on
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// Nanoseconds since the start.
    pub(crate) fn nanoseconds(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The worker with the fewest sessions.
    pub(crate) fn idlest_worker(&self) -> usize {
        let counts = self.sessions_on.iter().enumerate();
        counts
            .min_by_key(|(_, count)| count.load(Ordering::Relaxed))
            .map_or(0, |(index, _)| index)
    }

    /// Sends a message to a worker. A worker that has stopped has no sessions that could miss the message.
    pub(crate) fn tell(&self, worker: usize, message: Message) {
        let _ = self.workers[worker].send(message);
    }

    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        (0..self.workers.len()).for_each(|worker| self.tell(worker, message()));
    }

    /// Asks all workers and gathers their answers. A worker that has stopped has nothing to say.
    pub(crate) async fn ask_all<T>(&self, question: impl Fn(oneshot::Sender<Vec<T>>) -> Message) -> Vec<T> {
        let ask = |worker| {
            let (reply, answer) = oneshot::channel();
            self.tell(worker, question(reply));
            answer
        };
        let answers: Vec<_> = (0..self.workers.len()).map(ask).collect();
        let mut all = Vec::new();
        for answer in answers {
            all.extend(answer.await.unwrap_or_default());
        }
        all
    }

    /// Has the worker of a session that shares server connections end the session, or its statement alone.
    /// The result comes once that is done.
    pub(crate) fn kill_in_pool(
        &self,
        worker: usize,
        (id, query_only): (u32, bool),
        cluster: &Arc<Cluster>,
    ) -> oneshot::Receiver<Result<(), String>> {
        let (reply, killed) = oneshot::channel();
        let message = Message::KillInPool {
            id,
            query_only,
            cluster: Arc::clone(cluster),
            reply,
        };
        self.tell(worker, message);
        killed
    }

    /// Ends a session of `worker`.
    pub(crate) fn kill(&self, worker: usize, id: u32) {
        self.tell(
            worker,
            Message::Raise {
                id,
                signal: Signal::Kill,
            },
        );
    }
}
