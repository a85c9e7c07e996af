//! A session that the process before this one offers, and the counts of its other sessions.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use telemetry::{Samples, catalog};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::Stays;
use super::offer::{self, Head};
use super::stays::Staying;
use crate::frontend::listener_state::ListenerState;

/// Counts of the sessions of the process before this one: those taken over, and those that stay.
#[derive(Default)]
pub(crate) struct Taken {
    sessions: AtomicU64,
    staying: Mutex<Staying>,
}

impl Taken {
    /// Counts a session that has become this process's.
    pub(crate) fn note(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the counts of sessions that stay there. Returns the counts that were set before.
    pub(super) fn say(&self, staying: Staying) -> Staying {
        let mut known = self.staying.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *known, staying)
    }

    pub(super) fn count(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(crate) fn collect(&self, out: &mut Samples) {
        let taken = self.sessions.load(Ordering::Relaxed);
        out.counter(&catalog::UPGRADE_SESSIONS_TAKEN, &[], taken);
        let staying = self.staying.lock().unwrap_or_else(PoisonError::into_inner);
        for why in Stays::ALL {
            out.gauge(
                &catalog::UPGRADE_SESSIONS_LEFT,
                &[why.label()],
                staying.of(why) as i64,
            );
        }
    }
}

/// A session that the process before this one offers.
pub(crate) struct Arriving {
    pub(crate) head: Head,
    /// The whole offer, with the head.
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// The sockets of the client and, where the session has one, of the server.
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) listener: Arc<ListenerState>,
    pub(crate) verdict: Verdict,
}

impl Arriving {
    /// The description of the session behind the head.
    pub(crate) fn body(&self) -> &[u8] {
        offer::split(&self.bytes).map_or(&[], |(_, body)| body)
    }
}

/// The decision on an offer. An offer whose verdict is dropped is refused.
pub(crate) struct Verdict {
    pub(super) answers: Sender<OfferAnswer>,
    pub(super) number: u32,
    pub(super) why: Option<Stays>,
    /// The word of the old process that the session is ours.
    pub(super) ours: Option<oneshot::Receiver<()>>,
}

/// An answer on its way to the old process: at most one for each of its offers, whose number it bounds.
pub(super) type OfferAnswer = (u32, Result<(), Stays>);

impl Verdict {
    pub(crate) fn refuse(mut self, why: Stays) {
        self.why = Some(why);
    }

    /// Accepts the offer. Returns whether the session is ours: nothing may be done with it before.
    pub(crate) async fn accept(mut self) -> bool {
        let Some(ours) = self.ours.take() else {
            return false;
        };
        self.why = None;
        let _ = self.answers.send((self.number, Ok(())));
        ours.await.is_ok()
    }
}

impl Drop for Verdict {
    fn drop(&mut self) {
        if let Some(why) = self.why {
            // The old process may have ended.
            let _ = self.answers.send((self.number, Err(why)));
        }
    }
}
