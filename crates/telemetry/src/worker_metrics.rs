//! The series of one listener and of one server, as one worker writes them.

use crate::{Counter, EndReason, Gauge, Histogram, Samples, catalog};

/// Label value under which listeners, servers and error codes beyond the limit are counted together.
pub const OTHER: &str = "other";

/// What one worker counts for one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    /// Sessions that came in, including those rejected or never logged in.
    pub accepted: Counter,
    /// Sessions open now.
    pub active: Gauge,
    /// Sessions turned away because a limit was reached.
    pub rejected: Counter,
    /// Bytes received from clients, as on the wire but for TLS.
    pub bytes_from_clients: Counter,
    /// Bytes sent to clients, as on the wire but for TLS.
    pub bytes_to_clients: Counter,
    /// Logins that failed, whoever refused them.
    pub login_failures: Counter,
    /// How long sessions lasted.
    pub session_seconds: Histogram,
    ended: [Counter; EndReason::COUNT],
}

impl ListenerMetrics {
    /// Counts the end of a session. `active` and `session_seconds` are the caller's.
    pub fn session_ended(&self, reason: EndReason) {
        self.ended[reason as usize].inc();
    }

    pub(crate) fn collect(&self, listener: &str, out: &mut Samples) {
        let labels = &[listener];
        out.gauge(&catalog::SESSIONS_ACTIVE, labels, self.active.get());
        out.counter(&catalog::SESSIONS_ACCEPTED, labels, self.accepted.get());
        out.counter(&catalog::SESSIONS_REJECTED, labels, self.rejected.get());
        out.counter(&catalog::LOGINS_FAILED, labels, self.login_failures.get());
        out.counter(
            &catalog::CLIENT_RECEIVED_BYTES,
            labels,
            self.bytes_from_clients.get(),
        );
        out.counter(&catalog::CLIENT_SENT_BYTES, labels, self.bytes_to_clients.get());
        out.histogram(&catalog::SESSION_DURATION, labels, &self.session_seconds);
        for (reason, count) in EndReason::ALL.iter().zip(&self.ended) {
            out.counter(&catalog::SESSIONS_ENDED, &[listener, reason.label()], count.get());
        }
    }
}

/// What one worker counts for copies of statements to one cluster.
#[derive(Debug, Default)]
pub struct MirrorMetrics {
    /// Copies that the cluster has answered, be it with an error.
    pub sent: Counter,
    /// Copies that could not be sent, or whose answer did not come to its end in time.
    pub failed: Counter,
    /// Copies for which there was no room.
    pub dropped: Counter,
    /// Statements that cannot be copied, for what they need of their session.
    pub left_out: Counter,
    /// Copies that were to be compared, and whose original was part of a transaction.
    pub in_transaction: Counter,
    /// The same of those that have failed.
    pub copy_failed: Counter,
    /// The same of those whose original got no server's answer, or not all of it.
    pub original_lost: Counter,
    /// The same of those for whose answers there was no room on the worker.
    pub no_room: Counter,
    /// The same of those for which there was none where answers wait to be compared.
    pub comparer_full: Counter,
}

impl MirrorMetrics {
    pub(crate) fn collect(&self, cluster: &str, out: &mut Samples) {
        let results = [
            ("sent", &self.sent),
            ("failed", &self.failed),
            ("dropped", &self.dropped),
            ("left_out", &self.left_out),
        ];
        for (result, count) in results {
            out.counter(&catalog::MIRRORED, &[cluster, result], count.get());
        }
        let reasons = [
            ("transaction", &self.in_transaction),
            ("copy_failed", &self.copy_failed),
            ("original_lost", &self.original_lost),
            ("no_room", &self.no_room),
            ("queue_full", &self.comparer_full),
        ];
        for (reason, count) in reasons {
            out.counter(&catalog::MIRROR_SKIPPED, &[cluster, reason], count.get());
        }
    }
}

