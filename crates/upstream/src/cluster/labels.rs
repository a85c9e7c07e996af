//! Servers that bear the label of a listener get its sessions first; those on other servers come back one a
//! second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Cluster;
use crate::permit::Permit;
use crate::server::{Server, ServerId};

/// Whether one more session may leave its server for one with its label.
#[derive(Debug, Default)]
pub(crate) struct LabelTurn(AtomicBool);

impl Cluster {
    /// A permit on the best server with this label that is not in `tried`: `None` where none takes a session.
    pub(crate) fn permit_with_label(self: &Arc<Self>, label: &str, tried: &[ServerId]) -> Option<Permit> {
        let weight = |server: &Server| match server.has_label(label) {
            true => server.weight(),
            false => 0,
        };
        self.best_permit(tried, weight).ok().flatten()
    }

    /// One more session may go where its label is, once a second.
    pub(super) fn give_label_turn(&self) {
        self.label_turn.0.store(true, Ordering::Relaxed);
    }

    /// Whether a session may go where its label is.
    #[must_use]
    pub fn has_label_turn(&self) -> bool {
        self.label_turn.0.load(Ordering::Relaxed)
    }

    /// Takes that turn. False where another session was faster.
    #[must_use]
    pub fn take_label_turn(&self) -> bool {
        self.label_turn.0.swap(false, Ordering::Relaxed)
    }

    /// A permit for a session that leaves its server for one with this label. Nobody waits in line for one.
    #[must_use]
    pub fn permit_by_label(self: &Arc<Self>, label: &str) -> Option<Permit> {
        self.queue
            .is_empty()
            .then(|| self.permit_with_label(label, &[]))?
    }

    /// Whether the server of this number bears this label.
    #[must_use]
    pub fn bears(&self, id: ServerId, label: &str) -> bool {
        self.servers()
            .iter()
            .any(|server| server.id() == id && server.has_label(label))
    }
}
