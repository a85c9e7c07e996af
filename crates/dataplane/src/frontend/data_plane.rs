//! What all threads of the data plane share.

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
    /// Who reaches other gateways, where there are others.
    pub(crate) elsewhere: OnceLock<Arc<dyn Elsewhere>>,
    /// Sessions on each worker, from the moment they are accepted.
    pub(crate) sessions_on: Box<[AtomicUsize]>,
    pub(crate) max_connections: AtomicU32,
    /// No session begins while that is so.
    pub(crate) short_of_memory: AtomicBool,
    pub(crate) buffers: net::buffer::Limits,
    /// What each worker counts in mode `split`.
    pub(crate) split_series: Box<[WorkerSplitMetrics]>,
    pub(crate) lookup_metrics: Box<[LookupMetrics]>,
    /// What has come from the process before this one.
    pub(crate) taken: Taken,
    /// Who may log in, in mode `split`.
    pub(crate) accounts: Accounts,
    /// When all this began: the clock of the rules' limits, which all workers share.
    pub(crate) started: Instant,
    /// The zone this gateway is in.
    pub(crate) zone: ArcSwapOption<String>,
    pub(crate) workers: Box<[UnboundedSender<Message>]>,
}

/// Where a session lives: one for all of a worker.
pub(crate) struct Home {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: usize,
}

impl Shared {
    /// Who knows where sessions are: of other gateways, and here.
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

    /// Tells a worker. One that has stopped has no sessions that could miss it.
    pub(crate) fn tell(&self, worker: usize, message: Message) {
        let _ = self.workers[worker].send(message);
    }

    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        (0..self.workers.len()).for_each(|worker| self.tell(worker, message()));
    }

    /// Asks all workers. One that has stopped has nothing to say.
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

    /// Has the worker of a session that shares server connections end it, or its statement alone. What came
    /// of that is said once it is over.
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

    /// Ends a session on whatever worker it is.
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
