//! Servers that bear the label of a listener get its sessions first; those on other servers come back one a
//! second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Cluster;
use crate::lock::lock;
use crate::permit::Permit;
use crate::server::{Server, ServerId, now};

/// Between two sessions.
const PACE: Duration = Duration::from_secs(1);

/// Whether one more session may leave its server for one with its label.
#[derive(Debug, Default)]
pub(crate) struct LabelTurn {
    is_there: AtomicBool,
    /// When there is one again. Of the thread that looks at the cluster.
    next: Mutex<Option<Instant>>,
}

impl LabelTurn {
    /// Gives one, if it is time. However often somebody looks, that is as often as [`PACE`] says.
    fn give(&self, now: Instant) {
        let mut next = lock(&self.next);
        let due = next.unwrap_or(now);
        if due <= now {
            self.is_there.store(true, Ordering::Relaxed);
            *next = Some((due + PACE).max(now));
        }
    }
}

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
        self.label_turn.give(now());
    }

    /// Whether a session may go where its label is.
    #[must_use]
    pub fn has_label_turn(&self) -> bool {
        self.label_turn.is_there.load(Ordering::Relaxed)
    }

    /// Takes that turn. False where another session was faster.
    #[must_use]
    pub fn take_label_turn(&self) -> bool {
        self.label_turn.is_there.swap(false, Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_session_a_second_comes_back_however_often_somebody_looks() {
        for looks in [1, 3, 20] {
            let (turn, began) = (LabelTurn::default(), Instant::now());
            let taken = (0..10 * looks).filter(|look| {
                turn.give(began + PACE * *look / looks);
                turn.is_there.swap(false, Ordering::Relaxed)
            });
            assert_eq!(taken.count(), 10, "{looks}");
        }
    }
}