/// What one worker counts for reads of rows in memory.
#[derive(Debug, Default)]
pub struct CacheMetrics {
    /// Reads that had to be as new as everything acknowledged before.
    pub strong: Counter,
    /// Reads that had to have their session's writes.
    pub session: Counter,
    /// Reads of whatever was there.
    pub eventual: Counter,
    /// Strong and session reads that waited in vain.
    pub not_fresh: Counter,
    /// Waits of strong and session reads.
    pub wait_seconds: Histogram,
    /// Probes that the primary answered.
    pub probes: Counter,
    /// Probes without an answer that counts.
    pub probes_failed: Counter,
    /// Time from a probe to its answer.
    pub probe_seconds: Histogram,
    /// Questions for rows that the primary answered.
    pub fetches: Counter,
    /// Questions for rows without an answer that counts.
    pub fetches_failed: Counter,
    /// Time from the question for rows to an answer that may be shown.
    pub fetch_seconds: Histogram,
    /// Rows from the primary that were given to memory.
    pub fills_kept: Counter,
    /// Rows from the primary that were not.
    pub fills_dropped: Counter,
}

impl CacheMetrics {
    pub(crate) fn collect(&self, out: &mut Samples) {
        let counters = [
            (&catalog::CACHE_READS, "strong", &self.strong),
            (&catalog::CACHE_READS, "session", &self.session),
            (&catalog::CACHE_READS, "eventual", &self.eventual),
            (&catalog::CACHE_PROBES, "answered", &self.probes),
            (&catalog::CACHE_PROBES, "failed", &self.probes_failed),
            (&catalog::CACHE_FETCHES, "answered", &self.fetches),
            (&catalog::CACHE_FETCHES, "failed", &self.fetches_failed),
            (&catalog::CACHE_FILLS, "kept", &self.fills_kept),
            (&catalog::CACHE_FILLS, "dropped", &self.fills_dropped),
        ];
        for (metric, label, count) in counters {
            out.counter(metric, &[label], count.get());
        }
        out.counter(&catalog::CACHE_READS_FAILED, &[], self.not_fresh.get());
        out.histogram(&catalog::CACHE_READ_WAIT_DURATION, &[], &self.wait_seconds);
        out.histogram(&catalog::CACHE_PROBE_DURATION, &[], &self.probe_seconds);
        out.histogram(&catalog::CACHE_FETCH_DURATION, &[], &self.fetch_seconds);
    }
}

/// What one worker counts for one server of a cluster.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    /// Connections made.
    pub connects: Counter,
    /// Attempts to connect that failed: refused, timed out, no greeting.
    pub connect_failures: Counter,
    /// Time from the attempt to the server's greeting, of connections made.
    pub connect_seconds: Histogram,
    /// Connections to the server that are held by sessions now.
    pub active: Gauge,
    /// Time from a command sent to the end of its response.
    pub latency: Histogram,
    /// Bytes received from the server, as on the wire but for TLS.
    pub bytes_from_server: Counter,
    /// Bytes sent to the server, as on the wire but for TLS.
    pub bytes_to_server: Counter,
}

impl ServerMetrics {
    pub(crate) fn collect(&self, cluster: &str, server: &str, out: &mut Samples) {
        let labels = &[cluster, server];
        out.counter(&catalog::SERVER_CONNECTS, labels, self.connects.get());
        out.counter(
            &catalog::SERVER_CONNECT_FAILURES,
            labels,
            self.connect_failures.get(),
        );
        out.histogram(&catalog::SERVER_CONNECT_DURATION, labels, &self.connect_seconds);
        out.gauge(&catalog::SERVER_SESSIONS_ACTIVE, labels, self.active.get());
        out.histogram(&catalog::COMMAND_DURATION, labels, &self.latency);
        out.counter(
            &catalog::SERVER_RECEIVED_BYTES,
            labels,
            self.bytes_from_server.get(),
        );
        out.counter(&catalog::SERVER_SENT_BYTES, labels, self.bytes_to_server.get());
    }
}
