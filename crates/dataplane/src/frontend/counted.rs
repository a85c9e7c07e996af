//! A session in every list and count.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use telemetry::{EndReason, ListenerMetrics};
use tracing::info;

use crate::control::{Control, ServerKey};
use crate::error::SessionError;
use crate::frontend::listener_state::ListenerState;
use crate::frontend::registry::SessionPlace;
use crate::frontend::session_summary::SessionSummary;
use crate::frontend::worker::Worker;

/// The log target by which operators choose what is logged of the ends of sessions.
const CONNECTION: &str = "dataplane::frontend::connection";

/// The place of a session in every list and count, given up when this is dropped, however its task ends.
pub(crate) struct Counted {
    pub(crate) worker: Rc<Worker>,
    pub(crate) listener: Arc<ListenerState>,
    pub(crate) metrics: Arc<ListenerMetrics>,
    pub(crate) control: Rc<Control>,
}

impl Counted {
    pub(crate) fn new(worker: Rc<Worker>, listener: Arc<ListenerState>, control: Rc<Control>) -> Self {
        let metrics = worker.metrics.listener(&listener.config.name);
        worker.sessions.insert(&control);
        if let Some(signal) = worker.told_all.get() {
            control.raise(signal);
        }
        worker.metrics.sessions.inc();
        metrics.active.inc();
        Self {
            worker,
            listener,
            metrics,
            control,
        }
    }

    /// From now on others find the session by its number. `server_connection`: the session's server, and the
    /// number that the session has there.
    pub(crate) fn list(
        &self,
        server_connection: Option<(ServerKey, u32)>,
        user: Arc<[u8]>,
        is_arriving: bool,
    ) {
        let place = SessionPlace {
            worker: self.worker.index,
            cluster: self.listener.cluster_serial,
            server_connection,
            user,
            is_hidden: is_arriving,
        };
        self.worker.shared.registry.insert(self.control.id, place);
    }

    /// The session has come to its end, for this reason.
    pub(crate) fn end(&self, summary: &SessionSummary, error: &SessionError) {
        let control = &self.control;
        self.metrics.session_ended(error.reason());
        self.metrics.session_seconds.record(control.began.elapsed());
        info!(
            target: CONNECTION,
            session = control.id,
            listener = self.listener.config.name,
            client = %summary.client,
            user = &*summary.user,
            server = summary.server_name(),
            reason = error.reason().label(),
            cause = error.to_string(),
            seconds = control.began.elapsed().as_secs_f64(),
            commands = summary.commands,
            bytes_from_client = summary.from_client,
            bytes_to_client = summary.to_client,
            "session ended"
        );
        if matches!(error, SessionError::HandedOver) && control.is_killed() {
            self.worker.kill_elsewhere(control.id);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let id = self.control.id;
        self.worker.shared.registry.remove(id);
        self.worker.sessions.remove(id);
        self.worker.metrics.sessions.dec();
        self.metrics.active.dec();
        if std::thread::panicking() {
            self.metrics.session_ended(EndReason::Panic);
            tracing::error!(target: CONNECTION, id, "session ended by a fault of the gateway");
        }
        self.worker.shared.sessions_on[self.worker.index].fetch_sub(1, Ordering::Relaxed);
        self.listener.active.fetch_sub(1, Ordering::Relaxed);
    }
}
