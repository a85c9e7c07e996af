//! What a cluster shows at a scrape: states of its servers, their checks, their roles, the queue.

use std::sync::atomic::{AtomicU64, Ordering};

use config::AccountsFrom;
use telemetry::{Histogram, Samples, Source, catalog};

use crate::accounts::Trial;
use crate::cluster::Cluster;
use crate::server::Status;
use crate::topology::Role;

/// The checks of one server. Written by the task that checks it, and by no one else.
#[derive(Debug, Default)]
pub(crate) struct CheckMetrics {
    pub(crate) total: telemetry::Counter,
    pub(crate) failed: telemetry::Counter,
    pub(crate) seconds: Histogram,
}

/// The looks of the monitor at one server. Written by the task that looks, and by no one else.
#[derive(Debug, Default)]
pub(crate) struct LookMetrics {
    pub(crate) total: telemetry::Counter,
    pub(crate) failed: telemetry::Counter,
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
            out.gauge(&catalog::SERVER_DRAINING, labels, server.is_draining());
            out.counter(&catalog::CHECKS, labels, server.checks.total.get());
            out.counter(&catalog::CHECKS_FAILED, labels, server.checks.failed.get());
            out.histogram(&catalog::CHECK_DURATION, labels, &server.checks.seconds);
            let wait_queue = &server.wait_queue;
            out.gauge(&catalog::POOL_SIZE, labels, wait_queue.size.bound());
            out.counter(&catalog::POOL_GROWN, labels, get(&wait_queue.size.grown));
            out.counter(&catalog::POOL_SHRUNK, labels, get(&wait_queue.size.shrunk));
            out.gauge(&catalog::POOL_WAITING, labels, wait_queue.len());
            out.counter(&catalog::POOL_WAIT_TIMEOUTS, labels, get(&wait_queue.timeouts));
            out.counter(&catalog::POOL_WAIT_REJECTED, labels, get(&wait_queue.rejected));
        }
        self.collect_topology(out);
        self.collect_accounts(out);
        if self.config().pd.is_some() {
            let is_current = self.pd_answers.load(Ordering::Relaxed);
            out.gauge(&catalog::PD_ANSWERS, &[cluster], is_current);
        }
        if self.config().endpoint_slices.is_some() {
            let is_current = self.slices_answer.load(Ordering::Relaxed);
            out.gauge(&catalog::ENDPOINT_SLICES_ANSWER, &[cluster], is_current);
        }
        self.pools.collect(cluster, out);
        let labels = &[cluster];
        let queue = self.queue();
        out.gauge(&catalog::QUEUE_WAITING, labels, queue.len());
        out.counter(&catalog::QUEUE_TIMEOUTS, labels, get(&queue.timeouts));
        out.counter(&catalog::QUEUE_REJECTED, labels, get(&queue.rejected));
        out.gauge(&catalog::PAUSED, labels, self.is_paused());
        out.gauge(&catalog::PAUSE_WAITING, labels, self.paused_statements());
        out.counter(&catalog::PAUSE_TIMEOUTS, labels, get(&self.pause.timeouts));
        out.counter(&catalog::PAUSE_REJECTED, labels, get(&self.pause.rejected));
        out.gauge(&catalog::RELEASE_WAITING, labels, self.waiting_for_release());
        out.counter(&catalog::RELEASED, labels, get(&self.release.total));
    }
}

impl Cluster {
    fn collect_accounts(&self, out: &mut Samples) {
        let from = self.config().accounts.from;
        let known = match from {
            AccountsFrom::Configured => return,
            AccountsFrom::Servers => self.accounts().map_or(0, |known| known.len()),
            AccountsFrom::PassThrough => self.accounts.pass_through().count(),
        };
        out.gauge(&catalog::ACCOUNTS_KNOWN, &[self.name()], known);
        if from == AccountsFrom::PassThrough {
            for trial in Trial::ALL {
                let labels = &[self.name(), trial.label()];
                let count = self.accounts.pass_through().results(trial);
                out.counter(&catalog::ACCOUNT_TRIALS, labels, count);
            }
        }
    }

    fn collect_topology(&self, out: &mut Samples) {
        let cluster = self.name();
        let topology = self.topology();
        let roles = Role::ALL.map(Role::label);
        let uses_roles = self.config().uses_roles;
        for member in &topology.members {
            let labels = &[cluster, member.server.name()];
            if uses_roles {
                out.state(&catalog::SERVER_ROLE, labels, &roles, member.role.label());
            }
            if let Some(lag) = member.lag {
                out.float(&catalog::SERVER_LAG, labels, lag.as_secs_f64());
            }
            if let Some(behind) = member.transactions_behind {
                out.gauge(&catalog::SERVER_TRANSACTIONS_BEHIND, labels, behind);
            }
            out.counter(&catalog::LOOKS, labels, member.server.looks.total.get());
            out.counter(&catalog::LOOKS_FAILED, labels, member.server.looks.failed.get());
        }
        let labels = &[cluster];
        out.counter(
            &catalog::PRIMARY_CHANGES,
            labels,
            get(&self.follow.primary_changes),
        );
        out.counter(&catalog::PRIMARIES_DAMPED, labels, self.primaries_damped());
        let refused = topology.refuse_writes.is_some();
        out.gauge(&catalog::WRITES_REFUSED, labels, refused);
        if uses_roles {
            let behind = topology.are_replicas_too_far_behind();
            out.gauge(&catalog::REPLICAS_TOO_FAR_BEHIND, labels, behind);
        }
        // In a list without roles nobody misses a primary.
        if self.config().topology.has_primary() {
            let missing = topology.primary.is_none() && !refused;
            out.gauge(&catalog::PRIMARY_MISSING, labels, missing);
        }
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
