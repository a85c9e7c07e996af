//! How many connections to one server are opened at the same time, by all workers together.
//!
//! When a server comes back, or becomes the primary, everybody who has waited wants a connection at once. Few
//! of them are needed for long: who has to wait for a turn usually finds one that another has opened and
//! given back. It is no limit of connections, and nobody fails because of it: who has waited for [`PATIENCE`]
//! goes on without.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Less than what waits to be accepted by a server at its defaults (`back_log`: 151 and 80).
const MOST: usize = 64;

/// Where logins are slow they rather go on side by side than one after the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// After so long it is looked whether a connection has come free without a turn.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The turns of one server.
#[derive(Debug)]
pub(crate) struct ConnectLimiter(Semaphore);

impl Default for ConnectLimiter {
    fn default() -> Self {
        Self(Semaphore::new(MOST))
    }
}

impl ConnectLimiter {
    /// A turn, unless others have to be waited for.
    pub(super) fn at_once(&self) -> Option<SemaphorePermit<'_>> {
        self.0.try_acquire().ok()
    }

    /// Whether a connection is being opened.
    pub(super) fn are_under_way(&self) -> bool {
        self.0.available_permits() < MOST
    }

    /// A turn after the others; `None` after a short while without one.
    pub(super) async fn wait(&self) -> Option<SemaphorePermit<'_>> {
        let turn = timeout(LOOK_EVERY, self.0.acquire()).await;
        turn.ok()?.ok()
    }
}
