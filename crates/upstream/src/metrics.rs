//! What a cluster shows at a scrape: states of its servers, their checks, the queue.

use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::{Histogram, Samples, Source, catalog};

use crate::cluster::Cluster;
use crate::server::Status;

/// The checks of one server. Written by the task that checks it, and by no one else.
#[derive(Debug, Default)]
pub(crate) struct CheckSeries {
    pub(crate) total: telemetry::Counter,
    pub(crate) failed: telemetry::Counter,
    pub(crate) seconds: Histogram,
}

impl Source for Cluster {
    fn collect(&self, out: &mut Samples) {
        let cluster = self.name();
        let states = Status::ALL.map(Status::label);
        for server in self.servers().iter() {
            let labels = &[cluster, server.name()];
            out.state(
                &catalog::SERVER_STATE,
                labels,
                &states,
                server.state().status.label(),
            );
            out.counter(&catalog::CHECKS, labels, server.checks.total.get());
            out.counter(&catalog::CHECKS_FAILED, labels, server.checks.failed.get());
            out.histogram(&catalog::CHECK_DURATION, labels, &server.checks.seconds);
        }
        let labels = &[cluster];
        let queue = self.queue();
        out.gauge(
            &catalog::QUEUE_WAITING,
            labels,
            i64::try_from(queue.len()).unwrap_or(i64::MAX),
        );
        out.counter(&catalog::QUEUE_TIMEOUTS, labels, get(&queue.timeouts));
        out.counter(&catalog::QUEUE_REJECTED, labels, get(&queue.rejected));
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
